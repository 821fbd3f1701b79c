/* Building zip archives in memory, as tests want them: good, and wrong in one place. */
#ifndef DL_TEST_MAKE_ZIP_H
#define DL_TEST_MAKE_ZIP_H

#include "proto/common/base.h"

#include <assert.h>
#include <zlib.h>

enum { ZIP_ROOM = 1 << 14, ZIP_LOCAL = 30, ZIP_ENTRY = 46, ZIP_END = 22 };

struct zip_file {
    uint8_t data[ZIP_ROOM];
    size_t len;
    uint8_t directory[ZIP_ROOM / 4];
    size_t directory_len;
    unsigned members;
};

static inline void zip_put(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

static inline size_t zip_deflate(const void *data, size_t len, uint8_t *ret, size_t room)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)data,
                  .avail_in = (uInt)len,
                  .next_out = ret,
                  .avail_out = (uInt)room};

    assert(deflateInit2(&z, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    assert(deflate(&z, Z_FINISH) == Z_STREAM_END);
    deflateEnd(&z);
    return room - z.avail_out;
}

/* A member; `extra` bytes of nothing stand before its data, as numpy's zip64 field does. */
static inline void zip_add(struct zip_file *zip, const char *name, const void *data, size_t len,
                           bool deflated, size_t extra)
{
    size_t name_len = strlen(name), local = zip->len, packed = len;
    uint8_t *at = zip->data + local, *entry = zip->directory + zip->directory_len;

    memset(at, 0, ZIP_LOCAL + name_len + extra);
    memset(entry, 0, ZIP_ENTRY);
    uint8_t *to = at + ZIP_LOCAL + name_len + extra;
    if (deflated)
        packed = zip_deflate(data, len, to, ZIP_ROOM - (size_t)(to - zip->data));
    else
        memcpy(to, data, len);
    memcpy(at, "PK\3\4", 4);
    zip_put(at + 26, name_len, 2);
    zip_put(at + 28, extra, 2);
    memcpy(at + ZIP_LOCAL, name, name_len);
    memcpy(entry, "PK\1\2", 4);
    zip_put(entry + 10, deflated ? 8 : 0, 2);
    zip_put(entry + 16, crc32(0, data, (uInt)len), 4);
    zip_put(entry + 20, packed, 4);
    zip_put(entry + 24, len, 4);
    zip_put(entry + 28, name_len, 2);
    zip_put(entry + 42, local, 4);
    memcpy(entry + ZIP_ENTRY, name, name_len);
    zip->directory_len += ZIP_ENTRY + name_len;
    zip->len += ZIP_LOCAL + name_len + extra + packed;
    zip->members++;
}

static inline void zip_end(struct zip_file *zip, const char *comment)
{
    size_t offset = zip->len, comment_len = strlen(comment);
    uint8_t *end = zip->data + offset + zip->directory_len;

    assert(offset + zip->directory_len + ZIP_END + comment_len <= ZIP_ROOM);
    memcpy(zip->data + offset, zip->directory, zip->directory_len);
    memset(end, 0, ZIP_END);
    memcpy(end, "PK\5\6", 4);
    zip_put(end + 8, zip->members, 2);
    zip_put(end + 10, zip->members, 2);
    zip_put(end + 12, zip->directory_len, 4);
    zip_put(end + 16, offset, 4);
    zip_put(end + 20, comment_len, 2);
    memcpy(end + ZIP_END, comment, comment_len);
    zip->len += zip->directory_len + ZIP_END + comment_len;
}

#endif
