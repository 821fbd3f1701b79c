/*
 * A daemon that breaks every rule, one at a time: libdlclient answers with -EPROTO and a text,
 * latches it, and neither crashes nor hangs.
 */
#include "tests/unit/fake_daemon.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>

/* ---- segments ---- */

struct bad_segment {
    const char *name;
    uint64_t announced, size; /* bytes; 0: FAKE_BYTES */
    int seals;                /* -1: FAKE_ALL_SEALS */
    struct segment_header header;
    const char *text;
};

#define HEADER(...)                                                                          \
    {                                                                                        \
        .magic = SEGMENT_MAGIC, .version = SEGMENT_LAYOUT_VERSION, .id = FAKE_SEGMENT,       \
        .bytes = FAKE_BYTES, .slot_bytes = FAKE_SLOT_BYTES, .slots = FAKE_SLOTS, __VA_ARGS__ \
    }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
static const struct bad_segment bad_segments[] = {
    {"unsealed", 0, 0, 0, HEADER(), "not sealed"},
    {"may shrink", 0, 0, F_SEAL_GROW, HEADER(), "not sealed"},
    {"may grow", 0, 0, F_SEAL_SHRINK, HEADER(), "not sealed"},
    {"shorter than announced", 0, FAKE_BYTES - 4096, -1, HEADER(), "size in bytes"},
    {"longer than announced", 0, FAKE_BYTES + 4096, -1, HEADER(), "size in bytes"},
    {"empty", 0, 40, -1, HEADER(), "size in bytes"},
    {"announced as 0 bytes", 1, 40, -1, HEADER(), "size in bytes"},
    {"header only", 4096, 4096, -1, HEADER(.bytes = 4096), "size in bytes"},
    {"magic", 0, 0, -1, HEADER(.magic = 1), "magic"},
    {"version", 0, 0, -1, HEADER(.version = 2), "layout version"},
    {"id", 0, 0, -1, HEADER(.id = FAKE_SEGMENT + 1), "id in its header"},
    {"bytes", 0, 0, -1, HEADER(.bytes = 4096), "size in its header"},
    {"no slots", 0, 0, -1, HEADER(.slots = 0), "slots"},
    {"too many slots", 0, 0, -1, HEADER(.slots = 65537), "slots"},
    {"one slot too many", 0, 0, -1, HEADER(.slots = FAKE_SLOTS + 1), "bytes a slot"},
    {"slots of 0", 0, 0, -1, HEADER(.slot_bytes = 0), "bytes a slot"},
    {"slots not on pages", 0, 0, -1, HEADER(.slot_bytes = 8191), "bytes a slot"},
    {"overflow", 0, 0, -1, HEADER(.slot_bytes = 1ULL << 62, .slots = 4), "bytes a slot"},
};
#pragma GCC diagnostic pop

static void expect_violation(struct fake *f, const char *name, const char *text)
{
    struct dl_batch *batch = NULL;
    int r;

    do
        r = dl_client_dispatch(f->client);
    while (r == 0 && poll(&(struct pollfd){.fd = f->client->fd, .events = POLLIN}, 1, 0) > 0);
    if (r == 0)
        while ((r = dl_epoch_next(f->epoch, 0, &batch)) == 0)
            ;
    if (r != -EPROTO)
        fail_msg("%s: %d (%s)", name, r, dl_client_error(f->client));
    if (!strstr(dl_client_error(f->client), text))
        fail_msg("%s: '%s' does not say '%s'", name, dl_client_error(f->client), text);
    /* Latched. */
    assert_int_equal(dl_client_is_usable(f->client), 0);
    assert_int_equal(dl_client_dispatch(f->client), -EPROTO);
    assert_int_equal(dl_epoch_next(f->epoch, -1, &batch), -EPROTO);
}

TEST(test_bad_segments)
{
    for (size_t i = 0; i < ARRAY_SIZE(bad_segments); i++) {
        const struct bad_segment *row = &bad_segments[i];
        struct dl_message msg = fake_segment_message();
        struct fake f;

        fake_connect(&f);
        fake_open(&f);
        fake_start(&f, 4, 10);
        f.memfd = fake_memfd(row->size ? row->size : FAKE_BYTES, &row->header,
                             row->seals < 0 ? FAKE_ALL_SEALS : row->seals);
        if (row->announced)
            msg.segment.bytes = row->announced == 1 ? 0 : row->announced;
        fake_send_fd(&f, &msg, f.memfd);
        expect_violation(&f, row->name, row->text);
        fake_end(&f);
    }
}

