/*
 * Batches: a slot as the user sees it, and the end of its lease.
 *
 * The slot header and the tree are copied out of shared memory, checked, and used from the copies.
 * The leaves' bytes are read in place: changing them can spoil a batch, not the process.
 */
#include "client/internal.h"
#include "proto/shared/words.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

/* The fewest leases beyond the current batch that dl_batch_may_keep() grants. */
enum { KEEP_MIN = 4 };

/* ---- from a slot ---- */

/* Latches -EPROTO with the place in front. */
static int batch_bad_slot(struct dl_epoch *epoch, const struct entry *entry, const char *what,
                          uint64_t got, uint64_t want)
{
    return connection_fail(&epoch->loader->client->conn, EPROTO, "",
                           "the slot of step %llu (segment %u, offset %llu): %s %llu where %llu is "
                           "due",
                           (ull)entry->descriptor.step, entry->descriptor.segment,
                           (ull)entry->descriptor.offset, what, (ull)got, (ull)want);
}

static int batch_check_header(struct dl_epoch *epoch, const struct entry *entry,
                              const struct slot_header *h)
{
    const struct dl_descriptor *d = &entry->descriptor;
    uint64_t size = entry->mapping->slot_bytes;

    if (h->generation != d->generation)
        return batch_bad_slot(epoch, entry, "generation", h->generation, d->generation);
    if (h->step > d->step) /* a batch of share.size has a lower one than those that are its parts */
        return batch_bad_slot(epoch, entry, "step", h->step, d->step);
    if (h->epoch != epoch->number)
        return batch_bad_slot(epoch, entry, "epoch", h->epoch, epoch->number);
    if (h->error_code != 0)
        return batch_bad_slot(epoch, entry, "error code", h->error_code, 0);
    if (d->first > h->samples || d->samples > h->samples - d->first)
        return batch_bad_slot(epoch, entry, "samples", h->samples, (uint64_t)d->first + d->samples);
    if (h->indices_off % sizeof(uint64_t) != 0 || h->indices_off > size ||
        h->samples > (size - h->indices_off) / sizeof(uint64_t))
        return batch_bad_slot(epoch, entry, "indices at", h->indices_off, SLOT_HEADER_BYTES);
    if (h->tree_off % sizeof(uint64_t) != 0 || h->tree_off > size ||
        h->tree_len > size - h->tree_off)
        return batch_bad_slot(epoch, entry, "a tree at", h->tree_off, SLOT_HEADER_BYTES);
    return 0;
}

/* What the plan knows of the batch, behind the indices: all lists must lie inside the slot. */
static int batch_check_planned(struct dl_epoch *epoch, const struct entry *entry,
                               const struct slot_header *h)
{
    uint64_t at = h->indices_off + h->samples * sizeof(uint64_t), rows = 0;
    struct slot_planned planned;

    if (entry->descriptor.samples < h->samples)
        return batch_bad_slot(epoch, entry, "planned lengths of samples", h->samples,
                              entry->descriptor.samples);
    if (h->planned <= entry->mapping->slot_bytes - at && h->planned >= sizeof planned) {
        memcpy(&planned, entry->slot + at, sizeof planned);
        rows = planned.rows + (planned.cut & SLOT_SPLIT ? h->samples : UINT64_C(0));
    }
    if (h->planned > entry->mapping->slot_bytes - at ||
        h->planned != slot_planned_bytes(h->samples, rows))
        return batch_bad_slot(epoch, entry, "bytes of planned lengths", h->planned,
                              slot_planned_bytes(h->samples, rows));
    return 0;
}

/* Header and tree of the slot, checked: 0, or latched. */
static int batch_read_slot(struct dl_epoch *epoch, const struct entry *entry, struct slot_header *h,
                           struct view **ret)
{
    struct connection *conn = &epoch->loader->client->conn;
    struct dl_error err = {0};
    int r;

    /* Its descriptor came over the socket after the slot was filled: no order is left to keep. */
    memcpy(h, entry->slot, sizeof *h);
    r = batch_check_header(epoch, entry, h);
    if (r == 0 && h->planned > 0)
        r = batch_check_planned(epoch, entry, h);
    if (r < 0)
        return r;
    r = view_get(&epoch->view, entry->slot + h->tree_off, h->tree_len, h->tree_count,
                 entry->mapping->slot_bytes, ret, &err);
    if (r == -ENOMEM)
        return connection_fail(conn, ENOMEM, "", "no memory for the tree of a batch");
    if (r < 0)
        return connection_fail(conn, EPROTO, err.path, "the tree of step %llu: %s",
                               (ull)entry->descriptor.step, err.message);
    return 0;
}

