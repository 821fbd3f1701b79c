/*
 * Who may use processors where several users want them: a machine in steps of a millisecond, whose
 * processors are shared out among the busy workers as a kernel does it, so that without any rule
 * whoever has most workers gets most.
 */
#include "tests/lib/harness.h"
#include "tests/lib/row.h"

#include "daemon/serve/core/fair.h"

#include <math.h>

#include <utlist.h>

enum { LOADERS = 4, WORKERS = 16, STEP_NS = 1000000, MEASURE_STEPS = 500 };

/* A loader of a user, whose trainer takes batches of these. */
struct job {
    int user; /* from 1 on; 0: it is not there */
    double weight, priority;
    uint32_t workers;
    double task_ms, sleep_ms; /* a batch computes about so long, and waits before */
    uint32_t from_s;          /* it begins then */
    double per_second;        /* batches that its trainer takes; 0: any number */
};

struct loader {
    struct fair_part part;
    double computes[WORKERS], sleeps[WORKERS]; /* ms that are left of each worker's batch */
    double batches, made;                      /* it may have begun by now, and has */
    double cpu_ms, wait_ms;                    /* in all */
    double cpu_was, wait_was;                  /* when it was measured last */
    double cpu_begun;                          /* when all had begun */
};

static const int users[LOADERS + 1];

/* From 0 to 1. */
static double draw(void)
{
    static uint32_t state = 1;

    state = state * 1664525 + 1013904223;
    return (double)(state >> 8) / (1 << 24);
}

static uint32_t count_busy(const struct loader *l, const struct job *job)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < job->workers; i++)
        n += l->computes[i] > 0;
    return n;
}

/* Idle workers get batches, as far as there may be so many busy ones. */
static void give_work(struct fair *fair, struct loader *l, const struct job *job, uint64_t now)
{
    uint32_t busy = count_busy(l, job);
    bool wants = busy < job->workers && (job->per_second == 0 || l->batches >= 1);
    uint32_t may = fair_may(fair, &l->part, wants, now);

    for (uint32_t i = 0; i < job->workers && busy < may; i++) {
        if (l->computes[i] > 0 || (job->per_second > 0 && l->batches < 1))
            continue;
        l->computes[i] = job->task_ms * (0.7 + 0.6 * draw());
        l->sleeps[i] = job->sleep_ms;
        l->batches -= job->per_second > 0;
        l->made++;
        busy++;
    }
    fair_look(fair, &l->part, busy, now);
}

static uint32_t count_running(const struct loader *l, const struct job *job)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < job->workers; i++)
        n += l->computes[i] > 0 && l->sleeps[i] <= 0;
    return n;
}

/* A millisecond: each that runs has that part of a processor. */
static void run(struct loader *l, const struct job *job, double part)
{
    for (uint32_t i = 0; i < job->workers; i++) {
        if (l->computes[i] <= 0)
            continue;
        if (l->sleeps[i] > 0) {
            l->sleeps[i]--;
            continue;
        }
        l->computes[i] -= part;
        l->cpu_ms += part;
        l->wait_ms += 1 - part;
    }
}

static void measure(struct fair *fair, struct loader *l, uint64_t now)
{
    fair_measure(fair, &l->part, (uint64_t)((l->cpu_ms - l->cpu_was) * 1e6),
                 (uint64_t)((l->wait_ms - l->wait_was) * 1e6), now);
    l->cpu_was = l->cpu_ms;
    l->wait_was = l->wait_ms;
}

/* A loader whose worker is done asks at once, before others see that it is. */
static void ask(struct fair *fair, struct loader *loaders, const struct job *jobs, bool done,
                uint64_t t)
{
    uint64_t now = (t + 1) * STEP_NS;

    for (size_t i = 0; i < LOADERS; i++) {
        size_t k = (i + t) % LOADERS; /* none is always the first */
        struct loader *l = &loaders[k];

        if (!fair_has_joined(&l->part) || (count_busy(l, &jobs[k]) < l->part.busy) != done)
            continue;
        give_work(fair, l, &jobs[k], now);
    }
}

