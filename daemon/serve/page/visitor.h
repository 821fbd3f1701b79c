/*
 * An HTTP visitor's rights: whether it may see what dlctl would show, by the token, or because the
 * kernel says that the peer is a process of the daemon's own user.
 */
#ifndef DL_VISITOR_H
#define DL_VISITOR_H

#include "proto/common/base.h"

/*
 * Whether a header `Authorization` says "Bearer TOKEN"; takes as long for any wrong token of the
 * same length. NULL for either: false. Pure.
 */
bool visitor_has_token(const char *authorization, const char *token);

/*
 * Whether a header `Host` means this machine: localhost, a loopback address, with or without a
 * port. A hostile web page can have its own name resolved to 127.0.0.1, so that a browser sends the
 * page's requests here; but the header then has that name. NULL: false. Pure.
 */
bool visitor_means_here(const char *host);

/*
 * Whether the peer of this connection is a process of the user `own`: with a Unix socket, every
 * process that may connect is trusted; with TCP at a loopback address, the kernel is asked for the
 * owner of the other socket. False when that cannot be found out. Does not wait.
 */
bool visitor_is_own(int fd, uid_t own);

#endif
