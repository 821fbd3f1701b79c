/*
 * Views of the daemon, for whoever looks at it: values, built from what lives in it. PROTOCOL.md
 * has their names and keys.
 */
#ifndef DL_VIEWS_H
#define DL_VIEWS_H

#include "daemon/serve/daemon.h"

/* As `uid` may see it. -EINVAL: there is no view of that name. */
int _nodiscard_ views_make(const struct daemon *daemon, uid_t uid, const char *name,
                           struct value *ret, struct dl_error *err);

#endif
