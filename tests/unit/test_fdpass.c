/*
 * Descriptors over a real socket pair. After each test as many descriptors are open as before it:
 * whatever the kernel installed was handed out or closed.
 */
#include "tests/lib/harness.h"

#include "proto/fdpass.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>

struct pair {
    int a, b;
    int open_before;
    struct frame_reader reader;
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
    *state = pair;
    return 0;
}

static int teardown(void **state)
{
    struct pair *pair = *state;
    int left;

    frame_reader_deinit(&pair->reader);
    close_fdp(&pair->a);
    close_fdp(&pair->b);
    left = harness_count_fds() - pair->open_before;
    free(pair);
    return left;
}

static int new_memfd(const char *content)
{
    int fd = memfd_create("test", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, strlen(content)), strlen(content));
    return fd;
}

/* Sends `n` copies of one memfd with one byte, past every limit of fdpass_send(). */
static void send_raw(int sock, int n)
{
    int memfd = new_memfd("raw"), fds[253];
    union {
        struct cmsghdr align;
        uint8_t space[CMSG_SPACE(sizeof fds)];
    } control = {0};
    struct iovec iov = {(char[]){'x'}, 1};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space};

    for (int i = 0; i < n; i++)
        fds[i] = memfd;
    msg.msg_controllen = CMSG_SPACE(sizeof(int) * n);
    CMSG_FIRSTHDR(&msg)->cmsg_level = SOL_SOCKET;
    CMSG_FIRSTHDR(&msg)->cmsg_type = SCM_RIGHTS;
    CMSG_FIRSTHDR(&msg)->cmsg_len = CMSG_LEN(sizeof(int) * n);
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), fds, sizeof(int) * n);
    assert_int_equal(sendmsg(sock, &msg, 0), 1);
    close(memfd);
}

TEST(test_bytes, setup, teardown)
{
    struct pair *pair = *state;
    struct dl_span span;

    assert_int_equal(fdpass_recv(pair->b, &pair->reader, MSG_DONTWAIT), -EAGAIN);
    assert_int_equal(fdpass_send(pair->a, "\2\0\0\0hi", 6, NULL, 0, 0), 6);
    assert_int_equal(fdpass_recv(pair->b, &pair->reader, MSG_DONTWAIT), 6);
    assert_int_equal(frame_reader_next(&pair->reader, &span), 1);
    assert_memory_equal(span.data, "hi", 2);
    close_fdp(&pair->a);
    assert_int_equal(fdpass_recv(pair->b, &pair->reader, 0), 0);
}

TEST(test_memfds, setup, teardown)
{
    struct pair *pair = *state;
    int fds[DL_BOUND_FRAME_FDS];
    struct stat sent, got;

    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        char content[8];
        snprintf(content, sizeof content, "file %zu", i);
        fds[i] = new_memfd(content);
    }
    assert_int_equal(fdpass_send(pair->a, "abc", 3, fds, ARRAY_SIZE(fds), 0), 3);
    assert_int_equal(fdpass_recv(pair->b, &pair->reader, 0), 3);
    assert_int_equal(pair->reader.fd_count, ARRAY_SIZE(fds));
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        char want[8], content[8] = "";
        int fd = frame_reader_take_fd(&pair->reader);

        assert_true(fd >= 0);
        assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
        assert_int_equal(fstat(fd, &got), 0);
        assert_int_equal(fstat(fds[i], &sent), 0); /* still ours */
        assert_true(got.st_ino == sent.st_ino);
        snprintf(want, sizeof want, "file %zu", i);
        assert_int_equal(pread(fd, content, sizeof content, 0), 6);
        assert_string_equal(content, want);
        close(fd);
        close(fds[i]);
    }
}

