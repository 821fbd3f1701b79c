#include "daemon/data/mds/mds.h"

#include "daemon/data/field_choice.h"
#include "daemon/data/mds/mds_shard.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

struct mds {
    struct dataset base;
    const struct data_env *env; /* borrowed */
    char *root;                 /* owned; the directory */
    struct mds_index index;     /* owned */
    struct mds_shard *shards;   /* owned; index.n_shards of them */
    struct mds_value *values;   /* owned; of the sample in hand, for each column */
    uint32_t *chosen;           /* owned; the column of each field, choice.n of them */
    struct field_choice choice; /* owned */
    struct spec_image image;
    struct image_decoder *decoder; /* owned; NULL: images stay as they are stored */
    uint64_t unpacked_bytes;       /* of all shards that are kept */
    uint64_t uses;
};

/* ---- shards --------------------------------------------------------------------------------- */

/* The shard that has sample `index`, below the length. */
static struct mds_shard *mds_shard_of(const struct mds *mds, uint64_t index)
{
    uint32_t low = 0, high = mds->index.n_shards;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (mds->shards[middle].first <= index)
            low = middle;
        else
            high = middle;
    }
    return &mds->shards[low];
}

/* Those that were of no use for longest, but `keep`. */
static void mds_forget_unpacked(struct mds *mds, const struct mds_shard *keep)
{
    while (mds->unpacked_bytes > MDS_UNPACKED_BYTES) {
        struct mds_shard *oldest = NULL;
        for (uint32_t i = 0; i < mds->index.n_shards; i++) {
            struct mds_shard *shard = &mds->shards[i];
            if (shard->unpacked && shard != keep && (!oldest || shard->used < oldest->used))
                oldest = shard;
        }
        if (!oldest)
            return;
        mds->unpacked_bytes -= oldest->unpacked->bytes;
        mds_shard_close(oldest);
    }
}

static int mds_use_shard(struct mds *mds, struct mds_shard *shard, struct dl_error *err)
{
    bool kept = shard->unpacked != NULL;
    int r = mds_shard_open(shard, mds->root, mds->env, err);

    if (r < 0 || !shard->unpacked)
        return r;
    shard->used = ++mds->uses;
    if (!kept) {
        mds->unpacked_bytes += shard->unpacked->bytes;
        mds_forget_unpacked(mds, shard);
    }
    return 0;
}

/* ---- samples -------------------------------------------------------------------------------- */

/* One that is being made. */
struct mds_sample {
    struct mds *mds;
    const char *path; /* of the shard */
    uint64_t number;  /* in the shard */
};

static int mds_add_value(const struct mds_sample *s, uint32_t column, const char *name,
                         const struct image_field *field, struct sample *ret, struct dl_error *err)
{
    struct mds_value *value = &s->mds->values[column];
    struct dl_error why = {0};

    value->name = name;
    int r = mds_value_add(value, field, ret, &why);
    if (!why.code)
        return r < 0 ? sample_check(ret, err) : 0;
    return dl_error_set(err, why.code, s->path, "sample %llu: its %s %s",
                        (unsigned long long)s->number, value->column->name, why.message);
}

static int mds_add_values(const struct mds_sample *s, const struct sample_key *key, uint64_t index,
                          struct sample *ret, struct dl_error *err)
{
    const struct mds *mds = s->mds;
    struct image_field field = {
        .decoder = mds->decoder, .spec = &mds->image, .key = key, .index = index};
    const struct image_field *decoding = mds->decoder ? &field : NULL;
    bool all = mds->choice.n == 0;
    int r = 0;

    sample_begin(ret, TREE_DICT, NULL);
    for (uint32_t i = 0; r == 0 && i < (all ? mds->index.n_columns : mds->choice.n); i++) {
        uint32_t column = all ? i : mds->chosen[i];
        const char *name = all ? mds->index.columns[i].name : mds->choice.fields[i].name;
        r = mds_add_value(s, column, name, decoding, ret, err);
    }
    if (r < 0)
        return r;
    sample_end(ret);
    return sample_check(ret, err);
}

