/*
 * The plan: which sample indices form step k of rank r. A pure function of its parameters.
 *
 * No I/O, no clock, no global state; the same parameters give the same indices in any process.
 * `order: native` computes any step in O(batch) with O(1) memory, besides the given lists; only
 * weights without replacement are sorted once, by the first step. `order: torch` follows torch's
 * generator, whose draws can only be replayed from the start: the plan keeps earlier draws (4 bytes
 * a sample, zero pages until touched), so that the first step of an epoch costs one batch and step
 * k costs the draws before it, once. From 214,748,364 samples on torch ≥ 2.0 shuffles by another
 * algorithm, which only runs whole: 8 bytes a sample, all in the first step.
 *
 * The sampler's order is one of
 *   - samples 0..length-1 in turn, or shuffled: RandomSampler; with num_samples above the length
 *     one shuffle after the other, the last one cut
 *   - the same in blocks of samples that lie one after another: sampler_blocks.c
 *   - draws with replacement: RandomSampler(replacement=True)
 *   - `indices` in turn, or shuffled: SubsetRandomSampler
 *   - draws by `weights`: WeightedRandomSampler
 *   - the samples of several datasets by their shares: plan_mix.h
 * Where versions of torch differ, `order: torch` is the current one's (2.14): draws from 2^28
 * samples and more. For weights without replacement, and for a single draw by weights, torch's
 * order differs between builds: -EINVAL, unless there is only one weight.
 *
 * Seed and epoch. `order: torch` uses torch.Generator().manual_seed(seed + epoch mod 2^64), as
 * DistributedSampler(seed=seed) does after set_epoch(epoch); with world 1 that is the order of
 * torch's sampler with generator=g for such a g, fresh in each epoch. torch uses only the low 32
 * bits of the sum. `order: native` is keyed by all bits of seed and epoch separately.
 *
 * Sharding (shard.h) is DistributedSampler's, or one of Accelerate's. Strided: rank r takes
 * elements r, r + world, … of the order. With `even` the order is first padded to a multiple of
 * world by repeating it from its start, several times if world > samples:
 * DistributedSampler(drop_last=False). Without `even`, nothing is padded or cut, and ranks may
 * differ by one sample. `drop_last` is BatchSampler's and comes after: a rank's incomplete last
 * batch is left out. So no setting matches DistributedSampler(drop_last=True), which cuts the order
 * to a multiple of world.
 *
 * Dispatch: all ranks' samples of a step are consecutive in the order and are loaded as one batch.
 * In the functions below PLAN_ALL, instead of a rank, means that batch; plan_slice() returns a
 * rank's part of it.
 *
 * Batches of tokens are another way to cut the order; plan_tokens.h has their rules.
 *
 * A change of the world size within an epoch. `before` has the steps that other world sizes took of
 * the epoch, the same number for all ranks; the plan is then for the rest, from step 0. Where
 * batches are counted in samples, step k of all ranks together is positions k·G … (k + 1)·G − 1 of
 * the order with every way of sharding, G being the samples in a full step of all ranks; so what
 * was taken is the beginning of the order, and the rest is dealt out as the order itself would be.
 * `even` repeats the beginning of the whole order. With an unchanged world size the order is thus
 * the same with `before` and without. If the steps in `before` were the whole epoch nothing is
 * left, even if they had left samples out.
 *
 * Not thread-safe: one thread at a time may use a plan.
 */
#ifndef DL_PLAN_H
#define DL_PLAN_H

#include "daemon/plan/plan_mix.h"
#include "daemon/plan/plan_tokens.h"
#include "daemon/plan/shard.h"
#include "proto/history.h"

enum plan_order { PLAN_SEQUENTIAL, PLAN_TORCH, PLAN_NATIVE };

/* What is ordered, or drawn from; a list that the kind does not use is ignored. */
enum plan_sampler {
    PLAN_SAMPLES, /* 0..length-1 */
    PLAN_INDICES, /* neither num_samples nor replacement */
    PLAN_WEIGHTS, /* not PLAN_SEQUENTIAL */
    PLAN_MIXTURE, /* not PLAN_TORCH, and neither num_samples nor replacement */
};

#define PLAN_ALL SHARD_ALL /* in place of a rank, with PLAN_DISPATCH */

struct plan_params {
    uint64_t length; /* samples in the dataset; below 2^63; 0: no steps */
    enum plan_sampler sampler;
    enum plan_order order;       /* PLAN_SEQUENTIAL: neither num_samples nor replacement */
    const uint64_t *indices;     /* PLAN_INDICES: each below length; copied */
    uint64_t n_indices;          /* 0: no steps */
    const double *weights;       /* PLAN_WEIGHTS: `length` of them; finite, not negative, not all 0;
                                    copied; NULL: all equal */
    struct mix_changes *changes; /* PLAN_WEIGHTS: borrowed; changed weights of samples, with the
                                    tables that the epoch needs; may be NULL */
    struct plan_mix mix;         /* PLAN_MIXTURE: its children have `length` samples together; all
                                    copied */
    uint64_t num_samples;        /* below 2^63; 0: as many as there are */
    uint64_t block;  /* PLAN_SAMPLES, PLAN_NATIVE, all of them once: samples of a block; 0: not in
                        blocks */
    uint64_t window; /* with a block: blocks that are shuffled into each other; ≥ 1 */
    bool replacement;
    uint64_t seed;
    uint64_t epoch;
    uint64_t world;        /* ≥ 1 */
    uint64_t batch_size;   /* 0: no batching, one sample a step, same steps as 1 */
    bool drop_last;        /* leaves out each rank's incomplete last batch */
    enum plan_shard shard; /* for batches of samples; those of tokens have their own rules */
    bool even;             /* ranks get equally many samples, by repeating the first ones */
    struct history before; /* what other numbers of ranks have taken of this epoch */
    /* tokens.tokens 0: batch_size counts; else neither it nor drop_last */
    struct plan_tokens tokens;
};

