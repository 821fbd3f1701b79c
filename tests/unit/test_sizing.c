/*
 * How many workers loaders get: rows of what is measured and what follows, and a model of loaders
 * on a machine, drawn at random. Each has batches that take a processor, or wait, so long; trainers
 * that take so long for one; storage that gives no more than so many. Workers that do both want
 * processors independently of each other, so that some are idle while others are wanted twice. The
 * best static numbers are found by trying all.
 */
#include "tests/lib/harness.h"

#include "daemon/serve/core/sizing.h"

#include <math.h>
#include <stdio.h>

#define SECOND UINT64_C(1000000000)
enum { LOADERS = 3, TICKS = 160, SETTLED = 10 /* 5 s */ };

/* ---- the model ------------------------------------------------------------------------------- */

struct model {
    double cpu_s, sleep_s; /* of a batch */
    double step_s;         /* of its trainer; 0: it does nothing else */
    double most_rate;      /* that storage gives; 0: any */
    double lag;    /* workers that are idle for want of room, as batches come in order; 1/4 further
                      ahead */
    uint32_t warm; /* ticks that new workers are ready and have made nothing yet */
};

/* What each loader gives in a second, if processors are `stretch` times as slow. */
static double rate_at(const struct model *m, uint32_t workers, double stretch)
{
    double rate = fmax(workers - m->lag, workers * 0.5) / (m->cpu_s * stretch + m->sleep_s);

    if (m->step_s > 0)
        rate = fmin(rate, 1 / m->step_s);
    return m->most_rate > 0 ? fmin(rate, m->most_rate) : rate;
}

static double cpus_used(const struct model *m, const uint32_t *workers, size_t n, double stretch)
{
    double used = 0;

    for (size_t i = 0; i < n; i++)
        used += rate_at(&m[i], workers[i], stretch) * m[i].cpu_s;
    return used;
}

/* How many processors are in use on average, if each worker wants one with the probability that it
 * would if there were enough, whatever the others do. */
static double cpus_had(const struct model *m, const uint32_t *workers, size_t n, double cpus)
{
    enum { WHOLE = 16 };
    double want[WHOLE + 1] = {1},
                        had = 0; /* the probability that so many want one; the last: or more */

    for (size_t i = 0; i < n; i++) {
        double p = rate_at(&m[i], workers[i], 1) * m[i].cpu_s / workers[i];

        for (uint32_t w = 0; w < workers[i]; w++)
            for (size_t k = WHOLE + 1; k-- > 0;)
                want[k] = want[k] * (k == WHOLE ? 1 : 1 - p) + (k > 0 ? want[k - 1] * p : 0);
    }
    for (size_t k = 1; k <= WHOLE; k++)
        had += want[k] * fmin((double)k, cpus);
    return had;
}

/* How much slower everything computes, so that no more processors are used than workers have. */
static double stretch_of(const struct model *m, const uint32_t *workers, size_t n, double all)
{
    double low = 1, high = 1, cpus = cpus_had(m, workers, n, all) * (1 + 1e-9);

    if (cpus_used(m, workers, n, 1) <= cpus)
        return 1;
    while (cpus_used(m, workers, n, high) > cpus)
        high *= 2;
    for (int i = 0; i < 30; i++) {
        double middle = (low + high) / 2;

        if (cpus_used(m, workers, n, middle) > cpus)
            low = middle;
        else
            high = middle;
    }
    return high;
}

/* The sum of the logarithms of all rates: what one loader gains by a factor, another may lose. */
static double score_of(const struct model *m, const uint32_t *workers, size_t n, double cpus)
{
    double stretch = stretch_of(m, workers, n, cpus), score = 0;

    for (size_t i = 0; i < n; i++)
        score += log(rate_at(&m[i], workers[i], stretch));
    return score;
}

/* Of all static numbers, up to `most` of each loader. */
static double best_score(const struct model *m, size_t n, double cpus, uint32_t most)
{
    uint32_t workers[LOADERS] = {1, 1, 1};
    double best = -INFINITY;

    for (;;) {
        size_t i = 0;

        best = fmax(best, score_of(m, workers, n, cpus));
        while (i < n && ++workers[i] > most)
            workers[i++] = 1;
        if (i == n)
            return best;
    }
}

