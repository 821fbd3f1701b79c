/*
 * Some rows of a batch in a slot of one's own: private memory, of which nobody else has a part.
 * Pure.
 */
#ifndef DL_SLOT_CUT_H
#define DL_SLOT_CUT_H

#include "proto/segment_layout.h"
#include "proto/tree.h"

/* Whether a leaf, which may also be an object, has one row for each of `samples`. */
bool tree_has_rows(const struct tree_node *leaf, uint64_t samples);

/*
 * Makes rows `first` to `first` + `rows` − 1 all of the slot's batch: its indices, tensors and
 * text are moved to where they begin, so that they stay aligned, and its header and tree say so.
 * The slot is filled, and sound, without `planned`; the rows are within it. 0, or -EINVAL and
 * nothing is changed: node *ret_bad is the first leaf that has not one row a sample.
 */
int _nodiscard_ slot_cut(void *slot, uint32_t first, uint32_t rows, uint32_t *ret_bad);

#endif
