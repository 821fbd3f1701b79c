/*
 * The pool: the workers of one loader and the segments they fill.
 *
 * It gives out places (a free slot of a live worker), runs tasks in them in order, replaces workers
 * that die, kills those that hang, and retires segments once their last reader has let go. It does
 * not know what a task is for: a `tag` comes back with each result.
 *
 * Main thread only. Callbacks come from the loop; from inside a call only where its comment says
 * so.
 */
#ifndef DL_POOL_H
#define DL_POOL_H

#include "daemon/base/quota.h"
#include "daemon/serve/pool/process.h"
#include "daemon/serve/pool/retired.h"
#include "daemon/serve/ring/budget.h"
#include "daemon/serve/ring/timing.h"
#include "proto/queue.h"
#include "proto/shared/verdict.h"
#include "proto/slot_bad.h"
#include "proto/spec.h"

struct pool;
struct pictures_list;

/* Of the daemon's file descriptors: what a worker is spoken to by, and its segments, one of which
 * may be on its way out. */
enum { POOL_WORKER_DESCRIPTORS = 6 };

struct place {
    uint32_t worker;
    uint32_t slot;
    struct segment *segment; /* borrowed until the slot is released */
};

/* Whether the files of the dataset are those that they were before they were first opened. */
enum pool_files {
    POOL_FILES_SAME,
    POOL_FILES_CHANGED,
    POOL_FILES_UNKNOWN, /* no worker could look in time */
};

struct pool_events {
    /* A worker says how far it is with that, while none has it open. */
    void (*opening)(void *owner, const struct dl_msg_w_opening *what);
    /* What a worker has found out about files is in the sealed memfd `fd`, borrowed, and is worth
     * being kept on disk under `key`. Its word: as are the bytes. */
    void (*indexed)(void *owner, uint64_t key, int fd);
    /* The dataset is open in the first worker, which says what it is. */
    void (*ready)(void *owner, const struct dl_msg_w_ready *what);
    /* The dataset cannot be opened, or no worker stays alive: nothing will run any more. */
    void (*broken)(void *owner, const struct dl_error *err);
    /* `bad`: what is not in the batch, borrowed; empty with on_error raise. */
    void (*done)(void *owner, void *tag, uint32_t samples, uint32_t repeated, uint64_t bytes,
                 const struct bad_list *bad, const struct made_times *made);
    /* The worker's replica has no batch for this task, nor for later ones; its slot is free. */
    void (*ended)(void *owner, void *tag);
    /* The dataset reports an error for this task, perhaps with the whole story of it in `detail`
     * (else NULL); its slot is free again. */
    void (*failed)(void *owner, void *tag, const struct dl_error *err, const char *detail);
    /*
     * The worker died or was killed; the slot is gone. `culprit`: this is the task it was at.
     * Otherwise (behind the culprit, or behind a batch whose slot was too small) the task is not to
     * blame.
     */
    void (*lost)(void *owner, void *tag, bool culprit, const char *cause);
    /* Its slot was too small; slots are larger from now on, and its worker keeps what it has made.
     */
    void (*outgrew)(void *owner, void *tag);
    /* A task took too long, and since then no worker has been there, for as long as all attempts at
     * one may take: what waits for one has waited enough. Again after each such time. */
    void (*stalled)(void *owner, const char *cause);
    /* Memory is short: give up READY slots in retiring segments. Also from pool_grow(). */
    void (*reclaim)(void *owner);
    void (*retired)(void *owner, uint32_t segment);
    /* The user has no memory left. True: something else of that user's made way. */
    bool (*make_way)(void *owner);
    /* A data file was written to while workers use it; each of them may say so. */
    void (*written)(void *owner, const struct dl_error *what);
    /* What pool_look() has asked for. */
    void (*looked)(void *owner, enum pool_files files);
    /* A sample took long; all of it is the worker's word. `helper`: the address of the machine that
     * it runs on, or NULL for this one. */
    void (*slow)(void *owner, const struct slow_sample *what, const char *helper);
    /* After one or more of the above, and whenever there may be places again. */
    void (*changed)(void *owner);
};

