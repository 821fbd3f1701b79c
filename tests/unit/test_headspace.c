/* How the headspace is measured: the phases by table, and then trainers and loaders at random. */
#include "tests/lib/harness.h"
#include "tests/lib/row.h"

#include "daemon/serve/loader/headspace.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#define S  HEADSPACE_S
#define MS ((uint64_t)1000000)

/* ---- by table ------------------------------------------------------------------------------- */

enum { EVENTS = 40, RANKS = 3 };

struct event {
    uint64_t ms;                /* since the one before */
    uint32_t back;              /* batches that rank 0's client releases; 0: a look, then: */
    enum headspace_phase phase; /* afterwards */
    uint32_t leased, ready;     /* of rank 0 */
    bool full, ending, nobody;
    const char *starving;
    uint64_t waited_ms; /* with `back` */
};

struct row {
    const char *name;
    uint32_t steps;
    int error; /* 0: a result */
    uint64_t measured;
    const char *text; /* part of the error, or of the words */
    struct event events[EVENTS];
};

#define BACK(after, waited)           \
    {                                 \
        after, 1, .waited_ms = waited \
    }
/* Four steps of 50 ms each, 30 of them waiting. */
#define WATCHED                                                                            \
    {0, 0, HEADSPACE_WATCH, 1, 0}, BACK(50, 40), BACK(50, 30), BACK(50, 30), BACK(50, 30), \
        BACK(50, 30)
#define BURST_OF_FOUR                                                                              \
    {10, 0, HEADSPACE_HOLD, 1, 0}, {500, 0, HEADSPACE_HOLD, 0, 3},                                 \
        {1, 0, HEADSPACE_BURST, 0, 4, .full = true}, {0, 0, HEADSPACE_BURST, 4, 0}, BACK(35, 500), \
        BACK(20, 0), {0, 0, HEADSPACE_BURST, 2, 0}, BACK(20, 0), BACK(20, 0)

