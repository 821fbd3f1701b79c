/*
 * float16 (IEEE 754's binary16) and bfloat16 (the upper half of a float32), as bits and as the
 * float32 that they stand for. To nearest, ties to even, as torch rounds. Pure.
 */
#ifndef DL_DATA_NARROW_H
#define DL_DATA_NARROW_H

#include "proto/dtype.h"

/* Bits of the number of `dtype`, DL_DTYPE_FLOAT16 or DL_DTYPE_BFLOAT16, that is nearest. */
uint16_t narrow_bits(uint32_t dtype, float value);

/* What they stand for. */
float narrow_value(uint32_t dtype, uint16_t bits);

/* The nearest number that `dtype` has; of any other dtype the value itself. */
static inline float narrow_round(uint32_t dtype, float value)
{
    if (dtype != DL_DTYPE_FLOAT16 && dtype != DL_DTYPE_BFLOAT16)
        return value;
    return narrow_value(dtype, narrow_bits(dtype, value));
}

#endif
