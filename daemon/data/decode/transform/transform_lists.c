/*
 * Transforms of transforms: torchvision/transforms/v2/_container.py of torchvision 0.28. What may
 * or may not be applied must leave the sample's type and channels alone; its size it may change.
 */
#include "daemon/data/base/place.h"
#include "daemon/data/decode/transform/transform.h"

#include <errno.h>

enum { INNER_MAX = 64 };

static int lists_check_inner(const struct transform_reading *rd, struct transform *t)
{
    if (t->n_inner > INNER_MAX)
        return dl_error_set(rd->err, EINVAL, rd->place,
                            "has %u transforms; at most %d are possible", t->n_inner, INNER_MAX);
    if (t->weights && t->count[0] != t->n_inner)
        return dl_error_set(rd->err, EINVAL, rd->place,
                            "has %u weights for %u transforms; give one for each", t->count[0],
                            t->n_inner);
    return 0;
}

static int lists_shape_all(const struct transform_reading *rd, const struct transform *t,
                           struct transforms_shape *shape)
{
    char place[DL_ERROR_PATH_MAX];

    place_key(place, rd->place, "transforms");
    return transform_shape_list(&(struct transform_reading){.place = place, .err = rd->err},
                                t->inner, t->n_inner, shape);
}

/* One after the other from the same beginning: each may be the only one. */
static int lists_shape_any(const struct transform_reading *rd, const struct transform *t,
                           struct transforms_shape *shape)
{
    struct transforms_shape before = *shape;

    for (uint32_t i = 0; i < t->n_inner; i++) {
        struct transforms_shape after = before;
        struct transform one = *t;
        one.inner = &t->inner[i];
        one.n_inner = 1;
        int r = lists_shape_all(rd, &one, &after);
        if (r < 0)
            return r;
        if (after.is_tensor != before.is_tensor || after.stack != before.stack ||
            after.dtype != before.dtype || after.channels != before.channels)
            return dl_error_set(rd->err, EINVAL, rd->place,
                                "%s contains a %s, which changes the kind of sample; write that "
                                "one before or after it",
                                t->kind->name, t->inner[i].kind->name);
        if (!after.is_fixed || after.size.height != before.size.height ||
            after.size.width != before.size.width)
            shape->is_fixed = false;
    }
    return 0;
}

static int lists_apply_all(const struct transform *t, struct transforms_runner *run)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < t->n_inner; i++)
        r = transform_apply(&t->inner[i], run);
    return r;
}

static int lists_apply_maybe(const struct transform *t, struct transforms_runner *run)
{
    return transform_is_skipped(t, run) ? 0 : lists_apply_all(t, run);
}

static int lists_apply_choice(const struct transform *t, struct transforms_runner *run)
{
    float alike[INNER_MAX];
    const float *weights = t->weights;

    if (run->first_generation)
        return transform_apply(&t->inner[draws_chosen(run->draws, t->n_inner, t->shares)], run);
    for (uint32_t i = 0; !t->weights && i < t->n_inner; i++)
        alike[i] = (float)(1.0 / t->n_inner);
    if (!weights)
        weights = alike;
    return transform_apply(&t->inner[draws_choice(run->draws, t->n_inner, weights)], run);
}

static int lists_apply_order(const struct transform *t, struct transforms_runner *run)
{
    uint32_t order[INNER_MAX];
    int r = 0;

    if (run->first_generation)
        draws_shuffled(run->draws, t->n_inner, order);
    else
        draws_permutation(run->draws, t->n_inner, order);
    for (uint32_t i = 0; r == 0 && i < t->n_inner; i++)
        r = transform_apply(&t->inner[order[i]], run);
    return r;
}

static const struct transform_kind lists_kinds[] = {
    {.name = "Compose",
     .stacks = true,
     .args = {{"transforms", arg_inner, .is_required = true}},
     .check = lists_check_inner,
     .shape = lists_shape_all,
     .apply = lists_apply_all},
    {.name = "RandomApply",
     .start = {.p = 0.5},
     .args = {{"transforms", arg_inner, .is_required = true}, {"p", arg_p}},
     .check = lists_check_inner,
     .shape = lists_shape_any,
     .apply = lists_apply_maybe},
    {.name = "RandomChoice",
     .args = {{"transforms", arg_inner, .is_required = true}, {"p", arg_weights, .high = 1e30}},
     .check = lists_check_inner,
     .shape = lists_shape_any,
     .apply = lists_apply_choice},
    {.name = "RandomOrder",
     .args = {{"transforms", arg_inner, .is_required = true}},
     .check = lists_check_inner,
     .shape = lists_shape_any,
     .apply = lists_apply_order},
};

const struct transform_group transform_lists = {lists_kinds, ARRAY_SIZE(lists_kinds)};
