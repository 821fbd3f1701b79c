#include "daemon/data/dataset_fingerprint.h"

#include "daemon/data/file_print.h"
#include "daemon/data/globs.h"

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

static void add_listed_files(struct file_print *print, const struct spec_dataset *spec)
{
    _cleanup_(file_list_deinit)
    struct file_list list = {0};

    print->r = file_list_make(spec, print->env, &list, NULL);
    if (print->r < 0)
        return;
    file_print_number(print, list.n);
    uint64_t n = min_u64(list.n, FINGERPRINT_FILES);
    for (uint64_t i = 0; i < n; i++) /* the first and the last are among them */
        add_file(print, list.paths[n > 1 ? i * (list.n - 1) / (n - 1) : 0]);
}

uint64_t dataset_fingerprint(const struct spec_dataset *spec, const struct data_env *env)
{
    struct file_print print;

    file_print_begin(&print, env);
    file_print_number(&print, spec->kind);
    switch (spec->kind) {
    case DATASET_IDX:
    case DATASET_NPY:
    case DATASET_RECORDS:
    case DATASET_TOKENS:
        for (uint32_t i = 0; i < spec->n_files; i++)
            add_file(&print, spec->files[i].path);
        break;
    case DATASET_TEXT:
    case DATASET_TAR:
        add_listed_files(&print, spec);
        if (spec->model)
            add_file(&print, spec->model);
        break;
    case DATASET_IMAGEFOLDER: /* by its list: imagefolder.c */
    case DATASET_PLUGIN:
    case DATASET_PYTHON:
    case DATASET_RANGE:
    case DATASET_CONCAT:
    case DATASET_SUBSET:
    case DATASET_SPLIT:
    case DATASET_CHAIN:
        break;
    }
    return file_print_end(&print);
}

uint64_t dataset_fingerprint_join(uint64_t before, uint64_t next)
{
    struct file_print print;

    file_print_begin(&print, NULL);
    file_print_number(&print, before);
    file_print_number(&print, next);
    return file_print_end(&print);
}
