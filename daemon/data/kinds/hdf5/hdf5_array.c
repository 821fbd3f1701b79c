/* What a dataset's header says. */
#include "daemon/data/kinds/hdf5/hdf5_array.h"

#include "proto/dtype.h"
#include "proto/tree.h"

#include <errno.h>

enum { CLASS_INTEGER = 0, CLASS_FLOAT = 1, CLASS_ENUM = 8, TYPE_HEAD = 8, INTEGER_BYTES = 12 };
enum { LAYOUT_COMPACT = 0, LAYOUT_CONTIGUOUS = 1, LAYOUT_CHUNKED = 2 };

struct hdf5_opening {
    struct hdf5_array *array;
    bool has_space, has_type, has_layout;
    uint64_t whole_bytes; /* of an array in one piece */
};

int hdf5_array_refuse(const struct hdf5_array *array, int code, const char *what,
                      struct dl_error *err)
{
    return dl_error_set(err, code, array->view.path, "its dataset %s %s", array->name, what);
}

static int hdf5_array_short(const struct hdf5_array *array, struct dl_error *err)
{
    return hdf5_array_refuse(array, EINVAL, "is damaged: its header is incomplete", err);
}

/* ---- dimensions ----------------------------------------------------------------------------- */

static int hdf5_array_take_space(struct hdf5_opening *opening, const struct hdf5_message *message,
                                 struct dl_error *err)
{
    struct hdf5_array *array = opening->array;

    if (message->bytes < 4)
        return hdf5_array_short(array, err);
    unsigned head = message->data[0] == 1 ? 8 : 4;
    array->ndim = message->data[1];
    if (array->ndim == 0)
        return hdf5_array_refuse(array, EINVAL, "has no dimensions, and so no rows", err);
    if (array->ndim > HDF5_DIMS_MAX)
        return hdf5_array_refuse(array, ENOTSUP, "has too many dimensions", err);
    if (message->bytes < head + 8 * (uint64_t)array->ndim)
        return hdf5_array_short(array, err);
    for (uint32_t i = 0; i < array->ndim; i++)
        array->dims[i] = hdf5_number(message->data + head + 8 * i, 8);
    opening->has_space = true;
    return 0;
}

/* ---- types ---------------------------------------------------------------------------------- */

static uint32_t hdf5_array_integer(const uint8_t *type, uint32_t size)
{
    static const uint32_t types[2][4] = {
        {DL_DTYPE_UINT8, DL_DTYPE_UINT16, DL_DTYPE_UINT32, DL_DTYPE_UINT64},
        {DL_DTYPE_INT8, DL_DTYPE_INT16, DL_DTYPE_INT32, DL_DTYPE_INT64}};
    bool is_signed = type[1] & 8,
         whole = hdf5_number(type + 8, 2) == 0 && hdf5_number(type + 10, 2) == 8 * (uint64_t)size;

    for (unsigned i = 0; whole && i < 4; i++)
        if (size == 1U << i)
            return types[is_signed][i];
    return 0;
}

/* The dtype, by the sizes of exponent and mantissa. */
static uint32_t hdf5_array_float(const uint8_t *type, uint32_t size)
{
    unsigned exponent = type[13], mantissa = type[15];

    if (size == 2 && exponent == 5 && mantissa == 10)
        return DL_DTYPE_FLOAT16;
    if (size == 4 && exponent == 8 && mantissa == 23)
        return DL_DTYPE_FLOAT32;
    return size == 8 && exponent == 11 && mantissa == 52 ? DL_DTYPE_FLOAT64 : 0;
}

/* As h5py stores bool: an enumeration of int8 that begins with FALSE. */
static bool hdf5_array_is_bool(const struct hdf5_message *message)
{
    const uint8_t *type = message->data;

    return message->bytes >= TYPE_HEAD + INTEGER_BYTES + 6 && hdf5_number(type + 1, 2) == 2 &&
           hdf5_number(type + 4, 4) == 1 &&
           memcmp(type + TYPE_HEAD + INTEGER_BYTES, "FALSE", 6) == 0;
}

static int hdf5_array_take_type(struct hdf5_opening *opening, const struct hdf5_message *message,
                                struct dl_error *err)
{
    struct hdf5_array *array = opening->array;
    const uint8_t *type = message->data;
    uint32_t class =
        message->bytes >= TYPE_HEAD + INTEGER_BYTES - 8 ? type[0] & 15 : CLASS_ENUM + 8;
    uint64_t size = class <= CLASS_ENUM ? hdf5_number(type + 4, 4) : 0;
    bool big = class <= CLASS_FLOAT && type[1] & 1;

