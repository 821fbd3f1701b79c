/*
 * Batches that did not fit their slot: kept until the step comes again with a larger one, since a
 * dataset that draws random numbers would make another batch.
 */
#ifndef DL_WORKER_RETRY_CACHE_H
#define DL_WORKER_RETRY_CACHE_H

#include "daemon/worker/python/py.h"

#include "proto/slot_bad.h"
#include "proto/slot_fill.h"

enum { RETRY_CACHE_MAX = 64 };

/* What the dataset has made for a step so far. */
struct made {
    PyObject *object; /* owned; samples, or a batch; NULL: nothing */
    bool collated;    /* it is the batch */
    bool are_samples; /* and no numbers of some, which the dataset gave (numbered.h) */
    uint64_t samples;
    uint64_t *numbers; /* owned; of the samples; NULL: those of the task */
    uint32_t repeated; /* iterable: how many of the last samples are repeated ones */
    struct bad_list bad;
    /* The state of an iterable dataset behind these samples. */
    PyObject *state;           /* owned, bytes; or NULL */
    struct dataset_state head; /* goes before it */
    enum dataset_state_loss lost;
};
void made_deinit(struct made *made);

struct retry_cache {
    struct retry_entry {
        uint32_t stream, rank, world;
        uint64_t epoch, step, n;
        uint64_t *indices; /* owned; map-style */
        struct made made;
    } entries[RETRY_CACHE_MAX];
    uint32_t n; /* the oldest first */
};

/* Moves what was kept for the task to *ret. False: nothing was. */
bool retry_cache_take(struct retry_cache *cache, const struct slot_task *task, struct made *ret);

/* Takes `made` over; drops the oldest when there are too many. */
void retry_cache_put(struct retry_cache *cache, const struct slot_task *task, struct made *made);

/* Drops what is not needed any more: the steps of a stream before `settled`. */
void retry_cache_settle(struct retry_cache *cache, uint32_t stream, uint64_t settled);

void retry_cache_clear(struct retry_cache *cache);

#endif
