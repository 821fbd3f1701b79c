/* Loaders' events, sent to the session's client: see struct loader_events. */
#include "daemon/base/memory.h"
#include "daemon/serve/session/session_private.h"

#include <assert.h>
#include <endian.h>

void session_loader_progress(struct loader_user *user, uint64_t done, uint64_t all,
                             const char *what)
{
    struct opened *opened = container_of(user, struct opened, user);

    session_send(opened->session, &(struct dl_message){.number = DL_MSG_PROGRESS,
                                                       .progress = {.request = opened->request,
                                                                    .done = done,
                                                                    .all = all,
                                                                    .what = span_str(what)}});
}

static void session_tells_opened(const struct opened *opened)
{
    const struct loader *loader = opened->user.loader;
    const struct dl_spec *spec = loader_spec(loader);
    const struct state_identity *identity = loader_identity(loader);
    const struct own_batches *own = opened->own.slices.n > 0 ? &opened->own : NULL;
    uint64_t parts[STATE_PARTS], most = spec->batch_size ? spec_most_samples(spec) : 0;

    for (unsigned i = 0; i < STATE_PARTS; i++)
        parts[i] = htole64(own ? own->parts[i] : identity->parts[i]);
    session_send(opened->session,
                 &(struct dl_message){
                     .number = DL_MSG_OPENED,
                     .opened = {.request = opened->request,
                                .loader = opened->id,
                                .label = span_str(spec->name),
                                .length = loader_core(loader)->length,
                                .iterable = loader_core(loader)->iterable,
                                .in_order = spec_is_in_order(spec),
                                .batch = own ? own->slices.size : most,
                                .drop_last = own ? own->slices.drop_last : spec->drop_last,
                                .seed = spec->seed,
                                .fingerprint = own ? own->fingerprint : loader_fingerprint(loader),
                                .credits = loader_credits(loader),
                                .dataset = identity->dataset,
                                .workers = spec->workers,
                                .order = identity->order,
                                .parts = {(const uint8_t *)parts, sizeof parts},
                                .replicas = spec->replicas > 1 ? spec->replicas : 0}});
}

void session_loader_opened(struct loader_user *user, const struct dl_error *err)
{
    struct opened *opened = container_of(user, struct opened, user);
    struct session *s = opened->session;

    if (err) {
        session_send_error(s, opened->request, err);
        HASH_DEL(s->opened, opened);
        dataset_states_deinit(&opened->dataset_states);
        free(opened);
        return;
    }
    session_tells_opened(opened);
}

void session_answer_start(struct client_stream *cs, const struct loader_extent *extent)
{
    uint8_t before[HISTORY_BYTES];
    size_t len = history_write(&cs->stream->params.before, before);

    session_queue(cs->session,
                  &(struct dl_message){.number = DL_MSG_STARTED,
                                       .started = {.request = cs->request,
                                                   .stream = cs->id,
                                                   .steps = extent->steps,
                                                   .samples = extent->samples,
                                                   .epoch = cs->stream->params.epoch,
                                                   .first = cs->stream->params.first,
                                                   .rank = cs->stream->params.rank,
                                                   .world = cs->stream->params.world,
                                                   .before = {before, len}}},
                  -1);
    if (cs->place.lost > 0)
        session_warning(cs->stream,
                        "the requested position is before the history that this node knows: the "
                        "epoch continues where the other nodes are, without the steps in "
                        "between; give all ranks the same state");
}

void session_started(struct stream *stream, const struct loader_extent *extent,
                     const struct dl_error *err)
{
    struct client_stream *cs = stream->sink;
    struct session *s = cs->session;

    assert(cs->stream == stream);
    if (extent) {
        session_answer_start(cs, extent);
        session_flush(s);
        return;
    }
    session_send_error(s, cs->request, err);
    session_end_stream(s, cs);
}

