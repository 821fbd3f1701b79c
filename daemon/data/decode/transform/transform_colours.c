/* Colours: torchvision/transforms/v2/_color.py and _misc.py (GaussianBlur) of torchvision 0.28. */
#include "daemon/data/decode/transform/transform.h"

#include <errno.h>

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE, JITTERS };
enum { KERNEL_MAX = 255 };

static int colours_shape_grey(const struct transform_reading *rd, const struct transform *t,
                              struct transforms_shape *shape)
{
    if (shape->is_tensor)
        return dl_error_set(rd->err, EINVAL, rd->place,
                            "%s is for pictures, but comes after the transform that makes them a "
                            "tensor; move it before that one",
                            t->kind->name);
    shape->channels = t->count[0];
    return 0;
}

static int colours_check_channels(const struct transform_reading *rd, struct transform *t)
{
    if (t->count[0] != 2)
        return 0;
    return dl_error_set(rd->err, EINVAL, rd->place,
                        "has 2 num_output_channels; 1 or 3 can be made");
}

static int colours_apply_grey(const struct transform *t, struct transforms_runner *run)
{
    colour_grey(&run->now, t->count[0] == 1);
    return 0;
}

/* What changes a picture where it is not skipped. */
#define COLOURS_APPLY(name, change)                                                           \
    static int colours_apply_##name(const struct transform *t, struct transforms_runner *run) \
    {                                                                                         \
        if (!transform_is_skipped(t, run))                                                    \
            change;                                                                           \
        return 0;                                                                             \
    }
COLOURS_APPLY(random_grey, colour_grey(&run->now, run->now.grey))
COLOURS_APPLY(invert, colour_invert(&run->now))
COLOURS_APPLY(posterize, colour_posterize(&run->now, t->count[0]))
COLOURS_APPLY(solarize, colour_solarize(&run->now, t->numbers[0]))
COLOURS_APPLY(autocontrast, colour_autocontrast(&run->now))
COLOURS_APPLY(equalize, colour_equalize(&run->now))

static void colours_adjust(struct picture *p, unsigned what, double factor)
{
    static void (*const adjust[JITTERS])(struct picture *, double) = {
        colour_brightness, colour_contrast, colour_saturation, colour_hue};

    adjust[what](p, factor);
}

static int colours_apply_jitter(const struct transform *t, struct transforms_runner *run)
{
    uint32_t order[JITTERS];
    double factors[JITTERS] = {0};

    draws_permutation(run->draws, JITTERS, order);
    for (unsigned i = 0; i < JITTERS; i++) {
        if (t->has_range[i])
            factors[i] = (double)draws_uniform(run->draws, t->ranges[i][0], t->ranges[i][1]);
    }
    for (unsigned i = 0; i < JITTERS; i++) {
        if (t->has_range[order[i]])
            colours_adjust(&run->now, order[i], factors[order[i]]);
    }
    return 0;
}

/* Contrast comes before saturation and hue, or after them. */
static int colours_apply_photometric(const struct transform *t, struct transforms_runner *run)
{
    bool wanted[JITTERS];
    double factors[JITTERS] = {0};
    uint32_t order[3];

    for (unsigned i = 0; i < JITTERS; i++) {
        wanted[i] = draws_rand(run->draws) < (float)t->p;
        if (wanted[i])
            factors[i] = (double)draws_uniform(run->draws, t->ranges[i][0], t->ranges[i][1]);
    }
    bool contrast_first = draws_rand(run->draws) < 0.5F;
    bool permute = draws_rand(run->draws) < (float)t->p;
    if (permute)
        draws_permutation(run->draws, runner_channels(run), order);
    if (wanted[BRIGHTNESS])
        colour_brightness(&run->now, factors[BRIGHTNESS]);
    if (wanted[CONTRAST] && contrast_first)
        colour_contrast(&run->now, factors[CONTRAST]);
    if (wanted[SATURATION])
        colour_saturation(&run->now, factors[SATURATION]);
    if (wanted[HUE])
        colour_hue(&run->now, factors[HUE]);
    if (wanted[CONTRAST] && !contrast_first)
        colour_contrast(&run->now, factors[CONTRAST]);
    if (permute && !run->now.grey)
        colour_permute(&run->now, order);
    return 0;
}

static int colours_apply_permutation(const struct transform *t, struct transforms_runner *run)
{
    uint32_t order[3];

    (void)t;
    draws_permutation(run->draws, runner_channels(run), order);
    if (!run->now.grey)
        colour_permute(&run->now, order);
    return 0;
}

static int colours_apply_sharpness(const struct transform *t, struct transforms_runner *run)
{
    if (transform_is_skipped(t, run))
        return 0;
    int r = sharpen_picture(&run->now, t->numbers[0], &run->spare);
    return r < 0 ? runner_take(run, r) : 0;
}

