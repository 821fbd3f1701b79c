/* Look-ups in the table of dtype.def. Constant data only. */
#include "proto/dtype.h"

#include <errno.h>

static const struct dtype_row {
    const char *name; /* NULL: no such number */
    const char *numpy;
    uint8_t bytes;
    int8_t dlpack;
} dtype_rows[] = {
#define DTYPE(NAME, number, bytes, name, numpy, dlpack) [number] = {name, numpy, bytes, dlpack},
#include "proto/dtype.def"
#undef DTYPE
};

static const struct dtype_row *dtype_find(uint32_t dtype)
{
    return dtype < ARRAY_SIZE(dtype_rows) && dtype_rows[dtype].name ? &dtype_rows[dtype] : NULL;
}

size_t dtype_bytes(uint32_t dtype)
{
    const struct dtype_row *row = dtype_find(dtype);
    return row ? row->bytes : 0;
}

const char *dtype_name(uint32_t dtype)
{
    const struct dtype_row *row = dtype_find(dtype);
    return row ? row->name : "?";
}

const char *dtype_numpy(uint32_t dtype)
{
    const struct dtype_row *row = dtype_find(dtype);
    return row ? row->numpy : "";
}

uint32_t dtype_integer(int64_t bits, bool is_signed)
{
    switch (bits) {
    case 8:
        return is_signed ? DL_DTYPE_INT8 : DL_DTYPE_UINT8;
    case 16:
        return is_signed ? DL_DTYPE_INT16 : DL_DTYPE_UINT16;
    case 32:
        return is_signed ? DL_DTYPE_INT32 : DL_DTYPE_UINT32;
    case 64:
        return is_signed ? DL_DTYPE_INT64 : DL_DTYPE_UINT64;
    default:
        return 0;
    }
}

int dtype_dlpack_code(uint32_t dtype)
{
    const struct dtype_row *row = dtype_find(dtype);
    return row ? row->dlpack : -1;
}

int dtype_from_name(const char *name, uint32_t *ret)
{
    for (uint32_t i = 0; i < ARRAY_SIZE(dtype_rows); i++)
        if (dtype_rows[i].name && strcmp(dtype_rows[i].name, name) == 0) {
            *ret = i;
            return 0;
        }
    return -EINVAL;
}

int dtype_from_numpy(const char *numpy, uint32_t *ret)
{
    /* A type that NumPy lacks has an empty name in the table, and NumPy never uses an empty
     * name. */
    if (numpy[0] == '\0')
        return -EINVAL;
    for (uint32_t i = 0; i < ARRAY_SIZE(dtype_rows); i++)
        if (dtype_rows[i].name && strcmp(dtype_rows[i].numpy, numpy) == 0) {
            *ret = i;
            return 0;
        }
    return -EINVAL;
}
