/* The store of the cluster's nodes. */
#include "daemon/base/log.h"
#include "daemon/cluster/store/etcd.h"
#include "daemon/cluster/world/members_private.h"
#include "daemon/cluster/world/world_store.h"

static void members_backend_on_renewed(void *context)
{
    struct members *m = context;

    members_put_seed_back(m);
    if (!m->ending)
        shared_loaders_republish(m);
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

int members_backend_check(const struct config_rendezvous *config, struct dl_error *err)
{
    return world_store_check(config, err);
}

int members_backend_move(struct members *m, const struct config_rendezvous *config,
                         struct dl_error *err)
{
    return etcd_move(m->backend, config->endpoint, config->password, err);
}

int members_backend_open(struct members *m, const struct config_rendezvous *config,
                         struct dl_error *err)
{
    const struct world_store_options options = {.loop = m->loop,
                                                .config = config,
                                                .run = config->id,
                                                .hosts = true,
                                                .said = members_backend_on_said,
                                                .renewed = members_backend_on_renewed,
                                                .context = m};

    m->backend_name = world_store_name(config->backend);
    m->forgets = world_store_forgets(config->backend);
    return world_store_open(&options, &m->backend, err);
}
