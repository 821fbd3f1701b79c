/*
 * The queues between daemon and worker: one thread at their edges, then two threads that count
 * every record and every wake-up. Built with the thread sanitizer it shows the memory order, too.
 */
#include "tests/lib/harness.h"

#include "proto/queue.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>

static struct worker_queues *new_queues(void)
{
    struct worker_queues *q = aligned_alloc(64, sizeof *q);

    assert_non_null(q);
    memset(q, 0, sizeof *q);
    return q;
}

/* Both ends as if so many records had gone through already. */
static void start_at(struct queue_end *end, uint64_t position)
{
    atomic_store(&end->tail, position);
    atomic_store(&end->head, position);
}

static struct queue_task task_of(uint64_t n)
{
    return (struct queue_task){.task = n, .segment = (uint32_t)(n * 7), .slot = (uint32_t)(n >> 3)};
}

static struct queue_done done_of(uint64_t n)
{
    return (struct queue_done){.task = n, .bytes = ~n, .code = (uint32_t)n, .cost_ns = n * n};
}

static void expect_task(struct worker_queues *q, uint64_t n)
{
    struct queue_task got;
    struct queue_task want = task_of(n);

    assert_true(task_take(q, &got));
    assert_memory_equal(&got, &want, sizeof got);
}

static void expect_done(struct worker_queues *q, uint64_t n)
{
    struct queue_done got;
    struct queue_done want = done_of(n);

    assert_true(done_take(q, &got));
    assert_memory_equal(&got, &want, sizeof got);
}

/* ---- one thread ----------------------------------------------------------------------------- */

static const uint64_t positions[] = {
    0, 1, QUEUE_RECORDS - 1, QUEUE_RECORDS, UINT32_MAX, UINT64_MAX - 5, UINT64_MAX};

TEST(test_slow_samples)
{
    struct slow_sample what = {.index = 7, .epoch = 3, .ns = 9, .name = "cats/\x1b[2J.png"}, got;
    static struct queue_slow slow;

    assert_false(slow_take(&slow, &got));
    /* As many as a worker tells of, before the daemon has read of one. */
    for (unsigned i = 0; i < SLOW_SAMPLES; i++) {
        what.index = 7 + i;
        assert_true(slow_put(&slow, &what));
    }
    assert_false(slow_put(&slow, &what));
    for (unsigned i = 0; i < SLOW_SAMPLES; i++) {
        assert_true(slow_take(&slow, &got));
        assert_int_equal(got.index, 7 + i);
        assert_int_equal(got.epoch, 3);
        assert_int_equal(got.ns, 9);
        assert_non_null(strstr(got.name, "cats/"));
        assert_null(strchr(got.name, 0x1b)); /* a terminal takes it for text */
    }
    assert_false(slow_take(&slow, &got));
    /* A worker that ends no name with a NUL is read no further than its place. */
    memset(what.name, 'x', sizeof what.name);
    assert_true(slow_put(&slow, &what));
    assert_true(slow_take(&slow, &got));
    assert_int_equal(strlen(got.name), sizeof got.name - 1);
}

TEST(test_empty)
{
    struct worker_queues *q = new_queues();
    struct queue_task task = {.task = 42};
    struct queue_done done = {.task = 42};

    for (size_t i = 0; i < ARRAY_SIZE(positions); i++) {
        start_at(&q->tasks, positions[i]);
        start_at(&q->done, positions[i]);
        assert_true(queue_empty(&q->tasks));
        assert_false(task_take(q, &task));
        assert_false(done_take(q, &done));
        assert_int_equal(task.task, 42);
        assert_int_equal(done.task, 42);
    }
    free(q);
}

TEST(test_full)
{
    struct worker_queues *q = new_queues();

    for (size_t i = 0; i < ARRAY_SIZE(positions); i++) {
        start_at(&q->tasks, positions[i]);
        start_at(&q->done, positions[i]);
        for (uint64_t n = 0; n < QUEUE_RECORDS; n++) {
            struct queue_task task = task_of(n);
            struct queue_done done = done_of(n);
            assert_true(task_put(q, &task));
            assert_true(done_put(q, &done));
        }
        assert_false(task_put(q, &(struct queue_task){0}));
        assert_false(done_put(q, &(struct queue_done){0}));
        expect_task(q, 0);
        expect_done(q, 0);
        assert_true(task_put(q, &(struct queue_task){.task = 9}));
        assert_true(done_put(q, &(struct queue_done){.task = 9}));
        assert_false(task_put(q, &(struct queue_task){0}));
        assert_false(done_put(q, &(struct queue_done){0}));
        for (uint64_t n = 1; n < QUEUE_RECORDS; n++) {
            expect_task(q, n);
            expect_done(q, n);
        }
        assert_false(queue_empty(&q->tasks));
        assert_true(task_take(q, &(struct queue_task){0}));
        assert_true(done_take(q, &(struct queue_done){0}));
        assert_true(queue_empty(&q->tasks) && queue_empty(&q->done));
    }
    free(q);
}

