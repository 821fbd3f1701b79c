/*
 * The outbox over real socket pairs. fdpass_send() stands between: it can be told to send a few
 * bytes at a time, so that frames are split wherever they can be.
 */
#include "tests/lib/abort.h"

#include "daemon/base/outbox.h"
#include "proto/fdpass.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* ---- how much one call may send ------------------------------------------------------------- */

static size_t send_most;   /* bytes a call; 0: as many as it likes */
static bool send_stutters; /* every second call finds the socket full */
static unsigned send_calls;

ssize_t __real_fdpass_send(int sock, const void *data, size_t len, const int *fds, uint32_t n_fds,
                           int flags);
ssize_t __wrap_fdpass_send(int sock, const void *data, size_t len, const int *fds, uint32_t n_fds,
                           int flags);

ssize_t __wrap_fdpass_send(int sock, const void *data, size_t len, const int *fds, uint32_t n_fds,
                           int flags)
{
    if (send_stutters && send_calls++ % 2 == 0)
        return -EAGAIN;
    if (send_most > 0)
        len = min_u64(len, send_most);
    return __real_fdpass_send(sock, data, len, fds, n_fds, flags);
}

/* ---- a pair of sockets ---------------------------------------------------------------------- */

enum { FILES = 3 };

struct pair {
    int a, b;
    int files[FILES]; /* to be sent; told apart by their inodes */
    struct outbox outbox;
    int open_before;
};

static int setup(void **state)
{
    struct pair *pair = calloc(1, sizeof *pair);
    int fds[2];

    assert_non_null(pair);
    pair->open_before = harness_count_fds();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    pair->a = fds[0];
    pair->b = fds[1];
    for (int i = 0; i < FILES; i++) {
        pair->files[i] = memfd_create("file", MFD_CLOEXEC);
        assert_true(pair->files[i] >= 0);
    }
    send_most = 0;
    send_stutters = false;
    send_calls = 0;
    *state = pair;
    return 0;
}

static int teardown(void **state)
{
    struct pair *pair = *state;
    int left;

    outbox_deinit(&pair->outbox);
    close_fdp(&pair->a);
    close_fdp(&pair->b);
    for (int i = 0; i < FILES; i++)
        close_fdp(&pair->files[i]);
    left = harness_count_fds() - pair->open_before;
    free(pair);
    return left == 0 ? 0 : -1;
}

static bool same_file(int a, int b)
{
    struct stat x;
    struct stat y;

    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_ino == y.st_ino;
}

/* ---- a sequence of messages with and without descriptors ------------------------------------ */

static const uint8_t nil[] = {0xC0};

static struct dl_message segment_message(uint32_t id)
{
    return (struct dl_message){.number = DL_MSG_SEGMENT, .segment = {.id = id, .bytes = 4096}};
}

static struct dl_message retire_message(uint32_t id)
{
    return (struct dl_message){.number = DL_MSG_RETIRE, .retire = {.id = id}};
}

static struct dl_message open_message(void)
{
    return (struct dl_message){.number = DL_MSG_W_OPEN,
                               .w_open = {.workers = 1,
                                          .spec = {nil, sizeof nil},
                                          .roots = {nil, sizeof nil},
                                          .seen_as = {nil, sizeof nil},
                                          .plugins = {nil, sizeof nil}}};
}

enum { SEQUENCE = 7 };

/* Which of the files go with each message; a digit each. */
static const char *const sequence_files[SEQUENCE] = {"", "0", "", "1", "2", "012", ""};

static void append(struct pair *pair, const struct dl_message *msg, const char *files)
{
    int fds[FILES];
    uint32_t n = 0;

    for (; files[n]; n++)
        fds[n] = pair->files[files[n] - '0'];
    assert_int_equal(outbox_append(&pair->outbox, msg, fds, n), 0);
}

static void append_sequence(struct pair *pair)
{
    const struct dl_message messages[SEQUENCE] = {
        retire_message(1),  segment_message(2), retire_message(3), segment_message(4),
        segment_message(5), open_message(),     retire_message(6)};

    for (int i = 0; i < SEQUENCE; i++)
        append(pair, &messages[i], sequence_files[i]);
}

