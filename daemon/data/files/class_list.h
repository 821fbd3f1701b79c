/*
 * Which files a folder of class folders holds, in the order of torchvision's ImageFolder
 * (torchvision/datasets/folder.py): classes by name; below a class, through all folders, the
 * folders by their path and the files of each by name, as bytes. Links are followed, to folders
 * too. Wanted files are recognised by the end of their name, in any case; their content is checked
 * when they are read.
 *
 * Names are stored once, those of a folder together: about 4 bytes and its name for each file; once
 * for all workers of a loader (class_list_open()). So another worker's list stays valid, even if
 * the folder has changed since: a missing file is an error of its sample.
 */
#ifndef DL_DATA_CLASS_LIST_H
#define DL_DATA_CLASS_LIST_H

#include "daemon/data/base/dataset.h"
#include "daemon/data/files/class_index.h"
#include "daemon/data/files/shared_index.h"

/* Which files are wanted, and their name for people. */
struct class_files {
    const char *const *endings; /* ".jpg", ...; NULL behind the last */
    const char *what;           /* "image" */
    const char *found;          /* "images found" */
    const char *ends;           /* "images end in .jpg, .jpeg, .png, .webp, .tif or .tiff" */
};

struct class_list {
    struct shared_index index; /* owned */
    const struct class_index_dir *dirs;
    const char *root; /* absolute */
    uint64_t n;       /* files */
    uint64_t fingerprint;
    uint32_t n_dirs;
    uint32_t classes;
};

/*
 * Lists the files below `root`. Errors name the folder: -ENOENT if it has no classes, or one has no
 * files, or it is missing; -EACCES; -ENOTDIR; -ELOOP when a link leads back to a folder it is in;
 * -ENOMEM; ...
 */
int _nodiscard_ class_list_make(const char *root, const struct class_files *wanted,
                                const struct data_env *env, struct class_list *ret,
                                struct dl_error *err);
/* The same, of the dataset at `place` of a spec: what another worker of the loader has listed, or
 * what others then need not list. */
int _nodiscard_ class_list_open(const char *root, const struct class_files *wanted,
                                const char *place, const struct data_env *env,
                                struct class_list *ret, struct dl_error *err);
/* Takes over an index made by another process. False if it is invalid; it then stays the
 * caller's. */
bool _nodiscard_ class_list_of(struct shared_index *index, struct class_list *ret);
void class_list_deinit(struct class_list *list);

/* The class of file `i` < list->n, and its path, cut at `room` bytes, as snprintf() does. */
uint32_t class_list_get(const struct class_list *list, uint64_t i, char *path, size_t room,
                        size_t *ret_len);

/* The same as a complete path for opening. -ENAMETOOLONG. */
int _nodiscard_ class_list_path(const struct class_list *list, uint64_t i,
                                char path[static DL_BOUND_PATH_BYTES], int64_t *ret_label,
                                struct dl_error *err);

/* File `i`, if it exists, will be opened soon: prefetches a remote one. */
void class_list_expect(const struct class_list *list, uint64_t i, const struct data_env *env);

/* Changes when a file is added, removed or renamed, wherever the root is; 0 only if out of
 * memory. */
static inline uint64_t class_list_fingerprint(const struct class_list *list)
{
    return list->fingerprint;
}

#endif
