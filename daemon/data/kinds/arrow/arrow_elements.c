#include "daemon/data/kinds/arrow/arrow_elements.h"

#include "daemon/data/base/decimal.h"
#include "daemon/data/collate/collate_batch.h"
#include "proto/dtype.h"

#include <errno.h>

int arrow_refuse_null(struct dl_error *err)
{
    return dl_error_set(err, EINVAL, "",
                        "is null, or has a null in it; fill nulls with dataset.nulls, such as "
                        "nulls: 0, or choose other columns with dataset.fields");
}

int arrow_refuse_offsets(struct dl_error *err)
{
    return dl_error_set(err, EINVAL, "",
                        "has offsets that point outside its data; the file is damaged");
}

int arrow_refuse_dimensions(struct dl_error *err)
{
    return dl_error_set(err, ENOTSUP, "", "has more than %d dimensions", ARROW_MOST_DIMS);
}

/* ---- offsets -------------------------------------------------------------------------------- */

static uint64_t arrow_offset(const uint8_t *offsets, bool large, uint64_t i)
{
    uint64_t n64;
    uint32_t n32;

    if (large) {
        memcpy(&n64, offsets + 8 * i, sizeof n64);
        return n64;
    }
    memcpy(&n32, offsets + 4 * i, sizeof n32);
    return n32;
}

/* The part of what has `bound` items that value `row` is; false: it leads out of them. */
bool arrow_part(const struct arrow_field *field, const struct arrow_column *column, uint64_t row,
                uint64_t bound, uint64_t *ret_first, uint64_t *ret_n)
{
    uint64_t first = arrow_offset(column->values, field->is_large, row) - column->begin;

    *ret_first = first;
    if (field->has_sizes)
        *ret_n = arrow_offset(column->text, field->is_large, row);
    else
        *ret_n = arrow_offset(column->values, field->is_large, row + 1) - column->begin - first;
    return first <= bound && *ret_n <= bound - first;
}

/* ---- numbers -------------------------------------------------------------------------------- */

static bool arrow_any_null(const struct arrow_column *column, uint64_t first, uint64_t n)
{
    uint64_t at = first, end = first + n;

    if (!column->validity && !column->defs)
        return false;
    while (at < end) {
        if (column->validity && at % 8 == 0 && end - at >= 8 && column->validity[at / 8] == 0xFF) {
            at += 8;
            continue;
        }
        if (arrow_column_is_null(column, at++))
            return true;
    }
    return false;
}

/* `n` elements that stand for nulls. That `null` fits the dtype was looked at before. */
void arrow_fill(const struct arrow_reading *reading, uint32_t dtype, uint64_t n, uint8_t *out)
{
    uint8_t element[ARROW_LARGEST_ELEMENT];
    uint64_t bytes = dtype_bytes(dtype);

    (void)!collate_element(reading->null, dtype, element);
    for (uint64_t i = 0; i < n; i++)
        memcpy(out + i * bytes, element, bytes);
}

static void arrow_unpack_bits(const uint8_t *bits, uint64_t first, uint64_t n, uint8_t *out)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] = arrow_bit(bits, first + i);
}

/* Copies fixed lists, whose elements are the child's. */
static int arrow_elements_copy_lists(const struct arrow_reading *reading, uint32_t i,
                                     uint64_t first, uint64_t n, uint8_t *out, struct dl_error *err)
{
    const struct arrow_field *field = &reading->schema->fields[i];
    const struct arrow_column *column = arrow_reading_column(reading, i);
    uint32_t ndim = 0;
    uint64_t shape[ARROW_MOST_DIMS];
    int r = 0;

    if (!arrow_any_null(column, first, n))
        return arrow_elements_copy(reading, i + 1, first * field->width, n * field->width, out,
                                   err);
    if (!reading->fill)
        return arrow_refuse_null(err);
    uint32_t base = arrow_schema_base(reading->schema, i, ARROW_MOST_DIMS, &ndim, shape);
    if (base == ARROW_NONE)
        return arrow_refuse_dimensions(err);
    const struct arrow_field *number = &reading->schema->fields[base];
    uint64_t bytes = field->row_bytes, elements = bytes / dtype_bytes(number->dtype);
    for (uint64_t row = first; r == 0 && row < first + n; row++, out += bytes) {
        if (arrow_column_is_null(column, row))
            arrow_fill(reading, number->dtype, elements, out);
        else
            r = arrow_elements_copy(reading, i + 1, row * field->width, field->width, out, err);
    }
    return r;
}

int arrow_elements_decimals(const struct arrow_field *field, const struct arrow_column *column,
                            uint64_t first, uint64_t n, uint8_t *out, struct dl_error *err)
{
    int r = 0;

    for (uint64_t row = first; r == 0 && row < first + n; row++, out += field->row_bytes)
        if (!arrow_column_is_null(column, row))
            r = decimal_element(column->values + row * field->width, field->width, false,
                                field->scale, field->dtype, out, err);
    return r;
}

