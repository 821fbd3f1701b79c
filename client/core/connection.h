/*
 * The client's end of a session without its socket: bytes and descriptors in, messages out;
 * messages in, bytes out. Callers do the I/O on `in` (fdpass_recv) and on connection_output().
 *
 * The first fatal error is latched in `fatal`: from then on every function returns its errno, takes
 * nothing in and gives nothing out. Never blocks; one thread at a time.
 */
#ifndef DL_CLIENT_CONNECTION_H
#define DL_CLIENT_CONNECTION_H

#include "proto/codec.h"
#include "proto/frame.h"

/* Bytes that may wait for a daemon which does not read: far more than any credits can cause. */
enum { CONNECTION_OUTPUT_MAX = 4 * 1024 * 1024 };

/* A descriptor that goes with the first byte of its message. */
struct sent_fd {
    size_t at; /* in the output */
    int fd;    /* owned */
};

struct connection {
    struct frame_reader in;
    struct dl_buffer out; /* from `sent` on: not yet written */
    size_t sent;
    struct sent_fd *fds; /* owned; of messages there, in their order */
    uint32_t n_fds, cap_fds;
    bool hung_up;          /* the peer takes nothing more; what it wrote before can still be read */
    uint64_t last_request; /* the last number used; 0: no request yet */
    uint32_t version;      /* of the protocol, that WELCOME named; 0: it has not come yet */
    struct dl_error fatal; /* code 0: no error */
};

void connection_deinit(struct connection *conn); /* closes descriptors that nobody took */

/* Latches the first fatal error; returns the latched -errno, which may be an older one. */
int connection_fail(struct connection *conn, int code, const char *path, const char *fmt, ...)
    _printf_(4, 5);

/* 0, or the latched -errno. */
static inline int _nodiscard_ connection_check(const struct connection *conn)
{
    return -conn->fatal.code;
}

/* A number for a new request. */
uint64_t connection_request(struct connection *conn);

/*
 * Queues a message. -EMSGSIZE, -EBADMSG: a field is too long or not UTF-8; nothing was queued, and
 * the session stays usable. Other errors are latched: -ENOMEM, or -EPROTO when
 * CONNECTION_OUTPUT_MAX bytes wait.
 */
int _nodiscard_ connection_send(struct connection *conn, const struct dl_message *msg);

/* The same with a descriptor, which is consumed. */
int _nodiscard_ connection_send_fd(struct connection *conn, const struct dl_message *msg, int fd);

/* Bytes that are not written yet. */
size_t connection_unsent(const struct connection *conn);
/* The bytes to write next, with *ret_fd (borrowed; -1: with none); then how many were written. */
struct dl_span connection_output(const struct connection *conn, int *ret_fd);
void connection_written(struct connection *conn, size_t len);
/* In a child made by fork(): descriptors on their way are closed, and nothing else. */
void connection_abandon(struct connection *conn);

/* The peer closed its reading end (EPIPE): output is dropped from now on. */
void connection_hang_up(struct connection *conn);

/*
 * The next complete message: 1 with *ret (its spans are valid until more input is read) and *ret_fd
 * (owned by the caller; -1 unless the message carries one), 0 if it has not arrived yet, or the
 * latched -errno.
 */
int _nodiscard_ connection_next(struct connection *conn, struct dl_message *ret, int *ret_fd);

/* The stream of bytes ended. Latches and returns what that means at this point. */
int connection_end(struct connection *conn);

/* Starts a new stream of bytes; request numbers continue. */
void connection_restart(struct connection *conn);

#endif
