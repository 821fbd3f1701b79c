/* The client as the sampler: what goes over the socket for what is fed, and how much may. */
#include "tests/unit/fake_daemon.h"

static bool calloc_fails;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    return calloc_fails ? NULL : __real_calloc(n, size);
}

struct batching {
    uint64_t size;
    bool drop_last;
    bool any_order;
};

enum { CREDITS = 3, WINDOW = 2 * CREDITS };

/* A running epoch that is fed, from step `first`. */
static void run_fed(struct fake *f, struct batching how, uint64_t first)
{
    struct dl_epoch_options options = {.credits = CREDITS, .step = first};
    struct dl_message msg;

    fake_connect(f);
    msg = fake_opened(f);
    msg.opened.batch = how.size;
    msg.opened.drop_last = how.drop_last;
    msg.opened.in_order = !how.any_order;
    msg.opened.order = STATE_CLIENT;
    fake_send(f, &msg);
    assert_int_equal(dl_loader_open(f->client, "x", 1, "/", &f->loader), 0);
    fake_expect(f, DL_MSG_OPEN);
    msg = fake_started(f, DL_UNKNOWN);
    msg.started.samples = DL_UNKNOWN;
    msg.started.first = first;
    fake_send(f, &msg);
    assert_int_equal(dl_epoch_start(f->loader, &options, &f->epoch), 0);
    fake_expect(f, DL_MSG_START);
    fake_segment(f);
    assert_true(dl_epoch_steps(f->epoch) == DL_UNKNOWN);
}

/* The daemon got one step of `n` indices from `from` on. */
static void expect_feed(struct fake *f, uint64_t from, uint32_t n, bool end)
{
    struct dl_message msg = fake_expect(f, DL_MSG_FEED);

    assert_int_equal(msg.feed.stream, FAKE_STREAM);
    assert_int_equal(msg.feed.end, end);
    assert_int_equal(msg.feed.indices.len, n * sizeof(uint64_t));
    for (uint32_t i = 0; i < n; i++) {
        uint64_t index;

        memcpy(&index, msg.feed.indices.data + i * sizeof index, sizeof index);
        assert_int_equal(index, from + i);
    }
}

static int64_t feed_from(struct fake *f, uint64_t from, size_t n)
{
    uint64_t indices[64];

    assert_true(n <= ARRAY_SIZE(indices));
    for (size_t i = 0; i < n; i++)
        indices[i] = from + i;
    return dl_epoch_feed(f->epoch, indices, n);
}

static int feed_batch(struct fake *f, uint64_t from, size_t n)
{
    uint64_t indices[64];

    assert_true(n <= ARRAY_SIZE(indices));
    for (size_t i = 0; i < n; i++)
        indices[i] = from + i;
    return dl_epoch_feed_batch(f->epoch, indices, n);
}

/* What the daemon has said is known, though next() was not called. */
static void take_in(struct fake *f)
{
    while (poll(&(struct pollfd){.fd = f->client->fd, .events = POLLIN}, 1, 0) > 0)
        assert_int_equal(dl_client_dispatch(f->client), 0);
}

static void expect_next(struct fake *f, int want)
{
    struct dl_batch *batch;

    assert_int_equal(dl_epoch_next(f->epoch, -1, &batch), want);
}

TEST(test_batches_of_indices)
{
    struct fake f;

    run_fed(&f, (struct batching){.size = 4}, 0);
    assert_int_equal(feed_from(&f, 0, 3), 3);
    fake_expect_silence(&f);
    assert_int_equal(feed_from(&f, 3, 6), 6);
    expect_feed(&f, 0, 4, false);
    expect_feed(&f, 4, 4, false);
    fake_expect_silence(&f);
    assert_int_equal(dl_epoch_feed(f.epoch, NULL, 0), 0);
    assert_int_equal(dl_epoch_feed_end(f.epoch), 0);
    expect_feed(&f, 8, 1, true);
    fake_deliver(&f, 0, 3);
    fake_finish(&f);
    for (uint64_t step = 0; step < 3; step++)
        fake_next(&f, step);
    expect_next(&f, DL_END);
    fake_end(&f);
}

