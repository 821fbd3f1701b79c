/*
 * The two passes of resize.h over pixels, in each way that this processor can do them. All give the
 * same bytes (tests/unit/test_resize.c): the sums are whole numbers.
 */
#ifndef DL_DATA_RESIZE_ROWS_H
#define DL_DATA_RESIZE_ROWS_H

#include "daemon/data/decode/resize/resize.h"

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
    /* The axis has its weights: makes of them what across() wants, for rows of that many pixels, or
     * what down() wants. -ENOMEM; NULL: it wants nothing else. set_across() serves both. */
    int (*set_across)(struct resize_axis *axis, uint32_t inputs);
    int (*set_down)(struct resize_axis *axis);
    /* One row, to axis->n pixels of 4 bytes. May read PICTURE_SLACK bytes behind the row. */
    void (*across)(const struct resize_axis *axis, const uint8_t *row, uint8_t *out);
    /* Likewise of a row of 3 bytes a pixel, behind which nothing is read. False: not with these
     * weights, whatever the row; NULL: it never does. */
    bool (*across_narrow)(const struct resize_axis *axis, const uint8_t *row, uint8_t *out);
    /* Output row `i`, rows->bytes bytes. */
    void (*down)(const struct resize_axis *axis, uint32_t i, const struct resize_rows *rows,
                 uint8_t *out);
};

/* The fastest is number 0; NULL: there are no more. */
const struct resize_kernels *resize_kernels_get(unsigned i);
extern const struct resize_kernels resize_plain; /* the last one: plain C */

#endif
