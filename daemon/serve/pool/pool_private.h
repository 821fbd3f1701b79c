/*
 * The inside of the pool, shared by pool.c, pool_lives.c (lives of workers), pool_indexes.c (what
 * they share of the dataset), pool_opening.c (how long opening it may take), pool_look.c (whether
 * its files are others by now), pool_stuck.c (those that do not end), pool_size.c (how many there
 * are), pool_tasks.c (what they are given) and pool_memory.c (what they fill).
 * Nobody else includes it.
 */
#ifndef DL_POOL_PRIVATE_H
#define DL_POOL_PRIVATE_H

#include "daemon/serve/pool/deaths.h"
#include "daemon/serve/pool/pool.h"
#include "daemon/serve/ring/indexes.h"

#include <assert.h>

enum worker_state {
    WORKER_STARTING, /* its process opens the dataset, or waits for what another finds out */
    WORKER_READY,    /* it may be given tasks */
    WORKER_WAITING,  /* it died, and is started again after a pause */
    WORKER_GIVEN_UP, /* it is not started again */
    WORKER_AWAY,     /* there are fewer for now: pool_resize(), pool_set_helpers() */
};

/* States that may follow each, a bit each. */
static const unsigned worker_next[] = {
    [WORKER_STARTING] = 1U << WORKER_STARTING | 1U << WORKER_READY | 1U << WORKER_WAITING |
                        1U << WORKER_GIVEN_UP | 1U << WORKER_AWAY,
    [WORKER_READY] = 1U << WORKER_WAITING | 1U << WORKER_GIVEN_UP | 1U << WORKER_AWAY,
    [WORKER_WAITING] = 1U << WORKER_STARTING | 1U << WORKER_GIVEN_UP | 1U << WORKER_AWAY,
    [WORKER_GIVEN_UP] = 1U << WORKER_GIVEN_UP | 1U << WORKER_AWAY,
    [WORKER_AWAY] = 1U << WORKER_STARTING | 1U << WORKER_GIVEN_UP,
};

struct task {
    uint64_t number;
    void *tag;
    struct segment *segment;
    uint32_t slot;
};

struct member {
    struct pool *pool;        /* borrowed */
    struct process *process;  /* owned; NULL while WAITING or GIVEN_UP */
    struct segment *segments; /* owned list: of this incarnation */
    struct segment *mapping;  /* owned: sent to the worker, not yet answered */
    enum worker_state state;
    uint32_t number;
    uv_timer_t backoff;
    /* Tasks given to this worker, oldest first: it is at tasks[begin]. */
    struct task *tasks; /* owned ring of QUEUE_RECORDS */
    uint64_t begin;
    uint64_t end;
    uint64_t front_since; /* ns; when tasks[begin] became the one it is at */
    uint64_t cost_ns;     /* of a task, recent mean */
    uint64_t
        turn_ns; /* of a helper: between tasks that are done, or from its beginning; likewise */
    uint64_t ready_since; /* ns; while READY */
    struct deaths deaths;
    uint64_t started_since; /* ns; while STARTING */
    uint64_t quiet_since;   /* ns; it opens the dataset, and went on last; */
    uint64_t quiet_cpu_ns;  /* its processor time then, and what it waited for one; */
    uint32_t quiet_place;   /* which file it was at */
    uint64_t killed_since;  /* ns; its process was killed and has not ended; 0: it was not */
    uint32_t stuck;         /* processes before this one that have not ended */
    bool opens;             /* while STARTING: its process was told to open the dataset */
    bool timed_out;         /* killed because its task, or opening the dataset, took too long; */
    bool hangs;             /* longer than open_timeout */
    bool condemned;    /* killed because it reported nonsense: nothing it says counts any more */
    bool wants_memory; /* has no segment because memory.limit is used up */
    char *death_cause; /* owned; see pool_take_death_cause() */
    bool to_ring;
    uint32_t sandbox; /* which parts of it hold in the worker */
    uint64_t finished;
    uint64_t steps, samples; /* that it has made */
    uint64_t restarts;
    char *helper;      /* owned: the address of the machine that it runs on, or ran last; NULL: this
                          one, or none yet */
    uint64_t attempts; /* at helpers, since others were there */
    bool moves;        /* to another helper, once it has done what it has */
    uint64_t doubted_until; /* ns; another worker at its helper was lost: it gets nothing, unless it
                               finishes something, or is not lost as well until then */
    struct way way;         /* of all its connections */
    uint64_t busy_ns;
    uint64_t collate_ns;     /* of that */
    uint64_t slow_ns;        /* of that: on slow samples */
    uint64_t remote_ns;      /* likewise: waiting for remote files */
    uint64_t remote_told;    /* more of it, for which there is no room yet */
    uint64_t cpu_wait_ns;    /* of all its processes, when it was last marked, */
    uint64_t cpu_wait_total; /* the last reading, of process cpu_wait_pid */
    int cpu_wait_pid;        /* this */
    int spent_pid;           /* whose processor time was looked at last, */
    uint64_t spent_cpu;      /* what it was, */
    uint64_t spent_wait;     /* and the wait for one */
    struct recent recently_busy, recently_collated, recently_slow, recently_remote,
        recently_without_cpu, recently_on_way, recently_received, recently_sent, recently_steps,
        recently_samples;
    struct dl_error open_error; /* why it could not open the dataset; code 0 = none */
};

