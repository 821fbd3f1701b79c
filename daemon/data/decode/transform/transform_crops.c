/*
 * Sizes and places: torchvision/transforms/v2/_geometry.py of torchvision 0.28. Where it rounds, it
 * is as Python's round(): halves to even.
 */
#include "daemon/data/decode/transform/transform.h"

#include <errno.h>
#include <math.h>

static struct image_size crops_size(const struct transform *t)
{
    return (struct image_size){.height = t->size.side[0], .width = t->size.side[1]};
}

static int crops_keep_picture(const struct transform_reading *rd, const struct transform *t,
                              const struct transforms_shape *shape)
{
    if (!shape->is_tensor)
        return 0;
    return dl_error_set(rd->err, EINVAL, rd->place,
                        "%s is for pictures, but comes after the transform that makes them a "
                        "tensor; move it before that one",
                        t->kind->name);
}

static int crops_fix_size(const struct transform_reading *rd, const struct transform *t,
                          struct transforms_shape *shape)
{
    shape->is_fixed = true;
    shape->size = crops_size(t);
    return crops_keep_picture(rd, t, shape);
}

static int crops_resize(struct transforms_runner *run, struct image_size size,
                        enum resize_filter filter)
{
    if (size.height == run->now.size.height && size.width == run->now.size.width)
        return 0;
    if (size.height == 0 || size.width == 0)
        return runner_refuse(run, "a transform", "would leave it none in one direction");
    return runner_take(run, resizer_run(&run->resizer, &run->now, size, filter, &run->spare));
}

/* ---- Resize -----------------------------------------------------------------------------------
 */

static int crops_check_resize(const struct transform_reading *rd, struct transform *t)
{
    if (t->size.n == 0 && t->max_size == 0)
        return dl_error_set(rd->err, EINVAL, rd->place,
                            "has neither size nor max_size; give one of them");
    if (t->size.n == 2 && t->max_size > 0)
        return dl_error_set(rd->err, EINVAL, rd->place,
                            "has max_size beside a size of two numbers; leave out one of them");
    if (t->size.n == 1 && t->max_size > 0 && t->max_size <= t->size.side[0])
        return dl_error_set(rd->err, EINVAL, rd->place,
                            "has a max_size of %u, which must be above its size of %u", t->max_size,
                            t->size.side[0]);
    return 0;
}

static int crops_shape_resize(const struct transform_reading *rd, const struct transform *t,
                              struct transforms_shape *shape)
{
    if (t->size.n == 2)
        return crops_fix_size(rd, t, shape);
    shape->is_fixed = shape->is_fixed && t->size.n == 1 && t->max_size == 0 &&
                      shape->size.height == shape->size.width;
    if (shape->is_fixed)
        shape->size = crops_size(t);
    return crops_keep_picture(rd, t, shape);
}

/* What one side becomes where the other goes from `from` to `to`. */
static uint32_t crops_other_side(uint32_t side, uint32_t from, uint32_t to)
{
    uint64_t scaled = (uint64_t)((double)((uint64_t)to * side) / (double)from);

    return (uint32_t)min_u64(scaled, UINT32_MAX);
}

static struct image_size crops_resized(const struct transform *t, struct image_size now)
{
    bool upright = now.width <= now.height;
    uint32_t shorter = upright ? now.width : now.height, longer = upright ? now.height : now.width;
    uint32_t new_shorter, new_longer;

    if (t->size.n == 2)
        return crops_size(t);
    if (t->size.n == 1) {
        new_shorter = t->size.side[0];
        new_longer = crops_other_side(longer, shorter, new_shorter);
        if (t->max_size > 0 && new_longer > t->max_size) {
            new_shorter = crops_other_side(new_shorter, new_longer, t->max_size);
            new_longer = t->max_size;
        }
    } else {
        new_shorter = crops_other_side(shorter, longer, t->max_size);
        new_longer = t->max_size;
    }
    return upright ? (struct image_size){.height = new_longer, .width = new_shorter}
                   : (struct image_size){.height = new_shorter, .width = new_longer};
}