static void send_segment_of(struct fake *f, int fd)
{
    struct dl_message msg = fake_segment_message();

    close_fdp(&f->memfd);
    f->memfd = fd;
    fake_send_fd(f, &msg, fd);
}

TEST(test_other_descriptors)
{
    struct segment_header header = fake_header();
    const char *path = harness_file("segment", &header, sizeof header);
    char link[64];
    struct fake f;
    int fd;

    /* No memfd; no descriptor at all; a sealed one that may not be written, announced writable. */
    fake_run(&f, 4, 10);
    send_segment_of(&f, -1);
    expect_violation(&f, "none", "without its file descriptor");
    fake_end(&f);

    for (int i = 0; i < 2; i++) {
        fake_connect(&f);
        fake_open(&f);
        fake_start(&f, 4, 10);
        send_segment_of(&f, open(i == 0 ? path : "/dev/null", O_RDWR | O_CLOEXEC));
        expect_violation(&f, "no memfd", i == 0 ? "segment 5: not " : "not a memfd");
        fake_end(&f);
    }

    struct dl_message msg = fake_segment_message();
    fake_connect(&f);
    fake_open(&f);
    fake_start(&f, 4, 10);
    f.memfd = fake_memfd(FAKE_BYTES, &header, FAKE_ALL_SEALS);
    snprintf(link, sizeof link, "/proc/self/fd/%d", f.memfd);
    fd = open(link, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    msg.segment.writable = 1;
    fake_send_fd(&f, &msg, fd);
    close(fd);
    expect_violation(&f, "read-only", "cannot be mapped");
    fake_end(&f);
}

/* A descriptor with a message that carries none. */
TEST(test_surplus_descriptor)
{
    struct dl_message msg = {.number = DL_MSG_FINISHED};
    struct fake f;
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    fake_run(&f, 4, 0);
    msg.finished.stream = FAKE_STREAM;
    fake_send_fd(&f, &msg, fd);
    close(fd);
    expect_violation(&f, "surplus", "file descriptors came with no message");
    fake_end(&f);
}

TEST(test_segment_table)
{
    struct dl_message msg = {.number = DL_MSG_RETIRE};
    struct fake f;

    fake_run(&f, 4, 10);
    msg = fake_segment_message();
    fake_send_fd(&f, &msg, f.memfd);
    expect_violation(&f, "twice", "came before");
    fake_end(&f);

    fake_run(&f, 4, 10);
    msg = (struct dl_message){.number = DL_MSG_RETIRE};
    msg.retire.id = 99;
    fake_send(&f, &msg);
    expect_violation(&f, "retire", "segment 99 is not known");
    fake_end(&f);
}

/* ---- descriptors ---- */

enum { STREAM, STEP, GENERATION, OFFSET, BYTES, SEGMENT, SAMPLES, FIRST, REPEATED };

static const struct {
    const char *name;
    int field;
    uint64_t value;
    const char *text;
} bad_descriptors[] = {
    {"unknown stream", STREAM, 99, "stream 99 is not known"},
    {"a step again", STEP, 0, "step 0 of stream 3 instead of step 1 of 10"},
    {"a step left out", STEP, 2, "step 2 of stream 3 instead of step 1 of 10"},
    {"a step beyond all", STEP, UINT64_MAX, "instead of step 1 of 10"},
    {"stale", GENERATION, 7, "generation"},
    {"unknown segment", SEGMENT, 6, "segment 6, which is not known"},
    {"in the header", OFFSET, 0, "is not a slot"},
    {"off a slot", OFFSET, SEGMENT_HEADER_BYTES + 64, "is not a slot"},
    {"behind the last slot", OFFSET, FAKE_BYTES, "is not a slot"},
    {"far away", OFFSET, UINT64_MAX - 4095, "is not a slot"},
    {"wrapping", OFFSET, 0 - (uint64_t)FAKE_SLOT_BYTES + SEGMENT_HEADER_BYTES, "is not a slot"},
    {"longer than a slot", BYTES, FAKE_SLOT_BYTES + 1, "is not a slot"},
    {"huge", BYTES, UINT64_MAX, "is not a slot"},
    {"shorter than its header", BYTES, SLOT_HEADER_BYTES - 1, "is not a slot"},
    {"no samples", SAMPLES, 0, "is not a slot"},
    {"absurd samples", SAMPLES, UINT32_MAX, "is not a slot"},
    {"more samples than there are", SAMPLES, FAKE_ROWS + 1, "samples 4 where 5 is due"},
    {"rows beyond", FIRST, 1, "samples 4 where 5 is due"},
    {"rows far beyond", FIRST, UINT32_MAX, "samples 4 where 4294967299 is due"},
    {"more repeated than there are", REPEATED, FAKE_ROWS + 1, "step 1 repeats 5 of its 4 samples"},
    {"another step's slot", OFFSET, SEGMENT_HEADER_BYTES, "generation 100 where 101 is due"},
};

TEST(test_bad_descriptors)
{
    for (size_t i = 0; i < ARRAY_SIZE(bad_descriptors); i++) {
        struct dl_descriptor d = fake_descriptor(1, FAKE_ROWS);
        uint64_t value = bad_descriptors[i].value, stream = FAKE_STREAM;
        struct fake f;

        switch (bad_descriptors[i].field) {
        case STREAM:
            stream = value;
            break;
        case STEP:
            d.step = value;
            break;
        case GENERATION:
            d.generation = value;
            break;
        case OFFSET:
            d.offset = value;
            break;
        case BYTES:
            d.bytes = value;
            break;
        case SEGMENT:
            d.segment = (uint32_t)value;
            break;
        case SAMPLES:
            d.samples = (uint32_t)value;
            break;
        case FIRST:
            d.first = (uint32_t)value;
            break;
        case REPEATED:
            d.repeated = (uint32_t)value;
            break;
        }
        fake_run(&f, 4, 10);
        fake_deliver(&f, 0, 1);
        fake_next(&f, 0);
        fake_fill(&f, 1, FAKE_ROWS);
        fake_send_descriptors(&f, stream, &d, 1);
        expect_violation(&f, bad_descriptors[i].name, bad_descriptors[i].text);
        fake_end(&f);
    }
}

TEST(test_too_many_batches)
{
    struct fake f;

    fake_run(&f, 2, 10);
    fake_deliver(&f, 0, 3);
    expect_violation(&f, "credits", "exceeds its 2 credits");
    fake_end(&f);
    fake_run(&f, 2, 10); /* a fault takes one, too */
    fake_deliver(&f, 0, 2);
    fake_fault(&f, 2, EIO, false);
    expect_violation(&f, "faults", "exceeds its 2 credits");
    fake_end(&f);
}

TEST(test_beyond_the_last_step)
{
    struct fake f;

    fake_run(&f, 4, 1);
    fake_deliver(&f, 0, 2);
    expect_violation(&f, "steps", "step 1 of stream 3 instead of step 1 of 1");
    fake_end(&f);

    fake_run(&f, 4, 2);
    fake_finish(&f);
    expect_violation(&f, "early", "ends after 0 of the 2 steps from 0");
    fake_end(&f);
}

/* Nothing may follow FINISHED or a final fault. */
TEST(test_after_the_end)
{
    for (int i = 0; i < 5; i++) {
        struct fake f;

        fake_run(&f, 4, 1);
        if (i < 2) {
            fake_deliver(&f, 0, 1);
            fake_finish(&f);
        } else {
            fake_fault(&f, UINT64_MAX, EIO, true);
        }
        if (i == 0)
            fake_finish(&f);
        else if (i == 1)
            fake_fault(&f, UINT64_MAX, EIO, false);
        else if (i == 2)
            fake_deliver(&f, 0, 1);
        else if (i == 3)
            fake_fault(&f, 0, EIO, true);
        else
            fake_warn(&f, FAKE_STREAM, "late");
        expect_violation(&f, "after the end", "is over");
        fake_end(&f);
    }
}

/* However many warnings come, one is kept; an unknown stream's is no warning. */
TEST(test_warnings)
{
    struct dl_batch *batch;
    char text[32];
    struct fake f;

    fake_run(&f, 4, 10);
    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof text, "warning %d", i);
        fake_warn(&f, FAKE_STREAM, text);
        assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), -EAGAIN);
    }
    assert_string_equal(dl_epoch_warning(f.epoch), "warning 999");
    assert_null(dl_epoch_warning(f.epoch));
    fake_warn(&f, FAKE_STREAM, "never asked for");
    assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), -EAGAIN);
    fake_warn(&f, 99, "whose?");
    expect_violation(&f, "warning", "WARNING: stream 99 is not known");
    fake_end(&f);
}

