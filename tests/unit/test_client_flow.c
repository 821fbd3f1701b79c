/* Batches through libdlclient: order, credits, coalescing, pins, faults, several streams, trees. */
#include "tests/unit/fake_daemon.h"

/* ---- what the hot path may not do: counted by --wrap ---- */

static unsigned system_calls, allocations;

ssize_t __real_fdpass_recv(int sock, struct frame_reader *reader, int flags);
ssize_t __wrap_fdpass_recv(int sock, struct frame_reader *reader, int flags);
ssize_t __wrap_fdpass_recv(int sock, struct frame_reader *reader, int flags)
{
    system_calls++;
    return __real_fdpass_recv(sock, reader, flags);
}

ssize_t __real_fdpass_send(int sock, const void *data, size_t len, const int *fds, uint32_t n_fds,
                           int flags);
ssize_t __wrap_fdpass_send(int sock, const void *data, size_t len, const int *fds, uint32_t n_fds,
                           int flags);
ssize_t __wrap_fdpass_send(int sock, const void *data, size_t len, const int *fds, uint32_t n_fds,
                           int flags)
{
    system_calls++;
    return __real_fdpass_send(sock, data, len, fds, n_fds, flags);
}

int __real_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const void *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const void *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const void *mask)
{
    system_calls++;
    return __real_ppoll(fds, n, timeout, mask);
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    allocations++;
    return __real_malloc(size);
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    allocations++;
    return __real_calloc(n, size);
}

void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size)
{
    allocations++;
    return __real_realloc(p, size);
}

/* ---- order and the end ---- */

static void expect_next(struct fake *f, int want)
{
    struct dl_batch *batch = (struct dl_batch *)(void *)f;

    assert_int_equal(dl_epoch_next(f->epoch, 0, &batch), want);
    assert_ptr_equal(batch, f); /* untouched */
}

TEST(test_order)
{
    const uint64_t *indices;
    struct dl_batch *batch;
    struct fake f;
    size_t n;

    fake_run(&f, 8, 5);
    assert_int_equal(dl_epoch_steps(f.epoch), 5);
    assert_int_equal(dl_epoch_samples(f.epoch), 20);
    expect_next(&f, -EAGAIN);
    fake_deliver(&f, 0, 2);
    fake_deliver(&f, 2, 5);
    fake_finish(&f);
    for (uint64_t step = 0; step < 5; step++) {
        batch = fake_next(&f, step);
        assert_int_equal(dl_batch_bytes(batch), FAKE_ROWS * FAKE_ROW_BYTES);
        indices = dl_batch_indices(batch, &n);
        assert_int_equal(n, FAKE_ROWS);
        assert_int_equal(indices[3], step * FAKE_ROWS + 3);
    }
    expect_next(&f, DL_END);
    expect_next(&f, DL_END);
    assert_null(dl_epoch_end(f.epoch));
    assert_null(dl_epoch_end(NULL));
    expect_steps(&f, DL_MSG_RELEASE, 0, 1);
    expect_steps(&f, DL_MSG_RELEASE, 2, 3);
    expect_steps(&f, DL_MSG_RELEASE, 4);
    fake_expect(&f, DL_MSG_STOP);
    fake_expect_silence(&f);
    fake_end(&f);
}

