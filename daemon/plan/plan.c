/*
 * Which indices form step k of rank r: the sampler's order, dealt to ranks and cut into batches by
 * shard.c. See plan.h. Batches of tokens are planned ahead, by plan_tokens.c: for them, the
 * functions here only look the plan up.
 */
#include "daemon/plan/plan.h"

#include <assert.h>
#include <errno.h>

#include "daemon/plan/plan_lazy.h"
#include "daemon/plan/sampler.h"
#include "daemon/plan/token_plan.h"
#include "proto/spec.h"

struct plan {
    struct plan_params params; /* lists are borrowed, but for changes of its own: */
    struct mix_changes *own;   /* counted; NULL: those of `params` are the caller's */
    struct sampler *sampler;   /* owned; NULL once `tokens` has what it needs of it */
    struct token_plan *tokens; /* owned; NULL: batches are measured in samples */
    struct shard whole;        /* of all positions of the order */
    struct shard shard;        /* of those from `base` on */
    uint64_t base;
};

static struct plan_tokens plan_tokens_of(const struct dl_spec *spec)
{
    static const enum plan_leftover leftovers[] = {
        [LEFTOVER_EMIT] = PLAN_EMIT, [LEFTOVER_DROP] = PLAN_DROP, [LEFTOVER_CARRY] = PLAN_CARRY};
    static const enum plan_fill fills[] = {[STRATEGY_SEQUENTIAL] = PLAN_NEXT_FIT,
                                           [STRATEGY_FIRST_FIT] = PLAN_FIRST_FIT,
                                           [STRATEGY_CUT] = PLAN_CUT};
    const struct spec_batch *batch = &spec->batch;
    bool packs = spec->collate.kind == COLLATE_PACK, pads = spec->collate.kind == COLLATE_PAD;
    bool lazy = batch->lengths == LENGTHS_LAZY;

    if (!batch->tokens)
        return (struct plan_tokens){0};
    return (struct plan_tokens){
        .tokens = batch->tokens,
        .strategy = packs                                    ? PLAN_PACK
                    : batch->strategy == STRATEGY_BUCKET     ? PLAN_BUCKET
                    : batch->strategy == STRATEGY_SEQUENTIAL ? PLAN_IN_TURN
                                                             : PLAN_SORTED,
        .leftover = leftovers[batch->leftover],
        .truncate = batch->overlong == OVERLONG_TRUNCATE,
        .split = batch->overlong == OVERLONG_SPLIT,
        .fill = packs ? fills[batch->strategy] : PLAN_BEST_FIT,
        .overlap = (uint32_t)batch->overlap,
        .max_length = (uint32_t)batch->max_length,
        .interval = (uint32_t)batch->interval,
        .multiple = (uint32_t)spec_pad_multiple(spec),
        .pad_length = pads ? (uint32_t)spec->collate.length : 0,
        .row_length = packs ? (uint32_t)spec->collate.length : 0,
        .window = batch->window,
        .lazy = lazy ? batch->documents : 0,
        .balance = batch->balance > BALANCE_NONE,
        .linear = batch->balance == BALANCE_COST ? batch->cost[0] : 1,
        .square = batch->balance == BALANCE_COST ? batch->cost[1] : 0,
        .accumulate = batch->balance > BALANCE_NONE ? batch->accumulate : 1,
    };
}

struct plan_mix plan_mix_of(const struct spec_dataset *dataset)
{
    return (struct plan_mix){
        .children = spec_mixture_is_nested(dataset) ? dataset->datasets : NULL,
        .schedule = {.n = dataset->n_datasets,
                     .n_points = dataset->n_points,
                     .points = dataset->points,
                     .step_samples = dataset->global_batch},
        .stop = dataset->stop,
        .by = dataset->by,
        .draw = dataset->draw,
        .length = dataset->stop == MIX_STOP_NEVER ? dataset->length : 0,
    };
}

