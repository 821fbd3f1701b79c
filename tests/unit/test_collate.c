/* Collating: what becomes of samples, what is refused and how, and the image it makes. */
#include "tests/unit/collate_case.h"

#include "daemon/data/fetch.h"

static const struct collate_case good[] = {
    /* default, batched: torch/utils/data/_utils/collate.py */
    {"", "[1, 2]", "int64(2,)[1 2]"},
    {"", "[1]", "int64(1,)[1]"},
    {"", "[true, false]", "bool(2,)[true false]"},
    {"", "[0.0, -2.0]", "float64(2,)[0 -2]"},
    {"", "[abc, '', x\xC3\xA9]", "texts[\"abc\" \"\" \"x\xC3\xA9\"]"},
    {"", "[{$bytes: ab}, {$bytes: ''}]", "bytes[<ab> <>]"},
    {"", "[{$tensor: [uint8, [2], 1]}, {$tensor: [uint8, [2], 3]}]", "uint8(2, 2)[1 8 3 10]"},
    {"", "[{$tensor: [uint8, [0], 1]}, {$tensor: [uint8, [0], 3]}]", "uint8(2, 0)"},
    {"", "[{$tensor: [uint8, [1, 1, 1, 1, 1, 1, 1], 1]}]", "uint8(1, 1, 1, 1, 1, 1, 1, 1)[1]"},
    {"", "[{a: 1, b: x}, {a: 2, b: y}]", "{a:int64(2,)[1 2] b:texts[\"x\" \"y\"]}"},
    /* The first sample's keys, in its order; others are passed over. */
    {"", "[{b: 1, a: 2}, {z: 9, a: 4, y: [9, [9]], b: 3}]", "{b:int64(2,)[1 3] a:int64(2,)[2 4]}"},
    {"", "[{}, {a: 1}]", "{}"},
    /* Trees that differ in nothing but the bytes of their keys. */
    {"", "[{a: 1, b: 2}, {b: 3, a: 4}]", "{a:int64(2,)[1 4] b:int64(2,)[2 3]}"},
    {"", "[{'': 1}, {'': 2}]", "{int64(2,)[1 2]}"},
    {"", "[[1, x], [2, y]]", "[int64(2,)[1 2] texts[\"x\" \"y\"]]"},
    {"", "[{$tuple: [1, 2]}, {$tuple: [3, 4]}]", "[int64(2,)[1 3] int64(2,)[2 4]]"},
    {"", "[[1], {$tuple: [2]}]", "[int64(2,)[1 2]]"},
    {"", "[[], []]", "[]"},
    {"", "[{a: [{b: {$tuple: [1]}}, []]}, {a: [{c: 3, b: {$tuple: [2]}}, []]}]",
     "{a:[{b:[int64(2,)[1 2]]} []]}"},
    /* default, not batched: default_convert */
    {"size: null", "[7]", "7"},
    {"size: null", "[abc]", "\"abc\""},
    {"size: null", "['']", "\"\""},
    {"size: null", "[{$bytes: ab}]", "<ab>"},
    {"size: null", "[{a: {$tuple: [1, {$tuple: []}]}, b: {$tensor: [uint8, [2], 1]}}]",
     "{a:[1 []] b:uint8(2,)[1 8]}"},
    {"size: null", "[{$tensor: [uint8, [1, 1, 1, 1, 1, 1, 1, 1], 1]}]",
     "uint8(1, 1, 1, 1, 1, 1, 1, 1)[1]"},
    /* none: each as it is */
    {"kind: none", "[1, {a: x}, {$tuple: [2, {$bytes: a}]}]", "[1 {a:\"x\"} (2 <a>)]"},
    {"kind: none", "[{$tensor: [uint8, [1], 1]}, {$tensor: [uint8, [2], 1]}]",
     "[uint8(1,)[1] uint8(2,)[1 8]]"},
    {"kind: none", "[[]]", "[[]]"},
    {"kind: none, size: null", "[{$tuple: [1]}]", "(1)"},
};

