/* The loader's core, event by event: what is looked at, what is decided, and what is taken back. */
#include "tests/lib/harness.h"

#include "daemon/serve/core/core.h"

#include <errno.h>
#include <stdio.h>

#include <utlist.h>

enum { SLOTS = 4096 };

static char bed_owner; /* whoever starts streams */

struct bed {
    struct core core;
    struct dl_spec spec;
    struct quota *quota;
    struct segment segment;
};

/* Several workers have the steps in turn. */
static void set_up_workers(struct bed *bed, bool dispatch, uint32_t workers)
{
    static const struct config_limits limits = {
        .bytes = 1000000, .epochs = 1000000, .leases = 1000000, .overhead = 1000000};

    *bed = (struct bed){.spec = {.workers = workers,
                                 .batch_size = 4,
                                 .shard = dispatch ? SHARD_DISPATCH : SHARD_STRIDED,
                                 .dataset = {.kind = DATASET_RANGE}},
                        .segment = {.id = 1, .active = true}};
    bed->quota = quota_new(&limits);
    core_init(&bed->core, &(struct core_options){.spec = &bed->spec,
                                                 .account = quota_account(bed->quota, 1),
                                                 .linger_ns = 1000,
                                                 .in_turn = workers > 1});
    slot_table_init(&bed->segment.slots, SLOTS);
}

static void set_up(struct bed *bed, bool dispatch)
{
    set_up_workers(bed, dispatch, 1);
}

/* Executes what there is: steps run and are ready at once, all READY slots are leased. */
static uint32_t execute(struct bed *bed, enum core_command_kind count)
{
    static const struct made_times made;
    static const struct bad_list none;
    struct core_command c;
    uint32_t n = 0;

    while (core_next_command(&bed->core, &c)) {
        n += c.kind == count;
        if (c.kind == CORE_RUN) {
            uint32_t slot = slot_assign(&bed->segment.slots);

            core_ran(&bed->core, c.step, &bed->segment, slot, &c.step->number, 1, 0);
            slot_apply(&bed->segment.slots, slot, SLOT_FILLED);
            core_done(&bed->core, c.step, 4, 0, 100, &none, &made);
        } else if (c.kind == CORE_SLOT) {
            slot_apply(&c.segment->slots, c.slot, c.event);
        }
        free(c.text);
    }
    return n;
}

/* Turns until nothing is left; how many commands of that kind there were. */
static uint32_t pump(struct bed *bed, enum core_command_kind count)
{
    uint32_t n = 0;

    do {
        struct worker_room room = {.slots = bed->segment.slots.in_state[SLOT_FREE], .tasks = 100};

        core_deliver(&bed->core, 0);
        n += execute(bed, count);
        core_schedule(&bed->core, &room);
        n += execute(bed, count);
    } while (core_has_work(&bed->core));
    return n;
}

static struct stream *begin(struct bed *bed, struct stream_params params)
{
    struct stream *stream = core_add(&bed->core, &params, NULL, NULL), *source;

    if (bed->spec.shard == SHARD_DISPATCH) {
        source = core_find_source(&bed->core, stream);
        if (!source) {
            struct stream_params all = core_source_params(&params, params.credits);

            source = core_add(&bed->core, &all, NULL, NULL);
            assert_int_equal(core_add_source(&bed->core, source, stream, NULL), 0);
        }
        core_join(&bed->core, stream, source, 0);
    }
    core_begin(&bed->core, stream, &params, bed, 0);
    return stream;
}

static void tear_down(struct bed *bed)
{
    struct stream *stream;

    while ((stream = bed->core.streams)) { /* sources go with their last rank */
        while (stream_is_source(stream) && stream->next)
            stream = stream->next;
        core_end(&bed->core, stream);
    }
    core_drop_expected(&bed->core, NULL);
    execute(bed, CORE_RUN);
    core_deinit(&bed->core);
    assert_int_equal(bed->segment.slots.in_state[SLOT_FREE], SLOTS);
    slot_table_deinit(&bed->segment.slots);
    quota_free(bed->quota);
}

static uint32_t count_touched(const struct core *core)
{
    const struct stream *stream;
    uint32_t n = 0;

    DL_FOREACH2 (core->touched, stream, touched_next)
        n++;
    return n;
}

/* ---- what an event costs --------------------------------------------------------------------- */

