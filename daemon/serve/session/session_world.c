/* Streams of a session when the world of the cluster changes. */
#include "daemon/serve/session/session_private.h"

#include <assert.h>
#include <errno.h>

/* The point in the order of the stream's epoch after `steps` steps of its rank. */
static struct progress_point session_world_point_of(const struct client_stream *cs, uint64_t steps)
{
    const struct stream_params *params = &cs->stream->params;
    struct progress_point point;

    /* Without room in its history the epoch cannot resume: it counts as done. */
    if (!progress_point_after(&point, cs->place.pass, params->epoch, &params->before, params->world,
                              steps))
        point = (struct progress_point){.pass = cs->place.pass, .epoch = params->epoch + 1};
    return point;
}

/* The point after `steps` steps, or (`all`) at the end of the epoch. */
static struct progress_point session_world_point(const struct client_stream *cs, uint64_t steps,
                                                 bool all)
{
    if (!all)
        return session_world_point_of(cs, steps);
    return (struct progress_point){.pass = cs->place.pass, .epoch = cs->stream->params.epoch + 1};
}

static void session_world_note_stream(struct client_stream *cs)
{
    const struct stream *stream = cs->stream;
    bool limited = stream->limit < stream->params.steps;
    struct progress_point given, behind;

    if (!cs->shared)
        return;
    given = session_world_point(cs, stream_given(stream), stream->told & TOLD_END && !limited);
    behind = session_world_point(cs, stream_position(stream), stream_done(stream));
    shared_loader_note(cs->shared, cs->local, cs, &given, &behind);
}

static void session_world_hold(void *loader, uint64_t position)
{
    loader_hold(loader, position);
}

static uint64_t session_world_take(void *loader, struct mix_changes *list)
{
    return loader_take_changes(loader, list);
}

static bool session_world_wait(void *loader, const struct dl_error *why)
{
    return loader_wait_for_nodes(loader, why);
}

static void session_world_fail(void *loader, const struct dl_error *why)
{
    loader_fail_changes(loader, why);
}

static const struct given_weights_ops session_world_ops = {.hold = session_world_hold,
                                                           .take = session_world_take,
                                                           .wait = session_world_wait,
                                                           .fail = session_world_fail};

void session_join_world(struct client_stream *cs)
{
    struct loader *loader = cs->opened->user.loader;

    assert(loader && cs->shared);
    shared_loader_started(cs->shared, cs->local, &cs->place, cs->session, cs);
    if (loader_weights_can_change(loader))
        given_weights_attach(cs->shared, loader, &session_world_ops);
}

void session_leave_world(struct client_stream *cs, bool stopped)
{
    struct progress_point behind;
    bool all;

    cs->end_due = false;
    if (!cs->shared)
        return;
    enum rank_next next = RANK_RESTS;
    if (stopped) {
        uint64_t steps = stream_used(cs->stream, &all);
        if (!all && steps < cs->stream->limit)
            next = RANK_GOES_AWAY;
        else if (cs->stream->limit < cs->stream->params.steps)
            next = RANK_GOES_ON;
        behind = session_world_point(cs, steps, all);
        shared_loader_note(cs->shared, cs->local, cs, &behind, &behind);
    } else {
        session_world_note_stream(cs);
    }
    shared_loader_ended(cs->shared, cs->local, cs, next);
}

static bool session_world_goes_on(const struct client_stream *cs)
{
    return cs->cluster && cs->stream->phase != STREAM_STOPPED && !(cs->stream->told & TOLD_END);
}

/* Also one whose client has the last steps: other ranks may take those that it has not used. */
static bool session_world_can_be_cut(const struct client_stream *cs)
{
    return cs->cluster && cs->stream->phase != STREAM_STOPPED &&
           (!(cs->stream->told & TOLD_END) ||
            (cs->shared && !stream_done(cs->stream) && cs->stream->limit == UINT64_MAX));
}

/* The number of steps that its client has used; from now on it uses no more. */
static uint64_t session_world_used(const struct client_stream *cs)
{
    uint64_t used = max_u64(position_close(cs->position), stream_position(cs->stream));

    return min_u64(used, stream_given(cs->stream));
}

/* Nothing given to it can be taken back: it waits to learn what is missing of the epoch. */
static bool session_world_has_used_all(const struct client_stream *cs)
{
    const struct stream *stream = cs->stream;

    return cs->position && stream->phase != STREAM_STOPPED &&
           stream->limit >= stream->params.steps &&
           (atomic_load(&cs->position->word) & ~POSITION_CLOSED) == stream->params.steps;
}

static void session_world_note_end(struct client_stream *cs)
{
    struct progress_point end = session_world_point(cs, cs->stream->params.steps, true);

    if (cs->shared)
        shared_loader_note(cs->shared, cs->local, cs, &end, &end);
}

