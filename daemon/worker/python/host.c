#include "daemon/worker/python/host.h"

#include "daemon/worker/python/engine.h"
#include "daemon/worker/sandbox.h"
#include "daemon/worker/worker_socket.h"
#include "proto/common/open_files.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { FAILED_STATUS = 1, OWN_POLLS = 3 };

struct child {
    uint32_t number; /* the daemon's */
    pid_t pid;
    int fd; /* owned; a pidfd: readable when it has ended */
};

struct host {
    struct host_place place; /* borrowed descriptors, but for the socket of a client's host */
    int client;              /* owned; a pidfd, or -1 */
    struct frame_reader reader;
    struct child *children; /* owned */
    struct pollfd *polls;   /* owned; socket, channel and client, then one for each child */
    uint32_t n;
    uint32_t room;
};

static int python_host_send_message(const struct host *h, const struct dl_message *msg)
{
    return worker_socket_send(h->place.sock, msg, -1);
}

/* ---- the forked worker ----------------------------------------------------------------------- */

static bool python_host_is_clients(const struct host *h)
{
    return h->place.channel >= 0;
}

/* What the host was started with, and other workers' sockets, are none of this worker's: its
 * socket, or -1. */
static int python_host_take_descriptors(int sock, int errors)
{
    if (dup2(errors, STDERR_FILENO) < 0 || dup2(sock, WORKER_SOCKET) < 0)
        return -1;
    sandbox_close_from(WORKER_SOCKET + 1);
    return WORKER_SOCKET;
}

/* The same of a client's, whose dataset has files open: all but the host's own stay. */
static int python_host_keep_descriptors(const struct host *h, int sock, int errors)
{
    if (!h->place.keeps_errors && dup2(errors, STDERR_FILENO) < 0)
        return -1;
    close(errors);
    close(h->place.sock);
    close(h->place.channel);
    if (h->client >= 0)
        close(h->client);
    for (uint32_t i = 0; i < h->n; i++)
        close(h->children[i].fd);
    return sock;
}

/*
 * Of a client's nothing is taken away: it may do what the client may. Each is in a session of its
 * own: a signal that a dataset sends to its process group reaches neither the host nor, of a
 * client's, the program. That program's own group is its host's, too: what ends the one by a signal
 * ends the other, and the workers with it.
 */
static void python_host_settle(const struct host *h, pid_t host)
{
    (void)setsid();
    if (python_host_is_clients(h)) {
        sandbox_go_first();
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)prctl(PR_SET_NAME, "dloader-worker");
    } else {
        sandbox_harden();
    }
    if (getppid() != host) /* it died before we asked to be told */
        _exit(FAILED_STATUS);
}

static void python_host_flush(const char *name)
{
    PyObject *stream = PySys_GetObject(name); /* borrowed */

    if (stream && stream != Py_None)
        Py_XDECREF(PyObject_CallMethod(stream, "flush", NULL));
    PyErr_Clear();
}

/* Nothing of the host's is finalized here: the datasets are closed, and what was printed is out. */
static void python_host_run_worker(const struct host *h, int sock, int errors, pid_t host)
{
    int status = FAILED_STATUS;

    sock = python_host_is_clients(h) ? python_host_keep_descriptors(h, sock, errors)
                                     : python_host_take_descriptors(sock, errors);
    if (sock >= 0) {
        python_host_settle(h, host);
        status = worker_run(sock, &python_engine);
    }
    python_host_flush("stdout");
    python_host_flush("stderr");
    _exit(status);
}

/* ---- starting -------------------------------------------------------------------------------- */

static bool python_host_grow(struct host *h)
{
    uint32_t room = h->room ? 2 * h->room : 16;

    if (h->n < h->room)
        return true;
    struct child *children = realloc(h->children, room * sizeof *children);
    if (children)
        h->children = children;
    struct pollfd *polls = realloc(h->polls, (room + OWN_POLLS) * sizeof *polls);
    if (polls)
        h->polls = polls;
    if (!children || !polls)
        return false;
    h->room = room;
    return true;
}

/* The process; 0: it could not be started. */
static pid_t python_host_fork_worker(const struct host *h, int sock, int errors)
{
    pid_t host = getpid();

    python_host_flush("stdout");
    python_host_flush("stderr");
    PyOS_BeforeFork();
    pid_t pid = fork();
    int code = errno;
    if (pid != 0) {
        PyOS_AfterFork_Parent();
        if (pid < 0)
            (void)dprintf(errors, "fork(): %s%s\n", strerror(code),
                          code == EAGAIN ? "; the limit of processes (RLIMIT_NPROC, pids.max) is "
                                           "reached: raise it, or lower workers.count"
                                         : "");
        return pid > 0 ? pid : 0;
    }
    PyOS_AfterFork_Child();
    python_host_run_worker(h, sock, errors, host);
    return 0; /* not reached */
}

