/* Streams over iterable datasets, out of order, and fed by the client: against what they promise.
 */
#include "tests/lib/abort.h"

#include "daemon/serve/core/stream.h"
#include "proto/limits.h"

#include <errno.h>

enum { MAX_REPLICAS = 5, MAX_ROUNDS = 6, MAX_DELIVERED = MAX_REPLICAS * MAX_ROUNDS, CREDITS = 7 };

static struct segment segment;

static struct stream *new_stream(struct stream_params params)
{
    struct stream *stream = stream_new(&params, NULL, NULL);

    stream_become(stream, params.rank == PLAN_ALL ? STREAM_SOURCE : STREAM_ACTIVE);
    return stream;
}

/* The RUNNING step does not exist. */
static void end_replica(struct stream *stream, struct step *step)
{
    uint64_t number = step->number;

    stream_forget(stream, step);
    stream_end_replica(stream, number);
}

static uint32_t draw(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525U + 1013904223U;
    return (*state >> 16) % n;
}

/* ---- iterable ------------------------------------------------------------------------------- */

/* A stream, and workers that each answer their tasks in order, when they are asked to. */
struct play {
    struct stream *stream;
    uint32_t replicas;
    uint64_t rounds[MAX_REPLICAS]; /* how many batches each has */
    struct step *queue[MAX_REPLICAS][CREDITS];
    uint32_t queued[MAX_REPLICAS];
    uint64_t delivered[MAX_DELIVERED];
    uint32_t n_delivered;
};

static void hand_out(struct play *play)
{
    while (stream_has_room(play->stream)) {
        uint64_t number = stream_next(play->stream);
        struct step *step = stream_plan(play->stream);
        uint32_t replica = step_replica(play->stream, number);

        assert_true(step->number == number);
        assert_true(stream_settled(play->stream, replica) <= number);
        step_run(step, &segment, 0, 4);
        play->queue[replica][play->queued[replica]++] = step;
    }
}

static struct step *take_answer(struct play *play, uint32_t replica)
{
    struct step *step = play->queue[replica][0];

    play->queued[replica]--;
    memmove(play->queue[replica], play->queue[replica] + 1,
            play->queued[replica] * sizeof(struct step *));
    return step;
}

static void answer(struct play *play, uint32_t replica)
{
    if (play->queued[replica] == 0)
        return;
    struct step *step = take_answer(play, replica);
    uint64_t round = step->number / play->replicas;

    /* A rank that asks for a round again asks for nothing before it. */
    assert_true(stream_settled(play->stream, replica) == step->number);
    if (round < play->rounds[replica])
        step_ready(step, 4, 100);
    else
        end_replica(play->stream, step);
}

static void deliver(struct play *play)
{
    struct step *step;

    while ((step = stream_deliverable(play->stream))) {
        play->delivered[play->n_delivered++] = step->number;
        stream_deliver(play->stream, step);
        stream_forget(play->stream, step);
    }
}

/* Round by round, worker by worker, those that have one: PyTorch's order. */
static uint32_t expected_steps(const struct play *play, uint64_t first, uint64_t *ret)
{
    uint32_t n = 0;

    for (uint64_t step = first; step < MAX_DELIVERED; step++)
        if (step / play->replicas < play->rounds[step % play->replicas])
            ret[n++] = step;
    return n;
}

