/*
 * The rendezvous, row by row: a state, an event, and what the node does with them. `me` is node 5;
 * the others are 1 to 4. Times are those of rendezvous.h, PyTorch's.
 */
#include "tests/lib/harness.h"

#include "daemon/cluster/rendezvous.h"

#include <errno.h>
#include <stdio.h>

#define SECOND ((uint64_t)1000000000)

enum { ME = 5, MIN = 2, MAX = 3 };

/* ---- states in short ------------------------------------------------------------------------ */

/*
 * "3 open 1r 2 5w": round, open or complete or closed, and nodes: a member; r: ready; w: waits.
 * Ranks of a complete round are those of the order.
 */
static struct rdzv_state make(const char *text)
{
    struct rdzv_state state = {.min = MIN, .max = MAX, .seq = 10, .stamp = 0};
    char copy[128], *at = copy;

    (void)snprintf(copy, sizeof copy, "%s", text);
    state.round = strtoull(strsep(&at, " "), NULL, 10);
    const char *kind = strsep(&at, " ");
    state.complete = strcmp(kind, "complete") == 0;
    state.stamp = state.complete ? 77 : 0;
    if (strcmp(kind, "closed") == 0)
        (void)snprintf(state.closed, sizeof state.closed, "the end");
    uint32_t rank = 0;
    while (at && *at) {
        const char *word = strsep(&at, " ");
        struct rdzv_node node = {.id = strtoull(word, NULL, 10), .local = 1, .beat = 1};

        node.member = !strchr(word, 'w');
        node.ready = strchr(word, 'r') || strchr(word, 'w') || state.complete;
        (void)snprintf(node.name, sizeof node.name, "node%d", word[0] - '0');
        assert_int_equal(rdzv_state_add(&state, &node), 0);
        if (state.complete && node.member)
            rdzv_state_find(&state, node.id)->rank = rank++;
    }
    struct rdzv_count count = rdzv_state_count(&state);
    state.enough = !state.complete && count.members >= MIN;
    return state;
}

static const char *show(const struct rdzv_state *state)
{
    static char text[160];
    size_t len = (size_t)snprintf(text, sizeof text, "%d %s", (int)state->round,
                                  state->closed[0]  ? "closed"
                                  : state->complete ? "complete"
                                                    : "open");

    for (uint32_t i = 0; i < state->n; i++) {
        const struct rdzv_node *node = &state->nodes[i];

        len += (size_t)snprintf(text + len, sizeof text - len, " %d%s", (int)node->id,
                                !node->member                     ? "w"
                                : node->ready && !state->complete ? "r"
                                                                  : "");
    }
    return text;
}

/* ---- a node and its store ------------------------------------------------------------------- */

struct play {
    struct rdzv rdzv;
    struct rdzv_state next, seen;
    struct rdzv_out out;
    uint64_t now, beats;
    bool still; /* the others' beats stand still */
};

static void begin(struct play *play)
{
    struct rdzv_settings set = RDZV_DEFAULTS;
    struct rdzv_node self = {.id = ME, .local = 1, .name = "node5"};

    *play = (struct play){.now = 1000 * SECOND};
    set.min = MIN;
    set.max = MAX;
    rdzv_init(&play->rdzv, &set, &self);
}

static void end(struct play *play)
{
    rdzv_deinit(&play->rdzv);
    rdzv_state_deinit(&play->next);
    rdzv_state_deinit(&play->seen);
}

static void step(struct play *play, struct rdzv_event event)
{
    event.now = play->now;
    rdzv_step(&play->rdzv, &event, &play->next, &play->out);
}

static void owner(struct play *play, enum rdzv_event_type type)
{
    step(play, (struct rdzv_event){.type = type, .reason = "the end"});
}

/* Time passes as it does: with a tick each second, until the store is to be asked. */
static void pass(struct play *play, uint64_t seconds)
{
    for (uint64_t i = 0; i < seconds; i++) {
        play->now += SECOND;
        if (play->rdzv.want != RDZV_WANT_NOTHING)
            owner(play, RDZV_TICK);
    }
}

