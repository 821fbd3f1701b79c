/*
 * The loop's threads, shared between users: each user may run a limited number of jobs at the same
 * time, further ones wait, and users take turns: crew_turns.h. A user without a job finds a thread
 * soon, however many jobs of others wait.
 *
 * Apart from these jobs, the threads only look up the names of the rendezvous' endpoint and store,
 * which only the administrator can set: two at a time. libuv lets such work use at most half of the
 * threads, so that a name server that does not answer never blocks all jobs.
 *
 * Main thread only, except for what jobs do.
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

/* Embedded in its owner's struct. */
struct crew_job {
    struct crew_job *prev, *next; /* user->waiting */
    struct crew_user *user;       /* until it is done */
    bool waits;                   /* no thread has it yet */
    uint64_t blame;               /* key of the request that started it: base/blame.h */
    uv_work_t work;
    void (*run)(struct crew_job *job);  /* by a thread */
    void (*done)(struct crew_job *job); /* from the loop */
};

/* `threads`: of the loop's, 1 at least. */
struct crew *crew_new(uv_loop_t *loop, uint32_t threads);
struct crew *crew_free(struct crew *crew); /* all jobs are done; NULL is fine */
/* The number of jobs of a user that run at a time, at least 1, from the next one on. */
void crew_set_limit(struct crew *crew, uint64_t jobs);
struct crew_share crew_share_of(const struct crew *crew, uint32_t uid);

/* `run` is called by a thread, soon, and then `done`. */
void crew_start(struct crew *crew, uint32_t uid, struct crew_job *job,
                void (*run)(struct crew_job *job), void (*done)(struct crew_job *job));
/* Cancels the job. True: it is over, and neither function is called. False: a thread has it, and
 * `done` follows. */
bool _nodiscard_ crew_cancel(struct crew_job *job);

#endif
