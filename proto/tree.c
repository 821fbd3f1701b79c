/*
 * Building and checking tensor trees. The check is the client's and the daemon's wall against a
 * worker gone wrong: after it, walking by `children`, reading keys and viewing tensors and text
 * cannot leave the bytes it was given.
 */
#include "proto/tree.h"

#include "proto/common/array.h"
#include "proto/common/utf8.h"
#include "proto/limits.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>

_Static_assert((int)TREE_DIMS == (int)DL_BOUND_TENSOR_DIMS, "one maximum, two names");

bool tensor_bytes(uint32_t dtype, uint32_t ndim, const uint64_t *shape, uint64_t *ret)
{
    uint64_t bytes = dtype_bytes(dtype);
    bool empty = false;

    if (bytes == 0 || ndim > TREE_DIMS)
        return false;
    /* Strides are made of the dimensions even when one is 0: the product without zeros must fit. */
    for (uint32_t i = 0; i < ndim; i++) {
        if (shape[i] == 0)
            empty = true;
        else if (mul_overflows(bytes, shape[i], &bytes) || bytes > INT64_MAX)
            return false;
    }
    *ret = empty ? 0 : bytes;
    return true;
}

/* ---- builder ------------------------------------------------------------------------------- */

/* Appends `node` with `key`; all or nothing. */
static int tree_append(struct tree *tree, struct tree_node node, const char *key)
{
    size_t len = key ? strlen(key) : 0;

    if (tree->count >= DL_MAX_TREE_NODES)
        return -E2BIG;
    if (len > DL_MAX_NAME_BYTES)
        return -ENAMETOOLONG;
    if (!utf8_text((const uint8_t *)key, len))
        return -EINVAL;
    if (!array_reserve(tree->nodes, tree->nodes_room, tree->count + UINT64_C(1)) ||
        !array_reserve(tree->keys, tree->keys_room, tree->keys_len + len))
        return -ENOMEM;
    if (len > 0)
        memcpy(tree->keys + tree->keys_len, key, len);
    node.key_len = (uint32_t)len;
    node.key_off = len > 0 ? tree->keys_len : 0;
    tree->nodes[tree->count++] = node;
    tree->keys_len += (uint32_t)len;
    return 0;
}

int tree_add(struct tree *tree, enum tree_kind kind, const char *key, uint32_t children)
{
    assert(kind == TREE_DICT || kind == TREE_LIST || kind == TREE_TUPLE || kind == TREE_OBJECT);
    return tree_append(tree, (struct tree_node){.kind = kind, .children = children}, key);
}

int tree_add_tensor(struct tree *tree, const char *key, uint32_t dtype, uint32_t ndim,
                    const uint64_t *shape)
{
    struct tree_node node = {.kind = TREE_TENSOR};

    if (!tensor_bytes(dtype, ndim, shape, &node.nbytes))
        return -EOVERFLOW;
    node.dtype = (uint16_t)dtype;
    node.ndim = (uint16_t)ndim;
    if (ndim > 0)
        memcpy(node.shape, shape, ndim * sizeof *shape);
    return tree_append(tree, node, key);
}

int tree_add_text(struct tree *tree, enum tree_kind kind, const char *key, uint64_t nbytes)
{
    assert(kind == TREE_STRING || kind == TREE_BYTES);
    if (nbytes > INT64_MAX)
        return -EOVERFLOW;
    return tree_append(tree, (struct tree_node){.kind = kind, .nbytes = nbytes}, key);
}

void tree_clear(struct tree *tree)
{
    tree->count = 0;
    tree->keys_len = 0;
}

void tree_deinit(struct tree *tree)
{
    free(tree->nodes);
    free(tree->keys);
    memset(tree, 0, sizeof *tree);
}

size_t tree_encoded_bytes(const struct tree *tree)
{
    return tree->count * sizeof(struct tree_node) + tree->keys_len;
}

void tree_encode(const struct tree *tree, void *out)
{
    size_t keys_at = tree->count * sizeof(struct tree_node);
    struct tree_node *nodes = out;

    assert((uintptr_t)out % _Alignof(struct tree_node) == 0);
    if (tree->count > 0)
        memcpy(nodes, tree->nodes, keys_at);
    for (uint32_t i = 0; i < tree->count; i++)
        if (nodes[i].key_len > 0)
            nodes[i].key_off += keys_at;
    if (tree->keys_len > 0)
        memcpy((char *)out + keys_at, tree->keys, tree->keys_len);
}

/* ---- check --------------------------------------------------------------------------------- */

