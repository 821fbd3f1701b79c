#include "daemon/data/kinds/mds/mds.h"
#include "daemon/data/kinds/kinds.h"

#include "daemon/data/kinds/mds/mds_index.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

struct mds {
    struct dataset base;
    char *root;               /* owned; the directory */
    struct mds_index index;   /* owned */
    struct mds_value *values; /* owned; of the sample in hand, for each column */
    uint32_t *chosen;         /* owned; the column of each field, fields.choice.n of them */
    struct fields fields;     /* owned */
};

/* ---- fields ------------------------------------------------------------------------------ */

/* The column of field `i` of a sample, and what it is called there. */
static const struct mds_column *mds_field(const struct mds *mds, uint32_t i, const char **ret_name)
{
    bool all = mds->fields.choice.n == 0;
    const struct mds_column *column = &mds->index.columns[all ? i : mds->chosen[i]];

    if (ret_name)
        *ret_name = all ? column->name : mds->fields.choice.fields[i].name;
    return column;
}

static uint32_t mds_fields(const struct mds *mds)
{
    return mds->fields.choice.n > 0 ? mds->fields.choice.n : mds->index.n_columns;
}

/* The values of sample `index`, in mds->values, as long as its shard is kept. */
static int mds_split(struct mds *mds, uint64_t index, struct shard_file **ret, struct dl_error *err)
{
    struct shard_file *shard = shard_files_of(&mds->index.shards, index);
    uint64_t number = index - shard->first, size, bytes;
    const uint8_t *at, *data;
    int r = shard_files_use(&mds->index.shards, shard, &data, &bytes, err);

    *ret = shard;
    if (r == 0)
        r = shard_file_find(data, bytes, number, shard->path, &at, &size, err);
    if (r < 0)
        return r;
    if (mds_columns_split(mds->index.columns, mds->index.n_columns, at, size, mds->values))
        return 0;
    return dl_error_set(err, EINVAL, shard->path,
                        "sample %llu: its %llu bytes are not those of its columns; the shard is "
                        "damaged",
                        (ull)number, (ull)size);
}

/* ---- samples -------------------------------------------------------------------------------- */

/* One that is being made. */
struct mds_sample {
    struct mds *mds;
    const char *path; /* of the shard */
    uint64_t number;  /* in the shard */
};

static int mds_add_value(const struct mds_sample *s, uint32_t column, const char *name,
                         const struct decoding *decoding, struct sample *ret, struct dl_error *err)
{
    struct mds_value *value = &s->mds->values[column];
    struct dl_error why = {0};

    value->name = name;
    int r = mds_value_add(value, decoding, ret, &why);
    if (!why.code)
        return r < 0 ? sample_check(ret, err) : 0;
    return dl_error_set(err, why.code, s->path, "sample %llu: its %s %s", (ull)s->number,
                        value->column->name, why.message);
}

static int mds_add_values(const struct mds_sample *s, const struct sample_key *key, uint64_t index,
                          struct sample *ret, struct dl_error *err)
{
    const struct mds *mds = s->mds;
    const struct decoding decoding = {.fields = &mds->fields, .key = key, .index = index};
    int r = 0;

    sample_begin(ret, TREE_DICT, NULL);
    for (uint32_t i = 0; r == 0 && i < mds_fields(mds); i++) {
        const char *name;
        const struct mds_column *column = mds_field(mds, i, &name);
        r = mds_add_value(s, (uint32_t)(column - mds->index.columns), name, &decoding, ret, err);
    }
    if (r < 0)
        return r;
    sample_end(ret);
    return sample_check(ret, err);
}

static int mds_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                   struct sample *ret, struct dl_error *err)
{
    struct mds *mds = container_of(ds, struct mds, base);
    struct shard_file *shard;

    int r = mds_split(mds, index, &shard, err);
    if (r < 0)
        return r;
    r = shard_file_hold(shard, ret->arena, err);
    if (r < 0)
        return r;
    struct mds_sample s = {.mds = mds, .path = shard->path, .number = index - shard->first};
    return mds_add_values(&s, key, index, ret, err);
}