/* The place in the stream of each message of the sequence, and the length of all. */
static size_t sequence_starts(struct pair *pair, size_t starts[SEQUENCE])
{
    struct outbox *outbox = &pair->outbox;
    size_t at = 0;

    append_sequence(pair);
    for (int i = 0; i < SEQUENCE; i++) {
        const uint8_t *head = outbox->bytes.data + at;

        starts[i] = at;
        at += FRAME_HEADER_BYTES + head[0] + (size_t)head[1] * 256;
    }
    assert_int_equal(at, outbox_pending(outbox));
    return at;
}

/* What arrives: bytes counted, descriptors checked against the place where they came. */
struct arrival {
    size_t bytes;
    uint32_t messages; /* whose first byte arrived */
};

/* Reads at most `most` bytes. True when something was there. */
static bool receive(struct pair *pair, const size_t starts[SEQUENCE], size_t most,
                    struct arrival *arrival)
{
    uint8_t data[512];
    union {
        struct cmsghdr align;
        uint8_t space[256];
    } control;
    struct iovec iov = {data, min_u64(most, sizeof data)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof control};
    ssize_t n = recvmsg(pair->b, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    char want[16] = "";
    uint32_t got = 0;

    if (n < 0)
        return false;
    assert_true(n > 0 && !(msg.msg_flags & MSG_CTRUNC));
    arrival->bytes += (size_t)n;
    while (arrival->messages < SEQUENCE && starts[arrival->messages] < arrival->bytes)
        strcat(want, sequence_files[arrival->messages++]);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        for (size_t at = CMSG_LEN(0); at < c->cmsg_len; at += sizeof(int)) {
            int fd;

            memcpy(&fd, (uint8_t *)c + at, sizeof fd);
            assert_true(got < strlen(want));
            assert_true(same_file(fd, pair->files[want[got++] - '0']));
            close(fd);
        }
    }
    assert_int_equal(got, strlen(want));
    return true;
}

/* ---- descriptors ---------------------------------------------------------------------------- */

/* Sent in pieces of each size, read in pieces of one byte: each descriptor is there with byte 1. */
TEST(test_descriptors_go_with_the_first_byte, setup, teardown)
{
    struct pair *pair = *state;
    size_t starts[SEQUENCE];
    size_t len = sequence_starts(pair, starts);

    assert_int_equal(outbox_flush(&pair->outbox, pair->a), 0);
    for (struct arrival first = {0}; receive(pair, starts, 1, &first);)
        assert_true(first.bytes <= len);
    for (send_most = 1; send_most <= len + 1; send_most++) {
        for (int stutter = 0; stutter < 2; stutter++) {
            struct arrival arrival = {0};

            send_stutters = stutter;
            append_sequence(pair);
            while (outbox_pending(&pair->outbox) > 0)
                assert_int_equal(outbox_flush(&pair->outbox, pair->a), 0);
            assert_int_equal(pair->outbox.n_fds, 0);
            while (receive(pair, starts, 1, &arrival))
                ;
            assert_int_equal(arrival.bytes, len);
            assert_int_equal(arrival.messages, SEQUENCE);
        }
    }
}

/* Between any two bytes sent the rest waits, descriptors with it, and may be dropped. */
TEST(test_dropped_at_any_byte, setup, teardown)
{
    struct pair *pair = *state;
    size_t starts[SEQUENCE];
    size_t len = sequence_starts(pair, starts);
    int open_fds;

    outbox_deinit(&pair->outbox);
    open_fds = harness_count_fds();
    send_most = 1;
    send_stutters = true;
    for (size_t cut = 0; cut <= len; cut++) {
        struct arrival arrival = {0};

        append_sequence(pair);
        send_calls = 0;
        for (size_t sent = 0; sent < cut; sent++) {
            send_calls = 1; /* one byte, then the socket is full */
            assert_int_equal(outbox_flush(&pair->outbox, pair->a), 0);
        }
        assert_int_equal(outbox_pending(&pair->outbox), len - cut);
        while (receive(pair, starts, 64, &arrival))
            ;
        assert_int_equal(arrival.bytes, cut);
        outbox_deinit(&pair->outbox);
        assert_int_equal(harness_count_fds(), open_fds);
    }
}

