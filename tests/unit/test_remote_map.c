/* What a worker reads of a remote file that it has mapped is what the store has, however little of
 * it is held at once, and is there in the end: a worker's side and the fetcher's, in two threads.
 */
#include "tests/lib/uv_threads.h"

#include "daemon/data/files/guard.h"
#include "daemon/data/files/remote.h"
#include "daemon/fetcher/desk.h"
#include "tests/lib/splitmix.h"
#include "tests/unit/remote_others.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/socket.h>

enum {
    BLOCK = REMOTE_BLOCK_BYTES,
    PAGE = 4096,
    OBJECTS = 2,
    SCHEDULES = 60,
    SAMPLES = 40,
    TRIES = 100,        /* of a sample, of which parts cannot be fetched now and then */
    GIVEN_PER_READ = 64 /* blocks that the fetcher gives for one that is read, at most */
};

static const uint64_t sizes[OBJECTS] = {20 * BLOCK, 7 * BLOCK + 5};

/* ---- the fetcher ---------------------------------------------------------------------------- */

struct fetcher {
    pthread_t thread;
    uv_loop_t loop;
    uv_idle_t answers;
    uv_check_t look;
    struct desk *desk;
    int sock;
    uint64_t limit, random;
    bool fails; /* now and then a transfer does, and they end in any order */
    _Atomic bool fails_once;
    _Atomic uint64_t most; /* bytes that it is to give */
};

static void answer_transfer(uv_idle_t *idle)
{
    struct fetcher *fetcher = container_of(idle, struct fetcher, answers);
    struct transfer *transfer = store.list;

    if (!transfer) {
        uv_idle_stop(idle);
        return;
    }
    if (fetcher->fails && next_random(&fetcher->random) % 2)
        transfer = transfer->prev; /* the last one */
    size_t i = object_of(transfer->order.place->url);
    bool fails = fetcher->fails && next_random(&fetcher->random) % 8 == 0;
    if (transfer->order.first > 0 && (fails || atomic_exchange(&fetcher->fails_once, false)))
        fail_transfer(transfer, -EIO);
    else
        give_bytes(transfer, i, 1, sizes[i]);
}

static void look_at_fetcher(uv_check_t *check)
{
    struct fetcher *fetcher = container_of(check, struct fetcher, look);
    uint64_t given = remote_tally_read(&store.tally, REMOTE_FROM_MEMORY) +
                     remote_tally_read(&store.tally, REMOTE_FROM_STORE);

    if (store.n > 0)
        uv_idle_start(&fetcher->answers, answer_transfer);
    if (given <= atomic_load(&fetcher->most))
        return;
    fprintf(stderr, "the worker asks for the same blocks again and again\n");
    abort();
}

static void stop_fetcher(void *owner)
{
    uv_stop(owner);
}

static void *run_fetcher(void *arg)
{
    struct fetcher *fetcher = arg;

    store_begin();
    if (uv_loop_init(&fetcher->loop) < 0)
        abort();
    uv_idle_init(&fetcher->loop, &fetcher->answers);
    uv_check_init(&fetcher->loop, &fetcher->look);
    uv_check_start(&fetcher->look, look_at_fetcher);
    struct kept *kept = kept_new(&fetcher->loop, "", 0);
    fetcher->desk = desk_new(&fetcher->loop, &store, kept, fetcher->limit);
    desk_on_unused(fetcher->desk, stop_fetcher, &fetcher->loop);
    desk_add(fetcher->desk, fetcher->sock, 0);
    uv_run(&fetcher->loop, UV_RUN_DEFAULT);
    desk_on_unused(fetcher->desk, NULL, NULL);
    desk_free(fetcher->desk);
    kept_free(kept);
    uv_close((uv_handle_t *)&fetcher->answers, NULL);
    uv_close((uv_handle_t *)&fetcher->look, NULL);
    uv_run(&fetcher->loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&fetcher->loop) < 0)
        abort();
    remote_settings_deinit(&store.settings);
    return NULL;
}

/* ---- the worker ----------------------------------------------------------------------------- */

struct worker {
    struct fetcher fetcher;
    struct guard guard;
    struct remote *remote;
    uint64_t random;
    const uint8_t *data[OBJECTS]; /* NULL: it is not mapped */
    struct remote_map *maps[OBJECTS];
};

static uint64_t below(struct worker *worker, uint64_t n)
{
    return next_random(&worker->random) % n;
}

/* cmocka handles SIGSEGV anew for each test, and the worker's side only once. */
static struct sigaction handled;

/* A fetcher that holds so many blocks. */
static void begin(struct worker *worker, uint64_t seed, uint64_t blocks)
{
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    *worker = (struct worker){
        .fetcher = {.sock = pair[1], .limit = blocks * BLOCK, .random = ~seed, .fails = seed % 3},
        .random = seed,
    };
    assert_int_equal(pthread_create(&worker->fetcher.thread, NULL, run_fetcher, &worker->fetcher),
                     0);
    const struct remote_offer offer = {.version = REMOTE_WIRE_VERSION, .sock = pair[0]};
    assert_int_equal(remote_new(&offer, &worker->guard, &worker->remote), 0);
    worker->guard.remote = worker->remote;
    if (handled.sa_flags)
        assert_int_equal(sigaction(SIGSEGV, &handled, NULL), 0);
}

