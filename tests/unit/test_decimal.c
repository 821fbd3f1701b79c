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

/* The values of a column, as numbers of 64 bits, 0 for null. */
static int read_column(const char *file, const char *column, const char *type, void *got,
                       struct dl_error *err)
{
    static const uint64_t rows[] = {0, 1, 2};
    struct bytes b = corpus(file);
    struct spec_dataset spec = spec_of(&b, "decimals");
    struct spec_field field = {(char *)"x", (char *)column};
    struct dataset *ds = NULL;
    size_t bad;

    spec.fields = &field;
    spec.n_fields = 1;
    spec.nulls = number(0);
    if (type)
        assert_int_equal(value_set_string(&spec.types, column, type), 0);
    int r = dataset_open(&spec, &anywhere, &ds, err);
    if (r == 0)
        r = ds->ops->read_rows(ds, &key, rows, 3, (void *[]){got}, &bad, err);
    dataset_close(ds);
    value_deinit(&spec.types);
    return r;
}

/* Stored as int32, int64, bytes of one length, and bytes. */
TEST(test_columns)
{
    static const struct {
        const char *file, *column;
        double real[3];
    } rows[] = {
        {"decimals", "a", {1.25, 0, -3}},
        {"decimals", "b", {123456789012.345, 2, -7}},
        {"decimals", "c", {12345678901234567890.5, 2, -8}},
        {"decimal_bytes", "x", {1.25, -0.03, 1e28}},
    };
    static const struct {
        const char *column, *type, *says;
    } refused[] = {
        {"a", NULL,
         "its column a has decimal numbers, which no tensor has; say with dataset.types"},
        {"a", "int64",
         "row group 0: its column a has the decimal number 125e-2, which is no int64"},
        {"c", "int64", "its column c has the decimal number 123456789012345678905e-1, which is no"},
        {"a", "float32", "is not a type that decimal numbers become: int64 or float64"},
    };
    struct dl_error err = {0};
    double real[3];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (read_column(rows[i].file, rows[i].column, "float64", real, &err) < 0)
            fail_msg("%s: %s", err.path, err.message);
        assert_memory_equal(real, rows[i].real, sizeof real);
    }
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        assert_true(read_column("decimals", refused[i].column, refused[i].type, real, &err) < 0);
        assert_error_has(&err, refused[i].says);
    }
    assert_true(read_column("snappy", "i", "int64", real, &err) < 0);
    assert_error_has(&err, "is not a column of the files that has decimal numbers");
    assert_non_null(strstr(err.path, "dataset.types.i"));
}

/* In a struct, by its name; a list is a tensor like others. */
TEST(test_in_struct)
{
    struct bytes b = corpus("decimals");
    struct spec_dataset spec = spec_of(&b, "in_struct");
    struct spec_field field = {(char *)"s", (char *)"s"};
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dl_error err = {0};
    struct dataset *ds = NULL;

    spec.fields = &field;
    spec.n_fields = 1;
    spec.nulls = number(0);
    assert_int_equal(value_set_string(&spec.types, "s", "float64"), 0);
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), 0);
    assert_int_equal(dataset_get(ds, &key, 2, &sample, &err), 0);
    assert_int_equal(sample.tree.nodes[2].dtype, DL_DTYPE_FLOAT64);
    assert_memory_equal(sample.data[2], ((double[]){1.5, 0}), 16);
    dataset_close(ds);
    sample_deinit(&sample);
    arena_deinit(&arena);
    value_deinit(&spec.types);
}