static void step(struct fair *fair, struct loader *loaders, const struct job *jobs, uint64_t t)
{
    uint64_t now = (t + 1) * STEP_NS;
    uint32_t running = 0;

    for (size_t k = 0; k < LOADERS; k++) {
        struct loader *l = &loaders[k];

        if (!jobs[k].user || t < jobs[k].from_s * UINT64_C(1000))
            continue;
        if (!fair_has_joined(&l->part)) {
            l->part.weight = jobs[k].weight;
            l->part.priority = jobs[k].priority;
            fair_join(fair, &l->part, &users[jobs[k].user], now);
        }
        l->batches = fmin(l->batches + jobs[k].per_second / 1000, 4);
    }
    ask(fair, loaders, jobs, true, t);
    ask(fair, loaders, jobs, false, t);
    for (size_t k = 0; k < LOADERS; k++)
        running += count_running(&loaders[k], &jobs[k]);
    for (size_t k = 0; k < LOADERS; k++)
        run(&loaders[k], &jobs[k], running > 0 ? fmin(fair->cpus / running, 1) : 0);
    for (size_t k = 0; k < LOADERS; k++) {
        if (fair_has_joined(&loaders[k].part) && t % MEASURE_STEPS == 0)
            measure(fair, &loaders[k], now + STEP_NS);
    }
}

/* What each has of the processors' time from `from_s` to `to_s`. */
static void play(double cpus, const struct job *jobs, uint32_t from_s, uint32_t to_s,
                 struct loader *loaders, double *ret)
{
    struct fair fair = {.cpus = cpus};
    double all = 0;

    for (uint64_t t = 0; t < to_s * UINT64_C(1000); t++) {
        for (size_t k = 0; k < LOADERS && t == from_s * UINT64_C(1000); k++)
            loaders[k].cpu_begun = loaders[k].cpu_ms;
        step(&fair, loaders, jobs, t);
    }
    for (size_t k = 0; k < LOADERS; k++)
        ret[k] = (loaders[k].cpu_ms - loaders[k].cpu_begun) / (cpus * 1000 * (to_s - from_s));
    for (size_t k = 0; k < LOADERS; k++)
        all += ret[k];
    assert_true(all < 1.0001);
    for (size_t k = 0; k < LOADERS; k++)
        fair_leave(&fair, &loaders[k].part);
    assert_null(fair.parts);
}

#define ONE(user_, weight_, workers_)                                                             \
    {                                                                                             \
        .user = (user_), .weight = (weight_), .priority = 1, .workers = (workers_), .task_ms = 12 \
    }

/* The share of each, right values first. */
static const struct {
    const char *what;
    double shares[LOADERS];
    double cpus;
    struct job jobs[LOADERS];
} rows[] = {
    ROW("equal weights, whatever the workers", {0.5, 0.5}, 2, {ONE(1, 100, 12), ONE(2, 100, 2)}),
    ROW("one worker has one of two processors", {0.5, 0.5}, 2, {ONE(1, 100, 12), ONE(2, 100, 1)}),
    ROW("by weight", {0.8, 0.2}, 2, {ONE(1, 400, 2), ONE(2, 100, 12)}),
    ROW("by weight, on one processor", {0.9, 0.1}, 1, {ONE(1, 900, 3), ONE(2, 100, 3)}),
    ROW("three users", {0.5, 0.25, 0.25}, 4, {ONE(1, 200, 4), ONE(2, 100, 16), ONE(3, 100, 8)}),
    ROW("loaders of one user share what is its", {0.25, 0.25, 0.5}, 4,
        {ONE(1, 100, 8), ONE(1, 100, 8), ONE(2, 100, 4)}),
    ROW("by priority", {0.4, 0.1, 0.5}, 2,
        {{.user = 1, .weight = 100, .priority = 4, .workers = 4, .task_ms = 12},
         {.user = 1, .weight = 100, .priority = 1, .workers = 8, .task_ms = 12},
         ONE(2, 100, 4)}),
    ROW("by priority, of one user", {0.8, 0.2}, 2,
        {{.user = 1, .weight = 100, .priority = 4, .workers = 2, .task_ms = 12},
         {.user = 1, .weight = 100, .priority = 1, .workers = 12, .task_ms = 12}}),
    ROW("one that matters less than two others", {4 / 8.25, 4 / 8.25, 0.25 / 8.25}, 2,
        {{.user = 1, .weight = 100, .priority = 4, .workers = 4, .task_ms = 12},
         {.user = 1, .weight = 100, .priority = 4, .workers = 4, .task_ms = 12},
         {.user = 1, .weight = 100, .priority = 0.25, .workers = 8, .task_ms = 12}}),
    ROW("what one does not use, others do", {0.1, 0.9}, 2,
        {{.user = 1, .weight = 100, .priority = 1, .workers = 2, .task_ms = 10, .per_second = 20},
         ONE(2, 100, 12)}),
    ROW("a user alone has all, as the kernel shares it out", {12 / 14.0, 2 / 14.0}, 2,
        {ONE(1, 100, 12), ONE(1, 100, 2)}),
    ROW("long batches and short ones", {0.5, 0.5}, 2,
        {{.user = 1, .weight = 100, .priority = 1, .workers = 4, .task_ms = 700}, ONE(2, 100, 4)}),
};

