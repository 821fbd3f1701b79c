/*
 * Transforms that choose others: torchvision/transforms/v2/_auto_augment.py of torchvision 0.28,
 * with its spaces and policies, which are those of the papers that it names. Magnitudes are torch's
 * linspace() in float32. (AugMix is in transform_augmix.c.)
 */
#include "daemon/data/decode/transform/transform_autos.h"
#include "daemon/data/decode/transform/transform.h"

#include <errno.h>
#include <math.h>

enum { RAND_OPERATIONS = 14, POLICY_BINS = 10, POLICIES = 25, NONE = -1 };

static const struct autos_space autos_narrow = {
    .shear = 0.3, .share = 150.0 / 331.0, .degrees = 30, .factor = 0.9, .bits = 8, .lost = 4};
static const struct autos_space autos_wide = {
    .shear = 0.99, .pixels = 32, .degrees = 135, .factor = 0.99, .bits = 8, .lost = 6};

/* ---- magnitudes -------------------------------------------------------------------------------
 */

/* torch.linspace(low, high, bins)[bin], which counts from the nearer end. */
static double autos_linspace(double low, double high, uint32_t bins, uint32_t bin)
{
    float from = (float)low, to = (float)high, step = (to - from) / (float)(bins - 1);

    if (bins == 1)
        return (double)from;
    if (bin < bins / 2)
        return (double)fmaf(step, (float)bin, from);
    return (double)fmaf(-step, (float)(bins - 1 - bin), to);
}

static bool autos_is_signed(enum operation op)
{
    return op >= OP_SHEAR_X && op <= OP_SHARPNESS;
}

bool autos_has_magnitude(enum operation op)
{
    return op >= OP_SHEAR_X && op <= OP_SOLARIZE;
}

double autos_magnitude(const struct autos_space *space, enum operation op, struct image_size size,
                       uint32_t bins, uint32_t bin)
{
    double width = space->share > 0 ? space->share * size.width : space->pixels;
    double height = space->share > 0 ? space->share * size.height : space->pixels;

    switch (op) {
    case OP_SHEAR_X:
    case OP_SHEAR_Y:
        return autos_linspace(0, space->shear, bins, bin);
    case OP_TRANSLATE_X:
        return autos_linspace(0, width, bins, bin);
    case OP_TRANSLATE_Y:
        return autos_linspace(0, height, bins, bin);
    case OP_ROTATE:
        return autos_linspace(0, space->degrees, bins, bin);
    case OP_BRIGHTNESS:
    case OP_COLOR:
    case OP_CONTRAST:
    case OP_SHARPNESS:
        return autos_linspace(0, space->factor, bins, bin);
    case OP_POSTERIZE:
        return (double)rintf((float)space->bits -
                             (float)bin / (float)((bins - 1) / (double)space->lost));
    case OP_SOLARIZE:
        return autos_linspace(1, 0, bins, bin);
    default:
        return 0;
    }
}

/* ---- operations -------------------------------------------------------------------------------
 */

static struct warp autos_warp(const struct transform *t)
{
    enum warp_filter filter = t->filter == RESIZE_BILINEAR  ? WARP_BILINEAR
                              : t->filter == RESIZE_BICUBIC ? WARP_BICUBIC
                                                            : WARP_NEAREST;

    return (struct warp){.filter = filter, .fill = t->fill};
}

static int autos_shear_or_move(const struct transform *t, struct transforms_runner *run,
                               enum operation op, double magnitude)
{
    struct image_size size = run->now.size;
    struct warp_parameters p = {.scale = 1};
    struct warp warp = autos_warp(t);
    bool down = op == OP_SHEAR_Y || op == OP_TRANSLATE_Y;
    double a[6];

