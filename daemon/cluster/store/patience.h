/*
 * How long a store is given to answer a call. A store that is slow, as many use it, answers in the
 * end: a client that gave up and asked again each time would get no answer, and add to the load. So
 * each call that was not answered in time doubles it, up to a limit, and answers that come soon
 * bring it down again. Pure.
 */
#ifndef DL_PATIENCE_H
#define DL_PATIENCE_H

#include "proto/common/base.h"

struct patience {
    uint64_t least_ns, most_ns, now_ns;
};

/* `most_ns` below `least_ns` counts as that. */
static inline struct patience patience_of(uint64_t least_ns, uint64_t most_ns)
{
    return (struct patience){least_ns, max_u64(least_ns, most_ns), least_ns};
}

static inline void patience_late(struct patience *patience)
{
    patience->now_ns = min_u64(2 * patience->now_ns, patience->most_ns);
}

/* It took so long. */
static inline void patience_answered(struct patience *patience, uint64_t took_ns)
{
    uint64_t now_ns = max_u64(patience->now_ns / 8 * 7, min_u64(2 * took_ns, patience->now_ns));

    patience->now_ns = max_u64(now_ns, patience->least_ns);
}

#endif
