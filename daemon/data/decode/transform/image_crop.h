/*
 * Which part of an image a sample is, and how large it becomes: the geometry of transforms.
 *
 * The rules are those of torchvision's Resize, CenterCrop, RandomResizedCrop and
 * RandomHorizontalFlip (torchvision/transforms/transforms.py, functional.py); where they round, it
 * is as Python's round() does: halves to even. The numbers are the sample's own (rng.h), in
 * this order. random_crop, up to ten times: u1, u2 with area = u1 of [scale], log aspect = u2 of
 * [log aspect], and where such a box lies in the image: top, left below as many as there are
 * places. Then, if flip > 0: u, mirrored when u < flip. Pure.
 */
#ifndef DL_DATA_IMAGE_CROP_H
#define DL_DATA_IMAGE_CROP_H

#include "daemon/data/base/rng.h"
#include "proto/spec.h"

struct image_size { /* in pixels */
    uint32_t height;
    uint32_t width;
};

/* Boxes that are drawn until one lies in the image. */
enum { IMAGE_CROP_TRIES = 10 };

/* The box of the source becomes `scaled`; of that, `size` from (top, left) on is the result. */
struct image_crop {
    uint32_t box_top;
    uint32_t box_left;
    struct image_size box;
    struct image_size scaled;
    uint32_t top;
    uint32_t left;
    struct image_size size;
    bool mirror; /* left to right */
};

/* `source`: at least 1 × 1. `rng` may be NULL where nothing is drawn. */
void image_crop_choose(const struct spec_image *spec, struct image_size source, struct rng *rng,
                       struct image_crop *ret);

/* Center_crop: what the shorter side becomes. */
uint32_t image_resize_of(const struct spec_image *spec);

static inline bool image_draws(const struct spec_image *spec)
{
    return spec->transform == TRANSFORM_RANDOM_CROP || spec->flip > 0;
}

#endif
