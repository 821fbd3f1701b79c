/*
 * A socket that is connected to the daemon's.
 */
#include "client/internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

/* One that waits in connect() for so long, less than a second; 0: not at all. */
static int client_make_socket(uint64_t wait_ns)
{
    const struct timeval wait = {.tv_usec = (suseconds_t)(wait_ns / 1000 + 1)};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | (wait_ns ? 0 : SOCK_NONBLOCK), 0);

    assert(wait_ns < NS_PER_S);
    if (fd >= 0 && wait_ns && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) < 0)
        close_fdp(&fd);
    return fd < 0 ? -errno : fd;
}

int client_dial(const char *path, uint64_t wait_ns, int *ret)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _cleanup_fd_ int fd = client_make_socket(wait_ns);
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
