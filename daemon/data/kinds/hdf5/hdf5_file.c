#include "daemon/data/kinds/hdf5/hdf5_file.h"

#include <assert.h>
#include <errno.h>

/* Bytes of an array that is read whole, and is not in one piece. */
enum { HDF5_WHOLE_MAX = 1 << 30 };

static void hdf5_file_drop_fields(struct hdf5_file *file)
{
    for (uint32_t i = 0; i < file->n_fields; i++) {
        free(file->fields[i].name);
        free(file->fields[i].source);
    }
    file->n_fields = 0;
}

/* ---- which datasets ------------------------------------------------------------------------- */

static int hdf5_file_add_field(struct hdf5_file *file, const char *name, const char *source,
                               size_t len, struct dl_error *err)
{
    struct spec_field field = {.name = strdup(name), .source = strndup(source, len)};
    struct spec_field *fields =
        reallocarray(file->fields, file->n_fields + (size_t)1, sizeof *fields);

    if (fields)
        file->fields = fields;
    if (!fields || !field.name || !field.source) {
        free(field.name);
        free(field.source);
        return dl_error_set(err, ENOMEM, file->path, "out of memory for its datasets");
    }
    file->fields[file->n_fields++] = field;
    return 0;
}

enum { HDF5_IS_DATASET = 1 };

/* Falls back to libhdf5 after our own reader has refused with `err`. Without libhdf5 the error
 * stays, and mentions that. */
static int hdf5_file_need_foreign(struct hdf5_file *file, struct dl_error *err)
{
    struct dl_error own = {.code = ENOTSUP}, why = {0};

    if (file->foreign)
        return 0;
    if (err)
        own = *err;
    int r = hdf5_foreign_open(&file->view, &file->foreign, &why);
    if (r == -ENOTSUP)
        return dl_error_set(err, own.code, file->path, "%s; libhdf5 might read it, but %s",
                            own.message, why.message);
    return r < 0 ? dl_error_set(err, -r, file->path, "%s", why.message) : 0;
}

static int hdf5_file_look_for_layout(void *owner, const struct hdf5_message *message,
                                     struct dl_error *err)
{
    (void)owner, (void)err;
    return message->type == HDF5_LAYOUT ? HDF5_IS_DATASET : 0;
}

/* Datasets are fields. */
static int hdf5_file_take_dataset(void *owner, const char *name, size_t len, uint64_t at,
                                  struct dl_error *err)
{
    struct hdf5_file *file = owner;

    (void)at;
    if (file->n_fields == DL_MAX_DATASET_FILES)
        return dl_error_set(err, ENOTSUP, file->path,
                            "has more than %llu datasets; choose some with dataset.fields",
                            (ull)DL_MAX_DATASET_FILES);
    _cleanup_free_ char *text = strndup(name, len);
    if (!text)
        return dl_error_set(err, ENOMEM, file->path, "out of memory for its datasets");
    if (strchr(text, '.') || len > DL_MAX_NAME_BYTES || len == 0)
        return dl_error_set(err, EINVAL, file->path,
                            "has a dataset whose name cannot be a field's; give it another with "
                            "dataset.fields: %.80s",
                            text);
    return hdf5_file_add_field(file, text, text, len, err);
}

/* Groups are passed over. */
static int hdf5_file_take_link(void *owner, const char *name, size_t len, uint64_t at,
                               struct dl_error *err)
{
    struct hdf5_file *file = owner;
    int r = hdf5_walk_messages(&file->view, at, hdf5_file_look_for_layout, NULL, err);

    return r == HDF5_IS_DATASET ? hdf5_file_take_dataset(owner, name, len, at, err) : r;
}

static int hdf5_file_walk_root(struct hdf5_file *file, struct dl_error *err)
{
    uint64_t root;
    int r = hdf5_find_root(&file->view, &root, err);

    if (r == 0)
        r = hdf5_walk_links(&file->view, root, hdf5_file_take_link, file, err);
    if (r != -ENOTSUP || (r = hdf5_file_need_foreign(file, err)) < 0)
        return r;
    hdf5_file_drop_fields(file);
    return hdf5_foreign_walk(file->foreign, hdf5_file_take_dataset, file, err);
}

static int hdf5_file_compare_fields(const void *a, const void *b)
{
    return strcmp(((const struct spec_field *)a)->name, ((const struct spec_field *)b)->name);
}

/* Those of the choice, or all of the root. */
static int hdf5_file_choose(struct hdf5_file *file, const struct field_choice *choice,
                            struct dl_error *err)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < choice->n; i++)
        r = hdf5_file_add_field(file, choice->fields[i].name, choice->fields[i].source,
                                strlen(choice->fields[i].source), err);
    if (r == 0 && choice->n == 0)
        r = hdf5_file_walk_root(file, err);
    if (r == 0 && file->n_fields == 0)
        return dl_error_set(err, EINVAL, file->path,
                            "has no dataset in its root; name those of groups, such as "
                            "dataset.fields: {image: train/images}");
    if (r == 0)
        qsort(file->fields, file->n_fields, sizeof *file->fields, hdf5_file_compare_fields);
    return r;
}

/* ---- opening -------------------------------------------------------------------------------- */

