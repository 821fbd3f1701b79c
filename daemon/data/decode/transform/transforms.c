/* The table, and lists of transforms: read, checked, run. */
#include "daemon/data/decode/transform/transforms.h"
#include "daemon/data/base/place.h"
#include "daemon/data/decode/image/pixel_rows.h"
#include "daemon/data/decode/transform/transform.h"
#include "proto/spec_table.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

struct transforms {
    struct transform *list; /* owned */
    uint32_t n;
    struct transforms_how how;
    struct transforms_shape shape;
};

static const struct transform_group *const transforms_groups[] = {
    &transform_crops, &transform_colours, &transform_warps, &transform_tensors,
    &transform_autos, &transform_augmix,  &transform_lists,
};

static const struct transform_kind *transforms_kind(size_t i)
{
    for (size_t g = 0; g < ARRAY_SIZE(transforms_groups); g++) {
        if (i < transforms_groups[g]->n)
            return &transforms_groups[g]->kinds[i];
        i -= transforms_groups[g]->n;
    }
    return NULL;
}

const char *transforms_name(size_t i)
{
    const struct transform_kind *kind = transforms_kind(i);

    return kind ? kind->name : NULL;
}

/* ---- reading ----------------------------------------------------------------------------------
 */

static int transforms_refuse_name(const struct transform_reading *rd, const struct value *v)
{
    struct word_list list;

    if (v->type != VALUE_STRING)
        return transform_refuse(rd, v, "is not the name of a transform, such as RandomCrop");
    word_list_begin(&list, v->string);
    for (size_t i = 0; transforms_name(i); i++)
        word_list_add(&list, transforms_name(i));
    return transform_refuse(rd, v, "is not a known transform%s%s%s",
                            list.best ? "; did you mean " : "; dloader-spec(5) lists them",
                            list.best ? list.best : "", list.best ? "?" : "");
}

static const struct transform_kind *transforms_find(const struct value *v)
{
    for (size_t i = 0; v->type == VALUE_STRING && transforms_name(i); i++) {
        if (strcmp(v->string, transforms_name(i)) == 0)
            return transforms_kind(i);
    }
    return NULL;
}

static const struct transform_arg *transforms_find_arg(const struct transform_kind *kind,
                                                       const char *name)
{
    for (size_t i = 0; i < TRANSFORM_ARGS_MAX && kind->args[i].name; i++) {
        if (strcmp(kind->args[i].name, name) == 0)
            return &kind->args[i];
    }
    return NULL;
}

static int transforms_refuse_arg(const struct transform_reading *rd,
                                 const struct transform_kind *kind, const char *name)
{
    char list[DL_ERROR_MESSAGE_MAX / 2] = "";

    for (size_t i = 0; i < TRANSFORM_ARGS_MAX && kind->args[i].name; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", kind->args[i].name);
    }
    return dl_error_set(rd->err, EINVAL, rd->place, "%s has no argument %s; %s%s", kind->name, name,
                        list[0] ? "it has " : "it has none", list);
}

static int transforms_read_args(const struct transform_reading *rd, const struct value *map,
                                struct transform *t)
{
    const struct transform_kind *kind = t->kind;
    char place[DL_ERROR_PATH_MAX];

    for (uint32_t i = 0; map->type == VALUE_MAP && i < map->count; i++) {
        const struct value *item = &map->items[i];
        if (strcmp(item->key, "kind") == 0)
            continue;
        const struct transform_arg *arg = transforms_find_arg(kind, item->key);
        place_key(place, rd->place, item->key);
        struct transform_reading here = {.place = place, .err = rd->err};
        int r =
            arg ? arg->read(&here, arg, item, t) : transforms_refuse_arg(&here, kind, item->key);
        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < TRANSFORM_ARGS_MAX && kind->args[i].name; i++) {
        if (!kind->args[i].is_required || value_get(map, kind->args[i].name))
            continue;
        place_key(place, rd->place, kind->args[i].name);
        return dl_error_set(rd->err, EINVAL, place, "missing; %s needs it", kind->name);
    }
    return 0;
}

static int transforms_read_one(const struct transform_reading *rd, const struct value *v,
                               struct transform *t)
{
    const struct value *name = v->type == VALUE_MAP ? value_get(v, "kind") : v;
    int r;

    if (!name)
        return dl_error_set(rd->err, EINVAL, rd->place,
                            "has no kind; give the transform's name, such as kind: RandomCrop");
    const struct transform_kind *kind = transforms_find(name);
    if (!kind)
        return transforms_refuse_name(rd, name);
    *t = kind->start;
    t->kind = kind;
    if ((r = transforms_read_args(rd, v, t)) < 0)
        return r;
    return kind->check ? kind->check(rd, t) : 0;
}

int transform_read_list(const struct transform_reading *rd, const struct value *list,
                        struct transform **ret, uint32_t *ret_n)
{
    char place[DL_ERROR_PATH_MAX];
    int r = 0;

