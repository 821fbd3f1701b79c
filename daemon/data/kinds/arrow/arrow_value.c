#include "daemon/data/kinds/arrow/arrow_value.h"

#include "daemon/data/collate/collate_batch.h"
#include "daemon/data/collate/lengths.h"
#include "daemon/data/kinds/arrow/arrow_elements.h"
#include "daemon/data/kinds/parquet/encoding.h"
#include "proto/dtype.h"

#include <errno.h>
#include <stdio.h>

enum {
    ARROW_VIEW = 16, /* bytes of one; the text of short ones stands in it */
    ARROW_VIEW_INLINE = 12,
    ARROW_BUFFER = 16,
};

/* One value of a column that is its field's own, or a dictionary's. */
struct arrow_value {
    const struct arrow_reading *reading;
    uint32_t i; /* its field */
    const struct arrow_column *column;
    uint64_t row;
    const char *name;
    bool null; /* or inside a null value: its content is ignored */
};

static int arrow_value_add_part(const struct arrow_value *whole, uint32_t i, uint64_t row,
                                const char *name, struct sample *ret, struct dl_error *err);

static const struct arrow_field *arrow_value_field(const struct arrow_value *value)
{
    return &value->reading->schema->fields[value->i];
}

/* ---- where texts are ------------------------------------------------------------------------ */

/* [length: 4] [the text, of up to 12 bytes], or [length] [its beginning: 4] [buffer: 4] [offset: 4]
 */
static bool arrow_value_view(const struct arrow_column *column, uint64_t row, const uint8_t **ret,
                             uint64_t *ret_len)
{
    const uint8_t *view = column->values + ARROW_VIEW * row;
    uint32_t head[4];
    uint64_t part[2];

    memcpy(head, view, sizeof head);
    *ret_len = head[0];
    *ret = view + 4;
    if (head[0] <= ARROW_VIEW_INLINE)
        return true;
    if (head[2] >= column->n_buffers)
        return false;
    memcpy(part, column->buffers + (uint64_t)ARROW_BUFFER * head[2], sizeof part);
    if (part[0] > column->text_bytes || part[1] > column->text_bytes - part[0] ||
        head[3] > part[1] || head[0] > part[1] - head[3])
        return false;
    *ret = column->text + part[0] + head[3];
    return true;
}

/* The bytes of a string or of bytes. */
static bool arrow_value_bytes(const struct arrow_field *field, const struct arrow_column *column,
                              uint64_t row, const uint8_t **ret, uint64_t *ret_len)
{
    uint64_t first;

    if (row >= column->length)
        return false;
    if (column->slices) {
        *ret = column->slices[row].data;
        *ret_len = column->slices[row].bytes;
        return true;
    }
    if (field->sort == ARROW_FIXED_BYTES) {
        *ret = column->values + row * field->width;
        *ret_len = field->width;
        return true;
    }
    if (field->is_view)
        return arrow_value_view(column, row, ret, ret_len);
    if (!arrow_part(field, column, row, column->text_bytes, &first, ret_len))
        return false;
    *ret = column->text + first;
    return true;
}

/* ---- lists ---------------------------------------------------------------------------------- */

static bool arrow_value_is_list_of_numbers(const struct arrow_schema *schema, uint32_t i)
{
    const struct arrow_field *child = &schema->fields[i + 1];

    if (schema->fields[i].is_rectangular)
        while (child->sort == ARROW_LIST && !child->has_dictionary)
            child++;
    return child->is_fixed;
}

/* The elements of a list that is not null. */
static int arrow_value_find_elements(const struct arrow_value *value,
                                     struct arrow_elements *elements, struct dl_error *err)
{
    const struct arrow_field *field = arrow_value_field(value);
    const struct arrow_column *child = arrow_reading_column(value->reading, value->i + 1);

    elements->i = value->i + 1;
    if (field->sort == ARROW_FIXED_LIST) {
        elements->first = value->row * field->width;
        elements->n = field->width;
    } else if (!arrow_part(field, value->column, value->row, child->length, &elements->first,
                           &elements->n)) {
        return arrow_refuse_offsets(err);
    }
    elements->shape[elements->ndim++] = elements->n;
    return 0;
}

