/* What is compressed, by its first bytes, and what comes out of it. */
#include "daemon/data/files/unpack.h"
#include "tests/lib/harness.h"

#define FRAME "\x28\xb5\x2f\xfd\x20\x02\x11\x00\x00hi" /* zstd's, of a block as it is */
#define SKIPPED                        \
    "\x50\x2a\x4d\x18\x03\x00\x00\x00" \
    "abc"
#define SKIPPED_5F "\x5f\x2a\x4d\x18\x00\x00\x00\x00"
#define LZ4        "\x04\x22\x4d\x18"
#define MEMBER                                                     \
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x01\x02\x00\xfd\xff" \
    "hi\xac\x2a\x93\xd8\x02\x00\x00\x00"
#define BYTES(text) text, sizeof(text) - 1

static const struct {
    const char *data;
    size_t bytes;
    enum compression by;
    const char *out; /* NULL: corrupt */
} rows[] = {
    {BYTES(FRAME), COMPRESSION_ZSTD, "hi"},
    {BYTES(SKIPPED FRAME), COMPRESSION_ZSTD, "hi"},
    {BYTES(SKIPPED_5F SKIPPED FRAME SKIPPED FRAME SKIPPED), COMPRESSION_ZSTD, "hihi"},
    {BYTES(SKIPPED_5F SKIPPED FRAME "\0"), COMPRESSION_ZSTD, NULL},
    {BYTES(SKIPPED LZ4), COMPRESSION_NONE, NULL},
    {BYTES(SKIPPED MEMBER), COMPRESSION_NONE, NULL},
    {BYTES(SKIPPED), COMPRESSION_NONE, NULL},
    {BYTES("\x50\x2a\x4d\x18\xff\xff\xff\xff" FRAME), COMPRESSION_NONE, NULL},
    {BYTES("\x50\x2a\x4d\x18"), COMPRESSION_NONE, NULL},
    {BYTES(MEMBER), COMPRESSION_GZIP, "hi"},
    {BYTES(MEMBER MEMBER), COMPRESSION_GZIP, "hihi"},
    {BYTES(MEMBER "\0\0\0\0\0"), COMPRESSION_GZIP, "hi"},
    {BYTES(MEMBER "\0\0\0" MEMBER), COMPRESSION_GZIP, "hihi"},
    {BYTES(MEMBER "more"), COMPRESSION_GZIP, NULL},
    {BYTES(MEMBER "\0more"), COMPRESSION_GZIP, NULL},
    {BYTES("BZh9"), COMPRESSION_BZIP2, NULL},
    {BYTES("hi"), COMPRESSION_NONE, NULL},
};

TEST(test_what_it_is)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_free_ uint8_t *exact = malloc(rows[i].bytes);
        memcpy(exact, rows[i].data, rows[i].bytes);
        if (compression_of(exact, rows[i].bytes) != rows[i].by)
            fail_msg("row %zu", i);
    }
    assert_int_equal(compression_of(NULL, 0), COMPRESSION_NONE);
}

TEST(test_what_comes_out)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_free_ uint8_t *exact = malloc(rows[i].bytes), *out = NULL;
        uint64_t bytes = 0;
        struct dl_error err = {0};
        if (!compression_is_built_in(rows[i].by) || rows[i].by == COMPRESSION_NONE)
            continue;
        memcpy(exact, rows[i].data, rows[i].bytes);
        int r = unpack(rows[i].by, exact, rows[i].bytes, 100, "file", &out, &bytes, &err);
        if ((r == 0) != (rows[i].out != NULL))
            fail_msg("row %zu: %s", i, err.message);
        if (r < 0)
            continue;
        assert_int_equal(bytes, strlen(rows[i].out));
        assert_memory_equal(out, rows[i].out, bytes);
    }
}
