/* Trees built, encoded and checked; then the same bytes with one thing wrong at a time. */
#include "tests/lib/harness.h"
#include "tests/unit/fail_alloc.h"

#include "proto/limits.h"
#include "proto/tree.h"
#include <errno.h>

enum { SLOT = 1 << 20 };

/* {image: u8[2,28,28], meta: [i64, {}, ("é": never), f32[0]]} : all kinds, all shapes of nesting.
 */
static void build(struct tree *tree)
{
    static const uint64_t image[] = {2, 28, 28}, empty[] = {0};

    assert_int_equal(tree_add(tree, TREE_DICT, NULL, 3), 0);
    assert_int_equal(tree_add_tensor(tree, "image", DL_DTYPE_UINT8, 3, image), 0);
    assert_int_equal(tree_add(tree, TREE_LIST, "meta", 3), 0);
    assert_int_equal(tree_add_tensor(tree, NULL, DL_DTYPE_INT64, 0, NULL), 0);
    assert_int_equal(tree_add(tree, TREE_DICT, NULL, 0), 0);
    assert_int_equal(tree_add(tree, TREE_TUPLE, NULL, 1), 0);
    assert_int_equal(tree_add_tensor(tree, NULL, DL_DTYPE_FLOAT32, 1, empty), 0);
    assert_int_equal(tree_add_tensor(tree, "\xC3\xA9", DL_DTYPE_COMPLEX128, 0, NULL), 0);
    tree->nodes[1].offset = 1024;
    tree->nodes[3].offset = 4096;
    tree->nodes[6].offset = SLOT; /* no bytes: may stand at the very end */
    tree->nodes[7].offset = SLOT - 64;
}

/* An encoded tree in a block of exactly its size, so that ASan sees one byte too far. */
struct encoded {
    struct tree_node *nodes;
    size_t len;
    uint32_t count;
    uint64_t slot;
};

static struct encoded encode(struct tree *tree)
{
    struct encoded e = {.len = tree_encoded_bytes(tree), .count = tree->count, .slot = SLOT};

    e.nodes = malloc(e.len ? e.len : 1);
    assert_non_null(e.nodes);
    tree_encode(tree, e.nodes);
    tree_deinit(tree);
    assert_null(tree->nodes);
    return e;
}

static struct encoded sample(void)
{
    struct tree tree = {0};
    build(&tree);
    return encode(&tree);
}

static void assert_good(struct encoded *e)
{
    struct dl_error err = {0};

    assert_int_equal(tree_check(e->nodes, e->len, e->count, e->slot, &err), 0);
    assert_int_equal(err.code, 0);
    free(e->nodes);
}

static void assert_damaged(struct encoded *e)
{
    struct dl_error err = {0};

    assert_int_equal(tree_check(e->nodes, e->len, e->count, e->slot, &err), -EBADMSG);
    assert_int_equal(err.code, EBADMSG);
    assert_true(err.message[0] != '\0');
    assert_int_equal(tree_check(e->nodes, e->len, e->count, e->slot, NULL), -EBADMSG);
    free(e->nodes);
}

TEST(test_build)
{
    struct encoded e = sample();

    assert_int_equal(e.count, 8);
    assert_int_equal(e.len, 8 * sizeof(struct tree_node) + strlen("imagemeta") + 2);
    assert_int_equal(e.nodes[1].nbytes, 2 * 28 * 28);
    assert_int_equal(e.nodes[3].nbytes, 8);
    assert_int_equal(e.nodes[6].nbytes, 0);
    assert_int_equal(e.nodes[1].key_len, 5);
    assert_memory_equal(tree_key(e.nodes, &e.nodes[1]), "image", 5);
    assert_memory_equal(tree_key(e.nodes, &e.nodes[2]), "meta", 4);
    assert_memory_equal(tree_key(e.nodes, &e.nodes[7]), "\xC3\xA9", 2);
    assert_ptr_equal(tree_skip(&e.nodes[0]), &e.nodes[8]);
    assert_ptr_equal(tree_skip(&e.nodes[1]), &e.nodes[2]);
    assert_ptr_equal(tree_skip(&e.nodes[2]), &e.nodes[7]);
    assert_ptr_equal(tree_skip(&e.nodes[4]), &e.nodes[5]);
    assert_ptr_equal(tree_skip(&e.nodes[5]), &e.nodes[7]);
    assert_good(&e);
}

