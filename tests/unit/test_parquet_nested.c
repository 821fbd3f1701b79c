/* Parquet: structs, lists and maps in each other, of files of the fuzzer's corpus. */
#include "tests/unit/parquet_corpus.h"

#include <errno.h>

/* What a sample has, as its nodes' kinds: D and L with how many are in it, t, s and names. */
static void expect_tree(struct dataset *ds, uint64_t i, const char *wanted)
{
    static const char kinds[] = {[TREE_TENSOR] = 't',
                                 [TREE_STRING] = 's',
                                 [TREE_BYTES] = 'b',
                                 [TREE_DICT] = 'D',
                                 [TREE_LIST] = 'L'};
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dl_error err = {0};
    char text[512] = "", *at = text;

    if (dataset_get(ds, &key, i, &sample, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    for (uint32_t n = 1; n < sample.tree.count; n++) {
        const struct tree_node *node = &sample.tree.nodes[n];
        at += sprintf(at, "%.*s%c", (int)node->key_len, sample.tree.keys + node->key_off,
                      kinds[node->kind]);
        if (node->kind == TREE_DICT || node->kind == TREE_LIST)
            at += sprintf(at, "%u", node->children);
        else if (node->kind == TREE_TENSOR && node->ndim == 0)
            at += sprintf(at, "%d", (int)*(const int64_t *)sample.data[n]);
        else
            at += sprintf(at, "%u", (unsigned)node->nbytes);
        *at++ = ' ';
        *at = '\0';
    }
    assert_string_equal(text, wanted);
    sample_deinit(&sample);
    arena_deinit(&arena);
}

/* s: {x, c: {y, z: {w: [..]}, l: [{p, q}]}, m: {text: number}}, and t, a map of its own. */
TEST(test_nested)
{
    static struct spec_field fields[] = {{(char *)"a", (char *)"s.c.z"},
                                         {(char *)"b", (char *)"t"}};
    struct bytes b = corpus("deep");
    struct spec_dataset spec = spec_of(&b, "deep");
    struct dl_error err = {0};
    struct dataset *ds = NULL;

    spec.nulls = number(0);
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), 0);
    expect_tree(ds, 0,
                "sD3 xt1 cD3 yt2 zD1 wt16 lL2 D2 pt5 qs1 D2 pt6 qs2 mL1 D2 keys1 valuet7 "
                "tL2 D2 keyt1 values1 D2 keyt2 values0 ");
    /* What is null has all of its parts. */
    expect_tree(ds, 1, "sD3 xt0 cD3 yt0 zD1 wt0 lL0 mL0 tL0 ");
    expect_tree(ds, 2, "sD3 xt3 cD3 yt0 zD1 wt0 lL0 mL0 tL0 ");
    dataset_close(ds);
    spec.fields = fields;
    spec.n_fields = 2;
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), 0);
    expect_tree(ds, 0, "aD1 wt16 bL2 D2 keyt1 values1 D2 keyt2 values0 ");
    dataset_close(ds);
    for (size_t at = 0; at < b.len; at += harness_stride()) {
        struct bytes bad = b;
        uint64_t n;
        bad.data[at] ^= 0x41;
        spec = spec_of(&bad, "flipped");
        spec.nulls = number(0);
        (void)read_all(&spec, &n, &err);
    }
}

/* {ll: [[..]], ls: [{a: [text], m: {text: [..]}, s: {x}}]}, in pages of a row, and of less. */
TEST(test_lists)
{
    static const char *const files[] = {"lists", "lists_v1"};
    static struct spec_field fields[] = {{(char *)"x", (char *)"ls.s.x"},
                                         {(char *)"v", (char *)"ls.m.value"}};

    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        struct bytes b = corpus(files[i]);
        struct spec_dataset spec = spec_of(&b, files[i]);
        struct dl_error err = {0};
        struct dataset *ds = NULL;
        uint64_t n;
        assert_int_equal(read_all(&spec, &n, &err), -EINVAL);
        assert_error_has(&err, "row group 0, row 0: its column ll is null, or has a null in it");
        spec.nulls = number(0);
        spec.cache = 1; /* by pages, if there is an index */
        assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), 0);
        expect_tree(ds, 0,
                    "llL4 t16 t0 t0 t8 lsL3 D3 aL2 s1 s2 mL2 D2 keys1 valuet16 D2 keys1 valuet0 "
                    "sD1 xt9 D3 aL0 mL0 sD1 xt0 D3 aL0 mL0 sD1 xt0 ");
        expect_tree(ds, 1, "llL0 lsL0 ");
        expect_tree(ds, 2, "llL0 lsL0 ");
        expect_tree(ds, 3, "llL1 t16 lsL1 D3 aL1 s0 mL1 D2 keys1 valuet0 sD1 xt0 ");
        expect_tree(ds, 4, "llL1 t8 lsL1 D3 aL0 mL0 sD1 xt6 ");
        dataset_close(ds);
        spec.fields = fields;
        spec.n_fields = 2;
        assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), 0);
        expect_tree(ds, 0, "xt24 vL3 L2 t16 t0 L0 L0 ");
        expect_tree(ds, 4, "xt8 vL1 L0 ");
        dataset_close(ds);
        for (size_t at = 0; at < b.len; at += harness_stride()) {
            b.data[at] ^= (uint8_t)(1 << (at % 8));
            spec = spec_of(&b, "damaged");
            spec.nulls = number(0);
            int r = read_all(&spec, &n, &err);
            assert_true(r == 0 || (r == -err.code && err.message[0]));
            b.data[at] ^= (uint8_t)(1 << (at % 8));
        }
    }
}

