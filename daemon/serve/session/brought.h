/*
 * The Python hosts that a client has brought and no loader has taken yet: for each, the socket to a
 * process of the client that starts workers (daemon/serve/pool/host.h).
 *
 * Bounded: one more closes the oldest. Main thread only.
 */
#ifndef DL_BROUGHT_H
#define DL_BROUGHT_H

#include "proto/common/error.h"

enum { BROUGHT_MAX = 16 };

struct brought_host {
    uint64_t number;
    int sock;            /* owned; -1: it was unusable */
    struct dl_error why; /* then */
};

struct brought {
    struct brought_host *hosts; /* owned array of BROUGHT_MAX, in order of arrival; or NULL */
    uint32_t n;
    uint32_t sockets; /* that they have: descriptors of the daemon's */
};

void brought_deinit(struct brought *brought);

/* Consumes `sock`. An unusable one is remembered, so that the request that names it gets the
 * reason. */
void brought_add(struct brought *brought, uint64_t number, int sock);

/*
 * Passes the host's socket to the caller. -ENOENT: no such host, -EINVAL: it was unusable; with
 * `err` at dataset.host.
 */
int _nodiscard_ brought_take(struct brought *brought, uint64_t number, int *ret_sock,
                             struct dl_error *err);

#endif
