/*
 * Images in a folder for each class: sample i is {"image": uint8 [h, w, 3] or [3, h, w],
 * "label": int64}, the label being the number of its class. With a list of transforms the image is
 * what they make of it (transforms.h).
 *
 * With a transform all samples have one shape, and images are decoded straight into the batch;
 * without, each has its own. Files are read whole, not mapped: one that is truncated meanwhile is
 * an error of its own.
 */
#include "daemon/data/combine/combine.h"
#include "daemon/data/image/image.h"
#include "daemon/data/image/image_files.h"
#include "daemon/data/image/kept_pictures.h"
#include "daemon/data/image/transforms.h"
#include "daemon/data/source.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>

/* A compressed image that is larger cannot be one that is allowed. */
#define FILE_BYTES_MAX IMAGE_BYTES_MAX

static const char *const image_endings[] = {".jpg", ".jpeg", ".png", NULL};
const struct class_files image_files = {.endings = image_endings,
                                        .what = "image",
                                        .found = "images found",
                                        .ends = "images end in .jpg, .jpeg or .png"};

struct imagefolder {
    struct dataset base;
    struct spec_image spec;
    struct class_list list;         /* owned */
    struct image_decoder *decoder;  /* owned */
    struct transforms *transforms;  /* owned; NULL: spec.image says what is done */
    struct transforms_runner *run;  /* owned; NULL likewise */
    struct kept_pictures kept;      /* of which others decode, too: dataset.cache */
    const struct data_env *env;     /* borrowed */
    uint64_t image_bytes;           /* of a result, if they are alike */
    uint8_t *file;                  /* owned; the file being decoded */
    size_t file_room;               /* */
    char path[DL_BOUND_PATH_BYTES]; /* of that file */
};

/* ---- one image ------------------------------------------------------------------------------ */

static int imagefolder_make_room(struct imagefolder *folder, uint64_t bytes, struct dl_error *err)
{
    if (bytes > FILE_BYTES_MAX)
        return dl_error_set(err, EFBIG, folder->path,
                            "has %llu bytes; an image may have %llu at most",
                            (unsigned long long)bytes, (unsigned long long)FILE_BYTES_MAX);
    if (bytes < folder->file_room)
        return 0;
    free(folder->file);
    folder->file_room = bytes + bytes / 4 + 1;
    folder->file = malloc(folder->file_room);
    if (folder->file)
        return 0;
    folder->file_room = 0;
    return dl_error_set(err, ENOMEM, folder->path, "out of memory for its %llu bytes",
                        (unsigned long long)bytes);
}

static int imagefolder_read_all(struct imagefolder *folder, int fd, size_t bytes, size_t *ret,
                                struct dl_error *err)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t n = read(fd, folder->file + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return dl_error_set(err, errno, folder->path, "cannot be read: %s", strerror(errno));
        if (n == 0)
            break;
        done += (size_t)n;
    }
    *ret = done;
    return 0;
}

/*
 * Opens file `index`, which is read unless its picture is at hand; the class and the image's size.
 * What is at hand goes by the rights of who reads it now: the file is opened in any case.
 */
static int imagefolder_open_image(struct imagefolder *folder, uint64_t index, int64_t *ret_label,
                                  struct image_size *ret, struct dl_error *err)
{
    struct image_file file = {.path = folder->path};
    _cleanup_fd_ int fd = -1;
    uint64_t bytes;
    size_t len;
    int r;

    *ret_label = class_list_get(&folder->list, index, folder->path, sizeof folder->path, &len);
    if (len >= sizeof folder->path)
        return dl_error_set(err, ENAMETOOLONG, folder->path,
                            "is the beginning of a path of %zu bytes; %zu can be opened", len,
                            sizeof folder->path - 1);
    if ((r = source_open_file(folder->path, folder->env, &fd, &bytes, err)) < 0)
        return r;
    if (kept_pictures_open(&folder->kept, fd, folder->decoder, ret))
        return 0;
    if ((r = imagefolder_make_room(folder, bytes, err)) < 0 ||
        (r = imagefolder_read_all(folder, fd, bytes, &file.bytes, err)) < 0)
        return r;
    file.data = folder->file;
    r = image_open(folder->decoder, &file, ret, err);
    if (r < 0 || !kept_pictures_wants(&folder->kept, fd, *ret))
        return r;
    return kept_pictures_add(&folder->kept, folder->decoder, &file, err);
}

