#include "daemon/worker/python/host.h"

#include "daemon/worker/python/engine.h"
#include "daemon/worker/sandbox.h"

#include "proto/fdpass.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { WORKER_SOCKET = 3, FAILED_STATUS = 1 };

struct child {
    uint32_t number; /* the daemon's */
    pid_t pid;
    int fd; /* owned; a pidfd: readable when it has ended */
};

struct host {
    int sock; /* borrowed */
    struct frame_reader reader;
    struct child *children; /* owned */
    struct pollfd *polls;   /* owned; the socket, then one for each child */
    uint32_t n;
    uint32_t room;
};

static int send_message(struct host *h, const struct dl_message *msg)
{
    _cleanup_(buffer_deinit)
    struct dl_buffer out = {0};
    int r = message_encode(msg, &out);

    for (size_t at = 0; r == 0 && at < out.len;) {
        ssize_t n = fdpass_send(h->sock, out.data + at, out.len - at, NULL, 0, 0);
        if (n < 0)
            r = (int)n;
        else
            at += (size_t)n;
    }
    return r;
}

/* ---- the forked worker ----------------------------------------------------------------------- */

/* What the host was started with, and other workers' sockets, are none of this worker's. */
static bool take_descriptors(int sock, int errors)
{
    if (dup2(errors, STDERR_FILENO) < 0 || dup2(sock, WORKER_SOCKET) < 0)
        return false;
    (void)close_range(WORKER_SOCKET + 1, ~0u, 0);
    return true;
}

static void harden(pid_t host)
{
    sandbox_harden();
    if (getppid() != host) /* it died before we asked to be told */
        _exit(FAILED_STATUS);
}

static void flush(const char *name)
{
    PyObject *stream = PySys_GetObject(name); /* borrowed */

    if (stream && stream != Py_None)
        Py_XDECREF(PyObject_CallMethod(stream, "flush", NULL));
    PyErr_Clear();
}

/* Nothing of the host's is finalized here: the datasets are closed, and what was printed is out. */
static void run_worker(int sock, int errors, pid_t host)
{
    int status = FAILED_STATUS;

    if (take_descriptors(sock, errors)) {
        harden(host);
        status = worker_run(WORKER_SOCKET, &python_engine);
    }
    flush("stdout");
    flush("stderr");
    _exit(status);
}

/* ---- starting -------------------------------------------------------------------------------- */

static bool grow(struct host *h)
{
    uint32_t room = h->room ? 2 * h->room : 16;

    if (h->n < h->room)
        return true;
    struct child *children = realloc(h->children, room * sizeof *children);
    if (children)
        h->children = children;
    struct pollfd *polls = realloc(h->polls, (room + 1) * sizeof *polls);
    if (polls)
        h->polls = polls;
    if (!children || !polls)
        return false;
    h->room = room;
    return true;
}

/* The process; 0: it could not be started. */
static pid_t fork_worker(int sock, int errors)
{
    pid_t host = getpid();

    flush("stdout");
    flush("stderr");
    PyOS_BeforeFork();
    pid_t pid = fork();
    if (pid != 0) {
        PyOS_AfterFork_Parent();
        return pid > 0 ? pid : 0;
    }
    PyOS_AfterFork_Child();
    run_worker(sock, errors, host);
    return 0; /* not reached */
}

static pid_t start(struct host *h, uint32_t number, int sock, int errors)
{
    if (sock < 0 || errors < 0 || !grow(h))
        return 0;
    pid_t pid = fork_worker(sock, errors);
    if (pid == 0)
        return 0;
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        return 0;
    }
    h->children[h->n++] = (struct child){.number = number, .pid = pid, .fd = fd};
    return pid;
}

