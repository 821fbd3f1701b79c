/*
 * Leases on their way back. Steps released or pinned collect in `releases` and `pins`, and go out
 * together: see next.c.
 *
 * Leases of a daemon that is gone: what the next daemon must know about them. Their batches stay
 * readable without it. But if this process dies, its rank must not resume behind a batch that was
 * never released. So START gives the lowest step among them, and FORMER_LEASE the new lowest after
 * some were released.
 */
#include "client/core/core.h"

#include <assert.h>
#include <endian.h>

/* ---- of daemons that are gone ---- */

static uint64_t leases_lowest_former(const struct dl_epoch *epoch, const struct dl_batch *list,
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
static uint64_t leases_find_former(const struct dl_epoch *epoch)
{
    const struct dl_client *client = epoch->loader->client;
    uint64_t lowest = UINT64_MAX;

    for (uint32_t i = 0; i < epoch->count; i++) {
        const struct entry *entry = &epoch->entries[(epoch->head + i) & (epoch->cap - 1)];

        if (entry_is_former_lease(client, entry))
            lowest = min_u64(lowest, entry->descriptor.step);
    }
    lowest = leases_lowest_former(epoch, client->batches, lowest);
    return leases_lowest_former(epoch, client->tensor_owned, lowest);
}

uint64_t former_leases_lowest(struct dl_epoch *epoch)
{
    epoch->lowest_former = epoch->job[0] ? leases_find_former(epoch) : UINT64_MAX;
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

/* ---- of the one that is there ---- */

static void leases_send_steps(struct dl_epoch *epoch, bool pins)
{
    struct dl_message msg = {.number = pins ? DL_MSG_PIN : DL_MSG_RELEASE};
    uint32_t *n = pins ? &epoch->n_pins : &epoch->n_releases;
    struct dl_span steps = {.data = (const uint8_t *)(pins ? epoch->pins : epoch->releases),
                            .len = *n * sizeof(uint64_t)};

    if (*n == 0)
        return;
    if (pins) {
        msg.pin.stream = epoch->stream;
        msg.pin.steps = steps;
    } else {
        msg.release.stream = epoch->stream;
        msg.release.steps = steps;
        msg.release.waited = epoch->wait_ns - epoch->wait_reported_ns;
        epoch->wait_reported_ns = epoch->wait_ns;
    }
    *n = 0;
    client_send(epoch->loader->client, &msg);
}

/* Pending steps as messages. Pins first: a release may end one of them. */
void epoch_queue_pending(struct dl_epoch *epoch)
{
    leases_send_steps(epoch, true);
    leases_send_steps(epoch, false);
    if (epoch->n_former_returned > 0)
        former_leases_report(epoch);
    assert(epoch->lent >= epoch->unsent);
    epoch->lent -= epoch->unsent;
    epoch->unsent = 0;
}

void client_queue_pending(struct dl_client *client)
{
    for (struct dl_loader *loader = client->loaders; loader; loader = loader->next)
        for (struct dl_epoch *epoch = loader->epochs; epoch; epoch = epoch->next) {
            epoch_queue_pending(epoch);
            if (epoch->feed.on)
                feed_catch_up(epoch);
        }
}

void client_release_step(struct dl_client *client, uint32_t stream, uint64_t step)
{
    struct dl_message msg = {.number = DL_MSG_RELEASE};
    uint64_t le = htole64(step);

    msg.release.stream = stream;
    msg.release.steps = (struct dl_span){(const uint8_t *)&le, sizeof le};
    client_send(client, &msg);
}

void epoch_queue_pin(struct dl_epoch *epoch, uint64_t step)
{
    if (epoch->local)
        return;
    assert(epoch->n_pins < epoch->flush_at);
    epoch->pins[epoch->n_pins++] = htole64(step);
    epoch->unsent++;
    if (epoch->n_pins == epoch->flush_at)
        epoch_queue_pending(epoch);
}

void epoch_queue_release(struct dl_epoch *epoch, uint64_t step, bool credit)
{
    assert(epoch->n_releases < epoch->flush_at);
    epoch->releases[epoch->n_releases++] = htole64(step);
    epoch->unsent += credit;
    if (epoch->n_releases == epoch->flush_at)
        epoch_queue_pending(epoch);
}