TEST(test_start_options)
{
    struct dl_epoch_options o = {.rank = 2, .world = 2};
    struct dl_message msg;
    struct fake f;

    fake_connect(&f);
    fake_open(&f);
    assert_int_equal(dl_epoch_start(f.loader, &o, &f.epoch), -EINVAL);
    assert_string_equal(dl_client_error(f.client), "rank: 2 is not below the world size, 2");
    o = (struct dl_epoch_options){.world = 1048577};
    assert_int_equal(dl_epoch_start(f.loader, &o, &f.epoch), -EINVAL);
    o = (struct dl_epoch_options){.credits = 65537};
    assert_int_equal(dl_epoch_start(f.loader, &o, &f.epoch), -EINVAL);
    o = (struct dl_epoch_options){.follow = 1};
    assert_int_equal(dl_epoch_start(f.loader, &o, &f.epoch), -EINVAL);
    o = (struct dl_epoch_options){.priority = 3};
    assert_int_equal(dl_epoch_start(f.loader, &o, &f.epoch), -EINVAL);
    assert_string_equal(dl_client_error(f.client),
                        "priority: 3 is not DL_PRIORITY_NORMAL (0), HIGH (1) or LOW (2)");
    o = (struct dl_epoch_options){.epoch = 9,
                                  .rank = 1,
                                  .world = 3,
                                  .step = 7,
                                  .credits = 65536,
                                  .priority = DL_PRIORITY_LOW};
    msg = fake_started(&f, 10);
    msg.started.epoch = 9;
    msg.started.first = 7;
    fake_send(&f, &msg);
    assert_int_equal(dl_epoch_start(f.loader, &o, &f.epoch), 0);
    msg = fake_expect(&f, DL_MSG_START);
    assert_int_equal(msg.start.loader, FAKE_LOADER);
    assert_int_equal(msg.start.epoch, 9);
    assert_int_equal(msg.start.rank, 1);
    assert_int_equal(msg.start.world, 3);
    assert_int_equal(msg.start.step, 7);
    assert_int_equal(msg.start.credits, 65536);
    assert_int_equal(msg.start.priority, DL_PRIORITY_LOW);
    dl_epoch_end(f.epoch);
    fake_expect(&f, DL_MSG_STOP);

    msg = fake_started(&f, 10);
    fake_send(&f, &msg);
    assert_int_equal(dl_epoch_start(f.loader, NULL, &f.epoch), 0);
    msg = fake_expect(&f, DL_MSG_START);
    assert_int_equal(msg.start.world, 1);
    assert_int_equal(msg.start.credits, 4); /* OPENED's */
    fake_end(&f);
}

/* From the middle of an epoch. */
TEST(test_start_at_step)
{
    struct dl_message msg;
    struct fake f;

    fake_connect(&f);
    fake_open(&f);
    msg = fake_started(&f, 4);
    msg.started.first = 2;
    fake_send(&f, &msg);
    assert_int_equal(dl_epoch_start(f.loader, &(struct dl_epoch_options){.step = 2}, &f.epoch), 0);
    fake_segment(&f);
    fake_deliver(&f, 2, 4);
    fake_finish(&f);
    fake_next(&f, 2);
    fake_next(&f, 3);
    expect_next(&f, DL_END);
    fake_end(&f);
}

TEST(test_timeout)
{
    struct dl_batch *batch;
    struct fake f;
    uint64_t begin;

    fake_run(&f, 1, 5);
    fake_deliver(&f, 0, 1);
    fake_next(&f, 0);
    begin = clock_ns();
    assert_int_equal(dl_epoch_next(f.epoch, 20000000, &batch), -ETIMEDOUT);
    assert_true(clock_ns() - begin >= 20000000);
    assert_true(dl_epoch_wait_ns(f.epoch) >= 20000000);
    /* The only credit went back, or the next batch could never come. */
    expect_steps(&f, DL_MSG_RELEASE, 0);
    fake_deliver(&f, 1, 2);
    fake_next(&f, 1);
    fake_end(&f);
}

/* An event loop: the descriptor tells, dispatch takes in, next does not block. */
TEST(test_event_loop)
{
    struct pollfd pfd;
    struct fake f;

    fake_run(&f, 4, 5);
    pfd = (struct pollfd){.fd = dl_client_fd(f.client), .events = POLLIN};
    assert_int_equal(poll(&pfd, 1, 0), 1); /* SEGMENT */
    assert_int_equal(dl_client_dispatch(f.client), 0);
    assert_int_equal(poll(&pfd, 1, 0), 0);
    fake_deliver(&f, 0, 3);
    assert_int_equal(poll(&pfd, 1, 0), 1);
    assert_int_equal(dl_client_dispatch(f.client), 0);
    assert_int_equal(poll(&pfd, 1, 0), 0);
    assert_int_equal(dl_client_dispatch(f.client), 0);
    for (uint64_t step = 0; step < 3; step++)
        fake_next(&f, step);
    fake_end(&f);
}

/* ---- credits and coalescing ---- */

