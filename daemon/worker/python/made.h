/* What a dataset has made for a step: samples or a batch, and what goes with these into the slot.
 */
#ifndef DL_WORKER_MADE_H
#define DL_WORKER_MADE_H

#include "daemon/worker/python/py.h"

#include "proto/slot_bad.h"
#include "proto/slot_fill.h"

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

/* Behind the batch: bad samples and the state; and, as the samples of an iterable dataset are
 * numbered as they come, their numbers. False: there is no room, *used bytes are needed. */
bool _nodiscard_ made_put_rest(const struct made *made, const struct slot_task *task, void *slot,
                               uint64_t slot_bytes, uint64_t *used);

#endif
