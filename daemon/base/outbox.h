/*
 * Output for a peer: encoded frames, and descriptors that leave with the first byte of their frame.
 * Never blocks; the owner watches the socket for writing while outbox_pending().
 */
#ifndef DL_OUTBOX_H
#define DL_OUTBOX_H

#include "proto/codec.h"

struct outbox_fd {
    uint64_t position; /* of the byte it goes with, counted from the first byte ever appended */
    int fd;            /* owned copy */
};

struct outbox {
    struct dl_buffer bytes;
    uint64_t sent;         /* bytes ever sent */
    size_t begin;          /* first unsent byte in `bytes` */
    struct outbox_fd *fds; /* owned array, by position */
    uint32_t n_fds;
};

void outbox_deinit(struct outbox *outbox); /* closes what was not sent */

/* Appends a message; copies of `fds` travel with it. Returns 0, -ENOMEM, -EMSGSIZE or -EMFILE. */
int _nodiscard_ outbox_append(struct outbox *outbox, const struct dl_message *msg, const int *fds,
                              uint32_t n_fds);

/* Sends what the socket takes now. 0, or a negative errno when the peer is lost. */
int _nodiscard_ outbox_flush(struct outbox *outbox, int sock);

size_t outbox_pending(const struct outbox *outbox); /* bytes */

#endif