/* The client gets a segment before the first batch in it. */
static void session_tells_introduce(struct session *s, const struct segment *segment)
{
    struct sent_segment *sent;

    assert(segment->id > 0); /* 0: not sent yet */
    if (segment->id == s->last_sent)
        return;
    s->last_sent = segment->id;
    HASH_FIND(hh, s->segments, &segment->id, sizeof segment->id, sent);
    if (sent)
        return;
    sent = must_alloc(sizeof *sent);
    sent->id = segment->id;
    HASH_ADD(hh, s->segments, id, sizeof sent->id, sent);
    session_queue(
        s,
        &(struct dl_message){
            .number = DL_MSG_SEGMENT,
            .segment = {.id = segment->id, .bytes = segment->bytes, .writable = segment->writable}},
        segment->fd);
}

void session_deliver(struct stream *stream, struct step *const *steps, uint32_t n)
{
    struct client_stream *cs = stream->sink;
    struct session *s = cs->session;
    struct dl_descriptor descriptors[256];

    assert(n > 0 && n <= ARRAY_SIZE(descriptors));
    for (uint32_t i = 0; i < n; i++) {
        const struct step *step = steps[i];
        session_tells_introduce(s, step->segment);
        descriptors[i] = (struct dl_descriptor){
            .step = step->number,
            .generation = step->segment->slots.slots[step->slot].generation,
            .offset = slot_offset(step->segment->slot_bytes, step->slot),
            .bytes = step->bytes,
            .segment = step->segment->id,
            .samples = step->samples,
            .first = step->first,
            .repeated = step->repeated,
        };
    }
    session_send(
        s, &(struct dl_message){.number = DL_MSG_DELIVER,
                                .deliver = {.stream = cs->id,
                                            .descriptors = {.data = (const uint8_t *)descriptors,
                                                            .len = n * sizeof *descriptors}}});
}

void session_fault(struct stream *stream, uint64_t number, const struct dl_error *err,
                   const char *detail, bool final)
{
    session_fault_with(stream, number, err, detail, final, false);
}

void session_fault_with(struct stream *stream, uint64_t number, const struct dl_error *err,
                        const char *detail, bool final, bool at_once)
{
    struct client_stream *cs = stream->sink;

    session_send(cs->session,
                 &(struct dl_message){.number = DL_MSG_FAULT,
                                      .fault = {.stream = cs->id,
                                                .step = number,
                                                .code = (uint64_t)err->code,
                                                .final = final,
                                                .path = span_str(err->path),
                                                .message = span_str(err->message),
                                                .detail = span_str(detail ? detail : ""),
                                                .at_once = at_once}});
}

void session_tells_end(struct client_stream *cs)
{
    assert(!cs->end_due);
    session_send(cs->session,
                 &(struct dl_message){.number = DL_MSG_FINISHED, .finished = {.stream = cs->id}});
}

void session_finished(struct stream *stream)
{
    struct client_stream *cs = stream->sink;

    if (stream->limit < stream->params.steps) {
        session_fault(stream, UINT64_MAX, shared_loader_why(cs->shared), NULL, true);
        return;
    }
    cs->end_due = cs->shared != NULL;
    if (!cs->shared)
        session_tells_end(cs);
    if (cs->end_due)
        session_world_finish(cs);
}

void session_warning(struct stream *stream, const char *message)
{
    struct client_stream *cs = stream->sink;

    session_send(cs->session,
                 &(struct dl_message){.number = DL_MSG_WARNING,
                                      .warning = {.stream = cs->id, .message = span_str(message)}});
}

void session_segment_retired(struct session *s, uint32_t segment)
{
    struct sent_segment *sent;

    HASH_FIND(hh, s->segments, &segment, sizeof segment, sent);
    if (!sent)
        return;
    HASH_DEL(s->segments, sent);
    free(sent);
    if (s->last_sent == segment)
        s->last_sent = 0;
    session_send(s, &(struct dl_message){.number = DL_MSG_RETIRE, .retire = {.id = segment}});
}