static int crops_apply_resize(const struct transform *t, struct transforms_runner *run)
{
    return crops_resize(run, crops_resized(t, run->now.size), t->filter);
}

/* ---- RandomResizedCrop ------------------------------------------------------------------------
 */

/* The middle, as much of it as has an aspect that is allowed. */
static void crops_fall_back(const struct transform *t, struct image_size size,
                            struct picture_box *ret)
{
    double aspect = (double)size.width / size.height, low = t->ranges[1][0], high = t->ranges[1][1];
    double h = size.height, w = size.width;

    if (aspect < low)
        h = rint(w / low);
    else if (aspect > high)
        w = rint(h * high);
    ret->size = (struct image_size){.height = (uint32_t)h, .width = (uint32_t)w};
    ret->top = (int64_t)(size.height - ret->size.height) / 2;
    ret->left = (int64_t)(size.width - ret->size.width) / 2;
}

static int crops_box_resized(const struct transform *t, struct transforms_runner *run,
                             struct image_size size, struct picture_box *ret)
{
    double area = (double)size.height * size.width;

    for (int i = 0; i < IMAGE_CROP_TRIES; i++) {
        double target = area * (double)draws_uniform(run->draws, t->ranges[0][0], t->ranges[0][1]);
        float log_aspect = draws_uniform(run->draws, t->ranges[2][0], t->ranges[2][1]);
        double aspect = (double)(float)exp((double)log_aspect);
        double w = rint(sqrt(target * aspect)), h = rint(sqrt(target / aspect));
        if (!(w > 0 && w <= size.width && h > 0 && h <= size.height))
            continue;
        ret->size = (struct image_size){.height = (uint32_t)h, .width = (uint32_t)w};
        ret->top = draws_int(run->draws, 0, (int64_t)size.height - ret->size.height + 1);
        ret->left = draws_int(run->draws, 0, (int64_t)size.width - ret->size.width + 1);
        return 0;
    }
    crops_fall_back(t, size, ret);
    return 0;
}

static struct image_size crops_goal(const struct transform *t, struct image_size size)
{
    (void)size;
    return crops_size(t);
}

/* A picture so small that its crop is empty becomes black, as PIL resizes nothing. */
static int crops_apply_resized(const struct transform *t, struct transforms_runner *run)
{
    if (picture_pixels(&run->now) > 0)
        return crops_resize(run, crops_size(t), t->filter);
    int r = picture_set(&run->spare, crops_size(t), run->now.grey);
    if (r == 0)
        picture_fill(&run->spare, (struct picture_colour){{0}});
    return runner_take(run, r);
}

/* ---- CenterCrop, Pad, RandomCrop --------------------------------------------------------------
 */

static int crops_apply_pad(const struct transform *t, struct transforms_runner *run)
{
    return runner_take(run, picture_pad(&run->now, &t->margins, &run->spare));
}

static int crops_shape_pad(const struct transform_reading *rd, const struct transform *t,
                           struct transforms_shape *shape)
{
    shape->size.height += t->margins.top + t->margins.bottom;
    shape->size.width += t->margins.left + t->margins.right;
    return crops_keep_picture(rd, t, shape);
}

static int crops_check_pad(const struct transform_reading *rd, struct transform *t)
{
    (void)rd;
    t->margins.fill = t->fill;
    return 0;
}

/* A side that is shorter than the crop is padded by apply(). */
static int crops_box_center(const struct transform *t, struct transforms_runner *run,
                            struct image_size now, struct picture_box *ret)
{
    struct image_size size = crops_size(t);

    (void)run;
    *ret = (struct picture_box){.size = now};
    if (now.height > size.height) {
        ret->top = (int64_t)rint((now.height - size.height) / 2.0);
        ret->size.height = size.height;
    }
    if (now.width > size.width) {
        ret->left = (int64_t)rint((now.width - size.width) / 2.0);
        ret->size.width = size.width;
    }
    return 0;
}

