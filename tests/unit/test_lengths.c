/* Lengths of samples: those that are known are those of the samples themselves, and what is said of
 * samples that have none. */
#include "daemon/data/collate/lengths.h"
#include "tests/lib/lengths.h"
#include "tests/unit/dataset_text.h"
#include "tests/unit/fail_alloc.h"
#include "tests/unit/image_files.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

/* ---- a dataset that notes what it is asked -------------------------------------------------- */

enum { FAKE_LENGTH = 10, CALLS = 32 };

static struct {
    uint64_t first[CALLS];
    size_t n[CALLS];
    size_t lengths; /* calls */
    size_t gets;
} asked;

struct fake {
    struct dataset base;
    char name[16];
};

static bool is(const struct dataset *ds, const char *name)
{
    return strcmp(container_of(ds, struct fake, base)->name, name) == 0;
}

/* Sample i: i + 1 tokens beside other things. */
static int fake_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                    struct sample *ret, struct dl_error *err)
{
    static const int64_t numbers[64];
    uint64_t n = index + 1, two[2] = {2, 7}, huge[2] = {UINT64_C(1) << 32, 0};

    asked.gets++;
    if (is(ds, "plain"))
        return sample_tensor(ret, NULL, DL_DTYPE_INT64, 1, &n, numbers);
    if (is(ds, "number"))
        return sample_int(ret, NULL, 3);
    if (is(ds, "huge"))
        return sample_tensor(ret, NULL, DL_DTYPE_INT64, 2, huge, NULL);
    if (is(ds, "third") && index == 3)
        return dl_error_set(err, EILSEQ, "file", "line 77 is broken");
    if (is(ds, "empty") && index == 4)
        n = 0;
    sample_begin(ret, TREE_DICT, NULL);
    sample_int(ret, "id", 5);
    sample_begin(ret, TREE_LIST, "pair");
    sample_tensor(ret, NULL, DL_DTYPE_INT64, 1, &n, numbers);
    sample_tensor(ret, NULL, DL_DTYPE_INT64, 2, two, numbers);
    sample_end(ret);
    sample_text(ret, TREE_STRING, "words", "abc", 3);
    sample_tensor(ret, "a.b", DL_DTYPE_INT64, 1, &two[1], numbers);
    return sample_end(ret);
}

static int fake_lengths(struct dataset *ds, struct lengths_wanted *w, struct dl_error *err)
{
    assert_in_range(asked.lengths, 0, CALLS - 1);
    asked.first[asked.lengths] = w->first;
    asked.n[asked.lengths++] = w->n;
    assert_true(w->n <= ds->length && w->first <= ds->length - w->n);
    for (size_t i = 0; i < w->n; i++) {
        if (is(ds, "refuses 6") && w->first + i == 6) {
            w->bad = 6;
            return dl_error_set(err, EIO, "file", "sample 6 is unreadable");
        }
        w->ret[i] = w->first + i == 2 ? LENGTH_UNKNOWN : (uint32_t)(w->first + i + 1);
    }
    return 0;
}

static int fake_unknown(struct dataset *ds, struct lengths_wanted *w, struct dl_error *err)
{
    return -ENOTSUP;
}

static int fake_iterate(struct dataset *ds, const struct replica_params *params,
                        struct dataset_iter **ret, struct dl_error *err)
{
    return -ENOMEM;
}

static void fake_close(struct dataset *ds)
{
    free(container_of(ds, struct fake, base));
}

static const struct dataset_ops loads = {.get = fake_get, .close = fake_close};
static const struct dataset_ops knows = {
    .get = fake_get, .lengths = fake_lengths, .close = fake_close};
static const struct dataset_ops may_know = {
    .get = fake_get, .lengths = fake_unknown, .close = fake_close};
static const struct dataset_ops iterates = {.iterate = fake_iterate, .close = fake_close};

/* "m:knows", "m:plain"; see fake_get(). */
static int open_fake(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                     struct dataset **ret, struct dl_error *err)
{
    struct fake *fake = calloc(1, sizeof *fake);

    if (!fake)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    snprintf(fake->name, sizeof fake->name, "%s", spec->object + 2);
    for (char *c = fake->name; *c; c++)
        *c = *c == '_' ? ' ' : *c;
    fake->base.ops = is(&fake->base, "knows") || is(&fake->base, "refuses 6") ? &knows
                     : is(&fake->base, "may know")                            ? &may_know
                     : is(&fake->base, "iterates")                            ? &iterates
                                                                              : &loads;
    fake->base.length = FAKE_LENGTH;
    *ret = &fake->base;
    return 0;
}

