/*
 * A stream: one rank's pass over one epoch, as the daemon keeps it. Pure.
 *
 * Each step is in exactly one state:
 *
 *   WAITING → RUNNING → READY → LEASED → (given back)
 *      ↑         |  \              \ ↘ PINNED → (given back)
 *      └─ lost ──┘   → FAULTED → (delivered as a fault, no lease)
 *
 * READY becomes FAULTED when too many of its samples turn out to be bad.
 *
 * `window` counts the steps planned and not yet given back, pinned or faulted: at most `credits`.
 * So `credits` bounds the slots a stream takes, whether they are being filled, are ready, or are
 * read, and one slow rank never stalls another.
 *
 * Steps are planned in the order of their numbers, and delivered in it too, or, with `any_order`,
 * as they become ready.
 *
 * Where batches are dispatched, all ranks of an epoch get rows of the same ones. Their *source* is
 * a stream of its own without a client, whose rank is PLAN_ALL: its steps are loaded as any
 * other's. A rank's stream loads nothing: its step is READY from the start, when it takes what the
 * source has. loader_dispatch.c does that.
 *
 * Where the dataset is iterable, step s is batch s div replicas of worker s mod replicas: PyTorch's
 * round robin. How many batches a replica has shows when it ends: the steps it does not have are
 * left out, so that the numbers of the others have gaps. Where the client is the sampler, steps
 * exist as far as it has fed them.
 *
 * A release is the acknowledgement. The stream of a client that is gone without a word can go on at
 * the first step that was not acknowledged: stream_rewind() makes all leases READY again, and steps
 * behind that one, which were released, are planned anew. What its client has of a daemon before
 * counts as well: it is no lease, but the position does not pass the lowest step of it, `held`.
 */
#ifndef DL_STREAM_H
#define DL_STREAM_H

#include "daemon/plan/plan.h"
#include "daemon/serve/ring/segment.h"
#include "daemon/serve/ring/states.h"
#include "daemon/serve/ring/timing.h"
#include "proto/history.h"
#include "proto/slot_bad.h"

#include "proto/limits.h"

#include <uthash.h>

enum step_state { STEP_WAITING, STEP_RUNNING, STEP_READY, STEP_FAULTED, STEP_LEASED, STEP_PINNED };

struct stream;
struct epoch;
struct dispatcher;

struct step {
    UT_hash_handle hh;        /* stream.steps, by number */
    struct step *prev, *next; /* loader.waiting, while WAITING and attempted before; stream.due */
    struct stream *stream;    /* borrowed; NULL: given up while a worker has it */
    uint64_t number;
    enum step_state state;
    uint32_t attempts; /* that ended with the worker's death */
    uint32_t samples;
    uint32_t all;      /* samples in the slot, of which these are some; from READY on */
    uint32_t first;    /* the first of them in the slot */
    uint32_t repeated; /* of `samples`, the last ones: there only to even the ranks out */
    bool held;         /* while READY: a lease of its own on the slot, as others read it too */
    uint32_t slot;
    struct segment *segment; /* borrowed; from RUNNING on */
    uint64_t bytes;          /* of the slot in use; from READY on */
    uint64_t run_ns;         /* when it was given to its worker; from RUNNING on, */
    struct made_times made;  /* from READY on, */
    uint64_t delivered_ns;   /* from LEASED on */
    uint64_t pinned_ns;      /* in PINNED: when its client went on to the next one */
    uint64_t tokens;         /* of batches of tokens, as planned; from RUNNING on */
    uint64_t padded;         /* that, with padding */
    struct dl_error *error;  /* owned; when FAULTED */
    char *detail;            /* owned; the error's whole story, or NULL */
    uint64_t *fed;           /* owned; n_fed indices, where the client is the sampler */
    uint32_t n_fed;
    struct bad_list bad; /* READY: its bad samples, until they are counted */
};

struct stream_params {
    char job[DL_BOUND_NAME_BYTES + 1]; /* that the rank belongs to; "": none */
    const void *owner;                 /* whoever started it: only compared */
    uint64_t epoch;
    uint64_t rank; /* PLAN_ALL: a source */
    uint64_t world;
    uint64_t first;        /* step to begin with */
    struct history before; /* what other world sizes had of the epoch; steps count from there */
    uint64_t steps;        /* of this rank in the whole epoch; STEPS_UNKNOWN until it shows */
    uint32_t credits;
    uint32_t replicas; /* workers, of an iterable dataset; 0: it is map-style */
    bool any_order;
    bool fed;       /* the client is the sampler */
    uint64_t round; /* in the cluster's world: of its nodes, from 1; else 0. `first` may then be
                       behind its last step: other ranks have one more */
};

