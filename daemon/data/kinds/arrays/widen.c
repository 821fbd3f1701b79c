#include "daemon/data/kinds/arrays/widen.h"

#include "proto/dtype.h"

#include <string.h>

enum { WIDEN_VECTOR = 16 }; /* bytes that the compiler loads at once, without a loop */

/* A header of odd length may put tokens anywhere. */
typedef uint16_t any_u16 __attribute__((aligned(1)));
typedef int16_t any_i16 __attribute__((aligned(1)));
typedef uint32_t any_u32 __attribute__((aligned(1)));
typedef int32_t any_i32 __attribute__((aligned(1)));

#define WIDEN(name, type)                                                \
    static void name(const void *from, int64_t *restrict to, uint64_t n) \
    {                                                                    \
        enum { BLOCK = WIDEN_VECTOR / sizeof(type) };                    \
        const type *restrict tokens = from;                              \
        uint64_t i = 0;                                                  \
        for (; i + BLOCK <= n; i += BLOCK)                               \
            for (uint64_t j = 0; j < BLOCK; j++)                         \
                to[i + j] = (int64_t)tokens[i + j];                      \
        for (; i < n; i++)                                               \
            to[i] = (int64_t)tokens[i];                                  \
    }
WIDEN(widen_u8, uint8_t)
WIDEN(widen_i8, int8_t)
WIDEN(widen_u16, any_u16)
WIDEN(widen_i16, any_i16)
WIDEN(widen_u32, any_u32)
WIDEN(widen_i32, any_i32)
#undef WIDEN

void widen_tokens(uint32_t dtype, const void *from, int64_t *to, uint64_t n)
{
    switch (dtype) {
    case DL_DTYPE_UINT8:
        widen_u8(from, to, n);
        break;
    case DL_DTYPE_INT8:
        widen_i8(from, to, n);
        break;
    case DL_DTYPE_UINT16:
        widen_u16(from, to, n);
        break;
    case DL_DTYPE_INT16:
        widen_i16(from, to, n);
        break;
    case DL_DTYPE_UINT32:
        widen_u32(from, to, n);
        break;
    case DL_DTYPE_INT32:
        widen_i32(from, to, n);
        break;
    default:
        memcpy(to, from, n * sizeof *to);
        break;
    }
}
