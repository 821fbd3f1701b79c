/*
 * Dispatch: one stream, the source, loads the batches of all ranks, and each rank's own stream
 * takes its rows of them, in order. See stream.h and core.h. Ranks that share their batches have a
 * source of their own and take all of its rows; here "ranks" includes sharers, and companions, of
 * which core_companions.c has the rest.
 *
 * A slot has a lease for each rank that has taken the step, and one for the source from the first
 * of these on until the last rank has taken it: a slot that one rank has read and released stays
 * for the others. A companion whose batches are smaller takes a step in several, each with a lease
 * (slices.h); steps of such are converted to the source's before they are compared. The `tail` is
 * the first step that some rank has yet to take; the source gives up all steps before it, in any
 * state. The ranks at the tail are counted: all ranks are scanned only when the last of them moves
 * on, once per step.
 */
#include "daemon/serve/core/core_private.h"

#include <stdio.h>

/* ---- the tail -------------------------------------------------------------------------------- */

uint64_t core_place_of(const struct stream *rank)
{
    uint64_t next = stream_next(rank);

    return next < rank->params.steps ? stream_step_of(rank, next) : UINT64_MAX;
}

static void dispatch_find_tail(struct stream *source)
{
    struct dispatch *d = source->dispatch;
    bool may_begin = d->roster->awaited > 0 || !d->ranks;
    uint64_t tail = may_begin ? source->params.first : UINT64_MAX, furthest = 0;
    const struct stream *rank;

    d->at_tail = 0;
    DL_FOREACH2 (d->ranks, rank, peer_next) {
        tail = min_u64(tail, core_place_of(rank));
        furthest = max_u64(furthest, min_u64(core_place_of(rank), source->params.steps));
    }
    if (d->keeps > 0)
        tail = min_u64(tail, furthest - min_u64(d->keeps, furthest));
    d->tail = max_u64(d->tail, min_u64(tail, source->params.steps));
    DL_FOREACH2 (d->ranks, rank, peer_next)
        d->at_tail += core_place_of(rank) == d->tail;
}

void core_trim(struct core *core, struct stream *source)
{
    uint64_t before = source->dispatch->tail;
    struct step *step, *next;

    dispatch_find_tail(source);
    if (source->dispatch->tail == before)
        return;
    HASH_ITER (hh, source->steps, step, next) {
        if (step->number < source->dispatch->tail)
            core_drop_step(core, source, step);
    }
    stream_skip(source, source->dispatch->tail);
    core_touch(core, source);
}

/* The rank was at that step, and is further on, perhaps. */
static void dispatch_note_progress(struct core *core, const struct stream *rank, uint64_t was)
{
    struct dispatch *d = rank->source->dispatch;

    if (core_place_of(rank) == was || (was != d->tail && d->keeps == 0))
        return;
    assert(d->at_tail > 0 || was != d->tail);
    d->at_tail -= was == d->tail;
    if (d->at_tail == 0)
        core_trim(core, rank->source);
}

/* ---- joining a source ------------------------------------------------------------------------ */

struct stream_params core_source_params(const struct stream_params *like, uint32_t credits)
{
    struct stream_params params = *like;

    params.rank = like->sharers || like->companion ? like->rank : PLAN_ALL;
    params.sharer = 0;
    if (like->companion)
        params.job[0] = '\0'; /* it is of none, or of all */
    params.first = slices_step(&like->slices, like->first);
    params.slices = (struct slices){0};
    params.source = true;
    params.credits = credits;
    params.steps = STEPS_UNKNOWN;
    return params;
}

/* The stream of that rank, or sharer, that takes from it; NULL: none, or companions do. */
static const struct stream *dispatch_find_rank(const struct stream *source, uint64_t member)
{
    const struct stream *stream;

    DL_FOREACH2 (source->dispatch->ranks, stream, peer_next) {
        if (!stream->params.companion && stream_member(&stream->params) == member)
            return stream;
    }
    return NULL;
}

/* What the rank may join; those that have left its step behind do not wait for it any more. */
struct stream *core_find_source(struct core *core, const struct stream *stream)
{
    struct stream *source, *found = NULL;
    uint64_t rank = stream_member(&stream->params);
    uint64_t first = stream_step_of(stream, stream->params.first);

    (void)!roster_book_come(&core->rosters, &stream->params);
    core_pay_for_rosters(core); /* there may be one less */
    DL_FOREACH2 (core->sources, source, peer_next) {
        if (!roster_same_epoch(&source->params, &stream->params))
            continue;
        if (source->dispatch->tail > first) {
            roster_excuse(source->dispatch->roster, rank);
            core_trim(core, source);
        } else if (!found && !dispatch_find_rank(source, rank) &&
                   (!stream->params.companion || first <= source->to_plan)) {
            found = source;
        }
    }
    return found;
}

