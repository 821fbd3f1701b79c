/*
 * Who asks by HTTP, and whether they see what dlctl would show them: by the token, or because the
 * kernel says that the other end is a process of the daemon's own user.
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
 * port. A web page of somebody else's can have its own name resolved to 127.0.0.1, and a browser
 * then sends requests of that page here; but it says the name. NULL: false. Pure.
 */
bool visitor_means_here(const char *host);

/*
 * Whether the other end of this connection is a process of the user `own`: by a Unix socket whoever
 * may connect to it is as good; by TCP at a loopback address the kernel is asked for the owner of
 * the other socket. False when that cannot be found out. Does not wait.
 */
bool visitor_is_own(int fd, uid_t own);

#endif
