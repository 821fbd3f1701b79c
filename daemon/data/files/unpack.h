/*
 * Compressed data that is taken whole: a shard, or a member of one. Memory grows with what comes
 * out, never with what a header claims.
 */
#ifndef DL_DATA_UNPACK_H
#define DL_DATA_UNPACK_H

#include "proto/common/error.h"

enum compression {
    COMPRESSION_NONE,
    COMPRESSION_GZIP,
    COMPRESSION_ZSTD, /* if this build has libzstd */
    COMPRESSION_BZIP2,
    COMPRESSION_XZ, /* the last two are only recognised */
};

enum { DEFLATE_MOST = 1032 }; /* bytes that one byte of deflate can become */

enum deflate_frame { DEFLATE_RAW, DEFLATE_ZLIB, DEFLATE_GZIP };

/* By how the data begin. */
enum compression compression_of(const uint8_t *data, uint64_t bytes);
const char *compression_name(enum compression compression); /* "gzip" */
bool compression_is_built_in(enum compression compression);

/*
 * Unpacks all of it, in one part or several, into memory that the caller frees. 0; or a negative
 * errno with `err`, which names `path` and whose message continues it: -EINVAL corrupt, or
 * truncated; -EFBIG more than `most` bytes; -ENOTSUP not built in; -ENOMEM.
 */
int _nodiscard_ unpack(enum compression compression, const uint8_t *data, uint64_t bytes,
                       uint64_t most, const char *path, uint8_t **ret, uint64_t *ret_bytes,
                       struct dl_error *err);

/*
 * Unpacks into exactly `room` bytes at `ret`, from gzip (or zlib's own frame) or zstd: 0; -EINVAL:
 * corrupt, or another number of bytes; -ENOTSUP; -ENOMEM.
 */
int _nodiscard_ unpack_exactly(enum compression compression, const uint8_t *data, uint64_t bytes,
                               uint8_t *ret, uint64_t room);

/*
 * One stream of deflate, and its frame's checksum; what follows it is not looked at. 0; -EINVAL:
 * corrupt, or more than `room` bytes; -ENOMEM.
 */
int _nodiscard_ unpack_deflate(enum deflate_frame frame, const uint8_t *data, uint64_t bytes,
                               uint8_t *ret, uint64_t room, uint64_t *ret_bytes);

/* CRC-32 as of gzip and zip. */
uint32_t crc32_of(const uint8_t *data, uint64_t bytes);

#endif