TEST(test_coalescing)
{
    struct fake f;

    fake_run(&f, 8, 100);
    fake_deliver(&f, 0, 8);
    fake_next(&f, 0);
    fake_expect_silence(&f);
    fake_next(&f, 1);
    fake_expect_silence(&f); /* one is pending: less than 8 / 4 */
    fake_next(&f, 2);
    expect_steps(&f, DL_MSG_RELEASE, 0, 1);
    fake_next(&f, 3);
    fake_expect_silence(&f);
    fake_next(&f, 4);
    expect_steps(&f, DL_MSG_RELEASE, 2, 3);
    fake_next(&f, 5);
    fake_next(&f, 6);
    expect_steps(&f, DL_MSG_RELEASE, 4, 5);
    fake_expect_silence(&f);
    fake_next(&f, 7); /* the last one here: the daemon can use what is pending now */
    expect_steps(&f, DL_MSG_RELEASE, 6);
    expect_next(&f, -EAGAIN);
    expect_steps(&f, DL_MSG_RELEASE, 7);
    fake_end(&f);
}

TEST(test_requests_carry_releases)
{
    struct dl_message msg = {.number = DL_MSG_INFO};
    struct fake f;
    const void *data;
    size_t len;

    fake_run(&f, 8, 100);
    fake_deliver(&f, 0, 8);
    fake_next(&f, 0);
    fake_next(&f, 1);
    msg.info.request = fake_next_request(&f);
    msg.info.value = (struct dl_span){(const uint8_t *)"\x80", 1};
    fake_send(&f, &msg);
    assert_int_equal(dl_client_query(f.client, "ring", &data, &len), 0);
    expect_steps(&f, DL_MSG_RELEASE, 0);
    fake_expect(&f, DL_MSG_QUERY);
    fake_end(&f);
}

TEST(test_hot_path)
{
    unsigned calls, allocated;
    struct dl_batch *batch;
    struct fake f;

    fake_run(&f, 64, 1000);
    fake_deliver(&f, 0, 8);
    for (uint64_t step = 0; step < 8; step++) /* warms pool, tree and queue */
        fake_next(&f, step);
    fake_deliver(&f, 8, 16);
    assert_int_equal(dl_client_dispatch(f.client), 0);
    calls = system_calls;
    allocated = allocations;
    for (uint64_t step = 8; step < 15; step++) {
        assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), 0);
        assert_int_equal(dl_batch_step(batch), step);
    }
    assert_int_equal(system_calls, calls);
    assert_int_equal(allocations, allocated);
    fake_end(&f);
}

/* ---- pins ---- */

TEST(test_pin)
{
    struct dl_batch *kept, *batch;
    struct dl_tensor image;
    struct fake f;

    fake_run(&f, 2, 10);
    fake_deliver(&f, 0, 2);
    kept = fake_next(&f, 0);
    assert_int_equal(dl_batch_pin(kept), 0);
    assert_int_equal(dl_batch_pin(kept), 0); /* once is enough */
    expect_steps(&f, DL_MSG_PIN, 0);
    batch = fake_next(&f, 1);
    assert_ptr_not_equal(batch, kept);
    fake_expect_silence(&f); /* next() did not give the pinned one back */
    /* Both credits are back once step 1 is, so two more may come. */
    expect_next(&f, -EAGAIN);
    expect_steps(&f, DL_MSG_RELEASE, 1);
    fake_deliver(&f, 2, 4);
    fake_next(&f, 2);
    fake_next(&f, 3);
    expect_steps(&f, DL_MSG_RELEASE, 2);
    assert_int_equal(dl_batch_tensor(kept, "image", &image), 0);
    assert_int_equal(*(const uint8_t *)image.data, 0);
    dl_batch_release(kept);
    expect_steps(&f, DL_MSG_RELEASE, 0);
    /* The release of a pin is no second credit: 4 and 5 use both. */
    expect_next(&f, -EAGAIN);
    expect_steps(&f, DL_MSG_RELEASE, 3);
    fake_deliver(&f, 4, 7);
    assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), -EPROTO);
    assert_non_null(strstr(dl_client_error(f.client), "exceeds its 2 credits"));
    fake_end(&f);
}

