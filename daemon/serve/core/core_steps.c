/*
 * The life of a step from the time a worker has it: made or lost, delivered, released or pinned;
 * and its name.
 */
#include "daemon/serve/core/core_private.h"
#include "proto/shared/words.h"

#include <stdio.h>

enum { FAULTS_TOLD_MAX = 4 };

/* ---- names ----------------------------------------------------------------------------------- */

/* Python's indices may be below 0. */
static void steps_name_integers(const uint64_t *indices, uint32_t n, char *text, size_t len)
{
    int at = snprintf(text, len, "(sample%s", n == 1 ? "" : "s");

    for (uint32_t i = 0; i < n && i < STEP_NAMED; i++)
        at += snprintf(text + at, len - (size_t)at, "%s %lld", i ? "," : "", (long long)indices[i]);
    if (n > STEP_NAMED)
        at += snprintf(text + at, len - (size_t)at, ", … %u in all", n);
    snprintf(text + at, len - (size_t)at, ")");
}

static void steps_name_samples(const struct core *core, const struct step *step, char *text,
                               size_t len)
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
        snprintf(text, len, "(samples by keys that are not integers)");
    else
        steps_name_integers(step->named, step->n_indices, text, len);
}

void core_name_samples(const struct core *core, const struct step *step, char *text, size_t len)
{
    char name[384];

    steps_name_samples(core, step, name, sizeof name);
    snprintf(text, len, "%.*s", (int)strlen(name) - 2, name + 1);
}

void core_name_step(const struct core *core, const struct step *step, char *text, size_t len)
{
    size_t at = words_step(step->number, step->stream->params.epoch, text, len);

    steps_name_samples(core, step, text + at, len - at);
}

/* ---- reports of the pool --------------------------------------------------------------------- */

/* Queues the stream, and the ranks that take from it, for the next core_deliver(). */
static void steps_touch_takers(struct core *core, struct stream *stream)
{
    struct stream *rank;

    core_touch(core, stream);
    if (!stream->dispatch)
        return;
    DL_FOREACH2 (stream->dispatch->ranks, rank, peer_next)
        core_touch(core, rank);
}

/* Whether a step returned by a worker still counts: its stream may have dropped it, or its replica
 * may have ended before it. */
static bool steps_is_wanted(struct core *core, struct step *step)
{
    if (step->stream && stream_exists(step->stream, step->number))
        return true;
    if (step->stream)
        core_ended(core, step);
    else
        step_free(step);
    return false;
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

    if (!steps_is_wanted(core, step)) {
        free(detail);
        return;
    }
    core_name_step(core, step, name, sizeof name);
    dl_error_set(&err, code, spec_dataset_label(&core->o.spec->dataset), "%s: %s", name, what);
    if (step->state == STEP_WAITING)
        (void)!core_wait_no_more(core, step);
    step_fault(step, &err, detail);
    core->totals.faults++;
    steps_touch_takers(core, step->stream);
}

/* Samples in the batch. A SLOT_LENGTHS task always fills all of them. */
static uint32_t steps_count_samples(const struct core *core, const struct step *step, uint32_t told)
{
    if (core->iterable || core->o.spec->dataset.kind == DATASET_PYTHON)
        return told;
    return core->o.spec->on_error == ON_ERROR_SKIP ? (uint32_t)min_u64(told, step->samples)
                                                   : step->samples;
}

/* How many of them only even the ranks out: as the worker says, or of those that were planned. */
static uint32_t steps_count_repeated(const struct core *core, const struct step *step,
                                     uint32_t told, const struct bad_list *bad)
{
    if (core->iterable)
        return told;
    return core->o.spec->on_error == ON_ERROR_SKIP
               ? bad_list_left(bad, step->samples, step->repeated)
               : step->repeated;
}

