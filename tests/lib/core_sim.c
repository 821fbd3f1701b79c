#include "tests/lib/core_sim.h"

#include "daemon/serve/base/memory.h"

#include <errno.h>
#include <stdio.h>

#include <utlist.h>

#define SIM_ASSERT(condition)                                                             \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s does not hold; seed %llu, event %llu\n", __FILE__, \
                    __LINE__, #condition, (unsigned long long)sim->seed,                  \
                    (unsigned long long)sim->totals->events);                             \
            abort();                                                                      \
        }                                                                                 \
    } while (0)

enum {
    TASKS_MAX = 3, /* that a worker is given */
    STEPS_MAX = 256,
    HELD_MAX = 64, /* leases and pins of a client */
    TURNS_MAX = 10000,
};

#define SIM_MS    ((uint64_t)1000000)
#define LINGER_NS (1000 * SIM_MS)

/* What a client has in hand of a step. */
struct sim_held {
    uint64_t step;
    bool pinned, fault;
};

/* One epoch of a rank, as its client sees it. */
struct sim_pass {
    struct stream *stream; /* NULL: there is none */
    uint32_t rank;
    uint64_t epoch, first, next;
    bool finished, stopped;
    uint32_t n_held;
    struct sim_held held[HELD_MAX];
    uint8_t came[STEPS_MAX]; /* steps that came, in this stream */
};

struct sim_task {
    struct step *step;
    struct segment *segment;
    uint32_t slot;
};

struct sim_worker {
    bool dead;
    uint32_t n_tasks;
    struct sim_task tasks[TASKS_MAX];
};

struct sim {
    const struct sim_rules *rules;
    struct sim_totals *totals;
    uint64_t seed, draws, now;
    const uint8_t *data;
    size_t len;
    struct core core;
    struct dl_spec spec;
    struct quota *quota;
    struct quota_account *account;
    struct segment *segments; /* owned list (utlist) */
    uint32_t n_segments, next_segment;
    struct sim_worker *workers;
    struct sim_pass *passes; /* of each rank */
    uint64_t *epochs;        /* that each rank is to start next */
    bool *failed;            /* [epoch % 4][step]: something failed there, for some rank */
    bool ending;             /* nobody begins anything any more */
};

/* ---- chance ---------------------------------------------------------------------------------- */

/* Input that is used up goes on as zeroes: 0 is what happens mostly. */
static uint32_t draw(struct sim *sim, uint32_t below)
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
static uint64_t rounds_of(const struct sim *sim, uint64_t epoch, uint32_t replica)
{
    return (sim->rules->steps * 7 + epoch * 5 + replica * 3) % (sim->rules->steps + 1);
}

/* Whether the step is one of the rank's; of a dispatched one, in the last round there are rows for
 * some ranks only. */
static uint64_t samples_of(const struct sim *sim, uint64_t epoch, uint64_t step)
{
    uint32_t replica = (uint32_t)(step % sim->rules->workers);

    if (!sim->rules->dispatch)
        return 4;
    if (!sim->rules->iterable)
        return 4ULL * sim->rules->ranks;
    if (step / sim->rules->workers + 1 == rounds_of(sim, epoch, replica))
        return 1 + (epoch + step) % (2 * sim->rules->ranks);
    return 2 * sim->rules->ranks;
}

static bool exists(const struct sim *sim, uint64_t epoch, uint32_t rank, uint64_t step)
{
    if (!sim->rules->iterable)
        return step < sim->rules->steps;
    if (step / sim->rules->workers >= rounds_of(sim, epoch, (uint32_t)(step % sim->rules->workers)))
        return false;
    return !sim->rules->dispatch ||
           plan_rows(samples_of(sim, epoch, step), 0, sim->rules->ranks, rank).samples > 0;
}

/* The rank's first step from that one on; STEPS_MAX: there is none. */
static uint64_t next_of(const struct sim *sim, uint64_t epoch, uint32_t rank, uint64_t step)
{
    while (step < STEPS_MAX && !exists(sim, epoch, rank, step))
        step++;
    return step;
}

static bool *failed_at(const struct sim *sim, uint64_t epoch, uint64_t step)
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

