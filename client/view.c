/* Checked copies of tensor trees and look-ups in them: view.h. */
#include "client/view.h"

#include "proto/limits.h"
#include "proto/slot_cut.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>

_Static_assert(ARRAY_SIZE(((struct dl_tensor *)NULL)->shape) == TREE_DIMS, "public and wire agree");
_Static_assert((int)DL_NODE_TENSOR == TREE_TENSOR && (int)DL_NODE_DICT == TREE_DICT &&
                   (int)DL_NODE_LIST == TREE_LIST && (int)DL_NODE_TUPLE == TREE_TUPLE &&
                   (int)DL_NODE_STRING == TREE_STRING && (int)DL_NODE_BYTES == TREE_BYTES &&
                   (int)DL_NODE_OBJECT == TREE_OBJECT,
               "public and wire agree");
#define DTYPE(NAME, number, bytes, name, numpy, dlpack) \
    _Static_assert(DL_##NAME == number, "public and wire agree");
#include "proto/dtype.def"
#undef DTYPE

static struct view *view_ref(struct view *view)
{
    assert(view->refs > 0);
    view->refs++;
    return view;
}

struct view *view_unref(struct view *view)
{
    if (view && --view->refs == 0) {
        view_unref(view->whole);
        free(view);
    }
    return NULL;
}

/* Depth of every node and the sum of all leaves, in one walk over the preorder. */
static void view_measure(struct view *view)
{
    uint32_t open[DL_BOUND_TREE_DEPTH]; /* children still to come, for each level above */
    uint32_t depth = 0;

    for (uint32_t i = 0; i < view->count; i++) {
        const struct tree_node *node = view_node(view, i);

        while (depth > 0 && open[depth - 1] == 0)
            depth--;
        if (depth > 0)
            open[depth - 1]--;
        view->depths[i] = (uint8_t)depth;
        view->leaf_bytes += node->nbytes;
        if (node->children > 0) {
            assert(depth < ARRAY_SIZE(open));
            open[depth++] = node->children;
        }
    }
}

static int view_new(const void *shared, uint64_t len, uint32_t count, uint64_t slot_bytes,
                    struct view **ret, struct dl_error *err)
{
    const uint64_t most = DL_MAX_TREE_NODES * (sizeof(struct tree_node) + DL_MAX_NAME_BYTES);
    struct view *view;
    int r;

    if (count == 0 || count > DL_MAX_TREE_NODES || len > most)
        return dl_error_set(err, EBADMSG, "", "a tree of %u nodes in %llu bytes", count, (ull)len);
    view = malloc(sizeof *view + len + count);
    if (!view)
        return dl_error_set(err, ENOMEM, "", "no memory for a tree of %u nodes", count);
    *view = (struct view){
        .refs = 1,
        .count = count,
        .slot_bytes = slot_bytes,
        .depths = view->encoded + len,
        .len = len,
    };
    memcpy(view->encoded, shared, len);
    r = tree_check(view->encoded, len, count, slot_bytes, err);
    if (r < 0) {
        free(view);
        return r;
    }
    view_measure(view);
    *ret = view;
    return 0;
}

int view_get(struct view **cache, const void *shared, uint64_t len, uint32_t count,
             uint64_t slot_bytes, struct view **ret, struct dl_error *err)
{
    struct view *view = *cache;
    int r;

    if (!view || view->len != len || view->count != count || view->slot_bytes != slot_bytes ||
        memcmp(view->encoded, shared, len) != 0) {
        r = view_new(shared, len, count, slot_bytes, &view, err);
        if (r < 0)
            return r;
        view_unref(*cache);
        *cache = view;
    }
    *ret = view_ref(view);
    return 0;
}

/* ---- rows of a batch ---- */

static bool view_is_list(const struct tree_node *node)
{
    return view_is_text(node) && node->ndim == 1;
}

/* Of a list only the number of strings: their places are in the whole list. */
static void view_cut(struct tree_node *node, const struct view *slice)
{
    uint64_t row = node->nbytes / node->shape[0];

    node->shape[0] = slice->rows;
    if (node->kind != TREE_TENSOR)
        return;
    node->offset += slice->first * row;
    node->nbytes = slice->rows * row;
}

/* UINT32_MAX: all leaves can be cut; objects are leaves here. */
static uint32_t view_find_uncut(const struct view *view, uint64_t all)
{
    for (uint32_t i = 0; i < view->count; i++) {
        const struct tree_node *node = view_node(view, i);
        bool leaf = node->kind == TREE_TENSOR || node->kind == TREE_OBJECT || view_is_text(node);

        if (leaf && !tree_has_rows(node, all))
            return i;
    }
    return UINT32_MAX;
}

static struct tree_node *view_node_of(struct view *view, uint32_t i)
{
    return (struct tree_node *)(void *)view->encoded + i;
}

/* A copy to be changed: it owns no rows, and its bytes are not counted. */
static struct view *view_dup(const struct view *view)
{
    struct view *copy = malloc(sizeof *copy + view->len + view->count);

    if (!copy)
        return NULL;
    memcpy(copy, view, sizeof *copy + view->len + view->count);
    copy->refs = 1;
    copy->depths = copy->encoded + copy->len;
    copy->whole = NULL;
    copy->first = copy->rows = copy->leaf_bytes = 0;
    return copy;
}

int view_slice(struct view **cache, struct view *whole, uint64_t all, uint64_t first, uint64_t rows,
               struct view **ret, uint32_t *ret_bad)
{
    struct view *slice = *cache;

    assert(all > 0 && first <= all && rows <= all - first && !whole->whole);
    if (slice && slice->whole == whole && slice->first == first && slice->rows == rows) {
        *ret = view_ref(slice);
        return 0;
    }
    *ret_bad = view_find_uncut(whole, all);
    if (*ret_bad != UINT32_MAX)
        return -EINVAL;
    slice = view_dup(whole);
    if (!slice)
        return -ENOMEM;
    slice->whole = view_ref(whole);
    slice->first = first;
    slice->rows = rows;
    for (uint32_t i = 0; i < slice->count; i++) {
        struct tree_node *node = view_node_of(slice, i);

        if (node->kind != TREE_TENSOR && !view_is_text(node))
            continue;
        view_cut(node, slice);
        slice->leaf_bytes += view_is_list(node) ? 0 : node->nbytes;
    }
    view_unref(*cache);
    *cache = slice;
    *ret = view_ref(slice);
    return 0;
}

/* The node as it is in the whole batch. */
static const struct tree_node *view_whole_node(const struct view *view,
                                               const struct tree_node *node)
{
    return view->whole ? view_node(view->whole, 0) + (node - view_node(view, 0)) : node;
}

bool view_text(const struct view *view, const struct tree_node *node, const uint8_t *slot,
               uint64_t i, const char **ret, uint64_t *ret_len)
{
    return tree_text(view_whole_node(view, node), slot, view->first + i, ret, ret_len);
}

uint64_t view_text_bytes(const struct view *view, const struct tree_node *node, const uint8_t *slot)
{
    uint64_t bytes = sizeof(uint64_t), len;
    const char *text;

    if (!view->whole || !view_is_list(node))
        return node->nbytes;
    for (uint64_t i = 0; i < view->rows; i++) /* an overwritten string counts no bytes */
        bytes += sizeof(uint64_t) + (view_text(view, node, slot, i, &text, &len) ? len : 0);
    return bytes;
}

struct view *view_pack(const struct view *slice, uint64_t begin, uint64_t *ret_end)
{
    struct view *packed = view_dup(slice);

    *ret_end = begin;
    for (uint32_t i = 0; packed && i < packed->count; i++) {
        struct tree_node *node = view_node_of(packed, i);

        if (node->kind != TREE_TENSOR && !view_is_list(node))
            continue;
        node->offset = align_up(*ret_end, TREE_ALIGN);
        *ret_end = node->offset + view_whole_node(slice, view_node(slice, i))->nbytes;
        if (node->kind == TREE_TENSOR)
            *ret_end = node->offset + node->nbytes;
    }
    return packed;
}

/* The list's strings, and where they are; as many of their bytes as the whole list has at most. */
static void view_copy_list(const struct view *slice, const struct tree_node *from,
                           const uint8_t *slot, struct tree_node *node, uint8_t *to)
{
    uint64_t *numbers = (uint64_t *)(void *)(to + node->offset), end = 0, len;
    char *strings = (char *)(numbers + slice->rows + 1);
    uint64_t room = view_whole_node(slice, from)->nbytes - (slice->rows + 1) * sizeof *numbers;
    const char *text;

    numbers[0] = 0;
    for (uint64_t i = 0; i < slice->rows; i++) {
        if (view_text(slice, from, slot, i, &text, &len) && len <= room - end) {
            memcpy(strings + end, text, len);
            end += len;
        }
        numbers[i + 1] = end;
    }
    node->nbytes = (slice->rows + 1) * sizeof *numbers + end;
}

void view_copy(const struct view *slice, const uint8_t *slot, struct view *packed, uint8_t *to)
{
    for (uint32_t i = 0; i < packed->count; i++) {
        const struct tree_node *from = view_node(slice, i);
        struct tree_node *node = view_node_of(packed, i);

        if (view_is_list(node))
            view_copy_list(slice, from, slot, node, to);
        else if (node->kind == TREE_TENSOR)
            memcpy(to + node->offset, slot + from->offset, node->nbytes);
        packed->leaf_bytes += node->nbytes;
    }
}

uint64_t view_bytes(const struct view *view, const uint8_t *slot)
{
    uint64_t bytes = view->leaf_bytes;

    for (uint32_t i = 0; view->whole && i < view->count; i++)
        if (view_is_list(view_node(view, i)))
            bytes += view_text_bytes(view, view_node(view, i), slot);
    return bytes;
}

/* ---- look-ups ---- */

/* Bytes of `path` that name child `i` of `parent`, without the dot after them; 0: another child. */
static size_t view_match(const struct view *view, const struct tree_node *parent,
                         const struct tree_node *child, uint32_t i, const char *path)
{
    char digits[16];
    const char *name = digits;
    size_t len;

    if (parent->kind == TREE_OBJECT) /* its content is known only to its pickle */
        return 0;
    if (parent->kind == TREE_DICT) {
        name = tree_key(view->encoded, child);
        len = child->key_len;
    } else {
        len = (size_t)snprintf(digits, sizeof digits, "%u", i);
    }
    if (strlen(path) < len || memcmp(path, name, len) != 0 ||
        (path[len] != '.' && path[len] != '\0'))
        return 0;
    return len;
}

/*
 * Keys may hold dots, so several children can match; each node is reached by one path at most,
 * which bounds the search by the size of the tree.
 */
static const struct tree_node *view_find_below(const struct view *view,
                                               const struct tree_node *node, const char *path)
{
    const struct tree_node *child = node + 1;

    for (uint32_t i = 0; i < node->children; i++, child = tree_skip(child)) {
        const struct tree_node *found;
        size_t len = view_match(view, node, child, i, path);

        if (len == 0)
            continue;
        if (path[len] == '\0')
            return child;
        found = view_find_below(view, child, path + len + 1);
        if (found)
            return found;
    }
    return NULL;
}

int view_find(const struct view *view, const char *path, const struct tree_node **ret)
{
    const struct tree_node *node = view_node(view, 0);

    if (path && path[0] != '\0')
        node = view_find_below(view, node, path);
    if (!node)
        return -ENOENT;
    *ret = node;
    return 0;
}

bool view_is_text(const struct tree_node *node)
{
    return node->kind == TREE_STRING || node->kind == TREE_BYTES;
}

uint64_t view_text_count(const struct tree_node *node)
{
    return node->ndim ? node->shape[0] : 1;
}

void view_tensor(const struct tree_node *node, const uint8_t *slot, struct dl_tensor *ret)
{
    assert(node->kind == TREE_TENSOR);
    ret->data = slot + node->offset;
    ret->nbytes = node->nbytes;
    memcpy(ret->shape, node->shape, sizeof ret->shape);
    ret->ndim = node->ndim;
    ret->dtype = node->dtype;
}
