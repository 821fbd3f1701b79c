/* What becomes of the tasks that steps are, and what a step is called. */
#include "daemon/serve/core/core_private.h"
#include "proto/words.h"

#include <stdio.h>

/* ---- names ----------------------------------------------------------------------------------- */

/* Python's indices may be below 0. */
static void name_integers(const uint64_t *indices, uint32_t n, char *text, size_t len)
{
    int at = snprintf(text, len, "(sample%s", n == 1 ? "" : "s");

    for (uint32_t i = 0; i < n && i < STEP_NAMED; i++)
        at += snprintf(text + at, len - (size_t)at, "%s %lld", i ? "," : "", (long long)indices[i]);
    if (n > STEP_NAMED)
        at += snprintf(text + at, len - (size_t)at, ", … %u in all", n);
    snprintf(text + at, len - (size_t)at, ")");
}

static void name_samples(const struct core *core, const struct step *step, char *text, size_t len)
{
    const struct stream *stream = step->stream;

    if (stream->params.replicas)
        snprintf(text, len, "(batch %llu of worker %u)",
                 (ull)(step->number / stream->params.replicas), step_replica(stream, step->number));
    else if (step->n_indices == 0) /* it was given up before it was run */
        snprintf(text, len, "(no slot)");
    else if (core->o.spec->dataset.kind != DATASET_PYTHON)
        words_samples(step->named, step->n_indices, text, len);
    else if (step->fed && step->named[0] == SLOT_KEYS_MARK)
        snprintf(text, len, "(samples by keys that are no integers)");
    else
        name_integers(step->named, step->n_indices, text, len);
}

void core_name_samples(const struct core *core, const struct step *step, char *text, size_t len)
{
    char name[384];

    name_samples(core, step, name, sizeof name);
    snprintf(text, len, "%.*s", (int)strlen(name) - 2, name + 1);
}

void core_name_step(const struct core *core, const struct step *step, char *text, size_t len)
{
    size_t at = words_step(step->number, step->stream->params.epoch, text, len);

    name_samples(core, step, text + at, len - at);
}

/* ---- what the pool tells --------------------------------------------------------------------- */

/* A step nobody waits for any more, while a worker still had it. */
static bool free_if_abandoned(struct step *step)
{
    if (step->stream)
        return false;
    step_free(step);
    return true;
}

void core_ran(struct core *core, struct step *step, struct segment *segment, uint32_t slot,
              const uint64_t *indices, uint32_t n, uint64_t now)
{
    (void)core;
    step_run(step, segment, slot, n);
    step->run_ns = now;
    if (step->stream->params.replicas)
        return;
    step->n_indices = n;
    memcpy(step->named, indices, min_u64(n, STEP_NAMED) * sizeof *indices);
}

void core_fault(struct core *core, struct step *step, int code, const char *what, char *detail)
{
    struct dl_error err = {0};
    char name[384];

    if (free_if_abandoned(step)) {
        free(detail);
        return;
    }
    if (!stream_exists(step->stream, step->number)) {
        core_ended(core, step);
        free(detail);
        return;
    }
    core_name_step(core, step, name, sizeof name);
    dl_error_set(&err, code, spec_dataset_label(&core->o.spec->dataset), "%s: %s", name, what);
    if (step->state == STEP_WAITING)
        (void)!core_wait_no_more(core, step);
    step_fault(step, &err, detail);
    core->totals.faults++;
    core_touch_takers(core, step->stream);
}

/* How many samples the batch has. A list of lengths has them all. */
static uint32_t count_samples(const struct core *core, const struct step *step, uint32_t told)
{
    if (core->iterable || core->o.spec->dataset.kind == DATASET_PYTHON)
        return told;
    return core->o.spec->on_error == ON_ERROR_SKIP ? (uint32_t)min_u64(told, step->samples)
                                                   : step->samples;
}

/* How many of them only even the ranks out: as the worker says, or of those that were planned. */
static uint32_t count_repeated(const struct core *core, const struct step *step, uint32_t told,
                               const struct bad_list *bad)
{
    if (core->iterable)
        return told;
    return core->o.spec->on_error == ON_ERROR_SKIP
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

static void time_made(struct core *core, struct step *step, const struct made_times *made)
{
    step->made = made_times_mend(made, step->run_ns);
    timing_add_made(&step->stream->timing, step->run_ns, &step->made);
    timing_add_made(&core->timing, step->run_ns, &step->made);
}

void core_done(struct core *core, struct step *step, uint32_t samples, uint32_t repeated,
               uint64_t bytes, const struct bad_list *bad, const struct made_times *made)
{
    struct segment *segment = step->segment;
    uint32_t slot = step->slot;

    if (free_if_abandoned(step)) {
        core_slot(core, segment, slot, SLOT_DISCARD);
        return;
    }
    if (!stream_exists(step->stream, step->number)) {
        core_ended(core, step);
        core_slot(core, segment, slot, SLOT_DISCARD);
        return;
    }
    samples = count_samples(core, step, samples);
    if (!core->iterable && stream_is_source(step->stream) && samples != step->samples) {
        core_fault(core, step, EIO, "its batch has another number of samples than were asked for",
                   NULL);
        core_slot(core, segment, slot, SLOT_DISCARD);
        return;
    }
    step->repeated = count_repeated(core, step, repeated, bad);
    step_ready(step, samples, bytes);
    time_made(core, step, made);
    keep_bad(step, bad);
    core_touch_takers(core, step->stream);
}

/* Later steps of a replica that has ended were asked for already: they are none, whatever has
 * become of them. Those that run are told of by their workers. */
static void drop_beyond_end(struct core *core, struct stream *stream)
{
    struct step *step;
    struct step *next;

    HASH_ITER (hh, stream->steps, step, next) {
        if (!stream_exists(stream, step->number) && step->state != STEP_RUNNING)
            core_drop_step(core, stream, step);
    }
}

void core_ended(struct core *core, struct step *step)
{
    struct stream *stream = step->stream;
    uint64_t number = step->number;

    if (free_if_abandoned(step))
        return;
    assert(step->state == STEP_RUNNING);
    stream_forget(stream, step);
    stream_end_replica(stream, number);
    drop_beyond_end(core, stream);
    core_touch_takers(core, stream);
}

void core_lost(struct core *core, struct step *step, bool culprit, const char *cause)
{
    char what[DL_ERROR_MESSAGE_MAX];

    if (free_if_abandoned(step))
        return;
    if (!stream_exists(step->stream, step->number)) {
        core_ended(core, step);
        return;
    }
    step->attempts += culprit;
    core->totals.retries += culprit;
    if (step->attempts <= core->o.spec->retries) {
        core_run_again(core, step);
        return;
    }
    snprintf(what, sizeof what, "%s; given up after %u attempt%s (workers.retries)", cause,
             step->attempts, step->attempts == 1 ? "" : "s");
    core_fault(core, step, EIO, what, NULL);
}

void core_reclaim(struct core *core)
{
    struct stream *stream;
    struct step *step;
    struct step *next;

    DL_FOREACH (core->streams, stream) {
        if (stream->source)
            continue;
        HASH_ITER (hh, stream->steps, step, next) {
            if (step->state != STEP_READY || step->segment->active)
                continue;
            core_slot(core, step->segment, step->slot,
                      step->own_lease ? SLOT_RELEASE : SLOT_DISCARD);
            core_run_again(core, step);
        }
    }
}