static pid_t python_host_start(struct host *h, uint32_t number, int sock, int errors)
{
    if (sock < 0 || errors < 0 || !python_host_grow(h))
        return 0;
    pid_t pid = python_host_fork_worker(h, sock, errors);
    if (pid == 0)
        return 0;
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0) {
        char remedy[OPEN_FILES_REMEDY_MAX];
        (void)dprintf(errors, "pidfd_open(): %s%s\n", strerror(errno),
                      open_files_remedy(errno, remedy));
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        return 0;
    }
    h->children[h->n++] = (struct child){.number = number, .pid = pid, .fd = fd};
    return pid;
}

static int python_host_handle_fork(struct host *h, const struct dl_msg_w_fork *msg)
{
    _cleanup_fd_ int sock = frame_reader_take_fd(&h->reader);
    _cleanup_fd_ int errors = frame_reader_take_fd(&h->reader);
    pid_t pid = python_host_start(h, (uint32_t)msg->child, sock, errors);

    return python_host_send_message(
        h, &(struct dl_message){.number = DL_MSG_W_STARTED,
                                .w_started = {.child = msg->child, .pid = (uint64_t)pid}});
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void python_host_handle_kill(struct host *h, const struct dl_msg_w_kill *msg)
{
    for (uint32_t i = 0; i < h->n; i++)
        if (h->children[i].number == msg->child)
            (void)kill(h->children[i].pid, SIGKILL); /* not reaped yet: it is still that process */
}

static int python_host_reap(struct host *h, uint32_t at)
{
    struct child child = h->children[at];
    int status = 0;

    while (waitpid(child.pid, &status, 0) < 0)
        if (errno != EINTR)
            break;
    close(child.fd);
    h->children[at] = h->children[--h->n];
    bool exited = WIFEXITED(status);
    return python_host_send_message(
        h, &(struct dl_message){.number = DL_MSG_W_EXITED,
                                .w_exited = {.child = child.number,
                                             .status = exited ? (uint64_t)WEXITSTATUS(status) : 0,
                                             .signal = exited ? 0 : (uint64_t)WTERMSIG(status)}});
}

static void python_host_end_workers(struct host *h)
{
    for (uint32_t i = 0; i < h->n; i++)
        (void)kill(h->children[i].pid, SIGKILL);
    for (uint32_t i = 0; i < h->n; i++) {
        while (waitpid(h->children[i].pid, NULL, 0) < 0 && errno == EINTR)
            continue;
        close(h->children[i].fd);
    }
    h->n = 0;
}

/* The daemon has gone. A client's host waits for the next one: 0. */
static int python_host_part(struct host *h)
{
    python_host_end_workers(h);
    if (!python_host_is_clients(h))
        return -EPIPE;
    close_fdp(&h->place.sock);
    frame_reader_deinit(&h->reader);
    h->reader = (struct frame_reader){0};
    return 0;
}

static void python_host_deinit(struct host *h)
{
    python_host_end_workers(h);
    if (python_host_is_clients(h))
        close_fdp(&h->place.sock);
    close_fdp(&h->client);
    free(h->children);
    free(h->polls);
    frame_reader_deinit(&h->reader);
}

/* ---- the loop -------------------------------------------------------------------------------- */

static int python_host_handle_message(void *owner, const struct dl_message *msg)
{
    struct host *h = owner;

    switch (msg->number) {
    case DL_MSG_W_FORK:
        return python_host_handle_fork(h, &msg->w_fork);
    case DL_MSG_W_KILL:
        python_host_handle_kill(h, &msg->w_kill);
        return 0;
    default:
        return -EPROTO;
    }
}

static int python_host_greet(struct host *h)
{
    (void)fcntl(h->place.sock, F_SETFD, FD_CLOEXEC);
    return python_host_send_message(
        h, &(struct dl_message){.number = DL_MSG_W_HOSTING,
                                .w_hosting = {.version = DL_WORKER_VERSION}});
}

/* The client has another daemon, or is gone: -EPIPE. */
static int python_host_handle_channel(struct host *h)
{
    _cleanup_(frame_reader_deinit) struct frame_reader reader = {0};
    char remedy[OPEN_FILES_REMEDY_MAX];
    ssize_t n = fdpass_recv(h->place.channel, &reader, MSG_DONTWAIT);

    if (n == -EAGAIN)
        return 0;
    if (n == -EMFILE)
        fprintf(stderr, "dloaderd.host: a file descriptor was lost%s\n",
                open_files_remedy(EMFILE, remedy));
    int sock = n > 0 ? frame_reader_take_fd(&reader) : -1;
    if (sock < 0)
        return n < 0 && n != -ECONNRESET ? (int)n : -EPIPE;
    (void)python_host_part(h);
    h->place.sock = sock;
    int r = python_host_greet(h);
    return r == -EPIPE ? python_host_part(h) : r; /* that one has gone, too */
}

static int python_host_handle_socket(struct host *h)
{
    int r = worker_socket_read(h->place.sock, &h->reader, "dloaderd.host",
                               python_host_handle_message, h);

    return r == -EPIPE || (r < 0 && python_host_is_clients(h)) ? python_host_part(h) : r;
}

static int python_host_handle_events(struct host *h, uint32_t n)
{
    int r = 0;

    /* From the last: reaping one moves the last into its place. */
    for (uint32_t i = n; r == 0 && i-- > 0;)
        if (h->polls[OWN_POLLS + i].revents)
            r = python_host_reap(h, i);
    if (r == -EPIPE) /* nobody hears of it any more; the socket says so, too */
        r = 0;
    if (r == 0 && h->polls[0].revents)
        r = python_host_handle_socket(h);
    if (r == 0 && h->polls[1].revents)
        r = python_host_handle_channel(h);
    return r == 0 && h->polls[2].revents ? -EPIPE : r;
}

static int python_host_wait_for(struct host *h)
{
    uint32_t n = h->n;
    int r, code;

    h->polls[0] = (struct pollfd){.fd = h->place.sock, .events = POLLIN};
    h->polls[1] = (struct pollfd){.fd = h->place.channel, .events = POLLIN};
    h->polls[2] = (struct pollfd){.fd = h->client, .events = POLLIN};
    for (uint32_t i = 0; i < n; i++)
        h->polls[OWN_POLLS + i] = (struct pollfd){.fd = h->children[i].fd, .events = POLLIN};
    Py_BEGIN_ALLOW_THREADS r = poll(h->polls, OWN_POLLS + n, -1);
    code = r < 0 ? errno : 0;
    Py_END_ALLOW_THREADS if (code != 0) return code == EINTR ? 0 : -code;
    return python_host_handle_events(h, n);
}

static void python_host_settle_signals(void)
{
    (void)signal(SIGCHLD, SIG_DFL); /* ignored, children's ends would not be told */
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGINT, SIG_IGN); /* Ctrl-C is for the daemon, or the client */
}