TEST(test_lone_tensor)
{
    static const uint64_t shape[] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct tree tree = {0};

    assert_int_equal(tree_add_tensor(&tree, NULL, DL_DTYPE_UINT8, 8, shape), 0);
    struct encoded e = encode(&tree);
    assert_int_equal(e.nodes[0].nbytes, 40320);
    assert_good(&e);
}

/* A dict that holds a key of no bytes, and one of the longest. */
TEST(test_keys)
{
    struct tree tree = {0};
    char key[130];

    memset(key, 'k', sizeof key);
    key[129] = '\0';
    assert_int_equal(tree_add(&tree, TREE_DICT, NULL, 2), 0);
    assert_int_equal(tree_add(&tree, TREE_LIST, "", 0), 0);
    assert_int_equal(tree_add(&tree, TREE_LIST, key, 0), -ENAMETOOLONG);
    key[128] = '\0';
    assert_int_equal(tree_add(&tree, TREE_LIST, "\xFF", 0), -EINVAL);
    assert_int_equal(tree_add(&tree, TREE_LIST, key, 0), 0);
    assert_int_equal(tree.count, 3);
    struct encoded e = encode(&tree);
    assert_good(&e);
}

TEST(test_limits_of_building)
{
    static const uint64_t huge[] = {1ULL << 62, 2}, big[] = {1ULL << 32, 1ULL << 32};
    struct tree tree = {0};

    assert_int_equal(tree_add_tensor(&tree, NULL, DL_DTYPE_UINT8, 2, huge), -EOVERFLOW);
    assert_int_equal(tree_add_tensor(&tree, NULL, DL_DTYPE_UINT8, 2, big), -EOVERFLOW);
    assert_int_equal(tree_add_tensor(&tree, NULL, 0, 0, NULL), -EOVERFLOW);
    assert_int_equal(tree_add_tensor(&tree, NULL, 99, 0, NULL), -EOVERFLOW);
    assert_int_equal(tree_add_tensor(&tree, NULL, DL_DTYPE_UINT8, 9, huge), -EOVERFLOW);
    assert_int_equal(tree_add_text(&tree, TREE_STRING, NULL, 1ULL << 63), -EOVERFLOW);
    assert_int_equal(tree.count, 0);

    assert_int_equal(tree_add(&tree, TREE_LIST, NULL, DL_BOUND_TREE_NODES - 1), 0);
    for (int i = 1; i < DL_BOUND_TREE_NODES; i++)
        assert_int_equal(tree_add_tensor(&tree, NULL, DL_DTYPE_INT8, 0, NULL), 0);
    assert_int_equal(tree_add_tensor(&tree, NULL, DL_DTYPE_INT8, 0, NULL), -E2BIG);
    struct encoded e = encode(&tree);
    assert_good(&e);
}

TEST(test_out_of_memory)
{
    for (int k = 0; k < 2; k++) {
        struct tree tree = {0};

        fail_in = k;
        assert_int_equal(tree_add(&tree, TREE_LIST, "key", 0), -ENOMEM);
        fail_in = -1;
        assert_int_equal(tree.count, 0);
        assert_int_equal(tree.keys_len, 0);
        assert_int_equal(tree_add(&tree, TREE_LIST, "key", 0), 0);
        tree_deinit(&tree);
    }
}

