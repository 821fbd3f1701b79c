/* The chunks of an array: where they are, what their filters made of them, and rows of them. */
#include "daemon/data/files/unpack.h"
#include "daemon/data/kinds/hdf5/hdf5_array.h"
#include "daemon/data/kinds/hdf5/hdf5_foreign.h"
#include "proto/common/array.h"

#include <errno.h>

/* ---- the tree of them -------------------------------------------------------------------------
 */

struct hdf5_listing {
    struct hdf5_array *array;
    size_t room;
    uint64_t left; /* of nodes that may still be looked at */
};

/* A chunk by its key: [bytes: 4] [filters it went without: 4] [place: 8 each]. */
static int hdf5_chunks_add(struct hdf5_listing *listing, const uint8_t *key, uint64_t at,
                           struct dl_error *err)
{
    struct hdf5_array *array = listing->array;
    struct hdf5_chunk chunk = {.unpacked_bytes = (uint32_t)array->chunk_bytes,
                               .at = at,
                               .bytes = (uint32_t)hdf5_number(key, 4),
                               .skipped = (uint32_t)hdf5_number(key + 4, 4)};

    for (uint32_t i = 0; i < array->ndim; i++) {
        uint64_t place = hdf5_number(key + 8 + 8 * i, 8);
        if (place % array->chunk[i] != 0 || (place >= array->dims[i] && place > 0))
            return place % array->chunk[i] == 0
                       ? 0 /* of an array that became smaller */
                       : hdf5_array_refuse(array, EINVAL,
                                           "is damaged: a chunk is at an impossible place", err);
        /* Below the number of elements, which is below 2^63. */
        chunk.number = chunk.number * ((array->dims[i] + array->chunk[i] - 1) / array->chunk[i]) +
                       place / array->chunk[i];
    }
    if (!hdf5_bytes(&array->view, at, chunk.bytes))
        return hdf5_array_refuse(array, EINVAL,
                                 "has a chunk that is not in the file; it is "
                                 "truncated",
                                 err);
    if (!array_reserve(array->chunks, listing->room, array->n_chunks + UINT64_C(1)))
        return hdf5_array_refuse(array, ENOMEM, "has more chunks than memory can hold", err);
    array->chunks[array->n_chunks++] = chunk;
    return 0;
}

static int hdf5_chunks_walk(struct hdf5_listing *listing, uint64_t at, unsigned depth,
                            struct dl_error *err)
{
    struct hdf5_array *array = listing->array;
    const uint8_t *head = hdf5_bytes(&array->view, at, HDF5_NODE_BYTES);
    uint64_t n = head ? hdf5_number(head + 6, 2) : 0, key = 8 + 8 * ((uint64_t)array->ndim + 1);
    const uint8_t *entries = hdf5_bytes(&array->view, at + HDF5_NODE_BYTES, n * (key + 8));
    int r = 0;

    if (!head || memcmp(head, "TREE\1", 5) != 0 || !entries || depth == HDF5_LEVELS_MAX ||
        listing->left < n + 1)
        return hdf5_array_refuse(array, EINVAL,
                                 "is damaged: the tree of its chunks is not in the "
                                 "file",
                                 err);
    listing->left -= n + 1;
    for (uint64_t i = 0; r == 0 && i < n; i++, entries += key + 8) {
        uint64_t child = hdf5_number(entries + key, 8);
        r = head[5] > 0 ? hdf5_chunks_walk(listing, child, depth + 1, err)
                        : hdf5_chunks_add(listing, entries, child, err);
    }
    return r;
}

static int hdf5_chunks_compare(const void *a, const void *b)
{
    const struct hdf5_chunk *left = a, *right = b;

    return (left->number > right->number) - (left->number < right->number);
}

