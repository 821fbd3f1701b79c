/*
 * A stream: one rank's pass over one epoch, as the daemon keeps it. Pure.
 *
 * Steps are planned, loaded and delivered in order; each is in exactly one state:
 *
 *   WAITING → RUNNING → READY → LEASED → (given back)
 *      ↑         |  \              \ ↘ PINNED → (given back)
 *      └─ lost ──┘   → FAULTED → (delivered as a fault, no lease)
 *
 * `window` counts the steps planned and not yet given back, pinned or faulted: at most `credits`.
 * So `credits` bounds the slots a stream takes, whether they are being filled, are ready, or are
 * read, and one slow rank never stalls another.
 */
#ifndef DL_STREAM_H
#define DL_STREAM_H

#include "daemon/serve/segment.h"

#include <uthash.h>

enum step_state { STEP_WAITING, STEP_RUNNING, STEP_READY, STEP_FAULTED, STEP_LEASED, STEP_PINNED };

struct stream;
struct epoch;

struct step {
    UT_hash_handle hh;        /* stream.steps, by number */
    struct step *prev, *next; /* loader.waiting, while WAITING and attempted before */
    struct stream *stream;    /* borrowed; NULL: given up while a worker has it */
    uint64_t number;
    enum step_state state;
    uint32_t attempts; /* that ended with the worker's death */
    uint32_t samples;
    uint32_t slot;
    struct segment *segment; /* borrowed; from RUNNING on */
    uint64_t bytes;          /* of the slot in use; from READY on */
    struct dl_error *error;  /* owned; when FAULTED */
};

struct stream_params {
    uint64_t epoch;
    uint64_t rank;
    uint64_t world;
    uint64_t first; /* step to begin with */
    uint64_t steps; /* of this rank in the whole epoch */
    uint32_t credits;
};

struct stream {
    struct stream *prev, *next; /* loader.streams (utlist) */
    struct stream_params params;
    uint64_t to_plan;    /* next step to be planned */
    uint64_t to_deliver; /* next step the client gets */
    uint32_t window;
    uint32_t leased; /* steps in LEASED */
    uint32_t pinned; /* steps in PINNED */
    bool stopped;    /* nothing more is planned or delivered */
    bool finish_told;
    bool starving_told; /* the client knows that its pins hold all memory */
    struct step *steps; /* owned; by number */
    struct step *spare; /* owned; used steps for reuse, linked by `next` */
    struct epoch *plan; /* counted; the loader's */
    void *sink;         /* the session's; NULL: expected, see loader.h */
    uint64_t delivered; /* steps delivered in this stream's life */
    uint64_t samples;
    uint64_t bytes;
    uint64_t begun_ns;
};

struct stream *stream_new(const struct stream_params *params);
/* All steps must be gone: stream_stop(), then give back what is leased. */
struct stream *stream_free(struct stream *stream);

/* A further step may be planned now. */
bool stream_has_room(const struct stream *stream);

/* Plans the next step: WAITING. */
struct step *stream_plan(struct stream *stream);

void step_run(struct step *step, struct segment *segment, uint32_t slot, uint32_t samples);
void step_ready(struct step *step, uint64_t bytes);
void step_lost(struct step *step); /* back to WAITING */
void step_fault(struct step *step, const struct dl_error *err);

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

/* Nothing more is planned or delivered. */
void stream_stop(struct stream *stream);

const char *step_state_name(enum step_state state);

#endif
