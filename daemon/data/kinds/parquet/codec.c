#include "daemon/data/kinds/parquet/codec.h"
#include "daemon/data/files/lz.h"

#include "daemon/data/files/unpack.h"
#include "proto/common/load.h"

#include <errno.h>
#if HAVE_BROTLI
#include <brotli/decode.h>
#endif

static const struct {
    const char *name;
    bool built_in;
} parquet_codecs[] = {
    [PARQUET_PLAIN] = {"none", true},
    [PARQUET_SNAPPY] = {"snappy", true},
    [PARQUET_GZIP] = {"gzip", true},
    [PARQUET_LZO] = {"lzo", false},
    [PARQUET_BROTLI] = {"brotli", HAVE_BROTLI},
    [PARQUET_LZ4] = {"lz4", true},
    [PARQUET_ZSTD] = {"zstd", HAVE_ZSTD},
    [PARQUET_LZ4_RAW] = {"lz4_raw", true},
};

const char *parquet_codec_name(uint32_t codec)
{
    return codec < ARRAY_SIZE(parquet_codecs) ? parquet_codecs[codec].name : "?";
}

bool parquet_codec_is_built_in(uint32_t codec)
{
    return codec < ARRAY_SIZE(parquet_codecs) && parquet_codecs[codec].built_in;
}

/* Blocks, each behind what it has when it is unpacked and packed, in four bytes. */
static bool parquet_codec_unpack_hadoop(const uint8_t *data, uint64_t bytes, uint8_t *ret,
                                        uint64_t room)
{
    while (bytes >= 8) {
        uint64_t out = load_be32(data), in = load_be32(data + 4);
        data += 8;
        bytes -= 8;
        if (in > bytes || out > room || lz4_unpack(data, in, ret, out) < 0)
            return false;
        data += in;
        bytes -= in;
        ret += out;
        room -= out;
    }
    return bytes == 0 && room == 0;
}

#if HAVE_BROTLI
static int parquet_codec_unpack_brotli(const uint8_t *data, uint64_t bytes, uint8_t *ret,
                                       uint64_t room)
{
    size_t out = room;

    return BrotliDecoderDecompress(bytes, data, &out, ret) == BROTLI_DECODER_RESULT_SUCCESS &&
                   out == room
               ? 0
               : -EINVAL;
}
#endif

int parquet_codec_unpack(uint32_t codec, const uint8_t *data, uint64_t bytes, uint8_t *ret,
                         uint64_t room)
{
    switch ((enum parquet_codec)codec) {
    case PARQUET_PLAIN:
        if (bytes != room)
            return -EINVAL;
        memcpy(ret, data, bytes);
        return 0;
    case PARQUET_SNAPPY:
        return snappy_unpack(data, bytes, ret, room);
    case PARQUET_GZIP:
        return unpack_exactly(COMPRESSION_GZIP, data, bytes, ret, room);
    case PARQUET_ZSTD:
        return unpack_exactly(COMPRESSION_ZSTD, data, bytes, ret, room);
    case PARQUET_LZ4: /* parquet-format says what writers of old did: both */
        return parquet_codec_unpack_hadoop(data, bytes, ret, room)
                   ? 0
                   : lz4_unpack(data, bytes, ret, room);
    case PARQUET_LZ4_RAW:
        return lz4_unpack(data, bytes, ret, room);
    case PARQUET_BROTLI:
#if HAVE_BROTLI
        return parquet_codec_unpack_brotli(data, bytes, ret, room);
#endif
    case PARQUET_LZO:
        break;
    }
    return -ENOTSUP;
}
