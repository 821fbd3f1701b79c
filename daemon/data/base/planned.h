/*
 * What the plan knows of the batch that a task is for, taken out of its slot (struct slot_planned).
 *
 * The slot is memory that another process writes to: it is copied once, the copy is checked, and
 * only the copy is used.
 */
#ifndef DL_DATA_PLANNED_H
#define DL_DATA_PLANNED_H

#include "proto/slot_fill.h"

struct planned {             /* all zero: nothing */
    uint32_t cut;            /* tokens kept of a sample that has more; 0: none may have more */
    uint32_t rows;           /* packed; else 0 */
    const uint32_t *lengths; /* of each sample, at least 1 */
    const uint32_t *in_row;  /* samples of each row, in order; at least 1, together all */

    uint32_t *lists; /* owned; both of these */
    size_t room;
};

/*
 * Takes it out of the slot, whose task it was read as (slot_read_task()). The memory is kept from
 * one to the next. 0; -EINVAL with `err`: its counts do not fit its bytes, the samples, or each
 * other; -ENOMEM.
 */
int _nodiscard_ planned_read(struct planned *planned, void *slot, const struct slot_task *task,
                             struct dl_error *err);
void planned_deinit(struct planned *planned);

#endif