static const struct {
    const char *name;
    struct batching how;
    uint32_t fed;  /* indices */
    uint32_t last; /* in the message with the end */
} ends[] = {
    {"nothing", {.size = 4}, 0, 0},
    {"whole", {.size = 4}, 4, 0},
    {"incomplete", {.size = 4}, 6, 2},
    {"incomplete, dropped", {.size = 4, .drop_last = true}, 6, 0},
    {"whole, none dropped", {.size = 4, .drop_last = true}, 4, 0},
    {"not batched", {.size = 0}, 2, 0},
};

TEST(test_ends)
{
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        uint32_t size = ends[i].how.size ? (uint32_t)ends[i].how.size : 1;
        struct fake f;

        run_fed(&f, ends[i].how, 0);
        assert_int_equal(feed_from(&f, 0, ends[i].fed), ends[i].fed);
        for (uint32_t at = 0; at + size <= ends[i].fed; at += size)
            expect_feed(&f, at, size, false);
        assert_int_equal(dl_epoch_feed_end(f.epoch), 0);
        expect_feed(&f, ends[i].fed - ends[i].last, ends[i].last, true);
        fake_expect_silence(&f);
        fake_end(&f);
    }
}

/* Whatever is delivered, only what next() gave out leaves room. */
TEST(test_no_more_than_twice_the_credits)
{
    uint64_t fed = 0, seen = 0;
    struct fake f;

    run_fed(&f, (struct batching){.size = 2}, 5);
    while (seen < 20) {
        int r;

        while ((r = feed_batch(&f, fed * 2, 2)) == 0) {
            expect_feed(&f, fed * 2, 2, false);
            fed++;
        }
        assert_int_equal(r, -EAGAIN);
        assert_string_equal(dl_client_error(f.client), "6 steps were fed and not received yet; "
                                                       "call dl_epoch_next()");
        assert_int_equal(fed - seen, WINDOW);
        assert_int_equal(feed_from(&f, 0, 5), -EAGAIN);
        fake_fault(&f, 5 + seen, EIO, false);
        take_in(&f);
        assert_int_equal(feed_batch(&f, 0, 2), -EAGAIN);
        expect_next(&f, -EIO);
        fake_expect(&f, DL_MSG_RELEASE);
        seen++;
    }
    fake_end(&f);
}

TEST(test_indices_are_taken_as_far_as_there_is_room)
{
    struct fake f;

    run_fed(&f, (struct batching){.size = 4}, 0);
    assert_int_equal(feed_from(&f, 0, 2), 2);
    assert_int_equal(feed_from(&f, 2, 40), WINDOW * 4 - 2);
    assert_int_equal(feed_from(&f, 24, 1), -EAGAIN);
    assert_int_equal(dl_epoch_feed(f.epoch, NULL, 0), 0);
    fake_deliver(&f, 0, 1);
    fake_next(&f, 0);
    assert_int_equal(feed_from(&f, 24, 3), 3);
    /* The batch that has begun has its place, and the end needs none. */
    assert_int_equal(feed_from(&f, 27, 9), 1);
    assert_int_equal(dl_epoch_feed_end(f.epoch), 0);
    for (uint64_t step = 0; step < WINDOW + 1; step++)
        expect_feed(&f, step * 4, 4, false);
    expect_feed(&f, 0, 0, true);
    fake_end(&f);
}

TEST(test_next_does_not_wait_for_what_is_not_fed)
{
    struct fake f;

    run_fed(&f, (struct batching){.size = 4}, 0);
    expect_next(&f, -ENODATA);
    assert_string_equal(dl_client_error(f.client),
                        "every step that was fed was received; feed more, or feed the end");
    assert_int_equal(feed_batch(&f, 0, 3), 0);
    assert_int_equal(feed_from(&f, 3, 3), 3);
    fake_deliver(&f, 0, 1);
    fake_next(&f, 0);
    expect_next(&f, -ENODATA); /* a part of a batch comes to nothing */
    expect_feed(&f, 0, 3, false);
    expect_steps(&f, DL_MSG_RELEASE, 0); /* what was read is released all the same */
    assert_int_equal(feed_from(&f, 6, 1), 1);
    assert_int_equal(dl_epoch_next(f.epoch, 0, &(struct dl_batch *){NULL}), -EAGAIN);
    assert_int_equal(dl_epoch_feed_end(f.epoch), 0);
    fake_deliver(&f, 1, 2);
    fake_next(&f, 1);
    assert_int_equal(dl_epoch_next(f.epoch, 0, &(struct dl_batch *){NULL}), -EAGAIN);
    fake_finish(&f);
    expect_next(&f, DL_END);
    fake_end(&f);
}

