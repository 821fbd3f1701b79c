/*
 * The part of a mixture that is one worker's replica of iterable datasets (daemon/data/replica.h).
 *
 * Replica w of `workers` makes the batches of its rank that are number w, w + workers, … So what a
 * schedule says of step s holds in the replica from its first batch that is number s or later.
 * Within the replica positions are counted in its own samples, and shares are exact there.
 *
 * Pure.
 */
#ifndef DL_MIX_REPLICA_H
#define DL_MIX_REPLICA_H

#include "proto/mixture.h"

/* world 1: all ranks go through the same samples. */
struct mix_replica {
    uint32_t rank, world;
    uint32_t worker, workers; /* workers, world: 1 or more */
};

/* `points`: room for whole->n_points of them, which *ret and their weights borrow. */
void mix_replica_schedule(const struct mix_schedule *whole, const struct mix_replica *replica,
                          struct mix_point *points, struct mix_schedule *ret);

/* How many of `samples` are the replica's; those of all replicas add up to them. */
uint64_t mix_replica_part(const struct mix_replica *replica, uint64_t samples);

#endif
