/* Strings and bytes in batches, as libdlclient hands them out. */
#include "tests/unit/fake_daemon.h"

enum { ONE_AT = FAKE_DATA_AT, MANY_AT = FAKE_DATA_AT + 64, NONE_AT = FAKE_DATA_AT + 192 };

/* {"one": "hello", "many": [b"ab", b"", b"x\0yz"], "none": [], "t": int32, "d": {}} in slot 0. */
static void fill_text(struct fake *f)
{
    static const uint64_t numbers[] = {0, 2, 2, 6};
    uint8_t *slot = fake_slot(f, 0);
    struct slot_header *header = (struct slot_header *)(void *)slot;
    struct tree tree = {0};

    fake_fill(f, 0, 3);
    assert_int_equal(tree_add(&tree, TREE_DICT, NULL, 5), 0);
    assert_int_equal(tree_add_text(&tree, TREE_STRING, "one", 5), 0);
    assert_int_equal(tree_add_text(&tree, TREE_BYTES, "many", sizeof numbers + 6), 0);
    assert_int_equal(tree_add_text(&tree, TREE_STRING, "none", 8), 0);
    assert_int_equal(tree_add_tensor(&tree, "t", DL_DTYPE_INT32, 0, NULL), 0);
    assert_int_equal(tree_add(&tree, TREE_DICT, "d", 0), 0);
    tree.nodes[1].offset = ONE_AT;
    tree.nodes[2].offset = MANY_AT;
    tree.nodes[2].ndim = 1;
    tree.nodes[2].shape[0] = 3;
    tree.nodes[3].offset = NONE_AT;
    tree.nodes[3].ndim = 1;
    tree.nodes[4].offset = FAKE_DATA_AT + 256;
    header->tree_len = (uint32_t)tree_encoded_bytes(&tree);
    header->tree_count = tree.count;
    tree_encode(&tree, slot + FAKE_TREE_AT);
    tree_deinit(&tree);
    memcpy(slot + ONE_AT, "hello", 5);
    memcpy(slot + MANY_AT, numbers, sizeof numbers);
    memcpy(slot + MANY_AT + sizeof numbers, "abx\0yz", 6);
    memset(slot + NONE_AT, 0, 8);
}

static struct dl_batch *deliver_text(struct fake *f)
{
    struct dl_descriptor d = fake_descriptor(0, 3);
    struct dl_batch *batch = NULL;

    fake_run(f, 4, 10);
    fill_text(f);
    fake_send_descriptors(f, FAKE_STREAM, &d, 1);
    assert_int_equal(dl_epoch_next(f->epoch, -1, &batch), 0);
    return batch;
}

TEST(test_text)
{
    static const struct {
        const char *path;
        uint32_t node;
        uint64_t i, count;
        const char *text;
        size_t len;
    } rows[] = {
        {"one", 1, 0, 1, "hello", 5},
        {"many", 2, 0, 3, "ab", 2},
        {"many", 2, 1, 3, "", 0},
        {"many", 2, 2, 3, "x\0yz", 4},
    };
    struct fake f;
    struct dl_batch *batch = deliver_text(&f);
    uint64_t count = 77;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        for (int by_number = 0; by_number < 2; by_number++) {
            const char *text = NULL;
            size_t len = 77;

            assert_int_equal(by_number
                                 ? dl_batch_node_text(batch, rows[i].node, rows[i].i, &text, &len)
                                 : dl_batch_text(batch, rows[i].path, rows[i].i, &text, &len),
                             0);
            assert_int_equal(len, rows[i].len);
            assert_memory_equal(text, rows[i].text, len);
        }
        assert_int_equal(dl_batch_text_count(batch, rows[i].path, &count), 0);
        assert_int_equal(count, rows[i].count);
    }
    assert_int_equal(dl_batch_text_count(batch, "none", &count), 0);
    assert_int_equal(count, 0);
    assert_int_equal(dl_batch_bytes(batch), 5 + (4 * 8 + 6) + 8 + 4);
    fake_end(&f);
}

TEST(test_nodes)
{
    struct fake f;
    struct dl_batch *batch = deliver_text(&f);
    static const struct dl_tensor no_tensor;
    struct dl_node node;

    assert_int_equal(dl_batch_nodes(batch), 6);
    assert_int_equal(dl_batch_node(batch, 1, &node), 0);
    assert_int_equal(node.kind, DL_NODE_STRING);
    assert_int_equal(node.count, 1);
    assert_int_equal(node.is_list, 0);
    assert_int_equal(node.text_nbytes, 5);
    assert_memory_equal(node.text, "hello", 5);
    assert_memory_equal(&node.tensor, &no_tensor, sizeof no_tensor);

    assert_int_equal(dl_batch_node(batch, 2, &node), 0);
    assert_int_equal(node.kind, DL_NODE_BYTES);
    assert_int_equal(node.count, 3);
    assert_int_equal(node.is_list, 1);
    assert_int_equal(node.text_nbytes, 4 * 8 + 6);
    assert_int_equal(((const uint64_t *)node.text)[3], 6);
    assert_memory_equal(&node.tensor, &no_tensor, sizeof no_tensor);

    assert_int_equal(dl_batch_node(batch, 3, &node), 0);
    assert_int_equal(node.count, 0);
    assert_int_equal(node.is_list, 1);

    assert_int_equal(dl_batch_node(batch, 4, &node), 0);
    assert_int_equal(node.kind, DL_NODE_TENSOR);
    assert_int_equal(node.count, 0);
    assert_null(node.text);
    fake_end(&f);
}

