/*
 * Batches that are cut one by one, where ranks need not have equally many samples: the strategy
 * that keeps the sampler's order, and what it shares with sorting.
 */
#include "daemon/plan/token_plan.h"

#include <assert.h>
#include <errno.h>

/* ---- groups --------------------------------------------------------------------------------- */

static uint64_t plan_batches_cost(const struct token_plan *plan, const struct plan_batch *batch)
{
    uint64_t padded = 0;

    for (uint64_t i = 0; i < batch->count; i++)
        padded =
            max_u64(padded, token_padded(&plan->params,
                                         token_length(plan, plan->made.members[batch->first + i])));
    return token_cost(plan, batch->count * padded, batch->count * padded * padded);
}

/* Puts `n` batches from `first` on, which are whole units, in the order in which ranks get them. */
static int plan_batches_deal(struct token_plan *plan, uint64_t first, uint64_t n, uint64_t unit)
{
    _cleanup_free_ struct token_priced *priced = calloc(max_u64(n, 1), sizeof *priced);
    _cleanup_free_ struct plan_batch *copies = calloc(max_u64(n, 1), sizeof *copies);
    _cleanup_free_ uint32_t *turn = calloc(max_u64(n, 1), sizeof *turn);
    struct plan_batch *batches = plan->made.batches + first;

    if (!priced || !copies || !turn)
        return -ENOMEM;
    for (uint64_t i = 0; i < n; i++) {
        copies[i] = batches[i];
        priced[i] = (struct token_priced){plan_batches_cost(plan, &batches[i]), (uint32_t)i};
    }
    int r = token_deal(plan, priced, n, 1, unit, turn);
    for (uint64_t i = 0; r == 0 && i < n; i++)
        batches[i] = copies[turn[i]];
    return r;
}

/* Groups of the first of the batches from `before` on, as many as make units. */
static int plan_batches_group(struct token_plan *plan, uint64_t before, uint64_t unit,
                              uint64_t *ret_end)
{
    assert(before <= plan->made.n_batches);
    uint64_t there = plan->made.n_batches - before, size = unit * plan->world;
    uint64_t n = there - there % size;
    int r = plan->params.balance && n > 0 ? plan_batches_deal(plan, before, n, unit) : 0;

    for (uint64_t i = 0; r == 0 && i < n; i += plan->world)
        r = token_plan_add(plan, before + i, plan->world);
    *ret_end = before + n;
    return r;
}

int token_group_batches(struct token_plan *plan, uint64_t before, uint64_t *ret_end)
{
    return plan_batches_group(plan, before, plan->unit, ret_end);
}

/* ---- the end of the epoch ------------------------------------------------------------------- */

static uint64_t plan_batches_samples(const struct token_plan *plan, uint64_t before)
{
    uint64_t samples = 0;

    for (uint64_t i = before; i < plan->made.n_batches; i++)
        samples += plan->made.batches[i].count;
    return samples;
}

/* Cuts batches from `before` on in halves, in turn, until there are enough. Each round doubles
 * them, so this takes no longer than the number of samples. */
static int plan_batches_halve(struct token_plan *plan, uint64_t before, uint64_t wanted)
{
    struct plan_groups *made = &plan->made;

    while (made->n_batches - before < wanted) {
        size_t n = made->n_batches;

        for (size_t i = before; i < n && made->n_batches - before < wanted; i++) {
            uint32_t half = made->batches[i].count / 2;

            if (half == 0)
                continue;
            made->batches[i].count -= half;
            int r =
                plan_groups_add_batch(made, made->batches[i].first + made->batches[i].count, half);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

/* Fewer batches than ranks. */
static int plan_batches_group_short(struct token_plan *plan, uint64_t before)
{
    uint64_t samples = plan_batches_samples(plan, before);

    if (samples == 0)
        return 0;
    int r = plan_batches_halve(plan, before, min_u64(plan->world, samples));

    assert(plan->made.n_batches - before <= plan->world);
    return r < 0 ? r : token_plan_add(plan, before, plan->made.n_batches - before);
}

int token_group_last_batches(struct token_plan *plan, uint64_t before, uint64_t rest)
{
    bool drop = plan->params.leftover == PLAN_DROP;
    uint64_t end = before;
    int r = 0;

    if (!drop && rest < plan->count)
        r = plan_groups_add_batch(&plan->made, rest, plan->count - rest);
    if (r == 0)
        r = plan_batches_group(plan, before, plan->unit, &end);
    if (r == 0 && !drop) /* steps that do not fill a unit */
        r = plan_batches_group(plan, end, 1, &end);
    if (r < 0 || !drop)
        return r < 0 ? r : plan_batches_group_short(plan, end);
    plan->totals.leftover += plan_batches_samples(plan, end) + plan->count - rest;
    plan->made.n_batches = end;
    return 0;
}

/* ---- in turn -------------------------------------------------------------------------------- */

/* Batches of the order, each closed when the next sample would exceed it: *ret_rest is where the
 * last, unclosed one begins. */
static int plan_batches_cut_order(struct token_plan *plan, uint64_t *ret_rest)
{
    const struct plan_tokens *params = &plan->params;
    uint64_t first = 0, longest = 0;

    for (uint64_t at = 0; at < plan->count; at++) {
        if (at + TOKEN_AHEAD < plan->count)
            __builtin_prefetch(&params->lengths[plan->made.members[at + TOKEN_AHEAD]]);
        uint64_t length = token_length(plan, plan->made.members[at]);

        longest = max_u64(longest, length);
        if (!token_exceeds(params, at - first + 1, longest))
            continue;
        int r = plan_groups_add_batch(&plan->made, first, at - first);
        if (r < 0)
            return r;
        first = at;
        longest = length;
    }
    *ret_rest = first;
    return 0;
}

/* How many batches are dealt by cost together. */
static uint64_t plan_batches_window(const struct token_plan *plan)
{
    uint64_t units = max_u64(plan->params.window / plan->unit, 1), batches;

    if (plan->params.window == 0 || mul_overflows(units * plan->unit, plan->world, &batches))
        return plan->made.n_batches;
    return batches;
}

/* All whole windows, where costs are balanced. */
static int plan_batches_group_windows(struct token_plan *plan, uint64_t *at)
{
    uint64_t window = plan_batches_window(plan), all = plan->made.n_batches;
    int r = 0;

    if (!plan->params.balance)
        return 0;
    while (r == 0 && window < all - *at) {
        plan->made.n_batches = *at + window;
        r = token_group_batches(plan, *at, at);
    }
    assert(*at <= all);
    plan->made.n_batches = all;
    return r;
}

int token_cut_in_turn(struct token_plan *plan)
{
    uint64_t rest = 0, at = 0;
    int r = plan_batches_cut_order(plan, &rest);

    if (r == 0)
        r = plan_batches_group_windows(plan, &at);
    return r < 0 ? r : token_group_last_batches(plan, at, rest);
}