/* Decodes and transforms the image that is open; what comes out is in the runner. */
static int imagefolder_transform(struct imagefolder *folder, const struct sample_key *key,
                                 uint64_t index, struct transforms_shape *ret, struct dl_error *err)
{
    struct draws_keyed draws;

    draws_keyed_init(&draws, key->seed, key->epoch, key->base + index);
    return transforms_run(folder->transforms, folder->run, folder->decoder, &draws.base,
                          folder->path, ret, err);
}

static int imagefolder_decode_image(struct imagefolder *folder, const struct sample_key *key,
                                    uint64_t index, uint8_t *out, struct dl_error *err)
{
    struct transforms_shape shape;
    struct rng rng;

    if (folder->transforms) {
        int r = imagefolder_transform(folder, key, index, &shape, err);
        if (r == 0)
            transforms_write(folder->run, folder->spec.layout == LAYOUT_CHW, out);
        return r;
    }
    rng_init(&rng, key->seed, key->epoch, key->base + index);
    return image_decode(folder->decoder, &folder->spec, &rng, out, err);
}

/* ---- the dataset ---------------------------------------------------------------------------- */

static int imagefolder_read_rows(struct dataset *ds, const struct sample_key *key,
                                 const uint64_t *indices, size_t n, void *const *dst,
                                 size_t *ret_bad, struct dl_error *err)
{
    struct imagefolder *folder = container_of(ds, struct imagefolder, base);

    for (size_t i = 0; i < n; i++) {
        /* Once: another process may write to the slot these lie in. */
        uint64_t index = __atomic_load_n(&indices[i], __ATOMIC_RELAXED);
        struct image_size size;
        int64_t label;
        int r = 0;

        if (index >= ds->length)
            r = dataset_refuse_index(ds, index, err);
        if (r == 0)
            r = imagefolder_open_image(folder, index, &label, &size, err);
        if (r == 0)
            r = imagefolder_decode_image(folder, key, index,
                                         (uint8_t *)dst[0] + i * folder->image_bytes, err);
        if (r < 0) {
            *ret_bad = i;
            return r;
        }
        memcpy((char *)dst[1] + i * sizeof label, &label, sizeof label);
    }
    return 0;
}

/* [c, h, w] of a tensor; of a picture as `layout` has it; [n, ...] of a stack. Returns how many
 * dimensions. */
static uint32_t imagefolder_shape(const struct imagefolder *folder,
                                  const struct transforms_shape *of, uint64_t ret[static 4])
{
    bool chw = of->is_tensor || folder->spec.layout == LAYOUT_CHW;
    uint32_t n = 0;

    if (of->stack)
        ret[n++] = of->stack;
    ret[n++] = chw ? of->channels : of->size.height;
    ret[n++] = chw ? of->size.height : of->size.width;
    ret[n++] = chw ? of->size.width : of->channels;
    return n;
}

static int imagefolder_add_image(struct imagefolder *folder, const struct sample_key *key,
                                 uint64_t index, struct image_size size, struct sample *ret,
                                 struct dl_error *err)
{
    struct transforms_shape is = {.size = size, .channels = 3, .dtype = DL_DTYPE_UINT8};
    uint64_t shape[4];
    int r;

    if (folder->transforms && (r = imagefolder_transform(folder, key, index, &is, err)) < 0)
        return r;
    uint8_t *pixels = sample_alloc(ret, transforms_bytes(&is));
    if (!pixels)
        return sample_check(ret, err);
    if (folder->transforms)
        transforms_write(folder->run, folder->spec.layout == LAYOUT_CHW, pixels);
    else if ((r = imagefolder_decode_image(folder, key, index, pixels, err)) < 0)
        return r;
    uint32_t n = imagefolder_shape(folder, &is, shape);
    sample_begin(ret, TREE_DICT, NULL);
    sample_tensor(ret, "image", is.dtype, n, shape, pixels);
    return 0;
}

