/*
 * Which sample of a task took longest: the clock is read once for each, as long as they take long
 * enough on average for that to be no cost. Not thread-safe.
 */
#ifndef DL_SLOW_WATCH_H
#define DL_SLOW_WATCH_H

#include "proto/common/clock.h"

/* On average, ns: reading the clock takes about 30. */
enum { SLOW_WATCH_WORTH_NS = 10000 };

struct slow_watch {
    bool on; /* the samples of the last task took so long */
    uint64_t began_ns, last_ns;
    uint64_t index, ns; /* of the one that took longest in the task at hand; ns 0: none was seen */
};

static inline void slow_watch_begin(struct slow_watch *watch)
{
    watch->began_ns = watch->last_ns = clock_ns();
    watch->index = watch->ns = 0;
}

/* Sample `index` was made, since the one before or the beginning. */
static inline void slow_watch_sample(struct slow_watch *watch, uint64_t index)
{
    if (!watch->on)
        return;
    uint64_t now = clock_ns();

    if (now - watch->last_ns > watch->ns) {
        watch->ns = now - watch->last_ns;
        watch->index = index;
    }
    watch->last_ns = now;
}

/* The task's `n` samples, one at least, are made. */
static inline void slow_watch_end(struct slow_watch *watch, uint64_t n)
{
    watch->on = (clock_ns() - watch->began_ns) / n >= SLOW_WATCH_WORTH_NS;
}

#endif
