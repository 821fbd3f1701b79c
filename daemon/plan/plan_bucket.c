/*
 * Strategy bucket. The members are dealt into buckets in two passes over the order: one counts,
 * so that each bucket's place is known; one writes, and takes down each group as its bucket fills.
 * The leftovers of all buckets stand behind all full groups, the lowest bucket's first, so that
 * what joins the next bucket's leftover already stands in front of it.
 */
#include "daemon/plan/token_plan.h"

#include <assert.h>
#include <errno.h>

static int plan_bucket_make_buckets(struct token_plan *plan)
{
    plan->n_buckets = plan->count > 0 ? (plan->longest - 1) / plan->params.interval + 1 : 0;
    plan->buckets = calloc(max_u64(plan->n_buckets, 1), sizeof *plan->buckets);
    return plan->buckets ? 0 : -ENOMEM;
}

/* Counts the members of each bucket. `numbers`: the bucket of each member of the order. */
static void plan_bucket_count_members(struct token_plan *plan, uint32_t *numbers)
{
    const uint32_t *order = plan->made.members;

    for (uint64_t i = 0; i < plan->count; i++) {
        if (i + TOKEN_AHEAD < plan->count)
            __builtin_prefetch(&plan->params.lengths[order[i + TOKEN_AHEAD]]);
        numbers[i] = (token_length(plan, order[i]) - 1) / plan->params.interval;
        plan->buckets[numbers[i]].members++;
    }
}

/* epoch · n mod group: what all epochs before have left. */
static uint64_t plan_bucket_left_before(uint64_t epoch, uint64_t n, uint64_t group)
{
    return (uint64_t)((unsigned __int128)epoch * n % group);
}

static uint64_t plan_bucket_group_of(const struct token_plan *plan, uint32_t b, uint64_t world)
{
    uint64_t upper = (b + UINT64_C(1)) * plan->params.interval;

    return token_fits(&plan->params, upper) * world;
}

/* Finds the place of each bucket's members. Returns how many members there are
 * in full groups; UINT64_MAX: more than can be. */
static uint64_t plan_bucket_lay_out(struct token_plan *plan)
{
    const struct plan_tokens *params = &plan->params;
    uint64_t at = 0;

    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        struct token_bucket *bucket = &plan->buckets[b];

        bucket->group = plan_bucket_group_of(plan, b, plan->world);
        if (params->leftover == PLAN_CARRY)
            bucket->carried = plan_bucket_left_before(plan->epoch, bucket->members, bucket->group);
        plan->totals.carried += bucket->carried;
        uint64_t there = bucket->carried + bucket->members;
        bucket->full = bucket->members > 0 ? there - there % bucket->group : 0;
        if (bucket->full > UINT32_MAX - at)
            return UINT64_MAX;
        bucket->first = at;
        at += bucket->full;
    }
    for (uint64_t b = 0, rest = at; b < plan->n_buckets; b++) {
        struct token_bucket *bucket = &plan->buckets[b];

        bucket->leftover = rest;
        if (params->leftover != PLAN_CARRY)
            rest += bucket->members - bucket->full;
    }
    return at;
}

/* ---- members in the sampler's order --------------------------------------------------------- */

struct filling {
    uint64_t at;    /* place of the next member */
    uint64_t until; /* members missing until a group is full */
};

static struct filling *plan_bucket_start_filling(const struct token_plan *plan)
{
    struct filling *filling = calloc(max_u64(plan->n_buckets, 1), sizeof *filling);

    for (uint32_t b = 0; filling && b < plan->n_buckets; b++) {
        const struct token_bucket *bucket = &plan->buckets[b];

        filling[b].at = bucket->full > 0 ? bucket->first + bucket->carried : bucket->leftover;
        filling[b].until = bucket->full > 0 ? bucket->group - bucket->carried : UINT64_MAX;
    }
    return filling;
}

/* Takes down the groups in the order in which they fill. `members`: writes them, too, if given. */
static int plan_bucket_fill(struct token_plan *plan, const uint32_t *numbers, uint32_t *members)
{
    _cleanup_free_ struct filling *filling = plan_bucket_start_filling(plan);

    if (!filling)
        return -ENOMEM;
    for (uint64_t i = 0; i < plan->count; i++) {
        struct filling *fills = &filling[numbers[i]];
        const struct token_bucket *bucket = &plan->buckets[numbers[i]];

        if (members)
            members[fills->at] = plan->made.members[i];
        fills->at++;
        if (--fills->until > 0)
            continue;
        int r = token_plan_add(plan, fills->at - bucket->group, bucket->group);
        if (r < 0)
            return r;
        fills->until = bucket->group;
        if (fills->at == bucket->first + bucket->full)
            *fills = (struct filling){.at = bucket->leftover, .until = UINT64_MAX};
    }
    return 0;
}