static void until_asked(struct play *play)
{
    for (unsigned i = 0; i < 100 && !play->rdzv.busy; i++) {
        play->now += SECOND / 10;
        owner(play, RDZV_TICK);
    }
    assert_true(play->rdzv.busy);
}

/* The store says what is there: news of it, and what the node writes. */
static const char *sees(struct play *play, const char *text)
{
    until_asked(play);
    play->rdzv.beat_at = play->rdzv.clock; /* no beat is due: that is a test of its own */
    rdzv_state_deinit(&play->seen);
    if (text)
        play->seen = make(text);
    struct rdzv_node *me = rdzv_state_find(&play->seen, ME);
    if (me)
        me->life = play->rdzv.self.life;
    play->beats += !play->still;
    for (uint32_t i = 0; i < play->seen.n; i++)
        play->seen.nodes[i].beat = play->beats;
    step(play, (struct rdzv_event){.type = RDZV_SEEN, .state = text ? &play->seen : NULL});
    return play->out.store == RDZV_WRITE ? show(&play->next) : "-";
}

/* The write was done. */
static void wins(struct play *play)
{
    assert_true(play->rdzv.writing);
    rdzv_state_deinit(&play->seen);
    rdzv_state_copy(&play->next, &play->seen);
    step(play, (struct rdzv_event){.type = RDZV_SEEN, .won = true, .state = &play->seen});
}

