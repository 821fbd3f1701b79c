/* Who may be the daemon of this client, and whose folders it looks for one in. Pure but for the
 * environment, the users' database and what it is asked about. */
#ifndef DL_CLIENT_DAEMON_USER_H
#define DL_CLIENT_DAEMON_USER_H

#include "proto/common/error.h"

/* Whether the user that listens at the other end may be the daemon. 0, or a negative errno with
 * `err`, which says whose socket it is. */
int _nodiscard_ daemon_user_check(int sock, struct dl_error *err);

/* $XDG_RUNTIME_DIR, borrowed; NULL: there is none, or it is another user's, as `why_not` then says.
 */
const char *daemon_user_runtime_dir(struct dl_error *why_not);

#endif
