/*
 * A peer: frames over a Unix socket that the loop watches. What it says is handed out message by
 * message; what it is told goes when its socket takes it, and only so much may wait.
 *
 * A call-back may do anything but call peer_deinit(), which waits for `closed`.
 */
#ifndef DL_PEER_H
#define DL_PEER_H

#include "daemon/serve/base/outbox.h"
#include "proto/frame.h"

#include <uv.h>

/* All but `heard` and `paused` are there. */
struct peer_events {
    /* There may be something to read: peer_read_some() is due. NULL: all is read at once. */
    void (*heard)(void *owner);
    /* What it says, decoded and as it came; borrowed for the call. */
    void (*message)(void *owner, const struct dl_message *msg, struct dl_span payload);
    /* All that has come is handed out, or as much as was asked for, and the peer is not stopped. */
    void (*paused)(void *owner);
    /* It has hung up (0), or its socket fails: a negative errno. */
    void (*lost)(void *owner, int r);
    /* It breaks the protocol: EPROTO: it sends descriptors; else it is no message. */
    void (*violates)(void *owner, const struct dl_error *err);
    void (*closed)(void *owner);
};

struct peer_options {
    enum message_direction from; /* who it is */
    size_t limit;                /* bytes that it may leave unread */
    size_t mark;                 /* while it leaves more unread, it is not heard; 0: it always is */
    bool sends_fds;              /* of which one may come with a frame, for its message to take */
    const char *fd_rule;         /* what is said when others come, or more */
    const struct peer_events *events;
    void *owner;
};

struct peer {
    struct peer_options o;
    uv_poll_t poll;
    int sock; /* owned; -1: none */
    int watched;
    bool open;    /* the loop has it */
    bool stopped; /* nothing more is read or watched for */
    bool muted;   /* nothing more is read until peer_mute() says so, */
    bool deaf;    /* or until it has taken its answers */
    struct frame_reader reader;
    struct outbox out;
};

/* Consumes `sock`, and listens. 0, or a negative errno: it is to be deinitialised then. */
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
/* Bytes of memory that it takes: for what waits, and what it has said in part. */
size_t peer_memory(const struct peer *peer);
uint32_t peer_descriptors(const struct peer *peer); /* that wait, to either side */

/* Hands out what has come, as the loop does. */
void peer_read(struct peer *peer);
/* The same, but so many messages at most, and none after `ends_ns` (of uv_hrtime()) but the first.
 * True: there is more. */
bool peer_read_some(struct peer *peer, uint32_t messages, uint64_t ends_ns);

/* What it says further waits; or, `muted` false, is heard again. Only of one that is read in turns.
 */
void peer_mute(struct peer *peer, bool muted);

/* The same by hand: reads once, as fdpass_recv(); and the next message of what was read: 1; 0:
 * there is no whole one; or a negative errno with `err`. */
ssize_t _nodiscard_ peer_receive(struct peer *peer);
int _nodiscard_ peer_take(struct peer *peer, struct dl_message *ret, struct dl_span *ret_payload,
                          struct dl_error *err);

#endif