TEST(test_fault_out_of_order)
{
    struct fake f;

    fake_run(&f, 4, 10);
    fake_fault(&f, 1, EIO, false);
    expect_violation(&f, "fault", "FAULT: step 1 of stream 3 instead of step 0 of 10");
    fake_end(&f);
}

/* ---- slots ---- */

#define AT_HEADER(field) offsetof(struct slot_header, field), sizeof((struct slot_header){0}.field)
#define AT_NODE(i, field)                                                              \
    FAKE_TREE_AT + (i) * sizeof(struct tree_node) + offsetof(struct tree_node, field), \
        sizeof((struct tree_node){0}.field)

static const struct {
    const char *name;
    size_t at, size;
    uint64_t value;
    const char *text;
} bad_slots[] = {
    {"generation", AT_HEADER(generation), 101, "generation 101 where 100 is due"},
    {"step", AT_HEADER(step), 1, "step 1 where 0"},
    {"epoch", AT_HEADER(epoch), 1, "epoch 1 where 0"},
    {"failed", AT_HEADER(error_code), 5, "error code 5"},
    {"samples", AT_HEADER(samples), 3, "samples 3 where 4"},
    {"indices beyond", AT_HEADER(indices_off), FAKE_SLOT_BYTES - 24, "indices at"},
    {"indices far", AT_HEADER(indices_off), UINT64_MAX - 7, "indices at"},
    {"indices odd", AT_HEADER(indices_off), 129, "indices at"},
    {"tree beyond", AT_HEADER(tree_off), FAKE_SLOT_BYTES - 8, "a tree at"},
    {"tree far", AT_HEADER(tree_off), UINT64_MAX - 7, "a tree at"},
    {"tree odd", AT_HEADER(tree_off), FAKE_TREE_AT + 4, "a tree at"},
    {"tree long", AT_HEADER(tree_len), UINT32_MAX, "a tree at"},
    {"tree short", AT_HEADER(tree_len), 16, "the tree of step 0"},
    {"tree of none", AT_HEADER(tree_count), 0, "the tree of step 0"},
    {"tree of many", AT_HEADER(tree_count), UINT32_MAX, "the tree of step 0"},
    {"tree of 3", AT_HEADER(tree_count), 3, "the tree of step 0"},
    {"kind", AT_NODE(0, kind), 9, "the tree of step 0"},
    {"children", AT_NODE(0, children), 2, "the tree of step 0"},
    {"many children", AT_NODE(0, children), UINT32_MAX, "the tree of step 0"},
    {"dtype", AT_NODE(1, dtype), 77, "the tree of step 0"},
    {"ndim", AT_NODE(1, ndim), 9, "the tree of step 0"},
    {"tensor beyond", AT_NODE(1, offset), FAKE_SLOT_BYTES - 62, "the tree of step 0"},
    {"tensor far", AT_NODE(1, offset), UINT64_MAX - 63, "the tree of step 0"},
    {"tensor odd", AT_NODE(1, offset), FAKE_DATA_AT + 1, "the tree of step 0"},
    {"nbytes", AT_NODE(1, nbytes), 1 << 20, "the tree of step 0"},
    {"key beyond", AT_NODE(1, key_off), 1 << 20, "the tree of step 0"},
    {"key long", AT_NODE(1, key_len), 1 << 20, "the tree of step 0"},
    {"planned, no room for its head", AT_HEADER(planned), 8, "planned lengths 8 where 32"},
    {"planned short", AT_HEADER(planned), 24, "planned lengths 24 where 32"},
    {"planned long", AT_HEADER(planned), 40, "planned lengths 40 where 32"},
    {"planned beyond", AT_HEADER(planned), FAKE_SLOT_BYTES - 152, "planned lengths"},
    {"planned far", AT_HEADER(planned), UINT64_MAX - 7, "planned lengths"},
};

