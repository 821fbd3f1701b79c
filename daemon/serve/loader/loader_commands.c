/*
 * The shell of the core: executes its decisions; and the pump, which reports free room to the core,
 * turn after turn, until nothing more follows.
 */
#include "daemon/base/blame.h"
#include "daemon/base/memory.h"
#include "daemon/serve/loader/loader_private.h"
#include "proto/slot_fill.h"

#include <assert.h>
#include <errno.h>

/* ---- running a step -------------------------------------------------------------------------- */

/* What the step's worker may begin its replica with, should it not be there already. */
static struct dl_span commands_state_for(struct loader *loader, const struct stream *stream,
                                         uint64_t number)
{
    uint32_t replica = step_replica(stream, number);
    uint64_t round = number / stream->params.replicas;

    return spec_carries_state(&loader->spec)
               ? dataset_states_enter(&loader->carried, replica, stream->number, round)
               : dataset_states_find(&stream->states, replica, round);
}

/* The same of a map-style dataset that has a state. */
static struct dl_span commands_carried(const struct loader *loader, uint64_t number)
{
    return loader->carried.n == 0
               ? (struct dl_span){0}
               : dataset_states_find(&loader->carried, (uint32_t)(number % loader->spec.workers),
                                     UINT64_MAX);
}

/* Bytes of the task of the stream's step, with *ret_planned of them for struct slot_planned. */
static uint64_t commands_task_bytes(const struct stream *stream, uint64_t number,
                                    uint64_t *ret_planned)
{
    struct plan_step_size size = plan_step_size(stream->plan, stream->params.rank, number);

    *ret_planned = slot_planned_bytes(size.samples, size.rows + size.begins);
    return slot_indices_end(size.samples) + *ret_planned;
}

/*
 * How many samples a source's batches have at most. Slots are made as large as one should take,
 * where memory.limit allows for it, so that the first ones need not be loaded twice.
 */
static uint64_t commands_size_for_all(struct loader *loader, const struct stream *source)
{
    uint64_t samples = source->plan ? plan_most(source->plan)
                                    : spec_round_samples(&loader->spec, source->params.world);
    uint64_t bytes, size = max_u64(min_u64(loader->spec.batch_size, loader->core.length), 1);
    struct dl_error none = {0};

    if (!mul_overflows(loader->first_slot_bytes, (samples + size - 1) / size, &bytes))
        (void)!pool_fit(loader->pool, bytes, &none);
    return samples;
}

/* Lets slots have room for the step's indices; false with `err`. */
static bool commands_make_fit(struct loader *loader, const struct step *step, struct dl_error *err)
{
    const struct stream *stream = step->stream;
    uint64_t need, planned;

    if (step->fed)
        need = align_up(slot_indices_end(step->n_fed), sizeof(uint64_t)) +
               commands_carried(loader, step->number).len;
    else if (stream->params.replicas)
        need = slot_indices_end(spec_round_samples(&loader->spec, stream->params.world)) +
               commands_state_for(loader, stream, step->number).len;
    else if (stream_is_for_all(stream))
        need = slot_indices_end(commands_size_for_all(loader, stream));
    else if (loader->lengths)
        need = commands_task_bytes(stream, step->number, &planned);
    else
        return true;
    return pool_fit(loader->pool, need, err);
}

/* Writes the step's indices, as far as they are known, to `indices`; how many. */
static size_t commands_put_indices(struct loader *loader, const struct step *step,
                                   uint64_t *indices)
{
    const struct stream *stream = step->stream;

    if (stream->params.replicas)
        return spec_round_samples(&loader->spec, stream->params.world);
    if (!step->fed)
        return epoch_step(stream->epoch, stream->params.rank, step->number, indices);
    memcpy(indices, step->fed, step->n_fed * sizeof *indices);
    return step->n_fed;
}

