/* gzip by zlib. */
#include "daemon/data/files/gunzip.h"

#include <errno.h>

int gunzip_begin(struct gunzip *gz, const uint8_t *data, uint64_t bytes, const char *path,
                 struct dl_error *err)
{
    *gz = (struct gunzip){.next = data, .left = bytes, .path = path};
    /* 15 bits of window, + 16: the gzip format and no other. */
    if (inflateInit2(&gz->z, 15 + 16) != Z_OK)
        return dl_error_set(err, ENOMEM, path, "no memory for decompression");
    return 0;
}

void gunzip_end(struct gunzip *gz)
{
    if (gz->z.state)
        inflateEnd(&gz->z);
    *gz = (struct gunzip){0};
}

/* zlib counts in unsigned int; a large file is given to it in pieces. */
static void gunzip_feed(struct gunzip *gz)
{
    uInt piece = (uInt)min_u64(gz->left, 1 << 30);

    if (gz->z.avail_in > 0)
        return;
    gz->z.next_in = (Bytef *)gz->next;
    gz->z.avail_in = piece;
    gz->next += piece;
    gz->left -= piece;
}

/* Continues with the next member, if any: gzip files may be concatenated. */
static int gunzip_next_member(struct gunzip *gz, struct dl_error *err)
{
    unsigned long long rest = gz->left + gz->z.avail_in;

    if (gz->z.next_in[0] != 0x1f)
        return dl_error_set(err, EINVAL, gz->path,
                            "has %llu other bytes after its gzip data; it is damaged, or two "
                            "files were joined",
                            rest);
    if (inflateReset(&gz->z) != Z_OK)
        return dl_error_set(err, EINVAL, gz->path, "its gzip data is damaged");
    gz->member_ended = false;
    return 0;
}

static int gunzip_judge(struct gunzip *gz, int z, struct dl_error *err)
{
    switch (z) {
    case Z_OK:
        return 0;
    case Z_STREAM_END:
        gz->member_ended = true;
        return 0;
    case Z_BUF_ERROR: /* no progress: all input is used, and there is room for output */
        return dl_error_set(err, EINVAL, gz->path,
                            "its gzip data is truncated; fetch the file again");
    case Z_MEM_ERROR:
        return dl_error_set(err, ENOMEM, gz->path, "no memory for decompression");
    default:
        return dl_error_set(err, EINVAL, gz->path,
                            "its gzip data is damaged (%s); fetch the file again",
                            gz->z.msg ? gz->z.msg : "wrong kind of stream");
    }
}

/* Up to `n` bytes; fewer only at the end of the last member. */
static int gunzip_some(struct gunzip *gz, uint8_t *out, uint64_t n, uint64_t *ret,
                       struct dl_error *err)
{
    uint64_t done = 0;
    int r;

    while (done < n) {
        gunzip_feed(gz);
        if (gz->member_ended && gz->z.avail_in == 0)
            break;
        if (gz->member_ended && (r = gunzip_next_member(gz, err)) < 0)
            return r;
        uInt piece = (uInt)min_u64(n - done, 1 << 30);
        gz->z.next_out = out + done;
        gz->z.avail_out = piece;
        r = gunzip_judge(gz, inflate(&gz->z, Z_NO_FLUSH), err);
        if (r < 0)
            return r;
        done += piece - gz->z.avail_out;
    }
    *ret = done;
    return 0;
}

int gunzip_read(struct gunzip *gz, void *out, uint64_t n, struct dl_error *err)
{
    uint64_t got = 0;
    int r;

    r = gunzip_some(gz, out, n, &got, err);
    if (r < 0)
        return r;
    if (got < n)
        return dl_error_set(err, EINVAL, gz->path,
                            "unpacks to %llu bytes fewer than its header says; it is truncated",
                            (ull)(n - got));
    return 0;
}

int gunzip_finish(struct gunzip *gz, struct dl_error *err)
{
    uint8_t extra;
    uint64_t got = 0;
    int r;

    /* Asking for one byte more also makes zlib read and verify the checksum at the end. */
    r = gunzip_some(gz, &extra, 1, &got, err);
    if (r < 0)
        return r;
    if (got > 0)
        return dl_error_set(err, EINVAL, gz->path,
                            "unpacks to more bytes than its header says; it is damaged");
    return 0;
}

uint64_t gunzip_bound(uint64_t bytes)
{
    uint64_t bound;

    return mul_overflows(bytes, 1032, &bound) ? UINT64_MAX : bound;
}
