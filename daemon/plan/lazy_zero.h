/*
 * Arrays that are zero until written and use no memory until touched.
 */
#ifndef DL_PLAN_LAZY_ZERO_H
#define DL_PLAN_LAZY_ZERO_H

#include "proto/common/base.h"

/* `whole`: all of it will be written at once. Size 0 gives NULL. Returns 0 or -ENOMEM. */
int _nodiscard_ lazy_zero_new(uint64_t size, bool whole, void **ret);
void lazy_zero_free(void *mem, uint64_t size); /* `size` as it was; NULL is fine */

#endif
