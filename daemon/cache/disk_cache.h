/*
 * A directory of files that save work and may be gone at any time: lengths_cache.h, index_cache.h.
 * Blocks on the disk; any thread, and several processes may use a directory at once.
 *
 * A file is a header and its content, in the machine's byte order:
 *
 *   0   8 bytes   "dl" and its kind, as much of it as fits, and NULs
 *   8   u32       version; of another byte order it is none
 *   12  u32       user, or 0
 *   16  u64       key
 *   24  u64       bytes of the content
 *   32  u64       XXH3-64 of it
 *   40  …         the content
 */
#ifndef DL_DISK_CACHE_H
#define DL_DISK_CACHE_H

#include "proto/common/error.h"

#include <limits.h>

/* What a directory has at most, but for the file stored last. */
#define DISK_CACHE_BYTES (UINT64_C(1) << 30)

struct disk_cache_key {
    const char *kind; /* "lengths", "index"; static */
    uint64_t key;
    uint32_t uid; /* where `is_users`: whose it is; else 0 */
    bool is_users;
};

struct disk_cache_header {
    char magic[8];
    uint32_t version;
    uint32_t uid;
    uint64_t key;
    uint64_t bytes;
    uint64_t hash;
};

/* Where this user's cache is: $XDG_CACHE_HOME/dloader, or ~/.cache/dloader; "": nowhere. */
void disk_cache_dir(char ret[PATH_MAX]);

/* Makes the directory (mode 0700), and those it is in. -errno with `err`. */
int _nodiscard_ disk_cache_make_dir(const char *dir, struct dl_error *err);

/* Opens the regular file for reading. A descriptor, or -ENOENT. */
int _nodiscard_ disk_cache_open(const char *dir, const struct disk_cache_key *key);

/* The header of the file, from its beginning, and then the content, header->bytes of it. False: the
 * file is another one's, or damaged. */
bool _nodiscard_ disk_cache_read_header(int fd, struct disk_cache_header *ret);
bool _nodiscard_ disk_cache_read(int fd, const struct disk_cache_key *key,
                                 const struct disk_cache_header *header, void *out);

/* The file was of use: others go before it. */
void disk_cache_touch(int fd);

/*
 * Stores a file: at once or not at all. Makes the directory (mode 0700) and those it is in. Then,
 * if there are more than DISK_CACHE_BYTES, those files go that were not stored or touched for
 * longest, all but this one. -errno with `err`; `what` is in it, as in "lengths of 5 samples".
 */
int _nodiscard_ disk_cache_store(const char *dir, const struct disk_cache_key *key,
                                 const void *content, uint64_t bytes, const char *what,
                                 struct dl_error *err);

/* Those that were not used for longest go until they have at most so many bytes. How many they have
 * then. */
uint64_t disk_cache_trim(const char *dir, uint64_t bytes);
/* How many they have. One thread at a time for a descriptor. */
uint64_t disk_cache_bytes(int dir);

#endif
