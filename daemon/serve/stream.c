#include "daemon/serve/stream.h"

#include "daemon/serve/log.h"

#include <assert.h>

struct stream *stream_new(const struct stream_params *params)
{
    struct stream *stream = must_alloc(sizeof *stream);

    assert(params->rank < params->world && params->credits > 0);
    stream->params = *params;
    stream->to_plan = stream->to_deliver =
        params->first < params->steps ? params->first : params->steps;
    return stream;
}

struct stream *stream_free(struct stream *stream)
{
    struct step *step;

    if (!stream)
        return NULL;
    assert(!stream->steps && stream->leased == 0 && stream->pinned == 0 && stream->window == 0);
    while ((step = stream->spare)) {
        stream->spare = step->next;
        free(step);
    }
    free(stream);
    return NULL;
}

bool stream_has_room(const struct stream *stream)
{
    return !stream->stopped && stream->to_plan < stream->params.steps &&
           stream->window < stream->params.credits;
}

struct step *stream_plan(struct stream *stream)
{
    struct step *step = stream->spare;

    assert(stream_has_room(stream));
    if (step)
        stream->spare = step->next;
    else
        step = must_alloc(sizeof *step);
    *step = (struct step){.stream = stream, .number = stream->to_plan++, .state = STEP_WAITING};
    HASH_ADD(hh, stream->steps, number, sizeof step->number, step);
    stream->window++;
    return step;
}

void step_run(struct step *step, struct segment *segment, uint32_t slot, uint32_t samples)
{
    assert(step->state == STEP_WAITING);
    step->state = STEP_RUNNING;
    step->segment = segment;
    step->slot = slot;
    step->samples = samples;
}

void step_ready(struct step *step, uint64_t bytes)
{
    assert(step->state == STEP_RUNNING);
    step->state = STEP_READY;
    step->bytes = bytes;
}

void step_lost(struct step *step)
{
    assert(step->state == STEP_RUNNING || step->state == STEP_READY);
    step->state = STEP_WAITING;
    step->segment = NULL;
}

void step_fault(struct step *step, const struct dl_error *err)
{
    assert(step->state == STEP_RUNNING || step->state == STEP_WAITING);
    step->state = STEP_FAULTED;
    step->segment = NULL;
    step->error = must_alloc(sizeof *step->error);
    *step->error = *err;
}

static struct step *find(struct stream *stream, uint64_t number)
{
    struct step *step;

    HASH_FIND(hh, stream->steps, &number, sizeof number, step);
    return step;
}

struct step *stream_deliverable(struct stream *stream)
{
    struct step *step = stream->stopped ? NULL : find(stream, stream->to_deliver);

    return step && (step->state == STEP_READY || step->state == STEP_FAULTED) ? step : NULL;
}

void stream_deliver(struct stream *stream, struct step *step)
{
    assert(step->number == stream->to_deliver);
    stream->to_deliver++;
    if (step->state == STEP_FAULTED) {
        stream_forget(stream, step);
        return;
    }
    assert(step->state == STEP_READY);
    step->state = STEP_LEASED;
    stream->leased++;
    stream->delivered++;
    stream->samples += step->samples;
    stream->bytes += step->bytes;
}

bool stream_finished(const struct stream *stream)
{
    return stream->to_deliver >= stream->params.steps;
}

struct step *stream_lease(struct stream *stream, uint64_t number)
{
    struct step *step = find(stream, number);

    return step && (step->state == STEP_LEASED || step->state == STEP_PINNED) ? step : NULL;
}

void stream_pin(struct stream *stream, struct step *step)
{
    if (step->state == STEP_PINNED)
        return;
    assert(step->state == STEP_LEASED);
    step->state = STEP_PINNED;
    stream->leased--;
    stream->pinned++;
    stream->window--;
}

void stream_forget(struct stream *stream, struct step *step)
{
    if (step->state == STEP_PINNED) {
        stream->pinned--;
    } else {
        if (step->state == STEP_LEASED)
            stream->leased--;
        stream->window--;
    }
    stream->starving_told = false;
    HASH_DEL(stream->steps, step);
    free(step->error);
    step->error = NULL;
    step->next = stream->spare;
    stream->spare = step;
}

void stream_abandon(struct stream *stream, struct step *step)
{
    assert(step->stream == stream && step->state == STEP_RUNNING);
    HASH_DEL(stream->steps, step);
    stream->window--;
    step->stream = NULL;
}

void stream_stop(struct stream *stream)
{
    stream->stopped = true;
}

const char *step_state_name(enum step_state state)
{
    static const char *const names[] = {"waiting", "running", "ready",
                                        "faulted", "leased",  "pinned"};
    return names[state];
}
