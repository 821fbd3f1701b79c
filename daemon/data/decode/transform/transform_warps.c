/* Rotation, shear, perspective: torchvision/transforms/v2/_geometry.py of torchvision 0.28. */
#include "daemon/data/decode/transform/transform.h"

#include <errno.h>
#include <math.h>

static struct warp warps_of(const struct transform *t)
{
    enum warp_filter filter = t->filter == RESIZE_BILINEAR  ? WARP_BILINEAR
                              : t->filter == RESIZE_BICUBIC ? WARP_BICUBIC
                                                            : WARP_NEAREST;

    return (struct warp){.filter = filter, .fill = t->fill};
}

static int warps_check_filter(const struct transform_reading *rd, struct transform *t)
{
    if (t->filter == RESIZE_NEAREST || t->filter == RESIZE_BILINEAR || t->filter == RESIZE_BICUBIC)
        return 0;
    return dl_error_set(rd->err, EINVAL, rd->place,
                        "has an interpolation that only resizes; %s has nearest, bilinear and "
                        "bicubic",
                        t->kind->name);
}

static int warps_shape_rotation(const struct transform_reading *rd, const struct transform *t,
                                struct transforms_shape *shape)
{
    shape->is_fixed = shape->is_fixed && !t->flag;
    if (!shape->is_tensor)
        return 0;
    return dl_error_set(rd->err, EINVAL, rd->place,
                        "RandomRotation is for pictures, but comes after the transform that makes "
                        "them a tensor; move it before that one");
}

static int warps_apply_rotation(const struct transform *t, struct transforms_runner *run)
{
    struct warp warp = warps_of(t);
    struct warp_rotation rotation = {
        .angle = (double)draws_uniform(run->draws, t->ranges[0][0], t->ranges[0][1]),
        .center = t->has_center ? t->center : NULL,
        .expand = t->flag,
    };

    return runner_take(run, warp_rotate(&run->now, &warp, &rotation, &run->spare));
}

static double warps_translation(struct draws *draws, double share, uint32_t side)
{
    double most = share * side;

    return rint((double)draws_uniform(draws, -most, most));
}

static int warps_apply_affine(const struct transform *t, struct transforms_runner *run)
{
    struct image_size size = run->now.size;
    struct warp warp = warps_of(t);
    struct warp_parameters p = {.scale = 1,
                                .center = {size.width * 0.5, size.height * 0.5},
                                .first_generation = run->first_generation};
    double a[6];

    p.angle = (double)draws_uniform(run->draws, t->ranges[0][0], t->ranges[0][1]);
    if (t->has_range[1]) {
        p.translate[0] = warps_translation(run->draws, t->ranges[1][0], size.width);
        p.translate[1] = warps_translation(run->draws, t->ranges[1][1], size.height);
    }
    if (t->has_range[2])
        p.scale = (double)draws_uniform(run->draws, t->ranges[2][0], t->ranges[2][1]);
    if (t->has_range[3])
        p.shear[0] = (double)draws_uniform(run->draws, t->ranges[3][0], t->ranges[3][1]);
    if (t->has_range[4])
        p.shear[1] = (double)draws_uniform(run->draws, t->ranges[4][0], t->ranges[4][1]);
    for (unsigned i = 0; t->has_center && i < 2; i++)
        p.center[i] = t->center[i];
    warp_affine_matrix(&p, a);
    return runner_take(run, warp_affine(&run->now, &warp, a, size, &run->spare));
}

/* ---- perspective ------------------------------------------------------------------------------
 */

/* A corner moves by up to a share of half of each side, inwards. */
static void warps_draw_corner(struct draws *draws, struct image_size size, const uint32_t bound[2],
                              const bool far[2], double ret[2])
{
    const int64_t side[2] = {size.width, size.height};

    for (unsigned i = 0; i < 2; i++)
        ret[i] = (double)(far[i] ? draws_int(draws, side[i] - bound[i], side[i])
                                 : draws_int(draws, 0, bound[i]));
}

/* torch's, where it can be had. */
static bool warps_perspective_matrix(struct draws *draws, const double from[static 4][2],
                                     const double to[static 4][2], double ret[static 8])
{
    if (draws->ops->perspective)
        return draws->ops->perspective(draws, from, to, ret);
    return warp_perspective_matrix(from, to, ret);
}

static int warps_apply_perspective(const struct transform *t, struct transforms_runner *run)
{
    static const bool far[4][2] = {{false, false}, {true, false}, {true, true}, {false, true}};
    struct image_size size = run->now.size;
    struct warp warp = warps_of(t);
    uint32_t half[2] = {size.width / 2, size.height / 2};
    uint32_t bound[2] = {(uint32_t)(t->numbers[0] * half[0]) + 1,
                         (uint32_t)(t->numbers[0] * half[1]) + 1};
    double w = (double)size.width - 1, h = (double)size.height - 1, a[8];
    double from[4][2] = {{0, 0}, {w, 0}, {w, h}, {0, h}}, to[4][2];

    if (transform_is_skipped(t, run))
        return 0;
    for (unsigned i = 0; i < 4; i++)
        warps_draw_corner(run->draws, size, bound, far[i], to[i]);
    if (!warps_perspective_matrix(run->draws, (const double(*)[2])from, (const double(*)[2])to, a))
        return runner_refuse(run, t->kind->name, "has three corners on one line");
    return runner_take(run, warp_perspective(&run->now, &warp, a, &run->spare));
}

static const struct transform_kind warps_kinds[] = {
    {.name = "RandomRotation",
     .args = {{"degrees", arg_around, .low = -1e6, .high = 1e6, .is_required = true},
              {"interpolation", arg_filter},
              {"expand", arg_flag},
              {"center", arg_center, .low = -1e6, .high = 1e6},
              {"fill", arg_fill}},
     .check = warps_check_filter,
     .shape = warps_shape_rotation,
     .apply = warps_apply_rotation},
    {.name = "RandomAffine",
     .args = {{"degrees", arg_around, .low = -1e6, .high = 1e6, .is_required = true},
              {"translate", arg_pair, .slot = 1, .low = 0, .high = 1},
              {"scale", arg_range, .slot = 2, .low = 1e-6, .high = 1e6},
              {"shear", arg_shear, .slot = 3, .low = -1e6, .high = 1e6},
              {"interpolation", arg_filter},
              {"fill", arg_fill},
              {"center", arg_center, .low = -1e6, .high = 1e6}},
     .check = warps_check_filter,
     .apply = warps_apply_affine},
    {.name = "RandomPerspective",
     .start = {.p = 0.5, .filter = RESIZE_BILINEAR, .numbers = {0.5}},
     .args = {{"distortion_scale", arg_number, .low = 0, .high = 1},
              {"p", arg_p},
              {"interpolation", arg_filter},
              {"fill", arg_fill}},
     .check = warps_check_filter,
     .apply = warps_apply_perspective},
};

const struct transform_group transform_warps = {warps_kinds, ARRAY_SIZE(warps_kinds)};
