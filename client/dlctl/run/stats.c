/* Element statistics: see stats.h. */
#include "client/dlctl/run/stats.h"

#include <math.h>

/* IEEE 754 half precision. */
static double stats_half(uint16_t bits)
{
    int exponent = bits >> 10 & 0x1f;
    double fraction = bits & 0x3ff;
    double magnitude = exponent == 0x1f ? (fraction != 0 ? NAN : INFINITY)
                       : exponent       ? ldexp(fraction + 1024, exponent - 25)
                                        : ldexp(fraction, -24);

    return bits >> 15 ? -magnitude : magnitude;
}

/* The upper half of single precision. */
static double stats_bfloat(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float f;

    memcpy(&f, &wide, sizeof f);
    return f;
}

struct sums {
    double min;
    double max;
    double sum;
    bool nan;
};

static inline void stats_add(struct sums *s, double x)
{
    s->min = x < s->min ? x : s->min;
    s->max = x > s->max ? x : s->max;
    s->sum += x;
    s->nan |= x != x;
}

/* `type`: of an element in memory; `convert`: to double. */
#define FOLD(type, convert)                                                        \
    for (uint64_t i = 0; i < nbytes / sizeof(type); i++) {                         \
        type element;                                                              \
        memcpy(&element, (const char *)data + i * sizeof element, sizeof element); \
        stats_add(s, convert(element));                                            \
    }                                                                              \
    return true

static bool stats_fold(uint32_t dtype, const void *data, uint64_t nbytes, struct sums *s)
{
    switch (dtype) {
    case DL_DTYPE_BOOL:
    case DL_DTYPE_UINT8:
        FOLD(uint8_t, (double));
    case DL_DTYPE_INT8:
        FOLD(int8_t, (double));
    case DL_DTYPE_UINT16:
        FOLD(uint16_t, (double));
    case DL_DTYPE_INT16:
        FOLD(int16_t, (double));
    case DL_DTYPE_UINT32:
        FOLD(uint32_t, (double));
    case DL_DTYPE_INT32:
        FOLD(int32_t, (double));
    case DL_DTYPE_UINT64:
        FOLD(uint64_t, (double));
    case DL_DTYPE_INT64:
        FOLD(int64_t, (double));
    case DL_DTYPE_FLOAT16:
        FOLD(uint16_t, stats_half);
    case DL_DTYPE_BFLOAT16:
        FOLD(uint16_t, stats_bfloat);
    case DL_DTYPE_FLOAT32:
        FOLD(float, (double));
    case DL_DTYPE_FLOAT64:
        FOLD(double, (double));
    default:
        return false;
    }
}

bool tensor_stats(uint32_t dtype, const void *data, uint64_t nbytes, struct stats *ret)
{
    struct sums s = {.min = INFINITY, .max = -INFINITY};
    size_t size = dtype_bytes(dtype);
    uint64_t elements = size ? nbytes / size : 0;

    if (elements == 0 || !stats_fold(dtype, data, nbytes, &s))
        return false;
    *ret = s.nan ? (struct stats){NAN, NAN, NAN}
                 : (struct stats){s.min, s.max, s.sum / (double)elements};
    return true;
}
