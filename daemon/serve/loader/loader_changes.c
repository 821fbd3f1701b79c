/*
 * Weights of a mixture, or of a weighted sampler, that are changed while it is read: one list
 * (proto/mix_changes.h) for all readers of the loader. A change must lie behind everything that any
 * rank has planned, so that planned steps stay the same; then each stream continues with another
 * plan, which is identical up to there.
 *
 * The client that starts a stream brings its list (loader_bring_changes()): without readers it
 * becomes the loader's; otherwise it must be the loader's, or an earlier or later one that differs
 * only in positions still to come. So a state decides the weights of a resumed epoch, whichever
 * daemon serves it.
 */
#include "daemon/base/log.h"
#include "daemon/base/memory.h"
#include "daemon/plan/plan_lazy.h"
#include "daemon/serve/loader/loader_changes_private.h"
#include "proto/common/bisect.h"

#include <errno.h>
#include <stdio.h>

#include <utlist.h>

/* ---- a requested change ---------------------------------------------------------------------- */

int changes_check_kind(const struct loader *loader, bool of_samples, struct dl_error *err)
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
                            "its dataset is not a mix, and has no weights of datasets");
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

/* The readers must include each rank: ranks elsewhere would continue with other weights. */
static int changes_check_ranks(const struct loader *loader, const struct changes_reach *reach,
                               struct dl_error *err)
{
    const struct stream_params *last = &reach->last->params;
    uint64_t members = last->world * max_u64(last->sharers, 1), missing = 0;
    const struct stream *stream;

    if (members > reach->ranks)
        return dl_error_set(err, EAGAIN, loader->spec.name,
                            "%llu of %llu ranks read it here, and the others would continue with "
                            "the old weights; try again when all have started, or write a schedule",
                            (ull)reach->ranks, (ull)members);
    _cleanup_free_ bool *here = must_alloc(members * sizeof *here);
    DL_FOREACH (loader->core.streams, stream) {
        const struct stream_params *p = &stream->params;

        if (!changes_is_read(stream) || stream_is_source(stream))
            continue;
        if (p->world != last->world || p->sharers != last->sharers ||
            (p->epoch == last->epoch && !history_equal(&p->before, &last->before)))
            return dl_error_set(err, EBUSY, loader->spec.name,
                                "is read in worlds of %llu and of %llu ranks, which are at "
                                "different positions; try again when one of them has ended",
                                (ull)last->world, (ull)p->world);
        here[p->rank * max_u64(p->sharers, 1) + p->sharer] = true;
    }
    while (missing < members && here[missing])
        missing++;
    if (missing < members)
        return dl_error_set(err, EAGAIN, loader->spec.name,
                            "rank %llu of %llu does not read it here, and would continue with the "
                            "old weights; try again when it has started",
                            (ull)(missing / max_u64(last->sharers, 1)), (ull)last->world);
    return 0;
}

/* The step that has the first row behind all that are planned. */
static uint64_t changes_first_free_step(const struct changes_reach *reach)
{
    const struct plan *plan = reach->furthest->plan;
    uint64_t first = plan_row(plan, 0), group = plan_row(plan, 1) - first;

    return (max_u64(reach->rows, first) - first) / group;
}

uint64_t changes_first_step(const struct loader *loader, const struct plan *plan, uint64_t epoch,
                            uint64_t position)
{
    return BISECT(0, plan_steps(plan, 0), i, changes_position(loader, plan, epoch, i) < position);
}

/* Where windows say what follows: the first row that can have other weights is that behind all of
 * them, and behind all that readers have had, of whom a daemon before this one knew. */
static void changes_find_first_window(const struct loader *loader,
                                      const struct changes_reach *reach,
                                      struct loader_change *change)
{
    const struct stream *stream = reach->furthest;

    change->epoch = stream->params.epoch;
    change->step = 0;
    change->position = reach->end;
    if (reach->end >= changes_begin(loader, change->epoch + 1))
        change->epoch++;
    else if (stream->by_windows)
        change->step = changes_first_free_step(reach);
}

void changes_find_first(const struct loader *loader, const struct changes_reach *reach,
                        struct loader_change *change)
{
    const struct plan *plan = reach->last->plan;