struct pool_options {
    uv_loop_t *loop;
    const struct config *config; /* borrowed */
    const struct dl_spec *spec;  /* borrowed, outlives the pool */
    struct hosts *hosts;
    struct remotes *remotes;
    struct python_run *python;            /* borrowed, outlives the pool */
    bool foreign;                         /* opened by another user than the daemon's, */
    const struct credentials *reader;     /* this one; borrowed, outlives the pool */
    const struct pictures_list *pictures; /* of the spec; borrowed, outlives the pool */
    struct quota_account *account;        /* who pays */
    uint32_t *next_segment;               /* the daemon's counter of segment ids */
    bool *told_sandbox;      /* the daemon's: the log has what workers are not kept from */
    uint64_t *stuck;         /* the daemon's count of killed workers that do not end */
    struct budget *budget;   /* of all rings' memory */
    struct retired *retired; /* borrowed; of all loaders */
    uint32_t helpers;  /* how many workers there may be besides, on other machines: helpers.h */
    uint32_t pinned;   /* where each has its own share: workers that run there instead */
    bool helpers_auto; /* at most that many, and fewer at first: pool_set_helpers() */
    const struct config_dirs *found; /* borrowed: their addresses besides those configured */
    const struct pool_events *events;
    void *owner;
};

int _nodiscard_ pool_new(const struct pool_options *options, struct pool **ret,
                         struct dl_error *err);
/* Kills the workers permanently; segments stay until their last lease is back. Tasks that run are
 * `lost`. */
void pool_end_workers(struct pool *pool);
/* The same, and frees it; all leases are back. */
struct pool *pool_free(struct pool *pool);

/*
 * From now on there are `workers`, besides helpers, and no fewer than pool_size_least(): further
 * ones start, or the last ones get no more tasks and go when they have done what they have; batches
 * that they made stay where they are. The dataset is open. Negative errno with `err`, and nothing
 * changes: the user's limits, or memory.limit.
 */
int _nodiscard_ pool_resize(struct pool *pool, uint32_t workers, struct dl_error *err);
/* `found` of its options has become longer: workers at helpers spread over all. */
void pool_meet_helpers(struct pool *pool);
/* From now on `n` of its helpers work; the others end what they have, and rest. */
void pool_set_helpers(struct pool *pool, uint32_t n);
/* How many should, and how many of these can be given tasks. */
uint32_t pool_helpers(const struct pool *pool);
uint32_t pool_helpers_ready(const struct pool *pool);
/* The worker is one that rests. */
bool pool_rests(const struct pool *pool, uint32_t worker);
/* How many there should be, without helpers; more are there as long as some have tasks that are to
 * go when these are done. */
uint32_t pool_size(const struct pool *pool);
uint32_t pool_leaving(const struct pool *pool); /* those more */
/* Of those that there should be, the ones that can be given tasks. */
uint32_t pool_ready(const struct pool *pool);
/* Those of this machine that have tasks. */
uint32_t pool_busy(const struct pool *pool);
/* The fewest that there can be: none, or, with helpers, whose numbers follow theirs, as many as
 * there were at first. */
uint32_t pool_size_least(const struct pool *pool);
/* The most that memory.limit, with two slots for each, and the user's limits allow. */
uint32_t pool_size_most(const struct pool *pool);

/* What its workers have done and used in all their lives, as far as that was looked at. */
struct pool_spent {
    uint64_t tasks, away; /* away: of these, by helpers */
    uint64_t away_ns;     /* that took them, */
    uint64_t busy_ns;     /* and those of this machine the others */
    uint64_t cpu_ns;      /* of processors, by all their threads */
    uint64_t cpu_wait_ns; /* ready to run, and had none */
};
/* Looks, which takes some 10 us for each worker. */
struct pool_spent pool_look_spent(struct pool *pool);

/* Not one worker in particular, but whichever has least to do. */
#define POOL_ANY UINT32_MAX

/*
 * A free slot of the worker, now FILLING. False: all are in use, or those who have one have
 * enough to do already: pool_room() tells which.
 */
bool _nodiscard_ pool_take(struct pool *pool, uint32_t worker, struct place *ret);
/* What the worker can take now. */
struct worker_room pool_room(const struct pool *pool, uint32_t worker);
/*
 * How the worker's predecessor died, while it had nothing to do, in a loader that does not retry
 * and whose workers are their datasets' state: what it would have made next is lost with it. Told
 * once, owned by the caller; NULL: there is nothing to tell.
 */