static void join(struct play *play)
{
    begin(play);
    owner(play, RDZV_JOIN);
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* What one who joins does with what is there. */
static void test_join(void **state)
{
    static const struct {
        const char *there, *written;
        enum rdzv_news news;
    } rows[] = {
        {NULL, "0 open 5r", RDZV_NO_NEWS},
        {"0 open", "0 open 5r", RDZV_NO_NEWS},
        {"7 open", "7 open 5r", RDZV_NO_NEWS},
        {"0 open 1r", "0 open 1r 5r", RDZV_NO_NEWS},
        {"0 open 1r 2r", "0 complete 1 2 5", RDZV_NO_NEWS}, /* full: complete at once */
        {"0 open 1r 2", "0 open 1r 2 5r", RDZV_NO_NEWS},    /* but not before all are ready */
        {"0 open 1r 2r 3", "0 open 1r 2r 3 5w", RDZV_NO_NEWS},
        {"4 complete 1 2", "4 complete 1 2 5w", RDZV_NO_NEWS},
        {"4 complete 1 2 3", "4 complete 1 2 3 5w", RDZV_NO_NEWS},
        {"4 complete 1 2 5w", "-", RDZV_NO_NEWS}, /* members let it in */
        {"0 open 1r 5", "0 open 1r 5r", RDZV_NO_NEWS},
        {"0 open 1r 5r", "-", RDZV_NO_NEWS},
        {"4 complete 1 2 5", "-", RDZV_ROUND},
        {"4 complete 1 5 2w", "5 open 1 2r 5", RDZV_ROUND}, /* in, and at once let others in */
        {"0 closed", "-", RDZV_CLOSED},
        {"4 closed 1 5", "-", RDZV_CLOSED},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct play play;

        join(&play);
        const char *written = sees(&play, rows[i].there);
        if (strcmp(written, rows[i].written) != 0 || play.out.news != rows[i].news)
            fail_msg("row %zu: %s becomes %s with news %d", i, rows[i].there, written,
                     (int)play.out.news);
        end(&play);
    }
}

/* With round 4 behind it (members 1, 2 and itself), what it does with what comes. */
static void test_in_a_round(void **state)
{
    static const struct {
        const char *there, *written;
        enum rdzv_news news;
    } rows[] = {
        {"4 complete 1 2 5", "-", RDZV_NO_NEWS},
        {"5 open 1 2 5", "-", RDZV_OPENED},
        {"5 open 1r 5", "-", RDZV_OPENED},
        {"6 open 1r 2r 5", "-", RDZV_OPENED},
        {"5 open 1r 2", "5 open 1r 2 5", RDZV_EVICTED},
        {"5 complete 1 2", "5 complete 1 2 5w", RDZV_EVICTED},
        {"3 open 1r", "5 open 1 5", RDZV_EVICTED},         /* the store was set back */
        {"3 complete 1 2 5", "5 open 1 2 5", RDZV_OPENED}, /* likewise */
        {"5 complete 1 2 5", "6 open 1 2 5", RDZV_OPENED}, /* it never said it was ready for that */
        {"4 closed 1 2 5", "-", RDZV_CLOSED},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct play play;

        join(&play);
        sees(&play, "4 complete 1 2 5");
        assert_int_equal(play.out.news, RDZV_ROUND);
        const char *written = sees(&play, rows[i].there);
        if (strcmp(written, rows[i].written) != 0 || play.out.news != rows[i].news)
            fail_msg("row %zu: %s becomes %s with news %d", i, rows[i].there, written,
                     (int)play.out.news);
        assert_int_equal(play.rdzv.in_round, rows[i].news == RDZV_NO_NEWS);
        end(&play);
    }
}

static void test_leave_and_close(void **state)
{
    static const struct {
        const char *there, *written;
        enum rdzv_event_type request;
        enum rdzv_news news;
    } rows[] = {
        {"4 complete 1 2 5", "5 open 1 2", RDZV_LEAVE, RDZV_NO_NEWS},
        {"4 complete 5", "5 open", RDZV_LEAVE, RDZV_NO_NEWS},
        {"4 complete 1 2 3 5w", "4 complete 1 2 3", RDZV_LEAVE, RDZV_NO_NEWS},
        {"4 complete 1 2 5 3w", "5 open 1 2 3r", RDZV_LEAVE, RDZV_NO_NEWS},
        {"4 open 1r 2r 5r", "4 open 1r 2r", RDZV_LEAVE, RDZV_NO_NEWS},
        {"4 open 1r", "-", RDZV_LEAVE, RDZV_LEFT},
        {NULL, "-", RDZV_LEAVE, RDZV_LEFT},
        {"4 closed 1 5", "-", RDZV_LEAVE, RDZV_LEFT},
        {"4 complete 1 2 5", "4 closed 1 2 5", RDZV_CLOSE, RDZV_NO_NEWS},
        {"4 open", "4 closed", RDZV_CLOSE, RDZV_NO_NEWS},
        {NULL, "0 closed", RDZV_CLOSE, RDZV_NO_NEWS},
        {"4 closed 1", "-", RDZV_CLOSE, RDZV_CLOSED},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct play play;

        join(&play);
        sees(&play, "0 open");
        owner(&play, rows[i].request);
        wins(&play); /* the answer that was under way */
        if (play.rdzv.busy && play.rdzv.writing) {
            step(&play, (struct rdzv_event){.type = RDZV_SEEN, .state = &play.seen});
            play.rdzv.lost = 0;
        }
        const char *written = sees(&play, rows[i].there);
        if (strcmp(written, rows[i].written) != 0 || play.out.news != rows[i].news)
            fail_msg("row %zu: %s becomes %s with news %d", i, rows[i].there, written,
                     (int)play.out.news);
        end(&play);
    }
}

/* ---- time ----------------------------------------------------------------------------------- */

/* The round is complete when last call is over by this node's watch, not before. */
static void test_last_call(void **state)
{
    struct play play;

    (void)state;
    join(&play);
    assert_string_equal(sees(&play, "0 open 1r"), "0 open 1r 5r");
    wins(&play);
    while (play.now < 1029 * SECOND)
        assert_string_equal(sees(&play, "0 open 1r 5r"), "-");
    while (play.now < 1032 * SECOND)
        pass(&play, 1);
    assert_string_equal(sees(&play, "0 open 1r 5r"), "0 complete 1 5");
    wins(&play);
    assert_int_equal(play.out.news, RDZV_ROUND);
    end(&play);
}

/* Another quorum: the call begins anew. */
static void test_last_call_again(void **state)
{
    struct play play;

    (void)state;
    join(&play);
    sees(&play, "0 open 1r 5r");
    while (play.now < 1025 * SECOND)
        sees(&play, "0 open 1r 5r");
    play.rdzv.quorum = 99; /* as if node 1 had gone and come */
    while (play.now < 1040 * SECOND)
        assert_string_equal(sees(&play, "0 open 1r 5r"), "-");
    end(&play);
}

/* Node 1 counts on, node 2 stands still: 15 s after that was first seen, it is out. */
static void test_death(void **state)
{
    struct play play;
    uint64_t beats = 1;

    (void)state;
    join(&play);
    sees(&play, "4 complete 1 2 5");
    uint64_t first = play.now;
    while (true) {
        until_asked(&play);
        uint64_t asked = play.now;

        rdzv_state_deinit(&play.seen);
        play.seen = make("4 complete 1 2 5");
        rdzv_state_find(&play.seen, 1)->beat = ++beats;
        play.rdzv.beat_at = play.rdzv.clock;
        play.now += SECOND / 20;
        step(&play, (struct rdzv_event){.type = RDZV_SEEN, .state = &play.seen});
        if (play.out.store == RDZV_WRITE)
            break;
        assert_true(asked - first <= 15 * SECOND);
        assert_true(asked - first < 20 * SECOND);
    }
    assert_string_equal(show(&play.next), "5 open 1 5");
    assert_string_equal(play.next.why, "node2 sent no heartbeat for 15 s");
    end(&play);
}

/* A silence is as many intervals as beats may be missed; of one, half an interval more. */
static void test_silence(void **state)
{
    static const struct {
        uint32_t missed;
        uint64_t ms;
    } rows[] = {{1, 7500}, {2, 10000}, {3, 15000}, {1000, 5000000}};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct rdzv_settings set = RDZV_DEFAULTS;

        set.missed = rows[i].missed;
        assert_int_equal(rdzv_silence(&set), rows[i].ms * (SECOND / 1000));
    }
}