/* What the task of a step over an iterable dataset has besides. */
static void commands_put_replica(struct loader *loader, struct step *step,
                                 const struct place *place, struct slot_task *task)
{
    struct stream *stream = step->stream;

    task->stream = stream->number;
    task->rank = stream_is_for_all(stream) ? 0 : (uint32_t)stream->params.rank;
    task->world = (uint32_t)stream->params.world;
    task->settled = stream_settled(stream, step_replica(stream, step->number));
    task->state = commands_state_for(loader, stream, step->number);
    if (slot_state_end(task) > place->segment->slot_bytes)
        task->state = (struct dl_span){0}; /* a step that is made again does without */
}

/* Writes what the plan knows of a batch of tokens, for its worker and our counts. */
static void commands_put_planned(struct step *step, size_t n, void *slot)
{
    const struct stream *stream = step->stream;
    struct plan_step_tokens tokens =
        plan_put_planned(stream->plan, stream->params.rank, step->number, slot_planned(slot, n));

    step->tokens = tokens.tokens;
    step->padded = tokens.padded;
}

/* By what its client may resume at this step, or behind it. */
static void commands_put_mark(const struct stream *stream, uint64_t number, struct slot_task *task)
{
    struct lazy_mark mark = plan_mark(stream->plan, number);

    task->mark_window = mark.window;
    task->mark_rows = mark.rows;
}

/* Puts the step's indices and header into its slot; how many indices. */
static uint32_t commands_prepare(struct loader *loader, struct step *step,
                                 const struct place *place)
{
    struct stream *stream = step->stream;
    void *slot = segment_slot(place->segment, place->slot);
    size_t n = commands_put_indices(loader, step, slot_indices(slot));
    struct slot_task task = {
        .generation = place->segment->slots.slots[place->slot].generation,
        .epoch = stream->params.epoch,
        .step = step->number,
        .samples = (uint32_t)n,
        .what = loader->spec.batch_size == 0 ? SLOT_SAMPLE : SLOT_BATCH,
    };

    if (stream->params.replicas)
        commands_put_replica(loader, step, place, &task);
    else
        task.state = commands_carried(loader, step->number);
    if (loader->lengths)
        commands_task_bytes(stream, step->number, &task.planned);
    if (stream->plan && !stream_is_for_all(stream))
        step->repeated = (uint32_t)plan_repeated(stream->plan, stream->params.rank, step->number);
    if (stream->by_windows)
        commands_put_mark(stream, step->number, &task);
    bool fits = slot_prepare(slot, place->segment->slot_bytes, &task);
    assert(fits); /* commands_make_fit() has seen to it */
    if (task.planned)
        commands_put_planned(step, n, slot);
    return (uint32_t)n;
}

/* Whether the step's indices are ready; else loader_on_planned() follows. */
static bool commands_is_planned(struct loader *loader, const struct step *step)
{
    const struct stream *stream = step->stream;

    return !stream->epoch || epoch_prepare(stream->epoch, stream->params.rank, step->number,
                                           loader_on_planned, loader);
}

/* Fails the step of a worker that died before it began it. */
static bool commands_fault_dead_worker(struct loader *loader, struct step *step,
                                       const struct place *place)
{
    _cleanup_free_ char *cause = pool_take_death_cause(loader->pool, place->worker);

    if (!cause)
        return false;
    core_fault(&loader->core, step, EIO, cause, NULL);
    pool_slot(loader->pool, place->segment, place->slot, SLOT_ABORT);
    return true;
}

static void commands_run(struct loader *loader, struct step *step, uint32_t worker)
{
    struct core *core = &loader->core;
    struct stream *stream = step->stream;
    struct dl_error err = {0};
    struct place place;

    if (!commands_is_planned(loader, step)) {
        core_postpone(core, step, true);
        return;
    }
    if (!commands_make_fit(loader, step, &err)) {
        core_fault(core, step, err.code, err.message, NULL);
        return;
    }
    if (!pool_take(loader->pool, worker, &place)) { /* slots are larger now */
        core_postpone(core, step, false);
        return;
    }
    uint32_t n = commands_prepare(loader, step, &place);
    core_ran(core, step, place.segment, place.slot,
             slot_indices(segment_slot(place.segment, place.slot)), n, loader->now);
    loader_look_ahead(loader, stream); /* before its worker waits for what this one reads */
    if (!commands_fault_dead_worker(loader, step, &place))
        pool_run(loader->pool, &place, step);
}

