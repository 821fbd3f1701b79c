#include "daemon/base/listener.h"

#include "daemon/base/memory.h"
#include "proto/common/open_files.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

enum {
    /* A client that finds the queue full waits in connect(), in a queue of processes, in which a
     * user who floods us has few entries. A longer backlog would put the flood in front of everyone
     * else. As in the socket units. */
    LISTENER_BACKLOG = 128,
    ACCEPT_AT_ONCE = 8, /* in a turn of the loop, which comes back at once for the others */
    PAUSE_MS = 100,     /* when the process runs out of descriptors */
};

struct listener {
    uv_poll_t poll;
    uv_timer_t pause;
    uint32_t handles;
    bool paused;
    int fd;      /* owned */
    int lock_fd; /* owned; -1 when the socket was passed to us */
    char *path;  /* owned; NULL when the socket was passed to us */
    char *lock;  /* owned */
    listener_accepted accepted;
    void (*waits)(void *context); /* NULL: all connections are accepted at once */
    void *context;
};

static void listener_on_readable(uv_poll_t *poll, int status, int events);

static void listener_on_pause_over(uv_timer_t *timer)
{
    struct listener *l = timer->data;

    if (!l->paused)
        uv_poll_start(&l->poll, UV_READABLE, listener_on_readable);
}

void listener_pause(struct listener *l, bool paused)
{
    if (l->paused == paused)
        return;
    l->paused = paused;
    if (paused) {
        uv_poll_stop(&l->poll);
    } else if (!uv_is_active((uv_handle_t *)&l->pause)) {
        uv_poll_start(&l->poll, UV_READABLE, listener_on_readable);
        listener_on_readable(&l->poll, 0, UV_READABLE);
    }
}

bool listener_let_in(struct listener *l)
{
    int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), code = errno;

    if (fd >= 0) {
        l->accepted(l->context, fd);
        return true;
    }
    char remedy[OPEN_FILES_REMEDY_MAX];

    if (code == EMFILE || code == ENFILE || code == ENOMEM || code == ENOBUFS) {
        /* The connection stays readable: without a pause the loop would spin on it. */
        log_warning("cannot accept a connection: %s%s", strerror(code),
                    open_files_remedy(code, remedy));
        uv_poll_stop(&l->poll);
        uv_timer_start(&l->pause, listener_on_pause_over, PAUSE_MS, 0);
    }
    return code == EINTR || code == ECONNABORTED;
}

static void listener_on_readable(uv_poll_t *poll, int status, int events)
{
    struct listener *l = poll->data;

    (void)status, (void)events;
    if (l->waits) {
        l->waits(l->context);
        return;
    }
    for (int i = 0; i < ACCEPT_AT_ONCE && !l->paused && listener_let_in(l); i++)
        ;
}

void listener_ask(struct listener *l, void (*waits)(void *context))
{
    l->waits = waits;
}

/* ---- a socket of our own -------------------------------------------------------------------- */

static int listener_fill_address(const char *path, struct sockaddr_un *ret, struct dl_error *err)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof ret->sun_path)
        return dl_error_set(err, ENAMETOOLONG, path,
                            "a socket's path can have %zu bytes, this one has %zu; choose a "
                            "shorter directory",
                            sizeof ret->sun_path - 1, strlen(path));
    memcpy(ret->sun_path, path, strlen(path));
    return 0;
}

static int listener_in_use(const char *path, struct dl_error *err)
{
    return dl_error_set(err, EADDRINUSE, path,
                        "a daemon already listens there; stop it (dlctl stop --socket %s) or "
                        "choose another path",
                        path);
}

/* Whether SIGKILL is on its way: a process has all it had until it has run once more, and died. */
static bool listener_is_killed(pid_t pid)
{
    char path[32], text[4096];

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n < 0)
        return false;
    text[n] = '\0';
    const char *pending = strstr(text, "\nShdPnd:");
    return pending && strtoull(strchr(pending, ':') + 1, NULL, 16) & 1ULL << (SIGKILL - 1);
}

/* Waits for the end of the process that holds the lock, if it is killed; false: it lives. */
static bool listener_await_end(int fd)
{
    struct flock holder = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    if (fcntl(fd, F_GETLK, &holder) < 0 || holder.l_type == F_UNLCK)
        return true;
    if (holder.l_pid <= 0 || !listener_is_killed(holder.l_pid))
        return false;
    _cleanup_fd_ int ends = (int)syscall(SYS_pidfd_open, holder.l_pid, 0);
    struct pollfd wait = {.fd = ends, .events = POLLIN};
    return ends < 0 || poll(&wait, 1, -1) == 1 || errno == EINTR;
}

/* Holding the lock means that no daemon of ours lives at this path. It is the process's, not the
 * descriptor's (flock): a worker that a killed daemon had forked but not yet executed has copies of
 * all descriptors, and would hold it. */
static int listener_lock(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int r;

    while ((r = fcntl(fd, F_SETLK, &whole)) < 0 && (errno == EAGAIN || errno == EACCES) &&
           listener_await_end(fd))
        ;
    return r;
}

