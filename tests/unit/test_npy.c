/* .npy headers in every spelling, and every way such a file can be wrong. */
#include "tests/unit/data_files.h"

#include <errno.h>

static int parse(const uint8_t *data, size_t len, struct array_header *ret, struct dl_error *err)
{
    /* Exactly so many bytes of heap: ASan sees a read past them. */
    _cleanup_free_ uint8_t *exact = malloc(len ? len : 1);

    memcpy(exact, data, len);
    *err = (struct dl_error){0};
    return npy_parse(exact, len, "f.npy", ret, err);
}

static int parse_dict(const char *dict, struct array_header *ret, struct dl_error *err)
{
    uint8_t data[4096];

    return parse(data, make_npy(data, 1, dict), ret, err);
}

/* All of these are float32 (3, 4) in C order. */
TEST(test_spellings)
{
    static const char *const dicts[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }          \n",
        "{'descr':'<f4','fortran_order':False,'shape':(3,4)}",
        "{\"shape\": (3, 4,), \"descr\": \"<f4\", \"fortran_order\": False}",
        " {\n'fortran_order'\t:\r False , 'shape' : ( 3 , 4 ) , 'descr' : '<f4' , } \n\n",
        "{'descr': '=f4', 'fortran_order': False, 'shape': (3L, 4L), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (0003, 4), }",
    };
    struct array_header header;
    struct dl_error err;

    for (size_t i = 0; i < ARRAY_SIZE(dicts); i++) {
        if (parse_dict(dicts[i], &header, &err) < 0)
            fail_msg("%s: %s", dicts[i], err.message);
        assert_int_equal(header.dtype, DL_DTYPE_FLOAT32);
        assert_int_equal(header.ndim, 2);
        assert_memory_equal(header.shape, ((uint64_t[]){3, 4}), 16);
        assert_int_equal(header.data_off, 10 + strlen(dicts[i]));
        assert_int_equal(header.data_bytes, 48);
    }
}

TEST(test_dtypes)
{
    static const struct {
        const char *descr;
        uint32_t dtype;
    } cases[] = {
        {"|b1", DL_DTYPE_BOOL},        {"|u1", DL_DTYPE_UINT8},   {"|i1", DL_DTYPE_INT8},
        {"<u1", DL_DTYPE_UINT8},       {">u1", DL_DTYPE_UINT8},   {"<u2", DL_DTYPE_UINT16},
        {"<i2", DL_DTYPE_INT16},       {"<u4", DL_DTYPE_UINT32},  {"<i4", DL_DTYPE_INT32},
        {"<u8", DL_DTYPE_UINT64},      {"<i8", DL_DTYPE_INT64},   {"<f2", DL_DTYPE_FLOAT16},
        {"<f4", DL_DTYPE_FLOAT32},     {"<f8", DL_DTYPE_FLOAT64}, {"<c8", DL_DTYPE_COMPLEX64},
        {"<c16", DL_DTYPE_COMPLEX128},
    };
    struct array_header header;
    struct dl_error err;
    char dict[256];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (7,), }",
                 cases[i].descr);
        assert_int_equal(parse_dict(dict, &header, &err), 0);
        assert_int_equal(header.dtype, cases[i].dtype);
        assert_int_equal(header.data_bytes, 7 * dtype_bytes(cases[i].dtype));
    }
}

#define DICT(descr, fortran, shape) \
    "{'descr': " descr ", 'fortran_order': " fortran ", 'shape': " shape ", }"
#define DAMAGED(what) "its .npy header is damaged: " what "; write the file again with numpy.save"
#define NO_NUMBER(descr)                                                                           \
    "its dtype '" descr "' is not a number type that tensors have (bool, int8 to int64, uint8 to " \
    "uint64, float16 to float64, complex64, complex128); convert it with array.astype"

