/*
 * How helpers and the daemons that they help find each other: in the store of `rendezvous`, under
 * the name helpers.run. A helper puts a word under its address with each heartbeat
 * (rendezvous.heartbeat), another one each time; daemons list them as often, and announced.h says
 * who is there. The store needs nothing for it that nodes of a cluster do not use as well, and may
 * be the same; neither side has to be a node of one. What does not answer changes nothing: daemons
 * keep the helpers that they know.
 *
 * Main thread only. Callbacks come from the loop.
 */
#ifndef DL_DISCOVERY_H
#define DL_DISCOVERY_H

#include "daemon/base/config.h"

#include <uv.h>

struct discovery;

/* Others are there than before; borrowed for the call. */
typedef void (*discovery_found)(void *context, const struct config_dirs *addresses);

/* What helpers.run and `rendezvous` say of it, if anything: 0, or -EINVAL. */
int _nodiscard_ discovery_check(const struct config *config, struct dl_error *err);

/* A helper, which daemons reach at `address`. *ret NULL: its configuration announces nothing. The
 * configuration is checked here, and not used after the call. */
int _nodiscard_ discovery_announce(uv_loop_t *loop, const struct config *config,
                                   const char *address, struct discovery **ret,
                                   struct dl_error *err);
/* A daemon; likewise. `hosts`: it may serve the store, as rendezvous.host says. */
int _nodiscard_ discovery_watch(uv_loop_t *loop, const struct config *config, bool hosts,
                                discovery_found found, void *context, struct discovery **ret,
                                struct dl_error *err);
/* What a helper has announced is taken back first, if the store answers. NULL is fine; returns
 * NULL. No callbacks come any more. */
struct discovery *discovery_free(struct discovery *discovery);

#endif
