#include "daemon/plan/shard.h"

#include <assert.h>

/*
 * Positions never overflow. Strided: a rank has ceil(count/world) samples at most, so a position p
 * < count + world if world ≤ count, hence below 2^64, and if world > count there is one sample, at
 * position rank. Else G = size · world is what a batch size and a world size can be, below 2^41.
 */

static uint64_t round_of(const struct shard *shard)
{
    return shard->size * shard->world;
}

struct shard shard_of(const struct shard_params *params)
{
    struct shard shard = {
        .count = params->count,
        .world = params->world,
        .size = params->batch_size,
        .strided = params->mode == PLAN_STRIDED,
        .drop_last = params->drop_last,
        .even = params->even,
        .end = params->count,
    };

    if (shard.strided)
        return shard;
    if (params->mode == PLAN_SPLIT) {
        assert(params->batch_size % params->world == 0);
        shard.size /= params->world;
    }
    uint64_t rest = shard.count % round_of(&shard);
    if (params->drop_last)
        shard.end -= rest;
    else if (params->even && rest > 0)
        shard.end += round_of(&shard) - rest;
    return shard;
}

uint64_t shard_samples(const struct shard *shard, uint64_t rank)
{
    if (shard->strided) {
        uint64_t rest = shard->count % shard->world;
        return shard->count / shard->world + (shard->even ? rest > 0 : rank < rest);
    }
    uint64_t rest = shard->end % round_of(shard), before = rank * shard->size;
    uint64_t last = rest > before ? min_u64(rest - before, shard->size) : 0;

    return shard->end / round_of(shard) * shard->size + last;
}

uint64_t shard_steps(const struct shard *shard, uint64_t rank)
{
    uint64_t samples = shard_samples(shard, rank);
    bool drops = shard->strided && shard->drop_last;

    return samples / shard->size + (!drops && samples % shard->size > 0);
}

struct shard_span shard_span(const struct shard *shard, uint64_t rank, uint64_t step)
{
    assert(step < shard_steps(shard, rank));
    uint64_t before = step * shard->size;
    uint64_t n = min_u64(shard->size, shard_samples(shard, rank) - before);

    return shard->strided ? (struct shard_span){before * shard->world + rank, n, shard->world}
                          : (struct shard_span){step * round_of(shard) + rank * shard->size, n, 1};
}

uint64_t shard_at(const struct shard *shard, uint64_t position)
{
    if (position < shard->count)
        return position;
    if (shard->strided)
        return position % shard->count;
    return (position - shard->count) % min_u64(shard->count, round_of(shard));
}

uint64_t shard_needs(const struct shard *shard, const struct shard_span *span)
{
    return min_u64(span->first + (span->n - 1) * span->stride + 1, shard->count);
}
