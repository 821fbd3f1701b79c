#include "daemon/data/spec_files.h"

#include "daemon/data/arrow/arrow_files.h"
#include "daemon/data/litdata/litdata.h"
#include "daemon/data/lmdb/lmdb.h"
#include "daemon/data/mds/mds.h"
#include "daemon/data/megatron/megatron.h"
#include "daemon/data/parquet/files.h"
#include "daemon/data/tar/tar.h"

#include <errno.h>

enum files_sort files_sort_of(enum dataset_kind kind)
{
    switch (kind) {
    case DATASET_IDX:
    case DATASET_NPY:
    case DATASET_RECORDS:
    case DATASET_TOKENS:
    case DATASET_HDF5:
        return FILES_NAMED;
    case DATASET_TEXT:
    case DATASET_TFRECORD:
    case DATASET_ARROW:
    case DATASET_CSV:
        return FILES_LISTED;
    case DATASET_MEGATRON:
    case DATASET_LMDB:
        return FILES_KNOWN;
    case DATASET_TAR:
        return FILES_SHARDS;
    case DATASET_IMAGEFOLDER:
    case DATASET_AUDIOFOLDER:
    case DATASET_MDS:
    case DATASET_LITDATA:
    case DATASET_PARQUET:
        return FILES_FOLDER;
    case DATASET_PLUGIN:
        return FILES_PLUGIN;
    case DATASET_PYTHON:
        return FILES_CODE;
    case DATASET_RANGE:
    case DATASET_CONCAT:
    case DATASET_MIX:
    case DATASET_SUBSET:
    case DATASET_SPLIT:
    case DATASET_CHAIN:
        break;
    }
    return FILES_NONE;
}

static int spec_files_add_named(const struct spec_dataset *spec, struct file_list *list,
                                struct dl_error *err)
{
    int r = 0;

    for (uint32_t i = 0; i < spec->n_files && r == 0; i++)
        r = file_list_add(list, spec->files[i].path, err);
    return r;
}

/* Of a folder of classes none: class_list.h lists it. */
static int spec_files_add_folder(const struct spec_dataset *spec, const struct data_env *env,
                                 struct file_list *list, struct dl_error *err)
{
    if (spec->kind == DATASET_MDS)
        return mds_list_files(spec, env, list, err);
    if (spec->kind == DATASET_LITDATA)
        return litdata_list_files(spec, env, list, err);
    return spec->kind == DATASET_PARQUET ? parquet_list_files(spec, env, list, err) : 0;
}

int spec_files_list(const struct spec_dataset *spec, const struct data_env *env,
                    struct file_list *ret, struct dl_error *err)
{
    _cleanup_(file_list_deinit)
    struct file_list list = {0};
    int r = 0;

    switch (files_sort_of(spec->kind)) {
    case FILES_NAMED:
        r = spec_files_add_named(spec, &list, err);
        break;
    case FILES_LISTED:
    case FILES_SHARDS:
        if (spec->kind == DATASET_ARROW) {
            r = arrow_files_list(spec, env, &list, err);
            break;
        }
        r = file_list_make(spec, env, &list, err);
        if (r == 0)
            r = tar_list_index(spec, env, &list, &list, err);
        break;
    case FILES_KNOWN:
        if (spec->kind == DATASET_LMDB)
            r = lmdb_list_files(spec, env, &list, err);
        else
            r = megatron_list_files(spec, &list, err);
        break;
    case FILES_FOLDER:
        r = spec_files_add_folder(spec, env, &list, err);
        break;
    case FILES_PLUGIN:
    case FILES_CODE:
        return dl_error_set(err, ENOTSUP, "dataset.kind", "is code, whose files are not known");
    case FILES_NONE:
        break;
    }
    if (r == 0 && spec->model)
        r = file_list_add(&list, spec->model, err);
    if (r < 0)
        return r;
    *ret = list;
    list = (struct file_list){0};
    return 0;
}