    if (op == OP_SHEAR_X || op == OP_SHEAR_Y) {
        p.shear[down] = atan(magnitude) * (180 / M_PI); /* around the corner */
    } else {
        p.translate[down] = trunc(magnitude);
        p.center[0] = size.width * 0.5;
        p.center[1] = size.height * 0.5;
    }
    warp_affine_matrix(&p, a);
    return runner_take(run, warp_affine(&run->now, &warp, a, size, &run->spare));
}

static int autos_rotate(const struct transform *t, struct transforms_runner *run, double degrees)
{
    struct warp warp = autos_warp(t);

    return runner_take(
        run, warp_rotate(&run->now, &warp, &(struct warp_rotation){.angle = degrees}, &run->spare));
}

static int autos_sharpen(struct transforms_runner *run, double factor)
{
    int r = sharpen_picture(&run->now, factor, &run->spare);

    return r < 0 ? runner_take(run, r) : 0;
}

/* Those that need no other picture. */
static void autos_colour(struct picture *p, enum operation op, double magnitude)
{
    switch (op) {
    case OP_BRIGHTNESS:
        colour_brightness(p, 1 + magnitude);
        break;
    case OP_COLOR:
        colour_saturation(p, 1 + magnitude);
        break;
    case OP_CONTRAST:
        colour_contrast(p, 1 + magnitude);
        break;
    case OP_POSTERIZE:
        colour_posterize(p, (unsigned)magnitude);
        break;
    case OP_SOLARIZE:
        colour_solarize(p, 255 * magnitude);
        break;
    case OP_AUTOCONTRAST:
        colour_autocontrast(p);
        break;
    case OP_EQUALIZE:
        colour_equalize(p);
        break;
    case OP_INVERT:
        colour_invert(p);
        break;
    default:
        break;
    }
}

int autos_operate(const struct transform *t, struct transforms_runner *run, enum operation op,
                  double magnitude)
{
    if (op >= OP_SHEAR_X && op <= OP_TRANSLATE_Y)
        return autos_shear_or_move(t, run, op, magnitude);
    if (op == OP_ROTATE)
        return autos_rotate(t, run, magnitude);
    if (op == OP_SHARPNESS)
        return autos_sharpen(run, 1 + magnitude);
    autos_colour(&run->now, op, magnitude);
    return 0;
}

double autos_sign(struct draws *draws, enum operation op, double magnitude)
{
    return autos_is_signed(op) && draws_rand(draws) <= 0.5F ? -magnitude : magnitude;
}

/* ---- RandAugment, TrivialAugmentWide ----------------------------------------------------------
 */

int autos_check_operations(const struct transform_reading *rd, struct transform *t)
{
    if (t->filter != RESIZE_NEAREST && t->filter != RESIZE_BILINEAR && t->filter != RESIZE_BICUBIC)
        return dl_error_set(rd->err, EINVAL, rd->place,
                            "has an interpolation that only resizes; %s has nearest, bilinear and "
                            "bicubic",
                            t->kind->name);
    return 0;
}

static int autos_check_magnitude(const struct transform_reading *rd, struct transform *t)
{
    int r = autos_check_operations(rd, t);

    if (r < 0 || t->count[1] < t->count[2] || t->count[2] == 0)
        return r;
    return dl_error_set(rd->err, EINVAL, rd->place,
                        "has a magnitude of %u, which is one of the %u magnitudes from 0 on",
                        t->count[1], t->count[2]);
}

static int autos_apply_rand(const struct transform *t, struct transforms_runner *run)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < t->count[0]; i++) {
        enum operation op = (enum operation)draws_int(run->draws, 0, RAND_OPERATIONS);
        double magnitude =
            autos_magnitude(&autos_narrow, op, run->now.size, t->count[2], t->count[1]);
        r = autos_operate(t, run, op, autos_sign(run->draws, op, magnitude));
    }
    return r;
}

