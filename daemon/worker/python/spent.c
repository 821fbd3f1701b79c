#include "daemon/worker/python/spent.h"

#include "proto/common/clock.h"

#include <stdatomic.h>

static atomic_uint_least64_t spent_so_far;

void spent_add(uint64_t began_ns)
{
    atomic_fetch_add(&spent_so_far, clock_ns() - began_ns);
}

uint64_t spent_ns(void)
{
    return atomic_load(&spent_so_far);
}