static const struct data_env env = {.open_python = open_fake};

#define FAKE(name) "{kind: python, object: 'm:" name "'}"

/* ---- opening what a text says --------------------------------------------------------------- */

static struct dataset *must_open(const char *text)
{
    struct dataset *ds = open_dataset(text, &env);

    memset(&asked, 0, sizeof asked);
    return ds;
}

static void must_tell(struct dataset *ds, const char *leaf, uint64_t first, size_t n, uint32_t *ret)
{
    struct dl_error err = {0};
    uint64_t bad = 77;

    if (LENGTHS(dataset_lengths, ds, leaf, first, n, ret, &bad, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    assert_int_equal(bad, UINT64_MAX);
}

/* The first dimension of node `node` of a loaded sample. */
static uint32_t loaded_length(struct dataset *ds, uint64_t index, uint32_t node)
{
    static const struct sample_key key;
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dl_error err = {0};

    if (dataset_get(ds, &key, index, &sample, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    assert_true(node < sample.tree.count);
    assert_int_equal(sample.tree.nodes[node].kind, TREE_TENSOR);
    uint32_t length = (uint32_t)sample.tree.nodes[node].shape[0];
    sample_deinit(&sample);
    arena_deinit(&arena);
    return length;
}

/*
 * Known are the lengths that the samples have, all at once and in pieces; `unknown` of them are
 * not. Empty samples may be among them.
 */
static void expect_loaded(struct dataset *ds, const char *leaf, uint32_t node, uint64_t unknown)
{
    const size_t n = ds->length, room = n + 1;
    _cleanup_free_ uint32_t *all = calloc(room, sizeof *all);
    _cleanup_free_ uint32_t *some = calloc(room, sizeof *some);
    struct dl_error err = {0};
    uint64_t bad = 77, asked_for = 0;

    all[n] = 77;
    assert_int_equal(LENGTHS(dataset_known_lengths, ds, leaf, 0, n, all, &bad, &err), 0);
    assert_int_equal(all[n], 77);
    for (size_t begin = 0, step = 1, count; begin < n; begin += count, step = step * 3 % 101) {
        count = min_u64(step, n - begin);
        assert_int_equal(
            LENGTHS(dataset_known_lengths, ds, leaf, begin, count, some + begin, &bad, &err), 0);
    }
    assert_memory_equal(some, all, n * sizeof *all);
    for (size_t i = 0; i < n; i++) {
        uint32_t want = loaded_length(ds, i, node), have;
        if (all[i] == LENGTH_UNKNOWN)
            asked_for++;
        else if (all[i] != want)
            fail_msg("sample %zu has %u tokens, not %u", i, want, all[i]);
        if (want == 0)
            continue;
        must_tell(ds, leaf, i, 1, &have);
        assert_int_equal(have, want);
    }
    assert_int_equal(asked_for, unknown);
}

/* ---- text ----------------------------------------------------------------------------------- */

static const struct {
    const char *text;
    uint32_t want[6]; /* up to `n` */
    size_t n;
} plain[] = {
    {"", {0}, 0},
    {"a", {1}, 1},
    {"a\n", {1}, 1},
    {"\n", {0}, 1},
    {"\r\n", {0}, 1},
    {"a\r\nbcd\r\n", {1, 3}, 2},
    {"a\n\n\r\nbb", {1, 0, 0, 2}, 4},
    {"a\rb\nc\r", {1, 1, 1}, 3},
    {"a\r\r\n\n", {1, 0, 0}, 3},
    {"\xEF\xBB\xBF", {0}, 0},
    {"\xEF\xBB\xBFxy\nz", {2, 1}, 2},
    {"caf\xC3\xA9\n\xFF\xFE\xFD", {5, 3}, 2},
};

TEST(test_lines)
{
    uint32_t got[6];
    uint64_t bad;

    for (size_t i = 0; i < ARRAY_SIZE(plain); i++) {
        harness_text("p.txt", plain[i].text);
        for (uint32_t most = 0; most < 4; most++) {
            char text[100] = "{kind: text, paths: p.txt, tokenizer: bytes}";
            if (most > 0)
                snprintf(text, sizeof text,
                         "{kind: text, paths: p.txt, tokenizer: bytes, max_length: %u}", most);
            struct dataset *ds = must_open(text);
            assert_int_equal(ds->length, plain[i].n);
            assert_int_equal(
                LENGTHS(dataset_known_lengths, ds, NULL, 0, plain[i].n, got, &bad, NULL), 0);
            for (size_t k = 0; k < plain[i].n; k++)
                assert_int_equal(got[k], most ? min_u64(most, plain[i].want[k]) : plain[i].want[k]);
            expect_loaded(ds, NULL, 1, 0);
            expect_loaded(ds, "tokens", 1, 0);
            dataset_close(ds);
        }
    }
}

/* Several files, empty ones among them; JSON in between is loaded. */
TEST(test_files)
{
    static const char json[] =
        "{\"text\": \"\\u00e9a\"}\n\n{\"text\": \"\", \"x\": 1}\r\n{\"text\": "
        "\"abcdef\"}";
    harness_file("0.txt", "", 0);
    harness_file("1.txt", "one\ntwo!\r\n", 10);
    harness_text("2.jsonl", json);
    harness_file("3.txt", "\n", 1);
    harness_file("4.txt", "last", 4);
    struct dataset *ds = must_open("{kind: text, paths: [0.txt, 0.txt, 1.txt, 2.jsonl, 0.txt,"
                                   " 3.txt, 4.txt, 0.txt], tokenizer: bytes, max_length: 5}");
    assert_int_equal(ds->length, 7);
    expect_loaded(ds, NULL, 1, 3);
    dataset_close(ds);
}

/* Text by chance, of few letters, so that every ending of lines comes in every place. */
TEST(test_any_text)
{
    static const char letters[] = "\n\n\r\rabc\0\xEF\xBB\xBF ";
    uint32_t seed = 12345;
    char text[300];

    for (int round = 0; round < 200; round++) {
        size_t n = (size_t)(seed >> 8) % sizeof text;
        for (size_t i = 0; i < n; i++) {
            seed = seed * 1664525 + 1013904223;
            text[i] = letters[(seed >> 20) % (sizeof letters - 1)];
        }
        seed = seed * 1664525 + 1013904223;
        harness_file("any.txt", text, n);
        struct dataset *ds = must_open(round % 2 ? "{kind: text, paths: any.txt, tokenizer: bytes}"
                                                 : "{kind: text, paths: any.txt, tokenizer: bytes,"
                                                   " max_length: 2}");
        expect_loaded(ds, NULL, 1, 0);
        dataset_close(ds);
    }
}

TEST(test_real_text)
{
    const char *path = "/usr/share/dictd/gcide.index";
    const size_t most = 40000; /* of its lines; the rest is alike */

    if (access(path, R_OK) != 0) {
        print_message("# skipped: no %s (Debian: dict-gcide)\n", path);
        return;
    }
    struct dataset *ds = must_open(
        "{kind: text, paths: /usr/share/dictd/gcide.index, tokenizer: bytes, max_length: 24}");
    _cleanup_free_ uint32_t *lengths = calloc(ds->length, sizeof *lengths);
    uint64_t sum = 0;
    must_tell(ds, NULL, 0, ds->length, lengths);
    for (uint64_t i = 0; i < min_u64(most, ds->length); i++) {
        assert_int_equal(lengths[i], loaded_length(ds, i, 1));
        sum += lengths[i];
    }
    assert_true(sum > 10 * most); /* they are of some length */
    dataset_close(ds);
}

/* ---- the same shape for all ----------------------------------------------------------------- */

TEST(test_fixed)
{
    uint8_t npy[512], idx[64] = {0};
    static const struct {
        const char *text;
        const char *leaf;
        uint32_t node;
    } rows[] = {
        {"{kind: npy, paths: a.npy}", NULL, 0},
        {"{kind: npy, paths: {x: b.npy, y: a.npy}}", NULL, 2},
        {"{kind: npy, paths: {x: b.npy, y: a.npy}}", "y", 2},
        {"{kind: records, paths: r.bin, dtype: uint8, shape: [7], offset: 3}", NULL, 0},
        {"{kind: tokens, paths: t.bin, dtype: uint16, sequence_length: 4}", NULL, 1},
        {"{kind: subset, dataset: {kind: npy, paths: a.npy}, indices: [1, 1, 0]}", NULL, 0},
        {"{kind: concat, datasets: [{kind: npy, paths: a.npy}, {kind: npy, paths: a.npy}]}", NULL,
         0},
    };

    size_t n =
        make_npy(npy, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 6, 3), }  \n");
    memset(npy + n, 1, 36);
    harness_file("a.npy", npy, n + 36);
    n = make_npy(npy, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }      \n");
    memset(npy + n, 1, 2);
    harness_file("b.npy", npy, n + 2);
    harness_file("t.bin", idx, 40);
    harness_file("r.bin", idx, 3 + 5 * 7);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dataset *ds = must_open(rows[i].text);
        assert_true(dataset_is_fixed(ds));
        assert_true(ds->length >= 2);
        expect_loaded(ds, rows[i].leaf, rows[i].node, 0);
        dataset_close(ds);
    }
}

/* ---- loaded --------------------------------------------------------------------------------- */

TEST(test_leaves)
{
    static const struct {
        const char *name;
        const char *leaf;
        uint32_t node;
    } rows[] = {
        {FAKE("loads"), NULL, 3},     {FAKE("loads"), "pair.0", 3}, {FAKE("loads"), "pair.1", 4},
        {FAKE("loads"), "a.b", 6},    {FAKE("plain"), NULL, 0},     {FAKE("may_know"), NULL, 3},
        {FAKE("may_know"), "a.b", 6},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dataset *ds = must_open(rows[i].name);
        expect_loaded(ds, rows[i].leaf, rows[i].node, FAKE_LENGTH);
        dataset_close(ds);
    }
}

TEST(test_images)
{
    static const char *const names[] = {"/in", "/in/a", "/in/b", "/in/a/0.jpg", "/in/b/1.jpg"};
    char path[4400];

    for (uint32_t i = 0; i < ARRAY_SIZE(names); i++) {
        snprintf(path, sizeof path, "%s%s", harness_tmpdir(), names[i]);
        if (i < 3) {
            assert_int_equal(mkdir(path, 0700), 0);
            continue;
        }
        struct jpeg_options opt = {.height = 10 + i, .width = 20, .components = 3};
        uint8_t *jpeg = NULL;
        size_t bytes = make_jpeg(&opt, &jpeg);
        FILE *file = fopen(path, "wbe");
        assert_int_equal(fwrite(jpeg, 1, bytes, file), bytes);
        assert_int_equal(fclose(file), 0);
        free(jpeg);
    }
    struct dataset *ds = must_open("{kind: imagefolder, paths: in}");
    assert_int_equal(ds->length, 2);
    expect_loaded(ds, NULL, 1, 2);
    expect_loaded(ds, "image", 1, 2);
    dataset_close(ds);
    ds = must_open("{kind: imagefolder, paths: in, transform: resize, size: [5, 6]}");
    expect_loaded(ds, NULL, 1, 0);
    dataset_close(ds);
}

/* ---- made of others ------------------------------------------------------------------------- */

#define TEXT "{kind: text, paths: part.txt, tokenizer: bytes}"

TEST(test_combined)
{
    static const struct {
        const char *text;
        uint32_t node;
        uint64_t unknown;
    } rows[] = {
        {"{kind: concat, datasets: [" TEXT ", " TEXT "]}", 1, 0},
        {"{kind: concat, datasets: [" FAKE("plain") ", {kind: npy, paths: c.npy}]}", 0, 10},
        {"{kind: subset, dataset: " TEXT ", indices: [3, 0, 1, 2, 2, 1]}", 1, 0},
        {"{kind: subset, dataset: " TEXT ", indices: []}", 1, 0},
        {"{kind: split, dataset: " TEXT ", parts: [0.5, 0.5], part: 1, seed: 3}", 1, 0},
        {"{kind: subset, dataset: {kind: concat, datasets: [" TEXT ", {kind: subset, dataset: " TEXT
         ", indices: [1, 0]}]}, indices: [5, 4, 3, 3, 4, 5]}",
         1, 0},
        {"{kind: subset, dataset: " FAKE("plain") ", indices: [9, 0]}", 0, 2},
    };
    uint8_t npy[512];

    size_t n = make_npy(npy, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 6), }\n");
    memset(npy + n, 1, 12);
    harness_file("c.npy", npy, n + 12);
    harness_file("part.txt", "one\nfour\n\nthirteen", 18);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dataset *ds = must_open(rows[i].text);
        expect_loaded(ds, NULL, rows[i].node, rows[i].unknown);
        dataset_close(ds);
    }
}

