/*
 * Indexes kept on disk. A file is a header and the index, in the machine's byte order:
 *
 *   0   8 bytes   "dlindex", NUL
 *   8   u32       version; of another byte order it is none
 *   12  u32       user
 *   16  u64       key
 *   24  u64       bytes of the index
 *   32  u64       XXH3-64 of it
 *   40  …         the index
 */
#include "daemon/cache/index_cache.h"

#include "daemon/cache/disk_cache.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { INDEX_VERSION = 1 };

struct index_header {
    char magic[8];
    uint32_t version;
    uint32_t uid;
    uint64_t key;
    uint64_t bytes;
    uint64_t hash;
};
_Static_assert(sizeof(struct index_header) == 40, "the format of the file");

static struct index_header index_cache_header_of(const struct index_cache_key *key,
                                                 const void *data, uint64_t bytes)
{
    struct index_header header = {.magic = "dlindex",
                                  .version = INDEX_VERSION,
                                  .uid = key->uid,
                                  .key = key->key,
                                  .bytes = bytes,
                                  .hash = XXH3_64bits(data, bytes)};
    return header;
}

static void index_cache_name_of(const struct index_cache_key *key,
                                char ret[static DISK_CACHE_NAME_MAX])
{
    snprintf(ret, DISK_CACHE_NAME_MAX, "%" PRIu32 "-%016" PRIx64 ".index", key->uid, key->key);
}

int index_cache_open(const char *dir, const struct index_cache_key *key)
{
    char name[DISK_CACHE_NAME_MAX];
    uint64_t bytes;

    index_cache_name_of(key, name);
    int fd = disk_cache_open(dir, name, &bytes);
    if (fd >= 0)
        disk_cache_touch(fd);
    return fd;
}

int index_cache_read(int fd, const struct index_cache_key *key, struct dl_buffer *ret)
{
    struct dl_buffer bytes = {0};
    struct index_header header, want = {0};
    struct stat st;

    if (lseek(fd, 0, SEEK_SET) < 0 || fstat(fd, &st) < 0 ||
        !disk_cache_read(fd, &header, sizeof header) || header.bytes == 0 ||
        header.bytes > INDEX_CACHE_BYTES || (uint64_t)st.st_size != sizeof header + header.bytes)
        return -ENOENT;
    int r = buffer_reserve(&bytes, header.bytes);
    if (r < 0)
        return r;
    if (disk_cache_read(fd, bytes.data, header.bytes))
        want = index_cache_header_of(key, bytes.data, header.bytes);
    if (memcmp(&header, &want, sizeof header) != 0) {
        buffer_deinit(&bytes);
        return -ENOENT;
    }
    bytes.len = header.bytes;
    *ret = bytes;
    return 0;
}

int index_cache_store(const char *dir, const struct index_cache_key *key, struct dl_span index,
                      struct dl_error *err)
{
    char name[DISK_CACHE_NAME_MAX], what[64];

    if (index.len > INDEX_CACHE_BYTES)
        return dl_error_set(err, EFBIG, dir,
                            "an index of %zu bytes is not kept there: the most is %llu", index.len,
                            (unsigned long long)INDEX_CACHE_BYTES);
    struct index_header header = index_cache_header_of(key, index.data, index.len);
    const struct disk_cache_part parts[] = {{&header, sizeof header}, {index.data, index.len}};
    index_cache_name_of(key, name);
    snprintf(what, sizeof what, "an index of %zu bytes", index.len);
    return disk_cache_store(dir, name, parts, what, err);
}