/*
 * A process that was killed and does not end: it waits in the kernel, mostly for storage that does
 * not answer. Another has taken its place. What it has mapped stays in memory, and charged
 * (retired.h).
 */
struct stuck {
    struct stuck *prev, *next; /* pool.stuck (utlist) */
    struct pool *pool;         /* borrowed */
    struct process *process;   /* owned */
    uint32_t worker;
    uint64_t since; /* ns; when it was killed */
    bool charged;   /* as a worker of its own */
};

/* At the files of the dataset. */
struct look {
    uint64_t identity;       /* of the files, just before they were first opened; 0: not known */
    bool wanted;             /* `looked` is to be called */
    uint64_t since;          /* ns; when that was asked for */
    const struct member *by; /* borrowed; the worker that looks; NULL: none yet */
};

struct pool {
    struct pool_options o;
    struct member **members; /* owned: of all that there were, n_made; numbers from n_members on are
                                AWAY */
    uint32_t n_members, n_made;
    uint32_t size;    /* how many there should be; those behind it get no more tasks, and go */
    uint32_t helpers; /* of those that there may be, how many should work; the others rest */
    uint32_t open_handles;
    uint64_t loader;          /* its number among those that read remote files; 0: it has none */
    struct segment *retiring; /* owned list: of dead incarnations, until the last reader lets go */
    uv_timer_t tick;
    uint64_t paid_bytes;   /* for the spec */
    struct dl_buffer spec; /* canonical, packed */
    struct dl_buffer roots, seen_as;
    struct dl_buffer plugins;
    struct index_list indexes; /* of the dataset, so far */
    uint32_t wanted_indexes;   /* how many there will be */
    struct stuck *stuck;       /* owned list */
    uint64_t opening_ns;       /* how long the first opening of the dataset took */
    uint64_t length;           /* samples in the dataset, once opened */
    uint64_t fingerprint;      /* of their lengths, once opened */
    uint64_t dataset;          /* of the data */
    uint64_t slot_bytes;       /* 0 until the first worker is ready */
    uint64_t memory;           /* bytes in segments */
    struct dl_error refused; /* why it got no memory of the system's; code 0: it was not refused */
    bool waits_for_retired;  /* it was refused for what its clients have still to let go of */
    bool waits_for_room;     /* it waits for what others have: limits.full */
    uint64_t next_task;
    int told_pid;   /* of the process that is told what later tasks read; 0: none is */
    uint64_t steps; /* that all its workers have made */
    struct recent recently_steps;
    uint32_t own_in_a_row; /* tasks that no helper has done, as far as that is counted, since one
                              did or began */
    struct bad_list bad;   /* of the completion at hand */
    uint64_t most_samples; /* that one may have */
    bool iterable;         /* the dataset; once opened */
    bool opened;
    bool measures; /* tasks are lengths, before the loader is open */
    const struct member
        *heard; /* borrowed; whose word counts of how far the opening is; may be NULL */
    struct look look;
    struct pool_spent spent; /* of processors alone */
    uint64_t hung_since; /* ns; a worker's task, which took too long, and no worker is there since;
                          * 0: one is */
    bool made;           /* pool_new() has returned it */
    bool broken;
    bool ended; /* pool_end_workers() */
    bool freed;
};

/* It runs on another machine: helpers.h. */
static inline bool member_is_helper(const struct member *m)
{
    return m->number >= m->pool->o.spec->workers &&
           m->number < m->pool->o.spec->workers + m->pool->o.helpers;
}

/* Of an iterable dataset, and of one made in turn, each worker's share is its own. */
static inline bool pool_has_own_shares(const struct pool *pool)
{
    return pool->iterable || python_in_turn(pool->o.spec);
}

/* Its share may be made on another machine. */
static inline bool member_is_pinned(const struct member *m)
{
    const struct pool *pool = m->pool;

    return pool->opened && pool_has_own_shares(pool) && m->number < pool->o.spec->workers &&
           m->number >= pool->o.spec->workers - pool->o.pinned;
}

/* A helper that is not to work now. */
static inline bool member_rests(const struct member *m)
{
    return member_is_helper(m) && m->number - m->pool->o.spec->workers >= m->pool->helpers;
}

/* Those that should work; 1 also where there are to be none: one may still be at its last task. */
static inline uint32_t pool_at_work(const struct pool *pool)
{
    return (uint32_t)max_u64(pool->size - (pool->o.helpers - pool->helpers), 1);
}

static inline void member_become(struct member *m, enum worker_state state)
{
    assert(worker_next[m->state] & 1U << state);
    assert(state != WORKER_READY || m->process);
    m->state = state;
}

static inline uint32_t in_flight(const struct member *m)
{
    return (uint32_t)(m->end - m->begin);
}

