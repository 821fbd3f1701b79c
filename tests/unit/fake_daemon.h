/*
 * A daemon that says exactly what a test tells it, at the other end of a socket pair in the same
 * thread: what it answers is written before the client asks, since the numbers of requests are
 * known. For the tests of libdlclient; header-only, each program uses a part of it.
 */
#ifndef DL_TEST_FAKE_DAEMON_H
#define DL_TEST_FAKE_DAEMON_H

#include "tests/lib/harness.h"

#include "client/internal.h"
#include "proto/fdpass.h"
#include "proto/slot_fill.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum {
    FAKE_LOADER = 7,
    FAKE_STREAM = 3,
    FAKE_SEGMENT = 5,
    FAKE_SLOTS = 24,
    FAKE_SLOT_BYTES = 8192,
    FAKE_BYTES = SEGMENT_HEADER_BYTES + FAKE_SLOTS * FAKE_SLOT_BYTES,
    FAKE_ROWS = 4, /* samples in a batch: rows of 16 bytes each */
    FAKE_ROW_BYTES = 16,
    FAKE_TREE_AT = 256,
    FAKE_DATA_AT = 4096,
};

#define FAKE_ALL_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

struct fake {
    int sock; /* the daemon's end */
    struct frame_reader in;
    struct dl_client *client;
    struct dl_loader *loader;
    struct dl_epoch *epoch;
    uint8_t *base; /* of the segment, writable */
    int memfd;
};

/* ---- messages ---- */

static void _unused_ fake_send_fd(struct fake *f, const struct dl_message *msg, int fd)
{
    _cleanup_(buffer_deinit) struct dl_buffer out = {0};

    assert_int_equal(message_encode(msg, &out), 0);
    assert_int_equal(fdpass_send(f->sock, out.data, out.len, &fd, fd >= 0, 0), out.len);
}

static void _unused_ fake_send(struct fake *f, const struct dl_message *msg)
{
    fake_send_fd(f, msg, -1);
}

/* The next message the client has sent; its spans are valid until the next call. */
static struct dl_message _unused_ fake_receive(struct fake *f)
{
    struct dl_error err = {0};
    struct dl_message msg;
    struct dl_span payload;

    while (frame_reader_next(&f->in, &payload) == 0)
        assert_true(fdpass_recv(f->sock, &f->in, MSG_DONTWAIT) > 0);
    assert_int_equal(message_decode(payload.data, payload.len, FROM_CLIENT, &msg, &err), 0);
    return msg;
}

static struct dl_message _unused_ fake_expect(struct fake *f, enum message_number number)
{
    struct dl_message msg = fake_receive(f);

    assert_string_equal(message_name(msg.number), message_name(number));
    return msg;
}

/* Nothing more was sent. */
static void _unused_ fake_expect_silence(struct fake *f)
{
    struct dl_span payload;
    int r = frame_reader_next(&f->in, &payload);

    if (r == 0)
        assert_int_equal(fdpass_recv(f->sock, &f->in, MSG_DONTWAIT), -EAGAIN);
    assert_int_equal(r, 0);
}

static void _unused_ fake_expect_end(struct fake *f)
{
    ssize_t n = fdpass_recv(f->sock, &f->in, MSG_DONTWAIT);

    assert_true(n == 0 || n == -ECONNRESET);
}

/* The steps of a RELEASE or PIN, in order. */
static void _unused_ fake_expect_steps(struct fake *f, enum message_number number, uint32_t n,
                                       const uint64_t *steps)
{
    struct dl_message msg = fake_expect(f, number);
    struct dl_span span = number == DL_MSG_PIN ? msg.pin.steps : msg.release.steps;

    assert_int_equal(number == DL_MSG_PIN ? msg.pin.stream : msg.release.stream, FAKE_STREAM);
    assert_int_equal(span.len, n * sizeof *steps);
    assert_memory_equal(span.data, steps, span.len);
}

#define expect_steps(f, number, ...)                                                         \
    fake_expect_steps(f, number, sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), \
                      (const uint64_t[]){__VA_ARGS__})

/* ---- the session ---- */

static void _unused_ fake_pair(struct fake *f, int *ret_client)
{
    int pair[2];

    *f = (struct fake){.memfd = -1};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    f->sock = pair[0];
    *ret_client = pair[1];
}

static void _unused_ fake_welcome(struct fake *f)
{
    struct dl_message msg = {.number = DL_MSG_WELCOME};

    msg.welcome.version = DL_PROTOCOL_VERSION;
    msg.welcome.agent = span_str("fake");
    msg.welcome.session = 1;
    fake_send(f, &msg);
}