/* ---- a play ---------------------------------------------------------------------------------- */

struct play {
    struct model models[LOADERS];
    struct sizing sizings[LOADERS];
    uint32_t workers[LOADERS], ready[LOADERS], ahead[LOADERS];
    uint32_t at_work[LOADERS]; /* of those that are ready: they are warm */
    uint32_t warming[LOADERS]; /* ticks, for which the others have been ready */
    double made[LOADERS];      /* batches, with the part of one that is under way */
    size_t n;
    double cpus;
    uint32_t most;
    uint64_t now, random;
    uint32_t changes; /* since it should have settled */
};

static double draw(struct play *play) /* 0 to 1 */
{
    play->random = play->random * 6364136223846793005U + 1442695040888963407U;
    return (double)(play->random >> 11) / 9007199254740992.0;
}

static double noisy(struct play *play, double value)
{
    return value * (0.9 + 0.2 * draw(play));
}

static struct sizing_measure measure_of(struct play *play, size_t i, double stretch)
{
    const struct model *m = &play->models[i];
    double dt = SIZING_TICK_NS / 1e9, rate = rate_at(m, play->at_work[i], stretch);
    bool capped = m->most_rate > 0 && rate >= m->most_rate;
    double wait = fmax(1 - rate * m->step_s, 0.002), before = floor(play->made[i]);

    play->made[i] += noisy(play, rate * dt);
    double batches = floor(play->made[i]) - before;
    double busy = capped ? play->at_work[i] * dt : batches * (m->cpu_s * stretch + m->sleep_s);

    return (struct sizing_measure){
        .ns = SIZING_TICK_NS,
        .span_ns = SIZING_TICK_NS,
        .waited_ns = (uint64_t)(fmin(wait > 0.05 ? noisy(play, wait) : wait, 1) * SIZING_TICK_NS),
        .batches = (uint64_t)batches,
        .busy_ns = (uint64_t)(noisy(play, busy) * 1e9),
        .cpu_ns = (uint64_t)(noisy(play, batches * m->cpu_s) * 1e9),
        .cpu_wait_ns = (uint64_t)(batches * m->cpu_s * (stretch - 1) * 1e9)};
}

/* Those that became ready make batches when they are warm. */
static void warm_up(struct play *play, size_t i)
{
    bool more = play->ready[i] > play->at_work[i];

    if (more && play->warming[i]++ < play->models[i].warm)
        return;
    play->at_work[i] = play->ready[i];
    play->warming[i] = 0;
}

static void tick(struct play *play, bool count)
{
    struct sizing_case cases[LOADERS];

    for (size_t i = 0; i < play->n; i++)
        warm_up(play, i);
    double stretch = stretch_of(play->models, play->at_work, play->n, play->cpus);

    play->now += SIZING_TICK_NS;
    for (size_t i = 0; i < play->n; i++)
        cases[i] = (struct sizing_case){.sizing = &play->sizings[i],
                                        .measure = measure_of(play, i, stretch),
                                        .weight = 1,
                                        .read = true,
                                        .workers = play->workers[i],
                                        .ready = play->ready[i],
                                        .most = play->most,
                                        .ahead = play->ahead[i],
                                        .ahead_most = SIZING_FURTHER};
    sizing_decide(cases, play->n, play->cpus, play->now);
    for (size_t i = 0; i < play->n; i++) {
        assert_in_range(cases[i].ret, 1, play->most);
        play->changes += count && cases[i].ret != play->workers[i];
        /* Those that were there go on; new ones are ready a tick later. */
        play->ready[i] = (uint32_t)min_u64(play->workers[i], cases[i].ret);
        play->workers[i] = cases[i].ret;
        if (cases[i].ret_ahead != play->ahead[i])
            play->models[i].lag *= cases[i].ret_ahead > play->ahead[i] ? 0.25 : 4;
        play->ahead[i] = cases[i].ret_ahead;
    }
    if (getenv("SIZING_SAYS"))
        for (size_t i = 0; i < play->n; i++) {
            char words[SIZING_WORDS];

            cases[i].workers = play->workers[i];
            sizing_words(&cases[i], play->cpus, play->now, words);
            print_message("%6.1f s %zu: %s\n", (double)play->now / 1e9, i, words);
        }
}

