/* Where people find a sample: a file and the place in it; what has none says so. */
#include "tests/unit/dataset_text.h"
#include "tests/unit/make_tar.h"

enum { ROWS = 6 };

static void write_npy(const char *name, const char *dict, size_t bytes)
{
    uint8_t data[512] = {0};
    size_t len = make_npy(data, 1, dict);

    assert_true(len + bytes <= sizeof data);
    harness_file(name, data, len + bytes);
}

static void write_idx(const char *name)
{
    uint8_t data[64] = {0};
    size_t len = make_idx(data, 8, 1, (uint32_t[]){ROWS});

    harness_file(name, data, len + ROWS);
}

static void write_shard(const char *name, const char *const *members, size_t n)
{
    struct tar_file tar = tar_new();

    for (size_t i = 0; i < n; i++)
        tar_text(&tar, members[i], "1");
    tar_end(&tar);
    harness_file(name, tar.data, tar.len);
    tar_free(&tar);
}

static void write_all(void)
{
    static const char *const first[] = {"cats/0.cls", "cats/0.txt", "cats/1.cls"};
    static const char *const second[] = {"dogs/0.txt"};

    write_npy("x.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (6, 2), }", 2 * ROWS);
    write_npy("t.npy", "{'descr': '<u2', 'fortran_order': False, 'shape': (20,), }", 40);
    write_idx("labels");
    harness_text("names/a/0.png", "");
    harness_text("names/a/1.png", "");
    harness_text("raw", "0123456789ab");
    harness_file("a.txt", "one\n\ntwo\n", 9);
    harness_file("b.txt", "three\n", 6);
    harness_file("c.jsonl", "{\"text\": \"a\"}\n\n{\"text\": \"b\"}\n", 27);
    write_shard("s-0.tar", first, ARRAY_SIZE(first));
    write_shard("s-1.tar", second, ARRAY_SIZE(second));
}

TEST(test_places)
{
    static const struct {
        const char *dataset;
        uint64_t index;
        const char *end;
    } rows[] = {
        {"{kind: npy, paths: x.npy}", 3, "/x.npy: row 3"},
        /* Of several files, the first. */
        {"{kind: npy, paths: {a: x.npy, b: x.npy}}", 5, "/x.npy: row 5"},
        {"{kind: idx, paths: labels}", 0, "/labels: row 0"},
        {"{kind: records, paths: raw, dtype: uint8, shape: [2]}", 4, "/raw: row 4"},
        {"{kind: tokens, paths: t.npy, sequence_length: 4}", 2, "/t.npy: token 8"},
        {"{kind: tokens, paths: t.npy, sequence_length: 4, stride: 1}", 2, "/t.npy: token 2"},
        {"{kind: text, paths: [a.txt, b.txt]}", 2, "/a.txt: line 3"},
        {"{kind: text, paths: c.jsonl}", 1, "/c.jsonl: row 1"},
        {"{kind: text, paths: [a.txt, b.txt]}", 3, "/b.txt: line 1"},
        {"{kind: tar, paths: \"s-{0..1}.tar\", index: auto}", 0, "/s-0.tar: cats/0.cls"},
        {"{kind: tar, paths: \"s-{0..1}.tar\", index: auto}", 1, "/s-0.tar: cats/1.cls"},
        {"{kind: tar, paths: \"s-{0..1}.tar\", index: auto}", 2, "/s-1.tar: dogs/0.txt"},
        /* As their parts have it. */
        {"{kind: concat, datasets: [{kind: npy, paths: x.npy}, {kind: npy, paths: x.npy}]}", 7,
         "/x.npy: row 1"},
        {"{kind: subset, dataset: {kind: npy, paths: x.npy}, indices: [4, 2]}", 1, "/x.npy: row 2"},
        {"{kind: split, dataset: {kind: tar, paths: s-1.tar, index: auto}, parts: [1.0], part: 0, "
         "seed: 1}",
         0, "/s-1.tar: dogs/0.txt"},
        {"{kind: imagefolder, paths: names}", 1, "/names/a/1.png"},
        {"{kind: range, length: 10}", 3, ""},
        {"{kind: subset, dataset: {kind: range, length: 10}, indices: [4]}", 0, ""},
    };

    write_all();
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dataset *ds = open_dataset(rows[i].dataset, &anywhere);
        assert_name(ds, rows[i].index, rows[i].end);
        dataset_close(ds);
    }
}

/* Takes the next sample, which has to be there; and its name. */
static void expect_next(struct dataset_iter *it, const char *end)
{
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dl_error err = {0};
    char name[4096] = "";

    assert_int_equal(it->ops->next(it, &sample, &err), 0);
    size_t len = dataset_iter_name(it, name, sizeof name), want = strlen(end);
    assert_int_equal(len, strlen(name));
    assert_true(len >= want && (want > 0 || len == 0));
    assert_string_equal(name + len - want, end);
    sample_deinit(&sample);
    arena_deinit(&arena);
}

static void expect_stream(const char *text, const char *const *ends, size_t n)
{
    const struct replica_params params = {.key = {.seed = 1}, .workers = 1, .world = 1};
    struct dataset *ds = open_dataset(text, &anywhere);
    struct dataset_iter *it = NULL;
    struct dl_error err = {0};

    assert_int_equal(ds->ops->iterate(ds, &params, &it, &err), 0);
    for (size_t i = 0; i < n; i++)
        expect_next(it, ends[i]);
    it->ops->close(it);
    dataset_close(ds);
}

TEST(test_streams)
{
    static const char *const shards[] = {"/s-0.tar: cats/0.cls", "/s-0.tar: cats/1.cls",
                                         "/s-1.tar: dogs/0.txt"};
    static const char *const joined[] = {"/s-1.tar: dogs/0.txt", "", ""};
    static const char *const mixed[] = {"/s-0.tar: cats/0.cls", "/s-0.tar: cats/1.cls"};

    write_all();
    expect_stream("{kind: tar, paths: \"s-{0..1}.tar\"}", shards, ARRAY_SIZE(shards));
    expect_stream("{kind: chain, datasets: [{kind: tar, paths: s-1.tar}, "
                  "{kind: range, length: 2, iterable: true}]}",
                  joined, ARRAY_SIZE(joined));
    expect_stream("{kind: mix, weights: [1.0], stop: first, "
                  "datasets: [{kind: tar, paths: s-0.tar}]}",
                  mixed, ARRAY_SIZE(mixed));
}
