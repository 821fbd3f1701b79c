/* A stream's steps: windows and credits, order of delivery, faults in place, pins, stopping. */
#include "tests/lib/abort.h"

#include "daemon/serve/core/stream.h"

#include <errno.h>

static struct segment segment;

static struct stream *new_stream(struct stream_params params)
{
    struct stream *stream = stream_new(&params, NULL, NULL);

    stream_become(stream, STREAM_ACTIVE);
    return stream;
}

static void stop_stream(struct stream *stream)
{
    stream_become(stream, STREAM_STOPPED);
}

static struct stream *stream_of(uint64_t first, uint64_t steps, uint32_t credits)
{
    return new_stream((struct stream_params){
        .epoch = 3, .rank = 1, .world = 2, .first = first, .steps = steps, .credits = credits});
}

static struct step *run_next(struct stream *stream)
{
    struct step *step;

    assert_true(stream_has_room(stream));
    step = stream_plan(stream);
    assert_int_equal(step->state, STEP_WAITING);
    step_run(step, &segment, (uint32_t)step->number, 4);
    return step;
}

static struct step *ready_next(struct stream *stream)
{
    struct step *step = run_next(stream);

    step_ready(step, 4, 100);
    return step;
}

static struct step *lease_next(struct stream *stream)
{
    struct step *step = ready_next(stream);

    assert_ptr_equal(stream_deliverable(stream), step);
    stream_deliver(stream, step);
    return step;
}

static void forget_all(struct stream *stream)
{
    struct step *step;
    struct step *next;

    HASH_ITER (hh, stream->steps, step, next) {
        stream_forget(stream, step);
    }
}

static void end(struct stream *stream)
{
    forget_all(stream);
    assert_int_equal(stream_window(stream), 0);
    assert_int_equal(stream->in_state[STEP_LEASED], 0);
    assert_int_equal(stream->in_state[STEP_PINNED], 0);
    assert_null(stream_free(stream));
}

static uint32_t spares(const struct stream *stream)
{
    uint32_t n = 0;

    for (const struct step *step = stream->spare; step; step = step->next)
        n++;
    return n;
}

/* ---- windows -------------------------------------------------------------------------------- */

TEST(test_far_steps)
{
    struct stream *stream = stream_of(UINT64_MAX - 2, UINT64_MAX, 5);

    assert_int_equal(lease_next(stream)->number, UINT64_MAX - 2);
    assert_false(stream_finished(stream));
    assert_int_equal(lease_next(stream)->number, UINT64_MAX - 1);
    assert_true(stream_finished(stream));
    assert_false(stream_has_room(stream));
    assert_non_null(stream_lease(stream, UINT64_MAX - 1));
    assert_null(stream_lease(stream, UINT64_MAX));
    end(stream);
}

/* ---- delivery ------------------------------------------------------------------------------- */

/* The steps become ready in every order; they are delivered in their own. */
TEST(test_delivery_is_in_order)
{
    static const int orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 0, 3, 2},
                                    {2, 0, 3, 1}, {3, 0, 1, 2}, {1, 2, 3, 0}};

    for (size_t i = 0; i < ARRAY_SIZE(orders); i++) {
        struct stream *stream = stream_of(5, 9, 4);
        struct step *steps[4];
        uint64_t due = 5;

        for (int k = 0; k < 4; k++)
            steps[k] = run_next(stream);
        for (int k = 0; k < 4; k++) {
            struct step *step;

            assert_null(stream_deliverable(stream));
            step_ready(steps[orders[i][k]], 4, 10);
            while ((step = stream_deliverable(stream))) {
                assert_int_equal(step->number, due++);
                stream_deliver(stream, step);
                assert_int_equal(step->state, STEP_LEASED);
            }
        }
        assert_int_equal(due, 9);
        assert_true(stream_finished(stream));
        assert_int_equal(stream->in_state[STEP_LEASED], 4);
        assert_int_equal(stream->delivered.batches, 4);
        assert_int_equal(stream->delivered.samples, 16);
        assert_int_equal(stream->delivered.bytes, 40);
        end(stream);
    }
}

