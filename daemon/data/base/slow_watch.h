/*
 * Finds the slowest sample of a task, and the time of samples that took far longer than usual: the
 * clock is read once per sample, if samples take long enough on average for that to be cheap. Not
 * thread-safe.
 */
#ifndef DL_SLOW_WATCH_H
#define DL_SLOW_WATCH_H

#include "proto/common/clock.h"
#include "proto/common/url.h"
#include "proto/queue.h"

/* On average, ns: reading the clock takes about 30. */
enum { SLOW_WATCH_WORTH_NS = 10000 };

/* Far longer is SLOW_WATCH_TIMES the usual, and counts only that much for the usual time: so a few
 * slow samples cannot change it, but all of them do. The usual time is a mean over about
 * SLOW_WATCH_TASKS tasks. */
enum { SLOW_WATCH_TIMES = 8, SLOW_WATCH_TASKS = 8 };

struct slow_watch {
    bool on; /* the samples of the last task took long enough */
    uint64_t began_ns, last_ns;
    uint64_t index, ns;   /* the slowest of this task; ns 0: unknown */
    uint64_t together;    /* samples made in that time, of which it is the first */
    uint64_t usual_ns;    /* of a sample; 0: not known */
    uint64_t bounded_ns;  /* of the task's samples, the slow ones with less than they took */
    uint64_t slow_ns;     /* of the slow ones, in full */
    char name[SLOW_NAME]; /* of it, where it is not found by its index; else "" */
};

static inline void slow_watch_begin(struct slow_watch *watch)
{
    watch->began_ns = watch->last_ns = clock_ns();
    watch->index = watch->ns = 0;
    watch->bounded_ns = watch->slow_ns = 0;
    watch->together = 1;
    watch->name[0] = '\0';
}

/* `n` samples took `ns` together. */
static inline void slow_watch_take(struct slow_watch *watch, uint64_t ns, uint64_t n)
{
    uint64_t most = n * SLOW_WATCH_TIMES * watch->usual_ns;
    bool slow = most > 0 && ns > most;

    watch->slow_ns += slow ? ns : 0;
    watch->bounded_ns += slow ? most : ns;
}

/* The time until now belongs to no sample. */
static inline void slow_watch_pass(struct slow_watch *watch)
{
    if (watch->on)
        watch->last_ns = clock_ns();
}

/* Sample `index` was made since the one before, or the beginning. True if it is the slowest so
 * far. */
static inline bool slow_watch_sample(struct slow_watch *watch, uint64_t index)
{
    if (!watch->on)
        return false;
    uint64_t now = clock_ns();
    bool longest = now - watch->last_ns > watch->ns;

    slow_watch_take(watch, now - watch->last_ns, 1);
    if (longest) {
        watch->ns = now - watch->last_ns;
        watch->index = index;
    }
    watch->last_ns = now;
    return longest;
}

/* Updates the usual time after a task of `n` samples. */
static inline void slow_watch_learn(struct slow_watch *watch, uint64_t n)
{
    uint64_t mean = max_u64(watch->bounded_ns / n, 1);
    uint64_t before = watch->usual_ns ? watch->usual_ns : mean;

    watch->usual_ns = ((SLOW_WATCH_TASKS - 1) * before + mean) / SLOW_WATCH_TASKS;
}

/* The task's `n` ≥ 1 samples are made. If they were faster on average than is worth measuring (an
 * earlier task was held up from outside), none counts as slow. */
static inline void slow_watch_end(struct slow_watch *watch, uint64_t n)
{
    uint64_t all = clock_ns() - watch->began_ns;

    if (watch->bounded_ns == 0)
        slow_watch_take(watch, all, n);
    slow_watch_learn(watch, n);
    watch->on = all / n >= SLOW_WATCH_WORTH_NS;
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

/* A name without secrets (it loses them), cut where it is too long: the end of a path says more
 * than its beginning. */
static inline void slow_watch_cut(char *name, char ret[static SLOW_NAME])
{
    url_hide_secrets(name);
    size_t len = strlen(name), begin = len - min_u64(len, SLOW_NAME - 1);

    memcpy(ret, name + begin, len - begin);
    ret[len - begin] = '\0';
}

#endif
