/* What a core is played in: chance, memory, what its clients must hear, and the shell that executes
 * its commands. */
#include "tests/lib/core_sim_private.h"

/* ---- chance ---------------------------------------------------------------------------------- */

/* Input that is used up goes on as zeroes: 0 is what happens mostly. */
uint32_t sim_draw(struct sim *sim, uint32_t below)
{
    uint64_t z;

    if (sim->data) {
        uint32_t byte = sim->len > 0 ? *sim->data : 0;

        sim->data += sim->len > 0;
        sim->len -= sim->len > 0;
        return byte % below;
    }
    z = sim->seed * 0x9E3779B97F4A7C15U + ++sim->draws * 0xBF58476D1CE4E5B9U;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9U;
    z = (z ^ z >> 27) * 0x94D049BB133111EBU;
    return (uint32_t)((z ^ z >> 31) % below);
}

/* Rounds that a replica has, the same for all ranks. */
uint64_t sim_rounds(const struct sim *sim, uint64_t epoch, uint32_t replica)
{
    return (sim->rules->steps * 7 + epoch * 5 + replica * 3) % (sim->rules->steps + 1);
}

/* Whether the step is one of the rank's; of a dispatched one, in the last round there are rows for
 * some ranks only. */
uint64_t sim_samples(const struct sim *sim, uint64_t epoch, uint64_t step)
{
    uint32_t replica = (uint32_t)(step % sim->rules->workers);

    if (!sim->rules->dispatch)
        return 4;
    if (!sim->rules->iterable)
        return 4ULL * sim->rules->ranks;
    if (step / sim->rules->workers + 1 == sim_rounds(sim, epoch, replica))
        return 1 + (epoch + step) % (2 * sim->rules->ranks);
    return 2 * sim->rules->ranks;
}

uint32_t sim_slices(const struct sim *sim, uint32_t rank)
{
    return sim->rules->slices ? 1U << rank % 3 : 0;
}

bool sim_exists(const struct sim *sim, uint64_t epoch, uint32_t rank, uint64_t step)
{
    if (!sim->rules->iterable)
        return step < sim->rules->steps * max_u64(sim_slices(sim, rank), 1);
    if (step / sim->rules->workers >=
        sim_rounds(sim, epoch, (uint32_t)(step % sim->rules->workers)))
        return false;
    return !sim->rules->dispatch ||
           plan_rows(sim_samples(sim, epoch, step), 0, sim->rules->ranks, rank).samples > 0;
}

/* The rank's first step from that one on; STEPS_MAX: there is none. */
uint64_t sim_next(const struct sim *sim, uint64_t epoch, uint32_t rank, uint64_t step)
{
    while (step < STEPS_MAX && !sim_exists(sim, epoch, rank, step))
        step++;
    return step;
}

bool *sim_failed(const struct sim *sim, uint64_t epoch, uint64_t step)
{
    return &sim->failed[epoch % 4 * STEPS_MAX + step % STEPS_MAX];
}

/* ---- memory ---------------------------------------------------------------------------------- */

static bool has_segment(const struct sim *sim, uint32_t worker)
{
    const struct segment *segment;

    DL_FOREACH (sim->segments, segment)
        if (segment->active && segment->worker == worker)
            return true;
    return false;
}

/* Each worker can have one, unless they grow. */
bool sim_add_segment(struct sim *sim, uint32_t worker)
{
    uint32_t spoken_for = sim->n_segments;

    for (uint32_t i = 0; i < sim->core.workers && !sim->rules->grows; i++)
        spoken_for += i != worker && !has_segment(sim, i);
    if (spoken_for >= sim->rules->segments)
        return false;
    struct segment *segment = must_alloc(sizeof *segment);

    segment->id = ++sim->next_segment;
    segment->worker = worker;
    segment->active = true;
    segment->writable = segment->id % 5 == 0;
    slot_table_init(&segment->slots, sim->rules->slots);
    DL_APPEND(sim->segments, segment);
    sim->n_segments++;
    return true;
}

void sim_settle_segment(struct sim *sim, struct segment *segment)
{
    if (segment->active || !slot_table_retire(&segment->slots))
        return;
    DL_DELETE(sim->segments, segment);
    slot_table_deinit(&segment->slots);
    free(segment);
    sim->n_segments--;
}