/* However many ranks there are: only the one that releases a batch is looked at. */
TEST(test_a_release_looks_at_its_own_stream)
{
    for (int dispatch = 0; dispatch < 2; dispatch++) {
        struct stream *ranks[1000];
        struct bed bed;

        set_up(&bed, dispatch);
        bed.core.iterable = true;
        for (uint64_t i = 0; i < ARRAY_SIZE(ranks); i++)
            ranks[i] = begin(&bed, (struct stream_params){.rank = i,
                                                          .world = ARRAY_SIZE(ranks),
                                                          .steps = STEPS_UNKNOWN,
                                                          .replicas = 1,
                                                          .owner = &bed,
                                                          .credits = dispatch ? 2 : 1});
        /* Of a dispatched batch of four samples the first four ranks have rows, and hold it. */
        pump(&bed, CORE_DELIVER);
        assert_int_equal(count_touched(&bed.core), 0);
        assert_int_equal(ranks[2]->in_state[STEP_LEASED], dispatch ? 2 : 1);
        assert_true(core_release(&bed.core, ranks[2], 0, 0));
        assert_int_equal(count_touched(&bed.core), 1);
        assert_ptr_equal(bed.core.touched, ranks[2]);
        assert_int_equal(pump(&bed, CORE_DELIVER), 1);
        tear_down(&bed);
    }
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* A client that does not read them is told of no more than it has credits for, nor of many. */
TEST(test_faults_hold_their_credits)
{
    static const struct {
        uint32_t credits, told;
    } rows[] = {{1, 1}, {2, 2}, {4, 4}, {5, 4}, {64, 4}};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct stream_params params = {
            .world = 1, .steps = 1000, .credits = rows[i].credits, .owner = &bed_owner};
        struct worker_room room = {.slots = 100, .tasks = 100};
        struct core_command c;
        uint32_t told = 0;
        struct bed bed;

        set_up(&bed, false);
        struct stream *stream = begin(&bed, params);
        for (int turn = 0; turn < 10; turn++) {
            core_deliver(&bed.core, 0);
            core_schedule(&bed.core, &room);
            while (core_next_command(&bed.core, &c)) {
                if (c.kind == CORE_RUN)
                    core_fault(&bed.core, c.step, EIO, "broken", NULL);
                told += c.kind == CORE_FAULT;
            }
        }
        assert_int_equal(told, rows[i].told);
        assert_int_equal(stream->in_state[STEP_LEASED], rows[i].told);
        assert_int_equal(stream_window(stream), rows[i].credits);
        assert_false(core_pin(&bed.core, stream, 0, 0)); /* there is nothing to keep */
        assert_true(core_release(&bed.core, stream, 0, 0));
        assert_false(core_release(&bed.core, stream, 0, 0));
        core_deliver(&bed.core, 0);
        if (rows[i].credits > rows[i].told)
            assert_true(core_next_command(&bed.core, &c) && c.kind == CORE_FAULT);
        tear_down(&bed);
    }
}

/* ---- commands -------------------------------------------------------------------------------- */

/* What was decided for a stream that ends meanwhile is not done; its slots are released. */
TEST(test_an_end_takes_back_what_was_decided)
{
    struct stream_params params = {.world = 1, .steps = 10, .credits = 4, .owner = &bed_owner};
    struct core_command c;
    struct bed bed;

    set_up(&bed, false);
    struct stream *stream = begin(&bed, params);
    core_deliver(&bed.core, 0);
    core_schedule(&bed.core, &(struct worker_room){.slots = 9, .tasks = 9});
    execute(&bed, CORE_RUN);
    core_deliver(&bed.core, 0); /* four batches are on their way, */
    core_end(&bed.core, stream);
    while (core_next_command(&bed.core, &c)) {
        assert_true(c.kind == CORE_SLOT || c.kind == CORE_DROP);
        if (c.kind == CORE_SLOT)
            slot_apply(&c.segment->slots, c.slot, c.event);
    }
    assert_int_equal(bed.segment.slots.in_state[SLOT_FREE], SLOTS);

    stream = begin(&bed, params);
    core_deliver(&bed.core, 0);
    core_schedule(&bed.core, &(struct worker_room){.slots = 9, .tasks = 9});
    core_end(&bed.core, stream); /* four steps are to be run */
    assert_true(core_next_command(&bed.core, &c) && c.kind == CORE_DROP);
    assert_false(core_next_command(&bed.core, &c));
    tear_down(&bed);
}