/* The task the worker is at; in_flight() > 0. */
static inline struct task *front_task(struct member *m)
{
    return &m->tasks[m->begin % QUEUE_RECORDS];
}

/* pool_lives.c */
void member_start(struct member *m);
/* Its process is there, and waits: it opens the dataset now. */
void member_open(struct member *m);
/* Its exit follows, or member_leave_stuck(). */
void member_kill(struct member *m);
void member_name_kill(const struct member *m, char *text, size_t len);
/* It has no process any more; `cause` says why. `replace`: unless it has died too often. */
void member_lose(struct member *m, const char *cause, bool replace);
/* Nothing will run any more; tells the owner, once. From the loop. */
void pool_break(struct pool *pool, const struct dl_error *err);
/* Others, who have segments, can do what it cannot. */
bool member_has_stand_in(const struct member *m);
/*
 * The worker has no segment, as the system had no memory or descriptor for one. While others have
 * some the loader continues, and this one is started again after a while; a user's quota, and a
 * loader that nobody works for, do not wait.
 */
void member_without_memory(struct member *m, const struct dl_error *err);

/* pool_helpers.c */
/* The dataset is open: those of other machines begin, if it can be theirs. */
void pool_start_helpers(struct pool *pool);
/* Where it is started next, as its `helper`. False: no helper is there. */
bool member_choose_helper(struct member *m);
/* Each helper was tried: its share is made on this machine. */
bool member_is_home(const struct member *m);
/* Those that are to move or to rest, and have nothing to do. */
void pool_move_helpers(struct pool *pool);

/* pool_indexes.c */
/* Has those open the dataset who wait for it, as far as they may. */
void pool_let_open(struct pool *pool);
/* Of struct process_events. */
void pool_indexes_on_indexed(void *member, const struct dl_msg_w_indexed *what, int fd);

/* pool_opening.c */
/* It has said how far it is. */
void member_goes_on(struct member *m);
/* It opens the dataset again, and makes no progress. */
bool pool_opening_hangs(struct member *m);
/* Why it was killed then. */
void member_name_opening(const struct member *m, char *text, size_t len);
/* It may wait in the kernel, where SIGKILL does not reach it. */
bool member_may_be_stuck(const struct member *m);
/* Breaks the pool whose dataset does not get open. */
void pool_opening_check(struct pool *pool);
bool pool_opening_is_watched(const struct pool *pool);

/* pool_look.c */
/* Whether the worker, which is about to open the dataset, looks at its files before. */
bool pool_look_first(struct member *m);
/* Of struct process_events. */
void pool_look_on_looked(void *member, uint64_t identity);
/* Has a worker look that can by now, if that was asked for. */
void pool_look_go_on(struct pool *pool);
/* Its process is gone: another looks. */
void member_look_no_more(struct member *m);
void pool_look_check_time(struct pool *pool);

/* pool_stuck.c */
/* Its process was killed and does not end: another takes its place. */
void member_leave_stuck(struct member *m);
/* Its loader ends and it may not: it keeps its place in limits.workers until it does. */
void member_part(struct member *m);

/* pool.c */
/* Looks at its workers from time to time, as long as there is something to be looked for. */
void pool_watch(struct pool *pool);
/* One of its handles is closed, or one of its processes has ended after all. */
void pool_unref(struct pool *pool);

/* pool_size.c */
/* What `n` workers use of the user's limits. */
int _nodiscard_ pool_charge_workers(struct quota_account *account, uint32_t n, uint32_t helpers,
                                    struct dl_error *err);
/* One more, not started; it is charged already. */
struct member *pool_add_member(struct pool *pool);
/* It has nothing to do, and is AWAY from now on. */
void member_rest(struct member *m);
/* Those go that there should not be, and that have nothing to do any more: the last one first. */
void pool_let_go(struct pool *pool);

/* pool_tasks.c */
void member_collect(struct member *m);
void member_on_completed(void *member); /* of struct process_events */
/* Tells the owner: there may be something to collect, or to begin. */
void pool_changed(struct pool *pool);
/* Its worker is gone: every task it had is `lost`, the first one as the culprit. */
void member_give_tasks_back(struct member *m, const char *cause);

/* pool_memory.c */
/* Its pages are there. */
void pool_settle_segment(struct pool *pool, struct segment *segment);
void pool_free_segment(struct pool *pool, struct segment *segment);
void member_add_first_segment(struct member *m);
/* A worker that got no memory at first gets it as soon as there is some. */
void member_feed(struct member *m);
/* Frees a segment out of use if nobody reads it any more. */
void pool_settle_retiring(struct pool *pool, struct segment *segment);
/* Asks again for memory that was refused; breaks the pool where it cannot do without. */
void pool_memory_ask_again(struct pool *pool);
/* Moves the worker's segments with slots below `slot_bytes` out of use. */
void member_retire_segments(struct member *m, uint64_t slot_bytes);
/* All of them, and the one on its way: the worker is gone. */
void member_retire_all(struct member *m);

#endif
