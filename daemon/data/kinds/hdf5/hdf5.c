/*
 * HDF5: datasets of one file with the same number of rows, map-style: sample i has row i of each.
 */
#include "daemon/data/kinds/kinds.h"

#include "daemon/data/kinds/hdf5/hdf5_file.h"

#include <errno.h>

struct hdf5 {
    struct dataset base;
    struct hdf5_file file;
};

/* ---- samples -------------------------------------------------------------------------------- */

static int hdf5_read_row(struct dataset *ds, const struct sample_key *key, uint64_t index,
                         void *const *dst, size_t i, struct dl_error *err)
{
    struct hdf5 *hdf5 = container_of(ds, struct hdf5, base);
    int r = 0;

    for (uint32_t leaf = 0; r == 0 && leaf < ds->n_leaves; leaf++) {
        uint8_t *out = (uint8_t *)dst[leaf] + i * hdf5->file.arrays[leaf].row_bytes;
        r = hdf5_file_read(&hdf5->file, leaf, index, out, err);
    }
    return r;
}

/* A text of a fixed length, without its filling; *ret: in the sample's memory. */
static int hdf5_read_room(struct hdf5 *hdf5, struct hdf5_array *array, uint64_t index,
                          struct sample *sample, struct dl_span *ret, struct dl_error *err)
{
    uint8_t *text = sample_alloc(sample, array->row_bytes);
    int r = text ? hdf5_array_read(array, &hdf5->file.cache, index, text, err)
                 : sample_check(sample, err);

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
    int r = hdf5_array_read(array, &hdf5->file.cache, index, &text, err);

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
    struct hdf5_array *array = &hdf5->file.arrays[i];
    struct dl_span text = {0};
    int r = array->text == HDF5_TEXT_POINTER
                ? hdf5_read_pointer(hdf5, array, index, ret, &text, err)
                : hdf5_read_room(hdf5, array, index, ret, &text, err);

    if (r < 0)
        return r;
    r = sample_text(ret, TREE_STRING, hdf5->file.fields[i].name, text.data, text.len);
    if (r == -EILSEQ)
        return dl_error_set(err, EILSEQ, hdf5->file.path,
                            "its dataset %s has a text in row %llu that is not UTF-8; choose "
                            "others with dataset.fields",
                            hdf5->file.fields[i].source, (ull)index);
    return r < 0 ? sample_check(ret, err) : 0;
}

static int hdf5_add_numbers(struct hdf5 *hdf5, uint32_t i, uint64_t index, struct sample *ret,
                            struct dl_error *err)
{
    const struct hdf5_array *array = &hdf5->file.arrays[i];
    void *numbers = sample_alloc(ret, array->row_bytes);
    int r = numbers ? hdf5_file_read(&hdf5->file, i, index, numbers, err) : sample_check(ret, err);

    if (r == 0 && sample_tensor(ret, hdf5->file.fields[i].name, array->dtype, array->ndim - 1,
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
    sample_begin(ret, TREE_DICT, NULL);
    for (uint32_t i = 0; r == 0 && i < hdf5->file.n_fields; i++)
        r = hdf5->file.arrays[i].text ? hdf5_add_text(hdf5, i, index, ret, err)
                                      : hdf5_add_numbers(hdf5, i, index, ret, err);
    if (r < 0)
        return r;
    sample_end(ret);
    return sample_check(ret, err);
}

static size_t hdf5_name(struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    return dataset_put_name(container_of(ds, struct hdf5, base)->file.path, "row", index, ret,
                            room);
}

static void hdf5_close(struct dataset *ds)
{
    struct hdf5 *hdf5 = container_of(ds, struct hdf5, base);

    hdf5_file_close(&hdf5->file);
    tree_deinit(&ds->schema);
    free(hdf5);
}

static const struct dataset_ops hdf5_ops = {
    .read_row = hdf5_read_row, .name = hdf5_name, .close = hdf5_close};

static const struct dataset_ops hdf5_text_ops = {
    .get = hdf5_get, .name = hdf5_name, .close = hdf5_close};

/* ---- opening -------------------------------------------------------------------------------- */

static int hdf5_describe(struct hdf5 *hdf5)
{
    struct tree *schema = &hdf5->base.schema;

    hdf5->base.length = hdf5->file.arrays[0].dims[0];
    for (uint32_t i = 0; i < hdf5->file.n_fields; i++) {
        if (hdf5->file.arrays[i].text)
            hdf5->base.ops = &hdf5_text_ops;
    }
    if (hdf5->base.ops == &hdf5_text_ops)
        return 0;
    int r = tree_add(schema, TREE_DICT, NULL, hdf5->file.n_fields);

    for (uint32_t i = 0; r == 0 && i < hdf5->file.n_fields; i++) {
        const struct hdf5_array *array = &hdf5->file.arrays[i];
        r = tree_add_tensor(schema, hdf5->file.fields[i].name, array->dtype, array->ndim - 1,
                            array->dims + 1);
    }
    hdf5->base.n_leaves = hdf5->file.n_fields;
    return r;
}

/* The arrays are columns of the same rows. */
static int hdf5_check_rows(const struct hdf5 *hdf5, struct dl_error *err)
{
    const struct hdf5_file *file = &hdf5->file;

    for (uint32_t i = 1; i < file->n_fields; i++) {
        if (file->arrays[i].dims[0] != file->arrays[0].dims[0])
            return dl_error_set(err, EINVAL, file->path,
                                "its dataset %s has %llu rows, but %s has %llu; choose datasets "
                                "with equally many rows with dataset.fields",
                                file->fields[i].source, (ull)file->arrays[i].dims[0],
                                file->fields[0].source, (ull)file->arrays[0].dims[0]);
    }
    return 0;
}

int hdf5_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
              struct dataset **ret, struct dl_error *err)
{
    const struct field_choice choice = {.fields = spec->fields, .n = spec->n_fields};
    _cleanup_(dataset_closep) struct dataset *ds = NULL;
    struct hdf5 *hdf5 = calloc(1, sizeof *hdf5);
    int r;

    if (!hdf5)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &hdf5->base;
    ds->ops = &hdf5_ops;
    r = hdf5_file_open(spec->files[0].path, env, spec->cache, &choice, &hdf5->file, err);
    if (r < 0 || (r = hdf5_check_rows(hdf5, err)) < 0)
        return r;
    r = hdf5_describe(hdf5);
    if (r < 0)
        return dl_error_set(err, -r, hdf5->file.path, "its samples cannot be described: %s",
                            strerror(-r));
    *ret = steal_ptr(ds);
    return 0;
}