/* The daemon's end is noticed although there is nothing to wait for. */
TEST(test_a_daemon_that_goes_away)
{
    struct fake f;

    run_fed(&f, (struct batching){.size = 4}, 0);
    close_fdp(&f.sock);
    expect_next(&f, -ECONNRESET);
    assert_int_equal(feed_batch(&f, 0, 1), -ECONNRESET);
    assert_int_equal(feed_from(&f, 0, 1), -ECONNRESET);
    assert_int_equal(dl_epoch_feed_end(f.epoch), -ECONNRESET);
    fake_end(&f);
}

TEST(test_a_final_fault)
{
    struct fake f;

    run_fed(&f, (struct batching){.size = 4}, 0);
    assert_int_equal(feed_batch(&f, 0, 1), 0);
    fake_fault(&f, UINT64_MAX, EIO, false); /* of no step: one is still to come */
    expect_next(&f, -EIO);
    assert_int_equal(dl_epoch_next(f.epoch, 0, &(struct dl_batch *){NULL}), -EAGAIN);
    for (uint64_t i = 1; i < WINDOW - 1; i++)
        assert_int_equal(feed_batch(&f, i, 1), 0);
    assert_int_equal(feed_from(&f, 5, 2), 2);
    fake_fault(&f, UINT64_MAX, EIO, true);
    take_in(&f);
    assert_int_equal(feed_from(&f, 7, 2), -EAGAIN);
    expect_next(&f, -EIO);
    expect_next(&f, DL_END);
    assert_int_equal(dl_epoch_feed_end(f.epoch), 0);
    for (uint64_t i = 0; i < WINDOW - 1; i++)
        expect_feed(&f, i, 1, false);
    fake_expect_silence(&f);
    fake_end(&f);
}

TEST(test_misuse)
{
    struct fake f;

    run_fed(&f, (struct batching){.size = 4}, 0);
    assert_int_equal(feed_batch(&f, 0, 0), -EINVAL);
    assert_string_equal(dl_client_error(f.client), "indices: 0 for a step, which has 1 to 4");
    assert_int_equal(feed_batch(&f, 0, 5), -EINVAL);
    assert_string_equal(dl_client_error(f.client), "indices: 5 for a step, which has 1 to 4");
    assert_int_equal(feed_from(&f, 0, 3), 3);
    assert_int_equal(feed_batch(&f, 0, 2), -EINVAL);
    assert_string_equal(dl_client_error(f.client),
                        "indices: 3 indices of dl_epoch_feed() wait for their batch of 4: feed the "
                        "rest of it first");
    assert_int_equal(feed_from(&f, 3, 1), 1);
    expect_feed(&f, 0, 4, false);
    assert_int_equal(feed_batch(&f, 4, 2), 0);
    expect_feed(&f, 4, 2, false);
    assert_int_equal(dl_epoch_feed_end(f.epoch), 0);
    expect_feed(&f, 0, 0, true);
    assert_int_equal(dl_epoch_feed_end(f.epoch), -EINVAL);
    assert_int_equal(feed_from(&f, 0, 1), -EINVAL);
    assert_int_equal(feed_batch(&f, 0, 1), -EINVAL);
    assert_string_equal(dl_client_error(f.client), "sampler.kind: the order has already ended");
    fake_expect_silence(&f);
    fake_end(&f);
}