/* The encoded bytes, and the node at hand. */
struct check {
    const void *encoded;
    size_t len;
    uint32_t count;
    uint32_t index; /* of the node that is checked */
    uint64_t slot_bytes;
    struct dl_error *err;
};

#define damaged(check, ...) dl_error_set((check)->err, EBADMSG, "batch tree", "node " __VA_ARGS__)

/* Of any leaf: nothing in unused dimensions, and bytes that lie in the slot. */
static int tree_check_place(const struct check *check, const struct tree_node *node)
{
    uint64_t end;

    for (uint32_t i = node->ndim; i < TREE_DIMS; i++)
        if (node->shape[i] != 0)
            return damaged(check, "%u: a dimension beyond its last", check->index);
    if (node->offset % TREE_ALIGN != 0)
        return damaged(check, "%u: offset %" PRIu64 " is not a multiple of %d", check->index,
                       node->offset, TREE_ALIGN);
    if (add_overflows(node->offset, node->nbytes, &end) || end > check->slot_bytes)
        return damaged(check, "%u: bytes %" PRIu64 " at %" PRIu64 " end beyond the slot's %" PRIu64,
                       check->index, node->nbytes, node->offset, check->slot_bytes);
    return 0;
}

/* A tensor's own fields: type, shape, size and where its bytes lie. */
static int tree_check_tensor(const struct check *check, const struct tree_node *node)
{
    uint64_t bytes;

    if (node->children != 0)
        return damaged(check, "%u: a tensor with children", check->index);
    if (node->ndim > TREE_DIMS)
        return damaged(check, "%u: %u dimensions are more than %d", check->index, node->ndim,
                       TREE_DIMS);
    if (!tensor_bytes(node->dtype, node->ndim, node->shape, &bytes))
        return damaged(check, "%u: unknown element type %u, or a shape too large", check->index,
                       node->dtype);
    if (bytes != node->nbytes)
        return damaged(check, "%u: %" PRIu64 " bytes, but its shape has %" PRIu64, check->index,
                       node->nbytes, bytes);
    return tree_check_place(check, node);
}

/* A text's: one string, or a list of them with room for the numbers in front. */
static int tree_check_text(const struct check *check, const struct tree_node *node)
{
    uint64_t numbers;

    if (node->children != 0)
        return damaged(check, "%u: text with children", check->index);
    if (node->dtype != 0)
        return damaged(check, "%u: text with element type %u", check->index, node->dtype);
    if (node->ndim > 1)
        return damaged(check, "%u: text of %u dimensions; it has none or one", check->index,
                       node->ndim);
    if (node->ndim == 1 &&
        (add_overflows(node->shape[0], 1, &numbers) ||
         mul_overflows(numbers, sizeof(uint64_t), &numbers) || numbers > node->nbytes))
        return damaged(check, "%u: %" PRIu64 " strings do not fit %" PRIu64 " bytes", check->index,
                       node->shape[0], node->nbytes);
    return tree_check_place(check, node);
}

static bool tree_is_container(const struct tree_node *node)
{
    return node->kind == TREE_DICT || node->kind == TREE_LIST || node->kind == TREE_TUPLE ||
           node->kind == TREE_OBJECT;
}

static int tree_check_container(const struct check *check, const struct tree_node *node)
{
    uint64_t shape = 0;

    for (uint32_t i = 0; i < TREE_DIMS; i++)
        shape |= node->shape[i];
    if (node->dtype || node->ndim || node->offset || node->nbytes || shape)
        return damaged(check, "%u: a container with a tensor's fields", check->index);
    if (node->kind == TREE_OBJECT && node->children == 0)
        return damaged(check, "%u: an object without its pickle", check->index);
    if (node->children > check->count - check->index - 1)
        return damaged(check, "%u: %u children, but only %u nodes follow", check->index,
                       node->children, check->count - check->index - 1);
    return 0;
}

/* A pickle, then the tensors it refers to. */
static int tree_check_in_object(const struct check *check, const struct tree_node *node,
                                const struct tree_node *object)
{
    bool first = node == object + 1;

    if (first && (node->kind != TREE_BYTES || node->ndim != 0))
        return damaged(check, "%u: an object that does not begin with its pickle", check->index);
    if (!first && node->kind != TREE_TENSOR)
        return damaged(check, "%u: kind %u in an object, where only tensors stand", check->index,
                       node->kind);
    return 0;
}

