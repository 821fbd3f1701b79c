/*
 * A stream: one rank's pass over one epoch, as the daemon keeps it. Pure.
 *
 * Each step is in exactly one state:
 *
 *   WAITING → RUNNING → READY → LEASED → (released)
 *      ↑         |  \       \       \ ↘ PINNED → (released)
 *      └─ lost ──┘   → FAULTED → LEASED → (released)
 *
 * READY becomes FAULTED when too many of its samples turn out to be bad. A fault is leased like a
 * batch, but has no slot: it takes a credit until its client reports it as read.
 *
 * `window` counts the steps planned and not yet released or pinned: at most `credits`. So `credits`
 * bounds a stream's slots, whether being filled, ready, or read, and one slow rank never stalls
 * another.
 *
 * Steps are planned in the order of their numbers, and delivered in it too, or, with `any_order`,
 * as they become ready: the lowest of those that are, but none that is more than `bypass` behind
 * the first that was not delivered. So each step is passed by at most as many. A client that has
 * a journal of an earlier run (proto/passed.h) gets the steps in its order, as far as it goes.
 *
 * Where batches are dispatched, all ranks of an epoch get rows of the same ones. Their *source* is
 * a separate stream without a client, whose rank is PLAN_ALL: its steps are loaded like any others.
 * A rank's stream loads nothing: its step is READY from the start, taken from the source
 * (core_dispatch.c). The same holds for clients that share a rank, such as a tensor parallel group:
 * their source has that rank, and each of these *sharers* gets all of its batches. Jobs that happen
 * to read the same (share.window) are sharers, too, but nobody knows how many: these are
 * *companions*, who come and go, and may be left behind.
 *
 * Where the dataset is iterable, step s is batch s div replicas of worker s mod replicas: PyTorch's
 * round robin. A replica's number of batches is known when it ends: steps beyond it are left out,
 * so that step numbers have gaps. Where the client is the sampler, steps exist as far as it has fed
 * them.
 *
 * Releasing is acknowledging. The stream of a lost client can resume at the first unacknowledged
 * step: stream_rewind() makes all leases READY again, and released steps behind that one are
 * planned anew. Batches that its client has from a former daemon count as well: they are not
 * leases, but the position does not pass the lowest of them, `former_lease`.
 */
#ifndef DL_STREAM_H
#define DL_STREAM_H

#include "daemon/plan/mix_tally.h"
#include "daemon/serve/core/dataset_states.h"
#include "daemon/serve/core/lately.h"
#include "daemon/serve/core/slices.h"
#include "daemon/serve/ring/segment.h"
#include "daemon/serve/ring/timing.h"
#include "proto/history.h"
#include "proto/limits.h"
#include "proto/passed.h"
#include "proto/slot_bad.h"

#include <uthash.h>

/* ---- phases ---------------------------------------------------------------------------------- */

enum stream_phase {
    STREAM_SETTLING, /* its plan is being worked out: how many steps it has is not known */
    STREAM_EXPECTED, /* not requested yet */
    STREAM_ACTIVE,   /* a client reads it */
    STREAM_SOURCE,   /* it loads batches for ranks to take */
    STREAM_PAUSED,   /* how far it may go is being agreed on in the cluster */
    STREAM_FINISHED, /* its client got the end; leases may be out */
    STREAM_PARKED,   /* its client is gone, and may come back */
    STREAM_STOPPED,  /* only leases are left */
};
enum { STREAM_PHASES = 8 };

#define PHASE_BIT(phase) (1U << STREAM_##phase)

struct stream_rules {
    bool plans;    /* further steps, as far as its window reaches */
    bool delivers; /* due batches, to its client */
    bool is_read;  /* a client waits for its batches, or will */
    unsigned next; /* phases that may follow, a bit each */
};

static const struct stream_rules stream_rules[STREAM_PHASES] = {
    [STREAM_SETTLING] = {false, false, false,
                         PHASE_BIT(EXPECTED) | PHASE_BIT(ACTIVE) | PHASE_BIT(SOURCE) |
                             PHASE_BIT(PAUSED) | PHASE_BIT(STOPPED)},
    [STREAM_EXPECTED] = {true, false, false,
                         PHASE_BIT(ACTIVE) | PHASE_BIT(SOURCE) | PHASE_BIT(STOPPED)},
    [STREAM_ACTIVE] = {true, true, true,
                       PHASE_BIT(PAUSED) | PHASE_BIT(FINISHED) | PHASE_BIT(PARKED) |
                           PHASE_BIT(STOPPED)},
    [STREAM_SOURCE] = {true, false, false, PHASE_BIT(STOPPED)},
    [STREAM_PAUSED] = {false, false, true,
                       PHASE_BIT(SETTLING) | PHASE_BIT(ACTIVE) | PHASE_BIT(PARKED) |
                           PHASE_BIT(STOPPED)},
    [STREAM_FINISHED] = {false, false, false, PHASE_BIT(PARKED) | PHASE_BIT(STOPPED)},
    [STREAM_PARKED] = {false, false, false, PHASE_BIT(ACTIVE) | PHASE_BIT(STOPPED)},
    [STREAM_STOPPED] = {false, false, false, 0},
};

