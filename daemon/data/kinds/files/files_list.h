/*
 * The files of a dataset with a file for each sample, as bytes that all workers of a loader share
 * (shared_index.h): a head, where each path begins, and the paths, each with its NUL. Numbers are
 * in the machine's byte order.
 *
 * A spec names them by paths and patterns (globs.h), by directories, whose files are taken in the
 * order of their names' bytes, or by text files with a path in each line, from the directory of the
 * text file on. May block on the disk.
 */
#ifndef DL_DATA_FILES_LIST_H
#define DL_DATA_FILES_LIST_H

#include "daemon/data/base/dataset.h"
#include "daemon/data/files/shared_index.h"

struct files_list_head {
    uint64_t files;
    uint64_t fingerprint; /* of the paths */
};

struct files_list {
    struct shared_index index; /* owned */
    const uint32_t *begins;    /* in the index; of the paths in `text`, and behind the last */
    const char *text;
    uint64_t n;
    uint64_t fingerprint; /* changes with any path; never 0 */
};

/* Finds or makes the list of the dataset at `place`. Errors as of file_list_make(), and of a text
 * file: -ENOENT, -EINVAL, ... */
int _nodiscard_ files_list_open(const struct spec_dataset *spec, const char *place,
                                const struct data_env *env, struct files_list *ret,
                                struct dl_error *err);
void files_list_deinit(struct files_list *list); /* zeroes it; a zeroed one is fine */

/* Of file i < n. */
static inline const char *files_list_path(const struct files_list *list, uint64_t i)
{
    return list->text + list->begins[i];
}

/* Whether all that is in it can be read. `data` is aligned to 8 bytes. Reads 4 bytes a file. */
bool _nodiscard_ files_list_is_sound(const uint8_t *data, uint64_t bytes);

#endif