/* `data` is the shard's. */
static int mds_make(const struct mds_sample *s, const struct sample_key *key, uint64_t index,
                    const uint8_t *data, uint64_t bytes, struct sample *ret, struct dl_error *err)
{
    const uint8_t *at;
    uint64_t size;
    int r = mds_shard_find(data, bytes, s->number, s->path, &at, &size, err);

    if (r < 0)
        return r;
    if (!mds_shard_split(&s->mds->index, at, size, s->mds->values))
        return dl_error_set(err, EINVAL, s->path,
                            "sample %llu: its %llu bytes are not those of its columns; the shard "
                            "is damaged",
                            (unsigned long long)s->number, (unsigned long long)size);
    return mds_add_values(s, key, index, ret, err);
}

static int mds_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                   struct sample *ret, struct dl_error *err)
{
    struct mds *mds = container_of(ds, struct mds, base);

    if (index >= ds->length)
        return dataset_refuse_index(ds, index, err);
    struct mds_shard *shard = mds_shard_of(mds, index);
    int r = mds_use_shard(mds, shard, err);
    if (r < 0)
        return r;
    struct mds_sample s = {.mds = mds, .path = shard->path, .number = index - shard->first};
    if (!shard->unpacked)
        return mds_make(&s, key, index, shard->source.data, shard->source.bytes, ret, err);
    /* What the sample points to stays until the batch is made. */
    struct mds_unpacked *unpacked = mds_unpacked_ref(shard->unpacked);
    if (arena_hold(ret->arena, mds_unpacked_unref, unpacked) < 0)
        return dl_error_set(err, ENOMEM, "dataset", "out of memory for a sample");
    return mds_make(&s, key, index, unpacked->data, unpacked->bytes, ret, err);
}

static void mds_expect(struct dataset *ds, uint64_t index)
{
    const struct mds *mds = container_of(ds, struct mds, base);
    const struct mds_shard *shard = mds_shard_of(mds, index);

    if (shard->source.data)
        __builtin_prefetch(shard->source.data + 4 * (1 + index - shard->first));
}

static void mds_close(struct dataset *ds)
{
    struct mds *mds = container_of(ds, struct mds, base);

    for (uint32_t i = 0; mds->shards && i < mds->index.n_shards; i++)
        mds_shard_close(&mds->shards[i]);
    image_decoder_free(mds->decoder);
    field_choice_deinit(&mds->choice);
    mds_index_deinit(&mds->index);
    free(mds->shards);
    free(mds->values);
    free(mds->chosen);
    free(mds->root);
    free(mds);
}

static const struct dataset_ops mds_ops = {
    .get = mds_get, .expect = mds_expect, .close = mds_close};

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

/* Found missing now, not hours later: the shard itself, or its compressed form. */
static int mds_check_shard(const struct mds *mds, const struct mds_shard_entry *entry,
                           struct dl_error *err)
{
    char path[PATH_MAX];
    struct stat st;
    int r;

    if (entry->packed) {
        snprintf(path, sizeof path, "%s/%s", mds->root, entry->packed);
        if (source_stat(path, true, mds->env, &st) == 0)
            return 0;
    }
    snprintf(path, sizeof path, "%s/%s", mds->root, entry->raw);
    r = source_stat(path, true, mds->env, &st);
    if (r < 0)
        return dl_error_set(err, -r, path, "is listed in index.json and cannot be found: %s",
                            strerror(-r));
    if ((uint64_t)st.st_size == entry->raw_bytes)
        return 0;
    return dl_error_set(err, EINVAL, path,
                        "has %lld bytes, but index.json says %llu; it is truncated, or still being "
                        "written",
                        (long long)st.st_size, (unsigned long long)entry->raw_bytes);
}

