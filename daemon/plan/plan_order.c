/*
 * The order that batches of tokens are cut from: the sampler's, without samples that are empty or
 * too long, and without what other world sizes took of the epoch before.
 */
#include "daemon/plan/token_plan.h"

#include "proto/common/array.h"

#include <assert.h>
#include <errno.h>

/* Indices whose lengths are prefetched: they lie anywhere in memory. */
enum { PLAN_ORDER_BLOCK = 64 };

int token_begin_order(struct token_plan *plan, struct sampler *sampler)
{
    plan->made.members = calloc(max_u64(sampler->count, 1), sizeof *plan->made.members);
    if (!plan->made.members)
        return -ENOMEM;
    if (sampler->ops->extend && !sampler->ops->lacks && sampler->count > 0)
        sampler->ops->extend(sampler, sampler->count);
    return 0;
}

void token_take_positions(struct token_plan *plan, struct sampler *sampler, uint64_t first,
                          uint64_t end)
{
    uint32_t block[PLAN_ORDER_BLOCK];

    for (; first < end; first += PLAN_ORDER_BLOCK) {
        unsigned n = (unsigned)min_u64(PLAN_ORDER_BLOCK, end - first);

        for (unsigned i = 0; i < n; i++) {
            block[i] = (uint32_t)sampler->ops->at(sampler, first + i);
            __builtin_prefetch(&plan->params.lengths[block[i]]);
        }
        for (unsigned i = 0; i < n; i++) {
            uint32_t length = plan->params.lengths[block[i]];

            plan->totals.overlong += length > plan->limit;
            plan->totals.empty += length == 0;
            if (length == 0 || plan->limit == 0 || (length > plan->limit && !plan->params.truncate))
                continue;
            plan->made.members[plan->count++] = block[i];
            plan->longest = (uint32_t)max_u64(plan->longest, min_u64(length, plan->limit));
        }
    }
}

/* ---- parts of samples ------------------------------------------------------------------------ */

static int plan_order_begin_split(struct token_plan *plan)
{
    struct token_split *split = &plan->split;

    if (split->measured)
        return 0;
    split->lengths = calloc(max_u64(plan->length, 1), sizeof *split->lengths);
    if (!split->lengths)
        return -ENOMEM;
    split->lengths_room = plan->length;
    split->measured = plan->params.lengths;
    plan->params.lengths = split->lengths;
    return 0;
}

/* A member of that length. */
static int plan_order_add_member(struct token_plan *plan, uint32_t member, uint32_t length)
{
    struct token_split *split = &plan->split;

    if (!array_reserve(plan->made.members, split->members_room, plan->count + 1) ||
        !array_reserve(split->lengths, split->lengths_room, member + UINT64_C(1)))
        return -ENOMEM;
    plan->params.lengths = split->lengths;
    split->lengths[member] = length;
    plan->made.members[plan->count++] = member;
    plan->longest = length > plan->longest ? length : plan->longest;
    return 0;
}

static int plan_order_add_part(struct token_plan *plan, struct token_part part, uint32_t length)
{
    struct token_split *split = &plan->split;

    if (plan->length + split->n_parts >= UINT32_MAX ||
        !array_reserve(split->parts, split->parts_room, split->n_parts + 1))
        return -ENOMEM;
    split->parts[split->n_parts] = part;
    return plan_order_add_member(plan, (uint32_t)(plan->length + split->n_parts++), length);
}

/* Parts as long as one may be, until one has the sample's end. */
static int plan_order_add_parts(struct token_plan *plan, uint32_t sample, uint32_t length)
{
    uint64_t begin = 0, step = plan->limit - plan->params.overlap;
    int r = 0;

    for (bool ends = false; r == 0 && !ends; begin += step) {
        uint64_t n = min_u64(length - begin, plan->limit);

        ends = begin + n == length;
        r = plan_order_add_part(plan, (struct token_part){sample, (uint32_t)begin}, (uint32_t)n);
    }
    return r;
}

int token_take_parts(struct token_plan *plan, struct sampler *sampler, uint64_t first, uint64_t end)
{
    int r = plan_order_begin_split(plan);

    for (; r == 0 && first < end; first++) {
        uint32_t sample = (uint32_t)sampler->ops->at(sampler, first);
        uint32_t length = plan->split.measured[sample];

        plan->totals.overlong += length > plan->limit;
        plan->totals.empty += length == 0;
        if (length > plan->limit && plan->params.fill != PLAN_CUT)
            r = plan_order_add_parts(plan, sample, length);
        else if (length > 0)
            r = plan_order_add_member(plan, sample, length);
    }
    return r;
}

