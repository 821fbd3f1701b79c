/*
 * HDF5: datasets of one file with the same number of rows, map-style: sample i has row i of each.
 * For the supported format see hdf5_head.h and hdf5_array.h; for libhdf5 hdf5_foreign.h.
 *
 * Our own reader is tried first: libhdf5 has one state for the whole process, trusts the file's
 * content, and reads fewer rows a second.
 */
#include "daemon/data/kinds/kinds.h"

#include "daemon/data/files/source.h"
#include "daemon/data/kinds/hdf5/hdf5_array.h"
#include "daemon/data/kinds/hdf5/hdf5_foreign.h"

#include <assert.h>
#include <errno.h>

struct hdf5 {
    struct dataset base;
    char *path; /* owned */
    struct source source;
    struct hdf5_view view;
    struct hdf5_foreign *foreign; /* owned; the file by libhdf5; NULL: it was not needed so far */
    struct hdf5_array *arrays;    /* owned; base.n_leaves of them */
    struct spec_field *fields;    /* owned; of each its name in the sample, and in the file */
    uint32_t n_fields;
    struct hdf5_cache cache;
};

/* ---- samples -------------------------------------------------------------------------------- */

/* Any stored value but 0 is true. */
static void hdf5_make_bools(uint8_t *values, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        values[i] = values[i] != 0;
}

static int hdf5_read_row(struct hdf5 *hdf5, uint64_t index, size_t i, void *const *dst,
                         struct dl_error *err)
{
    int r = 0;

    for (uint32_t leaf = 0; r == 0 && leaf < hdf5->base.n_leaves; leaf++) {
        struct hdf5_array *array = &hdf5->arrays[leaf];
        uint8_t *out = (uint8_t *)dst[leaf] + i * array->row_bytes;
        r = hdf5_array_read(array, &hdf5->cache, index, out, err);
        if (r == 0 && array->dtype == DL_DTYPE_BOOL)
            hdf5_make_bools(out, array->row_bytes);
    }
    return r;
}

static int hdf5_read_rows(struct dataset *ds, const struct sample_key *key, const uint64_t *indices,
                          size_t n, void *const *dst, size_t *ret_bad, struct dl_error *err)
{
    struct hdf5 *hdf5 = container_of(ds, struct hdf5, base);

    (void)key;
    for (size_t i = 0; i < n; i++) {
        /* Once: another process may write to the slot these lie in. */
        uint64_t index = __atomic_load_n(&indices[i], __ATOMIC_RELAXED);
        int r = index < ds->length ? hdf5_read_row(hdf5, index, i, dst, err)
                                   : dataset_refuse_index(ds, index, err);
        if (r < 0) {
            *ret_bad = i;
            return r;
        }
    }
    return 0;
}

/* A text of a fixed length, without its filling; *ret: in the sample's memory. */
static int hdf5_read_room(struct hdf5 *hdf5, struct hdf5_array *array, uint64_t index,
                          struct sample *sample, struct dl_span *ret, struct dl_error *err)
{
    uint8_t *text = sample_alloc(sample, array->row_bytes);
    int r =
        text ? hdf5_array_read(array, &hdf5->cache, index, text, err) : sample_check(sample, err);

    if (r < 0)
        return r;
    *ret = (struct dl_span){text, array->row_bytes};
    while (ret->len > 0 && text[ret->len - 1] == '\0')
        ret->len--;
    return 0;
}

/* A text of any length. */
static int hdf5_read_pointer(struct hdf5 *hdf5, struct hdf5_array *array, uint64_t index,
                             struct sample *sample, struct dl_span *ret, struct dl_error *err)
{
    _cleanup_free_ char *text = NULL;
    int r = hdf5_array_read(array, &hdf5->cache, index, &text, err);

    if (r < 0)
        return r;
    *ret = (struct dl_span){.len = text ? strlen(text) : 0};
    if (ret->len == 0)
        return 0;
    uint8_t *copy = sample_alloc(sample, ret->len);
    if (!copy)
        return sample_check(sample, err);
    ret->data = memcpy(copy, text, ret->len);
    return 0;
}

