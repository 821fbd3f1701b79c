/*
 * A client's rights, as the kernel reports them for its connection: user, group, and supplementary
 * groups.
 */
#ifndef DL_CREDENTIALS_H
#define DL_CREDENTIALS_H

#include "proto/common/error.h"

#include <sys/socket.h>

/* As in W_OPEN: uid, gid, supplementary groups in ascending order. */
struct credentials {
    uint32_t n;
    uint32_t ids[];
};

/* The process that made the connection `sock`, */
int _nodiscard_ credentials_peer(int sock, struct ucred *ret, struct dl_error *err);
/* and what it may do; freed by free(). */
int _nodiscard_ credentials_read(int sock, const struct ucred *peer, struct credentials **ret,
                                 struct dl_error *err);

/* Whether what one may do is what the other may do. */
bool credentials_equal(const struct credentials *a, const struct credentials *b);

struct credentials *credentials_copy(const struct credentials *original); /* NULL of NULL */

#endif
