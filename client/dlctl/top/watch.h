/*
 * Somebody who looks at the daemon for a screen that must not stand still: a process of its own,
 * which is asked for a look by a byte and answers with what top_look() makes. However long the
 * daemon takes, keys are heard meanwhile.
 */
#ifndef DLCTL_TOP_WATCH_H
#define DLCTL_TOP_WATCH_H

#include "client/dlctl/top/look.h"

#include <sys/types.h>

struct top_watch {
    int fd;              /* readable when there is an answer, or it has ended */
    pid_t pid;           /* 0: none */
    bool asked;          /* and not answered yet */
    struct dl_buffer in; /* owned */
};

/* `socket` as of a looker. A negative errno. Signals that are blocked are not, in that process. */
int _nodiscard_ top_watch_start(const char *socket, struct top_watch *ret);
/* Ends the process, whatever it is at. */
void top_watch_deinit(struct top_watch *watch);

/* Asks for a look, unless one is under way. */
int _nodiscard_ top_watch_ask(struct top_watch *watch);
/* 1: that is what was seen; 0: nothing yet; -EPIPE: it has ended; or another negative errno. */
int _nodiscard_ top_watch_read(struct top_watch *watch, struct top_seen *ret);

#endif