TEST(test_pin_outlives_epoch)
{
    struct dl_batch *first, *second;
    struct dl_tensor image;
    struct fake f;

    fake_run(&f, 4, 10);
    fake_deliver(&f, 0, 3);
    first = fake_next(&f, 0);
    assert_int_equal(dl_batch_pin(first), 0);
    second = fake_next(&f, 1);
    assert_int_equal(dl_batch_pin(second), 0);
    expect_steps(&f, DL_MSG_PIN, 0);
    expect_steps(&f, DL_MSG_PIN, 1);
    dl_epoch_end(f.epoch);
    fake_expect(&f, DL_MSG_STOP);
    expect_steps(&f, DL_MSG_RELEASE, 2); /* nobody has seen it: not before the stream has stopped */
    assert_int_equal(dl_batch_tensor(first, "image", &image), 0);
    assert_int_equal(*(const uint8_t *)image.data, 0);
    dl_batch_release(first);
    expect_steps(&f, DL_MSG_RELEASE, 0);
    /* The loader's end takes the pinned ones too. */
    dl_loader_close(f.loader);
    expect_steps(&f, DL_MSG_RELEASE, 1);
    fake_expect(&f, DL_MSG_CLOSE);
    fake_end(&f);
}

/* ---- faults ---- */

TEST(test_faults_in_place)
{
    struct fake f;

    fake_run(&f, 8, 4);
    fake_deliver(&f, 0, 1);
    fake_fault(&f, 1, EIO, false);
    fake_fault(&f, UINT64_MAX, ENOMEM, false);
    fake_deliver(&f, 2, 4);
    fake_finish(&f);
    dl_batch_pin(fake_next(&f, 0));
    expect_next(&f, -EIO);
    assert_string_equal(dl_client_error(f.client), "digits[3]: worker 1 was killed by SIGSEGV");
    assert_string_equal(dl_client_error_path(f.client), "digits[3]");
    expect_next(&f, -ENOMEM);
    fake_next(&f, 2);
    fake_next(&f, 3);
    expect_next(&f, DL_END);
    fake_end(&f);
}

/* The daemon had not heard yet of what was released. */
TEST(test_no_memory_is_not_news_to_who_holds_nothing)
{
    struct dl_batch *pinned;
    struct fake f;

    fake_run(&f, 8, 4);
    fake_deliver(&f, 0, 1);
    pinned = fake_next(&f, 0);
    assert_int_equal(dl_batch_pin(pinned), 0);
    fake_fault(&f, UINT64_MAX, ENOMEM, false);
    fake_fault(&f, UINT64_MAX, ENOMEM, false);
    expect_next(&f, -ENOMEM);
    dl_batch_release(pinned);
    expect_next(&f, -EAGAIN);
    fake_deliver(&f, 1, 2);
    fake_fault(&f, UINT64_MAX, ENOMEM, false);
    fake_next(&f, 1);
    fake_deliver(&f, 2, 4);
    fake_next(&f, 2);
    fake_next(&f, 3);
    /* The stream's last word is for everybody. */
    fake_fault(&f, UINT64_MAX, ENOMEM, true);
    expect_next(&f, -ENOMEM);
    expect_next(&f, DL_END);
    fake_end(&f);
}

TEST(test_final_fault)
{
    struct fake f;

    fake_run(&f, 8, 4);
    fake_deliver(&f, 0, 1);
    fake_fault(&f, UINT64_MAX, EBADMSG, true);
    fake_next(&f, 0);
    expect_next(&f, -EBADMSG);
    expect_next(&f, DL_END);
    dl_epoch_end(f.epoch);
    expect_steps(&f, DL_MSG_RELEASE, 0);
    fake_expect(&f, DL_MSG_STOP);
    fake_expect_silence(&f);
    fake_end(&f);
}

/* Codes that next() uses for "not ready yet", and none at all. */
TEST(test_fault_codes)
{
    struct fake f;

    fake_run(&f, 8, 4);
    fake_fault(&f, 0, EAGAIN, false);
    fake_fault(&f, 1, ETIMEDOUT, false);
    fake_fault(&f, 2, 0, false);
    expect_next(&f, -EIO);
    expect_next(&f, -EIO);
    expect_next(&f, -EIO);
    expect_next(&f, -EAGAIN);
    fake_end(&f);
}

TEST(test_many_faults)
{
    struct fake f;

    fake_run(&f, 4, 401);
    for (uint64_t step = 0; step < 400; step += 4) {
        for (uint64_t i = 0; i < 4; i++)
            fake_fault(&f, step + i, EIO, false);
        for (uint64_t i = 0; i < 4; i++) { /* that it was read is said as of a batch */
            expect_next(&f, -EIO);
            expect_steps(&f, DL_MSG_RELEASE, step + i);
        }
    }
    expect_next(&f, -EAGAIN);
    fake_end(&f);
}

