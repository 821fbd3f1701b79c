/*
 * What iterable datasets that know their own place say of it: kept behind each batch that is given
 * out, written behind a state, and said to the daemon when that is gone on with.
 *
 * Of each worker the last two are kept. So a state can be had that is some batches back, as of a
 * user who takes batches ahead of the one that is worked on. One that is too old is as good: the
 * worker passes over what lies between.
 */
#include "client/internal.h"
#include "proto/words.h"

#include <errno.h>

static uint64_t workers_of(const struct dl_epoch *epoch)
{
    return epoch->loader->identity.workers;
}

static void record_deinit(struct carried_record *record)
{
    free(record->bytes);
    *record = (struct carried_record){0};
}

void carry_deinit(struct dl_epoch *epoch)
{
    for (uint64_t i = 0; epoch->carrying.of && i < workers_of(epoch); i++) {
        record_deinit(&epoch->carrying.of[i].latest);
        record_deinit(&epoch->carrying.of[i].before);
    }
    free(epoch->carrying.of);
    epoch->carrying.of = NULL;
}

/* Takes a copy, good from step `after` on. Without memory the one before stays. */
static void keep(struct dl_epoch *epoch, uint64_t worker, struct dl_span record, uint64_t after)
{
    struct carrying *carrying = &epoch->carrying;

    if (!carrying->of)
        carrying->of = calloc(workers_of(epoch), sizeof *carrying->of);
    uint8_t *bytes = carrying->of ? malloc(record.len) : NULL;
    if (!bytes)
        return;
    memcpy(bytes, record.data, record.len);
    struct carried_pair *of = &carrying->of[worker];
    record_deinit(&of->before);
    of->before = of->latest;
    of->latest = (struct carried_record){bytes, record.len, after};
}

/* Once, and not over what is to be said before it. Without memory there is no warning, and nothing
 * fails by it. */
static void warn_of_lost(struct dl_epoch *epoch, enum carried_lost why)
{
    char text[512];

    if (epoch->carrying.lost_told || epoch->warning)
        return;
    epoch->carrying.lost_told = true;
    words_state_lost(why, text, sizeof text);
    epoch->warning = strdup(text);
}

int carry_note(struct dl_epoch *epoch, const struct entry *entry, const struct slot_header *header)
{
    uint64_t size = entry->mapping->slot_bytes;
    struct dl_span record;

    if (!epoch->loader->iterable || workers_of(epoch) == 0)
        return 0;
    if (header->state_lost > CARRIED_KEPT && header->state_lost < CARRIED_LOST_END)
        warn_of_lost(epoch, (enum carried_lost)header->state_lost);
    if (header->state_len == 0)
        return 0;
    if (header->state_off < SLOT_HEADER_BYTES || header->state_off > size ||
        header->state_len > size - header->state_off || header->state_len > CARRIED_MAX)
        return -EPROTO;
    record = (struct dl_span){entry->slot + header->state_off, header->state_len};
    keep(epoch, header->step % workers_of(epoch), record, header->step + 1);
    return 0;
}

int carry_take(struct dl_epoch *epoch, struct dl_span list)
{
    struct dl_span record;
    struct carried carried;
    uint32_t worker;
    size_t at = 0;
    int r;

    while ((r = carried_list_next(list, &at, &worker, &record)) > 0) {
        if (worker >= workers_of(epoch) || !carried_read(record, &carried))
            return -EINVAL;
        if (carried.world == 1 || (carried.world == epoch->world && carried.rank == epoch->rank))
            keep(epoch, worker, record, (carried.round - 1) * workers_of(epoch) + worker + 1);
    }
    return r;
}

/* The newest that is good at `step`. */
static const struct carried_record *find(const struct dl_epoch *epoch, uint64_t worker,
                                         uint64_t step)
{
    const struct carried_pair *of = &epoch->carrying.of[worker];

    if (of->latest.bytes && of->latest.after <= step)
        return &of->latest;
    return of->before.bytes && of->before.after <= step ? &of->before : NULL;
}

int carry_write(const struct dl_epoch *epoch, uint64_t step, struct dl_buffer *ret)
{
    int r = 0;

    for (uint64_t i = 0; epoch->carrying.of && r == 0 && i < workers_of(epoch); i++) {
        const struct carried_record *record = find(epoch, i, step);
        struct carried carried;
        /* What was in shared memory was not looked at until now. */
        if (record && carried_read((struct dl_span){record->bytes, record->len}, &carried))
            r = carried_list_add(ret, (uint32_t)i, (struct dl_span){record->bytes, record->len});
    }
    return r == 0 && ret->len > 0 ? carried_list_end(ret) : r;
}

void carry_queue(struct dl_epoch *epoch)
{
    struct dl_message msg = {.number = DL_MSG_CARRY};
    size_t said = 0;

    for (uint64_t i = 0; epoch->carrying.of && i < workers_of(epoch); i++) {
        const struct carried_record *record = find(epoch, i, UINT64_MAX);
        struct carried carried;

        if (!record || (said += record->len) > CARRIED_SAID_MAX ||
            !carried_read((struct dl_span){record->bytes, record->len}, &carried))
            continue;
        msg.carry.loader = epoch->loader->id;
        msg.carry.worker = i;
        msg.carry.record = (struct dl_span){record->bytes, record->len};
        client_send(epoch->loader->client, &msg);
    }
}

struct dl_span carry_first(const struct dl_epoch *epoch)
{
    const struct carried_record *record = epoch->carrying.of ? find(epoch, 0, UINT64_MAX) : NULL;

    return record ? (struct dl_span){record->bytes, record->len} : (struct dl_span){0};
}
