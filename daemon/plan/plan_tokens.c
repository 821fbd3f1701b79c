/*
 * Batches of tokens: which samples are too long, the order to cut, and each rank's part of a step.
 * Groups are cut in plan_sorted.c, plan_bucket.c and plan_pack.c.
 */
#include "daemon/plan/plan_tokens.h"

#include <assert.h>
#include <errno.h>

#include "daemon/plan/token_plan.h"
#include "proto/segment_layout.h"

/* ---- lengths -------------------------------------------------------------------------------- */

uint32_t plan_tokens_limit(const struct plan_tokens *tokens)
{
    uint64_t limit = tokens->max_length > 0 ? tokens->max_length : UINT32_MAX;

    if (tokens->strategy == PLAN_PACK)
        return (uint32_t)min_u64(limit, tokens->row_length);
    if (tokens->pad_length > 0)
        return tokens->pad_length > tokens->tokens ? 0
                                                   : (uint32_t)min_u64(limit, tokens->pad_length);
    if (tokens->max_length > 0)
        return tokens->max_length;
    uint64_t most = tokens->tokens / tokens->multiple * tokens->multiple;
    if (tokens->strategy == PLAN_BUCKET)
        most = most / tokens->interval * tokens->interval;
    return (uint32_t)most;
}

void plan_look_at_lengths(const struct plan_tokens *tokens, uint64_t length,
                          struct plan_lengths *ret)
{
    uint32_t limit = plan_tokens_limit(tokens);
    struct plan_lengths seen = {.shortest = length > 0 ? UINT64_MAX : 0,
                                .first_overlong = UINT64_MAX};

    for (uint64_t i = 0; i < length; i++) {
        uint32_t n = tokens->lengths[i];

        seen.shortest = min_u64(seen.shortest, n);
        seen.longest = max_u64(seen.longest, n);
        seen.tokens += n;
        seen.empty += n == 0;
        if (n > limit) {
            seen.first_overlong = min_u64(seen.first_overlong, i);
            seen.overlong++;
        }
    }
    *ret = seen;
}

/* ---- making one ----------------------------------------------------------------------------- */

/* Carrying wants every sample once in each epoch. */
static bool plan_tokens_can_carry(const struct plan_params *params)
{
    bool each_once = params->sampler != PLAN_WEIGHTS && !params->replacement &&
                     (params->num_samples == 0 || params->num_samples == params->length);

    return params->tokens.strategy == PLAN_BUCKET && each_once;
}

/* Batches of a bucket cost alike, and `even` says which batch has how many samples. */
static bool plan_tokens_can_balance(const struct plan_params *params)
{
    const struct plan_tokens *tokens = &params->tokens;
    bool weighs = tokens->linear >= 0 && tokens->square >= 0 && tokens->linear <= PLAN_COST_MAX &&
                  tokens->square <= PLAN_COST_MAX && tokens->linear + tokens->square > 0;

    if (!tokens->balance)
        return tokens->accumulate <= 1;
    return weighs && tokens->accumulate <= PLAN_ACCUMULATE_MAX &&
           (tokens->strategy == PLAN_PACK || tokens->strategy == PLAN_IN_TURN ||
            (tokens->strategy == PLAN_SORTED && !params->even));
}

/* Balanced rows are dealt by the world's size. An order by lengths is known from its beginning on.
 */
static bool plan_tokens_can_be_lazy(const struct plan_params *params, uint64_t count)
{
    const struct plan_tokens *tokens = &params->tokens;
    bool by_tokens = plan_is_mix(params) && params->mix.by == MIX_BY_TOKENS;

    return tokens->lazy == 0 || (!tokens->balance && !(by_tokens && tokens->mark.window > 0) &&
                                 tokens->leftover != PLAN_CARRY && tokens->lazy <= PLAN_LAZY_MAX &&
                                 token_lazy_takes_mark(tokens, count));
}

/* Parts of samples, and other ways to fill rows, are of rows that are packed window by window. */
static bool plan_tokens_can_split(const struct plan_tokens *tokens)
{
    bool windows = tokens->lazy > 0 && tokens->strategy == PLAN_PACK;

    if (tokens->fill > PLAN_CUT || (tokens->fill > PLAN_BEST_FIT && !windows))
        return false;
    if (tokens->fill == PLAN_CUT &&
        !(tokens->split && tokens->overlap == 0 && tokens->max_length == 0))
        return false;
    return !tokens->split ||
           (windows && !tokens->truncate && tokens->overlap < plan_tokens_limit(tokens));
}