static void steps_keep_bad(struct step *step, const struct bad_list *bad)
{
    if (bad->n == 0)
        return;
    step->bad =
        (struct bad_list){.n = bad->n, .items = must_alloc(SLOT_BAD_MAX * sizeof *bad->items)};
    memcpy(step->bad.items, bad->items, bad_list_listed(bad) * sizeof *bad->items);
}

static void steps_time_made(struct core *core, struct step *step, const struct made_times *made)
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

    if (!steps_is_wanted(core, step)) {
        core_slot(core, segment, slot, SLOT_DISCARD);
        return;
    }
    samples = steps_count_samples(core, step, samples);
    if (!core->iterable && stream_is_for_all(step->stream) && samples != step->samples) {
        core_fault(core, step, EIO, "its batch has another number of samples than requested", NULL);
        core_slot(core, segment, slot, SLOT_DISCARD);
        return;
    }
    step->repeated = steps_count_repeated(core, step, repeated, bad);
    step_ready(step, samples, bytes);
    steps_time_made(core, step, made);
    steps_keep_bad(step, bad);
    steps_touch_takers(core, step->stream);
}

/* Drops steps planned beyond the end of a replica: they do not exist. Running ones end with their
 * workers' reports. */
static void steps_drop_beyond_end(struct core *core, struct stream *stream)
{
    struct step *step, *next;

    HASH_ITER (hh, stream->steps, step, next) {
        if (!stream_exists(stream, step->number) && step->state != STEP_RUNNING)
            core_drop_step(core, stream, step);
    }
}

void core_ended(struct core *core, struct step *step)
{
    struct stream *stream = step->stream;
    uint64_t number = step->number;

    if (!stream) {
        step_free(step);
        return;
    }
    assert(step->state == STEP_RUNNING);
    stream_forget(stream, step);
    stream_end_replica(stream, number);
    steps_drop_beyond_end(core, stream);
    steps_touch_takers(core, stream);
}

