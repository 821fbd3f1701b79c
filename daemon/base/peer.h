/*
 * A peer: frames over a Unix socket that the loop watches. Received messages are passed on one by
 * one; sent ones wait until its socket accepts them, up to a limit.
 *
 * A call-back may do anything but call peer_deinit(), which waits for `closed`.
 */
#ifndef DL_PEER_H
#define DL_PEER_H

#include "daemon/base/outbox.h"
#include "proto/frame.h"

#include <uv.h>

/* All but `heard` and `paused` are there. */
struct peer_events {
    /* There may be something to read: peer_read_some() is due. NULL: all is read at once. */
    void (*heard)(void *owner);
    /* A received message, decoded and as it came; borrowed for the call. */
    void (*message)(void *owner, const struct dl_message *msg, struct dl_span payload);
    /* All received messages, or the requested number, were passed on, and the peer is not
     * stopped. */
    void (*paused)(void *owner);
    /* It has hung up (0), or its socket fails: a negative errno. */
    void (*lost)(void *owner, int r);
    /* It violated the protocol: EPROTO: it sent descriptors; else the message is invalid. */
    void (*violates)(void *owner, const struct dl_error *err);
    void (*closed)(void *owner);
};

struct peer_options {
    enum message_direction from; /* its kind */
    size_t limit;                /* bytes that it may leave unread */
    size_t mark;                 /* while it leaves more unread, it is not heard; 0: it always is */
    bool sends_fds;              /* it may send one with a frame, which its message takes */
    const char *fd_rule;         /* the error text for others, or more */
    const struct peer_events *events;
    void *owner;
};

struct peer {
    struct peer_options o;
    uv_poll_t poll;
    int sock; /* owned; may be -1 */
    int watched;
    bool open;    /* watched by the loop */
    bool stopped; /* nothing more is read or watched for */
    bool muted;   /* not read until peer_mute() allows it, */
    bool deaf;    /* or until it has taken its answers */
    struct frame_reader reader;
    struct outbox out;
};

/* Consumes `sock` and starts reading. 0, or a negative errno: call peer_deinit() then. */
int _nodiscard_ peer_open(struct peer *peer, const struct peer_options *options, uv_loop_t *loop,
                          int sock);
/* `closed` follows, from the loop; false: it was never open, or is closed already. */
bool peer_close(struct peer *peer);
void peer_deinit(struct peer *peer); /* all zero is fine, too */

/* It is not heard any more. */
void peer_stop(struct peer *peer);

/* Queues a message, with copies of `fds`. 0, -EMSGSIZE or -EMFILE. */
int _nodiscard_ peer_queue(struct peer *peer, const struct dl_message *msg, const int *fds,
                           uint32_t n_fds);
/* Sends what the socket takes. 0; -ENOBUFS: more than the limit waits; or a negative errno: it is
 * lost. */
int _nodiscard_ peer_flush(struct peer *peer);
size_t peer_pending(const struct peer *peer); /* bytes that wait */
/* Bytes of memory it uses: for waiting output, and incomplete input. */
size_t peer_memory(const struct peer *peer);
uint32_t peer_descriptors(const struct peer *peer); /* that wait, to either side */

/* Hands out what has come, as the loop does. */
void peer_read(struct peer *peer);
/* The same for at most `messages` messages; after `ends_ns` (of uv_hrtime()) only the first. True
 * if more are waiting. */
bool peer_read_some(struct peer *peer, uint32_t messages, uint64_t ends_ns);

/* Stops reading its messages; or, `muted` false, reads them again. Only for a peer that is read in
 * turns. */
void peer_mute(struct peer *peer, bool muted);

/* The same without the loop: reads once, as fdpass_recv(); then returns the next message read: 1;
 * 0: it is incomplete; or a negative errno with `err`. */
ssize_t _nodiscard_ peer_receive(struct peer *peer);
int _nodiscard_ peer_take(struct peer *peer, struct dl_message *ret, struct dl_span *ret_payload,
                          struct dl_error *err);

#endif