struct plan;
struct dl_spec;

static inline bool plan_is_mix(const struct plan_params *params)
{
    return params->sampler == PLAN_MIXTURE;
}

/* Weights that were changed while it was read (mix_changes.h): a mixture's, or of samples. */
static inline struct mix_changes *plan_changes(const struct plan_params *params)
{
    return plan_is_mix(params) ? params->mix.changes : params->changes;
}

static inline void plan_set_changes(struct plan_params *params, struct mix_changes *changes)
{
    *(plan_is_mix(params) ? &params->mix.changes : &params->changes) = changes;
}

/* Whether changed weights fit the rest: 0; or in words -EINVAL, or -ENOENT: their tables are not
 * here. */
int _nodiscard_ plan_check_changes(const struct plan_params *params, struct dl_error *err);

/* Positions of an epoch whose weights belong to single samples. */
static inline uint64_t plan_drawn(const struct plan_params *params)
{
    return params->num_samples ? params->num_samples : params->length;
}

/* Whether two plans are equal. Lists and lengths are compared by address, not by content. */
bool plan_params_equal(const struct plan_params *a, const struct plan_params *b);

/*
 * A spec's plan over a dataset of that length, for epoch 0 of a world of 1. Lists stay the spec's.
 * The caller adds the lengths of samples and the sizes of a mix's datasets, which only the datasets
 * know. spec_check_length() explains what plan_new() would refuse.
 */
struct plan_params plan_params_of(const struct dl_spec *spec, uint64_t length);

/* Returns 0, -EINVAL (world 0, a batch that cannot be split, length too large, tokens that are to
 * be dispatched, or another invalid combination), or -ENOMEM. */
int _nodiscard_ plan_new(const struct plan_params *params, struct plan **ret);

/*
 * Works out all batches of tokens of the epoch: 0, or -ENOMEM. About 0.1 µs a sample, and 8 to 20
 * bytes of memory for each until it returns. Call it once, before all functions below but
 * plan_backlog(); in a plan without tokens it does nothing and returns 0. What plan_lazy.h can have
 * instead has then all of its windows.
 */
int _nodiscard_ plan_prepare(struct plan *plan);
struct plan *plan_free(struct plan *plan); /* NULL is fine; returns NULL */

static inline void plan_freep(struct plan **plan)
{
    *plan = plan_free(*plan);
}

/*
 * Memory that the plan comes to take, its copies of lists among it; 0 where the order is computed.
 * Of batches of tokens, before plan_prepare(): what that is expected to take at most, all members
 * being in full batches; afterwards: what they have taken.
 */
uint64_t plan_bytes(const struct plan *plan);

/* The most samples in any step of any rank, PLAN_ALL included; 0 if the plan has no steps. */
uint64_t plan_most(const struct plan *plan);

/* Samples and steps of one rank in the epoch. rank < world. */
uint64_t plan_samples(const struct plan *plan, uint64_t rank);
uint64_t plan_steps(const struct plan *plan, uint64_t rank);

/*
 * The same for an iterable dataset with a known length, which has no plan: as if one worker had all
 * of it; with strided, like PyTorch's len() of a loader, for ranks that share it evenly. Several
 * workers, each with its own last batch, may differ from that. Uses the length, the world, and how
 * batches are made and dealt.
 */
struct plan_extent {
    uint64_t samples;
    uint64_t steps;
};
struct plan_extent plan_estimate(const struct plan_params *params, uint64_t rank);

/*
 * Writes the sample indices of one step, in order, to `indices`: room for plan_most(). rank <
 * world, step < plan_steps(). Returns how many: at least 1.
 */
size_t plan_step(struct plan *plan, uint64_t rank, uint64_t step, uint64_t *indices);

/*
 * How many samples of the step only even the ranks out, since a rank already has them: always its
 * last ones, perhaps all. A sample that the sampler itself repeats does not count.
 */
uint64_t plan_repeated(const struct plan *plan, uint64_t rank, uint64_t step);

/* Where a rank's samples of a dispatched step stand in the batch of all: step < plan_steps(). */
struct plan_slice {
    uint64_t first;
    uint64_t samples;
};
struct plan_slice plan_slice(const struct plan *plan, uint64_t rank, uint64_t step);

/*
 * The same for an iterable dataset's step, which has `samples` for `world` ranks, the last
 * `repeated` of them only for evenness. A rank without any does not have this step.
 */
struct plan_rows {
    uint64_t first;
    uint64_t samples;
    uint64_t repeated; /* of these, the last ones */
};
struct plan_rows plan_rows(uint64_t samples, uint64_t repeated, uint64_t world, uint64_t rank);

/*
 * The place of the step's first sample in the order of the whole epoch, the same for all ranks;
 * approximate for batches of tokens, whose samples come from anywhere in a window. Only for views.
 * step < plan_steps().
 */
uint64_t plan_position(const struct plan *plan, uint64_t rank, uint64_t step);

/*
 * How much of the order plan_step(rank, step) would still have to shuffle or draw, in samples
 * (about 10 ns each up to some ten million samples in the dataset; up to 100 ns in larger ones,
 * whose memory is touched for the first time): for a caller that must not block. 0 once that step
 * or a later one was computed, and for `order: native` except for sorting weights. The caller can
 * run plan_step() in another thread and wait for it. For batches of tokens: all samples until
 * plan_prepare() was called, for any rank and step, and at least 1.
 */
uint64_t plan_backlog(const struct plan *plan, uint64_t rank, uint64_t step);

#endif