/* An answer is of when it was asked for: that it came late says nothing of anybody's beat. */
static void test_late_answer(void **state)
{
    struct play play;

    (void)state;
    join(&play);
    play.still = true;
    sees(&play, "4 complete 1 2 5");
    uint64_t first = play.now;
    while (play.now < first + 13 * SECOND)
        assert_string_equal(sees(&play, "4 complete 1 2 5"), "-");
    until_asked(&play);
    assert_true(play.now < first + 15 * SECOND);
    pass(&play, 4);
    assert_string_equal(sees(&play, "4 complete 1 2 5"), "-");
    assert_string_not_equal(sees(&play, "4 complete 1 2 5"), "-");
    end(&play);
}

/* The clock goes on by an hour: neither last call nor the time to join is over by that. */
static void test_jump(void **state)
{
    struct play play;

    (void)state;
    join(&play);
    sees(&play, "0 open 1r 5r");
    for (unsigned i = 0; i < 2; i++) {
        play.now += 3600 * SECOND;
        assert_string_equal(sees(&play, "0 open 1r 5r"), "-");
        assert_int_equal(play.out.news, RDZV_NO_NEWS);
    }
    end(&play);
}

/* Whoever did not run, had its clock set, or heard nothing from the store has no say. */
static void test_no_say(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct play play;
        struct dl_error error = {.code = ETIMEDOUT, .message = "nobody answers"};

        join(&play);
        play.still = true;
        sees(&play, "4 complete 1 2 5");
        if (how == 0) { /* slept */
            play.now += 3600 * SECOND;
        } else if (how == 1) { /* set back */
            play.now -= 900 * SECOND;
        } else { /* the store was away */
            for (unsigned i = 0; i < 100; i++) {
                until_asked(&play);
                step(&play, (struct rdzv_event){.type = RDZV_FAILING, .error = &error});
            }
            pass(&play, 30);
        }
        for (unsigned i = 0; i < 10; i++)
            assert_string_equal(sees(&play, "4 complete 1 2 5"), "-");
        end(&play);
    }
}

