/*
 * Numbers that a file has in another order than a tensor: with the highest byte first, or with the
 * first dimension fastest (NumPy's Fortran order). Pure.
 */
#ifndef DL_DATA_STORED_H
#define DL_DATA_STORED_H

#include "proto/tree.h"

struct stored_order {
    bool swapped;
    bool fortran;
};

static inline bool stored_is_plain(struct stored_order order)
{
    return !order.swapped && !order.fortran;
}

/* An array of `ndim` ≤ TREE_DIMS dimensions, as stored in a file. */
struct stored {
    const uint8_t *data; /* borrowed */
    uint32_t dtype;
    uint32_t ndim;
    const uint64_t *shape; /* borrowed */
    struct stored_order order;
};

/* Copies all of it in a tensor's order. */
void stored_copy(const struct stored *stored, uint8_t *out);

/* Copies row `row` of the first dimension: a tensor with one dimension less. */
void stored_copy_row(const struct stored *stored, uint64_t row, uint8_t *out);

#endif
