#include "daemon/data/kinds/litdata/litdata_leaf.h"

#include "daemon/data/collate/lengths.h"
#include "daemon/data/kinds/litdata/litdata_nested.h"
#include "proto/common/load.h"
#include "proto/dtype.h"

#include <errno.h>

/* ---- formats -------------------------------------------------------------------------------- */

static const struct {
    const char *name; /* up to a colon */
    enum litdata_sort sort;
    uint32_t dtype;
} litdata_formats[] = {
    {"str", LITDATA_STRING, 0},
    {"text", LITDATA_STRING, 0},
    {"bool", LITDATA_BOOL, DL_DTYPE_BOOL},
    {"int", LITDATA_INT, DL_DTYPE_INT64},
    {"float", LITDATA_FLOAT, DL_DTYPE_FLOAT64},
    {"bytes", LITDATA_BYTES, 0},
    {"file", LITDATA_BYTES, 0},
    {"audio", LITDATA_BYTES, 0},
    {"video", LITDATA_BYTES, 0},
    {"nifti", LITDATA_BYTES, 0},
    {"mesh", LITDATA_BYTES, 0},
    {"pdf", LITDATA_BYTES, 0},
    {"tifffile", LITDATA_BYTES, 0},
    {"tiff", LITDATA_BYTES, 0},
    {"graph", LITDATA_BYTES, 0},
    {"no_header_numpy", LITDATA_ROW, 0},
    {"no_header_tensor", LITDATA_ROW, 0},
    {"numpy", LITDATA_NUMPY, 0},
    {"tensor", LITDATA_TENSOR, 0},
    {"jpeg", LITDATA_IMAGE, 0},
    {"image", LITDATA_IMAGE, 0},
    {"jpeg_array", LITDATA_IMAGES, 0},
    {"pil", LITDATA_PIXELS, 0},
    {"json", LITDATA_JSON, 0},
    {"pickle", LITDATA_PICKLE, 0},
};

/* By litData's numbers; 0: what no tensor has, such as object. */
static const uint8_t numpy_dtypes[] = {
    DL_DTYPE_INT8,    DL_DTYPE_INT16,     DL_DTYPE_INT32,      DL_DTYPE_INT64,   DL_DTYPE_UINT8,
    DL_DTYPE_UINT16,  DL_DTYPE_UINT32,    DL_DTYPE_UINT64,     DL_DTYPE_FLOAT16, DL_DTYPE_FLOAT32,
    DL_DTYPE_FLOAT64, DL_DTYPE_COMPLEX64, DL_DTYPE_COMPLEX128, DL_DTYPE_BOOL,
};
/* Most types have two names in PyTorch, and here two numbers. */
static const uint8_t torch_dtypes[] = {
    DL_DTYPE_FLOAT32,   DL_DTYPE_FLOAT32,   DL_DTYPE_FLOAT64,    DL_DTYPE_FLOAT64,
    DL_DTYPE_COMPLEX64, DL_DTYPE_COMPLEX64, DL_DTYPE_COMPLEX128, DL_DTYPE_COMPLEX128,
    DL_DTYPE_FLOAT16,   DL_DTYPE_FLOAT16,   DL_DTYPE_BFLOAT16,   DL_DTYPE_UINT8,
    DL_DTYPE_INT8,      DL_DTYPE_INT16,     DL_DTYPE_INT16,      DL_DTYPE_INT32,
    DL_DTYPE_INT32,     DL_DTYPE_INT64,     DL_DTYPE_INT64,      DL_DTYPE_BOOL,
    DL_DTYPE_UINT16,
};

static uint32_t litdata_dtype(bool torch, uint64_t number)
{
    if (torch)
        return number < ARRAY_SIZE(torch_dtypes) ? torch_dtypes[number] : 0;
    return number < ARRAY_SIZE(numpy_dtypes) ? numpy_dtypes[number] : 0;
}

/* "18" */
static uint32_t litdata_leaf_dtype(const char *format, const char *number)
{
    char *end = NULL;

    if (*number < '0' || *number > '9')
        return 0;
    unsigned long long n = strtoull(number, &end, 10);
    return *end == '\0' ? litdata_dtype(strstr(format, "tensor") != NULL, n) : 0;
}

void litdata_leaf_parse(struct litdata_leaf *leaf)
{
    size_t len = strcspn(leaf->format, ":"), i = 0;

    while (i < ARRAY_SIZE(litdata_formats) &&
           (strlen(litdata_formats[i].name) != len ||
            memcmp(litdata_formats[i].name, leaf->format, len) != 0))
        i++;
    leaf->sort = i < ARRAY_SIZE(litdata_formats) ? litdata_formats[i].sort : LITDATA_UNKNOWN;
    leaf->dtype = i < ARRAY_SIZE(litdata_formats) ? litdata_formats[i].dtype : 0;
    if (leaf->sort != LITDATA_ROW)
        return;
    leaf->dtype = litdata_leaf_dtype(leaf->format, leaf->format + len + (leaf->format[len] == ':'));
    if (leaf->dtype == 0)
        leaf->sort = LITDATA_UNKNOWN;
}

uint64_t litdata_leaf_bytes(const struct litdata_leaf *leaf)
{
    bool is_number =
        leaf->sort == LITDATA_BOOL || leaf->sort == LITDATA_INT || leaf->sort == LITDATA_FLOAT;

    return is_number ? dtype_bytes(leaf->dtype) : 0;
}

