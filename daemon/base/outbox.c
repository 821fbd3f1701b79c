#include "daemon/base/outbox.h"

#include "daemon/base/memory.h"
#include "proto/fdpass.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

enum { KEEP_BYTES = 64 * 1024 }; /* of memory, though nothing is on its way */

void outbox_deinit(struct outbox *outbox)
{
    for (uint32_t i = 0; i < outbox->n_fds; i++)
        close(outbox->fds[i].fd);
    free(outbox->fds);
    buffer_deinit(&outbox->bytes);
    *outbox = (struct outbox){0};
}

size_t outbox_pending(const struct outbox *outbox)
{
    return outbox->bytes.len - outbox->begin;
}

int outbox_append(struct outbox *outbox, const struct dl_message *msg, const int *fds,
                  uint32_t n_fds)
{
    uint64_t position = outbox->sent + outbox_pending(outbox);
    uint32_t had = outbox->n_fds;
    int r = 0;

    assert(n_fds <= DL_MAX_FRAME_FDS); /* more could not leave with one byte */
    if (n_fds > 0)
        outbox->fds = must_realloc(outbox->fds, (had + n_fds) * sizeof *outbox->fds);
    for (uint32_t i = 0; i < n_fds && r == 0; i++) {
        int copy = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
        if (copy < 0)
            r = -errno;
        else
            outbox->fds[outbox->n_fds++] = (struct outbox_fd){.position = position, .fd = copy};
    }
    if (r == 0)
        r = message_encode(msg, &outbox->bytes);
    while (r < 0 && outbox->n_fds > had)
        close(outbox->fds[--outbox->n_fds].fd);
    return r;
}

/* The descriptors at the front of the queue that go with the next byte. */
static uint32_t outbox_due_fds(const struct outbox *outbox, int *fds)
{
    uint32_t n = 0;

    while (n < outbox->n_fds && n < DL_MAX_FRAME_FDS && outbox->fds[n].position == outbox->sent) {
        fds[n] = outbox->fds[n].fd;
        n++;
    }
    return n;
}

static void outbox_drop_fds(struct outbox *outbox, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        close(outbox->fds[i].fd);
    outbox->n_fds -= n;
    memmove(outbox->fds, outbox->fds + n, outbox->n_fds * sizeof *outbox->fds);
}

int outbox_flush(struct outbox *outbox, int sock)
{
    while (outbox_pending(outbox) > 0) {
        int fds[DL_BOUND_FRAME_FDS];
        uint32_t n_fds = outbox_due_fds(outbox, fds);
        size_t len = outbox_pending(outbox);

        /* Only up to the next descriptors: the peer receives them with the frame that declares
         * them. */
        if (outbox->n_fds > n_fds)
            len = (size_t)(outbox->fds[n_fds].position - outbox->sent);
        ssize_t n =
            fdpass_send(sock, outbox->bytes.data + outbox->begin, len, fds, n_fds, MSG_DONTWAIT);
        if (n == -EAGAIN)
            break;
        if (n <= 0)
            return n ? (int)n : -EPIPE;
        if (n_fds > 0)
            outbox_drop_fds(outbox, n_fds);
        outbox->begin += (size_t)n;
        outbox->sent += (uint64_t)n;
    }
    if (outbox_pending(outbox) == 0) {
        outbox->bytes.len = outbox->begin = 0;
        if (outbox->bytes.cap > KEEP_BYTES)
            buffer_deinit(&outbox->bytes);
    } else if (outbox->begin > outbox->bytes.len / 2) {
        outbox->bytes.len -= outbox->begin;
        memmove(outbox->bytes.data, outbox->bytes.data + outbox->begin, outbox->bytes.len);
        outbox->begin = 0;
    }
    return 0;
}