/* ---- members carried from epoch to epoch ---------------------------------------------------- */

/*
 * The samples of the order, in an order that is the same in each epoch, bucket by bucket; `starts`
 * has the place of each bucket's first one.
 */
static int plan_bucket_list_buckets(const struct token_plan *plan, const uint32_t *numbers,
                                    uint32_t *starts, uint32_t *listed)
{
    const uint32_t *order = plan->made.members;
    _cleanup_free_ uint32_t *times = calloc(max_u64(plan->length, 1), sizeof *times);
    uint64_t at = 0;

    if (!times)
        return -ENOMEM;
    for (uint32_t b = 0; b < plan->n_buckets; at += plan->buckets[b].members, b++)
        starts[b] = (uint32_t)at;
    assert(at == plan->count);
    if (!plan->shuffled) {
        for (uint64_t i = 0; i < plan->count; i++)
            listed[starts[numbers[i]]++] = order[i];
    } else {
        for (uint64_t i = 0; i < plan->count; i++)
            times[order[i]]++;
        for (uint64_t sample = 0; sample < plan->length; sample++)
            for (; times[sample] > 0; times[sample]--)
                listed[starts[(token_length(plan, (uint32_t)sample) - 1) /
                              plan->params.interval]++] = (uint32_t)sample;
    }
    for (uint32_t b = 0; b < plan->n_buckets; b++)
        starts[b] -= (uint32_t)plan->buckets[b].members;
    return 0;
}

/* A bucket's members in epoch after epoch: those from `from` to `to`, counted from the first that
 * is carried into this one. */
static void plan_bucket_write_bucket(const struct token_plan *plan, uint32_t b,
                                     const uint32_t *listed, uint64_t from, uint64_t to,
                                     uint32_t *members)
{
    const struct token_bucket *bucket = &plan->buckets[b];
    uint64_t n = bucket->members, shuffled_for = UINT64_MAX;
    struct permute_native shuffle;

    for (uint64_t k = from; k < to; k++) {
        uint64_t before = bucket->carried > k ? bucket->carried - k : 0; /* this epoch's first */
        uint64_t back = before > 0 ? (before - 1) / n + 1 : 0;           /* epochs */
        uint64_t i = before > 0 ? back * n - before : k - bucket->carried;
        assert(i < n && back <= plan->epoch);

        if (plan->shuffled && back != shuffled_for) {
            struct token_plan then = {.seed = plan->seed, .epoch = plan->epoch - back};

            token_plan_shuffle(&then, SHUFFLE_BUCKET, b, n, &shuffle);
            shuffled_for = back;
        }
        members[k - from] = listed[plan->shuffled ? permute_native_at(&shuffle, i) : i];
    }
}

static int plan_bucket_write_carrying(const struct token_plan *plan, const uint32_t *numbers,
                                      uint32_t *members)
{
    _cleanup_free_ uint32_t *starts = calloc(max_u64(plan->n_buckets, 1), sizeof *starts);
    _cleanup_free_ uint32_t *listed = calloc(max_u64(plan->count, 1), sizeof *listed);

    if (!starts || !listed)
        return -ENOMEM;
    int r = plan_bucket_list_buckets(plan, numbers, starts, listed);
    if (r < 0)
        return r;
    for (uint32_t b = 0; b < plan->n_buckets; b++)
        plan_bucket_write_bucket(plan, b, listed + starts[b], 0, plan->buckets[b].full,
                                 members + plan->buckets[b].first);
    return 0;
}

/* The tail of a bucket that a world size leaves for the next epoch: members counted in `tail`. */
static int plan_bucket_count_tail(const struct token_plan *plan, uint32_t b, const uint32_t *listed,
                                  uint64_t world, uint32_t *tail)
{
    const struct token_bucket *bucket = &plan->buckets[b];
    uint64_t group = plan_bucket_group_of(plan, b, world),
             there = bucket->carried + bucket->members;
    uint64_t left =
        (plan_bucket_left_before(plan->epoch, bucket->members, group) + bucket->members) % group;
    uint64_t n = min_u64(left, there);
    _cleanup_free_ uint32_t *members = calloc(max_u64(n, 1), sizeof *members);

    if (!members)
        return -ENOMEM;
    plan_bucket_write_bucket(plan, b, listed, there - n, there, members);
    for (uint64_t i = 0; i < n; i++)
        tail[members[i]]++;
    return 0;
}