TEST(test_tensor_bytes)
{
    static const struct {
        uint32_t dtype, ndim;
        uint64_t shape[9];
        bool fits;
        uint64_t bytes;
    } cases[] = {
        {DL_DTYPE_FLOAT64, 0, {0}, true, 8},
        {DL_DTYPE_UINT8, 1, {INT64_MAX}, true, INT64_MAX},
        {DL_DTYPE_UINT8, 1, {1ULL << 63}, false, 0},
        {DL_DTYPE_UINT16, 1, {1ULL << 62}, false, 0},
        {DL_DTYPE_UINT16, 1, {(1ULL << 62) - 1}, true, INT64_MAX - 1},
        {DL_DTYPE_UINT8, 2, {UINT64_MAX, UINT64_MAX}, false, 0},
        {DL_DTYPE_INT32, 3, {4, 0, 5}, true, 0},
        {DL_DTYPE_INT32, 2, {0, UINT64_MAX}, false, 0}, /* its strides would not fit */
        {DL_DTYPE_INT32, 2, {UINT64_MAX, 0}, false, 0},
        {DL_DTYPE_INT32, 8, {1, 1, 1, 1, 1, 1, 1, 7}, true, 28},
        {DL_DTYPE_INT32, 9, {1, 1, 1, 1, 1, 1, 1, 7, 1}, false, 0},
        {0, 0, {0}, false, 0},
        {16, 0, {0}, false, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t bytes = 77;

        assert_int_equal(tensor_bytes(cases[i].dtype, cases[i].ndim, cases[i].shape, &bytes),
                         cases[i].fits);
        assert_true(bytes == (cases[i].fits ? cases[i].bytes : 77));
    }
}

#define FIELD(member) offsetof(struct tree_node, member), sizeof(((struct tree_node *)0)->member)

/* One field of one node of sample(), set to what it must not be. */
TEST(test_damaged_fields)
{
    static const struct {
        uint32_t node;
        size_t at, size;
        uint64_t value;
    } cases[] = {
        {0, FIELD(kind), 0},
        {0, FIELD(kind), TREE_STRING},
        {0, FIELD(kind), 7},
        {0, FIELD(kind), TREE_LIST}, /* its children have keys */
        {0, FIELD(kind), TREE_TENSOR},
        {1, FIELD(kind), TREE_LIST},
        {1, FIELD(kind), TREE_BYTES},
        {0, FIELD(dtype), DL_DTYPE_INT8},
        {1, FIELD(dtype), 0},
        {1, FIELD(dtype), 16},
        {1, FIELD(dtype), DL_DTYPE_INT16}, /* nbytes no longer fits */
        {0, FIELD(ndim), 1},
        {1, FIELD(ndim), 2}, /* shape beyond the last dimension */
        {1, FIELD(ndim), 9},
        {1, FIELD(ndim), UINT16_MAX},
        {0, FIELD(reserved), 1},
        {1, FIELD(reserved), 1},
        {0, FIELD(children), 2},
        {0, FIELD(children), 4},
        {0, FIELD(children), 8},
        {0, FIELD(children), UINT32_MAX},
        {1, FIELD(children), 1},
        {2, FIELD(children), 2},
        {2, FIELD(children), 4},
        {5, FIELD(children), 2},
        {5, FIELD(children), 0},
        {7, FIELD(children), 1},
        {0, FIELD(key_len), 1},
        {1, FIELD(key_len), 0}, /* yet a place for it */
        {1, FIELD(key_len), 129},
        {7, FIELD(key_len), 3}, /* past the end by one */
        {7, FIELD(key_len), 1}, /* cuts a character */
        {7, FIELD(key_len), UINT32_MAX},
        {3, FIELD(key_len), 1}, /* child of a list */
        {0, FIELD(key_off), 1},
        {1, FIELD(key_off), 0},
        {1, FIELD(key_off), 8 * 104 - 1}, /* in the nodes */
        {1, FIELD(key_off), 8 * 104 + 7}, /* 5 bytes of the last 4 */
        {1, FIELD(key_off), UINT64_MAX},
        {1, FIELD(key_off), UINT64_MAX - 4},
        {0, FIELD(offset), 64},
        {1, FIELD(offset), 63},
        {1, FIELD(offset), 1},
        {1, FIELD(offset), SLOT},
        {6, FIELD(offset), SLOT + 64}, /* no bytes, but outside */
        {7, FIELD(offset), UINT64_MAX - 63},
        {0, FIELD(nbytes), 1},
        {1, FIELD(nbytes), 2 * 28 * 28 - 1},
        {1, FIELD(nbytes), UINT64_MAX},
        {0, FIELD(shape[0]), 1},
        {0, FIELD(shape[7]), 1},
        {1, FIELD(shape[0]), 3},
        {1, FIELD(shape[0]), UINT64_MAX},
        {1, FIELD(shape[3]), 1},
        {1, FIELD(shape[7]), 1},
        {3, FIELD(shape[0]), 1},
        {6, FIELD(shape[0]), 1},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct encoded e = sample();
        /* Little-endian, as the machines this runs on: the low bytes come first. */
        memcpy((char *)&e.nodes[cases[i].node] + cases[i].at, &cases[i].value, cases[i].size);
        assert_damaged(&e);
    }
}

/* ["hello", [b"ab", b"", b"xyz"], "", []]: the kinds of text, each at its shortest too. */
static struct encoded text_sample(void)
{
    struct tree tree = {0};

    assert_int_equal(tree_add(&tree, TREE_LIST, NULL, 4), 0);
    assert_int_equal(tree_add_text(&tree, TREE_STRING, NULL, 5), 0);
    assert_int_equal(tree_add_text(&tree, TREE_BYTES, NULL, 4 * 8 + 5), 0);
    assert_int_equal(tree_add_text(&tree, TREE_STRING, NULL, 0), 0);
    assert_int_equal(tree_add_text(&tree, TREE_STRING, NULL, 8), 0);
    tree.nodes[1].offset = 128;
    tree.nodes[2].offset = 192;
    tree.nodes[2].ndim = 1;
    tree.nodes[2].shape[0] = 3;
    tree.nodes[3].offset = SLOT; /* no bytes: may stand at the very end */
    tree.nodes[4].offset = SLOT - 64;
    tree.nodes[4].ndim = 1;
    return encode(&tree);
}

TEST(test_text)
{
    static _Alignas(64) uint8_t slot[SLOT];
    const uint64_t numbers[] = {0, 2, 2, 5};
    struct encoded e = text_sample();
    const char *text = NULL;
    uint64_t len = 77;

    memcpy(slot + 128, "hello", 5);
    memcpy(slot + 192, numbers, sizeof numbers);
    memcpy(slot + 192 + sizeof numbers, "abxyz", 5);
    assert_true(tree_text(&e.nodes[1], slot, 0, &text, &len));
    assert_ptr_equal(text, slot + 128);
    assert_int_equal(len, 5);
    assert_false(tree_text(&e.nodes[1], slot, 1, &text, &len));
    assert_true(tree_text(&e.nodes[2], slot, 0, &text, &len));
    assert_ptr_equal(text, slot + 192 + 32);
    assert_int_equal(len, 2);
    assert_true(tree_text(&e.nodes[2], slot, 1, &text, &len));
    assert_int_equal(len, 0);
    assert_true(tree_text(&e.nodes[2], slot, 2, &text, &len));
    assert_memory_equal(text, "xyz", 3);
    assert_int_equal(len, 3);
    assert_false(tree_text(&e.nodes[2], slot, 3, &text, &len));
    assert_false(tree_text(&e.nodes[2], slot, UINT64_MAX, &text, &len));
    assert_true(tree_text(&e.nodes[3], slot, 0, &text, &len));
    assert_int_equal(len, 0);
    assert_false(tree_text(&e.nodes[4], slot, 0, &text, &len));
    assert_good(&e);
}

/* Numbers that a writer spoils after the check. */
TEST(test_text_leads_out)
{
    static const struct {
        uint64_t begin, end;
        bool good;
    } cases[] = {
        {0, 5, true},           {5, 5, true},
        {2, 1, false},          {0, 6, false},
        {6, 6, false},          {0, UINT64_MAX, false},
        {UINT64_MAX, 0, false}, {UINT64_MAX, UINT64_MAX, false},
    };
    static _Alignas(64) uint8_t slot[SLOT];
    struct encoded e = text_sample();

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const uint64_t numbers[] = {0, cases[i].begin, cases[i].end, 5};
        const char *text;
        uint64_t len;

        memcpy(slot + 192, numbers, sizeof numbers);
        assert_int_equal(tree_text(&e.nodes[2], slot, 1, &text, &len), cases[i].good);
    }
    assert_good(&e);
}