/* ---- steps ----------------------------------------------------------------------------------- */

enum step_state { STEP_WAITING, STEP_RUNNING, STEP_READY, STEP_FAULTED, STEP_LEASED, STEP_PINNED };
enum { STEP_STATES = 6 };

enum { STEP_NAMED = 8 /* indices that a step is known by in words */ };

struct stream;
struct epoch;
struct roster;

struct step {
    UT_hash_handle hh;        /* stream.steps, by number */
    struct step *prev, *next; /* core.waiting, while WAITING; stream.due; `prev` NULL: neither */
    struct stream *stream;    /* borrowed; NULL: given up while a worker has it */
    uint64_t number;
    enum step_state state;
    uint32_t attempts; /* that ended with the worker's death */
    uint32_t samples;
    uint32_t all;      /* samples in the slot, of which the batch may be some; from READY on */
    uint32_t first;    /* the first of them in the slot */
    uint32_t repeated; /* of `samples`, the last ones: there only to even the ranks out */
    bool own_lease;    /* while READY: on the slot, as others read it too */
    uint32_t slot;
    struct segment *segment;    /* borrowed; from RUNNING on; NULL: a fault */
    uint64_t bytes;             /* of the slot in use; from READY on */
    uint64_t run_ns;            /* when it was given to its worker; from RUNNING on, */
    struct made_times made;     /* from READY on, */
    uint64_t delivered_ns;      /* from LEASED on */
    uint64_t pinned_ns;         /* in PINNED: when its client asked for the next one */
    uint64_t tokens;            /* of batches of tokens, as planned; from RUNNING on */
    uint64_t padded;            /* that, with padding */
    uint64_t named[STEP_NAMED]; /* the first of its indices; from RUNNING on */
    uint32_t n_indices;         /* of all; 0: not known */
    uint32_t n_fed;
    bool unplanned;   /* while WAITING: for its plan to be prepared */
    bool yields;      /* while WAITING: requested streams come first */
    uint32_t kept_by; /* while WAITING: the worker that has its samples, plus 1; 0: none has */
    uint64_t *fed;    /* owned; n_fed indices, where the client is the sampler */
    struct dl_error *error; /* owned; of a fault */
    char *detail;           /* owned; the error's whole story, or NULL */
    struct bad_list bad;    /* READY: its bad samples, until they are counted */
};

/* What was delivered: to a stream, or of a loader in all. */
struct delivered {
    uint64_t batches;
    uint64_t samples, repeated; /* the latter: of these, there only to even the ranks out */
    uint64_t bytes;
    uint64_t tokens, padded; /* of batches of tokens: without and with padding */
};

/* A batch more. */
void delivered_add(struct delivered *delivered, const struct step *step);

/* ---- streams --------------------------------------------------------------------------------- */

/* Which streams go first when workers or slots are short; from START. */
enum stream_priority { PRIORITY_NORMAL, PRIORITY_HIGH, PRIORITY_LOW };

struct stream_params {
    char job[DL_BOUND_NAME_BYTES + 1]; /* of the rank; may be "" */
    const void *owner;                 /* the session that started it: only compared */
    uint64_t epoch;
    uint64_t rank; /* PLAN_ALL: of all ranks */
    uint64_t world;
    uint32_t sharer;       /* number among those that share the rank; of a source: 0 */
    uint32_t sharers;      /* how many share it; 0: not shared */
    bool companion;        /* it is shared with readers of any job, */
    struct slices slices;  /* and this is how its batches divide the shared ones */
    bool source;           /* it has no client: others take its batches */
    uint64_t first;        /* step to begin with */
    struct history before; /* what other world sizes had of the epoch; steps count from there */
    struct lazy_mark mark; /* as its client says: where its plan may begin */
    uint64_t steps;        /* of this rank in the whole epoch; STEPS_UNKNOWN until it shows */
    uint64_t expected;     /* as its client expects; for people; 0: unknown */
    uint32_t credits;
    enum stream_priority priority;
    uint32_t replicas; /* workers, of an iterable dataset; 0: it is map-style */
    bool any_order;
    uint64_t bypass;      /* with that: how far */
    struct passed passed; /* steps that the client had before: they are not loaded */
    bool fed;             /* the client is the sampler */
    uint64_t round; /* in the cluster's world: its nodes' round, from 1; else 0. `first` may then be
                       behind its last step: other ranks have one more */
};

