/*
 * The daemon's socket: where it is, and whether who listens there may be the daemon. A client gives
 * the daemon code and Python hosts and reads its memory, so it asks the kernel for the listener's
 * user, whatever the path:
 *
 *   this user         its own service, or the private daemon of one of its programs
 *   root              a service of the system, and any socket that systemd listens at for one
 *   dloaderd          the user of the system's service, as its package makes it
 *   $DLOADER_DAEMON_USER   another one, by its name or its number
 */
#include "client/internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

/* The socket's queue of connections is full: so long one waits in it for a place at a time. */
#define CONNECT_WAIT       (NS_PER_S / 10)

#define DIAL_SERVICE_USER  "dloaderd"
#define DIAL_USER_VARIABLE "DLOADER_DAEMON_USER"

static bool dial_has_name(uid_t uid, const char *name)
{
    struct passwd entry, *found = NULL;
    char buf[4096];

    return getpwnam_r(name, &entry, buf, sizeof buf, &found) == 0 && found && entry.pw_uid == uid;
}

static bool dial_is_named(uid_t uid, const char *name)
{
    char *end;
    unsigned long number = strtoul(name, &end, 10);

    return *name >= '0' && *name <= '9' && *end == '\0' ? number == uid : dial_has_name(uid, name);
}

/* 0, or a negative errno with `err`, which names the socket's owner. */
static int dial_check(int sock, struct dl_error *err)
{
    const char *named = getenv(DIAL_USER_VARIABLE);
    struct ucred peer;
    socklen_t len = sizeof peer;

    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return dl_error_set(err, errno, "", "who listens there: %s", strerror(errno));
    if (peer.uid == geteuid() || peer.uid == 0 || dial_has_name(peer.uid, DIAL_SERVICE_USER) ||
        (named && dial_is_named(peer.uid, named)))
        return 0;
    return dl_error_set(
        err, EPERM, "",
        "user %u listens there, who is not this one (%u), root or " DIAL_SERVICE_USER
        "; to use that user's daemon, set " DIAL_USER_VARIABLE "=%u",
        (unsigned)peer.uid, (unsigned)geteuid(), (unsigned)peer.uid);
}

/* $XDG_RUNTIME_DIR, borrowed; NULL if it is unset, or another user's, as `why_not` then says. */
static const char *dial_runtime_dir(struct dl_error *why_not)
{
    const char *dir = getenv("XDG_RUNTIME_DIR");
    struct stat st;

    if (!dir || !dir[0] || stat(dir, &st) < 0)
        return NULL;
    if (st.st_uid == geteuid())
        return dir;
    (void)!dl_error_set(why_not, EPERM, dir,
                        "belongs to user %u, and is not used for user %u, as after su: unset "
                        "XDG_RUNTIME_DIR, or log in as that user",
                        (unsigned)st.st_uid, (unsigned)geteuid());
    return NULL;
}

/* One that waits in connect() for so long, less than a second; 0: not at all. */
static int dial_make_socket(uint64_t wait_ns)
{
    const struct timeval wait = {.tv_usec = (suseconds_t)(wait_ns / 1000 + 1)};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | (wait_ns ? 0 : SOCK_NONBLOCK), 0);

    assert(wait_ns < NS_PER_S);
    if (fd >= 0 && wait_ns && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) < 0)
        close_fdp(&fd);
    return fd < 0 ? -errno : fd;
}