/* Every fill level crosses the end of the ring, and the end of 64 bits. */
TEST(test_wrap_around)
{
    struct worker_queues *q = new_queues();
    uint64_t put = 0;
    uint64_t taken = 0;

    start_at(&q->tasks, UINT64_MAX - 100000);
    for (uint64_t round = 0; put < 200000; round++) {
        for (uint64_t n = round % 97; n > 0; n--) {
            struct queue_task task = task_of(put);
            if (task_put(q, &task))
                put++;
            else
                assert_int_equal(put - taken, QUEUE_RECORDS);
        }
        for (uint64_t n = round % 89; n > 0 && taken < put; n--)
            expect_task(q, taken++);
    }
    while (taken < put)
        expect_task(q, taken++);
    assert_true(queue_empty(&q->tasks));
    free(q);
}

/* A peer that writes nonsense into the positions makes the queue full or not empty, no more. */
TEST(test_absurd_positions)
{
    struct worker_queues *q = new_queues();
    struct queue_task task;

    atomic_store(&q->tasks.head, 1);
    assert_false(task_put(q, &(struct queue_task){0}));
    atomic_store(&q->tasks.head, UINT64_MAX - QUEUE_RECORDS);
    assert_false(task_put(q, &(struct queue_task){0}));
    atomic_store(&q->tasks.head, 12345);
    atomic_store(&q->tasks.tail, UINT64_MAX);
    for (int i = 0; i < 3 * QUEUE_RECORDS; i++)
        assert_true(task_take(q, &task));
    free(q);
}

TEST(test_bells)
{
    struct worker_queues *q = new_queues();
    struct queue_end *end = &q->tasks;

    assert_false(queue_must_wake(end)); /* nobody sleeps */
    assert_true(queue_sleep(end));
    assert_true(queue_sleep(end)); /* still */
    assert_true(queue_must_wake(end));
    assert_false(queue_must_wake(end)); /* once */

    assert_true(queue_sleep(end));
    queue_awake(end);
    assert_false(queue_must_wake(end));

    assert_true(task_put(q, &(struct queue_task){0}));
    assert_false(queue_sleep(end)); /* there is work */
    assert_false(queue_must_wake(end));
    assert_true(task_take(q, &(struct queue_task){0}));
    assert_true(queue_sleep(end));
    assert_true(task_put(q, &(struct queue_task){0}));
    assert_int_equal(atomic_load(&end->tail), 2); /* asking changed no position */
    assert_true(queue_must_wake(end));
    assert_int_equal(atomic_load(&end->tail), 2);
    assert_int_equal(atomic_load(&end->head), 1);
    assert_false(queue_must_wake(&q->done));
    free(q);
}

TEST(test_layout)
{
    assert_int_equal(offsetof(struct queue_end, tail), 0);
    assert_int_equal(offsetof(struct queue_end, head), 64);
    assert_int_equal(offsetof(struct queue_end, sleeping), 128);
    assert_int_equal(offsetof(struct worker_queues, done), 192);
    assert_int_equal(offsetof(struct worker_queues, task_records), 384);
    assert_int_equal(offsetof(struct worker_queues, note), 384 + QUEUE_RECORDS * (16 + 64));
}

/* ---- two threads: one record, one sleeper, at the same moment ------------------------------- */

enum { RACES = 200000 };

struct race {
    struct worker_queues *q;
    _Atomic uint32_t arrived; /* both threads, twice a round */
    _Atomic bool woken;
};

/*
 * What each side is about to read is brought into its cache: then the reads are quick, the stores
 * before them slow, and an order that the hardware may change it will change.
 */
static void warm(struct race *race)
{
    (void)atomic_load(&race->q->tasks.sleeping);
    (void)atomic_load(&race->q->tasks.tail);
    (void)atomic_load(&race->q->tasks.head);
}

/* Waits for the other thread; spinning, so that both leave it within nanoseconds. */
static void meet(struct race *race, uint32_t *meetings)
{
    uint32_t goal = ++*meetings * 2;

    warm(race);
    atomic_fetch_add(&race->arrived, 1);
    for (uint32_t spins = 0; (int32_t)(atomic_load(&race->arrived) - goal) < 0; spins++) {
        if (spins > 1000)
            sched_yield();
    }
}

static void *race_producer(void *arg)
{
    struct race *race = arg;
    uint32_t meetings = 0;

    for (int i = 0; i < RACES; i++) {
        meet(race, &meetings);
        for (int delay = i % 16; delay > 0; delay--)
            atomic_signal_fence(memory_order_seq_cst);
        bool fits = task_put(race->q, &(struct queue_task){.task = (uint64_t)i});
        atomic_store(&race->woken, fits && queue_must_wake(&race->q->tasks));
        meet(race, &meetings);
    }
    return NULL;
}

