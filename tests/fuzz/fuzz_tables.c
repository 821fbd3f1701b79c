/*
 * The daemon's two state machines, slots and streams, played as a loader plays them, against a
 * model that keeps one record a step and knows no lists, hashes or free slots. After each event all
 * counts are taken anew from the model and compared.
 *
 * Input: slots, credits, steps and first step, a byte each, the highest bit of the second one for
 * delivery in any order; then events of two bytes: which, and whom. Events are letters, so that
 * seeds can be read; any other byte counts as one of them, too.
 */
#include "tests/fuzz/fuzz.h"

#include "daemon/serve/core/stream.h"

#include <errno.h>
#include <utlist.h>

static const char events[] = "rglfdbpvsenc";

enum { STREAMS = 3, MAX_STEPS = 64, MAX_SLOTS = 24, MAX_ATTEMPTS = 2 };

/* What became of a step, in the model. */
enum fate { UNPLANNED, WAITING, RUNNING, READY, FAULTED, TOLD, LEASED, PINNED, GONE };

struct model_step {
    enum fate fate;
    uint32_t slot;
    uint32_t bytes;
    uint64_t since; /* READY, FAULTED: when it became that */
};

struct model {
    struct stream *stream; /* NULL: ended */
    bool stopped;
    uint64_t planned; /* next to be planned */
    uint64_t due;     /* next to be delivered, in order */
    uint64_t delivered;
    uint64_t bytes;
    struct model_step steps[MAX_STEPS];
};

/* A worker's task. */
struct running {
    struct step *step;
    uint32_t who; /* its stream's number in `models`; STREAMS: nobody waits for it */
};

struct game {
    struct segment segment;
    uint64_t generations[MAX_SLOTS];
    bool retired;
    struct stream_params params;
    struct model models[STREAMS];
    struct step *waiting; /* lost, to run again */
    struct running running[MAX_SLOTS];
    uint32_t n_running;
    uint64_t now; /* counts what became ready */
};

static void slot(struct game *game, uint32_t index, enum slot_event event, enum slot_state want)
{
    FUZZ_ASSERT(slot_apply(&game->segment.slots, index, event) == want);
}

static struct model_step *model_step(struct model *model, uint64_t number)
{
    FUZZ_ASSERT(number < MAX_STEPS);
    return &model->steps[number];
}

static uint32_t who_has(const struct game *game, const struct stream *stream)
{
    for (uint32_t i = 0; i < STREAMS; i++)
        if (game->models[i].stream == stream)
            return i;
    abort();
}

/* ---- what must hold ------------------------------------------------------------------------- */

static struct step *find(const struct stream *stream, uint64_t number)
{
    struct step *step;

    HASH_FIND(hh, stream->steps, &number, sizeof number, step);
    return step;
}

static void check_step(const struct model *model, uint64_t number, const struct step *step)
{
    static const enum step_state states[] = {
        [WAITING] = STEP_WAITING, [RUNNING] = STEP_RUNNING, [READY] = STEP_READY,
        [FAULTED] = STEP_FAULTED, [TOLD] = STEP_LEASED,     [LEASED] = STEP_LEASED,
        [PINNED] = STEP_PINNED};
    enum fate fate = model->steps[number].fate;
    bool has_slot = fate == RUNNING || fate == READY || fate == LEASED || fate == PINNED;

    FUZZ_ASSERT(step && step->stream == model->stream && step->number == number);
    FUZZ_ASSERT(step->state == states[fate]);
    FUZZ_ASSERT((step->error != NULL) == (fate == FAULTED || fate == TOLD));
    FUZZ_ASSERT((step->segment != NULL) == has_slot);
    FUZZ_ASSERT(!has_slot || step->slot == model->steps[number].slot);
}

