/*
 * Views of the daemon: values built from its live objects. PROTOCOL.md has their names and keys.
 */
#ifndef DL_VIEWS_H
#define DL_VIEWS_H

#include "daemon/serve/daemon.h"

/* As `uid` may see it. -EINVAL: unknown view. */
int _nodiscard_ views_make(const struct daemon *daemon, uid_t uid, const char *name,
                           struct value *ret, struct dl_error *err);

#endif