/* ---- who is served first --------------------------------------------------------------------- */

/* Three streams of two credits each: how many steps each has run where there is room for some. */
TEST(test_priorities)
{
    static const struct {
        enum stream_priority priorities[3]; /* in the order of their starts */
        uint32_t room;
        uint32_t run[3];
    } rows[] = {
        {{PRIORITY_NORMAL, PRIORITY_NORMAL, PRIORITY_NORMAL}, 3, {1, 1, 1}},
        {{PRIORITY_NORMAL, PRIORITY_NORMAL, PRIORITY_HIGH}, 3, {1, 0, 2}},
        {{PRIORITY_LOW, PRIORITY_NORMAL, PRIORITY_HIGH}, 3, {0, 1, 2}},
        {{PRIORITY_LOW, PRIORITY_NORMAL, PRIORITY_HIGH}, 5, {1, 2, 2}},
        {{PRIORITY_LOW, PRIORITY_LOW, PRIORITY_NORMAL}, 4, {1, 1, 2}},
        {{PRIORITY_HIGH, PRIORITY_LOW, PRIORITY_HIGH}, 3, {2, 0, 1}},
        {{PRIORITY_LOW, PRIORITY_LOW, PRIORITY_LOW}, 6, {2, 2, 2}}, /* they have what is left */
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct stream *streams[3];
        struct bed bed;

        set_up(&bed, false);
        for (uint32_t k = 0; k < 3; k++)
            streams[k] = begin(&bed, (struct stream_params){.rank = k,
                                                            .world = 3,
                                                            .steps = 100,
                                                            .credits = 2,
                                                            .priority = rows[i].priorities[k],
                                                            .owner = &bed_owner});
        core_deliver(&bed.core, 0);
        core_schedule(&bed.core, &(struct worker_room){.slots = 9, .tasks = rows[i].room});
        for (uint32_t k = 0; k < 3; k++)
            assert_int_equal(stream_window(streams[k]), rows[i].run[k]);
        tear_down(&bed);
    }
}

/* Wherever an epoch begins, each worker has at once what it has room for: none waits until another
 * has finished, which may itself wait for the first one. */
TEST(test_workers_in_turn)
{
    static const struct {
        uint64_t first;
        uint32_t workers, credits, room; /* of each worker */
        uint32_t run;
    } rows[] = {
        {0, 2, 5, 2, 4}, {1, 2, 5, 2, 4}, {2, 2, 5, 2, 4}, {1, 2, 2, 9, 2},
        {1, 2, 9, 9, 9}, {2, 3, 7, 9, 7}, {1, 3, 9, 1, 3}, {7, 5, 64, 16, 64},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct worker_room rooms[5];
        struct bed bed;

        set_up_workers(&bed, false, rows[i].workers);
        for (uint32_t k = 0; k < rows[i].workers; k++)
            rooms[k] = (struct worker_room){.slots = 99, .tasks = rows[i].room, .ahead = 1};
        struct stream *stream = begin(&bed, (struct stream_params){.world = 1,
                                                                   .first = rows[i].first,
                                                                   .steps = 1000,
                                                                   .credits = rows[i].credits,
                                                                   .owner = &bed_owner});
        core_deliver(&bed.core, 0);
        core_schedule(&bed.core, rooms);
        assert_int_equal(stream_window(stream), rows[i].run);
        for (uint32_t k = 0; k < rows[i].workers; k++)
            assert_in_range(rooms[k].has, rows[i].run / rows[i].workers,
                            (rows[i].run - 1) / rows[i].workers + 1);
        tear_down(&bed);
    }
}

static void set_up_helped(struct bed *bed, uint32_t own, uint32_t helpers)
{
    set_up(bed, false);
    core_deinit(&bed->core);
    bed->core = (struct core){0};
    bed->spec.workers = own;
    core_init(&bed->core, &(struct core_options){.spec = &bed->spec,
                                                 .account = quota_account(bed->quota, 1),
                                                 .helpers = helpers});
}