static void check_stream(const struct game *game, const struct model *model,
                         uint32_t in_state[SLOT_STATES])
{
    const struct stream *stream = model->stream;
    uint32_t counts[GONE + 1] = {0};

    for (uint64_t number = 0; number < MAX_STEPS; number++) {
        enum fate fate = model->steps[number].fate;
        struct step *step = find(stream, number);

        counts[fate]++;
        if (fate == UNPLANNED || fate == GONE)
            FUZZ_ASSERT(!step);
        else
            check_step(model, number, step);
        bool is_lease = fate == LEASED || fate == TOLD || fate == PINNED;
        FUZZ_ASSERT(stream_lease(model->stream, number) == (is_lease ? step : NULL));
    }
    uint32_t leased = counts[LEASED] + counts[TOLD];
    uint32_t window = counts[WAITING] + counts[RUNNING] + counts[READY] + counts[FAULTED] + leased;
    FUZZ_ASSERT(stream_window(stream) == window && window <= game->params.credits);
    FUZZ_ASSERT(HASH_COUNT(stream->steps) == window + counts[PINNED]);
    FUZZ_ASSERT(stream->in_state[STEP_LEASED] == leased && stream->faults_told == counts[TOLD]);
    FUZZ_ASSERT(stream->in_state[STEP_PINNED] == counts[PINNED]);
    FUZZ_ASSERT(stream->to_plan == model->planned);
    FUZZ_ASSERT(game->params.any_order || stream->to_deliver == model->due);
    FUZZ_ASSERT(stream->delivered.batches == model->delivered &&
                stream->delivered.bytes == model->bytes);
    FUZZ_ASSERT(stream->delivered.samples == 2 * model->delivered);
    FUZZ_ASSERT(stream_undelivered(stream) == window - leased);
    FUZZ_ASSERT(stream_finished(stream) ==
                (stream_undelivered(stream) == 0 && model->planned == game->params.steps));
    FUZZ_ASSERT(
        stream_has_room(stream) ==
        (!model->stopped && model->planned < game->params.steps && window < game->params.credits));
    in_state[SLOT_FILLING] += counts[RUNNING];
    in_state[SLOT_READY] += counts[READY];
    in_state[SLOT_LEASED] += counts[LEASED] + counts[PINNED];
}

/* No two steps stand in one slot, and every slot is where the steps say it is. */
static void check_slots(struct game *game, uint32_t in_state[SLOT_STATES])
{
    const struct slot_table *table = &game->segment.slots;
    uint32_t recount[SLOT_STATES] = {0};
    uint32_t listed = 0;

    for (uint32_t i = 0; i < table->count; i++) {
        FUZZ_ASSERT((table->slots[i].leases == 1) == (table->slots[i].state == SLOT_LEASED));
        FUZZ_ASSERT(table->slots[i].generation == game->generations[i]);
        recount[table->slots[i].state]++;
    }
    for (uint32_t i = table->free_head; i != SLOT_NONE; i = table->slots[i].next_free) {
        FUZZ_ASSERT(table->slots[i].state == SLOT_FREE && listed < table->count);
        listed++;
    }
    FUZZ_ASSERT(listed == recount[SLOT_FREE]);
    for (int state = 0; state < SLOT_STATES; state++)
        FUZZ_ASSERT(recount[state] == table->in_state[state]);
    for (int state = SLOT_FILLING; state <= SLOT_LEASED; state++)
        FUZZ_ASSERT(recount[state] == in_state[state]);
    FUZZ_ASSERT(game->retired || recount[SLOT_RETIRED] == 0);
}

static void check(struct game *game)
{
    uint32_t in_state[SLOT_STATES] = {0};
    const struct step *step;
    uint32_t waiting = 0;
    uint32_t expected = 0;

    for (uint32_t i = 0; i < STREAMS; i++) {
        if (!game->models[i].stream)
            continue;
        check_stream(game, &game->models[i], in_state);
        for (uint64_t number = 0; number < MAX_STEPS; number++)
            expected += game->models[i].steps[number].fate == WAITING;
    }
    DL_FOREACH (game->waiting, step) {
        FUZZ_ASSERT(step->state == STEP_WAITING);
        waiting++;
    }
    FUZZ_ASSERT(waiting == expected);
    for (uint32_t i = 0; i < game->n_running; i++)
        in_state[SLOT_FILLING] += game->running[i].who == STREAMS;
    FUZZ_ASSERT(in_state[SLOT_FILLING] == game->n_running);
    check_slots(game, in_state);
}

/* ---- tasks ---------------------------------------------------------------------------------- */

/* A waiting step first, else the next one of the stream. */
static void run(struct game *game, struct model *model)
{
    struct step *step = game->waiting;

    if (!step && (!model->stream || !stream_has_room(model->stream)))
        return;
    uint32_t index = slot_assign(&game->segment.slots);
    if (index == SLOT_NONE)
        return;
    FUZZ_ASSERT(!game->retired && game->n_running < MAX_SLOTS);
    game->generations[index]++;
    if (step) {
        DL_DELETE(game->waiting, step);
        model = &game->models[who_has(game, step->stream)];
    } else {
        step = stream_plan(model->stream);
        FUZZ_ASSERT(step->number == model->planned && step->attempts == 0 && !step->error);
        model->planned++;
    }
    step_run(step, &game->segment, index, 2);
    *model_step(model, step->number) = (struct model_step){.fate = RUNNING, .slot = index};
    game->running[game->n_running++] =
        (struct running){.step = step, .who = who_has(game, step->stream)};
}

