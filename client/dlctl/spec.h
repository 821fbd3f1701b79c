/* What an open loader was opened with, of the daemon's view `specs`. */
#ifndef DLCTL_SPEC_H
#define DLCTL_SPEC_H

#include "proto/value.h"

#include <jansson.h>

/* The row of the loader of that name in a view, this user's before any other's; NULL: none is. */
const struct value *spec_find_row(const struct value *view, const char *key, const char *name);

/*
 * The spec that a row of `specs` has, *ret owned by the caller. -EACCES: it is another user's;
 * -EFBIG; -EBADMSG; or -ENOMEM.
 */
int _nodiscard_ spec_read_row(const struct value *row, json_t **ret);

#endif
