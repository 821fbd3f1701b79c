/*
 * How the positions 0..count-1 of an epoch's order are dealt to `world` ranks, and cut into steps.
 * Pure arithmetic, for plans and for replicas of iterable datasets.
 *
 *   strided   Rank r takes positions r, r + world, …, and cuts them into batches:
 *             DistributedSampler and then BatchSampler, whose drop_last leaves a rank's incomplete
 *             last batch out.
 *   batch     The order is cut into batches, and rank r takes batches r, r + world, …:
 *             Accelerate's BatchSamplerShard.
 *   split     The order is cut into batches, and each of these into `world` parts, of which rank r
 *             takes the r-th: BatchSamplerShard(split_batches=True). The batch size is a multiple
 *             of the world size.
 *   dispatch  Full rounds as with batch. What is left for the last round, o positions, is cut into
 *             `world` parts as large as each other: Accelerate's DataLoaderDispatcher.
 *
 * So, but for strided, step q of rank r is positions q·G + r·b … q·G + (r + 1)·b − 1, where b is
 * the size of a rank's batch and G = b · world. `even` pads the order by repeating its beginning:
 * with strided to a multiple of world, as often as needed; with batch and split to a multiple of G,
 * by its first min(count, G) positions over and over. drop_last then cuts the order to a multiple
 * of G instead, with `even` and without.
 *
 * Dispatch is padded in the same way, but only to a multiple of world: each rank's last step has s
 * = ceil(o / world) positions, from q·G + r·s on. (Accelerate repeats the first `world` samples
 * only once, and leaves ranks empty if twice the samples are fewer than the ranks.) Without `even`,
 * parts differ by one position at most, the first ones being larger, and a rank whose part is empty
 * does not have the step. So the ranks' parts of a round are consecutive positions, in the order of
 * ranks: SHARD_ALL, instead of a rank, is all of them.
 */
#ifndef DL_PLAN_SHARD_H
#define DL_PLAN_SHARD_H

#include "proto/common/base.h"

enum plan_shard { PLAN_STRIDED, PLAN_BATCH, PLAN_SPLIT, PLAN_DISPATCH };

#define SHARD_ALL UINT64_MAX /* dispatch: as a rank, all of them together */

struct shard {
    uint64_t count; /* positions of the order; below 2^63 */
    uint64_t world;
    uint64_t size; /* of a rank's full batch, ≥ 1 */
    uint64_t end;  /* but strided: positions dealt out, repeated ones included */
    bool strided;
    bool dispatch;
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

/* One step: `n` positions from `first` on, `stride` apart; see shard_at(). */
struct shard_span {
    uint64_t first;
    uint64_t n;
    uint64_t stride;
};
struct shard_span shard_span(const struct shard *shard, uint64_t rank, uint64_t step);

/* The position of the order at `position`: itself, or the one that it repeats. */
uint64_t shard_at(const struct shard *shard, uint64_t position);

/* How many of the span's positions are there only to even the ranks out: its last ones, as they
 * are past the order's end. */
uint64_t shard_repeated(const struct shard *shard, const struct shard_span *span);

/* How much of the order the span needs: positions below this one. */
uint64_t shard_needs(const struct shard *shard, const struct shard_span *span);

#endif
