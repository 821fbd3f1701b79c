/* Datasets made of datasets, and windows of tokens: what they yield and what they refuse. */
#include "daemon/data/kinds/combine/combine.h"
#include "daemon/plan/permute.h"
#include "tests/unit/dataset_words.h"
#include "tests/unit/fail_open.h"

enum { ROOM = 1000 };

/* Samples of one int64, all of them one after another. */
static void read_rows(struct dataset *ds, const uint64_t *indices, size_t n, uint64_t *ret)
{
    struct dl_error err = {0};
    size_t bad = 0;
    void *dst[1] = {ret};

    assert_int_equal(ds->n_leaves, 1);
    for (size_t i = 0; i < n; i++)
        dataset_expect(ds, indices[i]);
    if (dataset_read_rows(ds, &(struct sample_key){0}, indices, n, dst, &bad, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
}

/* ---- concat, subset, split ------------------------------------------------------------------ */

#define SPLIT(n, parts, part, seed)                                                        \
    "{kind: split, dataset: {kind: range, length: " #n "}, parts: " parts ", part: " #part \
    ", seed: " #seed "}"

static const char *const combined[][2] = {
    {"{kind: concat, datasets: [{kind: range, length: 3}]}", "fixed 0 1 2"},
    {"{kind: concat, datasets: [{kind: range, length: 3}, {kind: range, length: 0}, {kind: range, "
     "length: 1}, {kind: range, length: 2}]}",
     "fixed 0 1 2 0 0 1"},
    {"{kind: concat, datasets: [{kind: range, length: 0}, {kind: range, length: 2}, {kind: range, "
     "length: 0}]}",
     "fixed 0 1"},
    {"{kind: concat, datasets: [{kind: range, length: 0}]}", "fixed"},
    {"{kind: concat, datasets: [{kind: range, length: 299}, {kind: range, length: 2}]}",
     "fixed 0 1 2 ... 297 298 0 1"},

    {"{kind: subset, dataset: {kind: range, length: 9}, indices: [8, 0, 0, 3]}", "fixed 8 0 0 3"},
    {"{kind: subset, dataset: {kind: range, length: 9}, indices: []}", "fixed"},
    /* Beyond 32 bits. */
    {"{kind: subset, dataset: {kind: range, length: 9223372036854775807}, indices: "
     "[9223372036854775806, 4294967296, 0]}",
     "fixed 9223372036854775806 4294967296 0"},
    {"{kind: subset, indices: [0, 6, 2, 3], dataset: {kind: concat, datasets: [{kind: subset, "
     "dataset: {kind: range, length: 9}, indices: [8, 7, 6]}, {kind: concat, datasets: [{kind: "
     "range, length: 1}, {kind: range, length: 3}]}]}}",
     "fixed 8 2 6 0"},

    /* What torch.utils.data.random_split(range(n), parts, generator) gave; 1.13 and 2.13 alike. */
    {SPLIT(10, "[3, 7]", 0, 42), "fixed 2 6 1"},
    {SPLIT(10, "[3, 7]", 1, 42), "fixed 8 4 5 0 9 3 7"},
    {SPLIT(11, "[0.5, 0.3, 0.2]", 0, 7), "fixed 3 0 9 2 5 8"},
    {SPLIT(11, "[0.5, 0.3, 0.2]", 1, 7), "fixed 4 10 1"},
    {SPLIT(11, "[0.5, 0.3, 0.2]", 2, 7), "fixed 7 6"},
    {SPLIT(5, "[1, 0]", 0, 1), "fixed 0 4 2 3 1"},
    {SPLIT(15, "[.1, .1, .1, .1, .1, .1, .1, .1, .1, .1]", 3, -3), "fixed 11 12"},
    {SPLIT(15, "[.1, .1, .1, .1, .1, .1, .1, .1, .1, .1]", 9, -3), "fixed 1"},
    {SPLIT(0, "[0.5, 0.5]", 1, 1), "fixed"},
    {SPLIT(5, "[5, 0]", 1, 1), "fixed"},

    {"{kind: subset, dataset: {kind: range, length: 5}, indices: [0, 4, 5]}",
     "dataset.indices.2: 5 is beyond the 5 samples of its dataset"},
    {"{kind: concat, datasets: [{kind: range, length: 1}, {kind: subset, dataset: {kind: subset, "
     "dataset: {kind: range, length: 5}, indices: [7]}, indices: [0]}]}",
     "dataset.datasets.1.dataset.indices.0: 7 is beyond the 5 samples of its dataset"},
    {SPLIT(5, "[2, 2]", 0, 1), "dataset.parts: they add up to 4 samples, but the dataset has 5"},
    {SPLIT(5, "[9223372036854775807, 9223372036854775807, 7]", 0, 1),
     "dataset.parts: they add up to 18446744073709551615 samples, but the dataset has 5"},
    {"{kind: concat, datasets: [{kind: range, length: 9223372036854775807}, {kind: range, length: "
     "1}]}",
     "dataset.datasets.1: the parts up to this one have 2^63 samples or more together"},
};

TEST(test_combined)
{
    for (size_t i = 0; i < ARRAY_SIZE(combined); i++)
        expect_dataset(combined[i][0], combined[i][1]);
}

/* Floors, and what they leave to the first parts in turn. */
TEST(test_fractions)
{
    static const struct {
        const char *parts;
        unsigned length;
        unsigned want[5];
    } cases[] = {
        {"[0.5, 0.5]", 7, {4, 3}},
        {"[0.1, 0.2, 0.7]", 10, {1, 2, 7}},
        {"[0.3, 0.3, 0.3, 0.1]", 11, {4, 3, 3, 1}},
        {"[0.25, 0.25, 0.25, 0.25]", 3, {1, 1, 1, 0}},
        {"[0.2, 0.2, 0.2, 0.2, 0.2]", 4, {1, 1, 1, 1, 0}},
        {"[1, 0]", 6, {6, 0}},
        {"[0, 1.0]", 6, {0, 6}},
        {"[1.0]", 0, {0}},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        bool seen[16] = {false};
        unsigned total = 0, commas = 0;
        for (const char *c = cases[i].parts; *c; c++)
            commas += *c == ',';
        for (unsigned part = 0; part <= commas; part++) {
            uint64_t indices[16], got[16];
            char text[256];
            snprintf(text, sizeof text,
                     "{kind: split, dataset: {kind: range, length: %u}, parts: %s, part: %u, "
                     "seed: 5}",
                     cases[i].length, cases[i].parts, part);
            struct dataset *ds = open_dataset(text, &anywhere);
            if (ds->length != cases[i].want[part])
                fail_msg("%s: %llu samples", text, (unsigned long long)ds->length);
            for (uint64_t k = 0; k < ds->length; k++)
                indices[k] = k;
            read_rows(ds, indices, ds->length, got);
            for (uint64_t k = 0; k < ds->length; k++) {
                assert_true(got[k] < cases[i].length && !seen[got[k]]);
                seen[got[k]] = true;
            }
            total += (unsigned)ds->length;
            dataset_close(ds);
        }
        assert_int_equal(total, cases[i].length);
    }
}

TEST(test_nested)
{
    /* A split of a split: its own order over the other's. */
    struct permute_torch *outer, *inner;
    assert_int_equal(permute_torch_new(1000, 1000, 1, PERMUTE_TORCH_INSIDE_OUT_FROM, &outer), 0);
    assert_int_equal(permute_torch_new(600, 600, 2, PERMUTE_TORCH_INSIDE_OUT_FROM, &inner), 0);
    permute_torch_extend(outer, 1000);
    permute_torch_extend(inner, 600);
    char want[4096] = "fixed";
    for (size_t i = 0, len = 5; i < 300; i++)
        len += (size_t)snprintf(
            want + len, sizeof want - len, " %llu",
            (unsigned long long)permute_torch_at(outer, 400 + permute_torch_at(inner, 300 + i)));
    expect_dataset("{kind: split, parts: [0.5, 0.5], part: 1, seed: 2, dataset: {kind: split,"
                   " dataset: {kind: range, length: 1000}, parts: [400, 600], part: 1, seed: 1}}",
                   want);
    permute_torch_free(outer);
    permute_torch_free(inner);
}

static void write_npy(const char *name, const char *descr, const char *shape, size_t bytes,
                      uint8_t first)
{
    uint8_t data[4096];
    char dict[128];

    snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': %s}", descr,
             shape);
    size_t len = make_npy(data, 1, dict);
    assert_true(len + bytes <= sizeof data);
    for (size_t i = 0; i < bytes; i++)
        data[len++] = (uint8_t)(first + i);
    harness_file(name, data, len);
}

/* Two leaves of different widths, from files. */
TEST(test_leaves)
{
    write_npy("a0.npy", "|u1", "(2, 3)", 6, 0);
    write_npy("b0.npy", "|u1", "(2,)", 2, 100);
    write_npy("a1.npy", "|u1", "(2, 3)", 6, 6);
    write_npy("b1.npy", "|u1", "(2,)", 2, 102);
    expect_dataset("{kind: concat, datasets: [{kind: npy, paths: {a: a0.npy, b: b0.npy}}, {kind: "
                   "npy, paths: {b: b1.npy, a: a1.npy}}]}",
                   "fixed {a:uint8(3,)[0 1 2] b:uint8 100} {a:uint8(3,)[3 4 5] b:uint8 101} "
                   "{a:uint8(3,)[6 7 8] b:uint8 102} {a:uint8(3,)[9 10 11] b:uint8 103}");
}

TEST(test_bad_indices)
{
    static const char *const texts[] = {
        "{kind: concat, datasets: [{kind: range, length: 5}, {kind: range, length: 5}]}",
        "{kind: subset, dataset: {kind: range, length: 5}, indices: [4,3,2,1,0,4,3,2,1,0]}",
        "{kind: split, dataset: {kind: range, length: 20}, parts: [10, 10], part: 1, seed: 3}",
        "{kind: concat, datasets: [{kind: concat, datasets: [{kind: range, length: 10}]}]}",
    };
    static const size_t positions[] = {0, 1, 255, 256, 257, 600, 999};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct dataset *ds = open_dataset(texts[i], &anywhere);
        for (size_t k = 0; k < ARRAY_SIZE(positions); k++) {
            uint64_t indices[ROOM] = {0}, got[ROOM];
            void *dst[] = {got};
            struct dl_error err = {0};
            size_t bad = 0;
            indices[positions[k]] = k % 2 ? UINT64_MAX : 10;
            assert_int_equal(
                dataset_read_rows(ds, &(struct sample_key){0}, indices, ROOM, dst, &bad, &err),
                -ERANGE);
            assert_int_equal(bad, positions[k]);
            assert_error(&err, ERANGE, "",
                         k % 2 ? "sample 18446744073709551615 is beyond the dataset's 10 samples"
                               : "sample 10 is beyond the dataset's 10 samples");
        }
        dataset_close(ds);
    }
}

