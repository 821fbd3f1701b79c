#include "daemon/data/files/unpack.h"

#include "proto/common/bytes.h"
#include "proto/limits.h"

#include <assert.h>
#include <errno.h>
#include <libdeflate.h>
#include <zlib.h>
#if HAVE_ZSTD
#include <zstd.h>
#endif

enum { FIRST_ROOM = 64 << 10 };

static const struct {
    const char *magic;
    const char *name;
    bool built_in;
} unpack_compressions[] = {
    [COMPRESSION_NONE] = {"", "none", true},
    [COMPRESSION_GZIP] = {"\x1f\x8b", "gzip", true},
    [COMPRESSION_ZSTD] = {"\x28\xb5\x2f\xfd", "zstd", HAVE_ZSTD},
    [COMPRESSION_BZIP2] = {"BZh", "bzip2", false},
    [COMPRESSION_XZ] = {"\xfd"
                        "7zXZ",
                        "xz", false},
};

/* Behind frames that zstd's programs skip (RFC 8878, 3.1.2), as parallel ones write them first; LZ4
 * has the same, so what follows counts. */
static uint64_t unpack_skipped(const uint8_t *data, uint64_t bytes)
{
    enum { FRAME_HEAD = 8 };
    uint64_t at = 0;
    uint32_t size;

    while (bytes - at >= FRAME_HEAD && (data[at] & 0xF0) == 0x50 &&
           memcmp(data + at + 1, "\x2a\x4d\x18", 3) == 0) {
        memcpy(&size, data + at + 4, sizeof size);
        if (size > bytes - at - FRAME_HEAD)
            break;
        at += FRAME_HEAD + (uint64_t)size;
    }
    return at;
}

enum compression compression_of(const uint8_t *data, uint64_t bytes)
{
    uint64_t skipped = unpack_skipped(data, bytes);

    if (skipped > 0)
        return compression_of(data + skipped, bytes - skipped) == COMPRESSION_ZSTD
                   ? COMPRESSION_ZSTD
                   : COMPRESSION_NONE;
    for (enum compression c = COMPRESSION_GZIP; c < ARRAY_SIZE(unpack_compressions); c++) {
        size_t len = strlen(unpack_compressions[c].magic);
        if (bytes >= len && memcmp(data, unpack_compressions[c].magic, len) == 0)
            return c;
    }
    return COMPRESSION_NONE;
}

const char *compression_name(enum compression compression)
{
    return unpack_compressions[compression].name;
}

bool compression_is_built_in(enum compression compression)
{
    return unpack_compressions[compression].built_in;
}

/* What comes out. */
struct unpacked {
    const char *path; /* borrowed */
    uint8_t *data;    /* owned */
    uint64_t bytes;
    uint64_t room;
    uint64_t most;
};

static int unpack_too_large(const struct unpacked *out, struct dl_error *err)
{
    return dl_error_set(err, EFBIG, out->path,
                        "unpacks to more than the %llu bytes that it may have", (ull)out->most);
}

static int unpack_make_room(struct unpacked *out, struct dl_error *err)
{
    uint64_t room = out->room ? 2 * out->room : FIRST_ROOM;

    if (out->bytes < out->room)
        return 0;
    if (out->room > out->most)
        return unpack_too_large(out, err);
    room = min_u64(room, out->most + 1); /* one more, to detect excess */
    uint8_t *bigger = realloc(out->data, room);
    if (!bigger)
        return dl_error_set(err, ENOMEM, out->path, "needs more memory to unpack than there is");
    out->data = bigger;
    out->room = room;
    return 0;
}

static int unpack_corrupt(const struct unpacked *out, const char *by, const char *why,
                          struct dl_error *err)
{
    return dl_error_set(err, EINVAL, out->path, "is compressed by %s, and corrupt: %s", by, why);
}

/* ---- gzip ----------------------------------------------------------------------------------- */

/* What there is of the members, one after another; 0 at the end. */
static int unpack_inflate_some(z_stream *z, struct unpacked *out, uint64_t *left,
                               struct dl_error *err)
{
    int r = unpack_make_room(out, err);

    if (r < 0)
        return r;
    uInt given = (uInt)min_u64(*left, UINT32_MAX),
         room = (uInt)min_u64(out->room - out->bytes, UINT32_MAX);
    z->avail_in = given;
    z->next_out = out->data + out->bytes;
    z->avail_out = room;
    r = inflate(z, Z_NO_FLUSH);
    *left -= given - z->avail_in;
    out->bytes += room - z->avail_out;
    for (; r == Z_STREAM_END && *left > 0 && *z->next_in == 0; z->next_in++)
        --*left; /* padding of tapes, as gzip and Python accept it */
    if (r == Z_STREAM_END)
        return *left > 0 && inflateReset(z) == Z_OK ? 1 : 0;
    if (r == Z_MEM_ERROR)
        return dl_error_set(err, ENOMEM, out->path, "out of memory for zlib");
    if (r != Z_OK && r != Z_BUF_ERROR)
        return unpack_corrupt(out, "gzip", z->msg ? z->msg : "no such data", err);
    if (*left == 0 && z->avail_out > 0)
        return unpack_corrupt(out, "gzip", "it ends too soon", err);
    return 1;
}

static int unpack_gzip(const uint8_t *data, uint64_t bytes, struct unpacked *out,
                       struct dl_error *err)
{
    z_stream z = {.next_in = (Bytef *)data};
    int r = inflateInit2(&z, 15 + 16);

