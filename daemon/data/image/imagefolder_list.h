/*
 * Which images a folder of class folders holds, in the order of torchvision's ImageFolder
 * (torchvision/datasets/folder.py): classes by name; below a class, through all folders, the
 * folders by their path and the files of each by name, as bytes. Links are followed, to folders
 * too. A file is an image when its name ends in .jpg, .jpeg or .png, of any case; whether it is one
 * shows when it is read.
 *
 * Names are held once, those of a folder together: about 4 bytes and its name for each image.
 */
#ifndef DL_DATA_IMAGEFOLDER_LIST_H
#define DL_DATA_IMAGEFOLDER_LIST_H

#include "daemon/data/dataset.h"

/* A folder with images in it. */
struct image_dir {
    char *path;     /* owned; from the root, without it */
    char *names;    /* owned; each with its NUL */
    uint32_t *name; /* owned; where each begins in `names` */
    uint64_t first; /* its first image, of all */
    uint32_t n;
    uint32_t label; /* its class: 0 for the first */
};

struct image_list {
    char *root;             /* owned; absolute */
    struct image_dir *dirs; /* owned */
    size_t n_dirs;
    uint64_t n; /* images */
    uint32_t classes;
};

/*
 * Lists what is below `root`. Errors name the folder: -ENOENT where it, its classes or the images
 * of one are missing; -EACCES; -ENOTDIR; -ELOOP when a link leads back to a folder it is in;
 * -ENOMEM; ...
 */
int _nodiscard_ image_list_make(const char *root, const struct data_env *env,
                                struct image_list *ret, struct dl_error *err);
void image_list_deinit(struct image_list *list);

/* The class of image `i` < list->n, and its path, cut at `room` bytes, as snprintf() does. */
uint32_t image_list_get(const struct image_list *list, uint64_t i, char *path, size_t room,
                        size_t *ret_len);

#endif