TEST(test_faults_that_nobody_reads)
{
    struct fake f;

    fake_run(&f, 4, 10);
    fake_deliver(&f, 0, 1);
    fake_fault(&f, 1, EIO, false);
    fake_fault(&f, 2, EIO, false);
    fake_next(&f, 0);
    expect_next(&f, -EIO);
    expect_steps(&f, DL_MSG_RELEASE, 0);
    expect_steps(&f, DL_MSG_RELEASE, 1);
    dl_epoch_end(f.epoch);
    fake_expect(&f, DL_MSG_STOP);
    expect_steps(&f, DL_MSG_RELEASE, 2);
    fake_end(&f);
}

/* ---- several streams, stopped streams, segments ---- */

TEST(test_two_streams)
{
    struct dl_epoch *first, *second;
    struct dl_descriptor d;
    struct dl_message msg;
    struct fake f;

    fake_run(&f, 4, 10);
    first = f.epoch;
    msg = fake_started(&f, 10);
    msg.started.stream = FAKE_STREAM + 1;
    fake_send(&f, &msg);
    assert_int_equal(dl_epoch_start(f.loader, NULL, &second), 0);
    fake_expect(&f, DL_MSG_START);

    /* Batches of the first arrive while the second is waited for. */
    fake_deliver(&f, 0, 2);
    f.epoch = second;
    expect_next(&f, -EAGAIN);
    fake_fill(&f, 0, FAKE_ROWS);
    d = fake_descriptor(0, FAKE_ROWS);
    fake_send_descriptors(&f, FAKE_STREAM + 1, &d, 1);
    fake_next(&f, 0);
    f.epoch = first;
    fake_next(&f, 0);
    fake_next(&f, 1);
    fake_expect(&f, DL_MSG_RELEASE);
    dl_epoch_end(second);
    fake_expect(&f, DL_MSG_RELEASE);
    assert_int_equal(fake_expect(&f, DL_MSG_STOP).stop.stream, FAKE_STREAM + 1);
    fake_end(&f);
}

/* The daemon may have sent more before it read STOP. */
TEST(test_late_batches)
{
    struct dl_message msg;
    struct fake f;

    fake_run(&f, 4, 10);
    assert_int_equal(dl_client_dispatch(f.client), 0);
    dl_epoch_end(f.epoch);
    fake_expect(&f, DL_MSG_STOP);
    fake_deliver(&f, 0, 2);
    fake_fault(&f, 2, EIO, false);
    fake_finish(&f);
    assert_int_equal(dl_client_dispatch(f.client), 0);
    expect_steps(&f, DL_MSG_RELEASE, 0);
    expect_steps(&f, DL_MSG_RELEASE, 1);
    expect_steps(&f, DL_MSG_RELEASE, 2);
    /* Once a later request is answered the daemon has read STOP: the number is free again. */
    msg = fake_started(&f, 10);
    fake_send(&f, &msg);
    assert_int_equal(dl_epoch_start(f.loader, NULL, &f.epoch), 0);
    fake_expect(&f, DL_MSG_START);
    fake_deliver(&f, 0, 1);
    fake_next(&f, 0);
    fake_end(&f);
}

/* A retired segment stays mapped as long as a batch in it is not released. */
TEST(test_retire)
{
    struct dl_message msg = {.number = DL_MSG_RETIRE};
    struct dl_batch *batch;
    struct dl_tensor image;
    struct fake f;

    fake_run(&f, 4, 10);
    fake_deliver(&f, 0, 2);
    msg.retire.id = FAKE_SEGMENT;
    fake_send(&f, &msg);
    batch = fake_next(&f, 0);
    assert_int_equal(f.client->n_segments, 0);
    assert_int_equal(dl_batch_pin(batch), 0);
    fake_next(&f, 1);
    expect_next(&f, -EAGAIN);
    assert_int_equal(dl_batch_tensor(batch, "image", &image), 0);
    assert_int_equal(*(const uint8_t *)image.data, 0);
    dl_batch_release(batch);
    fake_end(&f);
}

