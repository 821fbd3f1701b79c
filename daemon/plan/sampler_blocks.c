/*
 * A shuffle that keeps reads local: consecutive samples are a block, and blocks come in a random
 * order; `window` blocks at a time are a heap, whose samples come in a random order. So a reader
 * needs only the blocks of one heap at a time. Any position is computed directly.
 *
 * If the length is not a multiple of the block, one block is shorter. It is left out of the
 * permutation of blocks, and its place is drawn separately: so the beginnings of all others are
 * known.
 */
#include "daemon/plan/sampler.h"

#include "daemon/plan/permute.h"

#include <errno.h>

/* Keeps the draw of the place apart from all other draws for a seed and an epoch. */
#define PLACE_STREAM UINT64_C(0x626c6f636b73)

enum { MANY = 64 }; /* positions at a time */

struct blocks {
    struct sampler base;
    uint64_t seed, epoch;
    uint64_t block;              /* samples of one */
    uint64_t rest;               /* of the shorter one; 0: all are full */
    uint64_t full;               /* blocks that are not shorter */
    uint64_t n;                  /* of all */
    uint64_t window;             /* blocks of a heap: 1..n */
    uint64_t place;              /* of the shorter block, in their order; n: all are full */
    struct permute_native order; /* of the full ones */
    /* The heap in hand: its positions, and the permutation of its samples. */
    uint64_t begin, end; /* equal: not computed */
    struct permute_native inside;
    uint64_t first;        /* of its full blocks, by their order; and which these are, */
    uint64_t blocks[MANY]; /* unless there are more */
};

/* The position of the first sample of the block at `place` of their order. */
static uint64_t sampler_blocks_begin(const struct blocks *b, uint64_t place)
{
    return place <= b->place ? place * b->block : (place - 1) * b->block + b->rest;
}

/* The heap that has a position: all before the shorter block's are equal, and so are those behind.
 */
static uint64_t sampler_blocks_heap(const struct blocks *b, uint64_t position)
{
    uint64_t its = b->place / b->window, bytes = b->window * b->block;

    if (b->rest > 0 && position >= sampler_blocks_begin(b, min_u64((its + 1) * b->window, b->n)))
        position += b->block - b->rest;
    return position / bytes;
}

static void sampler_blocks_take(struct blocks *b, uint64_t heap)
{
    uint64_t first = heap * b->window;

    b->begin = sampler_blocks_begin(b, first);
    b->end = sampler_blocks_begin(b, min_u64(first + b->window, b->n));
    permute_native_init(&b->inside, b->end - b->begin, b->seed, b->epoch, heap + 1);
    b->first = first - (b->rest > 0 && b->place < first);
    if (b->window > MANY)
        return;
    uint64_t n = min_u64(b->window, b->full - b->first);
    for (uint64_t i = 0; i < n; i++)
        b->blocks[i] = b->first + i;
    permute_native_many(&b->order, b->blocks, n);
}

/* The full blocks at these places of their order, those of the current heap. */
static void sampler_blocks_find(const struct blocks *b, uint64_t *places, size_t n)
{
    if (b->window > MANY) {
        permute_native_many(&b->order, places, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        places[i] = b->blocks[places[i] - b->first];
}

/* The samples at up to MANY positions where blocks are in their order, but samples are not
 * shuffled.
 */
static void sampler_blocks_samples(const struct blocks *b, uint64_t *positions, size_t n)
{
    uint64_t places[MANY], shorter = b->place * b->block;
    bool is_shorter[MANY];

    for (size_t i = 0; i < n; i++) {
        uint64_t position = positions[i];
        is_shorter[i] = b->rest > 0 && position >= shorter && position - shorter < b->rest;
        /* As if the shorter block were not there. */
        if (b->rest > 0 && position >= shorter)
            position -= is_shorter[i] ? shorter : b->rest;
        places[i] = is_shorter[i] ? b->first : position / b->block;
        positions[i] = is_shorter[i] ? position : position % b->block;
    }
    if (b->full > b->first) /* else there is but the shorter one */
        sampler_blocks_find(b, places, n);
    for (size_t i = 0; i < n; i++)
        positions[i] += (is_shorter[i] ? b->full : places[i]) * b->block;
}

static void sampler_blocks_many(struct sampler *sampler, uint64_t *positions, size_t n)
{
    struct blocks *b = container_of(sampler, struct blocks, base);
    size_t run;

    for (size_t first = 0; first < n; first += run) {
        uint64_t *own = positions + first;
        if (own[0] < b->begin || own[0] >= b->end)
            sampler_blocks_take(b, sampler_blocks_heap(b, own[0]));
        size_t most = min_u64(n - first, MANY);
        for (run = 0; run < most && own[run] >= b->begin && own[run] < b->end; run++)
            own[run] -= b->begin;
        permute_native_many(&b->inside, own, run);
        for (size_t i = 0; i < run; i++)
            own[i] += b->begin;
        sampler_blocks_samples(b, own, run);
    }
}

static uint64_t sampler_blocks_at(struct sampler *sampler, uint64_t position)
{
    sampler_blocks_many(sampler, &position, 1);
    return position;
}

static void sampler_blocks_free(struct sampler *sampler)
{
    free(container_of(sampler, struct blocks, base));
}

int sampler_blocks_new(const struct plan_params *params, struct sampler **ret)
{
    static const struct sampler_kind_ops ops = {
        .at = sampler_blocks_at, .many = sampler_blocks_many, .free = sampler_blocks_free};
    struct blocks *b = calloc(1, sizeof *b);
    uint64_t length = params->length;

    if (!b)
        return -ENOMEM;
    b->base = (struct sampler){.ops = &ops, .count = length};
    b->seed = params->seed;
    b->epoch = params->epoch;
    b->block = max_u64(min_u64(params->block, length), 1);
    b->full = length / b->block;
    b->rest = length % b->block;
    b->n = b->full + (b->rest > 0);
    b->window = max_u64(min_u64(params->window, b->n), 1);
    b->place = b->n;
    if (b->rest > 0) {
        const struct sampler_key key = {
            .seed = params->seed, .epoch = params->epoch, .length = length, .stream = PLACE_STREAM};
        unsigned __int128 bits = sampler_native_bits(&key, 0).high;
        b->place = (uint64_t)(bits * b->n >> 64);
    }
    permute_native_init(&b->order, b->full, params->seed, params->epoch, 0);
    *ret = &b->base;
    return 0;
}