static const struct row rows[] = {
    ROW("a whole one", 4, 0, 6,
        "a perfect loader would make this trainer 2.50 times as fast: 20 ms a step instead of 50 "
        "ms",
        {WATCHED,
         BURST_OF_FOUR,
         {0, 0, HEADSPACE_HOLD, 0, 0},
         {1, 0, HEADSPACE_BURST, 0, 4, .full = true},
         BACK(35, 0),
         BACK(20, 0),
         BACK(20, 0),
         BACK(20, 0),
         {0, 0, HEADSPACE_ENDED, 0, 0}}),
    ROW("nobody reads", 4, ENODATA, 0, "no trainer reads it; measure while",
        {{0, 0, HEADSPACE_ENDED, .nobody = true}}),
    ROW("a trainer that stands still", 4, ETIME, 0, "fewer than 4 batches in 60 s",
        {{0, 0, HEADSPACE_WATCH, 4, 0},
         BACK(10, 0),
         {59000, 0, HEADSPACE_WATCH, 4, 0},
         {1000, 0, HEADSPACE_ENDED, 4, 0}}),
    ROW("one that leaves", 4, ENODATA, 0, "only 0 steps were measured before its last reader ended",
        {{0, 0, HEADSPACE_WATCH, 4, 0},
         {29999, 0, HEADSPACE_WATCH, .nobody = true},
         {1, 0, HEADSPACE_ENDED, .nobody = true}}),
    /* What was seen in 20 s does. */
    ROW("few credits", 1000, ENOBUFS, 0,
        "only 2 batches are loaded ahead, and 3 are needed; raise workers.prefetch",
        {WATCHED,
         {19600, 0, HEADSPACE_WATCH, 1, 0},
         {200, 0, HEADSPACE_HOLD, 1, 0},
         {1, 0, HEADSPACE_ENDED, 1, 1, .full = true}}),
    ROW("little memory", 4, ENOBUFS, 0,
        "only 2 batches can be loaded ahead, and 3 are needed: memory.limit leaves no room",
        {WATCHED,
         {1, 0, HEADSPACE_HOLD, 1, 0},
         {1, 0, HEADSPACE_ENDED, 0, 2, .full = true, .starving = "memory.limit"}}),
    ROW("a slow loader", 4, ETIMEDOUT, 0, "only 2 batches were loaded in the 2.0 s",
        {WATCHED,
         {1, 0, HEADSPACE_HOLD, 1, 0},
         {1999, 0, HEADSPACE_HOLD, 0, 1},
         {1, 0, HEADSPACE_ENDED, 0, 2}}),
    ROW("one that gives three just in time", 4, ENODATA, 2, "only 2 steps were measured",
        {WATCHED,
         {1, 0, HEADSPACE_HOLD, 1, 0},
         {2000, 0, HEADSPACE_BURST, 0, 3},
         BACK(20, 0),
         BACK(20, 0),
         BACK(20, 0),
         {0, 0, HEADSPACE_APART, 0, 0, .ending = true},
         {29999, 0, HEADSPACE_APART, 0, 1, .ending = true},
         {1, 0, HEADSPACE_ENDED, .nobody = true}}),
    /* The epoch ends, and the next one goes on. */
    ROW("an epoch's end", 4, 0, 6, "2.50 times as fast",
        {WATCHED,
         {10, 0, HEADSPACE_HOLD, 1, 0},
         {10, 0, HEADSPACE_APART, 0, 2, .full = true, .ending = true},
         {10, 0, HEADSPACE_APART, .nobody = true},
         {10, 0, HEADSPACE_HOLD, 0, 1},
         {10, 0, HEADSPACE_APART, .nobody = true},
         {10, 0, HEADSPACE_HOLD, 0, 1},
         {1, 0, HEADSPACE_BURST, 0, 4, .full = true},
         BACK(35, 500),
         BACK(20, 0),
         BACK(20, 0),
         BACK(20, 0),
         {0, 0, HEADSPACE_HOLD, 0, 0},
         {1, 0, HEADSPACE_BURST, 0, 4, .full = true},
         BACK(35, 0),
         BACK(20, 0),
         BACK(20, 0),
         BACK(20, 0),
         {0, 0, HEADSPACE_ENDED, 0, 0}}),
    /* Two batches stay with the client while it waits: that is learned once. */
    ROW("a client that keeps some", 4, ENODATA, 2, "only 2 steps were measured",
        {WATCHED,
         {1, 0, HEADSPACE_HOLD, 2, 0},
         {1, 0, HEADSPACE_BURST, 2, 3, .full = true},
         BACK(20, 0),
         BACK(20, 0),
         {199, 0, HEADSPACE_BURST, 2, 0},
         {1, 0, HEADSPACE_HOLD, 2, 0},
         {1, 0, HEADSPACE_BURST, 2, 3, .full = true},
         BACK(20, 0),
         BACK(20, 0),
         {0, 0, HEADSPACE_APART, 2, 0, .ending = true},
         {30000, 0, HEADSPACE_ENDED, .nobody = true}}),
    /* It saves its state, first as it is, then in a burst, and takes too long for that to be a
     * step.
     */
    ROW("one that makes pauses", 6, 0, 6, "2.50 times as fast",
        {WATCHED,
         BACK(800, 0),
         BACK(50, 30),
         {1, 0, HEADSPACE_HOLD, 2, 0},
         {1, 0, HEADSPACE_BURST, 4, 0, .full = true},
         {199, 0, HEADSPACE_BURST, 4, 0},
         {1, 0, HEADSPACE_APART, 4, 0},
         {29999, 0, HEADSPACE_APART, 4, 0},
         BACK(0, 0),
         {0, 0, HEADSPACE_HOLD, 3, 0},
         {0, 0, HEADSPACE_BURST, 4, 0, .full = true},
         BACK(35, 0),
         BACK(20, 0),
         {800, 0, HEADSPACE_HOLD, 2, 0},
         {0, 0, HEADSPACE_BURST, 1, 6, .full = true},
         BACK(35, 0),
         BACK(20, 0),
         BACK(20, 0),
         BACK(20, 0),
         BACK(20, 0),
         BACK(20, 0),
         {0, 0, HEADSPACE_ENDED, 0, 0}}),
    ROW("one that does not go on", 4, ENODATA, 0, "only 0 steps were measured",
        {WATCHED,
         {1, 0, HEADSPACE_HOLD, 2, 0},
         {1, 0, HEADSPACE_BURST, 4, 0, .full = true},
         {199, 0, HEADSPACE_BURST, 4, 0},
         {1, 0, HEADSPACE_APART, 4, 0},
         {29999, 0, HEADSPACE_APART, 4, 0},
         {1, 0, HEADSPACE_ENDED, 4, 0}}),
    /* A trainer that does nothing: how little that is is chance. */
    ROW("hundreds of times", 4, 0, 4,
        "this trainer > 20 times as fast: 1.0 ms a step instead of 50 ms",
        {WATCHED,
         {1, 0, HEADSPACE_HOLD, 1, 0},
         {1, 0, HEADSPACE_BURST, 1, 4, .full = true},
         BACK(1, 0),
         BACK(1, 0),
         BACK(1, 0),
         BACK(1, 0),
         BACK(1, 0),
         {0, 0, HEADSPACE_ENDED, 0, 0}}),
    ROW("no faster", 4, 0, 4, "no faster: 50 ms a step, and 50 ms now",
        {WATCHED,
         {1, 0, HEADSPACE_HOLD, 4, 1},
         {1, 0, HEADSPACE_BURST, 4, 1, .full = true},
         BACK(70, 0),
         BACK(50, 0),
         BACK(50, 0),
         BACK(50, 0),
         BACK(50, 0),
         {0, 0, HEADSPACE_ENDED, 0, 0}}),
};