static void settle(struct play *play)
{
    for (size_t i = 0; i < play->n; i++)
        play->ready[i] = play->workers[i];
}

static void begin(struct play *play, const struct model *models, size_t n, double cpus,
                  uint32_t most, uint64_t seed)
{
    *play = (struct play){.n = n, .cpus = cpus, .most = most, .now = SECOND, .random = seed};
    memcpy(play->models, models, n * sizeof *models);
    for (size_t i = 0; i < n; i++) {
        play->workers[i] = play->ready[i] = play->at_work[i] = SIZING_FIRST;
        play->ahead[i] = 2;
    }
}

/* The mean over the time from SETTLED on, as a factor of the best of one loader: 1 is the best. */
static double play_out(struct play *play)
{
    struct model further[LOADERS];
    double sum = 0;

    memcpy(further, play->models, sizeof further);
    for (size_t i = 0; i < play->n; i++)
        further[i].lag *= 0.25;
    double best = best_score(further, play->n, play->cpus, play->most);
    for (int i = 0; i < TICKS; i++) {
        tick(play, i >= 2 * SETTLED);
        if (i >= SETTLED)
            sum += score_of(play->models, play->ready, play->n, play->cpus);
        settle(play);
    }
    return exp((sum / (TICKS - SETTLED) - best) / (double)play->n);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* One loader alone: it comes to what is best within 5 s, and stays there. */
TEST(test_one)
{
    static const struct {
        const char *what;
        struct model model;
        double cpus;
        uint32_t least, most; /* workers in the end */
    } rows[] = {
        {"computes, and the trainer does nothing", {.cpu_s = 0.01}, 2, 2, 4},
        {"the same on 8", {.cpu_s = 0.01}, 8, 8, 16},
        {"sleeps", {.cpu_s = 0.0001, .sleep_s = 0.02}, 2, 24, 32},
        {"half of each", {.cpu_s = 0.01, .sleep_s = 0.01}, 2, 6, 9},
        {"waits for order", {.cpu_s = 0.03, .lag = 0.25}, 2, 2, 4},
        {"a slow trainer", {.cpu_s = 0.005, .step_s = 0.1}, 2, 1, 1},
        {"three suffice", {.cpu_s = 0.001, .sleep_s = 0.05, .step_s = 0.02}, 2, 3, 4},
        {"storage gives as much as 4 take",
         {.sleep_s = 0.02, .cpu_s = 0.0001, .most_rate = 200},
         2,
         4,
         8},
        {"tiny batches", {.cpu_s = 0.00005}, 2, 2, 4},
        {"slow batches", {.cpu_s = 0.02, .sleep_s = 0.4, .step_s = 0.1}, 4, 4, 7},
        {"new ones begin late", {.cpu_s = 0.01, .sleep_s = 0.01, .warm = 2}, 2, 6, 9},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (uint64_t seed = 1; seed <= 20; seed++) {
            struct play play;

            begin(&play, &rows[i].model, 1, rows[i].cpus, 32, seed);
            double got = play_out(&play);
            if (got < 0.95 || play.changes > 6 || play.workers[0] < rows[i].least ||
                play.workers[0] > rows[i].most)
                fail_msg("%s, seed %d: %.3f of the best, %u workers, %u changes", rows[i].what,
                         (int)seed, got, play.workers[0], play.changes);
        }
    }
}

static struct model draw_model(struct play *play)
{
    static const double steps[] = {0, 0, 0.005, 0.02, 0.1};
    double scale = pow(10, -4 + 2.5 * draw(play)), share = draw(play);
    struct model model = {.cpu_s = scale * fmax(share, 0.02), .sleep_s = scale * (1 - share)};

    if (draw(play) < 0.3) /* it mostly waits */
        model = (struct model){.cpu_s = scale * 0.02, .sleep_s = scale};
    model.step_s = steps[(int)(draw(play) * 5)];
    if (draw(play) < 0.15)
        model.most_rate = (1 + 7 * draw(play)) / (model.cpu_s + model.sleep_s);
    return model;
}

/* Up to three at once, of any kind: close to the best split, hardly a change once they have
 * settled, and never worse than two workers each. */
TEST(test_several)
{
    const char *given = getenv("SIZING_SEEDS");
    uint64_t seeds = given ? strtoull(given, NULL, 10) : 150;
    double worst = 1, sum = 0;
    uint32_t most_changes = 0;

    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct play drawn = {.random = seed * 7919}, play;
        struct model models[LOADERS];
        size_t n = 1 + seed % LOADERS;
        const uint32_t two[LOADERS] = {2, 2, 2};
        double cpus = seed % 2 ? 2 : 4;

        for (size_t i = 0; i < n; i++)
            models[i] = draw_model(&drawn);
        begin(&play, models, n, cpus, 16, seed);
        double got = play_out(&play);
        double twos =
            exp((score_of(models, two, n, cpus) - best_score(models, n, cpus, 16)) / (double)n);

        if (got < 0.9 || got < 0.97 * twos || play.changes > 6 * n) {
            for (size_t i = 0; i < n; i++)
                print_message("cpu %g s, sleep %g s, step %g s, storage %g/s: %u workers\n",
                              models[i].cpu_s, models[i].sleep_s, models[i].step_s,
                              models[i].most_rate, play.workers[i]);
            fail_msg("seed %d, %g processors: %.3f of the best, two each %.3f, %u changes",
                     (int)seed, cpus, got, twos, play.changes);
        }
        worst = fmin(worst, got);
        sum += got;
        most_changes = (uint32_t)max_u64(most_changes, play.changes);
    }
    if (given)
        print_message("%d plays: mean %.3f, worst %.3f of the best split, at most %u changes\n",
                      (int)seeds, sum / (double)seeds, worst, most_changes);
    assert_true(sum / (double)seeds >= 0.985);
}