/* ---- what a mixture's datasets have of what was delivered ---------------------------------- */

/* Once sizes and lengths are known: as soon as the first batch is delivered. */
static const struct mix_ruler *commands_mixture_ruler(struct loader *loader)
{
    struct plan_params params = loader_plan_params(loader);

    if (loader->ruler.nodes || mix_ruler_init(&loader->ruler, &params) == 0)
        return &loader->ruler;
    return NULL;
}

/* The leaves of a batch's samples, and its approximate place in the order; false: unknown. With
 * iterable datasets the worker reports the leaves, and all ranks' steps are equally long. */
static bool commands_look_at_mixture(const struct loader *loader, const struct stream *stream,
                                     const struct step *step, struct mix_batch *ret)
{
    const struct stream_params *params = &stream->params;
    const void *slot = segment_slot(step->segment, step->slot);
    uint64_t all = max_u64(loader->spec.batch_size, 1) * max_u64(params->world, 1);

    *ret = (struct mix_batch){.epoch = params->epoch, .n = step->samples};
    if (!loader->core.iterable) {
        if (!loader->sizes || !stream->plan)
            return false;
        ret->indices = slot_indices((void *)slot) + step->first;
        ret->position = plan_position(stream->plan, params->rank, step->number);
        return true;
    }
    ret->origins =
        slot_read_origins(slot, step->segment->slot_bytes, (uint64_t)step->first + step->samples);
    if (!ret->origins)
        return false;
    ret->origins += step->first;
    if (mul_overflows(step->number, all, &ret->position))
        ret->position = MIX_POSITIONS;
    return true;
}

static void commands_count_mixture(struct loader *loader, struct stream *stream,
                                   const struct step *step)
{
    struct mix_batch batch;

    if (!step->segment || !commands_look_at_mixture(loader, stream, step, &batch))
        return;
    const struct mix_ruler *ruler = commands_mixture_ruler(loader);

    if (!ruler)
        return; /* for want of memory */
    if (!stream->mixture) {
        stream->n_mixture = ruler->n_nodes;
        stream->mixture = must_alloc(stream->n_mixture * sizeof *stream->mixture);
    }
    mix_tally_add(ruler, &batch, stream->mixture);
}

/* ---- commands -------------------------------------------------------------------------------- */

static void commands_grow(struct loader *loader, uint32_t worker)
{
    struct dl_error err = {0};
    bool grown;

    if (loader->core.workers == 0) /* one will come: loader_wake() */
        return;
    while (!(grown = pool_grow(loader->pool, worker, &err)) && err.code == EDQUOT &&
           loader->o.events->make_way(loader->o.context, loader))
        err = (struct dl_error){0};
    if (!grown)
        core_refuse_memory(&loader->core, worker, &err, pool_idle(loader->pool));
}

/* Failure is harmless: the epoch then starts when it is requested. */
static void commands_expect(struct loader *loader, struct stream *stream)
{
    struct stream_params params = core_next_params(stream);
    struct stream *next;

    if (loader_add_stream(loader, &params, &next, NULL) < 0)
        return;
    if (stream_is_source(next) && core_add_source(&loader->core, next, NULL, NULL) < 0)
        core_end(&loader->core, next);
    else
        core_expect(&loader->core, stream, next);
}

static void commands_drop(struct loader *loader, const struct core_command *c)
{
    if (c->epoch)
        epoch_unref(&loader->epochs, c->epoch);
    if (c->number)
        pool_forget(loader->pool, c->number);
    if (c->final)
        loader_look_ahead_anew(loader);
    quota_return(loader->o.pool.account, QUOTA_EPOCHS, 1);
}

