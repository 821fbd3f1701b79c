#include "daemon/data/kinds/arrow/arrow_schema.h"

#include "daemon/data/base/decimal.h"
#include "daemon/data/kinds/arrow/arrow_message.h"
#include "proto/common/array.h"
#include "proto/dtype.h"
#include "proto/limits.h"

#include <errno.h>
#include <stdio.h>

/* Tables' fields by their numbers in Schema.fbs. */
enum {
    SCHEMA_ENDIANNESS,
    SCHEMA_FIELDS,
    SCHEMA_METADATA,
    FIELD_NAME = 0,
    FIELD_TYPE_TYPE = 2,
    FIELD_TYPE,
    FIELD_DICTIONARY,
    FIELD_CHILDREN,
    ENCODING_ID = 0,
    ENCODING_INDEX,
};

/* Nesting of fields, at most. */
enum { ARROW_SCHEMA_DEEPEST = 24 };

/* On the way through a schema. */
struct arrow_schema_walk {
    struct flat *flat;
    const char *path;
    struct arrow_schema *ret;
    struct dl_error *err;
};

/* ---- types ---------------------------------------------------------------------------------- */

static void arrow_schema_number(struct arrow_field *field, uint32_t dtype)
{
    field->sort = dtype ? ARROW_NUMBER : ARROW_OTHER;
    field->dtype = dtype;
    field->width = dtype ? dtype_bytes(dtype) : 0;
    field->type = dtype ? dtype_name(dtype) : "a number";
}

static uint32_t arrow_schema_float_type(int64_t precision)
{
    static const uint32_t types[] = {DL_DTYPE_FLOAT16, DL_DTYPE_FLOAT32, DL_DTYPE_FLOAT64};

    return precision >= 0 && precision < (int64_t)ARRAY_SIZE(types) ? types[precision] : 0;
}

/* The types of Schema.fbs, by their numbers in its union, and how many buffers each has. */
static const struct {
    const char *name;
    enum arrow_sort sort;
    uint8_t buffers;
    bool is_large;
    bool is_view;
} arrow_schema_types[] = {
    [1] = {"null", ARROW_NULL, 0, false, false},
    [2] = {"int", ARROW_NUMBER, 2, false, false},
    [3] = {"float", ARROW_NUMBER, 2, false, false},
    [4] = {"binary", ARROW_BYTES, 3, false, false},
    [5] = {"string", ARROW_STRING, 3, false, false},
    [6] = {"bool", ARROW_BOOL, 2, false, false},
    [7] = {"decimal", ARROW_DECIMAL, 2, false, false},
    [8] = {"date", ARROW_NUMBER, 2, false, false},
    [9] = {"time", ARROW_NUMBER, 2, false, false},
    [10] = {"timestamp", ARROW_NUMBER, 2, false, false},
    [11] = {"interval", ARROW_OTHER, 2, false, false},
    [12] = {"list", ARROW_LIST, 2, false, false},
    [13] = {"struct", ARROW_STRUCT, 1, false, false},
    [14] = {"union", ARROW_OTHER, 1, false, false},
    [15] = {"fixed_size_binary", ARROW_FIXED_BYTES, 2, false, false},
    [16] = {"fixed_size_list", ARROW_FIXED_LIST, 1, false, false},
    [17] = {"map", ARROW_LIST, 2, false, false}, /* of structs: of a key and a value */
    [18] = {"duration", ARROW_NUMBER, 2, false, false},
    [19] = {"large_binary", ARROW_BYTES, 3, true, false},
    [20] = {"large_string", ARROW_STRING, 3, true, false},
    [21] = {"large_list", ARROW_LIST, 2, true, false},
    [22] = {"run_end_encoded", ARROW_OTHER, 0, false, false},
    [23] = {"binary_view", ARROW_BYTES, 2, false, true},
    [24] = {"string_view", ARROW_STRING, 2, false, true},
    [25] = {"list_view", ARROW_LIST, 3, false, false},
    [26] = {"large_list_view", ARROW_LIST, 3, true, false},
};

enum { UNION_DENSE = 1, UNIT_DAY = 0, UNIT_MILLISECOND = 1 };

