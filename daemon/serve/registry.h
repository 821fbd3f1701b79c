/*
 * The daemon's loaders, by user and name: a client that requests a spec joins the loader of that
 * name, or a new one is made. `context` is the struct daemon; for the two find functions see
 * session.h.
 */
#ifndef DL_REGISTRY_H
#define DL_REGISTRY_H

#include "daemon/serve/daemon.h"

/* A loader under its key, in daemon.loaders. */
struct registered *registered_next(const struct registered *entry);
struct loader *registered_loader(const struct registered *entry);

int _nodiscard_ registry_find(void *context, struct session *session, struct loader_wanted *wanted,
                              const uint64_t *seed, uint64_t asked, struct loader **ret,
                              struct dl_error *err);
int _nodiscard_ registry_find_open(void *context, struct session *session, const char *name,
                                   struct loader **ret, struct dl_error *err);

/* Once the loop is there. */
void registry_begin(struct daemon *daemon);
/* No session has a loader any more. */
void registry_free(struct daemon *daemon);

#endif
