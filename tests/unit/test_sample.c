/* Building samples: what a tree may be, how the first failure sticks, and what it is told as. */
#include "tests/unit/data_files.h"
#include "tests/unit/fail_alloc.h"

#include "daemon/data/base/sample_batch.h"

#include <errno.h>

static struct arena arena;
static struct sample sample = {.arena = &arena};
static const uint8_t bytes[64] = {1, 2, 3};

static int teardown(void **state)
{
    sample_deinit(&sample);
    arena_deinit(&arena);
    sample.arena = &arena;
    return 0;
}

TEST(test_a_tree, NULL, teardown)
{
    const struct tree_node *node;

    sample_begin(&sample, TREE_DICT, NULL);
    sample_tensor(&sample, "image", DL_DTYPE_UINT8, 2, (uint64_t[]){2, 3}, bytes);
    sample_begin(&sample, TREE_TUPLE, "pair");
    sample_int(&sample, NULL, -5);
    sample_float(&sample, NULL, 0.5);
    sample_end(&sample);
    sample_begin(&sample, TREE_LIST, "none");
    sample_end(&sample);
    sample_text(&sample, TREE_STRING, "", "h\xc3\xa9", 3);
    sample_bool(&sample, "flag", true);
    assert_int_equal(sample_end(&sample), 0);
    assert_int_equal(sample_check(&sample, NULL), 0);

    node = sample.tree.nodes;
    assert_int_equal(sample.tree.count, 8);
    assert_int_equal(node[0].children, 5);
    assert_int_equal(node[2].kind, TREE_TUPLE);
    assert_int_equal(node[2].children, 2);
    assert_int_equal(node[5].children, 0);
    assert_int_equal(node[6].nbytes, 3);
    assert_ptr_equal(sample.data[1], bytes);
    assert_null(sample.data[0]);
    assert_int_equal(*(const int64_t *)sample.data[3], -5);
    assert_true(*(const double *)sample.data[4] == 0.5);
    assert_int_equal(*(const uint8_t *)sample.data[7], 1);
}

/* Each leaves a sample that is refused, with these words in the reason. */
static void second_root(void)
{
    sample_int(&sample, NULL, 1);
    sample_int(&sample, NULL, 2);
}

static void key_of_root(void)
{
    sample_int(&sample, "x", 1);
}

static void key_in_list(void)
{
    sample_begin(&sample, TREE_LIST, NULL);
    sample_int(&sample, "x", 1);
    sample_end(&sample);
}

static void no_key_in_dict(void)
{
    sample_begin(&sample, TREE_DICT, NULL);
    sample_int(&sample, NULL, 1);
    sample_end(&sample);
}

static void end_alone(void)
{
    sample_end(&sample);
}

static void left_open(void)
{
    sample_begin(&sample, TREE_LIST, NULL);
    sample_begin(&sample, TREE_LIST, NULL);
    sample_end(&sample);
}

static void nothing(void)
{
}

static void container_of_leaf_kind(void)
{
    sample_begin(&sample, TREE_TENSOR, NULL);
}

static void unknown_kind(void)
{
    sample_begin(&sample, (enum tree_kind)99, NULL);
}

static void text_of_list_kind(void)
{
    sample_text(&sample, TREE_LIST, NULL, "a", 1);
}

static void not_utf8(void)
{
    sample_text(&sample, TREE_STRING, NULL, "a\xff", 2);
}

static void key_not_utf8(void)
{
    sample_begin(&sample, TREE_DICT, NULL);
    sample_int(&sample, "\xff", 2);
}

static void key_too_long(void)
{
    char key[DL_BOUND_NAME_BYTES + 2];

    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = '\0';
    sample_begin(&sample, TREE_DICT, NULL);
    sample_int(&sample, key, 2);
}

static void too_deep(void)
{
    for (int i = 0; i <= DL_BOUND_TREE_DEPTH; i++)
        sample_begin(&sample, TREE_LIST, NULL);
}

static void too_many_nodes(void)
{
    sample_begin(&sample, TREE_LIST, NULL);
    for (int i = 0; i < DL_BOUND_TREE_NODES; i++)
        sample_tensor(&sample, NULL, DL_DTYPE_UINT8, 0, NULL, bytes);
}

static void unknown_dtype(void)
{
    sample_tensor(&sample, NULL, 999, 0, NULL, bytes);
}

static void nine_dimensions(void)
{
    sample_tensor(&sample, NULL, DL_DTYPE_UINT8, 9, (uint64_t[9]){1, 1, 1, 1, 1, 1, 1, 1, 1},
                  bytes);
}

static void too_large(void)
{
    sample_tensor(&sample, NULL, DL_DTYPE_INT64, 2, (uint64_t[]){1ULL << 31, 1ULL << 31}, bytes);
}