/* Of arrays, by what stands before their elements. */
static int mds_lengths(struct dataset *ds, struct lengths_wanted *w, struct dl_error *err)
{
    struct mds *mds = container_of(ds, struct mds, base);
    const struct mds_column *column = NULL;
    struct shard_file *shard;
    const char *name;
    int r = 0;

    for (uint32_t i = 0; i < mds_fields(mds) && !column; i++) {
        const struct mds_column *candidate = mds_field(mds, i, &name);
        if (w->leaf ? strcmp(w->leaf, name) == 0 : mds_column_has_dimensions(candidate))
            column = candidate;
    }
    if (!column || column->sort != MDS_ARRAY)
        return -ENOTSUP;
    for (size_t i = 0; r == 0 && i < w->n; i++) {
        w->bad = w->first + i;
        r = mds_split(mds, w->first + i, &shard, err);
        if (r == 0)
            w->ret[i] = mds_value_length(&mds->values[column - mds->index.columns]);
    }
    return r;
}

/* ---- samples of one shape ------------------------------------------------------------------- */

static int mds_read_row(struct dataset *ds, const struct sample_key *key, uint64_t index,
                        void *const *dst, size_t i, struct dl_error *err)
{
    struct mds *mds = container_of(ds, struct mds, base);
    struct shard_file *shard;
    int r = mds_split(mds, index, &shard, err);

    for (uint32_t leaf = 0; r == 0 && leaf < ds->n_leaves; leaf++) {
        const struct mds_column *column = mds_field(mds, leaf, NULL);
        const struct mds_value *value = &mds->values[column - mds->index.columns];
        memcpy((char *)dst[leaf] + i * value->size, value->data, value->size);
    }
    return r;
}

static void mds_expect(struct dataset *ds, uint64_t index)
{
    shard_files_expect(&container_of(ds, struct mds, base)->index.shards, index);
}

static size_t mds_name(struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    return shard_files_name(&container_of(ds, struct mds, base)->index.shards, index, ret, room);
}

static void mds_close(struct dataset *ds)
{
    struct mds *mds = container_of(ds, struct mds, base);

    tree_deinit(&ds->schema);
    fields_close(&mds->fields);
    mds_index_deinit(&mds->index);
    free(mds->values);
    free(mds->chosen);
    free(mds->root);
    free(mds);
}

static const struct dataset_ops mds_ops = {.get = mds_get,
                                           .lengths = mds_lengths,
                                           .name = mds_name,
                                           .expect = mds_expect,
                                           .close = mds_close};
static const struct dataset_ops mds_rows_ops = {
    .read_row = mds_read_row, .name = mds_name, .expect = mds_expect, .close = mds_close};

/* ---- opening -------------------------------------------------------------------------------- */

static int mds_read_index(const char *root, const struct data_env *env, struct mds_index *ret,
                          struct dl_error *err)
{
    char path[PATH_MAX];
    struct source source = {0};

    snprintf(path, sizeof path, "%s/index.json", root);
    int r = source_open(path, env, &source, err);
    if (r == 0)
        r = mds_index_parse(source.data, source.bytes, path, ret, err);
    source_close(&source);
    return r;
}

static int mds_add_shards(struct mds *mds, const struct data_env *env, struct dl_error *err)
{
    mds->index.shards.root = mds->root;
    mds->index.shards.env = env;
    mds->index.shards.most_unpacked = MDS_UNPACKED_BYTES;
    mds->values = calloc(max_u64(mds->index.n_columns, 1), sizeof *mds->values);
    if (!mds->values)
        return dl_error_set(err, ENOMEM, mds->root, "out of memory");
    return shard_files_begin(&mds->index.shards, &mds->base.length, err);
}

