/*
 * Reads Thrift's compact protocol, in which Parquet's headers and footers are written: bounded, and
 * without memory of its own. thrift.apache.org, "Thrift Compact protocol encoding".
 *
 * The first error sticks: the input then counts as empty, numbers are 0 and texts empty, so that a
 * caller may check once, at the end. Pure.
 */
#ifndef DL_DATA_PARQUET_THRIFT_H
#define DL_DATA_PARQUET_THRIFT_H

#include "proto/common/base.h"

#include <stddef.h>

enum thrift_type {
    THRIFT_TRUE = 1,
    THRIFT_FALSE,
    THRIFT_BYTE,
    THRIFT_I16,
    THRIFT_I32,
    THRIFT_I64,
    THRIFT_DOUBLE,
    THRIFT_BINARY,
    THRIFT_LIST,
    THRIFT_SET,
    THRIFT_MAP,
    THRIFT_STRUCT,
    THRIFT_UUID,
};

struct thrift {
    const uint8_t *at; /* borrowed */
    const uint8_t *end;
    int16_t last; /* id of the last field of the current struct */
    bool bad;
};

struct thrift_field {
    int16_t id;
    uint8_t type;
};

struct thrift_text {
    const uint8_t *data; /* borrowed; may be NULL */
    uint32_t bytes;
};

static inline struct thrift thrift_of(const uint8_t *data, uint64_t bytes)
{
    return (struct thrift){.at = data, .end = data + bytes};
}

/* The next field of a struct; false at the end, or if the data is invalid. */
bool thrift_next(struct thrift *t, struct thrift_field *ret);

/*
 * What becomes of a field of a struct, as rows by the fields' ids: a number, a bool or a text is
 * stored in a member, a struct is read by its own rows, or a function takes the field. Others are
 * passed over, and so is a field of another type.
 */
struct thrift_row {
    enum { THRIFT_PASSED, THRIFT_TO_INT, THRIFT_TO_BOOL, THRIFT_TO_TEXT, THRIFT_TO_ROWS } sort;
    uint32_t at;    /* of the member */
    uint32_t bytes; /* INT: of the member, which gets the lowest of the number's */
    const struct thrift_row *rows;
    uint32_t n;
    void (*read)(struct thrift *t, const struct thrift_field *field, void *ret); /* or NULL */
};
#define THRIFT_AT(kind, type, member)                                                       \
    {                                                                                       \
        .sort = kind, .at = offsetof(type, member), .bytes = sizeof(((type *)NULL)->member) \
    }
/* A struct in it, whose fields are stored in members of the same `type`. */
#define THRIFT_STRUCT_BY(table)                                       \
    {                                                                 \
        .sort = THRIFT_TO_ROWS, .rows = table, .n = ARRAY_SIZE(table) \
    }
#define THRIFT_FIELD_BY(function) \
    {                             \
        .read = function          \
    }

/* Reads a struct to its end by `n` rows, into what their members are of. */
void thrift_read(struct thrift *t, const struct thrift_row *rows, uint32_t n, void *ret);

/* The value of a field, which is passed over where it is of another type. */
int64_t thrift_int(struct thrift *t, const struct thrift_field *field);
bool thrift_bool(struct thrift *t, const struct thrift_field *field);
struct thrift_text thrift_text(struct thrift *t, const struct thrift_field *field);
void thrift_skip(struct thrift *t, const struct thrift_field *field);

/*
 * The number of structs in a field's list, of at least `least` bytes each, all of which follow; or
 * 0. Each of them, and a field that is a struct, is read between begin and end.
 */
uint32_t thrift_structs(struct thrift *t, const struct thrift_field *field, uint32_t least);
int16_t thrift_begin(struct thrift *t);           /* what end wants to have */
void thrift_end(struct thrift *t, int16_t saved); /* the struct was read to its last field */

#endif
