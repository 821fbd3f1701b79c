/*
 * Pillow 13's resize: each output pixel is a weighted mean of the input around its place, across
 * and down, rounded to 8 bits after each. Where the picture gets smaller, the filter gets
 * wider: that is antialiasing. Weights have 22 binary places. All as Pillow's
 * src/libImaging/Resample.c, and for nearest as Geometry.c, so that results are equal to the bit.
 *
 * resample.h is another one: faster, with weights of fewer places, so that some of its pixels are
 * one step from Pillow's.
 */
#ifndef DL_DATA_RESIZE_H
#define DL_DATA_RESIZE_H

#include "daemon/data/image/picture.h"

enum resize_filter {
    RESIZE_NEAREST,
    RESIZE_BOX,
    RESIZE_BILINEAR,
    RESIZE_HAMMING,
    RESIZE_BICUBIC,
    RESIZE_LANCZOS,
};

/* The weights of one direction. */
struct resize_axis {
    uint32_t n;       /* outputs */
    uint32_t taps;    /* weights of each, an even number; those that are not needed are 0 */
    uint32_t *from;   /* owned; of each output: its first input */
    uint32_t *count;  /* owned; how many inputs have a weight */
    int32_t *weights; /* owned; n × taps */
    int16_t *high;    /* owned; n × taps: weights without their lower 12 bits */
    int16_t *low;     /* owned; n × taps: these */
    size_t room;      /* entries of from and count */
    size_t tap_room;  /* of weights */
    double *shares;   /* owned; taps: the weights of one output while they are made */
    size_t share_room;
};

/* Memory that is used again; all zero: none yet. */
struct resizer {
    struct resize_axis across;
    struct resize_axis down;
    uint8_t *rows; /* owned; between the two directions */
    size_t room;
};

/* `in` has pixels, and so does `size`. -ENOMEM, -EFBIG as picture.h has them. */
int _nodiscard_ resizer_run(struct resizer *resizer, const struct picture *in,
                            struct image_size size, enum resize_filter filter, struct picture *out);
/* Of a part of it, which lies in it: as Pillow's resize(box=). `filter` is not RESIZE_NEAREST. */
int _nodiscard_ resizer_run_part(struct resizer *resizer, const struct picture *in,
                                 const struct picture_part *part, struct image_size size,
                                 enum resize_filter filter, struct picture *out);
void resizer_deinit(struct resizer *resizer);

#endif
