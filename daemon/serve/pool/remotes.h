/*
 * The processes that fetch remote files (daemon/fetcher/), as the daemon sees them: one for each
 * user, started when the first worker of a loader of that user's wants one, started again when it
 * has ended; and a socket to it for each worker.
 *
 * That of the daemon's own user has the daemon's environment, in which credentials may be. That of
 * another user runs as that user, which only root's daemon can have it do, and has nothing of the
 * daemon's environment but where the system's certificates are: its credentials are those in the
 * user's home. What one user's process has fetched, no other's has. That of the daemon's own user
 * alone keeps blocks on disk.
 *
 * Main thread only.
 */
#ifndef DL_SERVE_REMOTES_H
#define DL_SERVE_REMOTES_H

#include "daemon/base/config.h"
#include "daemon/base/credentials.h"
#include "daemon/serve/pool/remote_peers.h"
#include "proto/common/error.h"
#include "proto/remote_counts.h"

#include <uv.h>

/* -EINVAL: cache.dir is no absolute path, or remote.peers no address. */
int _nodiscard_ remotes_check(const struct config *config, struct dl_error *err);

struct remotes;

/* `config`: its section `remote`, read whenever a process is started; borrowed. */
struct remotes *remotes_new(uv_loop_t *loop, const struct config *config);
/* Ends the processes. NULL is fine; returns NULL. */
struct remotes *remotes_free(struct remotes *remotes);

/* Listens for other nodes, where remote.peers says so. *ret: what they are to be told, borrowed;
 * NULL: nothing. */
int _nodiscard_ remotes_listen(struct remotes *remotes, const struct peer_card **ret,
                               struct dl_error *err);
/* Who they are (members_events.peers). */
void remotes_set_peers(struct remotes *remotes, const char *list);

/* A number for a loader, whose workers share what they have learned of stores. */
uint64_t remotes_number(struct remotes *remotes);

/* A worker's end of its socket to the process of `user`, NULL: the daemon's own; the caller's.
 * `loader`: its number, or 0. -EPERM: the daemon cannot start one for that user. */
int _nodiscard_ remotes_connect(struct remotes *remotes, const struct credentials *user,
                                uint64_t loader, int *ret, struct dl_error *err);

/* The same with a socket that is there already: its other end, borrowed. */
int _nodiscard_ remotes_give(struct remotes *remotes, const struct credentials *user,
                             uint64_t loader, int theirs, struct dl_error *err);

/* What all processes count and hold; of those that have ended, what they counted. Other users can
 * write what they like into theirs. *ret_pid: of the daemon's own; 0: it does not run. */
void remotes_look(const struct remotes *remotes, uint64_t ret[static REMOTE_COUNTS], int *ret_pid);

#endif