static int arrow_value_add_numbers(const struct arrow_value *value, struct arrow_elements *elements,
                                   struct sample *ret, struct dl_error *err)
{
    const struct arrow_schema *schema = value->reading->schema;
    int r = 0;

    while (r == 0 && schema->fields[elements->i].sort == ARROW_LIST)
        r = arrow_elements_descend(value->reading, elements, err);
    return r < 0 ? r : arrow_elements_add(value->reading, elements, value->name, ret, err);
}

static int arrow_value_add_list(const struct arrow_value *value, struct sample *ret,
                                struct dl_error *err)
{
    struct arrow_elements elements = {0};
    int r = arrow_value_find_elements(value, &elements, err);

    if (r < 0)
        return r;
    if (arrow_value_is_list_of_numbers(value->reading->schema, value->i))
        return arrow_value_add_numbers(value, &elements, ret, err);
    r = sample_begin(ret, TREE_LIST, value->name);
    for (uint64_t at = 0; r == 0 && at < elements.n; at++)
        r = arrow_value_add_part(value, elements.i, elements.first + at, NULL, ret, err);
    return r < 0 ? r : sample_end(ret);
}

static int arrow_value_add_struct(const struct arrow_value *value, struct sample *ret,
                                  struct dl_error *err)
{
    const struct arrow_field *fields = value->reading->schema->fields;
    uint32_t i = value->i, end = i + fields[i].span;
    int r = sample_begin(ret, TREE_DICT, value->name);

    for (uint32_t child = i + 1; r == 0 && child < end; child += fields[child].span)
        r = arrow_value_add_part(value, child, value->row, fields[child].name, ret, err);
    return r < 0 ? r : sample_end(ret);
}

/* ---- texts and files ------------------------------------------------------------------------ */

static int arrow_value_add_text(const struct arrow_value *value, struct sample *ret,
                                struct dl_error *err)
{
    const struct arrow_field *own = arrow_value_field(value);
    struct field field = {.sort = own->sort == ARROW_STRING ? FIELD_TEXT : FIELD_BYTES,
                          .name = value->name};

    if (!arrow_value_bytes(own, value->column, value->row, &field.data, &field.bytes))
        return arrow_refuse_offsets(err);
    return field_add(&field, NULL, ret, err);
}

/* The field with a file's bytes: the value itself, or a field of its struct; or NULL. */
static const struct arrow_field *arrow_value_file_field(const struct arrow_value *value)
{
    const struct arrow_field *field = arrow_value_field(value), *end = field + field->span;

    if (field->sort == ARROW_BYTES)
        return field;
    for (const struct arrow_field *child = field + 1; child < end; child += child->span)
        if (child->sort == ARROW_BYTES && strcmp(child->name, "bytes") == 0)
            return child;
    return NULL;
}

/* An image, a sound, or another file marked by Hugging Face's features. */
static int arrow_value_add_file(const struct arrow_value *value, struct sample *ret,
                                struct dl_error *err)
{
    const struct arrow_field *own = arrow_value_field(value);
    const struct arrow_field *part = arrow_value_file_field(value);
    const struct arrow_column *column =
        part == own ? value->column : &value->reading->columns[part->slot];
    struct field field = {.sort = own->is_sound   ? FIELD_SOUND
                                  : own->is_image ? FIELD_IMAGE
                                                  : FIELD_BYTES,
                          .name = value->name};

    if (arrow_column_is_null(column, value->row))
        return dl_error_set(err, EINVAL, "",
                            "names a file elsewhere instead of holding its bytes; have "
                            "save_to_disk() embed the files");
    if (!arrow_value_bytes(part, column, value->row, &field.data, &field.bytes))
        return arrow_refuse_offsets(err);
    return field_add(&field, value->reading->decoding, ret, err);
}

/* ---- nulls ---------------------------------------------------------------------------------- */

/* A tensor of nulls only: a number, or a list as long as all others. */
static int arrow_value_add_filled(const struct arrow_value *value, struct sample *ret,
                                  struct dl_error *err)
{
    const struct arrow_schema *schema = value->reading->schema;
    const struct arrow_field *field = arrow_value_field(value);
    uint64_t shape[DL_BOUND_TENSOR_DIMS];
    uint32_t ndim = 0;
    uint32_t base = arrow_schema_base(schema, value->i, ARROW_MOST_DIMS, &ndim, shape);