/* Takes one of the running tasks away from the worker; false when there is none. */
static bool take_running(struct game *game, uint8_t whom, struct running *ret)
{
    if (game->n_running == 0)
        return false;
    uint32_t pick = whom % game->n_running;
    *ret = game->running[pick];
    game->running[pick] = game->running[--game->n_running];
    FUZZ_ASSERT((ret->who == STREAMS) == (ret->step->stream == NULL));
    return true;
}

static void filled(struct game *game, uint8_t whom)
{
    struct running task;

    if (!take_running(game, whom, &task))
        return;
    slot(game, task.step->slot, SLOT_FILLED, SLOT_READY);
    if (task.who == STREAMS) {
        slot(game, task.step->slot, SLOT_DISCARD, SLOT_FREE);
        step_free(task.step);
        return;
    }
    struct model_step *m = model_step(&game->models[task.who], task.step->number);
    m->fate = READY;
    m->bytes = whom;
    m->since = ++game->now;
    step_ready(task.step, 2, whom);
}

/* The worker says that it cannot, or it died with the task too often: `lost`. */
static void failed(struct game *game, uint8_t whom, bool lost)
{
    struct running task;

    if (!take_running(game, whom, &task))
        return;
    slot(game, task.step->slot, SLOT_ABORT, SLOT_FREE);
    if (task.who == STREAMS) {
        step_free(task.step);
        return;
    }
    struct model_step *m = model_step(&game->models[task.who], task.step->number);
    if (lost && ++task.step->attempts <= MAX_ATTEMPTS) {
        m->fate = WAITING;
        step_lost(task.step);
        DL_APPEND(game->waiting, task.step);
    } else {
        m->fate = FAULTED;
        m->since = ++game->now;
        step_fault(task.step, &(struct dl_error){.code = EIO}, NULL);
    }
}

/* The worker's memory is taken back: what is ready in it runs again. */
static void reclaim(struct game *game, struct model *model)
{
    struct step *step;
    struct step *next;

    if (!model->stream)
        return;
    HASH_ITER (hh, model->stream->steps, step, next) {
        if (step->state != STEP_READY)
            continue;
        slot(game, step->slot, SLOT_DISCARD, SLOT_FREE);
        model_step(model, step->number)->fate = WAITING;
        step_lost(step);
        DL_APPEND(game->waiting, step);
    }
}

/* ---- clients -------------------------------------------------------------------------------- */

/* The step whose turn it is, if it can be delivered; else MAX_STEPS. */
static uint64_t next_due(const struct game *game, const struct model *model)
{
    uint64_t best = MAX_STEPS;

    for (uint64_t number = 0; number < MAX_STEPS; number++) {
        const struct model_step *m = &model->steps[number];
        if (m->fate != READY && m->fate != FAULTED)
            continue;
        if (game->params.any_order ? best == MAX_STEPS || m->since < model->steps[best].since
                                   : number == model->due)
            best = number;
    }
    return model->stopped ? MAX_STEPS : best;
}

static void deliver(struct game *game, struct model *model)
{
    if (!model->stream)
        return;
    struct step *step = stream_deliverable(model->stream);
    uint64_t due = next_due(game, model);

    FUZZ_ASSERT((step != NULL) == (due < MAX_STEPS));
    if (!step)
        return;
    FUZZ_ASSERT(step->number == due);
    struct model_step *m = model_step(model, due);
    enum fate fate = m->fate;
    model->due++;
    if (fate == READY) {
        slot(game, step->slot, SLOT_LEASE, SLOT_LEASED);
        m->fate = LEASED;
        model->delivered++;
        model->bytes += m->bytes;
    } else {
        FUZZ_ASSERT(step->error->code == EIO);
        m->fate = TOLD;
    }
    stream_deliver(model->stream, step);
}

static void pin(struct model *model, uint8_t whom)
{
    struct step *step = model->stream ? stream_lease(model->stream, whom % MAX_STEPS) : NULL;

    if (!step || step->error)
        return;
    stream_pin(model->stream, step);
    model_step(model, step->number)->fate = PINNED;
}

static void give_back(struct game *game, struct model *model, struct step *step)
{
    bool has_slot = step->segment;
    uint32_t index = step->slot;

    model_step(model, step->number)->fate = GONE;
    stream_forget(model->stream, step);
    if (has_slot)
        slot(game, index, SLOT_RELEASE, SLOT_FREE);
}