struct plan_params plan_params_of(const struct dl_spec *spec, uint64_t length)
{
    static const enum plan_order orders[] = {
        [ORDER_TORCH] = PLAN_TORCH, [ORDER_NATIVE] = PLAN_NATIVE};
    static const enum plan_shard modes[] = {[SHARD_STRIDED] = PLAN_STRIDED,
                                            [SHARD_BATCH] = PLAN_BATCH,
                                            [SHARD_SPLIT] = PLAN_SPLIT,
                                            [SHARD_DISPATCH] = PLAN_DISPATCH};
    static const struct {
        enum plan_sampler sampler;
        bool in_turn;
    } kinds[] = {
        [SAMPLER_SEQUENTIAL] = {PLAN_SAMPLES, true},
        [SAMPLER_RANDOM] = {PLAN_SAMPLES, false},
        [SAMPLER_INDICES] = {PLAN_INDICES, true},
        [SAMPLER_SUBSET_RANDOM] = {PLAN_INDICES, false},
        [SAMPLER_CLIENT] = {PLAN_SAMPLES, true},
        [SAMPLER_WEIGHTED] = {PLAN_WEIGHTS, false},
    };
    bool mixes = spec->dataset.kind == DATASET_MIX;

    return (struct plan_params){
        .length = length,
        .sampler = mixes ? PLAN_MIXTURE : kinds[spec->sampler].sampler,
        .mix = mixes ? plan_mix_of(&spec->dataset) : (struct plan_mix){.schedule = {.n = 0}},
        .order = kinds[spec->sampler].in_turn ? PLAN_SEQUENTIAL : orders[spec->order],
        .indices = spec->indices,
        .n_indices = spec->n_indices,
        .weights = spec->weights,
        .num_samples = spec->num_samples,
        .block = spec->block,
        .window = spec->window,
        .replacement = spec->replacement,
        .seed = spec->seed,
        .world = 1,
        .batch_size = spec->batch_size,
        .drop_last = spec->drop_last,
        .shard = modes[spec->shard],
        .even = spec->even,
        .tokens = plan_tokens_of(spec),
    };
}

static bool plan_tokens_equal(const struct plan_tokens *a, const struct plan_tokens *b)
{
    return a->tokens == b->tokens && a->lengths == b->lengths && a->strategy == b->strategy &&
           a->leftover == b->leftover && a->truncate == b->truncate && a->split == b->split &&
           a->fill == b->fill && a->overlap == b->overlap && a->max_length == b->max_length &&
           a->interval == b->interval && a->multiple == b->multiple &&
           a->pad_length == b->pad_length && a->row_length == b->row_length &&
           a->window == b->window && a->lazy == b->lazy && a->mark.window == b->mark.window &&
           a->mark.rows == b->mark.rows && a->balance == b->balance && a->linear == b->linear &&
           a->square == b->square && a->accumulate == b->accumulate;
}

bool plan_params_equal(const struct plan_params *a, const struct plan_params *b)
{
    return a->length == b->length && a->sampler == b->sampler && a->order == b->order &&
           a->indices == b->indices && a->n_indices == b->n_indices && a->weights == b->weights &&
           mix_changes_equal(a->changes, b->changes) && plan_mix_equal(&a->mix, &b->mix) &&
           a->num_samples == b->num_samples && a->block == b->block && a->window == b->window &&
           a->replacement == b->replacement && a->seed == b->seed && a->epoch == b->epoch &&
           a->world == b->world && a->batch_size == b->batch_size && a->drop_last == b->drop_last &&
           a->shard == b->shard && a->even == b->even && history_equal(&a->before, &b->before) &&
           plan_tokens_equal(&a->tokens, &b->tokens);
}