/* With and without a good batch before it, whose checked tree is compared first. */
TEST(test_bad_slots)
{
    for (size_t i = 0; i < 2 * ARRAY_SIZE(bad_slots); i++) {
        size_t row = i / 2;
        struct fake f;
        struct view *before = NULL;

        fake_run(&f, 4, 10);
        if (i % 2) {
            struct dl_batch *good;

            fake_deliver(&f, 0, 1);
            good = fake_next(&f, 0);
            assert_int_equal(dl_batch_pin(good), 0);
            before = f.epoch->view;
            f.epoch->expected = 0; /* the same step once more, to use one table */
        }
        fake_deliver(&f, 0, 1);
        memcpy(fake_slot(&f, 0) + bad_slots[row].at, &bad_slots[row].value, bad_slots[row].size);
        expect_violation(&f, bad_slots[row].name, bad_slots[row].text);
        assert_ptr_equal(f.epoch->view, before);
        fake_end(&f);
    }
}

/* What is planned must be as long as its own number of rows makes it. */
TEST(test_planned_rows)
{
    static const uint32_t rows[] = {1, 3, FAKE_SLOT_BYTES, UINT32_MAX};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct fake f;

        fake_run(&f, 4, 10);
        fake_deliver(&f, 0, 1);
        fake_plan(&f, 0, 52);
        slot_planned(fake_slot(&f, 0), FAKE_ROWS)->rows = rows[i];
        expect_violation(&f, "rows", "planned lengths 32 where");
        fake_end(&f);
    }
}