/* Where others use all processors, one that hardly needs any is not held up by that. */
TEST(test_beside)
{
    const struct model models[] = {
        {.cpu_s = 0.03}, {.cpu_s = 0.0005, .sleep_s = 0.03}, {.cpu_s = 0.004}};
    struct play play;

    begin(&play, models, 3, 2, 32, 1);
    assert_true(play_out(&play) >= 0.95);
    assert_int_equal(play.workers[0], 2);
    assert_in_range(play.workers[1], 16, 32);
    assert_int_equal(play.workers[2], 2);
}

/* One that is not read any more keeps one worker, and has them all back when it is read again. */
TEST(test_read_no_more)
{
    struct sizing sizing = {0};
    struct sizing_case c = {
        .sizing = &sizing, .weight = 1, .read = true, .workers = 5, .ready = 5, .most = 8};
    uint64_t now = SECOND;

    for (int i = 0; i < 40; i++, now += SIZING_TICK_NS) {
        c.read = i < 2 || i >= 30;
        sizing_decide(&c, 1, 8, now);
        c.workers = c.ready = c.ret;
        if (i < 10 || i >= 30) /* between two epochs, too */
            assert_int_equal(c.workers, 5);
        else if (i > 14)
            assert_int_equal(c.workers, 1);
    }
}

/* After a while it has none: it gets one before it is read, and then all others back. */
TEST(test_rests)
{
    static const struct {
        uint32_t least;
        uint64_t rest_s;
        bool woken;        /* to be looked at, 10 s after it was read last */
        uint32_t after[3]; /* workers after 4.5 s, 9.5 s, and 20.5 s */
    } rows[] = {{0, 8, false, {5, 0, 0}}, {0, 15, false, {5, 1, 0}}, {0, 0, false, {5, 1, 1}},
                {0, 1, false, {5, 0, 0}}, {2, 8, false, {5, 2, 2}},  {0, 8, true, {5, 0, 0}},
                {0, 12, true, {5, 1, 1}}};
    static const uint64_t looks[] = {9, 19, 41};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct sizing sizing = {0};
        struct sizing_case c = {.sizing = &sizing,
                                .weight = 1,
                                .read = true,
                                .workers = 5,
                                .ready = 5,
                                .least = rows[i].least,
                                .rest_ns = rows[i].rest_s * SECOND,
                                .most = 8};

        for (uint64_t tick = 0, k = 0; k < ARRAY_SIZE(looks); tick++) {
            uint64_t now = SECOND + tick * SIZING_TICK_NS;

            if (tick == 20 && rows[i].woken) {
                sizing_wake(&sizing, now);
                c.workers = c.ready = (uint32_t)max_u64(c.workers, 1);
            }
            sizing_decide(&c, 1, 8, now);
            c.workers = c.ready = c.ret;
            c.read = false;
            if (tick == looks[k])
                assert_int_equal(c.workers, rows[i].after[k++]);
        }
        c.read = true;
        sizing_decide(&c, 1, 8, 30 * SECOND);
        assert_int_equal(c.ret, c.workers > 0 ? 5 : 0); /* there is no room for one yet */
        if (c.workers > 0)
            continue;
        c.workers = c.ready = 1;
        sizing_decide(&c, 1, 8, 30 * SECOND + SIZING_TICK_NS);
        assert_int_equal(c.ret, 5);
    }
}

