/*
 * The page of memory that the fetcher counts in and the daemon reads (proto/remote_counts.h).
 * Whatever is counted is there at once; what is held is written whenever the loop has nothing more
 * to do, so that it is up to date while nothing happens, and nobody is woken for it.
 *
 * Main thread only.
 */
#ifndef DL_REMOTE_SIGHT_H
#define DL_REMOTE_SIGHT_H

#include "daemon/fetcher/desk.h"

/* Maps the page behind the descriptor; NULL: it cannot be mapped. Counters begin at what it has. */
struct remote_tally *sight_map(int page);
void sight_unmap(struct remote_tally *tally); /* NULL is fine */

struct sight;

/* Borrows the desk. */
struct sight *sight_new(uv_loop_t *loop, const struct desk *desk);
/* NULL is fine; returns NULL. */
struct sight *sight_free(struct sight *sight);

#endif