#define STEPS_UNKNOWN UINT64_MAX

/* Messages that its client gets only once. */
enum {
    TOLD_PASSING = 1 << 0,   /* its first step is far; or its client has brought states */
    TOLD_LENGTH = 1 << 1,    /* the dataset is longer than its length */
    TOLD_STARVING = 1 << 2,  /* it waits for memory that others hold */
    TOLD_END = 1 << 3,       /* it was given all there is */
    TOLD_FILES = 1 << 4,     /* that files have changed */
    TOLD_NO_WORKER = 1 << 5, /* it waits for a worker that others have */
};

/* The further state of a source. */
struct dispatch {
    struct roster *roster;  /* owned; which members it waits for: ranks, or sharers of a rank */
    struct stream *ranks;   /* borrowed list (by peer_prev, peer_next): those that take from it */
    uint64_t tail;          /* the first step that some rank has yet to take */
    uint64_t at_tail;       /* how many ranks are there, of those that are here */
    uint64_t patience_ends; /* ns; for ranks that are awaited in the middle of an epoch; 0: never */
    uint64_t waited_since;  /* ns; a rank that is here has nothing to read until they come, or (of
                               companions) until others have read; 0: not waiting */
    uint64_t waited_ns;     /* of companions: that, before */
    uint64_t keeps;         /* of companions: steps that all have taken, for those that come late */
};

struct stream {
    struct stream *prev, *next;                 /* core.streams, in the order of their beginnings */
    struct stream *touched_prev, *touched_next; /* *touched_in */
    struct stream **touched_in;                 /* core.touched, core.later, or NULL */
    struct stream *queue_prev, *queue_next;     /* *queue */
    struct stream **queue;                /* of those that have a step to load, or are parked */
    struct stream *peer_prev, *peer_next; /* source->dispatch->ranks, or core.sources */

    struct stream_params params;
    enum stream_phase phase;
    uint32_t number;            /* of the stream, in the loader's life; from 1 */
    void *sink;                 /* the client's record of it; NULL: no client */
    struct epoch *epoch;        /* the shell's: owns the plan; or NULL */
    const struct plan *plan;    /* borrowed from it; NULL: its steps need no plan */
    struct stream *source;      /* borrowed; from which the rank takes its steps; or NULL */
    struct dispatch *dispatch;  /* owned; of a source */
    struct dl_error *refusal;   /* owned; why it cannot begin, or NULL */
    struct stream *predecessor; /* of an expected one: shares its window; or NULL */
    struct stream *successor;   /* the one that is expected after it, or NULL */
    bool expected_next;         /* the next epoch's stream was requested, whatever happened to it */
    bool catches_up;            /* a companion: it will take its next step from another source */
    bool rewound;               /* steps behind to_plan can be there already */
    bool by_windows;            /* its plan is cut while it is read (plan_lazy.h), up to `hold` */
    bool unplanned;             /* a step waits for its plan to be prepared */
    unsigned told;              /* TOLD_… */
    uint32_t starving_told; /* leases that its client held when it was asked to release some, for
                               lack of memory; 0: not asked, or some came back */

    uint32_t window_most; /* steps planned and not released, at most: the credits, or more while its
                             loader has more workers than at first */
    uint64_t to_plan;     /* next step to be planned, if it exists */
    uint64_t to_deliver;  /* next step for the client, if it exists; with any_order: the first of
                             those that it did not get */
    uint64_t foreseen;    /* steps before this one were told of, besides those that were planned */
    uint64_t limit;       /* it ends before this step, though its epoch continues; or UINT64_MAX */
    uint64_t hold;        /* it plans no step from this one on, for now; UINT64_MAX: it does */
    uint64_t former_lease; /* the lowest step that its client still has from a former daemon; or
                              UINT64_MAX */
    struct step *steps;    /* owned; by number */
    uint32_t in_state[STEP_STATES]; /* how many of these are in each state */
    uint32_t faults_told;           /* of those in LEASED: they are faults */
    struct step *due; /* READY and FAULTED steps by their numbers (utlist); with any_order */
    uint8_t *journal; /* owned; the order that its client wants, or NULL */
    size_t journal_len;
    struct journal_reader order; /* what is left of it, */
    uint64_t wanted;             /* and the step that is next by it; STEPS_UNKNOWN: any */
    struct step *spare;          /* owned; used steps for reuse, linked by `next` */
    uint64_t *ends;              /* owned; rounds that each replica has; UINT64_MAX: not known */
    uint64_t *settled; /* owned; of each replica: steps before this one need not run again */
    struct dataset_states states; /* of its replicas, as far as known */
    struct feed *feed;            /* owned list: fed, not yet planned (utlist) */
    uint64_t fed;                 /* steps before this one were fed */
    uint64_t fed_bytes;           /* of it: the feed's, and that of steps */
    uint64_t paid_bytes;          /* of stream_cost(), charged to the user */
    uint64_t handed;              /* steps and faults delivered */
    uint32_t turn;                /* steps run since others had theirs */