    if (list->type != VALUE_ARRAY)
        return transform_refuse(rd, list,
                                "is not a list of transforms, such as [{kind: Resize, size: 256}, "
                                "ToTensor]");
    *ret = calloc(max_u64(list->count, 1), sizeof **ret);
    if (!*ret)
        return dl_error_set(rd->err, ENOMEM, rd->place, "out of memory");
    *ret_n = list->count;
    for (uint32_t i = 0; r == 0 && i < list->count; i++) {
        spec_place_item(rd->place, i, place);
        r = transforms_read_one(&(struct transform_reading){.place = place, .err = rd->err},
                                &list->items[i], &(*ret)[i]);
    }
    return r;
}

static void transforms_free_list(struct transform *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        transforms_free_list(list[i].inner, list[i].n_inner);
        free(list[i].weights);
        free(list[i].shares);
    }
    free(list);
}

/* ---- what comes out ---------------------------------------------------------------------------
 */

int transform_shape_list(const struct transform_reading *rd, const struct transform *list,
                         uint32_t n, struct transforms_shape *shape)
{
    char place[DL_ERROR_PATH_MAX];
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < n; i++) {
        const struct transform_kind *kind = list[i].kind;
        spec_place_item(rd->place, i, place);
        struct transform_reading here = {.place = place, .err = rd->err};
        if (shape->stack && !kind->stacks)
            r = dl_error_set(
                rd->err, EINVAL, place,
                "%s is for one picture, but its input is %u; move it before the FiveCrop or "
                "TenCrop",
                kind->name, shape->stack);
        else if (kind->shape)
            r = kind->shape(&here, &list[i], shape);
        else if (shape->is_tensor)
            r = dl_error_set(rd->err, EINVAL, place,
                             "%s is for pictures, but comes after the transform that makes them a "
                             "tensor; move it before that one",
                             kind->name);
    }
    return r;
}

int transforms_read(const struct value *list, const char *place, struct transforms **ret,
                    struct dl_error *err)
{
    return transforms_read_as(list, place, &(struct transforms_how){.channels = 3}, ret, err);
}

int transforms_read_as(const struct value *list, const char *place,
                       const struct transforms_how *how, struct transforms **ret,
                       struct dl_error *err)
{
    const struct transform_reading rd = {.place = place, .err = err};
    struct transforms *t = calloc(1, sizeof *t);
    int r;

    if (!t)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    t->how = *how;
    t->shape = (struct transforms_shape){.channels = how->channels, .dtype = DL_DTYPE_UINT8};
    if ((r = transform_read_list(&rd, list, &t->list, &t->n)) < 0 ||
        (r = transform_shape_list(&rd, t->list, t->n, &t->shape)) < 0) {
        transforms_free(t);
        return r;
    }
    *ret = t;
    return 0;
}

struct transforms *transforms_free(struct transforms *transforms)
{
    if (transforms)
        transforms_free_list(transforms->list, transforms->n);
    free(transforms);
    return NULL;
}

struct transforms_shape transforms_result(const struct transforms *transforms)
{
    return transforms->shape;
}

uint64_t transforms_bytes(const struct transforms_shape *shape)
{
    uint64_t elements = (uint64_t)shape->size.height * shape->size.width * shape->channels;

    return elements * max_u64(shape->stack, 1) * dtype_bytes(shape->dtype);
}

/* ---- running ----------------------------------------------------------------------------------
 */

int transforms_runner_new(struct transforms_runner **ret, struct dl_error *err)
{
    *ret = calloc(1, sizeof **ret);
    return *ret ? 0 : dl_error_set(err, ENOMEM, "dataset", "out of memory");
}

struct transforms_runner *transforms_runner_free(struct transforms_runner *run)
{
    if (!run)
        return NULL;
    picture_deinit(&run->now);
    picture_deinit(&run->spare);
    resizer_deinit(&run->resizer);
    free(run->tensor.values);
    free(run);
    return NULL;
}

int runner_take(struct transforms_runner *run, int r)
{
    if (r == 0)
        picture_swap(&run->now, &run->spare);
    else if (r == -EFBIG)
        return dl_error_set(run->err, EFBIG, run->path,
                            "would grow to more than %llu MiB in its transforms; scale it down",
                            (ull)IMAGE_BYTES_MAX >> 20);
    else if (r < 0)
        return dl_error_set(run->err, -r, run->path, "out of memory for its transforms");
    return r;
}

int runner_refuse(const struct transforms_runner *run, const char *name, const char *why)
{
    return dl_error_set(run->err, EINVAL, run->path, "has %u × %u pixels where %s %s",
                        run->now.size.width, run->now.size.height, name, why);
}

static bool transforms_is_whole(const struct picture_box *box, struct image_size size)
{
    return box->top == 0 && box->left == 0 && box->size.height == size.height &&
           box->size.width == size.width;
}

int transform_apply(const struct transform *t, struct transforms_runner *run)
{
    struct picture_box box;
    int r = 0;

    if (t->kind->box && (r = t->kind->box(t, run, run->now.size, &box)) == 0 &&
        !transforms_is_whole(&box, run->now.size))
        r = runner_take(run, picture_crop(&run->now, &box, &run->spare));
    return r < 0 || !t->kind->apply ? r : t->kind->apply(t, run);
}