int hdf5_chunks_list(struct hdf5_array *array, struct dl_error *err)
{
    struct hdf5_listing listing = {.array = array, .left = array->view.bytes / 8};
    int r = array->tree == HDF5_NONE ? 0 : hdf5_chunks_walk(&listing, array->tree, 0, err);

    if (r == 0 && array->n_chunks > 0)
        qsort(array->chunks, array->n_chunks, sizeof *array->chunks, hdf5_chunks_compare);
    return r;
}

static struct hdf5_chunk *hdf5_chunks_find(const struct hdf5_array *array, uint64_t number)
{
    struct hdf5_chunk wanted = {.number = number};

    return array->n_chunks == 0 ? NULL
                                : bsearch(&wanted, array->chunks, array->n_chunks, sizeof wanted,
                                          hdf5_chunks_compare);
}

/* ---- those that are kept ----------------------------------------------------------------------
 */

static void hdf5_cache_take_out(struct hdf5_cache *cache, struct hdf5_chunk *chunk)
{
    *(chunk->before ? &chunk->before->after : &cache->oldest) = chunk->after;
    *(chunk->after ? &chunk->after->before : &cache->latest) = chunk->before;
    chunk->before = chunk->after = NULL;
}

static void hdf5_cache_put(struct hdf5_cache *cache, struct hdf5_chunk *chunk)
{
    chunk->before = cache->latest;
    *(cache->latest ? &cache->latest->after : &cache->oldest) = chunk;
    cache->latest = chunk;
}

static void hdf5_cache_drop(struct hdf5_cache *cache, struct hdf5_chunk *chunk)
{
    hdf5_cache_take_out(cache, chunk);
    free(chunk->unpacked);
    chunk->unpacked = NULL;
    cache->bytes -= chunk->unpacked_bytes;
}

/* But for the one in hand. */
static void hdf5_cache_shrink(struct hdf5_cache *cache, const struct hdf5_chunk *hand)
{
    while (cache->bytes > cache->most && cache->oldest && cache->oldest != hand)
        hdf5_cache_drop(cache, cache->oldest);
}

void hdf5_array_close(struct hdf5_array *array, struct hdf5_cache *cache)
{
    if (array->foreign)
        hdf5_foreign_close_array(array);
    for (size_t i = 0; i < array->n_chunks; i++)
        if (array->chunks[i].unpacked)
            hdf5_cache_drop(cache, &array->chunks[i]);
    free(array->chunks);
    *array = (struct hdf5_array){0};
}

/* ---- filters -------------------------------------------------------------------------------- */

static int hdf5_chunks_damaged(const struct hdf5_array *array, struct dl_error *err)
{
    return hdf5_array_refuse(array, EINVAL, "has a chunk that is damaged", err);
}

/* Fletcher's sum of 16-bit words, the high byte first, as in HDF5. */
static uint32_t hdf5_chunks_sum(const uint8_t *data, uint64_t bytes)
{
    uint64_t low = 0, high = 0, any = 0;

    for (uint64_t i = 0; i < bytes; i += 2) {
        uint64_t word = (uint64_t)data[i] << 8 | (i + 1 < bytes ? data[i + 1] : 0);
        any |= word;
        low = (low + word) % UINT16_MAX;
        high = (high + low) % UINT16_MAX;
    }
    if (any && low == 0) /* 0 and 65535 are equivalent: 0 only for all zeroes */
        low = UINT16_MAX;
    if (any && high == 0)
        high = UINT16_MAX;
    return (uint32_t)(high << 16 | low);
}

/* Undoes the shuffle of `bytes`: all first bytes of the elements, then all second ones, ... */
static void hdf5_chunks_unshuffle(const uint8_t *from, uint8_t *to, uint64_t bytes,
                                  unsigned element)
{
    uint64_t n = bytes / element;

    for (unsigned part = 0; part < element; part++)
        for (uint64_t i = 0; i < n; i++)
            to[i * element + part] = from[part * n + i];
    memcpy(to + n * element, from + n * element, bytes - n * element);
}