static const struct collate_case bad[] = {
    {"", "[{$tensor: [uint8, [3, 2, 2], 0]}, {$tensor: [uint8, [3, 2, 1], 0]}]",
     "1: collate: sample 11 has [3, 2, 1], sample 10 has [3, 2, 2]; samples of one batch need one "
     "shape"},
    {"", "[{a: {$tensor: [uint8, [3, 2], 0]}}, {a: {$tensor: [uint8, [4, 2], 0]}}]",
     "1: collate: sample 11 has [4, 2], sample 10 has [3, 2], at a; collate: {kind: pad} would "
     "fill them up"},
    {"", "[{$tensor: [uint8, [3, 2], 0]}, {$tensor: [uint8, [3], 0]}]",
     "1: collate: sample 11 has [3], sample 10 has [3, 2]; samples of one batch need one shape"},
    {"", "[{$tensor: [uint8, [3], 0]}, {$tensor: [uint8, [3], 0]}, {$tensor: [int8, [3], 0]}]",
     "2: collate: sample 12 has int8 [3], sample 10 has uint8 [3]; convert them to one dtype in "
     "the dataset"},
    {"", "[1, 2.0]",
     "1: collate: sample 11 has float64 [], sample 10 has int64 []; convert them to one dtype in "
     "the dataset"},
    {"", "[{x: {y: [0, 1]}}, {x: {y: [0, {a: 1}]}}]",
     "1: collate: sample 11 has a dict, sample 10 has int64 [], at x.y.1; samples of one batch "
     "need the same kind of field in each place"},
    {"", "[abc, {$bytes: abc}]",
     "1: collate: sample 11 has bytes, sample 10 has a string; samples of one batch need the same "
     "kind of field in each place"},
    {"", "[[1], x]",
     "1: collate: sample 11 has a string, sample 10 has a list of 1; samples of one batch need "
     "the same kind of field in each place"},
    {"", "[{a: 1}, [1]]",
     "1: collate: sample 11 has a list of 1, sample 10 has a dict; samples of one batch need the "
     "same kind of field in each place"},
    {"", "[[1, 2], [1, 2], {$tuple: [1]}]",
     "2: collate: sample 12 has a tuple of 1, sample 10 has a list of 2; lists of one batch need "
     "equal length; collate: {kind: none} takes any"},
    {"", "[{q: {a: 1, b: 2}}, {q: {a: 1}}]",
     "1: collate: sample 11 has no such key, sample 10 has one, at q.b; each sample of a batch "
     "needs the keys of the first"},
    {"", "[{a: 1}, {b: 1}]",
     "1: collate: sample 11 has no such key, sample 10 has one, at a; each sample of a batch "
     "needs the keys of the first"},
    {"", "[{a: 1}, {}]",
     "1: collate: sample 11 has no such key, sample 10 has one, at a; each sample of a batch "
     "needs the keys of the first"},
    {"", "[{a: [1, {$tensor: [uint8, [1, 1, 1, 1, 1, 1, 1, 1], 1]}]}]",
     "0: batch.size: samples of 8 dimensions leave no dimension for the batch (8 is the "
     "maximum), at a.1; use null, or reshape the data"},
    {"",
     "[{$tensor: [uint8, [4294967296, 2147483647, 0], 0]}, "
     "{$tensor: [uint8, [4294967296, 2147483647, 0], 0]}]",
     "0: batch.size: this batch needs more than the 68719476736 bytes a segment can have; choose "
     "a smaller batch"},
};

TEST(test_good)
{
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        check_good(&good[i]);
}

TEST(test_bad)
{
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        check_bad(&bad[i]);
}

static struct sample many[3];

static void clear_many(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(many); i++)
        sample_deinit(&many[i]);
}

static int refuse(struct collate *c, size_t n, struct dl_error *err)
{
    struct batch_layout layout;
    size_t bad_sample = 99;

    *err = (struct dl_error){0};
    return collate_measure(c, many, case_numbers, n, NULL, 128, &layout, &bad_sample, err);
}

/* Samples whose builder failed, or that were left open, are told as such, with their place. */
TEST(test_unfinished_samples)
{
    struct collate *c = must_collate("");
    struct batch_layout layout;
    struct dl_error err = {0};
    struct arena arena = {0};
    size_t at = 99;

    many[0].arena = many[1].arena = &arena;
    sample_int(&many[0], NULL, 1);
    assert_int_equal(collate_measure(c, many, case_numbers, 2, NULL, 128, &layout, &at, &err),
                     -EINVAL);
    assert_int_equal(at, 1);
    assert_error_has(&err, "empty");
    sample_begin(&many[1], TREE_LIST, NULL);
    assert_int_equal(collate_measure(c, many, case_numbers, 2, NULL, 128, &layout, &at, &err),
                     -EINVAL);
    assert_error_has(&err, "incomplete");
    sample_text(&many[1], TREE_STRING, NULL, "\xff", 1);
    assert_int_equal(collate_measure(c, many, case_numbers, 2, NULL, 128, &layout, &at, &err),
                     -EILSEQ);
    clear_many();
    arena_deinit(&arena);
    collate_free(c);
}