/* What each call refuses, in what words; its results stay as they were. */
TEST(test_refusals)
{
    enum { TEXT, COUNT, TENSOR, DLPACK, NODE };
    static const struct {
        int call;
        const char *path;
        uint64_t i; /* NODE: the node */
        int want;
        const char *text;
    } rows[] = {
        {TEXT, "two", 0, -ENOENT, "two: no such field"},
        {TEXT, "one.0", 0, -ENOENT, "no such field"},
        {TEXT, "t", 0, -EINVAL, "dl_batch_tensor() reads it"},
        {TEXT, "d", 0, -EINVAL, "not text but 0 fields"},
        {TEXT, NULL, 0, -EINVAL, "not text but 5 fields"},
        {TEXT, "one", 1, -EINVAL, "string 1 where there are 1"},
        {TEXT, "many", 3, -EINVAL, "string 3 where there are 3"},
        {TEXT, "many", UINT64_MAX, -EINVAL, "where there are 3"},
        {TEXT, "none", 0, -EINVAL, "string 0 where there are 0"},
        {COUNT, "two", 0, -ENOENT, "no such field"},
        {COUNT, "t", 0, -EINVAL, "a tensor, not text"},
        {COUNT, "", 0, -EINVAL, "not text but 5 fields"},
        {TENSOR, "one", 0, -EINVAL, "a string, not a tensor: dl_batch_text() reads it"},
        {TENSOR, "many", 0, -EINVAL, "bytes, not a tensor: dl_batch_text() reads it"},
        {DLPACK, "many", 0, -EINVAL, "bytes, not a tensor: dl_batch_text() reads it"},
        {NODE, "", 4, -EINVAL, "a tensor, not text"},
        {NODE, "", 0, -EINVAL, "not text but 5 fields"},
        {NODE, "", 3, -EINVAL, "string 0 where there are 0"},
        {NODE, "", 6, -EINVAL, "node 6 of a tree of 6"},
    };
    struct fake f;
    struct dl_batch *batch = deliver_text(&f);
    struct DLManagedTensor *managed = NULL;
    struct dl_tensor tensor = {.ndim = 77};
    const char *text = NULL;
    uint64_t count = 77;
    size_t len = 77;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        int r = rows[i].call == TEXT    ? dl_batch_text(batch, rows[i].path, rows[i].i, &text, &len)
                : rows[i].call == COUNT ? dl_batch_text_count(batch, rows[i].path, &count)
                : rows[i].call == TENSOR ? dl_batch_tensor(batch, rows[i].path, &tensor)
                : rows[i].call == DLPACK
                    ? dl_batch_dlpack(batch, rows[i].path, &managed)
                    : dl_batch_node_text(batch, (uint32_t)rows[i].i, 0, &text, &len);

        if (r != rows[i].want || !strstr(dl_client_error(f.client), rows[i].text))
            fail_msg("row %zu: %d, '%s'", i, r, dl_client_error(f.client));
    }
    assert_null(text);
    assert_null(managed);
    assert_int_equal(len, 77);
    assert_int_equal(count, 77);
    assert_int_equal(tensor.ndim, 77);
    fake_end(&f);
}

/* Numbers overwritten after the batch was handed out: that string is refused, nothing else is. */
TEST(test_overwritten)
{
    static const struct {
        uint64_t begin, end;
        int want;
    } rows[] = {
        {2, 6, 0},
        {6, 6, 0},
        {0, 0, 0},
        {3, 2, -EPROTO},
        {2, 7, -EPROTO},
        {7, 7, -EPROTO},
        {2, UINT64_MAX, -EPROTO},
        {UINT64_MAX, 2, -EPROTO},
        {UINT64_MAX, UINT64_MAX, -EPROTO},
    };
    struct fake f;
    struct dl_batch *batch = deliver_text(&f);

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *text = NULL;
        size_t len;

        memcpy(fake_slot(&f, 0) + MANY_AT + 2 * 8, &rows[i].begin, 8);
        memcpy(fake_slot(&f, 0) + MANY_AT + 3 * 8, &rows[i].end, 8);
        assert_int_equal(dl_batch_text(batch, "many", 2, &text, &len), rows[i].want);
        if (rows[i].want == 0) {
            assert_int_equal(len, rows[i].end - rows[i].begin);
            continue;
        }
        assert_null(text);
        assert_non_null(strstr(dl_client_error(f.client), "many: string 2 of step 0 points "
                                                          "outside"));
        assert_int_equal(dl_batch_text(batch, "many", 0, &text, &len), 0);
        assert_int_equal(dl_client_dispatch(f.client), 0);
    }
    fake_end(&f);
}

/* A tree that is text wrongly described ends the session, as any other does. */
TEST(test_bad_tree)
{
    static const struct {
        size_t at;
        uint64_t value, size;
    } rows[] = {
        {offsetof(struct tree_node, shape), 4, 8},
        {offsetof(struct tree_node, shape), UINT64_MAX, 8},
        {offsetof(struct tree_node, nbytes), FAKE_SLOT_BYTES, 8},
        {offsetof(struct tree_node, offset), MANY_AT + 8, 8},
        {offsetof(struct tree_node, dtype), DL_DTYPE_UINT8, 2},
        {offsetof(struct tree_node, ndim), 2, 2},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_descriptor d = fake_descriptor(0, 3);
        struct dl_batch *batch;
        struct fake f;

        fake_run(&f, 4, 10);
        fill_text(&f);
        memcpy(fake_slot(&f, 0) + FAKE_TREE_AT + 2 * sizeof(struct tree_node) + rows[i].at,
               &rows[i].value, rows[i].size);
        fake_send_descriptors(&f, FAKE_STREAM, &d, 1);
        assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), -EPROTO);
        assert_non_null(strstr(dl_client_error(f.client), "the tree of step 0: node 2"));
        fake_end(&f);
    }
}