TEST(test_unequal_parts)
{
    static const struct {
        const char *parts;
        const char *what;
    } cases[] = {
        {"{kind: range, length: 5}, {kind: npy, paths: u1.npy}", ": uint8 (3,), not int64 ()"},
        {"{kind: npy, paths: u1.npy}, {kind: npy, paths: wide.npy}",
         ": uint8 (4,), not uint8 (3,)"},
        {"{kind: npy, paths: u1.npy}, {kind: npy, paths: deep.npy}",
         ": uint8 (3, 1), not uint8 (3,)"},
        {"{kind: npy, paths: {x: u1.npy, y: u1.npy}}, {kind: npy, paths: {x: u1.npy, y: i1.npy}}",
         " at y: int8 (3,), not uint8 (3,)"},
        {"{kind: npy, paths: {x: u1.npy}}, {kind: npy, paths: {y: u1.npy}}",
         ": a dict of y, not a dict of x"},
        {"{kind: npy, paths: {x: u1.npy}}, {kind: npy, paths: {x: u1.npy, y: u1.npy}}",
         ": a dict of x, y, not a dict of x"},
        {"{kind: npy, paths: u1.npy}, {kind: npy, paths: {x: u1.npy}}",
         ": a dict of x, not uint8 (3,)"},
    };
    write_npy("u1.npy", "|u1", "(2, 3)", 6, 0);
    write_npy("i1.npy", "|i1", "(2, 3)", 6, 0);
    write_npy("wide.npy", "|u1", "(2, 4)", 8, 0);
    write_npy("deep.npy", "|u1", "(2, 3, 1)", 6, 0);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[512], message[512];
        snprintf(text, sizeof text, "{kind: concat, datasets: [%s]}", cases[i].parts);
        snprintf(message, sizeof message,
                 "dataset.datasets.1: its samples are not those of dataset.datasets.0%s; all parts "
                 "of a concat need equal samples",
                 cases[i].what);
        expect_dataset(text, message);
    }
    expect_dataset("{kind: concat, datasets: [{kind: range, length: 1}, {kind: concat, datasets: "
                   "[{kind: range, length: 1}, {kind: npy, paths: u1.npy}]}]}",
                   "dataset.datasets.1.datasets.1: its samples are not those of "
                   "dataset.datasets.1.datasets.0: uint8 (3,), not int64 (); all parts of a concat "
                   "need equal samples");
}

