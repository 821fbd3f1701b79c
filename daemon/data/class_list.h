/*
 * Which files a folder of class folders holds, in the order of torchvision's ImageFolder
 * (torchvision/datasets/folder.py): classes by name; below a class, through all folders, the
 * folders by their path and the files of each by name, as bytes. Links are followed, to folders
 * too. What is wanted shows by the end of its name, of any case; whether it is such a file shows
 * when it is read.
 *
 * Names are held once, those of a folder together: about 4 bytes and its name for each file.
 */
#ifndef DL_DATA_CLASS_LIST_H
#define DL_DATA_CLASS_LIST_H

#include "daemon/data/dataset.h"

/* Which files are wanted, and how people call them. */
struct class_files {
    const char *const *endings; /* ".jpg", ...; NULL behind the last */
    const char *what;           /* "image" */
    const char *found;          /* "images found" */
    const char *ends;           /* "images end in .jpg, .jpeg, .png, .webp, .tif or .tiff" */
};

/* A folder with such files in it. */
struct class_dir {
    char *path;     /* owned; from the root, without it */
    char *names;    /* owned; each with its NUL, in the order of their bytes */
    uint32_t *name; /* owned; where each begins in `names` */
    uint64_t first; /* its first file, of all */
    uint32_t n;
    uint32_t label; /* its class: 0 for the first */
};

struct class_list {
    char *root;             /* owned; absolute */
    struct class_dir *dirs; /* owned */
    size_t n_dirs;
    uint64_t n; /* files */
    uint32_t classes;
};

/*
 * Lists what is below `root`. Errors name the folder: -ENOENT where it, its classes or the files of
 * one are missing; -EACCES; -ENOTDIR; -ELOOP when a link leads back to a folder it is in;
 * -ENOMEM; ...
 */
int _nodiscard_ class_list_make(const char *root, const struct class_files *of,
                                const struct data_env *env, struct class_list *ret,
                                struct dl_error *err);
void class_list_deinit(struct class_list *list);

/* The class of file `i` < list->n, and its path, cut at `room` bytes, as snprintf() does. */
uint32_t class_list_get(const struct class_list *list, uint64_t i, char *path, size_t room,
                        size_t *ret_len);

/* Changes when a file is added, removed or renamed, wherever the root lies; never 0 but for want of
 * memory. */
uint64_t class_list_fingerprint(const struct class_list *list);

#endif
