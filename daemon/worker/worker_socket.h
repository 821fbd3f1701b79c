/*
 * The worker's, or a host's, end of its socket: the daemon's messages, in order. Sending blocks
 * until the daemon accepts it; reading does not block.
 */
#ifndef DL_WORKER_WORKER_SOCKET_H
#define DL_WORKER_WORKER_SOCKET_H

#include "proto/codec.h"
#include "proto/fdpass.h"

enum { WORKER_SOCKET = 3 }; /* which descriptor of a worker it is */

/* `fd`: -1, or what goes with it, and stays the caller's. Negative errno. */
int _nodiscard_ worker_socket_send(int sock, const struct dl_message *msg, int fd);

/* Handles a message. Below 0: the worker ends; -EPROTO: it is not a message for a worker. */
typedef int worker_handle_fn(void *owner, const struct dl_message *msg);

/*
 * Handles the messages that have arrived. 0, or below 0: -EPIPE when the daemon has gone; other
 * errors are written to standard error as `program`'s, except those of reading itself.
 */
int _nodiscard_ worker_socket_read(int sock, struct frame_reader *reader, const char *program,
                                   worker_handle_fn *handle, void *owner);

#endif
