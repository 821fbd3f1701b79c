/*
 * The loop's threads, shared between users: so many jobs of one user run at the same time, the
 * user's others wait for these, and users take turns: crew_turns.h. Somebody who has no job finds a
 * thread soon, however many jobs of others wait.
 *
 * Besides these, only the names of the rendezvous' endpoint and store are looked up by these
 * threads, which the administrator alone can name: two at the same time, and libuv lets such work
 * have half of the threads at most, so that a name server which does not answer holds up no job for
 * ever.
 *
 * Main thread only, but for what jobs do.
 */
#ifndef DL_CREW_H
#define DL_CREW_H

#include "proto/common/base.h"

#include <uv.h>

struct crew;
struct crew_user;

/* Of the loop's 4 threads, for one user, unless limits.threads says otherwise. */
enum { CREW_JOBS = 2 };

/* What one user has of it. */
struct crew_share {
    uint64_t running;
    uint64_t waiting;
};

/* Embedded in whatever it is about. */
struct crew_job {
    struct crew_job *prev, *next; /* user->waiting */
    struct crew_user *user;       /* until it is done */
    bool waits;                   /* no thread has it yet */
    uint64_t blame;               /* of who started it: base/blame.h */
    uv_work_t work;
    void (*run)(struct crew_job *job);  /* by a thread */
    void (*done)(struct crew_job *job); /* from the loop */
};

/* `threads`: of the loop's, 1 at least. */
struct crew *crew_new(uv_loop_t *loop, uint32_t threads);
struct crew *crew_free(struct crew *crew); /* all jobs are done; NULL is fine */
/* So many jobs of a user run at a time, 1 at least, from the next one on. */
void crew_set_limit(struct crew *crew, uint64_t jobs);
struct crew_share crew_share_of(const struct crew *crew, uint32_t uid);

/* `run` is called by a thread, soon, and then `done`. */
void crew_start(struct crew *crew, uint32_t uid, struct crew_job *job,
                void (*run)(struct crew_job *job), void (*done)(struct crew_job *job));
/* Nobody wants it any more. True: it is over, and neither of the two is called. False: it is a
 * thread's, and `done` follows. */
bool _nodiscard_ crew_cancel(struct crew_job *job);

#endif