    uint64_t parked_ns;
    uint64_t begun_ns;
    struct delivered delivered; /* in this stream's life */
    struct mix_tally *mixture; /* owned; the shell's: of each dataset of a mixture, delivered; NULL:
                                  nothing was */
    uint32_t n_mixture;
    uint64_t sized_batches; /* delivered when its loader's workers were counted last */
    uint64_t waited_ns;     /* its client's reported waits for batches; at most since then */
    struct timing timing;   /* of its batches */
    struct recent recently_waited, recently_delivered;
    struct lately_rank *lately; /* borrowed; the rank's last ten minutes; NULL: not kept */
    struct lately_mark looked;
};

struct stream *stream_new(const struct stream_params *params, struct epoch *epoch,
                          const struct plan *plan);
/* All steps must be gone: drop them, then release the leased ones. */
struct stream *stream_free(struct stream *stream);

/* Asserts that the table allows it. */
void stream_become(struct stream *stream, enum stream_phase phase);

/* It loads batches for others to take. */
static inline bool stream_is_source(const struct stream *stream)
{
    return stream->params.source;
}

/* Its batches are those of all ranks, one after another. */
static inline bool stream_is_for_all(const struct stream *stream)
{
    return stream->params.rank == PLAN_ALL;
}

/* It gets its source's batches as they are, and not some of their rows. */
static inline bool stream_takes_all(const struct stream *stream)
{
    return stream->params.sharers || stream->params.companion;
}

/* The step of its source that has its own one. */
static inline uint64_t stream_step_of(const struct stream *stream, uint64_t own)
{
    return slices_step(&stream->params.slices, own);
}

/* Its number among those that take from one source, and how many they are; 0: any number. */
static inline uint64_t stream_member(const struct stream_params *params)
{
    return params->sharers ? params->sharer : params->rank;
}

static inline uint64_t stream_members(const struct stream_params *params)
{
    return params->companion ? 0 : params->sharers ? params->sharers : params->world;
}

/* How many steps it has is known, or shows by and by. */
static inline bool stream_is_settled(const struct stream *stream)
{
    return !stream->plan || stream->by_windows || stream->params.steps != STEPS_UNKNOWN;
}

/* No client reads it yet: work for it may be in vain. */
static inline bool stream_is_expected(const struct stream *stream)
{
    if (stream_is_source(stream))
        return stream->dispatch && !stream->dispatch->ranks;
    return !stream->sink;
}

/* Steps that its client has: leased, or pinned. */
static inline uint32_t stream_client_has(const struct stream *stream)
{
    return stream->in_state[STEP_LEASED] + stream->in_state[STEP_PINNED];
}

/* Steps planned and not delivered, */
static inline uint32_t stream_undelivered(const struct stream *stream)
{
    return HASH_COUNT(stream->steps) - stream_client_has(stream);
}

/* and those that take a credit. */
static inline uint32_t stream_window(const struct stream *stream)
{
    return HASH_COUNT(stream->steps) - stream->in_state[STEP_PINNED];
}

/* Its client waits, and memory for its next step is lacking. */
static inline bool stream_starves(const struct stream *stream)
{
    return stream_window(stream) == 0 &&
           (stream->starving_told > 0 || stream->told & TOLD_STARVING);
}

/* Bytes of the daemon's memory that the stream takes: its steps, and what its client has fed and
 * brought. Slots are charged where they are made. */
uint64_t stream_cost(const struct stream *stream);

/* A further step may be planned now; which: the one that stream_plan() would make. */
bool stream_has_room(const struct stream *stream);
uint64_t stream_next(const struct stream *stream);

/* Plans the next step: WAITING. */
struct step *stream_plan(struct stream *stream);