static bool plan_tokens_makes_sense(const struct plan_params *params, uint64_t count)
{
    const struct plan_tokens *tokens = &params->tokens;

    if (count > UINT32_MAX || params->length > UINT32_MAX || tokens->tokens > UINT32_MAX)
        return false;
    if (params->length > 0 && !tokens->lengths)
        return false;
    if (tokens->leftover == PLAN_CARRY && !plan_tokens_can_carry(params))
        return false;
    if (!plan_tokens_can_balance(params) || !plan_tokens_can_be_lazy(params, count) ||
        !plan_tokens_can_split(tokens))
        return false;
    switch (tokens->strategy) {
    case PLAN_SORTED:
    case PLAN_IN_TURN:
        return tokens->multiple > 0 && tokens->leftover <= PLAN_CARRY;
    case PLAN_BUCKET:
        return tokens->multiple > 0 && tokens->interval > 0 && tokens->interval <= tokens->tokens &&
               tokens->leftover <= PLAN_CARRY;
    case PLAN_PACK:
        return tokens->row_length > 0 && tokens->row_length <= tokens->tokens &&
               tokens->leftover <= PLAN_CARRY;
    }
    return false;
}

static int plan_tokens_list_children(struct token_plan *plan, const struct plan_mix *mix)
{
    uint32_t n = mix->schedule.n;

    if (n == 0)
        return 0;
    plan->children = (struct token_children){.n = n,
                                             .by_tokens = mix->by == MIX_BY_TOKENS,
                                             .ends = calloc(n, sizeof *plan->children.ends)};
    if (!plan->children.ends)
        return -ENOMEM;
    return plan_mix_ends(mix, plan->children.ends) ? 0 : -EINVAL;
}

int token_plan_new(const struct plan_params *params, uint64_t count, struct token_plan **ret)
{
    if (!plan_tokens_makes_sense(params, count))
        return -EINVAL;
    struct token_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return -ENOMEM;
    *plan = (struct token_plan){
        .params = params->tokens,
        .limit = plan_tokens_limit(&params->tokens),
        .length = params->length,
        .world = min_u64(params->world, UINT64_C(1) << 32),
        .seed = params->seed,
        .epoch = params->epoch,
        .before = params->before,
        .even = params->even,
        .shuffled = params->order != PLAN_SEQUENTIAL,
        .unit = max_u64(params->tokens.accumulate, 1),
        .costs = token_costs_of(&params->tokens),
    };
    if (plan_tokens_list_children(plan, &params->mix) < 0) {
        token_plan_free(plan);
        return -ENOMEM;
    }
    *ret = plan;
    return 0;
}

struct token_plan *token_plan_free(struct token_plan *plan)
{
    if (plan) {
        plan_groups_deinit(&plan->made);
        free(plan->children.ends);
        free(plan->lazy.marks);
        free(plan->split.lengths);
        free(plan->split.parts);
        free(plan->turn);
        free(plan->buckets);
    }
    free(plan);
    return NULL;
}

uint64_t token_plan_bytes(const struct token_plan *plan)
{
    uint64_t turns = plan->turn ? token_plan_units(plan) * sizeof *plan->turn : 0;

    uint64_t split = plan->split.lengths_room * sizeof *plan->split.lengths +
                     plan->split.parts_room * sizeof *plan->split.parts;

    return plan_groups_bytes(&plan->made, plan->count) + plan->n_buckets * sizeof *plan->buckets +
           turns + split;
}

void token_plan_shuffle(const struct token_plan *plan, enum token_shuffle use, uint64_t number,
                        uint64_t length, struct permute_native *ret)
{
    uint64_t cycle = UINT64_C(1) << 63 | (uint64_t)use << 56 | number;

    permute_native_init(ret, length, plan->seed, plan->epoch, cycle);
}

uint64_t token_plan_window(const struct token_plan *plan, uint64_t first)
{
    const struct plan_tokens *params = &plan->params;
    uint64_t group, enough;
    uint64_t sum = 0;

    if (params->window == 0 || mul_overflows(params->tokens, plan->world, &group) ||
        mul_overflows(group, params->window, &enough))
        return plan->count;
    for (; first < plan->count && sum < enough; first++) {
        if (first + TOKEN_AHEAD < plan->count)
            __builtin_prefetch(&params->lengths[plan->made.members[first + TOKEN_AHEAD]]);
        sum += token_padded(params, token_length(plan, plan->made.members[first]));
    }
    return first;
}

