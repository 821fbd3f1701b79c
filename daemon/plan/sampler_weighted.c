/*
 * WeightedRandomSampler's sequences.
 *
 * With replacement, a uniform number in [0, 1) is looked up in the cumulative weights. torch's own
 * order is torch.multinomial's: float64 sums divided by their total, the last one set to 1, and the
 * first that is not below the number. The native one draws its number by position, and takes the
 * first sum above it, so that nothing of weight 0 ever comes.
 *
 * Without replacement the native order is exponential keys (Efraimidis and Spirakis 2006): each
 * sample waits -ln(u) / weight, and those that wait least come first, which is as drawing one after
 * the other in proportion to the weights that are left. What has weight 0 comes last, by index.
 * torch does the same with numbers that hang on the build of torch, so there is nothing to follow.
 */
#include "daemon/plan/sampler.h"

#include <errno.h>
#include <math.h>

#include "daemon/plan/rng_log.h"

/* Keeps the native draws apart from whatever else is drawn for a seed and an epoch. */
#define WEIGHTED_STREAM UINT64_C(0x7765696768746564)

/* Time of one sample's share in sorting, in that of one sample's shuffle (see plan_backlog()). */
enum { SORT_COST = 16 };

struct waiting {
    double time;
    uint64_t index;
};

struct weighted {
    struct sampler base;
    uint64_t length;
    struct sampler_key key;
    double *sums;            /* owned; with replacement */
    struct rng_log log;      /* torch's order */
    double *weights;         /* owned; without replacement, until they are sorted */
    struct waiting *waiting; /* owned; without replacement, sorted when `weights` is NULL */
};

static struct weighted *sampler_weighted_of(struct sampler *sampler)
{
    return container_of(sampler, struct weighted, base);
}

static void sampler_weighted_free(struct sampler *sampler)
{
    struct weighted *weighted = sampler_weighted_of(sampler);

    rng_log_deinit(&weighted->log);
    free(weighted->sums);
    free(weighted->weights);
    free(weighted->waiting);
    free(weighted);
}

/* The 53 bits of a float64 in [0, 1). */
static double sampler_weighted_unit(uint64_t bits)
{
    return (double)(bits & ((UINT64_C(1) << 53) - 1)) * 0x1p-53;
}

