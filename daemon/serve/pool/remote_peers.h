/*
 * The daemon's part in what nodes give each other of remote files (daemon/fetcher/peers.h): the
 * address where the others ask, its token, and the list of who takes part, for the process that
 * does all else. While that does not run, who calls has it started.
 *
 * Main thread only.
 */
#ifndef DL_SERVE_REMOTE_PEERS_H
#define DL_SERVE_REMOTE_PEERS_H

#include "daemon/base/config.h"
#include "proto/common/error.h"
#include "proto/peer_card.h"

#include <uv.h>

struct remote_peers;

/* -EINVAL: remote.peers is no address that others could call, or there are no others. */
int _nodiscard_ remote_peers_check(const struct config *config, struct dl_error *err);

/* Listens at remote.peers; *ret NULL: it is not set. `called`: somebody calls, and no process runs.
 */
int _nodiscard_ remote_peers_new(uv_loop_t *loop, const struct config *config,
                                 void (*called)(void *owner), void *owner,
                                 struct remote_peers **ret, struct dl_error *err);
/* NULL is fine; returns NULL. */
struct remote_peers *remote_peers_free(struct remote_peers *peers);

/* What this node says of itself. */
const struct peer_card *remote_peers_card(const struct remote_peers *peers);
/* Who takes part, as members_events.peers says it; copied. */
void remote_peers_set_list(struct remote_peers *peers, const char *list);

/* To the process, by its control socket: the list; `begins`: and where it listens. */
void remote_peers_tell(const struct remote_peers *peers, int control, bool begins);
/* It runs, or does not any more. */
void remote_peers_note(struct remote_peers *peers, bool runs);

#endif