static void end(struct worker *worker)
{
    assert_int_equal(sigaction(SIGSEGV, NULL, &handled), 0);
    for (size_t i = 0; i < OBJECTS; i++)
        remote_unmap(worker->maps[i]);
    guard_deinit(&worker->guard);
    remote_free(worker->remote);
    assert_int_equal(pthread_join(worker->fetcher.thread, NULL), 0);
}

static const char *url_of(size_t i)
{
    return i == 0 ? "s3://bucket/0" : "s3://bucket/1";
}

static void map_object(struct worker *worker, size_t i)
{
    const void *data;
    struct dl_error err = {0};
    struct stat st;

    if (worker->data[i])
        return;
    if (remote_map(worker->remote, url_of(i), &data, &worker->maps[i], &st, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    assert_int_equal(st.st_size, sizes[i]);
    worker->data[i] = data;
}

static void unmap_object(struct worker *worker, size_t i)
{
    remote_unmap(worker->maps[i]);
    worker->maps[i] = NULL;
    worker->data[i] = NULL;
}

/* How many pages are not as they are in the store. */
static unsigned read_bytes(struct worker *worker, size_t i, uint64_t first, uint64_t bytes)
{
    const volatile uint8_t *data = worker->data[i];
    unsigned wrong = 0;

    atomic_fetch_add(&worker->fetcher.most, (bytes / BLOCK + 2) * GIVEN_PER_READ * BLOCK);
    for (uint64_t at = first; at < first + bytes; at += PAGE)
        wrong += data[at] != content_at(i, 1, at);
    return wrong;
}

/* ---- schedules ------------------------------------------------------------------------------ */

static unsigned read_somewhere(struct worker *worker)
{
    size_t i = below(worker, OBJECTS);
    uint64_t first = below(worker, sizes[i]);
    uint64_t bytes = 1 + below(worker, min_u64(sizes[i] - first, 6 * BLOCK));

    map_object(worker, i);
    if (below(worker, 2))
        remote_expect(worker->data[i] + first, bytes);
    return read_bytes(worker, i, first, bytes);
}

/* What a sample needs, again until all of it could be fetched. */
static void read_sample(struct worker *worker, uint64_t seed)
{
    struct dl_error err = {0};

    for (int tries = 0; tries < TRIES; tries++) {
        unsigned wrong = 0;

        for (uint64_t parts = 1 + below(worker, 3); parts > 0; parts--)
            wrong += read_somewhere(worker);
        if (guard_check(&worker->guard, &err) < 0)
            continue;
        if (wrong)
            fail_msg("schedule %llu: wrong bytes are read", (unsigned long long)seed);
        return;
    }
    fail_msg("schedule %llu: %s: %s", (unsigned long long)seed, err.path, err.message);
}

TEST(test_schedules)
{
    static const uint64_t held[] = {1, 4, 8, 16, 32, 64};

    for (uint64_t seed = 1; seed <= SCHEDULES; seed += harness_stride()) {
        struct worker worker;

        begin(&worker, seed, held[seed % ARRAY_SIZE(held)]);
        for (int sample = 0; sample < SAMPLES; sample++) {
            size_t i = below(&worker, OBJECTS);

            read_sample(&worker, seed);
            if (below(&worker, 3) == 0)
                remote_expect_part(worker.remote, url_of(i), below(&worker, sizes[i]), 4 * BLOCK);
            if (below(&worker, 10) == 0)
                unmap_object(&worker, i);
        }
        end(&worker);
    }
}

/* More is held than a worker may have in use. */
TEST(test_held)
{
    struct worker worker;

    begin(&worker, 3, 32);
    map_object(&worker, 0);
    for (int times = 0; times < 3; times++)
        assert_int_equal(read_bytes(&worker, 0, 0, sizes[0]), 0);
    end(&worker);
}

/* A block that could not be fetched comes with the one before it, before the worker is told of the
 * failure. */
TEST(test_come_later)
{
    struct dl_error err = {0};
    struct worker worker;

    begin(&worker, 3, 32);
    map_object(&worker, 0);
    assert_int_equal(read_bytes(&worker, 0, 0, 1), 0);
    atomic_store(&worker.fetcher.fails_once, true);
    assert_int_equal(read_bytes(&worker, 0, 18 * BLOCK, 1), 1);
    remote_expect_part(worker.remote, url_of(0), 18 * BLOCK, BLOCK);
    assert_int_equal(read_bytes(&worker, 0, 16 * BLOCK, 1), 0); /* they come in that order */
    assert_int_equal(read_bytes(&worker, 0, 17 * BLOCK, 1), 0);
    assert_int_equal(guard_check(&worker.guard, &err), -EIO);
    assert_int_equal(read_bytes(&worker, 0, 18 * BLOCK, 1), 0);
    assert_int_equal(guard_check(&worker.guard, &err), 0);
    end(&worker);
}
