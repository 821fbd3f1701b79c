/*
 * The stores that the configuration can name, for nodes (members.h) and helpers (discovery.h).
 * Main thread only.
 */
#ifndef DL_WORLD_STORE_H
#define DL_WORLD_STORE_H

#include "daemon/base/config.h"
#include "daemon/cluster/store/c10d.h"

struct world_store_options {
    uv_loop_t *loop;
    const struct config_rendezvous *config;
    const char *run;                /* whose lease etcd keeps what is written by */
    bool hosts;                     /* a TCPStore is served here, where rendezvous.host says so */
    c10d_said said;                 /* of that, for logs */
    void (*renewed)(void *context); /* as c10d.h and etcd.h have it; may be NULL */
    void *context;
};

/* Whether the endpoint can be one: 0, or -EINVAL. */
int _nodiscard_ world_store_check(const struct config_rendezvous *config, struct dl_error *err);
int _nodiscard_ world_store_open(const struct world_store_options *options, struct backend **ret,
                                 struct dl_error *err);

/* As the configuration names it. */
const char *world_store_name(enum config_backend backend);
/* Whether all that it has goes with its process. */
bool world_store_forgets(enum config_backend backend);

#endif