static int mds_find_column(const struct mds *mds, const char *name, uint32_t *ret,
                           struct dl_error *err)
{
    for (uint32_t i = 0; i < mds->index.n_columns; i++) {
        if (strcmp(mds->index.columns[i].name, name) == 0) {
            *ret = i;
            return 0;
        }
    }
    return dl_error_set(err, EINVAL, mds->root, "has no column %s; see dataset.fields", name);
}

/* Whether the column can be part of a sample of this spec. */
static int mds_check_column(const struct mds *mds, const struct mds_column *column,
                            struct dl_error *err)
{
    if (column->sort == MDS_PICKLE)
        return dl_error_set(err, EINVAL, mds->root,
                            "its column %s is pickled, and unpickling can run any code; choose "
                            "others with dataset.fields",
                            column->name);
    if (column->sort == MDS_PIXELS && mds->fields.images &&
        mds->fields.image.transform != TRANSFORM_NONE)
        return dl_error_set(err, EINVAL, mds->root,
                            "its column %s has images that are not compressed, which cannot be "
                            "resized; write them as jpeg or png, or leave dataset.size "
                            "out",
                            column->name);
    return 0;
}

static int mds_choose_columns(struct mds *mds, struct dl_error *err)
{
    int r = 0;

    mds->chosen = calloc(max_u64(mds->fields.choice.n, 1), sizeof *mds->chosen);
    if (!mds->chosen)
        return dl_error_set(err, ENOMEM, mds->root, "out of memory");
    for (uint32_t i = 0; r == 0 && i < mds->fields.choice.n; i++) {
        r = mds_find_column(mds, mds->fields.choice.fields[i].source, &mds->chosen[i], err);
        if (r == 0)
            r = mds_check_column(mds, &mds->index.columns[mds->chosen[i]], err);
    }
    for (uint32_t i = 0; r == 0 && mds->fields.choice.n == 0 && i < mds->index.n_columns; i++)
        r = mds_check_column(mds, &mds->index.columns[i], err);
    return r;
}

/* Where all values are numbers and arrays of one shape, they are copied straight to their batch. */
static int mds_describe(struct mds *mds, struct dl_error *err)
{
    struct tree *schema = &mds->base.schema;
    uint32_t n = mds_fields(mds);
    int r;

    for (uint32_t i = 0; i < n; i++)
        if (mds_field(mds, i, NULL)->size == 0)
            return 0;
    if (n == 0)
        return 0;
    r = tree_add(schema, TREE_DICT, NULL, n);
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        const char *name;
        const struct mds_column *column = mds_field(mds, i, &name);
        r = tree_add_tensor(schema, name, column->dtype, column->ndim, column->shape);
    }
    if (r < 0)
        return dl_error_set(err, -r, mds->root, "its samples cannot be described: %s",
                            strerror(-r));
    mds->base.n_leaves = n;
    mds->base.ops = &mds_rows_ops;
    return 0;
}

int mds_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
             struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep) struct dataset *ds = NULL;
    struct mds *mds;
    int r;

    if (spec->n_files != 1)
        return dl_error_set(err, EINVAL, place, "is not one directory");
    mds = calloc(1, sizeof *mds);
    if (!mds)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &mds->base;
    ds->ops = &mds_ops;
    mds->root = strdup(spec->files[0].path);
    if (!mds->root)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    if ((r = fields_open(&mds->fields, spec, true, place, err)) < 0 ||
        (r = mds_read_index(mds->root, env, &mds->index, err)) < 0 ||
        (r = mds_add_shards(mds, env, err)) < 0 || (r = mds_choose_columns(mds, err)) < 0 ||
        (r = mds_describe(mds, err)) < 0)
        return r;
    *ret = steal_ptr(ds);
    return 0;
}

int mds_list_files(const struct spec_dataset *spec, const struct data_env *env,
                   struct file_list *ret, struct dl_error *err)
{
    const char *root = spec->files[0].path;
    struct mds_index index = {0};
    int r = mds_read_index(root, env, &index, err);

    if (r < 0)
        return r;
    r = shard_files_list(&index.shards, root, env, ret, err);
    mds_index_deinit(&index);
    return r;
}