/* `n` values of field `i`, which is_fixed, from `first` on. */
int arrow_elements_copy(const struct arrow_reading *reading, uint32_t i, uint64_t first, uint64_t n,
                        uint8_t *out, struct dl_error *err)
{
    const struct arrow_field *field = &reading->schema->fields[i];
    const struct arrow_column *column = arrow_reading_column(reading, i);

    if (first > column->length || n > column->length - first)
        return arrow_refuse_offsets(err);
    if (n == 0)
        return 0;
    int r = 0;
    if (field->sort == ARROW_NUMBER)
        memcpy(out, column->values + first * field->width, n * field->width);
    else if (field->sort == ARROW_FIXED_LIST)
        return arrow_elements_copy_lists(reading, i, first, n, out, err);
    else if (field->sort == ARROW_BOOL)
        arrow_unpack_bits(column->values, first, n, out);
    else if (field->sort == ARROW_DECIMAL)
        r = arrow_elements_decimals(field, column, first, n, out, err);
    else if (reading->fill) /* ARROW_NULL */
        arrow_fill(reading, field->dtype, n, out);
    else
        return arrow_refuse_null(err);
    if (r < 0 || !arrow_any_null(column, first, n))
        return r;
    if (!reading->fill)
        return arrow_refuse_null(err);
    for (uint64_t at = 0; at < n; at++)
        if (arrow_column_is_null(column, first + at))
            arrow_fill(reading, field->dtype, 1, out + at * field->row_bytes);
    return 0;
}

/* ---- tensors -------------------------------------------------------------------------------- */

/* Where the elements lie in the file, if contiguous and without nulls; else NULL: they must be
 * copied. */
static const uint8_t *arrow_elements_in_place(const struct arrow_reading *reading,
                                              const struct arrow_elements *elements)
{
    const struct arrow_field *field = &reading->schema->fields[elements->i];
    uint64_t first = elements->first, n = elements->n;

    for (;; field++) {
        const struct arrow_column *column = &reading->columns[field->slot];
        if (first > column->length || n > column->length - first || n == 0 ||
            arrow_any_null(column, first, n) ||
            (field->sort != ARROW_NUMBER && field->sort != ARROW_FIXED_LIST))
            return NULL;
        if (field->sort == ARROW_NUMBER)
            return column->values + first * field->width;
        first *= field->width;
        n *= field->width;
    }
}

int arrow_elements_add(const struct arrow_reading *reading, struct arrow_elements *elements,
                       const char *name, struct sample *ret, struct dl_error *err)
{
    const struct arrow_field *field = &reading->schema->fields[elements->i];
    uint32_t base = arrow_schema_base(reading->schema, elements->i, ARROW_MOST_DIMS,
                                      &elements->ndim, elements->shape);
    const uint8_t *data = NULL;
    uint8_t *copy;

    if (base == ARROW_NONE)
        return arrow_refuse_dimensions(err);
    uint32_t dtype = reading->schema->fields[base].dtype;
    data = arrow_elements_in_place(reading, elements);
    if (data)
        return sample_tensor(ret, name, dtype, elements->ndim, elements->shape, data);
    const struct arrow_column *column = arrow_reading_column(reading, elements->i);
    if (elements->first > column->length || elements->n > column->length - elements->first)
        return arrow_refuse_offsets(err);
    copy = sample_alloc(ret, elements->n * field->row_bytes);
    if (!copy)
        return ret->error;
    int r = arrow_elements_copy(reading, elements->i, elements->first, elements->n, copy, err);
    return r < 0 ? r : sample_tensor(ret, name, dtype, elements->ndim, elements->shape, copy);
}

/* Lists in lists that are as long as each other: one dimension more. */
int arrow_elements_descend(const struct arrow_reading *reading, struct arrow_elements *elements,
                           struct dl_error *err)
{
    const struct arrow_field *field = &reading->schema->fields[elements->i];
    const struct arrow_column *column = arrow_reading_column(reading, elements->i);
    uint64_t bound = arrow_reading_column(reading, elements->i + 1)->length;
    uint64_t begin = 0, own = 0, first = 0, n = 0;

    if (elements->ndim == ARROW_MOST_DIMS)
        return arrow_refuse_dimensions(err);
    if (elements->first > column->length || elements->n > column->length - elements->first)
        return arrow_refuse_offsets(err);
    for (uint64_t at = 0; at < elements->n; at++) {
        uint64_t row = elements->first + at;
        if (arrow_column_is_null(column, row))
            return arrow_refuse_null(err);
        if (!arrow_part(field, column, row, bound, &begin, &own))
            return arrow_refuse_offsets(err);
        if (at == 0) {
            first = begin;
            n = own;
        }
        if (own != n || begin != first + at * n)
            return dl_error_set(err, EINVAL, "",
                                "is not an array: its inner lists have %llu and %llu elements",
                                (ull)n, (ull)own);
    }
    elements->shape[elements->ndim++] = n;
    elements->i++;
    elements->first = first;
    elements->n *= n;
    return 0;
}