/* The source's epoch precedes the other one, in the same job and world. */
static bool dispatch_is_before(const struct stream *source, const struct stream_params *other)
{
    const struct stream_params *params = &source->params;

    return params->epoch + 1 == other->epoch && roster_same_members(params, other);
}

/*
 * A rank in the next epoch has finished this one, even if this daemon never saw it: after a
 * daemon's restart, ranks may be that far apart. Sources of the epoch before do not wait for
 * `stream`, ...
 */
static void dispatch_excuse_before(struct core *core, const struct stream *stream)
{
    struct stream *source;

    DL_FOREACH2 (core->sources, source, peer_next) {
        struct roster *roster = source->dispatch->roster;

        if (!dispatch_is_before(source, &stream->params) ||
            roster_of(roster, stream_member(&stream->params)) != ROSTER_AWAITED)
            continue;
        roster_done(roster, stream_member(&stream->params));
        core_trim(core, source);
    }
}

/* ... and a source that begins in the epoch before does not wait for ranks in the next. */
static void dispatch_excuse_next(const struct core *core, struct stream *own)
{
    const struct stream *source, *rank;

    DL_FOREACH2 (core->sources, source, peer_next) {
        if (!dispatch_is_before(own, &source->params))
            continue;
        DL_FOREACH2 (source->dispatch->ranks, rank, peer_next)
            roster_done(own->dispatch->roster, stream_member(&rank->params));
    }
}

/*
 * Ranks that need not be awaited by a rank that begins with its own source: those that have
 * finished the epoch, and, if it comes back at a step that others have passed, these others, since
 * they do not come back with it.
 */
static void dispatch_excuse_others(struct core *core, struct stream *own,
                                   const struct stream_params *first, const struct roster *known)
{
    const struct stream *source;

    if (known)
        roster_learn_done(own->dispatch->roster, known);
    /* A source that already has this rank is another job's, all of whose ranks will come. */
    DL_FOREACH2 (core->sources, source, peer_next) {
        if (source != own && roster_same_epoch(&source->params, first) &&
            !dispatch_find_rank(source, stream_member(first)))
            roster_learn(own->dispatch->roster, source->dispatch->roster);
    }
    dispatch_excuse_next(core, own);
}

int core_add_source(struct core *core, struct stream *source, const struct stream *first,
                    struct dl_error *err)
{
    struct dispatch *d = must_alloc(sizeof *d);

    assert(stream_is_source(source) && !source->dispatch);
    d->tail = source->params.first;
    d->roster = roster_new(stream_members(&source->params));
    if (source->params.companion) /* who is ahead has taken as many as it has credits */
        d->keeps = core->o.spec->share_window + source->params.credits;
    source->dispatch = d;
    DL_APPEND2(core->sources, source, peer_prev, peer_next);
    if (first)
        dispatch_excuse_others(core, source, &first->params,
                               roster_book_come(&core->rosters, &first->params));
    return core_pay_for_source(core, source, err);
}

/*
 * In the middle of an epoch ranks come back, and some may be gone permanently, or have come to the
 * epoch's end under another daemon: they are awaited as long as a trainer that has died is, counted
 * from the last one that came, or CORE_WAIT_NS.
 */
static void dispatch_be_patient(const struct core *core, struct stream *source, uint64_t now)
{
    struct dispatch *d = source->dispatch;

    if (d->roster->awaited == 0)
        d->patience_ends = 0;
    else if (source->params.first > 0)
        d->patience_ends = now + core->o.linger_ns;
}

void core_join(struct core *core, struct stream *stream, struct stream *source, uint64_t now)
{
    struct dispatch *d = source->dispatch;

    assert(!stream->source && d->tail <= stream_step_of(stream, stream_next(stream)));
    roster_come(d->roster, stream_member(&stream->params));
    DL_APPEND2(d->ranks, stream, peer_prev, peer_next);
    stream->source = source;
    if (source->phase == STREAM_EXPECTED)
        stream_become(source, STREAM_SOURCE);
    core_unlink_expected(core, source);
    core_touch(core, source);
    core_touch(core, stream);
    dispatch_be_patient(core, source, now);
    core_trim(core, source);
    dispatch_excuse_before(core, stream);
}

bool core_waits_in_source(const struct stream *rank)
{
    const struct stream *source = rank->source;

    return stream_has_room(rank) && core_place_of(rank) >= source->to_plan &&
           stream_window(source) >= source->window_most;
}

bool core_is_waited_at(const struct core *core, const struct stream *source)
{
    const struct dispatch *d = source->dispatch;
    const struct stream *rank;

    if (source->params.companion)
        return core_is_held_up(core, source);
    if (!d->patience_ends || d->at_tail > 0) /* the latter: for one that is here */
        return false;
    DL_FOREACH2 (d->ranks, rank, peer_next) {
        if (core_waits_in_source(rank))
            return true;
    }
    return false;
}

