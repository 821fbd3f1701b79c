/* Where the live page and its data come from. */
#ifndef DL_PAGE_H
#define DL_PAGE_H

#include "proto/common/error.h"
#include "proto/value.h"

/* Makes one of the daemon's views. */
typedef int (*page_view)(void *context, const char *name, struct value *ret, struct dl_error *err);

#endif
