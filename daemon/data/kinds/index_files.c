#include "daemon/data/kinds/index_files.h"

#include "daemon/cache/disk_cache.h"
#include "daemon/data/kinds/tar/tar_cached.h"

#include <errno.h>

/* The key of a dataset that keeps an index; false if it keeps none. */
static bool index_files_key(const struct spec_dataset *spec, uint64_t *ret)
{
    if (spec->kind != DATASET_TAR || spec->index != INDEX_AUTO)
        return false;
    *ret = tar_cached_key(spec);
    return *ret != 0;
}

/* Without memory it is as if it were not there. */
static void index_files_add(struct index_files *files, const char *dir, uint64_t key)
{
    const struct index_cache_key whose = {.key = key, .uid = files->uid};
    _cleanup_fd_ int fd = index_cache_open(dir, &whose);

    if (fd < 0)
        return;
    struct index_file *grown = realloc(files->files, (files->n + 1) * sizeof *grown);
    if (!grown)
        return;
    files->files = grown;
    files->files[files->n++] = (struct index_file){.key = key, .fd = steal_fd(&fd)};
}

/* Datasets are nested as deep as a spec may be. */
static void index_files_add_all(struct index_files *files, const char *dir,
                                const struct spec_dataset *spec)
{
    uint64_t key;

    if (index_files_key(spec, &key))
        index_files_add(files, dir, key);
    for (uint32_t i = 0; i < spec->n_datasets; i++)
        index_files_add_all(files, dir, &spec->datasets[i]);
}

void index_files_begin(struct index_files *files, const char *dir, uint32_t uid,
                       const struct spec_dataset *spec)
{
    *files = (struct index_files){.uid = uid};
    if (*dir)
        index_files_add_all(files, dir, spec);
}

void index_files_begin_own(struct index_files *files, const struct spec_dataset *spec)
{
    char dir[PATH_MAX];

    disk_cache_dir(dir);
    index_files_begin(files, dir, (uint32_t)geteuid(), spec);
    files->dir = *dir ? strdup(dir) : NULL; /* without memory nothing is kept */
}

void index_files_end(struct index_files *files)
{
    for (uint32_t i = 0; i < files->n; i++)
        close_fdp(&files->files[i].fd);
    free(files->files);
    free(files->dir);
    *files = (struct index_files){0};
}

int index_files_find(const struct index_files *files, uint64_t key, struct dl_buffer *ret)
{
    for (uint32_t i = 0; files && i < files->n; i++) {
        const struct index_cache_key whose = {.key = key, .uid = files->uid};
        if (files->files[i].key == key)
            return index_cache_read(files->files[i].fd, &whose, ret);
    }
    return -ENOENT;
}

void index_files_keep(const struct index_files *files, uint64_t key, struct dl_span index)
{
    if (!files || !files->dir)
        return;
    const struct index_cache_key whose = {.key = key, .uid = files->uid};
    (void)!index_cache_store(files->dir, &whose, index, NULL);
}
