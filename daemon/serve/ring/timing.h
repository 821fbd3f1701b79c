/*
 * Where the time of batches goes: how long they were in each stage, in sums and shares, and all the
 * times of the last ones, for `dlctl trace`. Pure.
 */
#ifndef DL_TIMING_H
#define DL_TIMING_H

#include "proto/shared/verdict.h"

/* Four steps for each doubling, from 1 ns to more than an hour. */
enum { TIMING_BUCKETS = 168 };

struct timing {
    uint64_t n[STAGES];
    uint64_t ns[STAGES];                      /* of them all */
    uint64_t python_ns[STAGES];               /* of that, in Python's code */
    uint32_t buckets[STAGES][TIMING_BUCKETS]; /* of the first ones, and then of every eighth */
};

void timing_add(struct timing *timing, enum stage stage, uint64_t ns);

/* The time that this share of them took at most, up to a quarter too high; 0 without any. */
uint64_t timing_quantile(const struct timing *timing, enum stage stage, double share);

/* When a worker made a batch, as it says itself. */
struct made_times {
    uint64_t began_ns;
    uint64_t cost_ns;           /* from then on */
    uint64_t collate_ns;        /* of that */
    uint64_t now_ns;            /* when the daemon looked */
    uint64_t fetch_python_ns;   /* of cost_ns less collate_ns: in Python's code */
    uint64_t collate_python_ns; /* of collate_ns */
};

/* Clamps what the worker says into the time from `planned_ns` until the daemon looked. */
struct made_times made_times_mend(const struct made_times *said, uint64_t planned_ns);
void timing_add_made(struct timing *timing, uint64_t planned_ns, const struct made_times *mended);

/* Of a sum: how much came in the last while, which began at the mark before the last. */
struct recent {
    uint64_t was[2];
};

static inline void recent_mark(struct recent *recent, uint64_t sum)
{
    recent->was[0] = recent->was[1];
    recent->was[1] = sum;
}

static inline uint64_t recent_since(const struct recent *recent, uint64_t sum)
{
    return sum - recent->was[0];
}

/* ---- the last batches ---- */

enum { TRACE_BATCHES = 2048 };

/* Times in ns of the monotonic clock, in ascending order. */
struct trace_batch {
    uint64_t epoch, rank, step;
    uint64_t worker;
    uint64_t planned;   /* given to its worker */
    uint64_t begun;     /* by the worker */
    uint64_t fetched;   /* its samples are there */
    uint64_t made;      /* they are a batch */
    uint64_t ready;     /* the daemon has seen it */
    uint64_t delivered; /* to its client */
    uint64_t released;  /* or, if pinned, when the client took the next one */
};

struct trace {
    struct trace_batch *batches; /* owned ring of TRACE_BATCHES; NULL: nothing came yet */
    uint64_t n;                  /* that ever came */
};

void trace_deinit(struct trace *trace);
void trace_add(struct trace *trace, const struct trace_batch *batch);

/* How many are kept, and each of them, the oldest first. */
uint32_t trace_count(const struct trace *trace);
const struct trace_batch *trace_at(const struct trace *trace, uint32_t i); /* below that */

#endif