/* What a step has in tokens counts once it is delivered; one that is used anew has none. */
TEST(test_tokens_are_counted_at_delivery)
{
    struct stream *stream = stream_of(0, 3, 1);
    struct step *step = run_next(stream);

    step->tokens = 30;
    step->padded = 32;
    step_ready(step, 4, 10);
    assert_int_equal(stream->delivered.tokens, 0);
    stream_deliver(stream, step);
    assert_int_equal(stream->delivered.tokens, 30);
    assert_int_equal(stream->delivered.padded, 32);
    stream_forget(stream, step);
    assert_ptr_equal(lease_next(stream), step);
    assert_int_equal(stream->delivered.tokens, 30);
    assert_int_equal(stream->delivered.padded, 32);
    end(stream);
}

TEST(test_faults_stand_in_their_step_s_place)
{
    struct stream *stream = stream_of(0, 3, 3);
    struct step *steps[3];
    struct dl_error err = {.code = EIO, .path = "file", .message = "broken"};

    for (int i = 0; i < 3; i++)
        steps[i] = run_next(stream);
    step_fault(steps[1], &err, NULL);
    err.code = 0; /* it has its own copy */
    step_ready(steps[2], 4, 1);
    assert_null(stream_deliverable(stream));
    step_ready(steps[0], 4, 1);
    assert_ptr_equal(stream_deliverable(stream), steps[0]);
    stream_deliver(stream, steps[0]);

    assert_ptr_equal(stream_deliverable(stream), steps[1]);
    assert_int_equal(steps[1]->state, STEP_FAULTED);
    assert_int_equal(steps[1]->error->code, EIO);
    assert_string_equal(steps[1]->error->path, "file");
    assert_string_equal(steps[1]->error->message, "broken");
    assert_null(steps[1]->segment);
    assert_int_equal(stream_window(stream), 3);
    stream_deliver(stream, steps[1]);
    assert_int_equal(stream_window(stream), 3); /* until its client has read it */
    assert_ptr_equal(stream_lease(stream, 1), steps[1]);
    assert_int_equal(stream->faults_told, 1);

    assert_ptr_equal(stream_deliverable(stream), steps[2]);
    stream_deliver(stream, steps[2]);
    assert_true(stream_finished(stream));
    assert_int_equal(stream->delivered.batches, 2);
    assert_int_equal(stream->in_state[STEP_LEASED], 3);
    stream_forget(stream, steps[1]);
    assert_int_equal(stream_window(stream), 2);
    assert_int_equal(stream->faults_told, 0);
    end(stream);
}

TEST(test_lost_steps_run_again)
{
    struct stream *stream = stream_of(0, 2, 2);
    struct step *a = run_next(stream);
    struct step *b = ready_next(stream);

    step_lost(a);
    assert_int_equal(a->state, STEP_WAITING);
    assert_null(a->segment);
    step_lost(b); /* ready, but its memory was taken back */
    assert_int_equal(b->state, STEP_WAITING);
    assert_int_equal(stream_window(stream), 2);
    assert_null(stream_deliverable(stream));
    step_run(a, &segment, 7, 2);
    assert_int_equal(a->slot, 7);
    assert_int_equal(a->samples, 2);
    step_fault(b, &(struct dl_error){.code = EIO}, NULL); /* given up while it waits */
    step_ready(a, 4, 5);
    stream_deliver(stream, stream_deliverable(stream));
    assert_ptr_equal(stream_deliverable(stream), b);
    stream_deliver(stream, b);
    assert_true(stream_finished(stream));
    end(stream);
}

