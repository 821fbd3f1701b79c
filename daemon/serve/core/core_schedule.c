/* Which step is loaded next, and where: what there is to do goes to workers that have a slot for
 * it. */
#include "daemon/serve/core/core_private.h"

#include <stdio.h>

/* Work on its way to workers. */
struct round {
    struct core *core;
    struct worker_room *rooms;
    /* The first stream in the best band that got no place; or NULL. */
    const struct stream *lacking;
    enum core_band lacking_band;
    uint32_t lacks;     /* the worker it needs */
    uint32_t may_begin; /* of this machine's workers that are idle, so many more get a step */
};

/* Those that steps can be bound to, each with queues of its own. */
static uint32_t schedule_n_own(const struct core *core)
{
    return core->o.spec->workers;
}

/* The worker that the step must run on, or CORE_ANY. */
static uint32_t schedule_worker_of(const struct core *core, const struct stream *stream,
                                   uint64_t number)
{
    if (core->o.in_turn)
        return (uint32_t)(number % schedule_n_own(core));
    return stream->params.replicas ? step_replica(stream, number) : CORE_ANY;
}

/* ---- which streams want a step --------------------------------------------------------------- */

/* The stream may load a further step; an expected one with what its predecessor leaves. */
static bool schedule_wants_step(const struct stream *stream)
{
    if (stream->source || stream->unplanned || stream->catches_up || !stream_has_room(stream))
        return false;
    const struct stream *before = stream->predecessor;
    return !before || stream_window(before) + stream_window(stream) < stream->window_most;
}

static enum core_band schedule_band_of(const struct stream *stream)
{
    static const enum core_band bands[] = {
        [PRIORITY_NORMAL] = BAND_NORMAL, [PRIORITY_HIGH] = BAND_HIGH, [PRIORITY_LOW] = BAND_LOW};

    return stream_is_expected(stream) ? BAND_EXPECTED : bands[stream->params.priority];
}

static struct stream **schedule_queue_of(const struct core *core, const struct stream *stream)
{
    uint32_t worker = schedule_worker_of(core, stream, stream_next(stream));

    return &core->wanting[core_n_queues(core, schedule_band_of(stream)) +
                          (worker == CORE_ANY ? schedule_n_own(core) : worker)];
}

static void schedule_requeue(struct core *core, struct stream *stream, bool at_front)
{
    struct stream **queue = schedule_wants_step(stream) ? schedule_queue_of(core, stream) : NULL;

    if (stream->phase != STREAM_PARKED && queue != stream->queue)
        core_enqueue(stream, queue, at_front);
}

void core_requeue(struct core *core, struct stream *stream)
{
    schedule_requeue(core, stream, false);
}

bool core_wants(const struct core *core)
{
    for (uint32_t i = 0; i < core_n_queues(core, BAND_EXPECTED); i++)
        if (core->wanting[i])
            return true;
    return core->waiting;
}

/* The first step that is wanted: by its epoch, then by its number. */
struct wanted {
    uint64_t epoch, number;
};

static bool schedule_is_before(uint64_t epoch, uint64_t number, const struct wanted *other)
{
    return epoch < other->epoch || (epoch == other->epoch && number < other->number);
}

/* Ranks of a job wait for each other where batches are dispatched; else a stream has its own. */
static bool schedule_waits_with(const struct stream *stream, const struct stream *other)
{
    return stream == other || (stream_is_source(stream) && !stream->params.companion &&
                               strcmp(stream->params.job, other->params.job) == 0);
}

static void schedule_note_wanted(const struct stream *waits, const struct stream *stream,
                                 uint64_t number, struct wanted *first)
{
    if (schedule_waits_with(waits, stream) &&
        schedule_is_before(stream->params.epoch, number, first))
        *first = (struct wanted){stream->params.epoch, number};
}

static struct wanted schedule_first_wanted(const struct core *core, const struct stream *waits)
{
    struct wanted first = {UINT64_MAX, UINT64_MAX};
    const struct stream *stream;
    const struct step *step;