/* Changes that are ahead have a row, and that an epoch which is read. */
static int plan_check_ahead(const struct plan_params *params, struct dl_error *err)
{
    uint64_t ahead = mix_changes_ahead(plan_changes(params));

    if (ahead == UINT64_MAX)
        return 0;
    if (params->tokens.lazy == 0 || params->mix.stop != MIX_STOP_NEVER)
        return dl_error_set(err, EINVAL, "state",
                            "its weights change at a row of an order that is packed while it is "
                            "read, as of batch.lengths: lazy with stop: never");
    if (mix_ahead_epoch(ahead) < params->epoch)
        return dl_error_set(err, EINVAL, "epoch",
                            "%llu comes after a change of weights at row %u of epoch %llu, which "
                            "has to be read first",
                            (ull)params->epoch, mix_ahead_row(ahead), (ull)mix_ahead_epoch(ahead));
    return 0;
}

int plan_check_changes(const struct plan_params *params, struct dl_error *err)
{
    const struct mix_changes *changes = plan_changes(params);
    bool of_samples = params->sampler == PLAN_WEIGHTS;
    uint32_t first, end;

    if (!changes)
        return 0;
    if ((!of_samples && !plan_is_mix(params)) || changes->of_samples != of_samples)
        return dl_error_set(err, EINVAL, "state",
                            "has changed weights of %s, which the spec does not have",
                            changes->of_samples ? "samples" : "a mix's datasets");
    if (!of_samples)
        return plan_check_ahead(params, err);
    if (changes->n != params->length || changes->count != plan_drawn(params))
        return dl_error_set(err, EINVAL, "state",
                            "its changed weights are of %u samples in epochs of %llu, not %llu in "
                            "epochs of %llu",
                            changes->n, (ull)changes->count, (ull)params->length,
                            (ull)plan_drawn(params));
    end = mix_changes_of_epoch(changes, params->epoch, &first);
    for (uint32_t i = first; i < end; i++)
        if (!changes->items[i].table)
            return dl_error_set(err, ENOENT, "state",
                                "weights %016llx of its samples are not here; see DLOADER_WEIGHTS "
                                "in dlctl(1)",
                                (ull)changes->items[i].sum);
    return 0;
}

/* Whether batches can be split among the ranks if they must be, for this world size and former
 * ones. */
static bool plan_can_split(const struct plan_params *params)
{
    uint64_t size = max_u64(params->batch_size, 1);
    bool can = size % params->world == 0;

    for (uint32_t i = 0; can && i < params->before.n; i++)
        can = size % params->before.stretches[i].world == 0;
    return params->shard != PLAN_SPLIT || can;
}

static struct shard plan_shard_for(const struct plan_params *params, uint64_t count, uint64_t world)
{
    return shard_of(&(struct shard_params){.count = count,
                                           .world = world,
                                           .batch_size = max_u64(params->batch_size, 1),
                                           .mode = params->shard,
                                           .drop_last = params->drop_last,
                                           .even = params->even});
}

/* How many positions of the order, its first ones, `before` took. */
static uint64_t plan_taken_before(const struct plan_params *params, uint64_t count)
{
    uint64_t base = 0;

    for (uint32_t i = 0; i < params->before.n; i++) {
        const struct history_stretch *stretch = &params->before.stretches[i];
        struct shard shard = plan_shard_for(params, count - base, stretch->world);

        if (stretch->steps >= shard_steps(&shard, 0)) /* no rank has more */
            return count;
        base += shard_span(&shard, 0, stretch->steps).first;
    }
    return base;
}

static bool plan_has_worlds(const struct plan_params *params)
{
    bool has = params->world > 0 && params->before.n <= DL_BOUND_HISTORY;

    for (uint32_t i = 0; has && i < params->before.n; i++)
        has = params->before.stretches[i].world > 0;
    return has;
}

