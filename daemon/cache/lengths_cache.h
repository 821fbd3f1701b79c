/*
 * Lengths of samples kept on disk, for datasets that had to be read for them. The owner of a
 * dataset tells by a fingerprint which they are (daemon/data/collate/lengths.h). Blocks on the
 * disk; any thread, and several processes may use a directory at once.
 */
#ifndef DL_LENGTHS_CACHE_H
#define DL_LENGTHS_CACHE_H

#include "proto/common/error.h"

/*
 * The cache of lengths: one file for each fingerprint in the directory `dir`, made if it is not
 * there (mode 0700). Loading gives 0, or -ENOENT where the file is missing, it is of another number
 * of samples, or it is damaged (XXH3 of the contents does not fit); `ret` means nothing then.
 * Storing replaces a file at once or not at all, as disk_cache.h says.
 */
int _nodiscard_ lengths_cache_load(const char *dir, uint64_t fingerprint, uint64_t n,
                                   uint32_t *ret);
int _nodiscard_ lengths_cache_store(const char *dir, uint64_t fingerprint, uint64_t n,
                                    const uint32_t *lengths, struct dl_error *err);

#endif
