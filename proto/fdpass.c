/*
 * sendmsg and recvmsg with SCM_RIGHTS. The one thing to get right is that each descriptor the
 * kernel has installed in this process ends in the reader's queue or is closed, on every path.
 */
#include "proto/fdpass.h"

#include <errno.h>
#include <sys/socket.h>

enum { READ_BYTES = 65536 };

/* Control data, aligned as the kernel wants it. */
union recv_control {
    struct cmsghdr align;
    uint8_t space[CMSG_SPACE(sizeof(int) * FRAME_FD_QUEUE)];
};

union send_control {
    struct cmsghdr align;
    uint8_t space[CMSG_SPACE(sizeof(int) * DL_BOUND_FRAME_FDS)];
};

/*
 * Queues (or, when `keep` is false, closes) each descriptor that came with `msg`. Returns 0, or
 * -EMFILE when the queue was full; the rest are closed.
 */
static int fdpass_collect_fds(struct msghdr *msg, struct frame_reader *reader, bool keep)
{
    int result = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        size_t n;

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (!keep)
                close(fd);
            else if (frame_reader_push_fd(reader, fd) < 0)
                result = -EMFILE;
        }
    }
    return result;
}

ssize_t fdpass_recv(int sock, struct frame_reader *reader, int flags)
{
    union recv_control control;
    struct iovec iov;
    struct msghdr msg;
    uint8_t *space;
    size_t len;
    ssize_t n;
    int r;

    r = frame_reader_reserve(reader, READ_BYTES, &space, &len);
    if (r < 0)
        return r;
    do {
        iov = (struct iovec){space, len};
        msg = (struct msghdr){.msg_iov = &iov,
                              .msg_iovlen = 1,
                              .msg_control = control.space,
                              .msg_controllen = sizeof control.space};
        n = recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;

    /* Truncated by this process's limit or by our buffer: we cannot know which messages lost
     * theirs. */
    bool cut = msg.msg_flags & MSG_CTRUNC;
    r = fdpass_collect_fds(&msg, reader, !cut);
    if (cut || r < 0)
        return -EMFILE;
    frame_reader_commit(reader, (size_t)n);
    return n;
}

ssize_t fdpass_send(int sock, const void *data, size_t len, const int *fds, uint32_t n_fds,
                    int flags)
{
    union send_control control;
    struct iovec iov = {(void *)data, len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n;

    if (n_fds > DL_MAX_FRAME_FDS || (n_fds > 0 && len == 0))
        return -EINVAL;
    if (n_fds > 0) {
        memset(&control, 0, sizeof control);
        msg.msg_control = control.space;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
    }
    do
        n = sendmsg(sock, &msg, flags | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

ssize_t fdpass_recv_packet(int sock, void *to, size_t room, int flags, int *ret_fd)
{
    union {
        struct cmsghdr align;
        uint8_t space[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {to, room};
    struct msghdr msg;
    ssize_t n;

    *ret_fd = -1;
    do {
        msg = (struct msghdr){.msg_iov = &iov,
                              .msg_iovlen = 1,
                              .msg_control = control.space,
                              /* Of CMSG_SPACE() two would fit, and one be lost. */
                              .msg_controllen = CMSG_LEN(sizeof *ret_fd)};
        n = recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    const struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(ret_fd, CMSG_DATA(c), sizeof *ret_fd);
    return n;
}