/* Its own beat: once in five seconds, and with whatever else it writes. */
static void test_beat(void **state)
{
    struct play play;

    (void)state;
    join(&play);
    sees(&play, "0 open");
    assert_int_equal(rdzv_state_find(&play.next, ME)->beat, 1);
    wins(&play);
    uint64_t from = play.now;
    while (play.out.store != RDZV_WRITE) {
        until_asked(&play);
        step(&play, (struct rdzv_event){.type = RDZV_SEEN, .state = &play.seen});
    }
    assert_int_equal(rdzv_state_find(&play.next, ME)->beat, 2);
    assert_true(play.now - from >= 5 * SECOND - SECOND / 5 && play.now - from <= 6 * SECOND);
    end(&play);
}

/* Two writes that were lost, one after another: the second is not tried again at once. */
static void test_lost_writes(void **state)
{
    struct play play;

    (void)state;
    join(&play);
    assert_string_equal(sees(&play, "0 open 1r"), "0 open 1r 5r");
    rdzv_state_deinit(&play.seen);
    play.seen = make("0 open 1r 2");
    step(&play, (struct rdzv_event){.type = RDZV_SEEN, .state = &play.seen});
    assert_int_equal(play.out.store, RDZV_WRITE);
    assert_string_equal(show(&play.next), "0 open 1r 2 5r");
    step(&play, (struct rdzv_event){.type = RDZV_SEEN, .state = &play.seen});
    assert_int_not_equal(play.out.store, RDZV_WRITE);
    assert_string_equal(sees(&play, "0 open 1r 2"), "0 open 1r 2 5r");
    end(&play);
}

/* ---- errors --------------------------------------------------------------------------------- */

static void test_errors(void **state)
{
    struct dl_error bad = {.code = EPROTONOSUPPORT, .path = "rendezvous", .message = "version 9"};
    struct dl_error away = {.code = ETIMEDOUT, .message = "10.0.0.1:2379 did not answer for 2 s"};
    struct play play;

    (void)state;
    /* Other settings than those that are there. */
    join(&play);
    until_asked(&play);
    play.seen = make("0 open 1r");
    play.seen.max = 9;
    step(&play, (struct rdzv_event){.type = RDZV_SEEN, .state = &play.seen});
    assert_int_equal(play.out.news, RDZV_FAILED);
    assert_string_equal(play.out.error.path, "rendezvous.nodes");
    assert_non_null(strstr(play.out.error.message, "2 to 3, but the other nodes have 2 to 9"));
    end(&play);
    /* No state at all. */
    join(&play);
    until_asked(&play);
    step(&play, (struct rdzv_event){.type = RDZV_FAILING, .error = &bad});
    assert_int_equal(play.out.news, RDZV_FAILED);
    assert_string_equal(play.out.error.message, "version 9");
    end(&play);
    /* No store. */
    join(&play);
    while (play.out.news == RDZV_NO_NEWS) {
        if (play.rdzv.busy)
            step(&play, (struct rdzv_event){.type = RDZV_FAILING, .error = &away});
        pass(&play, 1);
        assert_true(play.now < 1700 * SECOND);
    }
    assert_true(play.now >= 1600 * SECOND);
    assert_int_equal(play.out.news, RDZV_FAILED);
    assert_string_equal(play.out.error.path, "rendezvous.timeouts.join");
    assert_non_null(strstr(play.out.error.message, "10.0.0.1:2379 did not answer for 2 s"));
    end(&play);
}

