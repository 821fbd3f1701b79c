/*
 * Bounds the share of the loop's time for low-priority work, such as HTTP visitors and new
 * connections: time beyond the share is a debt, which shrinks as time passes. A small debt is
 * allowed, so that a single visitor is served at once; above it, the work pauses.
 *
 * Pure: time is passed in.
 */
#ifndef DL_ALLOWANCE_H
#define DL_ALLOWANCE_H

#include "proto/common/base.h"

enum {
    ALLOWANCE_PER_MILLE = 100,           /* of the time */
    ALLOWANCE_OWED_NS = 2 * 1000 * 1000, /* work continues up to this debt */
    ALLOWANCE_MOST_NS = 50 * 1000 * 1000 /* the most that counts: pauses are ≤ 0.5 s */
};

/* All zero owes nothing. */
struct allowance {
    uint64_t at_ns;   /* when it was */
    uint64_t debt_ns; /* as of then */
};

/* Charges `took_ns`, spent until now. */
void allowance_charge(struct allowance *allowance, uint64_t took_ns, uint64_t now_ns);

/* When the work may continue: `now_ns`, or later. */
uint64_t allowance_due(const struct allowance *allowance, uint64_t now_ns);

#endif
