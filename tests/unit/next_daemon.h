/*
 * A fake daemon that ends, and others that follow it at the same path: for test_client_reconnect.c
 * and test_client_former_leases.c.
 */
#ifndef DL_TEST_NEXT_DAEMON_H
#define DL_TEST_NEXT_DAEMON_H

#include "tests/unit/fake_daemon.h"

#include <stdio.h>
#include <sys/un.h>

enum { PAUSE_LITTLE = 1000 * 1000 }; /* ns */
enum { LIFE = 1, NEXT_LIFE = 2, NEXT_LOADER = 17, NEXT_STREAM = 13, ANY_ORDER = 1, FED = 2 };

static int listener = -1;

static const char *socket_path(void)
{
    static char path[100];

    snprintf(path, sizeof path, "%s/socket", harness_tmpdir());
    return path;
}

static void listen_again(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    strcpy(a.sun_path, socket_path());
    unlink(socket_path());
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(listener, (const struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(listener, 8), 0);
}

static void welcome(struct fake *f, uint64_t life)
{
    struct dl_message msg = {.number = DL_MSG_WELCOME};

    msg.welcome.version = DL_PROTOCOL_VERSION;
    msg.welcome.agent = span_str("fake");
    msg.welcome.life = life;
    fake_send(f, &msg);
}

/* A session whose daemon can be followed by another. */
static void connect_to(struct fake *f, uint64_t life)
{
    int fd;

    fake_pair(f, &fd);
    welcome(f, life);
    assert_int_equal(client_adopt(&f->client, fd, "fake", "test", NS_PER_S), 0);
    fake_expect(f, DL_MSG_HELLO);
    f->client->reconnect.path = strdup(socket_path());
    f->client->reconnect.agent = strdup("test");
}

static struct dl_message opened_as(struct fake *f, int kind)
{
    struct dl_message msg = fake_opened(f);

    msg.opened.in_order = !(kind & ANY_ORDER);
    msg.opened.order = kind & FED ? STATE_CLIENT : STATE_SEQUENTIAL;
    return msg;
}

/* A running epoch of so many steps, and its segment. */
static void run(struct fake *f, int kind, uint64_t steps)
{
    struct dl_message msg;

    connect_to(f, LIFE);
    msg = opened_as(f, kind);
    fake_send(f, &msg);
    assert_int_equal(dl_loader_open(f->client, "name: digits", 12, "/data", &f->loader), 0);
    assert_int_equal(fake_expect(f, DL_MSG_OPEN).open.seeded, 0);
    fake_start(f, 8, kind & FED ? DL_UNKNOWN : steps);
    fake_segment(f);
}

static void end_session(struct fake *f)
{
    close_fdp(&f->sock);
    frame_reader_deinit(&f->in);
}

/* Whatever the client can do now. */
static void turn(struct fake *f)
{
    for (int i = 0; i < 6; i++)
        assert_int_equal(dl_client_dispatch(f->client), 0);
}

/* The session ends, and the client notices. */
static void lose(struct fake *f)
{
    end_session(f);
    turn(f);
}

/* The client comes to the next daemon. */
static void come(struct fake *f, uint64_t life)
{
    f->client->reconnect.next_try = 0;
    turn(f);
    f->sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(f->sock >= 0);
    assert_int_equal(fake_expect(f, DL_MSG_HELLO).hello.version, DL_PROTOCOL_VERSION);
    welcome(f, life);
    turn(f);
}

/* The answer to an OPEN that was asked already. */
static void _unused_ say_opened(struct fake *f)
{
    struct dl_message msg = fake_opened(f);

    msg.opened.request--;
    fake_send(f, &msg);
}

static void _unused_ say_started(struct fake *f, uint64_t steps)
{
    struct dl_message msg = fake_started(f, steps);

    msg.started.request--;
    fake_send(f, &msg);
}

static void open_again(struct fake *f, int kind)
{
    struct dl_message msg = fake_expect(f, DL_MSG_OPEN);

    assert_int_equal(msg.open.seeded, 1);
    assert_int_equal(msg.open.seed, 42);
    assert_memory_equal(msg.open.base.data, "/data", 5);
    assert_memory_equal(msg.open.spec.data,
                        "\xac"
                        "name: digits",
                        13);
    msg = opened_as(f, kind);
    msg.opened.request--; /* it was asked already */
    msg.opened.loader = NEXT_LOADER;
    fake_send(f, &msg);
    turn(f);
}

static void come_and_open(struct fake *f, int kind)
{
    come(f, NEXT_LIFE);
    open_again(f, kind);
}

/* START as it came. */
static struct dl_message start_again(struct fake *f, uint64_t steps, uint64_t step)
{
    struct dl_message start = fake_expect(f, DL_MSG_START), msg = fake_started(f, steps);

    assert_int_equal(start.start.loader, NEXT_LOADER);
    assert_int_equal(start.start.step, step);
    assert_int_equal(start.start.credits, 8);
    assert_int_equal(start.start.world, 1);
    msg.started.request--;
    msg.started.stream = NEXT_STREAM;
    msg.started.first = step;
    fake_send(f, &msg);
    turn(f);
    return start;
}

/* The segment of another daemon: the same number, other memory. */
static void segment_again(struct fake *f)
{
    munmap(f->base, FAKE_BYTES);
    close_fdp(&f->memfd);
    fake_segment(f);
}

static void _unused_ come_back(struct fake *f, int kind, uint64_t steps, uint64_t step)
{
    come_and_open(f, kind);
    start_again(f, kind & FED ? DL_UNKNOWN : steps, step);
    segment_again(f);
}

static void deliver(struct fake *f, uint64_t stream, uint64_t step)
{
    struct dl_descriptor d = fake_descriptor(step, FAKE_ROWS);

    fake_fill(f, step, FAKE_ROWS);
    fake_send_descriptors(f, stream, &d, 1);
}

static void deliver_there(struct fake *f, uint64_t step)
{
    segment_again(f);
    deliver(f, NEXT_STREAM, step);
}

static void finish(struct fake *f)
{
    struct dl_message msg = {.number = DL_MSG_FINISHED};

    msg.finished.stream = NEXT_STREAM;
    fake_send(f, &msg);
}

static void expect_release(struct fake *f, uint64_t step)
{
    struct dl_message msg = fake_expect(f, DL_MSG_RELEASE);
    uint64_t got;

    assert_int_equal(msg.release.stream, NEXT_STREAM);
    assert_int_equal(msg.release.steps.len, sizeof got);
    memcpy(&got, msg.release.steps.data, sizeof got);
    assert_int_equal(got, step);
}

static void _unused_ first_byte(struct dl_batch *batch, uint64_t step)
{
    struct dl_tensor image;

    assert_int_equal(dl_batch_step(batch), step);
    assert_int_equal(dl_batch_tensor(batch, "image", &image), 0);
    assert_int_equal(*(const uint8_t *)image.data, (uint8_t)step);
}

static void _unused_ delete_tensor(struct DLManagedTensor *tensor)
{
    struct {
        uint8_t dl_tensor[48];
        void *manager_ctx;
        void (*deleter)(struct DLManagedTensor *self);
    } managed;

    memcpy(&managed, tensor, sizeof managed);
    managed.deleter(tensor);
}

static void _unused_ feed(struct fake *f, uint64_t from, uint64_t to)
{
    for (uint64_t step = from; step < to; step++)
        assert_int_equal(dl_epoch_feed_batch(f->epoch, (const uint64_t[]){step, step * 7}, 2), 0);
}

static void _unused_ expect_feed(struct fake *f, uint64_t stream, uint64_t from, uint64_t to,
                                 bool end)
{
    for (uint64_t step = from; step < to; step++) {
        struct dl_message msg = fake_expect(f, DL_MSG_FEED);
        uint64_t indices[2];

        assert_int_equal(msg.feed.stream, stream);
        assert_int_equal(msg.feed.indices.len, sizeof indices);
        memcpy(indices, msg.feed.indices.data, sizeof indices);
        assert_int_equal(indices[0], step);
        assert_int_equal(indices[1], step * 7);
        assert_int_equal(msg.feed.end, end && step + 1 == to);
    }
}

static void _unused_ refuse(struct fake *f, uint64_t request, int code, const char *path)
{
    struct dl_message msg = {.number = DL_MSG_ERROR};

    msg.error.request = request;
    msg.error.code = (uint64_t)code;
    msg.error.path = span_str(path);
    msg.error.message = span_str("no such thing");
    fake_send(f, &msg);
}

static int setup(void **state)
{
    listen_again();
    return 0;
}

static int teardown(void **state)
{
    close_fdp(&listener);
    return 0;
}

#endif
