/* A dataset of kind parquet, and a row of it that becomes a sample. Internal to parquet.c and
 * row.c.
 */
#ifndef DL_DATA_PARQUET_ROW_H
#define DL_DATA_PARQUET_ROW_H

#include "daemon/data/kinds/arrow/arrow_value.h"
#include "daemon/data/kinds/parquet/fields.h"
#include "daemon/data/kinds/parquet/rows.h"

struct parquet {
    struct dataset base;
    struct parquet_table table;   /* owned */
    struct parquet_fields fields; /* owned */
    struct parquet_layout layout; /* owned; of samples of one shape */
    struct arrow_column *columns; /* owned; of each field: its place in the present row */
    struct fields media;          /* owned; how pictures and sounds in them are decoded */
};

/* A sample that is made of a row. */
struct parquet_row {
    struct parquet *parquet;
    struct parquet_group *group;
    uint64_t row;      /* of the group */
    const uint8_t *at; /* of samples of one shape; NULL: the group is in columns */
    struct decoding decoding;
    struct dl_error *err;
};

/* Sets the row's error: that column of the table is null in it. Returns -EINVAL. */
int parquet_refuse_null(const struct parquet_row *row, uint32_t column);

/* The number that a partition of the row is, or stands for its null. -EINVAL: it is null. */
int _nodiscard_ parquet_key_number(const struct parquet_row *row, uint32_t key, int64_t *ret);

/* Adds what a step of the fields is. An error is in row->err, or is the sample's own. */
int _nodiscard_ parquet_add_step(const struct parquet_row *row, const struct parquet_step *step,
                                 struct sample *ret);

/* Whether the field has a list for each row, and the number of elements in the row; LENGTH_UNKNOWN
 * if it is null. */
bool parquet_field_is_list(const struct parquet_fields *fields, uint32_t i);
int _nodiscard_ parquet_row_length(const struct parquet_row *row, uint32_t i, uint32_t *ret);

#endif
