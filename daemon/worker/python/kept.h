/*
 * Batches that did not fit their slot: kept until the step comes again in a larger one, so that
 * the dataset is not asked twice for what it may make by chance.
 */
#ifndef DL_WORKER_KEPT_H
#define DL_WORKER_KEPT_H

#include "daemon/worker/python/py.h"

#include "proto/slot_bad.h"
#include "proto/slot_fill.h"

enum { KEPT_MAX = 64 };

/* What the dataset has made for a step, as far as it is. */
struct made {
    PyObject *object; /* owned; samples, or a batch; NULL: nothing */
    bool collated;    /* it is the batch */
    uint64_t samples;
    uint64_t *numbers; /* owned; of the samples; NULL: those of the task */
    uint32_t repeated; /* iterable: how many of the last samples are */
    struct bad_list bad;
    /* Where the dataset says that it stands behind these samples, for a round of an iterable one.
     */
    PyObject *state; /* owned, bytes; NULL: it does not */
    struct carried at;
    enum carried_lost lost;
};
void made_deinit(struct made *made);

struct kept {
    struct kept_batch {
        uint32_t stream, rank, world;
        uint64_t epoch, step, n;
        uint64_t *indices; /* owned; map-style */
        struct made made;
    } batches[KEPT_MAX];
    uint32_t n; /* the oldest first */
};

/* Moves what was kept for the task to *ret. False: nothing was. */
bool kept_take(struct kept *kept, const struct slot_task *task, struct made *ret);

/* Takes `made` over; the oldest is let go when there are too many. */
void kept_put(struct kept *kept, const struct slot_task *task, struct made *made);

/* Lets go what cannot be asked for any more: of a stream, before step `settled`. */
void kept_settle(struct kept *kept, uint32_t stream, uint64_t settled);

void kept_clear(struct kept *kept);

#endif
