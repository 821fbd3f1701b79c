/*
 * Reading FlatBuffers, as far as Arrow's metadata need them: tables, structs in vectors, strings.
 * The layout is that of FlatBuffers' document "Internals"; all numbers are little-endian.
 *
 * Each offset is checked before it is followed. One that leads out of the buffer reads as absent
 * and sets `bad`, so a reader may read all fields and check once. Pure; not thread-safe.
 */
#ifndef DL_DATA_ARROW_FLAT_H
#define DL_DATA_ARROW_FLAT_H

#include "proto/common/base.h"

struct flat {
    const uint8_t *data; /* borrowed */
    uint32_t bytes;
    bool bad; /* something did not lie in the buffer */
};

/* at == 0: the table is missing, and all of its fields are absent. */
struct flat_table {
    uint32_t at;
    uint32_t bytes; /* of the table itself */
    uint32_t vtable;
    uint32_t fields; /* in the vtable */
};

struct flat_vector {
    const uint8_t *items; /* in the buffer; NULL: absent */
    uint32_t at;
    uint32_t n;
};

struct flat_table flat_root(struct flat *flat);

/* Field `id` of a table. Absent numbers are `fallback`; `width` is 1, 2, 4 or 8 bytes, signed. */
int64_t flat_int(struct flat *flat, const struct flat_table *table, uint32_t id, uint32_t width,
                 int64_t fallback);
struct flat_table flat_sub(struct flat *flat, const struct flat_table *table, uint32_t id);
/* Of items of `size` bytes each, all of them in the buffer. */
struct flat_vector flat_vector(struct flat *flat, const struct flat_table *table, uint32_t id,
                               uint32_t size);
/* Not terminated; NULL: absent. */
const char *flat_string(struct flat *flat, const struct flat_table *table, uint32_t id,
                        uint32_t *ret_len);

/* Table `i` of a vector of tables (of size 4), below n. */
struct flat_table flat_item(struct flat *flat, const struct flat_vector *vector, uint32_t i);

#endif
