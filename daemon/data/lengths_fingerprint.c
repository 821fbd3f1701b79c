/* By what the lengths of a dataset are recognised: its description, and a look at its files. */
#include "daemon/data/collate/lengths.h"
#include "daemon/data/decode/audio/audio_files.h"
#include "daemon/data/decode/image/image_files.h"
#include "daemon/data/files/file_hasher.h"
#include "daemon/data/kinds/kinds.h"

#include <errno.h>
#include <sys/stat.h>

/*
 * The contents' time can be set back by who changes them, as rsync and tar do; the inode's cannot.
 */
static void lengths_fingerprint_add_file(struct file_hasher *hasher, const char *path)
{
    struct stat st = {0};

    file_hasher_add(hasher, path, strlen(path));
    (void)file_hasher_add_file(hasher, path, &st);
    file_hasher_add_number(hasher, (uint64_t)st.st_mtim.tv_sec);
    file_hasher_add_number(hasher, (uint64_t)st.st_mtim.tv_nsec);
    file_hasher_add_number(hasher, (uint64_t)st.st_ctim.tv_sec);
    file_hasher_add_number(hasher, (uint64_t)st.st_ctim.tv_nsec);
}

/* ---- all files ------------------------------------------------------------------------------ */

static void lengths_fingerprint_add_listed(struct file_hasher *hasher,
                                           const struct spec_dataset *spec)
{
    _cleanup_(file_list_deinit) struct file_list list = {0};

    hasher->r = spec_files_list(spec, hasher->env, &list, NULL);
    for (uint32_t i = 0; i < list.n && hasher->r == 0; i++)
        lengths_fingerprint_add_file(hasher, list.paths[i]);
}

static void lengths_fingerprint_add_classes(struct file_hasher *hasher,
                                            const struct spec_dataset *spec,
                                            const struct class_files *wanted)
{
    struct class_list list = {0};
    char path[DL_BOUND_PATH_BYTES];

    hasher->r = class_list_make(spec->files[0].path, wanted, hasher->env, &list, NULL);
    for (uint64_t i = 0; i < list.n && hasher->r == 0; i++) {
        size_t len = 0;
        (void)class_list_get(&list, i, path, sizeof path, &len);
        if (len >= sizeof path)
            hasher->r = -ENAMETOOLONG;
        lengths_fingerprint_add_file(hasher, path);
    }
    class_list_deinit(&list);
}

/* What a dataset is read from. Of code nothing is known: it may read what it likes. */
static void lengths_fingerprint_add_files(struct file_hasher *hasher,
                                          const struct spec_dataset *spec)
{
    if (spec->kind == DATASET_IMAGEFOLDER)
        lengths_fingerprint_add_classes(hasher, spec, &image_files);
    else if (spec->kind == DATASET_AUDIOFOLDER)
        lengths_fingerprint_add_classes(hasher, spec, &audio_files);
    else
        lengths_fingerprint_add_listed(hasher, spec);
    for (uint32_t i = 0; i < spec->n_datasets && hasher->r == 0; i++)
        lengths_fingerprint_add_files(hasher, &spec->datasets[i]);
}

static void lengths_fingerprint_add_description(struct file_hasher *hasher,
                                                const struct spec_dataset *spec, const char *leaf)
{
    _cleanup_(value_deinit) struct value value = {0};
    _cleanup_(buffer_deinit) struct dl_buffer packed = {0};

    hasher->r = spec_dataset_to_value(spec, &value);
    if (hasher->r == 0)
        hasher->r = spec_to_former(&value);
    if (hasher->r == 0)
        hasher->r = value_pack(&value, &packed);
    file_hasher_add(hasher, packed.data, packed.len);
    file_hasher_add_number(hasher, leaf != NULL);
    file_hasher_add(hasher, leaf, leaf ? strlen(leaf) : 0);
}

uint64_t lengths_fingerprint(const struct spec_dataset *spec, const char *leaf,
                             const struct data_env *env)
{
    struct file_hasher hasher;

    file_hasher_begin(&hasher, env);
    if (hasher.r == 0)
        lengths_fingerprint_add_description(&hasher, spec, leaf);
    if (hasher.r == 0)
        lengths_fingerprint_add_files(&hasher, spec);
    return file_hasher_end(&hasher);
}
