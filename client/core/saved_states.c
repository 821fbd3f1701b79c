/*
 * How the client keeps the states of an iterable dataset that can save them: it takes them from the
 * slot of each batch that next() returns, writes them behind the state of an epoch, and sends them
 * to the daemon when an epoch resumes.
 *
 * The last two of each worker are kept, so that an epoch's state may lie some batches back, as
 * needed by a user who takes batches ahead of the one being worked on. An older state also works:
 * the worker skips what lies between.
 */
#include "client/core/core.h"
#include "proto/shared/words.h"

#include <assert.h>
#include <errno.h>

static uint64_t saved_states_workers(const struct dl_epoch *epoch)
{
    return epoch->loader->identity.workers;
}

static void saved_states_free(struct saved_state *record)
{
    free(record->bytes);
    *record = (struct saved_state){0};
}

void saved_states_deinit(struct dl_epoch *epoch)
{
    for (uint64_t i = 0; epoch->saved_states.workers && i < saved_states_workers(epoch); i++) {
        saved_states_free(&epoch->saved_states.workers[i].latest);
        saved_states_free(&epoch->saved_states.workers[i].before);
    }
    free(epoch->saved_states.workers);
    epoch->saved_states.workers = NULL;
}

/* Keeps a copy, good from step `after` on. Without memory the state before stays. */
static void saved_states_keep(struct dl_epoch *epoch, uint64_t worker, struct dl_span record,
                              uint64_t after)
{
    struct saved_states *states = &epoch->saved_states;

    assert(worker < saved_states_workers(epoch) && record.len > 0);
    if (!states->workers)
        states->workers = calloc(saved_states_workers(epoch), sizeof *states->workers);
    uint8_t *bytes = states->workers ? malloc(record.len) : NULL;
    if (!bytes)
        return;
    memcpy(bytes, record.data, record.len);
    struct worker_saved_states *saved = &states->workers[worker];
    saved_states_free(&saved->before);
    saved->before = saved->latest;
    saved->latest = (struct saved_state){bytes, record.len, after};
}

/* Warns once, and never replaces a warning that the user has not seen. */
static void saved_states_warn(struct dl_epoch *epoch, enum dataset_state_loss why)
{
    char text[512];

    if (epoch->saved_states.loss_reported || epoch->warning)
        return;
    epoch->saved_states.loss_reported = true;
    words_state_lost(why, text, sizeof text);
    epoch_set_warning(epoch, text);
}

int saved_states_note(struct dl_epoch *epoch, const struct entry *entry,
                      const struct slot_header *header)
{
    uint64_t size = entry->mapping->slot_bytes;
    struct dl_span record;

    if (saved_states_workers(epoch) == 0)
        return 0;
    if (header->state_lost > DATASET_STATE_SAVED && header->state_lost < DATASET_STATE_LOSS_END)
        saved_states_warn(epoch, (enum dataset_state_loss)header->state_lost);
    if (header->state_len == 0)
        return 0;
    if (header->state_off < SLOT_HEADER_BYTES || header->state_off > size ||
        header->state_len > size - header->state_off || header->state_len > DATASET_STATE_MAX)
        return -EPROTO;
    record = (struct dl_span){entry->slot + header->state_off, header->state_len};
    saved_states_keep(epoch, header->step % saved_states_workers(epoch), record, header->step + 1);
    return 0;
}

int saved_states_take(struct dl_epoch *epoch, struct dl_span list)
{
    struct dl_span record;
    struct dataset_state state;
    uint32_t worker;
    size_t at = 0;
    int r;

    while ((r = dataset_state_list_next(list, &at, &worker, &record)) > 0) {
        if (worker >= saved_states_workers(epoch) || !dataset_state_read(record, &state))
            return -EINVAL;
        if (state.world == 1 || (state.world == epoch->world && state.rank == epoch->rank))
            saved_states_keep(epoch, worker, record,
                              (state.round - 1) * saved_states_workers(epoch) + worker + 1);
    }
    return r;
}

/* The newest state that is good at `step`. */
static const struct saved_state *saved_states_newest(const struct dl_epoch *epoch, uint64_t worker,
                                                     uint64_t step)
{
    const struct worker_saved_states *saved = &epoch->saved_states.workers[worker];

    if (saved->latest.bytes && saved->latest.after <= step)
        return &saved->latest;
    return saved->before.bytes && saved->before.after <= step ? &saved->before : NULL;
}

int saved_states_write(const struct dl_epoch *epoch, uint64_t step, struct dl_buffer *ret)
{
    int r = 0;

    for (uint64_t i = 0; epoch->saved_states.workers && r == 0 && i < saved_states_workers(epoch);
         i++) {
        const struct saved_state *record = saved_states_newest(epoch, i, step);
        struct dataset_state state;
        /* It came from shared memory, and was not checked until now. */
        if (record && dataset_state_read((struct dl_span){record->bytes, record->len}, &state))
            r = dataset_state_list_add(ret, (uint32_t)i,
                                       (struct dl_span){record->bytes, record->len});
    }
    return r == 0 && ret->len > 0 ? dataset_state_list_end(ret) : r;
}

void saved_states_queue(struct dl_epoch *epoch)
{
    struct dl_message msg = {.number = DL_MSG_DATASET_STATE};
    size_t sent = 0;

    for (uint64_t i = 0; epoch->saved_states.workers && i < saved_states_workers(epoch); i++) {
        const struct saved_state *record = saved_states_newest(epoch, i, UINT64_MAX);
        struct dataset_state state;

        if (!record || (sent += record->len) > DATASET_STATES_MAX ||
            !dataset_state_read((struct dl_span){record->bytes, record->len}, &state))
            continue;
        msg.dataset_state.loader = epoch->loader->id;
        msg.dataset_state.worker = i;
        msg.dataset_state.record = (struct dl_span){record->bytes, record->len};
        client_send(epoch->loader->client, &msg);
    }
}

struct dl_span saved_states_first(const struct dl_epoch *epoch)
{
    const struct saved_state *record =
        epoch->saved_states.workers ? saved_states_newest(epoch, 0, UINT64_MAX) : NULL;

    return record ? (struct dl_span){record->bytes, record->len} : (struct dl_span){0};
}
