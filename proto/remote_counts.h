/*
 * Numbers that the process that reads remote files shows the daemon, in a page of memory that both
 * have: it counts there, and the daemon reads them when a client asks. Each number is whole; two of
 * them need not be of the same moment.
 *
 * The page is the daemon's: counters continue when the process is started again.
 */
#ifndef DL_REMOTE_COUNTS_H
#define DL_REMOTE_COUNTS_H

#include "proto/common/base.h"

#include <stdatomic.h>

enum remote_count {
#define COUNT(NAME, key, sort) REMOTE_##NAME,
#include "proto/remote_counts.def"
#undef COUNT
    REMOTE_COUNTS
};

struct remote_tally {
    _Atomic uint64_t n[REMOTE_COUNTS];
};

static inline const char *remote_count_key(enum remote_count count)
{
    static const char *const keys[] = {
#define COUNT(NAME, key, sort) [REMOTE_##NAME] = (key),
#include "proto/remote_counts.def"
#undef COUNT
    };

    return keys[count];
}

static inline bool remote_count_is_gauge(enum remote_count count)
{
    enum { COUNTER, GAUGE };
    static const bool gauges[] = {
#define COUNT(NAME, key, sort) [REMOTE_##NAME] = (sort) == GAUGE,
#include "proto/remote_counts.def"
#undef COUNT
    };

    return gauges[count];
}

static inline void remote_tally_write(struct remote_tally *tally, enum remote_count count,
                                      uint64_t n)
{
    atomic_store_explicit(&tally->n[count], n, memory_order_relaxed);
}

/* By the only process that writes; `more` may be negative. */
static inline void remote_tally_add(struct remote_tally *tally, enum remote_count count,
                                    int64_t more)
{
    uint64_t n = atomic_load_explicit(&tally->n[count], memory_order_relaxed);

    remote_tally_write(tally, count, n + (uint64_t)more);
}

static inline uint64_t remote_tally_read(const struct remote_tally *tally, enum remote_count count)
{
    return atomic_load_explicit(&tally->n[count], memory_order_relaxed);
}

#endif
