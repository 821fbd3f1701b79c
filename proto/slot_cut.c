#include "proto/slot_cut.h"

#include <assert.h>
#include <errno.h>

static bool slot_cut_is_text(const struct tree_node *node)
{
    return node->kind == TREE_STRING || node->kind == TREE_BYTES;
}

bool tree_has_rows(const struct tree_node *leaf, uint64_t samples)
{
    return leaf->kind != TREE_OBJECT && leaf->ndim > 0 && leaf->shape[0] == samples;
}

static bool slot_cut_is_leaf(const struct tree_node *node)
{
    return node->kind == TREE_TENSOR || node->kind == TREE_OBJECT || slot_cut_is_text(node);
}

static void slot_cut_tensor(struct tree_node *node, char *data, uint64_t first, uint64_t rows)
{
    uint64_t row = node->nbytes / node->shape[0];

    memmove(data, data + first * row, rows * row);
    node->nbytes = rows * row;
}

/* The numbers before the strings count from where the strings begin: there are fewer of both. */
static void slot_cut_list(struct tree_node *node, char *data, uint64_t first, uint64_t rows)
{
    uint64_t *numbers = (uint64_t *)(void *)data;
    uint64_t begin = numbers[first], end = numbers[first + rows];
    const char *strings = (const char *)(numbers + node->shape[0] + 1);

    for (uint64_t i = 0; i <= rows; i++)
        numbers[i] = numbers[first + i] - begin;
    memmove(numbers + rows + 1, strings + begin, end - begin);
    node->nbytes = (rows + 1) * sizeof *numbers + end - begin;
}

int slot_cut(void *slot, uint32_t first, uint32_t rows, uint32_t *ret_bad)
{
    struct slot_header *header = slot;
    struct tree_node *nodes = (struct tree_node *)(void *)((char *)slot + header->tree_off);
    uint64_t *indices = (uint64_t *)(void *)((char *)slot + header->indices_off);

    assert(header->planned == 0 && first <= header->samples && rows <= header->samples - first);
    for (uint32_t i = 0; i < header->tree_count; i++) {
        *ret_bad = i;
        if (slot_cut_is_leaf(&nodes[i]) && !tree_has_rows(&nodes[i], header->samples))
            return -EINVAL;
    }
    for (uint32_t i = 0; i < header->tree_count; i++) {
        if (!slot_cut_is_leaf(&nodes[i]))
            continue;
        if (slot_cut_is_text(&nodes[i]))
            slot_cut_list(&nodes[i], (char *)slot + nodes[i].offset, first, rows);
        else
            slot_cut_tensor(&nodes[i], (char *)slot + nodes[i].offset, first, rows);
        nodes[i].shape[0] = rows;
    }
    memmove(indices, indices + first, rows * sizeof *indices);
    header->samples = rows;
    return 0;
}