/* What a filter is undone in: `data` of `bytes`, which is `made`, or borrowed from the file. */
struct hdf5_unpacking {
    const struct hdf5_array *array;
    const uint8_t *data;
    uint64_t bytes;
    uint8_t *made; /* owned */
};

static int hdf5_chunks_undo(struct hdf5_unpacking *u, enum hdf5_filter filter, struct dl_error *err)
{
    const struct hdf5_array *array = u->array;
    uint64_t room = array->chunk_bytes + 4; /* with the sum that a filter before may have added */

    if (filter == HDF5_FLETCHER32) { /* 4 bytes behind the rest */
        if (u->bytes < 4 ||
            hdf5_chunks_sum(u->data, u->bytes - 4) != hdf5_number(u->data + u->bytes - 4, 4))
            return hdf5_chunks_damaged(array, err);
        u->bytes -= 4;
        return 0;
    }
    if (filter == HDF5_DEFLATE && array->chunk_bytes / DEFLATE_MOST > u->bytes)
        return hdf5_chunks_damaged(array, err); /* it cannot unpack to that many bytes */
    if (filter == HDF5_SHUFFLE && (u->bytes > room || u->bytes < array->chunk_bytes))
        return hdf5_chunks_damaged(array, err);
    uint8_t *out = malloc(room);
    if (!out)
        return hdf5_array_refuse(array, ENOMEM, "has a chunk for which there is no memory", err);
    if (filter == HDF5_SHUFFLE) {
        hdf5_chunks_unshuffle(u->data, out, u->bytes, array->element);
    } else {
        int r = unpack_deflate(DEFLATE_ZLIB, u->data, u->bytes, out, room, &u->bytes);
        if (r < 0) {
            free(out);
            return hdf5_chunks_damaged(array, err);
        }
    }
    free(u->made);
    u->data = u->made = out;
    return 0;
}

static int hdf5_chunks_unpack(const struct hdf5_array *array, const struct hdf5_chunk *chunk,
                              uint8_t **ret, struct dl_error *err)
{
    struct hdf5_unpacking u = {
        .array = array, .data = array->view.data + chunk->at, .bytes = chunk->bytes};
    int r = 0;

    for (unsigned i = array->n_filters; r == 0 && i-- > 0;)
        if (!(chunk->skipped & 1U << i))
            r = hdf5_chunks_undo(&u, array->filters[i], err);
    if (r == 0 && u.bytes != array->chunk_bytes)
        r = hdf5_chunks_damaged(array, err);
    if (r == 0 && !u.made) {
        u.made = malloc(u.bytes);
        if (!u.made)
            r = hdf5_array_refuse(array, ENOMEM, "has a chunk for which there is no memory", err);
        else
            memcpy(u.made, u.data, u.bytes);
    }
    if (r < 0)
        free(u.made);
    else
        *ret = u.made;
    return r;
}

