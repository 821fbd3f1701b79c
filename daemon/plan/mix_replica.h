/*
 * One worker's replica of a mixture of iterable datasets (daemon/data/replica.h).
 *
 * Replica w of `workers` makes the batches of its rank that are number w, w + workers, … So a
 * schedule's step s takes effect in the replica at its first batch with a number of at least s. The
 * replica counts positions in its own samples, and its shares are exact.
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

/* The replica's part of `samples`; the parts of all replicas add up to it. */
uint64_t mix_replica_part(const struct mix_replica *replica, uint64_t samples);

#endif
