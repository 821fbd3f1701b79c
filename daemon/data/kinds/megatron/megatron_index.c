#include "daemon/data/kinds/megatron/megatron_index.h"

#include <errno.h>

enum { HEADER_BYTES = 34, VERSION = 1 };

static const char megatron_magic[9] = "MMIDIDX\0";

/* By the code in the file; 0 if tokens cannot have that type. */
static uint32_t megatron_index_dtype(uint8_t code)
{
    static const uint32_t dtypes[] = {
        [1] = DL_DTYPE_UINT8, [2] = DL_DTYPE_INT8,  [3] = DL_DTYPE_INT16,
        [4] = DL_DTYPE_INT32, [5] = DL_DTYPE_INT64, [8] = DL_DTYPE_UINT16};

    return code < ARRAY_SIZE(dtypes) ? dtypes[code] : 0;
}

static uint64_t megatron_index_u64(const uint8_t *at, uint64_t i)
{
    uint64_t n;

    memcpy(&n, at + i * sizeof n, sizeof n);
    return n;
}

static uint32_t megatron_index_u32(const uint8_t *at, uint64_t i)
{
    uint32_t n;

    memcpy(&n, at + i * sizeof n, sizeof n);
    return n;
}

static int megatron_index_check_header(const uint8_t *data, uint64_t bytes, const char *path,
                                       struct dl_error *err)
{
    if (bytes < HEADER_BYTES || memcmp(data, megatron_magic, sizeof megatron_magic) != 0)
        return dl_error_set(
            err, EINVAL, path,
            "does not begin with MMIDIDX; it is not an index of Megatron-LM, or one of "
            "the formats from before 2020: recreate it with preprocess_data.py");
    if (megatron_index_u64(data + sizeof megatron_magic, 0) != VERSION)
        return dl_error_set(err, EINVAL, path, "is of version %llu; version 1 can be read",
                            (ull)megatron_index_u64(data + sizeof megatron_magic, 0));
    if (!megatron_index_dtype(data[17]))
        return dl_error_set(err, EINVAL, path,
                            "has tokens of type %u; they can be integers of 8, 16, 32 or 64 bits",
                            data[17]);
    return 0;
}

/* The file's size against what the header counts; a byte a sequence may follow. */
static int megatron_index_check_size(uint64_t sequences, uint64_t bounds, uint64_t bytes,
                                     const char *path, struct dl_error *err)
{
    uint64_t left = bytes - HEADER_BYTES, need;

    if (sequences <= left / 12 && bounds <= left / 8) {
        need = 12 * sequences + 8 * bounds;
        if (left == need || left == need + sequences)
            return 0;
    }
    return dl_error_set(err, EINVAL, path,
                        "has %llu bytes, which do not fit its %llu sequences and %llu bounds of "
                        "documents; it is truncated, or still being written",
                        (ull)bytes, (ull)sequences, (ull)bounds);
}

/* The last one ends where the .bin file does: they were written together. */
static int megatron_index_check_end(const struct megatron_index *index, uint64_t bin_bytes,
                                    const char *path, struct dl_error *err)
{
    uint64_t last = index->sequences - 1, end = 0;

    if (index->sequences > 0)
        end = megatron_index_u64(index->offsets, last) +
              (uint64_t)megatron_index_u32(index->lengths, last) * index->token_bytes;
    if (end == bin_bytes)
        return 0;
    return dl_error_set(err, EINVAL, path,
                        "says that the tokens end at byte %llu, but the .bin file has %llu bytes; "
                        "the two do not belong together, or one is truncated",
                        (ull)end, (ull)bin_bytes);
}

int megatron_index_parse(const uint8_t *data, uint64_t bytes, const char *path, uint64_t bin_bytes,
                         struct megatron_index *ret, struct dl_error *err)
{
    struct megatron_index index = {0};
    uint64_t bounds;
    int r = megatron_index_check_header(data, bytes, path, err);

    if (r < 0)
        return r;
    index.dtype = megatron_index_dtype(data[17]);
    index.token_bytes = (uint32_t)dtype_bytes(index.dtype);
    index.sequences = megatron_index_u64(data + 18, 0);
    bounds = megatron_index_u64(data + 26, 0);
    r = megatron_index_check_size(index.sequences, bounds, bytes, path, err);
    if (r < 0)
        return r;
    index.documents = bounds > 0 ? bounds - 1 : 0;
    index.lengths = data + HEADER_BYTES;
    index.offsets = index.lengths + 4 * index.sequences;
    index.bounds = index.offsets + 8 * index.sequences;
    r = megatron_index_check_end(&index, bin_bytes, path, err);
    if (r == 0)
        *ret = index;
    return r;
}

int megatron_index_find(const struct megatron_index *index, uint64_t d, uint64_t bin_bytes,
                        const char *path, uint64_t *ret_offset, uint64_t *ret_tokens,
                        struct dl_error *err)
{
    uint64_t first = megatron_index_u64(index->bounds, d);
    uint64_t end = megatron_index_u64(index->bounds, d + 1), bytes = 0;

    *ret_offset = 0;
    *ret_tokens = 0;
    if (first == end && end <= index->sequences)
        return 0;
    if (first < end && end <= index->sequences) {
        uint64_t last = megatron_index_u64(index->offsets, end - 1);
        *ret_offset = megatron_index_u64(index->offsets, first);
        /* Its sequences lie one behind another, as they were added. */
        if (last <= bin_bytes && *ret_offset <= last) {
            bytes = last - *ret_offset +
                    (uint64_t)megatron_index_u32(index->lengths, end - 1) * index->token_bytes;
            *ret_tokens = bytes / index->token_bytes;
            if (bytes <= bin_bytes - *ret_offset && bytes % index->token_bytes == 0)
                return 0;
        }
    }
    return dl_error_set(err, EINVAL, path,
                        "its document %llu lies where the .bin file has no tokens; the index is "
                        "damaged",
                        (ull)d);
}
