/*
 * Dispatch: one stream, the source, loads the batches of all ranks, and each rank's own stream
 * takes its rows of them, in order. stream.h and loader.h say how.
 *
 * A slot has a lease for each rank that has taken the step, and one for the source from the first
 * of these on until the last rank has taken it: a slot that one rank has read and given back is
 * still there for the others. The `tail` is the first step that some rank has yet to take; what is
 * before it the source gives up, in whatever state it is.
 */
#include "daemon/serve/base/memory.h"
#include "daemon/serve/loader/loader_private.h"

#include <assert.h>

#include <utlist.h>

typedef unsigned long long ull; /* for printf */

struct dispatcher {
    struct dispatcher *prev, *next; /* loader.dispatchers */
    struct loader *loader;          /* borrowed */
    struct stream *source;          /* owned; the loader's list has it, too */
    struct roll *roll;              /* owned; NULL once it has ended */
    uv_timer_t patience;            /* with those that are awaited in the middle of an epoch */
    uint64_t tail;
    uint64_t here; /* ranks that take steps from it now */
};

static void trim(struct loader *loader, struct dispatcher *d);

bool stream_is_expected(const struct stream *stream)
{
    if (stream_is_source(stream))
        return stream->dispatcher && stream->dispatcher->here == 0;
    return !stream->sink;
}

/* ---- who takes from whom -------------------------------------------------------------------- */

/* The stream of that rank that takes from it. */
static struct stream *find_rank(const struct loader *loader, const struct dispatcher *d,
                                uint64_t rank)
{
    struct stream *stream;

    DL_FOREACH (loader->streams, stream) {
        if (stream->dispatcher == d && stream->params.rank == rank)
            return stream;
    }
    return NULL;
}

/* Of the epoch and the world of `like`, from its first step on. */
static int add_dispatcher(struct loader *loader, const struct stream_params *like,
                          struct dispatcher **ret, struct dl_error *err)
{
    struct stream_params params = *like;
    struct stream *source;

    params.rank = PLAN_ALL;
    params.credits = loader_credits(loader);
    params.steps = STEPS_UNKNOWN;
    int r = loader_add_stream(loader, &params, &source, err);
    if (r < 0)
        return r;
    struct dispatcher *d = must_alloc(sizeof *d);
    d->loader = loader;
    d->source = source;
    d->tail = params.first;
    d->roll = roll_new(params.world);
    uv_timer_init(loader->o.loop, &d->patience);
    d->patience.data = d;
    source->dispatcher = d;
    DL_APPEND(loader->dispatchers, d);
    *ret = d;
    return 0;
}

static void free_dispatcher(uv_handle_t *handle)
{
    free(handle->data);
}

/* Who has read the epoch to its end is known for a while. */
static void drop_dispatcher(struct loader *loader, struct dispatcher *d)
{
    DL_DELETE(loader->dispatchers, d);
    roll_book_keep(&loader->rolls, &d->source->params, steal_ptr(d->roll));
    uv_close((uv_handle_t *)&d->patience, free_dispatcher);
}

/* What the rank may join; those that have left its step behind do not wait for it any more. */
static struct dispatcher *choose(struct loader *loader, const struct stream *stream)
{
    struct dispatcher *d, *found = NULL;
    uint64_t rank = stream->params.rank;

    DL_FOREACH (loader->dispatchers, d) {
        if (!roll_same_epoch(&d->source->params, &stream->params))
            continue;
        if (d->tail > stream->params.first)
            roll_excuse(d->roll, rank);
        else if (!found && !find_rank(loader, d, rank))
            found = d;
    }
    return found;
}

/* The source's epoch is the one before that of the other, of the same job and world. */
static bool is_before(const struct dispatcher *d, const struct stream_params *other)
{
    const struct stream_params *params = &d->source->params;

    return params->epoch + 1 == other->epoch && params->world == other->world &&
           strcmp(params->job, other->job) == 0;
}

/*
 * Whoever is in the next epoch has done with this one, though nobody saw it: ranks may be so far
 * apart when the daemon is another one. Those that are before it do not wait for `stream`, ...
 */
static void excuse_before(struct loader *loader, const struct stream *stream)
{
    struct dispatcher *d;

    DL_FOREACH (loader->dispatchers, d) {
        if (!is_before(d, &stream->params) || roll_of(d->roll, stream->params.rank) != ROLL_AWAITED)
            continue;
        roll_done(d->roll, stream->params.rank);
        trim(loader, d);
    }
}

/* ... and who begins before it does not wait for those that are in the next. */
static void excuse_next(const struct loader *loader, struct dispatcher *own)
{
    const struct stream *stream;

    DL_FOREACH (loader->streams, stream) {
        if (loader_source(stream) && is_before(own, &stream->params))
            roll_done(own->roll, stream->params.rank);
    }
}