static void commands_say(struct loader *loader, const struct core_command *c)
{
    _cleanup_free_ char *text = c->text;
    const struct log_fields fields = {.event = c->kind == CORE_BAD ? LOG_EVENT_BAD_SAMPLE : 0,
                                      .loader = loader->spec.name,
                                      .client_uid = LOG_N(loader->o.uid),
                                      .epoch = LOG_N(c->stream->params.epoch)};

    if (c->kind != CORE_WARN)
        log_about(c->kind == CORE_BAD ? LOG_WARNING : LOG_INFO, &fields, "%s: %s",
                  loader->spec.name, text);
    if (c->kind != CORE_LOG)
        loader->o.events->warning(c->stream, text);
}

static void commands_flush_due(struct loader *loader)
{
    if (loader->n_due == 0)
        return;
    struct stream *stream = loader->due[0]->stream;
    /* Of files that are not those that were opened each epoch is warned: others may have been. */
    if (loader->written_told < loader->n_written ||
        (loader->look.changed && loader->n_written > 0 && !(stream->told & TOLD_FILES)))
        loader_tell_written(loader, stream);
    loader->o.events->deliver(stream, loader->due, loader->n_due);
    loader->n_due = 0;
}

/* Batches of a stream go to its client together. */
static void commands_deliver(struct loader *loader, const struct core_command *c)
{
    if (loader->n_due == DELIVER_AT_ONCE ||
        (loader->n_due > 0 && loader->due[0]->stream != c->stream))
        commands_flush_due(loader);
    if (loader->spec.dataset.kind == DATASET_MIX)
        commands_count_mixture(loader, c->stream, c->step);
    loader->due[loader->n_due++] = c->step;
}

static void commands_execute(struct loader *loader, const struct core_command *c)
{
    const struct loader_events *events = loader->o.events;

    if (c->kind != CORE_DELIVER && c->kind != CORE_SLOT)
        commands_flush_due(loader);
    switch (c->kind) {
    case CORE_RUN:
        commands_run(loader, c->step, c->worker);
        break;
    case CORE_SLOT:
        pool_slot(loader->pool, c->segment, c->slot, c->event);
        break;
    case CORE_GROW:
        commands_grow(loader, c->worker);
        break;
    case CORE_EXPECT:
        commands_expect(loader, c->stream);
        break;
    case CORE_DELIVER:
        commands_deliver(loader, c);
        break;
    case CORE_FAULT:
        events->fault(c->stream, c->step ? c->step->number : UINT64_MAX, c->err,
                      c->step ? c->step->detail : NULL, c->final);
        break;
    case CORE_FINISH:
        loader_note_verdict(loader, c->stream);
        loader_lately_end(loader, c->stream);
        events->finished(c->stream);
        break;
    case CORE_REFUSE:
        events->started(c->stream, NULL, c->err);
        break;
    case CORE_WARN:
    case CORE_BAD:
    case CORE_LOG:
        commands_say(loader, c);
        break;
    case CORE_DROP:
        commands_drop(loader, c);
        break;
    }
}

/* Also while other commands are executed: what follows from one comes after those that were there
 * before, unless the pool needs it at once (loader_on_reclaim()). */
void loader_execute_all(struct loader *loader)
{
    struct core_command command;

    while (core_next_command(&loader->core, &command))
        commands_execute(loader, &command);
    commands_flush_due(loader);
}

void loader_execute(struct loader *loader)
{
    if (loader->executing)
        return;
    loader->executing = true;
    loader_execute_all(loader);
    loader->executing = false;
}

/* ---- what clients release -------------------------------------------------------------------- */

