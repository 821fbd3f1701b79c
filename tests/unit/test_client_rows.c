/* Some rows of a slot as a batch: what libdlclient makes of a descriptor of one rank among several.
 */
#include "tests/unit/fake_daemon.h"

enum { TEXT_AT = FAKE_DATA_AT + 256, NUMBER_AT = FAKE_DATA_AT + 512 };

/*
 * {"image": uint8 [4, 16], "name": 4 strings, "pair": (int32 [4],)} in the step's slot. Each byte
 * of row i of the image is i; the strings are "", "b", "cc", "ddd"; the numbers 100 to 103.
 */
static void fill(struct fake *f, uint64_t step, uint32_t ndim)
{
    static const uint64_t numbers[] = {0, 0, 1, 3, 6};
    uint8_t *slot = fake_slot(f, step);
    struct slot_header *header = (struct slot_header *)(void *)slot;
    struct tree tree = {0};

    fake_fill(f, step, FAKE_ROWS);
    assert_int_equal(tree_add(&tree, TREE_DICT, NULL, 3), 0);
    assert_int_equal(tree_add_tensor(&tree, "image", DL_DTYPE_UINT8, 2,
                                     (const uint64_t[]){FAKE_ROWS, FAKE_ROW_BYTES}),
                     0);
    assert_int_equal(tree_add_text(&tree, TREE_STRING, "name", sizeof numbers + 6), 0);
    assert_int_equal(tree_add(&tree, TREE_TUPLE, "pair", 1), 0);
    assert_int_equal(
        tree_add_tensor(&tree, NULL, DL_DTYPE_INT32, ndim, (const uint64_t[]){FAKE_ROWS}), 0);
    tree.nodes[1].offset = FAKE_DATA_AT;
    tree.nodes[2].offset = TEXT_AT;
    tree.nodes[2].ndim = 1;
    tree.nodes[2].shape[0] = FAKE_ROWS;
    tree.nodes[4].offset = NUMBER_AT;
    header->tree_len = (uint32_t)tree_encoded_bytes(&tree);
    header->tree_count = tree.count;
    tree_encode(&tree, slot + FAKE_TREE_AT);
    tree_deinit(&tree);
    for (int i = 0; i < FAKE_ROWS; i++) {
        memset(slot + FAKE_DATA_AT + i * FAKE_ROW_BYTES, i, FAKE_ROW_BYTES);
        ((int32_t *)(void *)(slot + NUMBER_AT))[i] = 100 + i;
    }
    memcpy(slot + TEXT_AT, numbers, sizeof numbers);
    memcpy(slot + TEXT_AT + sizeof numbers, "bccddd", 6);
}

static void deliver(struct fake *f, uint64_t step, uint32_t first, uint32_t samples,
                    uint32_t repeated)
{
    struct dl_descriptor d = fake_descriptor(step, FAKE_ROWS);

    fill(f, step, 1);
    d.samples = samples;
    d.first = first;
    d.repeated = repeated;
    fake_send_descriptors(f, FAKE_STREAM, &d, 1);
}

static struct dl_batch *next(struct fake *f)
{
    struct dl_batch *batch = NULL;

    assert_int_equal(dl_epoch_next(f->epoch, -1, &batch), 0);
    return batch;
}

/* All that can be asked of the batch, which has rows `first` on. */
static void expect_rows(struct dl_batch *batch, uint64_t step, uint32_t first, uint32_t n)
{
    static const char *const strings[] = {"", "b", "cc", "ddd"};
    uint64_t bytes = n * (FAKE_ROW_BYTES + sizeof(int32_t)), list = (n + 1) * sizeof(uint64_t),
             count;
    struct dl_tensor image, number;
    size_t samples;
    const uint64_t *indices = dl_batch_indices(batch, &samples);

    assert_int_equal(samples, n);
    assert_int_equal(dl_batch_tensor(batch, "image", &image), 0);
    assert_int_equal(dl_batch_tensor(batch, "pair.0", &number), 0);
    assert_int_equal(image.shape[0], n);
    assert_int_equal(image.shape[1], FAKE_ROW_BYTES);
    assert_int_equal(image.nbytes, n * FAKE_ROW_BYTES);
    assert_int_equal(number.shape[0], n);
    assert_int_equal(number.nbytes, n * sizeof(int32_t));
    assert_int_equal(dl_batch_text_count(batch, "name", &count), 0);
    assert_int_equal(count, n);
    for (uint32_t i = 0; i < n; i++) {
        const char *text;
        size_t len;
        assert_int_equal(indices[i], step * FAKE_ROWS + first + i);
        assert_int_equal(((const uint8_t *)image.data)[i * FAKE_ROW_BYTES], first + i);
        assert_int_equal(((const uint8_t *)image.data)[(i + 1) * FAKE_ROW_BYTES - 1], first + i);
        assert_int_equal(((const int32_t *)number.data)[i], 100 + first + i);
        assert_int_equal(dl_batch_text(batch, "name", i, &text, &len), 0);
        assert_int_equal(len, strlen(strings[first + i]));
        assert_memory_equal(text, strings[first + i], len);
        list += len;
    }
    assert_int_equal(dl_batch_text(batch, "name", n, &(const char *){0}, &(size_t){0}), -EINVAL);
    assert_int_equal(dl_batch_bytes(batch), bytes + list);
    struct dl_node node;
    assert_int_equal(dl_batch_node(batch, 2, &node), 0);
    assert_int_equal(node.count, n);
    assert_int_equal(node.text_nbytes, list);
    assert_true((node.text == NULL) == (n < FAKE_ROWS && !batch->detached));
    assert_true(!batch->detached || (uintptr_t)number.data % 64 == 0);
    assert_int_equal(dl_batch_node(batch, 1, &node), 0);
    assert_ptr_equal(node.tensor.data, image.data);
}

