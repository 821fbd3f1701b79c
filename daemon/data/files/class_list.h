/*
 * Which files a folder of class folders holds, in the order of torchvision's ImageFolder
 * (torchvision/datasets/folder.py): classes by name; below a class, through all folders, the
 * folders by their path and the files of each by name, as bytes. Links are followed, to folders
 * too. What is wanted shows by the end of its name, of any case; whether it is such a file shows
 * when it is read.
 *
 * Names are held once, those of a folder together: about 4 bytes and its name for each file; of all
 * workers of a loader once (class_list_open()). So what another worker of it has listed stands,
 * whatever has become of the folder since: a file that is missing is an error of its sample.
 */
#ifndef DL_DATA_CLASS_LIST_H
#define DL_DATA_CLASS_LIST_H

#include "daemon/data/base/dataset.h"
#include "daemon/data/files/class_index.h"
#include "daemon/data/files/shared_index.h"

/* Which files are wanted, and how people call them. */
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
 * Lists what is below `root`. Errors name the folder: -ENOENT where it, its classes or the files of
 * one are missing; -EACCES; -ENOTDIR; -ELOOP when a link leads back to a folder it is in;
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
/* The list of an index that another process has made, which it takes over. False: it is none, and
 * stays the caller's. */
bool _nodiscard_ class_list_of(struct shared_index *index, struct class_list *ret);
void class_list_deinit(struct class_list *list);

/* The class of file `i` < list->n, and its path, cut at `room` bytes, as snprintf() does. */
uint32_t class_list_get(const struct class_list *list, uint64_t i, char *path, size_t room,
                        size_t *ret_len);

/* The same, whole, of a file that is to be opened. -ENAMETOOLONG. */
int _nodiscard_ class_list_path(const struct class_list *list, uint64_t i,
                                char path[static DL_BOUND_PATH_BYTES], int64_t *ret_label,
                                struct dl_error *err);

/* File `i`, if it is there, will be opened soon: a remote one is asked for. */
void class_list_expect(const struct class_list *list, uint64_t i, const struct data_env *env);

/* Changes when a file is added, removed or renamed, wherever the root lies; never 0 but for want of
 * memory. */
static inline uint64_t class_list_fingerprint(const struct class_list *list)
{
    return list->fingerprint;
}

#endif