static int compare_steps(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* What people are shown, where `all` is right: as many are left as are yet to come. */
static void check_steps(const struct play *play, uint64_t all)
{
    const struct stream *stream = play->stream;
    uint64_t had = stream->params.first + play->n_delivered, step = stream_step(stream);
    bool known = stream->params.steps != STEPS_UNKNOWN;

    assert_true(step <= stream_steps(stream, all));
    assert_true(known || stream_steps(stream, all) - step == all - had);
    assert_true(stream_steps(stream, STEPS_UNKNOWN) == stream->params.steps);
    if (!known && had > 0) /* more have come */
        assert_true(stream_steps(stream, had - 1) == STEPS_UNKNOWN);
}

static void play_once(uint32_t seed, bool any_order)
{
    struct play play = {.replicas = 1 + draw(&seed, MAX_REPLICAS)};
    uint64_t want[MAX_DELIVERED], first = draw(&seed, 4) ? 0 : draw(&seed, 2 * play.replicas);

    for (uint32_t i = 0; i < play.replicas; i++)
        play.rounds[i] = draw(&seed, MAX_ROUNDS);
    play.stream = new_stream((struct stream_params){.world = 1,
                                                    .first = first,
                                                    .steps = STEPS_UNKNOWN,
                                                    .credits = 1 + draw(&seed, CREDITS),
                                                    .replicas = play.replicas,
                                                    .any_order = any_order,
                                                    .bypass = UINT64_MAX});
    uint32_t n = expected_steps(&play, first, want);
    for (uint32_t turn = 0; !stream_finished(play.stream); turn++) {
        assert_true(turn < 10000);
        hand_out(&play);
        answer(&play, draw(&seed, play.replicas));
        if (draw(&seed, 3) == 0)
            deliver(&play);
        check_steps(&play, first + n);
    }
    deliver(&play);
    check_steps(&play, first + n);
    assert_int_equal(play.n_delivered, n);
    if (any_order)
        qsort(play.delivered, n, sizeof play.delivered[0], compare_steps);
    assert_memory_equal(play.delivered, want, n * sizeof want[0]);
    assert_null(stream_free(play.stream));
}

TEST(test_round_robin_whatever_the_timing)
{
    for (uint32_t seed = 0; seed < 20000; seed++)
        play_once(seed, false);
}

TEST(test_out_of_order_nothing_is_lost)
{
    for (uint32_t seed = 0; seed < 20000; seed++)
        play_once(seed, true);
}

/* A worker that dies makes its unfinished steps come again: what is settled goes back with them. */
TEST(test_settled_goes_back_with_lost_steps)
{
    struct stream *stream = new_stream(
        (struct stream_params){.world = 1, .steps = STEPS_UNKNOWN, .credits = 6, .replicas = 2});
    struct step *steps[6];

    for (int i = 0; i < 6; i++) {
        steps[i] = stream_plan(stream);
        step_run(steps[i], &segment, 0, 1);
    }
    assert_int_equal(stream_settled(stream, 0), 0);
    step_ready(steps[0], 1, 1);
    step_ready(steps[2], 1, 1);
    assert_int_equal(stream_settled(stream, 0), 4);
    assert_int_equal(stream_settled(stream, 1), 1);
    step_lost(steps[2]); /* READY, its memory was wanted */
    assert_int_equal(stream_settled(stream, 0), 2);
    step_lost(steps[1]);
    assert_int_equal(stream_settled(stream, 1), 1);
    for (int i = 0; i < 6; i++)
        stream_forget(stream, steps[i]);
    assert_null(stream_free(stream));
}

/* ---- fed ------------------------------------------------------------------------------------ */

static bool feed(struct stream *stream, uint64_t a, uint64_t b)
{
    uint64_t indices[] = {a, b};
    return stream_feed(stream, (const uint8_t *)indices, 2);
}

TEST(test_feeding_is_bounded_and_in_order)
{
    enum { STEPS = 50 };
    struct stream *stream = new_stream(
        (struct stream_params){.world = 1, .steps = STEPS_UNKNOWN, .credits = 3, .fed = true});
    uint64_t fed = 0, seen = 0;

    assert_false(stream_has_room(stream));
    assert_false(stream_finished(stream));
    while (seen < STEPS) {
        while (fed < STEPS && feed(stream, fed, 1000 + fed))
            fed++;
        assert_true(fed - seen <= DL_MAX_FEED_AHEAD * 3);
        assert_true(fed == STEPS || fed - seen == DL_MAX_FEED_AHEAD * 3);
        assert_int_equal(stream_step(stream), seen);
        assert_int_equal(stream_steps(stream, STEPS), STEPS);
        assert_int_equal(stream_steps(stream, fed), fed);
        assert_true(stream_steps(stream, fed - 1) == STEPS_UNKNOWN); /* more is on its way */
        assert_true(stream_steps(stream, STEPS_UNKNOWN) == STEPS_UNKNOWN);
        while (stream_has_room(stream)) {
            struct step *step = stream_plan(stream);
            assert_int_equal(step->samples, 2);
            assert_true(step->fed[0] == step->number && step->fed[1] == 1000 + step->number);
            step_run(step, &segment, 0, 2);
            step_lost(step); /* its indices stay with it */
            assert_true(step->fed[1] == 1000 + step->number);
            step_run(step, &segment, 0, 2);
            step_ready(step, 2, 1);
        }
        struct step *step = stream_deliverable(stream);
        assert_true(step->number == seen++);
        stream_deliver(stream, step);
        stream_forget(stream, step);
    }
    assert_false(stream_finished(stream));
    assert_true(stream_feed_end(stream));
    assert_true(stream_finished(stream));
    assert_int_equal(stream_steps(stream, STEPS + 9), STEPS);
    assert_false(stream_feed_end(stream));
    assert_false(feed(stream, 1, 2));
    assert_null(stream_free(stream));
}

TEST(test_what_was_fed_goes_with_its_stream)
{
    struct stream *stream = new_stream((struct stream_params){
        .world = 1, .steps = STEPS_UNKNOWN, .credits = 2, .first = 7, .fed = true});

    assert_true(feed(stream, 1, 2) && feed(stream, 3, 4) && feed(stream, 5, 6));
    struct step *step = stream_plan(stream);
    assert_int_equal(step->number, 7);
    step_run(step, &segment, 0, 2);
    stream_abandon(stream, step);
    stream_become(stream, STREAM_STOPPED);
    assert_null(stream_free(stream));
    step_free(step);
}

/* ---- dispatched ----------------------------------------------------------------------------- */

/* A source goes on where its ranks need it; a step that is lost has let go of its slot. */
TEST(test_a_source)
{
    struct stream *source = new_stream((struct stream_params){
        .rank = PLAN_ALL, .source = true, .world = 3, .first = 2, .steps = 20, .credits = 4});
    struct step *step;

    assert_true(stream_is_source(source));
    for (uint64_t number = 2; number < 6; number++)
        assert_int_equal(stream_plan(source)->number, number);
    assert_false(stream_has_room(source));
    step = stream_find(source, 3);
    step_run(step, &segment, 0, 12);
    step_ready(step, 12, 1200);
    assert_int_equal(step_bytes(step), 1200);
    step->own_lease = true;
    step_lost(step);
    assert_false(step->own_lease);
    for (uint64_t number = 2; number < 6; number++)
        stream_forget(source, stream_find(source, number));
    assert_null(stream_find(source, 3));
    stream_skip(source, 15);
    assert_int_equal(stream_next(source), 15);
    stream_skip(source, 7); /* it is past that */
    assert_int_equal(stream_plan(source)->number, 15);
    stream_forget(source, stream_find(source, 15));
    assert_null(stream_free(source));
}

/* What a rank has of a slot is counted by its samples; it repeats no more than it has. */
TEST(test_a_share)
{
    struct stream *stream =
        new_stream((struct stream_params){.rank = 1, .world = 3, .steps = 9, .credits = 1});
    struct step *step = stream_plan(stream);

    step->repeated = 7;
    step_run(step, &segment, 0, 4);
    step_ready(step, 4, 1200);
    step->all = 12;
    assert_int_equal(step->repeated, 4);
    assert_int_equal(step_bytes(step), 400);
    stream_deliver(stream, step);
    assert_int_equal(stream->delivered.bytes, 400);
    stream_forget(stream, step);
    assert_null(stream_free(stream));
}
