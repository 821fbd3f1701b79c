/*
 * Indexes of datasets' files kept on disk: what had to be found out by reading all of a file, and
 * holds as long as the file is the same. What is in one is its kind's affair
 * (daemon/data/kinds/tar/tar_cached.h): a reader must compare it with the files that are there.
 *
 * A user has files of his own, named after him: what one user's worker wrote, no other one's reads.
 * Blocks on the disk; any thread, and several processes may use a directory at once.
 */
#ifndef DL_INDEX_CACHE_H
#define DL_INDEX_CACHE_H

#include "proto/common/bytes.h"
#include "proto/common/error.h"

/* The most bytes of one. */
#define INDEX_CACHE_BYTES (UINT64_C(1) << 29)

struct index_cache_key {
    uint64_t key; /* which files, and what of them */
    uint32_t uid; /* who reads them */
};

/* Opens the one in directory `dir` to be read. A descriptor, or -ENOENT. */
int _nodiscard_ index_cache_open(const char *dir, const struct index_cache_key *key);

/* What is in the file open as `fd`, from its beginning, into an empty buffer. -ENOENT: it is
 * another one's, or damaged, by its XXH3; -ENOMEM. */
int _nodiscard_ index_cache_read(int fd, const struct index_cache_key *key, struct dl_buffer *ret);

/* Replaces the file at once or not at all, as disk_cache_store(). -EFBIG: it is too large. */
int _nodiscard_ index_cache_store(const char *dir, const struct index_cache_key *key,
                                  struct dl_span index, struct dl_error *err);

#endif