/* How many members are carried into this epoch, in all; UINT64_MAX: more than can be. */
static uint64_t plan_bucket_count_carried(struct token_plan *plan, uint64_t world)
{
    uint64_t sum = 0;

    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        struct token_bucket *bucket = &plan->buckets[b];

        bucket->carried = plan_bucket_left_before(plan->epoch, bucket->members,
                                                  plan_bucket_group_of(plan, b, world));
        sum += bucket->carried;
        if (sum > UINT32_MAX - plan->count)
            return UINT64_MAX;
    }
    return sum;
}

static int plan_bucket_write_carry(struct token_plan *plan, const uint32_t *numbers,
                                   struct token_carry *carry)
{
    _cleanup_free_ uint32_t *starts = calloc(max_u64(plan->n_buckets, 1), sizeof *starts);
    _cleanup_free_ uint32_t *listed = calloc(max_u64(plan->count, 1), sizeof *listed);
    int r = starts && listed ? plan_bucket_list_buckets(plan, numbers, starts, listed) : -ENOMEM;
    uint64_t at = 0;

    for (uint32_t b = 0; r == 0 && b < plan->n_buckets; b++) {
        uint64_t carried = plan->buckets[b].carried;

        plan_bucket_write_bucket(plan, b, listed + starts[b], 0, carried, carry->members + at);
        at += carried;
        r = plan_bucket_count_tail(plan, b, listed + starts[b], carry->world, carry->tail);
    }
    return r;
}

int token_carry_over(struct token_plan *plan, struct token_carry *carry)
{
    _cleanup_free_ uint32_t *numbers = calloc(max_u64(plan->count, 1), sizeof *numbers);
    int r = numbers ? plan_bucket_make_buckets(plan) : -ENOMEM;

    if (r < 0)
        return r;
    plan_bucket_count_members(plan, numbers);
    carry->n = plan_bucket_count_carried(plan, carry->first_world);
    if (carry->n == UINT64_MAX)
        return -ENOMEM;
    carry->members = calloc(carry->n + plan->count + 1, sizeof *carry->members);
    if (!carry->members)
        return -ENOMEM;
    r = plan_bucket_write_carry(plan, numbers, carry);
    memcpy(carry->members + carry->n, plan->made.members, plan->count * sizeof *carry->members);
    carry->n += plan->count;
    return r;
}

/* ---- the end of the epoch ------------------------------------------------------------------- */

/* Groups of the leftovers, from the lowest bucket on: members that do not suffice for all ranks
 * wait for the next bucket's. `first` is the place of the first of them. */
static int plan_bucket_emit_leftover(struct token_plan *plan, uint64_t first)
{
    uint64_t end = first;

    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        const struct token_bucket *bucket = &plan->buckets[b];

        end += bucket->members - bucket->full;
        if (end - first >= plan->world) {
            uint64_t count = min_u64(end - first, bucket->group);
            int r = token_plan_add(plan, first, count);
            if (r < 0)
                return r;
            first += count;
        }
    }
    assert(first <= end && end == plan->count);
    return first < end ? token_plan_add(plan, first, end - first) : 0;
}

static int plan_bucket_see_to_leftover(struct token_plan *plan, uint64_t full)
{
    switch (plan->params.leftover) {
    case PLAN_EMIT:
        return plan_bucket_emit_leftover(plan, full);
    case PLAN_DROP:
        plan->totals.leftover = plan->count - full;
        return 0;
    case PLAN_CARRY:
        plan->totals.leftover = plan->totals.carried + plan->count - full;
        return 0;
    }
    return -EINVAL;
}

/* Replaces the order by the members of all groups, and the leftover that comes. */
static int plan_bucket_deal(struct token_plan *plan, const uint32_t *numbers, uint64_t full)
{
    bool carry = plan->params.leftover == PLAN_CARRY;
    uint32_t *members = calloc(max_u64(carry ? full : plan->count, 1), sizeof *members);
    int r = members ? 0 : -ENOMEM;

    if (r == 0 && carry)
        r = plan_bucket_write_carrying(plan, numbers, members);
    if (r == 0)
        r = plan_bucket_fill(plan, numbers, carry ? NULL : members);
    free(plan->made.members);
    plan->made.members = members;
    return r;
}

int token_cut_buckets(struct token_plan *plan)
{
    _cleanup_free_ uint32_t *numbers = calloc(max_u64(plan->count, 1), sizeof *numbers);

    if (!numbers || plan_bucket_make_buckets(plan) < 0)
        return -ENOMEM;
    plan_bucket_count_members(plan, numbers);
    uint64_t full = plan_bucket_lay_out(plan);
    if (full == UINT64_MAX)
        return -ENOMEM;
    int r = plan_bucket_deal(plan, numbers, full);
    return r < 0 ? r : plan_bucket_see_to_leftover(plan, full);
}
