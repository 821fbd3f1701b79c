/*
 * What has arrived of an epoch and waits for next().
 */
#include "client/core/core.h"

#include <assert.h>
#include <errno.h>

enum { ENTRIES_MIN = 16 };

struct fault *fault_free(struct fault *fault)
{
    if (fault) {
        free(fault->path);
        free(fault->message);
        free(fault->detail);
        free(fault);
    }
    return NULL;
}

void entry_deinit(struct entry *entry)
{
    entry->mapping = mapping_unref(entry->mapping);
    entry->fault = fault_free(entry->fault);
}

bool entry_is_lent(const struct dl_client *client, const struct entry *entry)
{
    if (entry->mapping)
        return client_has_lease(client, entry->mapping);
    return entry->fault && entry->descriptor.step != UINT64_MAX &&
           entry->fault->incarnation == client->incarnation;
}

bool entry_is_former_lease(const struct dl_client *client, const struct entry *entry)
{
    bool has_step = entry->mapping || entry->descriptor.step != UINT64_MAX;

    return has_step && !entry_is_lent(client, entry);
}

static int queue_grow(struct dl_epoch *epoch)
{
    uint32_t cap = epoch->cap ? epoch->cap * 2 : ENTRIES_MIN;
    struct entry *grown = calloc(cap, sizeof *grown);

    if (!grown)
        return -ENOMEM;
    for (uint32_t i = 0; i < epoch->count; i++)
        grown[i] = epoch->entries[(epoch->head + i) & (epoch->cap - 1)];
    free(epoch->entries);
    epoch->entries = grown;
    epoch->cap = cap;
    epoch->head = 0;
    return 0;
}

int epoch_push(struct dl_epoch *epoch, const struct entry *entry)
{
    if (epoch->count == epoch->cap && queue_grow(epoch) < 0) {
        struct entry lost = *entry;

        entry_deinit(&lost);
        return -ENOMEM;
    }
    epoch->entries[(epoch->head + epoch->count) & (epoch->cap - 1)] = *entry;
    epoch->count++;
    assert(epoch->count <= epoch->cap);
    if (entry->fault) {
        epoch->faults++;
        epoch->detail_bytes += entry->fault->detail_len;
    }
    return 0;
}

struct entry epoch_pop(struct dl_epoch *epoch)
{
    struct entry *entry = &epoch->entries[epoch->head];

    assert(epoch->count > 0);
    epoch->head = (epoch->head + 1) & (epoch->cap - 1);
    epoch->count--;
    if (entry->fault) {
        assert(epoch->faults > 0);
        epoch->faults--;
        epoch->detail_bytes -= entry->fault->detail_len;
    }
    return *entry;
}