static bool transforms_are_pixels(struct image_size size)
{
    return size.height > 0 && size.width > 0;
}

/* Whether the first transform does no more than to resize: what the box becomes. */
static bool transforms_resizes(const struct transform *first, const struct picture_box *box,
                               struct resize_goal *ret)
{
    if (!first || !first->kind->goal || first->filter == RESIZE_NEAREST)
        return false;
    *ret = resize_goal_of(first->kind->goal(first, box->size), first->filter);
    return transforms_are_pixels(ret->whole);
}

/* The box, resized, or as much of that as the second transform wants of it; which is done then as
 * far as that. */
static int transforms_begin_resized(const struct transforms *transforms,
                                    struct transforms_runner *run, struct image_decoder *decoder,
                                    const struct picture_box *box, struct resize_goal *goal)
{
    const struct transform *second = transforms->n > 1 ? &transforms->list[1] : NULL;
    bool is_cut = second && second->kind->box;
    int r = is_cut ? second->kind->box(second, run, goal->whole, &goal->window) : 0;

    if (r == 0 && transforms_are_pixels(goal->window.size))
        r = image_decode_resized(decoder, box, goal, transforms->how.fast, &run->now, run->err);
    else if (r == 0)
        r = runner_take(run, picture_set(&run->spare, goal->window.size, false));
    if (r == 0 && is_cut && second->kind->apply)
        r = second->kind->apply(second, run);
    return r < 0 ? r : 1 + is_cut;
}

/* Decodes what the first transform wants of the file's picture, and does the rest of that one.
 * Returns how many are done. */
static int transforms_begin(const struct transforms *transforms, struct transforms_runner *run,
                            struct image_decoder *decoder)
{
    const struct transform *first = transforms->n > 0 ? &transforms->list[0] : NULL;
    struct picture_box box = {.size = image_source(decoder)};
    struct resize_goal goal;
    int r;

    run->now.size = box.size;
    if (first && first->kind->box && (r = first->kind->box(first, run, box.size, &box)) < 0)
        return r;
    if (!transforms_are_pixels(box.size))
        r = runner_take(run, picture_set(&run->spare, box.size, false));
    else if (transforms_resizes(first, &box, &goal))
        return transforms_begin_resized(transforms, run, decoder, &box, &goal);
    else
        r = image_decode_picture(decoder, &box, &run->now, run->err);
    if (r < 0 || !first)
        return r;
    if (!first->kind->box)
        r = transform_apply(first, run);
    else if (first->kind->apply)
        r = first->kind->apply(first, run);
    return r < 0 ? r : 1;
}

void runner_begin(struct transforms_runner *run, struct draws *draws, const char *path,
                  struct dl_error *err)
{
    run->draws = draws;
    run->path = path;
    run->err = err;
    run->is_tensor = false;
    run->stack = 0;
}

static void transforms_set(const struct transforms *transforms, struct transforms_runner *run,
                           struct draws *draws, const char *path, struct dl_error *err)
{
    runner_begin(run, draws, path, err);
    run->first_generation = transforms->how.first_generation;
}

/* All but the first `done`. */
static int transforms_finish(const struct transforms *transforms, struct transforms_runner *run,
                             uint32_t done, struct transforms_shape *ret)
{
    int r = 0;

    for (uint32_t i = done; r == 0 && i < transforms->n; i++)
        r = transform_apply(&transforms->list[i], run);
    if (r < 0)
        return r;
    *ret = transforms->shape;
    ret->size = run->now.size;
    if (run->stack)
        ret->size.height /= run->stack;
    assert(ret->stack == run->stack);
    assert(!transforms->shape.is_fixed ||
           transforms_bytes(ret) == transforms_bytes(&transforms->shape));
    assert(ret->channels == runner_channels(run) && ret->is_tensor == run->is_tensor);
    return 0;
}

int transforms_run(const struct transforms *transforms, struct transforms_runner *run,
                   struct image_decoder *decoder, struct draws *draws, const char *path,
                   struct transforms_shape *ret, struct dl_error *err)
{
    transforms_set(transforms, run, draws, path, err);
    int r = transforms_begin(transforms, run, decoder);
    return r < 0 ? r : transforms_finish(transforms, run, (uint32_t)r, ret);
}

int transforms_run_pixels(const struct transforms *transforms, struct transforms_runner *run,
                          const struct transforms_pixels *from, struct draws *draws,
                          struct transforms_shape *ret, struct dl_error *err)
{
    uint32_t channels = transforms->how.channels;

    transforms_set(transforms, run, draws, "picture", err);
    int r = runner_take(run, picture_set(&run->spare, from->size, channels == 1));
    if (r < 0)
        return r;
    if (channels == 1)
        pixel_rows_spread(from->pixels, picture_pixels(&run->now), run->now.pixels);
    else
        pixel_rows_widen(from->pixels, picture_pixels(&run->now), run->now.pixels);
    return transforms_finish(transforms, run, 0, ret);
}
