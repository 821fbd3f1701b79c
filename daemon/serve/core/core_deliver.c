/* Which batch is due, and what its client is told with it. */
#include "daemon/serve/core/core_private.h"
#include "proto/words.h"

enum { FAULTS_TOLD_MAX = 4 };

/* ---- bad samples ----------------------------------------------------------------------------- */

/* Whose bad samples they are. */
struct telling {
    struct core *core;
    struct stream *stream;
};

static void tell_bad(void *owner, const struct bad_sample *sample)
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
static struct bad_place place_of_bad(const struct core *core, const struct step *step)
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
    struct bad_place place = place_of_bad(core, step);
    struct telling telling = {core, stream};
    bool good = quarantine_take(&core->quarantine, &place, &step->bad, tell_bad, &telling, &err);
    if (!good) {
        core_fault(core, step, err.code, err.message, NULL);
        core_slot(core, segment, slot, SLOT_DISCARD);
    }
    bad_list_deinit(&step->bad);
    return good;
}

/* ---- delivery -------------------------------------------------------------------------------- */

static void time_ready(struct core *core, struct stream *stream, struct step *step, uint64_t now)
{
    step->delivered_ns = max_u64(now, step->made.now_ns);
    timing_add(&stream->timing, STAGE_READY, step->delivered_ns - step->made.now_ns);
    timing_add(&core->timing, STAGE_READY, step->delivered_ns - step->made.now_ns);
}

static void lease_batch(struct core *core, struct stream *stream, struct step *step, uint64_t now)
{
    if (!step->own_lease)
        core_slot(core, step->segment, step->slot, SLOT_LEASE);
    stream_deliver(stream, step);
    time_ready(core, stream, step, now);
    core_count_held(core, stream, 1);
    core->totals.batches++;
    core->totals.samples += step->samples;
    core->totals.bytes += step_bytes(step);
    core_command(core, CORE_DELIVER, stream)->step = step;
}

static void lease_fault(struct core *core, struct stream *stream, struct step *step)
{
    stream_deliver(stream, step);
    struct core_command *command = core_command(core, CORE_FAULT, stream);
    command->step = step;
    command->err = step->error;
}

/* Its client has yet to read as many faults as it may be told at once: with their reports they are
 * long. */
static bool may_lease(const struct stream *stream, const struct step *step)
{
    return stream->leased < stream->params.credits &&
           (step->state == STEP_READY || stream->faults_told < FAULTS_TOLD_MAX);
}

/* What is due, in order, as far as credits reach. */
static void lease_due(struct core *core, struct stream *stream, uint64_t now)
{
    struct step *step;

    /* One that was parked with pins can have more READY than its client has credits. */
    while ((step = stream_deliverable(stream)) && may_lease(stream, step)) {
        if (step->state == STEP_READY && !core_admit(core, stream, step))
            continue;
        if (quota_charge(core->o.account, QUOTA_LEASES, 1, NULL) < 0) {
            core_touch_later(core, stream);
            return;
        }
        if (step->state == STEP_READY)
            lease_batch(core, stream, step, now);
        else
            lease_fault(core, stream, step);
    }
}

static void warn_of_length(struct core *core, struct stream *stream)
{
    uint64_t samples = stream->samples - stream->repeated;
    char text[512];

    if (!core->iterable || stream->told & TOLD_LENGTH || samples <= core->length)
        return;
    stream->told |= TOLD_LENGTH;
    words_too_many(spec_dataset_label(&core->o.spec->dataset), core->length, samples, text,
                   sizeof text);
    core_say(core, CORE_WARN, stream, text);
}

static void warn_of_passing(struct core *core, struct stream *stream)
{
    char text[512];

    if (!core->iterable || core->leaps || stream->told & TOLD_PASSING || stream->params.first == 0)
        return;
    stream->told |= TOLD_PASSING;
    words_passing(spec_dataset_label(&core->o.spec->dataset), stream->params.first,
                  core->o.spec->batch_size, text, sizeof text);
    core_say(core, CORE_WARN, stream, text);
}

static void finish(struct core *core, struct stream *stream)
{
    if (stream->told & TOLD_END || !(stream_finished(stream) || stream_at_limit(stream)))
        return;
    stream->told |= TOLD_END;
    stream_become(stream, STREAM_FINISHED);
    core_command(core, CORE_FINISH, stream);
}

static void deliver(struct core *core, struct stream *stream, uint64_t now)
{
    warn_of_passing(core, stream);
    core_take_steps(core, stream);
    if (core->held_back) {
        core_touch_later(core, stream);
        return;
    }
    lease_due(core, stream, now);
    warn_of_length(core, stream);
    finish(core, stream);
}

/* Something has happened to the stream: all that may follow from it. */
static void look_at(struct core *core, struct stream *stream, uint64_t now)
{
    if (stream_rules[stream->phase].delivers)
        deliver(core, stream, now);
    core_look_ahead(core, stream);
    core_requeue(core, stream);
    if (stream->successor)
        core_requeue(core, stream->successor); /* their window is one */
}

void core_deliver(struct core *core, uint64_t now)
{
    struct stream *stream;

    while ((stream = core->later))
        core_touch(core, stream);
    while ((stream = core->touched)) {
        core_untouch(stream);
        look_at(core, stream, now);
    }
}