/* Steps that follow are foreseen once one was made, up to where they may yet become others. */
TEST(test_steps_are_foreseen)
{
    static const struct {
        uint32_t made, running; /* steps from the first one on */
        uint64_t foreseen, limit, hold;
        uint64_t first, n;
    } rows[] = {
        {0, 2, 0, UINT64_MAX, UINT64_MAX, 7, 0},
        {1, 1, 0, UINT64_MAX, UINT64_MAX, 7, 6},
        {1, 1, 10, UINT64_MAX, UINT64_MAX, 10, 3},
        {1, 1, 13, UINT64_MAX, UINT64_MAX, 13, 0},
        {1, 1, 6, UINT64_MAX, UINT64_MAX, 7, 6},
        {1, 1, 0, 9, UINT64_MAX, 7, 2},
        {1, 1, 0, UINT64_MAX, 8, 7, 1},
        {1, 1, 0, 6, UINT64_MAX, 7, 0},
        {2, 8, 0, UINT64_MAX, UINT64_MAX, 15, 5},
        {2, 13, 0, UINT64_MAX, UINT64_MAX, 20, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct stream *stream = stream_of(5, 20, 16);
        uint64_t first;

        for (uint32_t k = 0; k < rows[i].made + rows[i].running; k++)
            (void)(k < rows[i].made ? ready_next(stream) : run_next(stream));
        stream->foreseen = rows[i].foreseen;
        stream->limit = rows[i].limit;
        stream->hold = rows[i].hold;
        assert_int_equal(stream_foresees(stream, 6, &first), rows[i].n);
        assert_int_equal(first, rows[i].first);
        end(stream);
    }
}

/* ---- leases and pins ------------------------------------------------------------------------ */

TEST(test_pins_return_their_credit)
{
    struct stream *stream = stream_of(0, 10, 1);

    for (uint32_t i = 0; i < 5; i++) {
        struct step *step = lease_next(stream);

        assert_false(stream_has_room(stream));
        stream_pin(stream, step);
        assert_int_equal(step->state, STEP_PINNED);
        stream_pin(stream, step); /* again: no change */
        assert_int_equal(stream_window(stream), 0);
        assert_int_equal(stream->in_state[STEP_LEASED], 0);
        assert_int_equal(stream->in_state[STEP_PINNED], i + 1);
        assert_ptr_equal(stream_lease(stream, i), step);
    }
    stream->starving_told = 5;
    stream_forget(stream, stream_lease(stream, 2));
    assert_int_equal(stream->starving_told, 0);
    assert_int_equal(stream->in_state[STEP_PINNED], 4);
    assert_int_equal(stream_window(stream), 0);
    assert_null(stream_lease(stream, 2));
    end(stream);
}

TEST(test_used_steps_are_reused)
{
    struct stream *stream = stream_of(0, 1000, 2);
    struct step *known[2] = {run_next(stream), run_next(stream)};

    step_fault(known[0], &(struct dl_error){.code = EIO}, NULL);
    step_ready(known[1], 4, 1);
    known[1]->attempts = 7;
    stream_deliver(stream, known[0]);
    stream_forget(stream, known[0]);
    stream_deliver(stream, known[1]);
    stream_pin(stream, known[1]);
    stream_forget(stream, known[1]);
    assert_int_equal(spares(stream), 2);
    for (uint64_t i = 2; i < 1000; i++) {
        struct step *step = lease_next(stream);

        assert_true(step == known[0] || step == known[1]);
        assert_int_equal(step->number, i);
        assert_int_equal(step->attempts, 0);
        assert_null(step->error);
        assert_int_equal(spares(stream), 1);
        stream_forget(stream, step);
    }
    assert_int_equal(spares(stream), 2);
    end(stream);
}

/* ---- what is a bug -------------------------------------------------------------------------- */

enum misuse {
    NO_CREDITS,
    RANK_PAST_WORLD,
    PLAN_WITHOUT_ROOM,
    PLAN_AFTER_STOP,
    RUN_TWICE,
    READY_BEFORE_RUN,
    READY_TWICE,
    LOSE_WAITING,
    LOSE_LEASED,
    FAULT_READY,
    DELIVER_OUT_OF_TURN,
    DELIVER_RUNNING,
    PIN_READY,
    FREE_WITH_STEPS,
    MISUSES
};

static void misuse(void *arg)
{
    struct stream *stream = stream_of(0, 2, 2);
    const struct dl_error err = {.code = EIO};

    switch (*(const enum misuse *)arg) {
    case NO_CREDITS:
        stream_of(0, 1, 0);
        break;
    case RANK_PAST_WORLD:
        new_stream((struct stream_params){.rank = 2, .world = 2, .credits = 1});
        break;
    case PLAN_WITHOUT_ROOM:
        run_next(stream);
        run_next(stream);
        stream_plan(stream);
        break;
    case PLAN_AFTER_STOP:
        stop_stream(stream);
        stream_plan(stream);
        break;
    case RUN_TWICE:
        step_run(run_next(stream), &segment, 0, 1);
        break;
    case READY_BEFORE_RUN:
        step_ready(stream_plan(stream), 4, 1);
        break;
    case READY_TWICE:
        step_ready(ready_next(stream), 4, 1);
        break;
    case LOSE_WAITING:
        step_lost(stream_plan(stream));
        break;
    case LOSE_LEASED:
        step_lost(lease_next(stream));
        break;
    case FAULT_READY:
        step_fault(ready_next(stream), &err, NULL);
        break;
    case DELIVER_OUT_OF_TURN:
        run_next(stream);
        stream_deliver(stream, ready_next(stream));
        break;
    case DELIVER_RUNNING:
        stream_deliver(stream, run_next(stream));
        break;
    case PIN_READY:
        stream_pin(stream, ready_next(stream));
        break;
    case FREE_WITH_STEPS:
        run_next(stream);
        stream_free(stream);
        break;
    case MISUSES:
        break;
    }
}

TEST(test_misuse_aborts)
{
    for (int i = 0; i < MISUSES; i++) {
        enum misuse kind = (enum misuse)i;

        if (!call_aborts(misuse, &kind))
            fail_msg("misuse %d is not refused", i);
    }
}

TEST(test_null)
{
    assert_null(stream_free(NULL));
}

/* ---- a client that is gone and comes back ---- */

enum { REWOUND_STEPS = 40, REWOUND_CREDITS = 6 };

/* What a client can have done when it is gone: some steps pinned, some released, some not. */
static void live(struct stream *stream, unsigned *seed, bool *given_back)
{
    for (int turn = rand_r(seed) % 60; turn > 0; turn--) {
        struct step *step;
        uint64_t number = (uint64_t)rand_r(seed) % REWOUND_STEPS;

        if (stream_has_room(stream))
            ready_next(stream);
        if (rand_r(seed) % 2 && (step = stream_deliverable(stream)))
            stream_deliver(stream, step);
        step = stream_lease(stream, number);
        if (step && rand_r(seed) % 4 == 0)
            stream_pin(stream, step);
        if (step && rand_r(seed) % 2) {
            given_back[number] = true;
            stream_forget(stream, step);
        }
    }
}

static void lose_client(struct stream *stream)
{
    struct step *step;
    struct step *next;

    HASH_ITER (hh, stream->steps, step, next) {
        if (step->state == STEP_LEASED || step->state == STEP_PINNED)
            stream_recall(stream, step);
    }
    stream_rewind(stream);
}

/* All that follows its position is delivered once, in order, and what was there is not made anew.
 */
TEST(test_rewind)
{
    for (unsigned seed = 0; seed < 2000; seed++) {
        struct stream *stream = stream_of(0, REWOUND_STEPS, REWOUND_CREDITS);
        bool given_back[REWOUND_STEPS] = {0};
        uint64_t position = 0, there;
        unsigned random = seed;
        struct step *step;

        for (int lives = 0; lives < 3; lives++) {
            live(stream, &random, given_back);
            there = HASH_COUNT(stream->steps);
            position = stream_position(stream);
            for (uint64_t i = 0; i < position; i++)
                assert_true(given_back[i]);
            assert_true(position == REWOUND_STEPS || !given_back[position]);
            lose_client(stream);
            assert_int_equal(stream_client_has(stream), 0);
            assert_int_equal(HASH_COUNT(stream->steps), there);
            assert_int_equal(stream_position(stream), position);
            memset(given_back + position, 0, REWOUND_STEPS - position);
        }
        for (uint64_t number = position; number < REWOUND_STEPS; number++) {
            while (!(step = stream_deliverable(stream)))
                ready_next(stream);
            assert_int_equal(step->number, number);
            stream_deliver(stream, step);
            stream_forget(stream, step);
        }
        assert_true(stream_finished(stream) && stream_done(stream));
        assert_int_equal(stream_position(stream), REWOUND_STEPS);
        end(stream);
    }
}

/* What the client has of a daemon before this one holds the position, and goes with the client. */
TEST(test_lease_of_a_former_daemon)
{
    enum { FIRST = 4, STEPS = 6 };
    static const struct {
        uint64_t former_lease, given_back; /* of this daemon's steps, these many */
        uint64_t position;
        bool done;
    } rows[] = {
        {UINT64_MAX, 0, FIRST, false},
        {UINT64_MAX, 1, 5, false},
        {UINT64_MAX, 2, STEPS, true},
        {0, 0, 0, false},
        {0, 2, 0, false},
        {3, 1, 3, false},
        {3, 2, 3, false},
        {5, 0, FIRST, false},
        {5, 2, 5, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct stream *stream = stream_of(FIRST, STEPS, 8);
        struct step *step;

        stream->former_lease = rows[i].former_lease;
        for (uint64_t number = 0; number < rows[i].given_back; number++) {
            ready_next(stream);
            step = stream_deliverable(stream);
            stream_deliver(stream, step);
            stream_forget(stream, step);
        }
        assert_int_equal(stream_position(stream), rows[i].position);
        assert_int_equal(stream_done(stream), rows[i].done);
        stream_rewind(stream);
        assert_int_equal(stream_position(stream), rows[i].position);
        for (uint64_t number = rows[i].position; number < STEPS; number++) {
            while (!(step = stream_deliverable(stream)))
                ready_next(stream);
            assert_int_equal(step->number, number);
            stream_deliver(stream, step);
            stream_forget(stream, step);
        }
        assert_true(stream_done(stream));
        end(stream);
    }
}

/* Batches that are parts of larger ones: which part of which, and how many of its samples only even
 * ranks out, as these are the last ones. */
TEST(test_slices)
{
    static const struct {
        struct slices slices;
        uint64_t own, samples, repeated; /* the latter: of the common batch */
        uint64_t step;
        struct plan_rows rows;
    } rows[] = {
        {{0}, 5, 64, 3, 5, {0, 64, 3}},
        {{.n = 1, .size = 64}, 5, 64, 3, 5, {0, 64, 3}},
        {{.n = 2, .size = 32}, 4, 64, 0, 2, {0, 32, 0}},
        {{.n = 2, .size = 32}, 5, 64, 0, 2, {32, 32, 0}},
        {{.n = 4, .size = 16}, 7, 64, 0, 1, {48, 16, 0}},
        {{.n = 4, .size = 16}, 4, 20, 0, 1, {0, 16, 0}},
        {{.n = 4, .size = 16}, 5, 20, 0, 1, {16, 4, 0}},
        {{.n = 4, .size = 16}, 6, 20, 0, 1, {20, 0, 0}},
        {{.n = 2, .size = 32}, 0, 64, 1, 0, {0, 32, 0}},
        {{.n = 2, .size = 32}, 1, 64, 1, 0, {32, 32, 1}},
        {{.n = 4, .size = 4}, 2, 14, 8, 0, {8, 4, 4}},
        {{.n = 4, .size = 4}, 3, 14, 8, 0, {12, 2, 2}},
        {{.n = 4, .size = 4}, 1, 14, 8, 0, {4, 4, 2}},
        {{.n = 2, .size = 1}, UINT64_MAX - 1, 2, 0, UINT64_MAX / 2, {0, 1, 0}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct plan_rows got =
            slices_rows(&rows[i].slices, rows[i].own, rows[i].samples, rows[i].repeated);

        assert_int_equal(slices_step(&rows[i].slices, rows[i].own), rows[i].step);
        assert_int_equal(got.first, rows[i].rows.first);
        assert_int_equal(got.samples, rows[i].rows.samples);
        assert_int_equal(got.repeated, rows[i].rows.repeated);
    }
}
