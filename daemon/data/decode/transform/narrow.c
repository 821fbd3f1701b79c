/*
 * Written out, since compilers know _Float16 on some processors only. Of float32, 23 bits are the
 * fraction, and the exponent is above by 127; of float16, 10 bits and 15.
 */
#include "daemon/data/decode/transform/narrow.h"

#include <math.h>

#define SIGN     0x80000000U
#define INFINITE 0x7f800000U
#define REBIAS   ((127U - 15U) << 23)

static uint32_t narrow_from_float(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float narrow_to_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t narrow_bits_half(float value)
{
    uint32_t bits = narrow_from_float(value), sign = (bits & SIGN) >> 16, size = bits & ~SIGN;

    if (size > INFINITE)
        return (uint16_t)(sign | 0x7e00U);
    if (size >= narrow_from_float(0x1p16F))
        return (uint16_t)(sign | 0x7c00U);
    /* Too small for a normal number: 0.5 has steps of 2^-24, as they have, and the sum is rounded.
     */
    if (size < narrow_from_float(0x1p-14F))
        return (uint16_t)(sign |
                          (narrow_from_float(fabsf(value) + 0.5F) - narrow_from_float(0.5F)));
    size += 0xfffU + (size >> 13 & 1U);
    return (uint16_t)(sign | (size - REBIAS) >> 13);
}

static float narrow_value_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000U) << 16, size = half & 0x7fffU;
    float value = (float)size * 0x1p-24F;

    if (size >= 0x7c00U)
        value = narrow_to_float(INFINITE | (size & 0x3ffU) << 13);
    else if (size >= 0x400U)
        value = narrow_to_float((size << 13) + REBIAS);
    return narrow_to_float(sign | narrow_from_float(value));
}

static uint16_t narrow_bits_upper(float value)
{
    uint32_t bits = narrow_from_float(value);

    if ((bits & ~SIGN) > INFINITE)
        return (uint16_t)(bits >> 16 | 0x40U);
    return (uint16_t)((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

uint16_t narrow_bits(uint32_t dtype, float value)
{
    return dtype == DL_DTYPE_FLOAT16 ? narrow_bits_half(value) : narrow_bits_upper(value);
}

float narrow_value(uint32_t dtype, uint16_t bits)
{
    return dtype == DL_DTYPE_FLOAT16 ? narrow_value_half(bits)
                                     : narrow_to_float((uint32_t)bits << 16);
}