    for (uint32_t i = 0; i < core_n_queues(core, BAND_EXPECTED); i++) {
        DL_FOREACH2 (core->wanting[i], stream, queue_next)
            schedule_note_wanted(waits, stream, stream_next(stream), &first);
    }
    DL_FOREACH (core->waiting, step)
        schedule_note_wanted(waits, step->stream, step->number, &first);
    return first;
}

static bool schedule_is_first_wanted(const struct core *core, const struct step *step)
{
    struct wanted first = schedule_first_wanted(core, step->stream);

    return !schedule_is_before(first.epoch, first.number,
                               &(struct wanted){step->stream->params.epoch, step->number});
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Behind those that the loader began with, and before those that it got later. */
static bool schedule_is_away(const struct core *core, uint32_t worker)
{
    return worker >= schedule_n_own(core) && worker < core_n_workers(core);
}

static bool schedule_has_room(const struct round *round, uint32_t worker)
{
    const struct worker_room *room = &round->rooms[worker];

    return room->slots > 0 && room->tasks > 0 &&
           (room->has > 0 || round->may_begin > 0 || schedule_is_away(round->core, worker));
}

/* When it would have done one step more; ns. What it is at is half done. */
static double schedule_takes(const struct worker_room *room)
{
    return (double)room->cost_ns * (room->has == 0 ? 1 : room->has + 0.5);
}

static bool schedule_runs_any(const struct round *round)
{
    for (uint32_t i = 0; i < round->core->workers; i++)
        if (round->rooms[i].has > 0)
            return true;
    return false;
}

/* Whether it would have done a step before all others have done those that there may be ahead: else
 * these wait for it, as batches come in order, and the loader is slower with it than without. Those
 * that have no slot left do none, unless a step is under way that they may wait for. */
static bool schedule_keeps_up(const struct round *round, const struct stream *stream,
                              uint32_t worker)
{
    bool waits = schedule_runs_any(round);
    double others = 0; /* steps in a nanosecond */

    for (uint32_t i = 0; i < round->core->workers; i++) {
        const struct worker_room *room = &round->rooms[i];

        if (i != worker && room->cost_ns > 0 && (waits || (room->tasks > 0 && room->slots > 0)))
            others += 1 / (double)room->cost_ns;
    }
    return stream->params.any_order ||
           others * schedule_takes(&round->rooms[worker]) <= stream->window_most;
}

/* Of other machines' workers the one that would be done first; or CORE_ANY. */
static uint32_t schedule_find_away(const struct round *round, const struct stream *stream)
{
    const struct core *core = round->core;
    uint32_t best = CORE_ANY;

    for (uint32_t i = schedule_n_own(core); i < core_n_workers(core); i++) {
        const struct worker_room *room = &round->rooms[i];

        if (schedule_has_room(round, i) && schedule_keeps_up(round, stream, i) &&
            (best == CORE_ANY || schedule_takes(room) < schedule_takes(&round->rooms[best])))
            best = i;
    }
    return best;
}

/* The least busy worker with room, or `worker` if it has room; else CORE_ANY. Other machines' are
 * there for what this one's have no room for: those keep the network free, and are done sooner. */
static uint32_t schedule_find_place(const struct round *round, const struct stream *stream,
                                    uint32_t worker)
{
    uint32_t best = CORE_ANY;

    for (uint32_t i = 0; i < round->core->workers; i++) {
        const struct worker_room *room = &round->rooms[i];

        if ((worker == CORE_ANY || worker == i) && !schedule_is_away(round->core, i) &&
            schedule_has_room(round, i) && (best == CORE_ANY || room->has < round->rooms[best].has))
            best = i;
    }
    return best == CORE_ANY && worker == CORE_ANY ? schedule_find_away(round, stream) : best;
}

static void schedule_run(struct round *round, struct step *step, uint32_t worker)
{
    struct worker_room *room = &round->rooms[worker];
    struct core_command *command = core_command(round->core, CORE_RUN, step->stream);

    command->step = step;
    command->worker = worker;
    if (room->has == 0 && round->may_begin < UINT32_MAX && !schedule_is_away(round->core, worker))
        round->may_begin--;
    room->slots--;
    room->tasks--;
    room->has++;
}

static void schedule_note_lack(struct round *round, const struct stream *stream,
                               enum core_band band, uint32_t worker)
{
    if (round->lacking && round->lacking_band <= band)
        return;
    round->lacking = stream;
    round->lacking_band = band;
    round->lacks = worker;
}

/* ---- steps that were run before -------------------------------------------------------------- */

/* One that was given up comes last, and once it is the first that is wanted: it would take the
 * memory that it was given up for. */
static enum core_band schedule_band_again(const struct step *step)
{
    return step->yields ? BAND_EXPECTED : schedule_band_of(step->stream);
}

/*
 * Steps to run again: in the order of their bands, and earlier ones first. Where there is memory
 * for one only, it must be the one that is due.
 */
static int schedule_compare_steps(const struct step *a, const struct step *b)
{
    enum core_band band_a = schedule_band_again(a), band_b = schedule_band_again(b);

    if (band_a != band_b)
        return band_a < band_b ? -1 : 1;
    if (a->stream->params.epoch != b->stream->params.epoch)
        return a->stream->params.epoch < b->stream->params.epoch ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

static void schedule_wait_again(struct core *core, struct step *step)
{
    assert(step->state == STEP_WAITING);
    DL_INSERT_INORDER(core->waiting, step, schedule_compare_steps);
    core->again = true;
}

bool core_wait_no_more(struct core *core, struct step *step)
{
    if (!step->prev)
        return false;
    DL_DELETE(core->waiting, step);
    step->prev = step->next = NULL;
    if (step->unplanned)
        step->unplanned = step->stream->unplanned = false;
    step->yields = false;
    return true;
}

void core_run_again(struct core *core, struct step *step)
{
    step_lost(step);
    schedule_wait_again(core, step);
}

void core_postpone(struct core *core, struct step *step, bool unplanned)
{
    schedule_wait_again(core, step);
    step->unplanned = step->stream->unplanned = unplanned;
    if (unplanned)
        core_touch(core, step->stream);
}

void core_planned(struct core *core)
{
    struct step *step;

    DL_FOREACH (core->waiting, step) {
        if (!step->unplanned)
            continue;
        step->unplanned = step->stream->unplanned = false;
        core_touch(core, step->stream);
        core->again = true;
    }
}

/* It has the samples of a batch that did not fit, and is there to fill a larger slot, if need be
 * once that is mapped; or CORE_ANY. */
static uint32_t schedule_keeper_of(const struct round *round, const struct step *step)
{
    uint32_t keeper = step->kept_by - 1;

    if (step->kept_by == 0 || keeper >= round->core->workers)
        return CORE_ANY;
    const struct worker_room *room = &round->rooms[keeper];
    return room->bare || schedule_has_room(round, keeper) ? keeper : CORE_ANY;
}

/* *ret_needs: the worker that the step waits for, if there is no place; it may be CORE_ANY. */
static uint32_t schedule_find_place_again(const struct round *round, const struct step *step,
                                          uint32_t *ret_needs)
{
    uint32_t keeper = schedule_keeper_of(round, step);

    *ret_needs = schedule_worker_of(round->core, step->stream, step->number);
    if (*ret_needs != CORE_ANY || keeper == CORE_ANY)
        return schedule_find_place(round, step->stream, *ret_needs);
    *ret_needs = keeper;
    return round->rooms[keeper].bare ? CORE_ANY : keeper;
}

/* Steps whose worker died, whose slot was too small, or whose plan was not ready. */
static void schedule_run_waiting(struct round *round, bool yielding)
{
    struct core *core = round->core;
    struct step *step, *next;

    DL_FOREACH_SAFE (core->waiting, step, next) {
        if (step->unplanned || step->yields != yielding)
            continue;
        if (yielding && !schedule_is_first_wanted(core, step))
            continue;
        uint32_t needs, worker = schedule_find_place_again(round, step, &needs);

        if (worker == CORE_ANY) {
            schedule_note_lack(round, step->stream, schedule_band_again(step), needs);
            continue;
        }
        (void)!core_wait_no_more(core, step);
        schedule_run(round, step, worker);
    }
}

/* ---- the next steps -------------------------------------------------------------------------- */

/*
 * A turn is as many steps as a worker takes ahead: one, or several quick ones, which then come to
 * their client together and wake it once.
 */
static void schedule_take_turn(struct core *core, struct stream *stream, uint32_t ahead)
{
    bool over = ++stream->turn >= ahead;

    if (over)
        stream->turn = 0;
    if (over && stream->queue)
        core_enqueue(stream, NULL, false);
    schedule_requeue(core, stream, !over);
}

static void schedule_run_next(struct round *round, struct stream *stream, uint32_t worker)
{
    struct core *core = round->core;

    schedule_run(round, stream_plan(stream), worker);
    schedule_take_turn(core, stream, round->rooms[worker].ahead);
    if (stream->successor)
        core_requeue(core, stream->successor); /* they share one window */
    if (stream_next(stream) >= stream->params.steps)
        core_touch(core, stream);
}

/* Those that wait for that worker, in turn, as long as it has room. False: nothing was run. */
static bool schedule_serve(struct round *round, struct stream **queue, uint32_t needs)
{
    bool any = false;

    for (; *queue; any = true) {
        uint32_t worker = schedule_find_place(round, *queue, needs);

        if (worker == CORE_ANY) {
            schedule_note_lack(round, *queue, schedule_band_of(*queue), needs);
            return any;
        }
        schedule_run_next(round, *queue, worker);
    }
    return any;
}

/* A stream just served may now wait for a worker that was passed over before: workers can depend on
 * each other, such as datasets that meet at a barrier, and no further event would come. */
static void schedule_serve_band(struct round *round, enum core_band band)
{
    struct stream **queues = &round->core->wanting[core_n_queues(round->core, band)];
    uint32_t n = schedule_n_own(round->core);
    bool any;

    (void)schedule_serve(round, &queues[n], CORE_ANY);
    do {
        any = false;
        for (uint32_t i = 0; i < n; i++)
            any |= schedule_serve(round, &queues[i], i);
    } while (any);
}

static bool schedule_has_slot(const struct round *round, uint32_t worker)
{
    for (uint32_t i = 0; i < round->core->workers; i++)
        if ((worker == CORE_ANY || worker == i) && round->rooms[i].slots > 0)
            return true;
    return false;
}

/* Requests memory for wanted slots. Expected streams are not worth more memory. */
static void schedule_ask_for_memory(const struct round *round)
{
    if (!round->lacking || stream_is_expected(round->lacking) ||
        schedule_has_slot(round, round->lacks))
        return;
    core_command(round->core, CORE_GROW, NULL)->worker = round->lacks;
}

void core_schedule(struct core *core, struct worker_room *rooms)
{
    struct round round = {
        .core = core, .rooms = rooms, .may_begin = core->hold_idle ? core->may_begin : UINT32_MAX};

    core->again = core->starved = false;
    schedule_run_waiting(&round, false);
    for (enum core_band band = 0; band < BANDS; band++) {
        if (band == BAND_EXPECTED)
            schedule_run_waiting(&round, true);
        schedule_serve_band(&round, band);
    }
    schedule_ask_for_memory(&round);
}

/* ---- want of memory -------------------------------------------------------------------------- */

/*
 * A client that holds all slots, pinned or in an epoch that it no longer reads, would wait for
 * ever: it is asked to release some. A client that holds none waits for others' releases and only
 * gets a warning.
 */
static void schedule_tell_starving(struct core *core, struct stream *stream)
{
    const struct dl_error *err = &core->starving;
    char text[sizeof err->path + sizeof err->message + 64];

    if (!stream->sink || !stream_has_room(stream) || stream_window(stream) > 0)
        return;
    uint32_t leases = core_leases(core, stream);
    if (leases > 0 && leases != stream->starving_told) {
        stream->starving_told = leases;
        core_command(core, CORE_FAULT, stream)->err = err;
    } else if (leases == 0 && !(stream->told & TOLD_STARVING)) {
        stream->told |= TOLD_STARVING;
        (void)snprintf(text, sizeof text, "waiting for memory that others hold: %s: %s", err->path,
                       err->message);
        core_say(core, CORE_WARN, stream, text);
    }
}

static void schedule_tell_all_starving(struct core *core, struct stream *wanting)
{
    struct stream *stream, *rank;

    DL_FOREACH2 (wanting, stream, queue_next) {
        schedule_tell_starving(core, stream);
        if (!stream->dispatch)
            continue;
        DL_FOREACH2 (stream->dispatch->ranks, rank, peer_next)
            schedule_tell_starving(core, rank);
    }
}

/* The stream's last READY step behind `last`, in a slot of that worker; or NULL. */
static struct step *schedule_find_spare(const struct stream *stream, struct wanted last,
                                        uint32_t worker)
{
    struct step *step, *next, *found = NULL;

    HASH_ITER (hh, stream->steps, step, next) {
        struct wanted at = {stream->params.epoch, step->number};

        if (step->state != STEP_READY || !schedule_is_before(last.epoch, last.number, &at) ||
            (worker != CORE_ANY && step->segment->worker != worker))
            continue;
        last = at;
        found = step;
    }
    return found;
}

/* Some stream that is read has no batch at all, and none on its way. */
static bool schedule_has_poor(const struct core *core)
{
    const struct stream *stream;

    for (uint32_t i = 0; i < core_n_queues(core, BAND_EXPECTED); i++)
        DL_FOREACH2 (core->wanting[i], stream, queue_next)
            if (stream_window(stream) == 0)
                return true;
    return false;
}

/* `to_poor`: to another stream, by one that has two steps or more. */
static bool schedule_yield_slot_of(struct core *core, uint32_t worker, bool to_poor)
{
    struct stream *stream;
    struct step *step;

    DL_FOREACH (core->streams, stream) {
        bool holds_none_up = stream->params.any_order && stream->params.replicas > 0;
        bool is_poor = to_poor && stream_window(stream) < 2;
        struct wanted last = {0};

        if (!to_poor)
            last = schedule_first_wanted(core, stream);
        if (stream->source || holds_none_up || is_poor ||
            !(step = schedule_find_spare(stream, last, worker)))
            continue;
        core_give_up_slot(core, step);
        step->yields = true;
        core_run_again(core, step);
        assert(step->state == STEP_WAITING && stream_window(stream) > 0);
        return true;
    }
    return false;
}

/*
 * All slots may hold READY steps that wait for an earlier step, which needs a slot: after slots
 * were replaced by fewer, larger ones, or when a rank in the next epoch had its source load steps
 * that other ranks cannot take yet. One of these READY steps is given up and made again later: one
 * of the worker that lacks a slot, or else of another, whose memory may then be used.
 *
 * Or one stream has them all, and another has nothing: where one client reads both, it may wait for
 * the latter before it goes on with the former.
 */
static bool schedule_yield(struct core *core, uint32_t worker)
{
    return schedule_yield_slot_of(core, worker, false) ||
           (worker != CORE_ANY && schedule_yield_slot_of(core, CORE_ANY, false)) ||
           (schedule_has_poor(core) && schedule_yield_slot_of(core, CORE_ANY, true));
}

/* There is no memory for what the worker keeps: others may make it anew. */
static bool schedule_keep_no_more(struct core *core, uint32_t worker)
{
    struct step *step;
    bool any = false;

    DL_FOREACH (core->waiting, step) {
        if (step->kept_by == 0 || step->kept_by - 1 != worker)
            continue;
        step->kept_by = 0;
        any = true;
    }
    return any;
}

void core_refuse_memory(struct core *core, uint32_t worker, const struct dl_error *err, bool idle)
{
    if (core_make_way(core) || schedule_keep_no_more(core, worker) ||
        (idle && schedule_yield(core, worker))) {
        core->again = true;
        return;
    }
    if (!idle)
        return;
    core->starving = *err;
    core->starved = true;
    if (core->delivery_paused) /* paused batches will be delivered soon */
        return;
    for (uint32_t i = 0; i < core_n_queues(core, BAND_EXPECTED); i++)
        schedule_tell_all_starving(core, core->wanting[i]);
}