/* ---- answers and other messages ---- */

static void send_number(struct fake *f, enum message_number number, uint64_t request)
{
    struct dl_message msg = {.number = number};

    if (number == DL_MSG_OPENED) {
        msg = fake_opened(f);
        msg.opened.request = request;
    } else if (number == DL_MSG_STARTED) {
        msg.started.request = request;
    } else if (number == DL_MSG_INFO) {
        msg.info.request = request;
        msg.info.value = (struct dl_span){(const uint8_t *)"\x80", 1};
    } else if (number == DL_MSG_ERROR) {
        msg.error.request = request;
    }
    fake_send(f, &msg);
}

TEST(test_unasked_answers)
{
    static const enum message_number numbers[] = {DL_MSG_OPENED, DL_MSG_STARTED, DL_MSG_INFO,
                                                  DL_MSG_ERROR, DL_MSG_WELCOME};

    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        struct fake f;

        fake_run(&f, 4, 10);
        send_number(&f, numbers[i], 2);
        expect_violation(&f, "unasked", "is not pending");
        fake_end(&f);
    }
}

TEST(test_wrong_answers)
{
    static const enum message_number numbers[] = {DL_MSG_OPENED, DL_MSG_STARTED, DL_MSG_INFO,
                                                  DL_MSG_ERROR};

    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
        for (uint64_t off = 0; off < 2; off++) {
            const void *data;
            struct fake f;
            size_t len;
            int r;

            fake_run(&f, 4, 10);
            send_number(&f, numbers[i], fake_next_request(&f) + off);
            r = dl_client_query(f.client, "ring", &data, &len);
            if (off == 0 && numbers[i] == DL_MSG_INFO)
                assert_int_equal(r, 0);
            else /* an ERROR of code 0 is EPROTO as well, but not latched */
                assert_int_equal(r, -EPROTO);
            assert_int_equal(connection_check(&f.client->conn),
                             off == 0 && numbers[i] >= DL_MSG_ERROR ? 0 : -EPROTO);
            fake_end(&f);
        }
}

TEST(test_answer_twice)
{
    struct dl_loader *loader;
    struct dl_epoch *epoch;
    struct dl_message msg;
    struct dl_batch *batch;
    struct fake f;

    /* The same loader id, the same stream id. */
    fake_run(&f, 4, 10);
    msg = fake_opened(&f);
    fake_send(&f, &msg);
    assert_int_equal(dl_loader_open(f.client, "x", 1, NULL, &loader), -EPROTO);
    assert_non_null(strstr(dl_client_error(f.client), "loader 7 is open already"));
    fake_end(&f);

    fake_run(&f, 4, 10);
    msg = fake_started(&f, 5);
    fake_send(&f, &msg);
    assert_int_equal(dl_epoch_start(f.loader, NULL, &epoch), -EPROTO);
    assert_non_null(strstr(dl_client_error(f.client), "stream 3 runs already"));
    fake_end(&f);

    /* Both in one read: the first is good, the second nobody waits for; the next call tells. */
    fake_connect(&f);
    fake_open(&f);
    msg = fake_started(&f, 5);
    fake_send(&f, &msg);
    fake_send(&f, &msg);
    assert_int_equal(dl_epoch_start(f.loader, NULL, &epoch), 0);
    assert_int_equal(dl_epoch_next(epoch, 0, &batch), -EPROTO);
    fake_end(&f);

    fake_connect(&f);
    msg = fake_opened(&f);
    msg.opened.credits = 0;
    fake_send(&f, &msg);
    assert_int_equal(dl_loader_open(f.client, "x", 1, NULL, &loader), -EPROTO);
    fake_end(&f);
}

