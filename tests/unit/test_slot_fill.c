/* What is written into a slot, and read from it, over garbage. */
#include "tests/lib/harness.h"

#include "proto/limits.h"
#include "proto/slot_fill.h"
#include <errno.h>

enum { SLOT_BYTES = 1024 };

static _Alignas(64) char slot[SLOT_BYTES];
static struct slot_header *const header = (void *)slot;
static const uint64_t indices[] = {5, 0, UINT64_MAX};
static const struct slot_task task = {.generation = 1,
                                      .epoch = 2,
                                      .step = 3,
                                      .indices = indices,
                                      .samples = 3,
                                      .what = SLOT_SAMPLE,
                                      .stream = 4,
                                      .rank = 5,
                                      .world = 6,
                                      .settled = 7};

static void prepare(void)
{
    memset(slot, 0xaa, sizeof slot);
    assert_true(slot_prepare(slot, sizeof slot, &task));
}

TEST(test_task_is_read_as_written)
{
    struct slot_task got;

    prepare();
    assert_true(slot_read_task(slot, slot_indices_end(3), &got));
    assert_ptr_equal(got.indices, slot_indices(slot));
    assert_memory_equal(got.indices, indices, sizeof indices);
    assert_true(got.generation == 1 && got.epoch == 2 && got.step == 3 && got.samples == 3);
    assert_true(got.what == SLOT_SAMPLE && got.stream == 4 && got.rank == 5 && got.world == 6);
    assert_int_equal(got.settled, 7);
    assert_false(slot_prepare(slot, slot_indices_end(3) - 1, &task));
}

TEST(test_damaged_task)
{
    struct slot_task got = {.samples = 99};

    prepare();
    assert_false(slot_read_task(slot, SLOT_HEADER_BYTES - 1, &got));
    assert_int_equal(got.samples, 99);
    assert_false(slot_read_task(slot, slot_indices_end(3) - 1, &got));
    assert_int_equal(got.samples, 3);
    header->samples = UINT32_MAX;
    assert_false(slot_read_task(slot, sizeof slot, &got));
    header->samples = 0;
    assert_false(slot_read_task(slot, sizeof slot, &got));
    prepare();
    header->indices_off += 8;
    assert_false(slot_read_task(slot, sizeof slot, &got));
    prepare();
    header->what = SLOT_LENGTHS_OF + 1;
    assert_false(slot_read_task(slot, sizeof slot, &got));
}

/* Leaves need not stand in the tree's order: an image has zeroes wherever none is. */
TEST(test_image)
{
    struct tree tree = {0};

    prepare();
    header->error_more = 9;
    assert_int_equal(tree_add(&tree, TREE_LIST, NULL, 2), 0);
    assert_int_equal(tree_add_tensor(&tree, NULL, DL_DTYPE_UINT8, 1, (uint64_t[]){3}), 0);
    assert_int_equal(tree_add_tensor(&tree, NULL, DL_DTYPE_UINT8, 1, (uint64_t[]){65}), 0);
    struct batch_layout layout = batch_layout_begin(slot_indices_end(3), &tree);
    assert_true(batch_layout_place(&layout, &tree.nodes[2]));
    assert_true(batch_layout_place(&layout, &tree.nodes[1]));
    assert_int_equal(tree.nodes[2].offset, layout.data_off);
    assert_int_equal(tree.nodes[1].offset, layout.data_off + 128);
    assert_int_equal(layout.used, layout.data_off + 131);
    batch_layout_zero_gaps(&layout, tree.nodes, slot);
    for (uint64_t at = layout.begin; at < sizeof slot; at++) {
        bool kept = (at >= layout.tree_off && at < layout.tree_off + layout.tree_len) ||
                    (at >= layout.data_off && at < layout.data_off + 65) ||
                    at >= layout.data_off + 128;
        assert_int_equal((uint8_t)slot[at], kept ? 0xaa : 0);
    }
    slot_put_batch(slot, 2, &layout);
    assert_true(header->samples == 2 && header->tree_count == 3 && header->used == layout.used);
    assert_true(header->error_code == 0 && header->error_more == 0);
    tree.nodes[1].nbytes = DL_MAX_SEGMENT_BYTES - SEGMENT_HEADER_BYTES - 640;
    layout.used = 640;
    assert_true(batch_layout_place(&layout, &tree.nodes[1]));
    assert_false(batch_layout_place(&layout, &tree.nodes[2]));
    tree.nodes[1].nbytes = UINT64_MAX;
    assert_false(batch_layout_place(&layout, &tree.nodes[1]));
    tree_deinit(&tree);
}

/* Cut to the room there is, but never within a character. */
TEST(test_error)
{
    static const char text[] = "h\xc3\xa4\xe2\x82\xac";
    static const size_t whole[] = {0, 1, 1, 3, 3, 3, 6};
    struct slot_error error = {
        .code = ERANGE, .begin = slot_indices_end(3), .index = 5, .text = text};
    uint64_t off = slot_indices_end(3);

    for (size_t room = 0; room < ARRAY_SIZE(whole); room++) {
        prepare();
        header->error_more = 9;
        assert_int_equal(slot_put_error(slot, off + room + 1, &error), -ERANGE);
        assert_true(header->error_code == ERANGE && header->error_index == 5);
        assert_int_equal(header->error_more, 0);
        assert_int_equal(header->error_off, off);
        assert_int_equal(header->error_len, whole[room]);
        assert_int_equal(header->used, off + whole[room] + 1);
        assert_memory_equal(slot + off, text, whole[room]);
        assert_int_equal(slot[off + whole[room]], 0);
        assert_int_equal((uint8_t)slot[off + room + 1], 0xaa);
    }
    assert_int_equal(slot_put_error(slot, off, &error), -ERANGE);
    assert_true(header->error_off == 0 && header->error_len == 0 && header->used == off);
    memset(slot, 0xaa, sizeof slot);
    assert_int_equal(slot_put_error(slot, SLOT_HEADER_BYTES - 1, &error), -ERANGE);
    assert_int_equal(header->error_code, 0xaaaaaaaa);
}