TEST(test_limits)
{
    static const uint8_t byte[8];
    struct collate *none = must_collate("kind: none"), *pile = must_collate("");
    struct collate *pad = must_collate("kind: pad");
    struct dl_error err;

    /* Each has fewer nodes than a tree may have; together they have more. */
    for (int i = 0; i < 2; i++) {
        sample_begin(&many[i], TREE_LIST, NULL);
        for (int k = 0; k < DL_BOUND_TREE_NODES / 2; k++)
            sample_tensor(&many[i], NULL, DL_DTYPE_UINT8, 0, NULL, byte);
        sample_end(&many[i]);
    }
    assert_int_equal(refuse(none, 2, &err), -E2BIG);
    assert_error(&err, E2BIG, "collate",
                 "the batch has more than 65536 nodes; choose a smaller batch.size, or samples "
                 "with fewer fields");
    assert_int_equal(refuse(pile, 2, &err), 0);
    clear_many();

    /* As deep as a sample may be, and a list around it. */
    for (int k = 0; k < DL_BOUND_TREE_DEPTH; k++)
        sample_begin(&many[0], TREE_LIST, NULL);
    sample_tensor(&many[0], NULL, DL_DTYPE_UINT8, 1, (uint64_t[]){1}, byte);
    for (int k = 0; k < DL_BOUND_TREE_DEPTH; k++)
        sample_end(&many[0]);
    assert_int_equal(refuse(pile, 1, &err), 0);
    assert_int_equal(refuse(none, 1, &err), -E2BIG);
    assert_error(&err, E2BIG, "collate", "the batch is nested deeper than 32 levels");
    assert_int_equal(refuse(pad, 1, &err), -E2BIG);
    clear_many();

    /* More than any segment: nothing of it is read before that is known. */
    sample_tensor(&many[0], NULL, DL_DTYPE_UINT8, 1, (uint64_t[]){1ULL << 36}, byte);
    sample_tensor(&many[1], NULL, DL_DTYPE_UINT8, 1, (uint64_t[]){1ULL << 62}, byte);
    assert_int_equal(refuse(pile, 1, &err), -EFBIG);
    assert_int_equal(refuse(none, 2, &err), -EFBIG);
    assert_int_equal(refuse(pad, 2, &err), -EFBIG);
    assert_error_has(&err, "a segment can have");
    clear_many();
    for (int i = 0; i < 3; i++)
        sample_text(&many[i], TREE_BYTES, NULL, byte, INT64_MAX);
    assert_int_equal(refuse(pile, 3, &err), -EFBIG);
    assert_int_equal(refuse(none, 3, &err), -EFBIG);
    clear_many();

    collate_free(none);
    collate_free(pile);
    collate_free(pad);
}

/* Many keys in another order: found without trying each for each. */
TEST(test_wide_dicts)
{
    enum { KEYS = 30000 };
    struct collate *c = must_collate("");
    static const uint8_t byte = 5;
    struct batch_layout layout;
    struct dl_error err;
    size_t at;
    char key[16];

    for (int i = 0; i < 2; i++) {
        sample_begin(&many[i], TREE_DICT, NULL);
        for (int k = 0; k < KEYS; k++) {
            snprintf(key, sizeof key, "key%d", i == 0 ? k : KEYS - 1 - k);
            sample_tensor(&many[i], key, DL_DTYPE_UINT8, 0, NULL, &byte);
        }
        sample_end(&many[i]);
    }
    assert_int_equal(collate_measure(c, many, case_numbers, 2, NULL, 128, &layout, &at, &err), 0);
    assert_int_equal(layout.tree_count, KEYS + 1);
    clear_many();
    collate_free(c);
}

TEST(test_kinds)
{
    struct dl_spec spec = {.batch_size = 1, .collate.kind = COLLATE_PLUGIN};
    struct collate *c = NULL;
    struct dl_error err = {0};

    assert_int_equal(collate_new(&spec, &anywhere, &c, &err), -EINVAL);
    assert_string_equal(err.message, "is not the absolute path of a plug-in");
    spec.collate.kind = 99;
    assert_int_equal(collate_new(&spec, &anywhere, &c, &err), -EINVAL);
    assert_error(&err, EINVAL, "collate.kind", "99 is not a kind of collate");
    assert_null(c);
    assert_null(collate_free(NULL));
}

