/*
 * Whether ranks agree: what those who read a loader have said, against what one more of them says.
 * Pure.
 *
 * Ranks with the same job name and world size are of one job; without a name they are compared only
 * if there are several of them. Of such ranks none may be more than one epoch ahead of another.
 * With a name, all are of one world size, and a rank reads an epoch once at a time. Where nodes
 * give out the ranks, those of different rounds are not the same ones, and nothing is compared.
 */
#ifndef DL_RANKS_H
#define DL_RANKS_H

#include "proto/base.h"
#include "proto/error.h"

struct rank_claim {
    const char *job; /* "": no name */
    uint64_t world;
    uint64_t rank;
    uint64_t epoch;    /* that it is in */
    const void *owner; /* who reads it: only compared */
    uint64_t round;    /* of the cluster's nodes, from 1; 0: not in their world */
};

/* `one` beside the `n` others, whose epochs are not at their end: 0, or -EINVAL or -EBUSY with
 * `err`. */
int _nodiscard_ ranks_check(const struct rank_claim *others, size_t n, const struct rank_claim *one,
                            struct dl_error *err);

#endif