static int handle_fork(struct host *h, const struct dl_msg_w_fork *msg)
{
    _cleanup_fd_ int sock = frame_reader_take_fd(&h->reader);
    _cleanup_fd_ int errors = frame_reader_take_fd(&h->reader);
    pid_t pid = start(h, (uint32_t)msg->child, sock, errors);

    return send_message(
        h, &(struct dl_message){.number = DL_MSG_W_STARTED,
                                .w_started = {.child = msg->child, .pid = (uint64_t)pid}});
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void handle_kill(struct host *h, const struct dl_msg_w_kill *msg)
{
    for (uint32_t i = 0; i < h->n; i++)
        if (h->children[i].number == msg->child)
            (void)kill(h->children[i].pid, SIGKILL); /* not reaped yet: it is still that process */
}

static int reap(struct host *h, uint32_t at)
{
    struct child child = h->children[at];
    int status = 0;

    while (waitpid(child.pid, &status, 0) < 0)
        if (errno != EINTR)
            break;
    close(child.fd);
    h->children[at] = h->children[--h->n];
    bool exited = WIFEXITED(status);
    return send_message(
        h, &(struct dl_message){.number = DL_MSG_W_EXITED,
                                .w_exited = {.child = child.number,
                                             .status = exited ? (uint64_t)WEXITSTATUS(status) : 0,
                                             .signal = exited ? 0 : (uint64_t)WTERMSIG(status)}});
}

static void host_deinit(struct host *h)
{
    for (uint32_t i = 0; i < h->n; i++)
        (void)kill(h->children[i].pid, SIGKILL);
    for (uint32_t i = 0; i < h->n; i++) {
        while (waitpid(h->children[i].pid, NULL, 0) < 0 && errno == EINTR)
            continue;
        close(h->children[i].fd);
    }
    free(h->children);
    free(h->polls);
    frame_reader_deinit(&h->reader);
}

/* ---- the loop -------------------------------------------------------------------------------- */

static int handle_message(struct host *h, const struct dl_message *msg)
{
    switch (msg->number) {
    case DL_MSG_W_FORK:
        return handle_fork(h, &msg->w_fork);
    case DL_MSG_W_KILL:
        handle_kill(h, &msg->w_kill);
        return 0;
    default:
        return -EPROTO;
    }
}

/* 0, or negative: -EPIPE when the daemon has gone. */
static int handle_socket(struct host *h)
{
    ssize_t n = fdpass_recv(h->sock, &h->reader, MSG_DONTWAIT);

    if (n == -EAGAIN)
        return 0;
    if (n <= 0)
        return n == 0 || n == -ECONNRESET ? -EPIPE : (int)n;
    for (;;) {
        struct dl_span payload;
        struct dl_message msg;
        struct dl_error err = {0};
        int r = frame_reader_next(&h->reader, &payload);

        if (r <= 0)
            return r;
        r = message_decode(payload.data, payload.len, TO_WORKER, &msg, &err);
        if (r == 0)
            r = handle_message(h, &msg);
        if (r < 0) {
            if (r != -EPIPE)
                fprintf(stderr, "dloader.host: %s\n", err.code ? err.message : strerror(-r));
            return r;
        }
    }
}

static int wait_for(struct host *h)
{
    uint32_t n = h->n;
    int r, code;

    h->polls[0] = (struct pollfd){.fd = h->sock, .events = POLLIN};
    for (uint32_t i = 0; i < n; i++)
        h->polls[i + 1] = (struct pollfd){.fd = h->children[i].fd, .events = POLLIN};
    Py_BEGIN_ALLOW_THREADS r = poll(h->polls, n + 1, -1);
    code = r < 0 ? errno : 0;
    Py_END_ALLOW_THREADS if (code != 0) return code == EINTR ? 0 : -code;
    /* From the last: reaping one moves the last into its place. */
    r = 0;
    for (uint32_t i = n; r == 0 && i-- > 0;)
        if (h->polls[i + 1].revents)
            r = reap(h, i);
    return r == 0 && h->polls[0].revents ? handle_socket(h) : r;
}

int host_serve(int sock)
{
    _cleanup_(host_deinit)
    struct host h = {.sock = sock};
    int r;

    if (!grow(&h)) {
        PyErr_NoMemory();
        return -1;
    }
    (void)fcntl(sock, F_SETFD, FD_CLOEXEC);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGINT, SIG_IGN); /* Ctrl-C is the daemon's to handle */
    r = send_message(&h, &(struct dl_message){.number = DL_MSG_W_HOSTING,
                                              .w_hosting = {.version = DL_PROTOCOL_VERSION}});
    while (r == 0)
        r = wait_for(&h);
    return r == -EPIPE ? 0 : FAILED_STATUS;
}