static int batch_refuse_leaf(struct dl_epoch *epoch, const struct entry *entry,
                             const struct view *view, uint32_t bad, uint32_t samples)
{
    const struct tree_node *node = view_node(view, bad);
    struct dl_client *client = epoch->loader->client;
    char text[512], name[DL_BOUND_NAME_BYTES + 1];

    words_no_rows(node, bad, samples, text, sizeof text);
    snprintf(name, sizeof name, "%.*s", (int)node->key_len, tree_key(view->encoded, node));
    return client_fail(client, EINVAL, name, "step %llu %s", (ull)entry->descriptor.step, text);
}

/* The rank's rows of a batch of several's in *view, which is consumed: 0, latched, or the step's
 * error. */
static int batch_take_rows(struct dl_epoch *epoch, const struct entry *entry,
                           const struct slot_header *h, struct view **view)
{
    const struct dl_descriptor *d = &entry->descriptor;
    struct view *whole = *view;
    uint32_t bad;
    int r;

    r = view_slice(&epoch->slice, whole, h->samples, d->first, d->samples, view, &bad);
    if (r == -EINVAL)
        r = batch_refuse_leaf(epoch, entry, whole, bad, h->samples);
    else if (r < 0)
        r = connection_fail(&epoch->loader->client->conn, ENOMEM, "",
                            "no memory for the tree of a batch");
    view_unref(whole);
    return r;
}

static struct dl_batch *batch_take_object(struct dl_client *client)
{
    struct dl_batch *batch = client->pool;

    if (!batch)
        return calloc(1, sizeof *batch);
    client->pool = batch->next;
    return batch;
}

static void batch_link(struct dl_batch **list, struct dl_batch *batch)
{
    batch->prev = NULL;
    batch->next = *list;
    if (batch->next)
        batch->next->prev = batch;
    *list = batch;
}

static void batch_unlink(struct dl_batch **list, struct dl_batch *batch)
{
    if (batch->prev)
        batch->prev->next = batch->next;
    else
        *list = batch->next;
    if (batch->next)
        batch->next->prev = batch->prev;
}

static void batch_give_entry_back(struct dl_epoch *epoch, struct entry *entry)
{
    if (epoch->loader->local)
        local_loader_give_back(epoch->loader, steal_ptr(entry->mapping));
    else if (client_has_lease(epoch->loader->client, entry->mapping))
        epoch_queue_release(epoch, entry->descriptor.step, true);
    else
        former_leases_note_returned(epoch);
    entry_deinit(entry);
}

int batch_new(struct dl_epoch *epoch, struct entry *entry, struct dl_batch **ret)
{
    struct dl_client *client = epoch->loader->client;
    struct dl_batch *batch = NULL;
    struct slot_header header;
    struct view *view;
    int r = batch_read_slot(epoch, entry, &header, &view);

    if (r == 0 && epoch->loader->iterable && saved_states_note(epoch, entry, &header) < 0) {
        view_unref(view);
        r = batch_bad_slot(epoch, entry, "a state at", header.state_off, 0);
    }
    if (r == 0 && header.mark_window > 0)
        epoch_note_mark(epoch, entry->descriptor.step,
                        (struct lazy_mark){header.mark_window, header.mark_rows});
    if (r == 0 && entry->descriptor.samples < header.samples) /* a part of the slot's rows */
        r = batch_take_rows(epoch, entry, &header, &view);
    if (r == 0) {
        batch = batch_take_object(client);
        if (!batch) {
            view_unref(view);
            r = connection_fail(&client->conn, ENOMEM, "", "no memory for a batch");
        }
    }
    if (r < 0) {
        batch_give_entry_back(epoch, entry);
        return r;
    }
    assert(!batch->reclaim && !batch->view);
    batch->client = client;
    batch->epoch = epoch;
    batch->loader = epoch->loader;
    batch->mapping = entry->mapping;
    batch->view = view;
    batch->slot = entry->slot;
    batch->indices = (const uint64_t *)(const void *)(entry->slot + header.indices_off) +
                     entry->descriptor.first;
    batch->planned_bytes = header.planned;
    batch->planned = header.planned ? (const void *)(batch->indices + header.samples) : NULL;
    batch->step = entry->descriptor.step;
    batch->generation = header.generation;
    batch->samples = entry->descriptor.samples;
    batch->repeated = entry->descriptor.repeated;
    batch->stream = epoch->stream;
    batch->mapping->leases++;
    batch->pinned = batch->tensor_owned = batch->detached = false;
    batch->withheld = NULL;
    atomic_init(&batch->refs, 1);
    batch_link(&client->batches, batch);
    *ret = batch;
    return 0;
}

/* ---- the end of a lease ---- */

/* The daemon that lent its slot is there, or there never was one. */
static bool batch_is_lent(const struct dl_batch *batch)
{
    return batch->loader->local || client_has_lease(batch->client, batch->mapping);
}