/*
 * Whom a rank does not wait for that begins with a source of its own: those that have done with the
 * epoch, and, when it comes back at a step that others have left behind, these: they do not come
 * back with it.
 */
static void excuse_others(struct loader *loader, struct dispatcher *own,
                          const struct stream *stream, const struct roll *known)
{
    const struct dispatcher *d;

    if (known)
        roll_learn_done(own->roll, known);
    /* Where the rank has a place already, this is another job's, all of whose ranks come. */
    DL_FOREACH (loader->dispatchers, d) {
        if (d != own && roll_same_epoch(&d->source->params, &stream->params) &&
            !find_rank(loader, d, stream->params.rank))
            roll_learn(own->roll, d->roll);
    }
    excuse_next(loader, own);
}

/* Those that might have come back have not. */
static void on_patience(uv_timer_t *timer)
{
    struct dispatcher *d = timer->data;
    struct loader *loader = d->loader;
    const struct stream_params *params = &d->source->params;

    if (d->roll->awaited == 0)
        return;
    log_about(LOG_INFO,
              &(struct log_fields){.loader = loader->spec.name, .epoch = LOG_N(params->epoch)},
              "%s: rank %llu of %llu has not come to epoch %llu%s%s, whose step %llu others have "
              "come back to: they go on without it",
              loader->spec.name, (ull)roll_first_awaited(d->roll), (ull)params->world,
              (ull)params->epoch, params->job[0] ? " of job " : "", params->job, (ull)d->tail);
    roll_excuse_all(d->roll);
    trim(loader, d);
    loader_pump(loader);
}

/*
 * In the middle of an epoch ranks come back, and some may have died for good, or have come to the
 * epoch's end under another daemon: they are awaited as long as a trainer that has died is, counted
 * from the last one that came.
 */
static void be_patient(struct loader *loader, struct dispatcher *d)
{
    if (d->roll->awaited == 0)
        uv_timer_stop(&d->patience);
    else if (d->source->params.first > 0)
        uv_timer_start(&d->patience, on_patience, loader->o.config->linger / 1000000, 0);
}

