/*
 * The door: who connects to the daemon's socket is let in, in turns that the loop's scheduler gives
 * it among sessions, so that users who come without end take time from themselves (turns.h). A few
 * are let in each time; the others wait in the kernel's queue, in the order in which they came.
 *
 * All together have an allowance, a tenth of the loop's time. So a flood waits at the door for most
 * of the time, where it takes no processor from anybody. The queue is short (listener.c), so that
 * who comes next has not many before them.
 *
 * A connection that is closed already, and of which nothing came, is closed here, too: a session
 * for it would take several times as long.
 *
 * Main thread only.
 */
#ifndef DL_DOOR_H
#define DL_DOOR_H

#include "daemon/serve/base/allowance.h"
#include "daemon/serve/base/listener.h"
#include "daemon/serve/base/quota.h"
#include "daemon/serve/session/scheduler.h"

#include <sys/socket.h>

struct door_options {
    uv_loop_t *loop;
    const struct config *config;
    int passed;                  /* see listener_new() */
    struct scheduler *scheduler; /* borrowed, outlives the open door */
    struct quota *quota;         /* likewise: accounts are told how long this took */
    /* A connection of that process; owns the descriptor. */
    void (*came)(void *context, int fd, const struct ucred *who);
    void *context;
};

struct door {
    struct door_options o;
    struct listener *listener; /* owned; NULL: closed */
    struct allowance time;     /* of the loop */
    uv_timer_t rest;           /* until there is an allowance again */
    struct ucred last;         /* who came last, */
    bool known;                /* if the kernel knows */
};

/* The door stays where it is until the loop has ended. */
int _nodiscard_ door_open(struct door *door, const struct door_options *options,
                          struct dl_error *err);
/* A door that was never open, all zero, is fine. */
void door_close(struct door *door);

#endif
