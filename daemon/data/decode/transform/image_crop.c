/* Boxes. */
#include "daemon/data/decode/transform/image_crop.h"

#include <assert.h>
#include <math.h>

/* center_crop without `resize`: as ImageNet's usual 224 of 256. */
static const double default_resize = 256.0 / 224.0;

/* Python's round(); rint() has halves to even unless somebody changed the rounding mode. */
static uint32_t image_crop_rounded(double x)
{
    return x < 1 ? (uint32_t)(x > 0.5) : x > UINT32_MAX ? UINT32_MAX : (uint32_t)rint(x);
}

uint32_t image_resize_of(const struct spec_image *spec)
{
    uint32_t longer = spec->height > spec->width ? spec->height : spec->width;

    return spec->resize ? spec->resize : image_crop_rounded(longer * default_resize);
}

static void image_crop_center_crop(const struct spec_image *spec, struct image_crop *crop)
{
    uint64_t shorter = image_resize_of(spec);
    uint64_t h = crop->box.height, w = crop->box.width;

    if (h <= w)
        crop->scaled = (struct image_size){
            .height = (uint32_t)shorter,
            .width = (uint32_t)min_u64((uint64_t)((double)(shorter * w) / (double)h), UINT32_MAX),
        };
    else
        crop->scaled = (struct image_size){
            .height = (uint32_t)min_u64((uint64_t)((double)(shorter * h) / (double)w), UINT32_MAX),
            .width = (uint32_t)shorter,
        };
    assert(crop->scaled.height >= crop->size.height && crop->scaled.width >= crop->size.width);
    crop->top = image_crop_rounded((crop->scaled.height - crop->size.height) / 2.0);
    crop->left = image_crop_rounded((crop->scaled.width - crop->size.width) / 2.0);
}

static double image_crop_uniform(struct rng *rng, double low, double high)
{
    return low + (high - low) * rng_uniform(rng);
}

/* As much of the middle as has an aspect that is allowed. */
static void image_crop_fall_back(const struct spec_image *spec, struct image_crop *crop)
{
    struct image_size source = crop->box;
    double aspect = (double)source.width / source.height;

    if (aspect < spec->aspect[0])
        crop->box.height = image_crop_rounded(source.width / spec->aspect[0]);
    else if (aspect > spec->aspect[1])
        crop->box.width = image_crop_rounded(source.height * spec->aspect[1]);
    crop->box.height = (uint32_t)min_u64(max_u64(crop->box.height, 1), source.height);
    crop->box.width = (uint32_t)min_u64(max_u64(crop->box.width, 1), source.width);
    crop->box_top = (source.height - crop->box.height) / 2;
    crop->box_left = (source.width - crop->box.width) / 2;
}

static void image_crop_random_crop(const struct spec_image *spec, struct rng *rng,
                                   struct image_crop *crop)
{
    struct image_size source = crop->box;
    double area = (double)source.height * source.width;
    double log_low = log(spec->aspect[0]), log_high = log(spec->aspect[1]);

    for (int i = 0; i < IMAGE_CROP_TRIES; i++) {
        double target = area * image_crop_uniform(rng, spec->scale[0], spec->scale[1]);
        double aspect = exp(image_crop_uniform(rng, log_low, log_high));
        uint32_t w = image_crop_rounded(sqrt(target * aspect)),
                 h = image_crop_rounded(sqrt(target / aspect));
        if (w == 0 || w > source.width || h == 0 || h > source.height)
            continue;
        crop->box = (struct image_size){.height = h, .width = w};
        crop->box_top = (uint32_t)rng_below(rng, source.height - h + 1ULL);
        crop->box_left = (uint32_t)rng_below(rng, source.width - w + 1ULL);
        return;
    }
    image_crop_fall_back(spec, crop);
}

void image_crop_choose(const struct spec_image *spec, struct image_size source, struct rng *rng,
                       struct image_crop *ret)
{
    struct image_size size = {.height = spec->height, .width = spec->width};

    assert(source.height > 0 && source.width > 0 && (rng || !image_draws(spec)));
    if (spec->transform == TRANSFORM_NONE)
        size = source;
    *ret = (struct image_crop){.box = source, .scaled = size, .size = size};
    if (spec->transform == TRANSFORM_CENTER_CROP)
        image_crop_center_crop(spec, ret);
    else if (spec->transform == TRANSFORM_RANDOM_CROP)
        image_crop_random_crop(spec, rng, ret);
    if (spec->flip > 0)
        ret->mirror = rng_uniform(rng) < spec->flip;
}