TEST(test_shares_of_worker_time)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct loader loaders[LOADERS] = {0};
        double shares[LOADERS];

        play(rows[i].cpus, rows[i].jobs, 5, 65, loaders, shares);
        for (size_t k = 0; k < LOADERS; k++)
            if (fabs(shares[k] - rows[i].shares[k]) > 0.03)
                fail_msg("%s: loader %zu has %.3f of the processors, and %.3f is its share",
                         rows[i].what, k, shares[k], rows[i].shares[k]);
    }
}

/* Eight that compute for 1 ms of 20 want less than half of a processor, whoever else is there. */
TEST(test_what_waits_is_not_held_back)
{
    const struct job jobs[LOADERS] = {
        {.user = 1, .weight = 100, .priority = 1, .workers = 8, .task_ms = 1, .sleep_ms = 19},
        ONE(2, 100, 4)};
    struct loader loaders[LOADERS] = {0};
    double shares[LOADERS];

    play(2, jobs, 5, 65, loaders, shares);
    /* Less what the other one's computing makes it wait for a processor. */
    assert_true(loaders[0].made >= 0.85 * 8 * 50 * 65);
    assert_true((double)loaders[0].part.held_ns < 3e9); /* of 65 s */
    assert_true(shares[0] + shares[1] > 0.85);          /* and most of what it leaves is used */
}

/* One that comes late has its share from then on, and none of what it did not use before. */
TEST(test_nothing_is_saved_up)
{
    struct job jobs[LOADERS] = {ONE(1, 100, 12), ONE(2, 100, 12)};
    static const uint32_t until[] = {22, 30, 60};

    jobs[1].from_s = 20;
    for (size_t i = 0; i < ARRAY_SIZE(until); i++) {
        struct loader loaders[LOADERS] = {0};
        double shares[LOADERS];

        play(2, jobs, 20, until[i], loaders, shares);
        assert_true(fabs(shares[0] - 0.5) < (i == 0 ? 0.1 : 0.03));
        assert_true(fabs(shares[1] - 0.5) < (i == 0 ? 0.1 : 0.03));
    }
}

/* The workers that one may have, and why it asks again. */
TEST(test_one_that_is_ahead_waits_for_the_other)
{
    struct fair fair = {.cpus = 2};
    struct fair_part a = {.weight = 100, .priority = 1}, b = a;
    uint64_t now = STEP_NS;

    fair_join(&fair, &a, &users[1], now);
    assert_false(fair_is_shared(&fair));
    assert_int_equal(fair_may(&fair, &a, true, now), FAIR_ANY);
    fair_look(&fair, &a, 6, now);
    fair_join(&fair, &b, &users[2], now);
    assert_true(fair_is_shared(&fair));
    assert_int_equal(fair_may(&fair, &b, true, now), 1); /* a processor each */
    fair_look(&fair, &b, 1, now);
    now += 100 * STEP_NS;
    assert_int_equal(fair_may(&fair, &a, true, now), 1); /* one is left over, and it has six */
    assert_true(a.held && !fair_is_due(&fair, now));
    assert_true(fabs(fair_share(&fair, &a, now) - 0.5) < 1e-9);
    fair_look(&fair, &a, 0, now + STEP_NS);
    assert_true(fair_is_due(&fair, now + STEP_NS));
    assert_int_equal(fair_may(&fair, &a, true, now + STEP_NS), 1);
    assert_false(a.held);
    assert_int_equal(a.held_ns, STEP_NS);
    /* Where the other is done, and comes no more, it has all. */
    fair_look(&fair, &b, 0, now + STEP_NS);
    assert_int_equal(fair_may(&fair, &a, true, now + 50 * STEP_NS), 2);
    assert_int_equal(fair_may(&fair, &a, true, now + 150 * STEP_NS), FAIR_ANY);
    fair_leave(&fair, &b);
    fair_leave(&fair, &b);
    fair_leave(&fair, &a);
}
