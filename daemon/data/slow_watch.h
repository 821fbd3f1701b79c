/*
 * Which sample of a task took longest: the clock is read once for each, as long as they take long
 * enough on average for that to be no cost. Not thread-safe.
 */
#ifndef DL_SLOW_WATCH_H
#define DL_SLOW_WATCH_H

#include "proto/common/clock.h"
#include "proto/queue.h"

/* On average, ns: reading the clock takes about 30. */
enum { SLOW_WATCH_WORTH_NS = 10000 };

struct slow_watch {
    bool on; /* the samples of the last task took so long */
    uint64_t began_ns, last_ns;
    uint64_t index, ns; /* of the one that took longest in the task at hand; ns 0: none was seen */
    uint64_t together;  /* so many were made in that time, of which that is the first */
    char name[SLOW_NAME]; /* of it, where it is not found by its index; else "" */
};

static inline void slow_watch_begin(struct slow_watch *watch)
{
    watch->began_ns = watch->last_ns = clock_ns();
    watch->index = watch->ns = 0;
    watch->together = 1;
    watch->name[0] = '\0';
}

/* What was done until now is no sample's. */
static inline void slow_watch_pass(struct slow_watch *watch)
{
    if (watch->on)
        watch->last_ns = clock_ns();
}

/* Sample `index` was made, since the one before or the beginning. True: none of the task took
 * longer. */
static inline bool slow_watch_sample(struct slow_watch *watch, uint64_t index)
{
    if (!watch->on)
        return false;
    uint64_t now = clock_ns();
    bool longest = now - watch->last_ns > watch->ns;

    if (longest) {
        watch->ns = now - watch->last_ns;
        watch->index = index;
    }
    watch->last_ns = now;
    return longest;
}

/* The task's `n` samples, one at least, are made. If they took less on average, because a task
 * before this one was held up from outside, none was seen. */
static inline void slow_watch_end(struct slow_watch *watch, uint64_t n)
{
    watch->on = (clock_ns() - watch->began_ns) / n >= SLOW_WATCH_WORTH_NS;
    if (!watch->on)
        watch->ns = 0;
}

/* As slow_watch_end(), of `n` samples that were made all at once, `index` being the first. */
static inline void slow_watch_end_together(struct slow_watch *watch, uint64_t index, uint64_t n)
{
    slow_watch_end(watch, n);
    if (!watch->on)
        return;
    watch->ns = clock_ns() - watch->began_ns;
    watch->index = index;
    watch->together = n;
}

/* A name of `len` bytes, cut where it is too long: the end of a path says more than its beginning.
 */
static inline void slow_watch_cut(const char *name, size_t len, char ret[static SLOW_NAME])
{
    size_t begin = len - min_u64(len, SLOW_NAME - 1);

    memcpy(ret, name + begin, len - begin);
    ret[len - begin] = '\0';
}

#endif
