/*
 * Which indices form step k of rank r: the epoch's order, then sharding as DistributedSampler does
 * it, then batching as BatchSampler does it. See plan.h.
 *
 * A rank's i-th sample stands at position i·world + rank of the padded order. A position p ≥ length
 * is padding and repeats position p mod length. Positions never overflow: a rank has
 * ceil(length/world) samples at most, so p < length + world if world ≤ length, hence below 2^64,
 * and if world > length there is one sample, at position rank.
 */
#include "daemon/plan/plan.h"

#include <assert.h>
#include <errno.h>

#include "daemon/plan/permute.h"

struct plan {
    struct plan_params params;    /* batch_size ≥ 1 */
    struct permute_torch *torch;  /* owned; NULL unless order is PLAN_TORCH */
    struct permute_native native; /* if order is PLAN_NATIVE */
};

static void plan_freep(struct plan **plan)
{
    *plan = plan_free(*plan);
}

int plan_new(const struct plan_params *params, struct plan **ret)
{
    if (params->world == 0 || params->length >= UINT64_C(1) << 63)
        return -EINVAL;
    _cleanup_(plan_freep)
    struct plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return -ENOMEM;
    plan->params = *params;
    plan->params.batch_size = max_u64(params->batch_size, 1);

    int r = 0;
    switch (params->order) {
    case PLAN_SEQUENTIAL:
        break;
    case PLAN_TORCH:
        r = permute_torch_new(params->length, params->seed + params->epoch,
                              PERMUTE_TORCH_INSIDE_OUT_FROM, &plan->torch);
        break;
    case PLAN_NATIVE:
        permute_native_init(&plan->native, params->length, params->seed, params->epoch);
        break;
    default:
        r = -EINVAL;
    }
    if (r < 0)
        return r;
    *ret = steal_ptr(plan);
    return 0;
}

struct plan *plan_free(struct plan *plan)
{
    if (plan)
        permute_torch_free(plan->torch);
    free(plan);
    return NULL;
}

uint64_t plan_samples(const struct plan *plan, uint64_t rank)
{
    const struct plan_params *params = &plan->params;
    assert(rank < params->world);
    uint64_t whole = params->length / params->world, rest = params->length % params->world;

    return whole + (params->even ? rest > 0 : rank < rest);
}

uint64_t plan_steps(const struct plan *plan, uint64_t rank)
{
    uint64_t samples = plan_samples(plan, rank), size = plan->params.batch_size;

    return samples / size + (!plan->params.drop_last && samples % size > 0);
}

/* Returns how many samples the step has; *ret_first is the position of the first. */
static uint64_t step_span(const struct plan *plan, uint64_t rank, uint64_t step,
                          uint64_t *ret_first)
{
    assert(step < plan_steps(plan, rank));
    uint64_t before = step * plan->params.batch_size;

    *ret_first = before * plan->params.world + rank;
    return min_u64(plan->params.batch_size, plan_samples(plan, rank) - before);
}

/* How much of the order must be known for `count` samples from position `first` on. */
static uint64_t span_end(const struct plan *plan, uint64_t first, uint64_t count)
{
    return min_u64(first + (count - 1) * plan->params.world + 1, plan->params.length);
}

size_t plan_step(struct plan *plan, uint64_t rank, uint64_t step, uint64_t *indices)
{
    const uint64_t length = plan->params.length, world = plan->params.world;
    uint64_t position;
    uint64_t count = step_span(plan, rank, step, &position);

    if (plan->torch)
        permute_torch_extend(plan->torch, span_end(plan, position, count));
    for (uint64_t i = 0; i < count; i++, position += world) {
        uint64_t p = position < length ? position : position % length;

        switch (plan->params.order) {
        case PLAN_SEQUENTIAL:
            indices[i] = p;
            break;
        case PLAN_TORCH:
            indices[i] = permute_torch_at(plan->torch, p);
            break;
        case PLAN_NATIVE:
            indices[i] = permute_native_at(&plan->native, p);
            break;
        }
    }
    return count;
}

uint64_t plan_backlog(const struct plan *plan, uint64_t rank, uint64_t step)
{
    if (!plan->torch)
        return 0;
    uint64_t first;
    uint64_t count = step_span(plan, rank, step, &first);

    return permute_torch_missing(plan->torch, span_end(plan, first, count));
}
