/* The game: what clients and workers do, and its end. */
#include "tests/lib/core_sim_private.h"

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
        source = sim_add_stream(sim, core_source_params(&stream->params, sim->rules->credits));
        if (!source)
            return -EDQUOT;
        if (core_add_source(&sim->core, source, stream, NULL) < 0) {
            sim->totals->unpaid++;
            core_end(&sim->core, source);
            return -EDQUOT;
        }
    }
    core_join(&sim->core, stream, source, sim->now);
    return 0;
}

/* NULL: it may not now. */
static struct stream *add_joined(struct sim *sim, const struct stream_params *params)
{
    struct stream *stream = sim_add_stream(sim, *params);

    bool joins = sim->rules->dispatch || sim->rules->sharers || sim->rules->window;
    if (!stream || !joins || join(sim, stream) == 0)
        return stream;
    core_end(&sim->core, stream);
    sim_execute(sim);
    return NULL;
}

/* Begins an epoch, or resumes one: false, it may not now. */
static bool start(struct sim *sim, uint32_t rank, bool resume)
{
    struct sim_pass *pass = &sim->passes[rank];
    struct stream_params params = {
        .owner = pass,
        .epoch = resume ? EPOCH_RESUME : sim->epochs[rank],
        .rank = rank / max_u64(sim->rules->sharers, 1),
        .world = sim->rules->ranks / max_u64(sim->rules->sharers, 1),
        .sharers = sim->rules->sharers,
        .companion = sim->rules->window > 0,
        .steps = STEPS_UNKNOWN,
        .credits = sim->rules->credits,
        .priority = rank % 3,
        .replicas = sim->rules->iterable ? sim->rules->workers : 0,
        .any_order = sim->rules->any_order,
        .bypass = sim->rules->bypass && !sim->rules->iterable ? sim->rules->bypass : UINT64_MAX};
    struct dl_error err = {0};

    if (sim->rules->sharers)
        params.sharer = rank % sim->rules->sharers;
    if (params.companion) {
        params.rank = 0;
        params.world = 1;
        params.slices.n = sim_slices(sim, rank);
        params.slices.size = params.slices.n > 0 ? STEP_SAMPLES / params.slices.n : 0;
    }
    if (sim->rules->job)
        snprintf(params.job, sizeof params.job, "job%u", params.companion ? rank : 0);
    if (core_agree(&sim->core, &params, &err) < 0) {
        sim->totals->refused++;
        return false;
    }
    struct stream *stream = core_take(&sim->core, &params);
    sim->totals->resumed += stream && stream->phase == STREAM_PARKED;
    sim_execute(sim);
    while (!stream && !(stream = add_joined(sim, &params))) {
        if (!core_make_way(&sim->core))
            return false;
        sim_execute(sim);
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
           (pass->came[lowest] || !sim_exists(sim, pass->epoch, pass->rank, lowest)))
        lowest++;
    for (uint32_t i = 0; i < pass->n_held; i++)
        lowest = min_u64(lowest, pass->held[i].step);
    return lowest;
}

static bool somebody_reads(const struct sim *sim)
{
    const struct stream *stream;

    DL_FOREACH (sim->core.streams, stream)
        if (stream->sink && stream->phase != STREAM_STOPPED && !stream_done(stream))
            return true;
    return false;
}

static uint32_t count_parked(const struct sim *sim)
{
    const struct stream *stream;
    uint32_t n;

    DL_COUNT2(sim->core.parked, stream, n, queue_next);
    return n;
}

/* Its client is gone; a job comes back at the lowest step that was not released: of this rank, or
 * where no other reads, of all. */