static int tree_check_key(const struct check *check, const struct tree_node *node, bool in_dict)
{
    uint64_t keys_at = check->count * sizeof *node, end;

    if (node->key_len == 0)
        return node->key_off ? damaged(check, "%u: a place for no key", check->index) : 0;
    if (!in_dict)
        return damaged(check, "%u: a key, but its parent is not a dict", check->index);
    if (node->key_len > DL_MAX_NAME_BYTES)
        return damaged(check, "%u: a key of %u bytes", check->index, node->key_len);
    if (node->key_off < keys_at || add_overflows(node->key_off, node->key_len, &end) ||
        end > check->len)
        return damaged(check, "%u: a key outside the key area", check->index);
    if (!utf8_text((const uint8_t *)tree_key(check->encoded, node), node->key_len))
        return damaged(check, "%u: a key that is not UTF-8 without NUL", check->index);
    return 0;
}

static int tree_check_node(const struct check *check, const struct tree_node *node,
                           const struct tree_node *parent)
{
    int r;

    if (node->reserved != 0)
        return damaged(check, "%u: reserved field is not 0", check->index);
    r = tree_check_key(check, node, parent && parent->kind == TREE_DICT);
    if (r == 0 && parent && parent->kind == TREE_OBJECT)
        r = tree_check_in_object(check, node, parent);
    if (r < 0)
        return r;
    switch (node->kind) {
    case TREE_TENSOR:
        return tree_check_tensor(check, node);
    case TREE_STRING:
    case TREE_BYTES:
        return tree_check_text(check, node);
    case TREE_DICT:
    case TREE_LIST:
    case TREE_TUPLE:
    case TREE_OBJECT:
        return tree_check_container(check, node);
    default:
        return damaged(check, "%u: unknown kind %u", check->index, node->kind);
    }
}

int tree_check(const void *encoded, size_t len, uint32_t count, uint64_t slot_bytes,
               struct dl_error *err)
{
    struct check check = {encoded, len, count, 0, slot_bytes, err};
    const struct tree_node *nodes = encoded;
    struct {
        uint32_t missing; /* children not yet begun */
        uint32_t node;
    } open[DL_BOUND_TREE_DEPTH];
    uint32_t depth = 0;

    assert((uintptr_t)encoded % _Alignof(struct tree_node) == 0);
    if (count == 0 || count > DL_MAX_TREE_NODES || len < count * sizeof *nodes ||
        len > count * (sizeof *nodes + DL_MAX_NAME_BYTES))
        return dl_error_set(err, EBADMSG, "batch tree", "%zu bytes for %u nodes", len, count);
    for (; check.index < count; check.index++) {
        const struct tree_node *node = &nodes[check.index];
        const struct tree_node *parent = NULL;

        while (depth > 0 && open[depth - 1].missing == 0)
            depth--;
        if (depth > 0) {
            open[depth - 1].missing--;
            parent = &nodes[open[depth - 1].node];
        } else if (check.index > 0) {
            return damaged(&check, "%u: lies outside the root", check.index);
        }
        int r = tree_check_node(&check, node, parent);
        if (r < 0)
            return r;
        if (!tree_is_container(node))
            continue;
        if (depth == DL_BOUND_TREE_DEPTH)
            return damaged(&check, "%u: nested deeper than %d", check.index, DL_BOUND_TREE_DEPTH);
        open[depth].missing = node->children;
        open[depth++].node = check.index;
    }
    while (depth > 0)
        if (open[--depth].missing > 0)
            return dl_error_set(err, EBADMSG, "batch tree", "ends before its last child");
    return 0;
}

bool tree_text(const struct tree_node *node, const void *slot, uint64_t i, const char **ret,
               uint64_t *ret_len)
{
    const char *leaf = (const char *)slot + node->offset;
    uint64_t numbers, begin, end;

    if (node->ndim == 0) {
        *ret = leaf;
        *ret_len = node->nbytes;
        return i == 0;
    }
    if (i >= node->shape[0])
        return false;
    numbers = (node->shape[0] + 1) * sizeof(uint64_t);
    /* Once each: they are shared memory. */
    begin = __atomic_load_n((const uint64_t *)(const void *)leaf + i, __ATOMIC_RELAXED);
    end = __atomic_load_n((const uint64_t *)(const void *)leaf + i + 1, __ATOMIC_RELAXED);
    if (begin > end || end > node->nbytes - numbers)
        return false;
    *ret = leaf + numbers + begin;
    *ret_len = end - begin;
    return true;
}

const struct tree_node *tree_skip(const struct tree_node *node)
{
    uint64_t missing = 1;

    while (missing > 0)
        missing += (uint64_t)(node++)->children - 1;
    return node;
}
