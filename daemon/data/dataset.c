/*
 * From a spec to an open dataset. The kinds that are files of equal rows (idx, npy, records) share
 * one dataset here: a group of arrays with equally many rows, one leaf each, in the spec's order.
 */
#include "daemon/data/arrays/array.h"
#include "daemon/data/arrow/arrow.h"
#include "daemon/data/audio/audiofolder.h"
#include "daemon/data/combine/combine.h"
#include "daemon/data/csv/csv.h"
#include "daemon/data/dataset_fingerprint.h"
#include "daemon/data/hdf5/hdf5.h"
#include "daemon/data/litdata/litdata.h"
#include "daemon/data/lmdb/lmdb.h"
#include "daemon/data/mds/mds.h"
#include "daemon/data/megatron/megatron.h"
#include "daemon/data/parquet/parquet.h"
#include "daemon/data/plugin/plugin.h"
#include "daemon/data/rng.h"
#include "daemon/data/tar/tar.h"
#include "daemon/data/text/text.h"
#include "daemon/data/tfrecord/tfrecord.h"
#include "daemon/data/tokenizer/tokenized.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

struct array_group {
    struct dataset base;
    char *path;            /* owned; of the first file */
    struct array arrays[]; /* base.n_leaves of them; owned */
};

int dataset_refuse_index(const struct dataset *ds, uint64_t index, struct dl_error *err)
{
    return dl_error_set(err, ERANGE, "", "sample %llu is beyond the dataset's %llu samples",
                        (unsigned long long)index, (unsigned long long)ds->length);
}

size_t dataset_put_name(const char *path, const char *what, uint64_t n, char *ret, size_t room)
{
    int len = snprintf(ret, room, "%s: %s %llu", path, what, (unsigned long long)n);

    return len < 0 ? 0 : (size_t)len;
}

static int dataset_group_read_rows(struct dataset *ds, const struct sample_key *key,
                                   const uint64_t *indices, size_t n, void *const *dst,
                                   size_t *ret_bad, struct dl_error *err)
{
    struct array_group *group = container_of(ds, struct array_group, base);

    for (uint32_t leaf = 0; leaf < ds->n_leaves; leaf++) {
        size_t done = array_read_rows(&group->arrays[leaf], indices, n, dst[leaf]);
        if (done < n) {
            *ret_bad = done;
            return dataset_refuse_index(ds, indices[done], err);
        }
    }
    return 0;
}

static size_t dataset_group_name(struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    const struct array_group *group = container_of(ds, struct array_group, base);

    return dataset_put_name(group->path, "row", index, ret, room);
}

static void dataset_group_close(struct dataset *ds)
{
    struct array_group *group = container_of(ds, struct array_group, base);

    for (uint32_t leaf = 0; leaf < ds->n_leaves; leaf++)
        array_deinit(&group->arrays[leaf]);
    tree_deinit(&ds->schema);
    free(group->path);
    free(group);
}

static void dataset_group_expect(struct dataset *ds, uint64_t index)
{
    const struct array_group *group = container_of(ds, struct array_group, base);

    for (uint32_t leaf = 0; leaf < ds->n_leaves; leaf++)
        array_expect(&group->arrays[leaf], index);
}

static const struct dataset_ops group_ops = {.read_rows = dataset_group_read_rows,
                                             .name = dataset_group_name,
                                             .expect = dataset_group_expect,
                                             .close = dataset_group_close};

static int dataset_open_array(const struct spec_dataset *spec, uint32_t i,
                              const struct data_env *env, struct array *ret, struct dl_error *err)
{
    switch (spec->kind) {
    case DATASET_IDX:
        return idx_open(spec->files[i].path, env, ret, err);
    case DATASET_NPY:
        return npy_open(spec->files[i].path, env, ret, err);
    default:
        return records_open(spec, env, ret, err);
    }
}

/* Row i of every file is sample i: the files must have equally many. */
static int dataset_check_length(const struct spec_dataset *spec, uint32_t i, uint64_t length,
                                uint64_t first, struct dl_error *err)
{
    if (length == first)
        return 0;
    return dl_error_set(err, EINVAL, spec->files[i].path,
                        "has %llu samples, but %s has %llu; all files of a dataset need equally "
                        "many",
                        (unsigned long long)length, spec->files[0].path, (unsigned long long)first);
}

