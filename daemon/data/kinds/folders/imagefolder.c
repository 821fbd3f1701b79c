/*
 * Images in a folder for each class: sample i is {"image": uint8 [h, w, c] or [c, h, w], "label":
 * int64}, the label being the number of its class. A list of transforms produces the image
 * (transforms.h), and several lists produce a list of images (image_views.h).
 *
 * With a transform all samples have one shape, and images are decoded straight into the batch;
 * without, each has its own. Files are read whole, not mapped: one that is truncated meanwhile is
 * an error of its sample.
 */
#include "daemon/data/decode/image/cached_pictures.h"
#include "daemon/data/decode/image/image.h"
#include "daemon/data/decode/image/image_files.h"
#include "daemon/data/decode/image/image_views.h"
#include "daemon/data/files/source.h"
#include "daemon/data/kinds/kinds.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>

/* A compressed image that is larger cannot be one that is allowed. */
#define FILE_BYTES_MAX IMAGE_BYTES_MAX

static const char *const image_endings[] = {".jpg", ".jpeg", ".png", ".webp",
                                            ".tif", ".tiff", NULL};
const struct class_files image_files = {
    .endings = image_endings,
    .what = "image",
    .found = "images found",
    .ends = "images end in .jpg, .jpeg, .png, .webp, .tif or .tiff"};

struct imagefolder {
    struct dataset base;
    struct spec_image spec;
    struct class_list list;                /* owned */
    struct image_decoder *decoder;         /* owned */
    struct image_views views;              /* empty: see spec.image */
    struct cached_pictures cached;         /* shared with other workers: dataset.cache */
    const struct data_env *env;            /* borrowed */
    uint64_t image_bytes[IMAGE_VIEWS_MAX]; /* of each view, or of the result, if alike */
    uint8_t *file;                         /* owned; the file being decoded */
    size_t file_room;                      /* */
    char path[DL_BOUND_PATH_BYTES];        /* of that file */
};

/* ---- one image ------------------------------------------------------------------------------ */

static int imagefolder_make_room(struct imagefolder *folder, uint64_t bytes, struct dl_error *err)
{
    if (bytes > FILE_BYTES_MAX)
        return dl_error_set(err, EFBIG, folder->path,
                            "has %llu bytes; an image may have %llu at most", (ull)bytes,
                            (ull)FILE_BYTES_MAX);
    if (bytes < folder->file_room)
        return 0;
    free(folder->file);
    folder->file_room = bytes + bytes / 4 + 1;
    folder->file = malloc(folder->file_room);
    if (folder->file)
        return 0;
    folder->file_room = 0;
    return dl_error_set(err, ENOMEM, folder->path, "out of memory for its %llu bytes", (ull)bytes);
}

/*
 * Opens file `index`, and reads it unless its picture is cached; returns class and image size. A
 * cached picture is subject to the reader's present rights: the file is always opened.
 */
static int imagefolder_open_image(struct imagefolder *folder, uint64_t index, int64_t *ret_label,
                                  struct image_size *ret, struct dl_error *err)
{
    struct image_file file = {.path = folder->path};
    _cleanup_fd_ int fd = -1;
    uint64_t bytes;
    int r = class_list_path(&folder->list, index, folder->path, ret_label, err);

    if (r < 0)
        return r;
    if ((r = source_open_file(folder->path, folder->env, &fd, &bytes, err)) < 0)
        return r;
    if (cached_pictures_open(&folder->cached, fd, folder->decoder, ret))
        return 0;
    if ((r = imagefolder_make_room(folder, bytes, err)) < 0 ||
        (r = source_read_file(fd, folder->path, folder->file, bytes, &file.bytes, err)) < 0)
        return r;
    file.data = folder->file;
    r = image_open(folder->decoder, &file, ret, err);
    if (r < 0 || !cached_pictures_wants(&folder->cached, fd, *ret))
        return r;
    return cached_pictures_add(&folder->cached, folder->decoder, &file, err);
}

/* By the spec's `transform`, of the image that is open. */
static int imagefolder_decode_image(struct imagefolder *folder, const struct sample_key *key,
                                    uint64_t index, uint8_t *out, struct dl_error *err)
{
    struct rng rng;

    rng_init(&rng, key->seed, key->epoch, key->base + index);
    return image_decode(folder->decoder, &folder->spec, &rng, out, err);
}

/* All views of it, each as row `row` of its leaf. */
static int imagefolder_decode_views(struct imagefolder *folder, const struct sample_key *key,
                                    uint64_t index, void *const *dst, size_t row,
                                    struct dl_error *err)
{
    struct transforms_shape shape;
    struct draws_keyed draws;