/* ---- planning ------------------------------------------------------------------------------- */

static struct plan_step_tokens plan_tokens_walk(const struct token_plan *plan,
                                                const struct plan_group *group, uint64_t rank,
                                                uint32_t *lengths);

/* Prefetches all lengths at once: they lie anywhere in memory. */
static void plan_tokens_fetch_lengths(const struct token_plan *plan, const struct plan_group *group)
{
    for (uint64_t i = 0; i < plan_groups_stretches(&plan->made, group); i++) {
        uint64_t end, member = plan_groups_stretch(&plan->made, group, i, &end);

        for (; member < end; member++)
            __builtin_prefetch(&plan->params.lengths[plan->made.members[member]]);
    }
}

/* What the group adds to the epoch's totals; one that is too small for all ranks, in closed form.
 */
void token_plan_count_group(struct token_plan *plan, const struct plan_group *group)
{
    struct plan_totals *totals = &plan->totals;
    uint64_t world = plan->world;
    bool repeats = group->count < world && plan->even;

    plan_tokens_fetch_lengths(plan, group);
    for (uint64_t rank = 0; rank < min_u64(group->count, world); rank++) {
        struct plan_step_tokens step = plan_tokens_walk(plan, group, rank, NULL);
        uint64_t times = repeats ? world / group->count + (rank < world % group->count) : 1;

        totals->samples += times * step.samples;
        totals->repeated += (times - 1) * step.samples;
        totals->tokens += times * step.tokens;
        totals->padded += times * step.padded;
        totals->rows += times * step.rows;
        plan->most = max_u64(plan->most, step.samples);
    }
}

int token_plan_cut(struct token_plan *plan)
{
    static int (*const cut[])(struct token_plan * plan) = {[PLAN_SORTED] = token_cut_sorted,
                                                           [PLAN_BUCKET] = token_cut_buckets,
                                                           [PLAN_PACK] = token_cut_rows,
                                                           [PLAN_IN_TURN] = token_cut_in_turn};
    bool mixes = plan->children.n > 0 && plan->params.strategy != PLAN_IN_TURN &&
                 (plan->shuffled || plan->children.by_tokens);
    uint64_t count = plan->count;
    _cleanup_free_ uint32_t *order = mixes ? token_copy_members(plan->made.members, count) : NULL;
    int r = mixes && !order ? -ENOMEM : cut[plan->params.strategy](plan);

    return r == 0 && mixes ? token_order_mixed(plan, order, count) : r;
}

