#include "daemon/data/dataset_fingerprint.h"

#include "daemon/data/file_print.h"
#include "daemon/data/spec_files.h"

#include <errno.h>

/* What cannot be opened is not what it was, and that is all that can be said. */
static void add_file(struct file_print *print, const char *path)
{
    int fd = file_print_file(print, path);

    if (fd >= 0)
        close(fd);
    if (print->r < 0 && print->r != -ENOMEM) {
        uint64_t code = (uint64_t)-print->r;

        print->r = 0;
        file_print_number(print, code);
    }
}

/* Those of the spec, or of very many the first, the last and some between. */
static int add_files(struct file_print *print, const struct spec_dataset *spec,
                     struct dl_error *err)
{
    _cleanup_(file_list_deinit)
    struct file_list list = {0};
    enum files_sort sort = files_sort_of(spec->kind);

    if (sort == FILES_PLUGIN || sort == FILES_CODE) /* known by its name alone */
        return 0;
    int r = spec_files_list(spec, print->env, &list, err);
    if (r < 0)
        return r;
    file_print_number(print, list.n);
    uint64_t n = min_u64(list.n, FINGERPRINT_FILES);
    for (uint64_t i = 0; i < n; i++)
        add_file(print, list.paths[n > 1 ? i * (list.n - 1) / (n - 1) : 0]);
    return 0;
}

int dataset_fingerprint(const struct spec_dataset *spec, const struct data_env *env, uint64_t *ret,
                        struct dl_error *err)
{
    struct file_print print;

    file_print_begin(&print, env);
    file_print_number(&print, spec->kind);
    int r = add_files(&print, spec, err);
    *ret = file_print_end(&print);
    if (r == 0 && *ret == 0)
        r = dl_error_set(err, ENOMEM, "", "out of memory for a fingerprint");
    return r;
}

uint64_t dataset_fingerprint_join(uint64_t before, uint64_t next)
{
    struct file_print print;

    file_print_begin(&print, NULL);
    file_print_number(&print, before);
    file_print_number(&print, next);
    return file_print_end(&print);
}
