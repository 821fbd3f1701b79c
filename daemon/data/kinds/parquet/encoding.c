#include "daemon/data/kinds/parquet/encoding.h"

#include "daemon/data/kinds/parquet/encoding_bits.h"
#include "daemon/data/kinds/parquet/encoding_runs.h"

#include <errno.h>

/* ---- by a dictionary ------------------------------------------------------------------------ */

static void encoding_gather(const struct parquet_encoded *e, const uint32_t *indices, uint32_t n,
                            uint8_t *ret)
{
    const uint8_t *from = e->dictionary->fixed;
    uint64_t width = e->width;

    for (uint32_t i = 0; i < n; i++) {
        if (width == 4)
            memcpy(ret + (uint64_t)i * 4, from + (uint64_t)indices[i] * 4, 4);
        else if (width == 8)
            memcpy(ret + (uint64_t)i * 8, from + (uint64_t)indices[i] * 8, 8);
        else
            memcpy(ret + i * width, from + indices[i] * width, width);
    }
}

/* Either of the two places is not NULL. */
static int encoding_take_indices(const struct parquet_encoded *e, uint8_t *fixed,
                                 struct parquet_slice *slices)
{
    struct parquet_runs runs = {.at = e->at, .end = e->end};
    uint32_t block[PARQUET_RUNS_BLOCK];
    uint64_t n = e->n;

    if (!e->dictionary || (n > 0 && e->at == e->end))
        return -EINVAL;
    runs.width = n > 0 ? *runs.at++ : 0;
    if (runs.width > 32)
        return -EINVAL;
    while (n > 0) {
        uint32_t take = (uint32_t)min_u64(n, PARQUET_RUNS_BLOCK), greatest = 0;
        if (!parquet_runs_take(&runs, take, block))
            return -EINVAL;
        for (uint32_t i = 0; i < take; i++)
            greatest = block[i] > greatest ? block[i] : greatest;
        if (greatest >= e->dictionary->n)
            return -EINVAL;
        if (fixed) {
            encoding_gather(e, block, take, fixed);
            fixed += (uint64_t)take * e->width;
        } else {
            for (uint32_t i = 0; i < take; i++)
                *slices++ = e->dictionary->slices[block[i]];
        }
        n -= take;
    }
    return 0;
}

/* ---- values of varying length --------------------------------------------------------------- */

static int encoding_take_plain_slices(const struct parquet_encoded *e, struct parquet_slice *ret)
{
    const uint8_t *at = e->at;
    uint32_t bytes;

    for (uint64_t i = 0; i < e->n; i++) {
        if (e->end - at < 4)
            return -EINVAL;
        memcpy(&bytes, at, sizeof bytes);
        at += 4;
        if (bytes > (uint64_t)(e->end - at))
            return -EINVAL;
        ret[i] = (struct parquet_slice){.data = at, .bytes = bytes};
        at += bytes;
    }
    return 0;
}

/* Lengths first, then the bytes of all. *at moves behind them. */
static int encoding_take_lengths(const uint8_t **at, const uint8_t *end, uint64_t n,
                                 struct parquet_slice *ret)
{
    _cleanup_free_ int32_t *lengths = malloc(max_u64(n, 1) * sizeof *lengths);
    const uint8_t *data;

    if (!lengths)
        return -ENOMEM;
    if (!parquet_decode_delta(*at, end, n, sizeof *lengths, (uint8_t *)lengths, &data))
        return -EINVAL;
    for (uint64_t i = 0; i < n; i++) {
        if (lengths[i] < 0 || lengths[i] > end - data)
            return -EINVAL;
        ret[i] = (struct parquet_slice){.data = data, .bytes = (uint32_t)lengths[i]};
        data += lengths[i];
    }
    *at = data;
    return 0;
}

/* Each value: a prefix of the one before it, then its own bytes. */
static int encoding_join(struct parquet_joined *joined, uint64_t n, const int32_t *prefixes,
                         struct parquet_slice *slices)
{
    uint64_t bytes = 0, before = 0;
    uint8_t *out;

    for (uint64_t i = 0; i < n; i++) {
        if (prefixes[i] < 0 || (uint64_t)prefixes[i] > before)
            return -EINVAL;
        before = (uint64_t)prefixes[i] + slices[i].bytes;
        bytes += before;
        if (before > INT32_MAX)
            return -EINVAL;
        if (bytes > joined->most)
            return -EFBIG;
    }
    out = malloc(max_u64(bytes, 1));
    if (!out)
        return -ENOMEM;
    joined->data = out;
    joined->bytes = bytes;
    for (uint64_t i = 0; i < n; i++) {
        if (prefixes[i] > 0)
            memcpy(out, slices[i - 1].data, (size_t)prefixes[i]);
        memcpy(out + prefixes[i], slices[i].data, slices[i].bytes);
        slices[i].data = out;
        slices[i].bytes += (uint32_t)prefixes[i];
        out += slices[i].bytes;
    }
    return 0;
}

