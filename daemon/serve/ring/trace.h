/*
 * The last batches of a loader, each with all its times: for `dlctl trace`. Pure.
 */
#ifndef DL_TRACE_H
#define DL_TRACE_H

#include "proto/common/base.h"

enum { TRACE_BATCHES = 2048 };

/* Times in ns of the monotonic clock, none before the one above it. */
struct trace_batch {
    uint64_t epoch, rank, step;
    uint64_t worker;
    uint64_t planned;   /* given to its worker */
    uint64_t begun;     /* by the worker */
    uint64_t fetched;   /* its samples are there */
    uint64_t made;      /* they are a batch */
    uint64_t ready;     /* the daemon has seen it */
    uint64_t delivered; /* to its client */
    uint64_t released;  /* by the client, or when it went on to the next one and kept this one */
};

struct trace {
    struct trace_batch *batches; /* owned ring of TRACE_BATCHES; NULL: nothing came yet */
    uint64_t n;                  /* that ever came */
};

void trace_deinit(struct trace *trace);
void trace_add(struct trace *trace, const struct trace_batch *batch);

/* Those that are kept, the oldest first. */
uint32_t trace_count(const struct trace *trace);
const struct trace_batch *trace_at(const struct trace *trace, uint32_t i); /* below that */

#endif
