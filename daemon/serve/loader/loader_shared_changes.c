/*
 * Changes of weights in the cluster's world, which each node is given with the same step
 * (daemon/docs/weights-agreed.md): the place of one given here, the position at which streams hold
 * until the other nodes have it, and adopting the list that all have.
 */
#include "daemon/base/log.h"
#include "daemon/base/memory.h"
#include "daemon/serve/loader/loader_changes_private.h"

#include <errno.h>
#include <stdio.h>

#include <utlist.h>

/* Ranks wait so long for what was given on some nodes alone. */
static const uint64_t LACKS_NS = 30 * (uint64_t)1000000000;

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
                                "is read in the cluster's world and in another one; try again when "
                                "one of them has ended");
    }
    return 0;
}

/* Each node plans at its own pace, so that the first possible step differs. */
static int changes_check_step(const struct loader *loader, const struct changes_reach *reach,
                              struct loader_change *change, struct dl_error *err)
{
    const uint64_t epoch = reach->last->params.epoch;
    struct loader_change first = {.epoch = 0};

    if (change->step == UINT64_MAX && change->epoch != UINT64_MAX && change->epoch > epoch)
        change->step = 0;
    if (change->step != UINT64_MAX)
        return 0;
    changes_find_first(loader, reach, &first);
    return dl_error_set(
        err, EINVAL, "step",
        "has to be given, the same on each node of the cluster, as dlctl's --at and --epoch or "
        "step= and epoch= of Python; the first possible here is step %llu of epoch %llu: take one "
        "that no node has planned by then",
        (ull)first.step, (ull)first.epoch);
}

int loader_check_change(struct loader *loader, struct loader_change *change, struct dl_error *err)
{
    struct changes_reach reach;
    int r = changes_check_wanted(loader, change, &reach, err);

    if (r == 0)
        r = changes_check_cluster(loader, err);
    return r < 0 ? r : changes_check_step(loader, &reach, change, err);
}

int loader_make_change(struct loader *loader, const struct mix_changes *before,
                       struct loader_change *change, struct mix_changes **ret, struct dl_error *err)
{
    struct changes_reach reach;
    int r = changes_check_wanted(loader, change, &reach, err);

    if (r < 0)
        return r;
    r = changes_place(loader, &reach, change, err);
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

    if (!list || !reach.last || changes_find_step(loader, &reach, &place, NULL) < 0)
        return false;
    for (uint32_t i = 0; i < list->n_changes; i++) {
        const struct mix_change *item = &list->items[i];

        if (item->position != place.position || !changes_have_weights(list, item, change))
            continue;
        *change = place;
        return true;
    }
    return false;
}

void loader_hold_stream(struct loader *loader, struct stream *stream)
{
    uint64_t epoch = stream->params.epoch, position = loader->hold, step = UINT64_MAX;

    if (!stream->plan || loader->spec.batch.lengths == LENGTHS_LAZY) /* it holds for lengths */
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

/* The lists must not differ in positions that were read here, or that a job may come back to. */
static int changes_replace(struct loader *loader, struct mix_changes *list, struct dl_error *err)
{
    uint64_t differ = mix_changes_differ_at(list, loader->changes);
    int r = changes_check_list(loader, list, err);

    if (r < 0)
        return r;
    if (differ < changes_look(loader).end)
        return dl_error_set(
            err, ESTALE, "state",
            "weights were changed from sample %llu on for the nodes of the cluster, and this node "
            "has planned those samples with other weights; start all ranks from one state",
            (ull)differ);
    changes_drop_expected(loader, differ);
    r = changes_set(loader, list, err);
    loader_execute(loader);
    return r;
}

/* The first change needed from that epoch on whose weights are missing here. */
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
                        "set_sample_weights(), or set $DLOADER_WEIGHTS to one directory on all "
                        "nodes, and start again from the state",
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
        if (stream->sink && stream->phase == STREAM_ACTIVE && stream_window(stream) == 0 &&
            stream->hold < stream->params.steps && stream_next(stream) >= stream->hold)
            return true;
    }
    return false;
}