static void _unused_ fake_connect(struct fake *f)
{
    int fd;

    fake_pair(f, &fd);
    fake_welcome(f);
    assert_int_equal(client_adopt(&f->client, fd, "fake", "test", NS_PER_S), 0);
    assert_int_equal(fake_expect(f, DL_MSG_HELLO).hello.version, DL_PROTOCOL_VERSION);
}

static uint64_t _unused_ fake_next_request(struct fake *f)
{
    return f->client->conn.last_request + 1;
}

static const uint8_t FAKE_PARTS[40] = {1};

static struct dl_message _unused_ fake_opened(struct fake *f)
{
    struct dl_message msg = {.number = DL_MSG_OPENED};

    msg.opened = (struct dl_msg_opened){
        .request = fake_next_request(f),
        .loader = FAKE_LOADER,
        .label = span_str("digits"),
        .length = 1000,
        .in_order = 1,
        .batch = FAKE_ROWS,
        .seed = 42,
        .fingerprint = 0xF00D,
        .credits = 4,
        .parts = {FAKE_PARTS, sizeof FAKE_PARTS},
    };
    return msg;
}

static void _unused_ fake_open(struct fake *f)
{
    struct dl_message msg = fake_opened(f);

    fake_send(f, &msg);
    assert_int_equal(dl_loader_open(f->client, "name: digits", 12, "/data", &f->loader), 0);
    fake_expect(f, DL_MSG_OPEN);
}

static struct dl_message _unused_ fake_started(struct fake *f, uint64_t steps)
{
    struct dl_message msg = {.number = DL_MSG_STARTED};

    msg.started = (struct dl_msg_started){.request = fake_next_request(f),
                                          .stream = FAKE_STREAM,
                                          .steps = steps,
                                          .samples = steps * FAKE_ROWS};
    return msg;
}

static void _unused_ fake_start(struct fake *f, uint32_t credits, uint64_t steps)
{
    struct dl_message msg = fake_started(f, steps);

    fake_send(f, &msg);
    assert_int_equal(
        dl_epoch_start(f->loader, &(struct dl_epoch_options){.credits = credits}, &f->epoch), 0);
    fake_expect(f, DL_MSG_START);
}

/* ---- the ring ---- */

static struct segment_header _unused_ fake_header(void)
{
    return (struct segment_header){
        .magic = SEGMENT_MAGIC,
        .version = SEGMENT_LAYOUT_VERSION,
        .id = FAKE_SEGMENT,
        .bytes = FAKE_BYTES,
        .slot_bytes = FAKE_SLOT_BYTES,
        .slots = FAKE_SLOTS,
    };
}