/* ---- tokens --------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    const char *descr;
    uint32_t dtype;
    size_t bytes;
} token_types[] = {
    {"uint16", "<u2", DL_DTYPE_UINT16, 2},
    {"uint32", "<u4", DL_DTYPE_UINT32, 4},
    {"int32", "<i4", DL_DTYPE_INT32, 4},
    {"int64", "<i8", DL_DTYPE_INT64, 8},
};

/* Values that show a wrong width or sign. */
static int64_t token(size_t type, uint64_t i)
{
    uint64_t bits = (i + 1) * UINT64_C(0x9E3779B97F4A7C15);

    switch (token_types[type].dtype) {
    case DL_DTYPE_UINT16:
        return (uint16_t)bits;
    case DL_DTYPE_UINT32:
        return (uint32_t)bits;
    case DL_DTYPE_INT32:
        return (int32_t)bits;
    default:
        return (int64_t)bits;
    }
}

/* `count` tokens, after a .npy header when `npy` is not 0: of version 1 with so many spaces. */
static void write_tokens(const char *name, size_t type, uint64_t count, int npy)
{
    uint8_t data[8192];
    char dict[160];
    size_t len = 0;

    if (npy) {
        snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (%llu,)}%*s",
                 token_types[type].descr, (unsigned long long)count, npy, "");
        len = make_npy(data, 1, dict);
    }
    for (uint64_t i = 0; i < count; i++, len += token_types[type].bytes) {
        int64_t value = token(type, i);
        memcpy(data + len, &value, token_types[type].bytes); /* little-endian */
    }
    assert_true(len <= sizeof data);
    harness_file(name, data, len);
}

