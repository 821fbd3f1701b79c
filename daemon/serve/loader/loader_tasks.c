/* What the pool tells of workers' tasks, and of the loader. */
#include "daemon/serve/base/memory.h"
#include "daemon/serve/loader/loader_private.h"
#include "proto/slot_fill.h"

#include <stdio.h>

static void tasks_on_ready(void *owner, const struct dl_msg_w_ready *what)
{
    struct loader *loader = owner;
    struct core *core = &loader->core;
    struct dl_error err = {0};

    core->length =
        loader->spec.dataset.kind == DATASET_RANGE ? loader->spec.dataset.length : what->length;
    core->iterable = what->iterable;
    core->can_skip = what->leaps;
    core->quarantine.limit = spec_max_bad(&loader->spec, core->length);
    loader->identity.dataset = what->dataset;
    loader->identity.length = core->length;
    loader->identity.workers = core->iterable ? loader->spec.workers : 0;
    loader->first_slot_bytes = pool_slot_bytes(loader->pool);
    if (!loader->spec.batch.tokens)
        loader_opened(loader);
    else if (loader_measure(loader, what->fingerprint, &err) < 0)
        loader_break(loader, &err);
}

static void tasks_on_broken(void *owner, const struct dl_error *err)
{
    loader_break(owner, err);
}

/* Where the dataset says that the step's replica stands behind it. */
static void tasks_learn_state(struct step *step)
{
    struct stream *stream = step->stream;
    struct dl_span record;

    if (slot_read_state(segment_slot(step->segment, step->slot), step->segment->slot_bytes,
                        &record) &&
        record.len > 0)
        dataset_states_learn(&stream->states, step_replica(stream, step->number), record);
}

static void tasks_on_done(void *owner, void *tag, uint32_t samples, uint32_t repeated,
                          uint64_t bytes, const struct bad_list *bad, const struct made_times *made)
{
    struct loader *loader = owner;
    struct step *step = tag;

    if (loader->measuring) {
        measuring_took(loader->measuring, tag);
        return;
    }
    if (loader->core.iterable && step->stream)
        tasks_learn_state(step);
    core_done(&loader->core, step, samples, repeated, bytes, bad, made);
    loader_execute(loader);
}

static void tasks_on_ended(void *owner, void *tag)
{
    core_ended(&((struct loader *)owner)->core, tag);
}

static void tasks_on_failed(void *owner, void *tag, const struct dl_error *err, const char *detail)
{
    struct loader *loader = owner;

    if (loader->measuring)
        measuring_refused(loader->measuring, tag, err);
    else
        core_fault(&loader->core, tag, err->code, err->message,
                   detail ? must_strdup(detail) : NULL);
}

static void tasks_on_lost(void *owner, void *tag, bool culprit, const char *cause)
{
    struct loader *loader = owner;

    if (loader->measuring)
        measuring_lost(loader->measuring, tag, culprit, cause);
    else
        core_lost(&loader->core, tag, culprit, cause);
}

/* The pool counts what is free as soon as this returns. */
static void tasks_on_reclaim(void *owner)
{
    struct loader *loader = owner;

    core_reclaim(&loader->core);
    loader_execute_all(loader);
}

static void tasks_on_retired(void *owner, uint32_t segment)
{
    struct loader *loader = owner;

    loader->o.events->retired(loader->o.context, segment);
}

const struct pool_events loader_pool_events = {.ready = tasks_on_ready,
                                               .broken = tasks_on_broken,
                                               .done = tasks_on_done,
                                               .ended = tasks_on_ended,
                                               .failed = tasks_on_failed,
                                               .lost = tasks_on_lost,
                                               .reclaim = tasks_on_reclaim,
                                               .retired = tasks_on_retired,
                                               .changed = loader_go_on};