    if (changes_go_by_windows(loader)) {
        changes_find_first_window(loader, reach, change);
        return;
    }
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

/* The first row of a step of such an epoch, as a plan of it has them. */
static int changes_find_row(struct loader *loader, const struct stream_params *params,
                            uint64_t step, uint64_t *ret, struct dl_error *err)
{
    struct stream_params at = *params;
    struct epoch *epoch;

    at.mark = (struct lazy_mark){0};
    int r = loader_ref_plan(loader, &at, &epoch, err);
    if (r < 0)
        return r;
    *ret = plan_row(epoch_plan(epoch), step);
    epoch_unref(&loader->epochs, epoch);
    if (*ret > UINT32_MAX || at.epoch >= MIX_AHEAD_EPOCHS)
        return dl_error_set(err, EINVAL, "step", "is beyond 2^32 rows, or 2^30 epochs");
    return 0;
}

/* Where windows say what follows: behind what is cut, or, of a later step, ahead. */
static int changes_find_window(struct loader *loader, const struct changes_reach *reach,
                               struct loader_change *change, struct dl_error *err)
{
    const struct stream *furthest = reach->furthest;
    struct stream_params params = furthest->params;
    bool now = change->epoch == params.epoch && furthest->by_windows;
    uint64_t row;

    if (change->epoch > params.epoch)
        params.before = (struct history){0};
    params.epoch = change->epoch;
    change->position = changes_begin(loader, change->epoch);
    if (change->step == 0 && params.before.n == 0)
        return 0;
    if (now && change->step < changes_first_free_step(reach))
        return 0; /* that is planned */
    int r = changes_find_row(loader, &params, change->step, &row, err);
    if (r < 0)
        return r;
    bool beyond = !now || row > plan_rows_so_far(furthest->plan);
    if (now && beyond && plan_is_whole(furthest->plan))
        return dl_error_set(err, EINVAL, "step", "epoch %llu has %llu steps, counted from 0",
                            (ull)change->epoch, (ull)plan_steps(furthest->plan, 0));
    change->position = beyond ? mix_ahead(change->epoch, (uint32_t)row) : reach->end;
    return 0;
}

int changes_find_step(struct loader *loader, const struct changes_reach *reach,
                      struct loader_change *change, struct dl_error *err)
{
    struct stream_params params = reach->last->params;
    struct epoch *epoch;

    if (change->epoch == UINT64_MAX)
        change->epoch = params.epoch;
    if (change->epoch < params.epoch)
        return dl_error_set(err, EINVAL, "epoch", "epoch %llu is already being read",
                            (ull)params.epoch);
    if (changes_need_epochs(loader)) {
        change->position = changes_begin(loader, change->epoch);
        return change->step == 0
                   ? 0
                   : dl_error_set(err, EINVAL, "step",
                                  "its weights can change only where an epoch begins: with stop: "
                                  "first or all the epoch would not end where its ranks expect it, "
                                  "and batches of tokens are planned for a whole epoch; give step "
                                  "0 and epoch %llu or a later one",
                                  (ull)params.epoch + 1);
    }
    if (changes_go_by_windows(loader))
        return changes_find_window(loader, reach, change, err);
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

int changes_say_planned(const struct loader_change *change, const struct loader_change *first,
                        struct dl_error *err)
{
    return dl_error_set(err, EINVAL, "step",
                        "step %llu of epoch %llu is planned already; the first possible is step "
                        "%llu of epoch %llu",
                        (ull)change->step, (ull)change->epoch, (ull)first->step, (ull)first->epoch);
}

int changes_place(struct loader *loader, const struct changes_reach *reach,
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
    if (r == 0 && change->position >= MIX_POSITIONS && !mix_is_ahead(change->position))
        return dl_error_set(err, EINVAL, "step", "is beyond 2^46 samples");
    return r;
}

void changes_drop_expected(struct loader *loader, uint64_t position)
{
    const struct stream *stream;
    bool beyond = false;

    DL_FOREACH (loader->core.streams, stream) {
        beyond = beyond || (stream->plan && stream->phase != STREAM_STOPPED &&
                            !changes_is_read(stream) && changes_planned(loader, stream) > position);
    }
    if (beyond)
        core_drop_expected(&loader->core, NULL);
}

/* The first of the list on which something that is read depends. */
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

void changes_let_go(struct loader *loader)
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

int changes_make_list(const struct loader *loader, const struct mix_changes *before,
                      const struct loader_change *change, struct mix_changes **ret,
                      struct dl_error *err)
{
    _cleanup_(mix_changes_unrefp) struct mix_changes *list = NULL;
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
    _cleanup_(mix_changes_unrefp) struct mix_changes *list = NULL;
    int r = changes_make_list(loader, loader->changes, change, &list, err);