/* A helper that would hold the others up gets nothing, and of two the one that is done first. */
TEST(test_helpers_by_their_rate)
{
    enum { OWN = 2, STEPS = 7, MS = 1000000 };
    static const struct {
        bool any_order;
        uint64_t cost[4];  /* of two own, which have no room, and of two on other machines; ms */
        uint32_t has[2];   /* tasks that the latter have */
        uint32_t given[2]; /* and get, of the two that they have room for each */
        bool full;         /* the own ones are idle, as all their slots are in use */
    } rows[] = {{false, {0, 0, 0, 0}, {0, 0}, {2, 2}}, /* nothing is known */
                {false, {10, 10, 0, 0}, {0, 0}, {2, 2}},
                {false, {10, 10, 12, 10}, {0, 0}, {2, 2}},
                {false, {10, 10, 100, 10}, {0, 0}, {0, 2}},
                {true, {10, 10, 100, 10}, {0, 0}, {2, 2}},
                {false, {10, 10, 24, 1000}, {0, 0}, {1, 0}}, /* a second one would be late */
                {false, {0, 0, 1000, 0}, {0, 1}, {2, 2}},    /* nobody else is known */
                {false, {10, 10, 20, 10}, {0, 0}, {1, 2}},
                {false, {10, 10, 1000, 1000}, {0, 0}, {0, 0}},
                {false, {10, 10, 1000, 1000}, {0, 0}, {1, 0}, true},
                {false, {10, 10, 1000, 1000}, {0, 1}, {0, 0}, true},
                {false, {10, 10, 20, 1000}, {0, 1}, {2, 0}, true}};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct worker_room rooms[OWN + 2];
        struct bed bed;

        set_up_helped(&bed, OWN, 2);
        for (uint32_t k = 0; k < OWN + 2; k++)
            rooms[k] =
                (struct worker_room){.slots = k < OWN && rows[i].full ? 0 : 99,
                                     .tasks = k < OWN && !rows[i].full ? 0 : 2,
                                     .has = k < OWN ? 2 * !rows[i].full : rows[i].has[k - OWN],
                                     .cost_ns = rows[i].cost[k] * MS};
        (void)begin(&bed, (struct stream_params){.world = 1,
                                                 .steps = 1000,
                                                 .credits = STEPS,
                                                 .any_order = rows[i].any_order,
                                                 .owner = &bed_owner});
        core_deliver(&bed.core, 0);
        core_schedule(&bed.core, rooms);
        for (uint32_t k = 0; k < 2; k++)
            if (2 - rooms[OWN + k].tasks != rows[i].given[k])
                fail_msg("row %zu: helper %u got %u tasks", i, k, 2 - rooms[OWN + k].tasks);
        tear_down(&bed);
    }
}

/* Workers on other machines get what this one's have no room for, those of this one that came later
 * and so have greater numbers included. */
TEST(test_helpers_come_last)
{
    static const struct {
        uint32_t own, credits, room; /* of each of this machine's; the others have room for 3 */
        uint32_t run, away;          /* by all, and of that by the others */
        uint32_t later;              /* more of its own, by now */
    } rows[] = {{2, 4, 2, 4, 0, 0},   {2, 5, 2, 5, 1, 0}, {2, 9, 2, 9, 5, 0},
                {2, 99, 2, 10, 6, 0}, {1, 1, 1, 1, 0, 0}, {1, 8, 0, 6, 6, 0},
                {3, 99, 5, 21, 6, 0}, {2, 8, 2, 8, 0, 2}, {2, 99, 2, 14, 6, 2},
                {1, 7, 0, 6, 6, 1}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct worker_room rooms[6];
        struct bed bed;

        set_up_helped(&bed, rows[i].own, 2);
        if (rows[i].later > 0)
            core_resize(&bed.core, rows[i].own + 2 + rows[i].later, bed.core.prefetch);
        for (uint32_t k = 0; k < rows[i].own + 2 + rows[i].later; k++) {
            bool away = k >= rows[i].own && k < rows[i].own + 2;
            rooms[k] =
                (struct worker_room){.slots = 99, .tasks = away ? 3 : rows[i].room, .ahead = 1};
        }
        struct stream *stream = begin(
            &bed, (struct stream_params){
                      .world = 1, .steps = 1000, .credits = rows[i].credits, .owner = &bed_owner});
        core_deliver(&bed.core, 0);
        core_schedule(&bed.core, rooms);
        assert_int_equal(stream_window(stream), rows[i].run);
        assert_int_equal(rooms[rows[i].own].has + rooms[rows[i].own + 1].has, rows[i].away);
        tear_down(&bed);
    }
}

