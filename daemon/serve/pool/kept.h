/*
 * Segments that the daemon has done with and others have not: a client that does not unmap, a child
 * that it forked, whoever it passed a descriptor on to. The pages are in memory until the last of
 * them lets go, which no seal and no mode prevents; so that long they stay charged to the user
 * whose loader they were of, and count for limits.memory. Each costs that user a descriptor as
 * well: the one by which the daemon asks. The kernel does not say so of a worker, whose mapping is
 * of the memfd as it was made: one that was killed and does not end is the segment's `keeper`.
 *
 * Main thread only.
 */
#ifndef DL_KEPT_H
#define DL_KEPT_H

#include "daemon/serve/base/quota.h"
#include "daemon/serve/ring/budget.h"
#include "daemon/serve/ring/segment.h"

#include <uv.h>

struct kept_segment;

struct kept {
    struct kept_segment *segments; /* owned list (utlist) */
    struct budget *budget;         /* borrowed, outlives it */
    uv_timer_t look;
    bool ended;
};

void kept_begin(struct kept *kept, uv_loop_t *loop, struct budget *budget);
/* Looks no more: all is returned, now and from now on at once. Its timer closes. */
void kept_end(struct kept *kept);

/*
 * Ends a segment, whose pages are settled and charged to `account` (QUOTA_BYTES) and held of the
 * budget: both are returned now, or when nobody has it any more, its `keeper` included. `owner`:
 * whose it was, for kept_lately() alone.
 */
void kept_end_segment(struct kept *kept, struct segment *segment, struct quota_account *account,
                      const void *owner);

/* Whether somebody has let go meanwhile of what `account` pays for; NULL: all accounts. Takes a
 * microsecond for each segment. */
void kept_look(struct kept *kept, const struct quota_account *account);

/*
 * Bytes of that owner's segments that somebody still has, of those that were ended in the last
 * minute: whoever was told to let go does by then, or has other plans.
 */
uint64_t kept_lately(const struct kept *kept, const void *owner);
/* That keeper of segments has ended; others may still have them. */
void kept_keeper_ended(struct kept *kept, const void *keeper);
/* The owner is gone: what comes to lie at its address has nothing to do with it. */
void kept_forget(struct kept *kept, const void *owner);

#endif