static void no_bytes(void)
{
    sample_tensor(&sample, NULL, DL_DTYPE_INT64, 1, (uint64_t[]){1}, NULL);
}

static void no_text(void)
{
    sample_text(&sample, TREE_STRING, NULL, NULL, 1);
}

TEST(test_refused, NULL, teardown)
{
    static const struct {
        void (*build)(void);
        int code;
        const char *has;
    } rows[] = {
        {second_root, EINVAL, "a second root"},
        {key_of_root, EINVAL, "not a tree"},
        {key_in_list, EINVAL, "a key outside a dict"},
        {no_key_in_dict, EINVAL, "none in one"},
        {end_alone, EINVAL, "an end without its beginning"},
        {left_open, EINVAL, "incomplete"},
        {nothing, EINVAL, "empty"},
        {container_of_leaf_kind, EINVAL, "an unknown kind"},
        {unknown_kind, EINVAL, "an unknown kind"},
        {text_of_list_kind, EINVAL, "an unknown kind"},
        {not_utf8, EILSEQ, "not UTF-8"},
        {key_not_utf8, EINVAL, "not UTF-8"},
        {key_too_long, EINVAL, "more than 128 bytes"},
        {too_deep, E2BIG, "32 levels"},
        {too_many_nodes, E2BIG, "65536 nodes"},
        {unknown_dtype, EINVAL, "unknown dtype"},
        {nine_dimensions, EINVAL, "more than 8 dimensions"},
        {too_large, EINVAL, "2^63 bytes"},
        {no_bytes, EINVAL, "no bytes"},
        {no_text, EINVAL, "no bytes"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_error err = {0};
        rows[i].build();
        if (sample_check(&sample, &err) != -rows[i].code)
            fail_msg("row %zu: %d: %s", i, err.code, err.message);
        assert_error_has(&err, rows[i].has);
        /* The first failure stays, whatever comes then. */
        int before = sample.error;
        uint32_t count = sample.tree.count;
        if (before < 0) {
            assert_int_equal(sample_begin(&sample, TREE_LIST, NULL), before);
            assert_int_equal(sample_int(&sample, NULL, 1), before);
            assert_int_equal(sample_text(&sample, TREE_BYTES, NULL, "", 0), before);
            assert_int_equal(sample_end(&sample), before);
            assert_null(sample_alloc(&sample, 8));
            assert_int_equal(sample.tree.count, count);
        }
        /* And the next sample is a good one again. */
        sample_clear(&sample);
        arena_clear(&arena);
        sample_int(&sample, NULL, 1);
        assert_int_equal(sample_check(&sample, NULL), 0);
        sample_clear(&sample);
    }
}

TEST(test_empty_leaves_need_no_bytes, NULL, teardown)
{
    sample_begin(&sample, TREE_LIST, NULL);
    sample_tensor(&sample, NULL, DL_DTYPE_INT64, 2, (uint64_t[]){3, 0}, NULL);
    sample_text(&sample, TREE_STRING, NULL, NULL, 0);
    sample_text(&sample, TREE_BYTES, NULL, "\xff\0", 2);
    sample_end(&sample);
    assert_int_equal(sample_check(&sample, NULL), 0);
}

/* Where they lie; and a length that does not fit names the leaf. */
TEST(test_bytes_become_numbers, NULL, teardown)
{
    static const struct {
        uint32_t dtype;
        size_t bytes;
        uint64_t elements; /* 0 of bytes > 0: refused */
        const char *words;
    } cases[] = {
        {DL_DTYPE_UINT8, 7, 7, NULL},
        {DL_DTYPE_UINT8, 0, 0, NULL},
        {DL_DTYPE_INT16, 6, 3, NULL},
        {DL_DTYPE_COMPLEX128, 32, 2, NULL},
        {DL_DTYPE_FLOAT32, 7, 0, "7 bytes, which are no whole number of float32"},
        {DL_DTYPE_BFLOAT16, 1, 0, "1 bytes, which are no whole number of bfloat16"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct dl_error err = {0};
        sample_begin(&sample, TREE_DICT, NULL);
        sample_text(&sample, TREE_STRING, "name", "abc", 3);
        sample_text(&sample, TREE_BYTES, "x", bytes, cases[i].bytes);
        sample_begin(&sample, TREE_LIST, "list");
        sample_text(&sample, TREE_BYTES, NULL, bytes, 16);
        sample_end(&sample);
        sample_end(&sample);
        assert_int_equal(sample_check(&sample, NULL), 0);
        int r = sample_bytes_to_numbers(&sample, cases[i].dtype, &err);
        assert_int_equal(r, cases[i].words ? -EINVAL : 0);
        const struct tree_node *node = sample.tree.nodes;
        assert_int_equal(node[1].kind, TREE_STRING);
        if (cases[i].words) {
            assert_non_null(strstr(err.message, "its field x has"));
            assert_non_null(strstr(err.message, cases[i].words));
        } else {
            assert_int_equal(node[2].kind, TREE_TENSOR);
            assert_int_equal(node[2].dtype, cases[i].dtype);
            assert_int_equal(node[2].ndim, 1);
            assert_int_equal(node[2].shape[0], cases[i].elements);
            assert_int_equal(node[2].nbytes, cases[i].bytes);
            assert_ptr_equal(sample.data[2], bytes);
            assert_int_equal(node[4].kind, TREE_TENSOR);
        }
        sample_clear(&sample);
    }
}

TEST(test_copy_tree, NULL, teardown)
{
    const void *const data[] = {bytes, bytes + 1, bytes + 2};
    struct tree tree = {0};

    assert_int_equal(tree_add(&tree, TREE_DICT, NULL, 3), 0);
    assert_int_equal(tree_add_tensor(&tree, "", DL_DTYPE_UINT8, 0, NULL), 0);
    assert_int_equal(tree_add(&tree, TREE_LIST, "list", 2), 0);
    assert_int_equal(tree_add(&tree, TREE_LIST, NULL, 0), 0);
    assert_int_equal(tree_add_tensor(&tree, NULL, DL_DTYPE_UINT8, 1, (uint64_t[]){1}), 0);
    assert_int_equal(tree_add_tensor(&tree, "z", DL_DTYPE_UINT8, 0, NULL), 0);

    assert_int_equal(sample_copy_tree(&sample, &tree, data), 0);
    assert_int_equal(sample_check(&sample, NULL), 0);
    assert_int_equal(sample.tree.count, tree.count);
    assert_memory_equal(sample.tree.nodes, tree.nodes, tree.count * sizeof *tree.nodes);
    assert_ptr_equal(sample.data[4], bytes + 1);
    assert_ptr_equal(sample.data[5], bytes + 2);
    sample_clear(&sample);

    /* Twice into a list: the nodes of `tree` are then others than those of the sample. */
    sample_begin(&sample, TREE_LIST, NULL);
    assert_int_equal(sample_copy_tree(&sample, &tree, data), 0);
    assert_int_equal(sample_copy_tree(&sample, &tree, data), 0);
    sample_end(&sample);
    assert_int_equal(sample_check(&sample, NULL), 0);
    assert_int_equal(sample.tree.count, 1 + 2 * tree.count);
    assert_int_equal(sample.tree.nodes[0].children, 2);
    tree_deinit(&tree);
    sample_clear(&sample);

    /* A tree without any key has no memory for them. */
    assert_int_equal(tree_add_tensor(&tree, NULL, DL_DTYPE_UINT8, 0, NULL), 0);
    assert_int_equal(sample_copy_tree(&sample, &tree, data), 0);
    assert_int_equal(sample_check(&sample, NULL), 0);
    tree_deinit(&tree);
}

TEST(test_no_memory, NULL, teardown)
{
    int failed = 0;

    for (int k = 0; k < 20; k++) {
        struct dl_error err = {0};
        teardown(state);
        fail_in = k;
        sample_begin(&sample, TREE_DICT, NULL);
        for (int i = 0; i < 40; i++) {
            char key[12];
            snprintf(key, sizeof key, "%d", i);
            sample_int(&sample, key, i);
        }
        sample_end(&sample);
        fail_in = -1;
        if (sample_check(&sample, &err) < 0) {
            assert_error(&err, ENOMEM, "", "out of memory for a sample");
            failed++;
        }
    }
    assert_in_range(failed, 6, 19);
}

static void count_release(void *object)
{
    ++*(int *)object;
}

/* Whatever becomes of its sample, an object is released once, or given away. */
TEST(test_an_object, NULL, teardown)
{
    int released[4] = {0};
    struct dl_error err;
    struct sample_batch batch = {0};

    for (int i = 0; i < 4; i++) {
        struct sample *added = sample_batch_add(&batch, (uint64_t)i);
        assert_non_null(added);
        sample_object(added, &released[i], count_release);
        assert_int_equal(sample_check(added, &err), 0);
        if (i < 3) /* the last one is left as it is */
            sample_batch_keep(&batch);
    }
    assert_ptr_equal(sample_take_object(&batch.samples[1]), &released[1]);
    sample_batch_clear(&batch);
    assert_null(sample_take_object(&batch.samples[0]));
    static const int after[] = {1, 0, 1, 1};
    assert_memory_equal(released, after, sizeof after);
    sample_object(sample_batch_add(&batch, 0), &released[0], count_release);
    sample_batch_deinit(&batch);
    assert_int_equal(released[0], 2);
}
