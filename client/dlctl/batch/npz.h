/*
 * Archives of arrays as numpy.load() reads them, also with allow_pickle=False: a .zip of .npy
 * members, not compressed. Nothing is at `path` before the end, and then all of it; nor does a
 * signal that ends the process leave anything.
 */
#ifndef DLCTL_NPZ_H
#define DLCTL_NPZ_H

#include "proto/base.h"
#include "proto/error.h"

enum { NPZ_TYPE = 24, NPZ_DIMS = 8, NPZ_NAME_MAX = 1024 };

struct npz;

/* An array in the machine's byte order, row by row. */
struct npz_array {
    char type[NPZ_TYPE]; /* NumPy's, without a mark of the byte order: "f4", "U7" */
    uint32_t ndim;
    uint64_t shape[NPZ_DIMS];
    const void *data; /* borrowed until the end, unless it is `owned` */
    uint64_t nbytes;
    void *owned; /* freed with the archive, also on failure; NULL: nothing is */
};

/* Failures fill `err`, with `path` as its place. */
int _nodiscard_ npz_begin(const char *path, struct npz **ret, struct dl_error *err);
bool npz_has(struct npz *npz, const char *name);
/* A name is at most NPZ_NAME_MAX bytes of UTF-8. */
int _nodiscard_ npz_add(struct npz *npz, const char *name, const struct npz_array *array,
                        struct dl_error *err);
/* Writes it, and frees `npz` in any case. */
int _nodiscard_ npz_end(struct npz *npz, struct dl_error *err);
/* Gives it up: nothing is written. NULL is fine. Always returns NULL. */
struct npz *npz_discard(struct npz *npz);

#endif
