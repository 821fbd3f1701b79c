/*
 * How the positions 0..count-1 of an epoch's order are dealt to `world` ranks, and cut into steps.
 * Pure arithmetic; plan.c alone uses it.
 *
 *   strided   Rank r takes positions r, r + world, …, and cuts them into batches:
 * DistributedSampler and then BatchSampler, whose drop_last leaves a rank's incomplete last batch
 * out. batch     The order is cut into batches, and rank r takes batches r, r + world, …:
 * Accelerate's BatchSamplerShard. split     The order is cut into batches, and each of these into
 * `world` parts, of which rank r takes the r-th: BatchSamplerShard(split_batches=True). The batch
 * size is a multiple of the world size. So, with batch and split, step q of rank r is positions q·G
 * + r·b … q·G + (r + 1)·b − 1, where b is the size of a rank's batch and G = b · world. `even` pads
 * the order by repeating its beginning: with strided to a multiple of world, as often as that
 * takes; else to a multiple of G, by its first min(count, G) positions over and over. drop_last
 * then cuts the order to a multiple of G instead, with `even` and without.
 */
#ifndef DL_PLAN_SHARD_H
#define DL_PLAN_SHARD_H

#include "proto/base.h"

enum plan_shard { PLAN_STRIDED, PLAN_BATCH, PLAN_SPLIT };

struct shard {
    uint64_t count; /* positions of the order; below 2^63 */
    uint64_t world;
    uint64_t size; /* of a rank's full batch, ≥ 1 */
    uint64_t end;  /* batch, split: positions dealt out, repeated ones included */
    bool strided;
    bool drop_last; /* strided */
    bool even;      /* strided */
};

struct shard_params {
    uint64_t count;
    uint64_t world;      /* ≥ 1 */
    uint64_t batch_size; /* ≥ 1; with split a multiple of world */
    enum plan_shard mode;
    bool drop_last;
    bool even;
};

struct shard shard_of(const struct shard_params *params);

/* Of one rank, in all its steps; with strided also what drop_last leaves out. */
uint64_t shard_samples(const struct shard *shard, uint64_t rank);
uint64_t shard_steps(const struct shard *shard, uint64_t rank);

/* One step: `n` positions from `first` on, `stride` apart; shard_at() has what is at each. */
struct shard_span {
    uint64_t first;
    uint64_t n;
    uint64_t stride;
};
struct shard_span shard_span(const struct shard *shard, uint64_t rank, uint64_t step);

/* The position of the order that stands there: itself, or what is repeated. */
uint64_t shard_at(const struct shard *shard, uint64_t position);

/* How much of the order the span needs: positions below this one. */
uint64_t shard_needs(const struct shard *shard, const struct shard_span *span);

#endif