static const struct {
    const char *dict;
    const char *message;
} refusals[] = {
    {DICT("'<f4'", "False", "()"),
     "holds a single number without dimensions; the first dimension counts the samples"},
    {DICT("[('x', '<f4')]", "False", "(3,)"),
     "holds a structured dtype; save each of its fields as a file of its own: "
     "numpy.save('FIELD.npy', array['FIELD'])"},
    {DICT("('<f4', (2,))", "False", "(3,)"),
     "holds a structured dtype; save each of its fields as a file of its own: "
     "numpy.save('FIELD.npy', array['FIELD'])"},
    {DICT("'|O'", "False", "(3,)"), NO_NUMBER("|O")},
    {DICT("'<U5'", "False", "(3,)"), NO_NUMBER("<U5")},
    {DICT("'|S5'", "False", "(3,)"), NO_NUMBER("|S5")},
    {DICT("'|V2'", "False", "(3,)"), NO_NUMBER("|V2")},
    {DICT("'<f16'", "False", "(3,)"), NO_NUMBER("<f16")},
    {DICT("'<M8[ns]'", "False", "(3,)"), NO_NUMBER("<M8[ns]")},
    {DICT("'|f4'", "False", "(3,)"), NO_NUMBER("|f4")},
    {DICT("'f4'", "False", "(3,)"), NO_NUMBER("f4")},
    {DICT("'<'", "False", "(3,)"), NO_NUMBER("<")},
    {DICT("''", "False", "(3,)"), NO_NUMBER("")},
    {DICT("'<f4'", "False", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"),
     "has more than 8 dimensions; reshape it to fewer"},
    {DICT("'<f4'", "False", "(4294967296, 4294967296)"),
     "its shape (4294967296, 4294967296) of float32 is more than 2^63 bytes; its header is "
     "damaged"},
    {DICT("'<f8'", "False", "(0, 9223372036854775807)"),
     "its shape (0, 9223372036854775807) of float64 is more than 2^63 bytes; its header is "
     "damaged"},
    {DICT("'|u1'", "False", "(9223372036854775808, 0)"),
     "its shape (9223372036854775808, 0) of uint8 is more than 2^63 bytes; its header is damaged"},
    {DICT("'<f4'", "False", "(18446744073709551616,)"), DAMAGED("a dimension is beyond 2^64")},
    {DICT("'<f4'", "False", "(99999999999999999999999,)"), DAMAGED("a dimension is beyond 2^64")},
    {DICT("'<f4'", "False", "(3)"), DAMAGED("shape is a number, not a tuple")},
    {DICT("'<f4'", "False", "3"), DAMAGED("shape is not a tuple")},
    {DICT("'<f4'", "False", "[3, 4]"), DAMAGED("shape is not a tuple")},
    {DICT("'<f4'", "False", "(-3,)"), DAMAGED("shape is not a tuple of whole numbers")},
    {DICT("'<f4'", "False", "(3.0,)"),
     DAMAGED("the dimensions of shape are not separated by commas")},
    {DICT("'<f4'", "False", "(,)"), DAMAGED("shape is not a tuple of whole numbers")},
    {DICT("'<f4'", "False", "(3 4)"),
     DAMAGED("the dimensions of shape are not separated by commas")},
    {DICT("'<f4'", "False", "(3,,4)"), DAMAGED("shape is not a tuple of whole numbers")},
    {DICT("'<f4'", "0", "(3,)"), DAMAGED("fortran_order is neither True nor False")},
    {DICT("<f4", "False", "(3,)"), DAMAGED("a quoted string is missing")},
    {DICT("'<f\\x34'", "False", "(3,)"),
     DAMAGED("a string in it is too long or has odd characters")},
    {DICT("'<f4444444444444444444'", "False", "(3,)"),
     DAMAGED("a string in it is too long or has odd characters")},
    {"", DAMAGED("it is not a dict")},
    {"[]", DAMAGED("it is not a dict")},
    {"{}", DAMAGED("one of descr, fortran_order and shape is missing")},
    {"{'descr': '<f4', 'shape': (3,)}",
     DAMAGED("one of descr, fortran_order and shape is missing")},
    {"{'descr': '<f4', 'descr': '<f4'}", DAMAGED("a key occurs twice")},
    {"{'descr' '<f4'}", DAMAGED("a key has no value")},
    {"{'color': 3}", DAMAGED("it has a key that is not descr, fortran_order or shape")},
    {"{'descr': '<f4' 'shape': (3,)}", DAMAGED("its entries are not separated by commas")},
    {"{'descr': '<f4", DAMAGED("a string has no end")},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} x",
     DAMAGED("something follows its dict")},
};

TEST(test_refusals)
{
    struct array_header header = {.ndim = 99};
    struct dl_error err;

    for (size_t i = 0; i < ARRAY_SIZE(refusals); i++) {
        if (parse_dict(refusals[i].dict, &header, &err) != -EINVAL)
            fail_msg("%s was accepted", refusals[i].dict);
        assert_error(&err, EINVAL, "f.npy", refusals[i].message);
        assert_int_equal(header.ndim, 99);
    }
}

/* A dict cut anywhere is refused, with the header's length telling the truth about it. */
TEST(test_dict_truncated)
{
    static const char dict[] = DICT("'<f4'", "False", "(3, 4)");
    struct array_header header;
    struct dl_error err;
    char cut[sizeof dict];

    for (size_t len = 0; len < sizeof dict - 1; len++) {
        memcpy(cut, dict, len);
        cut[len] = '\0';
        assert_int_equal(parse_dict(cut, &header, &err), -EINVAL);
    }
    assert_int_equal(parse_dict(dict, &header, &err), 0);
}