/* Others need its workers: it has them all back when it is read again. */
TEST(test_yields)
{
    struct sizing sizing = {0};
    struct sizing_case c = {
        .sizing = &sizing, .weight = 1, .read = true, .workers = 5, .ready = 5, .most = 8};

    sizing_decide(&c, 1, 8, SECOND);
    c.read = false;
    sizing_decide(&c, 1, 8, SECOND + SIZING_TICK_NS);
    assert_int_equal(c.ret, 5);
    sizing_yield(&sizing, 5);
    c.workers = c.ready = 1;
    for (uint64_t i = 2; i < 40; i++) {
        sizing_decide(&c, 1, 8, SECOND + i * SIZING_TICK_NS);
        assert_int_equal(c.ret, 1);
    }
    c.read = true;
    sizing_decide(&c, 1, 8, SECOND + 40 * SIZING_TICK_NS);
    assert_int_equal(c.ret, 5);
}

/* A trainer that would use any number, of a loader whose batches only take processors. */
static void ask_for_all(struct sizing_case *c)
{
    uint64_t busy = c->workers * SIZING_TICK_NS;

    c->measure = (struct sizing_measure){.ns = SIZING_TICK_NS,
                                         .span_ns = SIZING_TICK_NS,
                                         .waited_ns = SIZING_TICK_NS,
                                         .batches = 25 * c->workers,
                                         .busy_ns = busy,
                                         .cpu_ns = busy};
}

/* Others need some of its workers, in the middle of a trial: what remains is measured anew. */
TEST(test_gives)
{
    struct sizing sizing = {.trial_from = 4, .trial_rate = 1e9, .trial_most = 2};
    struct sizing_case c = {
        .sizing = &sizing, .weight = 1, .read = true, .workers = 5, .ready = 5, .most = 5};
    char words[SIZING_WORDS];

    sizing_give(&sizing, 8, SECOND);
    sizing_words(&c, 8, 3 * SECOND, words);
    assert_string_equal(words, "5 workers, 8 until 2.0 s ago: another loader needed some of them");
    for (uint64_t i = 1; i < 40; i++) {
        ask_for_all(&c);
        sizing_decide(&c, 1, 8, SECOND + i * SIZING_TICK_NS);
        assert_int_equal(c.ret, 5);
    }
}

/* Where all would use any number, processors are shared out by the loaders' weights. */
TEST(test_weights)
{
    static const struct {
        double weights[2];
        uint32_t workers[2];
    } rows[] = {{{1, 1}, {6, 6}}, {{4, 1}, {10, 2}}, {{0.25, 1}, {2, 10}}, {{2, 1}, {8, 4}}};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct sizing sizings[2] = {0};
        struct sizing_case cases[2];

        for (size_t k = 0; k < 2; k++)
            cases[k] = (struct sizing_case){.sizing = &sizings[k],
                                            .weight = rows[i].weights[k],
                                            .read = true,
                                            .workers = 2,
                                            .ready = 2,
                                            .most = 32};
        for (uint64_t tick = 0; tick < 200; tick++) {
            ask_for_all(&cases[0]);
            ask_for_all(&cases[1]);
            sizing_decide(cases, 2, 12, SECOND + tick * SIZING_TICK_NS);
            for (size_t k = 0; k < 2; k++)
                cases[k].workers = cases[k].ready = cases[k].ret;
        }
        for (size_t k = 0; k < 2; k++)
            assert_in_range(cases[k].workers, rows[i].workers[k] - 1, rows[i].workers[k] + 1);
    }
}

