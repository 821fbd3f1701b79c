/*
 * The check of a batch's tree. What passes can be walked, read and built anew without leaving the
 * bytes that were checked; the new one passes as well.
 *
 * Input: two bytes = number of nodes, two = size of the slot in units of 64 bytes (both
 * little-endian); then nodes and keys.
 */
#include "tests/fuzz/fuzz.h"

#include "proto/limits.h"
#include "proto/tree.h"

enum { HEAD = 4, STRINGS_MAX = 256 };

/* Walks the children of `node` by tree_skip(), which must end where `node` ends. */
static void check_children(const struct tree_node *nodes, uint32_t count, uint32_t at)
{
    const struct tree_node *child = nodes + at + 1, *end = tree_skip(nodes + at);

    FUZZ_ASSERT(end <= nodes + count);
    for (uint32_t i = 0; i < nodes[at].children; i++) {
        FUZZ_ASSERT(child < end);
        child = tree_skip(child);
    }
    FUZZ_ASSERT(child == end);
}

static void check_node(const void *encoded, size_t len, const struct tree_node *node,
                       uint64_t slot_bytes)
{
    char key[DL_BOUND_NAME_BYTES];
    uint64_t bytes = 0;

    FUZZ_ASSERT(node->key_len <= sizeof key);
    if (node->key_len > 0) {
        FUZZ_ASSERT(node->key_off + node->key_len <= len);
        memcpy(key, tree_key(encoded, node), node->key_len);
    }
    if (node->kind == TREE_DICT || node->kind == TREE_LIST || node->kind == TREE_TUPLE)
        return;
    FUZZ_ASSERT(node->offset % TREE_ALIGN == 0);
    FUZZ_ASSERT(node->offset <= slot_bytes && node->nbytes <= slot_bytes - node->offset);
    if (node->kind != TREE_TENSOR)
        return;
    FUZZ_ASSERT(node->ndim <= TREE_DIMS && dtype_bytes(node->dtype) > 0);
    FUZZ_ASSERT(tensor_bytes(node->dtype, node->ndim, node->shape, &bytes));
    FUZZ_ASSERT(bytes == node->nbytes);
}

/* Every string of the leaf, up to a number that a fuzzer can afford. */
static void check_text(const struct tree_node *node, const uint8_t *slot)
{
    const char *leaf = (const char *)slot + node->offset, *text;
    uint64_t n = node->ndim ? node->shape[0] : 1, len;

    FUZZ_ASSERT(node->dtype == 0 && node->ndim <= 1 && node->children == 0);
    FUZZ_ASSERT(!tree_text(node, slot, n, &text, &len));
    for (uint64_t i = 0; i < min_u64(n, STRINGS_MAX); i++) {
        if (!tree_text(node, slot, i, &text, &len))
            continue;
        FUZZ_ASSERT(text >= leaf && len <= node->nbytes);
        FUZZ_ASSERT((uint64_t)(text - leaf) <= node->nbytes - len);
    }
}

/* The slot holds the input again and again: numbers in it lead anywhere. */
static void check_texts(const struct tree_node *nodes, uint32_t count, uint64_t slot_bytes,
                        const uint8_t *data, size_t len)
{
    _cleanup_free_ uint8_t *slot = NULL;

    if (slot_bytes > 0)
        slot = aligned_alloc(TREE_ALIGN, slot_bytes);
    for (uint64_t at = 0; slot && at < slot_bytes; at += len)
        memcpy(slot + at, data, min_u64(len, slot_bytes - at));
    for (uint32_t i = 0; i < count && slot; i++)
        if (nodes[i].kind == TREE_STRING || nodes[i].kind == TREE_BYTES)
            check_text(&nodes[i], slot);
}

static void build_again(const void *encoded, const struct tree_node *nodes, uint32_t count,
                        uint64_t slot_bytes)
{
    struct tree tree = {0};

    for (uint32_t i = 0; i < count; i++) {
        const struct tree_node *node = &nodes[i];
        char key[DL_BOUND_NAME_BYTES + 1] = "";
        const char *name = node->key_len > 0 ? key : NULL;

        memcpy(key, tree_key(encoded, node), node->key_len);
        if (node->kind == TREE_TENSOR) {
            FUZZ_ASSERT(tree_add_tensor(&tree, name, node->dtype, node->ndim, node->shape) == 0);
            tree.nodes[i].offset = node->offset;
        } else if (node->kind == TREE_STRING || node->kind == TREE_BYTES) {
            FUZZ_ASSERT(tree_add_text(&tree, node->kind, name, node->nbytes) == 0);
            tree.nodes[i].offset = node->offset;
            tree.nodes[i].ndim = node->ndim;
            tree.nodes[i].shape[0] = node->shape[0];
        } else {
            FUZZ_ASSERT(tree_add(&tree, node->kind, name, node->children) == 0);
        }
    }
    size_t len = tree_encoded_bytes(&tree);
    void *again = malloc(len);
    if (again) {
        tree_encode(&tree, again);
        FUZZ_ASSERT(tree_check(again, len, count, slot_bytes, NULL) == 0);
    }
    free(again);
    tree_deinit(&tree);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    _cleanup_free_ struct tree_node *nodes = NULL;
    uint64_t slot_bytes;
    uint32_t count;

    if (len < HEAD)
        return 0;
    count = data[0] | (uint32_t)data[1] << 8;
    slot_bytes = (data[2] | (uint64_t)data[3] << 8) * 64;
    len -= HEAD;
    nodes = malloc(len ? len : 1); /* aligned, and private, as tree_check() asks */
    if (!nodes)
        return 0;
    memcpy(nodes, data + HEAD, len);
    if (tree_check(nodes, len, count, slot_bytes, NULL) < 0)
        return 0;
    FUZZ_ASSERT(tree_skip(nodes) == nodes + count);
    for (uint32_t i = 0; i < count; i++) {
        check_children(nodes, count, i);
        check_node(nodes, len, &nodes[i], slot_bytes);
    }
    check_texts(nodes, count, slot_bytes, data, len + HEAD);
    build_again(nodes, nodes, count, slot_bytes);
    return 0;
}