/* What of the type stands in its own table. */
static void arrow_schema_read_details(struct flat *flat, const struct flat_table *type,
                                      int64_t number, struct arrow_field *field)
{
    switch (number) {
    case 1:
        field->dtype = DL_DTYPE_INT32;
        break;
    case 2:
        arrow_schema_number(field, dtype_integer(flat_int(flat, type, 0, 4, 0),
                                                 flat_int(flat, type, 1, 1, 0) != 0));
        break;
    case 3:
        arrow_schema_number(field, arrow_schema_float_type(flat_int(flat, type, 0, 2, 0)));
        break;
    case 6:
        field->dtype = DL_DTYPE_BOOL;
        break;
    case 7: /* decimal: precision, scale and bits */
        field->scale = (int32_t)flat_int(flat, type, 1, 4, 0);
        field->width = (uint64_t)flat_int(flat, type, 2, 4, 128) / 8;
        flat->bad |= field->width == 0 || field->width > 32;
        break;
    case 8: /* days in 32 bits, or milliseconds in 64 */
        arrow_schema_number(field, flat_int(flat, type, 0, 2, UNIT_MILLISECOND) == UNIT_DAY
                                       ? DL_DTYPE_INT32
                                       : DL_DTYPE_INT64);
        break;
    case 9:
        arrow_schema_number(field, dtype_integer(flat_int(flat, type, 1, 4, 32), true));
        break;
    case 10:
    case 18:
        arrow_schema_number(field, DL_DTYPE_INT64);
        break;
    case 14:
        field->n_buffers += flat_int(flat, type, 0, 2, 0) == UNION_DENSE;
        break;
    case 15:
    case 16:
        field->width = (uint64_t)flat_int(flat, type, 0, 4, 0);
        flat->bad |= field->width > INT32_MAX;
        break;
    default:
        break;
    }
}

static void arrow_schema_read_type(struct flat *flat, const struct flat_table *table,
                                   struct arrow_field *field)
{
    int64_t number = flat_int(flat, table, FIELD_TYPE_TYPE, 1, 0);
    struct flat_table type = flat_sub(flat, table, FIELD_TYPE);

    if (number <= 0 || number >= (int64_t)ARRAY_SIZE(arrow_schema_types) || type.at == 0) {
        flat->bad = true;
        return;
    }
    field->type = arrow_schema_types[number].name;
    field->sort = arrow_schema_types[number].sort;
    field->n_buffers = arrow_schema_types[number].buffers;
    field->is_large = arrow_schema_types[number].is_large;
    field->is_view = arrow_schema_types[number].is_view;
    field->is_map = number == 17;
    field->has_sizes = field->sort == ARROW_LIST && field->n_buffers == 3;
    arrow_schema_read_details(flat, &type, number, field);
}

static void arrow_schema_read_dictionary(struct flat *flat, const struct flat_table *table,
                                         struct arrow_field *field)
{
    struct flat_table dictionary = flat_sub(flat, table, FIELD_DICTIONARY);
    struct flat_table index;

    if (dictionary.at == 0)
        return;
    index = flat_sub(flat, &dictionary, ENCODING_INDEX);
    field->has_dictionary = true;
    field->dictionary = flat_int(flat, &dictionary, ENCODING_ID, 8, 0);
    field->index_type = DL_DTYPE_INT32;
    if (index.at != 0)
        field->index_type =
            dtype_integer(flat_int(flat, &index, 0, 4, 0), flat_int(flat, &index, 1, 1, 0) != 0);
    if (field->index_type == 0 || field->sort == ARROW_NULL)
        field->sort = ARROW_OTHER;
}

/* ---- fields --------------------------------------------------------------------------------- */

static int arrow_schema_refuse(const struct arrow_schema_walk *walk, const char *why)
{
    return dl_error_set(walk->err, EINVAL, walk->path, "its schema %s", why);
}

/* One more at the end. A vector may name one table many times: what there is for a field in the
 * message bounds how many there can be. */
static int arrow_schema_append(const struct arrow_schema_walk *walk, uint32_t *ret)
{
    struct arrow_schema *schema = walk->ret;

    if (schema->n > walk->flat->bytes / 8)
        return arrow_schema_refuse(walk, "is damaged: it has more fields than bytes for them");
    if (!array_reserve(schema->fields, schema->room, schema->n + UINT64_C(1)))
        return dl_error_set(walk->err, ENOMEM, walk->path, "out of memory for its schema");
    *ret = schema->n;
    schema->fields[schema->n++] = (struct arrow_field){.slot = ARROW_NONE};
    return 0;
}

