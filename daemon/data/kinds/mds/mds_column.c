#include "daemon/data/kinds/mds/mds_column.h"

#include "daemon/data/collate/lengths.h"
#include "proto/common/load.h"
#include "proto/dtype.h"

#include <errno.h>
#include <stdio.h>

/* ---- encodings ------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    enum mds_encoding sort;
    uint32_t dtype;
} mds_encodings[] = {
    {"bytes", MDS_BYTES, 0},
    {"str", MDS_STRING, 0},
    {"int", MDS_SCALAR, DL_DTYPE_INT64},
    {"int8", MDS_SCALAR, DL_DTYPE_INT8},
    {"int16", MDS_SCALAR, DL_DTYPE_INT16},
    {"int32", MDS_SCALAR, DL_DTYPE_INT32},
    {"int64", MDS_SCALAR, DL_DTYPE_INT64},
    {"uint8", MDS_SCALAR, DL_DTYPE_UINT8},
    {"uint16", MDS_SCALAR, DL_DTYPE_UINT16},
    {"uint32", MDS_SCALAR, DL_DTYPE_UINT32},
    {"uint64", MDS_SCALAR, DL_DTYPE_UINT64},
    {"float16", MDS_SCALAR, DL_DTYPE_FLOAT16},
    {"float32", MDS_SCALAR, DL_DTYPE_FLOAT32},
    {"float64", MDS_SCALAR, DL_DTYPE_FLOAT64},
    {"str_int", MDS_STRING_INT, 0},
    {"str_float", MDS_STRING_FLOAT, 0},
    {"str_decimal", MDS_STRING, 0},
    {"ndarray", MDS_ARRAY, 0},
    {"jpeg", MDS_IMAGE, 0},
    {"jpeg_array", MDS_IMAGE, 0},
    {"png", MDS_IMAGE, 0},
    {"pil", MDS_PIXELS, 0},
    {"json", MDS_JSON, 0},
    {"pkl", MDS_PICKLE, 0},
};

static int mds_column_refuse(const struct mds_column *column, const char *path, const char *what,
                             struct dl_error *err)
{
    return dl_error_set(err, EINVAL, path, "its column %s has the encoding \"%s\", %s",
                        column->name, column->encoding, what);
}

/* "3,4" */
static bool mds_column_parse_shape(struct mds_column *column, const char *text)
{
    char *end = NULL;

    for (column->ndim = 0; column->ndim < TREE_DIMS; text = end + 1) {
        errno = 0;
        unsigned long long n = strtoull(text, &end, 10);
        if (errno != 0 || end == text || n == 0 || *text < '0' || *text > '9')
            return false;
        column->shape[column->ndim++] = n;
        if (*end == '\0')
            return true;
        if (*end != ',')
            return false;
    }
    return false;
}

/* "int32:3,4", "int32" or "": what all values have in common. */
static bool mds_column_parse_array(struct mds_column *column, const char *text)
{
    char dtype[16];
    size_t len = strcspn(text, ":");

    if (*text == '\0')
        return true;
    if (len >= sizeof dtype)
        return false;
    memcpy(dtype, text, len);
    dtype[len] = '\0';
    if (dtype_from_name(dtype, &column->dtype) < 0)
        return false;
    return text[len] == '\0' || mds_column_parse_shape(column, text + len + 1);
}

/* Bytes of each value, if the encoding fixes them; UINT64_MAX: too many to count. */
static uint64_t mds_column_bytes(const struct mds_column *column)
{
    uint64_t bytes = dtype_bytes(column->dtype);

    if (column->sort == MDS_ARRAY && (column->dtype == 0 || column->ndim == 0))
        return 0;
    if (column->sort != MDS_ARRAY && column->sort != MDS_SCALAR)
        return 0;
    for (uint32_t i = 0; i < column->ndim; i++) {
        if (mul_overflows(bytes, column->shape[i], &bytes))
            return UINT64_MAX;
    }
    return bytes;
}

int mds_column_parse(struct mds_column *column, const char *path, struct dl_error *err)
{
    size_t len = strcspn(column->encoding, ":"), i = 0;
    const char *rest = column->encoding + len + (column->encoding[len] == ':');

    while (i < ARRAY_SIZE(mds_encodings) &&
           (strlen(mds_encodings[i].name) != len ||
            memcmp(mds_encodings[i].name, column->encoding, len) != 0))
        i++;
    if (i == ARRAY_SIZE(mds_encodings))
        return mds_column_refuse(column, path,
                                 "which cannot be read; see dloader-spec(5), kind mds", err);
    column->sort = mds_encodings[i].sort;
    column->dtype = mds_encodings[i].dtype;
    if (column->sort == MDS_ARRAY && !mds_column_parse_array(column, rest))
        return mds_column_refuse(column, path, "which is not a type and shape", err);
    if (mds_column_bytes(column) != column->size)
        return mds_column_refuse(column, path, "whose values have another size than it says", err);
    return 0;
}

void mds_column_deinit(struct mds_column *column)
{
    free(column->name);
    free(column->encoding);
}

bool mds_column_has_dimensions(const struct mds_column *column)
{
    return column->sort == MDS_ARRAY || column->sort == MDS_IMAGE || column->sort == MDS_PIXELS ||
           column->sort == MDS_JSON; /* which may have lists */
}

bool mds_columns_equal(const struct mds_column *a, const struct mds_column *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->encoding, b->encoding) == 0;
}

/* ---- values --------------------------------------------------------------------------------- */

