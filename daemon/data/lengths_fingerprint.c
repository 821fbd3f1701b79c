/* By what the lengths of a dataset are recognised: its description, and a look at its files. */
#include "daemon/data/file_print.h"
#include "daemon/data/image/imagefolder_list.h"
#include "daemon/data/lengths.h"
#include "daemon/data/spec_files.h"

#include <errno.h>
#include <sys/stat.h>

/*
 * The contents' time can be set back by who changes them, as rsync and tar do; the inode's cannot.
 */
static void add_file(struct file_print *print, const char *path)
{
    struct stat st = {0};

    file_print_add(print, path, strlen(path));
    _cleanup_fd_ int fd = file_print_file(print, path);
    if (fd >= 0 && fstat(fd, &st) < 0)
        print->r = -errno;
    file_print_number(print, (uint64_t)st.st_mtim.tv_sec);
    file_print_number(print, (uint64_t)st.st_mtim.tv_nsec);
    file_print_number(print, (uint64_t)st.st_ctim.tv_sec);
    file_print_number(print, (uint64_t)st.st_ctim.tv_nsec);
}

/* ---- all files ------------------------------------------------------------------------------ */

static void add_listed_files(struct file_print *print, const struct spec_dataset *spec)
{
    _cleanup_(file_list_deinit)
    struct file_list list = {0};

    print->r = spec_files_list(spec, print->env, &list, NULL);
    for (uint32_t i = 0; i < list.n && print->r == 0; i++)
        add_file(print, list.paths[i]);
}

static void add_images(struct file_print *print, const struct spec_dataset *spec)
{
    struct image_list list = {0};
    char path[DL_BOUND_PATH_BYTES];

    print->r = image_list_make(spec->files[0].path, print->env, &list, NULL);
    for (uint64_t i = 0; i < list.n && print->r == 0; i++) {
        size_t len = 0;
        (void)image_list_get(&list, i, path, sizeof path, &len);
        if (len >= sizeof path)
            print->r = -ENAMETOOLONG;
        add_file(print, path);
    }
    image_list_deinit(&list);
}

/* What a dataset is read from. Of code nothing is known: it may read what it likes. */
static void add_files(struct file_print *print, const struct spec_dataset *spec)
{
    if (files_sort_of(spec->kind) == FILES_FOLDER)
        add_images(print, spec);
    else
        add_listed_files(print, spec);
    for (uint32_t i = 0; i < spec->n_datasets && print->r == 0; i++)
        add_files(print, &spec->datasets[i]);
}

static void add_description(struct file_print *print, const struct spec_dataset *spec,
                            const char *leaf)
{
    _cleanup_(value_deinit)
    struct value value = {0};
    _cleanup_(buffer_deinit)
    struct dl_buffer packed = {0};

    print->r = spec_dataset_to_value(spec, &value);
    if (print->r == 0)
        print->r = value_pack(&value, &packed);
    file_print_add(print, packed.data, packed.len);
    file_print_number(print, leaf != NULL);
    file_print_add(print, leaf, leaf ? strlen(leaf) : 0);
}

uint64_t lengths_fingerprint(const struct spec_dataset *spec, const char *leaf,
                             const struct data_env *env)
{
    struct file_print print;

    file_print_begin(&print, env);
    if (print.r == 0)
        add_description(&print, spec, leaf);
    if (print.r == 0)
        add_files(&print, spec);
    return file_print_end(&print);
}
