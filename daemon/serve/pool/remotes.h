/*
 * The process that fetches remote files (daemon/fetcher/), as the daemon sees it: started
 * when the first worker wants one, started again when it has ended; and a socket to it for each
 * worker.
 *
 * It has the daemon's environment, in which its user's credentials are.
 *
 * Main thread only.
 */
#ifndef DL_SERVE_REMOTES_H
#define DL_SERVE_REMOTES_H

#include "daemon/serve/base/config.h"
#include "proto/common/error.h"
#include "proto/remote_counts.h"

#include <uv.h>

struct remotes;

/* `config`: its section `remote`, read whenever a process is started; borrowed. */
struct remotes *remotes_new(uv_loop_t *loop, const struct config *config);
/* Ends the process. NULL is fine; returns NULL. */
struct remotes *remotes_free(struct remotes *remotes);

/* A worker's end of its socket to the process; the caller's. */
int _nodiscard_ remotes_connect(struct remotes *remotes, int *ret, struct dl_error *err);

/* What it counts and holds; of a process that does not run, what it counted. *ret_pid 0: none runs.
 */
void remotes_look(const struct remotes *remotes, uint64_t ret[static REMOTE_COUNTS], int *ret_pid);

#endif
