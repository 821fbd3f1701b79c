/*
 * A stream of draws from torch's generator, kept as far as it was drawn: each position's result
 * can be had again, which the generator, that only goes forward, would not give.
 */
#ifndef DL_PLAN_DRAWS_H
#define DL_PLAN_DRAWS_H

#include "daemon/plan/mt19937.h"

struct draws {
    struct mt19937 generator;
    uint64_t done;  /* results 0..done-1 are there */
    uint64_t count; /* at most */
    bool wide;      /* results do not fit 32 bits */
    void *results;  /* owned; uint64_t if wide, else uint32_t; zero and untouched past `done` */
};

/* Reserves 4 bytes of address space a draw, 8 if wide. Returns 0 or -ENOMEM. */
int _nodiscard_ draws_init(struct draws *draws, uint64_t count, bool wide, uint64_t seed);
void draws_deinit(struct draws *draws);

void draws_add(struct draws *draws, uint64_t result); /* done < count */

static inline uint64_t draws_at(const struct draws *draws, uint64_t i)
{
    return draws->wide ? ((const uint64_t *)draws->results)[i]
                       : ((const uint32_t *)draws->results)[i];
}

/* Of memory, when all are drawn. */
static inline uint64_t draws_bytes(const struct draws *draws)
{
    return draws->count * (draws->wide ? sizeof(uint64_t) : sizeof(uint32_t));
}

static inline uint64_t draws_missing(const struct draws *draws, uint64_t end)
{
    return end > draws->done ? end - draws->done : 0;
}

#endif