static void test_settings(void **state)
{
    static const struct {
        struct rdzv_settings set;
        int want;
    } rows[] = {
        {{1, 1, 3, 600 * SECOND, 30 * SECOND, 30 * SECOND, 5 * SECOND, SECOND}, 0},
        {{0, 1, 3, 600 * SECOND, 30 * SECOND, 30 * SECOND, 5 * SECOND, SECOND}, -EINVAL},
        {{3, 2, 3, 600 * SECOND, 30 * SECOND, 30 * SECOND, 5 * SECOND, SECOND}, -EINVAL},
        {{1, 4097, 3, 600 * SECOND, 30 * SECOND, 30 * SECOND, 5 * SECOND, SECOND}, -EINVAL},
        {{1, 1, 0, 600 * SECOND, 30 * SECOND, 30 * SECOND, 5 * SECOND, SECOND}, -EINVAL},
        {{1, 1, 1, 600 * SECOND, 30 * SECOND, 30 * SECOND, 5 * SECOND, SECOND}, -EINVAL},
        {{1, 1, 1, 600 * SECOND, 30 * SECOND, 30 * SECOND, 8 * SECOND, SECOND}, 0},
        {{1, 1, 3, 0, 30 * SECOND, 30 * SECOND, 5 * SECOND, SECOND}, -EINVAL},
        {{1, 1, 3, 600 * SECOND, 30 * SECOND, 30 * SECOND, 5 * SECOND, 6 * SECOND}, -EINVAL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_error err = {0};

        assert_int_equal(rdzv_settings_check(&rows[i].set, &err), rows[i].want);
        assert_int_equal(err.code, -rows[i].want);
    }
    assert_int_equal(rdzv_settings_check(&RDZV_DEFAULTS, NULL), 0);
}

/* ---- the state ------------------------------------------------------------------------------ */

static void test_names(void **state)
{
    static const char *const order[] = {"",       "a",      "node1",    "node2",     "node7",
                                        "node7a", "node66", "node66-1", "node66-10", "nodf"};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(order); i++)
        for (size_t k = 0; k < ARRAY_SIZE(order); k++) {
            int r = rdzv_name_compare(order[i], order[k]);

            assert_int_equal((r > 0) - (r < 0), (i > k) - (i < k));
        }
    assert_int_equal(rdzv_name_compare("n007", "n7"), 0);
}

/* How a node went, by what was seen before and after. */
static void test_gone(void **state)
{
    static const struct {
        const char *before, *now;
        uint64_t writes, writer, who;
        const char *why, *gone;
    } rows[] = {
        /* The new round says it, whoever was seen to write last. */
        {"3 complete 1 2 5", "4 open 1 5", 1, 2, 2, "node2 has left", "has left"},
        {"3 complete 1 2 5", "4 open 1 5", 3, 5, 2, "node2 has left", "has left"},
        {"3 complete 1 2 5", "4 open 1 5", 1, 1, 2, "node2 sent no heartbeat for 6 s",
         "sent no heartbeat for 6 s"},
        /* Of another, it says nothing of this one. */
        {"3 complete 1 2 5", "4 open 5", 2, 5, 1, "node2 has left",
         "has left, or sent no heartbeat"},
        {"3 complete 1 2 5", "4 open 5", 1, 5, 1, "node2 sent no heartbeat for 6 s",
         "sent no heartbeat, says node5"},
        {"3 complete 1 2 5", "4 open 5", 1, 5, 1, "node11 sent no heartbeat for 6 s",
         "sent no heartbeat, says node5"},
        /* Nor does the reason for a round that was open before. */
        {"4 open 1 2r 5r", "4 open 1 5r", 1, 5, 2, "node2 has left",
         "sent no heartbeat, says node5"},
        {"4 open 1 2r 5r", "4 open 1 5r", 1, 2, 2, "node3 has left", "has left"},
        {"4 open 1 2r 5r", "4 open 1 5r", 2, 2, 2, "", "has left, or sent no heartbeat"},
        /* Who waited leaves the round as it is. */
        {"3 complete 1 2 3w 5", "3 complete 1 2 5", 1, 3, 3, "", "has left"},
        {"3 complete 1 2 3w 5", "3 complete 1 2 5", 1, 1, 3, "", "sent no heartbeat, says node1"},
        {"3 complete 1 2 3w 5", "3 complete 1 2 5", 7, 1, 3, "", "has left, or sent no heartbeat"},
        /* The store was lost, and begins anew. */
        {"3 complete 1 2 5", "4 open 5", 1, 9, 1, "the store has lost its state",
         "has left, or sent no heartbeat"},
    };
    char why[RDZV_TEXT_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct rdzv_state before = make(rows[i].before), now = make(rows[i].now);

        now.seq = before.seq + rows[i].writes;
        now.writer = rows[i].writer;
        (void)snprintf(now.why, sizeof now.why, "%s", rows[i].why);
        rdzv_state_gone(&before, &now, rdzv_state_find(&before, rows[i].who), why);
        assert_string_equal(why, rows[i].gone);
        rdzv_state_deinit(&before);
        rdzv_state_deinit(&now);
    }
}