static void release(struct game *game, struct model *model, uint8_t whom)
{
    struct step *step = model->stream ? stream_lease(model->stream, whom % MAX_STEPS) : NULL;

    if (step)
        give_back(game, model, step);
}

static void drop(struct game *game, struct model *model, struct step *step)
{
    struct stream *stream = model->stream;

    if (step->state == STEP_LEASED || step->state == STEP_PINNED)
        return;
    model_step(model, step->number)->fate = GONE;
    if (step->state == STEP_RUNNING) { /* the worker still writes */
        stream_abandon(stream, step);
        for (uint32_t i = 0; i < game->n_running; i++)
            if (game->running[i].step == step)
                game->running[i].who = STREAMS;
        return;
    }
    if (step->state == STEP_READY)
        slot(game, step->slot, SLOT_DISCARD, SLOT_FREE);
    if (step->state == STEP_WAITING)
        DL_DELETE(game->waiting, step);
    stream_forget(stream, step);
}

static void stop(struct game *game, struct model *model)
{
    struct step *step;
    struct step *next;

    if (!model->stream || model->stopped)
        return;
    model->stopped = true;
    stream_become(model->stream, STREAM_STOPPED);
    HASH_ITER (hh, model->stream->steps, step, next) {
        drop(game, model, step);
    }
}

static void end(struct game *game, struct model *model)
{
    struct step *step;
    struct step *next;

    if (!model->stream)
        return;
    stop(game, model);
    HASH_ITER (hh, model->stream->steps, step, next) {
        give_back(game, model, step);
    }
    stream_free(model->stream);
    *model = (struct model){0};
}

static void begin(struct game *game, struct model *model)
{
    if (model->stream)
        return;
    *model = (struct model){.stream = stream_new(&game->params, NULL, NULL)};
    stream_become(model->stream, STREAM_ACTIVE);
    model->planned = model->due = min_u64(game->params.first, game->params.steps);
}

/* ---- the game ------------------------------------------------------------------------------- */

static void play(struct game *game, uint8_t event, uint8_t whom)
{
    const char *known = event ? strchr(events, event) : NULL;
    struct model *model = &game->models[whom / MAX_STEPS % STREAMS];

    switch (known ? *known : events[event % (sizeof events - 1)]) {
    case 'r': /* run */
        run(game, model);
        break;
    case 'g': /* got: a worker is done */
        filled(game, whom);
        break;
    case 'l': /* lost: a worker died */
        failed(game, whom, true);
        break;
    case 'f': /* fault: a dataset's error */
        failed(game, whom, false);
        break;
    case 'd': /* deliver */
        deliver(game, model);
        break;
    case 'b': /* back: memory is reclaimed */
        reclaim(game, model);
        break;
    case 'p': /* pin */
        pin(model, whom);
        break;
    case 'v': /* void: a release */
        release(game, model, whom);
        break;
    case 's': /* stop */
        stop(game, model);
        break;
    case 'e': /* end */
        end(game, model);
        break;
    case 'n': /* new stream */
        begin(game, model);
        break;
    case 'c': /* close: retire the segment, permanently */
        if (whom < 16) {
            FUZZ_ASSERT(slot_table_retire(&game->segment.slots) ==
                        (game->segment.slots.in_state[SLOT_RETIRED] == game->segment.slots.count));
            game->retired = true;
        }
        break;
    }
    /* What was freed in a retired segment is retired with the next look at it. */
    if (game->retired)
        (void)slot_table_retire(&game->segment.slots);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct game game = {0};

    if (len < 4)
        return 0;
    slot_table_init(&game.segment.slots, 1 + data[0] % MAX_SLOTS);
    game.params = (struct stream_params){.world = 1,
                                         .credits = 1 + data[1] % 16,
                                         .any_order = data[1] >= 128,
                                         .steps = data[2] % (MAX_STEPS + 1),
                                         .first = data[3] % 8};
    begin(&game, &game.models[0]);
    for (size_t at = 4; at + 1 < len; at += 2) {
        play(&game, data[at], data[at + 1]);
        check(&game);
    }
    for (uint32_t i = 0; i < STREAMS; i++)
        end(&game, &game.models[i]);
    while (game.n_running > 0) /* abandoned by now, all of them */
        filled(&game, 0);
    FUZZ_ASSERT(!game.waiting);
    check(&game);
    FUZZ_ASSERT(slot_table_retire(&game.segment.slots));
    slot_table_deinit(&game.segment.slots);
    return 0;
}
