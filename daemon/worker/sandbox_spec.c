/* The sandbox's files: which of them a spec is about. */
#include "daemon/worker/sandbox.h"

#include <limits.h>

/* What can only be found by looking around, as the daemon lets it: below its data_roots. */
static void allow_roots(struct sandbox_files *files, const struct data_env *env)
{
    for (uint32_t i = 0; i < env->n_roots; i++)
        sandbox_files_allow(files, env->roots[i]);
    if (env->n_roots == 0)
        sandbox_files_allow(files, "/");
}

/* The directory of the file that `path` leads to. */
static void allow_directory_of(struct sandbox_files *files, const char *path)
{
    char resolved[PATH_MAX];

    if (!realpath(path, resolved))
        return;
    resolved[max_u64((uint64_t)(strrchr(resolved, '/') - resolved), 1)] = '\0';
    sandbox_files_allow(files, resolved);
}

static bool is_pattern(const char *path)
{
    return strpbrk(path, "*?[{\\") != NULL;
}

/* Files that are opened once, with the dataset: they alone. */
static void allow_files(struct sandbox_files *files, const struct spec_dataset *dataset,
                        const struct data_env *env)
{
    for (uint32_t i = 0; i < dataset->n_files; i++) {
        sandbox_files_allow(files, dataset->files[i].path);
        if (dataset->kind == DATASET_TEXT && is_pattern(dataset->files[i].path))
            allow_roots(files, env);
    }
    if (dataset->model)
        sandbox_files_allow(files, dataset->model);
}

/* Shards are opened again in each epoch, and may have been replaced by then. */
static void allow_shards(struct sandbox_files *files, const struct spec_dataset *dataset,
                         const struct data_env *env)
{
    for (uint32_t i = 0; i < dataset->n_files; i++) {
        if (is_pattern(dataset->files[i].path))
            allow_roots(files, env);
        else
            allow_directory_of(files, dataset->files[i].path);
    }
}

static void allow_dataset(struct sandbox_files *files, const struct spec_dataset *dataset,
                          const struct data_env *env)
{
    for (uint32_t i = 0; i < dataset->n_datasets; i++)
        allow_dataset(files, &dataset->datasets[i], env);
    switch (dataset->kind) {
    case DATASET_IDX:
    case DATASET_NPY:
    case DATASET_RECORDS:
    case DATASET_TOKENS:
    case DATASET_TEXT:
        allow_files(files, dataset, env);
        break;
    case DATASET_TAR:
        allow_shards(files, dataset, env);
        break;
    case DATASET_PLUGIN: /* and the libraries beside it */
        allow_directory_of(files, dataset->files[0].path);
        allow_roots(files, env);
        break;
    case DATASET_IMAGEFOLDER: /* links in it may lead anywhere */
    case DATASET_PYTHON:
        allow_roots(files, env);
        break;
    case DATASET_RANGE:
    case DATASET_CONCAT:
    case DATASET_SUBSET:
    case DATASET_SPLIT:
    case DATASET_CHAIN:
        break;
    }
}

void sandbox_files_allow_spec(struct sandbox_files *files, const struct dl_spec *spec,
                              const struct data_env *env)
{
    allow_dataset(files, &spec->dataset, env);
    if (spec->collate.kind == COLLATE_PLUGIN) {
        allow_directory_of(files, spec->collate.path);
        allow_roots(files, env);
    }
    if (spec->collate.kind == COLLATE_PYTHON)
        allow_roots(files, env);
}
