/*
 * Which indices form step k of rank r: the sampler's order, then sharding as DistributedSampler
 * does it, then batching as BatchSampler does it. See plan.h.
 *
 * A rank's i-th sample stands at position i·world + rank of the padded order. A position p ≥ count
 * is padding and repeats position p mod count. Positions never overflow: a rank has
 * ceil(count/world) samples at most, so p < count + world if world ≤ count, hence below 2^64,
 * and if world > count there is one sample, at position rank.
 */
#include "daemon/plan/plan.h"

#include <assert.h>
#include <errno.h>

#include "daemon/plan/sampler.h"
#include "proto/spec.h"

struct plan {
    struct sampler *sampler; /* owned */
    uint64_t count;          /* of the sampler */
    uint64_t world;
    uint64_t batch_size; /* ≥ 1 */
    bool drop_last;
    bool even;
};

struct plan_params plan_params_of(const struct dl_spec *spec, uint64_t length)
{
    static const enum plan_order orders[] = {
        [ORDER_TORCH] = PLAN_TORCH, [ORDER_NATIVE] = PLAN_NATIVE};
    bool ordered = spec->sampler == SAMPLER_SEQUENTIAL || spec->sampler == SAMPLER_INDICES ||
                   spec->sampler == SAMPLER_CLIENT;

    return (struct plan_params){
        .length = length,
        .order = ordered ? PLAN_SEQUENTIAL : orders[spec->order],
        .indices = spec->indices,
        .n_indices = spec->n_indices,
        .weights = spec->weights,
        .num_samples = spec->num_samples,
        .replacement = spec->replacement,
        .seed = spec->seed,
        .world = 1,
        .batch_size = spec->batch_size,
        .drop_last = spec->drop_last,
        .even = spec->even,
    };
}

static void plan_freep(struct plan **plan)
{
    *plan = plan_free(*plan);
}

int plan_new(const struct plan_params *params, struct plan **ret)
{
    if (params->world == 0)
        return -EINVAL;
    _cleanup_(plan_freep)
    struct plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return -ENOMEM;
    int r = sampler_new(params, &plan->sampler);
    if (r < 0)
        return r;
    plan->count = plan->sampler->count;
    plan->world = params->world;
    plan->batch_size = max_u64(params->batch_size, 1);
    plan->drop_last = params->drop_last;
    plan->even = params->even;
    *ret = steal_ptr(plan);
    return 0;
}

struct plan *plan_free(struct plan *plan)
{
    if (plan)
        sampler_free(plan->sampler);
    free(plan);
    return NULL;
}

uint64_t plan_samples(const struct plan *plan, uint64_t rank)
{
    assert(rank < plan->world);
    uint64_t whole = plan->count / plan->world, rest = plan->count % plan->world;

    return whole + (plan->even ? rest > 0 : rank < rest);
}

static uint64_t count_steps(uint64_t samples, uint64_t size, bool drop_last)
{
    return samples / size + (!drop_last && samples % size > 0);
}

uint64_t plan_steps(const struct plan *plan, uint64_t rank)
{
    return count_steps(plan_samples(plan, rank), plan->batch_size, plan->drop_last);
}

struct plan_extent plan_estimate(uint64_t length, uint64_t world, uint64_t batch_size,
                                 bool drop_last)
{
    uint64_t samples = length / world + (length % world > 0);

    return (struct plan_extent){samples, count_steps(samples, max_u64(batch_size, 1), drop_last)};
}

/* Returns how many samples the step has; *ret_first is the position of the first. */
static uint64_t step_span(const struct plan *plan, uint64_t rank, uint64_t step,
                          uint64_t *ret_first)
{
    assert(step < plan_steps(plan, rank));
    uint64_t before = step * plan->batch_size;

    *ret_first = before * plan->world + rank;
    return min_u64(plan->batch_size, plan_samples(plan, rank) - before);
}

/* How much of the order must be known for `count` samples from position `first` on. */
static uint64_t span_end(const struct plan *plan, uint64_t first, uint64_t count)
{
    return min_u64(first + (count - 1) * plan->world + 1, plan->count);
}

size_t plan_step(struct plan *plan, uint64_t rank, uint64_t step, uint64_t *indices)
{
    struct sampler *sampler = plan->sampler;
    uint64_t position;
    uint64_t count = step_span(plan, rank, step, &position);

    if (sampler->ops->extend)
        sampler->ops->extend(sampler, span_end(plan, position, count));
    for (uint64_t i = 0; i < count; i++, position += plan->world)
        indices[i] =
            sampler->ops->at(sampler, position < plan->count ? position : position % plan->count);
    return count;
}

uint64_t plan_backlog(const struct plan *plan, uint64_t rank, uint64_t step)
{
    if (!plan->sampler->ops->missing)
        return 0;
    uint64_t first;
    uint64_t count = step_span(plan, rank, step, &first);

    return plan->sampler->ops->missing(plan->sampler, span_end(plan, first, count));
}
