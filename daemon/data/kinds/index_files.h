/*
 * Indexes of a dataset's files in the cache on disk: daemon/cache/index_cache.h.
 *
 * A worker that is closed in reaches no cache: so all files that a spec may ask for are opened
 * before. Of what a worker makes, the daemon writes them (shared_index_make()); loading without a
 * daemon does that itself. One thread.
 */
#ifndef DL_DATA_INDEX_FILES_H
#define DL_DATA_INDEX_FILES_H

#include "daemon/cache/index_cache.h"
#include "proto/spec.h"

#include <limits.h>

struct index_file {
    uint64_t key;
    int fd; /* owned */
};

struct index_files {          /* all zero is empty */
    struct index_file *files; /* owned: those that are there, */
    uint32_t n;               /* how many */
    uint32_t uid;             /* the user they belong to */
    char *dir;                /* owned; where new ones go; NULL: nowhere */
};

/* The spec's index files that user `uid` has in the cache at `dir`; "" for no cache. Failures count
 * as missing files. */
void index_files_begin(struct index_files *files, const char *dir, uint32_t uid,
                       const struct spec_dataset *spec);
/* The same for loading in this process, from and to its user's own cache. */
void index_files_begin_own(struct index_files *files, const struct spec_dataset *spec);
void index_files_end(struct index_files *files); /* zeroes it; a zeroed one is fine */

/* Reads the file kept under `key` into an empty buffer. -ENOENT, -ENOMEM: not available. `files`
 * may be NULL. */
int _nodiscard_ index_files_find(const struct index_files *files, uint64_t key,
                                 struct dl_buffer *ret);

/* Keeps it, if this process is responsible. A cache that cannot be written only costs time. `files`
 * may be NULL. */
void index_files_keep(const struct index_files *files, uint64_t key, struct dl_span index);

#endif
