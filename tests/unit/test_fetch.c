/* Datasets of every kind and the batch images made from them. */
#include "daemon/data/fetch.h"
#include "tests/lib/row.h"
#include "tests/unit/dataset_text.h"
#include "tests/unit/fail_alloc.h"

#include <errno.h>

enum { SLOT_BYTES = 1 << 20 };

static _Alignas(4096) uint8_t slot_a[SLOT_BYTES], slot_b[SLOT_BYTES];

static struct dl_spec range_spec(uint64_t length, uint64_t batch_size)
{
    return (struct dl_spec){.dataset = {.kind = DATASET_RANGE, .length = length},
                            .batch_size = batch_size};
}

/* Rows of `row` bytes of uint8; byte b of row i is a function of both. */
static uint8_t cell(uint64_t i, uint64_t b)
{
    return (uint8_t)(i * 131 + b * 7 + (i >> 8));
}

static void write_rows(const char *name, uint64_t rows, uint64_t row, const char *shape)
{
    _cleanup_free_ uint8_t *data = malloc(256 + rows * row);
    char dict[128];
    size_t len;

    snprintf(dict, sizeof dict, "{'descr': '|u1', 'fortran_order': False, 'shape': %s}", shape);
    len = make_npy(data, 1, dict);
    for (uint64_t i = 0; i < rows; i++) {
        for (uint64_t b = 0; b < row; b++)
            data[len++] = cell(i, b);
    }
    harness_file(name, data, len);
}

static struct fetcher *must_open(const struct dl_spec *spec)
{
    struct fetcher *fetcher = NULL;
    struct dl_error err = {0};

