/*
 * How epochs and loaders end.
 */
#include "client/internal.h"

#include <assert.h>

void epoch_unlink(struct dl_epoch *epoch)
{
    for (struct dl_epoch **link = &epoch->loader->epochs; *link; link = &(*link)->next)
        if (*link == epoch) {
            *link = epoch->next;
            return;
        }
}

struct dl_epoch *epoch_free(struct dl_epoch *epoch)
{
    if (!epoch)
        return NULL;
    epoch_unlink(epoch);
    while (epoch->count > 0) {
        struct entry entry = epoch_pop(epoch);

        entry_deinit(&entry);
    }
    view_unref(epoch->view);
    if (epoch->loader->client->reconnect.call.epoch == epoch)
        epoch->loader->client->reconnect.call.epoch = NULL;
    view_unref(epoch->slice);
    saved_states_deinit(epoch);
    fault_free(epoch->cut);
    epoch_drop_position(epoch);
    free(epoch->job);
    free(epoch->entries);
    feed_deinit(&epoch->feed);
    step_set_deinit(&epoch->arrived);
    came_deinit(&epoch->came);
    free(epoch->warning);
    free(epoch->warning_shown);
    free(epoch->releases);
    free(epoch->pins);
    free(epoch);
    return NULL;
}

struct dl_loader *loader_free(struct dl_loader *loader)
{
    struct dl_loader **link;

    if (!loader)
        return NULL;
    assert(!loader->epochs);
    for (link = &loader->client->loaders; *link; link = &(*link)->next)
        if (*link == loader) {
            *link = loader->next;
            break;
        }
    if (loader->local)
        local_loader_close(loader);
    if (loader->client->reconnect.call.loader == loader)
        loader->client->reconnect.call.loader = NULL;
    hosts_free(loader->hosts);
    buffer_deinit(&loader->spec);
    buffer_deinit(&loader->weights.list);
    free(loader->base);
    free(loader->name);
    free(loader);
    return NULL;
}

/* CLOSE ends all leases: it is not sent before the last tensor's batch is released. */
void loader_end_and_free(struct dl_loader *loader)
{
    struct dl_message msg = {.number = DL_MSG_CLOSE};

    msg.close.loader = loader->id;
    if (!loader->local && !loader->needs_open)
        client_send(loader->client, &msg);
    loader_free(loader);
}

void loader_drop_tensor_owned(struct dl_loader *loader)
{
    assert(loader->n_tensor_owned > 0);
    if (--loader->n_tensor_owned == 0 && loader->closed)
        loader_end_and_free(loader);
}