static int _unused_ fake_memfd(uint64_t bytes, const struct segment_header *header, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(pwrite(fd, header, sizeof *header, 0), sizeof *header);
    if (seals)
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static struct dl_message _unused_ fake_segment_message(void)
{
    struct dl_message msg = {.number = DL_MSG_SEGMENT};

    msg.segment.id = FAKE_SEGMENT;
    msg.segment.bytes = FAKE_BYTES;
    return msg;
}

static void _unused_ fake_segment(struct fake *f)
{
    struct dl_message msg = fake_segment_message();
    struct segment_header header = fake_header();

    f->memfd = fake_memfd(FAKE_BYTES, &header, FAKE_ALL_SEALS);
    f->base = mmap(NULL, FAKE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, f->memfd, 0);
    assert_ptr_not_equal(f->base, MAP_FAILED);
    fake_send_fd(f, &msg, f->memfd);
}

static uint32_t _unused_ fake_slot_of(uint64_t step)
{
    return (uint32_t)(step % FAKE_SLOTS);
}

static uint8_t *_unused_ fake_slot(struct fake *f, uint64_t step)
{
    return f->base + slot_offset(FAKE_SLOT_BYTES, fake_slot_of(step));
}

/* {"image": uint8[rows, 16]} whose bytes are all the step's number. */
static void _unused_ fake_fill(struct fake *f, uint64_t step, uint32_t rows)
{
    uint8_t *slot = fake_slot(f, step);
    struct slot_header *header = (struct slot_header *)(void *)slot;
    uint64_t indices[FAKE_ROWS];
    struct tree tree = {0};

    assert_true(rows <= FAKE_ROWS);
    for (uint32_t i = 0; i < rows; i++)
        indices[i] = step * FAKE_ROWS + i;
    assert_true(slot_prepare(
        slot, FAKE_SLOT_BYTES,
        &(struct slot_task){
            .generation = 100 + step, .step = step, .indices = indices, .samples = rows}));
    assert_int_equal(tree_add(&tree, TREE_DICT, NULL, 1), 0);
    assert_int_equal(tree_add_tensor(&tree, "image", DL_DTYPE_UINT8, 2,
                                     (const uint64_t[]){rows, FAKE_ROW_BYTES}),
                     0);
    tree.nodes[1].offset = FAKE_DATA_AT;
    header->tree_off = FAKE_TREE_AT;
    header->tree_len = (uint32_t)tree_encoded_bytes(&tree);
    header->tree_count = tree.count;
    header->data_off = FAKE_DATA_AT;
    header->used = FAKE_DATA_AT + rows * FAKE_ROW_BYTES;
    tree_encode(&tree, slot + FAKE_TREE_AT);
    tree_deinit(&tree);
    memset(slot + FAKE_DATA_AT, (int)step, rows * FAKE_ROW_BYTES);
}

/* The batch of the filled slot is measured in tokens: FAKE_ROWS planned lengths 10, 11, ... */
static void _unused_ fake_plan(struct fake *f, uint64_t step, uint64_t padded)
{
    struct slot_header *header = (struct slot_header *)(void *)fake_slot(f, step);
    struct slot_planned *planned = slot_planned(header, FAKE_ROWS);

    header->planned = slot_planned_bytes(FAKE_ROWS, 0);
    *planned = (struct slot_planned){.padded = padded};
    for (uint32_t i = 0; i < FAKE_ROWS; i++)
        planned->lists[i] = 10 + i;
}

static struct dl_descriptor _unused_ fake_descriptor(uint64_t step, uint32_t rows)
{
    return (struct dl_descriptor){
        .step = step,
        .generation = 100 + step,
        .offset = slot_offset(FAKE_SLOT_BYTES, fake_slot_of(step)),
        .bytes = FAKE_DATA_AT + rows * FAKE_ROW_BYTES,
        .segment = FAKE_SEGMENT,
        .samples = rows,
    };
}

static void _unused_ fake_send_descriptors(struct fake *f, uint64_t stream,
                                           const struct dl_descriptor *d, uint32_t n)
{
    struct dl_message msg = {.number = DL_MSG_DELIVER};

    msg.deliver.stream = stream;
    msg.deliver.descriptors = (struct dl_span){(const uint8_t *)d, n * sizeof *d};
    fake_send(f, &msg);
}

/* Steps [from, to) of the one stream, filled and delivered in one message. */
static void _unused_ fake_deliver(struct fake *f, uint64_t from, uint64_t to)
{
    struct dl_descriptor d[64];
    uint32_t n = 0;

    for (uint64_t step = from; step < to; step++) {
        fake_fill(f, step, FAKE_ROWS);
        d[n++] = fake_descriptor(step, FAKE_ROWS);
    }
    fake_send_descriptors(f, FAKE_STREAM, d, n);
}

static void _unused_ fake_finish(struct fake *f)
{
    struct dl_message msg = {.number = DL_MSG_FINISHED};

    msg.finished.stream = FAKE_STREAM;
    fake_send(f, &msg);
}

static void _unused_ fake_fault(struct fake *f, uint64_t step, int code, bool final)
{
    struct dl_message msg = {.number = DL_MSG_FAULT};

    msg.fault.stream = FAKE_STREAM;
    msg.fault.step = step;
    msg.fault.code = (uint64_t)code;
    msg.fault.final = final;
    msg.fault.path = span_str("digits[3]");
    msg.fault.message = span_str("worker 1 was killed by SIGSEGV");
    fake_send(f, &msg);
}

static void _unused_ fake_warn(struct fake *f, uint64_t stream, const char *text)
{
    struct dl_message msg = {.number = DL_MSG_WARNING};

    msg.warning.stream = stream;
    msg.warning.message = span_str(text);
    fake_send(f, &msg);
}

/* Everything up to a running epoch with its segment. */
static void _unused_ fake_run(struct fake *f, uint32_t credits, uint64_t steps)
{
    fake_connect(f);
    fake_open(f);
    fake_start(f, credits, steps);
    fake_segment(f);
}

/* next() gives the batch of `step`, with the right bytes in it. */
static _unused_ struct dl_batch *fake_next(struct fake *f, uint64_t step)
{
    struct dl_batch *batch = NULL;
    struct dl_tensor image;

    assert_int_equal(dl_epoch_next(f->epoch, 0, &batch), 0);
    assert_int_equal(dl_batch_step(batch), step);
    assert_int_equal(dl_batch_tensor(batch, "image", &image), 0);
    assert_int_equal(*(const uint8_t *)image.data, (uint8_t)step);
    return batch;
}

/* The daemon goes first unless the client was closed by the test. */
static void _unused_ fake_end(struct fake *f)
{
    f->client = dl_client_close(f->client);
    if (f->base)
        munmap(f->base, FAKE_BYTES);
    close_fdp(&f->memfd);
    close_fdp(&f->sock);
    frame_reader_deinit(&f->in);
}

#endif