/* By our own reader, or by libhdf5 what that refuses. */
static int hdf5_file_open_array(struct hdf5_file *file, const char *source, struct hdf5_array *ret,
                                struct dl_error *err)
{
    uint64_t at;
    int r = hdf5_find(&file->view, source, &at, err);

    if (r == 0)
        r = hdf5_array_open(&file->view, at, source, ret, err);
    if (r != -ENOTSUP && r != -ENOENT) /* of parts of compounds, and behind links of other kinds */
        return r;
    hdf5_array_close(ret, &file->cache);
    if ((r = hdf5_file_need_foreign(file, err)) < 0)
        return r;
    return hdf5_foreign_open_array(file->foreign, source, file->cache.most / file->n_fields, ret,
                                   err);
}

static int hdf5_file_open_arrays(struct hdf5_file *file, struct dl_error *err)
{
    int r = 0;

    assert(file->n_fields > 0); /* a file without datasets was refused */
    file->arrays = calloc(file->n_fields, sizeof *file->arrays);
    if (!file->arrays)
        return dl_error_set(err, ENOMEM, file->path, "out of memory for its datasets");
    for (uint32_t i = 0; r == 0 && i < file->n_fields; i++) {
        const char *source = file->fields[i].source;
        r = hdf5_file_open_array(file, source, &file->arrays[i], err);
    }
    return r;
}

int hdf5_file_open(const char *path, const struct data_env *env, uint64_t cache,
                   const struct field_choice *choice, struct hdf5_file *ret, struct dl_error *err)
{
    int r;

    ret->cache.most = cache;
    ret->path = strdup(path);
    if (!ret->path)
        return dl_error_set(err, ENOMEM, path, "out of memory");
    if ((r = source_open(ret->path, env, &ret->source, err)) < 0)
        return r;
    ret->view =
        (struct hdf5_view){.data = ret->source.data, .bytes = ret->source.bytes, .path = ret->path};
    hdf5_skip_user_block(&ret->view);
    r = hdf5_file_choose(ret, choice, err);
    return r < 0 ? r : hdf5_file_open_arrays(ret, err);
}

void hdf5_file_close(struct hdf5_file *file)
{
    for (uint32_t i = 0; file->arrays && i < file->n_fields; i++)
        hdf5_array_close(&file->arrays[i], &file->cache);
    hdf5_file_drop_fields(file);
    hdf5_foreign_close(file->foreign);
    free(file->arrays);
    free(file->fields);
    source_close(&file->source);
    free(file->path);
    *file = (struct hdf5_file){0};
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Any stored value but 0 is true. */
static void hdf5_file_make_bools(uint8_t *values, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        values[i] = values[i] != 0;
}

int hdf5_file_read(struct hdf5_file *file, uint32_t i, uint64_t row, uint8_t *out,
                   struct dl_error *err)
{
    struct hdf5_array *array = &file->arrays[i];
    int r = hdf5_array_read(array, &file->cache, row, out, err);

    if (r == 0 && array->dtype == DL_DTYPE_BOOL)
        hdf5_file_make_bools(out, array->row_bytes);
    return r;
}

/* A copy of array `i`, row by row. */
static int hdf5_file_copy(struct hdf5_file *file, uint32_t i, uint64_t bytes, struct sample *ret,
                          const uint8_t **ret_data, struct dl_error *err)
{
    const struct hdf5_array *array = &file->arrays[i];

    if (bytes > HDF5_WHOLE_MAX)
        return hdf5_array_refuse(array, EFBIG,
                                 "has more than 1 GiB, and is not in one piece; read its rows with "
                                 "kind: hdf5",
                                 err);
    uint8_t *data = sample_alloc(ret, bytes);
    int r = data ? 0 : sample_check(ret, err);
    for (uint64_t row = 0; r == 0 && array->row_bytes > 0 && row < array->dims[0]; row++)
        r = hdf5_file_read(file, i, row, data + row * array->row_bytes, err);
    *ret_data = data;
    return r;
}

static int hdf5_file_add_array(struct hdf5_file *file, uint32_t i, struct sample *ret,
                               struct dl_error *err)
{
    const struct hdf5_array *array = &file->arrays[i];
    bool in_place = !array->foreign && array->whole && array->dtype != DL_DTYPE_BOOL;
    const uint8_t *data = in_place ? array->whole : NULL;
    uint64_t bytes;
    int r = 0;

    if (array->text)
        return hdf5_array_refuse(array, ENOTSUP,
                                 "is text, which a whole file's sample cannot have; choose others "
                                 "with dataset.fields",
                                 err);
    if (!tensor_bytes(array->dtype, array->ndim, array->dims, &bytes))
        return hdf5_array_refuse(array, EINVAL, "has 2^63 bytes or more", err);
    if (!in_place)
        r = hdf5_file_copy(file, i, bytes, ret, &data, err);
    if (r == 0 &&
        sample_tensor(ret, file->fields[i].name, array->dtype, array->ndim, array->dims, data) < 0)
        r = sample_check(ret, err);
    return r;
}

int hdf5_file_add(struct hdf5_file *file, struct sample *ret, struct dl_error *err)
{
    int r = 0;

    sample_begin(ret, TREE_DICT, NULL);
    for (uint32_t i = 0; r == 0 && i < file->n_fields; i++)
        r = hdf5_file_add_array(file, i, ret, err);
    if (r < 0)
        return r;
    sample_end(ret);
    return sample_check(ret, err);
}