TEST(test_damaged_text)
{
    static const struct {
        uint32_t node;
        size_t at, size;
        uint64_t value;
    } cases[] = {
        {1, FIELD(kind), TREE_TENSOR},
        {1, FIELD(kind), TREE_LIST},
        {1, FIELD(dtype), DL_DTYPE_UINT8},
        {2, FIELD(dtype), DL_DTYPE_UINT8},
        {2, FIELD(dtype), UINT16_MAX},
        {1, FIELD(ndim), 1}, /* 5 bytes hold no number */
        {1, FIELD(ndim), 2},
        {2, FIELD(ndim), 0}, /* a dimension beyond its last */
        {2, FIELD(ndim), 2},
        {2, FIELD(ndim), UINT16_MAX},
        {1, FIELD(reserved), 1},
        {1, FIELD(children), 1},
        {2, FIELD(children), UINT32_MAX},
        {1, FIELD(shape[0]), 1},
        {2, FIELD(shape[0]), 4}, /* 5 numbers in 37 bytes */
        {2, FIELD(shape[0]), UINT64_MAX},
        {2, FIELD(shape[0]), UINT64_MAX / 8},
        {2, FIELD(shape[0]), UINT64_MAX / 8 - 1},
        {2, FIELD(shape[0]), (UINT64_MAX >> 3) + 4}, /* 8 times that wraps around to 40 */
        {2, FIELD(shape[1]), 1},
        {2, FIELD(shape[7]), 1},
        {2, FIELD(nbytes), 31},
        {2, FIELD(nbytes), 0},
        {2, FIELD(nbytes), SLOT},
        {1, FIELD(nbytes), UINT64_MAX},
        {4, FIELD(nbytes), 7},
        {4, FIELD(nbytes), 65},
        {1, FIELD(offset), 136},
        {1, FIELD(offset), SLOT},
        {1, FIELD(offset), UINT64_MAX - 63},
        {2, FIELD(offset), 200},
        {3, FIELD(offset), SLOT + 64},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct encoded e = text_sample();
        memcpy((char *)&e.nodes[cases[i].node] + cases[i].at, &cases[i].value, cases[i].size);
        assert_damaged(&e);
    }
}
#undef FIELD