static int mds_add_shards(struct mds *mds, struct dl_error *err)
{
    int r = 0;

    mds->shards = calloc(max_u64(mds->index.n_shards, 1), sizeof *mds->shards);
    mds->values = calloc(max_u64(mds->index.n_columns, 1), sizeof *mds->values);
    if (!mds->shards || !mds->values)
        return dl_error_set(err, ENOMEM, mds->root, "out of memory");
    for (uint32_t i = 0; r == 0 && i < mds->index.n_shards; i++) {
        mds->shards[i].entry = &mds->index.shards[i];
        mds->shards[i].first = mds->base.length;
        mds->base.length += mds->index.shards[i].samples;
        r = mds_check_shard(mds, &mds->index.shards[i], err);
    }
    return r;
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
                            "its column %s is pickled, and reading it would run what it says; "
                            "choose others with dataset.fields",
                            column->name);
    if (column->sort == MDS_PIXELS && mds->decoder && mds->image.transform != TRANSFORM_NONE)
        return dl_error_set(err, EINVAL, mds->root,
                            "its column %s has images that are not compressed, which cannot be "
                            "brought to a size; write them as jpeg or png, or leave dataset.size "
                            "out",
                            column->name);
    return 0;
}

static int mds_choose_columns(struct mds *mds, struct dl_error *err)
{
    int r = 0;

    mds->chosen = calloc(max_u64(mds->choice.n, 1), sizeof *mds->chosen);
    if (!mds->chosen)
        return dl_error_set(err, ENOMEM, mds->root, "out of memory");
    for (uint32_t i = 0; r == 0 && i < mds->choice.n; i++) {
        r = mds_find_column(mds, mds->choice.fields[i].source, &mds->chosen[i], err);
        if (r == 0)
            r = mds_check_column(mds, &mds->index.columns[mds->chosen[i]], err);
    }
    for (uint32_t i = 0; r == 0 && mds->choice.n == 0 && i < mds->index.n_columns; i++)
        r = mds_check_column(mds, &mds->index.columns[i], err);
    return r;
}

int mds_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
             struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep)
    struct dataset *ds = NULL;
    struct mds *mds;
    int r;

    if (spec->n_files != 1)
        return dl_error_set(err, EINVAL, place, "is not one directory");
    mds = calloc(1, sizeof *mds);
    if (!mds)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &mds->base;
    ds->ops = &mds_ops;
    mds->env = env;
    mds->image = spec->image;
    mds->root = strdup(spec->files[0].path);
    if (!mds->root)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    if ((r = field_choice_init(&mds->choice, spec, place, err)) < 0 ||
        (r = image_field_decoder(spec, place, &mds->decoder, err)) < 0 ||
        (r = mds_read_index(mds->root, env, &mds->index, err)) < 0 ||
        (r = mds_add_shards(mds, err)) < 0 || (r = mds_choose_columns(mds, err)) < 0)
        return r;
    *ret = steal_ptr(ds);
    return 0;
}

int mds_list_files(const struct spec_dataset *spec, const struct data_env *env,
                   struct file_list *ret, struct dl_error *err)
{
    const char *root = spec->files[0].path;
    struct mds_index index = {0};
    char path[PATH_MAX];
    struct stat st;
    int r = mds_read_index(root, env, &index, err);

    if (r < 0)
        return r;
    snprintf(path, sizeof path, "%s/index.json", root);
    r = file_list_add(ret, path, err);
    for (uint32_t i = 0; r == 0 && i < index.n_shards; i++) {
        const struct mds_shard_entry *entry = &index.shards[i];
        snprintf(path, sizeof path, "%s/%s", root, entry->raw);
        if (entry->packed && source_stat(path, true, env, &st) < 0)
            snprintf(path, sizeof path, "%s/%s", root, entry->packed);
        r = file_list_add(ret, path, err);
    }
    mds_index_deinit(&index);
    return r;
}
