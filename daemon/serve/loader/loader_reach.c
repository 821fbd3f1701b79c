/*
 * How far a loader with changing weights is read, in positions of its order, and new plans for its
 * streams from there on.
 */
#include "daemon/base/log.h"
#include "daemon/base/memory.h"
#include "daemon/plan/plan_lazy.h"
#include "daemon/serve/loader/loader_changes_private.h"

#include <errno.h>
#include <stdio.h>

#include <utlist.h>

/* ---- how far it is read ---------------------------------------------------------------------- */

bool changes_are_of_samples(const struct loader *loader)
{
    return loader->spec.sampler == SAMPLER_WEIGHTED;
}

uint64_t changes_length(const struct loader *loader)
{
    const struct plan_params params = loader_plan_params(loader);

    return changes_are_of_samples(loader) ? plan_drawn(&params) : loader->spec.dataset.length;
}

bool changes_count_epochs(const struct loader *loader)
{
    return loader->spec.dataset.kind == DATASET_MIX && loader->spec.dataset.stop != MIX_STOP_NEVER;
}

bool changes_go_by_windows(const struct loader *loader)
{
    return loader->spec.batch.lengths == LENGTHS_LAZY && loader->spec.dataset.kind == DATASET_MIX &&
           !changes_count_epochs(loader);
}

bool changes_need_epochs(const struct loader *loader)
{
    return (loader->spec.batch.tokens > 0 && !changes_go_by_windows(loader)) ||
           changes_count_epochs(loader);
}

uint64_t changes_begin(const struct loader *loader, uint64_t epoch)
{
    uint64_t length = changes_count_epochs(loader) ? 1 : changes_length(loader), begin;

    return mul_overflows(epoch, length, &begin) ? MIX_POSITIONS : min_u64(begin, MIX_POSITIONS);
}

uint64_t changes_position(const struct loader *loader, const struct plan *plan, uint64_t epoch,
                          uint64_t step)
{
    uint64_t begin = changes_begin(loader, epoch);

    if (changes_need_epochs(loader))
        return begin + (step > 0);
    return begin +
           (step < plan_steps(plan, 0) ? plan_position(plan, 0, step) : changes_length(loader));
}

bool changes_is_read(const struct stream *stream)
{
    return stream->plan && stream->phase != STREAM_STOPPED &&
           (!stream_is_expected(stream) || stream->phase == STREAM_PARKED);
}

/* The positions of windows that are cut, or begun. */
static uint64_t changes_known(const struct loader *loader, const struct stream *stream)
{
    const struct stream_params *params = &stream->params;
    uint64_t begin = changes_begin(loader, params->epoch), marked;

    if (stream->by_windows)
        return begin + plan_known(stream->plan);
    if (mul_overflows(params->mark.window, loader->spec.batch.documents, &marked))
        return MIX_POSITIONS;
    return min_u64(begin + min_u64(marked, MIX_POSITIONS), MIX_POSITIONS);
}

/* Behind all steps that the stream has planned, or does not want. */
static uint64_t changes_next_step(const struct stream *stream)
{
    uint64_t step = stream->to_plan;

    for (const struct step *s = stream->steps; s; s = s->hh.next)
        step = max_u64(step, s->number + 1);
    return step;
}

uint64_t changes_planned(const struct loader *loader, const struct stream *stream)
{
    if (changes_go_by_windows(loader))
        return changes_known(loader, stream);
    if (changes_need_epochs(loader))
        return changes_begin(loader, min_u64(stream->params.epoch, UINT64_MAX - 1) + 1);
    return changes_position(loader, stream->plan, stream->params.epoch, changes_next_step(stream));
}

/* Rows of the furthest epoch that are planned, or were had: `reach->rows`. */
static void changes_look_at_rows(const struct loader *loader, struct changes_reach *reach)
{
    const struct stream *stream;

    DL_FOREACH (loader->core.streams, stream) {
        if (!changes_is_read(stream) || stream->params.epoch != reach->furthest->params.epoch)
            continue;
        uint64_t had =
            plan_row(stream->plan, max_u64(changes_next_step(stream), stream->params.first));
        uint64_t cut = stream->by_windows ? plan_rows_so_far(stream->plan) : 0;

        reach->rows = max_u64(reach->rows, max_u64(had, cut));
    }
}

struct changes_reach changes_look(const struct loader *loader)
{
    struct changes_reach reach = {0};
    const struct stream *stream;

