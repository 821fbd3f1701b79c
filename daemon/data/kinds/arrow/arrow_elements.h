/*
 * Numbers of Arrow columns, one or many, with the nulls among them: what arrow_value.h makes
 * tensors of.
 */
#ifndef DL_DATA_ARROW_ELEMENTS_H
#define DL_DATA_ARROW_ELEMENTS_H

#include "daemon/data/kinds/arrow/arrow_value.h"
#include "proto/limits.h"

enum { ARROW_LARGEST_ELEMENT = 16 }; /* bytes */

enum { ARROW_MOST_DIMS = DL_BOUND_TENSOR_DIMS - 1 }; /* a batch adds one */

/* Elements of a tensor: `n` values of field `i`, whose own fixed lists add dimensions. */
struct arrow_elements {
    uint32_t i;
    uint64_t first;
    uint64_t n;
    uint32_t ndim;
    uint64_t shape[DL_BOUND_TENSOR_DIMS];
};

static inline const struct arrow_column *arrow_reading_column(const struct arrow_reading *reading,
                                                              uint32_t i)
{
    return &reading->columns[reading->schema->fields[i].slot];
}

/* Errors of a value, whose messages continue "its column x". */
int arrow_refuse_null(struct dl_error *err);
int arrow_refuse_offsets(struct dl_error *err);
int arrow_refuse_dimensions(struct dl_error *err);

/* The part of what has `bound` items that value `row`, which is there, is; false: it leads out of
 * them. */
bool arrow_part(const struct arrow_field *field, const struct arrow_column *column, uint64_t row,
                uint64_t bound, uint64_t *ret_first, uint64_t *ret_n);

/* `n` elements that stand for nulls. That `null` fits the dtype was looked at before. */
void arrow_fill(const struct arrow_reading *reading, uint32_t dtype, uint64_t n, uint8_t *out);

/* `n` values of field `i`, which is_fixed, from `first` on. As arrow_value_copy(). */
int _nodiscard_ arrow_elements_copy(const struct arrow_reading *reading, uint32_t i, uint64_t first,
                                    uint64_t n, uint8_t *out, struct dl_error *err);

/* `n` decimal numbers of a column from `first` on, which are there; nulls are passed over. As
 * arrow_value_copy(). */
int _nodiscard_ arrow_elements_decimals(const struct arrow_field *field,
                                        const struct arrow_column *column, uint64_t first,
                                        uint64_t n, uint8_t *out, struct dl_error *err);

/* Descends into nested lists, which must be equally long: adds one dimension. */
int _nodiscard_ arrow_elements_descend(const struct arrow_reading *reading,
                                       struct arrow_elements *elements, struct dl_error *err);

/* Adds a tensor of the elements, of a field that is_fixed: in their place, or a copy. As
 * arrow_value_add(). */
int _nodiscard_ arrow_elements_add(const struct arrow_reading *reading,
                                   struct arrow_elements *elements, const char *name,
                                   struct sample *ret, struct dl_error *err);

#endif
