/*
 * What a program has asked of a picture, one step after another, as Pillow's Image does it: crop(),
 * resize(), reduce(), transpose() and convert("L"), done when the pixels are needed. Results are
 * equal to Pillow 13's to the bit. Crops that come first choose what of the file is decoded, and a
 * resize() behind them takes its rows as they come.
 */
#ifndef DL_DATA_STEPS_H
#define DL_DATA_STEPS_H

#include "daemon/data/decode/transform/transforms.h"

enum picture_step_kind { STEP_CROP, STEP_RESIZE, STEP_TRANSPOSE, STEP_GREY, STEP_REDUCE };

/* As Pillow's Transpose has them. */
enum picture_transpose {
    TRANSPOSE_LEFT_RIGHT,
    TRANSPOSE_TOP_BOTTOM,
    TRANSPOSE_90, /* against the clock */
    TRANSPOSE_180,
    TRANSPOSE_270,
    TRANSPOSE_DIAGONAL,
    TRANSPOSE_OTHER_DIAGONAL,
    N_TRANSPOSES,
};

struct picture_step {
    enum picture_step_kind kind;
    uint32_t left; /* crop, in pixels of what comes in */
    uint32_t top;
    struct image_size size;   /* crop, resize: of what comes out; reduce: of what becomes one pixel,
                                 at most PICTURE_REDUCED_MAX; ≥ 1 × 1 */
    uint32_t choice;          /* resize: enum resize_filter; transpose: enum picture_transpose */
    struct picture_part part; /* resize: of what comes in, but not by RESIZE_NEAREST; of no size:
                                 all of it */
};

/* Whether no more than crops are asked for, of a picture of the size `box->size`, or, if the result
 * is to be `grey`, than these and grey; *box then is what they leave. */
bool steps_are_crops(const struct picture_step *steps, uint32_t n, bool grey,
                     struct picture_box *box);

/* After image_open() or image_open_pixels(), instead of steps_run(): writes the pixels of the box,
 * R, G, B, or grey, row by row. Errors as those of image_decode_part(). */
int _nodiscard_ steps_decode(struct image_decoder *decoder, const struct picture_box *box,
                             bool grey, uint8_t *out, struct dl_error *err);

/*
 * After image_open() or image_open_pixels() of `decoder`: transforms_write() of `run` then writes
 * the result, whose size this returns: R, G, B, or, if it is to be `grey`, one byte a pixel.
 * -EINVAL for a box that does not lie in the picture, or a choice that there is not; else errors as
 * those of transforms_run().
 */
int _nodiscard_ steps_run(const struct picture_step *steps, uint32_t n, bool grey,
                          struct transforms_runner *run, struct image_decoder *decoder,
                          struct image_size *ret, struct dl_error *err);

#endif