static void test_blob(void **state)
{
    _cleanup_(rdzv_state_deinit)
    struct rdzv_state from = make("9 complete 1 2 5 3w"), to = {0};
    _cleanup_(buffer_deinit)
    struct dl_buffer bytes = {0};
    struct dl_error err = {0};

    (void)state;
    (void)snprintf(from.why, sizeof from.why, "%s", "node4 sent no heartbeat for 15 s");
    rdzv_state_find(&from, 2)->life = RDZV_NUMBER_MAX;
    rdzv_state_pack(&from, &bytes);
    assert_int_equal(rdzv_state_unpack((struct dl_span){bytes.data, bytes.len}, &to, &err), 0);
    assert_int_equal(to.n, 4);
    assert_string_equal(show(&to), "9 complete 1 2 3w 5");
    assert_string_equal(to.why, from.why);
    for (uint32_t i = 0; i < to.n; i++) {
        const struct rdzv_node *a = &from.nodes[i], *b = &to.nodes[i];

        assert_true(a->id == b->id && a->life == b->life && a->rank == b->rank &&
                    a->beat == b->beat && a->local == b->local && strcmp(a->name, b->name) == 0);
    }
    /* Cut anywhere, or with a byte too much, it is none. */
    for (size_t len = 0; len < bytes.len; len++)
        assert_int_equal(rdzv_state_unpack((struct dl_span){bytes.data, len}, &to, &err), -EBADMSG);
    assert_int_equal(buffer_append(&bytes, "", 1), 0);
    assert_int_equal(rdzv_state_unpack((struct dl_span){bytes.data, bytes.len}, &to, &err),
                     -EBADMSG);
    /* Of a later version it is told as one. */
    bytes.data[1] = RDZV_VERSION + 1;
    assert_int_equal(rdzv_state_unpack((struct dl_span){bytes.data, bytes.len}, &to, &err),
                     -EPROTONOSUPPORT);
    assert_non_null(strstr(err.message, "version 2"));
    assert_null(to.nodes);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_join),
    cmocka_unit_test(test_in_a_round),
    cmocka_unit_test(test_leave_and_close),
    cmocka_unit_test(test_last_call),
    cmocka_unit_test(test_last_call_again),
    cmocka_unit_test(test_death),
    cmocka_unit_test(test_silence),
    cmocka_unit_test(test_late_answer),
    cmocka_unit_test(test_jump),
    cmocka_unit_test(test_no_say),
    cmocka_unit_test(test_beat),
    cmocka_unit_test(test_lost_writes),
    cmocka_unit_test(test_errors),
    cmocka_unit_test(test_settings),
    cmocka_unit_test(test_names),
    cmocka_unit_test(test_gone),
    cmocka_unit_test(test_blob),
};

TEST_MAIN(tests)