/* From now on the lease uses memory.limit beyond the leases on their way. */
static void batch_mark_pinned(struct dl_batch *batch)
{
    assert(!batch->pinned && !batch->detached);
    batch->pinned = true;
    if (!batch_is_lent(batch))
        return;
    epoch_queue_pin(batch->epoch, batch->step);
    batch->loader->extra_leases++;
    batch->loader->held_bytes += batch->mapping->slot_bytes;
}

/* Consumes the mapping. */
static void batch_end_lease(struct dl_client *client, struct dl_batch *batch)
{
    struct dl_epoch *epoch = batch->epoch;

    batch->mapping->leases--;
    if (batch->pinned && batch_is_lent(batch)) {
        batch->loader->extra_leases--;
        batch->loader->held_bytes -= batch->mapping->slot_bytes;
    }
    /* The epoch can have ended while only tensors held the batch; its stream still takes RELEASE.
     */
    if (batch->loader->local)
        local_loader_give_back(batch->loader, steal_ptr(batch->mapping));
    else if (!batch_is_lent(batch) && epoch)
        former_leases_note_returned(epoch);
    else if (!batch_is_lent(batch))
        ; /* the daemon that lent it is gone */
    else if (epoch || (epoch = client_find_epoch(client, batch->stream)))
        epoch_queue_release(epoch, batch->step, !batch->pinned);
    else
        client_release_step(client, batch->stream, batch->step);
    batch->mapping = mapping_unref(batch->mapping);
}

/* Of a detached batch whose lease was not returned yet. */
static void batch_end_withheld(struct dl_client *client, struct dl_batch *batch)
{
    struct mapping *copy = batch->mapping;

    batch->mapping = steal_ptr(batch->withheld);
    batch_end_lease(client, batch);
    batch->mapping = copy;
}

/* The last reference is gone: sends RELEASE and puts the batch back into the pool. */
static void batch_finish(struct dl_client *client, struct dl_batch *batch)
{
    assert(!batch->view);
    if (batch->detached)
        batch->mapping = mapping_unref(batch->mapping);
    else
        batch_end_lease(client, batch);
    if (batch->tensor_owned) {
        batch_unlink(&client->tensor_owned, batch);
        loader_drop_tensor_owned(batch->loader);
    }
    if (batch->reclaim)
        batch->reclaim = reclaim_unref(batch->reclaim);
    batch->next = client->pool;
    client->pool = batch;
}

static void batch_finish_all(struct dl_client *client, struct dl_batch *batch)
{
    while (batch) {
        struct dl_batch *next = batch->dropped;

        batch_finish(client, batch);
        batch = next;
    }
}

void client_drain(struct dl_client *client)
{
    struct dl_batch *back = client->reclaim ? reclaim_take(client->reclaim) : NULL;

    if (back)
        batch_finish_all(client, back);
}

void client_drain_last(struct dl_client *client)
{
    if (!client->reclaim)
        return;
    /* Once the list is closed, any of these may vanish with its last tensor: never reach one
     * through its neighbour in the list. */
    while (client->tensor_owned) {
        struct dl_batch *batch = client->tensor_owned;

        client->tensor_owned = batch->next;
        batch->next = batch->prev = NULL;
    }
    batch_finish_all(client, reclaim_close(client->reclaim));
}

int client_begin(struct dl_client *client)
{
    client_drain(client);
    return connection_check(&client->conn) < 0 ? client_fatal(client) : 0;
}

void batch_give_back(struct dl_batch *batch)
{
    struct dl_client *client = batch->client;
    struct dl_epoch *epoch = batch->epoch;

    if (epoch && epoch->current == batch)
        epoch->current = NULL;
    batch_unlink(&client->batches, batch);
    if (batch->withheld)
        batch_end_withheld(client, batch);
    batch->view = view_unref(batch->view);
    /* Only the user's reference: no tensor, and only this thread can make one. Acquire: the reads
     * of deleted tensors are done. */
    if (atomic_load_explicit(&batch->refs, memory_order_acquire) == 1) {
        batch_finish(client, batch);
        return;
    }
    if (!batch->pinned && !batch->detached) {
        assert(epoch); /* only pinned batches outlive it in the user's hands */
        batch_mark_pinned(batch);
    }
    if (!batch->detached) {
        batch->tensor_owned = true;
        batch_link(&client->tensor_owned, batch);
        batch->loader->n_tensor_owned++;
    }
    reclaim_drop(batch);
}

int dl_batch_pin(struct dl_batch *batch)
{
    struct dl_epoch *epoch = batch->epoch;
    int r = client_begin(batch->client);

    if (r < 0 || batch->pinned)
        return r;
    if (!epoch || epoch->current != batch) /* detached, and pinned before */
        return 0;
    epoch->current = NULL;
    if (batch->withheld)
        batch_end_withheld(batch->client, batch);
    if (!batch->detached)
        batch_mark_pinned(batch);
    epoch_flush_if_due(epoch);
    return 0;
}

