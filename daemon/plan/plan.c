/*
 * Which indices form step k of rank r: the sampler's order, then sharding as DistributedSampler
 * does it, then batching as BatchSampler does it. See plan.h. Batches of tokens are planned ahead,
 * by plan_tokens.c: for them each function here only asks what was planned.
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
#include "daemon/plan/token_plan.h"
#include "proto/spec.h"

struct plan {
    struct sampler *sampler;   /* owned; NULL once `tokens` has what it needs of it */
    struct token_plan *tokens; /* owned; NULL: batch_size counts */
    uint64_t count;            /* of the sampler */
    uint64_t world;
    uint64_t batch_size; /* ≥ 1 */
    bool drop_last;
    bool even;
};

static struct plan_tokens tokens_of(const struct dl_spec *spec)
{
    static const enum plan_leftover leftovers[] = {
        [LEFTOVER_EMIT] = PLAN_EMIT, [LEFTOVER_DROP] = PLAN_DROP, [LEFTOVER_CARRY] = PLAN_CARRY};
    const struct spec_batch *batch = &spec->batch;
    bool packs = spec->collate.kind == COLLATE_PACK, pads = spec->collate.kind == COLLATE_PAD;

    if (!batch->tokens)
        return (struct plan_tokens){0};
    return (struct plan_tokens){
        .tokens = batch->tokens,
        .strategy = packs                                ? PLAN_PACK
                    : batch->strategy == STRATEGY_BUCKET ? PLAN_BUCKET
                                                         : PLAN_SORTED,
        .leftover = leftovers[batch->leftover],
        .truncate = batch->overlong == OVERLONG_TRUNCATE,
        .max_length = (uint32_t)batch->max_length,
        .interval = (uint32_t)batch->interval,
        .multiple = (uint32_t)spec_pad_multiple(spec),
        .pad_length = pads ? (uint32_t)spec->collate.length : 0,
        .row_length = packs ? (uint32_t)spec->collate.length : 0,
        .window = batch->window,
    };
}

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
        .tokens = tokens_of(spec),
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
    if (params->tokens.tokens > 0)
        r = token_plan_new(params, plan->count, &plan->tokens);
    if (r < 0)
        return r;
    *ret = steal_ptr(plan);
    return 0;
}

struct plan *plan_free(struct plan *plan)
{
    if (plan) {
        sampler_free(plan->sampler);
        token_plan_free(plan->tokens);
    }
    free(plan);
    return NULL;
}

int plan_prepare(struct plan *plan)
{
    if (!plan->tokens)
        return 0;
    int r = token_plan_prepare(plan->tokens, plan->sampler);

    plan->sampler = sampler_free(plan->sampler);
    return r;
}

uint64_t plan_samples(const struct plan *plan, uint64_t rank)
{
    assert(rank < plan->world);
    if (plan->tokens)
        return token_plan_samples(plan->tokens, rank);
    uint64_t whole = plan->count / plan->world, rest = plan->count % plan->world;

    return whole + (plan->even ? rest > 0 : rank < rest);
}

static uint64_t count_steps(uint64_t samples, uint64_t size, bool drop_last)
{
    return samples / size + (!drop_last && samples % size > 0);
}

uint64_t plan_steps(const struct plan *plan, uint64_t rank)
{
    assert(rank < plan->world);
    if (plan->tokens)
        return token_plan_steps(plan->tokens, rank);
    return count_steps(plan_samples(plan, rank), plan->batch_size, plan->drop_last);
}

uint64_t plan_most(const struct plan *plan)
{
    if (plan->tokens)
        return token_plan_most(plan->tokens);
    return plan_steps(plan, 0) > 0 ? min_u64(plan->batch_size, plan_samples(plan, 0)) : 0;
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
    if (plan->tokens)
        return token_plan_step(plan->tokens, rank, step, indices);
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
    if (plan->tokens)
        return plan->tokens->prepared ? 0 : max_u64(plan->count, 1);
    if (!plan->sampler->ops->missing)
        return 0;
    uint64_t first;
    uint64_t count = step_span(plan, rank, step, &first);

    return plan->sampler->ops->missing(plan->sampler, span_end(plan, first, count));
}

/* ---- of token batches alone ----------------------------------------------------------------- */

const struct plan_totals *plan_totals(const struct plan *plan)
{
    return plan->tokens ? token_plan_totals(plan->tokens) : NULL;
}

uint32_t plan_buckets(const struct plan *plan)
{
    return plan->tokens ? token_plan_buckets(plan->tokens) : 0;
}

struct plan_bucket plan_bucket_at(const struct plan *plan, uint32_t bucket)
{
    assert(plan->tokens);
    return token_plan_bucket(plan->tokens, bucket);
}

struct plan_step_tokens plan_step_tokens(const struct plan *plan, uint64_t rank, uint64_t step)
{
    assert(plan->tokens && rank < plan->world);
    return token_plan_step_tokens(plan->tokens, rank, step);
}

void plan_step_lengths(const struct plan *plan, uint64_t rank, uint64_t step, uint32_t *ret)
{
    assert(plan->tokens && rank < plan->world);
    token_plan_step_lengths(plan->tokens, rank, step, ret);
}
