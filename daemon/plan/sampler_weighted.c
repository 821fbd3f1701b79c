/*
 * WeightedRandomSampler's sequences.
 *
 * With replacement, a uniform number in [0, 1) is looked up in the cumulative weights. torch's own
 * order is torch.multinomial's: float64 sums divided by their total, the last one set to 1, and the
 * first that is not below the number. The native one draws its number by position and takes the
 * first sum above it, so that samples of weight 0 never come.
 *
 * Without replacement the native order is exponential keys (Efraimidis and Spirakis 2006): each
 * sample waits -ln(u) / weight, and those that wait least come first, which equals drawing one
 * after the other in proportion to the remaining weights. Samples of weight 0 come last, by index.
 * torch does the same with numbers that depend on its build, so its order cannot be followed.
 *
 * Weights that were changed while it was read begin *legs* of the epoch. With replacement the
 * numbers are the same ones, and those from a leg's first position on are looked up in its weights.
 * Without, the samples still to come wait anew, by their new weights and the leg's own numbers:
 * drawing continues with what is left. A leg that begins with the epoch has the order that the spec
 * would have with these weights.
 */
#include "daemon/plan/sampler.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

#include "daemon/plan/rng_log.h"

/* Keeps the native draws apart from all other draws for a seed and an epoch. */
#define WEIGHTED_STREAM UINT64_C(0x7765696768746564)

/* In units of one sample's shuffle (see plan_backlog()): the time to sort one sample, and how many
 * samples are added up in one unit. */
enum { SORT_COST = 16, ADD_SHARE = 4 };

struct waiting {
    double time;
    uint64_t index;
};

struct weighted_leg {
    uint64_t begin;             /* its first position */
    struct weight_table *table; /* counted; NULL: the spec's weights */
    double *sums;               /* owned; with replacement; NULL: not added up yet, or all alike */
};

struct weighted {
    struct sampler base;
    uint64_t length;
    struct sampler_key key;
    double *weights;           /* owned; the spec's, where a leg has them; NULL: all equal */
    struct weighted_leg *legs; /* owned; the first one begins at 0 */
    uint32_t n_legs;
    bool ready;              /* its legs are added up, or sorted */
    struct rng_log log;      /* torch's order */
    struct waiting *waiting; /* owned; without replacement */
};

static struct weighted *sampler_weighted_of(struct sampler *sampler)
{
    return container_of(sampler, struct weighted, base);
}

static void sampler_weighted_free(struct sampler *sampler)
{
    struct weighted *weighted = sampler_weighted_of(sampler);

    rng_log_deinit(&weighted->log);
    for (uint32_t i = 0; i < weighted->n_legs; i++) {
        weight_table_unref(weighted->legs[i].table);
        free(weighted->legs[i].sums);
    }
    free(weighted->legs);
    free(weighted->weights);
    free(weighted->waiting);
    free(weighted);
}

/* The 53 bits of a float64 in [0, 1). */
static double sampler_weighted_unit(uint64_t bits)
{
    return (double)(bits & ((UINT64_C(1) << 53) - 1)) * 0x1p-53;
}

/* ---- weights -------------------------------------------------------------------------------- */

/* NULL: all alike. */
static const double *sampler_weighted_weights(const struct weighted *weighted, uint32_t leg)
{
    return weighted->legs[leg].table ? weighted->legs[leg].table->weights : weighted->weights;
}

static uint32_t sampler_weighted_leg(const struct weighted *weighted, uint64_t position)
{
    uint32_t leg = weighted->n_legs - 1;

    while (weighted->legs[leg].begin > position)
        leg--;
    return leg;
}

/* The last weight above 0 makes the sum whole, so that its share is 1 to the bit. */
static void sampler_weighted_add_up(struct weighted *weighted, uint32_t leg)
{
    const double *weights = sampler_weighted_weights(weighted, leg);
    double *sums = weighted->legs[leg].sums, sum = 0;

    for (uint64_t i = 0; sums && i < weighted->length; i++) {
        sum += weights[i];
        sums[i] = sum;
    }
    for (uint64_t i = 0; sums && i < weighted->length; i++)
        sums[i] /= sum;
}

static void sampler_weighted_add_all(struct weighted *weighted)
{
    for (uint32_t i = 0; i < weighted->n_legs && !weighted->ready; i++)
        sampler_weighted_add_up(weighted, i);
    weighted->ready = true;
    free(weighted->weights);
    weighted->weights = NULL;
}

/* Which it is, the same to the bit as if they were added up, where all weights are alike. */
static double sampler_weighted_sum(const struct weighted *weighted, uint32_t leg, uint64_t i)
{
    const double *sums = weighted->legs[leg].sums;

    return sums ? sums[i] : (double)(i + 1) / (double)weighted->length;
}

