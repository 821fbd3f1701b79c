/* The loop that copies rows, which every array dataset shares, and the size checks of their
 * headers. */
#include "daemon/data/kinds/arrays/array.h"
#include "daemon/data/files/remote.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

void array_init(struct array *array, const struct array_header *header, struct source *source,
                const uint8_t *rows)
{
    uint64_t row_elements = 1;

    assert(header->ndim >= 1 && header->ndim <= TREE_DIMS);
    *array = (struct array){
        .source = *source,
        .rows = rows,
        .count = header->shape[0],
        .dtype = header->dtype,
        .ndim = header->ndim - 1,
        .order = header->order,
    };
    *source = (struct source){0};
    for (uint32_t i = 0; i < array->ndim; i++) {
        array->shape[i] = header->shape[i + 1];
        row_elements *= array->shape[i];
    }
    array->row_bytes = row_elements * dtype_bytes(array->dtype);
    assert(array->count == 0 || array->row_bytes == header->data_bytes / array->count);
}

void array_deinit(struct array *array)
{
    source_close(&array->source);
    *array = (struct array){0};
}

enum {
    ARRAY_SMALL_AHEAD = 16, /* rows whose first line is prefetched */
    LARGE_ROW = 1024,       /* from here on the hardware prefetcher sees a row as a stream */
    LARGE_AHEAD = 1,
    LARGE_LINES = 8, /* lines of the next row: until the hardware has caught on */
};

/* By integers: an index that is not checked yet must not make a pointer. */
static inline const void *array_row_address(const struct array *array, uint64_t index,
                                            uint64_t row_bytes)
{
    return (const void *)((uintptr_t)array->rows + index * row_bytes);
}

/* One load that the compiler may not repeat: the value checked is the value used. */
static inline uint64_t array_load_index(const uint64_t *indices, size_t i)
{
    return __atomic_load_n(&indices[i], __ATOMIC_RELAXED);
}

/* `row_bytes` is a constant in each of its uses but one, so that memcpy becomes a few moves. */
static inline __attribute__((always_inline)) size_t array_read_small(const struct array *array,
                                                                     const uint64_t *indices,
                                                                     size_t n, uint8_t *dst,
                                                                     size_t row_bytes)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t index = array_load_index(indices, i);

        if (i + ARRAY_SMALL_AHEAD < n)
            __builtin_prefetch(array_row_address(
                array, array_load_index(indices, i + ARRAY_SMALL_AHEAD), row_bytes));
        if (index >= array->count)
            return i;
        memcpy(dst + i * row_bytes, array_row_address(array, index, row_bytes), row_bytes);
    }
    return n;
}

static size_t array_read_large(const struct array *array, const uint64_t *indices, size_t n,
                               uint8_t *dst)
{
    uint64_t row_bytes = array->row_bytes;

    for (size_t i = 0; i < n; i++) {
        uint64_t index = array_load_index(indices, i);

        if (i + LARGE_AHEAD < n) {
            const char *ahead =
                array_row_address(array, array_load_index(indices, i + LARGE_AHEAD), row_bytes);
            for (uintptr_t line = 0; line < LARGE_LINES; line++)
                __builtin_prefetch((const void *)((uintptr_t)ahead + line * CACHE_LINE));
        }
        if (index >= array->count)
            return i;
        memcpy(dst + i * row_bytes, array_row_address(array, index, row_bytes), row_bytes);
    }
    return n;
}

static size_t array_read_stored(const struct array *array, const uint64_t *indices, size_t n,
                                uint8_t *dst)
{
    uint64_t shape[TREE_DIMS + 1] = {array->count};
    const struct stored stored = {.data = array->rows,
                                  .dtype = array->dtype,
                                  .ndim = array->ndim + 1,
                                  .shape = shape,
                                  .order = array->order};

    memcpy(shape + 1, array->shape, array->ndim * sizeof *shape);
    for (size_t i = 0; i < n; i++) {
        uint64_t index = array_load_index(indices, i);
        if (index >= array->count)
            return i;
        stored_copy_row(&stored, index, dst + i * array->row_bytes);
    }
    return n;
}

