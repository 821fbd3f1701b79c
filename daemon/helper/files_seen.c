#include "daemon/helper/files_seen.h"

#include "daemon/data/files/file_hasher.h"
#include "daemon/data/files/source.h"
#include "daemon/data/kinds/kinds.h"

#include <endian.h>
#include <errno.h>

/* What is behind URLs is known by what the stores say of it, which workers compare themselves. */
static int files_seen_list(const struct spec_dataset *spec, const struct data_env *env,
                           struct file_list *ret, struct dl_error *err)
{
    _cleanup_(file_list_deinit) struct file_list own = {0};
    enum files_sort sort = files_sort_of(spec->kind);
    int r = 0;

    if (sort != FILES_CODE && sort != FILES_PLUGIN &&
        (spec->n_datasets > 0 || !spec_is_remote(spec)))
        r = spec_files_list(spec, env, &own, err);
    for (uint32_t i = 0; r == 0 && i < own.n; i++)
        r = file_list_add(ret, own.paths[i], err);
    for (uint32_t i = 0; r == 0 && i < spec->n_datasets; i++)
        r = files_seen_list(&spec->datasets[i], env, ret, err);
    return r;
}

/* One that is missing has a sum of that. */
static uint64_t files_seen_sum(const char *path, const struct data_env *env)
{
    struct file_hasher hasher;
    struct stat st;

    file_hasher_begin(&hasher, env);
    file_hasher_add(&hasher, path, strlen(path));
    (void)file_hasher_add_file(&hasher, path, &st);
    return file_hasher_end(&hasher);
}

/* Which of `n` files the sum `i` of `n_sums` is of. */
static uint32_t files_seen_place(uint32_t i, uint32_t n_sums, uint32_t n)
{
    return n_sums > 1 ? (uint32_t)((uint64_t)i * (n - 1) / (n_sums - 1)) : 0;
}

int files_seen_make(const struct dl_spec *spec, const struct data_env *env, struct files_seen *ret,
                    struct dl_error *err)
{
    _cleanup_(file_list_deinit) struct file_list list = {0};
    int r = files_seen_list(&spec->dataset, env, &list, err);

    if (r < 0)
        return r;
    ret->n = list.n;
    ret->n_sums = (uint32_t)min_u64(list.n, FILES_SEEN_MAX);
    for (uint32_t i = 0; i < ret->n_sums; i++)
        ret->sums[i] =
            htole64(files_seen_sum(list.paths[files_seen_place(i, ret->n_sums, list.n)], env));
    return 0;
}

static int files_seen_differ(const char *path, const struct data_env *env, struct dl_error *err)
{
    _cleanup_fd_ int fd = -1;
    uint64_t bytes;

    if (*path == '/' && source_open_file(path, env, &fd, &bytes, err) == -EACCES)
        return -EACCES; /* said: the helper has a user of its own */
    return dl_error_set(err, ESTALE, path,
                        "differs on the helper's machine from the daemon's, by its size or its "
                        "content, or is missing there; give both the same files under the same "
                        "path (data_roots with seen_as)");
}

int files_seen_compare(const struct dl_spec *spec, const struct data_env *env, uint64_t n,
                       struct dl_span sums, struct dl_error *err)
{
    _cleanup_(file_list_deinit) struct file_list list = {0};
    uint32_t n_sums = (uint32_t)(sums.len / sizeof(uint64_t));
    int r = files_seen_list(&spec->dataset, env, &list, err);

    if (r < 0)
        return r;
    if (n_sums != min_u64(n, FILES_SEEN_MAX))
        return dl_error_set(err, EPROTO, "", "the daemon sends %u sums of %llu files", n_sums,
                            (ull)n);
    for (uint32_t i = 0; i < min_u64(n_sums, list.n); i++) {
        const char *path =
            list.paths[min_u64(files_seen_place(i, n_sums, (uint32_t)n), list.n - 1)];
        uint64_t theirs;

        memcpy(&theirs, sums.data + i * sizeof theirs, sizeof theirs);
        if (files_seen_sum(path, env) != le64toh(theirs))
            return files_seen_differ(path, env, err);
    }
    if (list.n != n)
        return dl_error_set(err, ESTALE, "dataset",
                            "stands for %u files on the helper's machine, and for %llu on the "
                            "daemon's; give both the same files",
                            list.n, (ull)n);
    return 0;
}