bool litdata_leaf_has_dimensions(const struct litdata_leaf *leaf)
{
    return leaf->sort >= LITDATA_ROW && leaf->sort <= LITDATA_JSON;
}

/* ---- arrays --------------------------------------------------------------------------------- */

static uint32_t litdata_value_u32(const uint8_t *at, bool big)
{
    return big ? load_be32(at) : load_le32(at);
}

static bool litdata_value_read_header(const struct litdata_value *value, struct field_array *ret)
{
    bool torch = value->leaf->sort == LITDATA_TENSOR;
    uint64_t head = 8;

    if (value->size < head)
        return false;
    ret->dtype = litdata_dtype(torch, litdata_value_u32(value->data, torch));
    ret->ndim = litdata_value_u32(value->data + 4, torch);
    if (ret->dtype == 0 || ret->ndim > TREE_DIMS || value->size - head < 4 * (uint64_t)ret->ndim)
        return false;
    for (uint32_t i = 0; i < ret->ndim; i++)
        ret->shape[i] = litdata_value_u32(value->data + head + 4 * (uint64_t)i, torch);
    ret->elements = value->data + head + 4 * (uint64_t)ret->ndim;
    return true;
}

static bool litdata_value_parse_array(const struct litdata_value *value, struct field_array *ret)
{
    if (value->leaf->sort != LITDATA_ROW)
        return litdata_value_read_header(value, ret);
    uint64_t bytes = dtype_bytes(value->leaf->dtype);
    *ret = (struct field_array){.dtype = value->leaf->dtype,
                                .ndim = 1,
                                .shape = {value->size / bytes},
                                .elements = value->data};
    return true;
}

static int litdata_value_add_array(const struct litdata_value *value, const struct field *field,
                                   struct sample *ret, struct dl_error *err)
{
    struct field_array array = {0};

    if (!litdata_value_parse_array(value, &array))
        return dl_error_set(
            err, EINVAL, "",
            "is an array whose type or shape is damaged, or one that no tensor has");
    return field_add_array(field, &array, value->leaf->format, ret, err);
}

uint32_t litdata_value_length(const struct litdata_value *value)
{
    struct field_array array = {0};

    if (!litdata_value_parse_array(value, &array) || array.ndim == 0)
        return LENGTH_UNKNOWN;
    return (uint32_t)min_u64(array.shape[0], LENGTH_UNKNOWN);
}

/* ---- all of them ---------------------------------------------------------------------------- */

static int litdata_value_add_images(const struct field *field, const char *format,
                                    const struct decoding *decoding, struct sample *ret,
                                    struct dl_error *err)
{
    const uint8_t *sizes = field->data + 4;
    uint64_t n = field->bytes < 4 ? 0 : litdata_value_u32(field->data, false);
    uint64_t left = field->bytes - 4;
    struct field image = {.sort = FIELD_IMAGE};
    int r = 0;

    if (n == 0 || n > left / 4)
        return field_refuse_size(field, format, err);
    image.data = sizes + 4 * n;
    left -= 4 * n;
    sample_begin(ret, TREE_LIST, field->name);
    for (uint64_t i = 0; r == 0 && i < n; i++) {
        image.bytes = litdata_value_u32(sizes + 4 * i, false);
        if (image.bytes > left)
            return field_refuse_size(field, format, err);
        r = field_add(&image, decoding, ret, err);
        image.data += image.bytes;
        left -= image.bytes;
    }
    if (r < 0)
        return r;
    return left == 0 ? sample_end(ret) : field_refuse_size(field, format, err);
}

static int litdata_value_add_number(const struct litdata_value *value, const struct field *field,
                                    struct sample *ret, struct dl_error *err)
{
    if (value->size != litdata_leaf_bytes(value->leaf))
        return field_refuse_size(field, value->leaf->format, err);
    if (value->leaf->sort == LITDATA_BOOL)
        return sample_bool(ret, field->name, value->data[0] != 0);
    return sample_tensor(ret, field->name, value->leaf->dtype, 0, NULL, value->data);
}

int litdata_value_add(const struct litdata_value *value, const char *name,
                      const struct decoding *decoding, struct sample *ret, struct dl_error *err)
{
    static const enum field_sort sorts[] = {[LITDATA_STRING] = FIELD_TEXT,
                                            [LITDATA_IMAGE] = FIELD_IMAGE,
                                            [LITDATA_PIXELS] = FIELD_PIXELS,
                                            [LITDATA_PICKLE] = FIELD_BYTES};
    const struct litdata_leaf *leaf = value->leaf;
    const struct field field = {sorts[leaf->sort], name, value->data, value->size};
    bool decodes = decoding && decoding->fields->decode;

    if (litdata_leaf_bytes(leaf) > 0)
        return litdata_value_add_number(value, &field, ret, err);
    if (leaf->sort >= LITDATA_ROW && leaf->sort <= LITDATA_TENSOR)
        return litdata_value_add_array(value, &field, ret, err);
    if (leaf->sort == LITDATA_IMAGES && decodes)
        return litdata_value_add_images(&field, leaf->format, decoding, ret, err);
    if (leaf->sort == LITDATA_JSON && decodes)
        return litdata_nested_add(value->data, value->size, name, ret, err);
    return field_add(&field, decoding, ret, err);
}
