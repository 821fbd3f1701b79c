/*
 * Batches that have outlived the daemon that lent them: what the next one is told of them.
 *
 * They need nothing of it, but where its job's rank goes on, should this process die, is not behind
 * a batch that was never given back. START says the lowest step of them, and HELD what it is when
 * some were given back since.
 */
#include "client/internal.h"

static uint64_t lowest_of(const struct dl_epoch *epoch, const struct dl_batch *list,
                          uint64_t lowest)
{
    for (; list; list = list->next) {
        const struct mapping *slot = list->detached ? list->withheld : list->mapping;

        if (list->epoch == epoch && slot && !client_has_lease(list->client, slot))
            lowest = min_u64(lowest, list->step);
    }
    return lowest;
}

/* Of what waits for next(), what the user has, and what tensors keep. */
static uint64_t find_lowest(const struct dl_epoch *epoch)
{
    const struct dl_client *client = epoch->loader->client;
    uint64_t lowest = UINT64_MAX;

    for (uint32_t i = 0; i < epoch->count; i++) {
        const struct entry *entry = &epoch->entries[(epoch->head + i) & (epoch->cap - 1)];

        if (entry_has_outlived(client, entry))
            lowest = min_u64(lowest, entry->descriptor.step);
    }
    lowest = lowest_of(epoch, client->batches, lowest);
    return lowest_of(epoch, client->kept, lowest);
}

uint64_t outlived_lowest(struct dl_epoch *epoch)
{
    epoch->outlived = epoch->job[0] ? find_lowest(epoch) : UINT64_MAX;
    epoch->n_outlived = 0;
    return epoch->outlived;
}

void outlived_given_back(struct dl_epoch *epoch)
{
    epoch->n_outlived += epoch->outlived != UINT64_MAX || !epoch_rules_of(epoch)->is_there;
}

void outlived_tell(struct dl_epoch *epoch)
{
    struct dl_message msg = {.number = DL_MSG_HELD};
    uint64_t told = epoch->outlived;

    if (epoch->n_outlived == 0 || !epoch_rules_of(epoch)->is_there ||
        outlived_lowest(epoch) == told)
        return;
    msg.held.stream = epoch->stream;
    msg.held.step = epoch->outlived;
    client_send(epoch->loader->client, &msg);
}