int plan_new(const struct plan_params *params, struct plan **ret)
{
    if (!plan_has_worlds(params) || !plan_can_split(params) ||
        (params->shard == PLAN_DISPATCH && params->tokens.tokens > 0))
        return -EINVAL;
    _cleanup_(plan_freep) struct plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return -ENOMEM;
    int r = sampler_new(params, &plan->sampler);
    if (r < 0)
        return r;
    plan->whole = plan_shard_for(params, plan->sampler->count, params->world);
    plan->base = plan_taken_before(params, plan->sampler->count);
    plan->shard = plan_shard_for(params, plan->sampler->count - plan->base, params->world);
    if (params->tokens.tokens > 0)
        r = token_plan_new(params, plan->sampler->count, &plan->tokens);
    if (r < 0)
        return r;
    plan->params = *params;
    *ret = steal_ptr(plan);
    return 0;
}

struct plan *plan_free(struct plan *plan)
{
    if (plan) {
        sampler_free(plan->sampler);
        token_plan_free(plan->tokens);
        mix_changes_unref(plan->own);
    }
    free(plan);
    return NULL;
}

/* Of batches of tokens that are being worked out: plan_prepare() says how much. */
enum { PLAN_WORK_BYTES = 20, PLAN_WORK_MIXED_BYTES = 12 /* more, of a mixture */ };

uint64_t plan_bytes(const struct plan *plan)
{
    uint64_t ordered = plan->sampler ? plan->sampler->bytes : 0, work;

    if (!plan->tokens)
        return ordered;
    if (!plan->sampler)
        return token_plan_bytes(plan->tokens);
    uint64_t each = PLAN_WORK_BYTES + (plan->tokens->children.n > 0 ? PLAN_WORK_MIXED_BYTES : 0);
    if (mul_overflows(plan->sampler->count, each, &work) || work > UINT64_MAX - ordered)
        return UINT64_MAX;
    return ordered + work;
}

/* ---- window by window ------------------------------------------------------------------------ */

bool plan_is_lazy(const struct plan *plan)
{
    return plan->tokens && plan->tokens->params.lazy > 0;
}

bool plan_is_whole(const struct plan *plan)
{
    return token_lazy_is_whole(plan->tokens);
}

struct lazy_mark plan_mark(const struct plan *plan, uint64_t step)
{
    return token_lazy_mark(plan->tokens, step);
}

uint64_t plan_windows(const struct plan *plan)
{
    return plan->tokens->lazy.windows;
}

uint64_t plan_steps_before_window(const struct plan *plan)
{
    return plan->tokens->lazy.steps_before;
}

/* A whole plan has all that it needs of the order. */
static void plan_release_sampler(struct plan *plan)
{
    if (plan_is_whole(plan))
        plan->sampler = sampler_free(plan->sampler);
}

uint64_t plan_known(const struct plan *plan)
{
    uint64_t known = plan->sampler && plan->sampler->ops->lacks ? plan->sampler->known : 0;

    return max_u64(plan->tokens->lazy.taken, known);
}

uint64_t plan_row(const struct plan *plan, uint64_t step)
{
    return token_lazy_row(plan->tokens, step);
}

uint64_t plan_rows_so_far(const struct plan *plan)
{
    return plan->params.tokens.mark.rows + plan->tokens->made.n_rows;
}

struct mix_changes *plan_changes_now(const struct plan *plan)
{
    return plan_changes(&plan->params);
}

int plan_change(struct plan *plan, struct mix_changes *changes)
{
    struct plan_params params = plan->params;
    struct sampler *sampler = NULL, *former = plan->sampler;

    plan_set_changes(&params, changes);
    int r = former ? sampler_new(&params, &sampler) : 0;
    if (r < 0)
        return r;
    assert(!former || former->ops->lacks || former->count == sampler->count);
    if (former && former->ops->adopt)
        former->ops->adopt(former, sampler);
    else
        plan->sampler = sampler;
    sampler_free(plan->sampler == sampler ? former : sampler);
    mix_changes_ref(changes);
    mix_changes_unref(plan->own);
    plan->own = changes;
    plan->params = params;
    return 0;
}

/* A change that is ahead begins with the first window behind its row; without one, with the
 * next epoch. */