/* What a worker's death has left is run first, of the first band first. */
TEST(test_priorities_of_steps_to_run_again)
{
    struct core_command first, second, again;
    struct bed bed;

    set_up(&bed, false);
    bed.spec.retries = 1;
    struct stream_params params = {.world = 1, .steps = 9, .credits = 1, .owner = &bed_owner};
    params.priority = PRIORITY_LOW;
    struct stream *low = begin(&bed, params);
    params.priority = PRIORITY_HIGH;
    struct stream *high = begin(&bed, params);
    core_deliver(&bed.core, 0);
    core_schedule(&bed.core, &(struct worker_room){.slots = 9, .tasks = 9});
    assert_true(core_next_command(&bed.core, &first) && first.stream == high);
    assert_true(core_next_command(&bed.core, &second) && second.stream == low);
    core_ran(&bed.core, first.step, &bed.segment, slot_assign(&bed.segment.slots),
             &first.step->number, 1, 0);
    core_ran(&bed.core, second.step, &bed.segment, slot_assign(&bed.segment.slots),
             &second.step->number, 1, 0);
    slot_apply(&bed.segment.slots, first.step->slot, SLOT_ABORT);
    slot_apply(&bed.segment.slots, second.step->slot, SLOT_ABORT);
    core_lost(&bed.core, second.step, false, "killed");
    core_lost(&bed.core, first.step, false, "killed");
    core_schedule(&bed.core, &(struct worker_room){.slots = 1, .tasks = 1});
    assert_true(core_next_command(&bed.core, &again) && again.step == first.step);
    core_postpone(&bed.core, again.step, false);
    tear_down(&bed);
}

/* The step of a worker whose slot was too small runs there again, once it has a larger one. */
TEST(test_where_a_batch_that_did_not_fit_is_made_again)
{
    enum { WORKERS = 3, KEEPER = 1 };
    static const struct worker_room full = {.slots = 9, .has = 2}, bare = {.bare = true},
                                    idle = {.slots = 9, .tasks = 2}, gone = {0};
    const struct {
        struct worker_room rooms[WORKERS];
        uint32_t run, grow;     /* by which worker, and who gets memory; CORE_ANY: no, or any one */
        bool asks;              /* for memory */
        uint32_t run_otherwise; /* once the keeper was refused memory */
    } rows[] = {
        {{idle, idle, idle}, KEEPER, CORE_ANY, false, 0},
        {{idle, bare, idle}, CORE_ANY, KEEPER, true, 0},
        {{bare, bare, bare}, CORE_ANY, KEEPER, true, CORE_ANY},
        {{full, bare, idle}, CORE_ANY, KEEPER, true, 2},
        {{idle, gone, idle}, 0, CORE_ANY, false, 0},
        {{full, full, idle}, 2, CORE_ANY, false, 0},
        {{gone, gone, gone}, CORE_ANY, CORE_ANY, true, CORE_ANY},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct worker_room rooms[WORKERS] = {[KEEPER] = idle};
        struct dl_error err = {.code = ENOMEM};
        struct core_command c;
        struct bed bed;

        set_up_helped(&bed, WORKERS, 0);
        bed.segment.worker = KEEPER;
        (void)begin(&bed, (struct stream_params){
                              .world = 1, .steps = 9, .credits = 1, .owner = &bed_owner});
        core_deliver(&bed.core, 0);
        core_schedule(&bed.core, rooms);
        assert_true(core_next_command(&bed.core, &c) && c.kind == CORE_RUN && c.worker == KEEPER);
        uint32_t slot = slot_assign(&bed.segment.slots);
        core_ran(&bed.core, c.step, &bed.segment, slot, &c.step->number, 1, 0);
        core_outgrew(&bed.core, c.step);
        slot_apply(&bed.segment.slots, slot, SLOT_ABORT);
        for (int refused = 0; refused < 2; refused++) {
            uint32_t run = CORE_ANY, grow = CORE_ANY;
            bool asks = false;

            memcpy(rooms, rows[i].rooms, sizeof rooms);
            core_schedule(&bed.core, rooms);
            while (core_next_command(&bed.core, &c)) {
                run = c.kind == CORE_RUN ? c.worker : run;
                grow = c.kind == CORE_GROW ? c.worker : grow;
                asks = asks || c.kind == CORE_GROW;
                if (c.kind == CORE_RUN)
                    core_postpone(&bed.core, c.step, false);
            }
            if (run != (refused ? rows[i].run_otherwise : rows[i].run))
                fail_msg("row %zu: worker %u runs it", i, run);
            if (refused || rows[i].run != CORE_ANY)
                break;
            assert_int_equal(grow, rows[i].grow);
            assert_int_equal(asks, rows[i].asks);
            core_refuse_memory(&bed.core, grow, &err, false);
        }
        tear_down(&bed);
    }
}