static int dataset_describe(const struct spec_dataset *spec, const struct array_group *group,
                            struct tree *ret)
{
    int r = 0;

    if (spec->files[0].field)
        r = tree_add(ret, TREE_DICT, NULL, spec->n_files);
    for (uint32_t i = 0; i < spec->n_files && r == 0; i++) {
        const struct array *array = &group->arrays[i];
        r = tree_add_tensor(ret, spec->files[i].field, array->dtype, array->ndim, array->shape);
    }
    return r;
}

/* The spec comes checked (spec.h); these three would make us read beyond it. */
static int dataset_check_files(const struct spec_dataset *spec, struct dl_error *err)
{
    if (spec->n_files == 0 || spec->n_files > DL_MAX_DATASET_FILES)
        return dl_error_set(err, EINVAL, "dataset.paths", "%u files; 1 to %llu can be read",
                            spec->n_files, (unsigned long long)DL_MAX_DATASET_FILES);
    for (uint32_t i = 0; i < spec->n_files; i++) {
        if (!spec->files[i].path)
            return dl_error_set(err, EINVAL, "dataset.paths", "file %u has no path", i);
        if (!spec->files[i].field != !spec->files[0].field ||
            (!spec->files[i].field && spec->n_files > 1))
            return dl_error_set(err, EINVAL, "dataset.paths",
                                "each of several files needs a "
                                "field");
    }
    return 0;
}

static int dataset_open_group(const struct spec_dataset *spec, const struct data_env *env,
                              struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep)
    struct dataset *ds = NULL;
    struct array_group *group;
    int r;

    r = dataset_check_files(spec, err);
    if (r < 0)
        return r;
    group = calloc(1, sizeof *group + spec->n_files * sizeof group->arrays[0]);
    if (!group)
        return dl_error_set(err, ENOMEM, "dataset", "out of memory");
    ds = &group->base;
    ds->ops = &group_ops;
    ds->n_leaves = spec->n_files;
    group->path = strdup(spec->files[0].path);
    if (!group->path)
        return dl_error_set(err, ENOMEM, "dataset", "out of memory");
    for (uint32_t i = 0; i < spec->n_files; i++) {
        r = dataset_open_array(spec, i, env, &group->arrays[i], err);
        if (r < 0)
            return r;
        r = dataset_check_length(spec, i, group->arrays[i].count, group->arrays[0].count, err);
        if (r < 0)
            return r;
    }
    ds->length = group->arrays[0].count;
    r = dataset_describe(spec, group, &ds->schema);
    if (r < 0)
        return dl_error_set(err, -r, "dataset", "its samples cannot be described: %s",
                            strerror(-r));
    *ret = steal_ptr(ds);
    return 0;
}

int dataset_open(const struct spec_dataset *spec, const struct data_env *env, struct dataset **ret,
                 struct dl_error *err)
{
    return dataset_open_at(spec, "dataset", env, ret, err);
}

