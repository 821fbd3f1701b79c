/* The sandbox's files: those that a spec needs. */
#include "daemon/worker/sandbox.h"

#include "daemon/data/decode/tokenizer/chat_file.h"
#include "daemon/data/files/seen.h"
#include "daemon/data/files/source.h"
#include "daemon/data/kinds/kinds.h"

#include <limits.h>

/* What can only be found by looking around, as the daemon lets it: below its data_roots. */
static void sandbox_allow_roots(struct sandbox_files *files, const struct data_env *env)
{
    for (uint32_t i = 0; i < env->n_roots; i++)
        sandbox_files_allow(files, env->roots[i]);
    if (env->n_roots == 0)
        sandbox_files_allow(files, "/");
}

static bool sandbox_lies_below(const char *path, char **directories, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (path_below(path, directories[i]))
            return true;
    }
    return false;
}

/*
 * Resolves `path` to its file. False if it is missing or not allowed: naming it would open nothing.
 */
static bool sandbox_find(const char *path, const struct data_env *env, char ret[static PATH_MAX])
{
    char place[PATH_MAX];

    data_turn_to(env, path);
    return realpath(seen_place(env, path, place), ret) &&
           (env->n_roots == 0 || sandbox_lies_below(ret, env->roots, env->n_roots));
}

static void sandbox_allow_file(struct sandbox_files *files, const char *path,
                               const struct data_env *env)
{
    char resolved[PATH_MAX];

    if (sandbox_find(path, env, resolved))
        sandbox_files_allow(files, resolved);
}

static void sandbox_allow_directory_of(struct sandbox_files *files, char *resolved)
{
    resolved[max_u64((uint64_t)(strrchr(resolved, '/') - resolved), 1)] = '\0';
    sandbox_files_allow(files, resolved);
}

/* The plug-in, the libraries beside it, and the data files that its configuration names. */
static void sandbox_allow_plugin(struct sandbox_files *files, const char *path,
                                 const struct data_env *env)
{
    char resolved[PATH_MAX];

    data_turn_to(env, path);
    if (realpath(path, resolved) && sandbox_lies_below(resolved, env->plugins, env->n_plugins))
        sandbox_allow_directory_of(files, resolved);
    sandbox_allow_roots(files, env);
}

static bool sandbox_is_pattern(const char *path)
{
    return strpbrk(path, "*?[{\\") != NULL;
}

/* Files that are opened once, with the dataset: only these. */
static void sandbox_allow_files(struct sandbox_files *files, const struct spec_dataset *dataset,
                                const struct data_env *env)
{
    char beside[DL_BOUND_PATH_BYTES];

    for (uint32_t i = 0; i < dataset->n_files; i++) {
        sandbox_allow_file(files, dataset->files[i].path, env);
        if (files_sort_of(dataset->kind) == FILES_LISTED &&
            sandbox_is_pattern(dataset->files[i].path))
            sandbox_allow_roots(files, env);
    }
    if (dataset->model)
        sandbox_allow_file(files, dataset->model, env);
    if (dataset->chat_template)
        sandbox_allow_file(files, dataset->chat_template, env);
    if (chat_file_beside(dataset, beside))
        sandbox_allow_file(files, beside, env);
}

/* Files whose names follow from the spec's. */
static void sandbox_allow_known(struct sandbox_files *files, const struct spec_dataset *dataset,
                                const struct data_env *env)
{
    _cleanup_(file_list_deinit) struct file_list list = {0};

    if (spec_files_list(dataset, env, &list, NULL) < 0)
        return;
    for (uint32_t i = 0; i < list.n; i++)
        sandbox_allow_file(files, list.paths[i], env);
}

/* Shards are opened again in each epoch, and may have been replaced by then. */
static void sandbox_allow_shards(struct sandbox_files *files, const struct spec_dataset *dataset,
                                 const struct data_env *env)
{
    char resolved[PATH_MAX];

    for (uint32_t i = 0; i < dataset->n_files; i++) {
        if (sandbox_is_pattern(dataset->files[i].path))
            sandbox_allow_roots(files, env);
        else if (sandbox_find(dataset->files[i].path, env, resolved))
            sandbox_allow_directory_of(files, resolved);
    }
    if (dataset->index_path)
        sandbox_allow_file(files, dataset->index_path, env);
}

static void sandbox_allow_dataset(struct sandbox_files *files, const struct spec_dataset *dataset,
                                  const struct data_env *env)
{
    for (uint32_t i = 0; i < dataset->n_datasets; i++)
        sandbox_allow_dataset(files, &dataset->datasets[i], env);
    switch (files_sort_of(dataset->kind)) {
    case FILES_NAMED:
    case FILES_LISTED:
        sandbox_allow_files(files, dataset, env);
        break;
    case FILES_KNOWN:
        sandbox_allow_known(files, dataset, env);
        break;
    case FILES_SHARDS:
        sandbox_allow_shards(files, dataset, env);
        break;
    case FILES_PLUGIN:
        sandbox_allow_plugin(files, dataset->files[0].path, env);
        break;
    case FILES_FOLDER:
    case FILES_CODE:
        sandbox_allow_roots(files, env);
        break;
    case FILES_NONE:
        break;
    }
}

void sandbox_files_allow_spec(struct sandbox_files *files, const struct dl_spec *spec,
                              const struct data_env *env)
{
    sandbox_allow_dataset(files, &spec->dataset, env);
    if (spec->collate.kind == COLLATE_PLUGIN)
        sandbox_allow_plugin(files, spec->collate.path, env);
    if (spec->collate.kind == COLLATE_PYTHON)
        sandbox_allow_roots(files, env);
}
