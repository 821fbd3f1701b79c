/* Which step is loaded next, and where: what there is to do goes to workers that have a slot for
 * it. */
#include "daemon/serve/loader/loader_private.h"
#include "proto/slot_fill.h"

#include <assert.h>

#include <utlist.h>

/* Writes the step's indices, as far as they are known, to `indices`; how many. */
static size_t put_indices(struct loader *loader, struct step *step, uint64_t *indices)
{
    struct stream *stream = step->stream;

    if (stream->params.replicas)
        return spec_round_samples(&loader->spec, stream->params.world);
    if (!step->fed)
        return epoch_step(stream->plan, stream->params.rank, step->number, indices);
    memcpy(indices, step->fed, step->n_fed * sizeof *indices);
    return step->n_fed;
}

/* Bytes that the task of the stream's step has, of which struct slot_planned is *ret_planned. */
static uint64_t task_bytes(const struct stream *stream, uint64_t number, uint64_t *ret_planned)
{
    struct plan_step_size size =
        plan_step_size(epoch_plan(stream->plan), stream->params.rank, number);

    *ret_planned = slot_planned_bytes(size.samples, size.rows);
    return slot_indices_end(size.samples) + *ret_planned;
}

/* What the plan knows of a batch of tokens, for its worker and for our counts. */
static void put_planned(struct step *step, size_t n, void *slot)
{
    const struct stream *stream = step->stream;
    struct plan_step_tokens tokens = plan_put_planned(epoch_plan(stream->plan), stream->params.rank,
                                                      step->number, slot_planned(slot, n));

    step->tokens = tokens.tokens;
    step->padded = tokens.padded;
}

/* The step that a worker would have made, had it not died before. */
static bool bury(struct loader *loader, struct step *step, const struct place *place)
{
    _cleanup_free_ char *cause = pool_take_epitaph(loader->pool, place->worker);

    if (!cause)
        return false;
    loader_fault(loader, step, EIO, cause);
    loader->faulted = true;
    pool_slot(loader->pool, place->segment, place->slot, SLOT_ABORT);
    return true;
}

/* What the step's worker may begin its replica with, should it not be there already. */
static struct dl_span state_for(const struct stream *stream, uint64_t number)
{
    return states_find(&stream->states, step_replica(stream, number),
                       number / stream->params.replicas);
}

/* Puts the step's indices and header into its slot and starts it. */
static void run(struct loader *loader, struct step *step, const struct place *place)
{
    struct stream *stream = step->stream;
    void *slot = segment_slot(place->segment, place->slot);
    size_t n = put_indices(loader, step, slot_indices(slot));
    struct slot_task task = {
        .generation = place->segment->slots.slots[place->slot].generation,
        .epoch = stream->params.epoch,
        .step = step->number,
        .samples = (uint32_t)n,
        .what = loader->spec.batch_size == 0 ? SLOT_SAMPLE : SLOT_BATCH,
    };

    if (stream->params.replicas) {
        task.stream = stream->number;
        task.rank = stream_is_source(stream) ? 0 : (uint32_t)stream->params.rank;
        task.world = (uint32_t)stream->params.world;
        task.settled = stream_settled(stream, step_replica(stream, step->number));
        task.state = state_for(stream, step->number);
        if (slot_state_end(&task) > place->segment->slot_bytes)
            task.state =
                (struct dl_span){0}; /* it is a step that comes again, and gets on without */
    }
    if (loader->lengths)
        task_bytes(stream, step->number, &task.planned);
    if (stream->plan && !stream_is_source(stream))
        step->repeated =
            (uint32_t)plan_repeated(epoch_plan(stream->plan), stream->params.rank, step->number);
    bool fits = slot_prepare(slot, place->segment->slot_bytes, &task);
    assert(fits); /* the pool takes no worker whose slots are too small for the task itself */
    if (task.planned)
        put_planned(step, n, slot);
    step_run(step, place->segment, place->slot, (uint32_t)n);
    step->run_ns = loader->now;
    if (!bury(loader, step, place))
        pool_run(loader->pool, place, step);
}

/* The stream may load a further step; an expected one with what its predecessor leaves. */
static bool wants_step(struct loader *loader, const struct stream *stream)
{
    const struct stream *before;

    if (stream->parked || !stream_has_room(stream) || loader_source(stream))
        return false;
    if (!stream_is_expected(stream))
        return true;
    if (stream_is_source(stream))
        before = loader_source_before(loader, stream);
    else
        before = loader_find_stream(loader, stream->params.epoch - 1, stream->params.rank,
                                    stream->params.world, false);
    return !before || before->window + stream->window < stream->params.credits;
}

/* The worker that the step must run on. */
static uint32_t worker_of(const struct loader *loader, const struct stream *stream, uint64_t number)
{
    if (loader->in_turn)
        return (uint32_t)(number % loader->spec.workers);
    return stream->params.replicas ? step_replica(stream, number) : POOL_ANY;
}

/* Whether the step's indices are at hand; else they will be, and the loader is pumped. */
static bool is_planned(struct loader *loader, struct stream *stream, uint64_t number)
{
    return !stream->plan || epoch_prepare(stream->plan, loader->o.loop, stream->params.rank, number,
                                          loader_go_on, loader);
}

