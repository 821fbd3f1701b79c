/* Element statistics: see stats.h. */
#include "client/dlctl/batch/stats.h"

#include "client/dlctl/batch/element.h"
#include <math.h>

struct sums {
    double min;
    double max;
    double sum;
    bool nan;
};

static inline void add(struct sums *s, double x)
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
        add(s, convert(element));                                                  \
    }                                                                              \
    return true

static bool fold(uint32_t dtype, const void *data, uint64_t nbytes, struct sums *s)
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
        FOLD(uint16_t, element_half);
    case DL_DTYPE_BFLOAT16:
        FOLD(uint16_t, element_bfloat);
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

    if (elements == 0 || !fold(dtype, data, nbytes, &s))
        return false;
    *ret = s.nan ? (struct stats){NAN, NAN, NAN}
                 : (struct stats){s.min, s.max, s.sum / (double)elements};
    return true;
}
