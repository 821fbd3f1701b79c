/*
 * The watch over one key of etcd. One that broke, or is over, is begun again, at the endpoint that
 * is asked then. Main thread only.
 */
#ifndef DL_ETCD_WATCH_H
#define DL_ETCD_WATCH_H

#include "daemon/cluster/store/etcd_client.h"

struct etcd_watch;

/* `client` and `key` are borrowed until the watch is freed. `changed` is said from the loop, never
 * from inside a call; the owner may do anything. */
struct etcd_watch *etcd_watch_new(uv_loop_t *loop, struct etcd_client *client, const char *key,
                                  backend_changed changed, void *owner);
/* Its memory goes once the loop has let go of its handles. NULL is fine; returns NULL. */
struct etcd_watch *etcd_watch_free(struct etcd_watch *watch);

#endif