/* Each worker can have one. */
static bool add_segment(struct sim *sim, uint32_t worker)
{
    uint32_t spoken_for = sim->n_segments;

    for (uint32_t i = 0; i < sim->rules->workers; i++)
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

static void settle(struct sim *sim, struct segment *segment)
{
    if (segment->active || !slot_table_retire(&segment->slots))
        return;
    DL_DELETE(sim->segments, segment);
    slot_table_deinit(&segment->slots);
    free(segment);
    sim->n_segments--;
}

static void slot_event(struct sim *sim, struct segment *segment, uint32_t slot,
                       enum slot_event event)
{
    slot_apply(&segment->slots, slot, event);
    if (event != SLOT_LEASE)
        settle(sim, segment);
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

/* A batch or a fault comes. */
static void hear_step(struct sim *sim, struct stream *stream, uint64_t step, bool fault)
{
    struct sim_pass *pass = stream->sink;

    SIM_ASSERT(pass && pass->stream == stream && !pass->finished && !pass->stopped);
    SIM_ASSERT(step < STEPS_MAX && step >= pass->first && !pass->came[step]);
    SIM_ASSERT(fault || exists(sim, pass->epoch, pass->rank, step));
    SIM_ASSERT(!fault || *failed_at(sim, pass->epoch, step));
    if (!sim->rules->any_order) { /* a worker can die at a step that is none */
        uint64_t due = next_of(sim, pass->epoch, pass->rank, pass->next);

        SIM_ASSERT(step == due || (fault && step >= pass->next && step < due));
        pass->next = step + 1;
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

    SIM_ASSERT(pass && pass->stream == stream && !pass->finished && !pass->stopped);
    for (uint64_t step = pass->first; step < STEPS_MAX; step++)
        SIM_ASSERT(exists(sim, pass->epoch, pass->rank, step) ? pass->came[step]
                                                              : pass->came[step] != 1);
    pass->finished = true;
    sim->totals->finished++;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void settle_stream(struct sim *sim, struct stream *stream)
{
    struct dl_error err = {0};
    uint64_t steps = plan_steps(stream->plan, stream->params.rank);

    SIM_ASSERT(steps == sim->rules->steps);
    SIM_ASSERT(core_settle(&sim->core, stream, steps, &err) == 0);
}

/* All plans are worked out, and prepared. */
static void settle_all(struct sim *sim)
{
    struct stream *stream;

    DL_FOREACH (sim->core.streams, stream)
        if (!stream_is_settled(stream) && stream->phase != STREAM_STOPPED)
            settle_stream(sim, stream);
    core_planned(&sim->core);
}

/* ---- what the core decides ------------------------------------------------------------------- */

static void run(struct sim *sim, struct step *step, uint32_t index)
{
    struct sim_worker *worker = &sim->workers[index];
    struct segment *segment = NULL;
    uint32_t slot = SLOT_NONE;
    uint64_t number = step->number;

    SIM_ASSERT(!worker->dead && worker->n_tasks < TASKS_MAX);
    SIM_ASSERT(!sim->rules->iterable || step->number % sim->rules->workers == index);
    if (draw(sim, 64) == 1) { /* its plan has to be prepared first */
        core_postpone(&sim->core, step, draw(sim, 2));
        return;
    }
    DL_FOREACH (sim->segments, segment) {
        if (segment->active && segment->worker == index &&
            (slot = slot_assign(&segment->slots)) != SLOT_NONE)
            break;
    }
    SIM_ASSERT(segment);
    core_ran(&sim->core, step, segment, slot, &number, 1, sim->now);
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

static void execute_all(struct sim *sim);

static void grow(struct sim *sim, uint32_t worker)
{
    struct dl_error err = {0};

    if (worker == CORE_ANY)
        worker = draw(sim, sim->rules->workers);
    if (sim->workers[worker].dead || add_segment(sim, worker))
        return;
    core_reclaim(&sim->core);
    execute_all(sim);
    if (add_segment(sim, worker))
        return;
    dl_error_set(&err, ENOMEM, "memory.limit", "all of it is used");
    core_refuse_memory(&sim->core, &err, is_idle(sim));
}

static struct plan *plan_of(const struct sim *sim, const struct stream_params *params)
{
    const struct plan_params plan = {.length = 4ULL * sim->rules->steps * params->world,
                                     .epoch = params->epoch,
                                     .world = params->world,
                                     .batch_size = 4,
                                     .shard = sim->rules->dispatch ? PLAN_DISPATCH : PLAN_STRIDED};
    struct plan *ret;
    int r = plan_new(&plan, &ret);

    SIM_ASSERT(r == 0);
    return ret;
}

/* A plan is worked out at once, or some time later. */
static struct stream *add_stream(struct sim *sim, struct stream_params params)
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
    if (draw(sim, 4) > 0 || sim->ending)
        settle_stream(sim, stream);
    return stream;
}

static void expect(struct sim *sim, struct stream *stream)
{
    struct stream *next = add_stream(sim, core_next_params(stream));

    if (!next)
        return;
    if (stream_is_source(next))
        core_add_source(&sim->core, next, NULL);
    core_expect(&sim->core, stream, next);
}

static void execute(struct sim *sim, struct core_command *c)
{
    switch (c->kind) {
    case CORE_RUN:
        run(sim, c->step, c->worker);
        break;
    case CORE_SLOT:
        slot_event(sim, c->segment, c->slot, c->event);
        break;
    case CORE_GROW:
        grow(sim, c->worker);
        break;
    case CORE_EXPECT:
        expect(sim, c->stream);
        break;
    case CORE_DELIVER:
        hear_step(sim, c->stream, c->step->number, false);
        break;
    case CORE_FAULT:
        SIM_ASSERT(!c->final);
        sim->totals->starved += !c->step;
        if (c->step)
            hear_step(sim, c->stream, c->step->number, true);
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
    case CORE_WARN:
    case CORE_BAD:
    case CORE_LOG:
        free(c->text);
        break;
    }
}

static void execute_all(struct sim *sim)
{
    struct core_command command;

    while (core_next_command(&sim->core, &command))
        execute(sim, &command);
}

static void pump(struct sim *sim)
{
    struct core_room rooms[64];
    uint32_t turns = 0;

    execute_all(sim);
    for (uint32_t i = 0; i < sim->rules->workers; i++)
        if (!sim->workers[i].dead && !has_segment(sim, i))
            (void)add_segment(sim, i);
    core_tick(&sim->core, sim->now);
    do {
        SIM_ASSERT(++turns < TURNS_MAX);
        core_deliver(&sim->core, sim->now);
        execute_all(sim);
        for (uint32_t i = 0; i < sim->rules->workers; i++) {
            const struct sim_worker *worker = &sim->workers[i];
            rooms[i] = (struct core_room){.slots = worker->dead ? 0 : free_slots(sim, i),
                                          .tasks = worker->dead ? 0 : TASKS_MAX - worker->n_tasks,
                                          .has = worker->n_tasks,
                                          .ahead = draw(sim, 3)};
        }
        core_schedule(&sim->core, rooms);
        execute_all(sim);
    } while (core_has_work(&sim->core));
}

/* ---- what clients do ------------------------------------------------------------------------- */

static void release(struct sim *sim, struct sim_pass *pass, uint32_t i)
{
    struct sim_held held = pass->held[i];

    pass->held[i] = pass->held[--pass->n_held];
    SIM_ASSERT(core_release(&sim->core, pass->stream, held.step, sim->now));
    SIM_ASSERT(!core_release(&sim->core, pass->stream, held.step, sim->now));
}

static void pin(struct sim *sim, struct sim_pass *pass, uint32_t i)
{
    struct sim_held *held = &pass->held[i];

    SIM_ASSERT(core_pin(&sim->core, pass->stream, held->step, sim->now) == !held->fault);
    held->pinned = held->pinned || !held->fault;
}

static int join(struct sim *sim, struct stream *stream)
{
    struct stream *source = core_find_source(&sim->core, stream);

    if (!source) {
        source = add_stream(sim, core_source_params(&stream->params, sim->rules->credits));
        if (!source)
            return -EDQUOT;
        core_add_source(&sim->core, source, stream);
    }
    core_join(&sim->core, stream, source, sim->now);
    return 0;
}

/* Begins an epoch, or resumes one: false, it may not now. */
static bool start(struct sim *sim, uint32_t rank, bool resume)
{
    struct sim_pass *pass = &sim->passes[rank];
    struct stream_params params = {.owner = pass,
                                   .epoch = resume ? EPOCH_RESUME : sim->epochs[rank],
                                   .rank = rank,
                                   .world = sim->rules->ranks,
                                   .steps = STEPS_UNKNOWN,
                                   .credits = sim->rules->credits,
                                   .replicas = sim->rules->iterable ? sim->rules->workers : 0,
                                   .any_order = sim->rules->any_order};
    struct dl_error err = {0};

    if (sim->rules->job)
        snprintf(params.job, sizeof params.job, "job");
    if (core_agree(&sim->core, &params, &err) < 0) {
        sim->totals->refused++;
        return false;
    }
    struct stream *stream = core_take(&sim->core, &params);
    sim->totals->resumed += stream && stream->phase == STREAM_PARKED;
    execute_all(sim);
    while (!stream && !(stream = add_stream(sim, params))) {
        if (!core_make_way(&sim->core))
            return false;
        execute_all(sim);
    }
    if (sim->rules->dispatch && !stream->source && join(sim, stream) < 0) {
        core_end(&sim->core, stream);
        execute_all(sim);
        return false;
    }
    *pass = (struct sim_pass){.stream = stream,
                              .rank = rank,
                              .epoch = params.epoch,
                              .first = params.first,
                              .next = params.first};
    core_begin(&sim->core, stream, &params, pass, sim->now);
    sim->epochs[rank] = params.epoch + 1;
    return true;
}

/* The lowest step that its client has yet to release. */
static uint64_t position_of(const struct sim *sim, const struct sim_pass *pass)
{
    uint64_t lowest = pass->first;

    while (lowest < STEPS_MAX &&
           (pass->came[lowest] || !exists(sim, pass->epoch, pass->rank, lowest)))
        lowest++;
    for (uint32_t i = 0; i < pass->n_held; i++)
        lowest = min_u64(lowest, pass->held[i].step);
    return lowest;
}

/* Its client is gone; a job comes back at the lowest step that was not released. */
static void die(struct sim *sim, struct sim_pass *pass)
{
    const struct sim_pass was = *pass;
    uint32_t rank = pass->rank;
    uint64_t epoch = pass->epoch, position = position_of(sim, pass);
    bool stopped = pass->stopped, was_parked;
    uint32_t parked = sim->core.n_parked;

    core_lose(&sim->core, pass->stream, true, sim->now);
    was_parked = sim->core.n_parked > parked;
    sim->totals->parked += was_parked;
    *pass = (struct sim_pass){0};
    execute_all(sim);
    sim->epochs[rank] = epoch;
    if (!sim->rules->job || stopped || sim->ending || !start(sim, rank, true))
        return;
    pass = &sim->passes[rank];
    if (pass->epoch == epoch) /* a step that is none stays in the way until that is known */
        SIM_ASSERT(next_of(sim, epoch, rank, pass->first) == next_of(sim, epoch, rank, position) ||
                   (pass->first < position && !was.came[pass->first] &&
                    !exists(sim, epoch, rank, pass->first)));
    else
        SIM_ASSERT(pass->epoch == epoch + 1 && position == STEPS_MAX);
}

static void stop(struct sim *sim, struct sim_pass *pass)
{
    core_stop(&sim->core, pass->stream);
    pass->stopped = true;
    if (pass->n_held > 0)
        return;
    core_end(&sim->core, pass->stream);
    *pass = (struct sim_pass){0};
}

static void act(struct sim *sim, uint32_t rank)
{
    struct sim_pass *pass = &sim->passes[rank];
    uint32_t what = draw(sim, 64);

    if (!pass->stream) {
        start(sim, rank, false);
    } else if (pass->stopped || pass->finished) {
        if (pass->n_held > 0)
            release(sim, pass, draw(sim, pass->n_held));
        else
            stop(sim, pass);
    } else if (what == 7 && !sim->rules->calm) {
        die(sim, pass);
    } else if (what == 1 && !sim->rules->calm) {
        stop(sim, pass);
    } else if (what < 6 && pass->n_held > 0 && pass->n_held < HELD_MAX / 2) {
        pin(sim, pass, draw(sim, pass->n_held));
    } else if (what == 6) {
        SIM_ASSERT(!core_pin(&sim->core, pass->stream, STEPS_MAX + 1, sim->now));
    } else if (pass->n_held > 0) {
        release(sim, pass, draw(sim, 4) ? 0 : draw(sim, pass->n_held));
    }
}

/* ---- what workers do ------------------------------------------------------------------------- */

static struct sim_task take_task(struct sim_worker *worker)
{
    struct sim_task task = worker->tasks[0];

    worker->n_tasks--;
    memmove(&worker->tasks[0], &worker->tasks[1], worker->n_tasks * sizeof task);
    return task;
}

static void complete(struct sim *sim, uint32_t index)
{
    static const struct bad_list none;
    struct made_times made = {.began_ns = sim->now, .now_ns = sim->now};
    struct sim_worker *worker = &sim->workers[index];

    if (worker->n_tasks == 0)
        return;
    struct sim_task task = take_task(worker);
    const struct stream *stream = task.step->stream;
    uint64_t epoch = stream ? stream->params.epoch : 0, step = task.step->number;
    bool is_there = !stream || !sim->rules->iterable ||
                    step / sim->rules->workers < rounds_of(sim, epoch, index);

    if (!is_there) {
        core_ended(&sim->core, task.step);
    } else if (stream && !sim->rules->calm && draw(sim, 32) == 1) {
        *failed_at(sim, epoch, step) = true;
        core_fault(&sim->core, task.step, EIO, "it cannot be read", NULL);
    } else {
        uint32_t samples = sim->rules->dispatch ? (uint32_t)samples_of(sim, epoch, step) : 4;

        slot_apply(&task.segment->slots, task.slot, SLOT_FILLED);
        core_done(&sim->core, task.step, samples, 0, 100, &none, &made);
        return;
    }
    slot_event(sim, task.segment, task.slot, SLOT_ABORT);
}

static void kill_worker(struct sim *sim, uint32_t index)
{
    struct sim_worker *worker = &sim->workers[index];
    struct segment *segment, *next;
    bool culprit = true;

    sim->totals->kills++;
    worker->dead = true;
    while (worker->n_tasks > 0) {
        struct sim_task task = take_task(worker);
        const struct stream *stream = task.step->stream;

        if (stream && culprit && task.step->attempts + 1 > sim->rules->retries)
            *failed_at(sim, stream->params.epoch, task.step->number) = true;
        core_lost(&sim->core, task.step, culprit, "it died");
        slot_event(sim, task.segment, task.slot, SLOT_ABORT);
        culprit = false;
    }
    DL_FOREACH_SAFE (sim->segments, segment, next) {
        if (segment->worker != index || !segment->active)
            continue;
        segment->active = false;
        settle(sim, segment);
    }
}

static void work(struct sim *sim, uint32_t index)
{
    struct sim_worker *worker = &sim->workers[index];

    if (worker->dead) {
        worker->dead = false;
        add_segment(sim, index);
    } else if (!sim->rules->calm && draw(sim, 64) == 1) {
        kill_worker(sim, index);
    } else {
        complete(sim, index);
    }
}

/* ---- the game -------------------------------------------------------------------------------- */

static void begin(struct sim *sim)
{
    static const struct config_limits any = {.sessions = 1000000,
                                             .loaders = 1000000,
                                             .workers = 1000000,
                                             .bytes = UINT64_MAX / 2,
                                             .epochs = 1000000,
                                             .leases = 1000000};
    struct config_limits limits = any;

    if (sim->rules->leases)
        limits.leases = sim->rules->leases;
    sim->quota = quota_new(&limits);
    sim->account = quota_account(sim->quota, 1000);
    sim->spec = (struct dl_spec){.workers = sim->rules->workers,
                                 .retries = sim->rules->retries,
                                 .batch_size = 4,
                                 .shard = sim->rules->dispatch ? SHARD_DISPATCH : SHARD_STRIDED,
                                 .dataset = {.kind = DATASET_RANGE}};
    core_init(&sim->core, &(struct core_options){
                              .spec = &sim->spec, .account = sim->account, .linger_ns = LINGER_NS});
    sim->core.length = UINT64_MAX;
    sim->core.iterable = sim->rules->iterable;
    sim->workers = must_alloc(sim->rules->workers * sizeof *sim->workers);
    sim->passes = must_alloc(sim->rules->ranks * sizeof *sim->passes);
    sim->epochs = must_alloc(sim->rules->ranks * sizeof *sim->epochs);
    sim->failed = must_alloc(4 * STEPS_MAX * sizeof *sim->failed);
    for (uint32_t i = 0; i < sim->rules->workers; i++)
        add_segment(sim, i);
}

static void play_one(struct sim *sim)
{
    sim->totals->events++;
    sim->now += 1 + draw(sim, 3) * SIM_MS;
    if (draw(sim, 256) == 1)
        sim->now += 2 * LINGER_NS;
    if (draw(sim, 2))
        work(sim, draw(sim, sim->rules->workers));
    else
        act(sim, draw(sim, sim->rules->ranks));
    if (draw(sim, 4) == 0)
        settle_all(sim);
    pump(sim);
}

/* The epoch that the last of them is in; UINT64_MAX: nobody reads. */
static uint64_t lowest_epoch(const struct sim *sim)
{
    uint64_t lowest = UINT64_MAX;

    for (uint32_t i = 0; i < sim->rules->ranks; i++)
        if (sim->passes[i].stream && !sim->passes[i].finished && !sim->passes[i].stopped)
            lowest = min_u64(lowest, sim->passes[i].epoch);
    return lowest;
}

/* All that are there release what they have, and those that others wait for begin. */
static void help(struct sim *sim, uint32_t rank, uint64_t epoch, bool go_ahead)
{
    struct sim_pass *pass = &sim->passes[rank];

    if (!pass->stream && sim->rules->dispatch && sim->epochs[rank] <= epoch + go_ahead) {
        sim->epochs[rank] = max_u64(sim->epochs[rank], epoch);
        (void)start(sim, rank, false);
    }
    while (pass->stream && pass->n_held > 0)
        release(sim, pass, 0);
    if (pass->stream && (pass->finished || pass->stopped))
        stop(sim, pass);
}

/* Whoever has begun comes to the end. */
static void end(struct sim *sim)
{
    uint64_t epoch;
    uint32_t rounds = 0;

    sim->ending = true;
    sim->data = sim->data ? (const uint8_t *)"" : NULL;
    sim->len = 0;
    while ((epoch = lowest_epoch(sim)) != UINT64_MAX) {
        SIM_ASSERT(++rounds < TURNS_MAX);
        sim->now += LINGER_NS / 4;
        for (uint32_t i = 0; i < sim->rules->ranks; i++)
            help(sim, i, epoch, rounds % 8 == 0);
        for (uint32_t i = 0; i < sim->rules->workers; i++) {
            if (sim->workers[i].dead)
                work(sim, i);
            while (sim->workers[i].n_tasks > 0)
                complete(sim, i);
        }
        settle_all(sim);
        pump(sim);
    }
    for (uint32_t i = 0; i < sim->rules->ranks; i++)
        help(sim, i, 0, false);
}

static void close_all(struct sim *sim)
{
    struct segment *segment, *next;

    for (uint32_t i = 0; i < sim->rules->ranks; i++)
        if (sim->passes[i].stream)
            core_end(&sim->core, sim->passes[i].stream);
    core_drop_expected(&sim->core);
    core_drop_parked(&sim->core);
    execute_all(sim);
    for (uint32_t i = 0; i < sim->rules->workers; i++)
        kill_worker(sim, i);
    execute_all(sim);
    core_deinit(&sim->core);
    DL_FOREACH_SAFE (sim->segments, segment, next)
        settle(sim, segment);
    SIM_ASSERT(!sim->segments && sim->n_segments == 0);
    quota_free(sim->quota);
    free(sim->workers);
    free(sim->passes);
    free(sim->epochs);
    free(sim->failed);
}

void sim_play(const struct sim_rules *rules, uint64_t seed, uint64_t events, const uint8_t *data,
              size_t len, struct sim_totals *totals)
{
    struct sim *sim = must_alloc(sizeof *sim);

    *sim = (struct sim){.rules = rules, .totals = totals, .seed = seed, .data = data, .len = len};
    begin(sim);
    for (uint64_t i = 0; data ? sim->len > 0 : i < events; i++)
        play_one(sim);
    end(sim);
    close_all(sim);
    free(sim);
}