TEST(test_a_sampler_of_its_own)
{
    struct fake f;

    fake_run(&f, CREDITS, 9);
    assert_int_equal(feed_from(&f, 0, 1), -EINVAL);
    assert_int_equal(feed_batch(&f, 0, 1), -EINVAL);
    assert_int_equal(dl_epoch_feed_end(f.epoch), -EINVAL);
    assert_string_equal(dl_client_error(f.client), "sampler.kind: this loader has its own "
                                                   "sampler; only sampler.kind client can be fed");
    fake_expect_silence(&f);
    fake_end(&f);
}

TEST(test_steps_that_do_not_fit_a_message)
{
    uint64_t *indices = calloc(DL_MAX_FEED_INDICES, sizeof *indices);
    struct dl_message msg;
    struct fake f;
    int size = 4 << 20;

    run_fed(&f, (struct batching){.size = DL_MAX_FEED_INDICES + 1}, 0);
    assert_int_equal(feed_from(&f, 0, 1), -EINVAL);
    assert_string_equal(dl_client_error(f.client),
                        "batch.size: 65537 is above 65536, the most indices of a step that a "
                        "client feeds");
    assert_int_equal(feed_batch(&f, 0, 1), -EINVAL);
    fake_end(&f);

    run_fed(&f, (struct batching){.size = DL_MAX_FEED_INDICES}, 0);
    assert_int_equal(setsockopt(f.client->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size), 0);
    assert_int_equal(dl_epoch_feed_batch(f.epoch, indices, DL_MAX_FEED_INDICES), 0);
    while (connection_unsent(&f.client->conn) > 0) {
        assert_true(fdpass_recv(f.sock, &f.in, MSG_DONTWAIT) > 0);
        assert_int_equal(client_flush(f.client), 0);
    }
    msg = fake_expect(&f, DL_MSG_FEED);
    assert_int_equal(msg.feed.indices.len, DL_MAX_FEED_INDICES * sizeof *indices);
    free(indices);
    fake_end(&f);
}

/* A daemon that does not read takes no memory beyond a bound, and no session's end. */
TEST(test_a_daemon_that_does_not_read)
{
    uint64_t *indices = calloc(DL_MAX_FEED_INDICES, sizeof *indices);
    struct fake f;
    int r;

    run_fed(&f, (struct batching){.size = DL_MAX_FEED_INDICES}, 0);
    f.epoch->credits = 1000;
    while ((r = dl_epoch_feed_batch(f.epoch, indices, DL_MAX_FEED_INDICES)) == 0)
        ;
    assert_int_equal(r, -EAGAIN);
    assert_int_equal(dl_epoch_feed(f.epoch, indices, DL_MAX_FEED_INDICES), -EAGAIN);
    assert_true(connection_unsent(&f.client->conn) < CONNECTION_OUTPUT_MAX / 2);
    assert_true(dl_client_is_usable(f.client));
    free(indices);
    fake_end(&f);
}

TEST(test_out_of_memory)
{
    struct fake f;

    run_fed(&f, (struct batching){.size = 4}, 0);
    calloc_fails = true;
    assert_int_equal(feed_from(&f, 0, 1), -ENOMEM);
    assert_int_equal(feed_batch(&f, 0, 1), -ENOMEM);
    calloc_fails = false;
    assert_int_equal(feed_batch(&f, 0, 1), 0);
    expect_feed(&f, 0, 1, false);
    fake_end(&f);
}

/* A daemon that delivers what was never fed, in order or not, or ends before all is delivered. */
TEST(test_violations)
{
    struct fake f;

    for (int any_order = 0; any_order < 2; any_order++) {
        run_fed(&f, (struct batching){.size = 4, .any_order = any_order}, 0);
        assert_int_equal(feed_batch(&f, 0, 4), 0);
        fake_deliver(&f, 0, 2);
        expect_next(&f, -EPROTO);
        fake_end(&f);
    }
    run_fed(&f, (struct batching){.size = 4}, 0);
    assert_int_equal(feed_batch(&f, 0, 4), 0);
    assert_int_equal(dl_epoch_feed_end(f.epoch), 0);
    fake_finish(&f);
    expect_next(&f, -EPROTO);
    assert_non_null(strstr(dl_client_error(f.client), "ends after 0 of the 1 steps from 0"));
    fake_end(&f);
}