    if (base == ARROW_NONE)
        return arrow_refuse_dimensions(err);
    uint32_t dtype = schema->fields[base].dtype;
    uint8_t *data = sample_alloc(ret, field->row_bytes);
    if (!data)
        return ret->error;
    arrow_fill(value->reading, dtype, field->row_bytes / dtype_bytes(dtype), data);
    return sample_tensor(ret, value->name, dtype, ndim, shape, data);
}

/* A list of numbers without elements. */
static int arrow_value_add_empty(const struct arrow_value *value, struct sample *ret,
                                 struct dl_error *err)
{
    const struct arrow_schema *schema = value->reading->schema;
    struct arrow_elements elements = {.i = value->i + 1, .ndim = 1};

    while (schema->fields[elements.i].sort == ARROW_LIST && elements.ndim < ARROW_MOST_DIMS) {
        elements.shape[elements.ndim++] = 0;
        elements.i++;
    }
    return arrow_elements_add(value->reading, &elements, value->name, ret, err);
}

static int arrow_value_refuse_type(const struct arrow_field *field, struct dl_error *err)
{
    return dl_error_set(err, ENOTSUP, "", "is of type %s, which cannot be read", field->type);
}

static int arrow_value_add_null(const struct arrow_value *value, struct sample *ret,
                                struct dl_error *err)
{
    const struct arrow_field *field = arrow_value_field(value);
    int r;

    if (!value->reading->fill || field->is_media)
        return arrow_refuse_null(err);
    switch (field->sort) {
    case ARROW_STRING:
        return sample_text(ret, TREE_STRING, value->name, "", 0);
    case ARROW_BYTES:
    case ARROW_FIXED_BYTES:
        return sample_text(ret, TREE_BYTES, value->name, "", 0);
    case ARROW_LIST:
        if (arrow_value_is_list_of_numbers(value->reading->schema, value->i))
            return arrow_value_add_empty(value, ret, err);
        r = sample_begin(ret, TREE_LIST, value->name);
        return r < 0 ? r : sample_end(ret);
    case ARROW_NUMBER:
    case ARROW_DECIMAL:
    case ARROW_BOOL:
    case ARROW_NULL:
        return arrow_value_add_filled(value, ret, err);
    case ARROW_FIXED_LIST:
        return field->is_fixed ? arrow_value_add_filled(value, ret, err)
                               : arrow_value_add_list(value, ret, err);
    case ARROW_STRUCT:
        return arrow_value_add_struct(value, ret, err);
    case ARROW_OTHER:
        break;
    }
    return arrow_value_refuse_type(field, err);
}

static int arrow_value_add_decimal(const struct arrow_value *value, struct sample *ret,
                                   struct dl_error *err)
{
    const struct arrow_field *field = arrow_value_field(value);
    uint8_t *data = sample_alloc(ret, field->row_bytes);

    if (!data)
        return ret->error;
    int r = arrow_elements_decimals(field, value->column, value->row, 1, data, err);
    return r < 0 ? r : sample_tensor(ret, value->name, field->dtype, 0, NULL, data);
}

/* ---- any value ------------------------------------------------------------------------------ */

/* One that is not null. */
static int arrow_value_add_plain(const struct arrow_value *value, struct sample *ret,
                                 struct dl_error *err)
{
    const struct arrow_field *field = arrow_value_field(value);
    const uint8_t *values = value->column->values;

    if (field->is_media)
        return arrow_value_add_file(value, ret, err);
    switch (field->sort) {
    case ARROW_NUMBER:
        return sample_tensor(ret, value->name, field->dtype, 0, NULL,
                             values + value->row * field->width);
    case ARROW_DECIMAL:
        return arrow_value_add_decimal(value, ret, err);
    case ARROW_BOOL:
        return sample_bool(ret, value->name, arrow_bit(values, value->row));
    case ARROW_STRING:
    case ARROW_BYTES:
    case ARROW_FIXED_BYTES:
        return arrow_value_add_text(value, ret, err);
    case ARROW_LIST:
    case ARROW_FIXED_LIST:
        return arrow_value_add_list(value, ret, err);
    case ARROW_STRUCT:
        return arrow_value_add_struct(value, ret, err);
    case ARROW_NULL:
    case ARROW_OTHER:
        break;
    }
    return arrow_value_refuse_type(field, err);
}

