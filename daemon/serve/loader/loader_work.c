#include "daemon/serve/loader/loader_private.h"
#include "proto/slot_fill.h"
#include "proto/words.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include <utlist.h>

enum { DELIVER_AT_ONCE = 256 }; /* steps handed to the sink in one call */

/* ---- faults --------------------------------------------------------------------------------- */

static void fault(struct loader *loader, struct step *step, int code, const char *what)
{
    struct dl_error err = {0};
    char name[384];

    loader_name_step(loader, step, name, sizeof name);
    dl_error_set(&err, code, spec_dataset_label(&loader->spec.dataset), "%s: %s", name, what);
    step_fault(step, &err);
    loader->totals.faults++;
}

/* A step nobody waits for any more, while a worker still had it. */
static bool abandoned(struct step *step)
{
    if (step->stream)
        return false;
    step_free(step);
    return true;
}

/*
 * Steps to run again: what somebody asked for first, and earlier ones first. Where there is memory
 * for one only, it must be the one that is due.
 */
static int compare_steps(const struct step *a, const struct step *b)
{
    bool expected_a = stream_is_expected(a->stream), expected_b = stream_is_expected(b->stream);

    if (expected_a != expected_b)
        return expected_a - expected_b;
    return (a->number > b->number) - (a->number < b->number);
}

void loader_run_again(struct loader *loader, struct step *step)
{
    step_lost(step);
    DL_INSERT_INORDER(loader->waiting, step, compare_steps);
}

/* ---- what the pool tells -------------------------------------------------------------------- */

void loader_opened(struct loader *loader)
{
    struct loader_user *user;
    struct loader_user *next;

    loader->state = LOADER_OPEN;
    DL_FOREACH_SAFE (loader->users, user, next) {
        loader_tell_opened(loader, user);
    }
}

static void on_ready(void *owner, const struct dl_msg_w_ready *what)
{
    struct loader *loader = owner;
    struct dl_error err = {0};

    loader->length =
        loader->spec.dataset.kind == DATASET_RANGE ? loader->spec.dataset.length : what->length;
    loader->iterable = what->iterable;
    loader->leaps = what->leaps;
    loader->identity.dataset = what->dataset;
    loader->identity.length = loader->length;
    loader->identity.workers = loader->iterable ? loader->spec.workers : 0;
    loader->first_slot_bytes = pool_slot_bytes(loader->pool);
    loader->quarantine.limit = spec_max_bad(&loader->spec, loader->length);
    if (!loader->spec.batch.tokens)
        loader_opened(loader);
    else if (loader_measure(loader, what->fingerprint, &err) < 0)
        loader_break(loader, &err);
}

void loader_break(struct loader *loader, const struct dl_error *err)
{
    struct loader_user *user;
    struct loader_user *next;
    struct stream *stream;
    struct stream *next_stream;

    log_about(LOG_WARNING,
              &(struct log_fields){LOG_EVENT_LOADER_BROKE, .loader = loader->spec.name},
              "%s: %s%s%s", loader->spec.name, err->path, *err->path ? ": " : "", err->message);
    loader->state = LOADER_BROKEN;
    loader->why_broken = *err;
    loader_headspace_end(loader, err);
    DL_FOREACH_SAFE (loader->streams, stream, next_stream) {
        if (stream->unsettled && stream->sink) {
            loader->o.events->started(stream, NULL, err);
        } else if (!stream->stopped) {
            loader_drop_steps(loader, stream);
            stream_stop(stream);
            /* One that was told to be finished lacks nothing. */
            if (stream->sink && !stream->finish_told)
                loader->o.events->fault(stream, UINT64_MAX, err, NULL, true);
        }
    }
    loader_say_gone(loader);
    DL_FOREACH_SAFE (loader->users, user, next) {
        if (!user->told)
            loader_tell_opened(loader, user);
    }
    if (!loader->users)
        loader_end_after(loader, 0);
}

static void on_broken(void *owner, const struct dl_error *err)
{
    loader_break(owner, err);
}