    if (r != Z_OK)
        return dl_error_set(err, ENOMEM, out->path, "out of memory for zlib");
    do {
        r = unpack_inflate_some(&z, out, &bytes, err);
    } while (r > 0);
    inflateEnd(&z);
    return r;
}

/* ---- zstd ----------------------------------------------------------------------------------- */

#if HAVE_ZSTD
static int unpack_zstd_all(ZSTD_DStream *stream, ZSTD_inBuffer *in, struct unpacked *out,
                           struct dl_error *err)
{
    size_t more = 1;

    while (in->pos < in->size || more > 0) {
        int r = unpack_make_room(out, err);
        if (r < 0)
            return r;
        ZSTD_outBuffer to = {.dst = out->data + out->bytes, .size = out->room - out->bytes};
        size_t before = in->pos;
        more = ZSTD_decompressStream(stream, &to, in);
        if (ZSTD_isError(more))
            return unpack_corrupt(out, "zstd", ZSTD_getErrorName(more), err);
        out->bytes += to.pos;
        if (more > 0 && in->pos == in->size && before == in->pos && to.pos == 0)
            return unpack_corrupt(out, "zstd", "it ends too soon", err);
    }
    return 0;
}

static int unpack_zstd(const uint8_t *data, uint64_t bytes, struct unpacked *out,
                       struct dl_error *err)
{
    ZSTD_inBuffer in = {.src = data, .size = bytes};
    ZSTD_DStream *stream = ZSTD_createDStream();

    if (!stream)
        return dl_error_set(err, ENOMEM, out->path, "out of memory for zstd");
    int r = unpack_zstd_all(stream, &in, out, err);
    ZSTD_freeDStream(stream);
    return r;
}
#endif

int unpack(enum compression compression, const uint8_t *data, uint64_t bytes, uint64_t most,
           const char *path, uint8_t **ret, uint64_t *ret_bytes, struct dl_error *err)
{
    struct unpacked out = {.path = path, .most = most};
    int r = -ENOTSUP;

    switch (compression) {
    case COMPRESSION_GZIP:
        r = unpack_gzip(data, bytes, &out, err);
        break;
    case COMPRESSION_ZSTD:
#if HAVE_ZSTD
        r = unpack_zstd(data, bytes, &out, err);
        break;
#endif
    case COMPRESSION_NONE:
    case COMPRESSION_BZIP2:
    case COMPRESSION_XZ:
        dl_error_set(err, ENOTSUP, path, "is compressed by %s, which this build cannot unpack; %s",
                     compression_name(compression),
                     compression == COMPRESSION_ZSTD ? "build it with libzstd, or unpack the file"
                                                     : "unpack the file");
        break;
    }
    if (r == 0 && out.bytes > most)
        r = unpack_too_large(&out, err);
    if (r < 0) {
        free(out.data);
        return r;
    }
    *ret = out.data;
    *ret_bytes = out.bytes;
    return 0;
}

/* ---- into memory of a known size ------------------------------------------------------------ */

static int unpack_deflate_one(struct libdeflate_decompressor *d, enum deflate_frame frame,
                              struct dl_span *at, uint8_t *ret, uint64_t room, uint64_t *ret_bytes)
{
    size_t read = 0, made = 0;
    enum libdeflate_result r;

    if (frame == DEFLATE_RAW)
        r = libdeflate_deflate_decompress_ex(d, at->data, at->len, ret, room, &read, &made);
    else if (frame == DEFLATE_ZLIB)
        r = libdeflate_zlib_decompress_ex(d, at->data, at->len, ret, room, &read, &made);
    else
        r = libdeflate_gzip_decompress_ex(d, at->data, at->len, ret, room, &read, &made);
    assert(read <= at->len && made <= room);
    *at = (struct dl_span){at->data + read, at->len - read};
    *ret_bytes = made;
    return r == LIBDEFLATE_SUCCESS ? 0 : -EINVAL;
}

int unpack_deflate(enum deflate_frame frame, const uint8_t *data, uint64_t bytes, uint8_t *ret,
                   uint64_t room, uint64_t *ret_bytes)
{
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    struct dl_span at = {data, bytes};
    int r = d ? unpack_deflate_one(d, frame, &at, ret, room, ret_bytes) : -ENOMEM;

    libdeflate_free_decompressor(d);
    return r;
}

uint32_t crc32_of(const uint8_t *data, uint64_t bytes)
{
    return libdeflate_crc32(0, data, bytes);
}

/* Of one member or several. */
static int unpack_inflate_exactly(const uint8_t *data, uint64_t bytes, uint8_t *ret, uint64_t room)
{
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    enum deflate_frame frame =
        compression_of(data, bytes) == COMPRESSION_GZIP ? DEFLATE_GZIP : DEFLATE_ZLIB;
    struct dl_span at = {data, bytes};
    uint64_t made = 0;
    int r;

    if (!d)
        return -ENOMEM;
    do {
        r = unpack_deflate_one(d, frame, &at, ret, room, &made);
        ret += made;
        room -= made;
    } while (r == 0 && at.len > 0);
    libdeflate_free_decompressor(d);
    return r == 0 && room > 0 ? -EINVAL : r;
}

int unpack_exactly(enum compression compression, const uint8_t *data, uint64_t bytes, uint8_t *ret,
                   uint64_t room)
{
    if (compression == COMPRESSION_GZIP)
        return unpack_inflate_exactly(data, bytes, ret, room);
#if HAVE_ZSTD
    if (compression == COMPRESSION_ZSTD)
        return ZSTD_decompress(ret, room, data, bytes) == room ? 0 : -EINVAL;
#endif
    return -ENOTSUP;
}
