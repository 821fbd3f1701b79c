#include "client/dlctl/top/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { READ_BYTES = 64 * 1024 };

static int send_all(int fd, const uint8_t *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

/* The life of the process: nobody hears its errors but who asked. */
static void serve(int fd, const char *socket)
{
    struct top_looker looker = {.socket = socket};
    struct dl_buffer out = {0};
    char byte;
    ssize_t n;

    for (;;) {
        do {
            n = read(fd, &byte, 1);
        } while (n < 0 && errno == EINTR);
        out.len = 0;
        if (n != 1 || top_look(&looker, &out) < 0 || send_all(fd, out.data, out.len) < 0)
            break;
    }
    buffer_deinit(&out);
    top_looker_deinit(&looker);
}

/* It ends with its parent, neither a moment later (`parent` may be gone already) nor before: Ctrl-C
 * and Ctrl-Z go to both, and are the parent's to hear. */
static void child(int fd, const char *socket, pid_t parent)
{
    static const int parents[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(parents); i++)
        sigaddset(&set, parents[i]);
    sigprocmask(SIG_SETMASK, &set, NULL);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent)
        serve(fd, socket);
    _exit(0);
}

int top_watch_start(const char *socket, struct top_watch *ret)
{
    pid_t parent = getpid(), pid;
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return -errno;
    pid = fork();
    if (pid == 0) {
        close(fds[0]);
        child(fds[1], socket, parent);
    }
    int r = pid < 0 ? -errno : 0;
    close(fds[1]);
    if (r == 0 && fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0)
        r = -errno;
    *ret = (struct top_watch){.fd = fds[0], .pid = pid > 0 ? pid : 0};
    if (r < 0)
        top_watch_deinit(ret);
    return r;
}

void top_watch_deinit(struct top_watch *watch)
{
    if (watch->pid > 0) {
        (void)kill(watch->pid, SIGKILL);
        while (waitpid(watch->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    close_fdp(&watch->fd);
    buffer_deinit(&watch->in);
    watch->pid = 0;
}

int top_watch_ask(struct top_watch *watch)
{
    if (watch->asked)
        return 0;
    watch->asked = true;
    return send_all(watch->fd, (const uint8_t *)"?", 1);
}

static int take(struct top_watch *watch, struct top_seen *ret)
{
    size_t len = 0;
    int r = top_seen_read(watch->in.data, watch->in.len, ret, &len);

    if (r <= 0)
        return r;
    memmove(watch->in.data, watch->in.data + len, watch->in.len - len);
    watch->in.len -= len;
    watch->asked = false;
    return 1;
}

int top_watch_read(struct top_watch *watch, struct top_seen *ret)
{
    uint8_t bytes[READ_BYTES];

    for (;;) {
        ssize_t n = read(watch->fd, bytes, sizeof bytes);
        int r;

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : -errno;
        if (n == 0)
            return -EPIPE;
        r = buffer_append(&watch->in, bytes, (size_t)n);
        if (r == 0)
            r = take(watch, ret);
        if (r != 0)
            return r;
    }
}
