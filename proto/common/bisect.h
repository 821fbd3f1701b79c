/*
 * Where a number lies among numbers that are in order. Pure; any thread.
 */
#ifndef DL_BISECT_H
#define DL_BISECT_H

#include <stddef.h>
#include <stdint.h>

/* The first `i` from `low` on for which `is_before` does not hold, as it does for all before that;
 * `high` if it holds for all below. */
#define BISECT(low, high, i, is_before)                   \
    ({                                                    \
        uint64_t _low = (low), _high = (high);            \
        while (_low < _high) {                            \
            const uint64_t i = _low + (_high - _low) / 2; \
            if (is_before)                                \
                _low = i + 1;                             \
            else                                          \
                _high = i;                                \
        }                                                 \
        _low;                                             \
    })

/* The first part that ends beyond `at`; `n` if no part does. ends[i] is where part i ends. */
static inline uint64_t bisect_ends(const uint64_t *ends, uint64_t n, uint64_t at)
{
    return BISECT(0, n, i, ends[i] <= at);
}

/*
 * The last of the parts that begins at `at` or before; 0 also if no part does, or n is 0. `first`
 * points to the first one's beginning, and each further beginning lies `stride` bytes behind the
 * one before: bisect_firsts(&files[0].first, sizeof *files, n, row).
 */
static inline uint64_t bisect_firsts(const uint64_t *first, size_t stride, uint64_t n, uint64_t at)
{
    uint64_t low = 0, high = n;

    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;

        if (*(const uint64_t *)(const void *)((const char *)first + middle * stride) <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

#endif