static void expect_calls(size_t n, const uint64_t *firsts, const size_t *counts)
{
    assert_int_equal(asked.lengths, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(asked.first[i], firsts[i]);
        assert_int_equal(asked.n[i], counts[i]);
    }
}

/* One call for each part, or run; and nothing is loaded but what is not known. */
TEST(test_calls)
{
    uint32_t got[30];

    struct dataset *ds = must_open(
        "{kind: concat, datasets: [" FAKE("knows") ", " FAKE("knows") ", " FAKE("knows") "]}");
    must_tell(ds, "pair.0", 4, 22, got);
    assert_int_equal(asked.gets, 2); /* sample 2 of two parts */
    expect_calls(3, (uint64_t[]){4, 0, 0}, (size_t[]){6, 10, 6});
    assert_int_equal(got[0], 5);
    assert_int_equal(got[6], 1);
    assert_int_equal(got[21], 6);
    dataset_close(ds);

    ds = must_open("{kind: subset, dataset: " FAKE("knows") ", indices: [4, 5, 6, 6, 9, 0, 1]}");
    must_tell(ds, NULL, 1, 6, got);
    expect_calls(4, (uint64_t[]){5, 6, 9, 0}, (size_t[]){2, 1, 1, 2});
    assert_int_equal(asked.gets, 0);
    must_tell(ds, NULL, 0, 0, got);
    assert_int_equal(asked.lengths, 4);
    dataset_close(ds);

    ds = must_open(FAKE("knows"));
    must_tell(ds, NULL, 0, 10, got);
    expect_calls(1, (uint64_t[]){0}, (size_t[]){10});
    assert_int_equal(asked.gets, 1); /* sample 2 */
    dataset_close(ds);
}