static bool is_event(const struct event *e)
{
    return e->ms || e->back || e->phase || e->leased || e->ready || e->nobody;
}

static void play(const struct row *row, struct headspace *h, uint64_t *now)
{
    for (size_t i = 0; i < EVENTS && is_event(&row->events[i]); i++) {
        const struct event *e = &row->events[i];
        struct headspace_rank rank = {7, e->leased, e->ready, e->ending};

        *now += e->ms * MS;
        if (e->back) {
            headspace_returned(h, 7, e->back, e->waited_ms * MS, *now);
            continue;
        }
        enum headspace_phase before = headspace_phase(h);
        bool changed = headspace_look(h, &(struct headspace_now){.ns = *now,
                                                                 .ranks = &rank,
                                                                 .n_ranks = !e->nobody,
                                                                 .full = e->full,
                                                                 .starving = e->starving});
        if (headspace_phase(h) != e->phase)
            fail_msg("%s: after event %zu it is in phase %d, not %d", row->name, i,
                     headspace_phase(h), e->phase);
        assert_int_equal(changed, before != e->phase);
    }
}

TEST(test_rows)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct row *row = &rows[i];
        uint64_t now = 1000 * S;
        struct headspace *h = headspace_new(row->steps, now);
        struct headspace_result result = {0};
        struct dl_error err = {0};
        char words[HEADSPACE_WORDS];

        play(row, h, &now);
        int r = headspace_result(h, &result, &err);
        if (-r != row->error)
            fail_msg("%s: %d: %s", row->name, r, err.message);
        if (r == 0)
            headspace_words(&result, words);
        if (!strstr(r == 0 ? words : err.message, row->text))
            fail_msg("%s says \"%s\"", row->name, r == 0 ? words : err.message);
        if (r == 0)
            assert_int_equal(result.steps, row->measured);
        headspace_free(h);
    }
}

/* Of the first row, all that is told. */
TEST(test_result)
{
    uint64_t now = 5;
    struct headspace *h = headspace_new(4, now);
    struct headspace_result result;
    struct dl_error err;

    play(&rows[0], h, &now);
    assert_int_equal(headspace_result(h, &result, &err), 0);
    assert_int_equal(result.watched, 4);
    assert_int_equal(result.ranks, 1);
    assert_int_equal(result.bursts, 2);
    assert_true(fabs(result.ahead - 4) < 1e-9);
    assert_true(fabs(result.as_is.mean_ns - 50e6) < 1);
    assert_true(fabs(result.perfect.quartile_ns[0] - 20e6) < 1);
    assert_true(fabs(result.perfect.quartile_ns[2] - 20e6) < 1);
    assert_true(fabs(result.by_waiting - 2.5) < 1e-9);
    headspace_free(h);
}

