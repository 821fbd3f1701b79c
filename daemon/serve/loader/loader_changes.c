/*
 * Weights of a mixture, or of a weighted sampler, that are changed while it is read: one list
 * (proto/mix_changes.h) for all who read the loader. A change has to lie behind all that any rank
 * has planned, so that whatever was planned stays as it is; then each stream goes on with another
 * plan, which is the same up to there.
 *
 * The list is told by who starts a stream (loader_bring_changes()): where nobody reads, it becomes
 * the loader's, and else it has to be the loader's, or an earlier or later one that differs only in
 * what is yet to come. So a state decides what an epoch that is resumed has, whichever daemon has
 * it.
 */
#include "daemon/serve/base/log.h"
#include "daemon/serve/base/memory.h"
#include "daemon/serve/loader/loader_private.h"

#include <errno.h>
#include <stdio.h>

#include <utlist.h>

typedef unsigned long long ull; /* for printf */

/* Ranks wait so long for weights of samples that were given on another node. */
static const uint64_t LACKS_NS = 30 * (uint64_t)1000000000;

/* ---- how far it is read ---------------------------------------------------------------------- */

static bool changes_are_of_samples(const struct loader *loader)
{
    return loader->spec.sampler == SAMPLER_WEIGHTED;
}

/* Positions of an epoch. */
static uint64_t changes_length(const struct loader *loader)
{
    const struct plan_params params = loader_plan_params(loader);

    return changes_are_of_samples(loader) ? plan_drawn(&params) : loader->spec.dataset.length;
}

/* Epochs have an order each, whose length hangs on the weights. */
static bool changes_count_epochs(const struct loader *loader)
{
    return loader->spec.dataset.kind == DATASET_MIX && loader->spec.dataset.stop != MIX_STOP_NEVER;
}

/* An epoch is planned as a whole, or ranks are told how long it is: weights change with the next.
 */
static bool changes_need_epochs(const struct loader *loader)
{
    return loader->spec.batch.tokens > 0 || changes_count_epochs(loader);
}

/* Where an epoch begins; those beyond all orders begin at their end. */
static uint64_t changes_begin(const struct loader *loader, uint64_t epoch)
{
    uint64_t length = changes_count_epochs(loader) ? 1 : changes_length(loader), begin;

    return mul_overflows(epoch, length, &begin) ? MIX_POSITIONS : min_u64(begin, MIX_POSITIONS);
}

/* Where a step of all ranks begins in the order. */
static uint64_t changes_position(const struct loader *loader, const struct plan *plan,
                                 uint64_t epoch, uint64_t step)
{
    uint64_t begin = changes_begin(loader, epoch);

    if (changes_need_epochs(loader))
        return begin + (step > 0);
    return begin +
           (step < plan_steps(plan, 0) ? plan_position(plan, 0, step) : changes_length(loader));
}

/* Somebody reads it, or may come back to it; or it loads for those. */
static bool changes_is_read(const struct stream *stream)
{
    return stream->plan && stream->phase != STREAM_STOPPED &&
           (!stream_is_expected(stream) || stream->phase == STREAM_PARKED);
}

/* Behind all that the stream has planned. */
static uint64_t changes_planned(const struct loader *loader, const struct stream *stream)
{
    uint64_t step = stream->to_plan;

    if (changes_need_epochs(loader))
        return changes_begin(loader, min_u64(stream->params.epoch, UINT64_MAX - 1) + 1);

    for (const struct step *s = stream->steps; s; s = s->hh.next)
        step = max_u64(step, s->number + 1);
    return changes_position(loader, stream->plan, stream->params.epoch, step);
}

struct changes_reach {
    const struct stream *last; /* of the latest epoch that is read; NULL: none is */
    uint64_t end;              /* positions before this one are planned */
    uint64_t ranks;            /* streams with a client, or parked */
};

static struct changes_reach changes_look(const struct loader *loader)
{
    struct changes_reach reach = {0};
    const struct stream *stream;

    DL_FOREACH (loader->core.streams, stream) {
        if (!changes_is_read(stream))
            continue;
        reach.end = max_u64(reach.end, changes_planned(loader, stream));
        reach.ranks += !stream_is_source(stream);
        if (!reach.last || stream->params.epoch > reach.last->params.epoch ||
            (stream->params.epoch == reach.last->params.epoch &&
             stream->params.round > reach.last->params.round))
            reach.last = stream;
    }
    return reach;
}

/* ---- new plans ------------------------------------------------------------------------------- */

struct changes_plan {
    struct stream *stream;
    struct epoch *epoch; /* counted */
};

