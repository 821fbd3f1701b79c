/*
 * The keyed generator: random numbers of one sample, the same in every worker.
 *
 * Philox 4x64 with ten rounds (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1,
 * 2, 3", SC 2011), keyed by seed and epoch, counted from the sample's index: the words are those of
 * numpy.random.Philox(key=[seed, epoch], counter=[0, 0, index, 0]).random_raw(). So a sample's
 * numbers differ from any other's in this epoch and from its own in another one, and depend on
 * neither the worker nor the number of workers.
 */
#ifndef DL_DATA_RNG_H
#define DL_DATA_RNG_H

#include "proto/common/base.h"

#include <Random123/philox.h>

struct rng {
    philox4x64_key_t key;
    philox4x64_ctr_t counter;
    philox4x64_ctr_t block;
    unsigned left; /* words of the block not yet taken */
};

static inline void rng_init(struct rng *rng, uint64_t seed, uint64_t epoch, uint64_t index)
{
    *rng = (struct rng){.key.v = {seed, epoch}, .counter.v = {0, 0, index, 0}};
}

/* Of a batch, by its first sample: the counter's last word, 0 for samples, is 1. */
static inline void rng_init_batch(struct rng *rng, uint64_t seed, uint64_t epoch, uint64_t first)
{
    *rng = (struct rng){.key.v = {seed, epoch}, .counter.v = {0, 0, first, 1}};
}

static inline uint64_t rng_u64(struct rng *rng)
{
    if (rng->left == 0) {
        rng->counter.v[0]++;
        rng->block = philox4x64(rng->counter, rng->key);
        rng->left = 4;
    }
    return rng->block.v[4 - rng->left--];
}

/* [0, 1), a multiple of 2^-53. */
static inline double rng_uniform(struct rng *rng)
{
    return (double)(rng_u64(rng) >> 11) * 0x1p-53;
}

/* 0..n-1, each with the same chance up to 2^-64 · n; n > 0. */
static inline uint64_t rng_below(struct rng *rng, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)rng_u64(rng) * n) >> 64);
}

#endif