/* [{role: user, content: a}, {assistant, bc}], [], null, [null, {role: null, content: d}] */
TEST(test_structs)
{
    static struct spec_field field = {(char *)"m", (char *)"m"};
    static const uint32_t counts[] = {8, 2, 2, 8};
    struct bytes b = corpus("structs");
    struct spec_dataset spec = spec_of(&b, "structs");
    struct dl_error err = {0};
    struct dataset *ds = NULL;
    uint64_t n;

    spec.fields = &field;
    spec.n_fields = 1;
    assert_int_equal(read_all(&spec, &n, &err), -EINVAL);
    assert_error_has(&err, "row group 0, row 2: its column m is null");
    spec.nulls = number(1);
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), 0);
    for (uint64_t i = 0; i < 4; i++) {
        struct arena arena = {0};
        struct sample sample = {.arena = &arena};
        assert_int_equal(dataset_get(ds, &key, i, &sample, &err), 0);
        assert_int_equal(sample.tree.count, counts[i]);
        assert_int_equal(sample.tree.nodes[1].kind, TREE_LIST);
        if (i == 0)
            assert_memory_equal(sample.data[6], "assistant", 9);
        if (i == 3)
            assert_memory_equal(sample.data[7], "d", 1);
        sample_deinit(&sample);
        arena_deinit(&arena);
    }
    dataset_close(ds);
    for (size_t at = 0; at < b.len; at += harness_stride()) {
        b.data[at] ^= (uint8_t)(1 << (at % 8));
        struct spec_dataset damaged = spec_of(&b, "damaged");
        damaged.fields = &field;
        damaged.n_fields = 1;
        damaged.nulls = number(1);
        int r = read_all(&damaged, &n, &err);
        assert_true(r == 0 || (r == -err.code && err.message[0]));
        b.data[at] ^= (uint8_t)(1 << (at % 8));
    }
}

/* {f: [2, 2], l: [[2], ..], s: {x: [2 of [text]]}}: of one size by the schema of Arrow's writer;
 * those that are null have it, too. */
TEST(test_sizes)
{
    struct bytes b = corpus("sizes");
    struct spec_dataset spec = spec_of(&b, "sizes");
    struct dl_error err = {0};
    struct dataset *ds = NULL;
    uint8_t *name;
    uint64_t n;

    assert_int_equal(read_all(&spec, &n, &err), -EINVAL);
    assert_error_has(&err, "row 0: its column f is null, or has a null in it");
    spec.nulls = number(0);
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), 0);
    expect_tree(ds, 0, "ft32 lt32 sD1 xL2 L1 s1 L0 ");
    expect_tree(ds, 1, "ft32 lt0 sD1 xL2 L0 L0 ");
    expect_tree(ds, 2, "ft32 lt16 sD1 xL2 L0 L0 ");
    dataset_close(ds);
    for (size_t at = 0; at < b.len; at += harness_stride()) {
        struct bytes bad = b;
        bad.data[at] ^= (uint8_t)(1 << (at % 8));
        spec = spec_of(&bad, "damaged");
        spec.nulls = number(0);
        int r = read_all(&spec, &n, &err);
        assert_true(r == 0 || (r == -err.code && err.message[0]));
    }
    /* Without that schema they are lists like others. */
    name = memmem(b.data, b.len, "ARROW:schema", 12);
    assert_non_null(name);
    *name = 'X';
    spec = spec_of(&b, "sizes");
    spec.nulls = number(0);
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), 0);
    expect_tree(ds, 0, "fL2 t16 t0 lL2 t16 t16 sD1 xL2 L1 s1 L0 ");
    expect_tree(ds, 1, "fL0 lL0 sD1 xL0 ");
    dataset_close(ds);
}
