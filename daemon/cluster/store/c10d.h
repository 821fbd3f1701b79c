/*
 * A TCPStore as a backend: one that PyTorch serves, of either generation, or one of ours.
 *
 * The store has values and no tokens, and compares whole values: a token here is a hash of the
 * bytes, and a set compares with the bytes it is of. It reads without waiting for keys that are not
 * there, and without changing anything: by COMPARE_SET of a value that nobody stores with itself.
 * So each call is one request, but a set whose bytes are not at hand, which reads them first. It
 * does not watch: a client of a TCPStore can wait for a key to appear, not for it to change.
 *
 * With the prefix "/dloader/" a key lies in the store as "/dloader/KEY", where PyTorch's clients
 * find it as "dloader/KEY", or behind PrefixStore("dloader", store) as "KEY". Theirs are others:
 * the store can be shared.
 *
 * A store that was started again has nothing: what was under a key then is gone, and a set with a
 * token says so.
 *
 * Where the endpoint is this machine's own, the store can be here: see c10d_host.h.
 */
#ifndef DL_C10D_H
#define DL_C10D_H

#include "daemon/cluster/store/backend.h"
#include "daemon/cluster/store/c10d_host.h"

enum { C10D_PORT = 29400 }; /* PyTorch's */

struct c10d_options {
    uv_loop_t *loop;
    const char *endpoint;     /* host[:port], [v6]:port; copied */
    uint64_t timeout_ns;      /* of a call; 0: 5 s */
    uint64_t timeout_most_ns; /* while the store is slow (patience.h); 0: not more */
    const char *prefix;       /* of all keys; NULL: BACKEND_PREFIX */
    enum c10d_hosting hosting;
    c10d_said said; /* what becomes of that, for logs; may be NULL */
    /* It answers over another connection than before: what was left there may be gone. From the
     * loop, never from inside a call; may be NULL. */
    void (*renewed)(void *context);
    void *context;
};

int _nodiscard_ c10d_new(const struct c10d_options *options, struct backend **ret,
                         struct dl_error *err);

/* What the endpoint says: 0, or -EINVAL and what is wrong with it. `host` is to be freed. */
int _nodiscard_ c10d_endpoint(const char *text, char **ret_host, uint16_t *ret_port,
                              struct dl_error *err);

#endif
