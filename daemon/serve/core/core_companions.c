/*
 * Companions: jobs that read the same batches (share.window), without knowing of each other. They
 * take from one source as ranks do (core_dispatch.c), with three differences.
 *
 * They may come at any time: the source keeps the last steps that all have taken, for one that
 * comes a little later, or comes back. One that comes later than that has its own source.
 *
 * They may be apart by the window, and one that is ahead waits for those behind, in all of an epoch
 * no longer than share.wait. From then on one that holds another up is left behind: it loads its
 * batches itself, as if it were alone.
 *
 * One that comes to a step that a source further on has, takes it from there.
 *
 * One whose batches are parts of the shared ones (slices.h) takes as many steps from one of these.
 * Where such a batch cannot be made it makes its own, of which only one has the sample that is bad:
 * so it gets what it would get alone.
 */
#include "daemon/serve/core/core_private.h"

#include <stdio.h>

/* ---- waiting --------------------------------------------------------------------------------- */

/* The lowest step that some companion has yet to take; UINT64_MAX: they have all. */
static uint64_t companions_lowest(const struct stream *source)
{
    uint64_t lowest = UINT64_MAX;
    const struct stream *one;

    DL_FOREACH2 (source->dispatch->ranks, one, peer_next)
        lowest = min_u64(lowest, core_place_of(one));
    return lowest;
}

/* Nothing is made of its next step, for want of memory; what it needs may be in others' slots. */
static bool companions_starves(const struct core *core, const struct stream *one)
{
    const struct step *step = stream_find(one->source, stream_step_of(one, stream_next(one)));

    return core->starved && stream_has_room(one) && (!step || step->state == STEP_WAITING);
}

bool core_is_held_up(const struct core *core, const struct stream *source)
{
    uint64_t lowest = companions_lowest(source);
    const struct stream *one;

    DL_FOREACH2 (source->dispatch->ranks, one, peer_next) {
        /* What it holds may be what it computes on; but one that keeps batches must get further. */
        if (stream_undelivered(one) == 0 && core_place_of(one) > lowest &&
            (core_waits_in_source(one) || companions_starves(core, one)))
            return true;
    }
    return false;
}

/* ---- apart ----------------------------------------------------------------------------------- */

static void companions_say_left(struct core *core, struct stream *one, const struct stream *source)
{
    const struct stream_params *p = &one->params;
    char text[512];

    (void)snprintf(text, sizeof text,
                   "epoch %llu%s%s: others read the same batches and have waited %llu ms for this "
                   "one, which is at step %llu: it goes on alone (share.wait)",
                   (ull)p->epoch, p->job[0] ? " of job " : "", p->job,
                   (ull)(source->dispatch->waited_ns / 1000000), (ull)stream_next(one));
    core_say(core, CORE_LOG, one, text);
}

void core_leave_behind(struct core *core, struct stream *source)
{
    struct dispatch *d = source->dispatch;
    uint64_t lowest = companions_lowest(source);
    struct stream *one, *next;

    d->waited_ns = max_u64(d->waited_ns, core->o.spec->share_wait_ns);
    d->waited_since = 0;
    d->keeps = 0; /* or they would take from here again */
    DL_FOREACH_SAFE2(d->ranks, one, next, peer_next)
    {
        if (core_place_of(one) != lowest)
            continue;
        assert(d->ranks->peer_next); /* the one that waits for it stays */
        companions_say_left(core, one, source);
        core_leave(core, one, true);
        core_touch(core, one);
    }
}

bool core_keep_less(struct core *core)
{
    struct stream *source;
    bool any = false;

    DL_FOREACH2 (core->sources, source, peer_next) {
        uint64_t before = source->dispatch->tail;

        if (source->dispatch->keeps == 0)
            continue;
        source->dispatch->keeps = 0;
        core_trim(core, source);
        any |= source->dispatch->tail != before;
    }
    return any;
}

bool core_leave_fault(struct core *core, struct stream *one)
{
    if (!slices_cut(&one->params.slices))
        return false;
    core_leave(core, one, true);
    core_touch(core, one);
    return true;
}

/* ---- together -------------------------------------------------------------------------------- */

/* It made its own batches of a shared one that cannot be made, and is not behind it yet. */
static bool companions_left_fault(const struct stream *source, const struct stream *one)
{
    const struct step *step = stream_find(source, stream_step_of(one, stream_next(one)));

    return step && step->state == STEP_FAULTED && slices_cut(&one->params.slices);
}

/* The source that is furthest on, of those that have the companion's next step. */
static struct stream *companions_find(const struct core *core, const struct stream *one)
{
    uint64_t next = stream_step_of(one, stream_next(one));
    uint64_t furthest = one->source ? one->source->to_plan : next;
    struct stream *source, *found = NULL;

    DL_FOREACH2 (core->sources, source, peer_next) {
        if (source == one->source || source->to_plan <= furthest || source->dispatch->tail > next ||
            !roster_same_epoch(&source->params, &one->params) || companions_left_fault(source, one))
            continue;
        furthest = source->to_plan;
        found = source;
    }
    return found;
}

/* What is being made for itself comes first: its slots may be needed for that. */
void core_catch_up(struct core *core, struct stream *stream, uint64_t now)
{
    struct stream *found =
        core_place_of(stream) == UINT64_MAX ? NULL : companions_find(core, stream);

    stream->catches_up =
        found && stream->in_state[STEP_WAITING] + stream->in_state[STEP_RUNNING] > 0;
    if (!found || stream->catches_up)
        return;
    core_leave(core, stream, true);
    core_join(core, stream, found, now);
}