/* The first whose sum is not below `x`, or is above it; the last one if there is none. */
static uint64_t sampler_weighted_look_up(const struct weighted *weighted, double x, bool above)
{
    uint64_t first = 0, end = weighted->length - 1;

    while (first < end) {
        uint64_t middle = first + (end - first) / 2;
        double sum = weighted->sums[middle];

        if (sum < x || (above && sum == x))
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

/* ---- with replacement ----------------------------------------------------------------------- */

static uint64_t sampler_weighted_torch_missing(const struct sampler *sampler, uint64_t end)
{
    return rng_log_missing(&container_of(sampler, const struct weighted, base)->log, end);
}

static void sampler_weighted_torch_extend(struct sampler *sampler, uint64_t end)
{
    struct weighted *weighted = sampler_weighted_of(sampler);

    while (weighted->log.done < end) {
        double x = sampler_weighted_unit(mt19937_next64(&weighted->log.generator));
        rng_log_add(&weighted->log, sampler_weighted_look_up(weighted, x, false));
    }
}

static uint64_t sampler_weighted_torch_at(struct sampler *sampler, uint64_t position)
{
    return rng_log_at(&sampler_weighted_of(sampler)->log, position);
}

static uint64_t sampler_weighted_native_at(struct sampler *sampler, uint64_t position)
{
    const struct weighted *weighted = sampler_weighted_of(sampler);
    struct sampler_bits bits = sampler_native_bits(&weighted->key, position);

    return sampler_weighted_look_up(weighted, sampler_weighted_unit(bits.high), true);
}

/* The last weight above 0 makes the sum whole, so that its share is 1 to the bit. */
static void sampler_weighted_add_up(struct weighted *weighted, const double *weights)
{
    double sum = 0;

    for (uint64_t i = 0; i < weighted->length; i++) {
        sum += weights[i];
        weighted->sums[i] = sum;
    }
    for (uint64_t i = 0; i < weighted->length; i++)
        weighted->sums[i] /= sum;
}

/* ---- without replacement -------------------------------------------------------------------- */

static int sampler_weighted_compare_waiting(const void *a, const void *b)
{
    const struct waiting *left = a, *right = b;

    if (left->time != right->time)
        return left->time < right->time ? -1 : 1;
    return left->index < right->index ? -1 : left->index > right->index;
}

static double sampler_weighted_wait_of(const struct weighted *weighted, uint64_t index)
{
    struct sampler_bits bits = sampler_native_bits(&weighted->key, index);

    /* 1 - u lies in (0, 1]. A tiny weight may wait for ever, too. */
    return weighted->weights[index] > 0
               ? -log1p(-sampler_weighted_unit(bits.high)) / weighted->weights[index]
               : (double)INFINITY;
}

static uint64_t sampler_weighted_sorted_missing(const struct sampler *sampler, uint64_t end)
{
    const struct weighted *weighted = container_of(sampler, const struct weighted, base);

    (void)end;
    return weighted->weights ? weighted->length * SORT_COST : 0;
}

static void sampler_weighted_sorted_extend(struct sampler *sampler, uint64_t end)
{
    struct weighted *weighted = sampler_weighted_of(sampler);

    (void)end;
    if (!weighted->weights)
        return;
    for (uint64_t i = 0; i < weighted->length; i++)
        weighted->waiting[i] =
            (struct waiting){.time = sampler_weighted_wait_of(weighted, i), .index = i};
    qsort(weighted->waiting, weighted->length, sizeof *weighted->waiting,
          sampler_weighted_compare_waiting);
    free(weighted->weights);
    weighted->weights = NULL;
}

static uint64_t sampler_weighted_sorted_at(struct sampler *sampler, uint64_t position)
{
    return sampler_weighted_of(sampler)->waiting[position].index;
}

/* ---- making one ----------------------------------------------------------------------------- */

static const struct sampler_kind_ops torch_ops = {.missing = sampler_weighted_torch_missing,
                                                  .extend = sampler_weighted_torch_extend,
                                                  .at = sampler_weighted_torch_at,
                                                  .free = sampler_weighted_free};
static const struct sampler_kind_ops native_ops = {.at = sampler_weighted_native_at,
                                                   .free = sampler_weighted_free};
static const struct sampler_kind_ops sorted_ops = {.missing = sampler_weighted_sorted_missing,
                                                   .extend = sampler_weighted_sorted_extend,
                                                   .at = sampler_weighted_sorted_at,
                                                   .free = sampler_weighted_free};

static bool sampler_weighted_makes_sense(const struct plan_params *params, uint64_t count)
{
    double sum = 0;

    for (uint64_t i = 0; i < params->length; i++) {
        if (!(params->weights[i] >= 0))
            return false;
        sum += params->weights[i];
    }
    if (params->length > UINT32_MAX || !(sum > 0) || isinf(sum))
        return false;
    if (params->length == 1 && params->replacement)
        return true;
    if (params->order == PLAN_TORCH)
        return params->replacement && count > 1;
    return params->replacement || count <= params->length;
}

static int sampler_weighted_draw(struct weighted *weighted, const struct plan_params *params)
{
    weighted->sums = calloc(params->length, sizeof *weighted->sums);
    if (!weighted->sums)
        return -ENOMEM;
    sampler_weighted_add_up(weighted, params->weights);
    weighted->base.bytes = params->length * sizeof *weighted->sums;
    if (params->order == PLAN_NATIVE)
        return 0;
    weighted->base.ops = &torch_ops;
    int r = rng_log_init(&weighted->log, weighted->base.count, false, params->seed + params->epoch);
    weighted->base.bytes += r == 0 ? rng_log_bytes(&weighted->log) : 0;
    return r;
}

static int sampler_weighted_sort(struct weighted *weighted, const struct plan_params *params)
{
    weighted->base.ops = &sorted_ops;
    weighted->weights = calloc(params->length, sizeof *weighted->weights);
    weighted->waiting = calloc(params->length, sizeof *weighted->waiting);
    if (!weighted->weights || !weighted->waiting)
        return -ENOMEM;
    memcpy(weighted->weights, params->weights, params->length * sizeof *weighted->weights);
    weighted->base.bytes = params->length * (sizeof *weighted->weights + sizeof *weighted->waiting);
    return 0;
}

int sampler_weighted_new(const struct plan_params *params, struct sampler **ret)
{
    uint64_t count = params->num_samples ? params->num_samples : params->length;

    if (!sampler_weighted_makes_sense(params, count))
        return -EINVAL;
    struct weighted *weighted = calloc(1, sizeof *weighted);
    if (!weighted)
        return -ENOMEM;
    *weighted = (struct weighted){.base = {.ops = &native_ops, .count = count},
                                  .length = params->length,
                                  .key = {.seed = params->seed,
                                          .epoch = params->epoch,
                                          .length = params->length,
                                          .stream = WEIGHTED_STREAM}};
    int r = params->replacement ? sampler_weighted_draw(weighted, params)
                                : sampler_weighted_sort(weighted, params);
    if (r < 0) {
        sampler_weighted_free(&weighted->base);
        return r;
    }
    *ret = &weighted->base;
    return 0;
}