void host_leave_signals(void)
{
    for (int number = 1; number < NSIG; number++) {
        struct sigaction now;
        bool faults = number == SIGSEGV || number == SIGBUS || number == SIGFPE ||
                      number == SIGILL || number == SIGABRT;

        if (faults || sigaction(number, NULL, &now) < 0 || now.sa_handler == SIG_IGN ||
            now.sa_handler == SIG_DFL)
            continue;
        (void)signal(number, number == SIGTERM ? SIG_DFL : SIG_IGN);
    }
    python_host_settle_signals();
}

/*
 * A program may have closed its standard streams: then nothing else gets their numbers here, which
 * workers print to. 0, or a negative errno.
 */
static int python_host_keep_standard_streams_apart(struct host *h)
{
    int fd = 0;

    if (h->place.channel <= STDERR_FILENO)
        h->place.channel = fcntl(h->place.channel, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (h->place.channel < 0)
        return -errno;
    while (fd >= 0 && fd <= STDERR_FILENO)
        fd = open("/dev/null", O_RDWR);
    if (fd < 0)
        return -errno;
    close(fd);
    return 0;
}

int host_serve(const struct host_place *place)
{
    _cleanup_(python_host_deinit) struct host h = {.place = *place, .client = -1};
    int r = 0;

    if (!python_host_grow(&h)) {
        PyErr_NoMemory();
        return -1;
    }
    if (python_host_is_clients(&h)) {
        host_leave_signals();
        /* Where that fails, as for a client in another pid namespace, its channel tells. */
        h.client = (int)syscall(SYS_pidfd_open, place->client, 0);
        r = python_host_keep_standard_streams_apart(&h);
    }
    python_host_settle_signals();
    if (place->sock >= 0)
        r = python_host_greet(&h);
    while (r == 0)
        r = python_host_wait_for(&h);
    return r == -EPIPE ? 0 : FAILED_STATUS;
}