TEST(test_writable)
{
    for (int writable = 0; writable < 2; writable++) {
        struct dl_message msg = fake_segment_message();
        struct segment_header header = fake_header();
        struct dl_tensor image;
        struct dl_batch *batch;
        struct fake f;

        fake_connect(&f);
        fake_open(&f);
        fake_start(&f, 4, 10);
        f.memfd = fake_memfd(FAKE_BYTES, &header, FAKE_ALL_SEALS);
        f.base = mmap(NULL, FAKE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, f.memfd, 0);
        assert_ptr_not_equal(f.base, MAP_FAILED);
        msg.segment.writable = (uint64_t)writable;
        fake_send_fd(&f, &msg, f.memfd);
        fake_deliver(&f, 0, 1);
        batch = fake_next(&f, 0);
        assert_int_equal(dl_batch_tensor(batch, "image", &image), 0);
        /* read() into the page says whether it may be written, without a signal. */
        int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
        ssize_t n = read(zero, (void *)(uintptr_t)image.data, 1);
        if (writable)
            assert_int_equal(n, 1);
        else
            assert_int_equal(n < 0 ? errno : 0, EFAULT);
        close(zero);
        fake_end(&f);
    }
}

/* ---- trees ---- */

/* {"pair": (uint8[2], {"x.y": int32}), "empty": []} in slot 0. */
static void fill_nested(struct fake *f)
{
    uint8_t *slot = fake_slot(f, 0);
    struct slot_header *header = (struct slot_header *)(void *)slot;
    struct tree tree = {0};

    fake_fill(f, 0, 1);
    assert_int_equal(tree_add(&tree, TREE_DICT, NULL, 2), 0);
    assert_int_equal(tree_add(&tree, TREE_TUPLE, "pair", 2), 0);
    assert_int_equal(tree_add_tensor(&tree, NULL, DL_DTYPE_UINT8, 1, (const uint64_t[]){2}), 0);
    assert_int_equal(tree_add(&tree, TREE_DICT, NULL, 1), 0);
    assert_int_equal(tree_add_tensor(&tree, "x.y", DL_DTYPE_INT32, 0, NULL), 0);
    assert_int_equal(tree_add(&tree, TREE_LIST, "empty", 0), 0);
    tree.nodes[2].offset = FAKE_DATA_AT;
    tree.nodes[4].offset = FAKE_DATA_AT + 64;
    header->tree_len = (uint32_t)tree_encoded_bytes(&tree);
    header->tree_count = tree.count;
    tree_encode(&tree, slot + FAKE_TREE_AT);
    tree_deinit(&tree);
}

TEST(test_tree)
{
    static const struct {
        enum dl_node_kind kind;
        uint32_t depth, children;
        const char *key;
    } rows[] = {
        {DL_NODE_DICT, 0, 2, NULL}, {DL_NODE_TUPLE, 1, 2, "pair"}, {DL_NODE_TENSOR, 2, 0, NULL},
        {DL_NODE_DICT, 2, 1, NULL}, {DL_NODE_TENSOR, 3, 0, "x.y"}, {DL_NODE_LIST, 1, 0, "empty"},
    };
    static const struct {
        const char *path;
        int want;
    } paths[] = {
        {"pair.0", 0},        {"pair.1.x.y", 0},
        {"pair", -EINVAL},    {"pair.1", -EINVAL},
        {"", -EINVAL},        {NULL, -EINVAL},
        {"empty", -EINVAL},   {"pair.2", -ENOENT},
        {"pair.00", -ENOENT}, {"pair.", -ENOENT},
        {"pair.0.", -ENOENT}, {"pai", -ENOENT},
        {"pairs", -ENOENT},   {"pair.1.x", -ENOENT},
        {".pair", -ENOENT},   {"pair.1.x.y.z", -ENOENT},
        {"empty.0", -ENOENT}, {"pair.-1", -ENOENT},
        {".", -ENOENT},
    };
    struct dl_tensor tensor;
    struct dl_descriptor d;
    struct dl_batch *batch;
    struct dl_node node;
    struct fake f;

    fake_run(&f, 4, 10);
    fill_nested(&f);
    d = fake_descriptor(0, 1);
    fake_send_descriptors(&f, FAKE_STREAM, &d, 1);
    assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), 0);
    assert_int_equal(dl_batch_nodes(batch), ARRAY_SIZE(rows));
    assert_int_equal(dl_batch_bytes(batch), 2 + 4);
    for (uint32_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_int_equal(dl_batch_node(batch, i, &node), 0);
        assert_int_equal(node.kind, rows[i].kind);
        assert_int_equal(node.depth, rows[i].depth);
        assert_int_equal(node.children, rows[i].children);
        assert_int_equal(node.key_len, rows[i].key ? strlen(rows[i].key) : 0);
        if (rows[i].key)
            assert_memory_equal(node.key, rows[i].key, node.key_len);
        else
            assert_null(node.key);
    }
    assert_int_equal(dl_batch_node(batch, ARRAY_SIZE(rows), &node), -EINVAL);
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
        if (dl_batch_tensor(batch, paths[i].path, &tensor) != paths[i].want)
            fail_msg("path '%s'", paths[i].path ? paths[i].path : "NULL");
    assert_int_equal(dl_batch_tensor(batch, "pair.1.x.y", &tensor), 0);
    assert_int_equal(tensor.dtype, DL_INT32);
    assert_int_equal(tensor.ndim, 0);
    assert_int_equal(tensor.nbytes, 4);
    assert_ptr_equal((const uint8_t *)tensor.data,
                     f.client->segments[0]->base + d.offset + FAKE_DATA_AT + 64);
    fake_end(&f);
}