static int arrow_schema_read_name(const struct arrow_schema_walk *walk,
                                  const struct flat_table *table, struct arrow_field *field)
{
    uint32_t len;
    const char *name = flat_string(walk->flat, table, FIELD_NAME, &len);

    if (len > DL_MAX_NAME_BYTES || (name && memchr(name, '\0', len)))
        return arrow_schema_refuse(walk, "has a column whose name is longer than 128 bytes; "
                                         "rename it");
    field->name = strndup(name ? name : "", len);
    return field->name
               ? 0
               : dl_error_set(walk->err, ENOMEM, walk->path, "out of memory for its schema");
}

void arrow_schema_judge(struct arrow_schema *schema, uint32_t i)
{
    struct arrow_field *field = &schema->fields[i];
    const struct arrow_field *child = field + 1;

    if (field->dtype) {
        field->is_fixed = !field->has_dictionary;
        field->row_bytes = dtype_bytes(field->dtype);
    }
    if (field->sort == ARROW_FIXED_LIST && field->span > 1 && child->is_fixed)
        field->is_fixed = !mul_overflows(child->row_bytes, field->width, &field->row_bytes);
}

static int arrow_schema_rename(const struct arrow_schema_walk *walk, struct arrow_field *field,
                               char *name)
{
    if (!name)
        return dl_error_set(walk->err, ENOMEM, walk->path, "out of memory for its schema");
    free(field->name);
    field->name = name;
    return 0;
}

/* Field `i` is a map: writers call its structs' parts by names of their own. */
static int arrow_schema_name_entries(const struct arrow_schema_walk *walk, uint32_t i)
{
    struct arrow_field *entries = &walk->ret->fields[i + 1], *key = entries + 1;

    if (walk->ret->fields[i].n_children != 1 || entries->n_children != 2)
        return 0;
    int r = arrow_schema_rename(walk, key, strdup("key"));
    return r < 0 ? r : arrow_schema_rename(walk, key + key->span, strdup("value"));
}

/* A list must have one child, and a dictionary's value none: else its form is unknown. */
static void arrow_schema_check_children(struct arrow_field *field)
{
    bool list = field->sort == ARROW_LIST || field->sort == ARROW_FIXED_LIST;
    bool good =
        list ? field->n_children == 1
             : field->n_children == 0 || field->sort == ARROW_STRUCT || field->sort == ARROW_OTHER;

    if (!good || (field->has_dictionary && (list || field->sort == ARROW_STRUCT)))
        field->sort = ARROW_OTHER;
}

static int arrow_schema_read_field(const struct arrow_schema_walk *walk,
                                   const struct flat_table *table, uint32_t depth)
{
    uint32_t i = 0;
    int r = depth > ARROW_SCHEMA_DEEPEST ? arrow_schema_refuse(walk, "is nested too deeply")
                                         : arrow_schema_append(walk, &i);

    if (r < 0)
        return r;
    struct arrow_schema *schema = walk->ret;
    struct flat_vector children = flat_vector(walk->flat, table, FIELD_CHILDREN, 4);
    arrow_schema_read_type(walk->flat, table, &schema->fields[i]);
    arrow_schema_read_dictionary(walk->flat, table, &schema->fields[i]);
    schema->fields[i].n_children = children.n;
    r = arrow_schema_read_name(walk, table, &schema->fields[i]);
    for (uint32_t c = 0; r == 0 && c < children.n; c++) {
        struct flat_table child = flat_item(walk->flat, &children, c);
        r = arrow_schema_read_field(walk, &child, depth + 1);
    }
    schema->fields[i].span = schema->n - i;
    if (r == 0 && schema->fields[i].is_map)
        r = arrow_schema_name_entries(walk, i);
    arrow_schema_check_children(&schema->fields[i]);
    arrow_schema_judge(schema, i);
    return r;
}

/* As pandas calls a column without a name, of CSV. */
static int arrow_schema_name_column(const struct arrow_schema_walk *walk, struct arrow_field *field,
                                    uint32_t number)
{
    char *name;

    return arrow_schema_rename(walk, field,
                               asprintf(&name, "Unnamed: %u", number) < 0 ? NULL : name);
}

/* ---- all of it ------------------------------------------------------------------------------ */

int arrow_schema_read(struct flat *flat, const struct flat_table *schema, const char *path,
                      struct arrow_schema *ret, struct dl_error *err)
{
    struct arrow_schema found = {0};
    struct arrow_schema_walk walk = {.flat = flat, .path = path, .ret = &found, .err = err};
    struct flat_vector columns = flat_vector(flat, schema, SCHEMA_FIELDS, 4);
    int r = 0;

