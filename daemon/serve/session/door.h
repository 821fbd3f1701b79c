/*
 * The door: accepts connections to the daemon's socket, in turns that the loop's scheduler gives it
 * among sessions, so that users who flood it with connections only slow down themselves (turns.h).
 * A few are accepted each time; the others wait in the kernel's queue, in order.
 *
 * All together have an allowance, a tenth of the loop's time. So a flood waits at the door most of
 * the time, where it uses no processor. The queue is short (listener.c), so that a new client has
 * few others before it.
 *
 * A connection that was closed without sending anything is closed here, too: a session for it would
 * cost several times as much.
 *
 * Main thread only.
 */
#ifndef DL_DOOR_H
#define DL_DOOR_H

#include "daemon/base/allowance.h"
#include "daemon/base/listener.h"
#include "daemon/base/quota.h"
#include "daemon/serve/session/scheduler.h"

#include <sys/socket.h>

struct door_options {
    uv_loop_t *loop;
    const struct config *config;
    int passed;                  /* see listener_new() */
    struct scheduler *scheduler; /* borrowed, outlives the open door */
    struct quota *quota;         /* accounts are charged for the time */
    /* A connection of that process; owns the descriptor. */
    void (*came)(void *context, int fd, const struct ucred *who);
    void *context;
};

struct door {
    struct door_options o;
    struct listener *listener; /* owned; NULL: closed */
    struct allowance time;     /* of the loop */
    uv_timer_t rest;           /* until there is an allowance again */
    struct ucred last;         /* the latest client, */
    bool known;                /* if the kernel knows */
};

/* The door stays where it is until the loop has ended. */
int _nodiscard_ door_open(struct door *door, const struct door_options *options,
                          struct dl_error *err);
/* A door that was never open, all zero, is fine. */
void door_close(struct door *door);

#endif
