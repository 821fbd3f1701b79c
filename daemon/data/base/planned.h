/*
 * What the plan knows about a task's batch, copied out of its slot (struct slot_planned).
 *
 * Another process writes to the slot: it is copied once, the copy is checked, and only the copy is
 * used.
 */
#ifndef DL_DATA_PLANNED_H
#define DL_DATA_PLANNED_H

#include "proto/slot_fill.h"

struct planned {             /* all zero: nothing */
    uint32_t cut;            /* tokens kept of a longer sample; 0: samples are not cut */
    uint32_t rows;           /* packed; else 0 */
    const uint32_t *lengths; /* of each sample, at least 1 */
    const uint32_t *in_row;  /* samples of each row, in order; at least 1, together all */
    const uint32_t *begins;  /* of each sample: of which token of it on; NULL: of the first */

    uint32_t *lists; /* owned; all of these */
    size_t room;
};

/*
 * Copies it out of the slot of the task read by slot_read_task(). The memory is reused. 0; -EINVAL
 * with `err`: its counts do not fit its bytes, the samples, or each other; -ENOMEM.
 */
int _nodiscard_ planned_read(struct planned *planned, void *slot, const struct slot_task *task,
                             struct dl_error *err);
void planned_deinit(struct planned *planned);

#endif
