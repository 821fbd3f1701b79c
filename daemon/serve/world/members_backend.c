/* The stores that the configuration can name. */
#include "daemon/cluster/c10d.h"
#include "daemon/cluster/etcd.h"
#include "daemon/serve/base/log.h"
#include "daemon/serve/world/members_private.h"

#include <errno.h>

/* As long as a call may take; less where nobody has that much time. */
static uint64_t members_backend_call_ns(const struct config_rendezvous *config)
{
    return min_u64(config->timeouts.read, config->timeouts.join / 2);
}

/* While the store is slow: so that after an answer there is time for a heartbeat. */
static uint64_t members_backend_most_ns(const struct config_rendezvous *config)
{
    struct rdzv_settings set = members_settings(config);

    return min_u64(rdzv_silence(&set) - set.beat_ns, config->timeouts.join / 2);
}

static const char *members_backend_given(const char *text)
{
    return *text ? text : NULL;
}

static void members_backend_on_renewed(void *context)
{
    struct members *m = context;

    members_put_seed_back(m);
    if (!m->ending)
        shared_loaders_republish(m);
}

static int members_backend_open_etcd(struct members *m, const struct config_rendezvous *config,
                                     struct dl_error *err)
{
    struct etcd_options options = {.loop = m->loop,
                                   .endpoints = config->endpoint,
                                   .user = members_backend_given(config->user),
                                   .password = members_backend_given(config->password),
                                   .ca = members_backend_given(config->tls.ca),
                                   .cert = members_backend_given(config->tls.certificate),
                                   .key = members_backend_given(config->tls.key),
                                   .timeout_ns = members_backend_call_ns(config),
                                   .timeout_most_ns = members_backend_most_ns(config),
                                   .prefix = config->prefix,
                                   .run = config->id,
                                   .keep_s =
                                       config->keep ? config->keep / 1000000000 : ETCD_KEEP_MAX_S,
                                   .renewed = members_backend_on_renewed,
                                   .context = m};

    return etcd_new(&options, &m->backend, err);
}

static void members_backend_on_said(void *context, enum c10d_saying what, const char *text)
{
    const struct members *m = context;

    if (what == C10D_TROUBLE)
        log_warning("rendezvous %s: %s", m->id, text);
    else if (what == C10D_NOTE)
        log_info("rendezvous %s: %s", m->id, text);
    else
        log_debug("rendezvous %s: %s", m->id, text);
}

static int members_backend_open_c10d(struct members *m, const struct config_rendezvous *config,
                                     struct dl_error *err)
{
    static const enum c10d_hosting hosting[] = {[CONFIG_HOSTING_AUTO] = C10D_HOST_AUTO,
                                                [CONFIG_HOSTING_YES] = C10D_HOST_YES,
                                                [CONFIG_HOSTING_NO] = C10D_HOST_NO};
    struct c10d_options options = {.loop = m->loop,
                                   .endpoint = config->endpoint,
                                   .timeout_ns = members_backend_call_ns(config),
                                   .timeout_most_ns = members_backend_most_ns(config),
                                   .prefix = config->prefix,
                                   .hosting = hosting[config->host],
                                   .said = members_backend_on_said,
                                   .renewed = members_backend_on_renewed,
                                   .context = m};

    return c10d_new(&options, &m->backend, err);
}

/* By enum config_backend. */
static const struct {
    const char *name;
    const char *store, *example; /* for people */
    bool forgets;
    int (*open)(struct members *m, const struct config_rendezvous *config, struct dl_error *err);
} members_backends[] = {
    [CONFIG_BACKEND_NONE] = {.name = "none"},
    [CONFIG_BACKEND_ETCD] = {"etcd", "etcd", "10.0.0.1:2379", false, members_backend_open_etcd},
    [CONFIG_BACKEND_C10D] = {"c10d", "the TCPStore", "10.0.0.1:29400", true,
                             members_backend_open_c10d}};

int members_backend_check(const struct config_rendezvous *config, struct dl_error *err)
{
    _cleanup_free_ char *host = NULL;
    uint16_t port;

    if (!*config->endpoint)
        return dl_error_set(
            err, EINVAL, "rendezvous.endpoint", "is missing: write where %s is, such as %s",
            members_backends[config->backend].store, members_backends[config->backend].example);
    if (config->backend != CONFIG_BACKEND_C10D)
        return 0;
    if (*config->user || *config->tls.ca || *config->tls.certificate || *config->tls.key)
        return dl_error_set(err, EINVAL, "rendezvous.backend",
                            "c10d has neither users nor TLS: remove user and tls, and restrict "
                            "access to the store's port");
    return c10d_endpoint(config->endpoint, &host, &port, err);
}

int members_backend_move(struct members *m, const struct config_rendezvous *config,
                         struct dl_error *err)
{
    return etcd_move(m->backend, config->endpoint, config->password, err);
}

int members_backend_open(struct members *m, const struct config_rendezvous *config,
                         struct dl_error *err)
{
    m->backend_name = members_backends[config->backend].name;
    m->forgets = members_backends[config->backend].forgets;
    return members_backends[config->backend].open(m, config, err);
}