    draws_keyed_init(&draws, key->seed, key->epoch, key->base + index);
    int r = image_views_begin(&folder->views, folder->decoder, err);
    for (uint32_t i = 0; r == 0 && i < folder->views.n; i++) {
        r = image_views_run(&folder->views, i, folder->decoder, &draws.base, folder->path, &shape,
                            err);
        if (r == 0)
            image_views_write(&folder->views, folder->spec.layout == LAYOUT_CHW,
                              (uint8_t *)dst[i] + row * folder->image_bytes[i]);
    }
    return r;
}

static int imagefolder_decode_row(struct imagefolder *folder, const struct sample_key *key,
                                  uint64_t index, void *const *dst, size_t row,
                                  struct dl_error *err)
{
    if (folder->views.n > 0)
        return imagefolder_decode_views(folder, key, index, dst, row, err);
    return imagefolder_decode_image(folder, key, index,
                                    (uint8_t *)dst[0] + row * folder->image_bytes[0], err);
}

/* ---- the dataset ---------------------------------------------------------------------------- */

static int imagefolder_read_row(struct dataset *ds, const struct sample_key *key, uint64_t index,
                                void *const *dst, size_t i, struct dl_error *err)
{
    struct imagefolder *folder = container_of(ds, struct imagefolder, base);
    struct image_size size;
    int64_t label;
    int r = imagefolder_open_image(folder, index, &label, &size, err);

    if (r == 0)
        r = imagefolder_decode_row(folder, key, index, dst, i, err);
    if (r == 0)
        memcpy((char *)dst[ds->n_leaves - 1] + i * sizeof label, &label, sizeof label);
    return r;
}

/* [c, h, w] of a tensor; of a picture by `layout`; [n, ...] of a stack. Returns the number of
 * dimensions. */
static uint32_t imagefolder_shape(const struct imagefolder *folder,
                                  const struct transforms_shape *shape, uint64_t ret[static 4])
{
    bool chw = shape->is_tensor || folder->spec.layout == LAYOUT_CHW;
    uint32_t n = 0;

    if (shape->stack)
        ret[n++] = shape->stack;
    ret[n++] = chw ? shape->channels : shape->size.height;
    ret[n++] = chw ? shape->size.height : shape->size.width;
    ret[n++] = chw ? shape->size.width : shape->channels;
    return n;
}

/* Room for a result of that shape, in the sample's tree; NULL on failure, which sticks in the
 * sample. */
static uint8_t *imagefolder_add_tensor(const struct imagefolder *folder, const char *key,
                                       const struct transforms_shape *is, struct sample *ret)
{
    uint8_t *pixels = sample_alloc(ret, transforms_bytes(is));
    uint64_t shape[4];
    uint32_t n = imagefolder_shape(folder, is, shape);

    if (pixels)
        sample_tensor(ret, key, is->dtype, n, shape, pixels);
    return pixels;
}

static int imagefolder_add_image(struct imagefolder *folder, const struct sample_key *key,
                                 uint64_t index, struct image_size size, struct sample *ret,
                                 struct dl_error *err)
{
    struct transforms_shape is = {
        .size = size, .channels = image_channels(&folder->spec), .dtype = DL_DTYPE_UINT8};
    uint8_t *pixels = imagefolder_add_tensor(folder, "image", &is, ret);

    return pixels ? imagefolder_decode_image(folder, key, index, pixels, err)
                  : sample_check(ret, err);
}

/* One image, or a list of views. */
static int imagefolder_add_views(struct imagefolder *folder, const struct sample_key *key,
                                 uint64_t index, struct sample *ret, struct dl_error *err)
{
    struct image_views *views = &folder->views;
    struct transforms_shape is;
    struct draws_keyed draws;

    draws_keyed_init(&draws, key->seed, key->epoch, key->base + index);
    int r = image_views_begin(views, folder->decoder, err);
    if (views->is_list)
        sample_begin(ret, TREE_LIST, "image");
    for (uint32_t i = 0; r == 0 && i < views->n; i++) {
        r = image_views_run(views, i, folder->decoder, &draws.base, folder->path, &is, err);
        if (r < 0)
            return r;
        uint8_t *pixels = imagefolder_add_tensor(folder, views->is_list ? NULL : "image", &is, ret);
        if (!pixels)
            return sample_check(ret, err);
        image_views_write(views, folder->spec.layout == LAYOUT_CHW, pixels);
    }
    if (views->is_list)
        sample_end(ret);
    return r;
}

