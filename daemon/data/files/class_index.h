/*
 * The bytes of a class_list, which all workers of a loader share (shared_index.h): a head, then,
 * wherever the head and the folders say, the paths and names, each with its NUL, and the folders,
 * in their order. Offsets count from the first byte. Numbers are those of this machine.
 */
#ifndef DL_DATA_CLASS_INDEX_H
#define DL_DATA_CLASS_INDEX_H

#include "proto/common/bytes.h"

struct class_index_head {
    uint64_t files;
    uint64_t fingerprint; /* class_list_fingerprint() */
    uint64_t dirs;        /* where the folders stand; a multiple of 8 */
    uint64_t root;        /* where the path stands that all others begin at */
    uint32_t n_dirs;
    uint32_t classes;
};

/* A folder with files in it. */
struct class_index_dir {
    uint64_t first;      /* its first file, of all */
    uint64_t path;       /* where it stands: from the root, without it */
    uint64_t names;      /* where the names of its files stand, in the order of their bytes */
    uint64_t name_bytes; /* of all of them */
    uint64_t name; /* where it stands where each begins in them, a uint32_t; a multiple of 4 */
    uint32_t files;
    uint32_t label; /* its class: 0 for the first */
};

/*
 * Whether all that is in it can be read: offsets lie in it, texts end, files and classes are
 * counted rightly. `data` is aligned to 8 bytes. Reads 4 bytes a file.
 */
bool _nodiscard_ class_index_is_sound(const uint8_t *data, uint64_t bytes);

#endif