/* Where fewer workers may begin than there are, the step's own does, whichever that is: any other
 * has nothing to begin with. */
TEST(test_the_worker_of_the_step_may_begin)
{
    static const struct {
        uint32_t has[3]; /* tasks of each worker */
        uint32_t may_begin, runs;
    } rows[] = {{{0, 0, 0}, 3, 3}, {{0, 0, 0}, 2, 2}, {{0, 0, 0}, 1, 1}, {{0, 0, 0}, 0, 0},
                {{1, 0, 0}, 0, 1}, {{1, 1, 0}, 0, 2}, {{1, 1, 0}, 1, 3}, {{1, 1, 1}, 0, 3}};

    for (uint64_t first = 0; first < 3; first++)
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
            struct worker_room rooms[3];
            struct core_command c;
            struct bed bed;
            uint32_t runs = 0;

            set_up_workers(&bed, false, 3);
            (void)begin(
                &bed,
                (struct stream_params){
                    .world = 1, .steps = 9, .first = first, .credits = 3, .owner = &bed_owner});
            for (size_t worker = 0; worker < 3; worker++)
                rooms[(first + worker) % 3] = (struct worker_room){
                    .slots = 1, .tasks = 1, .has = rows[i].has[worker], .ahead = 1};
            bed.core.hold_idle = true;
            bed.core.may_begin = rows[i].may_begin;
            core_deliver(&bed.core, 0);
            core_schedule(&bed.core, rooms);
            for (; core_next_command(&bed.core, &c); runs++) {
                if (c.kind != CORE_RUN || c.worker != (first + runs) % 3)
                    fail_msg("row %zu: worker %u runs step %u of them", i, c.worker, runs);
                core_postpone(&bed.core, c.step, false);
            }
            if (runs != rows[i].runs)
                fail_msg("row %zu: %u steps run", i, runs);
            tear_down(&bed);
        }
}

/* ---- ranks that others wait for -------------------------------------------------------------- */

/* How many batches come by then. */
static uint32_t at_time(struct bed *bed, uint64_t now)
{
    core_tick(&bed->core, now);
    return pump(bed, CORE_DELIVER);
}

/* A rank comes to a new daemon in the middle of an epoch, which another has read to its end under
 * the one before: it may be connected, and has nothing to start. */
TEST(test_nobody_waits_long_for_those_unknown)
{
    const uint64_t linger = 20 * CORE_WAIT_NS, moment = 1000;
    struct stream_params params = {.rank = 1,
                                   .world = 2,
                                   .steps = 100,
                                   .first = 5,
                                   .replicas = 1,
                                   .credits = 3,
                                   .owner = &bed_owner};
    struct bed bed;

    set_up(&bed, true);
    bed.core.iterable = true;
    bed.core.o.linger_ns = linger;
    struct stream *rank = begin(&bed, params);
    assert_int_equal(at_time(&bed, 1), 3);
    assert_int_equal(core_deadline(&bed.core), linger); /* it has what it wants */
    for (uint64_t i = 0; i < 3; i++)
        assert_true(core_release(&bed.core, rank, params.first + i, 0));
    assert_int_equal(pump(&bed, CORE_DELIVER), 0);
    assert_int_equal(core_deadline(&bed.core), 0);
    assert_int_equal(at_time(&bed, moment), 0); /* from now on it waits */
    assert_int_equal(core_deadline(&bed.core), moment + CORE_WAIT_NS);
    assert_int_equal(at_time(&bed, moment + CORE_WAIT_NS - 1), 0);
    assert_int_equal(at_time(&bed, moment + CORE_WAIT_NS), 3);
    assert_int_equal(core_deadline(&bed.core), UINT64_MAX);

    /* One that comes later reads by itself what was given up, and is not waited for. */
    params.rank = 0;
    struct stream *late = begin(&bed, params);
    assert_int_equal(pump(&bed, CORE_DELIVER), 3);
    assert_ptr_not_equal(late->source, rank->source);
    assert_int_equal(core_deadline(&bed.core), UINT64_MAX);
    tear_down(&bed);
}

