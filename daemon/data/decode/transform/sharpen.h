/*
 * What transforms do with a pixel's neighbours. Sharpness is Pillow's ImageEnhance.Sharpness: a
 * blend with ImageFilter.SMOOTH (src/libImaging/Filter.c), which leaves the picture's border as it
 * is.
 *
 * Blur is torchvision 0.28's gaussian_blur() of a PIL picture
 * (torchvision/transforms/v2/functional/_misc.py), a convolution in float32. In which order torch
 * adds its products up depends on its version and on the processor; so here it is rows, then
 * columns, and some pixels in a million are one step from torch's. All else in this file is equal
 * to the bit.
 */
#ifndef DL_DATA_SHARPEN_H
#define DL_DATA_SHARPEN_H

#include "daemon/data/decode/image/picture.h"

/* Factor 0: smooth; 1: as it is; above: sharper. `spare` is memory. */
int _nodiscard_ sharpen_picture(struct picture *p, double factor, struct picture *spare);

/* Weights of `n` pixels, an odd number, in float32: as torch's softmax of -(x / sigma)². */
void sharpen_weigh_blur(uint32_t n, double sigma, float *ret);

/* Across with the one, down with the other. -EINVAL: the picture is not larger than half of them.
 */
struct sharpen_kernel {
    const float *across; /* borrowed */
    const float *down;   /* borrowed */
    uint32_t width;
    uint32_t height;
};
int _nodiscard_ sharpen_blur(const struct picture *in, const struct sharpen_kernel *kernel,
                             struct picture *out);

#endif