/* ---- GaussianBlur -----------------------------------------------------------------------------
 */

static int colours_check_blur(const struct transform_reading *rd, struct transform *t)
{
    for (unsigned i = 0; i < 2; i++) {
        if (t->size.side[i] % 2 == 0 || t->size.side[i] > KERNEL_MAX)
            return dl_error_set(rd->err, EINVAL, rd->place,
                                "has a kernel_size of %u; it is an odd number up to %d",
                                t->size.side[i], KERNEL_MAX);
    }
    return 0;
}

static int colours_apply_blur(const struct transform *t, struct transforms_runner *run)
{
    double sigma = (double)draws_uniform(run->draws, t->ranges[0][0], t->ranges[0][1]);
    float across[KERNEL_MAX], down[KERNEL_MAX];
    /* torchvision's kernel_size has the width first. */
    struct sharpen_kernel kernel = {
        .across = across, .down = down, .width = t->size.side[0], .height = t->size.side[1]};

    sharpen_weigh_blur(kernel.width, sigma, across);
    sharpen_weigh_blur(kernel.height, sigma, down);
    int r = sharpen_blur(&run->now, &kernel, &run->spare);
    if (r == -EINVAL)
        return runner_refuse(run, t->kind->name, "needs more than half of its kernel_size");
    return runner_take(run, r);
}

static const struct transform_kind colours_kinds[] = {
    {.name = "Grayscale",
     .stacks = true,
     .start = {.count = {1}},
     .args = {{"num_output_channels", arg_count, .low = 1, .high = 3}},
     .check = colours_check_channels,
     .shape = colours_shape_grey,
     .apply = colours_apply_grey},
    {.name = "RandomGrayscale",
     .start = {.p = 0.1},
     .args = {{"p", arg_p}},
     .apply = colours_apply_random_grey},
    {.name = "ColorJitter",
     .args = {{"brightness", arg_jitter, .slot = BRIGHTNESS, .low = 0, .high = 1e6},
              {"contrast", arg_jitter, .slot = CONTRAST, .low = 0, .high = 1e6},
              {"saturation", arg_jitter, .slot = SATURATION, .low = 0, .high = 1e6},
              {"hue", arg_jitter, .slot = HUE, .low = -0.5, .high = 0.5}},
     .apply = colours_apply_jitter},
    {.name = "RandomPhotometricDistort",
     .start = {.p = 0.5, .ranges = {{0.875, 1.125}, {0.5, 1.5}, {0.5, 1.5}, {-0.05, 0.05}}},
     .args = {{"brightness", arg_range, .slot = BRIGHTNESS, .low = 0, .high = 1e6},
              {"contrast", arg_range, .slot = CONTRAST, .low = 0, .high = 1e6},
              {"saturation", arg_range, .slot = SATURATION, .low = 0, .high = 1e6},
              {"hue", arg_range, .slot = HUE, .low = -0.5, .high = 0.5},
              {"p", arg_p}},
     .apply = colours_apply_photometric},
    {.name = "RandomChannelPermutation", .apply = colours_apply_permutation},
    {.name = "RandomInvert",
     .start = {.p = 0.5},
     .args = {{"p", arg_p}},
     .apply = colours_apply_invert},
    {.name = "RandomPosterize",
     .start = {.p = 0.5},
     .args = {{"bits", arg_count, .low = 1, .high = 8, .is_required = true}, {"p", arg_p}},
     .apply = colours_apply_posterize},
    {.name = "RandomSolarize",
     .start = {.p = 0.5},
     .args = {{"threshold", arg_number, .low = -1e6, .high = 1e6, .is_required = true},
              {"p", arg_p}},
     .apply = colours_apply_solarize},
    {.name = "RandomAutocontrast",
     .start = {.p = 0.5},
     .args = {{"p", arg_p}},
     .apply = colours_apply_autocontrast},
    {.name = "RandomEqualize",
     .start = {.p = 0.5},
     .args = {{"p", arg_p}},
     .apply = colours_apply_equalize},
    {.name = "RandomAdjustSharpness",
     .start = {.p = 0.5},
     .args = {{"sharpness_factor", arg_number, .low = 0, .high = 1e6, .is_required = true},
              {"p", arg_p}},
     .apply = colours_apply_sharpness},
    {.name = "GaussianBlur",
     .start = {.ranges = {{0.1, 2}}},
     .args = {{"kernel_size", arg_size, .is_required = true},
              {"sigma", arg_spread, .low = 1e-3, .high = 1e6}},
     .check = colours_check_blur,
     .apply = colours_apply_blur},
};

const struct transform_group transform_colours = {colours_kinds, ARRAY_SIZE(colours_kinds)};