/*
 * Steps that are not planned, up to `most` of them, and that workers should hear of to fetch what
 * is far away: how many, from *ret_first on, which the caller adds to ->foreseen. No step is,
 * before one was made: that one is waited for; nor what its client feeds, or a replica knows by
 * itself.
 */
uint64_t stream_foresees(const struct stream *stream, uint64_t most, uint64_t *ret_first);

/* The step of that number, planned and not released; or NULL. */
struct step *stream_find(const struct stream *stream, uint64_t number);

/* A source need not plan steps before `number`. */
void stream_skip(struct stream *stream, uint64_t number);

/*
 * Feeds the client's next step of `n` indices, little-endian; stream.params.fed. False, changing
 * nothing: it is more than DL_MAX_FEED_AHEAD ahead, or the end was fed before.
 */
bool _nodiscard_ stream_feed(struct stream *stream, const uint8_t *indices, uint32_t n);
bool _nodiscard_ stream_feed_end(struct stream *stream);

/* The replica that a step is of; and the first step of it that may yet have to be run (again). */
uint32_t step_replica(const struct stream *stream, uint64_t number);
uint64_t stream_settled(struct stream *stream, uint32_t replica);

/* The step exists in its replica, as far as known. */
bool stream_exists(const struct stream *stream, uint64_t number);

/* The replica has no step `number`, which is not planned, nor later ones, for this stream. */
void stream_end_replica(struct stream *stream, uint64_t number);

/* What replicas are known to have ended in the source, have ended for the rank that takes from it.
 */
void stream_learn_ends(struct stream *stream, const struct stream *source);

/* ---- what becomes of a step ------------------------------------------------------------------ */

void step_run(struct step *step, struct segment *segment, uint32_t slot, uint32_t samples);
void step_ready(struct step *step, uint32_t samples, uint64_t bytes);
void step_lost(struct step *step); /* back to WAITING; its lease on the slot was the caller's */
/* Consumes `detail`, which may be NULL. */
void step_fault(struct step *step, const struct dl_error *err, char *detail);

/* What of the slot's bytes is the step's. */
static inline uint64_t step_bytes(const struct step *step)
{
    return step->samples < step->all ? step->bytes / step->all * step->samples : step->bytes;
}

/* Its client wants the steps in the order of that journal, which is sound; see passed.h. */
void stream_follow(struct stream *stream, struct dl_span journal);

/* The step to be delivered next if it is READY or FAULTED, else NULL. */
struct step *stream_deliverable(struct stream *stream);

/* It was delivered: LEASED. */
void stream_deliver(struct stream *stream, struct step *step);

/* The client's lease on a step: LEASED or PINNED, else NULL (a violation). */
struct step *stream_lease(struct stream *stream, uint64_t number);
/* LEASED → PINNED, its credit back; no change if it is PINNED already. */
void stream_pin(struct stream *stream, struct step *step);
/* LEASED or PINNED → READY, or FAULTED; its slot is the caller's business. */
void stream_recall(struct stream *stream, struct step *step);
/* The step leaves the stream and its memory may be reused; what it leased is the caller's. */
void stream_forget(struct stream *stream, struct step *step);

/*
 * Removes a RUNNING step from the stream while a worker still writes its slot. Its `stream` becomes
 * NULL, and the receiver of the worker's answer frees it.
 */
void stream_abandon(struct stream *stream, struct step *step);
void step_free(struct step *step);

/* ---- how far it has come --------------------------------------------------------------------- */

bool stream_finished(const struct stream *stream); /* every step was delivered */
/* For people: the next step, and how many there are: as it shows, else as they are `estimate`d,
 * unless more have come; STEPS_UNKNOWN. */
uint64_t stream_step(const struct stream *stream);
uint64_t stream_steps(const struct stream *stream, uint64_t estimate);
/* All steps before `limit` were delivered. */
bool stream_at_limit(struct stream *stream);
/* Every step was delivered and released. */
bool stream_done(const struct stream *stream);
/* Steps before the last one planned were released, and others before them were not. */
bool stream_has_gaps(const struct stream *stream);

/* The lowest step that is not released. */
uint64_t stream_position(const struct stream *stream);

/* The same when the client stops: it has used what it pinned, but not its other leases. *ret_all:
 * it has used all steps. */
uint64_t stream_used(const struct stream *stream, bool *ret_all);

/* It was given no step from this one on. */
uint64_t stream_given(const struct stream *stream);

/* No step is leased any more: it resumes at its position, as if it had begun there. */
void stream_rewind(struct stream *stream);

/* Its client reports how long it has waited for batches since its last report. */
void stream_waited(struct stream *stream, uint64_t ns, uint64_t now);

#endif