/* False: its client does not count its steps. */
static bool session_world_close(struct client_stream *cs)
{
    if (!cs->position)
        return false;
    uint64_t used = session_world_used(cs);
    bool all = used == cs->stream->params.steps;
    struct progress_point at = session_world_point(cs, used, all);

    shared_loader_note(cs->shared, cs->local, cs, &at, &at);
    shared_loader_ended(cs->shared, cs->local, cs, all ? RANK_RESTS : RANK_GOES_ON);
    return true;
}

static void session_world_leave_at_cut(struct client_stream *cs)
{
    session_world_note_stream(cs);
    if (!session_world_close(cs))
        shared_loader_mark_report_due(cs->shared, cs->local, cs);
}

static void session_world_cut(struct client_stream *cs, const struct dl_error *why)
{
    cs->end_due = false;
    if (!stream_is_settled(cs->stream)) {
        session_started(cs->stream, NULL, why);
        return;
    }
    assert(cs->opened->user.loader);
    if (cs->shared)
        session_world_leave_at_cut(cs);
    loader_stop(cs->opened->user.loader, cs->stream);
    session_fault_with(cs->stream, UINT64_MAX, why, NULL, true, true);
}

/* A stream that cannot resume in another world ends only when this world does. */
static void session_world_meet_alone(struct client_stream *cs, enum world_event event,
                                     const struct dl_error *why)
{
    if (session_world_goes_on(cs) && (event == WORLD_JOINED || event == WORLD_LOST))
        session_world_cut(cs, why);
}

static void session_world_meet(struct client_stream *cs, enum world_event event,
                               const struct dl_error *why)
{
    switch (world_actions[event]) {
    case WORLD_NOTE:
        session_world_note_stream(cs);
        break;
    case WORLD_PAUSE:
        if (session_world_goes_on(cs) && cs->stream->phase != STREAM_PAUSED)
            loader_pause(cs->opened->user.loader, cs->stream);
        break;
    case WORLD_CUT:
        if (session_world_has_used_all(cs))
            session_world_note_end(cs);
        else if (session_world_can_be_cut(cs))
            session_world_cut(cs, why);
        break;
    case WORLD_CLOSE:
        session_world_note_stream(cs);
        if (session_world_can_be_cut(cs) && stream_is_settled(cs->stream))
            (void)session_world_close(cs); /* what another client has used it says itself later */
        break;
    }
}

void session_world_happens(struct session *s, enum world_event event, const struct dl_error *why)
{
    struct client_stream *cs;
    struct client_stream *next;

    HASH_ITER (hh, s->streams, cs, next) {
        if (cs->shared)
            session_world_meet(cs, event, why);
        else
            session_world_meet_alone(cs, event, why);
    }
    if (event == WORLD_NOTED || event == WORLD_LEFT)
        return;
    if (!s->ending)
        session_pump(s);
    session_flush(s);
}

/* False: it waits on. */
static bool session_world_resume_stream(struct client_stream *cs)
{
    struct dl_error err = {0}, why = {0};
    uint64_t limit;
    int r = shared_loader_limit(cs->shared, &cs->place, &limit, &err);

    if (r == 1)
        return false;
    if (r == 0) {
        loader_resume(cs->opened->user.loader, cs->stream, limit);
        return true;
    }
    dl_error_set(&why, ESTALE, "world",
                 "changed, and the nodes have not agreed on a position (%s: %s); start the "
                 "epoch again from its state",
                 err.path, err.message);
    session_world_cut(cs, &why);
    return true;
}

void session_world_go_on(struct session *s)
{
    struct client_stream *cs;
    struct client_stream *next;
    bool any = false;

    HASH_ITER (hh, s->streams, cs, next) {
        if (cs->stream->phase == STREAM_PAUSED && session_world_resume_stream(cs))
            any = true;
        if (cs->end_due)
            session_world_finish(cs);
    }
    if (any && !s->ending)
        session_pump(s);
    if (any)
        session_flush(s);
}

void session_world_finish(struct client_stream *cs)
{
    struct dl_error missing = {0};
    int r;

    assert(cs->end_due && cs->shared);
    if (cs->stream->in_state[STEP_LEASED] > 0)
        return;
    if (!cs->end_ns)
        cs->end_ns = uv_hrtime();
    r = shared_loader_finish(cs->shared, &cs->place, cs->stream->params.steps, cs->end_ns,
                             &missing);

    if (r == 1)
        return;
    cs->end_due = false;
    if (r < 0)
        session_fault_with(cs->stream, UINT64_MAX, &missing, NULL, true, false);
    else
        session_tells_end(cs);
}

uint64_t session_left_out(const struct stream *stream)
{
    const struct client_stream *cs = stream->sink;

    return cs && cs->shared ? shared_loader_left_out(cs->shared, &cs->place, stream->params.steps)
                            : 0;
}

void session_world_forget(struct session *s)
{
    for (struct client_stream *cs = s->streams; cs; cs = cs->hh.next)
        cs->shared = NULL, cs->end_due = false;
}