/* A member whose row has *room left: whole, or in parts, each of which but the last fills a row. */
static int plan_order_lay(struct token_plan *plan, uint32_t member, uint32_t *room)
{
    struct token_part part = {token_sample(plan, member), token_begin_in_sample(plan, member)};
    uint32_t left = plan->params.lengths[member];
    bool whole = left <= (*room ? *room : plan->limit);
    int r = 0;

    while (r == 0 && left > 0) {
        if (*room == 0)
            *room = plan->limit;
        uint32_t n = (uint32_t)min_u64(left, *room);
        r = whole ? plan_order_add_member(plan, member, n) : plan_order_add_part(plan, part, n);
        part.begin += n;
        left -= n;
        *room -= n;
    }
    return r;
}

int token_cut_members(struct token_plan *plan, uint64_t first)
{
    uint64_t n = plan->count - first;
    uint32_t room = 0;
    _cleanup_free_ uint32_t *members = token_copy_members(plan->made.members + first, n);
    int r = members ? 0 : -ENOMEM;

    plan->count = first;
    for (uint64_t i = 0; r == 0 && i < n; i++)
        r = plan_order_lay(plan, members[i], &room);
    return r;
}

/* ---- the whole order ------------------------------------------------------------------------- */

int token_take_order(struct token_plan *plan, struct sampler *sampler)
{
    int r = token_begin_order(plan, sampler);

    if (r == 0)
        token_take_positions(plan, sampler, 0, sampler->count);
    return r;
}

/* ---- what was taken before ------------------------------------------------------------------ */

/* Counts the samples of a group, of all its parts. */
static void plan_order_count_group(const struct token_plan *plan, const struct plan_group *group,
                                   uint32_t *times)
{
    for (uint64_t i = 0; i < plan_groups_stretches(&plan->made, group); i++) {
        uint64_t end, member = plan_groups_stretch(&plan->made, group, i, &end);

        for (; member < end; member++)
            times[plan->made.members[member]]++;
    }
}

/* Counts the members, in made.members, of the first `steps` steps of an order of `count`. */
static int plan_order_count_taken(struct token_plan *plan, uint64_t steps, uint32_t *times)
{
    int r = token_plan_cut(plan);

    if (r < 0)
        return r;
    for (uint64_t step = 0; step < min_u64(steps, plan->made.n_groups); step++)
        plan_order_count_group(plan, token_plan_group(plan, step), times);
    return 0;
}

/* Takes each sample out of the order as often as it was taken. Repeated samples are identical, so
 * it does not matter which of them goes. */
static void plan_order_leave_out(struct token_plan *plan, uint32_t *order, uint32_t *times)
{
    uint64_t kept = 0;

    plan->longest = 0;
    for (uint64_t i = 0; i < plan->count; i++) {
        if (times[order[i]] > 0) {
            times[order[i]]--;
            plan->totals.overlong -= plan->params.lengths[order[i]] > plan->limit;
            continue;
        }
        order[kept++] = order[i];
        plan->longest = (uint32_t)max_u64(plan->longest, token_length(plan, order[i]));
    }
    assert(kept <= plan->count);
    plan->count = kept;
}

/* Forgets what was cut, and the members with it. */
static void plan_order_forget_cut(struct token_plan *plan)
{
    plan_groups_deinit(&plan->made);
    free(plan->turn);
    free(plan->buckets);
    plan->turn = NULL;
    plan->buckets = NULL;
    plan->n_buckets = 0;
    plan->totals =
        (struct plan_totals){.overlong = plan->totals.overlong, .empty = plan->totals.empty};
}

uint32_t *token_copy_members(const uint32_t *members, uint64_t n)
{
    uint32_t *copy = calloc(max_u64(n, 1), sizeof *copy);

    if (copy)
        memcpy(copy, members, n * sizeof *copy);
    return copy;
}

/* One stretch: plans what is left for its world size, and leaves out its first steps. */
static int plan_order_leave_out_stretch(struct token_plan *plan,
                                        const struct history_stretch *stretch, uint32_t *times)
{
    uint32_t *order = token_copy_members(plan->made.members, plan->count);

    if (!order)
        return -ENOMEM;
    plan->world = stretch->world;
    int r = plan_order_count_taken(plan, stretch->steps, times);
    if (stretch->steps >= plan->made.n_groups)
        plan->count = 0; /* they were all: what they left out is not of this epoch any more */
    plan_order_forget_cut(plan);
    plan_order_leave_out(plan, order, times);
    plan->made.members = order;
    return r;
}

/* ---- where each epoch leaves some for the next ---------------------------------------------- */

