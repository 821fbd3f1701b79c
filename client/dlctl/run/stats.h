/* Smallest, largest and mean element of a tensor, for people who look at a batch. Pure. */
#ifndef DLCTL_STATS_H
#define DLCTL_STATS_H

#include "proto/dtype.h"

struct stats {
    double min;
    double max;
    double mean; /* NaN elements make all three NaN */
};

/* False for an empty tensor and for complex elements, which have no order. */
bool tensor_stats(uint32_t dtype, const void *data, uint64_t nbytes, struct stats *ret);

#endif