    if (r < 0)
        return r;
    changes_drop_expected(loader, change->position);
    return changes_set(loader, list, err);
}

int changes_check_wanted(const struct loader *loader, const struct loader_change *change,
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
        return dl_error_set(
            err, EAGAIN, loader->spec.name,
            "no client reads it; start the epoch first, or write the weights into the "
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
    changes_tell(loader, "weights were changed");
    loader_pump(loader);
    return 0;
}

/* ---- the list of a client that starts a stream ----------------------------------------------- */

int changes_check_list(const struct loader *loader, const struct mix_changes *list,
                       struct dl_error *err)
{
    int r = list ? changes_check_kind(loader, list->of_samples, err) : 0;

    if (r < 0 || !list || list->of_samples)
        return r; /* whether a plan can be made of it, that says */
    if (list->n != loader->spec.dataset.n_datasets)
        return dl_error_set(err, EINVAL, "state", "its changed weights are of %u datasets, not %u",
                            list->n, loader->spec.dataset.n_datasets);
    if (mix_changes_ahead(list) != UINT64_MAX && !changes_go_by_windows(loader))
        return dl_error_set(err, EINVAL, "state",
                            "its weights change at a row of an order that is packed while it is "
                            "read, as of batch.lengths: lazy with stop: never");
    for (uint32_t i = 0; r == 0 && i < list->n_changes; i++)
        r = changes_check_weights(loader, list->items[i].weights, err);
    return r;
}

bool changes_has_readers(const struct loader *loader)
{
    const struct stream *stream;

    DL_FOREACH (loader->core.streams, stream) {
        if (changes_is_read(stream) && stream->sink && !stream_done(stream))
            return true;
    }
    return false;
}

/* Ranks of a job whose clients were lost may come back to their list; a reader without a job must
 * not replace it. */
static bool changes_is_awaited(const struct loader *loader, const struct stream_params *params)
{
    const struct positions *positions = &loader->core.positions;
    bool lost = false;

    for (uint32_t i = 0; i < positions->count; i++)
        lost = lost || positions->all[i].lost;
    return lost && !params->job[0];
}

int changes_find_start(struct loader *loader, const struct stream_params *params, uint64_t *ret,
                       struct dl_error *err)
{
    struct epoch *epoch;
    int r = loader_ref_plan(loader, params, &epoch, err);

    if (r < 0)
        return r;
    *ret = changes_position(loader, epoch_plan(epoch), params->epoch, params->first);
    epoch_unref(&loader->epochs, epoch);
    return 0;
}

/* Behind all that a stream can have had that starts there, where windows say that: a position, or
 * what stands for one of a change that is ahead. */
static int changes_find_start_window(struct loader *loader, const struct stream_params *params,
                                     bool ahead, uint64_t *ret, struct dl_error *err)
{
    uint64_t row;
    struct epoch *epoch;

    *ret = changes_begin(loader, params->epoch);
    if (params->first == 0 && params->before.n == 0)
        return 0;
    int r = changes_find_row(loader, params, params->first, &row, err);
    if (r < 0)
        return r;
    *ret = mix_ahead(params->epoch, (uint32_t)row);
    if (ahead)
        return 0;
    r = loader_ref_plan(loader, params, &epoch, err);
    if (r < 0)
        return r;
    if (epoch_is_begun(epoch) && row <= plan_rows_so_far(epoch_plan(epoch)))
        *ret = changes_begin(loader, params->epoch) + plan_known(epoch_plan(epoch));
    epoch_unref(&loader->epochs, epoch);
    return 0;
}

/* Whether all that is planned lies before that. */
static bool changes_lie_behind(const struct loader *loader, uint64_t differ)
{
    const struct changes_reach reach = changes_look(loader);
    const struct stream *furthest = reach.furthest;

    if (!mix_is_ahead(differ) || !furthest)
        return differ >= reach.end &&
               (!changes_go_by_windows(loader) || !furthest || !furthest->by_windows ||
                reach.rows <= plan_rows_so_far(furthest->plan));
    return furthest->by_windows &&
           differ > mix_ahead(furthest->params.epoch, (uint32_t)min_u64(reach.rows, UINT32_MAX));
}

/* Others read: nothing that either side has had already may differ. */
static int changes_agree(struct loader *loader, const struct stream_params *params,
                         struct mix_changes *list, struct dl_error *err)
{
    uint64_t differ = mix_changes_differ_at(list, loader->changes), start = 0;
    int r = changes_go_by_windows(loader)
                ? changes_find_start_window(loader, params, mix_is_ahead(differ), &start, err)
                : changes_find_start(loader, params, &start, err);

    if (r < 0)
        return r;
    if (mix_changes_is_placed(list, loader->changes) ||
        mix_changes_is_placed(loader->changes, list))
        return 0; /* the same, of which one side knows a position already */
    if (mix_changes_within(list, loader->changes) && differ >= start)
        return 0; /* it learns of the rest */
    if (mix_changes_within(loader->changes, list) && changes_lie_behind(loader, differ) &&
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
        core_drop_expected(&loader->core, NULL);
        r = changes_set(loader, list, err);
    }
    loader_execute(loader);
    if (r < 0)
        return r;
    changes_tell(loader, "a client resumes");
    return 0;
}

struct mix_changes *loader_changes(const struct loader *loader)
{
    return loader->changes;
}