/* ---- bytes ---- */

TEST(test_garbage)
{
    static const struct {
        const char *name;
        const char *bytes;
        size_t len;
    } rows[] = {
        {"empty frame", "\0\0\0\0", 4},
        {"frame too long", "\x01\0\x10\0", 4},
        {"frame of 4 GiB", "\xff\xff\xff\xff", 4},
        {"no array", "\x01\0\0\0\xc0", 5},
        {"array of 4 G", "\x05\0\0\0\xdd\xff\xff\xff\xff", 9},
        {"unknown number", "\x02\0\0\0\x91\x7f", 6},
        {"too few fields", "\x02\0\0\0\x91\x24", 6},
        {"a client's message", "\x03\0\0\0\x92\x06\x01", 7},
        {"a worker's message", "\x03\0\0\0\x92\x61\x01", 7},
        {"half a descriptor", "\x08\0\0\0\x93\x25\x03\xc4\x03\0\0\0", 12},
        {"HTTP", "HTTP/1.1 400 Bad Request\r\n\r\n", 28},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct fake f;

        fake_run(&f, 4, 10);
        assert_int_equal(write(f.sock, rows[i].bytes, rows[i].len), rows[i].len);
        expect_violation(&f, rows[i].name, "");
        assert_string_not_equal(dl_client_error(f.client), "");
        fake_end(&f);
    }
}

/* Much to read, none of it what is waited for: deadlines hold all the same. */
static void *flood(void *arg)
{
    struct fake *f = arg;
    struct dl_message retire = {.number = DL_MSG_RETIRE}, segment = fake_segment_message();
    _cleanup_(buffer_deinit) struct dl_buffer one = {0}, two = {0};

    retire.retire.id = FAKE_SEGMENT;
    assert_int_equal(message_encode(&retire, &two), 0);
    assert_int_equal(message_encode(&segment, &one), 0);
    for (;;) {
        if (fdpass_send(f->sock, two.data, two.len, NULL, 0, 0) < 0 ||
            fdpass_send(f->sock, one.data, one.len, &f->memfd, 1, 0) < 0)
            return NULL;
    }
}

TEST(test_flood)
{
    struct dl_batch *batch;
    const void *data;
    pthread_t thread;
    struct fake f;
    size_t len;

    fake_run(&f, 4, 10);
    assert_int_equal(dl_client_dispatch(f.client), 0);
    assert_int_equal(fcntl(f.sock, F_SETFL, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, flood, &f), 0);
    assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), -EAGAIN);
    assert_int_equal(dl_epoch_next(f.epoch, NS_PER_S / 50, &batch), -ETIMEDOUT);
    f.client->call_timeout = NS_PER_S / 50;
    assert_int_equal(dl_client_query(f.client, "ring", &data, &len), -ETIMEDOUT);
    f.client = dl_client_close(f.client);
    pthread_join(thread, NULL);
    fake_end(&f);
}

/* Signals interrupt the wait, not the call. */
static void on_signal(int number)
{
    (void)number;
}

static void *interrupt(void *arg)
{
    for (int i = 0; i < 20; i++) {
        usleep(1000);
        pthread_kill(*(pthread_t *)arg, SIGUSR1);
    }
    return NULL;
}

TEST(test_signals)
{
    struct sigaction action = {.sa_handler = on_signal};
    pthread_t self = pthread_self(), thread;
    struct dl_batch *batch;
    struct fake f;
    uint64_t begin;

    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    fake_run(&f, 4, 10);
    begin = clock_ns();
    assert_int_equal(pthread_create(&thread, NULL, interrupt, &self), 0);
    assert_int_equal(dl_epoch_next(f.epoch, NS_PER_S / 20, &batch), -ETIMEDOUT);
    assert_true(clock_ns() - begin >= NS_PER_S / 20);
    pthread_join(thread, NULL);
    fake_end(&f);
}
