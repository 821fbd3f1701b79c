/* The table of element types: both ways, and against C's own sizes. */
#include "tests/lib/harness.h"

#include "proto/dtype.h"
#include <complex.h>
#include <errno.h>
#include <stdio.h>

static const struct {
    uint32_t number;
    size_t bytes;
    const char *name, *numpy;
    int dlpack;
} types[] = {
    {DL_DTYPE_BOOL, sizeof(bool), "bool", "b1", 6},
    {DL_DTYPE_UINT8, sizeof(uint8_t), "uint8", "u1", 1},
    {DL_DTYPE_INT8, sizeof(int8_t), "int8", "i1", 0},
    {DL_DTYPE_UINT16, sizeof(uint16_t), "uint16", "u2", 1},
    {DL_DTYPE_INT16, sizeof(int16_t), "int16", "i2", 0},
    {DL_DTYPE_UINT32, sizeof(uint32_t), "uint32", "u4", 1},
    {DL_DTYPE_INT32, sizeof(int32_t), "int32", "i4", 0},
    {DL_DTYPE_UINT64, sizeof(uint64_t), "uint64", "u8", 1},
    {DL_DTYPE_INT64, sizeof(int64_t), "int64", "i8", 0},
    {DL_DTYPE_FLOAT16, 2, "float16", "f2", 2},
    {DL_DTYPE_BFLOAT16, 2, "bfloat16", NULL, 4},
    {DL_DTYPE_FLOAT32, sizeof(float), "float32", "f4", 2},
    {DL_DTYPE_FLOAT64, sizeof(double), "float64", "f8", 2},
    {DL_DTYPE_COMPLEX64, sizeof(float complex), "complex64", "c8", 5},
    {DL_DTYPE_COMPLEX128, sizeof(double complex), "complex128", "c16", 5},
};

TEST(test_known)
{
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        uint32_t number = 99;

        assert_int_equal(types[i].number, i + 1); /* on the wire: never changes */
        assert_int_equal(dtype_bytes(types[i].number), types[i].bytes);
        assert_string_equal(dtype_name(types[i].number), types[i].name);
        assert_int_equal(dtype_dlpack_code(types[i].number), types[i].dlpack);
        assert_int_equal(dtype_from_name(types[i].name, &number), 0);
        assert_int_equal(number, types[i].number);
        assert_string_equal(dtype_numpy(types[i].number), types[i].numpy ? types[i].numpy : "");
        if (!types[i].numpy)
            continue;
        number = 99;
        assert_int_equal(dtype_from_numpy(types[i].numpy, &number), 0);
        assert_int_equal(number, types[i].number);
    }
}

TEST(test_unknown)
{
    static const uint32_t numbers[] = {0, ARRAY_SIZE(types) + 1, 255, 65535, UINT32_MAX};
    static const char *const names[] = {"",    "float", "Float32", "float32 ",
                                        "int", "<f4",   "u3",      "?"};
    uint32_t number = 99;

    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        assert_int_equal(dtype_bytes(numbers[i]), 0);
        assert_string_equal(dtype_name(numbers[i]), "?");
        assert_string_equal(dtype_numpy(numbers[i]), "");
        assert_int_equal(dtype_dlpack_code(numbers[i]), -1);
    }
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        assert_int_equal(dtype_from_name(names[i], &number), -EINVAL);
        assert_int_equal(dtype_from_numpy(names[i], &number), -EINVAL);
    }
    assert_int_equal(number, 99);
}

TEST(test_integers)
{
    static const int64_t no_bits[] = {INT64_MIN, -8, 0, 1, 7, 24, 128, INT64_MAX};
    char name[16];

    for (int bits = 8; bits <= 64; bits *= 2) {
        snprintf(name, sizeof name, "int%d", bits);
        assert_string_equal(dtype_name(dtype_integer(bits, true)), name);
        snprintf(name, sizeof name, "uint%d", bits);
        assert_string_equal(dtype_name(dtype_integer(bits, false)), name);
    }
    for (size_t i = 0; i < ARRAY_SIZE(no_bits); i++)
        assert_int_equal(dtype_integer(no_bits[i], i % 2), 0);
}