void core_lost(struct core *core, struct step *step, bool culprit, const char *cause)
{
    char what[DL_ERROR_MESSAGE_MAX];

    if (!steps_is_wanted(core, step))
        return;
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

void core_outgrew(struct core *core, struct step *step)
{
    assert(step->segment);
    uint32_t keeper = step->segment->worker;

    if (!steps_is_wanted(core, step))
        return;
    core_run_again(core, step);
    step->kept_by = keeper + 1;
}

void core_stalled(struct core *core, const char *why)
{
    struct step *step, *next;

    DL_FOREACH_SAFE (core->waiting, step, next) {
        if (!step->unplanned)
            core_fault(core, step, EIO, why, NULL);
    }
}

void core_reclaim(struct core *core)
{
    struct stream *stream;
    struct step *step, *next;

    DL_FOREACH (core->streams, stream) {
        if (stream->source)
            continue;
        HASH_ITER (hh, stream->steps, step, next) {
            if (step->state != STEP_READY || step->segment->active)
                continue;
            core_give_up_slot(core, step);
            core_run_again(core, step);
        }
    }
}

/* ---- bad samples ----------------------------------------------------------------------------- */

/* For reporting a batch's bad samples. */
struct telling {
    struct core *core;
    struct stream *stream;
};

static void steps_tell_bad(void *owner, const struct bad_sample *sample)
{
    const struct telling *telling = owner;
    struct core *core = telling->core;
    char text[DL_ERROR_MESSAGE_MAX];

    words_bad(sample, &core->quarantine, core->o.spec->on_error == ON_ERROR_SKIP, text,
              sizeof text);
    core_say(core, CORE_BAD, telling->stream, text);
}

/* Where the sample's number counts: nowhere in particular if it is an index. The replicas of all
 * ranks are one and the same where the dataset does not divide the samples itself. */
static struct bad_place steps_place_of_bad(const struct core *core, const struct step *step)
{
    const struct stream_params *params = &step->stream->params;
    bool apart = core->o.spec->shard == SHARD_STRIDED;

    if (!params->replicas)
        return (struct bad_place){0};
    return (struct bad_place){.rank = apart ? (uint32_t)params->rank : 0,
                              .world = apart ? (uint32_t)params->world : 1,
                              .worker = step_replica(step->stream, step->number)};
}

bool core_admit(struct core *core, struct stream *stream, struct step *step)
{
    struct segment *segment = step->segment;
    uint32_t slot = step->slot;
    struct dl_error err = {0};

    if (step->bad.n == 0)
        return true;
    struct bad_place place = steps_place_of_bad(core, step);
    struct telling telling = {core, stream};
    bool good =
        quarantine_take(&core->quarantine, &place, &step->bad, steps_tell_bad, &telling, &err);
    if (!good) {
        core_fault(core, step, err.code, err.message, NULL);
        core_slot(core, segment, slot, SLOT_DISCARD);
    }
    bad_list_deinit(&step->bad);
    return good;
}

/* ---- delivery -------------------------------------------------------------------------------- */

static void steps_time(struct core *core, struct stream *stream, enum stage stage, uint64_t ns)
{
    timing_add(&stream->timing, stage, ns);
    timing_add(&core->timing, stage, ns);
}

static void steps_lease_batch(struct core *core, struct stream *stream, struct step *step,
                              uint64_t now)
{
    if (!step->own_lease)
        core_slot(core, step->segment, step->slot, SLOT_LEASE);
    stream_deliver(stream, step);
    step->delivered_ns = max_u64(now, step->made.now_ns);
    steps_time(core, stream, STAGE_READY, step->delivered_ns - step->made.now_ns);
    core_count_lease(core, stream, 1);
    delivered_add(&core->totals.delivered, step);
    core_command(core, CORE_DELIVER, stream)->step = step;
}

static void steps_lease_fault(struct core *core, struct stream *stream, struct step *step)
{
    stream_deliver(stream, step);
    struct core_command *command = core_command(core, CORE_FAULT, stream);
    command->step = step;
    command->err = step->error;
}

/* Its client already has as many unread faults as it may: with their reports they are long. */
static bool steps_may_lease(const struct stream *stream, const struct step *step)
{
    return stream->in_state[STEP_LEASED] < stream->params.credits &&
           (step->state == STEP_READY || stream->faults_told < FAULTS_TOLD_MAX);
}

/* Leases what is due, in order, while credits last. */
static void steps_lease_due(struct core *core, struct stream *stream, uint64_t now)
{
    struct step *step;

    /* One that was parked with pins can have more READY than its client has credits. */
    while ((step = stream_deliverable(stream)) && steps_may_lease(stream, step)) {
        if (step->state == STEP_READY && !core_admit(core, stream, step))
            continue;
        if (quota_charge(core->o.account, QUOTA_LEASES, 1, NULL) < 0) {
            core_touch_later(core, stream);
            return;
        }
        if (step->state == STEP_READY)
            steps_lease_batch(core, stream, step, now);
        else
            steps_lease_fault(core, stream, step);
    }
}

static void steps_warn_of_length(struct core *core, struct stream *stream)
{
    uint64_t samples = stream->delivered.samples - stream->delivered.repeated;
    char text[512];

    if (!core->iterable || stream->told & TOLD_LENGTH || samples <= core->length)
        return;
    stream->told |= TOLD_LENGTH;
    words_too_many(spec_dataset_label(&core->o.spec->dataset), core->length, samples, text,
                   sizeof text);
    core_say(core, CORE_WARN, stream, text);
}

static void steps_warn_of_passing(struct core *core, struct stream *stream)
{
    char text[512];

    if (!core->iterable || core->can_skip || stream->told & TOLD_PASSING ||
        stream->params.first == 0)
        return;
    stream->told |= TOLD_PASSING;
    words_passing(spec_dataset_label(&core->o.spec->dataset), stream->params.first,
                  core->o.spec->batch_size, text, sizeof text);
    core_say(core, CORE_WARN, stream, text);
}

static void steps_finish(struct core *core, struct stream *stream)
{
    if (stream->told & TOLD_END || !(stream_finished(stream) || stream_at_limit(stream)))
        return;
    stream->told |= TOLD_END;
    stream_become(stream, STREAM_FINISHED);
    core_command(core, CORE_FINISH, stream);
}

static void steps_deliver(struct core *core, struct stream *stream, uint64_t now)
{
    steps_warn_of_passing(core, stream);
    if (stream->params.companion)
        core_catch_up(core, stream, now);
    if (stream->source)
        core_take_steps(core, stream);
    if (core->delivery_paused) {
        core_touch_later(core, stream);
        return;
    }
    steps_lease_due(core, stream, now);
    steps_warn_of_length(core, stream);
    steps_finish(core, stream);
}

/* Something has happened to the stream: all that may follow from it. */
static void steps_look_at(struct core *core, struct stream *stream, uint64_t now)
{
    if (stream_rules[stream->phase].delivers)
        steps_deliver(core, stream, now);
    core_look_ahead(core, stream);
    core_requeue(core, stream);
    if (stream->successor)
        core_requeue(core, stream->successor); /* they share one window */
}

void core_deliver(struct core *core, uint64_t now)
{
    struct stream *stream;

    while ((stream = core->later))
        core_touch(core, stream);
    while ((stream = core->touched)) {
        core_untouch(stream);
        (void)!core_pay(core, stream, NULL); /* on failure, the next feed is refused */
        steps_look_at(core, stream, now);
    }
}

/* ---- leases end -------------------------------------------------------------------------------
 */

void core_end_lease(struct core *core, struct stream *stream, struct step *step)
{
    if (step->segment) {
        core_slot(core, step->segment, step->slot, SLOT_RELEASE);
        core_count_lease(core, stream, -1);
    }
    stream_forget(stream, step);
    quota_return(core->o.account, QUOTA_LEASES, 1);
}

static void steps_trace_step(struct core *core, const struct stream *stream,
                             const struct step *step, uint64_t now)
{
    const struct made_times *made = &step->made;

    trace_add(&core->trace,
              &(struct trace_batch){.epoch = stream->params.epoch,
                                    .rank = stream->params.rank,
                                    .step = step->number,
                                    .worker = step->segment->worker,
                                    .planned = step->run_ns,
                                    .begun = made->began_ns,
                                    .fetched = made->began_ns + made->cost_ns - made->collate_ns,
                                    .made = made->began_ns + made->cost_ns,
                                    .ready = made->now_ns,
                                    .delivered = step->delivered_ns,
                                    .released = now});
}

/* A batch counts as held until its client asks for the next one, that is until it is released or
 * pinned, however long tensors keep the slot. */
bool core_release(struct core *core, struct stream *stream, uint64_t number, uint64_t now)
{
    struct step *step = stream_lease(stream, number);

    if (!step)
        return false;
    if (!step->error) {
        now = step->state == STEP_PINNED ? step->pinned_ns : max_u64(now, step->delivered_ns);
        if (step->state == STEP_LEASED)
            steps_time(core, stream, STAGE_HELD, now - step->delivered_ns);
        steps_trace_step(core, stream, step, now);
    }
    core_end_lease(core, stream, step);
    core_touch(core, stream);
    return true;
}

bool core_pin(struct core *core, struct stream *stream, uint64_t number, uint64_t now)
{
    struct step *step = stream_lease(stream, number);

    if (!step || step->error)
        return false;
    if (step->state == STEP_LEASED) {
        step->pinned_ns = max_u64(now, step->delivered_ns);
        steps_time(core, stream, STAGE_HELD, step->pinned_ns - step->delivered_ns);
    }
    stream_pin(stream, step);
    core_touch(core, stream);
    return true;
}