/* How many samples the batch has. A list of lengths has them all. */
static uint32_t count_samples(const struct loader *loader, const struct step *step, uint32_t told)
{
    if (loader->iterable || loader->spec.dataset.kind == DATASET_PYTHON)
        return told;
    return loader->spec.on_error == ON_ERROR_SKIP ? (uint32_t)min_u64(told, step->samples)
                                                  : step->samples;
}

/* How many of them only even the ranks out: as the worker says, or of those that were planned. */
static uint32_t count_repeated(const struct loader *loader, const struct step *step, uint32_t told,
                               const struct bad_list *bad)
{
    if (loader->iterable)
        return told;
    return loader->spec.on_error == ON_ERROR_SKIP
               ? bad_list_left(bad, step->samples, step->repeated)
               : step->repeated;
}

static void keep_bad(struct step *step, const struct bad_list *bad)
{
    if (bad->n == 0)
        return;
    step->bad =
        (struct bad_list){.n = bad->n, .items = must_alloc(SLOT_BAD_MAX * sizeof *bad->items)};
    memcpy(step->bad.items, bad->items, bad_list_listed(bad) * sizeof *bad->items);
}

/* Where the dataset says that the step's replica stands behind it. */
static void learn_state(struct step *step)
{
    struct stream *stream = step->stream;
    struct dl_span record;

    if (slot_read_state(segment_slot(step->segment, step->slot), step->segment->slot_bytes,
                        &record) &&
        record.len > 0)
        states_learn(&stream->states, step_replica(stream, step->number), record);
}

static void time_made(struct step *step, const struct made_times *made)
{
    step->made = made_times_mend(made, step->run_ns);
    timing_add_made(&step->stream->timing, step->run_ns, &step->made);
}

static void on_done(void *owner, void *tag, uint32_t samples, uint32_t repeated, uint64_t bytes,
                    const struct bad_list *bad, const struct made_times *made)
{
    struct loader *loader = owner;
    struct step *step = tag;

    if (loader->measuring) {
        measuring_took(loader->measuring, tag);
        return;
    }
    struct segment *segment = step->segment;
    uint32_t slot = step->slot;
    if (!step->stream)
        pool_slot(loader->pool, segment, slot, SLOT_DISCARD);
    if (abandoned(step))
        return;
    samples = count_samples(loader, step, samples);
    if (!loader->iterable && stream_is_source(step->stream) && samples != step->samples) {
        fault(loader, step, EIO, "its batch has another number of samples than were asked for");
        pool_slot(loader->pool, segment, slot, SLOT_DISCARD);
        return;
    }
    step->repeated = count_repeated(loader, step, repeated, bad);
    if (loader->iterable)
        learn_state(step);
    step_ready(step, samples, bytes);
    time_made(step, made);
    keep_bad(step, bad);
}

static void on_ended(void *owner, void *tag)
{
    struct step *step = tag;

    if (!abandoned(step))
        stream_replica_ended(step->stream, step);
}

static void on_failed(void *owner, void *tag, const struct dl_error *err, const char *detail)
{
    struct loader *loader = owner;
    struct step *step = tag;

    if (loader->measuring)
        measuring_refused(loader->measuring, tag, err);
    if (loader->measuring || abandoned(step))
        return;
    fault(loader, step, err->code, err->message);
    step->detail = detail ? must_strdup(detail) : NULL;
}

static void on_lost(void *owner, void *tag, bool culprit, const char *cause)
{
    struct loader *loader = owner;
    struct step *step = tag;
    char what[DL_ERROR_MESSAGE_MAX];

    if (loader->measuring)
        measuring_lost(loader->measuring, tag, culprit, cause);
    if (loader->measuring || abandoned(step))
        return;
    step->attempts += culprit;
    loader->totals.retries += culprit;
    if (step->attempts > loader->spec.retries) {
        snprintf(what, sizeof what, "%s; given up after %u attempt%s (workers.retries)", cause,
                 step->attempts, step->attempts == 1 ? "" : "s");
        fault(loader, step, EIO, what);
        return;
    }
    loader_run_again(loader, step);
}