/* Descriptors of several sends are queued in order, whatever the reads look like. */
TEST(test_order, setup, teardown)
{
    struct pair *pair = *state;
    struct stat sent[5], got;

    for (int i = 0; i < 5; i++) {
        int fd = new_memfd("x");
        assert_int_equal(fstat(fd, &sent[i]), 0);
        assert_int_equal(fdpass_send(pair->a, "0123456789", 10, &fd, 1, 0), 10);
        close(fd);
    }
    for (size_t bytes = 0; bytes < 50;) {
        ssize_t n = fdpass_recv(pair->b, &pair->reader, MSG_DONTWAIT);
        assert_true(n > 0);
        bytes += (size_t)n;
    }
    for (int i = 0; i < 5; i++) {
        int fd = frame_reader_take_fd(&pair->reader);
        assert_int_equal(fstat(fd, &got), 0);
        assert_true(got.st_ino == sent[i].st_ino);
        close(fd);
    }
    assert_int_equal(frame_reader_take_fd(&pair->reader), -1);
}

/* Other control data than descriptors is passed over. */
TEST(test_with_credentials, setup, teardown)
{
    struct pair *pair = *state;
    int on = 1, fd = new_memfd("x");

    assert_int_equal(setsockopt(pair->b, SOL_SOCKET, SO_PASSCRED, &on, sizeof on), 0);
    assert_int_equal(fdpass_send(pair->a, "x", 1, &fd, 1, 0), 1);
    assert_int_equal(fdpass_recv(pair->b, &pair->reader, 0), 1);
    assert_int_equal(pair->reader.fd_count, 1);
    close(fd);
}

TEST(test_send_refuses, setup, teardown)
{
    struct pair *pair = *state;
    int fds[DL_BOUND_FRAME_FDS + 1];

    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fds[i] = pair->a;
    assert_int_equal(fdpass_send(pair->a, "x", 1, fds, ARRAY_SIZE(fds), 0), -EINVAL);
    assert_int_equal(fdpass_send(pair->a, "x", 1, fds, UINT32_MAX, 0), -EINVAL);
    assert_int_equal(fdpass_send(pair->a, "", 0, fds, 1, 0), -EINVAL);
    fds[0] = -1;
    assert_int_equal(fdpass_send(pair->a, "x", 1, fds, 1, 0), -EBADF);
    assert_int_equal(fdpass_recv(pair->b, &pair->reader, MSG_DONTWAIT), -EAGAIN); /* none went */
    assert_int_equal(fdpass_send(-1, "x", 1, NULL, 0, 0), -EBADF);
    assert_int_equal(fdpass_recv(-1, &pair->reader, 0), -EBADF);
}

/* As many as the kernel lets one message carry: refused, and not one of them stays open. */
TEST(test_too_many, setup, teardown)
{
    struct pair *pair = *state;
    static const int counts[] = {FRAME_FD_QUEUE + 1, 253};
    int before = harness_count_fds();

    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        send_raw(pair->a, counts[i]);
        assert_int_equal(fdpass_recv(pair->b, &pair->reader, 0), -EMFILE);
        assert_int_equal(pair->reader.fd_count, 0);
        assert_int_equal(harness_count_fds(), before);
    }
    send_raw(pair->a, FRAME_FD_QUEUE);
    assert_int_equal(fdpass_recv(pair->b, &pair->reader, 0), 1);
    assert_int_equal(pair->reader.fd_count, FRAME_FD_QUEUE);
    send_raw(pair->a, 1); /* the queue is full of descriptors that no message claimed */
    assert_int_equal(fdpass_recv(pair->b, &pair->reader, 0), -EMFILE);
    assert_int_equal(harness_count_fds(), before + FRAME_FD_QUEUE);
}

/* This process may open some more, but fewer than come. */
TEST(test_limit_of_open_files, setup, teardown)
{
    struct pair *pair = *state;
    struct rlimit limit, lower;
    int before = harness_count_fds(), lowest;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int spare = 0; spare < 4; spare++) {
        send_raw(pair->a, 4);
        lowest = fcntl(pair->a, F_DUPFD_CLOEXEC, 0);
        assert_true(lowest >= 0);
        close(lowest);
        lower = limit;
        lower.rlim_cur = (rlim_t)lowest + (rlim_t)spare;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &lower), 0);
        ssize_t n = fdpass_recv(pair->b, &pair->reader, 0);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        assert_int_equal(n, -EMFILE);
        assert_int_equal(pair->reader.fd_count, 0);
        assert_int_equal(harness_count_fds(), before);
    }
}