static int dial_connect(const char *path, uint64_t wait_ns, int *ret)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _cleanup_fd_ int fd = dial_make_socket(wait_ns);
    size_t len = strlen(path);

    if (fd < 0)
        return fd;
    if (len >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    memcpy(address.sun_path, path, len + 1);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    if (wait_ns && fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
        return -errno;
    *ret = steal_fd(&fd);
    return 0;
}

int client_dial(const char *path, uint64_t wait_ns, int *ret, struct dl_error *err)
{
    int r = dial_connect(path, wait_ns, ret);

    if (r < 0)
        return dl_error_set(err, -r, "", "connect: %s", strerror(-r));
    r = dial_check(*ret, err);
    if (r < 0)
        close_fdp(ret);
    return r;
}

static int dial_fail(struct connection *conn, const char *path, const struct dl_error *err)
{
    static const struct {
        int code;
        const char *text;
    } remedies[] = {
        {ENOENT, "no socket there: start dloaderd, or set DLOADER_SOCKET to where it listens"},
        {ENOTDIR, "no socket there: start dloaderd, or set DLOADER_SOCKET to where it listens"},
        {ECONNREFUSED, "no daemon listens there; start dloaderd"},
        {EACCES, "permission denied by the daemon's socket_mode and socket_group; to use the "
                 "system's service, join the group dloaderd and log in again"},
        {EPROTOTYPE, "a socket of another kind, not dloaderd's; name dloaderd's socket"},
        {EAGAIN, "dloaderd accepts no connections"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(remedies); i++)
        if (remedies[i].code == err->code)
            return connection_fail(conn, err->code == EAGAIN ? ETIMEDOUT : err->code, path, "%s",
                                   remedies[i].text);
    return connection_fail(conn, err->code, path, "%s", err->message);
}

static int dial_wait(struct connection *conn, const char *path, uint64_t deadline, int *ret)
{
    size_t len = strlen(path), max = sizeof(((struct sockaddr_un *)NULL)->sun_path);
    struct dl_error err = {0};
    int r;

    if (len == 0)
        return connection_fail(conn, ENOENT, "", "the path of the daemon's socket is empty");
    if (len >= max)
        return connection_fail(conn, ENAMETOOLONG, path,
                               "a socket's path can have %zu bytes, this one has %zu; choose a "
                               "shorter one",
                               max - 1, len);
    r = client_dial(path, 0, ret, &err);
    while (r < 0) {
        uint64_t now = clock_ns();

        if (r != -EAGAIN || now >= deadline)
            return dial_fail(conn, path, &err);
        if ((r = wait_fd(-1, 0, now)) != -ETIMEDOUT) /* checks for an interrupt */
            return connection_fail(conn, r == -EINTR ? EINTR : EIO, path, "waiting to connect");
        r = client_dial(path, min_u64(CONNECT_WAIT, deadline - now), ret, &err);
    }
    return 0;
}

/* Where the user's own daemon listens. False if there is no such place; `why` may hold the
 * reason. */
static bool dial_own_path(char *buf, size_t size, struct dl_error *why)
{
    const char *dir = dial_runtime_dir(why);
    int n = dir ? snprintf(buf, size, "%s/dloaderd/socket", dir) : 0;

    return n > 0 && (size_t)n < size;
}

/* Adds to the failure why the user's own daemon was not tried. */
static void dial_add_to_failure(struct connection *conn, const struct dl_error *why)
{
    const struct dl_error failed = conn->fatal;

    (void)!dl_error_set(&conn->fatal, failed.code, failed.path, "%s; $XDG_RUNTIME_DIR, %s, %s",
                        failed.message, why->path, why->message);
}

int client_find_daemon(struct connection *conn, char *buf, size_t size, uint64_t deadline,
                       const char **path, int *ret)
{
    const char *env = getenv("DLOADER_SOCKET");
    struct dl_error why = {0}, err = {0};

    if (*path)
        return dial_wait(conn, *path, deadline, ret);
    *path = env && env[0] ? env : "/run/dloaderd/socket";
    if (*path != env && dial_own_path(buf, size, &why)) {
        int r = client_dial(buf, 0, ret, &err);

        if (r == 0)
            return 0;
        if (r != -ENOENT && r != -ENOTDIR && r != -ECONNREFUSED)
            *path = buf;
    }
    int r = dial_wait(conn, *path, deadline, ret);
    if (r < 0 && why.code)
        dial_add_to_failure(conn, &why);
    return r;
}