/* Each byte of a header replaced by each other byte: accepted or refused, nothing else. */
TEST(test_dict_mutated)
{
    uint8_t data[256];
    struct array_header header;
    struct dl_error err;
    size_t len = make_npy(data, 1, DICT("'<f4'", "False", "(3, 4)"));
    unsigned refused = 0;

    for (size_t i = 0; i < len; i++) {
        uint8_t was = data[i];
        for (unsigned c = 0; c < 256; c++) {
            data[i] = (uint8_t)c;
            int r = parse(data, len, &header, &err);
            assert_int_equal(r, -err.code);
            refused += r < 0;
        }
        data[i] = was;
    }
    assert_true(refused > len * 200);
}

TEST(test_one_dimension_of_fortran)
{
    struct array_header header;
    struct dl_error err;

    assert_int_equal(parse_dict(DICT("'<f4'", "True", "(3,)"), &header, &err), 0);
    assert_int_equal(header.ndim, 1);
    assert_true(stored_is_plain(header.order));
}

/* Numbers of 1, 2, 4, 8 bytes and complex ones, in each order of dimensions and bytes: place i of
 * the tensor has the bytes of number i, wherever the file has them. */
TEST(test_orders)
{
    static const struct {
        const char *descr;
        uint32_t unit, units; /* bytes that are swapped together, and how often in an element */
    } types[] = {{"i1", 1, 1}, {"u2", 2, 1}, {"f4", 4, 1},
                 {"i8", 8, 1}, {"c8", 4, 2}, {"c16", 8, 2}};
    static const uint64_t shape[] = {3, 2, 4};
    enum { PLACES = 24, MOST = 16 };

    for (size_t t = 0; t < ARRAY_SIZE(types) * 4; t++) {
        bool swapped = t & 1, fortran = t & 2;
        const uint32_t unit = types[t / 4].unit, element = unit * types[t / 4].units;
        uint8_t plain[PLACES * MOST], file[PLACES * MOST], out[PLACES * MOST] = {0};
        char dict[128];
        struct array_header header;
        struct dl_error err;
        for (uint32_t i = 0; i < PLACES; i++) {
            uint32_t at = fortran ? i / 8 + i / 4 % 2 * 3 + i % 4 * 6 : i;
            for (uint32_t k = 0; k < element; k++) {
                uint32_t there = swapped ? k / unit * unit + unit - 1 - k % unit : k;
                plain[i * element + k] = file[at * element + there] = (uint8_t)(i * 17 + k * 5);
            }
        }
        snprintf(dict, sizeof dict, "{'descr': '%c%s', 'fortran_order': %s, 'shape': (3, 2, 4), }",
                 swapped ? '>' : '<', types[t / 4].descr, fortran ? "True" : "False");
        assert_int_equal(parse_dict(dict, &header, &err), 0);
        assert_int_equal(header.order.swapped, swapped && unit > 1);
        assert_int_equal(header.order.fortran, fortran);
        const struct stored stored = {file, header.dtype, 3, shape, header.order};
        stored_copy(&stored, out);
        assert_memory_equal(out, plain, PLACES * element);
        struct source none = {0};
        struct array array;
        array_init(&array, &header, &none, file);
        memset(out, 0, sizeof out);
        assert_int_equal(array_read_rows(&array, (uint64_t[]){2, 0, 1, 3}, 4, out), 3);
        assert_memory_equal(out, plain + 16 * element, 8 * element);
        assert_memory_equal(out + 8 * element, plain, 16 * element);
    }
}

/* Dimensions of nothing are not walked through. */
TEST(test_orders_of_nothing)
{
    static const uint64_t shape[] = {2, UINT64_MAX / 4, 0};
    const struct stored stored = {NULL, DL_DTYPE_UINT16, 3, shape, {true, true}};

    stored_copy(&stored, NULL);
    stored_copy_row(&stored, 1, NULL);
}

TEST(test_versions)
{
    static const char dict[] = DICT("'<f4'", "False", "(3, 4)");
    uint8_t data[256];
    struct array_header header;
    struct dl_error err;

    for (unsigned major = 0; major < 6; major++) {
        size_t len = make_npy(data, (uint8_t)major, dict);
        assert_int_equal(parse(data, len, &header, &err), major >= 1 && major <= 3 ? 0 : -EINVAL);
    }
    assert_error(&err, EINVAL, "f.npy", "is .npy version 5.0; 1.0, 2.0 and 3.0 can be read");
    size_t len = make_npy(data, 1, dict);
    data[7] = 1;
    assert_int_equal(parse(data, len, &header, &err), -EINVAL);
    assert_error_has(&err, "is .npy version 1.1");

    make_npy(data, 2, dict);
    memset(data + 8, 0xff, 4);
    assert_int_equal(parse(data, sizeof data, &header, &err), -EINVAL);
    assert_error(&err, EINVAL, "f.npy",
                 "its .npy header claims 4294967295 bytes; that of a plain array is below 65536: "
                 "the file is damaged");
}