/* Programs that are the same on all nodes give it a moment later. */
bool loader_wait_for_nodes(struct loader *loader, const struct dl_error *why)
{
    uint64_t now = uv_hrtime();

    if (!changes_any_stands(loader))
        loader->lacks_ns = 0;
    else if (!loader->lacks_ns)
        loader->lacks_ns = now;
    else if (now - loader->lacks_ns > LACKS_NS)
        loader_break(loader, why);
    return loader->state != LOADER_OPEN;
}

void loader_fail_changes(struct loader *loader, const struct dl_error *why)
{
    loader_break(loader, why);
}

static void changes_wait_for_table(struct loader *loader, const struct mix_changes *list,
                                   const struct mix_change *lacking)
{
    struct dl_error err = {0};

    (void)changes_say_lacking(loader, list, lacking, &err);
    if (loader->lacks_told != lacking->position + 1)
        log_loader(LOG_WARNING, loader->spec.name, loader->o.uid, "%s: %s %s", loader->spec.name,
                   err.path, err.message);
    loader->lacks_told = lacking->position + 1;
    (void)loader_wait_for_nodes(loader, &err);
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
    changes_tell(loader, "weights were changed");
    loader_pump(loader);
}

/* Of the list what can be planned by, where that epoch and later ones are read: up to *ret_lacking,
 * or (NULL) all of it. */
static int changes_cut_list(const struct loader *loader, struct mix_changes *list, uint64_t epoch,
                            const struct mix_change **ret_lacking, struct mix_changes **ret)
{
    if (list && loader->changes)
        mix_changes_share_tables(list, loader->changes);
    *ret_lacking = changes_find_lacking(list, epoch);
    return mix_changes_before(list, *ret_lacking ? (*ret_lacking)->position : UINT64_MAX, ret);
}

uint64_t loader_take_changes(struct loader *loader, struct mix_changes *list)
{
    _cleanup_(mix_changes_unrefp) struct mix_changes *usable = NULL;
    const struct mix_change *lacking;

    if (loader->state != LOADER_OPEN)
        return UINT64_MAX;
    if (changes_cut_list(loader, list, changes_oldest_epoch(loader), &lacking, &usable) < 0) {
        loader_break(loader, &(struct dl_error){.code = ENOMEM, .message = "out of memory"});
        return UINT64_MAX;
    }
    changes_take(loader, usable);
    if (lacking && loader->state == LOADER_OPEN)
        changes_wait_for_table(loader, list, lacking);
    else
        loader->lacks_ns = 0;
    return lacking ? lacking->position : UINT64_MAX;
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
        "the cluster, but not for both; start all ranks from one state, with another job name if "
        "other ranks have continued from another state",
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
    changes_tell(loader, "a client resumes in the cluster's world");
    return 0;
}

int loader_share_changes(struct loader *loader, const struct stream_params *params, bool tells,
                         const struct mix_changes *known, struct mix_changes *list,
                         struct dl_error *err)
{
    uint64_t oldest = min_u64(changes_oldest_epoch(loader), params->epoch), start = 0;
    _cleanup_(mix_changes_unrefp) struct mix_changes *usable = NULL;
    const struct mix_change *lacking;
    int r = tells ? changes_check_known(loader, params, known, list, err) : 0;

    if (r < 0)
        return r;
    if (changes_cut_list(loader, list, oldest, &lacking, &usable) < 0)
        return dl_error_set(err, ENOMEM, "weights", "out of memory");
    r = changes_set_shared(loader, usable, err);
    if (r == 0 && lacking)
        r = changes_find_start(loader, params, &start, err);
    return r == 0 && lacking && start > lacking->position
               ? changes_say_lacking(loader, list, lacking, err)
               : r;
}