/* ---- what is refused ------------------------------------------------------------------------ */

#define CONCAT(a, b) "{kind: concat, datasets: [" a ", " b "]}"

TEST(test_refusals)
{
    static const struct {
        const char *text;
        const char *leaf;
        uint64_t first;
        size_t n;
        int code;
        uint64_t bad;
        const char *path; /* below the test's directory, if it begins with "/" */
        const char *message;
    } rows[] = {
        {"{kind: text, paths: r.txt}", NULL, 1, 2, EINVAL, 1, "/r.txt",
         "line 2 is text without tokens; write tokenizer: bytes"},
        {"{kind: text, paths: r.txt}", "text", 0, 3, EINVAL, 0, "/r.txt",
         "line 1 is text without tokens; write tokenizer: bytes"},
        {CONCAT("{kind: text, paths: r.txt, tokenizer: bytes}", "{kind: text, paths: r.txt}"), NULL,
         1, 4, EINVAL, 3, "/r.txt", "line 1 is text without tokens; write tokenizer: bytes"},
        {"{kind: text, paths: r.txt, tokenizer: bytes}", "ids", 2, 1, EINVAL, 2, "batch.length_of",
         "sample 2 has no ids; a length can be taken of tokens"},
        {"{kind: text, paths: r.jsonl, tokenizer: bytes}", NULL, 0, 2, EINVAL, 1, "/r.jsonl",
         "line 2: its field \"text\" is not a string; set dataset.field"},
        {FAKE("loads"), "pair", 5, 5, EINVAL, 5, "batch.length_of",
         "sample 5 has a list of 2 at pair, which has no dimension; a length can be taken of "
         "pair.0, pair.1, a.b"},
        {FAKE("loads"), "id", 0, 1, EINVAL, 0, "batch.length_of",
         "sample 0 has int64 [] at id, which has no dimension; a length can be taken of pair.0, "
         "pair.1, a.b"},
        {FAKE("loads"), "words", 0, 1, EINVAL, 0, "batch.length_of",
         "sample 0 has a string at words, which has no dimension; a length can be taken of "
         "pair.0, pair.1, a.b"},
        {FAKE("plain"), "tokens", 0, 1, EINVAL, 0, "batch.length_of",
         "sample 0 has no tokens; a length can be taken of the sample itself: leave length_of out"},
        {FAKE("number"), "x", 0, 1, EINVAL, 0, "batch.length_of",
         "sample 0 has no x; a length can be taken of none of its leaves"},
        {FAKE("number"), NULL, 7, 2, EINVAL, 7, "dataset",
         "sample 7 has no leaf with a dimension, so it has no length: it is int64 []; give its "
         "tokens as a tensor, or leave batch.tokens out"},
        {FAKE("huge"), NULL, 1, 2, EOVERFLOW, 1, "dataset",
         "sample 1 has 4294967296 tokens; the maximum is 2^32 - 1: divide it"},
        {FAKE("third"), NULL, 0, 10, EILSEQ, 3, "file", "line 77 is broken"},
        {FAKE("refuses_6"), NULL, 5, 3, EIO, 6, "file", "sample 6 is unreadable"},
        {CONCAT(FAKE("loads"), FAKE("refuses_6")), NULL, 0, 20, EIO, 16, "file",
         "sample 6 is unreadable"},
        {"{kind: subset, dataset: " FAKE("refuses_6") ", indices: [0, 9, 5, 6]}", NULL, 1, 3, EIO,
         3, "file", "sample 6 is unreadable"},
        {"{kind: range, length: 4}", NULL, 2, 1, EINVAL, 2, "dataset",
         "sample 2 has no leaf with a dimension, so it has no length: it is int64 []; give its "
         "tokens as a tensor, or leave batch.tokens out"},
        {FAKE("loads"), NULL, 8, 3, ERANGE, 10, "", "sample 10 is beyond the dataset's 10 samples"},
        {FAKE("loads"), NULL, 12, 1, ERANGE, 12, "",
         "sample 12 is beyond the dataset's 10 samples"},
        {FAKE("loads"), NULL, UINT64_MAX, 2, ERANGE, UINT64_MAX, "",
         "sample 18446744073709551615 is beyond the dataset's 10 samples"},
        {FAKE("iterates"), NULL, 0, 1, EINVAL, UINT64_MAX, "dataset",
         "is iterable: the lengths of its samples are not known in advance; leave batch.tokens "
         "out, or use a map-style dataset"},
    };
    const char *json = "{\"text\": \"a\"}\n{\"text\": 3}\n";
    char path[4400];

    harness_file("r.txt", "a\n\nb\n", 5);
    harness_text("r.jsonl", json);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dataset *ds = must_open(rows[i].text);
        struct dl_error err = {0};
        uint32_t got[32];
        uint64_t bad = 77;
        int r =
            LENGTHS(dataset_lengths, ds, rows[i].leaf, rows[i].first, rows[i].n, got, &bad, &err);

        assert_int_equal(r, -rows[i].code);
        snprintf(path, sizeof path, "%s%s", rows[i].path[0] == '/' ? harness_tmpdir() : "",
                 rows[i].path);
        assert_error(&err, rows[i].code, path, rows[i].message);
        assert_int_equal(bad, rows[i].bad);
        dataset_close(ds);
    }
}

/* Nothing leaks where there is no memory for a sample. */
TEST(test_memory)
{
    struct dataset *ds = must_open(FAKE("loads"));
    uint32_t got[3] = {0};
    int r = -1, k;

    for (k = 0; r < 0; k++) {
        struct dl_error err = {0};
        uint64_t bad = 77;
        fail_in = k;
        r = LENGTHS(dataset_lengths, ds, NULL, 0, 3, got, &bad, &err);
        fail_in = -1;
        if (r < 0) {
            assert_int_equal(r, -ENOMEM);
            assert_int_equal(bad, 0);
        }
    }
    assert_true(k > 2);
    assert_int_equal(got[2], 3);
    dataset_close(ds);
}
