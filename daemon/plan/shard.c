#include "daemon/plan/shard.h"

#include <assert.h>

/*
 * Positions never overflow. Strided: a rank has ceil(count/world) samples at most, so a position p
 * < count + world if world ≤ count, hence below 2^64, and if world > count there is one sample, at
 * position rank. Else G = size · world is what a batch size and a world size can be, below 2^41.
 */

static uint64_t shard_round_of(const struct shard *shard)
{
    return shard->size * shard->world;
}

/* How far an incomplete last round of `rest` positions is filled up. */
static uint64_t shard_padded_rest(const struct shard *shard, uint64_t rest)
{
    uint64_t over = rest % shard->world;

    if (!shard->dispatch)
        return shard_round_of(shard);
    return over > 0 ? rest + shard->world - over : rest;
}

struct shard shard_of(const struct shard_params *params)
{
    struct shard shard = {
        .count = params->count,
        .world = params->world,
        .size = params->batch_size,
        .strided = params->mode == PLAN_STRIDED,
        .dispatch = params->mode == PLAN_DISPATCH,
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
    uint64_t rest = shard.count % shard_round_of(&shard);
    if (params->drop_last)
        shard.end -= rest;
    else if (params->even && rest > 0)
        shard.end += shard_padded_rest(&shard, rest) - rest;
    return shard;
}

/* What the ranks have of a last round that is not whole; not strided. */
static struct shard_span shard_last_span(const struct shard *shard, uint64_t rank)
{
    uint64_t rest = shard->end % shard_round_of(shard), start = shard->end - rest;

    if (rank == SHARD_ALL)
        return (struct shard_span){start, rest, 1};
    if (shard->dispatch) {
        uint64_t part = rest / shard->world, larger = rest % shard->world;
        return (struct shard_span){start + rank * part + min_u64(rank, larger),
                                   part + (rank < larger), 1};
    }
    uint64_t before = min_u64(rank * shard->size, rest);
    return (struct shard_span){start + before, min_u64(rest - before, shard->size), 1};
}

uint64_t shard_samples(const struct shard *shard, uint64_t rank)
{
    if (rank == SHARD_ALL)
        return shard->end;
    if (shard->strided) {
        uint64_t rest = shard->count % shard->world;
        return shard->count / shard->world + (shard->even ? rest > 0 : rank < rest);
    }
    return shard->end / shard_round_of(shard) * shard->size + shard_last_span(shard, rank).n;
}

uint64_t shard_steps(const struct shard *shard, uint64_t rank)
{
    if (!shard->strided)
        return shard->end / shard_round_of(shard) + (shard_last_span(shard, rank).n > 0);
    uint64_t samples = shard_samples(shard, rank);

    return samples / shard->size + (!shard->drop_last && samples % shard->size > 0);
}

struct shard_span shard_span(const struct shard *shard, uint64_t rank, uint64_t step)
{
    assert(step < shard_steps(shard, rank));
    if (!shard->strided && step == shard->end / shard_round_of(shard))
        return shard_last_span(shard, rank);
    if (rank == SHARD_ALL)
        return (struct shard_span){step * shard_round_of(shard), shard_round_of(shard), 1};
    if (!shard->strided)
        return (struct shard_span){step * shard_round_of(shard) + rank * shard->size, shard->size,
                                   1};
    uint64_t before = step * shard->size;
    uint64_t n = min_u64(shard->size, shard_samples(shard, rank) - before);

    return (struct shard_span){before * shard->world + rank, n, shard->world};
}

uint64_t shard_at(const struct shard *shard, uint64_t position)
{
    if (position < shard->count)
        return position;
    if (shard->strided)
        return position % shard->count;
    return (position - shard->count) % min_u64(shard->count, shard_round_of(shard));
}

uint64_t shard_needs(const struct shard *shard, const struct shard_span *span)
{
    return min_u64(span->first + (span->n - 1) * span->stride + 1, shard->count);
}

uint64_t shard_repeated(const struct shard *shard, const struct shard_span *span)
{
    if (span->first >= shard->count)
        return span->n;
    uint64_t whole = (shard->count - 1 - span->first) / span->stride + 1;

    return span->n - min_u64(span->n, whole);
}
