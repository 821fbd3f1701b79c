/* Which sampler the parameters mean; the plain sequence; and lists of indices. */
#include "daemon/plan/sampler.h"

#include <Random123/philox.h>
#include <errno.h>

struct sampler *sampler_free(struct sampler *sampler)
{
    if (sampler)
        sampler->ops->free(sampler);
    return NULL;
}

struct sampler_bits sampler_native_bits(const struct sampler_key *key, uint64_t position)
{
    philox4x64_key_t words_key = {{key->seed, key->epoch}};
    philox4x64_ctr_t counter = {{position, key->length, 0, key->stream}};
    philox4x64_ctr_t words = philox4x64(counter, words_key);

    return (struct sampler_bits){.high = words.v[0], .low = words.v[1]};
}

/* ---- one after the other -------------------------------------------------------------------- */

static uint64_t sequential_at(struct sampler *sampler, uint64_t position)
{
    (void)sampler;
    return position;
}

static void sequential_free(struct sampler *sampler)
{
    free(sampler);
}

static int sequential_new(uint64_t count, struct sampler **ret)
{
    static const struct sampler_kind_ops ops = {.at = sequential_at, .free = sequential_free};
    struct sampler *sampler = calloc(1, sizeof *sampler);

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

static uint64_t listed_missing(const struct sampler *sampler, uint64_t end)
{
    const struct listed *listed = container_of(sampler, const struct listed, base);

    return listed->places->ops->missing ? listed->places->ops->missing(listed->places, end) : 0;
}

static void listed_extend(struct sampler *sampler, uint64_t end)
{
    struct listed *listed = container_of(sampler, struct listed, base);

    if (listed->places->ops->extend)
        listed->places->ops->extend(listed->places, end);
}

static uint64_t listed_at(struct sampler *sampler, uint64_t position)
{
    struct listed *listed = container_of(sampler, struct listed, base);

    return listed->indices[listed->places->ops->at(listed->places, position)];
}

static void listed_free(struct sampler *sampler)
{
    struct listed *listed = container_of(sampler, struct listed, base);

    sampler_free(listed->places);
    free(listed->indices);
    free(listed);
}

/* Copies the list: a plan may outlive whoever described it, in a thread that is still at it. */
static int listed_new(const struct plan_params *params, struct sampler *places,
                      struct sampler **ret)
{
    static const struct sampler_kind_ops ops = {
        .missing = listed_missing, .extend = listed_extend, .at = listed_at, .free = listed_free};
    struct listed *listed = calloc(1, sizeof *listed);
    uint64_t *indices = calloc(max_u64(params->n_indices, 1), sizeof *indices);

    if (!listed || !indices) {
        free(listed);
        free(indices);
        return -ENOMEM;
    }
    if (params->n_indices > 0)
        memcpy(indices, params->indices, params->n_indices * sizeof *indices);
    *listed = (struct listed){
        .base = {.ops = &ops, .count = places->count}, .places = places, .indices = indices};
    *ret = &listed->base;
    return 0;
}

/* ---- choosing ------------------------------------------------------------------------------- */

/* What has no meaning together; the spec refuses it in words before. */
static bool makes_sense(const struct plan_params *params)
{
    bool counted = params->num_samples > 0 || params->replacement;

    if (params->length >= UINT64_C(1) << 63 || params->num_samples >= UINT64_C(1) << 63)
        return false;
    if (params->indices) {
        for (uint64_t i = 0; i < params->n_indices; i++)
            if (params->indices[i] >= params->length)
                return false;
        return !params->weights && !counted;
    }
    if (params->num_samples > 0 && params->length == 0)
        return false;
    return params->order == PLAN_SEQUENTIAL ? !params->weights && !counted
                                            : params->order <= PLAN_NATIVE;
}

static int places_new(const struct plan_params *params, struct sampler **ret)
{
    uint64_t length = params->indices ? params->n_indices : params->length;
    uint64_t count = params->num_samples ? params->num_samples : length;

    if (params->weights)
        return sampler_weighted_new(params, count, ret);
    if (params->order == PLAN_SEQUENTIAL)
        return sequential_new(count, ret);
    if (params->replacement)
        return sampler_drawn_new(params, length, count, ret);
    return sampler_permuted_new(params, length, count, ret);
}

int sampler_new(const struct plan_params *params, struct sampler **ret)
{
    struct sampler *places = NULL;

    if (!makes_sense(params) || params->order > PLAN_NATIVE)
        return -EINVAL;
    int r = places_new(params, &places);
    if (r < 0)
        return r;
    if (params->indices) {
        struct sampler *listed = NULL;
        r = listed_new(params, places, &listed);
        if (r < 0) {
            sampler_free(places);
            return r;
        }
        places = listed;
    }
    *ret = places;
    return 0;
}
