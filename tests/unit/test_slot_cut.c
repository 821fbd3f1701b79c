/* Rows of a slot of one's own become all that is in it. */
#include "proto/slot_cut.h"
#include "proto/slot_fill.h"

#include "tests/lib/harness.h"

#include <errno.h>

enum { ROWS = 5, SLOT = 4096, NODES_AT = 256, IMAGE_AT = 1024, TEXT_AT = 2048, EMPTY_AT = 3072 };

/* {"image": int16 [ROWS, 3], "name": ROWS strings of i bytes, "none": float32 [ROWS, 0]} */
static void fill(uint8_t *slot, uint32_t ndim, enum tree_kind kind)
{
    const uint64_t image[] = {ROWS, 3}, none[] = {ROWS, 0};
    uint64_t indices[ROWS], text = (ROWS + 1) * 8 + ROWS * (ROWS - 1) / 2, at = 0;
    struct slot_header *header = (struct slot_header *)(void *)slot;
    struct tree tree = {0};

    for (uint64_t i = 0; i < ROWS; i++)
        indices[i] = 70 + i;
    memset(slot, 0, SLOT);
    assert_true(slot_prepare(
        slot, SLOT, &(struct slot_task){.generation = 1, .indices = indices, .samples = ROWS}));
    assert_int_equal(tree_add(&tree, kind, NULL, 3), 0);
    assert_int_equal(
        tree_add_tensor(&tree, kind == TREE_DICT ? "image" : NULL, DL_DTYPE_INT16, ndim, image), 0);
    assert_int_equal(tree_add_text(&tree, TREE_BYTES, kind == TREE_DICT ? "name" : NULL, text), 0);
    assert_int_equal(
        tree_add_tensor(&tree, kind == TREE_DICT ? "none" : NULL, DL_DTYPE_FLOAT32, 2, none), 0);
    tree.nodes[1].offset = IMAGE_AT;
    tree.nodes[2].offset = TEXT_AT;
    tree.nodes[2].ndim = 1;
    tree.nodes[2].shape[0] = ROWS;
    tree.nodes[3].offset = EMPTY_AT;
    header->tree_off = NODES_AT;
    header->tree_len = (uint32_t)tree_encoded_bytes(&tree);
    header->tree_count = tree.count;
    tree_encode(&tree, slot + NODES_AT);
    tree_deinit(&tree);
    for (int i = 0; i < ROWS * 3; i++)
        ((int16_t *)(void *)(slot + IMAGE_AT))[i] = (int16_t)(i / 3);
    uint64_t *numbers = (uint64_t *)(void *)(slot + TEXT_AT);
    char *strings = (char *)(numbers + ROWS + 1);
    for (int i = 0; i < ROWS; i++) {
        numbers[i] = at;
        memset(strings + at, 'a' + i, (size_t)i);
        at += (uint64_t)i;
    }
    numbers[ROWS] = at;
}

static void expect(const uint8_t *slot, uint32_t first, uint32_t rows)
{
    const struct slot_header *header = (const struct slot_header *)(const void *)slot;
    const struct tree_node *nodes = (const struct tree_node *)(const void *)(slot + NODES_AT);
    uint64_t strings = 0;

    assert_int_equal(header->samples, rows);
    assert_int_equal(tree_check(nodes, header->tree_len, header->tree_count, SLOT, NULL), 0);
    for (uint32_t i = 0; i < rows; i++) {
        const char *text;
        uint64_t len;
        assert_int_equal(slot_indices((void *)(uintptr_t)slot)[i], 70 + first + i);
        for (uint32_t j = 0; j < 3; j++)
            assert_int_equal(((const int16_t *)(const void *)(slot + IMAGE_AT))[3 * i + j],
                             first + i);
        assert_true(tree_text(&nodes[2], slot, i, &text, &len));
        assert_int_equal(len, first + i);
        for (uint64_t j = 0; j < len; j++)
            assert_int_equal(text[j], 'a' + (int)(first + i));
        strings += len;
    }
    assert_int_equal(nodes[1].shape[0], rows);
    assert_int_equal(nodes[1].nbytes, rows * 6);
    assert_int_equal(nodes[2].nbytes, (rows + 1) * 8 + strings);
    assert_int_equal(nodes[3].shape[0], rows);
    assert_int_equal(((const uint64_t *)(const void *)(slot + TEXT_AT))[rows], strings);
}

TEST(test_every_part)
{
    static _Alignas(64) uint8_t slot[SLOT];
    uint32_t bad;

    for (uint32_t first = 0; first < ROWS; first++)
        for (uint32_t rows = 1; rows <= ROWS - first; rows++) {
            fill(slot, 2, TREE_DICT);
            assert_int_equal(slot_cut(slot, first, rows, &bad), 0);
            expect(slot, first, rows);
            if (rows > 1) { /* and a part of that */
                assert_int_equal(slot_cut(slot, 1, rows - 1, &bad), 0);
                expect(slot, first + 1, rows - 1);
            }
        }
}

TEST(test_leaves_without_rows)
{
    static _Alignas(64) uint8_t slot[SLOT], before[SLOT];
    uint32_t bad;

    fill(slot, 0, TREE_DICT);
    memcpy(before, slot, SLOT);
    assert_int_equal(slot_cut(slot, 1, 2, &bad), -EINVAL);
    assert_int_equal(bad, 1);
    assert_memory_equal(slot, before, SLOT);
    fill(slot, 2, TREE_OBJECT);
    assert_int_equal(slot_cut(slot, 1, 2, &bad), -EINVAL);
    assert_int_equal(bad, 0);
}
