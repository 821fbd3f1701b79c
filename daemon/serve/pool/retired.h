/*
 * Retired segments, with which the daemon is done and others are not: a client that does not unmap,
 * a child that it forked, a process that it passed a descriptor to. The pages are in memory until
 * the last of them lets go, which no seal and no mode prevents; so that long they stay charged to
 * the user whose loader they were of, and count for limits.memory. Each costs that user a
 * descriptor as well: the one by which the daemon asks. The kernel does not say so of a worker,
 * whose mapping is of the memfd as it was made: one that was killed and does not end is the
 * segment's `keeper`.
 *
 * Main thread only.
 */
#ifndef DL_RETIRED_H
#define DL_RETIRED_H

#include "daemon/base/quota.h"
#include "daemon/serve/ring/budget.h"
#include "daemon/serve/ring/segment.h"

#include <uv.h>

struct retired_segment;

struct retired {
    struct retired_segment *segments; /* owned list (utlist) */
    struct budget *budget;            /* borrowed, outlives it */
    uv_timer_t look;
    bool ended;
};

void retired_begin(struct retired *retired, uv_loop_t *loop, struct budget *budget);
/* Looks no more: all is returned, now and from now on at once. Its timer closes. */
void retired_end(struct retired *retired);

/*
 * Ends a segment, whose pages are settled and charged to `account` (QUOTA_BYTES) and taken of the
 * budget: both are returned now, or once it is unmapped everywhere, by its `keeper`, too. `owner`:
 * whose it was, for retired_lately() alone.
 */
void retired_end_segment(struct retired *retired, struct segment *segment,
                         struct quota_account *account, const void *owner);

/* Whether somebody has let go meanwhile of what `account` pays for; NULL: all accounts. Takes a
 * microsecond for each segment. */
void retired_look(struct retired *retired, const struct quota_account *account);

/*
 * Bytes of that owner's segments that somebody still has, of those that were ended in the last
 * minute: a client that was told to let go has done so by then, or will not.
 */
uint64_t retired_lately(const struct retired *retired, const void *owner);
/* That keeper of segments has ended; others may still have them. */
void retired_keeper_ended(struct retired *retired, const void *keeper);
/* The owner is gone: what comes to lie at its address has nothing to do with it. */
void retired_forget(struct retired *retired, const void *owner);

#endif