/* The value's number in its dictionary; negative ones are beyond any. */
static uint64_t arrow_value_index(const struct arrow_value *value)
{
    uint32_t dtype = arrow_value_field(value)->index_type;
    uint64_t bytes = dtype_bytes(dtype), n = 0;

    memcpy(&n, value->column->values + value->row * bytes, bytes);
    return n;
}

static int arrow_value_add_part(const struct arrow_value *whole, uint32_t i, uint64_t row,
                                const char *name, struct sample *ret, struct dl_error *err)
{
    struct arrow_value value = {.reading = whole->reading,
                                .i = i,
                                .column = arrow_reading_column(whole->reading, i),
                                .row = row,
                                .name = name};

    if (row >= value.column->length)
        return arrow_refuse_offsets(err);
    value.null = whole->null || arrow_column_is_null(value.column, row) ||
                 arrow_value_field(&value)->sort == ARROW_NULL;
    if (!value.null && arrow_value_field(&value)->has_dictionary) {
        value.row = arrow_value_index(&value);
        value.column = value.column->dictionary;
        if (value.row >= value.column->length)
            return dl_error_set(err, EINVAL, "",
                                "has a number that is not in its dictionary; the file is damaged");
        value.null = arrow_column_is_null(value.column, value.row);
    }
    return value.null ? arrow_value_add_null(&value, ret, err)
                      : arrow_value_add_plain(&value, ret, err);
}

int arrow_value_add(const struct arrow_reading *reading, uint32_t i, uint64_t row, const char *name,
                    struct sample *ret, struct dl_error *err)
{
    const struct arrow_value all = {.reading = reading};

    return arrow_value_add_part(&all, i, row, name, ret, err);
}

int arrow_value_copy(const struct arrow_reading *reading, uint32_t i, uint64_t row, void *out,
                     struct dl_error *err)
{
    return arrow_elements_copy(reading, i, row, 1, out, err);
}

/* ---- without reading ------------------------------------------------------------------------- */

bool arrow_value_is_list(const struct arrow_schema *schema, uint32_t i)
{
    const struct arrow_field *field = &schema->fields[i];

    return (field->sort == ARROW_LIST || field->sort == ARROW_FIXED_LIST) &&
           arrow_value_is_list_of_numbers(schema, i);
}

uint32_t arrow_value_length(const struct arrow_reading *reading, uint32_t i, uint64_t row)
{
    struct arrow_value value = {
        .reading = reading, .i = i, .column = arrow_reading_column(reading, i), .row = row};
    struct arrow_elements elements = {0};

    if (row >= value.column->length || arrow_column_is_null(value.column, row) ||
        arrow_value_find_elements(&value, &elements, NULL) < 0)
        return LENGTH_UNKNOWN;
    return (uint32_t)min_u64(elements.n, LENGTH_UNKNOWN);
}

/* The dtype of a number below field `i` that does not have `null`; 0: all have. */
static uint32_t arrow_value_without_null(const struct arrow_schema *schema, uint32_t i, double null)
{
    const struct arrow_field *column = &schema->fields[i];
    uint8_t element[ARROW_LARGEST_ELEMENT];

    for (uint32_t at = 0; at < column->span; at++)
        if (column[at].dtype && collate_element(null, column[at].dtype, element) < 0)
            return column[at].dtype;
    return 0;
}

int arrow_check_null(const struct arrow_schema *schema, double null, const char *place,
                     struct dl_error *err)
{
    char key[DL_ERROR_PATH_MAX];

    snprintf(key, sizeof key, "%s.nulls", place);
    for (uint32_t i = 0; i < schema->n; i += schema->fields[i].span) {
        const struct arrow_field *column = &schema->fields[i];
        uint32_t dtype = column->slot == ARROW_NONE ? 0 : arrow_value_without_null(schema, i, null);
        if (dtype)
            return dl_error_set(err, EINVAL, key,
                                "%g is not a value of the column %s, whose numbers are %s", null,
                                column->name, dtype_name(dtype));
    }
    return 0;
}