TEST(test_it_keeps_its_own_copies, setup, teardown)
{
    struct pair *pair = *state;
    struct frame_reader reader = {0};
    struct dl_message msg = segment_message(9);
    int fd = memfd_create("own", MFD_CLOEXEC);

    assert_int_equal(outbox_append(&pair->outbox, &msg, &fd, 1), 0);
    int copy = pair->outbox.fds[0].fd;
    assert_true(copy >= 3 && copy != fd);
    assert_true(fcntl(copy, F_GETFD) & FD_CLOEXEC);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    close(fd);
    assert_int_equal(outbox_flush(&pair->outbox, pair->a), 0);
    assert_int_equal(fcntl(copy, F_GETFD), -1); /* closed once it is sent */
    assert_true(fdpass_recv(pair->b, &reader, MSG_DONTWAIT) > 0);
    int got = frame_reader_take_fd(&reader);
    struct stat got_st;
    assert_int_equal(fstat(got, &got_st), 0);
    assert_int_equal(got_st.st_ino, st.st_ino);
    close(got);
    frame_reader_deinit(&reader);
}

/* ---- full sockets --------------------------------------------------------------------------- */

/* Takes all whole messages; their ids go up by one, every tenth has a descriptor. */
static void take_messages(struct pair *pair, struct frame_reader *reader, uint32_t *next)
{
    struct dl_span payload;
    struct dl_message msg;

    while (frame_reader_next(reader, &payload) == 1) {
        assert_int_equal(message_decode(payload.data, payload.len, FROM_DAEMON, &msg, NULL), 0);
        if (*next % 10 == 0) {
            int fd = frame_reader_take_fd(reader);
            assert_int_equal(msg.number, DL_MSG_SEGMENT);
            assert_int_equal(msg.segment.id, *next);
            assert_true(same_file(fd, pair->files[*next / 10 % FILES]));
            close(fd);
        } else {
            assert_int_equal(msg.number, DL_MSG_RETIRE);
            assert_int_equal(msg.retire.id, *next);
        }
        ++*next;
    }
}

TEST(test_a_slow_reader, setup, teardown)
{
    enum { MESSAGES = 5000 };
    static const char *const names[FILES] = {"0", "1", "2"};
    struct pair *pair = *state;
    struct frame_reader reader = {0};
    uint32_t put = 0;
    uint32_t got = 0;
    unsigned full = 0;

    assert_int_equal(setsockopt(pair->a, SOL_SOCKET, SO_SNDBUF, &(int){1}, sizeof(int)), 0);
    while (got < MESSAGES) {
        for (int i = 0; i < 150 && put < MESSAGES; i++, put++) {
            struct dl_message msg = put % 10 ? retire_message(put) : segment_message(put);
            append(pair, &msg, put % 10 ? "" : names[put / 10 % FILES]);
        }
        assert_int_equal(outbox_flush(&pair->outbox, pair->a), 0);
        full += outbox_pending(&pair->outbox) > 0;
        assert_true(outbox_pending(&pair->outbox) <= pair->outbox.bytes.len);
        ssize_t n = fdpass_recv(pair->b, &reader, MSG_DONTWAIT);
        assert_true(n > 0 || n == -EAGAIN);
        take_messages(pair, &reader, &got);
    }
    assert_int_equal(got, MESSAGES);
    assert_true(full > 10);
    assert_int_equal(outbox_pending(&pair->outbox), 0);
    assert_int_equal(pair->outbox.n_fds, 0);
    assert_int_equal(pair->outbox.begin, 0);
    frame_reader_deinit(&reader);
}

