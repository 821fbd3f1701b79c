/*
 * The listening socket: the service manager's, or one of our own at a path. A path where a live
 * daemon listens is refused, one that a dead daemon left is taken over; a lock file beside it
 * distinguishes the two without a race.
 */
#ifndef DL_LISTENER_H
#define DL_LISTENER_H

#include "daemon/base/config.h"

#include <uv.h>

struct listener;

/* `accepted` owns the descriptor. */
typedef void (*listener_accepted)(void *context, int fd);

int _nodiscard_ listener_new(uv_loop_t *loop, const struct config *config, int passed_fd,
                             listener_accepted accepted, void *context, struct listener **ret,
                             struct dl_error *err);
/* From now on connections wait until listener_let_in(): `waits` is called with the context of
 * `accepted` whenever the loop finds a waiting one. */
void listener_ask(struct listener *listener, void (*waits)(void *context));
/* Accepts one connection. False if no connection waits, or none can be accepted. */
bool listener_let_in(struct listener *listener);
/* While paused, connections wait in the kernel's queue. Unpausing accepts them before it returns,
 * unless it is paused again. */
void listener_pause(struct listener *listener, bool paused);
/* Closes it and removes what it made. NULL is fine. */
struct listener *listener_free(struct listener *listener);

#endif