/* Bytes of the slot from its beginning that the batch reaches to. */
static uint64_t batch_extent(const struct dl_batch *batch)
{
    const uint8_t *indices = (const uint8_t *)batch->indices;
    uint64_t end = (uint64_t)(indices - batch->slot) + batch->samples * sizeof(uint64_t) +
                   batch->planned_bytes;

    for (uint32_t i = 0; i < batch->view->count; i++) {
        const struct tree_node *node = view_node(batch->view, i);

        end = max_u64(end, node->offset + node->nbytes);
    }
    return end;
}

/* All of the slot that the batch has, where it stands; NULL, and the error is set. */
static struct mapping *batch_copy_slot(struct dl_batch *batch)
{
    uint64_t bytes = batch_extent(batch);
    struct mapping *copy = mapping_new_private(bytes);

    if (!copy) {
        client_fail(batch->client, ENOMEM, "", "no memory for a copy of %llu bytes", (ull)bytes);
        return NULL;
    }
    memcpy(copy->base, batch->slot, bytes);
    batch->indices =
        (const uint64_t *)(const void *)(copy->base +
                                         ((const uint8_t *)batch->indices - batch->slot));
    if (batch->planned)
        batch->planned = (const void *)(batch->indices + batch->samples);
    return copy;
}

/* The same for a batch of some rows: copies only these, aligned like any tensors. */
static struct mapping *batch_copy_rows(struct dl_batch *batch)
{
    uint64_t indices = batch->samples * sizeof(uint64_t), bytes;
    struct view *packed = view_pack(batch->view, indices, &bytes);
    struct mapping *copy = packed ? mapping_new_private(bytes) : NULL;

    if (!copy) {
        view_unref(packed);
        client_fail(batch->client, ENOMEM, "", "no memory for a copy of %llu bytes", (ull)bytes);
        return NULL;
    }
    memcpy(copy->base, batch->indices, indices);
    view_copy(batch->view, batch->slot, packed, copy->base);
    batch->indices = (const uint64_t *)(const void *)copy->base;
    view_unref(batch->view);
    batch->view = packed;
    return copy;
}

/*
 * Ending a lease acknowledges its step. A batch that the trainer of a job still holds is not
 * acknowledged, wherever its memory is.
 */
static bool batch_is_in_hand(const struct dl_batch *batch)
{
    return batch->epoch && batch->epoch->current == batch && batch->epoch->job[0] &&
           !batch->loader->local;
}

int dl_batch_detach(struct dl_batch *batch)
{
    struct dl_client *client = batch->client;
    struct mapping *copy;
    int r = client_begin(client);

    if (r < 0 || batch->detached)
        return r;
    if (atomic_load_explicit(&batch->refs, memory_order_acquire) > 1)
        return client_fail(client, EBUSY, "", "step %llu has DLPack tensors, which lie in its slot",
                           (ull)batch->step);
    copy = batch->view->whole ? batch_copy_rows(batch) : batch_copy_slot(batch);
    if (!copy)
        return -ENOMEM;
    if (batch_is_in_hand(batch))
        batch->withheld = steal_ptr(batch->mapping);
    else
        batch_end_lease(client, batch);
    batch->pinned = false;
    batch->detached = true;
    batch->mapping = copy;
    batch->slot = copy->base;
    if (batch->epoch)
        epoch_flush_if_due(batch->epoch);
    return 0;
}

/* Private memory has one limit for all batches: a kept batch must leave half of it. */
static bool batch_may_keep_private(const struct private_memory *memory)
{
    return memory->bytes <= memory->limit / 2;
}

int dl_batch_may_keep(const struct dl_batch *batch)
{
    const struct dl_loader *loader = batch->loader;

    if (batch->detached || !batch_is_lent(batch))
        return 1;
    client_drain(batch->client);
    if (loader->local)
        return batch_may_keep_private(&loader->memory);
    return loader->extra_leases < max_u64(KEEP_MIN, loader->credits / 2) &&
           batch->mapping->leases < batch->mapping->slots;
}

int dl_batch_is_writable(const struct dl_batch *batch)
{
    return batch->mapping->writable;
}

struct dl_batch *dl_batch_release(struct dl_batch *batch)
{
    struct dl_client *client;
    struct dl_epoch *epoch;
    int r;

    if (!batch)
        return NULL;
    client = batch->client;
    epoch = batch->epoch;
    client_drain(client);
    batch_give_back(batch);
    if (epoch) {
        epoch_flush_if_due(epoch);
    } else {
        r = client_flush(client); /* a failure is latched for the next call */
        (void)r;
    }
    return NULL;
}
