#include "daemon/data/kinds/litdata/litdata_chunk.h"

#include "daemon/data/files/unpack.h"
#include "proto/common/load.h"

#include <errno.h>

enum { HEAD = 24, FRAME = 24 };

static const char frames_magic[8] = "LDFZ01\0";

/* A chunk in frames, and what it is unpacked to. */
struct litdata_frames {
    const uint8_t *data;
    uint64_t bytes;
    const char *path;
    uint64_t items, frames; /* counts */
    uint64_t done;          /* items */
    uint8_t *out;           /* owned */
    uint64_t out_bytes;
    struct dl_error *err;
};

static int litdata_frames_refuse(const struct litdata_frames *f, const char *why)
{
    return dl_error_set(f->err, EINVAL, f->path, "is a chunk in frames that %s; it is damaged",
                        why);
}

/* Writes the table of places that a chunk without frames has. */
static int litdata_frames_put_table(struct litdata_frames *f)
{
    uint64_t head = 4 * (f->items + 2);
    uint32_t n = htole32((uint32_t)f->items);

    f->out = malloc(head);
    if (!f->out)
        return dl_error_set(f->err, ENOMEM, f->path, "out of memory");
    f->out_bytes = head;
    memcpy(f->out, &n, sizeof n);
    for (uint64_t i = 0; i <= f->items; i++) {
        uint64_t place = head + load_le32(f->data + HEAD + 4 * i);
        if (place > UINT32_MAX)
            return litdata_frames_refuse(f, "has more than 4 GiB");
        n = htole32((uint32_t)place);
        memcpy(f->out + 4 * (i + 1), &n, sizeof n);
    }
    return 0;
}

static int litdata_frames_append(struct litdata_frames *f, const uint8_t *data, uint64_t bytes)
{
    uint8_t *bigger = realloc(f->out, f->out_bytes + max_u64(bytes, 1));

    if (!bigger)
        return dl_error_set(f->err, ENOMEM, f->path, "out of memory");
    memcpy(bigger + f->out_bytes, data, bytes);
    f->out = bigger;
    f->out_bytes += bytes;
    return 0;
}

static int litdata_frames_unpack(struct litdata_frames *f, const uint8_t *frame)
{
    uint64_t at = load_le64(frame + 8), packed = load_le32(frame + 16),
             most = load_le32(frame + 20), n = 0;
    uint8_t *data = NULL;

    if (load_le32(frame) != f->done || at > f->bytes || packed > f->bytes - at)
        return litdata_frames_refuse(f, "has frames that are not within it, one after the other");
    f->done += load_le32(frame + 4);
    if (compression_of(f->data + at, packed) != COMPRESSION_ZSTD)
        return litdata_frames_refuse(f, "has a frame that is not compressed by zstd");
    int r = unpack(COMPRESSION_ZSTD, f->data + at, packed, most, f->path, &data, &n, f->err);
    if (r == 0)
        r = n == most ? litdata_frames_append(f, data, n)
                      : litdata_frames_refuse(f, "has a frame that is not of the size it says");
    free(data);
    return r;
}

static int litdata_frames_read(struct litdata_frames *f)
{
    const uint8_t *frame = f->data + HEAD + 4 * (f->items + 1);
    int r = litdata_frames_put_table(f);

    for (uint64_t i = 0; r == 0 && i < f->frames; i++)
        r = litdata_frames_unpack(f, frame + i * FRAME);
    return r == 0 && f->done != f->items ? litdata_frames_refuse(f, "lacks items") : r;
}

int litdata_chunk_unframe(const uint8_t *data, uint64_t bytes, const char *path, uint8_t **ret,
                          uint64_t *ret_bytes, struct dl_error *err)
{
    struct litdata_frames f = {.data = data, .bytes = bytes, .path = path, .err = err};

    if (bytes < HEAD || memcmp(data, frames_magic, sizeof frames_magic) != 0)
        return SHARD_NOT_FRAMED;
    f.items = load_le32(data + 12);
    f.frames = load_le32(data + 20);
    if (data[8] != 1 || data[9] != 0)
        return litdata_frames_refuse(&f, "is not of version 1");
    if (f.items >= (bytes - HEAD) / 4 || f.frames > (bytes - HEAD - 4 * (f.items + 1)) / FRAME)
        return litdata_frames_refuse(&f, "has more items or frames than bytes");
    int r = litdata_frames_read(&f);
    if (r < 0) {
        free(f.out);
        return r;
    }
    *ret = f.out;
    *ret_bytes = f.out_bytes;
    return 0;
}

bool litdata_chunk_split(const struct litdata_index *index, const uint8_t *data, uint64_t bytes,
                         struct litdata_value *ret)
{
    uint64_t n = index->shape.leaves, head = index->tokens ? 0 : 4 * n;
    const uint8_t *sizes = data;

    if (head > bytes)
        return false;
    data += head;
    bytes -= head;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t size = index->tokens ? bytes : load_le32(sizes + 4 * i);
        if (size > bytes)
            return false;
        ret[i] = (struct litdata_value){.leaf = &index->leaves[i], .data = data, .size = size};
        data += size;
        bytes -= size;
    }
    return bytes == 0;
}