/* It comes while the other waits: they go on together. */
TEST(test_one_that_comes_in_time)
{
    struct stream_params params = {.rank = 1,
                                   .world = 2,
                                   .steps = 100,
                                   .first = 5,
                                   .replicas = 1,
                                   .credits = 3,
                                   .owner = &bed_owner};
    struct bed bed;

    set_up(&bed, true);
    bed.core.iterable = true;
    bed.core.o.linger_ns = 20 * CORE_WAIT_NS;
    struct stream *rank = begin(&bed, params);
    assert_int_equal(at_time(&bed, 1), 3);
    for (uint64_t i = 0; i < 3; i++)
        assert_true(core_release(&bed.core, rank, params.first + i, 0));
    assert_int_equal(at_time(&bed, 1000), 0);
    params.rank = 0;
    struct stream *other = begin(&bed, params);
    assert_ptr_equal(other->source, rank->source);
    assert_int_equal(pump(&bed, CORE_DELIVER), 6); /* what it had missed, and what follows */
    assert_int_equal(core_deadline(&bed.core), UINT64_MAX);
    tear_down(&bed);
}

/* ---- what a stream costs --------------------------------------------------------------------- */

enum { FED = 1000 };

static int feed(struct bed *bed, struct stream *stream, const uint64_t *indices)
{
    struct dl_error err = {0};

    return core_feed(&bed->core, stream, (const uint8_t *)indices, FED, false, &err);
}

TEST(test_what_is_fed_is_part_of_the_cost)
{
    struct stream_params params = {
        .world = 1, .steps = STEPS_UNKNOWN, .credits = 2, .fed = true, .owner = &bed_owner};
    uint64_t indices[FED] = {0};
    struct bed bed;

    set_up(&bed, false);
    struct stream *stream = begin(&bed, params);
    uint64_t empty = stream_cost(stream);
    assert_true(empty >= sizeof *stream);
    for (int i = 0; i < 4; i++)
        assert_int_equal(feed(&bed, stream, indices), 0);
    assert_int_equal(feed(&bed, stream, indices), -EPROTO);
    assert_true(stream_cost(stream) >= empty + 4 * sizeof indices);
    pump(&bed, CORE_RUN);
    for (uint64_t i = 0; i < 4; i++) {
        assert_true(core_release(&bed.core, stream, i, 0));
        pump(&bed, CORE_RUN);
    }
    assert_int_equal(stream_cost(stream), empty);
    tear_down(&bed);
}

/* ---- who is awaited, and for what --------------------------------------------------------------
 */

enum { ROSTER = 1048576 / 4, FITTING = 3 /* of DL_MAX_WORLD_SIZE ranks, in limits.overhead */ };

static struct stream_params member(const char *job, uint64_t rank)
{
    struct stream_params params = {
        .rank = rank, .world = DL_MAX_WORLD_SIZE, .steps = 4, .credits = 2, .owner = &bed_owner};

    (void)snprintf(params.job, sizeof params.job, "%s", job);
    return params;
}

static uint64_t overhead(const struct bed *bed)
{
    return quota_in_use(bed->core.o.account, QUOTA_OVERHEAD);
}

/* A source waits for a million ranks: its user pays for that, and may not have any number. */
TEST(test_rosters_are_paid_for)
{
    static const char *const jobs[FITTING] = {"a", "b", "c"};
    struct stream_params params = member("d", 0);
    struct dl_error err = {0};
    struct bed bed;

    set_up(&bed, true);
    for (uint64_t i = 0; i < FITTING; i++) {
        begin(&bed, member(jobs[i], 0));
        assert_in_range(overhead(&bed), (i + 1) * ROSTER, (i + 2) * ROSTER);
    }
    begin(&bed, member("a", 1)); /* the same source's */
    assert_in_range(overhead(&bed), FITTING * ROSTER, (FITTING + 1) * ROSTER);

    struct stream *rank = core_add(&bed.core, &params, NULL, NULL);
    assert_null(core_find_source(&bed.core, rank));
    struct stream_params all = core_source_params(&params, params.credits);
    struct stream *source = core_add(&bed.core, &all, NULL, NULL);
    assert_int_equal(core_add_source(&bed.core, source, rank, &err), -EDQUOT);
    assert_string_equal(err.path, "limits.overhead");
    core_end(&bed.core, source);
    core_end(&bed.core, rank);
    tear_down(&bed);
}