/* A message can release several; a quarter of the steps takes no longer than the first quartile.
 */
TEST(test_quartiles)
{
    static const struct {
        uint32_t n;
        uint64_t ms;
    } steps[] = {{2, 20}, {1, 40}, {4, 120}, {1, 100}};
    uint64_t now = 0;
    struct headspace *h = headspace_new(8, now);
    struct headspace_rank rank = {1, 5, 0, false};
    struct headspace_now look = {.ranks = &rank, .n_ranks = 1, .full = true};
    struct headspace_result result;
    struct dl_error err;

    for (unsigned part = 0; part < 2; part++) {
        look.ns = now;
        headspace_look(h, &look);
        headspace_returned(h, 1, 1, 0, now += MS);
        for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
            headspace_returned(h, 1, steps[i].n, 0, now += steps[i].ms * MS);
        look.ns = now;
        headspace_look(h, &look);
    }
    look.ns = now + S;
    headspace_look(h, &look);
    assert_int_equal(headspace_phase(h), HEADSPACE_ENDED);
    assert_int_equal(headspace_result(h, &result, &err), 0);
    assert_true(fabs(result.as_is.mean_ns - 35e6) < 1);
    assert_true(fabs(result.as_is.quartile_ns[0] - 10e6) < 1);
    assert_true(fabs(result.as_is.quartile_ns[1] - 30e6) < 1);
    assert_true(fabs(result.as_is.quartile_ns[2] - 30e6) < 1);
    headspace_free(h);
}

/* ---- at random ------------------------------------------------------------------------------ */

enum { TICK_MS = 2, GAMES = 150 };

/* A trainer that takes `step` for a batch, and keeps `floor` more while it waits. */
struct trainer {
    uint32_t leased, ready, loaded, had;
    uint64_t busy_until; /* 0: it waits */
    uint64_t dies;       /* ms */
    bool paused;         /* at this batch, already */
};

struct game {
    uint64_t now; /* ms */
    uint64_t step, load;
    uint32_t pause; /* after so many batches: much longer than a step; 0: never */
    uint32_t ranks, credits, floor, epoch; /* batches of it */
    uint64_t loading_until;
    uint32_t loading_for;
    struct trainer trainers[RANKS];
    struct headspace *h;
};

static uint32_t draw(uint64_t *seed, uint32_t from, uint32_t to)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return from + (uint32_t)(*seed >> 33) % (to - from + 1);
}

static bool reads(const struct game *g, const struct trainer *t)
{
    return g->now < t->dies;
}

static void load(struct game *g)
{
    if (g->loading_until > g->now)
        return;
    if (g->loading_until > 0)
        g->trainers[g->loading_for].ready++;
    g->loading_until = 0;
    if (headspace_phase(g->h) == HEADSPACE_BURST)
        return;
    for (uint32_t i = 0; i < g->ranks && g->loading_until == 0; i++) {
        uint32_t which = (g->loading_for + 1 + i) % g->ranks;
        struct trainer *t = &g->trainers[which];

        if (!reads(g, t) || t->leased + t->ready >= g->credits || t->loaded == g->epoch)
            continue;
        t->loaded++;
        g->loading_for = which;
        g->loading_until = g->now + g->load;
    }
}

static void work(struct game *g, uint32_t which)
{
    struct trainer *t = &g->trainers[which];

    if (headspace_phase(g->h) != HEADSPACE_HOLD) {
        t->leased += t->ready;
        t->ready = 0;
    }
    if (t->busy_until > g->now)
        return;
    if (t->busy_until > 0 && t->leased > g->floor && !t->paused) {
        t->leased--;
        t->had++;
        headspace_returned(g->h, which, 1, 0, g->now * MS);
    }
    if (t->leased <= g->floor) {
        t->busy_until = 0;
    } else if (g->pause > 0 && t->had % g->pause == g->pause - 1 && !t->paused) {
        t->paused = true;
        t->busy_until = g->now + 2000;
    } else {
        t->paused = false;
        t->busy_until = g->now + g->step;
    }
}

