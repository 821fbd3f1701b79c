/*
 * Slices: a companion's own batches, where they are parts of those that it shares with jobs of
 * other batch sizes (share.size). Its step s is part s mod n of common step s div n, if these are n
 * times as large. Both count from the beginning of the same order, so that this is what it gets
 * alone. Pure.
 */
#ifndef DL_SLICES_H
#define DL_SLICES_H

#include "daemon/plan/plan.h"

struct slices {
    uint32_t n;    /* in a common batch; 0: the common batches are its own */
    uint32_t size; /* samples in each but the last of an epoch */
    bool drop_last;
};

/* The common step that has the job's own one. */
static inline uint64_t slices_step(const struct slices *slices, uint64_t own)
{
    return slices->n > 1 ? own / slices->n : own;
}

/* It takes parts, and not the whole. */
static inline bool slices_cut(const struct slices *slices)
{
    return slices->n > 1;
}

/* Which of the common step's samples are the own step's: that has `samples`, the last of which are
 * repeated; .samples 0: none. */
struct plan_rows slices_rows(const struct slices *slices, uint64_t own, uint64_t samples,
                             uint64_t repeated);

#endif
