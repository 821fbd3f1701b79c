/* Where the time of batches goes: how long each of them was in each stage. Pure. */
#ifndef DL_TIMING_H
#define DL_TIMING_H

#include "proto/shared/stage.h"

/* Four steps for each doubling, from 1 ns to more than an hour. */
enum { TIMING_BUCKETS = 168 };

struct timing {
    uint64_t n[STAGES];
    uint64_t ns[STAGES];                      /* of them all */
    uint32_t buckets[STAGES][TIMING_BUCKETS]; /* of the first ones, and then of every eighth */
};

void timing_spread(struct timing *timing, enum stage stage, uint64_t ns);

/* How long each of a million small batches took is not worth a percent of their time. */
static inline void timing_add(struct timing *timing, enum stage stage, uint64_t ns)
{
    uint64_t n = timing->n[stage]++;

    timing->ns[stage] += ns;
    if (n % 8 == 0 || n < 256)
        timing_spread(timing, stage, ns);
}

/* All that came to `more`. */
void timing_add_all(struct timing *timing, const struct timing *more);

/* What that share of them took at most, up to a quarter too much; 0: there was none. */
uint64_t timing_quantile(const struct timing *timing, enum stage stage, double share);

/* When a worker made a batch, as it says itself. */
struct made_times {
    uint64_t began_ns;
    uint64_t cost_ns;    /* from then on */
    uint64_t collate_ns; /* of that */
    uint64_t now_ns;     /* when the daemon looked */
};

/* What cannot be is brought to what can: nothing was done before it was asked for, or after it was
 * seen. */
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

#endif