/* Those that might have come back have not. */
void core_lose_patience(struct core *core, struct stream *source)
{
    const struct stream_params *params = &source->params;
    struct dispatch *d = source->dispatch;
    char text[512];

    if (source->params.companion) {
        core_leave_behind(core, source);
        return;
    }
    d->patience_ends = d->waited_since = 0;
    if (d->roster->awaited == 0)
        return;
    (void)snprintf(text, sizeof text,
                   "%s %llu of %llu has not joined epoch %llu%s%s, which others rejoined at "
                   "step %llu: they continue without it",
                   params->sharers ? "replica" : "rank", (ull)roster_first_awaited(d->roster),
                   (ull)stream_members(params), (ull)params->epoch,
                   params->job[0] ? " of job " : "", params->job, (ull)d->tail);
    core_say(core, CORE_LOG, source, text);
    roster_excuse_all(d->roster);
    core_trim(core, source);
}

void core_leave(struct core *core, struct stream *stream, bool lost)
{
    struct stream *source = stream->source;

    if (!source)
        return;
    struct dispatch *d = source->dispatch;
    stream->source = NULL;
    DL_DELETE2(d->ranks, stream, peer_prev, peer_next);
    if (!lost)
        roster_done(d->roster, stream_member(&stream->params));
    if (!d->ranks)
        core_end(core, source);
    else
        core_trim(core, source);
}

/* ---- taking ---------------------------------------------------------------------------------- */

/* What of the source's step is the rank's. */
static struct plan_rows dispatch_rows_of(const struct stream *stream, const struct step *step)
{
    uint64_t rank = stream->params.rank;

    if (stream_takes_all(stream))
        return slices_rows(&stream->params.slices, stream_next(stream), step->samples,
                           step->repeated);
    if (!stream->plan)
        return plan_rows(step->samples, step->repeated, stream->params.world, rank);
    struct plan_slice slice = plan_slice(stream->plan, rank, step->number);
    return (struct plan_rows){slice.first, slice.samples,
                              plan_repeated(stream->plan, rank, step->number)};
}

/* The rank's step of the source's, which is READY. */
static void dispatch_take_batch(struct core *core, struct stream *stream, struct step *step)
{
    struct plan_rows rows = dispatch_rows_of(stream, step);

    /* A last round of an iterable dataset, too small for all ranks. */
    if (rows.samples == 0 && !stream_takes_all(stream)) {
        stream_end_replica(stream, step->number);
        return;
    }
    struct step *own = stream_plan(stream);
    assert(stream_step_of(stream, own->number) == step->number);
    if (!step->own_lease)
        core_slot(core, step->segment, step->slot, SLOT_LEASE);
    step->own_lease = own->own_lease = true;
    core_slot(core, step->segment, step->slot, SLOT_LEASE);
    own->repeated = (uint32_t)rows.repeated;
    step_run(own, step->segment, step->slot, (uint32_t)rows.samples);
    step_ready(own, (uint32_t)rows.samples, step->bytes);
    own->run_ns = step->run_ns;
    own->made = step->made;
    own->first = (uint32_t)rows.first;
    own->all = step->samples;
    own->tokens = step->tokens;
    own->padded = step->padded;
    own->n_indices = step->n_indices;
    memcpy(own->named, step->named, sizeof own->named);
}

static void dispatch_take_fault(struct stream *stream, const struct step *step)
{
    struct step *own = stream_plan(stream);

    assert(own->number == step->number);
    step_fault(own, step->error, step->detail ? must_strdup(step->detail) : NULL);
}

void core_take_steps(struct core *core, struct stream *stream)
{
    struct stream *source = stream->source;
    uint64_t was = core_place_of(stream);
    struct step *step;

    if (stream->ends)
        stream_learn_ends(stream, source);
    while (stream_has_room(stream) &&
           (step = stream_find(source, stream_step_of(stream, stream_next(stream)))) &&
           (step->state == STEP_READY || step->state == STEP_FAULTED)) {
        if (step->state == STEP_FAULTED && core_leave_fault(core, stream))
            return;
        if (step->state == STEP_FAULTED || !core_admit(core, stream, step))
            dispatch_take_fault(stream, step);
        else
            dispatch_take_batch(core, stream, step);
    }
    dispatch_note_progress(core, stream, was);
}

/* ---- views ----------------------------------------------------------------------------------- */

uint64_t core_waits_for(const struct stream *stream, bool *ret_started)
{
    const struct stream *source = stream->source, *rank;
    uint64_t lowest = UINT64_MAX;

    if (!source || source->params.companion || !core_waits_in_source(stream))
        return UINT64_MAX;
    const struct dispatch *d = source->dispatch;
    *ret_started = d->roster->awaited == 0;
    if (d->roster->awaited > 0)
        return roster_first_awaited(d->roster);
    DL_FOREACH2 (d->ranks, rank, peer_next) {
        if (core_place_of(rank) == d->tail)
            lowest = min_u64(lowest, stream_member(&rank->params));
    }
    return lowest;
}