int token_plan_prepare(struct token_plan *plan, struct sampler *sampler)
{
    assert(!plan->prepared);
    int r = token_take_order(plan, sampler);

    if (r == 0 && plan->before.n > 0)
        r = token_leave_out_taken(plan);
    if (r == 0)
        r = token_plan_cut(plan);
    if (r < 0)
        return r;
    for (size_t i = 0; i < plan->made.n_groups; i++)
        token_plan_count_group(plan, &plan->made.groups[i]);
    plan->totals.groups = plan->made.n_groups;
    plan->prepared = true;
    return 0;
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* Only the last group can have too little for all ranks, and it stays the last. */
static bool plan_tokens_last_is_short(const struct token_plan *plan)
{
    const struct plan_groups *made = &plan->made;

    return made->n_groups > 0 && made->groups[made->n_groups - 1].count < plan->world;
}

uint64_t token_plan_units(const struct token_plan *plan)
{
    return (plan->made.n_groups - plan_tokens_last_is_short(plan)) / plan->unit;
}

const struct plan_group *token_plan_group(const struct token_plan *plan, uint64_t step)
{
    const struct plan_groups *made = &plan->made;
    uint64_t units = token_plan_units(plan);
    uint64_t size = plan->params.strategy == PLAN_BUCKET ? plan->params.window : 0;
    uint64_t unit = step / plan->unit;
    struct permute_native shuffle;

    if (plan->turn && unit < units)
        return &made->groups[plan->turn[unit] * plan->unit + step % plan->unit];
    if (plan->params.lazy) {
        assert(step >= plan->lazy.skipped);
        return &made->groups[step - plan->lazy.skipped];
    }
    if (!plan->shuffled || plan->params.strategy == PLAN_IN_TURN || unit >= units)
        return &made->groups[step];
    if (size == 0 || size > units)
        size = units;
    uint64_t window = unit / size, first = window * size;
    token_plan_shuffle(plan, SHUFFLE_GROUPS, window, min_u64(size, units - first), &shuffle);
    unit = first + permute_native_at(&shuffle, unit - first);
    return &made->groups[unit * plan->unit + step % plan->unit];
}

/* The bucket is the whole group's, for all ranks the same: its last member is in the highest.
 * Window by window it is each rank's own: see plan_tokens_walk(). */
static uint32_t plan_tokens_bucket_of(const struct token_plan *plan, const struct plan_group *group)
{
    if (plan->params.strategy != PLAN_BUCKET || plan->params.lazy)
        return UINT32_MAX;
    uint32_t last = plan->made.members[group->first + group->count - 1];
    return (token_length(plan, last) - 1) / plan->params.interval;
}

static uint64_t plan_tokens_share_samples(const struct token_plan *plan,
                                          const struct plan_share *share)
{
    uint64_t samples = 0;

    if (!plan->made.rows)
        return share->count;
    for (uint64_t i = 0, part = share->first; i < share->count; i++, part += share->stride)
        samples += plan->made.rows[part + 1] - plan->made.rows[part];
    return samples;
}

/* Rows of a rank that has them: with padding it has one batch. */
static uint32_t plan_tokens_rows(const struct token_plan *plan, const struct plan_share *share)
{
    return plan->params.strategy == PLAN_PACK ? (uint32_t)share->count : 0;
}

/* What one rank has of a group; its lengths and the samples of its rows to `lengths`, if not NULL.
 */
static struct plan_step_tokens plan_tokens_walk(const struct token_plan *plan,
                                                const struct plan_group *group, uint64_t rank,
                                                uint32_t *lengths)
{
    struct plan_share share = plan_groups_share(&plan->made, group, plan->world, rank, plan->even);
    struct plan_step_tokens step = {.samples = plan_tokens_share_samples(plan, &share),
                                    .rows = plan_tokens_rows(plan, &share),
                                    .bucket = plan_tokens_bucket_of(plan, group)};
    uint32_t *sizes = lengths ? lengths + step.samples : NULL;

    for (uint64_t i = 0, part = share.first; i < share.count; i++, part += share.stride) {
        uint64_t end, member = plan_groups_part(&plan->made, part, &end);

        if (sizes && step.rows)
            sizes[i] = (uint32_t)(end - member);
        for (; member < end; member++) {
            uint32_t length = token_length(plan, plan->made.members[member]);

            step.tokens += length;
            step.longest = length > step.longest ? length : step.longest;
            if (lengths)
                *lengths++ = length;
        }
    }
    if (plan->params.strategy == PLAN_BUCKET && plan->params.lazy && step.longest > 0)
        step.bucket = (step.longest - 1) / plan->params.interval;
    step.padded = step.rows ? step.rows * (uint64_t)plan->params.row_length
                            : step.samples * token_padded(&plan->params, step.longest);
    return step;
}

uint64_t token_plan_steps(const struct token_plan *plan, uint64_t rank)
{
    assert(plan->prepared);
    const struct plan_groups *made = &plan->made;
    uint64_t steps = plan->lazy.skipped + made->n_groups;

    if (plan_tokens_last_is_short(plan) && !plan->even &&
        rank >= made->groups[made->n_groups - 1].count)
        return steps - 1;
    return steps;
}

uint64_t token_plan_samples(const struct token_plan *plan, uint64_t rank)
{
    assert(plan->prepared);
    const struct plan_groups *made = &plan->made;
    size_t i = made->rows ? 0 : made->n_even; /* rows have as many samples as they have */
    uint64_t samples = made->rows ? 0 : made->even_parts / plan->world;

    for (; i < made->n_groups; i++) {
        struct plan_share share =
            plan_groups_share(made, &made->groups[i], plan->world, rank, plan->even);
        samples += plan_tokens_share_samples(plan, &share);
    }
    return samples;
}

size_t token_plan_step(const struct token_plan *plan, uint64_t rank, uint64_t step,
                       uint64_t *indices)
{
    assert(step < token_plan_steps(plan, rank));
    const struct plan_group *group = token_plan_group(plan, step);
    struct plan_share share = plan_groups_share(&plan->made, group, plan->world, rank, plan->even);
    size_t n = 0;

    for (uint64_t i = 0, part = share.first; i < share.count; i++, part += share.stride) {
        uint64_t end, member = plan_groups_part(&plan->made, part, &end);

        while (member < end)
            indices[n++] = token_sample(plan, plan->made.members[member++]);
    }
    return n;
}

/* If parts are fewer than ranks, each rank gets one: the last ranks' repeat earlier ones. */
uint64_t token_plan_repeated(const struct token_plan *plan, uint64_t rank, uint64_t step)
{
    assert(step < token_plan_steps(plan, rank));
    const struct plan_group *group = token_plan_group(plan, step);
    struct plan_share share = plan_groups_share(&plan->made, group, plan->world, rank, plan->even);

    return rank < group->count ? 0 : plan_tokens_share_samples(plan, &share);
}

struct plan_step_tokens token_plan_step_tokens(const struct token_plan *plan, uint64_t rank,
                                               uint64_t step)
{
    assert(step < token_plan_steps(plan, rank));
    return plan_tokens_walk(plan, token_plan_group(plan, step), rank, NULL);
}

void token_plan_step_lengths(const struct token_plan *plan, uint64_t rank, uint64_t step,
                             uint32_t *ret)
{
    assert(step < token_plan_steps(plan, rank));
    plan_tokens_walk(plan, token_plan_group(plan, step), rank, ret);
}

struct plan_step_size token_plan_step_size(const struct token_plan *plan, uint64_t rank,
                                           uint64_t step)
{
    assert(step < token_plan_steps(plan, rank));
    struct plan_share share =
        plan_groups_share(&plan->made, token_plan_group(plan, step), plan->world, rank, plan->even);

    return (struct plan_step_size){
        .samples = plan_tokens_share_samples(plan, &share),
        .rows = plan_tokens_rows(plan, &share),
        .begins = plan->params.split ? plan_tokens_share_samples(plan, &share) : 0};
}

/* Where in its sample each of a step's begins. */
static void plan_tokens_put_begins(const struct token_plan *plan, const struct plan_group *group,
                                   uint64_t rank, uint32_t *ret)
{
    struct plan_share share = plan_groups_share(&plan->made, group, plan->world, rank, plan->even);

    for (uint64_t i = 0, part = share.first; i < share.count; i++, part += share.stride) {
        uint64_t end, member = plan_groups_part(&plan->made, part, &end);

        while (member < end)
            *ret++ = token_begin_in_sample(plan, plan->made.members[member++]);
    }
}

struct plan_step_tokens token_plan_put_planned(const struct token_plan *plan, uint64_t rank,
                                               uint64_t step, struct slot_planned *ret)
{
    assert(step < token_plan_steps(plan, rank));
    struct plan_step_tokens tokens =
        plan_tokens_walk(plan, token_plan_group(plan, step), rank, ret->lists);

    ret->padded = tokens.padded;
    ret->cut = plan->params.truncate ? plan->limit : 0;
    ret->rows = tokens.rows;
    if (plan->params.split) {
        ret->cut = SLOT_SPLIT | plan->limit;
        plan_tokens_put_begins(plan, token_plan_group(plan, step), rank,
                               ret->lists + tokens.samples + tokens.rows);
    }
    return tokens;
}

const struct plan_totals *token_plan_totals(const struct token_plan *plan)
{
    assert(plan->prepared);
    return &plan->totals;
}

uint64_t token_plan_most(const struct token_plan *plan)
{
    assert(plan->prepared);
    return plan->most;
}

uint32_t token_plan_buckets(const struct token_plan *plan)
{
    assert(plan->prepared);
    return plan->n_buckets;
}

struct plan_bucket token_plan_bucket(const struct token_plan *plan, uint32_t index)
{
    assert(plan->prepared && index < plan->n_buckets);
    const struct token_bucket *bucket = &plan->buckets[index];
    uint64_t upper = (index + UINT64_C(1)) * plan->params.interval;

    return (struct plan_bucket){.upper = (uint32_t)min_u64(upper, UINT32_MAX),
                                .members = bucket->members,
                                .full = bucket->full,
                                .leftover = bucket->carried + bucket->members - bucket->full};
}
