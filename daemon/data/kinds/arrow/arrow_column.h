/*
 * Where the values of a record batch's columns lie: buffers of the mapped file, checked once so
 * that values can be read without asking how long they are. What leads on from there, such as
 * offsets, is checked when it is read: it may be large, and may change.
 */
#ifndef DL_DATA_ARROW_COLUMN_H
#define DL_DATA_ARROW_COLUMN_H

#include "daemon/data/kinds/arrow/arrow_body.h"
#include "daemon/data/kinds/arrow/arrow_message.h"
#include "daemon/data/kinds/arrow/arrow_schema.h"

struct arrow_column {
    uint64_t length;
    const uint8_t *validity; /* a bit for each value; NULL: all valid */
    const uint8_t *values;   /* numbers, bits, offsets, views or indices; length of them */
    const uint8_t *text;     /* what offsets or views of text lead to; of lists with sizes these */
    uint64_t text_bytes;
    const uint8_t *buffers; /* views: the text buffers they refer to, from the message */
    uint64_t n_buffers;
    const struct arrow_column *dictionary; /* borrowed; `values` are indices into it */
    /* Of a row of a Parquet file: */
    const struct parquet_slice *slices; /* texts and bytes, in place of values */
    const uint8_t *defs;                /* definition levels, in place of validity: */
    uint8_t def;                        /* from this one on a value is there */
    uint64_t begin;                     /* offsets count from here */
};

static inline bool arrow_bit(const uint8_t *bits, uint64_t i)
{
    return bits[i / 8] >> (i % 8) & 1;
}

static inline bool arrow_column_is_null(const struct arrow_column *column, uint64_t i)
{
    return (column->validity && !arrow_bit(column->validity, i)) ||
           (column->defs && column->defs[i] < column->def);
}

/* The present dictionary of each id, for the fields of a schema. */
struct arrow_dictionaries {
    const struct arrow_column **of_field; /* for each field of the schema; NULL: not yet */
};

/*
 * The columns of message `message`, of type ARROW_RECORDS, to ret[slot] for the kept fields of
 * `schema`; *ret_rows of them. Of a compressed message in `body`, where it is unpacked, which they
 * point to then; else NULL. -EINVAL with `err` naming the file: damaged.
 */
int _nodiscard_ arrow_columns_find(const struct arrow_view *view, struct arrow_message *message,
                                   const struct arrow_body *body, const struct arrow_schema *schema,
                                   const struct arrow_dictionaries *dictionaries,
                                   struct arrow_column *ret, uint64_t *ret_rows,
                                   struct dl_error *err);

/* The values of message `message`, of type ARROW_DICTIONARY, if field `i` is the first of `schema`
 * that has its id. As above. */
int _nodiscard_ arrow_columns_find_values(const struct arrow_view *view,
                                          struct arrow_message *message,
                                          const struct arrow_body *body,
                                          const struct arrow_field *field, struct arrow_column *ret,
                                          struct dl_error *err);

/* The number of rows that `message`, of type ARROW_RECORDS, states; negative: invalid. */
int64_t arrow_columns_rows(struct arrow_message *message);

/* The id of a dictionary's message. */
int64_t arrow_columns_dictionary(struct arrow_message *message);

#endif
