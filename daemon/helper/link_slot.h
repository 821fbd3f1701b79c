/*
 * What either end sends for a slot of the other's: whether it fits, and what of it is taken. Pure;
 * nothing of it is trusted.
 */
#ifndef DL_HELPER_LINK_SLOT_H
#define DL_HELPER_LINK_SLOT_H

#include "proto/codec.h"
#include "proto/slot_fill.h"

#include <xxhash.h>

/* A task: the bytes that follow have a slot's header, and stay within a slot. */
static inline bool link_task_fits(const struct dl_msg_h_task *msg)
{
    return msg->slot_bytes % SLOT_ALIGN == 0 && msg->bytes >= SLOT_HEADER_BYTES &&
           msg->bytes <= msg->slot_bytes;
}

/* The bytes that followed are a task, and nothing else. */
static inline bool link_task_holds(const void *slot, uint64_t slot_bytes, uint64_t bytes)
{
    struct slot_task task;

    return slot_read_task(slot, slot_bytes, &task) && slot_state_end(&task) == bytes;
}

/* Of the task that is due, in a slot of that size: the bytes that follow stay within it, and are as
 * many as are in use. */
static inline bool link_done_fits(const struct dl_msg_h_done *msg, uint64_t task,
                                  uint64_t slot_bytes)
{
    return msg->task == task && msg->header.len == sizeof(struct slot_header) &&
           slot_bytes >= SLOT_HEADER_BYTES && msg->bytes <= slot_bytes - SLOT_HEADER_BYTES &&
           (msg->code != 0 || msg->used == msg->bytes + SLOT_HEADER_BYTES);
}

/* Of a batch with that header, whose bytes are behind it in `slot`. */
static inline uint64_t link_done_sum(const struct slot_header *header, const void *slot,
                                     uint64_t bytes)
{
    return XXH3_64bits_withSeed((const char *)slot + SLOT_HEADER_BYTES, bytes,
                                XXH3_64bits(header, sizeof *header));
}

/* Takes of the header what is a worker's to write; `slot` keeps the daemon's part. */
static inline void link_done_put(void *slot, const struct slot_header *theirs)
{
    const struct slot_header *own = slot;
    struct slot_header header = *theirs;

    header.generation = own->generation;
    header.step = own->step;
    header.epoch = own->epoch;
    header.what = own->what;
    header.indices_off = own->indices_off;
    header.stream = own->stream;
    header.rank = own->rank;
    header.world = own->world;
    header.settled = own->settled;
    header.planned = own->planned;
    memcpy(slot, &header, sizeof header);
}

#endif