    if (flat_int(flat, schema, SCHEMA_ENDIANNESS, 2, 0) != 0)
        return arrow_schema_refuse(&walk, "says that numbers are big-endian; write the file on a "
                                          "little-endian machine");
    for (uint32_t i = 0, at = 0; r == 0 && i < columns.n; i++, at = found.n) {
        struct flat_table column = flat_item(flat, &columns, i);
        r = arrow_schema_read_field(&walk, &column, 0);
        if (r == 0 && !*found.fields[at].name)
            r = arrow_schema_name_column(&walk, &found.fields[at], i);
    }
    struct flat_vector pairs = flat_vector(flat, schema, SCHEMA_METADATA, 4);
    found.features = arrow_pair(flat, &pairs, "huggingface", &found.features_len);
    if (r == 0 && (flat->bad || schema->at == 0))
        r = arrow_schema_refuse(&walk, "is damaged; write the file again");
    if (r < 0)
        arrow_schema_deinit(&found);
    else
        *ret = found;
    return r;
}

void arrow_schema_deinit(struct arrow_schema *schema)
{
    for (uint32_t i = 0; i < schema->n; i++)
        free(schema->fields[i].name);
    free(schema->fields);
    *schema = (struct arrow_schema){0};
}

uint32_t arrow_schema_find(const struct arrow_schema *schema, const char *name)
{
    for (uint32_t i = 0; i < schema->n; i += schema->fields[i].span)
        if (strcmp(schema->fields[i].name, name) == 0)
            return i;
    return ARROW_NONE;
}

void arrow_schema_set_types(struct arrow_schema *schema, const struct value *types)
{
    for (uint32_t i = 0, next; i < schema->n; i = next) {
        uint32_t dtype = decimal_type(types, schema->fields[i].name);
        next = i + schema->fields[i].span;
        for (uint32_t at = next; dtype && at-- > i;) { /* children come first */
            if (schema->fields[at].sort == ARROW_DECIMAL)
                schema->fields[at].dtype = dtype;
            arrow_schema_judge(schema, at);
        }
    }
}

bool arrow_schema_has_decimals(const struct arrow_schema *schema, uint32_t i)
{
    for (uint32_t at = i; at < i + schema->fields[i].span; at++)
        if (schema->fields[at].sort == ARROW_DECIMAL)
            return true;
    return false;
}

void arrow_schema_keep(struct arrow_schema *schema, uint32_t i)
{
    const struct arrow_field *column = &schema->fields[i];

    for (uint32_t at = i; at < i + column->span; at++)
        if (schema->fields[at].slot == ARROW_NONE)
            schema->fields[at].slot = schema->n_slots++;
}

static bool arrow_schema_is_alike(const struct arrow_field *a, const struct arrow_field *b)
{
    return strcmp(a->name, b->name) == 0 && a->sort == b->sort && a->dtype == b->dtype &&
           a->width == b->width && a->n_children == b->n_children && a->span == b->span &&
           a->is_large == b->is_large && a->is_view == b->is_view && a->has_sizes == b->has_sizes &&
           a->scale == b->scale && a->has_dictionary == b->has_dictionary && a->slot == b->slot;
}

bool arrow_schema_agree(const struct arrow_schema *a, uint32_t i, const struct arrow_schema *b,
                        uint32_t j)
{
    uint32_t span = a->fields[i].span;

    if (span != b->fields[j].span)
        return false;
    for (uint32_t at = 0; at < span; at++)
        if (!arrow_schema_is_alike(&a->fields[i + at], &b->fields[j + at]))
            return false;
    return true;
}

const struct arrow_field *arrow_schema_unread(const struct arrow_schema *schema, uint32_t i)
{
    const struct arrow_field *column = &schema->fields[i];

    for (uint32_t at = 0; at < column->span; at++)
        if (column[at].sort == ARROW_OTHER ||
            (column[at].sort == ARROW_DECIMAL && !column[at].dtype))
            return &column[at];
    return NULL;
}

uint32_t arrow_schema_base(const struct arrow_schema *schema, uint32_t i, uint32_t most,
                           uint32_t *ret_ndim, uint64_t *ret_shape)
{
    for (; schema->fields[i].sort == ARROW_FIXED_LIST; i++) {
        if (*ret_ndim == most)
            return ARROW_NONE;
        ret_shape[(*ret_ndim)++] = schema->fields[i].width;
    }
    return i;
}
