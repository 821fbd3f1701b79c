/*
 * The tensor tree: how a sample or a batch is nested, as it stands in a slot.
 *
 * A tree is an array of `struct tree_node` in preorder followed by the bytes of its keys. A node
 * with children is followed by them; child i of a dict has a key. A leaf is a tensor: C-contiguous,
 * 64-byte aligned, `shape` in elements, `offset` in bytes from the start of the slot. A number is a
 * tensor of 0 dimensions.
 *
 * Or a leaf is text: TREE_STRING or TREE_BYTES, its dtype 0. With ndim 0 it is one string: nbytes
 * of it at `offset`, 64-byte aligned too. With ndim 1 it is the list of shape[0] = n strings that a
 * batch has of them: at `offset` n + 1 numbers u64, of which i and i + 1 are the beginning and end
 * of string i, counted from the end of these numbers; the first is 0, none is below the one before
 * it; then the strings' bytes, one after another. nbytes is all of that: 8·(n + 1) + the last
 * number. tree_text() reads either. More dimensions are invalid.
 *
 * An object is any other Python object: the first child of TREE_OBJECT is TREE_BYTES of ndim 0, a
 * pickle (protocol 5); the others are the tensors that the pickle refers to: its persistent ids are
 * ("t", i), a torch tensor, and ("n", i), a NumPy array, of child 1 + i.
 *
 * The same encoding describes a *sample schema* (what a dataset yields, without a batch dimension;
 * offsets are then 0) and a *batch* (with the batch dimension first, unless not batched).
 *
 * Pure; readers treat the bytes as untrusted and call tree_check() on a private copy of the nodes.
 */
#ifndef DL_TREE_H
#define DL_TREE_H

#include "proto/common/base.h"
#include "proto/common/error.h"
#include "proto/dtype.h"

enum tree_kind {
    TREE_TENSOR = 1,
    TREE_DICT = 2,
    TREE_LIST = 3,
    TREE_TUPLE = 4,
    TREE_STRING = 5, /* UTF-8 */
    TREE_BYTES = 6,
    TREE_OBJECT = 7, /* a container */
};

enum { TREE_DIMS = 8, TREE_ALIGN = 64 };

struct tree_node {
    uint16_t kind;             /* enum tree_kind */
    uint16_t dtype;            /* enum dl_dtype; 0 unless a tensor */
    uint16_t ndim;             /* 0..TREE_DIMS; of text 0 or 1 */
    uint16_t reserved;         /* 0 */
    uint32_t children;         /* direct children; 0 for a leaf */
    uint32_t key_len;          /* bytes, without NUL; 0 unless child of a dict */
    uint64_t key_off;          /* from the start of the node array; while building, from `keys` */
    uint64_t offset;           /* of the tensor's bytes, from the start of the slot */
    uint64_t nbytes;           /* product of shape times element size */
    uint64_t shape[TREE_DIMS]; /* unused entries 0 */
};
_Static_assert(sizeof(struct tree_node) == 104, "the slot layout is fixed");

/* A tree under construction or borrowed from a slot: `nodes` then `keys`. */
struct tree {
    struct tree_node *nodes; /* owned by builders, borrowed in views */
    uint32_t count;
    char *keys; /* owned by builders; in encoded form it follows the nodes */
    uint32_t keys_len;
    uint32_t nodes_room; /* builder: of the two arrays */
    uint32_t keys_room;
};

/*
 * Builder. tree_add() appends a container in preorder; `key` is NULL unless the parent is a dict.
 * Returns 0, -ENOMEM, -E2BIG past DL_MAX_TREE_NODES, -ENAMETOOLONG for a key above
 * DL_MAX_NAME_BYTES, -EINVAL for one that is not UTF-8; -EOVERFLOW for a shape of more than 63 bits
 * of bytes or an unknown dtype. The tree is then as before. tree_deinit() frees and zeroes.
 */
int _nodiscard_ tree_add(struct tree *tree, enum tree_kind kind, const char *key,
                         uint32_t children);
int _nodiscard_ tree_add_tensor(struct tree *tree, const char *key, uint32_t dtype, uint32_t ndim,
                                const uint64_t *shape);
/* One string, or bytes, of `nbytes`. */
int _nodiscard_ tree_add_text(struct tree *tree, enum tree_kind kind, const char *key,
                              uint64_t nbytes);
void tree_clear(struct tree *tree); /* empty again; keeps its memory */
void tree_deinit(struct tree *tree);

/* Bytes of the encoded form (nodes, then keys), and the form itself: `out` is 8-byte aligned. */
size_t tree_encoded_bytes(const struct tree *tree);
void tree_encode(const struct tree *tree, void *out);

/*
 * Checks an encoded tree of `len` bytes that holds `count` nodes and whose tensors must lie within
 * [0, slot_bytes) of their slot: kinds, counts, depth, keys inside the key area, dtype, shape
 * product equal to nbytes, room for a list's numbers (not what they are: see tree_text()),
 * alignment, bounds. Returns 0, or -EBADMSG with `err` filled. `encoded` is 8-byte aligned. Two
 * children of one dict may have the same key: look-ups find the first. `nodes` must be private
 * memory (a copy), or a hostile writer could change it after the check.
 */
int _nodiscard_ tree_check(const void *encoded, size_t len, uint32_t count, uint64_t slot_bytes,
                           struct dl_error *err);

/* The key of a node inside its encoded tree; not NUL-terminated: key_len bytes. */
static inline const char *tree_key(const void *encoded, const struct tree_node *node)
{
    return (const char *)encoded + node->key_off;
}

/* The node after `node` and all its descendants: the next sibling in a checked tree. */
const struct tree_node *tree_skip(const struct tree_node *node);

/*
 * String i of a text leaf in a checked tree: where it lies in `slot`, and its length. i is 0 for
 * one string, below shape[0] for a list. False when the numbers in the slot, which its writer may
 * change at any time, lead out of the leaf.
 */
bool _nodiscard_ tree_text(const struct tree_node *node, const void *slot, uint64_t i,
                           const char **ret, uint64_t *ret_len);

/* Product of a shape times the element size; false when it does not fit 63 bits. */
bool _nodiscard_ tensor_bytes(uint32_t dtype, uint32_t ndim, const uint64_t *shape, uint64_t *ret);

#endif
