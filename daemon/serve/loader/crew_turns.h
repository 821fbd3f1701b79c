/*
 * Whose job a thread takes that is free. Users with jobs that wait take turns, and
 *
 *   - whoever has no thread comes before all who have one;
 *   - nobody has more than a limit at the same time, nor all threads if there are several;
 *   - whoever has one gets another only while one more stays free, for somebody who has none.
 *
 * So a user who has no job waits at most for the others' first ones, and not at all while fewer
 * users than there are threads have jobs, however long these take.
 *
 * Pure.
 */
#ifndef DL_CREW_TURNS_H
#define DL_CREW_TURNS_H

#include "proto/common/base.h"

/* A user's; embedded in it. All zero is one without jobs. */
struct crew_place {
    struct crew_place *prev, *next; /* turns->waiting, while `waits` */
    bool waits;
    uint64_t running;
};

struct crew_turns {
    uint64_t threads;           /* there are, 1 at least */
    uint64_t limit;             /* of them for one user, 1 at least */
    uint64_t running;           /* jobs of all users */
    struct crew_place *waiting; /* borrowed list (utlist): who had a thread the longest ago first */
};

/* The user has a job that waits. May be said again. */
void crew_turns_wait(struct crew_turns *turns, struct crew_place *place);
/* The user has none any more. */
void crew_turns_wait_no_more(struct crew_turns *turns, struct crew_place *place);

/* Whose job runs now, which counts; the user, who waits on, has the last turn of all. NULL: there
 * is no thread for any that waits. */
struct crew_place *crew_turns_next(struct crew_turns *turns);
/* A job of the user's has ended. */
void crew_turns_end(struct crew_turns *turns, struct crew_place *place);

#endif
