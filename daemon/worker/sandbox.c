/* What holds for any worker, and the sandbox's files: which of them a spec is about. */
#include "daemon/worker/sandbox.h"

#include "daemon/data/files/seen.h"
#include "daemon/data/files/source.h"
#include "daemon/data/kinds/kinds.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/*
 * Anybody may say so of itself, and not take it back. The pages of a ring count as nobody's while
 * they are allocated: the kernel would look elsewhere.
 */
void sandbox_go_first(void)
{
    _cleanup_fd_ int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd >= 0)
        (void)!write(fd, "1000", 4);
}

/*
 * No limit on the size of files: it would hold for segments, too, which the worker allocates. None
 * on processes: it counts all that the user has, and would keep threads from starting. Both are for
 * the calls and the files below.
 */
void sandbox_harden(void)
{
    static const int none[] = {RLIMIT_CORE, RLIMIT_MSGQUEUE, RLIMIT_RTPRIO};
    const struct rlimit zero = {0, 0};

    sandbox_go_first();
    /* None of these can fail for a reason the worker could act on. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    for (size_t i = 0; i < ARRAY_SIZE(none); i++)
        (void)setrlimit((__rlimit_resource_t)none[i], &zero);
    (void)signal(SIGPIPE, SIG_IGN);
    /* Ctrl-C in the terminal of a daemon run by hand is the daemon's to handle. */
    (void)signal(SIGINT, SIG_IGN);
}

/* One by one, as they are listed. */
static void sandbox_close_listed(int first)
{
    DIR *list = opendir("/proc/self/fd");

    if (!list)
        return;
    for (struct dirent *entry; (entry = readdir(list));) {
        int fd = (int)strtol(entry->d_name, NULL, 10); /* 0 of "." and ".." */

        if (fd >= first && fd != dirfd(list))
            close(fd);
    }
    closedir(list);
}

/* The libc has a name for the call from glibc 2.34 on only, and Linux has it from 5.9 on. */
void sandbox_close_from(int first)
{
    if (syscall(SYS_close_range, (unsigned)first, ~0u, 0) < 0)
        sandbox_close_listed(first);
}

/* ---- what a spec is about -------------------------------------------------------------------- */

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
 * Where the file is that `path` leads to. False: there is none, or none that may be read: to name
 * it opens nothing.
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

/* The plug-in, the libraries beside it, and whatever of the data its configuration names. */
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

/* Files that are opened once, with the dataset: they alone. */
static void sandbox_allow_files(struct sandbox_files *files, const struct spec_dataset *dataset,
                                const struct data_env *env)
{
    for (uint32_t i = 0; i < dataset->n_files; i++) {
        sandbox_allow_file(files, dataset->files[i].path, env);
        if (files_sort_of(dataset->kind) == FILES_LISTED &&
            sandbox_is_pattern(dataset->files[i].path))
            sandbox_allow_roots(files, env);
    }
    if (dataset->model)
        sandbox_allow_file(files, dataset->model, env);
}

/* Files whose names follow from the spec's. */
static void sandbox_allow_known(struct sandbox_files *files, const struct spec_dataset *dataset,
                                const struct data_env *env)
{
    _cleanup_(file_list_deinit)
    struct file_list list = {0};

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
