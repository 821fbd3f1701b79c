/* Specs: in a file, and what an open loader was opened with, of the daemon's view `specs`. */
#ifndef DLCTL_SPEC_H
#define DLCTL_SPEC_H

#include "proto/common/error.h"
#include "proto/value.h"

#include <jansson.h>

/* The spec in a file, unchecked; *ret is zeroed before the call. A negative errno with `err`. */
int _nodiscard_ spec_read_file(const char *path, struct value *ret, struct dl_error *err);

/* The row of the loader of that name in a view, this user's before any other's; NULL: none is. */
const struct value *spec_find_row(const struct value *view, const char *key, const char *name);

/*
 * The spec that a row of `specs` has, *ret owned by the caller. -EACCES: it is another user's;
 * -EFBIG; -EBADMSG; or -ENOMEM.
 */
int _nodiscard_ spec_read_row(const struct value *row, json_t **ret);

#endif