/* The first whose sum is not below `x`, or is above it; else the last one. */
static uint64_t sampler_weighted_look_up(const struct weighted *weighted, uint32_t leg, double x,
                                         bool above)
{
    uint64_t first = 0, end = weighted->length - 1;

    while (first < end) {
        uint64_t middle = first + (end - first) / 2;
        double sum = sampler_weighted_sum(weighted, leg, middle);

        if (sum < x || (above && sum == x))
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

/* ---- with replacement ----------------------------------------------------------------------- */

static uint64_t sampler_weighted_added_missing(const struct weighted *weighted)
{
    return weighted->ready ? 0 : weighted->n_legs * (weighted->length / ADD_SHARE);
}

static uint64_t sampler_weighted_torch_missing(const struct sampler *sampler, uint64_t end)
{
    const struct weighted *weighted = container_of(sampler, const struct weighted, base);

    return rng_log_missing(&weighted->log, end) + sampler_weighted_added_missing(weighted);
}

static void sampler_weighted_torch_extend(struct sampler *sampler, uint64_t end)
{
    struct weighted *weighted = sampler_weighted_of(sampler);

    sampler_weighted_add_all(weighted);
    while (weighted->log.done < end) {
        uint32_t leg = sampler_weighted_leg(weighted, weighted->log.done);
        double x = sampler_weighted_unit(mt19937_next64(&weighted->log.generator));
        rng_log_add(&weighted->log, sampler_weighted_look_up(weighted, leg, x, false));
    }
}

static uint64_t sampler_weighted_torch_at(struct sampler *sampler, uint64_t position)
{
    return rng_log_at(&sampler_weighted_of(sampler)->log, position);
}

static uint64_t sampler_weighted_native_missing(const struct sampler *sampler, uint64_t end)
{
    (void)end;
    return sampler_weighted_added_missing(container_of(sampler, const struct weighted, base));
}

static void sampler_weighted_native_extend(struct sampler *sampler, uint64_t end)
{
    (void)end;
    sampler_weighted_add_all(sampler_weighted_of(sampler));
}

static uint64_t sampler_weighted_native_at(struct sampler *sampler, uint64_t position)
{
    const struct weighted *weighted = sampler_weighted_of(sampler);
    struct sampler_bits bits = sampler_native_bits(&weighted->key, position);

    return sampler_weighted_look_up(weighted, sampler_weighted_leg(weighted, position),
                                    sampler_weighted_unit(bits.high), true);
}

/* ---- without replacement -------------------------------------------------------------------- */

static int sampler_weighted_compare_waiting(const void *a, const void *b)
{
    const struct waiting *left = a, *right = b;

    if (left->time != right->time)
        return left->time < right->time ? -1 : 1;
    return left->index < right->index ? -1 : left->index > right->index;
}

static double sampler_weighted_wait_of(const struct weighted *weighted, uint32_t leg,
                                       uint64_t index)
{
    const double *weights = sampler_weighted_weights(weighted, leg);
    double weight = weights ? weights[index] : 1;
    struct sampler_key key = weighted->key;

    key.leg = weighted->legs[leg].begin;
    struct sampler_bits bits = sampler_native_bits(&key, index);

    /* 1 - u lies in (0, 1]. A tiny weight may wait for ever, too. */
    return weight > 0 ? -log1p(-sampler_weighted_unit(bits.high)) / weight : (double)INFINITY;
}

static uint64_t sampler_weighted_sorted_missing(const struct sampler *sampler, uint64_t end)
{
    const struct weighted *weighted = container_of(sampler, const struct weighted, base);

    (void)end;
    return weighted->ready ? 0 : weighted->n_legs * weighted->length * SORT_COST;
}

/* All that is behind the leg's beginning. */
static void sampler_weighted_sort_leg(struct weighted *weighted, uint32_t leg)
{
    uint64_t begin = weighted->legs[leg].begin;

    for (uint64_t i = begin; i < weighted->length; i++)
        weighted->waiting[i].time =
            sampler_weighted_wait_of(weighted, leg, weighted->waiting[i].index);
    qsort(weighted->waiting + begin, weighted->length - begin, sizeof *weighted->waiting,
          sampler_weighted_compare_waiting);
}

static void sampler_weighted_sorted_extend(struct sampler *sampler, uint64_t end)
{
    struct weighted *weighted = sampler_weighted_of(sampler);

    (void)end;
    if (weighted->ready)
        return;
    for (uint64_t i = 0; i < weighted->length; i++)
        weighted->waiting[i].index = i;
    for (uint32_t i = 0; i < weighted->n_legs; i++)
        sampler_weighted_sort_leg(weighted, i);
    weighted->ready = true;
    free(weighted->weights);
    weighted->weights = NULL;
}

static uint64_t sampler_weighted_sorted_at(struct sampler *sampler, uint64_t position)
{
    const struct weighted *weighted = sampler_weighted_of(sampler);

    assert(weighted->ready && position < weighted->length);
    return weighted->waiting[position].index;
}

/* ---- making one ----------------------------------------------------------------------------- */

static const struct sampler_kind_ops torch_ops = {.missing = sampler_weighted_torch_missing,
                                                  .extend = sampler_weighted_torch_extend,
                                                  .at = sampler_weighted_torch_at,
                                                  .free = sampler_weighted_free};
static const struct sampler_kind_ops native_ops = {.missing = sampler_weighted_native_missing,
                                                   .extend = sampler_weighted_native_extend,
                                                   .at = sampler_weighted_native_at,
                                                   .free = sampler_weighted_free};
static const struct sampler_kind_ops sorted_ops = {.missing = sampler_weighted_sorted_missing,
                                                   .extend = sampler_weighted_sorted_extend,
                                                   .at = sampler_weighted_sorted_at,
                                                   .free = sampler_weighted_free};

static bool sampler_weighted_makes_sense(const struct plan_params *params, uint64_t count)
{
    double sum = params->weights ? 0 : 1;

    for (uint64_t i = 0; params->weights && i < params->length; i++) {
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

/* Takes over the epoch's legs. The spec's weights are copied if a leg uses them, since a plan may
 * outlive its parameters. */
static int sampler_weighted_take_legs(struct weighted *weighted, const struct plan_params *params)
{
    const struct mix_changes *changes = params->changes;
    uint32_t first = 0, end = changes ? mix_changes_of_epoch(changes, params->epoch, &first) : 0;
    uint64_t begin;

    if (mul_overflows(params->epoch, weighted->base.count, &begin))
        begin = UINT64_MAX;
    weighted->legs = calloc(1 + (size_t)(end - first), sizeof *weighted->legs);
    if (!weighted->legs)
        return -ENOMEM;
    if (first == end || changes->items[first].position > begin)
        weighted->n_legs = 1; /* the spec's */
    for (uint32_t i = first; i < end; i++) {
        uint64_t position = changes->items[i].position;

        weighted->legs[weighted->n_legs++] =
            (struct weighted_leg){.begin = position > begin ? position - begin : 0,
                                  .table = weight_table_ref(changes->items[i].table)};
    }
    assert(weighted->n_legs > 0 && weighted->legs[0].begin == 0);
    if (weighted->legs[0].table || !params->weights)
        return 0;
    weighted->weights = calloc(params->length, sizeof *weighted->weights);
    if (!weighted->weights)
        return -ENOMEM;
    memcpy(weighted->weights, params->weights, params->length * sizeof *weighted->weights);
    return 0;
}

static int sampler_weighted_draw(struct weighted *weighted, const struct plan_params *params)
{
    uint32_t added = 0;

    for (uint32_t i = 0; i < weighted->n_legs; i++) {
        if (!sampler_weighted_weights(weighted, i))
            continue;
        weighted->legs[i].sums = calloc(params->length, sizeof *weighted->legs[i].sums);
        if (!weighted->legs[i].sums)
            return -ENOMEM;
        weighted->base.bytes += params->length * sizeof *weighted->legs[i].sums;
        added++;
    }
    /* What a spec holds is added up at once, and an order without a list needs nothing. */
    if (added == 0 || (weighted->n_legs == 1 && !weighted->legs[0].table))
        sampler_weighted_add_all(weighted);
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
    weighted->waiting = calloc(params->length, sizeof *weighted->waiting);
    if (!weighted->waiting)
        return -ENOMEM;
    weighted->base.bytes = params->length * sizeof *weighted->waiting;
    if (weighted->weights)
        weighted->base.bytes += params->length * sizeof *weighted->weights;
    return 0;
}

int sampler_weighted_new(const struct plan_params *params, struct sampler **ret)
{
    uint64_t count = plan_drawn(params);

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
    int r = sampler_weighted_take_legs(weighted, params);
    if (r == 0)
        r = params->replacement ? sampler_weighted_draw(weighted, params)
                                : sampler_weighted_sort(weighted, params);
    if (r < 0) {
        sampler_weighted_free(&weighted->base);
        return r;
    }
    *ret = &weighted->base;
    return 0;
}
