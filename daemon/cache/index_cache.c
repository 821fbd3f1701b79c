#include "daemon/cache/index_cache.h"

#include "daemon/cache/disk_cache.h"

#include <errno.h>
#include <stdio.h>

static struct disk_cache_key index_cache_file_of(const struct index_cache_key *key)
{
    return (struct disk_cache_key){
        .kind = "index", .key = key->key, .uid = key->uid, .is_users = true};
}

int index_cache_open(const char *dir, const struct index_cache_key *key)
{
    const struct disk_cache_key file = index_cache_file_of(key);
    int fd = disk_cache_open(dir, &file);

    if (fd >= 0)
        disk_cache_touch(fd);
    return fd;
}

int index_cache_read(int fd, const struct index_cache_key *key, struct dl_buffer *ret)
{
    const struct disk_cache_key file = index_cache_file_of(key);
    struct dl_buffer bytes = {0};
    struct disk_cache_header header;

    if (!disk_cache_read_header(fd, &header) || header.bytes == 0 ||
        header.bytes > INDEX_CACHE_BYTES)
        return -ENOENT;
    int r = buffer_reserve(&bytes, header.bytes);
    if (r < 0)
        return r;
    if (!disk_cache_read(fd, &file, &header, bytes.data)) {
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
    const struct disk_cache_key file = index_cache_file_of(key);
    char what[64];

    if (index.len > INDEX_CACHE_BYTES)
        return dl_error_set(err, EFBIG, dir,
                            "an index of %zu bytes is not kept there: the most is %llu", index.len,
                            (ull)INDEX_CACHE_BYTES);
    snprintf(what, sizeof what, "an index of %zu bytes", index.len);
    return disk_cache_store(dir, &file, index.data, index.len, what, err);
}
