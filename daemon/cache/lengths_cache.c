/*
 * Lengths kept on disk. A file is a header and the lengths, in the machine's byte order:
 *
 *   0   8 bytes   "dllength"
 *   8   u32       version; of another byte order it is none
 *   12  u32       0
 *   16  u64       fingerprint
 *   24  u64       number of lengths
 *   32  u64       XXH3-64 of them
 *   40  u32 …     the lengths
 */
#include "daemon/cache/lengths_cache.h"

#include "daemon/cache/disk_cache.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

enum { LENGTHS_VERSION = 1 };

struct lengths_header {
    char magic[8];
    uint32_t version;
    uint32_t reserved;
    uint64_t fingerprint;
    uint64_t n;
    uint64_t hash;
};
_Static_assert(sizeof(struct lengths_header) == 40, "the format of the file");

static struct lengths_header lengths_cache_header_of(uint64_t fingerprint, uint64_t n,
                                                     const uint32_t *lengths)
{
    struct lengths_header header = {.magic = {'d', 'l', 'l', 'e', 'n', 'g', 't', 'h'},
                                    .version = LENGTHS_VERSION,
                                    .fingerprint = fingerprint,
                                    .n = n,
                                    .hash = XXH3_64bits(lengths, n * sizeof *lengths)};
    return header;
}

static void lengths_cache_name_of(uint64_t fingerprint, char ret[static DISK_CACHE_NAME_MAX])
{
    snprintf(ret, DISK_CACHE_NAME_MAX, "%016" PRIx64 ".lengths", fingerprint);
}

/* ---- loading -------------------------------------------------------------------------------- */

int lengths_cache_load(const char *dir, uint64_t fingerprint, uint64_t n, uint32_t *ret)
{
    char name[DISK_CACHE_NAME_MAX];
    struct lengths_header header, want;
    uint64_t bytes, there;

    if (fingerprint == 0 || mul_overflows(n, sizeof *ret, &bytes) ||
        bytes > INT64_MAX - sizeof header)
        return -ENOENT;
    lengths_cache_name_of(fingerprint, name);
    _cleanup_fd_ int fd = disk_cache_open(dir, name, &there);
    if (fd < 0 || there != sizeof header + bytes || !disk_cache_read(fd, &header, sizeof header) ||
        !disk_cache_read(fd, ret, bytes))
        return -ENOENT;
    want = lengths_cache_header_of(fingerprint, n, ret);
    if (memcmp(&header, &want, sizeof header) != 0)
        return -ENOENT;
    disk_cache_touch(fd);
    return 0;
}

/* ---- storing -------------------------------------------------------------------------------- */

int lengths_cache_store(const char *dir, uint64_t fingerprint, uint64_t n, const uint32_t *lengths,
                        struct dl_error *err)
{
    char name[DISK_CACHE_NAME_MAX], what[64];

    if (fingerprint == 0)
        return dl_error_set(err, EINVAL, dir, "lengths without a fingerprint are not kept");
    struct lengths_header header = lengths_cache_header_of(fingerprint, n, lengths);
    const struct disk_cache_part parts[] = {{&header, sizeof header},
                                            {lengths, n * sizeof *lengths}};
    lengths_cache_name_of(fingerprint, name);
    snprintf(what, sizeof what, "lengths of %llu samples", (unsigned long long)n);
    return disk_cache_store(dir, name, parts, what, err);
}