static void die(struct sim *sim, struct sim_pass *pass)
{
    const struct sim_pass was = *pass;
    uint32_t rank = pass->rank;
    uint64_t epoch = pass->epoch, position = position_of(sim, pass);
    bool stopped = pass->stopped, was_parked, alone;
    uint32_t parked = count_parked(sim);

    core_lose(&sim->core, pass->stream, true, sim->now);
    was_parked = count_parked(sim) > parked;
    sim->totals->parked += was_parked;
    *pass = (struct sim_pass){0};
    sim_execute(sim);
    sim->epochs[rank] = epoch;
    alone = !somebody_reads(sim);
    if (!sim->rules->job || stopped || sim->ending || !start(sim, rank, true))
        return;
    pass = &sim->passes[rank];
    if (alone && (pass->epoch < epoch || (pass->epoch == epoch && pass->first < position)))
        return;
    if (pass->epoch == epoch) /* a step that is none stays in the way until that is known */
        SIM_ASSERT(sim_next(sim, epoch, rank, pass->first) ==
                       sim_next(sim, epoch, rank, position) ||
                   (pass->first < position && !was.came[pass->first] &&
                    !sim_exists(sim, epoch, rank, pass->first)));
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
    uint32_t what = sim_draw(sim, 64);

    if (!pass->stream) {
        start(sim, rank, false);
    } else if (pass->stopped || pass->finished) {
        if (pass->n_held > 0)
            release(sim, pass, sim_draw(sim, pass->n_held));
        else
            stop(sim, pass);
    } else if (what == 7 && !sim->rules->calm) {
        die(sim, pass);
    } else if (what == 1 && !sim->rules->calm) {
        stop(sim, pass);
    } else if (what < 6 && pass->n_held > 0 && pass->n_held < HELD_MAX / 2) {
        pin(sim, pass, sim_draw(sim, pass->n_held));
    } else if (what == 6) {
        SIM_ASSERT(!core_pin(&sim->core, pass->stream, STEPS_MAX + 1, sim->now));
    } else if (pass->n_held > 0) {
        release(sim, pass, sim_draw(sim, 4) ? 0 : sim_draw(sim, pass->n_held));
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

/* All tasks that it has; `culprit`: the first one is to blame. */
static void give_back(struct sim *sim, struct sim_worker *worker, bool culprit, const char *cause)
{
    while (worker->n_tasks > 0) {
        struct sim_task task = take_task(worker);
        const struct stream *stream = task.step->stream;

        if (stream && culprit && task.step->attempts + 1 > sim->rules->retries)
            *sim_failed(sim, stream->params.epoch, task.step->number) = true;
        core_lost(&sim->core, task.step, culprit, cause);
        sim_slot(sim, task.segment, task.slot, SLOT_ABORT);
        culprit = false;
    }
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
                    step / sim->rules->workers < sim_rounds(sim, epoch, index);

    if (!is_there) {
        core_ended(&sim->core, task.step);
    } else if (stream && !sim->rules->calm && sim_draw(sim, 32) == 1) {
        *sim_failed(sim, epoch, step) = true;
        core_fault(&sim->core, task.step, EIO, "it cannot be read", NULL);
    } else if (sim->rules->grows && !sim->ending && sim_draw(sim, 16) == 1) {
        sim_retire_segments(sim, CORE_ANY, false);
        core_outgrew(&sim->core, task.step);
        sim->totals->outgrew += stream != NULL;
        give_back(sim, worker, false, "");
    } else {
        uint32_t samples = sim->rules->dispatch ? (uint32_t)sim_samples(sim, epoch, step) : 4;

        slot_apply(&task.segment->slots, task.slot, SLOT_FILLED);
        core_done(&sim->core, task.step, samples, 0, 100, &none, &made);
        return;
    }
    sim_slot(sim, task.segment, task.slot, SLOT_ABORT);
}

static void kill_worker(struct sim *sim, uint32_t index)
{
    struct sim_worker *worker = &sim->workers[index];

    sim->totals->kills++;
    worker->dead = true;
    give_back(sim, worker, true, "it died");
    sim_retire_segments(sim, index, false);
}

void sim_work(struct sim *sim, uint32_t index)
{
    struct sim_worker *worker = &sim->workers[index];

    if (worker->dead && index >= sim->core.workers)
        return;
    if (worker->dead) {
        worker->dead = false;
        sim_add_segment(sim, index);
    } else if (!sim->rules->calm && sim_draw(sim, 64) == 1) {
        kill_worker(sim, index);
    } else {
        complete(sim, index);
    }
}

/* ---- the game -------------------------------------------------------------------------------- */

void sim_begin(struct sim *sim)
{
    static const struct config_limits any = {.sessions = 1000000,
                                             .loaders = 1000000,
                                             .workers = 1000000,
                                             .bytes = UINT64_MAX / 2,
                                             .epochs = 1000000,
                                             .leases = 1000000,
                                             .overhead = UINT64_MAX / 2};
    struct config_limits limits = any;

    if (sim->rules->leases)
        limits.leases = sim->rules->leases;
    if (sim->rules->overhead)
        limits.overhead = sim->rules->overhead;
    sim->quota = quota_new(&limits);
    sim->account = quota_account(sim->quota, 1000);
    sim->spec = (struct dl_spec){.workers = sim->rules->resizes ? 2 : sim->rules->workers,
                                 .prefetch = sim->rules->resizes,
                                 .retries = sim->rules->retries,
                                 .batch_size = 4,
                                 .share_window = sim->rules->window,
                                 .share_wait_ns = sim->rules->wait,
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
    for (uint32_t i = 0; i < sim->core.workers; i++)
        sim_add_segment(sim, i);
}

static void play_one(struct sim *sim)
{
    sim->totals->events++;
    sim->now += 1 + sim_draw(sim, 3) * SIM_MS;
    if (sim_draw(sim, 256) == 1)
        sim->now += 2 * LINGER_NS;
    if (sim->rules->resizes && sim_draw(sim, 16) == 1) {
        /* Where no worker is, it is not companions that hold each other up. */
        uint32_t least = sim->rules->window > 0;

        sim->totals->resizes++;
        core_resize(&sim->core, least + sim_draw(sim, sim->rules->workers + 1 - least),
                    sim->core.o.spec->prefetch + sim_draw(sim, 3));
    }
    if (sim_draw(sim, 2))
        sim_work(sim, sim_draw(sim, sim->rules->workers));
    else
        act(sim, sim_draw(sim, sim->rules->ranks));
    if (sim_draw(sim, 4) == 0)
        sim_settle_all(sim);
    sim_pump(sim);
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

    if (!pass->stream && (sim->rules->dispatch || sim->rules->sharers) &&
        sim->epochs[rank] <= epoch + go_ahead) {
        sim->epochs[rank] = max_u64(sim->epochs[rank], epoch);
        (void)start(sim, rank, false);
    }
    while (pass->stream && pass->n_held > 0)
        release(sim, pass, 0);
    if (pass->stream && (pass->finished || pass->stopped))
        stop(sim, pass);
}

static uint64_t count_what_came(const struct sim *sim)
{
    return sim->totals->batches + sim->totals->faults + sim->totals->finished;
}

/* Whoever has begun comes to the end. Ranks that have done with an epoch begin the next one only
 * where nothing else helps: else there would always be one that has begun. */
static void end(struct sim *sim)
{
    uint64_t epoch, came = 0;
    uint32_t rounds = 0, idle = 0;

    sim->ending = true;
    sim->data = sim->data ? (const uint8_t *)"" : NULL;
    sim->len = 0;
    if (sim->core.workers == 0)
        core_resize(&sim->core, 1, sim->core.prefetch);
    while ((epoch = lowest_epoch(sim)) != UINT64_MAX) {
        SIM_ASSERT(++rounds < TURNS_MAX);
        sim->now += LINGER_NS / 4;
        for (uint32_t i = 0; i < sim->rules->ranks; i++)
            help(sim, i, epoch, idle >= 8);
        for (uint32_t i = 0; i < sim->rules->workers; i++) {
            if (sim->workers[i].dead)
                sim_work(sim, i);
            while (sim->workers[i].n_tasks > 0)
                complete(sim, i);
        }
        sim_settle_all(sim);
        sim_pump(sim);
        idle = came == count_what_came(sim) && idle < 8 ? idle + 1 : 0;
        came = count_what_came(sim);
    }
    for (uint32_t i = 0; i < sim->rules->ranks; i++)
        help(sim, i, 0, false);
}

void sim_close(struct sim *sim)
{
    struct segment *segment, *next;

    for (uint32_t i = 0; i < sim->rules->ranks; i++)
        if (sim->passes[i].stream)
            core_end(&sim->core, sim->passes[i].stream);
    core_drop_expected(&sim->core, NULL);
    core_drop_parked(&sim->core);
    sim_execute(sim);
    for (uint32_t i = 0; i < sim->rules->workers; i++)
        kill_worker(sim, i);
    sim_execute(sim);
    core_deinit(&sim->core);
    DL_FOREACH_SAFE (sim->segments, segment, next)
        sim_settle_segment(sim, segment);
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
    sim_begin(sim);
    for (uint64_t i = 0; data ? sim->len > 0 : i < events; i++)
        play_one(sim);
    end(sim);
    sim_close(sim);
    free(sim);
}
