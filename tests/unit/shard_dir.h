/* What the tests of MDS and litData share: directories with an index, and files with a table of
 * their samples in front, as daemon/data/files/shard_file.h has them. */
#ifndef DL_TEST_SHARD_DIR_H
#define DL_TEST_SHARD_DIR_H

#include "tests/lib/bytes.h"

#include <stdio.h>

/* A file in the directory of that name. */
static inline void write_in(const char *name, const char *dir, const void *data, size_t len)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    harness_file(path, data, len);
}

static inline struct bytes shard_of(uint32_t n, const struct bytes *samples)
{
    struct bytes shard = {.len = 0};
    uint32_t at = 4 * (n + 2);

    put32(&shard, n);
    for (uint32_t i = 0; i < n; i++) {
        put32(&shard, at);
        at += (uint32_t)samples[i].len;
    }
    put32(&shard, at);
    for (uint32_t i = 0; i < n; i++)
        put(&shard, samples[i].data, samples[i].len);
    return shard;
}

#endif
