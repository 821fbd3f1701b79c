/* The filling value as an element of each dtype. */
#include "daemon/data/collate/collate_batch.h"

#include <errno.h>
#include <math.h>

/* A binary floating-point format of 16 bits. */
struct format {
    int exponent_bits;
    int mantissa_bits;
};

static const struct format collate_float16 = {5, 10}, collate_bfloat16 = {8, 7};

/*
 * Nearest, ties to even, straight from the double: by way of float32 it would be rounded twice.
 * False: a finite value becomes infinite.
 */
static bool collate_value_narrow(double value, struct format format, uint16_t *ret)
{
    const uint32_t infinity = (uint32_t)((1 << format.exponent_bits) - 1) << format.mantissa_bits;
    const int least = 2 - (1 << (format.exponent_bits - 1)); /* exponent of normal numbers */
    uint32_t bits;
    int exponent;

    if (isnan(value)) {
        bits = infinity | 1U << (format.mantissa_bits - 1);
    } else if (isinf(value)) {
        bits = infinity;
    } else if (value == 0) {
        bits = 0;
    } else {
        frexp(value, &exponent); /* of 0.5..1, where the format counts from 1..2 */
        exponent = exponent - 1 < least ? least : exponent - 1;
        /* The leading one of a normal number adds 1 to its exponent field. */
        bits = (uint32_t)lrint(ldexp(fabs(value), format.mantissa_bits - exponent)) +
               ((uint32_t)(exponent - least) << format.mantissa_bits);
        if (bits >= infinity)
            return false;
    }
    *ret = (uint16_t)(bits | (signbit(value) ? 0x8000U : 0));
    return true;
}

/* The integers of `bits` bits, low and high excluded: what a double can be compared with. */
static bool collate_value_whole(double value, int bits, bool has_sign)
{
    double high = ldexp(1, has_sign ? bits - 1 : bits), low = has_sign ? -high : 0;

    return value >= low && value < high && value == trunc(value);
}

/* The low bytes are the number in two's complement, on the machines this runs on. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little-endian");

static bool collate_value_integer(double value, size_t bytes, bool has_sign, uint8_t *ret)
{
    uint64_t bits;

    if (!collate_value_whole(value, (int)bytes * 8, has_sign))
        return false;
    bits = value < 0 ? (uint64_t)(int64_t)value : (uint64_t)value;
    memcpy(ret, &bits, bytes);
    return true;
}

static bool collate_value_real(double value, size_t bytes, uint8_t *ret)
{
    float single;

    if (bytes == sizeof value) {
        memcpy(ret, &value, sizeof value);
        return true;
    }
    single = (float)value;
    memcpy(ret, &single, sizeof single);
    return isfinite(single) || !isfinite(value);
}

int collate_element(double value, uint32_t dtype, uint8_t *ret)
{
    size_t bytes = dtype_bytes(dtype);
    uint16_t half = 0;
    bool fits = false;

    memset(ret, 0, bytes);
    switch ((enum dl_dtype)dtype) {
    case DL_DTYPE_BOOL:
        fits = value == 0 || value == 1;
        *ret = value != 0;
        break;
    case DL_DTYPE_UINT8:
    case DL_DTYPE_UINT16:
    case DL_DTYPE_UINT32:
    case DL_DTYPE_UINT64:
        fits = collate_value_integer(value, bytes, false, ret);
        break;
    case DL_DTYPE_INT8:
    case DL_DTYPE_INT16:
    case DL_DTYPE_INT32:
    case DL_DTYPE_INT64:
        fits = collate_value_integer(value, bytes, true, ret);
        break;
    case DL_DTYPE_FLOAT16:
    case DL_DTYPE_BFLOAT16:
        fits = collate_value_narrow(
            value, dtype == DL_DTYPE_FLOAT16 ? collate_float16 : collate_bfloat16, &half);
        memcpy(ret, &half, sizeof half);
        break;
    case DL_DTYPE_FLOAT32:
    case DL_DTYPE_FLOAT64:
        fits = collate_value_real(value, bytes, ret);
        break;
    case DL_DTYPE_COMPLEX64:
    case DL_DTYPE_COMPLEX128:
        fits = collate_value_real(value, bytes / 2, ret); /* the imaginary part is 0 */
        break;
    }
    return fits ? 0 : -EINVAL;
}