    DL_FOREACH (loader->core.streams, stream) {
        if (!changes_is_read(stream))
            continue;
        uint64_t planned = changes_planned(loader, stream);
        if (!reach.furthest || planned >= reach.end)
            reach.furthest = stream;
        reach.end = max_u64(reach.end, planned);
        reach.ranks += !stream_is_source(stream);
        if (!reach.last || stream->params.epoch > reach.last->params.epoch ||
            (stream->params.epoch == reach.last->params.epoch &&
             stream->params.round > reach.last->params.round))
            reach.last = stream;
    }
    if (reach.furthest && changes_go_by_windows(loader))
        changes_look_at_rows(loader, &reach);
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
        uint64_t from = changes->items[i].position;
        char text[512], where[64];
        size_t at = 0;

        if (mix_is_ahead(from))
            (void)snprintf(where, sizeof where, "row %u of epoch %llu", mix_ahead_row(from),
                           (ull)mix_ahead_epoch(from));
        else
            (void)snprintf(where, sizeof where, "sample %llu", (ull)from);
        for (uint32_t child = 0; child < changes->n && at < sizeof text; child++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%.6g", child ? ", " : "",
                                   changes->items[i].weights[child]);
        log_loader(LOG_INFO, name, loader->o.uid, "%s: %s: weights from %s on: %s", name, why,
                   where, text);
    }
    if (!changes)
        log_loader(LOG_INFO, name, loader->o.uid, "%s: %s: the weights of its spec", name, why);
}

void changes_tell(struct loader *loader, const char *why)
{
    struct loader_user *user;

    changes_log(loader, why);
    DL_FOREACH (loader->users, user) {
        if (user->answered && !user->leaving)
            loader->o.events->changed(user);
    }
}

/* Makes new plans for all running streams, by the loader's list; 0, or negative with `err`. */
static int changes_make_plans(struct loader *loader, struct changes_plan *plans, uint32_t *ret_n,
                              struct dl_error *err)
{
    struct stream *stream;
    int r = 0;

    *ret_n = 0;
    if (changes_need_epochs(loader))
        return 0; /* those that are there begin before */
    DL_FOREACH (loader->core.streams, stream) {
        if (!stream->epoch || stream->phase == STREAM_STOPPED || stream->by_windows)
            continue;
        if (changes_go_by_windows(loader)) {
            r = dl_error_set(err, EAGAIN, loader->spec.name,
                             "an epoch is about to begin; try again when it has");
            break;
        }
        r = loader_ref_plan(loader, &stream->params, &plans[*ret_n].epoch, err);
        if (r < 0)
            break;
        plans[(*ret_n)++].stream = stream;
    }
    return r;
}

/* Plans that are cut window by window go on by the list, from what they do not know yet. */
static int changes_change_plans(struct loader *loader, struct mix_changes *list)
{
    struct stream *stream;
    int r = 0;

    DL_FOREACH (loader->core.streams, stream) {
        if (r == 0 && stream->by_windows && stream->epoch && stream->phase != STREAM_STOPPED)
            r = epoch_change(stream->epoch, list);
    }
    return r;
}

/* Some may have changed: no plan would be right. */
static void changes_fail(struct loader *loader, int r)
{
    struct dl_error err = {0};

    dl_error_set(&err, -r, "weights", "no memory to change them");
    loader_break(loader, &err);
}

void changes_take_placed(struct loader *loader, struct epoch *epoch)
{
    struct mix_changes *list = plan_changes_now(epoch_plan(epoch));

    if (!changes_go_by_windows(loader) || mix_changes_equal(list, loader->changes) ||
        mix_changes_ahead(loader->changes) == UINT64_MAX)
        return;
    mix_changes_ref(list);
    mix_changes_unref(loader->changes);
    loader->changes = list;
    int r = changes_change_plans(loader, list);
    mix_ruler_deinit(&loader->ruler);
    if (r < 0)
        changes_fail(loader, r);
    else
        changes_tell(loader, "weights change here");
}

int changes_set(struct loader *loader, struct mix_changes *list, struct dl_error *err)
{
    struct mix_changes *before = loader->changes;
    const struct stream *any;
    size_t streams;
    uint32_t n;

    DL_COUNT(loader->core.streams, any, streams);
    _cleanup_free_ struct changes_plan *plans = must_alloc((streams + 1) * sizeof *plans);
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
    r = changes_need_epochs(loader) ? 0 : changes_change_plans(loader, list);
    mix_changes_unref(before);
    mix_ruler_deinit(&loader->ruler);
    if (r < 0) {
        changes_fail(loader, r);
        return dl_error_set(err, -r, "weights", "no memory to change them");
    }
    core_planned(&loader->core); /* no step waits for a former plan any more */
    return 0;
}