void sim_retire_segments(struct sim *sim, uint32_t worker, bool unused)
{
    struct segment *segment, *next;

    DL_FOREACH_SAFE (sim->segments, segment, next) {
        const struct slot_table *slots = &segment->slots;

        if (!segment->active || (worker != CORE_ANY && segment->worker != worker) ||
            (unused && slots->in_state[SLOT_FREE] < slots->count))
            continue;
        segment->active = false;
        sim_settle_segment(sim, segment);
    }
}

void sim_slot(struct sim *sim, struct segment *segment, uint32_t slot, enum slot_event event)
{
    slot_apply(&segment->slots, slot, event);
    if (event != SLOT_LEASE)
        sim_settle_segment(sim, segment);
}

static uint32_t free_slots(const struct sim *sim, uint32_t worker)
{
    const struct segment *segment;
    uint32_t n = 0;

    DL_FOREACH (sim->segments, segment)
        if (segment->active && segment->worker == worker)
            n += segment->slots.in_state[SLOT_FREE];
    return n;
}

/* ---- what clients hear ----------------------------------------------------------------------- */

static uint32_t credits_used(const struct sim_pass *pass)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < pass->n_held; i++)
        n += !pass->held[i].pinned;
    return n;
}

/* It is the part of a common batch that has its samples, or they were made for it alone. */
static void check_slice(struct sim *sim, const struct stream *stream, const struct step *step)
{
    uint32_t n = stream->params.slices.n;
    bool is_part = step->all > step->samples;

    SIM_ASSERT(step->samples == STEP_SAMPLES / n);
    SIM_ASSERT(step->first == (is_part ? step->number % n * step->samples : 0));
    SIM_ASSERT(step->named[0] == (is_part ? step->number / n : step->number));
}

/* A batch or a fault comes. */
static void hear_step(struct sim *sim, struct stream *stream, struct step *made, bool fault)
{
    struct sim_pass *pass = stream->sink;
    uint64_t step = made->number;

    if (sim->ears) {
        sim->ears->step(sim, stream, made, fault);
        sim->totals->batches += !fault;
        sim->totals->faults += fault;
        return;
    }
    SIM_ASSERT(pass && pass->stream == stream && !pass->finished && !pass->stopped);
    SIM_ASSERT(step < STEPS_MAX && step >= pass->first && !pass->came[step]);
    SIM_ASSERT(fault || sim_exists(sim, pass->epoch, pass->rank, step));
    SIM_ASSERT(!fault || *sim_failed(sim, pass->epoch, step));
    if (sim->rules->slices && !fault)
        check_slice(sim, stream, made);
    if (!sim->rules->any_order) { /* a worker can die at a step that is none */
        uint64_t due = sim_next(sim, pass->epoch, pass->rank, pass->next);

        SIM_ASSERT(step == due || (fault && step >= pass->next && step < due));
        pass->next = step + 1;
    }
    if (sim->rules->bypass && !sim->rules->iterable) {
        uint64_t head = pass->first;

        while (pass->came[head])
            head++;
        SIM_ASSERT(step - head <= sim->rules->bypass);
    }
    pass->came[step] = 1 + fault;
    SIM_ASSERT(pass->n_held < HELD_MAX);
    pass->held[pass->n_held++] = (struct sim_held){.step = step, .fault = fault};
    SIM_ASSERT(credits_used(pass) <= sim->rules->credits);
    sim->totals->batches += !fault;
    sim->totals->faults += fault;
}