static int hdf5_add_text(struct hdf5 *hdf5, uint32_t i, uint64_t index, struct sample *ret,
                         struct dl_error *err)
{
    struct hdf5_array *array = &hdf5->arrays[i];
    struct dl_span text = {0};
    int r = array->text == HDF5_TEXT_POINTER
                ? hdf5_read_pointer(hdf5, array, index, ret, &text, err)
                : hdf5_read_room(hdf5, array, index, ret, &text, err);

    if (r < 0)
        return r;
    r = sample_text(ret, TREE_STRING, hdf5->fields[i].name, text.data, text.len);
    if (r == -EILSEQ)
        return dl_error_set(err, EILSEQ, hdf5->path,
                            "its dataset %s has a text in row %llu that is not UTF-8; choose "
                            "others with dataset.fields",
                            hdf5->fields[i].source, (unsigned long long)index);
    return r < 0 ? sample_check(ret, err) : 0;
}

static int hdf5_add_numbers(struct hdf5 *hdf5, uint32_t i, uint64_t index, struct sample *ret,
                            struct dl_error *err)
{
    struct hdf5_array *array = &hdf5->arrays[i];
    void *numbers = sample_alloc(ret, array->row_bytes);
    int r = numbers ? hdf5_array_read(array, &hdf5->cache, index, numbers, err)
                    : sample_check(ret, err);

    if (r == 0 && array->dtype == DL_DTYPE_BOOL)
        hdf5_make_bools(numbers, array->row_bytes);
    if (r == 0 && sample_tensor(ret, hdf5->fields[i].name, array->dtype, array->ndim - 1,
                                array->dims + 1, numbers) < 0)
        r = sample_check(ret, err);
    return r;
}

/* Where there is text. */
static int hdf5_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                    struct sample *ret, struct dl_error *err)
{
    struct hdf5 *hdf5 = container_of(ds, struct hdf5, base);
    int r = 0;

    (void)key;
    if (index >= ds->length)
        return dataset_refuse_index(ds, index, err);
    sample_begin(ret, TREE_DICT, NULL);
    for (uint32_t i = 0; r == 0 && i < hdf5->n_fields; i++)
        r = hdf5->arrays[i].text ? hdf5_add_text(hdf5, i, index, ret, err)
                                 : hdf5_add_numbers(hdf5, i, index, ret, err);
    if (r < 0)
        return r;
    sample_end(ret);
    return sample_check(ret, err);
}

static size_t hdf5_name(struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    return dataset_put_name(container_of(ds, struct hdf5, base)->path, "row", index, ret, room);
}

static void hdf5_drop_fields(struct hdf5 *hdf5)
{
    for (uint32_t i = 0; i < hdf5->n_fields; i++) {
        free(hdf5->fields[i].name);
        free(hdf5->fields[i].source);
    }
    hdf5->n_fields = 0;
}

static void hdf5_close(struct dataset *ds)
{
    struct hdf5 *hdf5 = container_of(ds, struct hdf5, base);

    for (uint32_t i = 0; hdf5->arrays && i < hdf5->n_fields; i++)
        hdf5_array_close(&hdf5->arrays[i], &hdf5->cache);
    hdf5_drop_fields(hdf5);
    hdf5_foreign_close(hdf5->foreign);
    free(hdf5->arrays);
    free(hdf5->fields);
    tree_deinit(&ds->schema);
    source_close(&hdf5->source);
    free(hdf5->path);
    free(hdf5);
}

static const struct dataset_ops hdf5_ops = {
    .read_rows = hdf5_read_rows, .name = hdf5_name, .close = hdf5_close};

static const struct dataset_ops hdf5_text_ops = {
    .get = hdf5_get, .name = hdf5_name, .close = hdf5_close};

/* ---- which datasets ------------------------------------------------------------------------- */

static int hdf5_add_field(struct hdf5 *hdf5, const char *name, const char *source, size_t len,
                          struct dl_error *err)
{
    struct spec_field field = {.name = strdup(name), .source = strndup(source, len)};
    struct spec_field *fields =
        reallocarray(hdf5->fields, hdf5->n_fields + (size_t)1, sizeof *fields);