/* The tree changes with the last, smaller batch; what was handed out before stays as it was. */
TEST(test_tree_changes)
{
    struct dl_batch *whole, *part;
    struct dl_tensor tensor;
    struct dl_descriptor d;
    struct fake f;

    fake_run(&f, 8, 10);
    fake_deliver(&f, 0, 1);
    whole = fake_next(&f, 0);
    assert_int_equal(dl_batch_pin(whole), 0);
    fake_fill(&f, 1, 2);
    d = fake_descriptor(1, 2);
    fake_send_descriptors(&f, FAKE_STREAM, &d, 1);
    part = fake_next(&f, 1);
    assert_int_equal(dl_batch_tensor(part, "image", &tensor), 0);
    assert_int_equal(tensor.shape[0], 2);
    assert_int_equal(dl_batch_tensor(whole, "image", &tensor), 0);
    assert_int_equal(tensor.shape[0], FAKE_ROWS);
    assert_int_equal(tensor.shape[1], FAKE_ROW_BYTES);
    assert_int_equal(tensor.ndim, 2);
    assert_int_equal(tensor.nbytes, FAKE_ROWS * FAKE_ROW_BYTES);
    fake_end(&f);
}

/* ---- a daemon that reads slowly ---- */

TEST(test_output_waits)
{
    struct dl_message info = {.number = DL_MSG_INFO};
    struct dl_message query = {.number = DL_MSG_QUERY};
    unsigned queued = 0;
    const void *data;
    struct fake f;
    size_t len;

    fake_connect(&f);
    query.query.view = span_str("status");
    /* Until the socket takes no more. */
    do {
        client_send(f.client, &query);
        assert_int_equal(client_flush(f.client), 0);
        queued++;
    } while (connection_unsent(&f.client->conn) == 0);
    assert_int_equal(client_wait(f.client, clock_ns()), CLIENT_LATE);
    /* The last one is cut off by the socket's end. */
    while (--queued > 0)
        fake_expect(&f, DL_MSG_QUERY);
    info.info.request = fake_next_request(&f);
    info.info.value = (struct dl_span){(const uint8_t *)"\x80", 1};
    fake_send(&f, &info);
    assert_int_equal(dl_client_query(f.client, "ring", &data, &len), 0);
    fake_expect(&f, DL_MSG_QUERY);
    assert_memory_equal(fake_expect(&f, DL_MSG_QUERY).query.view.data, "ring", 4);
    fake_expect_silence(&f);
    fake_end(&f);
}

TEST(test_output_is_bounded)
{
    struct dl_message query = {.number = DL_MSG_QUERY};
    struct fake f;

    fake_connect(&f);
    query.query.view = span_str("status");
    for (int i = 0; i < 1000000 && connection_check(&f.client->conn) == 0; i++)
        client_send(f.client, &query);
    assert_int_equal(dl_client_dispatch(f.client), -EPROTO);
    assert_non_null(strstr(dl_client_error(f.client), "stopped reading"));
    fake_end(&f);
}