static void changes_log(const struct loader *loader, const char *why)
{
    const struct mix_changes *changes = loader->changes;
    const char *name = loader->spec.name;

    for (uint32_t i = 0; changes && changes->of_samples && i < changes->n_changes; i++)
        log_loader(LOG_INFO, name, loader->o.uid,
                   "%s: %s: weights from sample %llu on: %016llx of %u samples", name, why,
                   (ull)changes->items[i].position, (ull)changes->items[i].sum, changes->n);
    for (uint32_t i = 0; changes && !changes->of_samples && i < changes->n_changes; i++) {
        char text[512];
        size_t at = 0;

        for (uint32_t child = 0; child < changes->n && at < sizeof text; child++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%.6g", child ? ", " : "",
                                   changes->items[i].weights[child]);
        log_loader(LOG_INFO, name, loader->o.uid, "%s: %s: weights from sample %llu on: %s", name,
                   why, (ull)changes->items[i].position, text);
    }
    if (!changes)
        log_loader(LOG_INFO, name, loader->o.uid, "%s: %s: the weights of its spec", name, why);
}

static void changes_tell(struct loader *loader)
{
    struct loader_user *user;

    DL_FOREACH (loader->users, user) {
        if (user->told && !user->left)
            loader->o.events->changed(user);
    }
}

static uint32_t changes_count_streams(const struct loader *loader)
{
    const struct stream *stream;
    uint32_t n = 0;

    DL_FOREACH (loader->core.streams, stream) {
        n++;
    }
    return n;
}

/* The plans of all streams that go on, by the loader's list; 0, or negative with `err`. */
static int changes_make_plans(struct loader *loader, struct changes_plan *plans, uint32_t *ret_n,
                              struct dl_error *err)
{
    struct stream *stream;
    int r = 0;

    *ret_n = 0;
    if (changes_need_epochs(loader))
        return 0; /* those that are there begin before */
    DL_FOREACH (loader->core.streams, stream) {
        if (!stream->epoch || stream->phase == STREAM_STOPPED)
            continue;
        r = loader_ref_plan(loader, &stream->params, &plans[*ret_n].epoch, err);
        if (r < 0)
            break;
        plans[(*ret_n)++].stream = stream;
    }
    return r;
}

/* All that is planned lies before what differs. */
static int changes_set(struct loader *loader, struct mix_changes *list, struct dl_error *err)
{
    struct mix_changes *before = loader->changes;
    _cleanup_free_ struct changes_plan *plans =
        must_alloc((1 + changes_count_streams(loader)) * sizeof *plans);
    uint32_t n;

    loader->changes = list;
    int r = changes_make_plans(loader, plans, &n, err);
    if (r < 0)
        loader->changes = before;
    for (uint32_t i = 0; i < n; i++) {
        struct stream *stream = plans[i].stream;

        epoch_unref(&loader->epochs, r < 0 ? plans[i].epoch : stream->epoch);
        if (r < 0)
            continue;
        stream->epoch = plans[i].epoch;
        stream->plan = epoch_plan(stream->epoch);
    }
    if (r < 0)
        return r;
    mix_changes_ref(list);
    mix_changes_unref(before);
    mix_ruler_deinit(&loader->ruler);
    core_planned(&loader->core); /* what waited for a plan of before waits for none now */
    return 0;
}

/* ---- a change that somebody asks for --------------------------------------------------------- */

static int changes_check_kind(const struct loader *loader, bool of_samples, struct dl_error *err)
{
    const struct spec_dataset *dataset = &loader->spec.dataset;
    const char *name = loader->spec.name;

    if (of_samples && !changes_are_of_samples(loader))
        return dl_error_set(err, EINVAL, name,
                            "its sampler is not of kind weighted, and has no weights of samples");
    if (of_samples)
        return 0;
    if (dataset->kind != DATASET_MIX)
        return dl_error_set(err, EINVAL, name,
                            "its dataset is no mix, and has no weights of datasets");
    if (loader->core.iterable)
        return dl_error_set(err, ENOTSUP, name,
                            "iterable datasets are mixed by each worker; write a schedule");
    return 0;
}

static int changes_check_weights(const struct loader *loader, const double *weights,
                                 struct dl_error *err)
{
    const struct plan_params params = loader_plan_params(loader);
    uint64_t ends[DL_BOUND_MIX_CHILDREN];
    uint32_t n = loader->spec.dataset.n_datasets;

    if (!plan_mix_ends(&params.mix, ends))
        return dl_error_set(err, EINVAL, "weights", "the datasets have too many samples");
    for (uint32_t i = 0; i < n; i++)
        if (weights[i] > 0 && ends[i] == (i > 0 ? ends[i - 1] : 0))
            return dl_error_set(err, EINVAL, "weights",
                                "dataset %u has no samples, but weight %g; write 0", i, weights[i]);
    return mix_weights_check(weights, n, "weights", err);
}

