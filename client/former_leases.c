/*
 * Leases of a daemon that is gone: what the next daemon must know about them.
 *
 * Their batches stay readable without it. But if this process dies, its rank must not resume behind
 * a batch that was never released. So START gives the lowest step among them, and FORMER_LEASE the
 * new lowest after some were released.
 */
#include "client/internal.h"

static uint64_t former_leases_lowest_of(const struct dl_epoch *epoch, const struct dl_batch *list,
                                        uint64_t lowest)
{
    for (; list; list = list->next) {
        const struct mapping *slot = list->detached ? list->withheld : list->mapping;

        if (list->epoch == epoch && slot && !client_has_lease(list->client, slot))
            lowest = min_u64(lowest, list->step);
    }
    return lowest;
}

/* Among what waits for next(), what the user has, and what tensors keep. */
static uint64_t former_leases_find(const struct dl_epoch *epoch)
{
    const struct dl_client *client = epoch->loader->client;
    uint64_t lowest = UINT64_MAX;

    for (uint32_t i = 0; i < epoch->count; i++) {
        const struct entry *entry = &epoch->entries[(epoch->head + i) & (epoch->cap - 1)];

        if (entry_is_former_lease(client, entry))
            lowest = min_u64(lowest, entry->descriptor.step);
    }
    lowest = former_leases_lowest_of(epoch, client->batches, lowest);
    return former_leases_lowest_of(epoch, client->tensor_owned, lowest);
}

uint64_t former_leases_lowest(struct dl_epoch *epoch)
{
    epoch->lowest_former = epoch->job[0] ? former_leases_find(epoch) : UINT64_MAX;
    epoch->n_former_returned = 0;
    return epoch->lowest_former;
}

void former_leases_note_returned(struct dl_epoch *epoch)
{
    epoch->n_former_returned +=
        epoch->lowest_former != UINT64_MAX || !epoch_rules_of(epoch)->daemon_has_it;
}

void former_leases_report(struct dl_epoch *epoch)
{
    struct dl_message msg = {.number = DL_MSG_FORMER_LEASE};
    uint64_t reported = epoch->lowest_former;

    if (epoch->n_former_returned == 0 || !epoch_rules_of(epoch)->daemon_has_it ||
        former_leases_lowest(epoch) == reported)
        return;
    msg.former_lease.stream = epoch->stream;
    msg.former_lease.step = epoch->lowest_former;
    client_send(epoch->loader->client, &msg);
}
