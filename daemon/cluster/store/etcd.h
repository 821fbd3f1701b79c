/*
 * etcd as a backend: version 3, by its JSON gateway, which every etcd from 3.4 on has beside gRPC.
 *
 * A key lies there behind the prefix, as "/dloader/KEY". A set is one transaction, which compares
 * the revision of the key. Of several endpoints the one that answered last is asked first; where it
 * cannot be reached, or is not able to serve, the next is, until each was asked. A write whose
 * answer was lost may have been done: the answer of the next says so.
 *
 * Of the history of its keys, that of the last ten minutes or so is kept, of all keys of that etcd:
 * nodes that list keys ask it to forget what was before.
 *
 * With `keep_s` all that is written depends on one lease, the run's, whose id all nodes make of its
 * name. The first node grants it, and each keeps it alive: so all keys of a run go, and at once,
 * when none of its nodes has been in touch with the store for that long. Where nodes differ in
 * `keep_s` that of the first counts, until the lease has ended.
 */
#ifndef DL_ETCD_H
#define DL_ETCD_H

#include "daemon/cluster/store/backend.h"

enum { ETCD_ENDPOINTS_MAX = 16 };

/* The longest that etcd takes: 285 years. */
#define ETCD_KEEP_MAX_S ((uint64_t)9000000000)

/* All texts are copied. */
struct etcd_options {
    uv_loop_t *loop;
    const char *endpoints; /* [http[s]://]host[:port], ..., separated by commas */
    const char *user;      /* NULL: none is asked for */
    const char *password;
    const char *ca, *cert,
        *key;                 /* files, of https; NULL: the system's authorities, no certificate */
    uint64_t timeout_ns;      /* of a call; 0: 5 s */
    uint64_t timeout_most_ns; /* while etcd is slow (patience.h); 0: not more */
    const char *prefix;       /* of all keys; NULL: BACKEND_PREFIX */
    const char *run;          /* with `keep_s`: whose lease it is */
    uint64_t keep_s;          /* 0: there is no lease, and what is written stays */
    /* The watched key has been gone, or is another than it was: so may be all the rest. From the
     * loop, never from inside a call; may be NULL. */
    void (*renewed)(void *context);
    void *context;
};

int _nodiscard_ etcd_new(const struct etcd_options *options, struct backend **ret,
                         struct dl_error *err);
/* Of one made by etcd_new(): as etcd_client_move(). */
int _nodiscard_ etcd_move(struct backend *backend, const char *endpoints, const char *password,
                          struct dl_error *err);

#endif
