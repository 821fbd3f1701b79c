#include "daemon/helper/far_python.h"

#include "daemon/worker/worker_socket.h"
#include "proto/codec.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum {
    FAR_PYTHON_OBJECT = WORKER_SOCKET + 1, /* where dloaderd.host finds it */
    FAR_PYTHON_TELL_MS = 1000,
    FAR_PYTHON_TIMES = 300, /* so often: until it has imported what it is to, on slow storage */
    FAR_PYTHON_REAP = 5,
};

/* The places where it has these two, whatever stands there now. */
static bool far_python_hand_over(int sock, int object)
{
    enum { ELSEWHERE = FAR_PYTHON_OBJECT + 1 };
    int own = fcntl(sock, F_DUPFD_CLOEXEC, ELSEWHERE);
    int own_object = object < 0 ? -1 : fcntl(object, F_DUPFD_CLOEXEC, ELSEWHERE);

    return own >= 0 && dup2(own, WORKER_SOCKET) >= 0 &&
           (object < 0 || (own_object >= 0 && dup2(own_object, FAR_PYTHON_OBJECT) >= 0));
}

static pid_t far_python_spawn(const char *interpreter, int sock, int object)
{
    char module[] = "-m", name[] = "dloaderd.host", sent[] = "--sent";
    char *args[] = {(char *)(uintptr_t)interpreter, module, name, object < 0 ? NULL : sent, NULL};
    pid_t pid = fork();

    if (pid == 0) {
        if (far_python_hand_over(sock, object))
            (void)execve(interpreter, args, environ);
        _exit(127);
    }
    return pid;
}

/* Its next message, which has to be that one. -ETIMEDOUT: none for `seconds`. */
static int far_python_hear(struct far_python *host, enum message_number wanted, int seconds,
                           const struct data_progress *progress, struct dl_message *ret)
{
    struct pollfd one = {.fd = host->sock, .events = POLLIN};
    struct dl_span payload;
    int r = frame_reader_next(&host->reader, &payload);

    while (r == 0 && seconds > 0) {
        int n = poll(&one, 1, FAR_PYTHON_TELL_MS);

        if (n == 0 && progress)
            progress->tell(progress->owner, "", 0, UINT64_MAX);
        seconds -= n == 0;
        if (n <= 0)
            continue;
        ssize_t got = fdpass_recv(host->sock, &host->reader, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && got != -EAGAIN))
            return got == 0 ? -EPIPE : (int)got;
        r = frame_reader_next(&host->reader, &payload);
    }
    if (r == 0)
        return -ETIMEDOUT;
    if (r > 0)
        r = message_decode(payload.data, payload.len, FROM_WORKER, ret, NULL);
    return r == 0 && ret->number != wanted ? -EPROTO : r;
}

static int far_python_fork(struct far_python *host, int sock)
{
    const int fds[] = {sock, STDERR_FILENO};
    _cleanup_(buffer_deinit) struct dl_buffer out = {0};
    int r = message_encode(&(struct dl_message){.number = DL_MSG_W_FORK}, &out);

    if (r < 0)
        return r;
    ssize_t n = fdpass_send(host->sock, out.data, out.len, fds, ARRAY_SIZE(fds), 0);
    return n < 0 ? (int)n : (size_t)n == out.len ? 0 : -EPIPE;
}

static int far_python_begin(struct far_python *host, int sock, const struct data_progress *progress)
{
    struct dl_message msg;
    int r = far_python_hear(host, DL_MSG_W_HOSTING, FAR_PYTHON_TIMES, progress, &msg);

    if (r == 0 && msg.w_hosting.version != DL_WORKER_VERSION)
        r = -EPROTO;
    if (r == 0)
        r = far_python_fork(host, sock);
    if (r == 0)
        r = far_python_hear(host, DL_MSG_W_STARTED, FAR_PYTHON_TIMES, progress, &msg);
    return r == 0 && msg.w_started.pid == 0 ? -ECHILD : r;
}

int far_python_start(struct far_python *host, const char *interpreter, int sock, int object,
                     const struct data_progress *progress, struct dl_error *err)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    _cleanup_fd_ int theirs = pair[1];
    host->sock = pair[0];
    host->pid = far_python_spawn(interpreter, theirs, object);
    int r = host->pid < 0 ? -errno : 0;
    close_fdp(&theirs);
    if (r == 0)
        r = far_python_begin(host, sock, progress);
    if (host->pid < 0) {
        host->pid = 0;
        close_fdp(&host->sock);
    }
    return r == 0 ? 0
                  : dl_error_set(err, -r, interpreter,
                                 "the helper cannot start Python's workers: %s; its log has more",
                                 r == -EPIPE    ? "the interpreter has ended"
                                 : r == -EPROTO ? "its package dloaderd is of another release"
                                                : strerror(-r));
}

int far_python_reap(struct far_python *host)
{
    struct dl_message msg;

    if (far_python_hear(host, DL_MSG_W_EXITED, FAR_PYTHON_REAP, NULL, &msg) < 0)
        return SIGKILL; /* the host is gone, too, or hangs */
    return (int)(msg.w_exited.signal ? msg.w_exited.signal : msg.w_exited.status << 8);
}

void far_python_deinit(struct far_python *host)
{
    if (host->pid > 0) {
        (void)kill(host->pid, SIGKILL); /* its worker ends with it */
        (void)waitpid(host->pid, NULL, 0);
        close_fdp(&host->sock);
    }
    frame_reader_deinit(&host->reader);
}