static int imagefolder_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                           struct sample *ret, struct dl_error *err)
{
    struct imagefolder *folder = container_of(ds, struct imagefolder, base);
    struct image_size size;
    int64_t label;
    int r;

    if ((r = imagefolder_open_image(folder, index, &label, &size, err)) < 0)
        return r;
    sample_begin(ret, TREE_DICT, NULL);
    r = folder->views.n > 0 ? imagefolder_add_views(folder, key, index, ret, err)
                            : imagefolder_add_image(folder, key, index, size, ret, err);
    if (r < 0)
        return r;
    sample_int(ret, "label", label);
    sample_end(ret);
    return sample_check(ret, err);
}

static size_t imagefolder_name(struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    const struct imagefolder *folder = container_of(ds, struct imagefolder, base);
    size_t len;

    class_list_get(&folder->list, index, ret, room, &len);
    return len;
}

static void imagefolder_close(struct dataset *ds)
{
    struct imagefolder *folder = container_of(ds, struct imagefolder, base);

    cached_pictures_deinit(&folder->cached);
    class_list_deinit(&folder->list);
    image_decoder_free(folder->decoder);
    image_views_deinit(&folder->views);
    tree_deinit(&ds->schema);
    free(folder->file);
    free(folder);
}

static void imagefolder_expect(struct dataset *ds, uint64_t index)
{
    const struct imagefolder *folder = container_of(ds, struct imagefolder, base);

    class_list_expect(&folder->list, index, folder->env);
}

static const struct dataset_ops fixed_ops = {.read_row = imagefolder_read_row,
                                             .name = imagefolder_name,
                                             .expect = imagefolder_expect,
                                             .close = imagefolder_close};
static const struct dataset_ops varying_ops = {.get = imagefolder_get,
                                               .name = imagefolder_name,
                                               .expect = imagefolder_expect,
                                               .close = imagefolder_close};

/* Leaf `i` of a sample's images. */
static int imagefolder_describe_image(struct imagefolder *folder, uint32_t i, const char *key)
{
    struct transforms_shape is = {.size = image_result(&folder->spec, (struct image_size){0}),
                                  .channels = image_channels(&folder->spec),
                                  .dtype = DL_DTYPE_UINT8};
    uint64_t shape[4];

    if (folder->views.n > 0)
        is = image_views_result(&folder->views, i);
    folder->image_bytes[i] = transforms_bytes(&is);
    uint32_t n = imagefolder_shape(folder, &is, shape);
    return tree_add_tensor(&folder->base.schema, key, is.dtype, n, shape);
}

static int imagefolder_describe(struct imagefolder *folder)
{
    uint32_t images = folder->views.is_list ? folder->views.n : 1;
    struct tree *schema = &folder->base.schema;
    const char *key = folder->views.is_list ? NULL : "image";
    int r = tree_add(schema, TREE_DICT, NULL, 2);

    if (r == 0 && folder->views.is_list)
        r = tree_add(schema, TREE_LIST, "image", images);
    for (uint32_t i = 0; r == 0 && i < images; i++)
        r = imagefolder_describe_image(folder, i, key);
    folder->base.n_leaves = images + 1;
    return r < 0 ? r : tree_add_tensor(schema, "label", DL_DTYPE_INT64, 0, NULL);
}

int imagefolder_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                     struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep) struct dataset *ds = NULL;
    struct imagefolder *folder;
    int r;

    if (spec->n_files != 1 || !spec->files[0].path)
        return dl_error_set(err, EINVAL, place, "is not one folder of images");
    if ((r = image_check_spec(&spec->image, place, err)) < 0)
        return r;
    folder = calloc(1, sizeof *folder);
    if (!folder)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &folder->base;
    ds->ops = &varying_ops;
    folder->spec = spec->image;
    folder->env = env;
    if ((r = image_views_read(&folder->views, spec, place, err)) < 0)
        return r;
    if (folder->views.n > 0 ? folder->views.is_fixed : spec->image.transform != TRANSFORM_NONE)
        ds->ops = &fixed_ops;
    if ((r = image_decoder_new(&folder->decoder, err)) < 0 ||
        (r = class_list_open(spec->files[0].path, &image_files, place, env, &folder->list, err)) <
            0)
        return r;
    ds->length = folder->list.n;
    cached_pictures_init(&folder->cached, spec, ds->length, env);
    ds->content = class_list_fingerprint(&folder->list);
    if (dataset_is_fixed(ds) && (r = imagefolder_describe(folder)) < 0)
        return dl_error_set(err, -r, place, "its samples cannot be described: %s", strerror(-r));
    *ret = steal_ptr(ds);
    return 0;
}