static int plan_place_changes(struct plan *plan)
{
    uint64_t ahead, epoch = plan->params.epoch;
    int r = 0;

    while (r == 0 && (ahead = mix_changes_ahead(plan_changes_now(plan))) != UINT64_MAX &&
           mix_ahead_epoch(ahead) == epoch &&
           (plan_is_whole(plan) || plan_rows_so_far(plan) >= mix_ahead_row(ahead))) {
        uint64_t position = epoch * plan->params.mix.length + plan->tokens->lazy.taken;
        struct mix_changes *placed = NULL;

        r = mix_changes_place(plan_changes_now(plan), position, &placed);
        if (r == 0)
            r = plan_change(plan, placed);
        mix_changes_unref(placed);
    }
    return r;
}

int plan_begin(struct plan *plan)
{
    assert(plan_is_lazy(plan));
    int r = token_lazy_begin(plan->tokens, plan->sampler);

    if (r == 0)
        r = plan_place_changes(plan);
    plan_release_sampler(plan);
    return r;
}

size_t plan_window(struct plan *plan, uint64_t *ret)
{
    uint64_t first, n = token_lazy_window(plan->tokens, &first);
    struct sampler *sampler = plan->sampler;
    size_t lacks = n > 0 && sampler->ops->lacks ? sampler->ops->lacks(sampler, first + n, ret) : 0;

    if (lacks > 0)
        return lacks;
    for (uint64_t i = 0; i < n; i++)
        ret[i] = first + i;
    if (n > 0)
        sampler_take(plan->sampler, ret, n);
    return n;
}

int plan_cut_window(struct plan *plan)
{
    uint64_t windows = plan_windows(plan);
    int r = token_lazy_cut(plan->tokens, plan->sampler);

    if (r == 0 && plan_windows(plan) > windows)
        r = plan_place_changes(plan);
    plan_release_sampler(plan);
    return r;
}

