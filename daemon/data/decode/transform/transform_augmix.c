/*
 * AugMix: torchvision/transforms/v2/_auto_augment.py of torchvision 0.28, after
 * https://arxiv.org/abs/1912.02781: chains of operations, each from the same picture, mixed with it
 * by weights that are drawn. Draws and sums are torchvision's. Its operations are those of PIL
 * pictures, as in the paper's own code and in all other transforms here; torchvision has this one
 * work on tensors, whose rotations, equalizing and the like give other pixels.
 */
#include "daemon/data/decode/transform/transform_autos.h"

#include <errno.h>

enum { AUGMIX_BINS = 10, AUGMIX_GEOMETRIC = 9, AUGMIX_WIDTH_MAX = DRAWS_DIRICHLET_MAX };

static const struct autos_space augmix_space = {
    .shear = 0.3, .share = 1.0 / 3, .degrees = 30, .factor = 0.9, .bits = 4, .lost = 4};

/* In the order that their numbers are drawn for; the first AUGMIX_GEOMETRIC are those without
 * all_ops. */
static const enum operation augmix_operations[] = {
    OP_SHEAR_X,   OP_SHEAR_Y,  OP_TRANSLATE_X,  OP_TRANSLATE_Y, OP_ROTATE,
    OP_POSTERIZE, OP_SOLARIZE, OP_AUTOCONTRAST, OP_EQUALIZE,    OP_BRIGHTNESS,
    OP_COLOR,     OP_CONTRAST, OP_SHARPNESS};

static int augmix_operate_once(const struct transform *t, struct transforms_runner *run,
                               struct image_size size)
{
    uint32_t n = t->flag ? ARRAY_SIZE(augmix_operations) : AUGMIX_GEOMETRIC;
    enum operation op = augmix_operations[draws_int(run->draws, 0, n)];
    double magnitude = 0;

    if (autos_has_magnitude(op)) {
        uint32_t bin = (uint32_t)draws_int(run->draws, 0, t->count[0]);
        magnitude = autos_magnitude(&augmix_space, op, size, AUGMIX_BINS, bin);
    }
    return autos_operate(t, run, op, autos_sign(run->draws, op, magnitude));
}

/* Adds a share of run->now to the sum; `first` begins one. */
static void augmix_add(const struct picture *p, float share, bool first, float *sum)
{
    size_t n = picture_pixels(p) * PICTURE_PIXEL;

    for (size_t i = 0; i < n; i++) {
        float part = share * (float)p->pixels[i];
        sum[i] = first ? part : sum[i] + part;
    }
}

/* torch cuts what lies behind the point. The sum of the shares is 1 but for rounding. */
static void augmix_finish(const float *sum, struct picture *p)
{
    size_t n = picture_pixels(p) * PICTURE_PIXEL;

    for (size_t i = 0; i < n; i++)
        p->pixels[i] = (uint8_t)sum[i];
}

struct augmix {
    struct picture original; /* owned */
    float *sum;              /* owned; of each byte */
    float shares[2];         /* of the original, and of all chains */
    float chains[AUGMIX_WIDTH_MAX];
};

static int augmix_begin(const struct transform *t, struct transforms_runner *run,
                        struct augmix *mix)
{
    struct picture_box whole = {.size = run->now.size};
    int r = picture_crop(&run->now, &whole, &mix->original);

    if (r < 0)
        return r;
    mix->sum = calloc(max_u64(picture_pixels(&run->now), 1) * PICTURE_PIXEL, sizeof *mix->sum);
    if (!mix->sum)
        return -ENOMEM;
    draws_dirichlet(run->draws, 2, t->numbers[0], mix->shares);
    draws_dirichlet(run->draws, t->count[1], t->numbers[0], mix->chains);
    augmix_add(&mix->original, mix->shares[0], true, mix->sum);
    return 0;
}

/* From the original on, as many operations as the depth says. */
static int augmix_chain(const struct transform *t, struct transforms_runner *run,
                        const struct augmix *mix)
{
    struct picture_box whole = {.size = mix->original.size};
    uint32_t depth = t->count[2] > 0 ? t->count[2] : (uint32_t)draws_int(run->draws, 1, 4);
    int r = runner_take(run, picture_crop(&mix->original, &whole, &run->spare));

    for (uint32_t i = 0; r == 0 && i < depth; i++)
        r = augmix_operate_once(t, run, mix->original.size);
    return r;
}

static int augmix_apply(const struct transform *t, struct transforms_runner *run)
{
    struct augmix mix = {0};
    int r = augmix_begin(t, run, &mix);

    if (r < 0)
        r = runner_take(run, r);
    for (uint32_t i = 0; r == 0 && i < t->count[1]; i++) {
        r = augmix_chain(t, run, &mix);
        if (r == 0)
            augmix_add(&run->now, mix.chains[i] * mix.shares[1], false, mix.sum);
    }
    if (r == 0)
        augmix_finish(mix.sum, &run->now);
    picture_deinit(&mix.original);
    free(mix.sum);
    return r;
}

/* As torchvision reads it: a number below 1 stands for a depth that is drawn. */
static int augmix_read_depth(const struct transform_reading *rd, const struct transform_arg *arg,
                             const struct value *v, struct transform *t)
{
    static const struct transform_arg depth = {.slot = 2, .low = 1, .high = 100};

    (void)arg;
    if (v->type == VALUE_INT && v->integer <= 0) {
        t->count[2] = 0;
        return 0;
    }
    return arg_count(rd, &depth, v, t);
}

static const struct transform_kind augmix_kinds[] = {
    {.name = "AugMix",
     .start = {.filter = RESIZE_BILINEAR, .count = {3, 3, 0}, .numbers = {1}, .flag = true},
     .args = {{"severity", arg_count, .slot = 0, .low = 1, .high = AUGMIX_BINS},
              {"mixture_width", arg_count, .slot = 1, .low = 1, .high = AUGMIX_WIDTH_MAX},
              {"chain_depth", augmix_read_depth},
              {"alpha", arg_number, .slot = 0, .low = 1e-3, .high = 1e6},
              {"all_ops", arg_flag},
              {"interpolation", arg_filter},
              {"fill", arg_fill}},
     .check = autos_check_operations,
     .apply = augmix_apply},
};

const struct transform_group transform_augmix = {augmix_kinds, ARRAY_SIZE(augmix_kinds)};
