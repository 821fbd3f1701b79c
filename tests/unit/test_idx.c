/* IDX files: each element type, plain and gzip, and every way such a file can be wrong. */
#include "tests/unit/data_files.h"

#include <errno.h>

static int parse(const uint8_t *data, size_t len, struct array_header *ret, struct dl_error *err)
{
    /* Exactly so many bytes of heap: ASan sees a read past them. */
    _cleanup_free_ uint8_t *exact = malloc(len ? len : 1);

    memcpy(exact, data, len);
    *err = (struct dl_error){0};
    return idx_parse(exact, len, "f", ret, err);
}

TEST(test_header)
{
    uint8_t data[64];
    struct array_header header;
    struct dl_error err;
    size_t len = make_idx(data, 0x08, 3, (uint32_t[]){60000, 28, 28});

    assert_int_equal(parse(data, len, &header, &err), 0);
    assert_int_equal(header.dtype, DL_DTYPE_UINT8);
    assert_int_equal(header.ndim, 3);
    assert_memory_equal(header.shape, ((uint64_t[]){60000, 28, 28}), 24);
    assert_int_equal(header.data_off, 16);
    assert_int_equal(header.data_bytes, 60000 * 28 * 28);
}

TEST(test_header_truncated)
{
    uint8_t data[64];
    struct array_header header = {.ndim = 99};
    struct dl_error err;
    size_t len = make_idx(data, 0x0d, 8, (uint32_t[]){1, 2, 3, 4, 5, 6, 7, 8});

    assert_int_equal(len, 36);
    for (size_t cut = 0; cut < len; cut++) {
        assert_int_equal(parse(data, cut, &header, &err), -EINVAL);
        assert_error_has(&err, "truncated");
        assert_int_equal(header.ndim, 99);
    }
    assert_int_equal(parse(data, 3, &header, &err), -EINVAL);
    assert_error(&err, EINVAL, "f",
                 "has 3 bytes, too few for an IDX header; it is truncated or not an IDX file");
    assert_int_equal(parse(data, 35, &header, &err), -EINVAL);
    assert_error(&err, EINVAL, "f",
                 "has 35 bytes, but an IDX header of 8 dimensions has 36; it is truncated");
    assert_int_equal(parse(data, 36, &header, &err), 0);
}

TEST(test_magic)
{
    uint8_t data[64];
    struct array_header header;
    struct dl_error err;

    make_idx(data, 0x08, 1, (uint32_t[]){1});
    memcpy(data, "\x89PNG", 4);
    assert_int_equal(parse(data, 8, &header, &err), -EINVAL);
    assert_error(&err, EINVAL, "f",
                 "starts with 89 50 4e 47; an IDX file starts with 00 00, a type and the number "
                 "of dimensions");
    make_idx(data, 0x08, 1, (uint32_t[]){1});
    data[1] = 1;
    assert_int_equal(parse(data, 8, &header, &err), -EINVAL);

    make_idx(data, 0x0a, 1, (uint32_t[]){1});
    assert_int_equal(parse(data, 8, &header, &err), -EINVAL);
    assert_error(&err, EINVAL, "f",
                 "its type byte is 0a; IDX has 08 (uint8), 09 (int8), 0b (int16), 0c (int32), 0d "
                 "(float32) and 0e (float64)");
}

TEST(test_every_type_and_rank)
{
    static const uint8_t types[] = {0x08, 0x09, 0x0b, 0x0c, 0x0d, 0x0e};
    uint8_t data[4 + 4 * 255] = {0};
    struct array_header header;
    struct dl_error err;
    unsigned accepted = 0;

    for (unsigned type = 0; type < 256; type++) {
        for (unsigned ndim = 0; ndim < 256; ndim++) {
            bool known = memchr(types, (int)type, sizeof types) != NULL;
            bool want = known && ndim >= 1 && ndim <= TREE_DIMS;
            data[2] = (uint8_t)type;
            data[3] = (uint8_t)ndim;
            int r = parse(data, 4 + 4 * ndim, &header, &err);
            assert_int_equal(r, want ? 0 : -EINVAL);
            accepted += r == 0;
        }
    }
    assert_int_equal(accepted, sizeof types * TREE_DIMS);
}

TEST(test_absurd_dims)
{
    uint8_t data[64];
    struct array_header header;
    struct dl_error err;

    size_t len = make_idx(data, 0x0e, 3, (uint32_t[]){UINT32_MAX, UINT32_MAX, UINT32_MAX});
    assert_int_equal(parse(data, len, &header, &err), -EINVAL);
    assert_error(&err, EINVAL, "f",
                 "its shape (4294967295, 4294967295, 4294967295) of float64 is more than 2^63 "
                 "bytes; its header is damaged");
    /* No rows must not hide it. */
    len = make_idx(data, 0x0e, 4, (uint32_t[]){0, UINT32_MAX, UINT32_MAX, UINT32_MAX});
    assert_int_equal(parse(data, len, &header, &err), -EINVAL);
}