/* It loads nothing itself. */
static bool takes_from_source(const struct stream *stream)
{
    return stream->dispatcher && !stream_is_source(stream);
}

static void on_reclaim(void *owner)
{
    struct loader *loader = owner;
    struct stream *stream;
    struct step *step;
    struct step *next;

    DL_FOREACH (loader->streams, stream) {
        HASH_ITER (hh, stream->steps, step, next) {
            if (step->state != STEP_READY || step->segment->active || takes_from_source(stream))
                continue;
            struct segment *segment = step->segment;
            enum slot_event event = step->held ? SLOT_RELEASE : SLOT_DISCARD;
            loader_run_again(loader, step);
            pool_slot(loader->pool, segment, step->slot, event);
        }
    }
}

static void on_retired(void *owner, uint32_t segment)
{
    struct loader *loader = owner;

    loader->o.events->retired(loader->o.context, segment);
}

static void on_changed(void *owner)
{
    loader_pump(owner);
}

const struct pool_events loader_pool_events = {.ready = on_ready,
                                               .broken = on_broken,
                                               .done = on_done,
                                               .ended = on_ended,
                                               .failed = on_failed,
                                               .lost = on_lost,
                                               .reclaim = on_reclaim,
                                               .retired = on_retired,
                                               .changed = on_changed};

/* ---- handing out work ----------------------------------------------------------------------- */

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
    fault(loader, step, EIO, cause);
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

    if (stream->parked || !stream_has_room(stream) || takes_from_source(stream))
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
                                          on_changed, loader);
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
    fault(loader, stream_plan(stream), err.code, err.message);
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

static void schedule(struct loader *loader)
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

/* ---- handing out batches -------------------------------------------------------------------- */

/* Whose bad samples they are. */
struct telling {
    struct loader *loader;
    struct stream *stream;
};

static void tell_bad(void *owner, const struct bad_sample *sample)
{
    const struct telling *telling = owner;
    struct loader *loader = telling->loader;
    char text[DL_ERROR_MESSAGE_MAX];

    words_bad(sample, &loader->quarantine, loader->spec.on_error == ON_ERROR_SKIP, text,
              sizeof text);
    log_about(LOG_WARNING,
              &(struct log_fields){LOG_EVENT_BAD_SAMPLE, .loader = loader->spec.name,
                                   .epoch = LOG_N(telling->stream->params.epoch)},
              "%s: %s", loader->spec.name, text);
    loader->o.events->warning(telling->stream, text);
}

/* Where the sample's number counts: nowhere in particular if it is an index. The replicas of all
 * ranks are one and the same where the dataset does not divide the samples itself. */
static struct bad_place place_of_bad(const struct loader *loader, const struct step *step)
{
    const struct stream_params *params = &step->stream->params;
    bool apart = loader->spec.shard == SHARD_STRIDED;

    if (!params->replicas)
        return (struct bad_place){0};
    return (struct bad_place){.rank = apart ? (uint32_t)params->rank : 0,
                              .world = apart ? (uint32_t)params->world : 1,
                              .worker = step_replica(step->stream, step->number)};
}

bool loader_admit(struct loader *loader, struct stream *stream, struct step *step)
{
    struct segment *segment = step->segment;
    uint32_t slot = step->slot;
    struct dl_error err = {0};

    if (step->bad.n == 0)
        return true;
    struct bad_place place = place_of_bad(loader, step);
    struct telling telling = {loader, stream};
    bool good = quarantine_take(&loader->quarantine, &place, &step->bad, tell_bad, &telling, &err);
    if (!good) {
        fault(loader, step, err.code, err.message);
        pool_slot(loader->pool, segment, slot, SLOT_DISCARD);
    }
    bad_list_deinit(&step->bad);
    return good;
}

static void time_ready(const struct loader *loader, struct stream *stream, struct step *step)
{
    step->delivered_ns = max_u64(loader->now, step->made.now_ns);
    timing_add(&stream->timing, STAGE_READY, step->delivered_ns - step->made.now_ns);
}

