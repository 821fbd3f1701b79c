/*
 * Time to measure with: monotonic, and the same in all processes of a machine. uv_hrtime() reads
 * the same clock.
 */
#ifndef DL_CLOCK_H
#define DL_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#endif