static void hear_finish(struct sim *sim, struct stream *stream)
{
    struct sim_pass *pass = stream->sink;

    if (sim->ears) {
        sim->ears->finish(sim, stream);
        sim->totals->finished++;
        return;
    }
    SIM_ASSERT(pass && pass->stream == stream && !pass->finished && !pass->stopped);
    for (uint64_t step = pass->first; step < STEPS_MAX; step++)
        SIM_ASSERT(sim_exists(sim, pass->epoch, pass->rank, step) ? pass->came[step]
                                                                  : pass->came[step] != 1);
    pass->finished = true;
    sim->totals->finished++;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void settle_stream(struct sim *sim, struct stream *stream)
{
    struct dl_error err = {0};
    uint64_t steps = plan_steps(stream->plan, stream->params.rank);

    SIM_ASSERT(steps == sim->rules->steps * max_u64(stream->params.slices.n, 1));
    SIM_ASSERT(core_settle(&sim->core, stream, steps, &err) == 0);
}

/* All plans are worked out, and prepared. */
void sim_settle_all(struct sim *sim)
{
    struct stream *stream;

    DL_FOREACH (sim->core.streams, stream)
        if (!stream_is_settled(stream) && stream->phase != STREAM_STOPPED)
            settle_stream(sim, stream);
    core_planned(&sim->core);
}

/* ---- what the core decides ------------------------------------------------------------------- */

/* It waits for memory. */
static bool is_bare(const struct sim *sim, uint32_t worker)
{
    return worker < sim->core.workers && !sim->workers[worker].dead && !has_segment(sim, worker);
}

static void run(struct sim *sim, struct step *step, uint32_t index)
{
    struct sim_worker *worker = &sim->workers[index];
    struct segment *segment = NULL;
    uint32_t slot = SLOT_NONE;
    uint64_t indices[STEP_SAMPLES] = {step->number};
    uint32_t n = STEP_SAMPLES / (uint32_t)max_u64(step->stream->params.slices.n, 1);

    SIM_ASSERT(!worker->dead && worker->n_tasks < TASKS_MAX && index < sim->core.workers);
    SIM_ASSERT(!sim->rules->iterable || step->number % sim->rules->workers == index);
    if (sim_draw(sim, 64) == 1) { /* its plan has to be prepared first */
        core_postpone(&sim->core, step, sim_draw(sim, 2));
        return;
    }
    DL_FOREACH (sim->segments, segment) {
        if (segment->active && segment->worker == index &&
            (slot = slot_assign(&segment->slots)) != SLOT_NONE)
            break;
    }
    SIM_ASSERT(segment);
    sim->totals->made++;
    sim->totals->kept += step->kept_by == index + 1;
    SIM_ASSERT(step->kept_by == 0 || step->kept_by == index + 1 ||
               !is_bare(sim, step->kept_by - 1));
    core_ran(&sim->core, step, segment, slot, indices, sim->rules->slices ? n : 1, sim->now);
    worker->tasks[worker->n_tasks++] =
        (struct sim_task){.step = step, .segment = segment, .slot = slot};
}

static bool is_idle(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->rules->workers; i++)
        if (sim->workers[i].dead || sim->workers[i].n_tasks > 0)
            return false;
    return true;
}

static void grow(struct sim *sim, uint32_t worker)
{
    struct dl_error err = {0};
    uint32_t lacks = worker;

    if (sim->core.workers == 0) /* one will come */
        return;
    if (worker == CORE_ANY)
        worker = sim_draw(sim, sim->core.workers);
    if (sim->workers[worker].dead || sim_add_segment(sim, worker))
        return;
    core_reclaim(&sim->core);
    sim_execute(sim);
    if (sim_add_segment(sim, worker))
        return;
    if (!has_segment(sim, worker))
        sim_retire_segments(sim, CORE_ANY, true);
    if (sim_add_segment(sim, worker))
        return;
    dl_error_set(&err, ENOMEM, "memory.limit", "all of it is used");
    core_refuse_memory(&sim->core, lacks, &err, is_idle(sim));
}

static struct plan *plan_of(const struct sim *sim, const struct stream_params *params)
{
    uint32_t size = params->slices.n > 0 ? params->slices.size : STEP_SAMPLES;
    const struct plan_params plan = {.length = 4ULL * sim->rules->steps * params->world,
                                     .epoch = params->epoch,
                                     .world = params->world,
                                     .batch_size = size,
                                     .shard = sim->rules->dispatch ? PLAN_DISPATCH : PLAN_STRIDED};
    struct plan *ret;
    int r = plan_new(&plan, &ret);

    SIM_ASSERT(r == 0);
    return ret;
}

/* A plan is worked out at once, or some time later. */
struct stream *sim_add_stream(struct sim *sim, struct stream_params params)
{
    struct stream *stream;
    struct plan *plan;

    if (quota_charge(sim->account, QUOTA_EPOCHS, 1, NULL) < 0)
        return NULL;
    params.steps = STEPS_UNKNOWN;
    if (sim->rules->iterable)
        return core_add(&sim->core, &params, NULL, NULL);
    plan = plan_of(sim, &params);
    stream = core_add(&sim->core, &params, (struct epoch *)(void *)plan, plan);
    if (sim_draw(sim, 4) > 0 || sim->ending)
        settle_stream(sim, stream);
    return stream;
}

static void expect(struct sim *sim, struct stream *stream)
{
    struct stream *next = sim_add_stream(sim, core_next_params(stream));

    if (!next)
        return;
    if (stream_is_source(next) && core_add_source(&sim->core, next, NULL, NULL) < 0)
        core_end(&sim->core, next);
    else
        core_expect(&sim->core, stream, next);
}

