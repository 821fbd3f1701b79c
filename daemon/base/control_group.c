#include "daemon/base/control_group.h"

#include "proto/common/fd_io.h"
#include "proto/common/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD /* of Linux 6.5; headers may be older */
#define SO_PEERPIDFD 77
#endif

enum { CONTROL_GROUP_TEXT_MAX = 16 * 1024 }; /* of a file in /proc; the rest is not read */

/* ---- parsing -------------------------------------------------------------------------------- */

static bool control_group_is_of_memory(const char *controllers, size_t len)
{
    static const char word[] = "memory";
    size_t size = sizeof word - 1;

    for (size_t at = 0; at + size <= len; at += strcspn(controllers + at, ",:") + 1)
        if (strncmp(controllers + at, word, size) == 0 &&
            (controllers[at + size] == ',' || controllers[at + size] == ':'))
            return true;
    return false;
}

static bool control_group_copy(const char *path, size_t len, char ret[static CONTROL_GROUP_MAX])
{
    if (len == 0 || len >= CONTROL_GROUP_MAX || path[0] != '/' ||
        !utf8_text((const uint8_t *)path, len))
        return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)path[i] < 0x20 || path[i] == 0x7f)
            return false;
    memcpy(ret, path, len);
    ret[len] = '\0';
    return true;
}

/* Lines "NUMBER:CONTROLLER,CONTROLLER:PATH"; "0::PATH" is that of version 2. */
bool control_group_parse(const char *text, char ret[static CONTROL_GROUP_MAX])
{
    bool found = false;

    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t len = strcspn(line, "\n");
        const char *controllers = memchr(line, ':', len);
        const char *path =
            controllers ? memchr(controllers + 1, ':', len - (size_t)(controllers + 1 - line))
                        : NULL;

        if (!path)
            continue;
        controllers++;
        path++;
        bool of_memory = control_group_is_of_memory(controllers, (size_t)(path - controllers));
        size_t rest = len - (size_t)(path - line);
        if (of_memory)
            return control_group_copy(path, rest, ret);
        if (path == controllers + 1)
            found = control_group_copy(path, rest, ret);
    }
    return found;
}

static int control_group_read(const char *path, char text[static CONTROL_GROUP_TEXT_MAX])
{
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    int64_t len = fd_read_all(fd, text, CONTROL_GROUP_TEXT_MAX - 1);
    text[len > 0 ? len : 0] = '\0';
    return len < 0 ? (int)len : 0;
}

/* ---- finding the group ---------------------------------------------------------------------- */

/* A descriptor of the process; the number is of the namespace of this process. */
static int control_group_open_peer(int sock)
{
    struct ucred peer;
    socklen_t len = sizeof(int), len_of_peer = sizeof peer;
    int pidfd;

    if (getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) == 0)
        return pidfd;
    if (errno != ENOPROTOOPT)
        return -errno;
    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len_of_peer) < 0)
        return -errno;
    if (peer.pid <= 0)
        return -ESRCH;
    pidfd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
    if (pidfd < 0)
        return -errno;
    char path[32];
    struct stat st;
    (void)snprintf(path, sizeof path, "/proc/%d", (int)peer.pid);
    if (stat(path, &st) == 0 && st.st_uid == peer.uid)
        return pidfd;
    (void)close(pidfd);
    return -ESRCH;
}

/* The process's current number; 0 if it has no number in this namespace. */
static long control_group_pid_of(int pidfd)
{
    char path[48], text[CONTROL_GROUP_TEXT_MAX];

    (void)snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
    if (control_group_read(path, text) < 0)
        return 0;
    const char *at = strstr(text, "\nPid:");
    long pid = at ? strtol(at + strlen("\nPid:"), NULL, 10) : 0;
    return pid > 0 ? pid : 0;
}

static bool control_group_has_ended(int pidfd)
{
    struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};

    return poll(&poll_fd, 1, 0) != 0;
}

static int control_group_find(int sock, char ret[static CONTROL_GROUP_MAX])
{
    _cleanup_fd_ int pidfd = control_group_open_peer(sock);
    char path[48], text[CONTROL_GROUP_TEXT_MAX] = "";
    long pid = pidfd < 0 ? 0 : control_group_pid_of(pidfd);

    if (pidfd < 0)
        return pidfd;
    if (pid == 0)
        return -ESRCH;
    (void)snprintf(path, sizeof path, "/proc/%ld/cgroup", pid);
    int r = control_group_read(path, text);
    if (r < 0)
        return r == -ENOENT ? -ESRCH : r;
    if (control_group_has_ended(pidfd)) /* it may have been another's by now */
        return -ESRCH;
    return control_group_parse(text, ret) ? 0 : -ENODATA;
}

int control_group_of_peer(int sock, char ret[static CONTROL_GROUP_MAX], struct dl_error *err)
{
    int r = control_group_find(sock, ret);

    if (r == -ESRCH)
        return dl_error_set(
            err, ESRCH, "limits.charge",
            "the process that connected has ended, or the daemon does not see it: "
            "it needs the PID namespace of its clients (hostPID in Kubernetes), and "
            "/proc without hidepid (ProtectProc= of its unit)");
    if (r < 0)
        return dl_error_set(err, -r, "limits.charge",
                            "the control group of the process that connected cannot be read: %s",
                            strerror(-r));
    return 0;
}
