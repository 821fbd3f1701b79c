#include "daemon/data/decode/image/image_views.h"
#include "daemon/data/base/place.h"
#include "proto/spec_table.h"

#include <errno.h>

enum { COUNT_MAX = 32 };

/* ---- reading ------------------------------------------------------------------------------------
 */

static int image_views_add(struct image_views *views, const struct value *list, const char *place,
                           uint64_t count, struct dl_error *err)
{
    struct transforms *transforms;

    if (views->n + count > IMAGE_VIEWS_MAX)
        return dl_error_set(err, EINVAL, place, "makes more than %d views of a picture",
                            IMAGE_VIEWS_MAX);
    int r = transforms_read(list, place, &transforms, err);
    if (r < 0)
        return r;
    views->is_fixed = views->is_fixed && transforms_result(transforms).is_fixed;
    for (uint64_t i = 0; i < count; i++)
        views->chosen[views->n++] = views->n_lists;
    views->lists[views->n_lists++] = transforms;
    return 0;
}

static int image_views_refuse(const char *place, const struct value *v, const char *what,
                              struct dl_error *err)
{
    char shown[SPEC_SHOWN_MAX];

    return dl_error_set(err, EINVAL, place, "%s %s", spec_show(v, shown), what);
}

/* {transforms: [...], count: n} */
static int image_views_read_one(struct image_views *views, const struct value *v, const char *place,
                                struct dl_error *err)
{
    const struct value *list = value_get(v, "transforms"), *count = value_get(v, "count");
    char below[DL_ERROR_PATH_MAX];
    uint64_t n = 1;

    if (v->type != VALUE_MAP)
        return image_views_refuse(place, v, "is not a view, such as {transforms: [ToTensor]}", err);
    for (uint32_t i = 0; i < v->count; i++) {
        place_key(below, place, v->items[i].key);
        if (&v->items[i] != list && &v->items[i] != count)
            return dl_error_set(err, EINVAL, below,
                                "a view has no such key; it has transforms and count");
    }
    place_key(below, place, "count");
    if (count && (count->type != VALUE_INT || count->integer < 1 || count->integer > COUNT_MAX))
        return image_views_refuse(below, count, "is not a number of views from 1 to 32", err);
    if (count)
        n = (uint64_t)count->integer;
    place_key(below, place, "transforms");
    if (!list)
        return dl_error_set(err, EINVAL, below, "missing; a view is a list of transforms");
    return image_views_add(views, list, below, n, err);
}

static int image_views_read_all(struct image_views *views, const struct value *list,
                                const char *place, struct dl_error *err)
{
    char below[DL_ERROR_PATH_MAX];
    int r = 0;

    if (list->count == 0 || list->count > IMAGE_VIEWS_MAX)
        return image_views_refuse(place, list, "is not a list of 1 to 64 views", err);
    for (uint32_t i = 0; r == 0 && i < list->count; i++) {
        spec_place_item(place, i, below);
        r = image_views_read_one(views, &list->items[i], below, err);
    }
    return r;
}

int image_views_read(struct image_views *views, const struct spec_dataset *spec, const char *place,
                     struct dl_error *err)
{
    char below[DL_ERROR_PATH_MAX];
    int r;

    views->is_list = spec->views.type != VALUE_NULL;
    if (!views->is_list && spec->transforms.type == VALUE_NULL)
        return 0;
    views->is_fixed = true;
    views->lists = calloc(views->is_list ? max_u64(spec->views.count, 1) : 1, sizeof(void *));
    if (!views->lists)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    place_key(below, place, views->is_list ? "views" : "transforms");
    r = views->is_list ? image_views_read_all(views, &spec->views, below, err)
                       : image_views_add(views, &spec->transforms, below, 1, err);
    return r < 0 ? r : transforms_runner_new(&views->run, err);
}

void image_views_deinit(struct image_views *views)
{
    for (uint32_t i = 0; i < views->n_lists; i++)
        transforms_free(views->lists[i]);
    free(views->lists);
    transforms_runner_free(views->run);
    picture_deinit(&views->whole);
    *views = (struct image_views){0};
}

/* ---- running ------------------------------------------------------------------------------------
 */

struct transforms_shape image_views_result(const struct image_views *views, uint32_t view)
{
    return transforms_result(views->lists[views->chosen[view]]);
}

int image_views_begin(struct image_views *views, struct image_decoder *decoder,
                      struct dl_error *err)
{
    struct picture_box box = {.size = image_source(decoder)};

    return views->n > 1 ? image_decode_picture(decoder, &box, &views->whole, err) : 0;
}

int image_views_run(struct image_views *views, uint32_t view, struct image_decoder *decoder,
                    struct draws *draws, const char *path, struct transforms_shape *ret,
                    struct dl_error *err)
{
    const struct image_pixels whole = {
        .pixels = views->whole.pixels, .size = views->whole.size, .step = PICTURE_PIXEL};

    if (views->n > 1)
        image_open_pixels(decoder, &whole);
    return transforms_run(views->lists[views->chosen[view]], views->run, decoder, draws, path, ret,
                          err);
}

void image_views_write(const struct image_views *views, bool planar, void *out)
{
    transforms_write(views->run, planar ? TRANSFORMS_PLANAR : TRANSFORMS_AWAY, out);
}