/* All that lies between epochs: each is as long as the dataset, and counts samples. */
struct leaving {
    uint32_t *order; /* the sampler's, of `n`; not as long as the dataset */
    uint64_t n;
    uint32_t *gone; /* taken in the epoch so far */
    uint32_t *rest; /* of these, not yet found in the order */
    uint32_t *tail; /* left for the next epoch */
};

static void plan_order_leaving_deinit(struct leaving *leaving)
{
    free(leaving->order);
    free(leaving->gone);
    free(leaving->rest);
    free(leaving->tail);
}

static int plan_order_leaving_init(struct leaving *leaving, const struct token_plan *plan)
{
    uint64_t length = max_u64(plan->length, 1);

    leaving->n = plan->count;
    leaving->order = token_copy_members(plan->made.members, plan->count);
    leaving->gone = calloc(length, sizeof *leaving->gone);
    leaving->rest = calloc(length, sizeof *leaving->rest);
    leaving->tail = calloc(length, sizeof *leaving->tail);
    return leaving->order && leaving->gone && leaving->rest && leaving->tail ? 0 : -ENOMEM;
}

/* Keeps the epoch's samples that are neither taken nor left over: these are cut now. */
static void plan_order_keep_rest(struct token_plan *plan, struct leaving *leaving,
                                 const struct token_carry *carry)
{
    uint32_t *members = carry->members;

    plan->count = 0;
    plan->longest = 0;
    for (uint64_t i = 0; i < carry->n; i++) {
        uint32_t sample = members[i];

        if (leaving->rest[sample] > 0) {
            leaving->rest[sample]--;
        } else if (leaving->tail[sample] > 0) {
            leaving->tail[sample]--;
            plan->totals.leftover++;
        } else {
            members[plan->count++] = sample;
            plan->longest = (uint32_t)max_u64(plan->longest, token_length(plan, sample));
        }
    }
    assert(plan->count <= carry->n);
    plan->made.members = members;
}

/* Computes the order that remains for a world size that continues in the middle of the epoch. */
static int plan_order_find_rest(struct token_plan *plan, struct leaving *leaving, uint64_t world)
{
    struct token_carry carry = {
        .first_world = plan->before.stretches[0].world, .world = world, .tail = leaving->tail};
    size_t bytes = plan->length * sizeof *leaving->rest;

    memcpy(leaving->rest, leaving->gone, bytes);
    memset(leaving->tail, 0, bytes);
    plan->made.members = token_copy_members(leaving->order, leaving->n);
    plan->count = leaving->n;
    plan->longest = 0;
    for (uint64_t i = 0; i < leaving->n; i++)
        plan->longest = (uint32_t)max_u64(plan->longest, token_length(plan, leaving->order[i]));
    int r = plan->made.members ? token_carry_over(plan, &carry) : -ENOMEM;
    plan_order_forget_cut(plan);
    if (r == 0)
        plan_order_keep_rest(plan, leaving, &carry);
    else
        free(carry.members);
    plan->world = world;
    plan->params.leftover = PLAN_EMIT;
    return r;
}

static int plan_order_leave_out_carrying(struct token_plan *plan)
{
    _cleanup_(plan_order_leaving_deinit) struct leaving leaving = {0};
    const struct history *before = &plan->before;
    uint64_t world = plan->world;
    int r = plan_order_leaving_init(&leaving, plan);

    plan->world = before->stretches[0].world; /* the first world size found the whole epoch */
    for (uint32_t i = 0; r == 0 && i < before->n; i++) {
        r = plan_order_count_taken(plan, before->stretches[i].steps, leaving.gone);
        bool all = r == 0 && before->stretches[i].steps >= plan->made.n_groups;
        plan_order_forget_cut(plan);
        if (all) {
            plan->count = 0;
            break;
        }
        if (r == 0)
            r = plan_order_find_rest(plan, &leaving,
                                     i + 1 < before->n ? before->stretches[i + 1].world : world);
    }
    plan->world = world;
    return r;
}

int token_leave_out_taken(struct token_plan *plan)
{
    if (plan->params.leftover == PLAN_CARRY)
        return plan_order_leave_out_carrying(plan);
    _cleanup_free_ uint32_t *times = calloc(max_u64(plan->length, 1), sizeof *times);
    uint64_t world = plan->world;
    int r = times ? 0 : -ENOMEM;

    for (uint32_t i = 0; r == 0 && i < plan->before.n; i++)
        r = plan_order_leave_out_stretch(plan, &plan->before.stretches[i], times);
    plan->world = world;
    return r;
}
