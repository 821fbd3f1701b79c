/* Which users may run this client's daemon, and in whose folders the client looks for its socket.
 * Reads only the environment, the users' database and the given socket. */
#ifndef DL_CLIENT_DAEMON_USER_H
#define DL_CLIENT_DAEMON_USER_H

#include "proto/common/error.h"

/* Whether the user that listens at the other end may run the daemon. 0, or a negative errno with
 * `err`, which names the socket's owner. */
int _nodiscard_ daemon_user_check(int sock, struct dl_error *err);

/* $XDG_RUNTIME_DIR, borrowed; NULL if it is unset, or another user's, as `why_not` then says. */
const char *daemon_user_runtime_dir(struct dl_error *why_not);

#endif