/* By the code in front of an array without a type of its own; 0 if unknown. */
static uint32_t mds_value_dtype(uint8_t code)
{
    static const uint8_t dtypes[] = {
        [8] = DL_DTYPE_UINT8,  [9] = DL_DTYPE_INT8,     [16] = DL_DTYPE_UINT16,
        [17] = DL_DTYPE_INT16, [18] = DL_DTYPE_FLOAT16, [32] = DL_DTYPE_UINT32,
        [33] = DL_DTYPE_INT32, [34] = DL_DTYPE_FLOAT32, [64] = DL_DTYPE_UINT64,
        [65] = DL_DTYPE_INT64, [66] = DL_DTYPE_FLOAT64};

    return code < ARRAY_SIZE(dtypes) ? dtypes[code] : 0;
}

/* The shape in front of an array without one of its own: 4 times the dimensions plus the width of
 * each, as a power of two; then these. */
static bool mds_value_read_shape(const uint8_t **at, const uint8_t *end, uint32_t *ret_ndim,
                                 uint64_t ret[static TREE_DIMS])
{
    if (*at == end)
        return false;
    uint32_t ndim = **at >> 2, width = 1U << (**at & 3);
    (*at)++;
    if (ndim == 0 || ndim > TREE_DIMS || (size_t)(end - *at) < (size_t)ndim * width)
        return false;
    for (uint32_t i = 0; i < ndim; i++) {
        ret[i] = 0;
        memcpy(&ret[i], *at, width);
        *at += width;
    }
    *ret_ndim = ndim;
    return true;
}

/* false: its type or shape is damaged. */
static bool mds_value_parse_array(const struct mds_value *value, struct field_array *ret)
{
    const struct mds_column *column = value->column;
    const uint8_t *at = value->data, *end = at + value->size;

    ret->dtype = column->dtype;
    ret->ndim = column->ndim;
    memcpy(ret->shape, column->shape, sizeof ret->shape);
    if (ret->dtype == 0 && at < end)
        ret->dtype = mds_value_dtype(*at++);
    if (ret->dtype == 0 ||
        (ret->ndim == 0 && !mds_value_read_shape(&at, end, &ret->ndim, ret->shape)))
        return false;
    ret->elements = at;
    return true;
}

static int mds_value_add_array(const struct mds_value *value, const struct field *field,
                               struct sample *ret, struct dl_error *err)
{
    struct field_array array;

    if (!mds_value_parse_array(value, &array))
        return dl_error_set(err, EINVAL, "", "is an array whose type or shape is damaged");
    return field_add_array(field, &array, value->column->encoding, ret, err);
}

uint32_t mds_value_length(const struct mds_value *value)
{
    struct field_array array;

    if (!mds_value_parse_array(value, &array))
        return LENGTH_UNKNOWN;
    return (uint32_t)min_u64(array.shape[0], LENGTH_UNKNOWN);
}

/* Digits as a text of its own; false: too long for a number. */
static bool mds_value_text(const struct mds_value *value, char ret[static 64])
{
    if (value->size == 0 || value->size >= 64 || memchr(value->data, '\0', value->size) ||
        value->data[0] <= ' ')
        return false;
    memcpy(ret, value->data, value->size);
    ret[value->size] = '\0';
    return true;
}

static int mds_value_add_number(const struct mds_value *value, struct sample *ret,
                                struct dl_error *err)
{
    bool whole = value->column->sort == MDS_STRING_INT;
    char text[64], *end = text;
    long long integer = 0;
    double number = 0;

    errno = 0;
    if (mds_value_text(value, text)) {
        if (whole)
            integer = strtoll(text, &end, 10);
        else
            number = strtod(text, &end);
    }
    if (end == text || *end != '\0' || (whole && errno != 0))
        return dl_error_set(err, EINVAL, "", "is not %s (\"%.*s\")",
                            whole ? "an integer of 64 bits" : "a number",
                            (int)min_u64(value->size, 40), (const char *)value->data);
    return whole ? sample_int(ret, value->name, integer) : sample_float(ret, value->name, number);
}

/* ---- all of them ---------------------------------------------------------------------------- */

int mds_value_add(const struct mds_value *value, const struct decoding *decoding,
                  struct sample *ret, struct dl_error *err)
{
    static const enum field_sort sorts[] = {[MDS_STRING] = FIELD_TEXT,
                                            [MDS_IMAGE] = FIELD_IMAGE,
                                            [MDS_PIXELS] = FIELD_PIXELS,
                                            [MDS_JSON] = FIELD_JSON,
                                            [MDS_PICKLE] = FIELD_BYTES};
    const struct mds_column *column = value->column;
    const struct field field = {sorts[column->sort], value->name, value->data, value->size};

    switch (column->sort) {
    case MDS_SCALAR:
        return sample_tensor(ret, value->name, column->dtype, 0, NULL, value->data);
    case MDS_ARRAY:
        return mds_value_add_array(value, &field, ret, err);
    case MDS_STRING_INT:
    case MDS_STRING_FLOAT:
        return mds_value_add_number(value, ret, err);
    default:
        return field_add(&field, decoding, ret, err);
    }
}

bool mds_columns_split(const struct mds_column *columns, uint32_t n, const uint8_t *data,
                       uint64_t bytes, struct mds_value *ret)
{
    const uint8_t *sizes = data;
    uint64_t head = 0;

    for (uint32_t c = 0; c < n; c++)
        head += columns[c].size ? 0 : 4;
    if (head > bytes)
        return false;
    data += head;
    bytes -= head;
    for (uint32_t c = 0; c < n; c++) {
        uint64_t size = columns[c].size;
        if (size == 0) {
            size = load_le32(sizes);
            sizes += 4;
        }
        if (size > bytes)
            return false;
        ret[c].column = &columns[c];
        ret[c].data = data;
        ret[c].size = size;
        data += size;
        bytes -= size;
    }
    return bytes == 0;
}