static void refused(const char *name, const void *data, size_t len, int code, struct dl_error *ret)
{
    struct array array = {.count = 99};
    const char *path = harness_file(name, data, len);

    *ret = (struct dl_error){0};
    assert_int_equal(array_open_idx(path, &anywhere, &array, ret), -code);
    assert_int_equal(array.count, 99);
    assert_string_equal(ret->path, path);
}

TEST(test_size)
{
    uint8_t data[64] = {0}, gz[256];
    struct dl_error err;
    size_t len = make_idx(data, 0x0b, 2, (uint32_t[]){3, 2}) + 12;

    for (size_t cut = 12; cut < len; cut++)
        refused("cut", data, cut, EINVAL, &err);
    assert_error_has(&err, "shape (3, 2) of int16 needs a file of 24 bytes, but it has 23: it is "
                           "truncated; write or fetch it again");
    refused("long", data, len + 2, EINVAL, &err);
    assert_error_has(&err, "shape (3, 2) of int16 needs a file of 24 bytes, but it has 26: 2 too "
                           "many; one file holds one array");
    refused("empty", data, 0, EINVAL, &err);
    assert_error_has(&err, "is empty; an IDX file needs a header");

    for (size_t cut = 0; cut < len; cut++)
        refused("cut.gz", gz, make_gzip(data, cut, gz, sizeof gz), EINVAL, &err);
    refused("long.gz", gz, make_gzip(data, len + 1, gz, sizeof gz), EINVAL, &err);
    assert_error_has(&err, "unpacks to more bytes than its header says");
    memcpy(data, "abcd", 4);
    refused("text.gz", gz, make_gzip(data, len, gz, sizeof gz), EINVAL, &err);
    assert_error_has(&err, "starts with 61 62 63 64");
}

TEST(test_bombs)
{
    static uint8_t zeros[4 << 20], gz[64 << 10];
    struct dl_error err;
    size_t len;

    /* A small header, and a thousand times as many bytes behind it. */
    make_idx(zeros, 0x08, 1, (uint32_t[]){1000});
    refused("more.gz", gz, make_gzip(zeros, sizeof zeros, gz, sizeof gz), EINVAL, &err);
    assert_error_has(&err, "unpacks to more bytes");

    /* A header that promises what no such file can hold: refused before memory is taken. */
    make_idx(zeros, 0x08, 2, (uint32_t[]){1 << 20, 1 << 20});
    len = make_gzip(zeros, 4096, gz, sizeof gz);
    refused("less.gz", gz, len, EINVAL, &err);
    assert_error_has(&err, "shape (1048576, 1048576) of uint8 is 1099511627776 bytes, more than ");
    make_idx(zeros, 0x0e, 3, (uint32_t[]){UINT32_MAX, UINT32_MAX, UINT32_MAX});
    refused("absurd.gz", gz, make_gzip(zeros, 4096, gz, sizeof gz), EINVAL, &err);
    assert_error_has(&err, "more than 2^63 bytes");
}

/* Fewer than 64 GiB are tried; what lies above is refused with the way around. */
TEST(test_too_large_to_unpack)
{
    size_t len = 80 << 20; /* could hold 82 GiB */
    _cleanup_free_ uint8_t *gz = calloc(1, len);
    uint8_t head[12];
    struct array array;
    struct dl_error err = {0};

    make_idx(head, 0x08, 2, (uint32_t[]){65 << 10, 1 << 20});
    make_gzip(head, sizeof head, gz, len);
    assert_int_equal(idx_unpack(gz, len, "f.gz", &array, &err), -EFBIG);
    assert_error(&err, EFBIG, "f.gz",
                 "unpacks to 69793218560 bytes, which each worker would hold in memory (at most "
                 "68719476736); unpack it with gunzip, so that it is mapped instead");
}

