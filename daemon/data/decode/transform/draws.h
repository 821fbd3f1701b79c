/*
 * Where transforms get their random numbers from, in torch's words: each function is one call that
 * torchvision 0.28's transforms make, and a transform makes them in torchvision's order
 * (torchvision/transforms/v2/_geometry.py, _color.py, _augment.py, _auto_augment.py,
 * _container.py). So a transform does not know which of two sources it draws from:
 *
 *   - the keyed generator of the sample (draws_keyed_init(); rng.h): the same numbers whichever
 *     worker makes the sample, and however many there are;
 *   - the generators of a worker of PyTorch's, whose state continues from sample to sample.
 *
 * A source is a struct draws with its own state behind it (container_of). Nothing fails: arguments
 * are checked when transforms are read. Not thread-safe; pure but for the source's state.
 */
#ifndef DL_DATA_DRAWS_H
#define DL_DATA_DRAWS_H

#include "daemon/data/base/rng.h"

enum { DRAWS_DIRICHLET_MAX = 64 };

struct draws {
    const struct draws_ops *ops;
};

struct draws_ops {
    /* torch.empty(1).uniform_(low, high).item(): float32, in [low, high); low ≤ high */
    float (*uniform)(struct draws *d, double low, double high);
    /* torch.randint(low, high, (1,)): in [low, high); low < high, less than 2^28 apart */
    int64_t (*integer)(struct draws *d, int64_t low, int64_t high);
    /* torch.randperm(n): 0..n-1; n ≥ 1, less than 2^28 */
    void (*permutation)(struct draws *d, uint32_t n, uint32_t *ret);
    /* torch.empty(n).normal_(): float32, mean 0, deviation 1; n ≥ 1. torch has one way to make
     * fewer than 16 numbers and another for 16 and more: this is one call, whatever n */
    void (*normals)(struct draws *d, size_t n, float *ret);
    /* torch.multinomial(torch.tensor(weights), 1): below n; weights ≥ 0, float32, their sum > 0 */
    uint32_t (*choice)(struct draws *d, uint32_t n, const float *weights);
    /* torch._sample_dirichlet(torch.tensor([alpha] * n)): float32, ≥ 0, their sum 1; alpha > 0,
     * 1 ≤ n ≤ DRAWS_DIRICHLET_MAX */
    void (*dirichlet)(struct draws *d, uint32_t n, double alpha, float *ret);
    /* Python's random.choices(range(n), weights)[0]; weights ≥ 0, their sum > 0; NULL: None */
    uint32_t (*chosen)(struct draws *d, uint32_t n, const double *weights);
    /* Python's random.shuffle(list(range(n))) */
    void (*shuffled)(struct draws *d, uint32_t n, uint32_t *ret);
    /*
     * No draw, but torch's arithmetic likewise: _get_perspective_coeffs() of
     * torchvision/transforms/functional.py, which solves by LAPACK, for corners that are moved from
     * `from` to `to`. False: no solution. NULL: this source of draws does not have it.
     */
    bool (*perspective)(struct draws *d, const double from[static 4][2],
                        const double to[static 4][2], double ret[static 8]);
};

static inline float draws_uniform(struct draws *d, double low, double high)
{
    return d->ops->uniform(d, low, high);
}

/* torch.rand(1), and torch.rand(()). */
static inline float draws_rand(struct draws *d)
{
    return d->ops->uniform(d, 0, 1);
}

static inline int64_t draws_int(struct draws *d, int64_t low, int64_t high)
{
    return d->ops->integer(d, low, high);
}

static inline void draws_permutation(struct draws *d, uint32_t n, uint32_t *ret)
{
    d->ops->permutation(d, n, ret);
}

static inline void draws_normals(struct draws *d, size_t n, float *ret)
{
    d->ops->normals(d, n, ret);
}

static inline uint32_t draws_choice(struct draws *d, uint32_t n, const float *weights)
{
    return d->ops->choice(d, n, weights);
}

static inline void draws_dirichlet(struct draws *d, uint32_t n, double alpha, float *ret)
{
    d->ops->dirichlet(d, n, alpha, ret);
}

static inline uint32_t draws_chosen(struct draws *d, uint32_t n, const double *weights)
{
    return d->ops->chosen(d, n, weights);
}

static inline void draws_shuffled(struct draws *d, uint32_t n, uint32_t *ret)
{
    d->ops->shuffled(d, n, ret);
}

/* Draws of one sample, from its keyed generator. */
struct draws_keyed {
    struct draws base;
    struct rng rng;
};

/* As rng_init(). What is drawn, and in which order, is the same on every machine. */
void draws_keyed_init(struct draws_keyed *keyed, uint64_t seed, uint64_t epoch, uint64_t index);
/* Draws of a batch, by its first sample: other numbers than that sample's own. */
void draws_keyed_init_batch(struct draws_keyed *keyed, uint64_t seed, uint64_t epoch,
                            uint64_t first);

#endif