/* A stream that has a step to load, and no place for it. */
struct want {
    struct stream *stream; /* NULL: none; else the first one found, of those asked for if any is */
    uint32_t worker;
};

/* A place for the step; what there is none for is noted. */
static bool take(struct loader *loader, struct stream *stream, uint64_t number, struct want *want,
                 struct place *ret)
{
    uint32_t worker = worker_of(loader, stream, number);
    bool in_vain = want->stream && want->worker == POOL_ANY; /* there is no place at all */

    if (!in_vain && pool_take(loader->pool, worker, ret))
        return true;
    if (!want->stream || (stream_is_expected(want->stream) && !stream_is_expected(stream)))
        *want = (struct want){stream, worker};
    return false;
}

/* Runs a step whose worker died or whose slot was too small. */
static bool run_waiting(struct loader *loader, struct want *want)
{
    struct step *step;
    struct place place;

    DL_FOREACH (loader->waiting, step) {
        if (is_planned(loader, step->stream, step->number) &&
            take(loader, step->stream, step->number, want, &place)) {
            DL_DELETE(loader->waiting, step);
            run(loader, step, &place);
            return true;
        }
    }
    return false;
}

/*
 * How many samples a source's batches have at most. Slots are made as large as one should take,
 * where memory.limit allows for it, so that the first ones need not be loaded twice.
 */
static uint64_t size_for_all(struct loader *loader, const struct stream *source)
{
    uint64_t samples = source->plan ? plan_most(epoch_plan(source->plan))
                                    : spec_round_samples(&loader->spec, source->params.world);
    uint64_t bytes, size = max_u64(min_u64(loader->spec.batch_size, loader->length), 1);
    struct dl_error none = {0};

    if (!mul_overflows(loader->first_slot_bytes, (samples + size - 1) / size, &bytes))
        (void)!pool_fit(loader->pool, bytes, &none);
    return samples;
}

/*
 * Lets slots have room for the indices of the stream's next step. If it cannot be, the step becomes
 * a fault.
 */
static bool make_fit(struct loader *loader, struct stream *stream)
{
    struct dl_error err = {0};
    uint64_t need, planned;

    if (stream->params.fed)
        need = slot_indices_end(stream_next_fed(stream));
    else if (stream->params.replicas)
        need = slot_indices_end(spec_round_samples(&loader->spec, stream->params.world)) +
               state_for(stream, stream_next(stream)).len;
    else if (stream_is_source(stream))
        need = slot_indices_end(size_for_all(loader, stream));
    else if (loader->lengths)
        need = task_bytes(stream, stream_next(stream), &planned);
    else
        return true;
    if (pool_fit(loader->pool, need, &err))
        return true;
    loader_fault(loader, stream_plan(stream), err.code, err.message);
    loader->faulted = true;
    return false;
}

/*
 * A turn is as many steps as a worker takes ahead: one, or several quick ones, which then come to
 * their client together and wake it once.
 */
static void took_turn(struct loader *loader, struct stream *stream, uint32_t worker)
{
    if (++stream->turn < pool_ahead(loader->pool, worker))
        return;
    stream->turn = 0;
    DL_DELETE(loader->streams, stream);
    DL_APPEND(loader->streams, stream);
}

/*
 * Runs the next step of the next stream in turn that has something to load. What somebody asked
 * for goes before what is expected.
 */
static bool run_stream(struct loader *loader, bool expected, struct want *want)
{
    struct stream *stream;
    struct place place;

    DL_FOREACH (loader->streams, stream) {
        if (stream_is_expected(stream) == expected && wants_step(loader, stream) &&
            is_planned(loader, stream, stream_next(stream)) && make_fit(loader, stream) &&
            take(loader, stream, stream_next(stream), want, &place)) {
            took_turn(loader, stream, place.worker);
            run(loader, stream_plan(stream), &place);
            return true;
        }
    }
    return false;
}

/*
 * There is no slot for what is wanted. What nobody has asked for is not worth further memory, and
 * gives way where it is short: true if it did.
 */
static bool make_room(struct loader *loader, const struct want *want)
{
    struct dl_error err = {0};

    if (!want->stream || stream_is_expected(want->stream) ||
        pool_has_slot(loader->pool, want->worker) || pool_grow(loader->pool, want->worker, &err))
        return false;
    if (loader_drop_expected(loader, NULL) || loader_drop_parked(loader, false))
        return true;
    loader_tell_starving(loader, &err);
    return false;
}

bool loader_is_full(struct loader *loader)
{
    const struct stream *stream;

    if (!pool_idle(loader->pool))
        return false;
    if (loader->starved)
        return true;
    DL_FOREACH (loader->streams, stream) {
        if (!stream_is_expected(stream) && wants_step(loader, stream))
            return false;
    }
    return !loader->waiting;
}

void loader_schedule(struct loader *loader)
{
    struct want want;
    bool again;

    if (loader->headspace && loader_stills(loader))
        return;
    loader->starved = false;
    do {
        want = (struct want){0};
        again = run_waiting(loader, &want) || run_stream(loader, false, &want) ||
                run_stream(loader, true, &want) || make_room(loader, &want);
    } while (again);
    pool_flush(loader->pool);
}