static void execute(struct sim *sim, struct core_command *c)
{
    switch (c->kind) {
    case CORE_RUN:
        run(sim, c->step, c->worker);
        break;
    case CORE_SLOT:
        sim_slot(sim, c->segment, c->slot, c->event);
        break;
    case CORE_GROW:
        grow(sim, c->worker);
        break;
    case CORE_EXPECT:
        expect(sim, c->stream);
        break;
    case CORE_DELIVER:
        hear_step(sim, c->stream, c->step, false);
        break;
    case CORE_FAULT:
        SIM_ASSERT(!c->final);
        sim->totals->starved += !c->step;
        if (c->step)
            hear_step(sim, c->stream, c->step, true);
        else if (sim->ears)
            sim->ears->starves(sim, c->stream, c->err);
        break;
    case CORE_FINISH:
        hear_finish(sim, c->stream);
        break;
    case CORE_DROP:
        quota_return(sim->account, QUOTA_EPOCHS, 1);
        plan_free((struct plan *)(void *)c->epoch);
        break;
    case CORE_REFUSE:
        SIM_ASSERT(!"all plans can be worked out");
        break;
    case CORE_LOG:
        sim->totals->left += sim->rules->window > 0;
        free(c->text);
        break;
    case CORE_WARN:
    case CORE_BAD:
        free(c->text);
        break;
    }
}

void sim_execute(struct sim *sim)
{
    struct core_command command;

    while (core_next_command(&sim->core, &command))
        execute(sim, &command);
}

/* Whether the core has all that it needs to serve whoever waits. */
static bool is_still(const struct sim *sim)
{
    return is_idle(sim) && !sim->core.waiting && !sim->core.starved && !sim->rules->leases;
}

/* Of a companion: it has nothing to read, and only others can be the reason. */
static bool is_held_up(const struct sim *sim, const struct sim_pass *pass)
{
    const struct stream *stream = pass->stream;

    return is_still(sim) && stream && stream->source && !pass->finished && !pass->stopped &&
           pass->n_held == 0 && stream_is_settled(stream) && stream_is_settled(stream->source);
}

static void look_at_companion(struct sim *sim, struct sim_pass *pass)
{
    const struct stream *source = pass->stream ? pass->stream->source : NULL;

    if (pass->held_up)
        pass->held_up_ns += sim->now - pass->held_up;
    if (source && source != pass->source) {
        sim->totals->moved += pass->source || pass->next > pass->first;
        pass->held_up_ns = 0;
    }
    pass->source = source ? source : pass->source;
    pass->held_up = is_held_up(sim, pass) ? sim->now : 0;
    SIM_ASSERT(!pass->held_up || pass->held_up_ns <= sim->rules->wait);
}

void sim_pump(struct sim *sim)
{
    struct worker_room rooms[64];
    const struct stream *stream;
    uint32_t turns = 0;

    sim_execute(sim);
    for (uint32_t i = 0; i < sim->core.workers; i++)
        if (!sim->workers[i].dead && !has_segment(sim, i))
            (void)sim_add_segment(sim, i);
    for (uint32_t i = sim->core.workers; i < sim->rules->workers; i++)
        if (sim->workers[i].n_tasks == 0) { /* it goes; what it made stays */
            sim->workers[i].dead = false;
            sim_retire_segments(sim, i, false);
        }
    core_tick(&sim->core, sim->now);
    do {
        if (sim->rules->window && core_deadline(&sim->core) <= sim->now)
            core_tick(&sim->core, sim->now);
        SIM_ASSERT(++turns < TURNS_MAX);
        core_deliver(&sim->core, sim->now);
        sim_execute(sim);
        for (uint32_t i = 0; i < sim->core.workers; i++) {
            const struct sim_worker *worker = &sim->workers[i];
            rooms[i] = (struct worker_room){.slots = worker->dead ? 0 : free_slots(sim, i),
                                            .tasks = worker->dead ? 0 : TASKS_MAX - worker->n_tasks,
                                            .has = worker->n_tasks,
                                            .bare = is_bare(sim, i),
                                            .ahead = sim_draw(sim, 3)};
        }
        core_schedule(&sim->core, rooms);
        sim_execute(sim);
    } while (core_has_work(&sim->core) ||
             (sim->rules->window && core_deadline(&sim->core) <= sim->now));
    for (uint32_t i = 0; sim->rules->window && i < sim->rules->ranks; i++)
        look_at_companion(sim, &sim->passes[i]);
    DL_FOREACH (sim->core.streams, stream)
        sim->totals->most = max_u64(sim->totals->most, stream_window(stream));
}
