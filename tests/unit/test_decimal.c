/* Decimal numbers: as int64 and float64, and columns of Parquet that have them. */
#include "daemon/data/base/decimal.h"
#include "proto/dtype.h"
#include "tests/unit/parquet_corpus.h"

#include <errno.h>

/* ---- numbers -------------------------------------------------------------------------------- */

TEST(test_read)
{
    static const struct {
        const char *bytes; /* the most significant one first */
        uint64_t n;
        int64_t high, low;
        bool fits;
    } rows[] = {
        {"\x7d", 1, 0, 125, true},
        {"\xfd", 1, -1, -3, true},
        {"\x01\x00\x00\x00\x00\x00\x00\x00\x05", 9, 1, 5, true},
        {"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x09", 18, 0, 9,
         true},
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe", 18, -1, -2,
         true},
        {"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", 17, 0, 0, false},
        {"\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", 17, 0, 0, false},
        {"", 0, 0, 0, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint8_t little[32];
        decimal_int got[2] = {0}, wanted = (decimal_int)rows[i].high * ((decimal_int)1 << 64) +
                                           (decimal_int)(uint64_t)rows[i].low;
        for (uint64_t k = 0; k < rows[i].n; k++)
            little[k] = (uint8_t)rows[i].bytes[rows[i].n - 1 - k];
        assert_int_equal(decimal_read((const uint8_t *)rows[i].bytes, rows[i].n, true, &got[0]),
                         rows[i].fits);
        assert_int_equal(decimal_read(little, rows[i].n, false, &got[1]), rows[i].fits);
        if (rows[i].fits)
            assert_true(got[0] == wanted && got[1] == wanted);
    }
}

TEST(test_convert)
{
    const decimal_int large = (decimal_int)1000000000000000000 * 1000000000000;
    const struct {
        decimal_int number;
        int32_t scale;
        double real;
        bool whole;
        int64_t integer;
    } rows[] = {
        {125, 2, 1.25, false, 0},
        {300, 2, 3, true, 3},
        {-300, 2, -3, true, -3},
        {0, 30, 0, true, 0},
        {0, INT32_MIN, 0, true, 0},
        {7, 0, 7, true, 7},
        {7, -3, 7000, true, 7000},
        {7, INT32_MAX, 0, false, 0},
        {1, 1, 0.1, false, 0},
        {3, 23, 3e-23, false, 0},
        {large + 7, 2, 1e28, false, 0},
        {large, 30, 1, true, 1},
        {-large, 18, -1e12, true, -1000000000000},
        {INT64_MAX, 0, 0x1p63, true, INT64_MAX},
        {(decimal_int)INT64_MAX + 1, 0, 0x1p63, false, 0},
        {INT64_MIN, 0, -0x1p63, true, INT64_MIN},
        {123456789012345678, 5, 1234567890123.45678, false, 0},
        {5, -30, 5e30, false, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        double real;
        int64_t integer;
        int r = decimal_convert(rows[i].number, rows[i].scale, DL_DTYPE_FLOAT64, &real);
        if (r != 0 || real != rows[i].real)
            fail_msg("row %zu: %.17g", i, real);
        r = decimal_convert(rows[i].number, rows[i].scale, DL_DTYPE_INT64, &integer);
        if (r != (rows[i].whole ? 0 : -ERANGE) || (r == 0 && integer != rows[i].integer))
            fail_msg("row %zu: %d, %lld", i, r, (long long)integer);
    }
}

/* ---- columns -------------------------------------------------------------------------------- */

/* Stored as int32, int64, bytes of one length, and bytes; in a struct, by its name. */
TEST(test_columns)
{
    static const struct {
        const char *file, *keys, *want;
    } rows[] = {
        {"decimals", ", nulls: 0, fields: {x: a}, types: {a: float64}",
         "fixed {x:float64 1.25} {x:float64 0} {x:float64 -3}"},
        {"decimals", ", nulls: 0, fields: {x: b}, types: {b: float64}",
         "fixed {x:float64 123456789012.345} {x:float64 2} {x:float64 -7}"},
        {"decimals", ", nulls: 0, fields: {x: c}, types: {c: float64}",
         "fixed {x:float64 1.2345678901234567e+19} {x:float64 2} {x:float64 -8}"},
        {"decimal_bytes", ", nulls: 0, fields: {x: x}, types: {x: float64}",
         "fixed {x:float64 1.25} {x:float64 -0.03} {x:float64 1e+28}"},
        {"decimals", ", nulls: 0, fields: {s: s}, types: {s: float64}",
         "...{s:{...float64(2,)[1.5 0]...}}"},
        {"decimals", ", nulls: 0, fields: {x: a}",
         "...its column a has decimal numbers, which no tensor has; say with dataset.types..."},
        {"decimals", ", nulls: 0, fields: {x: a}, types: {a: int64}",
         "...row group 0: its column a has the decimal number 125e-2, which is no int64..."},
        {"decimals", ", nulls: 0, fields: {x: c}, types: {c: int64}",
         "...its column c has the decimal number 123456789012345678905e-1, which is no..."},
        {"decimals", ", nulls: 0, fields: {x: a}, types: {a: float32}",
         "...is not a type that decimal numbers become: int64 or float64..."},
        {"snappy", ", nulls: 0, fields: {x: i}, types: {i: int64}",
         "dataset.types.i: ...is not a column of the files that has decimal numbers..."},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        expect_corpus(rows[i].file, rows[i].keys, rows[i].want);
}