int plan_prepare(struct plan *plan)
{
    int r = 0;

    if (!plan->tokens)
        return 0;
    if (plan_is_lazy(plan)) {
        r = plan_begin(plan);
        while (r == 0 && !plan_is_whole(plan))
            r = plan_cut_window(plan);
        return r;
    }
    r = token_plan_prepare(plan->tokens, plan->sampler);
    plan->sampler = sampler_free(plan->sampler);
    return r;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static bool plan_is_rank(const struct plan *plan, uint64_t rank)
{
    return rank < plan->shard.world || (rank == PLAN_ALL && plan->shard.dispatch);
}

uint64_t plan_samples(const struct plan *plan, uint64_t rank)
{
    assert(plan_is_rank(plan, rank));
    return plan->tokens ? token_plan_samples(plan->tokens, rank)
                        : shard_samples(&plan->shard, rank);
}

uint64_t plan_steps(const struct plan *plan, uint64_t rank)
{
    assert(plan_is_rank(plan, rank));
    return plan->tokens ? token_plan_steps(plan->tokens, rank) : shard_steps(&plan->shard, rank);
}

uint64_t plan_most(const struct plan *plan)
{
    if (plan->tokens)
        return token_plan_most(plan->tokens);
    if (plan_steps(plan, 0) == 0)
        return 0;
    if (plan->shard.dispatch)
        return min_u64(plan->shard.size * plan->shard.world, plan_samples(plan, PLAN_ALL));
    return min_u64(plan->shard.size, plan_samples(plan, 0));
}

struct plan_extent plan_estimate(const struct plan_params *params, uint64_t rank)
{
    bool strided = params->shard == PLAN_STRIDED;
    struct shard shard =
        shard_of(&(struct shard_params){.count = params->length,
                                        .world = params->world,
                                        .batch_size = max_u64(params->batch_size, 1),
                                        .mode = params->shard,
                                        .drop_last = params->drop_last,
                                        .even = params->even || strided});

    return (struct plan_extent){shard_samples(&shard, rank), shard_steps(&shard, rank)};
}

/* Positions of the whole order. */
static struct shard_span plan_span_of(const struct plan *plan, uint64_t rank, uint64_t step)
{
    struct shard_span span = shard_span(&plan->shard, rank, step);

    span.first += plan->base;
    return span;
}

size_t plan_step(struct plan *plan, uint64_t rank, uint64_t step, uint64_t *indices)
{
    if (plan->tokens)
        return token_plan_step(plan->tokens, rank, step, indices);
    struct sampler *sampler = plan->sampler;
    struct shard_span span = plan_span_of(plan, rank, step);

    if (sampler->ops->extend)
        sampler->ops->extend(sampler, shard_needs(&plan->whole, &span));
    for (uint64_t i = 0; i < span.n; i++)
        indices[i] = shard_at(&plan->whole, span.first + i * span.stride);
    sampler_take(sampler, indices, span.n);
    return span.n;
}

uint64_t plan_repeated(const struct plan *plan, uint64_t rank, uint64_t step)
{
    if (plan->tokens)
        return token_plan_repeated(plan->tokens, rank, step);
    struct shard_span span = shard_span(&plan->shard, rank, step);

    return shard_repeated(&plan->shard, &span);
}

uint64_t plan_position(const struct plan *plan, uint64_t rank, uint64_t step)
{
    if (!plan->tokens)
        return plan_span_of(plan, rank, step).first;
    if (plan_is_lazy(plan))
        return token_lazy_position(plan->tokens, step);
    double all = (double)plan_samples(plan, rank) * (double)plan->shard.world;

    return (uint64_t)(all * ((double)step / (double)plan_steps(plan, rank)));
}

struct plan_slice plan_slice(const struct plan *plan, uint64_t rank, uint64_t step)
{
    assert(plan->shard.dispatch);
    struct shard_span all = shard_span(&plan->shard, SHARD_ALL, step);
    struct shard_span span = shard_span(&plan->shard, rank, step);

    return (struct plan_slice){span.first - all.first, span.n};
}

struct plan_rows plan_rows(uint64_t samples, uint64_t repeated, uint64_t world, uint64_t rank)
{
    /* One round of that many positions, dealt as the last one of an order. */
    struct shard shard = shard_of(&(struct shard_params){
        .count = samples, .world = world, .batch_size = samples, .mode = PLAN_DISPATCH});
    uint64_t n = shard_samples(&shard, rank);

    if (n == 0)
        return (struct plan_rows){0};
    struct shard_span span = shard_span(&shard, rank, 0);
    uint64_t own = samples - repeated, real = own > span.first ? min_u64(own - span.first, n) : 0;

    return (struct plan_rows){span.first, n, n - real};
}

uint64_t plan_backlog(const struct plan *plan, uint64_t rank, uint64_t step)
{
    if (plan->tokens)
        return plan->tokens->prepared ? 0 : max_u64(plan->whole.count, 1);
    if (!plan->sampler->ops->missing)
        return 0;
    struct shard_span span = plan_span_of(plan, rank, step);

    return plan->sampler->ops->missing(plan->sampler, shard_needs(&plan->whole, &span));
}

/* ---- only for token batches ------------------------------------------------------------------ */

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
    assert(plan->tokens && rank < plan->shard.world);
    return token_plan_step_tokens(plan->tokens, rank, step);
}

void plan_step_lengths(const struct plan *plan, uint64_t rank, uint64_t step, uint32_t *ret)
{
    assert(plan->tokens && rank < plan->shard.world);
    token_plan_step_lengths(plan->tokens, rank, step, ret);
}

struct plan_step_size plan_step_size(const struct plan *plan, uint64_t rank, uint64_t step)
{
    assert(plan->tokens && rank < plan->shard.world);
    return token_plan_step_size(plan->tokens, rank, step);
}

struct plan_step_tokens plan_put_planned(const struct plan *plan, uint64_t rank, uint64_t step,
                                         struct slot_planned *ret)
{
    assert(plan->tokens && rank < plan->shard.world);
    return token_plan_put_planned(plan->tokens, rank, step, ret);
}
