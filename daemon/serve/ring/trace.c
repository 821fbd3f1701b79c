#include "daemon/serve/ring/trace.h"

#include "daemon/serve/base/memory.h"

#include <assert.h>

void trace_deinit(struct trace *trace)
{
    free(trace->batches);
    *trace = (struct trace){0};
}

void trace_add(struct trace *trace, const struct trace_batch *batch)
{
    if (!trace->batches)
        trace->batches = must_alloc(TRACE_BATCHES * sizeof *trace->batches);
    trace->batches[trace->n++ % TRACE_BATCHES] = *batch;
}

uint32_t trace_count(const struct trace *trace)
{
    return (uint32_t)min_u64(trace->n, TRACE_BATCHES);
}

const struct trace_batch *trace_at(const struct trace *trace, uint32_t i)
{
    assert(i < trace_count(trace));
    return &trace->batches[(trace->n - trace_count(trace) + i) % TRACE_BATCHES];
}