    if (fields)
        hdf5->fields = fields;
    if (!fields || !field.name || !field.source) {
        free(field.name);
        free(field.source);
        return dl_error_set(err, ENOMEM, hdf5->path, "out of memory for its datasets");
    }
    hdf5->fields[hdf5->n_fields++] = field;
    return 0;
}

enum { HDF5_IS_DATASET = 1 };

/* Falls back to libhdf5 after our own reader has refused with `err`. Without libhdf5 the error
 * stays, and mentions that. */
static int hdf5_need_foreign(struct hdf5 *hdf5, struct dl_error *err)
{
    struct dl_error own = {.code = ENOTSUP}, why = {0};

    if (hdf5->foreign)
        return 0;
    if (err)
        own = *err;
    int r = hdf5_foreign_open(&hdf5->view, &hdf5->foreign, &why);
    if (r == -ENOTSUP)
        return dl_error_set(err, own.code, hdf5->path, "%s; libhdf5 might read it, but %s",
                            own.message, why.message);
    return r < 0 ? dl_error_set(err, -r, hdf5->path, "%s", why.message) : 0;
}

static int hdf5_look_for_layout(void *owner, const struct hdf5_message *message,
                                struct dl_error *err)
{
    (void)owner, (void)err;
    return message->type == HDF5_LAYOUT ? HDF5_IS_DATASET : 0;
}

/* Datasets are fields. */
static int hdf5_take_dataset(void *owner, const char *name, size_t len, uint64_t at,
                             struct dl_error *err)
{
    struct hdf5 *hdf5 = owner;

    (void)at;
    if (hdf5->n_fields == DL_MAX_DATASET_FILES)
        return dl_error_set(err, ENOTSUP, hdf5->path,
                            "has more than %llu datasets; choose some with dataset.fields",
                            (unsigned long long)DL_MAX_DATASET_FILES);
    _cleanup_free_ char *text = strndup(name, len);
    if (!text)
        return dl_error_set(err, ENOMEM, hdf5->path, "out of memory for its datasets");
    if (strchr(text, '.') || len > DL_MAX_NAME_BYTES || len == 0)
        return dl_error_set(err, EINVAL, hdf5->path,
                            "has a dataset whose name cannot be a field's; give it another with "
                            "dataset.fields: %.80s",
                            text);
    return hdf5_add_field(hdf5, text, text, len, err);
}

/* Groups are passed over. */
static int hdf5_take_link(void *owner, const char *name, size_t len, uint64_t at,
                          struct dl_error *err)
{
    struct hdf5 *hdf5 = owner;
    int r = hdf5_walk_messages(&hdf5->view, at, hdf5_look_for_layout, NULL, err);

    return r == HDF5_IS_DATASET ? hdf5_take_dataset(owner, name, len, at, err) : r;
}

static int hdf5_walk_root(struct hdf5 *hdf5, struct dl_error *err)
{
    uint64_t root;
    int r = hdf5_find_root(&hdf5->view, &root, err);

    if (r == 0)
        r = hdf5_walk_links(&hdf5->view, root, hdf5_take_link, hdf5, err);
    if (r != -ENOTSUP || (r = hdf5_need_foreign(hdf5, err)) < 0)
        return r;
    hdf5_drop_fields(hdf5);
    return hdf5_foreign_walk(hdf5->foreign, hdf5_take_dataset, hdf5, err);
}

static int hdf5_compare_fields(const void *a, const void *b)
{
    return strcmp(((const struct spec_field *)a)->name, ((const struct spec_field *)b)->name);
}

/* Chooses the spec's datasets, or all of the root. */
static int hdf5_choose(struct hdf5 *hdf5, const struct spec_dataset *spec, struct dl_error *err)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < spec->n_fields; i++)
        r = hdf5_add_field(hdf5, spec->fields[i].name, spec->fields[i].source,
                           strlen(spec->fields[i].source), err);
    if (r == 0 && spec->n_fields == 0)
        r = hdf5_walk_root(hdf5, err);
    if (r == 0 && hdf5->n_fields == 0)
        return dl_error_set(err, EINVAL, hdf5->path,
                            "has no dataset in its root; name those of groups, such as "
                            "dataset.fields: {image: train/images}");
    if (r == 0)
        qsort(hdf5->fields, hdf5->n_fields, sizeof *hdf5->fields, hdf5_compare_fields);
    return r;
}

