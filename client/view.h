/*
 * A batch's tensor tree, copied out of shared memory and checked once.
 *
 * The copy is what everyone uses afterwards, so a hostile writer can change nothing behind the
 * check. Batches of one epoch nearly always carry the same tree: view_get() compares the bytes in
 * the slot with the view it checked last and shares that one when they are equal, which costs a
 * memcmp and no allocation.
 *
 * Counted, not atomically: views belong to the client's thread.
 */
#ifndef DL_CLIENT_VIEW_H
#define DL_CLIENT_VIEW_H

#include "client/dlclient.h"
#include "proto/tree.h"

struct view {
    uint32_t refs;
    uint32_t count;
    struct view *whole; /* counted; NULL: it is the whole batch; else this is some rows of it */
    uint64_t first;     /* of the rows */
    uint64_t rows;
    uint64_t slot_bytes; /* what its leaves were checked against */
    uint64_t leaf_bytes; /* of all tensors and texts; of rows without lists of text */
    uint8_t *depths;     /* of each node; inside this allocation */
    uint64_t len;
    _Alignas(8) uint8_t encoded[]; /* nodes, then keys */
};

struct view *view_unref(struct view *view); /* NULL is fine; returns NULL */

/*
 * The view of the `len` bytes of encoded tree at `shared`, `count` nodes, in a slot of
 * `slot_bytes`: *cache if it is the same, else a new one that replaces *cache. Returns 0 and a
 * reference of the caller's own, -ENOMEM, or -EBADMSG with `err` filled.
 */
int _nodiscard_ view_get(struct view **cache, const void *shared, uint64_t len, uint32_t count,
                         uint64_t slot_bytes, struct view **ret, struct dl_error *err);

/*
 * The view of `rows` rows of a batch that has `all`, from `first` on, all within it: *cache if it
 * is the same, else a new one that replaces *cache. Tensors begin where their rows do, so they are
 * only aligned to their elements. Returns 0 and the caller's own reference; -ENOMEM; or -EINVAL,
 * and *ret_bad is the node of the first leaf that does not have one row per sample.
 */
int _nodiscard_ view_slice(struct view **cache, struct view *whole, uint64_t all, uint64_t first,
                           uint64_t rows, struct view **ret, uint32_t *ret_bad);

static inline const struct tree_node *view_node(const struct view *view, uint32_t i)
{
    return (const struct tree_node *)(const void *)view->encoded + i;
}

/* The node at `path` ("pair.0"; NULL or "": the root): 0 and *ret, or -ENOENT. */
int _nodiscard_ view_find(const struct view *view, const char *path, const struct tree_node **ret);

/* A string or bytes, one or a list of them; and how many. */
bool view_is_text(const struct tree_node *node);
uint64_t view_text_count(const struct tree_node *node);

/*
 * Where string `i` of a node that is text lies in the slot. False: the numbers there, which its
 * writer may change at any time, lead out of the leaf.
 */
bool _nodiscard_ view_text(const struct view *view, const struct tree_node *node,
                           const uint8_t *slot, uint64_t i, const char **ret, uint64_t *ret_len);

/* Bytes of a text node, as in dl_node.text_nbytes. */
uint64_t view_text_bytes(const struct view *view, const struct tree_node *node,
                         const uint8_t *slot);

/*
 * The view of these rows as a batch of their own: behind `begin` bytes, with each leaf aligned
 * separately. *ret_end: the most that takes, with text; NULL: out of memory.
 */
struct view *view_pack(const struct view *slice, uint64_t begin, uint64_t *ret_end);

/* Copies what the slice has in `slot` to where the packed view says, in `to`: what there is of text
 * is noted in the view. */
void view_copy(const struct view *slice, const uint8_t *slot, struct view *packed, uint8_t *to);

/* Bytes of all leaves. */
uint64_t view_bytes(const struct view *view, const uint8_t *slot);

/* What the node, a tensor, looks like in the slot. */
void view_tensor(const struct tree_node *node, const uint8_t *slot, struct dl_tensor *ret);

#endif
