/* The table of limits.def as constants DL_MAX_<name>; each fits int64_t. */
#ifndef DL_LIMITS_H
#define DL_LIMITS_H

#include <stdint.h>

#define LIMIT(name, value, unit, why) \
    static const uint64_t DL_MAX_##name __attribute__((unused)) = value;
#include "proto/limits.def"
#undef LIMIT

/*
 * The same as constant expressions, to size an array by: an int each, but for those that are too
 * large. (In one enum, C23 and gcc from 13 on give all of them the type of the largest.)
 */
#define LIMIT(name, value, unit, why) enum { DL_BOUND_##name = value };
#include "proto/limits.def"
#undef LIMIT

#endif
