/*
 * Cuts a batch to some of its rows, in a slot in private memory. Pure.
 */
#ifndef DL_SLOT_CUT_H
#define DL_SLOT_CUT_H

#include "proto/segment_layout.h"
#include "proto/tree.h"

/* Whether a leaf, which may also be an object, has one row for each of `samples` samples. */
bool tree_has_rows(const struct tree_node *leaf, uint64_t samples);

/*
 * Reduces the slot's batch to rows `first` to `first` + `rows` − 1: moves their indices, tensors
 * and text to the beginning, keeping them aligned, and updates header and tree. The slot must be
 * filled and valid, without `planned`, and contain the rows. 0, or -EINVAL and nothing is changed:
 * node *ret_bad is the first leaf that does not have one row per sample.
 */
int _nodiscard_ slot_cut(void *slot, uint32_t first, uint32_t rows, uint32_t *ret_bad);

#endif