#define STEPS_UNKNOWN UINT64_MAX

struct stream {
    struct stream *prev, *next; /* loader.streams (utlist) */
    struct stream_params params;
    uint32_t number;      /* of the stream, in the loader's life; from 1 */
    uint64_t to_plan;     /* next step to be planned, if it exists */
    uint64_t to_deliver;  /* next step the client gets, if it exists; not with any_order */
    struct step *due;     /* READY and FAULTED steps as they came (utlist); with any_order */
    uint64_t *ends;       /* owned; rounds that each replica has; UINT64_MAX: not known */
    uint64_t *settled;    /* owned; of each replica: no step before this one is to be run */
    struct states states; /* of its replicas, as far as the dataset says them */
    struct feed *feed;    /* owned list: fed, not yet planned (utlist) */
    uint64_t fed;         /* steps before this one were fed */
    uint64_t handed;      /* steps and faults delivered */
    uint32_t undelivered; /* steps planned and not delivered */
    uint32_t turn;        /* steps run since others had theirs */
    uint32_t window;
    uint64_t held;   /* no lower step of another daemon's is held by the client; UINT64_MAX: none */
    uint32_t leased; /* steps in LEASED */
    uint32_t pinned; /* steps in PINNED */
    bool stopped;    /* nothing more is planned or delivered */
    bool paused;     /* likewise, until it is known how far it may go */
    uint64_t
        limit; /* it ends before this step, though its epoch goes on; UINT64_MAX: it does not */
    bool finish_told;
    uint32_t starving_told; /* what its client held of the loader when it was told to let go of
                               some, for want of memory; 0: it was not, or something came back */
    bool starving_warned;   /* the client knows that it waits for what others hold */
    bool carried;           /* its client has brought states */
    bool passing_told;      /* the client knows that its first step is far */
    bool length_told;       /* the client knows that the dataset is longer than it says */
    bool unsettled;         /* its plan is being worked out: how many steps it has is not known */
    struct step *steps;     /* owned; by number */
    struct step *spare;     /* owned; used steps for reuse, linked by `next` */
    struct epoch *plan;     /* counted; the loader's */
    struct dispatcher *dispatcher; /* borrowed: a source's own, or whom the rank takes its steps
                                      from; NULL: it loads them itself, or takes no more */
    void *sink;                    /* the session's; NULL: expected or parked, see loader.h */
    bool lost;                     /* its client is gone, without having read it to the end */
    bool parked;                   /* its client is gone, and may come back */
    bool rewound;                  /* steps behind to_plan can be there already */
    uint64_t parked_ns;
    uint64_t delivered; /* steps delivered in this stream's life */
    uint64_t samples;
    uint64_t repeated; /* of these */
    uint64_t bytes;
    uint64_t tokens; /* of batches of tokens, delivered; without and with padding */
    uint64_t padded;
    uint64_t begun_ns;
    uint64_t waited_ns;   /* that its client says it has waited for batches; at most since then */
    struct timing timing; /* of its batches */
    struct recent recently_waited, recently_delivered;
};

struct stream *stream_new(const struct stream_params *params);
/* All steps must be gone: stream_stop(), then give back what is leased. */
struct stream *stream_free(struct stream *stream);

/* It loads batches for others to take. */
static inline bool stream_is_source(const struct stream *stream)
{
    return stream->params.rank == PLAN_ALL;
}

/* Its client waits, and there is no memory for its next step. */
static inline bool stream_starves(const struct stream *stream)
{
    return stream->window == 0 && (stream->starving_told > 0 || stream->starving_warned);
}

/* A further step may be planned now; which: the one that stream_plan() would make. */
bool stream_has_room(const struct stream *stream);
uint64_t stream_next(const struct stream *stream);

/* Indices of the next step, of a stream that is fed and has room. */
uint32_t stream_next_fed(const struct stream *stream);

/* Plans the next step: WAITING. */
struct step *stream_plan(struct stream *stream);