char *_nodiscard_ pool_take_death_cause(struct pool *pool, uint32_t worker);
/* Runs the task prepared in the slot. */
void pool_run(struct pool *pool, const struct place *place, void *tag);
/* Wakes the workers that got tasks. */
void pool_flush(struct pool *pool);
/* Takes the completions that are there. Calls back as the loop would. */
void pool_collect(struct pool *pool);

/*
 * Asks for one more segment of the worker because there was no place. True: there will be more
 * (`changed`), false with `err`: memory.limit or the user's quota is reached.
 */
bool pool_grow(struct pool *pool, uint32_t worker, struct dl_error *err);

/*
 * Lets slots be large enough for a task of `need` bytes; pool_take() gives no others from then on.
 * False with `err`: one such slot is above memory.limit or the user's. May call `retired`.
 */
bool pool_fit(struct pool *pool, uint64_t need, struct dl_error *err);

/* Whether it reads files that may be others by now; of code that is not known. */
bool pool_has_files(const struct pool *pool);
/* Has a worker look at them: `looked` follows, unless the pool breaks or ends. The dataset is open,
 * and nobody looks yet. */
void pool_look(struct pool *pool);

/* Its tasks are lengths from now on, which belong to opening, or no longer. */
void pool_measures(struct pool *pool, bool measures);

/* Workers need not keep what they have of a stream over an iterable dataset. */
void pool_forget(struct pool *pool, uint32_t stream);

/* Chooses the worker that is told what tasks read that will come, whichever gets them: one alone,
 * since what several were told of would not be fetched in the plan's order. True: it is another one
 * than before, and knows nothing yet. */
bool pool_choose_told(struct pool *pool);
/* Tells it of samples: their indices, u64 little-endian each. Its files are remote. */
void pool_expect(struct pool *pool, struct dl_span indices);
/* Helpers have lately made steps, or may. */
bool pool_is_helped(const struct pool *pool);
/* They may never come. */
void pool_expect_anew(struct pool *pool);

/* Applies an event to a slot that was taken. May call `retired`. */
void pool_slot(struct pool *pool, struct segment *segment, uint32_t slot, enum slot_event event);

bool pool_idle(const struct pool *pool); /* no task runs, no worker starts, no segment is mapped */

/* For `dlctl`: what a worker is like. */
struct pool_worker_view {
    uint32_t number;
    int pid;
    const char *helper; /* the address of the machine it runs on, "" for none yet; NULL: this one */
    const char *state;
    uint64_t tasks;
    uint64_t restarts;
    uint32_t stuck; /* of its processes: killed, and not ended */
    uint32_t in_flight;
    uint64_t busy_ns;
    uint64_t collate_ns; /* of that */
    uint64_t slow_ns;    /* of the rest: on slow samples */
    uint64_t remote_ns;  /* likewise: waiting for remote files */
    struct way way;      /* to its helper */
    struct {
        uint64_t steps, of_steps, samples; /* that it made, of those that all workers did */
    } recent;                              /* since the mark before the last */
    uint32_t sandbox;                      /* which parts of it hold */
    const void *tag;                       /* of the task it is at; NULL when idle */
};
uint32_t pool_workers(const struct pool *pool);
/* Workers of its user's limit that its end gives back at once: all but those that may not end. */
uint32_t pool_gives_back(const struct pool *pool);
/* The process that fetches its files; NULL: none of them is remote. */
const struct remotes *pool_remotes(const struct pool *pool);
/* What the worker's time went into lately: since the mark before the last. */
void pool_mark(struct pool *pool);
void pool_recent(const struct pool *pool, uint32_t i, struct verdict_worker *ret);
void pool_view_worker(const struct pool *pool, uint32_t i, struct pool_worker_view *ret);
/* Every segment, retiring ones included: first with NULL; NULL after the last. */
const struct segment *pool_next_segment(const struct pool *pool, const struct segment *after);
uint64_t pool_memory(const struct pool *pool); /* bytes in segments */
uint64_t pool_slot_bytes(const struct pool *pool);
/* Why it waits for memory, or NULL. */
const struct dl_error *pool_refused(const struct pool *pool);

#endif