size_t array_read_rows(const struct array *array, const uint64_t *indices, size_t n, void *dst)
{
    if (!stored_is_plain(array->order))
        return array_read_stored(array, indices, n, dst);
    switch (array->row_bytes) {
#define CASE(bytes) \
    case bytes:     \
        return array_read_small(array, indices, n, dst, bytes);
        CASE(1)
        CASE(2)
        CASE(4)
        CASE(8)
        CASE(12)
        CASE(16)
        CASE(24)
        CASE(32)
        CASE(48)
        CASE(64)
#undef CASE
    default:
        if (array->row_bytes < LARGE_ROW)
            return array_read_small(array, indices, n, dst, array->row_bytes);
        return array_read_large(array, indices, n, dst);
    }
}

void array_expect(const struct array *array, uint64_t index)
{
    uintptr_t row = (uintptr_t)array_row_address(array, index, array->row_bytes);
    uint64_t lines = min_u64((array->row_bytes + CACHE_LINE - 1) / CACHE_LINE, LARGE_LINES);

    for (uint64_t line = 0; line < lines; line++)
        __builtin_prefetch((const void *)(row + line * CACHE_LINE));
    remote_expect((const void *)row, array->row_bytes);
}

const char *shape_text(uint32_t ndim, const uint64_t *shape, char text[static SHAPE_TEXT_MAX])
{
    size_t len = 1;

    /* 8 numbers of 20 digits with ", " between are 176 bytes. */
    assert(ndim <= TREE_DIMS);
    memcpy(text, "(", 2);
    for (uint32_t i = 0; i < ndim; i++)
        len += (size_t)snprintf(text + len, SHAPE_TEXT_MAX - len, "%s%llu", i ? ", " : "",
                                (ull)shape[i]);
    snprintf(text + len, SHAPE_TEXT_MAX - len, ndim == 1 ? ",)" : ")");
    return text;
}

int array_header_measure(struct array_header *header, const char *path, struct dl_error *err)
{
    char text[SHAPE_TEXT_MAX];
    uint32_t axes = header->ndim > 0 ? header->ndim - 1 : 0;
    uint64_t row_bytes;

    /*
     * The rows by themselves too: a first axis of 0 must not hide a row size that no batch could
     * hold.
     */
    if ((header->ndim > 0 && header->shape[0] > INT64_MAX) ||
        !tensor_bytes(header->dtype, axes, header->shape + 1, &row_bytes) ||
        !tensor_bytes(header->dtype, header->ndim, header->shape, &header->data_bytes))
        return dl_error_set(
            err, EINVAL, path, "its shape %s of %s is more than 2^63 bytes; its header is damaged",
            shape_text(header->ndim, header->shape, text), dtype_name(header->dtype));
    return 0;
}

int array_header_fits(const struct array_header *header, uint64_t bytes, const char *path,
                      struct dl_error *err)
{
    char text[SHAPE_TEXT_MAX];
    /* No overflow: data_off is the size of a small header, data_bytes is below 2^63. */
    uint64_t need = header->data_off + header->data_bytes;

    if (need == bytes)
        return 0;
    shape_text(header->ndim, header->shape, text);
    if (need > bytes)
        return dl_error_set(err, EINVAL, path,
                            "shape %s of %s needs a file of %llu bytes, but it has %llu: it is "
                            "truncated; write or fetch it again",
                            text, dtype_name(header->dtype), (ull)need, (ull)bytes);
    return dl_error_set(err, EINVAL, path,
                        "shape %s of %s needs a file of %llu bytes, but it has %llu: %llu too "
                        "many; one file holds one array",
                        text, dtype_name(header->dtype), (ull)need, (ull)bytes,
                        (ull)(bytes - need));
}