static int crops_apply_center(const struct transform *t, struct transforms_runner *run)
{
    uint32_t more_h = t->size.side[0] - run->now.size.height;
    uint32_t more_w = t->size.side[1] - run->now.size.width;
    const struct picture_margins margins = {.left = more_w / 2,
                                            .top = more_h / 2,
                                            .right = (more_w + 1) / 2,
                                            .bottom = (more_h + 1) / 2};

    if (more_h == 0 && more_w == 0)
        return 0;
    return runner_take(run, picture_pad(&run->now, &margins, &run->spare));
}

/* What is added to a side for pad_if_needed is added on both of its ends. */
static void crops_add_margins(const struct transform *t, struct image_size now,
                              struct picture_margins *m)
{
    uint32_t h = now.height + m->top + m->bottom, w = now.width + m->left + m->right;

    if (t->flag && h < t->size.side[0]) {
        m->top += t->size.side[0] - h;
        m->bottom += t->size.side[0] - h;
    }
    if (t->flag && w < t->size.side[1]) {
        m->left += t->size.side[1] - w;
        m->right += t->size.side[1] - w;
    }
}

static int crops_apply_random(const struct transform *t, struct transforms_runner *run)
{
    struct picture_margins margins = t->margins;
    struct picture_box box = {.size = crops_size(t)};
    int r;

    crops_add_margins(t, run->now.size, &margins);
    if ((uint64_t)run->now.size.height + margins.top + margins.bottom < box.size.height ||
        (uint64_t)run->now.size.width + margins.left + margins.right < box.size.width)
        return runner_refuse(run, t->kind->name,
                             "needs more; resize it before, or set pad_if_needed");
    /* torchvision draws before it pads: nothing is drawn of a side that fits. */
    if ((margins.left || margins.top || margins.right || margins.bottom) &&
        (r = runner_take(run, picture_pad(&run->now, &margins, &run->spare))) < 0)
        return r;
    struct image_size now = run->now.size;
    bool higher = now.height > box.size.height, wider = now.width > box.size.width;
    bool both = run->first_generation && (higher || wider);
    if (higher || both)
        box.top = draws_int(run->draws, 0, (int64_t)now.height - box.size.height + 1);
    if (wider || both)
        box.left = draws_int(run->draws, 0, (int64_t)now.width - box.size.width + 1);
    if (!higher && !wider)
        return 0;
    return runner_take(run, picture_crop(&run->now, &box, &run->spare));
}

/* ---- FiveCrop, TenCrop ------------------------------------------------------------------------
 */

/* The corners and the middle: where each begins, down and across. */
static void crops_place_five(struct image_size now, struct image_size size, uint32_t ret[5][2])
{
    uint32_t down = now.height - size.height, across = now.width - size.width;
    const uint32_t at[5][2] = {{0, 0},
                               {0, across},
                               {down, 0},
                               {down, across},
                               {(uint32_t)rint(down / 2.0), (uint32_t)rint(across / 2.0)}};

    memcpy(ret, at, sizeof at);
}

/* Five crops of `in`, or of what it is upside down, as rows of `out` from row `to` on. */
static void crops_copy_five(const struct picture *in, struct image_size size, bool turned,
                            struct picture *out, uint32_t to)
{
    uint32_t at[5][2];

    crops_place_five(in->size, size, at);
    for (unsigned i = 0; i < 5; i++) {
        for (uint32_t y = 0; y < size.height; y++, to++) {
            uint32_t from = at[i][0] + y;
            const uint8_t *row = picture_row(in, turned ? in->size.height - 1 - from : from);
            memcpy(picture_row(out, to), row + (size_t)at[i][1] * PICTURE_PIXEL,
                   (size_t)size.width * PICTURE_PIXEL);
        }
    }
}