static const struct {
    uint32_t first, n;
} parts[] = {{0, 1}, {0, 2}, {1, 2}, {2, 2}, {3, 1}, {0, 3}, {1, 3}, {0, 4}};

TEST(test_rows)
{
    struct fake f;

    fake_run(&f, 4, 100);
    for (uint64_t step = 0; step < ARRAY_SIZE(parts); step++) {
        deliver(&f, step, parts[step].first, parts[step].n, 1);
        struct dl_batch *batch = next(&f);
        expect_rows(batch, step, parts[step].first, parts[step].n);
        assert_int_equal(dl_batch_repeated(batch), 1);
    }
    fake_end(&f);
}

/* No byte is copied: the rows are the slot's memory; and the cut tree is shared. */
TEST(test_nothing_is_copied)
{
    struct fake f;
    struct view *slice = NULL;

    fake_run(&f, 4, 100);
    for (uint64_t step = 0; step < 3; step++) {
        struct dl_tensor image;
        deliver(&f, step, 2, 2, 0);
        struct dl_batch *batch = next(&f);
        assert_int_equal(dl_batch_tensor(batch, "image", &image), 0);
        assert_ptr_equal(image.data, batch->slot + FAKE_DATA_AT + 2 * FAKE_ROW_BYTES);
        assert_true(step == 0 || f.epoch->slice == slice);
        slice = f.epoch->slice;
    }
    fake_end(&f);
}

TEST(test_pinned_and_detached)
{
    struct dl_batch *batches[ARRAY_SIZE(parts)];
    struct fake f;

    fake_run(&f, 16, 100);
    for (uint64_t step = 0; step < ARRAY_SIZE(parts); step++) {
        deliver(&f, step, parts[step].first, parts[step].n, 0);
        batches[step] = next(&f);
        assert_int_equal(step % 2 ? dl_batch_detach(batches[step]) : 0, 0);
        assert_int_equal(dl_batch_pin(batches[step]), 0);
        if (step % 2 && parts[step].n < FAKE_ROWS) /* no more than the rows, and what aligns them */
            assert_in_range(batches[step]->mapping->bytes, 1, SLOT_ALIGN);
        if (step % 2)
            memset(fake_slot(&f, step), 0xEE, FAKE_SLOT_BYTES);
    }
    for (uint64_t step = 0; step < ARRAY_SIZE(parts); step++) {
        expect_rows(batches[step], step, parts[step].first, parts[step].n);
        dl_batch_release(batches[step]);
    }
    fake_end(&f);
}

/* What has not one row a sample is the step's error; the next one comes, and the lease is back. */
TEST(test_no_rows)
{
    struct dl_descriptor d = fake_descriptor(0, FAKE_ROWS);
    struct dl_batch *batch = NULL;
    struct fake f;

    fake_run(&f, 1, 100);
    fill(&f, 0, 0);
    d.samples = 2;
    fake_send_descriptors(&f, FAKE_STREAM, &d, 1);
    assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), -EINVAL);
    assert_null(batch);
    assert_int_equal(dl_epoch_failed_step(f.epoch), 0);
    assert_non_null(strstr(dl_client_error(f.client),
                           "step 0 cannot be dispatched: node 4 of its batch is a single value"));
    assert_true(dl_client_is_usable(f.client));
    deliver(&f, 1, 2, 2, 0); /* by the only credit */
    assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), 0);
    expect_rows(batch, 1, 2, 2);
    fake_end(&f);
}

/* All of a batch needs no rows: a world of one dispatches what it likes. */
TEST(test_all_of_it)
{
    struct dl_descriptor d = fake_descriptor(0, FAKE_ROWS);
    struct fake f;

    fake_run(&f, 4, 100);
    fill(&f, 0, 0);
    fake_send_descriptors(&f, FAKE_STREAM, &d, 1);
    assert_int_equal(dl_batch_nodes(next(&f)), 5);
    fake_end(&f);
}

/* Numbers that change once the tree is checked lead nowhere. */
TEST(test_overwritten_text)
{
    const char *text;
    struct fake f;
    size_t len;

    fake_run(&f, 4, 100);
    deliver(&f, 0, 1, 2, 0);
    struct dl_batch *batch = next(&f);
    ((uint64_t *)(void *)(fake_slot(&f, 0) + TEXT_AT))[2] = UINT64_MAX / 2;
    assert_int_equal(dl_batch_text(batch, "name", 0, &text, &len), -EPROTO);
    assert_int_equal(dl_batch_text(batch, "name", 1, &text, &len), -EPROTO);
    assert_int_equal(dl_batch_bytes(batch), 2 * (FAKE_ROW_BYTES + sizeof(int32_t)) + 3 * 8);
    fake_end(&f);
}

/* A copy of such a list has no more than there was, and asks for nothing outside of it. */
TEST(test_overwritten_text_detached)
{
    const char *text;
    struct fake f;
    size_t len;

    fake_run(&f, 4, 100);
    deliver(&f, 0, 1, 3, 0);
    struct dl_batch *batch = next(&f);
    uint64_t *numbers = (uint64_t *)(void *)(fake_slot(&f, 0) + TEXT_AT);
    numbers[1] = 0; /* the first of the rows is all bytes of the list, the others are none at all */
    numbers[2] = 6;
    numbers[3] = 0;
    numbers[4] = UINT64_MAX;
    assert_int_equal(dl_batch_detach(batch), 0);
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(dl_batch_text(batch, "name", i, &text, &len), 0);
    assert_int_equal(dl_batch_text(batch, "name", 0, &text, &len), 0);
    assert_int_equal(len, 6);
    fake_end(&f);
}