/* Rows of 3 elements with bytes that differ, big-endian in the file; back in reverse order. */
static void check_type(uint8_t type, uint32_t dtype, bool gzip)
{
    size_t element = dtype_bytes(dtype), row = 3 * element;
    uint8_t data[512], gz[1024], out[5 * 24], want[5 * 24];
    struct array array;
    size_t len = make_idx(data, type, 2, (uint32_t[]){5, 3});

    for (size_t i = 0; i < 15; i++) {
        for (size_t b = 0; b < element; b++) {
            data[len + i * element + b] = (uint8_t)(i * 16 + b);
            want[(4 - i / 3) * row + i % 3 * element + (element - 1 - b)] = (uint8_t)(i * 16 + b);
        }
    }
    len += 15 * element;
    const char *path = gzip ? harness_file("t.gz", gz, make_gzip(data, len, gz, sizeof gz))
                            : harness_file("t", data, len);
    assert_int_equal(array_open_idx(path, &anywhere, &array, NULL), 0);
    assert_int_equal(array.dtype, dtype);
    assert_int_equal(array.count, 5);
    assert_int_equal(array.row_bytes, row);
    assert_int_equal(array.ndim, 1);
    assert_int_equal(array.shape[0], 3);
    assert_int_equal(array_read_rows(&array, (uint64_t[]){4, 3, 2, 1, 0}, 5, out), 5);
    assert_memory_equal(out, want, 5 * row);
    array_deinit(&array);
}

TEST(test_types)
{
    for (int gzip = 0; gzip < 2; gzip++) {
        check_type(0x08, DL_DTYPE_UINT8, gzip);
        check_type(0x09, DL_DTYPE_INT8, gzip);
        check_type(0x0b, DL_DTYPE_INT16, gzip);
        check_type(0x0c, DL_DTYPE_INT32, gzip);
        check_type(0x0d, DL_DTYPE_FLOAT32, gzip);
        check_type(0x0e, DL_DTYPE_FLOAT64, gzip);
    }
}

TEST(test_no_rows_and_no_bytes)
{
    static const uint32_t shapes[][2] = {{0, 28}, {5, 0}, {0, 0}};
    uint8_t data[64], gz[128], out[1];
    struct array array;

    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
        for (int type = 0x08; type <= 0x0e; type += 6) {
            size_t len = make_idx(data, (uint8_t)type, 2, shapes[i]);
            size_t packed = make_gzip(data, len, gz, sizeof gz);
            const char *paths[] = {harness_file("z", data, len), harness_file("z.gz", gz, packed)};
            for (size_t p = 0; p < 2; p++) {
                assert_int_equal(array_open_idx(paths[p], &anywhere, &array, NULL), 0);
                assert_int_equal(array.count, shapes[i][0]);
                assert_int_equal(array_read_rows(&array, (uint64_t[]){4}, 1, out),
                                 shapes[i][0] > 4 ? 1 : 0);
                array_deinit(&array);
            }
        }
    }
}

#define FASHION "/usr/share/datasets/fashion-mnist/"

static bool open_fashion(const char *name, uint64_t count, uint32_t ndim, struct array *ret)
{
    struct dl_error err = {0};
    char path[256];

    snprintf(path, sizeof path, FASHION "%s.gz", name);
    if (access(path, R_OK) < 0) {
        print_message("%s is missing: install the package dataset-fashion-mnist\n", path);
        return false;
    }
    if (array_open_idx(path, &anywhere, ret, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    assert_int_equal(ret->count, count);
    assert_int_equal(ret->ndim, ndim);
    assert_int_equal(ret->dtype, DL_DTYPE_UINT8);
    if (ndim == 2)
        assert_memory_equal(ret->shape, ((uint64_t[]){28, 28}), 16);
    return true;
}

TEST(test_fashion_labels)
{
    static const uint64_t first[] = {0, 1, 2, 3, 4};
    struct array array;
    uint8_t labels[5];

    if (!open_fashion("train-labels-idx1-ubyte", 60000, 0, &array))
        return;
    assert_int_equal(array.row_bytes, 1);
    assert_int_equal(array_read_rows(&array, first, 5, labels), 5);
    assert_memory_equal(labels, ((uint8_t[]){9, 0, 0, 3, 0}), 5);
    array_deinit(&array);
    if (!open_fashion("t10k-labels-idx1-ubyte", 10000, 0, &array))
        return;
    assert_int_equal(array_read_rows(&array, first, 5, labels), 5);
    assert_memory_equal(labels, ((uint8_t[]){9, 2, 1, 1, 6}), 5);
    array_deinit(&array);
}

TEST(test_fashion_images)
{
    struct array array;
    uint64_t sum = 0;

    if (!open_fashion("train-images-idx3-ubyte", 60000, 2, &array))
        return;
    assert_int_equal(array.row_bytes, 784);
    for (size_t i = 0; i < 60000 * 784; i++)
        sum += array.rows[i];
    array_deinit(&array);
    /* The data set's published mean is 0.2860 of 255. */
    assert_in_range(sum * 10000 / (60000ull * 784 * 255), 2860, 2861);

    if (!open_fashion("t10k-images-idx3-ubyte", 10000, 2, &array))
        return;
    array_deinit(&array);
}
