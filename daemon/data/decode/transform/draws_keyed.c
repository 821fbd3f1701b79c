/* The sample's own numbers: one word of Philox for each number, two for a pair of normal ones; as
 * many as it takes for those of a gamma distribution. */
#include "daemon/data/decode/transform/draws.h"

#include <math.h>

static struct rng *draws_keyed_rng(struct draws *d)
{
    return &container_of(d, struct draws_keyed, base)->rng;
}

/* 24 bits, as torch has: so the result rounds to no number but those that float32 has between. */
static float draws_keyed_unit(struct rng *rng)
{
    return (float)(rng_u64(rng) >> 40) * 0x1p-24f;
}

static float draws_keyed_uniform(struct draws *d, double low, double high)
{
    float from = (float)low, width = (float)high - from;
    float scaled = draws_keyed_unit(draws_keyed_rng(d)) * width;

    return from + scaled;
}

static int64_t draws_keyed_integer(struct draws *d, int64_t low, int64_t high)
{
    return low + (int64_t)rng_below(draws_keyed_rng(d), (uint64_t)(high - low));
}

/* Fisher and Yates, from the front, as torch.randperm(). */
static void draws_keyed_permutation(struct draws *d, uint32_t n, uint32_t *ret)
{
    for (uint32_t i = 0; i < n; i++)
        ret[i] = i;
    for (uint32_t i = 0; i + 1 < n; i++) {
        uint32_t other = i + (uint32_t)rng_below(draws_keyed_rng(d), n - i), kept = ret[i];
        ret[i] = ret[other];
        ret[other] = kept;
    }
}

/* Box and Muller's pairs. */
static void draws_keyed_normals(struct draws *d, size_t n, float *ret)
{
    struct rng *rng = draws_keyed_rng(d);

    for (size_t i = 0; i < n; i += 2) {
        double angle = 2 * M_PI * rng_uniform(rng), radius = sqrt(-2 * log1p(-rng_uniform(rng)));
        ret[i] = (float)(radius * cos(angle));
        if (i + 1 < n)
            ret[i + 1] = (float)(radius * sin(angle));
    }
}

static uint32_t draws_keyed_choice(struct draws *d, uint32_t n, const float *weights)
{
    double sum = 0, upto = 0;
    uint32_t last = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += (double)weights[i];
    double at = rng_uniform(draws_keyed_rng(d)) * sum;
    for (uint32_t i = 0; i < n; i++) {
        upto += (double)weights[i];
        if (weights[i] > 0)
            last = i;
        if (at < upto)
            return i;
    }
    return last; /* rounding made the sum smaller than its parts */
}

/* Marsaglia and Tsang's method (A Simple Method for Generating Gamma Variables, 2000), shape a ≥ 1.
 */
static double draws_keyed_gamma_above(struct rng *rng, double a)
{
    double d = a - 1.0 / 3, c = 1 / sqrt(9 * d);

    for (;;) {
        double u = rng_uniform(rng), angle = 2 * M_PI * rng_uniform(rng);
        double x = sqrt(-2 * log1p(-u)) * cos(angle), v = 1 + c * x;
        if (v <= 0)
            continue;
        v = v * v * v;
        if (log1p(-rng_uniform(rng)) < 0.5 * x * x + d - d * v + d * log(v))
            return d * v;
    }
}

/* The logarithm of a number of shape a > 0: of a small shape the number itself may be too small. */
static double draws_keyed_log_gamma(struct rng *rng, double a)
{
    if (a >= 1)
        return log(draws_keyed_gamma_above(rng, a));
    double above = log(draws_keyed_gamma_above(rng, a + 1));
    return above + log1p(-rng_uniform(rng)) / a;
}

static void draws_keyed_dirichlet(struct draws *d, uint32_t n, double alpha, float *ret)
{
    double most = -INFINITY, sum = 0;
    double logs[DRAWS_DIRICHLET_MAX];

    for (uint32_t i = 0; i < n; i++) {
        logs[i] = draws_keyed_log_gamma(draws_keyed_rng(d), alpha);
        most = fmax(most, logs[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        sum += exp(logs[i] - most);
    for (uint32_t i = 0; i < n; i++)
        ret[i] = (float)(exp(logs[i] - most) / sum);
}

static uint32_t draws_keyed_chosen(struct draws *d, uint32_t n, const double *weights)
{
    double sum = 0, upto = 0;
    uint32_t i;

    if (!weights)
        return (uint32_t)rng_below(draws_keyed_rng(d), n);
    for (i = 0; i < n; i++)
        sum += weights[i];
    double at = rng_uniform(draws_keyed_rng(d)) * sum;
    for (i = 0; i + 1 < n; i++) {
        upto += weights[i];
        if (at < upto)
            break;
    }
    return i;
}

void draws_keyed_init(struct draws_keyed *keyed, uint64_t seed, uint64_t epoch, uint64_t index)
{
    static const struct draws_ops ops = {
        .uniform = draws_keyed_uniform,
        .integer = draws_keyed_integer,
        .permutation = draws_keyed_permutation,
        .normals = draws_keyed_normals,
        .choice = draws_keyed_choice,
        .dirichlet = draws_keyed_dirichlet,
        .chosen = draws_keyed_chosen,
        .shuffled = draws_keyed_permutation,
    };

    keyed->base.ops = &ops;
    rng_init(&keyed->rng, seed, epoch, index);
}

void draws_keyed_init_batch(struct draws_keyed *keyed, uint64_t seed, uint64_t epoch,
                            uint64_t first)
{
    draws_keyed_init(keyed, seed, epoch, first);
    rng_init_batch(&keyed->rng, seed, epoch, first);
}