TEST(test_truncated)
{
    uint8_t data[256];
    struct array_header header;
    struct dl_error err;

    for (uint8_t major = 1; major <= 3; major++) {
        size_t len = make_npy(data, major, DICT("'<f4'", "False", "(3, 4)"));
        for (size_t cut = 1; cut < len; cut++) {
            assert_int_equal(parse(data, cut, &header, &err), -EINVAL);
            char want[128];
            snprintf(want, sizeof want,
                     "ends inside its .npy header, after %zu bytes; it is truncated", cut);
            assert_error(&err, EINVAL, "f.npy", want);
        }
    }
    assert_int_equal(parse(data, 0, &header, &err), -EINVAL);
    assert_error(&err, EINVAL, "f.npy", "is empty; a .npy file needs a header");
}

TEST(test_other_files)
{
    struct array_header header;
    struct dl_error err;

    assert_int_equal(parse((const uint8_t *)"\x1f\x8b\x08", 3, &header, &err), -EINVAL);
    assert_error(&err, EINVAL, "f.npy",
                 "is compressed by gzip; unpack it with gunzip, so that it can be mapped");
    assert_int_equal(parse((const uint8_t *)"PK\3\4zip", 7, &header, &err), -EINVAL);
    assert_error(&err, EINVAL, "f.npy",
                 "is a zip archive (.npz); save each of its arrays with numpy.save");
    assert_int_equal(parse((const uint8_t *)"P", 1, &header, &err), -EINVAL);
    assert_error(&err, EINVAL, "f.npy", "does not start with \\x93NUMPY; it is not a .npy file");
}

/* Opens what is written there, which must be refused, and keeps the error. */
static void refused(const uint8_t *data, size_t len, struct dl_error *ret)
{
    struct array array = {.count = 99};
    const char *path = harness_file("bad.npy", data, len);

    *ret = (struct dl_error){0};
    assert_int_equal(array_open_npy(path, &anywhere, &array, ret), -EINVAL);
    assert_int_equal(array.count, 99);
    assert_string_equal(ret->path, path);
}

TEST(test_open)
{
    static const char dict[] = DICT("'<i2'", "False", "(3, 2)");
    uint8_t data[256] = {0};
    size_t head = make_npy(data, 1, dict), len = head + 12;
    struct array array;
    struct dl_error err;
    int16_t out[4], value = 0;
    char want[256];

    for (size_t i = head; i < len; i += 2, value++)
        memcpy(data + i, &value, 2);
    assert_int_equal(array_open_npy(harness_file("a.npy", data, len), &anywhere, &array, NULL), 0);
    assert_int_equal(array.count, 3);
    assert_int_equal(array.row_bytes, 4);
    assert_int_equal(array_read_rows(&array, (uint64_t[]){2, 0}, 2, out), 2);
    assert_memory_equal(out, ((int16_t[]){4, 5, 0, 1}), 8);
    assert_int_equal(array_read_rows(&array, (uint64_t[]){1, 3}, 2, out), 1);
    array_deinit(&array);

    for (size_t cut = 0; cut < len; cut++)
        refused(data, cut, &err);
    snprintf(want, sizeof want,
             "shape (3, 2) of int16 needs a file of %zu bytes, but it has %zu: it is truncated; "
             "write or fetch it again",
             len, len - 1);
    assert_string_equal(err.message, want);
    refused(data, len + 5, &err);
    snprintf(want, sizeof want,
             "shape (3, 2) of int16 needs a file of %zu bytes, but it has %zu: 5 too many; one "
             "file holds one array",
             len, len + 5);
    assert_string_equal(err.message, want);
}

TEST(test_no_rows_and_no_bytes)
{
    uint8_t data[256], out[1];
    struct array array;

    size_t len = make_npy(data, 1, DICT("'<f4'", "False", "(0, 10)"));
    assert_int_equal(array_open_npy(harness_file("z.npy", data, len), &anywhere, &array, NULL), 0);
    assert_int_equal(array.count, 0);
    assert_int_equal(array.row_bytes, 40);
    assert_int_equal(array_read_rows(&array, (uint64_t[]){0}, 1, out), 0);
    array_deinit(&array);

    len = make_npy(data, 1, DICT("'<f4'", "False", "(10, 0)"));
    assert_int_equal(array_open_npy(harness_file("z.npy", data, len), &anywhere, &array, NULL), 0);
    assert_int_equal(array.count, 10);
    assert_int_equal(array.row_bytes, 0);
    assert_int_equal(array_read_rows(&array, (uint64_t[]){9, 10}, 2, out), 1);
    array_deinit(&array);
}
