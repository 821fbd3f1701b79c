/*
 * A directory of files that save work and may be gone at any time: lengths_cache.h, index_cache.h.
 * Blocks on the disk; any thread, and several processes may use a directory at once.
 */
#ifndef DL_DISK_CACHE_H
#define DL_DISK_CACHE_H

#include "proto/common/error.h"

#include <limits.h>

/* What a directory has at most, but for the file stored last. */
#define DISK_CACHE_BYTES (UINT64_C(1) << 30)

enum { DISK_CACHE_NAME_MAX = 48 }; /* bytes of a file's name, with the final NUL */

struct disk_cache_part {
    const void *data;
    uint64_t bytes;
};

/* Where this user's cache is: $XDG_CACHE_HOME/dloader, or ~/.cache/dloader; "": nowhere. */
void disk_cache_dir(char ret[PATH_MAX]);

/* Makes the directory (mode 0700), and those it is in. -errno with `err`. */
int _nodiscard_ disk_cache_make_dir(const char *dir, struct dl_error *err);

/* Opens the regular file `name` for reading; *ret_bytes of it. A descriptor, or -ENOENT. */
int _nodiscard_ disk_cache_open(const char *dir, const char *name, uint64_t *ret_bytes);

/* The next `bytes` of the file, all of them; false: they cannot be had. */
bool disk_cache_read(int fd, void *out, uint64_t bytes);

/* The file was of use: others go before it. */
void disk_cache_touch(int fd);

/*
 * Stores a file of two parts, one behind the other: at once or not at all. Makes the directory
 * (mode 0700) and those it is in. Then, if there are more than DISK_CACHE_BYTES, those files go
 * that were not stored or touched for longest, all but this one. -errno with `err`; `what` is in
 * it, as in "lengths of 5 samples".
 */
int _nodiscard_ disk_cache_store(const char *dir, const char *name,
                                 const struct disk_cache_part parts[static 2], const char *what,
                                 struct dl_error *err);

#endif
