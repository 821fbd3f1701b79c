/*
 * A file for each sample, map-style: sample i is what file i of the list (files_list.h) has. Its
 * extension says how it is read: an .npz or HDF5 file is a dict of its arrays, anything else one
 * leaf, as tar_sample.h has it of a member: an array, a picture, a number, text, JSON or bytes.
 *
 * Files are opened when their samples are made: a missing or damaged one is an error of its sample.
 */
#include "daemon/data/kinds/kinds.h"

#include "daemon/data/files/remote.h"
#include "daemon/data/kinds/arrays/array_leaf.h"
#include "daemon/data/kinds/files/files_list.h"
#include "daemon/data/kinds/hdf5/hdf5_file.h"
#include "daemon/data/kinds/tar/tar_sample.h"

#include <errno.h>
#include <stdio.h>

/* An HDF5 file is read through once: what one row after another needs of its chunks. */
enum { FILES_CHUNK_BYTES = 256 << 20 };

struct files {
    struct dataset base;
    const struct data_env *env; /* borrowed */
    struct files_list list;     /* owned */
    struct fields fields;       /* owned */
};

/* The file of one sample, as long as the batch is being made. */
struct files_opened {
    struct source source;
    struct hdf5_file hdf5;
};

static void files_release(void *what)
{
    struct files_opened *opened = what;

    hdf5_file_close(&opened->hdf5);
    source_close(&opened->source);
    free(opened);
}

/* ---- samples -------------------------------------------------------------------------------- */

/* "npy" of "a/b.NPY", in lower case; "" without one. */
enum { EXTENSION_ROOM = 16 };
static const char *files_extension(const char *path, char ret[static EXTENSION_ROOM])
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    size_t len = 0;

    for (; dot && dot[1 + len] && len + 1 < EXTENSION_ROOM; len++) {
        char c = dot[1 + len];
        ret[len] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    ret[len] = '\0';
    return ret;
}

static bool files_is_hdf5(const char *extension)
{
    return strcmp(extension, "h5") == 0 || strcmp(extension, "hdf5") == 0;
}

/* The sample's own error, in words. */
static int files_judge(const char *path, const struct sample *sample, struct dl_error *err)
{
    struct dl_error why = {0};

    if (sample->error == -EILSEQ)
        return dl_error_set(err, EILSEQ, path,
                            "is not UTF-8; convert it, or take its bytes with decode: false");
    (void)!sample_check(sample, &why);
    return dl_error_set(err, why.code, path, "cannot be a sample: %s", why.message);
}

static int files_add_leaf(const struct files *files, const struct source *source,
                          const struct decoding *decoding, const char *path, const char *extension,
                          struct sample *ret, struct dl_error *err)
{
    const struct tar_field field = {.path = path,
                                    .source = path,
                                    .extension = extension,
                                    .data = source->data,
                                    .size = source->bytes};

    if (files->fields.choice.n > 0)
        return dl_error_set(err, EINVAL, path,
                            "has one value, and no fields as .npz and HDF5 files have; leave "
                            "dataset.fields out, or name other files");
    return tar_add_field(&field, decoding, ret, err);
}

static int files_add_npz(const struct files *files, const struct source *source, const char *path,
                         struct sample *ret, struct dl_error *err)
{
    struct dl_error why = {0};
    int r = array_leaf_add_npz(source->data, source->bytes, NULL, &files->fields.choice, ret, &why);

    return why.code ? dl_error_set(err, why.code, path, "%s", why.message) : r;
}

/* Reads the file into the sample. */
static int files_read(const struct files *files, const struct decoding *decoding,
                      struct files_opened *opened, struct sample *ret, struct dl_error *err)
{
    const char *path = files_list_path(&files->list, decoding->index);
    char room[EXTENSION_ROOM];
    const char *extension = files_extension(path, room);
    bool decode = files->fields.decode;
    int r;

    if (decode && files_is_hdf5(extension)) {
        r = hdf5_file_open(path, files->env, FILES_CHUNK_BYTES, &files->fields.choice,
                           &opened->hdf5, err);
        return r < 0 ? r : hdf5_file_add(&opened->hdf5, ret, err);
    }
    if ((r = source_open(path, files->env, &opened->source, err)) < 0)
        return r;
    r = decode && strcmp(extension, "npz") == 0
            ? files_add_npz(files, &opened->source, path, ret, err)
            : files_add_leaf(files, &opened->source, decoding, path, extension, ret, err);
    return ret->error ? files_judge(path, ret, err) : r;
}

static int files_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                     struct sample *ret, struct dl_error *err)
{
    const struct files *files = container_of(ds, struct files, base);
    const struct decoding decoding = {.fields = &files->fields, .key = key, .index = index};

    struct files_opened *opened = calloc(1, sizeof *opened);
    /* What the sample points to stays mapped until the batch is made. */
    if (!opened || arena_hold(ret->arena, files_release, opened) < 0)
        return dl_error_set(err, ENOMEM, "dataset", "out of memory for a sample");
    return files_read(files, &decoding, opened, ret, err);
}

static size_t files_name(struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    const struct files *files = container_of(ds, struct files, base);
    int len = snprintf(ret, room, "%s", files_list_path(&files->list, index));

    return len < 0 ? 0 : (size_t)len;
}

static void files_expect(struct dataset *ds, uint64_t index)
{
    const struct files *files = container_of(ds, struct files, base);

    if (!files->env->remote || index >= ds->length)
        return;
    const char *path = files_list_path(&files->list, index);
    if (remote_is_url(path))
        remote_expect_file(files->env->remote, path);
}

static void files_close(struct dataset *ds)
{
    struct files *files = container_of(ds, struct files, base);

    fields_close(&files->fields);
    files_list_deinit(&files->list);
    free(files);
}

static const struct dataset_ops files_ops = {
    .get = files_get, .name = files_name, .expect = files_expect, .close = files_close};

/* ---- opening -------------------------------------------------------------------------------- */

int files_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
               struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep) struct dataset *ds = NULL;
    struct files *files = calloc(1, sizeof *files);
    int r;

    if (!files)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &files->base;
    ds->ops = &files_ops;
    files->env = env;
    if ((r = fields_open(&files->fields, spec, true, place, err)) < 0 ||
        (r = files_list_open(spec, place, env, &files->list, err)) < 0)
        return r;
    ds->length = files->list.n;
    ds->content = files->list.fingerprint;
    *ret = steal_ptr(ds);
    return 0;
}
