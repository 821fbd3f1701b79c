#include "daemon/worker/python/spent.h"

#include "proto/common/clock.h"

static uint64_t spent_so_far;

void spent_add(uint64_t began_ns)
{
    spent_so_far += clock_ns() - began_ns;
}

uint64_t spent_ns(void)
{
    return spent_so_far;
}
