/* The kinds of samplers, as a table; the plain sequence; and lists of indices. */
#include "daemon/plan/sampler.h"

#include <Random123/philox.h>
#include <assert.h>
#include <errno.h>

struct sampler *sampler_free(struct sampler *sampler)
{
    if (sampler)
        sampler->ops->free(sampler);
    return NULL;
}

void sampler_take(struct sampler *sampler, uint64_t *positions, size_t n)
{
    if (sampler->ops->many) {
        sampler->ops->many(sampler, positions, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        positions[i] = sampler->ops->at(sampler, positions[i]);
}

struct sampler_bits sampler_native_bits(const struct sampler_key *key, uint64_t position)
{
    philox4x64_key_t words_key = {{key->seed, key->epoch}};
    philox4x64_ctr_t counter = {{position, key->length, key->leg, key->stream}};
    philox4x64_ctr_t words = philox4x64(counter, words_key);

    return (struct sampler_bits){.high = words.v[0], .low = words.v[1]};
}

/* ---- one after the other -------------------------------------------------------------------- */

static uint64_t sampler_sequential_at(struct sampler *sampler, uint64_t position)
{
    (void)sampler;
    return position;
}

static void sampler_sequential_free(struct sampler *sampler)
{
    free(sampler);
}

static int sampler_sequential_new(const struct plan_params *params, uint64_t length, uint64_t count,
                                  struct sampler **ret)
{
    static const struct sampler_kind_ops ops = {.at = sampler_sequential_at,
                                                .free = sampler_sequential_free};
    struct sampler *sampler = calloc(1, sizeof *sampler);

    (void)params;
    (void)length;
    if (!sampler)
        return -ENOMEM;
    *sampler = (struct sampler){.ops = &ops, .count = count};
    *ret = sampler;
    return 0;
}

/* ---- a list of indices, in the order of another sampler over its places --------------------- */

struct listed {
    struct sampler base;
    struct sampler *places; /* owned */
    uint64_t *indices;      /* owned */
};

static uint64_t sampler_listed_missing(const struct sampler *sampler, uint64_t end)
{
    const struct listed *listed = container_of(sampler, const struct listed, base);

    return listed->places->ops->missing ? listed->places->ops->missing(listed->places, end) : 0;
}

static void sampler_listed_extend(struct sampler *sampler, uint64_t end)
{
    struct listed *listed = container_of(sampler, struct listed, base);

    if (listed->places->ops->extend)
        listed->places->ops->extend(listed->places, end);
}

static uint64_t sampler_listed_at(struct sampler *sampler, uint64_t position)
{
    struct listed *listed = container_of(sampler, struct listed, base);

    return listed->indices[listed->places->ops->at(listed->places, position)];
}

static void sampler_listed_free(struct sampler *sampler)
{
    struct listed *listed = container_of(sampler, struct listed, base);

    sampler_free(listed->places);
    free(listed->indices);
    free(listed);
}

/* ---- orders of a range ---------------------------------------------------------------------- */

typedef int sampler_make(const struct plan_params *params, uint64_t length, uint64_t count,
                         struct sampler **ret);

/* `count` of `length` places, without replacement and with it. */
static int sampler_range_new(const struct plan_params *params, uint64_t length, uint64_t count,
                             struct sampler **ret)
{
    static sampler_make *const orders[][2] = {
        [PLAN_SEQUENTIAL] = {sampler_sequential_new, NULL},
        [PLAN_TORCH] = {sampler_permuted_torch_new, sampler_drawn_torch_new},
        [PLAN_NATIVE] = {sampler_permuted_native_new, sampler_drawn_native_new},
    };
    sampler_make *make = orders[params->order][params->replacement];

    assert(make); /* a sequence has no replacement: sampler_samples_fit() */
    return make(params, length, count, ret);
}

/* ---- the kinds ------------------------------------------------------------------------------ */

static int sampler_samples_new(const struct plan_params *params, struct sampler **ret)
{
    uint64_t count = params->num_samples ? params->num_samples : params->length;

    if (params->block > 0)
        return sampler_blocks_new(params, ret);
    return sampler_range_new(params, params->length, count, ret);
}

/* Copies the list: a plan may outlive its parameters, in a thread that still uses it. */
static int sampler_listed_new(const struct plan_params *params, struct sampler **ret)
{
    static const struct sampler_kind_ops ops = {.missing = sampler_listed_missing,
                                                .extend = sampler_listed_extend,
                                                .at = sampler_listed_at,
                                                .free = sampler_listed_free};
    struct listed *listed = calloc(1, sizeof *listed);
    int r = -ENOMEM;

    if (!listed)
        return r;
    listed->base = (struct sampler){.ops = &ops, .count = params->n_indices};
    listed->indices = calloc(max_u64(params->n_indices, 1), sizeof *listed->indices);
    if (listed->indices)
        r = sampler_range_new(params, params->n_indices, params->n_indices, &listed->places);
    if (r < 0) {
        sampler_listed_free(&listed->base);
        return r;
    }
    listed->base.bytes = params->n_indices * sizeof *listed->indices + listed->places->bytes;
    if (params->n_indices > 0)
        memcpy(listed->indices, params->indices, params->n_indices * sizeof *listed->indices);
    *ret = &listed->base;
    return 0;
}

/* Rejects combinations without a meaning; the spec has refused them with a message. */

static bool sampler_samples_fit(const struct plan_params *params)
{
    bool counted = params->num_samples > 0 || params->replacement;

    if (params->block > 0)
        return params->order == PLAN_NATIVE && !counted && params->window > 0;
    return !counted ||
           (params->order != PLAN_SEQUENTIAL && (params->num_samples == 0 || params->length > 0));
}

static bool sampler_indices_fit(const struct plan_params *params)
{
    for (uint64_t i = 0; i < params->n_indices; i++)
        if (params->indices[i] >= params->length)
            return false;
    return params->block == 0 && params->num_samples == 0 && !params->replacement;
}

static bool sampler_weights_fit(const struct plan_params *params)
{
    return params->block == 0 && params->order != PLAN_SEQUENTIAL && params->length > 0 &&
           plan_check_changes(params, NULL) == 0;
}

static bool sampler_mixture_fits(const struct plan_params *params)
{
    const struct plan_mix *mix = &params->mix;
    uint64_t ends[DL_BOUND_MIX_CHILDREN];

    if (!mix->sizes || mix->schedule.n == 0 || mix->schedule.n > ARRAY_SIZE(ends) ||
        !plan_mix_ends(mix, ends))
        return false;
    return ends[mix->schedule.n - 1] == params->length && params->order != PLAN_TORCH &&
           params->num_samples == 0 && !params->replacement;
}

static const struct sampler_maker {
    bool (*fits)(const struct plan_params *params);
    int (*make)(const struct plan_params *params, struct sampler **ret);
} sampler_kinds[] = {
    [PLAN_SAMPLES] = {sampler_samples_fit, sampler_samples_new},
    [PLAN_INDICES] = {sampler_indices_fit, sampler_listed_new},
    [PLAN_WEIGHTS] = {sampler_weights_fit, sampler_weighted_new},
    [PLAN_MIXTURE] = {sampler_mixture_fits, sampler_mix_new},
};

int sampler_new(const struct plan_params *params, struct sampler **ret)
{
    if (params->length >= UINT64_C(1) << 63 || params->num_samples >= UINT64_C(1) << 63 ||
        params->order > PLAN_NATIVE || params->sampler >= ARRAY_SIZE(sampler_kinds))
        return -EINVAL;
    const struct sampler_maker *kind = &sampler_kinds[params->sampler];
    if (params->changes && params->sampler != PLAN_WEIGHTS)
        return -EINVAL;
    return kind->fits(params) ? kind->make(params, ret) : -EINVAL;
}