/* A row of files of fixed shape, fetched and collated: the same bytes. */
static void same_as_fetched(const struct dl_spec *spec, const uint64_t *indices, uint32_t n)
{
    static _Alignas(4096) uint8_t fetched[CASE_SLOT], collated[CASE_SLOT];
    struct sample *samples = calloc(n, sizeof *samples);
    const struct sample_key key = {0};
    struct fetcher *f = NULL;
    struct dataset *ds = NULL;
    struct collate *c = NULL;
    struct arena arena = {0};
    struct batch_layout layout;
    struct dl_error err = {0};
    uint64_t used, begin = slot_indices_end(n);
    size_t at;

    memset(fetched, 0xaa, sizeof fetched);
    memset(collated, 0x55, sizeof collated);
    assert_true(slot_prepare(
        fetched, sizeof fetched,
        &(struct slot_task){.indices = indices,
                            .samples = n,
                            .what = spec->batch_size == 0 ? SLOT_SAMPLE : SLOT_BATCH}));
    if (fetcher_new(spec, &anywhere, &f, &err) < 0 ||
        fetcher_fill(f, fetched, sizeof fetched, &used, &err) < 0 ||
        dataset_open(&spec->dataset, &anywhere, &ds, &err) < 0 ||
        collate_new(spec, &anywhere, &c, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    for (uint32_t i = 0; i < n; i++) {
        samples[i].arena = &arena;
        if (dataset_get(ds, &key, indices[i], &samples[i], &err) < 0)
            fail_msg("%s: %s", err.path, err.message);
    }
    if (collate_measure(c, samples, indices, n, NULL, begin, &layout, &at, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    collate_write(c, collated);

    const struct slot_header *header = (const void *)fetched;
    assert_int_equal(layout.used, used);
    assert_int_equal(layout.tree_off, header->tree_off);
    assert_int_equal(layout.tree_len, header->tree_len);
    assert_int_equal(layout.tree_count, header->tree_count);
    assert_int_equal(layout.data_off, header->data_off);
    assert_memory_equal(fetched + begin, collated + begin, used - begin);

    for (uint32_t i = 0; i < n; i++)
        sample_deinit(&samples[i]);
    free(samples);
    arena_deinit(&arena);
    collate_free(c);
    dataset_close(ds);
    fetcher_free(f);
}

TEST(test_same_as_fetched)
{
    static const uint64_t indices[] = {5, 0, 9, 9, 3, 1, 2};
    uint8_t data[512];
    size_t len =
        make_npy(data, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (10, 3), }          ");
    struct spec_file files[3] = {{.field = "image"}, {.field = "label"}, {.field = "x"}};
    struct dl_spec spec = {.dataset = {.kind = DATASET_NPY, .files = files, .n_files = 3},
                           .collate.kind = COLLATE_DEFAULT};

    for (size_t i = 0; i < 120; i++)
        data[len + i] = (uint8_t)(i * 11);
    files[0].path = strdup(harness_file("image.npy", data, len + 120));
    len = make_npy(data, 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (10,), }     ");
    for (size_t i = 0; i < 80; i++)
        data[len + i] = (uint8_t)(i * 5);
    files[1].path = strdup(harness_file("label.npy", data, len + 80));
    len = make_npy(data, 1, "{'descr': '|b1', 'fortran_order': False, 'shape': (10, 0), }   ");
    files[2].path = strdup(harness_file("x.npy", data, len));

    for (uint32_t n = 1; n <= ARRAY_SIZE(indices); n++) {
        spec.batch_size = n;
        same_as_fetched(&spec, indices, n);
    }
    spec.batch_size = 0;
    same_as_fetched(&spec, indices, 1);

    /* One file and no field: the sample is the row. */
    struct spec_file row = {.path = files[0].path};
    spec.dataset = (struct spec_dataset){.kind = DATASET_NPY, .files = &row, .n_files = 1};
    same_as_fetched(&spec, indices, 1);
    spec.batch_size = 7;
    same_as_fetched(&spec, indices, 7);
    spec.dataset = (struct spec_dataset){.kind = DATASET_RANGE, .length = 10};
    same_as_fetched(&spec, indices, 7);

    len = make_idx(data, 8, 3, (uint32_t[]){10, 2, 3});
    for (size_t i = 0; i < 60; i++)
        data[len + i] = (uint8_t)(i * 3);
    struct spec_file idx = {.field = "image",
                            .path = (char *)harness_file("image.idx", data, len + 60)};
    spec.dataset = (struct spec_dataset){.kind = DATASET_IDX, .files = &idx, .n_files = 1};
    same_as_fetched(&spec, indices, 7);
    for (int i = 0; i < 3; i++)
        free(files[i].path);
}

/* Each allocation fails once; then the same collate makes the batch. None in steady state. */
TEST(test_no_memory)
{
    static const char *const kinds[] = {"", "kind: pad, fields: [a]", "kind: none"};

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        check_no_memory(kinds[i], "[{a: {$tensor: [uint8, [2], 0]}, b: x}, "
                                  "{b: yy, a: {$tensor: [uint8, [2], 9]}}]");
}