TEST(test_pipe_without_signal, setup, teardown)
{
    struct pair *pair = *state;
    int fd = new_memfd("x");

    signal(SIGPIPE, SIG_DFL); /* its action is to end this program */
    close_fdp(&pair->b);
    assert_int_equal(fdpass_send(pair->a, "x", 1, NULL, 0, 0), -EPIPE);
    assert_int_equal(fdpass_send(pair->a, "x", 1, &fd, 1, 0), -EPIPE);
    close(fd);
}

/* Packets stay apart; of several descriptors one is taken, and none stays open. */
TEST(test_packets, setup, teardown)
{
    char text[8];
    int pair[2], fd;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    for (uint32_t n = 0; n <= 3; n++) {
        int memfd = new_memfd("some"), fds[] = {memfd, memfd, memfd};

        assert_int_equal(fdpass_send(pair[0], "packet", 6, fds, n, 0), 6);
        close(memfd);
    }
    for (uint32_t n = 0; n <= 3; n++) {
        assert_int_equal(fdpass_recv_packet(pair[1], text, sizeof text, MSG_DONTWAIT, &fd), 6);
        assert_memory_equal(text, "packet", 6);
        assert_int_equal(fd >= 0, n > 0);
        if (n > 0) {
            assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
            assert_int_equal(pread(fd, text, sizeof text, 0), 4);
        }
        close_fdp(&fd);
    }
    assert_int_equal(fdpass_recv_packet(pair[1], text, sizeof text, MSG_DONTWAIT, &fd), -EAGAIN);
    close(pair[0]);
    assert_int_equal(fdpass_recv_packet(pair[1], text, sizeof text, 0, &fd), 0);
    assert_int_equal(fd, -1);
    close(pair[1]);
}

TEST(test_full_socket, setup, teardown)
{
    struct pair *pair = *state;
    uint8_t *bytes = calloc(1, 1 << 20);
    struct dl_span span;
    size_t sent = 0, got = 0;
    ssize_t n;

    assert_non_null(bytes);
    /* Frames of one byte, as many as fit; a send may be partial. */
    for (size_t i = 0; i + 5 <= 1 << 20; i += 5)
        bytes[i] = 1;
    while ((n = fdpass_send(pair->a, bytes + sent % 5, (1 << 20) - 16, NULL, 0, MSG_DONTWAIT)) > 0)
        sent += (size_t)n;
    assert_int_equal(n, -EAGAIN);
    while ((n = fdpass_recv(pair->b, &pair->reader, MSG_DONTWAIT)) > 0) {
        got += (size_t)n;
        while (frame_reader_next(&pair->reader, &span) == 1)
            assert_int_equal(span.len, 1);
    }
    assert_int_equal(n, -EAGAIN);
    assert_int_equal(got, sent);
    free(bytes);
}

static volatile sig_atomic_t ticks;
static int wake_up;

/* The fifth interruption lets the blocked call end. */
static void on_tick(int signo)
{
    (void)signo;
    if (++ticks == 5 && write(wake_up, "\1\0\0\0x", 5) < 0)
        ticks = -1000;
}

TEST(test_interrupted, setup, teardown)
{
    struct pair *pair = *state;
    struct sigaction action = {.sa_handler = on_tick}, old; /* without SA_RESTART */
    struct itimerval every = {{0, 2000}, {0, 2000}}, off = {0};

    ticks = 0;
    wake_up = pair->a;
    assert_int_equal(sigaction(SIGALRM, &action, &old), 0);
    unsigned deadline = alarm(0); /* ITIMER_REAL is the harness's alarm */
    assert_int_equal(setitimer(ITIMER_REAL, &every, NULL), 0);
    assert_int_equal(fdpass_recv(pair->b, &pair->reader, 0), 5);
    assert_int_equal(setitimer(ITIMER_REAL, &off, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &old, NULL), 0);
    alarm(deadline);
    assert_true(ticks >= 5);
}
