/* What the tests of daemon/data share: building files of its formats, and checking errors. */
#ifndef DL_TEST_DATA_FILES_H
#define DL_TEST_DATA_FILES_H

#include "daemon/data/kinds/arrays/array.h"
#include "tests/lib/harness.h"

#include <stdio.h>

static const struct data_env anywhere _unused_ = {0};

/* The whole message, to the letter. */
static inline void assert_error(const struct dl_error *err, int code, const char *path,
                                const char *message)
{
    assert_string_equal(err->message, message);
    assert_string_equal(err->path, path);
    assert_int_equal(err->code, code);
}

/* A part of the message, where the rest is the system's or a number that does not matter. */
static inline void assert_error_has(const struct dl_error *err, const char *part)
{
    if (!strstr(err->message, part))
        fail_msg("\"%s\" does not say \"%s\"", err->message, part);
}

/* Where the sample is found, "" being nowhere: below the test's folder, of any file there. */
static inline void assert_name(struct dataset *ds, uint64_t index, const char *end)
{
    char name[4096] = "";
    size_t len = dataset_name(ds, index, name, sizeof name), want = strlen(end);

    assert_int_equal(len, strlen(name));
    if (len < want || strcmp(name + len - want, end) != 0 || (want == 0 && len > 0))
        fail_msg("sample %llu is called \"%s\", not \"%s\"", (unsigned long long)index, name, end);
    if (want > 0) { /* cut where there is no room, as by snprintf() */
        char cut[8];
        assert_int_equal(dataset_name(ds, index, cut, sizeof cut), len);
        assert_int_equal(strlen(cut), sizeof cut - 1);
    }
}

/* Returns bytes written to `out`. */
static inline size_t make_gzip(const void *data, size_t len, uint8_t *out, size_t room)
{
    z_stream z = {0};

    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)data;
    z.avail_in = (uInt)len;
    z.next_out = out;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return z.total_out;
}

/* A frame of zstd's with one block that is stored, of at most 64 KiB; returns its length. */
static inline size_t make_zstd(const void *data, size_t len, uint8_t *out)
{
    size_t at = 5, wide = len < 256 ? 1 : 2; /* two bytes count from 256 on */
    uint32_t size = (uint32_t)(wide == 1 ? len : len - 256), block = (uint32_t)len << 3 | 1;

    assert_true(len < 1 << 16);
    memcpy(out, wide == 1 ? "\x28\xB5\x2F\xFD\x20" : "\x28\xB5\x2F\xFD\x60", at);
    memcpy(out + at, &size, wide);
    memcpy(out + at + wide, &block, 3);
    memcpy(out + at + wide + 3, data, len);
    return at + wide + 3 + len;
}

/* An IDX header; returns its length. */
static inline size_t make_idx(uint8_t *out, uint8_t type, uint8_t ndim, const uint32_t *dims)
{
    memcpy(out, (uint8_t[]){0, 0, type, ndim}, 4);
    for (size_t i = 0; i < ndim; i++) {
        uint32_t big = __builtin_bswap32(dims[i]);
        memcpy(out + 4 + 4 * i, &big, 4);
    }
    return 4 + 4 * (size_t)ndim;
}

/* A .npy header of version `major` around the text of a dict; returns its length. */
static inline size_t make_npy(uint8_t *out, uint8_t major, const char *dict)
{
    size_t len = strlen(dict), off = major == 1 ? 10 : 12;

    memcpy(out, "\x93NUMPY", 6);
    out[6] = major;
    out[7] = 0;
    for (size_t i = 8; i < off; i++)
        out[i] = (uint8_t)(len >> (8 * (i - 8)));
    memcpy(out + off, dict, len);
    return off + len;
}

#endif
