/* Decompression of gzip, from memory. Not thread-safe. */
#ifndef DL_DATA_GUNZIP_H
#define DL_DATA_GUNZIP_H

#include "proto/common/error.h"

#include <zlib.h>

/*
 * Decompression of a gzip file of one or more members. The caller decides how much it wants, so
 * that a small file cannot make it take more memory than it was ready for.
 */
struct gunzip {
    z_stream z;
    const uint8_t *next; /* borrowed: compressed bytes zlib has not been given yet */
    uint64_t left;
    const char *path; /* borrowed, for messages */
    bool member_ended;
};

int _nodiscard_ gunzip_begin(struct gunzip *gz, const uint8_t *data, uint64_t bytes,
                             const char *path, struct dl_error *err);
void gunzip_end(struct gunzip *gz); /* after a begin that succeeded; a zeroed one is fine */

/* Exactly `n` bytes, or -EINVAL (corrupt, truncated, or the data ends before), or -ENOMEM. */
int _nodiscard_ gunzip_read(struct gunzip *gz, void *out, uint64_t n, struct dl_error *err);

/* Verifies that nothing follows what was read, and the checksum. -EINVAL. */
int _nodiscard_ gunzip_finish(struct gunzip *gz, struct dl_error *err);

/*
 * Upper bound of what `bytes` of gzip can unpack to: deflate codes at best 258 bytes in 2 bits.
 */
uint64_t gunzip_bound(uint64_t bytes);

#endif