static void look(struct game *g)
{
    struct headspace_rank ranks[RANKS];
    size_t n = 0;

    for (uint32_t i = 0; i < g->ranks; i++) {
        const struct trainer *t = &g->trainers[i];
        if (reads(g, t) && t->had < g->epoch)
            ranks[n++] = (struct headspace_rank){i, t->leased, t->ready, t->loaded == g->epoch};
    }
    headspace_look(
        g->h, &(struct headspace_now){
                  .ns = g->now * MS, .ranks = ranks, .n_ranks = n, .full = g->loading_until == 0});
}

/* Whatever trainers do, what is held back is let go in time, and the end comes. */
static void check_bounds(const struct game *g, enum headspace_phase *phase, uint64_t *since)
{
    uint64_t lasted;

    if (headspace_phase(g->h) != *phase) {
        *phase = headspace_phase(g->h);
        *since = g->now;
    }
    lasted = (g->now - *since) * MS;
    if (*phase == HEADSPACE_HOLD)
        assert_true(lasted <= HEADSPACE_HOLD_NS + TICK_MS * MS);
    if (*phase == HEADSPACE_BURST)
        assert_true(lasted <= RANKS * g->credits * HEADSPACE_IDLE_NS);
    assert_true(g->now < 600000);
}

static struct game deal(uint64_t *seed)
{
    struct game g = {.step = 2 * draw(seed, 5, 50),
                     .load = 2 * draw(seed, 1, 50),
                     .ranks = draw(seed, 1, RANKS),
                     .credits = draw(seed, 2, 12),
                     .pause = draw(seed, 0, 3) == 0 ? draw(seed, 10, 60) : 0,
                     .floor = draw(seed, 0, 3) == 0,
                     .epoch = draw(seed, 0, 3) ? 1000000 : draw(seed, 2, 300)};
    bool deaths = draw(seed, 0, 3) == 0;

    for (uint32_t i = 0; i < RANKS; i++)
        g.trainers[i].dies = deaths ? draw(seed, 0, 6000) : UINT64_MAX;
    return g;
}

/* The trainer's step, and how much of its time the loader made it wait, are known here. */
static void check_truth(const struct game *g, int r, const struct dl_error *err)
{
    struct headspace_result result = {0};
    struct dl_error none = {0};

    if (g->epoch < 1000000 || g->trainers[0].dies != UINT64_MAX)
        return;
    if (g->credits < HEADSPACE_LEAST) {
        assert_int_equal(r, -ENOBUFS);
        return;
    }
    if (r == -ETIME && g->pause > 0) /* each burst comes with a pause */
        return;
    if (r < 0)
        fail_msg("step %d ms, load %d ms, %u ranks, %u credits: %s", (int)g->step, (int)g->load,
                 g->ranks, g->credits, err->message);
    assert_int_equal(headspace_result(g->h, &result, &none), 0);
    double perfect = (double)g->step, as_is = fmax(perfect, (double)(g->load * g->ranks));
    assert_true(fabs(result.perfect.mean_ns / 1e6 - perfect) <= 2 * TICK_MS);
    /* What was loaded before it was looked at, or during a pause, goes quicker. */
    assert_true(result.as_is.mean_ns / 1e6 <= as_is + 4 * TICK_MS);
    assert_true(result.as_is.mean_ns / 1e6 >= 0.6 * (g->pause > 0 ? perfect : as_is));
}

TEST(test_random)
{
    uint64_t seed = 8;
    unsigned told = 0;

    for (unsigned i = 0; i < GAMES; i++) {
        struct game g = deal(&seed);
        enum headspace_phase phase = HEADSPACE_WATCH;
        uint64_t since = 0;
        struct headspace_result result;
        struct dl_error err = {0};

        g.h = headspace_new(draw(&seed, 1, 60), 0);
        while (headspace_phase(g.h) != HEADSPACE_ENDED) {
            load(&g);
            for (uint32_t rank = 0; rank < g.ranks; rank++)
                if (reads(&g, &g.trainers[rank]))
                    work(&g, rank);
            load(&g);
            look(&g);
            check_bounds(&g, &phase, &since);
            g.now += TICK_MS;
        }
        int r = headspace_result(g.h, &result, &err);
        told += r == 0;
        check_truth(&g, r, &err);
        headspace_free(g.h);
    }
    assert_true(told > GAMES / 3 && told < GAMES);
}