int loader_join(struct loader *loader, struct stream *stream, struct dl_error *err)
{
    const struct roll *known = roll_book_come(&loader->rolls, &stream->params);
    struct dispatcher *d = choose(loader, stream);

    if (!d) {
        int r = add_dispatcher(loader, &stream->params, &d, err);
        if (r < 0)
            return r;
        excuse_others(loader, d, stream, known);
    }
    roll_come(d->roll, stream->params.rank);
    d->here++;
    stream->dispatcher = d;
    be_patient(loader, d);
    excuse_before(loader, stream);
    return 0;
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* The first step that the rank has yet to take; UINT64_MAX: it has all. */
static uint64_t place_of(const struct stream *rank)
{
    uint64_t next = stream_next(rank);

    return next < rank->params.steps ? next : UINT64_MAX;
}

static uint64_t find_tail(const struct loader *loader, const struct dispatcher *d)
{
    const struct stream *stream;
    uint64_t tail = d->roll->awaited > 0 ? d->source->params.first : UINT64_MAX;

    DL_FOREACH (loader->streams, stream) {
        if (stream->dispatcher == d && stream != d->source)
            tail = min_u64(tail, place_of(stream));
    }
    return min_u64(tail, d->source->params.steps);
}

/* Gives up what every rank has taken, or will not. */
static void trim(struct loader *loader, struct dispatcher *d)
{
    uint64_t tail = find_tail(loader, d);
    struct step *step;
    struct step *next;

    if (tail <= d->tail)
        return;
    d->tail = tail;
    HASH_ITER (hh, d->source->steps, step, next) {
        if (step->number < tail)
            loader_drop_step(loader, d->source, step);
    }
    stream_skip(d->source, tail);
}

static void end_dispatcher(struct loader *loader, struct dispatcher *d)
{
    struct stream *source = d->source;

    drop_dispatcher(loader, d);
    source->dispatcher = NULL;
    loader_end(loader, source);
}

void loader_leave_source(struct loader *loader, struct stream *stream)
{
    struct dispatcher *d = stream->dispatcher;

    if (!d)
        return;
    stream->dispatcher = NULL;
    if (stream == d->source) { /* which nobody had */
        drop_dispatcher(loader, d);
        return;
    }
    if (!stream->lost)
        roll_done(d->roll, stream->params.rank);
    if (--d->here == 0)
        end_dispatcher(loader, d);
    else
        trim(loader, d);
}

/* ---- the next epoch ------------------------------------------------------------------------- */

/* A source of that epoch, and of the job and world of `like`, which ranks take from, or
 * (`expected`) which none does yet. */
static struct stream *find_source(const struct loader *loader, const struct stream_params *like,
                                  uint64_t epoch, bool expected)
{
    struct dispatcher *d;

    DL_FOREACH (loader->dispatchers, d) {
        const struct stream_params *params = &d->source->params;
        if (params->epoch == epoch && params->world == like->world &&
            strcmp(params->job, like->job) == 0 && stream_is_expected(d->source) == expected)
            return d->source;
    }
    return NULL;
}

const struct stream *loader_source_before(const struct loader *loader, const struct stream *source)
{
    return find_source(loader, &source->params, source->params.epoch - 1, false);
}

void loader_expect_source(struct loader *loader, const struct stream *source)
{
    struct stream_params params = source->params;
    struct dispatcher *d;

    params.epoch++;
    params.first = 0;
    params.before.n = 0;
    if (!loader->expecting || source->stopped || stream_is_expected(source) ||
        stream_next(source) < source->params.steps || params.epoch == 0 || params.steps == 0 ||
        find_source(loader, &params, params.epoch, true) ||
        find_source(loader, &params, params.epoch, false))
        return;
    /* Failing is no loss, as for any stream. */
    (void)!add_dispatcher(loader, &params, &d, NULL);
}

/* ---- taking --------------------------------------------------------------------------------- */

/* What of the source's step is the rank's. */
static struct plan_rows rows_of(const struct stream *stream, const struct step *step)
{
    uint64_t rank = stream->params.rank;

    if (!stream->plan)
        return plan_rows(step->samples, step->repeated, stream->params.world, rank);
    const struct plan *plan = epoch_plan(stream->plan);
    struct plan_slice slice = plan_slice(plan, rank, step->number);
    return (struct plan_rows){slice.first, slice.samples, plan_repeated(plan, rank, step->number)};
}

/* The rank's step of the source's, which is READY. */
static void give(struct loader *loader, struct stream *stream, struct step *step)
{
    struct plan_rows rows = rows_of(stream, step);

    if (rows.samples == 0) { /* a last round of an iterable dataset, too small for all ranks */
        stream_end_replica(stream, step->number);
        return;
    }
    struct step *own = stream_plan(stream);
    assert(own->number == step->number);
    if (!step->held)
        pool_slot(loader->pool, step->segment, step->slot, SLOT_LEASE);
    step->held = own->held = true;
    pool_slot(loader->pool, step->segment, step->slot, SLOT_LEASE);
    own->repeated = (uint32_t)rows.repeated;
    step_run(own, step->segment, step->slot, (uint32_t)rows.samples);
    step_ready(own, (uint32_t)rows.samples, step->bytes);
    own->run_ns = step->run_ns;
    own->made = step->made;
    own->first = (uint32_t)rows.first;
    own->all = step->samples;
}

static void give_fault(struct stream *stream, const struct step *step)
{
    struct step *own = stream_plan(stream);

    assert(own->number == step->number);
    step_fault(own, step->error);
    own->detail = step->detail ? must_strdup(step->detail) : NULL;
}

void loader_take(struct loader *loader, struct stream *stream)
{
    struct dispatcher *d = stream->dispatcher;
    struct step *step;

    if (!d)
        return;
    if (stream->ends)
        stream_learn_ends(stream, d->source);
    while (stream_has_room(stream) && (step = stream_find(d->source, stream_next(stream))) &&
           (step->state == STEP_READY || step->state == STEP_FAULTED)) {
        if (step->state == STEP_FAULTED || !loader_admit(loader, stream, step))
            give_fault(stream, step);
        else
            give(loader, stream, step);
    }
    trim(loader, d);
}

/* ---- views ---------------------------------------------------------------------------------- */

struct stream *loader_source(const struct stream *stream)
{
    return stream->dispatcher && !stream_is_source(stream) ? stream->dispatcher->source : NULL;
}

uint64_t loader_waits_for(const struct loader *loader, const struct stream *stream,
                          bool *ret_started)
{
    const struct dispatcher *d = stream->dispatcher;
    const struct stream *other;
    uint64_t rank = UINT64_MAX;

    if (!d || !stream_has_room(stream) || place_of(stream) < d->source->to_plan ||
        d->source->window < d->source->params.credits)
        return UINT64_MAX;
    *ret_started = d->roll->awaited == 0;
    if (d->roll->awaited > 0)
        return roll_first_awaited(d->roll);
    DL_FOREACH (loader->streams, other) {
        if (other->dispatcher == d && other != d->source && place_of(other) == d->tail)
            rank = min_u64(rank, other->params.rank);
    }
    return rank;
}