static int changes_check_table(const struct loader *loader, const struct weight_table *table,
                               struct dl_error *err)
{
    if (table->n == loader->core.length)
        return 0;
    return dl_error_set(err, EINVAL, "weights",
                        "%llu weights do not fit a dataset of %llu samples; give one for each",
                        (ull)table->n, (ull)loader->core.length);
}

/* Of all that read, one must be each rank: or those elsewhere would go on with other weights. */
static int changes_check_ranks(const struct loader *loader, const struct changes_reach *reach,
                               struct dl_error *err)
{
    const struct stream_params *of = &reach->last->params;
    uint64_t members = of->world * max_u64(of->sharers, 1), missing = 0;
    const struct stream *stream;

    if (members > reach->ranks)
        return dl_error_set(err, EAGAIN, loader->spec.name,
                            "%llu of %llu ranks read it here, and the others would go on with the "
                            "old weights; ask again when all have started, or write a schedule",
                            (ull)reach->ranks, (ull)members);
    _cleanup_free_ bool *here = must_alloc(members * sizeof *here);
    DL_FOREACH (loader->core.streams, stream) {
        const struct stream_params *p = &stream->params;

        if (!changes_is_read(stream) || stream_is_source(stream))
            continue;
        if (p->world != of->world || p->sharers != of->sharers ||
            (p->epoch == of->epoch && !history_equal(&p->before, &of->before)))
            return dl_error_set(err, EBUSY, loader->spec.name,
                                "is read by %llu ranks and by %llu, which are at different places; "
                                "ask again when one of them has ended",
                                (ull)of->world, (ull)p->world);
        here[p->rank * max_u64(p->sharers, 1) + p->sharer] = true;
    }
    while (missing < members && here[missing])
        missing++;
    if (missing < members)
        return dl_error_set(err, EAGAIN, loader->spec.name,
                            "rank %llu of %llu does not read it here, and would go on with the old "
                            "weights; ask again when it has started",
                            (ull)(missing / max_u64(of->sharers, 1)), (ull)of->world);
    return 0;
}