bool loader_return(struct loader *loader, struct stream *stream, struct dl_span steps, bool pin,
                   uint64_t waited_ns, uint64_t *ret_unknown)
{
    uint64_t now = uv_hrtime();
    uint32_t leased = stream->in_state[STEP_LEASED];
    bool known = true;

    stream_waited(stream, waited_ns, now);
    loader->size.waited_ns += min_u64(waited_ns, now - min_u64(now, loader->size.at_ns));
    for (size_t at = 0; known && at < steps.len; at += sizeof *ret_unknown) {
        memcpy(ret_unknown, steps.data + at, sizeof *ret_unknown);
        known = pin ? core_pin(&loader->core, stream, *ret_unknown, now)
                    : core_release(&loader->core, stream, *ret_unknown, now);
    }
    loader_execute(loader);
    if (known)
        loader_headspace_returned(loader, stream, leased - stream->in_state[STEP_LEASED], waited_ns,
                                  now);
    return known;
}

/* ---- the pump -------------------------------------------------------------------------------- */

static void commands_on_tick(uv_timer_t *timer)
{
    struct loader *loader = timer->data;
    BLAMING(loader->o.blame);
    uint64_t due = loader->ticks; /* it may come early by what it rounds to */

    loader->ticks = UINT64_MAX;
    core_tick(&loader->core, max_u64(due, uv_hrtime()));
    loader_execute(loader);
    loader_pump(loader);
}

static void commands_wait_for_deadline(struct loader *loader)
{
    uint64_t deadline = loader_windows_go_on(loader) ? 0 : core_deadline(&loader->core);

    if (deadline == loader->ticks)
        return;
    loader->ticks = deadline;
    if (deadline == UINT64_MAX)
        uv_timer_stop(&loader->tick);
    else
        uv_timer_start(&loader->tick, commands_on_tick,
                       (deadline - min_u64(deadline, uv_hrtime())) / 1000000, 0);
}

/* Updates the time for all that follows. */
static void commands_note_time(struct loader *loader)
{
    uint64_t now = uv_hrtime();

    if (loader->starves)
        loader->starved_ns += now - min_u64(loader->now, now);
    loader->now = now;
    if (now - loader->marked.was[1] >= MARK_NS)
        loader_mark(loader);
}

static void commands_schedule(struct loader *loader)
{
    uint32_t n = loader->core.workers; /* others are about to go */
    bool still = loader_headspace_phase(loader) == HEADSPACE_BURST;

    for (uint32_t i = 0; i < n; i++) {
        loader->rooms[i] = pool_room(loader->pool, i);
        if (still)
            loader->rooms[i].tasks = 0;
    }
    loader_hold_workers(loader);
    core_schedule(&loader->core, loader->rooms);
    loader_execute(loader);
    pool_flush(loader->pool);
}

/* True: another turn is needed. */
static bool commands_turn(struct loader *loader)
{
    struct core *core = &loader->core;

    core->delivery_paused = loader_headspace_phase(loader) == HEADSPACE_HOLD;
    core_deliver(core, loader->now);
    loader_execute(loader);
    if (loader->state == LOADER_OPEN)
        commands_schedule(loader);
    bool again = loader_headspace_look(loader);
    return loader->state == LOADER_OPEN && (again || core_has_work(core));
}

void loader_pump(struct loader *loader)
{
    if (loader->pumping || loader->executing || loader->halted ||
        (loader->state != LOADER_OPEN && !loader->measuring))
        return;
    BLAMING(loader->o.blame);
    loader->pumping = true;
    commands_note_time(loader);
    pool_collect(loader->pool);
    loader_look_fair(loader);
    if (loader->measuring)
        loader_measure_pump(loader);
    if (loader->state == LOADER_OPEN) {
        core_tick(&loader->core, loader->now);
        loader_windows_pump(loader);
    }
    if (loader->state == LOADER_OPEN) {
        while (commands_turn(loader))
            ;
        commands_wait_for_deadline(loader);
        loader_look_fair(loader);
    }
    loader->starves = loader->core.starved && loader_is_starving(loader);
    loader->pumping = false;
}