static int encoding_take_prefixed(const struct parquet_encoded *e, struct parquet_joined *joined,
                                  struct parquet_slice *ret)
{
    _cleanup_free_ int32_t *prefixes = malloc(max_u64(e->n, 1) * sizeof *prefixes);
    const uint8_t *at;

    if (!prefixes)
        return -ENOMEM;
    if (!parquet_decode_delta(e->at, e->end, e->n, sizeof *prefixes, (uint8_t *)prefixes, &at))
        return -EINVAL;
    int r = encoding_take_lengths(&at, e->end, e->n, ret);
    return r < 0 ? r : encoding_join(joined, e->n, prefixes, ret);
}

int parquet_decode_slices(const struct parquet_encoded *e, struct parquet_joined *joined,
                          struct parquet_slice *ret)
{
    const uint8_t *at = e->at;

    switch (e->encoding) {
    case ENCODING_PLAIN:
        return encoding_take_plain_slices(e, ret);
    case ENCODING_PLAIN_DICTIONARY:
    case ENCODING_RLE_DICTIONARY:
        return encoding_take_indices(e, NULL, ret);
    case ENCODING_DELTA_LENGTH_BYTE_ARRAY:
        return encoding_take_lengths(&at, e->end, e->n, ret);
    case ENCODING_DELTA_BYTE_ARRAY:
        return encoding_take_prefixed(e, joined, ret);
    default:
        return -ENOTSUP;
    }
}

/* ---- values of one width -------------------------------------------------------------------- */

static int encoding_take_bits(const struct parquet_encoded *e, uint8_t *ret)
{
    if (e->n > 8 * (uint64_t)(e->end - e->at))
        return -EINVAL;
    for (uint64_t i = 0; i < e->n; i++)
        ret[i] = e->at[i / 8] >> (i % 8) & 1;
    return 0;
}

static int encoding_take_plain(const struct parquet_encoded *e, uint8_t *ret)
{
    if (e->boolean)
        return encoding_take_bits(e, ret);
    if (e->n > (uint64_t)(e->end - e->at) / e->width)
        return -EINVAL;
    memcpy(ret, e->at, e->n * e->width);
    return 0;
}

/* Of booleans: runs behind their length. */
static int encoding_take_rle(const struct parquet_encoded *e, uint8_t *ret)
{
    uint32_t bytes;

    if (!e->boolean)
        return -ENOTSUP;
    if (e->end - e->at < 4)
        return -EINVAL;
    memcpy(&bytes, e->at, sizeof bytes);
    if (bytes > (uint64_t)(e->end - e->at) - 4)
        return -EINVAL;
    return parquet_decode_levels(e->at + 4, e->at + 4 + bytes, 1, e->n, ret) ? 0 : -EINVAL;
}

/* All first bytes, then all second ones. */
static int encoding_take_split(const struct parquet_encoded *e, uint8_t *ret)
{
    uint64_t n = (uint64_t)(e->end - e->at) / e->width;

    if (e->boolean)
        return -ENOTSUP;
    if (e->n != n || (uint64_t)(e->end - e->at) % e->width != 0)
        return -EINVAL;
    for (uint32_t byte = 0; byte < e->width; byte++)
        for (uint64_t i = 0; i < n; i++)
            ret[i * e->width + byte] = e->at[byte * n + i];
    return 0;
}

static int encoding_take_delta(const struct parquet_encoded *e, uint8_t *ret)
{
    const uint8_t *end;

    if (e->boolean || (e->width != 4 && e->width != 8))
        return -ENOTSUP;
    return parquet_decode_delta(e->at, e->end, e->n, e->width, ret, &end) ? 0 : -EINVAL;
}

/* Each must have the one width. */
static int encoding_take_prefixed_fixed(const struct parquet_encoded *e,
                                        struct parquet_joined *joined, uint8_t *ret)
{
    _cleanup_free_ struct parquet_slice *slices = malloc(max_u64(e->n, 1) * sizeof *slices);

    if (!slices)
        return -ENOMEM;
    int r = encoding_take_prefixed(e, joined, slices);
    for (uint64_t i = 0; r == 0 && i < e->n; i++) {
        if (slices[i].bytes == e->width)
            memcpy(ret + i * e->width, slices[i].data, e->width);
        else
            r = -EINVAL;
    }
    return r;
}

int parquet_decode_fixed(const struct parquet_encoded *e, struct parquet_joined *joined,
                         uint8_t *ret)
{
    switch (e->encoding) {
    case ENCODING_PLAIN:
        return encoding_take_plain(e, ret);
    case ENCODING_PLAIN_DICTIONARY:
    case ENCODING_RLE_DICTIONARY:
        return encoding_take_indices(e, ret, NULL);
    case ENCODING_RLE:
        return encoding_take_rle(e, ret);
    case ENCODING_DELTA_BINARY_PACKED:
        return encoding_take_delta(e, ret);
    case ENCODING_DELTA_BYTE_ARRAY:
        return e->boolean ? -ENOTSUP : encoding_take_prefixed_fixed(e, joined, ret);
    case ENCODING_BYTE_STREAM_SPLIT:
        return encoding_take_split(e, ret);
    default:
        return -ENOTSUP;
    }
}