static int listener_take_lock(struct listener *l, struct dl_error *err)
{
    for (;;) {
        struct stat opened;
        struct stat named;

        l->lock_fd = open(l->lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (l->lock_fd < 0 && errno == ENOENT)
            return dl_error_set(err, ENOENT, l->path,
                                "its directory does not exist; create it or choose another path");
        if (l->lock_fd < 0)
            return dl_error_set(err, errno, l->lock, "cannot be created: %s", strerror(errno));
        if (listener_lock(l->lock_fd) < 0) {
            close_fdp(&l->lock_fd); /* it is not ours to remove, not even a moment later */
            return listener_in_use(l->path, err);
        }
        /* The former holder may have removed it just now: then this lock protects nothing. */
        if (fstat(l->lock_fd, &opened) == 0 && stat(l->lock, &named) == 0 &&
            opened.st_ino == named.st_ino && opened.st_dev == named.st_dev)
            return 0;
        close_fdp(&l->lock_fd);
    }
}

/* A worker may hold the listening socket, too: the process that called listen() must be alive. */
static bool listener_is_served(int sock)
{
    struct ucred peer = {0};
    socklen_t len = sizeof peer;

    return getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.pid <= 0 ||
           kill(peer.pid, 0) == 0 || errno != ESRCH;
}

/* Clears the path: empty, a dead daemon's socket (removed), or someone else's file (refused). */
static int listener_clear_path(const struct listener *l, const struct sockaddr_un *address,
                               struct dl_error *err)
{
    _cleanup_fd_ int probe = -1;
    struct stat st;

    if (lstat(l->path, &st) < 0)
        return errno == ENOENT
                   ? 0
                   : dl_error_set(err, errno, l->path, "cannot be used: %s", strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return dl_error_set(err, EEXIST, l->path,
                            "exists and is not a socket; remove it or choose another path");
    probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe >= 0 && connect(probe, (const struct sockaddr *)address, sizeof *address) == 0 &&
        listener_is_served(probe))
        return listener_in_use(l->path, err);
    if (unlink(l->path) < 0)
        return dl_error_set(err, errno, l->path, "cannot be taken over: %s", strerror(errno));
    log_info("%s: taken over from a dead daemon", l->path);
    return 0;
}

static int listener_set_owner(const struct config *config, struct dl_error *err)
{
    const struct group *group = NULL;

    if (*config->socket_group) {
        group = getgrnam(config->socket_group);
        if (!group)
            return dl_error_set(err, EINVAL, "socket_group", "there is no group \"%s\"",
                                config->socket_group);
    }
    if (group && chown(config->socket, (uid_t)-1, group->gr_gid) < 0)
        return dl_error_set(err, errno, "socket_group", "%s cannot be given to group %s: %s",
                            config->socket, config->socket_group, strerror(errno));
    if (chmod(config->socket, config->socket_mode) < 0)
        return dl_error_set(err, errno, config->socket, "its mode cannot be set: %s",
                            strerror(errno));
    return 0;
}

static int listener_bind_path(struct listener *l, const struct config *config, struct dl_error *err)
{
    struct sockaddr_un address;
    int r = listener_fill_address(config->socket, &address, err);

    if (r < 0)
        return r;
    if (asprintf(&l->lock, "%s.lock", config->socket) < 0)
        return -ENOMEM;
    l->path = must_strdup(config->socket);
    if ((r = listener_take_lock(l, err)) < 0 || (r = listener_clear_path(l, &address, err)) < 0)
        return r;
    l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* Clients can connect only after listen(), when mode and group are right. Until then they get
     * ECONNREFUSED, which they may take for "not yet"; a wrong mode would deny access for good. */
    mode_t mask = umask(0);
    r = l->fd < 0 ? -1 : bind(l->fd, (const struct sockaddr *)&address, sizeof address);
    int code = errno;
    umask(mask);
    if (r < 0)
        return dl_error_set(err, code, config->socket, "cannot be bound: %s", strerror(code));
    if ((r = listener_set_owner(config, err)) < 0)
        return r;
    if (listen(l->fd, LISTENER_BACKLOG) < 0)
        return dl_error_set(err, errno, config->socket, "cannot listen there: %s", strerror(errno));
    return 0;
}

int listener_new(uv_loop_t *loop, const struct config *config, int passed_fd,
                 listener_accepted accepted, void *context, struct listener **ret,
                 struct dl_error *err)
{
    struct listener *l = must_alloc(sizeof *l);
    int r = 0;

    l->fd = passed_fd;
    l->lock_fd = -1;
    l->accepted = accepted;
    l->context = context;
    l->poll.data = l->pause.data = l;
    if (passed_fd < 0)
        r = listener_bind_path(l, config, err);
    else
        r = fcntl(passed_fd, F_SETFL, O_NONBLOCK);
    if (r == 0 && (r = uv_poll_init(loop, &l->poll, l->fd)) == 0) {
        l->handles = 2;
        uv_timer_init(loop, &l->pause);
        r = uv_poll_start(&l->poll, UV_READABLE, listener_on_readable);
    }
    if (r < 0) {
        if (err && !err->code)
            dl_error_set(err, -r, "socket", "cannot be watched: %s", uv_strerror(r));
        listener_free(l);
        return r;
    }
    *ret = l;
    return 0;
}

static void listener_destroy(struct listener *l)
{
    free(l->path);
    free(l->lock);
    free(l);
}

static void listener_on_closed(uv_handle_t *handle)
{
    struct listener *l = handle->data;

    if (--l->handles == 0) {
        close_fdp(&l->fd);
        listener_destroy(l);
    }
}

struct listener *listener_free(struct listener *l)
{
    if (!l)
        return NULL;
    /* Only the holder of the lock owns the names. */
    if (l->lock_fd >= 0 && l->fd >= 0)
        (void)unlink(l->path);
    if (l->lock_fd >= 0 && listener_lock(l->lock_fd) == 0)
        (void)unlink(l->lock);
    close_fdp(&l->lock_fd);
    if (l->handles == 0) {
        close_fdp(&l->fd);
        listener_destroy(l);
        return NULL;
    }
    uv_close((uv_handle_t *)&l->poll, listener_on_closed);
    uv_close((uv_handle_t *)&l->pause, listener_on_closed);
    return NULL;
}
