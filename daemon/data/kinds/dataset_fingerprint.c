#include "daemon/data/kinds/dataset_fingerprint.h"

#include "daemon/data/files/file_hasher.h"
#include "daemon/data/kinds/kinds.h"

#include <errno.h>

/* A file that cannot be opened counts as changed. */
static void dataset_fingerprint_add_file(struct file_hasher *hasher, const char *path)
{
    struct stat st;

    (void)file_hasher_add_file(hasher, path, &st);
    if (hasher->r < 0 && hasher->r != -ENOMEM) {
        uint64_t code = (uint64_t)-hasher->r;

        hasher->r = 0;
        file_hasher_add_number(hasher, code);
    }
}

/* Adds the spec's files; if there are too many, the first, the last and some in between. */
static int dataset_fingerprint_add_files(struct file_hasher *hasher,
                                         const struct spec_dataset *spec, struct dl_error *err)
{
    _cleanup_(file_list_deinit) struct file_list list = {0};
    enum files_sort sort = files_sort_of(spec->kind);

    if (sort == FILES_PLUGIN || sort == FILES_CODE) /* identified only by its name */
        return 0;
    int r = spec_files_list(spec, hasher->env, &list, err);
    if (r < 0)
        return r;
    file_hasher_add_number(hasher, list.n);
    uint64_t n = min_u64(list.n, FINGERPRINT_FILES);
    for (uint64_t i = 0; i < n; i++)
        dataset_fingerprint_add_file(hasher, list.paths[n > 1 ? i * (list.n - 1) / (n - 1) : 0]);
    return 0;
}

int dataset_fingerprint(const struct spec_dataset *spec, const struct data_env *env, uint64_t *ret,
                        struct dl_error *err)
{
    struct file_hasher hasher;

    file_hasher_begin(&hasher, env);
    file_hasher_add_number(&hasher, spec->kind);
    int r = dataset_fingerprint_add_files(&hasher, spec, err);
    *ret = file_hasher_end(&hasher);
    if (r == 0 && *ret == 0)
        r = dl_error_set(err, ENOMEM, "", "out of memory for a fingerprint");
    return r;
}