    if (fetcher_new(spec, &anywhere, &fetcher, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    return fetcher;
}

/* Of a spec as it is written. */
static struct fetcher *open_text(const char *text)
{
    _cleanup_(spec_deinit) struct dl_spec spec = read_loader(text);

    return must_open(&spec);
}

static int refuse(const struct dl_spec *spec, struct dl_error *ret)
{
    struct fetcher *fetcher = NULL;
    int r;

    *ret = (struct dl_error){0};
    r = fetcher_new(spec, &anywhere, &fetcher, ret);
    assert_null(fetcher);
    assert_true(r < 0);
    return -r;
}

static void prepare(void *slot, uint8_t garbage, const uint64_t *indices, uint32_t n, bool single)
{
    memset(slot, garbage, SLOT_BYTES);
    assert_true(slot_prepare(slot, SLOT_BYTES,
                             &(struct slot_task){.generation = 7,
                                                 .epoch = 3,
                                                 .step = 11,
                                                 .indices = indices,
                                                 .samples = n,
                                                 .what = single ? SLOT_SAMPLE : SLOT_BATCH}));
}

/*
 * Fills both slots, which hold different garbage, and wants the same image; checks the header and
 * the tree. Returns the tree's nodes.
 */
static const struct tree_node *fill(struct fetcher *f, const uint64_t *indices, uint32_t n,
                                    bool single, uint64_t *ret_used)
{
    const struct slot_header *header = (const void *)slot_a;
    struct dl_error err = {0};
    uint64_t used = 0, again = 0;

    prepare(slot_a, 0xaa, indices, n, single);
    prepare(slot_b, 0x55, indices, n, single);
    if (fetcher_fill(f, slot_a, SLOT_BYTES, &used, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    assert_int_equal(fetcher_fill(f, slot_b, SLOT_BYTES, &again, &err), 0);
    assert_int_equal(used, again);
    assert_memory_equal(slot_a, slot_b, used);
    assert_int_equal(slot_a[used], 0xaa);

    assert_int_equal(header->generation, 7);
    assert_int_equal(header->step, 11);
    assert_int_equal(header->epoch, 3);
    assert_int_equal(header->samples, n);
    assert_memory_equal(slot_a + header->indices_off, indices, n * 8);
    assert_int_equal(header->tree_off % 64, 0);
    assert_int_equal(header->data_off % 64, 0);
    assert_int_equal(header->used, used);
    assert_int_equal(header->error_code, 0);
    assert_true(header->error_index == UINT64_MAX);
    if (tree_check(slot_a + header->tree_off, header->tree_len, header->tree_count, used, &err) < 0)
        fail_msg("%s", err.message);
    *ret_used = used;
    return (const void *)(slot_a + header->tree_off);
}

TEST(test_range)
{
    struct dl_spec spec = range_spec(1ULL << 63, 4);
    struct fetcher *f = open_text("{dataset: {kind: range, length: 1000}, batch: {size: 4}}");
    uint64_t indices[] = {999, 0, 5, 5}, used;
    const struct tree_node *node = fill(f, indices, 4, false, &used);

    assert_int_equal(fetcher_length(f), 1000);
    assert_int_equal(fetcher_slot_bytes(f), 4096);
    assert_int_equal(node->kind, TREE_TENSOR);
    assert_int_equal(node->dtype, DL_DTYPE_INT64);
    assert_int_equal(node->ndim, 1);
    assert_int_equal(node->shape[0], 4);
    assert_memory_equal(slot_a + node->offset, indices, sizeof indices);
    assert_null(fetcher_free(f));

    /* Without batching. */
    f = open_text("{dataset: {kind: range, length: 1000}, batch: {size: null}}");
    node = fill(f, indices, 1, true, &used);
    assert_int_equal(node->ndim, 0);
    assert_int_equal(node->shape[0], 0);
    assert_int_equal(node->nbytes, 8);
    assert_memory_equal(slot_a + node->offset, indices, 8);
    fetcher_free(f);

    struct dl_error err;
    assert_int_equal(refuse(&spec, &err), EINVAL);
    assert_error(&err, EINVAL, "dataset.length",
                 "9223372036854775808 is too large: samples are int64, at most "
                 "9223372036854775807");
    assert_null(fetcher_free(NULL));
}

/* Three fields of odd sizes, so that there are gaps; full, short, and full batches again. */
TEST(test_dict)
{
    static const char *const names[] = {"image", "label", "z"};
    static const uint64_t rows[] = {35, 1, 100};
    uint64_t indices[10], used, last_used = 0;

    write_rows("label.npy", 300, 1, "(300,)");
    write_rows("image.npy", 300, 35, "(300, 5, 7)");
    write_rows("z.npy", 300, 100, "(300, 100)");
    struct fetcher *f = open_text("{dataset: {kind: npy, paths: {label: label.npy, image: "
                                  "image.npy, z: z.npy}}, batch: {size: 10}}");
    for (unsigned turn = 0; turn < 4; turn++) {
        uint32_t n = turn % 2 ? 3 : 10;
        for (uint32_t i = 0; i < n; i++)
            indices[i] = (turn * 97 + i * 41) % 300;
        const struct tree_node *tree = fill(f, indices, n, false, &used);
        uint64_t end = ((const struct slot_header *)slot_a)->data_off;

        assert_int_equal(tree[0].kind, TREE_DICT);
        assert_int_equal(tree[0].children, 3);
        for (uint32_t leaf = 0; leaf < 3; leaf++) {
            const struct tree_node *node = &tree[leaf + 1];
            assert_int_equal(node->key_len, strlen(names[leaf]));
            assert_memory_equal(tree_key(tree, node), names[leaf], node->key_len);
            assert_int_equal(node->offset, align_up(end, 64));
            for (uint64_t gap = end; gap < node->offset; gap++)
                assert_int_equal(slot_a[gap], 0);
            assert_int_equal(node->shape[0], n);
            assert_int_equal(node->nbytes, n * rows[leaf]);
            for (uint64_t at = 0; at < node->nbytes; at++)
                assert_int_equal(slot_a[node->offset + at],
                                 cell(indices[at / rows[leaf]], at % rows[leaf]));
            end = node->offset + node->nbytes;
        }
        assert_int_equal(tree[1].ndim, 3);
        assert_memory_equal(tree[1].shape, ((uint64_t[]){n, 5, 7}), 24);
        assert_int_equal(used, end);
        assert_true(n < 10 || last_used == 0 || used > last_used);
        last_used = used;
    }
    assert_int_equal(fetcher_slot_bytes(f), 4096);
    fetcher_free(f);
}

/* Each way the loop over rows is specialised, and the sizes between. */
TEST(test_row_sizes)
{
    for (uint64_t row = 1; row <= 6000; row += row < 70 ? 1 : 313) {
        char shape[64];
        uint64_t indices[40], used, rows = 50;
        snprintf(shape, sizeof shape, "(50, %llu)", (unsigned long long)row);
        write_rows("rows.npy", rows, row, shape);
        struct fetcher *f = open_text("{dataset: {kind: npy, paths: rows.npy}, batch: {size: 40}}");

        for (uint64_t i = 0; i < 40; i++)
            indices[i] = (i * 29 + row) % rows;
        const struct tree_node *node = fill(f, indices, 40, false, &used);
        assert_int_equal(node->nbytes, 40 * row);
        for (uint64_t at = 0; at < node->nbytes; at++)
            assert_int_equal(slot_a[node->offset + at], cell(indices[at / row], at % row));
        fetcher_free(f);
    }
}

TEST(test_refused_files)
{
    struct spec_file files[] = {{NULL, (char *)"/nonexistent/a.npy"}, {NULL, NULL}};
    struct dl_spec spec = {.dataset = {.kind = DATASET_NPY, .files = files, .n_files = 2},
                           .batch_size = 2};
    struct dl_error err = {0};
    struct fetcher *f = NULL;
    char want[8192];

    write_rows("a.npy", 5, 1, "(5,)");
    write_rows("b.npy", 4, 1, "(4,)");
    struct dl_spec unequal = read_dataset("{kind: npy, paths: {a: a.npy, b: b.npy}}");
    assert_int_equal(refuse(&unequal, &err), EINVAL);
    snprintf(want, sizeof want,
             "has 4 samples, but %s has 5; all files of a dataset need equally many",
             unequal.dataset.files[0].path);
    assert_error(&err, EINVAL, unequal.dataset.files[1].path, want);
    spec_deinit(&unequal);

    struct dl_spec missing = read_dataset("{kind: npy, paths: {a: a.npy, b: /nonexistent/b.npy}}");
    assert_int_equal(refuse(&missing, &err), ENOENT); /* and the first is closed again */
    assert_string_equal(err.path, "/nonexistent/b.npy");
    char *paths[] = {(char *)"/nonexistent"};
    struct data_env env = {.roots = paths, .n_roots = 1};
    assert_int_equal(fetcher_new(&missing, &env, &f, &err), -EACCES);
    assert_string_equal(err.path, missing.dataset.files[0].path);
    spec_deinit(&missing);

    files[1].path = files[0].path;
    assert_int_equal(refuse(&spec, &err), EINVAL); /* two without a field */
    assert_string_equal(err.path, "dataset.paths");
    spec.dataset.n_files = 0;
    assert_int_equal(refuse(&spec, &err), EINVAL);
    spec.dataset.n_files = DL_MAX_DATASET_FILES + 1;
    assert_int_equal(refuse(&spec, &err), EINVAL);
    spec.dataset.kind = 99;
    assert_int_equal(refuse(&spec, &err), EINVAL);
    assert_error(&err, EINVAL, "dataset.kind", "99 is not a kind of dataset");
}

/* "All in one batch" is a large number: the slot is as large as the data, not as the number. */
TEST(test_slot_bytes)
{
    struct dl_spec spec = range_spec(100, DL_MAX_BATCH_SIZE);
    struct fetcher *f = must_open(&spec);
    uint64_t indices[200] = {0}, used;

    assert_int_equal(fetcher_slot_bytes(f), 4096);
    fill(f, indices, 200, false, &used); /* repeats samples; works all the same */
    fetcher_free(f);

    spec = range_spec(0, 8);
    f = must_open(&spec);
    assert_int_equal(fetcher_length(f), 0);
    assert_int_equal(fetcher_slot_bytes(f), 4096);
    fetcher_free(f);

    spec = range_spec(1ULL << 40, 1024);
    f = must_open(&spec);
    assert_int_equal(fetcher_slot_bytes(f), 5 * 4096);
    fetcher_free(f);
}

/* A sparse file of large rows: nothing of it is read. */
TEST(test_batch_too_large)
{
    struct spec_file file = {NULL, strdup(harness_file("sparse", "", 0))};
    struct dl_spec spec = {
        .dataset = {.kind = DATASET_RECORDS,
                    .files = &file,
                    .n_files = 1,
                    .dtype = DL_DTYPE_UINT8,
                    .ndim = 1,
                    .shape = {1 << 30}},
        .batch_size = 64,
    };
    struct dl_error err;

    if (truncate(file.path, 65LL << 30) < 0) {
        print_message("no sparse file of 65 GiB here\n");
        free(file.path);
        return;
    }
    assert_int_equal(refuse(&spec, &err), EFBIG);
    assert_error(&err, EFBIG, "batch.size",
                 "64 samples of this dataset need more than the 68719476736 bytes a segment can "
                 "have; choose a smaller batch");
    spec.batch_size = 63;
    struct fetcher *f = must_open(&spec);
    assert_int_equal(fetcher_slot_bytes(f), (63ULL << 30) + 4096);
    fetcher_free(f);

    /* Two rows fit; a task that repeats them 64 times is refused when it comes. */
    uint64_t indices[64] = {0}, used;
    assert_int_equal(truncate(file.path, 2LL << 30), 0);
    spec.batch_size = 64;
    f = must_open(&spec);
    prepare(slot_a, 0xaa, indices, 64, false);
    assert_int_equal(fetcher_fill(f, slot_a, SLOT_BYTES, &used, &err), -EFBIG);
    assert_string_equal(err.path, "batch.size");
    assert_string_equal(slot_a + ((struct slot_header *)slot_a)->error_off,
                        "batch.size: 64 samples of this dataset need more than the 68719476736 "
                        "bytes a segment can have; choose a smaller batch");
    assert_int_equal(fetcher_fill(f, slot_a, SLOT_BYTES, &used, &err), -EFBIG);
    prepare(slot_a, 0xaa, indices, 2, false);
    assert_int_equal(fetcher_fill(f, slot_a, SLOT_BYTES, &used, &err), -ENOBUFS);
    assert_int_equal(used, SLOT_HEADER_BYTES + 192 + (2LL << 30));
    fetcher_free(f);
    spec.batch_size = DL_MAX_BATCH_SIZE + 1;
    assert_int_equal(refuse(&spec, &err), EINVAL);
    assert_error(&err, EINVAL, "batch.size", "1048577 is more than 1048576");
    free(file.path);
}

TEST(test_dimensions)
{
    struct spec_file file = {NULL, strdup(harness_file("dims", "abcdefgh", 8))};
    struct dl_spec spec = {
        .dataset = {.kind = DATASET_RECORDS,
                    .files = &file,
                    .n_files = 1,
                    .dtype = DL_DTYPE_UINT8,
                    .ndim = 8,
                    .shape = {1, 1, 1, 1, 1, 1, 1, 2}},
        .batch_size = 2,
    };
    struct dl_error err;
    uint64_t indices[] = {3, 1}, used;

    assert_int_equal(refuse(&spec, &err), EINVAL);
    assert_error(&err, EINVAL, "batch.size",
                 "samples of 8 dimensions leave no dimension for the batch (8 is the maximum); "
                 "use null, or reshape the data");
    spec.batch_size = 0;
    struct fetcher *f = must_open(&spec);
    const struct tree_node *node = fill(f, indices, 1, true, &used);
    assert_int_equal(node->ndim, 8);
    assert_int_equal(node->shape[7], 2);
    assert_memory_equal(slot_a + node->offset, "gh", 2);
    fetcher_free(f);

    spec.dataset.ndim = 7;
    spec.dataset.shape[6] = 2;
    spec.batch_size = 2;
    f = must_open(&spec);
    node = fill(f, indices, 2, false, &used);
    assert_memory_equal(node->shape, ((uint64_t[]){2, 1, 1, 1, 1, 1, 1, 2}), 64);
    assert_memory_equal(slot_a + node->offset, "ghcd", 4);
    fetcher_free(f);
    free(file.path);
}

TEST(test_rows_of_no_bytes)
{
    uint64_t indices[] = {4, 3, 2}, used;

    write_rows("none.npy", 0, 0, "(5, 3, 0)");
    write_rows("some.npy", 5, 3, "(5, 3)");
    struct fetcher *f = open_text(
        "{dataset: {kind: npy, paths: {none: none.npy, some: some.npy}}, batch: {size: 4}}");
    const struct tree_node *tree = fill(f, indices, 3, false, &used);

    assert_int_equal(tree[1].nbytes, 0);
    assert_memory_equal(tree[1].shape, ((uint64_t[]){3, 3, 0}), 24);
    assert_int_equal(tree[2].nbytes, 9);
    fetcher_free(f);
}

TEST(test_slot_too_small)
{
    uint64_t indices[50] = {0}, used, need;
    struct dl_error err = {0};

    write_rows("a.npy", 300, 100, "(300, 100)");
    struct fetcher *f = open_text("{dataset: {kind: npy, paths: a.npy}, batch: {size: 50}}");
    fill(f, indices, 50, false, &used);
    for (uint64_t bytes = used - 70; bytes < used; bytes++) {
        prepare(slot_a, 0xaa, indices, 50, false);
        need = 0;
        assert_int_equal(fetcher_fill(f, slot_a, bytes, &need, &err), -ENOBUFS);
        assert_int_equal(need, used);
    }
    /* Nothing was written: the task still stands there. */
    prepare(slot_b, 0xaa, indices, 50, false);
    assert_memory_equal(slot_a, slot_b, SLOT_BYTES);
    assert_int_equal(fetcher_fill(f, slot_a, used, &need, &err), 0);
    fetcher_free(f);
}

TEST(test_bad_index)
{
    static const char *const specs[] = {"{dataset: {kind: npy, paths: a.npy}, batch: {size: 50}}",
                                        "{dataset: {kind: range, length: 30}, batch: {size: 50}}"};
    const struct slot_header *header = (const void *)slot_a;
    static const uint64_t bad[] = {30, 31, 1ULL << 62, UINT64_MAX};

    write_rows("a.npy", 30, 10, "(30, 10)");
    for (size_t s = 0; s < ARRAY_SIZE(specs); s++) {
        struct fetcher *f = open_text(specs[s]);
        for (size_t at = 0; at < 50 * ARRAY_SIZE(bad); at++) {
            uint64_t indices[50] = {0}, used = 99;
            struct dl_error err = {0};
            char want[128];

            indices[at % 50] = bad[at / 50];
            prepare(slot_a, 0xaa, indices, 50, false);
            assert_int_equal(fetcher_fill(f, slot_a, SLOT_BYTES, &used, &err), -ERANGE);
            assert_int_equal(used, 99);
            snprintf(want, sizeof want, "sample %llu is beyond the dataset's 30 samples",
                     (unsigned long long)bad[at / 50]);
            assert_error(&err, ERANGE, "", want);
            assert_int_equal(header->error_code, ERANGE);
            assert_true(header->error_index == bad[at / 50]);
            assert_string_equal(slot_a + header->error_off, want);
            assert_int_equal(header->error_len, strlen(want));
            assert_int_equal(header->used, header->error_off + header->error_len + 1);
            assert_int_equal(header->tree_count, 0);
            assert_memory_equal(slot_a + header->indices_off, indices, sizeof indices);
        }
        fetcher_free(f);
    }
}

/* What a slot's header may hold when something else wrote to it. */
TEST(test_damaged_task)
{
    struct dl_spec spec = range_spec(100, 4);
    struct fetcher *f = must_open(&spec);
    struct slot_header *header = (void *)slot_a;
    uint64_t indices[4] = {0}, used;
    struct dl_error err = {0};

    for (unsigned what = 0; what < 7; what++) {
        uint64_t slot_bytes = SLOT_BYTES;
        prepare(slot_a, 0xaa, indices, 4, false);
        if (what < 3)
            header->samples = (uint32_t[]){0, 5, UINT32_MAX}[what];
        else if (what == 3)
            header->indices_off = UINT64_MAX - 7;
        else if (what == 4)
            header->what = SLOT_SAMPLE;
        else
            slot_bytes = what == 5 ? SLOT_HEADER_BYTES + 31 : 64;
        memcpy(slot_b, slot_a, SLOT_BYTES);
        assert_int_equal(fetcher_fill(f, slot_a, slot_bytes, &used, &err), -EINVAL);
        assert_int_equal(header->error_code, what < 6 ? EINVAL : 0);
        assert_memory_equal(slot_a + slot_bytes, slot_b + slot_bytes, SLOT_BYTES - slot_bytes);
    }
    prepare(slot_a, 0xaa, indices, 1, false);
    header->samples = 0;
    assert_int_equal(fetcher_fill(f, slot_a, SLOT_BYTES, &used, NULL), -EINVAL);
    assert_string_equal(slot_a + header->error_off, "a task of 0 samples, where batch.size is 4");
    fetcher_free(f);
}

/* ---- batches of tokens ----------------------------------------------------------------------- */

/* Lines of text as bytes: "a", "bb", "ccc", "dddd"; batches of at most 8 tokens. */
static struct dl_spec lines_spec(enum collate_kind kind)
{
    static struct spec_file file;

    file.path = (char *)harness_text("lines.txt", "a\nbb\nccc\ndddd\n");
    return (struct dl_spec){.dataset = {.kind = DATASET_TEXT,
                                        .files = &file,
                                        .n_files = 1,
                                        .format = TEXT_LINES,
                                        .tokenizer = TOKENIZER_BYTES},
                            .batch_size = 1,
                            .batch = {.tokens = 8},
                            .collate = {.kind = kind, .length = 4}};
}

/* A task with what is planned of it: lists of n lengths, and of the samples of `rows` rows. */
static void prepare_planned(const uint64_t *indices, uint32_t n, const uint32_t *lists,
                            uint32_t rows, uint32_t cut)
{
    struct slot_task task = {
        .indices = indices, .samples = n, .step = 11, .planned = slot_planned_bytes(n, rows)};

    memset(slot_a, 0xaa, SLOT_BYTES);
    assert_true(slot_prepare(slot_a, SLOT_BYTES, &task));
    struct slot_planned *planned = slot_planned(slot_a, n);
    *planned = (struct slot_planned){.cut = cut, .rows = rows};
    memcpy(planned->lists, lists, (n + rows) * sizeof *lists);
}

TEST(test_planned)
{
    static const uint64_t indices[] = {3, 0, 2};
    static const struct {
        enum collate_kind kind;
        uint32_t lists[5], rows, cut;
        uint64_t bad;
        const char *error; /* NULL: it is taken */
    } rows[] = {
        ROW(COLLATE_PAD, {4, 1, 3}, 0, 0, 0, NULL),
        ROW(COLLATE_PAD, {2, 1, 2}, 0, 2, 0, NULL),
        ROW(COLLATE_PACK, {4, 1, 3, 1, 2}, 2, 0, 0, NULL),
        ROW(COLLATE_NONE, {4, 1, 3}, 0, 0, 0, NULL),
        ROW(COLLATE_DEFAULT, {1, 1, 1}, 0, 1, 0, NULL),
        ROW(COLLATE_PAD, {4, 1, 2}, 0, 0, 2,
            "dataset: sample 2 has 3 tokens, and had 2 when lengths were taken; the data has "
            "changed: open the loader again"),
        ROW(COLLATE_NONE, {4, 2, 3}, 0, 0, 0,
            "dataset: sample 0 has 1 tokens, and had 2 when lengths were taken; the data has "
            "changed: open the loader again"),
        ROW(COLLATE_PAD, {4, 0, 3}, 0, 0, UINT64_MAX,
            "the slot's header is damaged: a planned length is invalid"),
        ROW(COLLATE_PACK, {4, 1, 3, 1, 1}, 2, 0, UINT64_MAX,
            "the slot's header is damaged: the planned rows are those of other samples"),
        ROW(COLLATE_PACK, {4, 1, 3}, 0, 0, UINT64_MAX,
            "collate: no rows are planned for this batch; packing needs batch.tokens"),
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct slot_header *header = (const void *)slot_a;
        struct dl_spec spec = lines_spec(rows[i].kind);
        struct fetcher *f = must_open(&spec);
        struct dl_error err = {0};
        uint64_t used = 0, end = slot_indices_end(3) + slot_planned_bytes(3, rows[i].rows);
        prepare_planned(indices, 3, rows[i].lists, rows[i].rows, rows[i].cut);
        memcpy(slot_b, slot_a, end);
        int r = fetcher_fill(f, slot_a, SLOT_BYTES, &used, &err);
        if (rows[i].error) {
            assert_int_equal(r, -EINVAL);
            assert_string_equal(slot_a + header->error_off, rows[i].error);
            assert_int_equal(header->error_off, end);
            assert_true(header->error_index == rows[i].bad);
        } else {
            if (r < 0)
                fail_msg("%zu: %s: %s", i, err.path, err.message);
            assert_int_equal(header->tree_off, align_up(end, 64));
            assert_int_equal(header->samples, 3);
        }
        /* The task stands there as it was. */
        assert_memory_equal(slot_a + SLOT_HEADER_BYTES, slot_b + SLOT_HEADER_BYTES,
                            end - SLOT_HEADER_BYTES);
        fetcher_free(f);
    }
}

TEST(test_planned_bytes)
{
    static const uint64_t indices[] = {3, 0, 2};
    static const uint32_t lists[] = {4, 1, 3, 1, 2};
    struct dl_spec spec = lines_spec(COLLATE_PACK);
    struct fetcher *f = must_open(&spec);
    struct dl_error err = {0};
    uint64_t used = 0, again = 0;

    prepare_planned(indices, 3, lists, 2, 0);
    assert_int_equal(fetcher_fill(f, slot_a, SLOT_BYTES, &used, &err), 0);
    const struct slot_header *header = (const void *)slot_a;
    const struct tree_node *tree = (const void *)(slot_a + header->tree_off);
    assert_int_equal(tree[0].kind, TREE_DICT);
    const struct tree_node *values = NULL;
    for (uint32_t i = 1; i < header->tree_count; i++)
        if (tree[i].key_len == 6 && memcmp(tree_key(tree, &tree[i]), "tokens", 6) == 0)
            values = &tree[i];
    assert_non_null(values);
    assert_int_equal(values->nbytes % 8, 0);
    for (uint64_t i = 0, size = values->nbytes / 8; i < 8; i++)
        assert_int_equal(slot_a[values->offset + i * size], "ddddaccc"[i]);
    /* A byte too few is told, and what is needed is enough. */
    prepare_planned(indices, 3, lists, 2, 0);
    assert_int_equal(fetcher_fill(f, slot_a, used - 1, &again, &err), -ENOBUFS);
    assert_int_equal(again, used);
    assert_int_equal(fetcher_fill(f, slot_a, used, &again, &err), 0);
    fetcher_free(f);
}

static void prepare_lengths_of(const uint64_t *indices, uint32_t n)
{
    memset(slot_a, 0xaa, SLOT_BYTES);
    assert_true(slot_prepare(
        slot_a, SLOT_BYTES,
        &(struct slot_task){.indices = indices, .samples = n, .what = SLOT_LENGTHS_OF}));
}

static void prepare_lengths(uint64_t first, uint32_t n)
{
    memset(slot_a, 0xaa, SLOT_BYTES);
    assert_true(
        slot_prepare(slot_a, SLOT_BYTES,
                     &(struct slot_task){.indices = &first, .samples = n, .what = SLOT_LENGTHS}));
}

TEST(test_lengths)
{
    struct slot_header *header = (void *)slot_a;
    struct dl_spec spec = lines_spec(COLLATE_PAD);
    struct fetcher *f = must_open(&spec);
    struct dl_error err = {0};
    uint64_t used = 0;

    prepare_lengths(1, 3);
    assert_int_equal(fetcher_fill(f, slot_a, SLOT_BYTES, &used, &err), 0);
    assert_int_equal(header->used, used);
    assert_int_equal(used, header->data_off + 12);
    assert_int_equal(header->data_off, SLOT_HEADER_BYTES + TREE_ALIGN);
    assert_memory_equal(slot_a + header->data_off, ((uint32_t[]){2, 3, 4}), 12);
    assert_int_equal(header->tree_count, 0);
    assert_int_equal(header->error_code, 0);
    assert_int_equal(header->samples, 3);

    prepare_lengths(1, 3);
    assert_int_equal(fetcher_fill(f, slot_a, used - 1, &used, &err), -ENOBUFS);
    assert_int_equal(used, SLOT_HEADER_BYTES + TREE_ALIGN + 12);

    prepare_lengths(2, 3);
    assert_int_equal(fetcher_fill(f, slot_a, SLOT_BYTES, &used, &err), -ERANGE);
    assert_int_equal(header->error_index, 4);
    assert_int_equal(header->error_off, slot_indices_end(1));
    assert_int_equal(header->data_off, 0);

    prepare_lengths_of((uint64_t[]){3, 0, 1, 3, 2}, 5);
    assert_int_equal(fetcher_fill(f, slot_a, SLOT_BYTES, &used, &err), 0);
    assert_memory_equal(slot_a + header->data_off, ((uint32_t[]){4, 1, 2, 4, 3}), 20);
    assert_int_equal(header->samples, 5);
    prepare_lengths_of((uint64_t[]){1, 2, 4, 0}, 4);
    assert_int_equal(fetcher_fill(f, slot_a, SLOT_BYTES, &used, &err), -ERANGE);
    assert_int_equal(header->error_index, 4);
    assert_int_equal(header->error_off, slot_indices_end(4));

    prepare_lengths(1, 3);
    header->planned = 24;
    assert_int_equal(fetcher_fill(f, slot_a, SLOT_BYTES, &used, &err), -EINVAL);
    assert_string_equal(slot_a + header->error_off, "the slot's header is damaged");
    fetcher_free(f);
}

/* Nobody knows how many samples a batch has: there is room for the first tasks, no more. */
TEST(test_token_slots)
{
    struct dl_spec spec = range_spec(1ULL << 40, 1);
    uint64_t indices[9] = {0}, used;
    struct dl_error err;

    spec.batch.tokens = DL_MAX_BATCH_SIZE;
    spec.collate.kind = COLLATE_DEFAULT;
    struct fetcher *f = must_open(&spec);
    assert_int_equal(fetcher_slot_bytes(f), 64 * 1024 + 4096);
    fetcher_free(f);

    spec.batch.tokens = 8;
    f = must_open(&spec);
    prepare(slot_a, 0xaa, indices, 8, false);
    assert_int_equal(fetcher_fill(f, slot_a, SLOT_BYTES, &used, &err), 0);
    prepare(slot_a, 0xaa, indices, 9, false);
    assert_int_equal(fetcher_fill(f, slot_a, SLOT_BYTES, &used, &err), -EINVAL);
    assert_error(&err, EINVAL, "", "a task of 9 samples, where batch.tokens is 8");
    fetcher_free(f);

    spec.batch.tokens = DL_MAX_BATCH_SIZE + 1;
    assert_int_equal(refuse(&spec, &err), EINVAL);
    assert_error(&err, EINVAL, "batch.tokens", "1048577 is more than 1048576");

    /* What is planned is of batches of tokens alone. */
    spec = range_spec(100, 4);
    f = must_open(&spec);
    prepare_planned(indices, 4, (uint32_t[]){1, 1, 1, 1}, 0, 0);
    assert_int_equal(fetcher_fill(f, slot_a, SLOT_BYTES, &used, &err), -EINVAL);
    assert_error(&err, EINVAL, "", "the slot's header is damaged");
    fetcher_free(f);
}

/* Whichever allocation fails, opening says so and leaves nothing behind (leaks, descriptors). */
TEST(test_out_of_memory)
{
    static const char *const texts[] = {
        "{dataset: {kind: npy, paths: {a: a.npy, b: b.npy}}, batch: {size: 2}}",
        "{dataset: {kind: range, length: 5}, batch: {size: 2}}"};

    write_rows("a.npy", 5, 1, "(5,)");
    write_rows("b.npy", 5, 2, "(5, 2)");
    for (size_t s = 0; s < ARRAY_SIZE(texts); s++) {
        _cleanup_(spec_deinit) struct dl_spec spec = read_loader(texts[s]);
        struct fetcher *f = NULL;
        struct dl_error err = {0};
        int k = 0, r;
        do {
            fail_in = k++;
            err = (struct dl_error){0};
            r = fetcher_new(&spec, &anywhere, &f, &err);
            assert_int_equal(r, fail_in >= 0 ? 0 : -ENOMEM);
            assert_int_equal(err.code, -r);
        } while (r < 0 && k < 100);
        assert_in_range(k, 6, 20);
        fail_in = -1;
        fetcher_free(f);
    }
}
