/* Turns on a loop on which nothing else happens: none is forgotten, and nobody's pause is waited
 * for. */
#include "tests/lib/harness.h"
#include "tests/lib/uv_threads.h"

#include "daemon/serve/session/scheduler.h"

enum { PATIENCE_MS = 60 * 1000, TURNS = 5 };

static struct play {
    uv_loop_t loop;
    struct scheduler *scheduler;
    struct turn greedy, modest;
    unsigned greedy_turns, modest_turns;
    uv_timer_t patience;
} play;

static uint64_t processor_ns(void)
{
    struct timespec used;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

/* The processor's time, by which turns are charged: others may have it meanwhile. */
static uint64_t burn(void)
{
    uint64_t end = processor_ns() + 5 * TURN_LONG_NS;

    while (processor_ns() < end)
        continue;
    return uv_hrtime();
}

static uint64_t go(struct turn *turn, uint64_t now)
{
    (void)now;
    if (turn == &play.modest) {
        play.modest_turns++;
        return uv_hrtime();
    }
    if (++play.greedy_turns < TURNS)
        (void)scheduler_wait(play.scheduler, turn);
    return burn();
}

static void on_patience_over(uv_timer_t *timer)
{
    (void)timer;
    fail_msg("%u of %d turns", play.greedy_turns, TURNS);
}

static void begin(void)
{
    play = (struct play){0};
    assert_int_equal(uv_loop_init(&play.loop), 0);
    play.scheduler = scheduler_new(&play.loop, go);
    scheduler_add(play.scheduler, &play.greedy, 1);
    scheduler_add(play.scheduler, &play.modest, 2);
    uv_timer_init(&play.loop, &play.patience);
    uv_timer_start(&play.patience, on_patience_over, PATIENCE_MS, 0);
}

static void end(void)
{
    scheduler_remove(play.scheduler, &play.greedy);
    scheduler_remove(play.scheduler, &play.modest);
    play.scheduler = scheduler_free(play.scheduler);
    uv_close((uv_handle_t *)&play.patience, NULL);
    uv_run(&play.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&play.loop), 0);
}

TEST(test_pauses_end)
{
    begin();
    assert_false(scheduler_wait(play.scheduler, &play.greedy));
    while (play.greedy_turns < TURNS)
        uv_run(&play.loop, UV_RUN_ONCE);
    assert_int_equal(play.modest_turns, 0);
    end();
}

TEST(test_others_do_not_pause)
{
    begin();
    (void)scheduler_wait(play.scheduler, &play.greedy);
    while (play.greedy_turns == 0)
        uv_run(&play.loop, UV_RUN_ONCE);
    assert_true(scheduler_wait(play.scheduler, &play.greedy));
    assert_false(scheduler_wait(play.scheduler, &play.modest));
    while (play.modest_turns == 0)
        uv_run(&play.loop, UV_RUN_ONCE);
    end();
}

/* Who waits and is gone does not keep the loop busy. */
TEST(test_gone)
{
    begin();
    (void)scheduler_wait(play.scheduler, &play.greedy);
    scheduler_remove(play.scheduler, &play.greedy);
    uv_timer_stop(&play.patience);
    uv_run(&play.loop, UV_RUN_DEFAULT); /* it ends: nothing is left to do */
    assert_int_equal(play.greedy_turns, 0);
    end();
}
