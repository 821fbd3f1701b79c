#include "daemon/serve/ring/timing.h"

#include "daemon/base/memory.h"

#include <assert.h>

/* The first bits of a number, and where they stand: 0 to 3 for themselves. */
static size_t timing_bucket_of(uint64_t ns)
{
    if (ns < 4)
        return (size_t)ns;
    unsigned top = 63 - (unsigned)__builtin_clzll(ns);
    size_t bucket = 4 * (size_t)(top - 1) + (size_t)(ns >> (top - 2) & 3);
    return bucket < TIMING_BUCKETS ? bucket : TIMING_BUCKETS - 1;
}

/* The first number above the bucket. */
static uint64_t timing_bucket_end(size_t bucket)
{
    return bucket < 4 ? bucket + 1 : (5 + (uint64_t)bucket % 4) << (bucket / 4 - 1);
}

/* Of many batches only a sample enters the buckets: measuring must not cost a percent of their
 * time. */
void timing_add(struct timing *timing, enum stage stage, uint64_t ns)
{
    uint64_t n = timing->n[stage]++;

    timing->ns[stage] += ns;
    if (n % 8 == 0 || n < 256)
        timing->buckets[stage][timing_bucket_of(ns)]++;
}

uint64_t timing_quantile(const struct timing *timing, enum stage stage, double share)
{
    uint64_t all = 0, below = 0;
    size_t i;

    for (i = 0; i < TIMING_BUCKETS; i++)
        all += timing->buckets[stage][i];
    for (i = 0; i < TIMING_BUCKETS && all > 0; i++) {
        below += timing->buckets[stage][i];
        if ((double)below >= share * (double)all && below > 0)
            return timing_bucket_end(i) - 1;
    }
    return 0;
}

struct made_times made_times_mend(const struct made_times *said, uint64_t planned_ns)
{
    struct made_times made = *said;
    uint64_t end;

    if (add_overflows(said->began_ns, said->cost_ns, &end))
        end = UINT64_MAX;
    made.now_ns = max_u64(said->now_ns, planned_ns);
    made.began_ns = min_u64(max_u64(said->began_ns, planned_ns), made.now_ns);
    made.cost_ns = min_u64(max_u64(end, made.began_ns), made.now_ns) - made.began_ns;
    made.collate_ns = min_u64(said->collate_ns, made.cost_ns);
    made.fetch_python_ns = min_u64(said->fetch_python_ns, made.cost_ns - made.collate_ns);
    made.collate_python_ns = min_u64(said->collate_python_ns, made.collate_ns);
    return made;
}

void timing_add_made(struct timing *timing, uint64_t planned_ns, const struct made_times *mended)
{
    timing_add(timing, STAGE_QUEUED, mended->began_ns - planned_ns);
    timing_add(timing, STAGE_FETCH, mended->cost_ns - mended->collate_ns);
    timing_add(timing, STAGE_COLLATE, mended->collate_ns);
    timing->python_ns[STAGE_FETCH] += mended->fetch_python_ns;
    timing->python_ns[STAGE_COLLATE] += mended->collate_python_ns;
    timing_add(timing, STAGE_HANDOVER, mended->now_ns - mended->began_ns - mended->cost_ns);
}

/* ---- the last batches ---- */

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
