/*
 * A value of an Arrow column as part of a sample: numbers as tensors without dimensions, lists of
 * numbers as tensors, strings and bytes, structs as dicts, other lists as lists. Dates, times and
 * durations are the numbers they are stored as.
 */
#ifndef DL_DATA_ARROW_VALUE_H
#define DL_DATA_ARROW_VALUE_H

#include "daemon/data/field/field.h"
#include "daemon/data/kinds/arrow/arrow_column.h"

/* The data to read, and the options. */
struct arrow_reading {
    const struct arrow_schema *schema;
    const struct arrow_column *columns; /* of the batch; by slot */
    bool fill;                          /* nulls become `null`, and lists and texts empty */
    double null;
    const struct decoding *decoding; /* NULL: images and sounds stay as they are stored */
};

/*
 * Adds row `row` of field `i`, which is kept, under `name` (NULL below a list) at the end of `ret`.
 * Bytes not copied to the sample's arena stay in the mapped file. 0; or a negative errno with
 * `err`, whose message continues "its column x": "is null; ...". The sample's own errors are not in
 * `err`, but stick in `ret`.
 */
int _nodiscard_ arrow_value_add(const struct arrow_reading *reading, uint32_t i, uint64_t row,
                                const char *name, struct sample *ret, struct dl_error *err);

/* Copies rows of field `i`, which is_fixed, to `out`: row_bytes of one. Errors likewise. */
int _nodiscard_ arrow_value_copy(const struct arrow_reading *reading, uint32_t i, uint64_t row,
                                 void *out, struct dl_error *err);

/* Whether field `i` is a list of numbers, and its length in row `row`; LENGTH_UNKNOWN if it must be
 * read to know. */
bool arrow_value_is_list(const struct arrow_schema *schema, uint32_t i);
uint32_t arrow_value_length(const struct arrow_reading *reading, uint32_t i, uint64_t row);

/* Whether `null` can stand in all numbers of the columns that are kept. -EINVAL with `err` at
 * `place`.nulls: it cannot. */
int _nodiscard_ arrow_check_null(const struct arrow_schema *schema, double null, const char *place,
                                 struct dl_error *err);

#endif
