/* Numbers of any width between 0 and 64 bits, the lowest bit first: what Parquet packs. Pure. */
#ifndef DL_DATA_PARQUET_ENCODING_BITS_H
#define DL_DATA_PARQUET_ENCODING_BITS_H

#include "proto/common/base.h"

/* Number `i` of `width` bits each from `at` on; bits beyond `end` are 0. */
static inline uint64_t parquet_bits(const uint8_t *at, const uint8_t *end, uint64_t i,
                                    unsigned width)
{
    uint64_t bit = i * width, left = (uint64_t)(end - at), low = 0;
    unsigned shift = bit & 7;

    if (width == 0 || bit / 8 >= left)
        return 0;
    at += bit / 8;
    left -= bit / 8;
    memcpy(&low, at, left >= 8 ? 8 : left);
    low >>= shift;
    if (shift + width > 64 && left > 8)
        low |= (uint64_t)at[8] << (64 - shift);
    return width == 64 ? low : low & ((UINT64_C(1) << width) - 1);
}

/* A number of 7 bits a byte, the lowest first; false if truncated or too long. */
static inline bool parquet_varint(const uint8_t **at, const uint8_t *end, uint64_t *ret)
{
    uint64_t n = 0;

    for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
        uint8_t byte = *(*at)++;
        n |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80)) {
            *ret = n;
            return true;
        }
    }
    return false;
}

#endif