    array->dtype = 0;
    if (big)
        return hdf5_array_refuse(array, ENOTSUP,
                                 "is of big-endian numbers; convert it to little-endian ones", err);
    if (class == CLASS_INTEGER && message->bytes >= INTEGER_BYTES && size <= 8)
        array->dtype = hdf5_array_integer(type, (uint32_t)size);
    else if (class == CLASS_FLOAT && message->bytes >= TYPE_HEAD + INTEGER_BYTES && size <= 8)
        array->dtype = hdf5_array_float(type, (uint32_t)size);
    else if (class == CLASS_ENUM && hdf5_array_is_bool(message))
        array->dtype = DL_DTYPE_BOOL;
    if (!array->dtype)
        return hdf5_array_refuse(
            array, ENOTSUP,
            "does not hold integers, floats or bools; choose others with dataset.fields", err);
    array->element = (unsigned)size;
    opening->has_type = true;
    return 0;
}

/* ---- where the numbers are --------------------------------------------------------------------
 */

static int hdf5_array_take_chunks(struct hdf5_opening *opening, const struct hdf5_message *message,
                                  struct dl_error *err)
{
    struct hdf5_array *array = opening->array;
    unsigned ndim = message->data[2];

    array->is_chunked = true;
    if (message->data[0] != 3)
        return hdf5_array_refuse(array, ENOTSUP,
                                 "has an index of chunks that is not supported; write it with "
                                 "libver=\"earliest\"",
                                 err);
    if (ndim < 2 || ndim > HDF5_DIMS_MAX + 1 || message->bytes < 11 + 4 * (uint64_t)ndim)
        return hdf5_array_short(array, err);
    array->tree = hdf5_number(message->data + 3, 8);
    for (unsigned i = 0; i + 1 < ndim; i++)
        array->chunk[i] = hdf5_number(message->data + 11 + 4 * i, 4);
    if (hdf5_number(message->data + 11 + 4 * (ndim - 1), 4) == 0)
        return hdf5_array_short(array, err);
    opening->whole_bytes = ndim - 1; /* compared with the dimensions, which may come later */
    return 0;
}

static int hdf5_array_take_layout(struct hdf5_opening *opening, const struct hdf5_message *message,
                                  struct dl_error *err)
{
    struct hdf5_array *array = opening->array;
    const uint8_t *data = message->data;

    if (message->bytes < 4 || data[0] < 3 || data[0] > 4)
        return hdf5_array_refuse(
            array, ENOTSUP,
            "has a layout of a version that is not supported; copy it with h5repack", err);
    opening->has_layout = true;
    if (data[1] == LAYOUT_CHUNKED)
        return hdf5_array_take_chunks(opening, message, err);
    if (data[1] == LAYOUT_COMPACT) {
        opening->whole_bytes = hdf5_number(data + 2, 2);
        array->whole = data + 4;
        return opening->whole_bytes <= message->bytes - 4 ? 0 : hdf5_array_short(array, err);
    }
    if (data[1] != LAYOUT_CONTIGUOUS)
        return hdf5_array_refuse(array, ENOTSUP,
                                 "is virtual, or has a layout that is not supported", err);
    if (message->bytes < 18)
        return hdf5_array_short(array, err);
    opening->whole_bytes = hdf5_number(data + 10, 8);
    uint64_t at = hdf5_number(data + 2, 8);
    array->whole = at == HDF5_NONE ? NULL : hdf5_bytes(&array->view, at, opening->whole_bytes);
    if (at != HDF5_NONE && !array->whole)
        return hdf5_array_refuse(array, EINVAL, "is not in the file; it is truncated", err);
    return 0;
}

/* [version] [number] of version 1 [6 bytes]; then [id: 2] [length: 2] [flags: 2] [n: 2] [name] [n
 * of 4 bytes]; in version 2, length and name exist only for ids from 256 on. */
static int hdf5_array_take_filters(struct hdf5_opening *opening, const struct hdf5_message *message,
                                   struct dl_error *err)
{
    struct hdf5_array *array = opening->array;
    bool old = message->bytes > 1 && message->data[0] == 1;
    uint64_t at = old ? 8 : 2;