/* ---- opening -------------------------------------------------------------------------------- */

/* By our own reader, or by libhdf5 what that refuses. */
static int hdf5_open_array(struct hdf5 *hdf5, const char *source, struct hdf5_array *ret,
                           struct dl_error *err)
{
    uint64_t at;
    int r = hdf5_find(&hdf5->view, source, &at, err);

    if (r == 0)
        r = hdf5_array_open(&hdf5->view, at, source, ret, err);
    if (r != -ENOTSUP && r != -ENOENT) /* of parts of compounds, and behind links of other kinds */
        return r;
    hdf5_array_close(ret, &hdf5->cache);
    if ((r = hdf5_need_foreign(hdf5, err)) < 0)
        return r;
    return hdf5_foreign_open_array(hdf5->foreign, source, hdf5->cache.most / hdf5->n_fields, ret,
                                   err);
}

static int hdf5_open_arrays(struct hdf5 *hdf5, struct dl_error *err)
{
    int r = 0;

    assert(hdf5->n_fields > 0); /* a file without datasets was refused */
    hdf5->arrays = calloc(hdf5->n_fields, sizeof *hdf5->arrays);
    if (!hdf5->arrays)
        return dl_error_set(err, ENOMEM, hdf5->path, "out of memory for its datasets");
    for (uint32_t i = 0; r == 0 && i < hdf5->n_fields; i++) {
        const char *source = hdf5->fields[i].source;
        struct hdf5_array *array = &hdf5->arrays[i];
        if ((r = hdf5_open_array(hdf5, source, array, err)) < 0)
            return r;
        if (array->dims[0] != hdf5->arrays[0].dims[0])
            return dl_error_set(err, EINVAL, hdf5->path,
                                "its dataset %s has %llu rows, but %s has %llu; choose datasets "
                                "with equally many rows with dataset.fields",
                                source, (unsigned long long)array->dims[0], hdf5->fields[0].source,
                                (unsigned long long)hdf5->arrays[0].dims[0]);
    }
    return r;
}

static int hdf5_describe(struct hdf5 *hdf5)
{
    struct tree *schema = &hdf5->base.schema;

    hdf5->base.length = hdf5->arrays[0].dims[0];
    for (uint32_t i = 0; i < hdf5->n_fields; i++) {
        if (hdf5->arrays[i].text)
            hdf5->base.ops = &hdf5_text_ops;
    }
    if (hdf5->base.ops == &hdf5_text_ops)
        return 0;
    int r = tree_add(schema, TREE_DICT, NULL, hdf5->n_fields);

    for (uint32_t i = 0; r == 0 && i < hdf5->n_fields; i++) {
        const struct hdf5_array *array = &hdf5->arrays[i];
        r = tree_add_tensor(schema, hdf5->fields[i].name, array->dtype, array->ndim - 1,
                            array->dims + 1);
    }
    hdf5->base.n_leaves = hdf5->n_fields;
    return r;
}

int hdf5_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
              struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep)
    struct dataset *ds = NULL;
    struct hdf5 *hdf5 = calloc(1, sizeof *hdf5);
    int r;

    if (!hdf5)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &hdf5->base;
    ds->ops = &hdf5_ops;
    hdf5->cache.most = spec->cache;
    hdf5->path = strdup(spec->files[0].path);
    if (!hdf5->path)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    if ((r = source_open(hdf5->path, env, &hdf5->source, err)) < 0)
        return r;
    hdf5->view = (struct hdf5_view){
        .data = hdf5->source.data, .bytes = hdf5->source.bytes, .path = hdf5->path};
    hdf5_skip_user_block(&hdf5->view);
    if ((r = hdf5_choose(hdf5, spec, err)) < 0 || (r = hdf5_open_arrays(hdf5, err)) < 0)
        return r;
    r = hdf5_describe(hdf5);
    if (r < 0)
        return dl_error_set(err, -r, hdf5->path, "its samples cannot be described: %s",
                            strerror(-r));
    *ret = steal_ptr(ds);
    return 0;
}