static int autos_apply_trivial(const struct transform *t, struct transforms_runner *run)
{
    enum operation op = (enum operation)draws_int(run->draws, 0, RAND_OPERATIONS);
    double magnitude = 0;

    if (autos_has_magnitude(op)) {
        uint32_t bin = (uint32_t)draws_int(run->draws, 0, t->count[2]);
        magnitude = autos_magnitude(&autos_wide, op, run->now.size, t->count[2], bin);
    }
    return autos_operate(t, run, op, autos_sign(run->draws, op, magnitude));
}

/* ---- AutoAugment ------------------------------------------------------------------------------
 */

struct autos_step {
    enum operation op;
    float p;
    int bin; /* NONE: it has no magnitude */
};

/* imagenet, cifar10, svhn; two steps each. */
static const struct autos_step autos_policies[][POLICIES][2] = {
    {
        {{OP_POSTERIZE, 0.4F, 8}, {OP_ROTATE, 0.6F, 9}},
        {{OP_SOLARIZE, 0.6F, 5}, {OP_AUTOCONTRAST, 0.6F, NONE}},
        {{OP_EQUALIZE, 0.8F, NONE}, {OP_EQUALIZE, 0.6F, NONE}},
        {{OP_POSTERIZE, 0.6F, 7}, {OP_POSTERIZE, 0.6F, 6}},
        {{OP_EQUALIZE, 0.4F, NONE}, {OP_SOLARIZE, 0.2F, 4}},
        {{OP_EQUALIZE, 0.4F, NONE}, {OP_ROTATE, 0.8F, 8}},
        {{OP_SOLARIZE, 0.6F, 3}, {OP_EQUALIZE, 0.6F, NONE}},
        {{OP_POSTERIZE, 0.8F, 5}, {OP_EQUALIZE, 1.0F, NONE}},
        {{OP_ROTATE, 0.2F, 3}, {OP_SOLARIZE, 0.6F, 8}},
        {{OP_EQUALIZE, 0.6F, NONE}, {OP_POSTERIZE, 0.4F, 6}},
        {{OP_ROTATE, 0.8F, 8}, {OP_COLOR, 0.4F, 0}},
        {{OP_ROTATE, 0.4F, 9}, {OP_EQUALIZE, 0.6F, NONE}},
        {{OP_EQUALIZE, 0.0F, NONE}, {OP_EQUALIZE, 0.8F, NONE}},
        {{OP_INVERT, 0.6F, NONE}, {OP_EQUALIZE, 1.0F, NONE}},
        {{OP_COLOR, 0.6F, 4}, {OP_CONTRAST, 1.0F, 8}},
        {{OP_ROTATE, 0.8F, 8}, {OP_COLOR, 1.0F, 2}},
        {{OP_COLOR, 0.8F, 8}, {OP_SOLARIZE, 0.8F, 7}},
        {{OP_SHARPNESS, 0.4F, 7}, {OP_INVERT, 0.6F, NONE}},
        {{OP_SHEAR_X, 0.6F, 5}, {OP_EQUALIZE, 1.0F, NONE}},
        {{OP_COLOR, 0.4F, 0}, {OP_EQUALIZE, 0.6F, NONE}},
        {{OP_EQUALIZE, 0.4F, NONE}, {OP_SOLARIZE, 0.2F, 4}},
        {{OP_SOLARIZE, 0.6F, 5}, {OP_AUTOCONTRAST, 0.6F, NONE}},
        {{OP_INVERT, 0.6F, NONE}, {OP_EQUALIZE, 1.0F, NONE}},
        {{OP_COLOR, 0.6F, 4}, {OP_CONTRAST, 1.0F, 8}},
        {{OP_EQUALIZE, 0.8F, NONE}, {OP_EQUALIZE, 0.6F, NONE}},
    },
    {
        {{OP_INVERT, 0.1F, NONE}, {OP_CONTRAST, 0.2F, 6}},
        {{OP_ROTATE, 0.7F, 2}, {OP_TRANSLATE_X, 0.3F, 9}},
        {{OP_SHARPNESS, 0.8F, 1}, {OP_SHARPNESS, 0.9F, 3}},
        {{OP_SHEAR_Y, 0.5F, 8}, {OP_TRANSLATE_Y, 0.7F, 9}},
        {{OP_AUTOCONTRAST, 0.5F, NONE}, {OP_EQUALIZE, 0.9F, NONE}},
        {{OP_SHEAR_Y, 0.2F, 7}, {OP_POSTERIZE, 0.3F, 7}},
        {{OP_COLOR, 0.4F, 3}, {OP_BRIGHTNESS, 0.6F, 7}},
        {{OP_SHARPNESS, 0.3F, 9}, {OP_BRIGHTNESS, 0.7F, 9}},
        {{OP_EQUALIZE, 0.6F, NONE}, {OP_EQUALIZE, 0.5F, NONE}},
        {{OP_CONTRAST, 0.6F, 7}, {OP_SHARPNESS, 0.6F, 5}},
        {{OP_COLOR, 0.7F, 7}, {OP_TRANSLATE_X, 0.5F, 8}},
        {{OP_EQUALIZE, 0.3F, NONE}, {OP_AUTOCONTRAST, 0.4F, NONE}},
        {{OP_TRANSLATE_Y, 0.4F, 3}, {OP_SHARPNESS, 0.2F, 6}},
        {{OP_BRIGHTNESS, 0.9F, 6}, {OP_COLOR, 0.2F, 8}},
        {{OP_SOLARIZE, 0.5F, 2}, {OP_INVERT, 0.0F, NONE}},
        {{OP_EQUALIZE, 0.2F, NONE}, {OP_AUTOCONTRAST, 0.6F, NONE}},
        {{OP_EQUALIZE, 0.2F, NONE}, {OP_EQUALIZE, 0.6F, NONE}},
        {{OP_COLOR, 0.9F, 9}, {OP_EQUALIZE, 0.6F, NONE}},
        {{OP_AUTOCONTRAST, 0.8F, NONE}, {OP_SOLARIZE, 0.2F, 8}},
        {{OP_BRIGHTNESS, 0.1F, 3}, {OP_COLOR, 0.7F, 0}},
        {{OP_SOLARIZE, 0.4F, 5}, {OP_AUTOCONTRAST, 0.9F, NONE}},
        {{OP_TRANSLATE_Y, 0.9F, 9}, {OP_TRANSLATE_Y, 0.7F, 9}},
        {{OP_AUTOCONTRAST, 0.9F, NONE}, {OP_SOLARIZE, 0.8F, 3}},
        {{OP_EQUALIZE, 0.8F, NONE}, {OP_INVERT, 0.1F, NONE}},
        {{OP_TRANSLATE_Y, 0.7F, 9}, {OP_AUTOCONTRAST, 0.9F, NONE}},
    },
    {
        {{OP_SHEAR_X, 0.9F, 4}, {OP_INVERT, 0.2F, NONE}},
        {{OP_SHEAR_Y, 0.9F, 8}, {OP_INVERT, 0.7F, NONE}},
        {{OP_EQUALIZE, 0.6F, NONE}, {OP_SOLARIZE, 0.6F, 6}},
        {{OP_INVERT, 0.9F, NONE}, {OP_EQUALIZE, 0.6F, NONE}},
        {{OP_EQUALIZE, 0.6F, NONE}, {OP_ROTATE, 0.9F, 3}},
        {{OP_SHEAR_X, 0.9F, 4}, {OP_AUTOCONTRAST, 0.8F, NONE}},
        {{OP_SHEAR_Y, 0.9F, 8}, {OP_INVERT, 0.4F, NONE}},
        {{OP_SHEAR_Y, 0.9F, 5}, {OP_SOLARIZE, 0.2F, 6}},
        {{OP_INVERT, 0.9F, NONE}, {OP_AUTOCONTRAST, 0.8F, NONE}},
        {{OP_EQUALIZE, 0.6F, NONE}, {OP_ROTATE, 0.9F, 3}},
        {{OP_SHEAR_X, 0.9F, 4}, {OP_SOLARIZE, 0.3F, 3}},
        {{OP_SHEAR_Y, 0.8F, 8}, {OP_INVERT, 0.7F, NONE}},
        {{OP_EQUALIZE, 0.9F, NONE}, {OP_TRANSLATE_Y, 0.6F, 6}},
        {{OP_INVERT, 0.9F, NONE}, {OP_EQUALIZE, 0.6F, NONE}},
        {{OP_CONTRAST, 0.3F, 3}, {OP_ROTATE, 0.8F, 4}},
        {{OP_INVERT, 0.8F, NONE}, {OP_TRANSLATE_Y, 0.0F, 2}},
        {{OP_SHEAR_Y, 0.7F, 6}, {OP_SOLARIZE, 0.4F, 8}},
        {{OP_INVERT, 0.6F, NONE}, {OP_ROTATE, 0.8F, 4}},
        {{OP_SHEAR_Y, 0.3F, 7}, {OP_TRANSLATE_X, 0.9F, 3}},
        {{OP_SHEAR_X, 0.1F, 6}, {OP_INVERT, 0.6F, NONE}},
        {{OP_SOLARIZE, 0.7F, 2}, {OP_TRANSLATE_Y, 0.6F, 7}},
        {{OP_SHEAR_Y, 0.8F, 4}, {OP_INVERT, 0.8F, NONE}},
        {{OP_SHEAR_X, 0.7F, 9}, {OP_TRANSLATE_Y, 0.8F, 3}},
        {{OP_SHEAR_Y, 0.8F, 5}, {OP_AUTOCONTRAST, 0.7F, NONE}},
        {{OP_SHEAR_X, 0.7F, 2}, {OP_INVERT, 0.1F, NONE}},
    },
};

