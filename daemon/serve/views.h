/* Views of the daemon for `dlctl`: values, built from what lives in it. PROTOCOL.md has the keys.
 */
#ifndef DL_VIEWS_H
#define DL_VIEWS_H

#include "daemon/serve/daemon.h"

/* status, loaders, epochs, workers, ring, sessions or quarantine. -EINVAL for another name. */
int _nodiscard_ views_make(const struct daemon *daemon, const char *name, struct value *ret,
                           struct dl_error *err);

#endif