static int imagefolder_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                           struct sample *ret, struct dl_error *err)
{
    struct imagefolder *folder = container_of(ds, struct imagefolder, base);
    struct image_size size;
    int64_t label;
    int r;

    if (index >= ds->length)
        return dataset_refuse_index(ds, index, err);
    if ((r = imagefolder_open_image(folder, index, &label, &size, err)) < 0 ||
        (r = imagefolder_add_image(folder, key, index, size, ret, err)) < 0)
        return r;
    sample_int(ret, "label", label);
    sample_end(ret);
    return sample_check(ret, err);
}

static size_t imagefolder_name(const struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    const struct imagefolder *folder = container_of(ds, const struct imagefolder, base);
    size_t len;

    class_list_get(&folder->list, index, ret, room, &len);
    return len;
}

static void imagefolder_close(struct dataset *ds)
{
    struct imagefolder *folder = container_of(ds, struct imagefolder, base);

    kept_pictures_deinit(&folder->kept);
    class_list_deinit(&folder->list);
    image_decoder_free(folder->decoder);
    transforms_runner_free(folder->run);
    transforms_free(folder->transforms);
    tree_deinit(&ds->schema);
    free(folder->file);
    free(folder);
}

static const struct dataset_ops fixed_ops = {
    .read_rows = imagefolder_read_rows, .name = imagefolder_name, .close = imagefolder_close};
static const struct dataset_ops varying_ops = {
    .get = imagefolder_get, .name = imagefolder_name, .close = imagefolder_close};

static int imagefolder_describe(struct imagefolder *folder)
{
    struct tree *schema = &folder->base.schema;
    struct transforms_shape is = {.size = image_result(&folder->spec, (struct image_size){0}),
                                  .channels = 3,
                                  .dtype = DL_DTYPE_UINT8};
    uint64_t shape[4];
    int r;

    if (folder->transforms)
        is = transforms_result(folder->transforms);
    uint32_t n = imagefolder_shape(folder, &is, shape);
    folder->image_bytes = transforms_bytes(&is);
    folder->base.n_leaves = 2;
    if ((r = tree_add(schema, TREE_DICT, NULL, 2)) == 0 &&
        (r = tree_add_tensor(schema, "image", is.dtype, n, shape)) == 0)
        r = tree_add_tensor(schema, "label", DL_DTYPE_INT64, 0, NULL);
    return r;
}

/* The list of transforms, if there is one; whether all samples have one shape. */
static int imagefolder_read_transforms(struct imagefolder *folder, const struct spec_dataset *spec,
                                       const char *place, bool *ret_fixed, struct dl_error *err)
{
    char list[DL_ERROR_PATH_MAX];
    int r;

    *ret_fixed = spec->image.transform != TRANSFORM_NONE;
    if (spec->transforms.type == VALUE_NULL)
        return 0;
    place_key(list, place, "transforms");
    if ((r = transforms_read(&spec->transforms, list, &folder->transforms, err)) < 0 ||
        (r = transforms_runner_new(&folder->run, err)) < 0)
        return r;
    *ret_fixed = transforms_result(folder->transforms).is_fixed;
    return 0;
}

int imagefolder_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                     struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep)
    struct dataset *ds = NULL;
    struct imagefolder *folder;
    bool fixed;
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
    if ((r = imagefolder_read_transforms(folder, spec, place, &fixed, err)) < 0)
        return r;
    if (fixed)
        ds->ops = &fixed_ops;
    if ((r = image_decoder_new(&folder->decoder, err)) < 0 ||
        (r = class_list_make(spec->files[0].path, &image_files, env, &folder->list, err)) < 0)
        return r;
    ds->length = folder->list.n;
    kept_pictures_init(&folder->kept, spec, ds->length, env);
    ds->content = class_list_fingerprint(&folder->list);
    if (dataset_is_fixed(ds) && (r = imagefolder_describe(folder)) < 0)
        return dl_error_set(err, -r, place, "its samples cannot be described: %s", strerror(-r));
    *ret = steal_ptr(ds);
    return 0;
}
