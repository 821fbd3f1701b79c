/*
 * Unpacks a Parquet page into memory of the size given in its header. Snappy and LZ4 have our own
 * decoders: their formats are a page each, and the wheel needs no C library for what nearly all
 * writers do by default. Pure.
 */
#ifndef DL_DATA_PARQUET_CODEC_H
#define DL_DATA_PARQUET_CODEC_H

#include "proto/common/base.h"

/* As a file's footer numbers them. */
enum parquet_codec {
    PARQUET_PLAIN,
    PARQUET_SNAPPY,
    PARQUET_GZIP,
    PARQUET_LZO,
    PARQUET_BROTLI,
    PARQUET_LZ4, /* with or without Hadoop's frames */
    PARQUET_ZSTD,
    PARQUET_LZ4_RAW,
};

const char *parquet_codec_name(uint32_t codec); /* "snappy"; "?" */
bool parquet_codec_is_built_in(uint32_t codec);

/*
 * Unpacks `bytes` of `data` into exactly `room` bytes at `ret`. 0; -EINVAL: corrupt, or another
 * number of bytes; -ENOTSUP: not built in; -ENOMEM.
 */
int _nodiscard_ parquet_codec_unpack(uint32_t codec, const uint8_t *data, uint64_t bytes,
                                     uint8_t *ret, uint64_t room);

#endif