static uint32_t lease_due(struct loader *loader, struct stream *stream, struct step **steps,
                          uint32_t max)
{
    struct step *step;
    uint32_t n = 0;

    /* One that was parked with pins can have more READY than its client has credits. */
    while (n < max && stream->leased < stream->params.credits &&
           (step = stream_deliverable(stream)) && step->state == STEP_READY) {
        if (!loader_admit(loader, stream, step))
            continue;
        /* Over the user's limit of leases: it waits until something is released. */
        if (quota_charge(loader->o.account, QUOTA_LEASES, 1, NULL) < 0)
            break;
        if (!step->held)
            pool_slot(loader->pool, step->segment, step->slot, SLOT_LEASE);
        stream_deliver(stream, step);
        time_ready(loader, stream, step);
        loader->totals.batches++;
        loader->totals.samples += step->samples;
        loader->totals.bytes += step_bytes(step);
        steps[n++] = step;
    }
    return n;
}

static void warn_of_length(struct loader *loader, struct stream *stream)
{
    uint64_t samples = stream->samples - stream->repeated;
    char text[512];

    if (!loader->iterable || stream->length_told || samples <= loader->length)
        return;
    stream->length_told = true;
    words_too_many(spec_dataset_label(&loader->spec.dataset), loader->length, samples, text,
                   sizeof text);
    loader->o.events->warning(stream, text);
}

static void warn_of_passing(struct loader *loader, struct stream *stream)
{
    char text[512];

    if (!loader->iterable || loader->leaps || stream->carried || stream->passing_told ||
        stream->params.first == 0)
        return;
    stream->passing_told = true;
    words_passing(spec_dataset_label(&loader->spec.dataset), stream->params.first,
                  loader->spec.batch_size, text, sizeof text);
    loader->o.events->warning(stream, text);
}

static void deliver(struct loader *loader, struct stream *stream)
{
    struct step *steps[DELIVER_AT_ONCE];
    struct step *step;
    uint32_t n;

    if (!stream->sink)
        return;
    warn_of_passing(loader, stream);
    loader_take(loader, stream);
    if (loader->headspace && loader_holds(loader))
        return;
    do {
        n = lease_due(loader, stream, steps, ARRAY_SIZE(steps));
        if (n > 0)
            loader->o.events->deliver(stream, steps, n);
        step = stream_deliverable(stream);
        if (step && step->state == STEP_FAULTED) {
            loader->o.events->fault(stream, step->number, step->error, step->detail, false);
            stream_deliver(stream, step);
            n = 1;
        }
    } while (n > 0);
    warn_of_length(loader, stream);
    if ((stream_finished(stream) || stream_at_limit(stream)) && !stream->finish_told &&
        !stream->stopped) {
        loader_note_verdict(loader);
        stream->finish_told = true;
        loader->o.events->finished(stream);
    }
}

static void turn(struct loader *loader)
{
    struct stream *stream;
    struct stream *next;

    loader_expire_parked(loader);
    DL_FOREACH_SAFE (loader->streams, stream, next) {
        loader_plan(loader, stream);
    }
    DL_FOREACH (loader->streams, stream) {
        deliver(loader, stream);
    }
    DL_FOREACH (loader->streams, stream) {
        loader_expect_next(loader, stream);
    }
    loader->faulted = false;
    if (loader->state == LOADER_OPEN)
        schedule(loader);
}

void loader_pump(struct loader *loader)
{
    uint64_t now;

    if (loader->pumping || loader->halted || (loader->state != LOADER_OPEN && !loader->measuring))
        return;
    loader->pumping = true;
    now = uv_hrtime();
    loader_count_starving(loader, now);
    loader->now = now;
    loader_mark(loader);
    pool_collect(loader->pool);
    if (loader->measuring)
        loader_measure_pump(loader);
    while (loader->state == LOADER_OPEN) {
        turn(loader);
        bool again = loader->headspace && loader_headspace_look(loader);
        if (!again && !loader->faulted)
            break;
    }
    loader_note_starving(loader);
    loader->pumping = false;
}