static int dataset_open_kind(const struct spec_dataset *spec, const char *place,
                             const struct data_env *env, struct dataset **ret, struct dl_error *err)
{
    switch (spec->kind) {
    case DATASET_RANGE:
        return range_open(spec, ret, err);
    case DATASET_IDX:
    case DATASET_NPY:
    case DATASET_RECORDS:
        return dataset_open_group(spec, env, ret, err);
    case DATASET_TOKENS:
        return tokens_open(spec, place, env, ret, err);
    case DATASET_CONCAT:
        return concat_open(spec, place, env, NULL, ret, err);
    case DATASET_MIX:
        return mix_open(spec, place, env, ret, err);
    case DATASET_SUBSET:
    case DATASET_SPLIT:
        return subset_open(spec, place, env, ret, err);
    case DATASET_CHAIN:
        return chain_open(spec, place, env, ret, err);
    case DATASET_TEXT:
        return text_open(spec, place, env, ret, err);
    case DATASET_IMAGEFOLDER:
        return imagefolder_open(spec, place, env, ret, err);
    case DATASET_TAR:
        return (spec->index > INDEX_OFF ? tar_indexed_open : tar_open)(spec, place, env, ret, err);
    case DATASET_MEGATRON:
        return megatron_open(spec, place, env, ret, err);
    case DATASET_MDS:
        return mds_open(spec, place, env, ret, err);
    case DATASET_LITDATA:
        return litdata_open(spec, place, env, ret, err);
    case DATASET_TFRECORD:
        return tfrecord_open(spec, place, env, ret, err);
    case DATASET_PARQUET:
        return parquet_open(spec, place, env, ret, err);
    case DATASET_ARROW:
        return arrow_open(spec, place, env, ret, err);
    case DATASET_CSV:
        return csv_open(spec, place, env, ret, err);
    case DATASET_LMDB:
        return lmdb_open(spec, place, env, ret, err);
    case DATASET_AUDIOFOLDER:
        return audiofolder_open(spec, place, env, ret, err);
    case DATASET_HDF5:
        return hdf5_open(spec, place, env, ret, err);
    case DATASET_PLUGIN:
        data_turn_to(env, ""); /* what others' code waits for is not known */
        return plugin_open(spec, place, env, ret, err);
    case DATASET_PYTHON:
        data_turn_to(env, "");
        if (env->open_python)
            return env->open_python(spec, place, env, ret, err);
        return dl_error_set(err, ENOTSUP, place,
                            "a dataset of kind python needs a Python interpreter; open the loader "
                            "at a daemon, whose workers have one");
    }
    return dl_error_set(err, EINVAL, "dataset.kind", "%u is not a kind of dataset",
                        (unsigned)spec->kind);
}

int dataset_open_at(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                    struct dataset **ret, struct dl_error *err)
{
    int r = dataset_open_kind(spec, place, env, ret, err);

    if (r == 0 && tokenized_is_asked_for(spec))
        r = tokenized_open(spec, place, env, ret, err);
    if (r == 0 && (*ret)->content == 0) {
        r = dataset_fingerprint(spec, env, &(*ret)->content, err);
        if (r < 0)
            *ret = dataset_close(*ret);
    }
    return r;
}

struct dataset *dataset_close(struct dataset *ds)
{
    if (ds)
        ds->ops->close(ds);
    return NULL;
}

/* The schema as the sample's tree, and memory for each leaf. */
static int dataset_copy_schema(const struct dataset *ds, struct sample *ret, void **dst)
{
    const struct tree *schema = &ds->schema;
    uint32_t leaf = 0;

    for (uint32_t i = 0; i < schema->count; i++) {
        const struct tree_node *node = &schema->nodes[i];
        if (node->kind == TREE_TENSOR)
            dst[leaf++] = sample_alloc(ret, node->nbytes);
    }
    return sample_copy_tree(ret, schema, (const void *const *)dst);
}

int dataset_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                struct sample *ret, struct dl_error *err)
{
    size_t bad;

    if (index >= ds->length)
        return dataset_refuse_index(ds, index, err);
    if (ds->ops->get)
        return ds->ops->get(ds, key, index, ret, err);
    void **dst = sample_alloc(ret, max_u64(ds->n_leaves, 1) * sizeof *dst);
    int r = dst ? dataset_copy_schema(ds, ret, dst) : ret->error;
    if (r < 0)
        return sample_check(ret, err);
    return ds->ops->read_rows(ds, key, &index, 1, dst, &bad, err);
}

/* Counters that no sample has: those of samples are 0 in this place. */
enum { COUNTER_REPLICAS = 1, COUNTER_STEPS = 2 };

uint64_t dataset_replica_seed(uint64_t seed, uint64_t epoch, uint32_t rank, uint32_t workers,
                              uint32_t worker)
{
    philox4x64_key_t key = {.v = {seed, epoch}};
    philox4x64_ctr_t counter = {.v = {0, 0, 0, COUNTER_REPLICAS}};

    /* 63 bits, as PyTorch's base seed has; replicas of one epoch differ by what is added. */
    return (philox4x64(counter, key).v[0] >> 1) + (uint64_t)rank * workers + worker;
}

uint64_t dataset_step_seed(uint64_t seed, uint64_t epoch, uint32_t rank, uint64_t step)
{
    philox4x64_key_t key = {.v = {seed, epoch}};
    philox4x64_ctr_t counter = {.v = {step, rank, 0, COUNTER_STEPS}};

    return philox4x64(counter, key).v[0] >> 1;
}