/* The step of that number, planned and not given back; NULL: there is none. */
struct step *stream_find(const struct stream *stream, uint64_t number);

/* A source need not plan steps before `number`. */
void stream_skip(struct stream *stream, uint64_t number);

/*
 * The client's next step of `n` indices, which it has as little-endian bytes; stream.params.fed.
 * False, and nothing changed: it is more than DL_MAX_FEED_AHEAD ahead, or the end was said already.
 */
bool _nodiscard_ stream_feed(struct stream *stream, const uint8_t *indices, uint32_t n);
bool _nodiscard_ stream_feed_end(struct stream *stream);

void step_run(struct step *step, struct segment *segment, uint32_t slot, uint32_t samples);
void step_ready(struct step *step, uint32_t samples, uint64_t bytes);
void step_lost(struct step *step); /* back to WAITING; its lease on the slot was the caller's */

/* What of the slot's bytes is the step's. */
static inline uint64_t step_bytes(const struct step *step)
{
    return step->samples < step->all ? step->bytes / step->all * step->samples : step->bytes;
}
void step_fault(struct step *step, const struct dl_error *err);

/* The replica that a step is of; and the first step of it that may yet have to be run (again). */
uint32_t step_replica(const struct stream *stream, uint64_t number);
uint64_t stream_settled(struct stream *stream, uint32_t replica);

/* The RUNNING step does not exist, for its replica has ended before it. It leaves the stream. */
void stream_replica_ended(struct stream *stream, struct step *step);

/* The replica of the step, which is not planned, has no such step for this stream, nor later ones.
 */
void stream_end_replica(struct stream *stream, uint64_t number);

/* What replicas are known to have ended in the source, have ended for the rank that takes from it.
 */
void stream_learn_ends(struct stream *stream, const struct stream *source);

/* The step to be delivered next if it is READY or FAULTED, else NULL. */
struct step *stream_deliverable(struct stream *stream);

/* It was delivered: READY becomes LEASED; a FAULTED step is forgotten. */
void stream_deliver(struct stream *stream, struct step *step);

bool stream_finished(const struct stream *stream); /* every step was delivered */

/* The client's lease on a step: LEASED or PINNED, else NULL (a violation). */
struct step *stream_lease(struct stream *stream, uint64_t number);
/* LEASED → PINNED, its credit back; no change if it is PINNED already. */
void stream_pin(struct stream *stream, struct step *step);
/* The step leaves the stream and its memory may be reused; what it leased is the caller's. */
void stream_forget(struct stream *stream, struct step *step);

/*
 * A RUNNING step that nobody waits for any more leaves the stream while a worker still writes its
 * slot. Its `stream` is NULL from then on, and whoever has the worker's answer frees it.
 */
void stream_abandon(struct stream *stream, struct step *step);
void step_free(struct step *step);

/* Of the steps that another daemon has delivered, this is the lowest that the client holds;
 * UINT64_MAX: it holds none. */
void stream_hold(struct stream *stream, uint64_t number);

/* The lowest step that is not given back; those that a fault took the place of are. */
uint64_t stream_position(const struct stream *stream);

/* The same where the client says that it wants no more: what it has pinned it has had, and what is
 * lent to it otherwise it has not looked at. *ret_all: it has had all steps. */
uint64_t stream_used(const struct stream *stream, bool *ret_all);

/* All steps before `limit` were delivered. */
bool stream_at_limit(struct stream *stream);

/* It was given no step from this one on. */
uint64_t stream_given(const struct stream *stream);

/* Every step was delivered and given back. */
bool stream_done(const struct stream *stream);

/* Steps before the last one planned were given back, and others before them were not. */
bool stream_has_gaps(const struct stream *stream);

/* Its client says that it has waited for batches for so long since it said so last. */
void stream_waited(struct stream *stream, uint64_t ns, uint64_t now);

/* LEASED or PINNED → READY; its slot is the caller's business. */
void stream_recall(struct stream *stream, struct step *step);

/* No step is leased any more: it goes on at its position, as if it had begun there. */
void stream_rewind(struct stream *stream);

/* Nothing more is planned or delivered. */
void stream_stop(struct stream *stream);

/* How many of its steps are in that state. */
uint32_t stream_count(const struct stream *stream, enum step_state state);

#endif
