/* What becomes of the tasks that steps are, and of the loader, as its pool tells. */
#include "daemon/serve/base/memory.h"
#include "daemon/serve/loader/loader_private.h"
#include "proto/slot_fill.h"

#include <errno.h>
#include <stdio.h>

#include <utlist.h>

void loader_fault(struct loader *loader, struct step *step, int code, const char *what)
{
    struct dl_error err = {0};
    char name[384];

    loader_name_step(loader, step, name, sizeof name);
    dl_error_set(&err, code, spec_dataset_label(&loader->spec.dataset), "%s: %s", name, what);
    step_fault(step, &err);
    loader->totals.faults++;
}

/* A step nobody waits for any more, while a worker still had it. */
static bool abandoned(struct step *step)
{
    if (step->stream)
        return false;
    step_free(step);
    return true;
}

/*
 * Steps to run again: what somebody asked for first, and earlier ones first. Where there is memory
 * for one only, it must be the one that is due.
 */
static int compare_steps(const struct step *a, const struct step *b)
{
    bool expected_a = stream_is_expected(a->stream), expected_b = stream_is_expected(b->stream);

    if (expected_a != expected_b)
        return expected_a - expected_b;
    return (a->number > b->number) - (a->number < b->number);
}

void loader_run_again(struct loader *loader, struct step *step)
{
    step_lost(step);
    DL_INSERT_INORDER(loader->waiting, step, compare_steps);
}

/* ---- what the pool tells -------------------------------------------------------------------- */

static void on_ready(void *owner, const struct dl_msg_w_ready *what)
{
    struct loader *loader = owner;
    struct dl_error err = {0};

    loader->length =
        loader->spec.dataset.kind == DATASET_RANGE ? loader->spec.dataset.length : what->length;
    loader->iterable = what->iterable;
    loader->leaps = what->leaps;
    loader->identity.dataset = what->dataset;
    loader->identity.length = loader->length;
    loader->identity.workers = loader->iterable ? loader->spec.workers : 0;
    loader->first_slot_bytes = pool_slot_bytes(loader->pool);
    loader->quarantine.limit = spec_max_bad(&loader->spec, loader->length);
    if (!loader->spec.batch.tokens)
        loader_opened(loader);
    else if (loader_measure(loader, what->fingerprint, &err) < 0)
        loader_break(loader, &err);
}

static void on_broken(void *owner, const struct dl_error *err)
{
    loader_break(owner, err);
}

/* How many samples the batch has. A list of lengths has them all. */
static uint32_t count_samples(const struct loader *loader, const struct step *step, uint32_t told)
{
    if (loader->iterable || loader->spec.dataset.kind == DATASET_PYTHON)
        return told;
    return loader->spec.on_error == ON_ERROR_SKIP ? (uint32_t)min_u64(told, step->samples)
                                                  : step->samples;
}

/* How many of them only even the ranks out: as the worker says, or of those that were planned. */
static uint32_t count_repeated(const struct loader *loader, const struct step *step, uint32_t told,
                               const struct bad_list *bad)
{
    if (loader->iterable)
        return told;
    return loader->spec.on_error == ON_ERROR_SKIP
               ? bad_list_left(bad, step->samples, step->repeated)
               : step->repeated;
}

static void keep_bad(struct step *step, const struct bad_list *bad)
{
    if (bad->n == 0)
        return;
    step->bad =
        (struct bad_list){.n = bad->n, .items = must_alloc(SLOT_BAD_MAX * sizeof *bad->items)};
    memcpy(step->bad.items, bad->items, bad_list_listed(bad) * sizeof *bad->items);
}

/* Where the dataset says that the step's replica stands behind it. */
static void learn_state(struct step *step)
{
    struct stream *stream = step->stream;
    struct dl_span record;

    if (slot_read_state(segment_slot(step->segment, step->slot), step->segment->slot_bytes,
                        &record) &&
        record.len > 0)
        states_learn(&stream->states, step_replica(stream, step->number), record);
}

static void time_made(struct step *step, const struct made_times *made)
{
    step->made = made_times_mend(made, step->run_ns);
    timing_add_made(&step->stream->timing, step->run_ns, &step->made);
}

static void on_done(void *owner, void *tag, uint32_t samples, uint32_t repeated, uint64_t bytes,
                    const struct bad_list *bad, const struct made_times *made)
{
    struct loader *loader = owner;
    struct step *step = tag;

    if (loader->measuring) {
        measuring_took(loader->measuring, tag);
        return;
    }
    struct segment *segment = step->segment;
    uint32_t slot = step->slot;
    if (!step->stream)
        pool_slot(loader->pool, segment, slot, SLOT_DISCARD);
    if (abandoned(step))
        return;
    samples = count_samples(loader, step, samples);
    if (!loader->iterable && stream_is_source(step->stream) && samples != step->samples) {
        loader_fault(loader, step, EIO,
                     "its batch has another number of samples than were asked for");
        pool_slot(loader->pool, segment, slot, SLOT_DISCARD);
        return;
    }
    step->repeated = count_repeated(loader, step, repeated, bad);
    if (loader->iterable)
        learn_state(step);
    step_ready(step, samples, bytes);
    time_made(step, made);
    keep_bad(step, bad);
}

static void on_ended(void *owner, void *tag)
{
    struct step *step = tag;

    if (!abandoned(step))
        stream_replica_ended(step->stream, step);
}

static void on_failed(void *owner, void *tag, const struct dl_error *err, const char *detail)
{
    struct loader *loader = owner;
    struct step *step = tag;

    if (loader->measuring)
        measuring_refused(loader->measuring, tag, err);
    if (loader->measuring || abandoned(step))
        return;
    loader_fault(loader, step, err->code, err->message);
    step->detail = detail ? must_strdup(detail) : NULL;
}

static void on_lost(void *owner, void *tag, bool culprit, const char *cause)
{
    struct loader *loader = owner;
    struct step *step = tag;
    char what[DL_ERROR_MESSAGE_MAX];

    if (loader->measuring)
        measuring_lost(loader->measuring, tag, culprit, cause);
    if (loader->measuring || abandoned(step))
        return;
    step->attempts += culprit;
    loader->totals.retries += culprit;
    if (step->attempts > loader->spec.retries) {
        snprintf(what, sizeof what, "%s; given up after %u attempt%s (workers.retries)", cause,
                 step->attempts, step->attempts == 1 ? "" : "s");
        loader_fault(loader, step, EIO, what);
        return;
    }
    loader_run_again(loader, step);
}

static void on_reclaim(void *owner)
{
    struct loader *loader = owner;
    struct stream *stream;
    struct step *step;
    struct step *next;

    DL_FOREACH (loader->streams, stream) {
        HASH_ITER (hh, stream->steps, step, next) {
            if (step->state != STEP_READY || step->segment->active || loader_source(stream))
                continue;
            struct segment *segment = step->segment;
            enum slot_event event = step->held ? SLOT_RELEASE : SLOT_DISCARD;
            loader_run_again(loader, step);
            pool_slot(loader->pool, segment, step->slot, event);
        }
    }
}

static void on_retired(void *owner, uint32_t segment)
{
    struct loader *loader = owner;

    loader->o.events->retired(loader->o.context, segment);
}

const struct pool_events loader_pool_events = {.ready = on_ready,
                                               .broken = on_broken,
                                               .done = on_done,
                                               .ended = on_ended,
                                               .failed = on_failed,
                                               .lost = on_lost,
                                               .reclaim = on_reclaim,
                                               .retired = on_retired,
                                               .changed = loader_go_on};
