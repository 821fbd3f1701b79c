/* Raw records: size against shape and offset. */
#include "tests/unit/data_files.h"

#include <errno.h>

static struct spec_file file;

static struct spec_dataset records(const char *path, uint32_t dtype, uint32_t ndim,
                                   const uint64_t *shape, uint64_t offset)
{
    struct spec_dataset spec = {
        .kind = DATASET_RECORDS,
        .files = &file,
        .n_files = 1,
        .dtype = dtype,
        .ndim = ndim,
        .offset = offset,
    };

    file.path = (char *)path;
    if (ndim > 0)
        memcpy(spec.shape, shape, ndim * sizeof *shape);
    return spec;
}

static int refused(const struct spec_dataset *spec, struct dl_error *ret)
{
    struct array array = {.count = 99};
    int r;

    *ret = (struct dl_error){0};
    r = array_open_records(spec, &anywhere, &array, ret);
    assert_true(r < 0);
    assert_int_equal(array.count, 99);
    return -r;
}

TEST(test_rows)
{
    uint8_t data[3 + 4 * 6];
    uint16_t out[6];
    struct array array;

    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)i;
    const char *path = harness_file("r", data, sizeof data);
    struct spec_dataset spec = records(path, DL_DTYPE_UINT16, 1, (uint64_t[]){3}, 3);
    assert_int_equal(array_open_records(&spec, &anywhere, &array, NULL), 0);
    assert_int_equal(array.count, 4);
    assert_int_equal(array.row_bytes, 6);
    assert_int_equal(array.ndim, 1);
    assert_int_equal(array.shape[0], 3);
    assert_int_equal(array_read_rows(&array, (uint64_t[]){3, 0}, 2, out), 2);
    assert_memory_equal(out, data + 3 + 18, 6);
    assert_memory_equal(out + 3, data + 3, 6);
    array_deinit(&array);

    /* A record that is one number. */
    spec = records(path, DL_DTYPE_UINT8, 0, NULL, 0);
    assert_int_equal(array_open_records(&spec, &anywhere, &array, NULL), 0);
    assert_int_equal(array.count, sizeof data);
    assert_int_equal(array.ndim, 0);
    array_deinit(&array);
}

TEST(test_sizes)
{
    uint8_t data[64] = {0};
    struct array array;
    struct dl_error err;

    for (size_t bytes = 0; bytes <= 40; bytes++) {
        for (uint64_t offset = 0; offset <= 20; offset++) {
            const char *path = harness_file("s", data, bytes);
            struct spec_dataset spec = records(path, DL_DTYPE_FLOAT32, 1, (uint64_t[]){2}, offset);
            if (offset <= bytes && (bytes - offset) % 8 == 0) {
                assert_int_equal(array_open_records(&spec, &anywhere, &array, &err), 0);
                assert_int_equal(array.count, (bytes - offset) / 8);
                array_deinit(&array);
            } else {
                assert_int_equal(refused(&spec, &err), EINVAL);
                assert_string_equal(err.path, path);
            }
        }
    }
}

TEST(test_messages)
{
    uint8_t data[1003] = {0};
    struct dl_error err;
    const char *path = harness_file("m", data, sizeof data);

    struct spec_dataset spec = records(path, DL_DTYPE_FLOAT32, 2, (uint64_t[]){5, 5}, 0);
    assert_int_equal(refused(&spec, &err), EINVAL);
    assert_error(&err, EINVAL, path,
                 "1003 bytes are 10 records of 100 bytes (float32 of shape (5, 5)) with 3 bytes "
                 "left over; check dataset.dtype, shape and offset");
    spec.offset = 1004;
    assert_int_equal(refused(&spec, &err), EINVAL);
    assert_error(&err, EINVAL, path,
                 "has 1003 bytes, but dataset.offset is 1004; it must lie in the file");
    spec.offset = UINT64_MAX;
    assert_int_equal(refused(&spec, &err), EINVAL);

    spec = records(path, DL_DTYPE_FLOAT32, 2, (uint64_t[]){5, 0}, 0);
    assert_int_equal(refused(&spec, &err), EINVAL);
    assert_error(&err, EINVAL, "dataset.shape",
                 "(5, 0) makes records of 0 bytes; each dimension must be at least 1");
    spec = records(path, DL_DTYPE_FLOAT32, 2, (uint64_t[]){1ULL << 40, 1ULL << 40}, 0);
    assert_int_equal(refused(&spec, &err), EINVAL);
    assert_error(&err, EINVAL, "dataset.shape",
                 "(1099511627776, 1099511627776) of float32 is more than 2^63 bytes");
    spec = records(path, 0, 0, NULL, 0);
    assert_int_equal(refused(&spec, &err), EINVAL);
    assert_string_equal(err.path, "dataset");
    spec = records("/nonexistent/r", DL_DTYPE_UINT8, 0, NULL, 0);
    assert_int_equal(refused(&spec, &err), ENOENT);
    spec = records(harness_tmpdir(), DL_DTYPE_UINT8, 0, NULL, 0);
    assert_int_equal(refused(&spec, &err), EISDIR);
}

/* One record as large as the file would need to be: none fits, all bytes are left over. */
TEST(test_record_larger_than_file)
{
    struct dl_error err;
    const char *path = harness_file("l", "abc", 3);
    struct spec_dataset spec = records(path, DL_DTYPE_UINT8, 1, (uint64_t[]){1ULL << 62}, 0);

    assert_int_equal(refused(&spec, &err), EINVAL);
    assert_error_has(&err, "3 bytes are 0 records of 4611686018427387904 bytes");
}
