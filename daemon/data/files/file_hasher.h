/*
 * Makes a fingerprint of files: XXH3-64 of everything added, in order. The first failure sticks, so
 * that callers check only at the end.
 */
#ifndef DL_DATA_FILE_HASHER_H
#define DL_DATA_FILE_HASHER_H

#include "daemon/data/base/dataset.h"

#include <sys/stat.h>

struct file_hasher {
    void *hash; /* owned */
    const struct data_env *env;
    uint64_t files; /* so far */
    int r;
};

void file_hasher_begin(struct file_hasher *hasher, const struct data_env *env);

/* The hash, never 0; or 0: something failed. Frees what there is. */
uint64_t file_hasher_end(struct file_hasher *hasher);

/* Bytes with their number, so that "ab", "c" and "a", "bc" have different hashes. */
void file_hasher_add(struct file_hasher *hasher, const void *data, uint64_t bytes);
void file_hasher_add_number(struct file_hasher *hasher, uint64_t number);

/* Adds a data file's size and its first and last 4 KiB; for a remote one, its identity. *ret_st is
 * its state then. Returns 0, or a negative errno, which also sticks. */
int file_hasher_add_file(struct file_hasher *hasher, const char *path, struct stat *ret_st);

/* The fingerprint of what has this one so far, 0 at first, and then that one: of datasets, say. */
uint64_t file_hasher_join(uint64_t before, uint64_t next);

#endif