    array->n_filters = message->bytes > 1 ? message->data[1] : HDF5_FILTERS_MAX + 1;
    if (array->n_filters > HDF5_FILTERS_MAX)
        return hdf5_array_short(array, err);
    for (unsigned i = 0; i < array->n_filters; i++) {
        const uint8_t *filter = message->data + at;
        unsigned head = old ? 8 : 6;
        if (message->bytes < at + head)
            return hdf5_array_short(array, err);
        uint64_t id = hdf5_number(filter, 2), n = hdf5_number(filter + head - 2, 2);
        if (id < HDF5_DEFLATE || id > HDF5_FLETCHER32)
            return hdf5_array_refuse(array, ENOTSUP,
                                     "is packed by a filter that is not supported: shuffle, "
                                     "deflate (gzip) and fletcher32 are; copy it with h5repack",
                                     err);
        array->filters[i] = (enum hdf5_filter)id;
        at += head + (old ? (hdf5_number(filter + 2, 2) + 7) / 8 * 8 + 4 * (n % 2) : 0) + 4 * n;
    }
    return 0;
}

/* Version 3: [3] [flags] [size: 4] [value]; before: [version] [3 bytes] [size] [value]; in versions
 * 2 and 3 the value is optional. */
static void hdf5_array_take_fill(struct hdf5_opening *opening, const struct hdf5_message *message)
{
    const uint8_t *data = message->data;
    bool new = message->bytes > 1 && data[0] == 3;
    unsigned head = new ? 2 : 4;

    if (message->bytes < head + 4 || (new && !(data[1] & 0x20)) || (data[0] == 2 && data[3] == 0))
        return;
    uint64_t n = hdf5_number(data + head, 4);
    if (n <= sizeof opening->array->fill && n <= message->bytes - head - 4)
        memcpy(opening->array->fill, data + head + 4, n);
}

/* ---- all of it ------------------------------------------------------------------------------ */

static int hdf5_array_take(void *owner, const struct hdf5_message *message, struct dl_error *err)
{
    struct hdf5_opening *opening = owner;

    if (message->is_shared && (message->type == HDF5_DATATYPE || message->type == HDF5_FILTERS ||
                               message->type == HDF5_DATASPACE))
        return hdf5_array_refuse(opening->array, ENOTSUP,
                                 "has a named type, which is not supported", err);
    switch (message->type) {
    case HDF5_DATASPACE:
        return hdf5_array_take_space(opening, message, err);
    case HDF5_DATATYPE:
        return hdf5_array_take_type(opening, message, err);
    case HDF5_LAYOUT:
        return hdf5_array_take_layout(opening, message, err);
    case HDF5_FILTERS:
        return hdf5_array_take_filters(opening, message, err);
    case HDF5_FILL:
        hdf5_array_take_fill(opening, message);
        return 0;
    case HDF5_EXTERNAL:
        return hdf5_array_refuse(opening->array, ENOTSUP, "is stored in other files", err);
    default:
        return 0;
    }
}

static int hdf5_array_check_chunks(struct hdf5_array *array, uint64_t ndim, struct dl_error *err)
{
    array->chunk_bytes = array->element;
    if (ndim != array->ndim)
        return hdf5_array_refuse(array, EINVAL, "is damaged: its chunks have other dimensions",
                                 err);
    for (uint32_t i = 0; i < array->ndim; i++) {
        if (array->chunk[i] == 0 ||
            mul_overflows(array->chunk_bytes, array->chunk[i], &array->chunk_bytes) ||
            array->chunk_bytes > UINT32_MAX)
            return hdf5_array_refuse(array, EINVAL, "is damaged: its chunks have no size", err);
    }
    return hdf5_chunks_list(array, err);
}

int hdf5_array_open(const struct hdf5_view *view, uint64_t at, const char *name,
                    struct hdf5_array *ret, struct dl_error *err)
{
    struct hdf5_opening opening = {.array = ret};
    uint64_t all;

    *ret = (struct hdf5_array){.view = *view, .name = name, .tree = HDF5_NONE};
    int r = hdf5_walk_messages(view, at, hdf5_array_take, &opening, err);
    if (r < 0)
        return r;
    if (!opening.has_space || !opening.has_type || !opening.has_layout)
        return hdf5_array_refuse(ret, EINVAL, "is not a dataset, such as a group", err);
    if (!tensor_bytes(ret->dtype, ret->ndim - 1, ret->dims + 1, &ret->row_bytes) ||
        mul_overflows(ret->row_bytes, ret->dims[0], &all) || all > INT64_MAX)
        return hdf5_array_refuse(ret, EINVAL, "has 2^63 bytes or more", err);
    if (ret->is_chunked)
        return hdf5_array_check_chunks(ret, opening.whole_bytes, err);
    if (ret->whole && opening.whole_bytes < all)
        return hdf5_array_refuse(ret, EINVAL, "has fewer bytes than its dimensions need", err);
    return 0;
}
