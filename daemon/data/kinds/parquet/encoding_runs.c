/*
 * Runs of equal values, and of packed ones, in turn: levels, booleans and indices into
 * dictionaries; and differences in blocks.
 */
#include "daemon/data/kinds/parquet/encoding_runs.h"

#include "daemon/data/kinds/parquet/encoding_bits.h"

enum {
    BLOCK_MOST = 1 << 20, /* values of a block of differences, where writers have 128 */
    MINIBLOCKS_MOST = 512,
};

/* ---- runs ----------------------------------------------------------------------------------- */

static bool runs_next(struct parquet_runs *runs)
{
    uint64_t head, left;

    if (!parquet_varint(&runs->at, runs->end, &head) || head >> 1 == 0)
        return false;
    left = (uint64_t)(runs->end - runs->at);
    runs->left = head >> 1;
    runs->packed = head & 1 ? runs->at : NULL;
    runs->taken = 0;
    if (head & 1) {
        /* Eight at a time; some writers cut unused bytes at the end. */
        uint64_t bytes =
            runs->width > 0 ? min_u64(left / runs->width, runs->left) * runs->width : 0;
        bool cut = runs->width > 0 && bytes / runs->width < runs->left;
        runs->left = cut ? left * 8 / runs->width : min_u64(runs->left, UINT64_MAX / 8) * 8;
        runs->packed_end = cut ? runs->end : runs->at + bytes;
        runs->at = runs->packed_end;
        return runs->left > 0;
    }
    unsigned bytes = (runs->width + 7) / 8;
    if (bytes > left)
        return false;
    runs->value = 0;
    memcpy(&runs->value, runs->at, bytes);
    runs->at += bytes;
    return true;
}

bool parquet_runs_take(struct parquet_runs *runs, uint32_t n, uint32_t *ret)
{
    for (uint32_t i = 0; i < n;) {
        if (runs->left == 0 && !runs_next(runs))
            return false;
        uint32_t take = (uint32_t)min_u64(runs->left, n - i);
        if (runs->packed) {
            for (uint32_t k = 0; k < take; k++)
                ret[i + k] = (uint32_t)parquet_bits(runs->packed, runs->packed_end, runs->taken + k,
                                                    runs->width);
        } else {
            for (uint32_t k = 0; k < take; k++)
                ret[i + k] = runs->value;
        }
        runs->taken += take;
        runs->left -= take;
        i += take;
    }
    return true;
}

bool parquet_decode_levels(const uint8_t *at, const uint8_t *end, uint8_t most, uint64_t n,
                           uint8_t *ret)
{
    struct parquet_runs runs = {.at = at, .end = end};
    uint32_t block[PARQUET_RUNS_BLOCK];

    while (most >> runs.width)
        runs.width++;
    while (n > 0) {
        uint32_t take = (uint32_t)min_u64(n, PARQUET_RUNS_BLOCK), highest = 0;
        if (!parquet_runs_take(&runs, take, block))
            return false;
        for (uint32_t i = 0; i < take; i++) {
            highest |= block[i] > most;
            ret[i] = (uint8_t)block[i];
        }
        if (highest)
            return false;
        ret += take;
        n -= take;
    }
    return true;
}

/* ---- differences ---------------------------------------------------------------------------- */

struct runs_delta {
    const uint8_t *at, *end;
    uint64_t value;        /* the last one */
    uint64_t left;         /* values to come */
    uint64_t miniblock;    /* values of one */
    uint64_t n_miniblocks; /* of a block */
    uint32_t width;
    uint8_t *out;
};

static uint64_t runs_zigzag(uint64_t n)
{
    return (n >> 1) ^ (0 - (n & 1));
}

static void runs_put(struct runs_delta *d)
{
    memcpy(d->out, &d->value, d->width);
    d->out += d->width;
    d->left--;
}

static bool runs_take_miniblock(struct runs_delta *d, uint64_t least, unsigned width)
{
    uint64_t bytes = d->miniblock / 8 * width, take = min_u64(d->miniblock, d->left);

    if (width > 64 || bytes > (uint64_t)(d->end - d->at))
        return false;
    for (uint64_t i = 0; i < take; i++) {
        d->value += least + parquet_bits(d->at, d->at + bytes, i, width);
        runs_put(d);
    }
    d->at += bytes;
    return true;
}

static bool runs_take_block(struct runs_delta *d)
{
    uint64_t least;

    if (!parquet_varint(&d->at, d->end, &least) || d->n_miniblocks > (uint64_t)(d->end - d->at))
        return false;
    const uint8_t *widths = d->at;
    d->at += d->n_miniblocks;
    least = runs_zigzag(least);
    for (uint64_t i = 0; i < d->n_miniblocks && d->left > 0; i++)
        if (!runs_take_miniblock(d, least, widths[i]))
            return false;
    return true;
}

bool parquet_decode_delta(const uint8_t *at, const uint8_t *end, uint64_t n, uint32_t width,
                          uint8_t *ret, const uint8_t **ret_end)
{
    struct runs_delta d = {.at = at, .end = end, .left = n, .width = width};
    uint64_t block, total, first;

    d.out = ret;
    if (!parquet_varint(&d.at, end, &block) || !parquet_varint(&d.at, end, &d.n_miniblocks) ||
        !parquet_varint(&d.at, end, &total) || !parquet_varint(&d.at, end, &first) || total != n ||
        d.n_miniblocks == 0 || d.n_miniblocks > MINIBLOCKS_MOST || block > BLOCK_MOST ||
        block % (8 * d.n_miniblocks) != 0 || block == 0)
        return false;
    d.miniblock = block / d.n_miniblocks;
    d.value = runs_zigzag(first);
    if (n > 0)
        runs_put(&d);
    while (d.left > 0)
        if (!runs_take_block(&d))
            return false;
    *ret_end = d.at;
    return true;
}