/* The numbers of a chunk, where they lie or unpacked; *ret NULL: it was never written. */
static int hdf5_chunks_get(struct hdf5_array *array, struct hdf5_cache *cache, uint64_t number,
                           const uint8_t **ret, struct dl_error *err)
{
    struct hdf5_chunk *chunk = hdf5_chunks_find(array, number);
    int r = 0;

    *ret = NULL;
    if (!chunk)
        return 0;
    if (array->n_filters == 0) {
        *ret = array->view.data + chunk->at;
        return chunk->bytes == array->chunk_bytes ? 0 : hdf5_chunks_damaged(array, err);
    }
    if (chunk->unpacked)
        hdf5_cache_take_out(cache, chunk);
    else if ((r = hdf5_chunks_unpack(array, chunk, &chunk->unpacked, err)) < 0)
        return r;
    else
        cache->bytes += chunk->unpacked_bytes;
    hdf5_cache_put(cache, chunk);
    hdf5_cache_shrink(cache, chunk);
    *ret = chunk->unpacked;
    return 0;
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* A row on its way out of the chunks that have a part of it. */
struct hdf5_row {
    const struct hdf5_array *array;
    uint64_t index[HDF5_DIMS_MAX];     /* of the chunk, by dimension */
    uint64_t from_step[HDF5_DIMS_MAX]; /* bytes from one place to the next in the chunk */
    uint64_t to_step[HDF5_DIMS_MAX];   /* and in the row */
    uint32_t solid; /* behind this dimension chunks are as large as the array: one piece */
};

static void hdf5_row_begin(struct hdf5_row *row, const struct hdf5_array *array, uint64_t number)
{
    uint64_t from = array->element, to = array->element;

    *row = (struct hdf5_row){.array = array, .index[0] = number / array->chunk[0]};
    for (uint32_t i = array->ndim; i-- > 0;) {
        row->from_step[i] = from;
        row->to_step[i] = to;
        from *= array->chunk[i];
        to *= array->dims[i];
    }
    row->solid = array->ndim - 1;
    while (row->solid > 0 && array->chunk[row->solid] == array->dims[row->solid])
        row->solid--;
}

static void hdf5_array_fill(const struct hdf5_array *array, uint8_t *out, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += array->element)
        memcpy(out + i, array->fill, array->element);
}

/* From dimension `d` on; `from` NULL: what was never written. */
static void hdf5_row_copy(const struct hdf5_row *row, uint32_t d, const uint8_t *from, uint8_t *to)
{
    const struct hdf5_array *array = row->array;
    uint64_t n = 1, step = array->element;

    if (d < array->ndim) {
        n = min_u64(array->chunk[d], array->dims[d] - row->index[d] * array->chunk[d]);
        step = row->from_step[d];
    }
    if (d < row->solid) {
        for (uint64_t i = 0; i < n; i++)
            hdf5_row_copy(row, d + 1, from ? from + i * step : NULL, to + i * row->to_step[d]);
    } else if (from) {
        memcpy(to, from, n * step);
    } else {
        hdf5_array_fill(array, to, n * step);
    }
}

/* Moves to the next chunk of the row; false at the end. */
static bool hdf5_row_step(struct hdf5_row *row)
{
    const struct hdf5_array *array = row->array;

    for (uint32_t d = array->ndim; d-- > 1;) {
        if (++row->index[d] * array->chunk[d] < array->dims[d])
            return true;
        row->index[d] = 0;
    }
    return false;
}

static int hdf5_row_take(struct hdf5_row *row, struct hdf5_array *array, struct hdf5_cache *cache,
                         uint64_t in_chunk, uint8_t *out, struct dl_error *err)
{
    uint64_t number = row->index[0], to = 0;
    const uint8_t *data;

    for (uint32_t d = 1; d < array->ndim; d++) {
        number =
            number * ((array->dims[d] + array->chunk[d] - 1) / array->chunk[d]) + row->index[d];
        to += row->index[d] * array->chunk[d] * row->to_step[d];
    }
    int r = hdf5_chunks_get(array, cache, number, &data, err);
    if (r == 0)
        hdf5_row_copy(row, 1, data ? data + in_chunk * row->from_step[0] : NULL, out + to);
    return r;
}

int hdf5_array_read(struct hdf5_array *array, struct hdf5_cache *cache, uint64_t number, void *out,
                    struct dl_error *err)
{
    struct hdf5_row row;
    int r = 0;

    if (array->row_bytes == 0)
        return 0;
    if (array->foreign)
        return hdf5_foreign_read(array, number, out, err);
    if (!array->is_chunked) {
        if (array->whole)
            memcpy(out, array->whole + number * array->row_bytes, array->row_bytes);
        else
            hdf5_array_fill(array, out, array->row_bytes);
        return 0;
    }
    hdf5_row_begin(&row, array, number);
    do {
        r = hdf5_row_take(&row, array, cache, number % array->chunk[0], out, err);
    } while (r == 0 && hdf5_row_step(&row));
    return r;
}