/* An object: its pickle, then nothing but tensors. */
TEST(test_objects)
{
    static const struct {
        enum tree_kind first, second;
        uint32_t children;
        uint16_t first_ndim;
        bool good;
    } rows[] = {
        {TREE_BYTES, TREE_TENSOR, 2, 0, true},   {TREE_BYTES, TREE_TENSOR, 1, 0, false},
        {TREE_BYTES, TREE_TENSOR, 0, 0, false},  {TREE_BYTES, TREE_TENSOR, 3, 0, false},
        {TREE_STRING, TREE_TENSOR, 2, 0, false}, {TREE_BYTES, TREE_TENSOR, 2, 1, false},
        {TREE_TENSOR, TREE_TENSOR, 2, 0, false}, {TREE_BYTES, TREE_BYTES, 2, 0, false},
        {TREE_BYTES, TREE_LIST, 2, 0, false},    {TREE_BYTES, TREE_OBJECT, 2, 0, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct tree tree = {0};
        struct dl_error err = {0};
        struct encoded e;

        assert_int_equal(tree_add(&tree, TREE_OBJECT, NULL, rows[i].children), 0);
        assert_int_equal(tree_add_text(&tree, TREE_BYTES, NULL, 8), 0);
        assert_int_equal(tree_add_tensor(&tree, NULL, DL_DTYPE_INT64, 0, NULL), 0);
        tree.nodes[1].kind = (uint16_t)rows[i].first;
        tree.nodes[1].ndim = rows[i].first_ndim;
        if (rows[i].first == TREE_TENSOR)
            tree.nodes[1].dtype = DL_DTYPE_INT64;
        if (rows[i].second != TREE_TENSOR)
            tree.nodes[2].dtype = 0;
        if (rows[i].second != TREE_TENSOR && rows[i].second != TREE_BYTES)
            tree.nodes[2].nbytes = 0;
        e = encode(&tree);
        assert_int_equal(tree_check(e.nodes, e.len, e.count, e.slot, &err),
                         rows[i].good ? 0 : -EBADMSG);
        free(e.nodes);
    }
}

TEST(test_damaged_sizes)
{
    struct encoded e = sample();
    size_t whole = e.len;

    free(e.nodes);
    for (size_t len = 0; len < whole; len++) { /* truncated at every byte */
        e = sample();
        e.nodes = realloc(e.nodes, len ? len : 1);
        assert_non_null(e.nodes);
        e.len = len;
        assert_damaged(&e);
    }
    static const uint32_t counts[] = {0, 1, 7, 9, DL_BOUND_TREE_NODES + 1, UINT32_MAX};
    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        e = sample();
        e.count = counts[i];
        assert_damaged(&e);
    }
    e = sample();
    e.slot = SLOT - 64;
    assert_damaged(&e);
    e = sample();
    e.slot = 0;
    assert_damaged(&e);
    /* A key area larger than any keys could need. */
    struct tree tree = {0};
    assert_int_equal(tree_add(&tree, TREE_LIST, NULL, 0), 0);
    e = encode(&tree);
    e.len += DL_MAX_NAME_BYTES + 1;
    e.nodes = realloc(e.nodes, e.len);
    assert_damaged(&e);
}