TEST(test_what_is_pending, setup, teardown)
{
    struct pair *pair = *state;
    struct outbox *outbox = &pair->outbox;
    struct dl_message msg = retire_message(1);
    size_t before;

    assert_int_equal(outbox_pending(outbox), 0);
    assert_int_equal(outbox_flush(outbox, pair->a), 0); /* nothing to send: no call */
    append(pair, &msg, "");
    assert_int_equal(outbox_flush(outbox, -1), -EBADF);
    before = outbox_pending(outbox);
    assert_true(before > FRAME_HEADER_BYTES);
    send_stutters = true;
    assert_int_equal(outbox_flush(outbox, pair->a), 0);
    assert_int_equal(outbox_pending(outbox), before); /* full: all is still there */
    assert_int_equal(outbox_flush(outbox, pair->a), 0);
    assert_int_equal(outbox_pending(outbox), 0);
}

/* ---- failures ------------------------------------------------------------------------------- */

TEST(test_the_peer_is_gone, setup, teardown)
{
    struct pair *pair = *state;
    size_t len;

    append_sequence(pair);
    send_most = 30;
    send_stutters = true;
    send_calls = 1;
    assert_int_equal(outbox_flush(&pair->outbox, pair->a), 0); /* some went, then it was full */
    len = outbox_pending(&pair->outbox);
    assert_true(len > 0 && pair->outbox.n_fds > 0);
    close_fdp(&pair->b);
    send_stutters = false;
    int r = outbox_flush(&pair->outbox, pair->a);
    assert_true(r == -EPIPE || r == -ECONNRESET);
    r = outbox_flush(&pair->outbox, pair->a);
    assert_int_equal(r, -EPIPE);
    assert_int_equal(outbox_pending(&pair->outbox), len);
}

/* A message that cannot be sent leaves no byte and no descriptor behind. */
TEST(test_refused_messages, setup, teardown)
{
    struct pair *pair = *state;
    static uint8_t text[300];
    struct dl_message long_text = {.number = DL_MSG_ERROR, .error = {.path = {text, sizeof text}}};
    struct dl_message no_number = {.number = (enum message_number)31};
    struct dl_message good = segment_message(2);
    size_t before;
    int open_fds;

    memset(text, 'x', sizeof text);
    append(pair, &good, "0");
    before = outbox_pending(&pair->outbox);
    open_fds = harness_count_fds();
    assert_int_equal(outbox_append(&pair->outbox, &long_text, pair->files, 3), -EMSGSIZE);
    assert_int_equal(outbox_append(&pair->outbox, &no_number, pair->files, 2), -EBADMSG);
    assert_int_equal(outbox_append(&pair->outbox, &good, (int[]){pair->files[0], -1}, 2), -EBADF);
    assert_int_equal(outbox_pending(&pair->outbox), before);
    assert_int_equal(pair->outbox.n_fds, 1);
    assert_int_equal(harness_count_fds(), open_fds);
    assert_int_equal(outbox_flush(&pair->outbox, pair->a), 0);
    assert_int_equal(outbox_pending(&pair->outbox), 0);
}

TEST(test_out_of_descriptors, setup, teardown)
{
    struct pair *pair = *state;
    struct dl_message msg = open_message();
    struct rlimit old;
    int highest = 0;
    int open_fds = harness_count_fds();

    for (int i = 0; i < FILES; i++)
        highest = pair->files[i] > highest ? pair->files[i] : highest;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    for (int room = 0; room < 3; room++) {
        struct rlimit low = {.rlim_cur = (rlim_t)(highest + 1 + room), .rlim_max = old.rlim_max};

        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        int r = outbox_append(&pair->outbox, &msg, pair->files, 3);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
        assert_int_equal(r, -EMFILE);
        assert_int_equal(outbox_pending(&pair->outbox), 0);
        assert_int_equal(pair->outbox.n_fds, 0);
        assert_int_equal(harness_count_fds(), open_fds);
    }
    append(pair, &msg, "012");
    assert_int_equal(outbox_flush(&pair->outbox, pair->a), 0);
}

static void append_too_many(void *arg)
{
    struct pair *pair = arg;
    struct dl_message msg = open_message();
    int fds[9];

    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fds[i] = pair->files[0];
    (void)!outbox_append(&pair->outbox, &msg, fds, ARRAY_SIZE(fds));
}

TEST(test_more_descriptors_than_a_frame_carries, setup, teardown)
{
    assert_true(call_aborts(append_too_many, *state));
}