/* A user's loaders have its weight together: who opens more of them gets no more by that. */
TEST(test_weights_of_users)
{
    static const int users[2];
    static const struct {
        struct {
            int user;
            double user_weight, weight;
            uint32_t workers;
        } loaders[3];
    } rows[] = {{{{0, 100, 1, 3}, {0, 100, 1, 3}, {1, 100, 1, 6}}},
                {{{0, 100, 1, 4}, {0, 100, 0.25, 2}, {1, 100, 1, 6}}},
                {{{0, 100, 4, 2}, {0, 100, 4, 2}, {1, 200, 0.25, 8}}}};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct sizing sizings[3] = {0};
        struct sizing_case cases[3];

        for (size_t k = 0; k < 3; k++)
            cases[k] = (struct sizing_case){.sizing = &sizings[k],
                                            .weight = rows[i].loaders[k].weight,
                                            .user = &users[rows[i].loaders[k].user],
                                            .user_weight = rows[i].loaders[k].user_weight,
                                            .read = true,
                                            .workers = 2,
                                            .ready = 2,
                                            .most = 32};
        for (uint64_t tick = 0; tick < 200; tick++) {
            for (size_t k = 0; k < 3; k++)
                ask_for_all(&cases[k]);
            sizing_decide(cases, 3, 12, SECOND + tick * SIZING_TICK_NS);
            for (size_t k = 0; k < 3; k++)
                cases[k].workers = cases[k].ready = cases[k].ret;
        }
        for (size_t k = 0; k < 3; k++)
            assert_in_range(cases[k].workers, rows[i].loaders[k].workers - 1,
                            rows[i].loaders[k].workers + 1);
    }
}

/* Loaders whose number is fixed use processors all the same. */
TEST(test_fixed)
{
    struct sizing sizing = {0};
    const struct sizing_measure busy = {.ns = SIZING_TICK_NS,
                                        .span_ns = SIZING_TICK_NS,
                                        .waited_ns = SIZING_TICK_NS,
                                        .batches = 50,
                                        .busy_ns = 2 * SIZING_TICK_NS,
                                        .cpu_ns = 2 * SIZING_TICK_NS};
    struct sizing_measure other = {.ns = SIZING_TICK_NS, .cpu_ns = 6 * SIZING_TICK_NS};
    uint64_t now = SECOND;
    struct sizing_case cases[] = {
        {&sizing, busy, .weight = 1, .read = true, .workers = 2, .ready = 2, .most = 32},
        {.measure = other, .read = true, .workers = 6, .ready = 6, .most = 6}};

    for (int i = 0; i < 20; i++, now += SIZING_TICK_NS) {
        sizing_decide(cases, 2, 8, now);
        assert_int_equal(cases[1].ret, 6);
        cases[0].workers = cases[0].ready = cases[0].ret;
    }
    assert_int_equal(cases[0].workers, 2);
    cases[1].measure.cpu_ns = 0; /* from now on it does nothing */
    for (int i = 0; i < 20; i++, now += SIZING_TICK_NS) {
        cases[0].measure.batches = 25 * cases[0].workers;
        cases[0].measure.busy_ns = cases[0].measure.cpu_ns = cases[0].workers * SIZING_TICK_NS;
        sizing_decide(cases, 2, 8, now);
        cases[0].workers = cases[0].ready = cases[0].ret;
    }
    assert_int_equal(cases[0].workers, 8);
}

TEST(test_prefetch)
{
    assert_int_equal(sizing_prefetch(2, 1), SIZING_DEEP);
    assert_int_equal(sizing_prefetch(2, SIZING_TINY), SIZING_DEEP);
    assert_int_equal(sizing_prefetch(2, SIZING_TINY + 1), 2);
    assert_int_equal(sizing_prefetch(SIZING_DEEP + 4, 1), SIZING_DEEP + 4);
}

/* Of a loader that helpers make batches for, too, the cost is that of its own workers' batches, and
 * it keeps those that it began with. */
