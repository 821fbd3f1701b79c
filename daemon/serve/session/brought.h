/*
 * The Python hosts that a client has brought and no loader has taken yet: each the socket to a
 * process of the client's that starts workers (daemon/serve/pool/host.h).
 *
 * Bounded: where one more comes, the oldest is closed. Main thread only.
 */
#ifndef DL_BROUGHT_H
#define DL_BROUGHT_H

#include "proto/common/error.h"

enum { BROUGHT_MAX = 16 };

struct brought_host {
    uint64_t number;
    int sock;            /* owned; -1: it was no good */
    struct dl_error why; /* then */
};

struct brought {
    struct brought_host
        *hosts; /* owned array of BROUGHT_MAX, in the order of arrival; NULL: none */
    uint32_t n;
    uint32_t sockets; /* that they have: descriptors of the daemon's */
};

void brought_deinit(struct brought *brought);

/* Consumes `sock`. One that is no good is remembered as such: who asks for it hears why. */
void brought_add(struct brought *brought, uint64_t number, int sock);

/*
 * The socket of the host of that number, which then is the caller's. -ENOENT: there is none,
 * -EINVAL: it was no good; with `err` at dataset.host.
 */
int _nodiscard_ brought_take(struct brought *brought, uint64_t number, int *ret_sock,
                             struct dl_error *err);

#endif
