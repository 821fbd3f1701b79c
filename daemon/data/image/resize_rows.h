/*
 * The two passes of resize.h over pixels, in each way that this processor can do them. All give the
 * same bytes (tests/unit/test_resize.c): the sums are whole numbers.
 */
#ifndef DL_DATA_RESIZE_ROWS_H
#define DL_DATA_RESIZE_ROWS_H

#include "daemon/data/image/resize.h"

enum {
    RESIZE_BITS = 22, /* of a weight: 8 for the pixel, and 2 for negative ones and sums above 1 */
    RESIZE_LOW_BITS = 12, /* of a weight that is split: both parts fit 16 bits */
};

struct resize_rows {
    const uint8_t *pixels;
    uint32_t height;
    size_t bytes; /* of a row */
};

struct resize_kernels {
    const char *name;
    /* One row, to axis->n pixels of 4 bytes. May read PICTURE_SLACK bytes behind the row. */
    void (*across)(const struct resize_axis *axis, const uint8_t *row, uint8_t *out);
    /* Output row `i`, rows->bytes bytes. */
    void (*down)(const struct resize_axis *axis, uint32_t i, const struct resize_rows *rows,
                 uint8_t *out);
};

/* The fastest is number 0; NULL: there are no more. */
const struct resize_kernels *resize_kernels_get(unsigned i);

/* Room for the weights of `n` outputs as across() wants them, beside axis->weights. -ENOMEM. */
int _nodiscard_ resize_pack_room(struct resize_axis *axis);
/* After the weights are set: of a row that has `inputs` pixels. */
void resize_pack(struct resize_axis *axis, uint32_t inputs);

#endif