static int crops_apply_stack(const struct transform *t, struct transforms_runner *run)
{
    struct image_size size = crops_size(t);
    uint32_t stack = t->count[0];
    struct image_size all = {.height = size.height * stack, .width = size.width};

    if (run->now.size.height < size.height || run->now.size.width < size.width)
        return runner_refuse(run, t->kind->name, "needs more; resize it before");
    int r = picture_set(&run->spare, all, run->now.grey);
    if (r == 0) {
        crops_copy_five(&run->now, size, false, &run->spare, 0);
        if (stack > 5 && !t->flag)
            picture_flip_horizontally(&run->now);
        if (stack > 5)
            crops_copy_five(&run->now, size, t->flag, &run->spare, 5 * size.height);
        run->stack = stack;
    }
    return runner_take(run, r);
}

static int crops_shape_stack(const struct transform_reading *rd, const struct transform *t,
                             struct transforms_shape *shape)
{
    shape->stack = t->count[0];
    return crops_fix_size(rd, t, shape);
}

/* ---- flips ------------------------------------------------------------------------------------
 */

static int crops_apply_mirror(const struct transform *t, struct transforms_runner *run)
{
    if (!transform_is_skipped(t, run))
        picture_flip_horizontally(&run->now);
    return 0;
}

static int crops_apply_flip(const struct transform *t, struct transforms_runner *run)
{
    if (transform_is_skipped(t, run))
        return 0;
    return runner_take(run, picture_flip_vertically(&run->now, &run->spare));
}

static const struct transform_kind crops_kinds[] = {
    {.name = "Resize",
     .start = {.filter = RESIZE_BILINEAR},
     .args = {{"size", arg_side, .is_required = true},
              {"interpolation", arg_filter},
              {"max_size", arg_max_size},
              {"antialias", arg_ignored}},
     .check = crops_check_resize,
     .shape = crops_shape_resize,
     .goal = crops_resized,
     .apply = crops_apply_resize},
    {.name = "RandomResizedCrop",
     .start = {.filter = RESIZE_BILINEAR, .ranges = {{0.08, 1}, {3.0 / 4.0, 4.0 / 3.0}}},
     .args = {{"size", arg_size, .is_required = true},
              {"scale", arg_range, .slot = 0, .low = 0, .high = 1},
              {"ratio", arg_range, .slot = 1, .low = 1e-6, .high = 1e6},
              {"log_ratio", arg_range, .slot = 2, .low = -14, .high = 14},
              {"interpolation", arg_filter},
              {"antialias", arg_ignored}},
     .check = arg_check_ratio,
     .shape = crops_fix_size,
     .box = crops_box_resized,
     .goal = crops_goal,
     .apply = crops_apply_resized},
    {.name = "CenterCrop",
     .args = {{"size", arg_size, .is_required = true}},
     .shape = crops_fix_size,
     .box = crops_box_center,
     .apply = crops_apply_center},
    {.name = "FiveCrop",
     .start = {.count = {5}},
     .args = {{"size", arg_size, .is_required = true}},
     .shape = crops_shape_stack,
     .apply = crops_apply_stack},
    {.name = "TenCrop",
     .start = {.count = {10}},
     .args = {{"size", arg_size, .is_required = true}, {"vertical_flip", arg_flag}},
     .shape = crops_shape_stack,
     .apply = crops_apply_stack},
    {.name = "RandomCrop",
     .args = {{"size", arg_size, .is_required = true},
              {"padding", arg_padding},
              {"pad_if_needed", arg_flag},
              {"fill", arg_fill},
              {"padding_mode", arg_mode}},
     .check = crops_check_pad,
     .shape = crops_fix_size,
     .apply = crops_apply_random},
    {.name = "Pad",
     .args = {{"padding", arg_padding, .is_required = true},
              {"fill", arg_fill},
              {"padding_mode", arg_mode}},
     .check = crops_check_pad,
     .shape = crops_shape_pad,
     .apply = crops_apply_pad},
    {.name = "RandomHorizontalFlip",
     .start = {.p = 0.5},
     .args = {{"p", arg_p}},
     .apply = crops_apply_mirror},
    {.name = "RandomVerticalFlip",
     .start = {.p = 0.5},
     .args = {{"p", arg_p}},
     .apply = crops_apply_flip},
};

const struct transform_group transform_crops = {crops_kinds, ARRAY_SIZE(crops_kinds)};
