/*
 * A log of what was drawn from torch's generator. The generator only goes forward; the log has the
 * result of each position that it has passed.
 */
#ifndef DL_PLAN_RNG_LOG_H
#define DL_PLAN_RNG_LOG_H

#include "daemon/plan/mt19937.h"

struct rng_log {
    struct mt19937 generator;
    uint64_t done;  /* results 0..done-1 are there */
    uint64_t count; /* at most */
    bool wide;      /* results do not fit 32 bits */
    void *results;  /* owned; uint64_t if wide, else uint32_t; zero and untouched past `done` */
};

/* Reserves 4 bytes of address space a draw, 8 if wide. Returns 0 or -ENOMEM. */
int _nodiscard_ rng_log_init(struct rng_log *log, uint64_t count, bool wide, uint64_t seed);
void rng_log_deinit(struct rng_log *log);

void rng_log_add(struct rng_log *log, uint64_t result); /* done < count */

static inline uint64_t rng_log_at(const struct rng_log *log, uint64_t i)
{
    return log->wide ? ((const uint64_t *)log->results)[i] : ((const uint32_t *)log->results)[i];
}

/* Of memory, when all are drawn. */
static inline uint64_t rng_log_bytes(const struct rng_log *log)
{
    return log->count * (log->wide ? sizeof(uint64_t) : sizeof(uint32_t));
}

static inline uint64_t rng_log_missing(const struct rng_log *log, uint64_t end)
{
    return end > log->done ? end - log->done : 0;
}

#endif
