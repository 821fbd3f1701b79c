/* The stores that the configuration can name. */
#include "daemon/cluster/world/world_store.h"

#include "daemon/cluster/store/etcd.h"
#include "daemon/cluster/world/members_private.h"

#include <errno.h>

/* As long as a call may take; less where nobody has that much time. */
static uint64_t world_store_call_ns(const struct config_rendezvous *config)
{
    return min_u64(config->timeouts.read, config->timeouts.join / 2);
}

/* While the store is slow: so that after an answer there is time for a heartbeat. */
static uint64_t world_store_most_ns(const struct config_rendezvous *config)
{
    struct rdzv_settings set = members_settings(config);

    return min_u64(rdzv_silence(&set) - set.beat_ns, config->timeouts.join / 2);
}

static const char *world_store_given(const char *text)
{
    return *text ? text : NULL;
}

static int world_store_open_etcd(const struct world_store_options *o, struct backend **ret,
                                 struct dl_error *err)
{
    const struct config_rendezvous *config = o->config;
    struct etcd_options options = {.loop = o->loop,
                                   .endpoints = config->endpoint,
                                   .user = world_store_given(config->user),
                                   .password = world_store_given(config->password),
                                   .ca = world_store_given(config->tls.ca),
                                   .cert = world_store_given(config->tls.certificate),
                                   .key = world_store_given(config->tls.key),
                                   .timeout_ns = world_store_call_ns(config),
                                   .timeout_most_ns = world_store_most_ns(config),
                                   .prefix = config->prefix,
                                   .run = o->run,
                                   .keep_s =
                                       config->keep ? config->keep / 1000000000 : ETCD_KEEP_MAX_S,
                                   .renewed = o->renewed,
                                   .context = o->context};

    return etcd_new(&options, ret, err);
}

static int world_store_open_c10d(const struct world_store_options *o, struct backend **ret,
                                 struct dl_error *err)
{
    static const enum c10d_hosting hosting[] = {[CONFIG_HOSTING_AUTO] = C10D_HOST_AUTO,
                                                [CONFIG_HOSTING_YES] = C10D_HOST_YES,
                                                [CONFIG_HOSTING_NO] = C10D_HOST_NO};
    struct c10d_options options = {.loop = o->loop,
                                   .endpoint = o->config->endpoint,
                                   .timeout_ns = world_store_call_ns(o->config),
                                   .timeout_most_ns = world_store_most_ns(o->config),
                                   .prefix = o->config->prefix,
                                   .hosting = o->hosts ? hosting[o->config->host] : C10D_HOST_NO,
                                   .said = o->said,
                                   .renewed = o->renewed,
                                   .context = o->context};

    return c10d_new(&options, ret, err);
}

/* By enum config_backend. */
static const struct {
    const char *name;
    const char *store, *example; /* for people */
    bool forgets;
    int (*open)(const struct world_store_options *o, struct backend **ret, struct dl_error *err);
} world_stores[] = {
    [CONFIG_BACKEND_NONE] = {.name = "none"},
    [CONFIG_BACKEND_ETCD] = {"etcd", "etcd", "10.0.0.1:2379", false, world_store_open_etcd},
    [CONFIG_BACKEND_C10D] = {"c10d", "the TCPStore", "10.0.0.1:29400", true,
                             world_store_open_c10d}};

int world_store_check(const struct config_rendezvous *config, struct dl_error *err)
{
    _cleanup_free_ char *host = NULL;
    uint16_t port;

    if (!*config->endpoint)
        return dl_error_set(
            err, EINVAL, "rendezvous.endpoint", "is missing: write where %s is, such as %s",
            world_stores[config->backend].store, world_stores[config->backend].example);
    if (config->backend != CONFIG_BACKEND_C10D)
        return 0;
    if (*config->user || *config->tls.ca || *config->tls.certificate || *config->tls.key)
        return dl_error_set(err, EINVAL, "rendezvous.backend",
                            "c10d has neither users nor TLS: remove user and tls, and restrict "
                            "access to the store's port");
    return c10d_endpoint(config->endpoint, &host, &port, err);
}

int world_store_open(const struct world_store_options *options, struct backend **ret,
                     struct dl_error *err)
{
    return world_stores[options->config->backend].open(options, ret, err);
}

const char *world_store_name(enum config_backend backend)
{
    return world_stores[backend].name;
}

bool world_store_forgets(enum config_backend backend)
{
    return world_stores[backend].forgets;
}
