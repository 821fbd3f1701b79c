/*
 * The kinds that are files of equal rows (idx, npy, records): a group of arrays with equally many
 * rows, one leaf each, in the spec's order.
 */
#include "daemon/data/kinds/arrays/array.h"
#include "daemon/data/kinds/kinds.h"

#include <errno.h>

struct array_group {
    struct dataset base;
    char *path;            /* owned; of the first file */
    struct array arrays[]; /* base.n_leaves of them; owned */
};

static int array_group_read_rows(struct dataset *ds, const struct sample_key *key,
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

static size_t array_group_name(struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    const struct array_group *group = container_of(ds, struct array_group, base);

    return dataset_put_name(group->path, "row", index, ret, room);
}

static void array_group_close(struct dataset *ds)
{
    struct array_group *group = container_of(ds, struct array_group, base);

    for (uint32_t leaf = 0; leaf < ds->n_leaves; leaf++)
        array_deinit(&group->arrays[leaf]);
    tree_deinit(&ds->schema);
    free(group->path);
    free(group);
}

static void array_group_expect(struct dataset *ds, uint64_t index)
{
    const struct array_group *group = container_of(ds, struct array_group, base);

    for (uint32_t leaf = 0; leaf < ds->n_leaves; leaf++)
        array_expect(&group->arrays[leaf], index);
}

static const struct dataset_ops array_group_ops = {.read_rows = array_group_read_rows,
                                                   .name = array_group_name,
                                                   .expect = array_group_expect,
                                                   .close = array_group_close};

static int array_group_open_array(const struct spec_dataset *spec, uint32_t i,
                                  const struct data_env *env, struct array *ret,
                                  struct dl_error *err)
{
    switch (spec->kind) {
    case DATASET_IDX:
        return array_open_idx(spec->files[i].path, env, ret, err);
    case DATASET_NPY:
        return array_open_npy(spec->files[i].path, env, ret, err);
    default:
        return array_open_records(spec, env, ret, err);
    }
}

/* Row i of every file is sample i: the files must have equally many. */
static int array_group_check_length(const struct spec_dataset *spec, uint32_t i, uint64_t length,
                                    uint64_t first, struct dl_error *err)
{
    if (length == first)
        return 0;
    return dl_error_set(err, EINVAL, spec->files[i].path,
                        "has %llu samples, but %s has %llu; all files of a dataset need equally "
                        "many",
                        (ull)length, spec->files[0].path, (ull)first);
}

static int array_group_describe(const struct spec_dataset *spec, const struct array_group *group,
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
static int array_group_check_files(const struct spec_dataset *spec, struct dl_error *err)
{
    if (spec->n_files == 0 || spec->n_files > DL_MAX_DATASET_FILES)
        return dl_error_set(err, EINVAL, "dataset.paths", "%u files; 1 to %llu can be read",
                            spec->n_files, (ull)DL_MAX_DATASET_FILES);
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

static int array_group_open(const struct spec_dataset *spec, const struct data_env *env,
                            struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep) struct dataset *ds = NULL;
    struct array_group *group;
    int r;

    r = array_group_check_files(spec, err);
    if (r < 0)
        return r;
    group = calloc(1, sizeof *group + spec->n_files * sizeof group->arrays[0]);
    if (!group)
        return dl_error_set(err, ENOMEM, "dataset", "out of memory");
    ds = &group->base;
    ds->ops = &array_group_ops;
    ds->n_leaves = spec->n_files;
    group->path = strdup(spec->files[0].path);
    if (!group->path)
        return dl_error_set(err, ENOMEM, "dataset", "out of memory");
    for (uint32_t i = 0; i < spec->n_files; i++) {
        r = array_group_open_array(spec, i, env, &group->arrays[i], err);
        if (r < 0)
            return r;
        r = array_group_check_length(spec, i, group->arrays[i].count, group->arrays[0].count, err);
        if (r < 0)
            return r;
    }
    ds->length = group->arrays[0].count;
    r = array_group_describe(spec, group, &ds->schema);
    if (r < 0)
        return dl_error_set(err, -r, "dataset", "its samples cannot be described: %s",
                            strerror(-r));
    *ret = steal_ptr(ds);
    return 0;
}

int idx_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
             struct dataset **ret, struct dl_error *err)
{
    return array_group_open(spec, env, ret, err);
}

int npy_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
             struct dataset **ret, struct dl_error *err)
{
    return array_group_open(spec, env, ret, err);
}

int records_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                 struct dataset **ret, struct dl_error *err)
{
    return array_group_open(spec, env, ret, err);
}