/* Of an epoch that all have left it is kept who has read it to its end; this gives way. */
TEST(test_rosters_that_are_kept)
{
    static const char *const jobs[FITTING] = {"a", "b", "c"};
    struct bed bed;

    set_up(&bed, true);
    for (uint64_t i = 0; i < FITTING; i++) {
        struct stream *done = begin(&bed, member(jobs[i], 0));
        struct stream *died = begin(&bed, member(jobs[i], 1));

        core_end(&bed.core, done);
        core_lose(&bed.core, died, false, 0);
        execute(&bed, CORE_DROP);
        assert_int_equal(bed.core.rosters.n, i + 1);
        assert_in_range(overhead(&bed), (i + 1) * ROSTER, (i + 2) * ROSTER);
    }
    begin(&bed, member("d", 0));
    assert_int_equal(bed.core.rosters.n, FITTING - 1);
    assert_string_equal(bed.core.rosters.entries[0].epoch.job, "b");

    begin(&bed, member("b", 0)); /* another pass */
    assert_int_equal(bed.core.rosters.n, FITTING - 2);
    assert_in_range(overhead(&bed), FITTING * ROSTER, (FITTING + 1) * ROSTER);
    tear_down(&bed);
}

/* ---- plans that are cut while they are read -------------------------------------------------- */

static uint32_t release_all(struct bed *bed, struct stream *stream)
{
    uint32_t n = 0;

    while (stream->in_state[STEP_LEASED] > 0) {
        assert_true(core_release(&bed->core, stream, stream_position(stream), 0));
        n++;
    }
    return n;
}

/* Steps come as far as windows have been cut; the last one says how many there are. */
TEST(test_steps_come_by_windows)
{
    static const uint64_t windows[] = {0, 2, 2, 5};
    struct stream_params params = {
        .world = 1, .steps = STEPS_UNKNOWN, .credits = 64, .owner = &bed_owner};
    const struct plan *plan = (const void *)&params; /* which the core does not look at */
    struct bed bed;

    for (unsigned early = 0; early < 2; early++) {
        set_up(&bed, false);
        struct stream *stream = core_add(&bed.core, &params, NULL, plan);
        assert_false(stream_is_settled(stream));
        core_settle_by_windows(&bed.core, stream);
        assert_true(stream_is_settled(stream));
        core_begin(&bed.core, stream, &params, &bed, 0);
        assert_int_equal(pump(&bed, CORE_DELIVER), 0);
        for (unsigned i = 1; i < ARRAY_SIZE(windows); i++) {
            core_hold(&bed.core, stream, windows[i]);
            assert_int_equal(pump(&bed, CORE_DELIVER), windows[i] - windows[i - 1]);
            if (early)
                release_all(&bed, stream);
            assert_false(stream_finished(stream));
        }
        core_learn_steps(&bed.core, stream, 6);
        assert_int_equal(pump(&bed, CORE_DELIVER), 1);
        assert_true(stream_finished(stream));
        assert_int_equal(release_all(&bed, stream), early ? 1 : 6);
        assert_true(stream_done(stream));
        tear_down(&bed);
    }
}

TEST(test_the_last_window_may_bring_no_step)
{
    struct stream_params params = {
        .world = 1, .steps = STEPS_UNKNOWN, .credits = 64, .owner = &bed_owner};
    struct bed bed;

    set_up(&bed, false);
    struct stream *stream = core_add(&bed.core, &params, NULL, (const void *)&params);
    core_settle_by_windows(&bed.core, stream);
    core_begin(&bed.core, stream, &params, &bed, 0);
    core_hold(&bed.core, stream, 3);
    assert_int_equal(pump(&bed, CORE_DELIVER), 3);
    core_learn_steps(&bed.core, stream, 3);
    assert_int_equal(pump(&bed, CORE_FINISH), 1);
    tear_down(&bed);
}