static void check_leaf(size_t type, bool widen, const void *leaf, uint64_t first, uint64_t length)
{
    size_t bytes = widen ? 8 : token_types[type].bytes;

    for (uint64_t i = 0; i < length; i++) {
        int64_t value = token(type, first + i);
        assert_memory_equal((const char *)leaf + i * bytes, &value, bytes);
    }
}

static void check_tokens(size_t type, bool widen, int npy, uint64_t length, uint64_t stride)
{
    enum { COUNT = 100 };
    _Alignas(8) uint8_t input[COUNT * COUNT * 8], target[COUNT * COUNT * 8];
    void *dst[] = {input, target};
    uint64_t indices[COUNT];
    struct dl_error err = {0};
    size_t bad, bytes = widen ? 8 : token_types[type].bytes;
    char text[256];

    write_tokens("tokens", type, COUNT, npy);
    snprintf(text, sizeof text,
             "{kind: tokens, paths: tokens, sequence_length: %llu, stride: %llu%s%s%s}",
             (unsigned long long)length, (unsigned long long)stride,
             npy ? "" : ", dtype: ", npy ? "" : token_types[type].name,
             widen ? "" : ", widen: none");
    struct dataset *ds = open_dataset(text, &anywhere);
    assert_int_equal(ds->length, (COUNT - length - 1) / stride + 1);
    assert_int_equal(ds->schema.count, 3);
    assert_memory_equal(ds->schema.keys + ds->schema.nodes[1].key_off, "input", 5);
    assert_memory_equal(ds->schema.keys + ds->schema.nodes[2].key_off, "target", 6);
    for (uint32_t leaf = 1; leaf <= 2; leaf++) {
        const struct tree_node *node = &ds->schema.nodes[leaf];
        assert_int_equal(node->dtype, widen ? DL_DTYPE_INT64 : token_types[type].dtype);
        assert_int_equal(node->ndim, 1);
        assert_int_equal(node->shape[0], length);
    }
    for (uint64_t i = 0; i < ds->length; i++)
        indices[i] = (i * 61 + 5) % ds->length;
    assert_int_equal(
        dataset_read_rows(ds, &(struct sample_key){0}, indices, ds->length, dst, &bad, &err), 0);
    for (uint64_t i = 0; i < ds->length; i++) {
        dataset_expect(ds, indices[i]);
        check_leaf(type, widen, input + i * length * bytes, indices[i] * stride, length);
        check_leaf(type, widen, target + i * length * bytes, indices[i] * stride + 1, length);
    }
    indices[ds->length / 2] = ds->length;
    assert_int_equal(
        dataset_read_rows(ds, &(struct sample_key){0}, indices, ds->length, dst, &bad, &err),
        -ERANGE);
    assert_int_equal(bad, ds->length / 2);
    dataset_close(ds);
}

