/*
 * Who may use this machine's processors where workers of several users want them, or loaders of
 * several priorities: each user gets the share of its weight, and each of its loaders a part of
 * that, by priority. Pure: which workers are busy, what they used of processors and the time come
 * in; how many may be busy comes out.
 *
 * A loader's `time` is what its workers have used of processors, divided by its weight. Those that
 * compete (their workers are busy, or would be) should be equally far. So one that is ahead of
 * another gets nothing but what is left over, and one that is not gets as many workers as its share
 * takes, or more where processors are idle. What waits for storage, or sleeps, hardly wants a
 * processor, and is not held back. One that was idle begins where the others are: nothing is saved
 * up.
 *
 * As long as all that compete are one user's, of one priority, nobody is held back.
 */
#ifndef DL_FAIR_H
#define DL_FAIR_H

#include "proto/common/base.h"

#define FAIR_ANY UINT32_MAX /* as many as there are */

/* All zero, but for `cpus`: those that there are. */
struct fair {
    double cpus;
    struct fair_part *parts; /* borrowed list */
    double time;             /* how far the one is that is least far; s */
};

/* A loader that shares; embedded. All zero: it does not yet. */
struct fair_part {
    struct fair_part *prev, *next; /* fair.parts (utlist) */
    const void *user;              /* only compared */
    double weight;                 /* of the user */
    double priority;               /* within it */
    double time;
    uint32_t busy;      /* workers, */
    uint64_t at_ns;     /* since then at least */
    uint64_t idle_ns;   /* when it competed last */
    bool held;          /* it could use more workers than it may, */
    uint64_t held_ns;   /* in all that long; */
    double uses, wants; /* of a processor: what a busy worker uses, and would use */
    uint64_t busy_ns;   /* of all workers, since `uses` was measured last, */
    double charged;     /* and what that was thought to use; s */
};

/* `user` is compared; weights are above 0. */
void fair_join(struct fair *fair, struct fair_part *part, const void *user, uint64_t now);
/* Fine if it has not joined. */
void fair_leave(struct fair *fair, struct fair_part *part);
static inline bool fair_has_joined(const struct fair_part *part)
{
    return part->user != NULL;
}

/* Loaders of several users, or of several priorities, have joined. */
bool fair_is_shared(const struct fair *fair);

/* Now that many of its workers are busy. */
void fair_look(struct fair *fair, struct fair_part *part, uint32_t busy, uint64_t now);

/* The same where nobody else shares, so that nothing counts; fair_look() goes on from here. */
void fair_rest(struct fair_part *part, uint64_t now);

/* What its workers used of processors, and waited for one, since the last time. */
void fair_measure(struct fair *fair, struct fair_part *part, uint64_t cpu_ns, uint64_t cpu_wait_ns,
                  uint64_t now);

/* How many of its workers may be busy. `wants`: it has work for more. */
uint32_t fair_may(struct fair *fair, struct fair_part *part, bool wants, uint64_t now);

/* One that is held back may have more by now: all that are held should ask again. */
bool fair_is_due(const struct fair *fair, uint64_t now);

/* Of those that compete, the part that is this one's: 0 to 1. */
double fair_share(const struct fair *fair, const struct fair_part *part, uint64_t now);

#endif
