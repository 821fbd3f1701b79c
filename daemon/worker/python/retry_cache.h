/*
 * Batches that did not fit their slot: kept until the step comes again with a larger one, since a
 * dataset that draws random numbers would make another batch. They are images of that slot, and not
 * the samples: a dataset may give the same tensor again and again, with other numbers in it.
 */
#ifndef DL_WORKER_RETRY_CACHE_H
#define DL_WORKER_RETRY_CACHE_H

#include "proto/slot_fill.h"

enum { RETRY_CACHE_MAX = 64 };

struct retry_cache {
    struct retry_entry {
        uint32_t stream, rank, world;
        uint64_t epoch, step, n;
        uint64_t *indices; /* owned; map-style */
        char *image;       /* owned; of the slot, of which `used` bytes are in use */
        uint64_t used;
    } entries[RETRY_CACHE_MAX];
    uint32_t n; /* the oldest first */
};

/* Moves what was kept for the task into its slot, or (more than `slot_bytes` in *ret_used) leaves
 * it where it is. False: nothing was. */
bool _nodiscard_ retry_cache_take(struct retry_cache *cache, const struct slot_task *task,
                                  void *slot, uint64_t slot_bytes, uint64_t *ret_used);

/* Takes `image` over; drops the oldest when there are too many. */
void retry_cache_put(struct retry_cache *cache, const struct slot_task *task, char *image,
                     uint64_t used);

/* Drops what is not needed any more: the steps of a stream before `settled`. */
void retry_cache_settle(struct retry_cache *cache, uint32_t stream, uint64_t settled);

void retry_cache_clear(struct retry_cache *cache);

#endif