TEST(test_tokens)
{
    static const uint64_t lengths[] = {1, 2, 15, 16, 17, 40, 64, 98, 99};
    static const uint64_t strides[] = {1, 7, 99, 1000};

    for (size_t type = 0; type < ARRAY_SIZE(token_types); type++)
        for (size_t i = 0; i < ARRAY_SIZE(lengths); i++)
            for (size_t k = 0; k < ARRAY_SIZE(strides); k++)
                for (int npy = 0; npy < 4; npy++) /* at four alignments */
                    check_tokens(type, (i + k + (size_t)npy) % 2, npy, lengths[i], strides[k]);
}

TEST(test_token_windows)
{
    static const struct {
        uint64_t count, length, stride, want;
    } cases[] = {
        {0, 4, 4, 0}, {4, 4, 4, 0}, {5, 4, 4, 1}, {8, 4, 4, 1},
        {9, 4, 4, 2}, {9, 4, 1, 5}, {9, 4, 3, 2}, {9, 4, INT64_MAX, 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[256], stride[64] = "";
        write_tokens("few", 0, cases[i].count, 0);
        if (cases[i].stride != cases[i].length) /* which is the default */
            snprintf(stride, sizeof stride, ", stride: %llu", (unsigned long long)cases[i].stride);
        snprintf(text, sizeof text,
                 "{kind: tokens, paths: few, dtype: uint16, sequence_length: %llu%s}",
                 (unsigned long long)cases[i].length, stride);
        struct dataset *ds = open_dataset(text, &anywhere);
        if (ds->length != cases[i].want)
            fail_msg("%s: %llu", text, (unsigned long long)ds->length);
        dataset_close(ds);
    }
}

static const char *const bad_tokens[][2] = {
    {"{kind: tokens, paths: odd, sequence_length: 2}",
     "dataset.dtype: missing; .../odd is not a .npy file, so give one of uint16, uint32, int32, "
     "int64"},
    {"{kind: concat, datasets: [{kind: tokens, paths: odd, sequence_length: 2}]}",
     "dataset.datasets.0.dtype: missing; .../odd is not a .npy file, so give one of uint16, "
     "uint32, int32, int64"},
    {"{kind: tokens, paths: odd, sequence_length: 2, dtype: uint16}",
     "odd: has 3 bytes, which are not a whole number of uint16 tokens; check dtype, or write the "
     "file again"},
    {"{kind: tokens, paths: square.npy, sequence_length: 2}",
     "square.npy: has the shape (2, 3); tokens must be one row: save array.ravel()"},
    {"{kind: tokens, paths: float.npy, sequence_length: 2}",
     "float.npy: holds float32; tokens are uint16, uint32, int32 or int64: convert it with "
     "array.astype"},
    {"{kind: tokens, paths: u16.npy, sequence_length: 2, dtype: uint32}",
     "u16.npy: holds uint16, but the spec's dtype is uint32; leave dtype out: the file has its "
     "own"},
    {"{kind: tokens, paths: cut.npy, sequence_length: 2}",
     "cut.npy: shape (4,) of uint16 needs a file of 73 bytes, but it has 72: it is truncated; "
     "write or fetch it again"},
};

TEST(test_token_refusals)
{
    harness_file("odd", "abc", 3);
    write_npy("square.npy", "<u2", "(2, 3)", 12, 0);
    write_npy("float.npy", "<f4", "(2,)", 8, 0);
    write_npy("u16.npy", "<u2", "(4,)", 8, 0);
    write_npy("cut.npy", "<u2", "(4,)", 7, 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad_tokens); i++)
        expect_dataset(bad_tokens[i][0], bad_tokens[i][1]);
}

/* ---- memory --------------------------------------------------------------------------------- */

TEST(test_every_allocation)
{
    write_tokens("some", 0, 100, 0);
    expect_failures_of(
        "{kind: concat, datasets: [{kind: split, dataset: {kind: tokens, paths: some, dtype: "
        "uint16, sequence_length: 3}, parts: [0.5, 0.5], part: 0, seed: 1}, {kind: subset, "
        "dataset: {kind: tokens, paths: some, dtype: uint16, sequence_length: 3}, indices: [1]}]}",
        20);
}