TEST(test_damaged_keys)
{
    static const char bytes[] = {'\0', '\x80', '\xFF'};

    for (size_t i = 0; i < ARRAY_SIZE(bytes); i++) {
        struct encoded e = sample();
        ((char *)e.nodes)[e.nodes[1].key_off + 2] = bytes[i];
        assert_damaged(&e);
    }
}

TEST(test_two_roots)
{
    struct tree tree = {0};

    assert_int_equal(tree_add_tensor(&tree, NULL, DL_DTYPE_INT8, 0, NULL), 0);
    assert_int_equal(tree_add_tensor(&tree, NULL, DL_DTYPE_INT8, 0, NULL), 0);
    struct encoded e = encode(&tree);
    assert_damaged(&e);
    assert_int_equal(tree_add(&tree, TREE_DICT, "root", 0), 0); /* a key, but no dict above */
    e = encode(&tree);
    assert_damaged(&e);
}

TEST(test_depth)
{
    for (uint32_t depth = 1; depth < 40; depth++) {
        struct tree tree = {0};

        for (uint32_t i = 0; i < depth; i++)
            assert_int_equal(tree_add(&tree, TREE_LIST, NULL, 1), 0);
        assert_int_equal(tree_add_tensor(&tree, NULL, DL_DTYPE_INT8, 0, NULL), 0);
        struct encoded e = encode(&tree);
        assert_ptr_equal(tree_skip(e.nodes), e.nodes + e.count);
        if (depth <= DL_MAX_TREE_DEPTH)
            assert_good(&e);
        else
            assert_damaged(&e);
    }
}