TEST(test_helped)
{
    struct sizing sizing = {0};
    uint64_t now = SECOND;
    struct sizing_case c = {.sizing = &sizing,
                            .weight = 1,
                            .read = true,
                            .workers = 2,
                            .ready = 2,
                            .least = 2,
                            .most = 8};

    for (int i = 0; i < 30; i++, now += SIZING_TICK_NS) {
        /* A batch takes 40 ms of a processor, of which there are 4; helpers make 50 in each 0.5 s.
         */
        uint32_t busy = (uint32_t)min_u64(c.workers, 4);
        c.measure = (struct sizing_measure){.ns = SIZING_TICK_NS,
                                            .span_ns = SIZING_TICK_NS,
                                            .waited_ns = i < 15 ? SIZING_TICK_NS / 2 : 0,
                                            .batches = 50 + 12 * busy,
                                            .away = 50,
                                            .busy_ns = c.workers * SIZING_TICK_NS,
                                            .cpu_ns = busy * SIZING_TICK_NS,
                                            .cpu_wait_ns = (c.workers - busy) * SIZING_TICK_NS};
        sizing_decide(&c, 1, 4, now);
        c.workers = c.ready = c.ret;
    }
    assert_true(fabs(sizing.cost_s - 0.04) < 0.01);
    assert_int_equal(c.workers, 4); /* all processors: helpers come after these */
    for (int i = 0; i < 20; i++, now += SIZING_TICK_NS) {
        c.read = false;
        sizing_decide(&c, 1, 4, now);
        c.workers = c.ready = c.ret;
    }
    assert_int_equal(c.workers, 2);
}

/* Helpers that are tried and do not come are not tried again for a while. */
TEST(test_do_not_come)
{
    struct sizing sizing = {0};
    uint64_t now = SECOND;
    struct sizing_case c = {
        .sizing = &sizing, .weight = 1, .read = true, .workers = 2, .ready = 2, .most = 16};

    for (int i = 0; i < 20; i++, now += SIZING_TICK_NS) {
        c.measure = (struct sizing_measure){.ns = SIZING_TICK_NS,
                                            .span_ns = SIZING_TICK_NS,
                                            .waited_ns = SIZING_TICK_NS / 2,
                                            .batches = 20,
                                            .busy_ns = 2 * SIZING_TICK_NS};
        sizing_decide(&c, 1, 255, now);
        if (c.ret > 2)
            break;
    }
    assert_in_range(c.ret, 3, 4);
    c.workers = c.ret; /* ready: as before */
    for (int i = 0; i < 20; i++, now += SIZING_TICK_NS) {
        sizing_decide(&c, 1, 255, now);
        assert_int_equal(c.ret, c.workers);
    }
    sizing_give_up(&c, now);
    assert_int_equal(c.ret, 2);
    c.workers = 2;
    for (int i = 0; i < 20; i++, now += SIZING_TICK_NS) {
        sizing_decide(&c, 1, 255, now);
        assert_int_equal(c.ret, 2);
    }
}

TEST(test_words)
{
    static const struct {
        struct sizing sizing;
        uint32_t workers;
        const char *words;
    } rows[] = {
        {{0}, 2, "2 workers: it has only begun"},
        {{.reason = SIZING_NOT_READ, .before = 5, .changed_ns = SECOND},
         1,
         "1 worker, 5 until 12 s ago: nobody reads it"},
        {{.reason = SIZING_MORE,
          .before = 2,
          .changed_ns = SECOND,
          .wait = 0.43,
          .cost_s = 0.008,
          .cpu_s = 0.004,
          .need = 4.6},
         5,
         "5 workers, 2 until 12 s ago: more may help; trainers wait 43 % of the time, a batch "
         "takes "
         "a worker 8.0 ms, 50 % of it on a processor, of which there are 2; 4.6 busy ones suffice; "
         "each is 4 batches ahead"},
        {{.reason = SIZING_NO_CPU,
          .wait = 0.97,
          .cost_s = 0.008,
          .cpu_s = 0.008,
          .need = SIZING_ANY},
         2,
         "2 workers: no processor is left for more; trainers wait 97 % of the time, a batch takes "
         "a "
         "worker 8.0 ms, 100 % of it on a processor, of which there are 2; trainers would use any "
         "number; each is 4 batches ahead"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char words[SIZING_WORDS];
        struct sizing sizing = rows[i].sizing;

        sizing_words(
            &(struct sizing_case){.sizing = &sizing, .workers = rows[i].workers, .ahead = 4}, 2,
            13 * SECOND, words);
        assert_string_equal(words, rows[i].words);
    }
}
