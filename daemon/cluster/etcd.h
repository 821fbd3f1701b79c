/*
 * etcd as a backend: version 3, by its JSON gateway, which every etcd from 3.4 on has beside gRPC.
 *
 * A key is `prefix`key. A set is one transaction, which compares the revision of the key. Of
 * several endpoints the one that answered last is asked first; where it cannot be reached, or is
 * not able to serve, the next is, until each was asked. A write whose answer was lost may have been
 * done: the answer of the next says so.
 *
 * With `keep_s` what is written hangs on a lease of this node, which it keeps alive: so a run's
 * state goes when nobody has written it for that long after the last node was there.
 */
#ifndef DL_ETCD_H
#define DL_ETCD_H

#include "daemon/cluster/backend.h"

enum { ETCD_ENDPOINTS_MAX = 16 };

/* All texts are copied. */
struct etcd_options {
    uv_loop_t *loop;
    const char *endpoints; /* [http[s]://]host[:port], ..., separated by commas */
    const char *prefix;    /* of keys; NULL: "/dloader/" */
    const char *user;      /* NULL: none is asked for */
    const char *password;
    const char *ca, *cert,
        *key;            /* files, of https; NULL: the system's authorities, no certificate */
    uint64_t timeout_ns; /* of a call; 0: 5 s */
    uint64_t keep_s;     /* 0: what is written stays */
};

int _nodiscard_ etcd_new(const struct etcd_options *options, struct backend **ret,
                         struct dl_error *err);

#endif
