/*
 * The worker's end of its socket, and a host's: the daemon's messages, one after another. Whoever
 * sends waits until the daemon takes it; whoever reads does not wait.
 */
#ifndef DL_WORKER_WORKER_SOCKET_H
#define DL_WORKER_WORKER_SOCKET_H

#include "proto/codec.h"
#include "proto/fdpass.h"

enum { WORKER_SOCKET = 3 }; /* which descriptor of a worker it is */

/* `fd`: -1, or what goes with it, and stays the caller's. Negative errno. */
int _nodiscard_ worker_socket_send(int sock, const struct dl_message *msg, int fd);

/* What is done with a message. Below 0: the worker ends; -EPROTO: it is not one to a worker. */
typedef int worker_handle_fn(void *owner, const struct dl_message *msg);

/*
 * Handles the messages that are there. 0, or below 0: -EPIPE when the daemon has gone; else
 * standard error has it as `program`'s, but for what reading itself returned.
 */
int _nodiscard_ worker_socket_read(int sock, struct frame_reader *reader, const char *program,
                                   worker_handle_fn *handle, void *owner);

#endif