/* The first step of the plan at or behind the position; as many as there are: none. */
static uint64_t changes_first_step(const struct loader *loader, const struct plan *plan,
                                   uint64_t epoch, uint64_t position)
{
    uint64_t low = 0, high = plan_steps(plan, 0);

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (changes_position(loader, plan, epoch, middle) >= position)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Where the first possible step is: in the epoch that is read, or at the beginning of a later one.
 */
static void changes_find_first(const struct loader *loader, const struct changes_reach *reach,
                               struct loader_change *change)
{
    const struct plan *plan = reach->last->plan;

    change->epoch = reach->last->params.epoch;
    if (changes_need_epochs(loader)) {
        change->epoch++;
        change->step = 0;
        return;
    }
    change->step = changes_first_step(loader, plan, change->epoch, reach->end);
    change->position = changes_position(loader, plan, change->epoch, change->step);
    if (change->step < plan_steps(plan, 0))
        return;
    change->epoch++;
    change->step = 0;
}

/* The position of the step that is asked for. */
static int changes_find_step(struct loader *loader, const struct changes_reach *reach,
                             struct loader_change *change, struct dl_error *err)
{
    struct stream_params params = reach->last->params;
    struct epoch *epoch;

    if (change->epoch == UINT64_MAX)
        change->epoch = params.epoch;
    if (change->epoch < params.epoch)
        return dl_error_set(err, EINVAL, "epoch", "epoch %llu is read already", (ull)params.epoch);
    if (changes_need_epochs(loader)) {
        change->position = changes_begin(loader, change->epoch);
        return change->step == 0 ? 0
                                 : dl_error_set(err, EINVAL, "step",
                                                "its weights change where an epoch begins: with "
                                                "stop: first or all it would end elsewhere than "
                                                "ranks were told, and batches of tokens are "
                                                "planned for a whole epoch; give step 0, and an "
                                                "epoch from %llu on",
                                                (ull)params.epoch + 1);
    }
    if (change->epoch > params.epoch)
        params.before = (struct history){0};
    params.epoch = change->epoch;
    int r = loader_ref_plan(loader, &params, &epoch, err);
    if (r < 0)
        return r;
    uint64_t steps = plan_steps(epoch_plan(epoch), 0);
    change->position =
        changes_position(loader, epoch_plan(epoch), change->epoch, min_u64(change->step, steps));
    epoch_unref(&loader->epochs, epoch);
    if (change->step >= steps)
        return dl_error_set(err, EINVAL, "step", "epoch %llu has %llu steps, counted from 0",
                            (ull)change->epoch, (ull)steps);
    return 0;
}

static int changes_say_planned(const struct loader_change *change,
                               const struct loader_change *first, struct dl_error *err)
{
    return dl_error_set(err, EINVAL, "step",
                        "step %llu of epoch %llu is planned already; the first possible is step "
                        "%llu of epoch %llu",
                        (ull)change->step, (ull)change->epoch, (ull)first->step, (ull)first->epoch);
}

static int changes_place(struct loader *loader, const struct changes_reach *reach,
                         struct loader_change *change, struct dl_error *err)
{
    struct loader_change first = {.epoch = 0};

    changes_find_first(loader, reach, &first);
    if (change->step == UINT64_MAX) {
        if (change->epoch == UINT64_MAX || change->epoch <= first.epoch) {
            change->epoch = first.epoch;
            change->step = first.step;
        } else {
            change->step = 0;
        }
    }
    int r = changes_find_step(loader, reach, change, err);
    if (r == 0 && change->position < reach->end)
        return changes_say_planned(change, &first, err);
    if (r == 0 && change->position >= MIX_POSITIONS)
        return dl_error_set(err, EINVAL, "step", "lies behind 2^46 samples");
    return r;
}

/* What nobody has asked for yet may have been planned beyond. */
static void changes_drop_expected(struct loader *loader, uint64_t position)
{
    const struct stream *stream;
    bool beyond = false;

    DL_FOREACH (loader->core.streams, stream) {
        beyond = beyond || (stream->plan && stream->phase != STREAM_STOPPED &&
                            !changes_is_read(stream) && changes_planned(loader, stream) > position);
    }
    if (beyond)
        core_drop_expected(&loader->core);
}

/* The first of the list that anything hangs on which is read. */
static uint32_t changes_oldest(const struct loader *loader)
{
    const struct stream *stream;
    uint64_t epoch = UINT64_MAX;
    uint32_t first = 0;

    DL_FOREACH (loader->core.streams, stream) {
        if (stream->plan && stream->phase != STREAM_STOPPED)
            epoch = min_u64(epoch, stream->params.epoch);
    }
    if (epoch < UINT64_MAX)
        (void)mix_changes_of_epoch(loader->changes, epoch, &first);
    return first;
}

/* Tables for epochs that nobody reads any more go: they are large. Who reads one again brings them.
 */
static void changes_let_go(struct loader *loader)
{
    uint32_t oldest = loader->changes && loader->changes->of_samples ? changes_oldest(loader) : 0;

    for (uint32_t i = 0; i < oldest; i++)
        loader->changes->items[i].table = weight_table_unref(loader->changes->items[i].table);
}

/* The list with that change. */
static int changes_list_with(const struct loader *loader, const struct mix_changes *before,
                             const struct loader_change *change, struct mix_changes **ret)
{
    const struct mix_change added = {
        .position = change->position, .weights = change->weights, .table = change->table};

    if (!change->table)
        return mix_changes_with(before, &added, loader->spec.dataset.n_datasets, ret);
    return mix_changes_with_table(before, &added, changes_length(loader), ret);
}

/* With some weights no dataset is ever through. */
static int changes_check_epoch(const struct loader *loader, struct mix_changes *list,
                               uint64_t epoch, struct dl_error *err)
{
    struct plan_params params = loader_plan_params(loader);
    uint64_t count;

    if (!plan_is_mix(&params))
        return 0;
    plan_set_changes(&params, list);
    return plan_mix_count(&params.mix, epoch, &count, err);
}

/* The list with that change, counted, by which its epoch can be planned. */
static int changes_make_list(const struct loader *loader, const struct mix_changes *before,
                             const struct loader_change *change, struct mix_changes **ret,
                             struct dl_error *err)
{
    _cleanup_(mix_changes_unrefp)
    struct mix_changes *list = NULL;
    int r = changes_list_with(loader, before, change, &list);

    if (r == -E2BIG)
        return dl_error_set(err, E2BIG, loader->spec.name,
                            "its weights were changed %llu times, which is the maximum",
                            (ull)DL_MAX_MIX_CHANGES);
    if (r < 0)
        return dl_error_set(err, -r, loader->spec.name, "out of memory for the new weights");
    r = changes_check_epoch(loader, list, change->epoch, err);
    if (r == 0)
        *ret = steal_ptr(list);
    return r;
}

static int changes_add(struct loader *loader, const struct loader_change *change,
                       struct dl_error *err)
{
    _cleanup_(mix_changes_unrefp)
    struct mix_changes *list = NULL;
    int r = changes_make_list(loader, loader->changes, change, &list, err);

    if (r < 0)
        return r;
    changes_drop_expected(loader, change->position);
    return changes_set(loader, list, err);
}

/* What of it hangs on the loader alone, and on who reads it. */
static int changes_check_wanted(const struct loader *loader, const struct loader_change *change,
                                struct changes_reach *ret, struct dl_error *err)
{
    if (loader->state != LOADER_OPEN)
        return dl_error_set(err, EAGAIN, loader->spec.name, "is not open yet, or broken");
    int r = changes_check_kind(loader, change->table, err);
    if (r == 0)
        r = change->table ? changes_check_table(loader, change->table, err)
                          : changes_check_weights(loader, change->weights, err);
    if (r < 0)
        return r;
    *ret = changes_look(loader);
    if (!ret->last)
        return dl_error_set(err, EAGAIN, loader->spec.name,
                            "nobody reads it; start the epoch first, or write the weights into the "
                            "spec");
    return 0;
}

int loader_mix(struct loader *loader, struct loader_change *change, struct dl_error *err)
{
    struct changes_reach reach;
    int r = changes_check_wanted(loader, change, &reach, err);

    if (r < 0)
        return r;
    r = changes_check_ranks(loader, &reach, err);
    if (r == 0)
        r = changes_place(loader, &reach, change, err);
    if (r == 0)
        r = changes_add(loader, change, err);
    loader_execute(loader);
    if (r < 0)
        return r;
    changes_let_go(loader);
    changes_log(loader, "weights were changed");
    changes_tell(loader);
    loader_pump(loader);
    return 0;
}

/* ---- what a client knows of, that starts a stream -------------------------------------------- */

static int changes_check_list(const struct loader *loader, const struct mix_changes *list,
                              struct dl_error *err)
{
    int r = list ? changes_check_kind(loader, list->of_samples, err) : 0;

    if (r < 0 || !list || list->of_samples)
        return r; /* whether a plan can be made of it, that says */
    if (list->n != loader->spec.dataset.n_datasets)
        return dl_error_set(err, EINVAL, "state", "its changed weights are of %u datasets, not %u",
                            list->n, loader->spec.dataset.n_datasets);
    for (uint32_t i = 0; r == 0 && i < list->n_changes; i++)
        r = changes_check_weights(loader, list->items[i].weights, err);
    return r;
}

static bool changes_has_readers(const struct loader *loader)
{
    const struct stream *stream;

    DL_FOREACH (loader->core.streams, stream) {
        if (changes_is_read(stream) && stream->sink && !stream_done(stream))
            return true;
    }
    return false;
}

/* Ranks of a job whose clients were lost may come back to what they had; who starts without a job
 * only looks on. */
static bool changes_is_awaited(const struct loader *loader, const struct stream_params *params)
{
    const struct positions *positions = &loader->core.positions;
    bool lost = false;

    for (uint32_t i = 0; i < positions->count; i++)
        lost = lost || positions->all[i].lost;
    return lost && !params->job[0];
}

/* Where the stream that is about to start begins. */
static int changes_find_start(struct loader *loader, const struct stream_params *params,
                              uint64_t *ret, struct dl_error *err)
{
    struct epoch *epoch;
    int r = loader_ref_plan(loader, params, &epoch, err);

    if (r < 0)
        return r;
    *ret = changes_position(loader, epoch_plan(epoch), params->epoch, params->first);
    epoch_unref(&loader->epochs, epoch);
    return 0;
}

/* Others read: nothing that either side has had already may differ. */
static int changes_agree(struct loader *loader, const struct stream_params *params,
                         struct mix_changes *list, struct dl_error *err)
{
    uint64_t differ = mix_changes_differ_at(list, loader->changes), start = 0;
    int r = changes_find_start(loader, params, &start, err);

    if (r < 0)
        return r;
    if (mix_changes_within(list, loader->changes) && differ >= start)
        return 0; /* it learns of the rest */
    if (mix_changes_within(loader->changes, list) && differ >= changes_look(loader).end &&
        !loader_is_in_cluster(loader)) {
        changes_drop_expected(loader, differ);
        return changes_set(loader, list, err);
    }
    return dl_error_set(err, EINVAL, "state",
                        "weights were changed from sample %llu on for this rank or for the others "
                        "that read, but not for both; start all ranks from one state",
                        (ull)differ);
}

int loader_bring_changes(struct loader *loader, const struct stream_params *params,
                         struct mix_changes *list, struct dl_error *err)
{
    if (loader->state != LOADER_OPEN || (!list && !loader->changes))
        return 0;
    if (mix_changes_equal(list, loader->changes)) {
        mix_changes_share_tables(loader->changes, list);
        return 0;
    }
    int r = changes_check_list(loader, list, err);
    if (r < 0)
        return r;
    if (changes_has_readers(loader) || changes_is_awaited(loader, params)) {
        r = changes_agree(loader, params, list, err);
    } else {
        core_drop_parked(&loader->core);
        core_drop_expected(&loader->core);
        r = changes_set(loader, list, err);
    }
    loader_execute(loader);
    if (r < 0)
        return r;
    changes_log(loader, "a client resumes");
    changes_tell(loader);
    return 0;
}

/* ---- in the cluster's world ------------------------------------------------------------------ */

bool loader_is_in_cluster(const struct loader *loader)
{
    const struct stream *stream;

    DL_FOREACH (loader->core.streams, stream) {
        if (changes_is_read(stream) && stream->params.round > 0)
            return true;
    }
    return false;
}

bool loader_weights_can_change(const struct loader *loader)
{
    return changes_check_kind(loader, changes_are_of_samples(loader), NULL) == 0;
}

/* Of ranks that read it here, all are in the cluster's world. */
static int changes_check_cluster(const struct loader *loader, struct dl_error *err)
{
    const struct stream *stream;

    DL_FOREACH (loader->core.streams, stream) {
        if (changes_is_read(stream) && stream->params.round == 0 && !stream_is_source(stream))
            return dl_error_set(err, EBUSY, loader->spec.name,
                                "is read in the world of the cluster, and by others in one of "
                                "their own; ask again when one of them has ended");
    }
    return 0;
}

int loader_propose(struct loader *loader, const struct loader_change *wanted,
                   uint64_t *ret_position, struct dl_error *err)
{
    struct loader_change change = *wanted;
    struct changes_reach reach;
    int r = changes_check_wanted(loader, &change, &reach, err);

    if (r == 0)
        r = changes_check_cluster(loader, err);
    if (r == 0)
        r = changes_place(loader, &reach, &change, err);
    *ret_position = change.position;
    return r;
}

/* The step and epoch of a position. */
static void changes_locate(const struct loader *loader, const struct changes_reach *reach,
                           struct loader_change *change)
{
    bool counts = changes_count_epochs(loader);
    const struct stream_params *of = &reach->last->params;

    change->epoch = counts ? change->position : change->position / changes_length(loader);
    change->step = 0;
    if (!changes_need_epochs(loader) && change->epoch == of->epoch)
        change->step =
            changes_first_step(loader, reach->last->plan, change->epoch, change->position);
}

/* A step that was asked for keeps its position, though steps may be counted in another world by
 * now; and no position before the one that all hold at is free of what others have planned since.
 */
static int changes_settle(struct loader *loader, struct changes_reach *reach,
                          struct loader_change *change, uint64_t held, struct dl_error *err)
{
    bool asked = change->step != UINT64_MAX || change->epoch != UINT64_MAX;
    struct loader_change first = {.epoch = 0};

    if (!asked)
        reach->end = max_u64(reach->end, held);
    changes_find_first(loader, reach, &first);
    if (asked && held < reach->end)
        return changes_say_planned(change, &first, err);
    change->position = held;
    if (asked) {
        changes_locate(loader, reach, change);
        return 0;
    }
    change->epoch = first.epoch;
    change->step = first.step;
    return changes_find_step(loader, reach, change, err);
}

int loader_decide(struct loader *loader, const struct mix_changes *before,
                  struct loader_change *change, uint64_t held, uint64_t end,
                  struct mix_changes **ret, struct dl_error *err)
{
    struct changes_reach reach;
    int r = changes_check_wanted(loader, change, &reach, err);

    if (r < 0)
        return r;
    reach.end = max_u64(reach.end, end);
    r = changes_settle(loader, &reach, change, held, err);
    return r < 0 ? r : changes_make_list(loader, before, change, ret, err);
}

static bool changes_have_weights(const struct mix_changes *list, const struct mix_change *item,
                                 const struct loader_change *change)
{
    if (change->table)
        return list->of_samples && list->n == change->table->n && item->sum == change->table->sum;
    return !list->of_samples &&
           memcmp(item->weights, change->weights, list->n * sizeof *item->weights) == 0;
}

bool loader_has_change(struct loader *loader, const struct mix_changes *list,
                       struct loader_change *change)
{
    const struct changes_reach reach = changes_look(loader);
    struct loader_change place = *change;
    bool by_step = change->step != UINT64_MAX || change->epoch != UINT64_MAX;

    if (!list || !reach.last)
        return false;
    place.step = change->step == UINT64_MAX ? 0 : change->step;
    if (by_step && changes_find_step(loader, &reach, &place, NULL) < 0)
        return false;
    for (uint32_t i = list->n_changes; i > 0; i--) {
        const struct mix_change *item = &list->items[i - 1];

        if (!changes_have_weights(list, item, change) ||
            (by_step && item->position != place.position))
            continue;
        place.position = item->position;
        if (!by_step)
            changes_locate(loader, &reach, &place);
        *change = place;
        return true;
    }
    return false;
}

uint64_t loader_planned(const struct loader *loader)
{
    return changes_look(loader).end;
}

void loader_hold_stream(struct loader *loader, struct stream *stream)
{
    uint64_t epoch = stream->params.epoch, position = loader->hold, step = UINT64_MAX;

    if (!stream->plan)
        return;
    if (position != UINT64_MAX && changes_need_epochs(loader))
        step = changes_begin(loader, epoch) >= position ? 0 : UINT64_MAX;
    else if (position != UINT64_MAX)
        step = changes_first_step(loader, stream->plan, epoch, position);
    core_hold(&loader->core, stream, step);
}

void loader_hold(struct loader *loader, uint64_t position)
{
    struct stream *stream;

    if (loader->hold == position || loader->state != LOADER_OPEN)
        return;
    loader->hold = position;
    changes_drop_expected(loader, position);
    DL_FOREACH (loader->core.streams, stream) {
        if (stream->phase != STREAM_STOPPED)
            loader_hold_stream(loader, stream);
    }
    loader_execute(loader);
    loader_pump(loader);
}

bool loader_holds_epoch(const struct loader *loader, uint64_t epoch, uint64_t position)
{
    return changes_need_epochs(loader) && changes_begin(loader, epoch) >= position;
}

/* Nothing that anybody here has had, or may come back to, may differ. */
static int changes_replace(struct loader *loader, struct mix_changes *list, struct dl_error *err)
{
    uint64_t differ = mix_changes_differ_at(list, loader->changes);
    int r = changes_check_list(loader, list, err);

    if (r < 0)
        return r;
    if (differ < changes_look(loader).end)
        return dl_error_set(err, ESTALE, "state",
                            "weights were changed from sample %llu on for the nodes of the "
                            "cluster, and this one has planned that with others; start all ranks "
                            "from one state",
                            (ull)differ);
    changes_drop_expected(loader, differ);
    r = changes_set(loader, list, err);
    loader_execute(loader);
    return r;
}

/* The first change that the epochs from that one on need, and whose weights are not here. */
static const struct mix_change *changes_find_lacking(const struct mix_changes *list, uint64_t epoch)
{
    uint32_t first = 0;

    if (!list || !list->of_samples)
        return NULL;
    (void)mix_changes_of_epoch(list, epoch, &first);
    for (uint32_t i = first; i < list->n_changes; i++)
        if (!list->items[i].table)
            return &list->items[i];
    return NULL;
}

static int changes_say_lacking(const struct loader *loader, const struct mix_changes *list,
                               const struct mix_change *lacking, struct dl_error *err)
{
    return dl_error_set(err, ENOENT, "weights",
                        "%016llx, which %s has from sample %llu on, were given on another node and "
                        "are not here; give the same %u weights on each node, by dlctl weights or "
                        "set_sample_weights(), or let all nodes have one directory in "
                        "$DLOADER_WEIGHTS, and start again from the state",
                        (ull)lacking->sum, loader->spec.name, (ull)lacking->position, list->n);
}

static uint64_t changes_oldest_epoch(const struct loader *loader)
{
    const struct stream *stream;
    uint64_t epoch = UINT64_MAX;

    DL_FOREACH (loader->core.streams, stream) {
        if (changes_is_read(stream))
            epoch = min_u64(epoch, stream->params.epoch);
    }
    return epoch;
}

static bool changes_any_stands(const struct loader *loader)
{
    const struct stream *stream;

    DL_FOREACH (loader->core.streams, stream) {
        if (stream->sink && stream->phase == STREAM_ACTIVE && stream->window == 0 &&
            stream->hold < stream->params.steps && stream_next(stream) >= stream->hold)
            return true;
    }
    return false;
}

/* Programs that are the same on all nodes give them a moment later. */
static void changes_wait_for_table(struct loader *loader, const struct mix_changes *list,
                                   const struct mix_change *lacking)
{
    struct dl_error err = {0};
    uint64_t now = uv_hrtime();

    (void)changes_say_lacking(loader, list, lacking, &err);
    if (loader->lacks_told != lacking->position + 1)
        log_loader(LOG_WARNING, loader->spec.name, loader->o.uid, "%s: %s %s", loader->spec.name,
                   err.path, err.message);
    loader->lacks_told = lacking->position + 1;
    if (!changes_any_stands(loader))
        loader->lacks_ns = 0;
    else if (!loader->lacks_ns)
        loader->lacks_ns = now;
    else if (now - loader->lacks_ns > LACKS_NS)
        loader_break(loader, &err);
}

static void changes_take(struct loader *loader, struct mix_changes *list)
{
    struct dl_error err = {0};

    if (mix_changes_equal(list, loader->changes))
        return;
    if (changes_replace(loader, list, &err) < 0) {
        loader_break(loader, &err);
        return;
    }
    changes_let_go(loader);
    changes_log(loader, "weights were changed");
    changes_tell(loader);
    loader_pump(loader);
}

/* Of the list what can be planned by; *ret_hold: up to there. */
static int changes_cut_list(const struct mix_change *lacking, struct mix_changes *list,
                            struct mix_changes **ret, uint64_t *ret_hold)
{
    *ret_hold = lacking ? lacking->position : UINT64_MAX;
    return mix_changes_before(list, *ret_hold, ret);
}

uint64_t loader_take_changes(struct loader *loader, struct mix_changes *list)
{
    _cleanup_(mix_changes_unrefp)
    struct mix_changes *usable = NULL;
    uint64_t hold;

    if (loader->state != LOADER_OPEN)
        return UINT64_MAX;
    if (list && loader->changes)
        mix_changes_share_tables(list, loader->changes);
    const struct mix_change *lacking = changes_find_lacking(list, changes_oldest_epoch(loader));
    if (changes_cut_list(lacking, list, &usable, &hold) < 0) {
        loader_break(loader, &(struct dl_error){.code = ENOMEM, .message = "out of memory"});
        return UINT64_MAX;
    }
    changes_take(loader, usable);
    if (lacking && loader->state == LOADER_OPEN)
        changes_wait_for_table(loader, list, lacking);
    else
        loader->lacks_ns = 0;
    return hold;
}

bool loader_give_table(struct mix_changes *list, const struct loader_change *change)
{
    bool given = false;

    for (uint32_t i = 0; change->table && list && list->of_samples && i < list->n_changes; i++) {
        struct mix_change *item = &list->items[i];

        if (item->table || item->sum != change->table->sum || list->n != change->table->n)
            continue;
        item->table = weight_table_ref(change->table);
        given = true;
    }
    return given;
}

/* What the client has had is what the nodes have, and so is what it is to have. */
static int changes_check_known(struct loader *loader, const struct stream_params *params,
                               const struct mix_changes *known, const struct mix_changes *list,
                               struct dl_error *err)
{
    uint64_t differ = mix_changes_differ_at(known, list), start = 0;
    int r = differ < UINT64_MAX ? changes_find_start(loader, params, &start, err) : 0;

    if (r < 0 || (differ >= start && mix_changes_within(known, list)))
        return r;
    return dl_error_set(
        err, EINVAL, "state",
        "weights were changed from sample %llu on for this rank or for the nodes of "
        "the cluster, but not for both; start all ranks from one state, and with "
        "another job name if other ranks have read on from another one",
        (ull)differ);
}

static int changes_set_shared(struct loader *loader, struct mix_changes *list, struct dl_error *err)
{
    if (mix_changes_equal(list, loader->changes))
        return 0;
    if (!changes_has_readers(loader) &&
        mix_changes_differ_at(list, loader->changes) < changes_look(loader).end) {
        core_drop_parked(&loader->core);
        loader_execute(loader);
    }
    int r = changes_replace(loader, list, err);
    if (r < 0)
        return r;
    changes_log(loader, "a client resumes in the cluster's world");
    changes_tell(loader);
    return 0;
}

int loader_share_changes(struct loader *loader, const struct stream_params *params, bool tells,
                         const struct mix_changes *known, struct mix_changes *list,
                         struct dl_error *err)
{
    uint64_t oldest = min_u64(changes_oldest_epoch(loader), params->epoch), hold, start = 0;
    _cleanup_(mix_changes_unrefp)
    struct mix_changes *usable = NULL;
    int r = tells ? changes_check_known(loader, params, known, list, err) : 0;

    if (r < 0)
        return r;
    if (list && loader->changes)
        mix_changes_share_tables(list, loader->changes);
    const struct mix_change *lacking = changes_find_lacking(list, oldest);
    if (changes_cut_list(lacking, list, &usable, &hold) < 0)
        return dl_error_set(err, ENOMEM, "weights", "out of memory");
    r = changes_set_shared(loader, usable, err);
    if (r == 0 && lacking)
        r = changes_find_start(loader, params, &start, err);
    return r == 0 && lacking && start > hold ? changes_say_lacking(loader, list, lacking, err) : r;
}

struct mix_changes *loader_changes(const struct loader *loader)
{
    return loader->changes;
}