TEST(test_no_wake_up_is_lost)
{
    struct race race = {.q = new_queues()};
    uint32_t meetings = 0;
    pthread_t producer;
    int lost = 0;
    int missing = 0;

    assert_int_equal(pthread_create(&producer, NULL, race_producer, &race), 0);
    for (int i = 0; i < RACES; i++) {
        struct queue_task task = {0};

        meet(&race, &meetings);
        for (int delay = i / 16 % 16; delay > 0; delay--)
            atomic_signal_fence(memory_order_seq_cst);
        bool sleeps = queue_sleep(&race.q->tasks);
        meet(&race, &meetings);
        lost += sleeps && !atomic_load(&race.woken);
        missing += !task_take(race.q, &task) || task.task != (uint64_t)i;
        queue_awake(&race.q->tasks);
    }
    assert_int_equal(pthread_join(producer, NULL), 0);
    assert_int_equal(lost, 0);
    assert_int_equal(missing, 0);
    free(race.q);
}

/* ---- two threads: a daemon and a worker ----------------------------------------------------- */

enum { PATIENCE_MS = 20000 };

struct pair {
    struct worker_queues *q;
    int task_bell;
    int done_bell;
    uint64_t total;
    _Atomic bool failed; /* a wake-up was lost or a record was wrong */
    uint64_t naps;       /* of the worker */
};

/* Sleeps on a bell; false when nobody rang for so long that the wake-up must be lost. */
static bool nap(int bell)
{
    struct pollfd fd = {.fd = bell, .events = POLLIN};
    eventfd_t count;
    int n;

    do
        n = poll(&fd, 1, PATIENCE_MS);
    while (n < 0 && errno == EINTR);
    return n == 1 && eventfd_read(bell, &count) == 0;
}

static void *play_worker(void *arg)
{
    struct pair *pair = arg;
    uint64_t seen = 0;

    while (seen < pair->total && !atomic_load(&pair->failed)) {
        struct queue_task task;
        while (task_take(pair->q, &task)) {
            struct queue_task want = task_of(seen);
            struct queue_done done = done_of(seen);
            seen++;
            if (memcmp(&task, &want, sizeof task) != 0 || !done_put(pair->q, &done))
                atomic_store(&pair->failed, true);
        }
        if (queue_must_wake(&pair->q->done))
            (void)eventfd_write(pair->done_bell, 1);
        if (seen == pair->total || !queue_sleep(&pair->q->tasks))
            continue;
        pair->naps++;
        if (!nap(pair->task_bell))
            atomic_store(&pair->failed, true);
        queue_awake(&pair->q->tasks);
    }
    return NULL;
}

/* Keeps `window` tasks in flight, as the daemon does; returns how often it slept. */
static uint64_t play_daemon(struct pair *pair, uint64_t window)
{
    uint64_t put = 0;
    uint64_t taken = 0;
    uint64_t naps = 0;

    while (taken < pair->total && !atomic_load(&pair->failed)) {
        struct queue_done done;

        for (; put < pair->total && put - taken < window; put++) {
            struct queue_task task = task_of(put);
            assert_true(task_put(pair->q, &task));
        }
        if (queue_must_wake(&pair->q->tasks))
            (void)eventfd_write(pair->task_bell, 1);
        if (done_take(pair->q, &done)) {
            struct queue_done want = done_of(taken++);
            assert_memory_equal(&done, &want, sizeof done);
            continue;
        }
        if (!queue_sleep(&pair->q->done))
            continue;
        naps++;
        if (!nap(pair->done_bell))
            atomic_store(&pair->failed, true);
    }
    return naps;
}

static void run_pair(uint64_t window, uint64_t total)
{
    struct pair pair = {.q = new_queues(),
                        .task_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                        .done_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                        .total = total};
    pthread_t worker;

    assert_true(pair.task_bell >= 0 && pair.done_bell >= 0);
    /* The records cross the end of 64 bits on their way. */
    start_at(&pair.q->tasks, UINT64_MAX - total / 2);
    start_at(&pair.q->done, UINT64_MAX - total / 3);
    assert_int_equal(pthread_create(&worker, NULL, play_worker, &pair), 0);
    uint64_t naps = play_daemon(&pair, window);
    assert_int_equal(pthread_join(worker, NULL), 0);
    print_message("# window %llu: %llu records, the daemon slept %llu times, the worker %llu\n",
                  (unsigned long long)window, (unsigned long long)total, (unsigned long long)naps,
                  (unsigned long long)pair.naps);
    assert_false(pair.failed);
    assert_true(queue_empty(&pair.q->tasks) && queue_empty(&pair.q->done));
    close(pair.task_bell);
    close(pair.done_bell);
    free(pair.q);
}

TEST(test_every_record_crosses)
{
    static const struct {
        uint64_t window, total;
    } cases[] = {{1, 20000}, {2, 20000}, {3, 20000}, {64, 100000}, {QUEUE_RECORDS, 300000}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        run_pair(cases[i].window, cases[i].total);
}
