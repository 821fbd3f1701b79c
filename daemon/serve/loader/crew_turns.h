/*
 * Decides whose job a free thread takes. Users with waiting jobs take turns, and
 *
 *   - a user without a thread comes before all with one;
 *   - no user has more than a limit at the same time, nor all threads if there are several;
 *   - a user with a thread gets another only while one more stays free for a user without any.
 *
 * So a user without a job waits at most for the others' first ones, and not at all while fewer
 * users than there are threads have jobs, however long these take.
 *
 * Pure.
 */
#ifndef DL_CREW_TURNS_H
#define DL_CREW_TURNS_H

#include "proto/common/base.h"

/* A user's place; embedded. All zero has no jobs. */
struct crew_place {
    struct crew_place *prev, *next; /* turns->waiting, while `waits` */
    bool waits;
    uint64_t running;
};

struct crew_turns {
    uint64_t threads;           /* there are, 1 at least */
    uint64_t limit;             /* of them for one user, 1 at least */
    uint64_t running;           /* jobs of all users */
    struct crew_place *waiting; /* borrowed list (utlist): the one longest without a thread first */
};

/* The user has a waiting job. May be repeated. */
void crew_turns_wait(struct crew_turns *turns, struct crew_place *place);
/* The user has no waiting job any more. */
void crew_turns_wait_no_more(struct crew_turns *turns, struct crew_place *place);

/* The user whose job runs next, which is counted; if more wait, it goes to the end of the list.
 * NULL: no thread for any waiting job. */
struct crew_place *crew_turns_next(struct crew_turns *turns);
/* A job of the user's has ended. */
void crew_turns_end(struct crew_turns *turns, struct crew_place *place);

#endif
