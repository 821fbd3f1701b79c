#include "daemon/cache/lengths_cache.h"

#include "daemon/cache/disk_cache.h"

#include <errno.h>
#include <stdio.h>

int lengths_cache_load(const char *dir, uint64_t fingerprint, uint64_t n, uint32_t *ret)
{
    const struct disk_cache_key file = {.kind = "lengths", .key = fingerprint};
    struct disk_cache_header header;
    uint64_t bytes;

    if (fingerprint == 0 || mul_overflows(n, sizeof *ret, &bytes))
        return -ENOENT;
    _cleanup_fd_ int fd = disk_cache_open(dir, &file);
    if (fd < 0 || !disk_cache_read_header(fd, &header) || header.bytes != bytes ||
        !disk_cache_read(fd, &file, &header, ret))
        return -ENOENT;
    disk_cache_touch(fd);
    return 0;
}

int lengths_cache_store(const char *dir, uint64_t fingerprint, uint64_t n, const uint32_t *lengths,
                        struct dl_error *err)
{
    const struct disk_cache_key file = {.kind = "lengths", .key = fingerprint};
    char what[64];

    if (fingerprint == 0)
        return dl_error_set(err, EINVAL, dir, "lengths without a fingerprint are not kept");
    snprintf(what, sizeof what, "lengths of %llu samples", (ull)n);
    return disk_cache_store(dir, &file, lengths, n * sizeof *lengths, what, err);
}