static int autos_apply_policy(const struct transform *t, struct transforms_runner *run)
{
    struct image_size size = run->now.size; /* of the picture as it came; no operation changes it */
    const struct autos_step *steps = autos_policies[t->choice][draws_int(run->draws, 0, POLICIES)];
    int r = 0;

    for (unsigned i = 0; r == 0 && i < 2; i++) {
        enum operation op = steps[i].op;
        if (!(draws_rand(run->draws) <= steps[i].p))
            continue;
        double magnitude =
            steps[i].bin == NONE
                ? 0
                : autos_magnitude(&autos_narrow, op, size, POLICY_BINS, (uint32_t)steps[i].bin);
        r = autos_operate(t, run, op, autos_sign(run->draws, op, magnitude));
    }
    return r;
}

static const char *const policy_names[] = {"imagenet", "cifar10", "svhn", NULL};

static const struct transform_kind autos_kinds[] = {
    {.name = "RandAugment",
     .start = {.count = {2, 9, 31}},
     .args = {{"num_ops", arg_count, .slot = 0, .low = 0, .high = 100},
              {"magnitude", arg_count, .slot = 1, .low = 0, .high = 1e6},
              {"num_magnitude_bins", arg_count, .slot = 2, .low = 2, .high = 1e6},
              {"interpolation", arg_filter},
              {"fill", arg_fill}},
     .check = autos_check_magnitude,
     .apply = autos_apply_rand},
    {.name = "TrivialAugmentWide",
     .start = {.count = {0, 0, 31}},
     .args = {{"num_magnitude_bins", arg_count, .slot = 2, .low = 2, .high = 1e6},
              {"interpolation", arg_filter},
              {"fill", arg_fill}},
     .check = autos_check_magnitude,
     .apply = autos_apply_trivial},
    {.name = "AutoAugment",
     .args = {{"policy", arg_choice, .words = policy_names},
              {"interpolation", arg_filter},
              {"fill", arg_fill}},
     .check = autos_check_magnitude,
     .apply = autos_apply_policy},
};

const struct transform_group transform_autos = {autos_kinds, ARRAY_SIZE(autos_kinds)};
