/*
 * What the user reads in a batch: its numbers, and the leaves of its tree, by path or one after the
 * other. Bytes of leaves are given out in place, in the slot.
 */
#include "client/internal.h"

#include <errno.h>

#define OBJECT_WORDS "it is a pickled Python object, which only Python can read"

uint64_t dl_batch_step(const struct dl_batch *batch)
{
    return batch->step;
}

uint64_t dl_batch_bytes(const struct dl_batch *batch)
{
    return view_bytes(batch->view, batch->slot);
}

uint32_t dl_batch_repeated(const struct dl_batch *batch)
{
    return batch->repeated;
}

const uint64_t *dl_batch_indices(const struct dl_batch *batch, size_t *ret_n)
{
    *ret_n = batch->samples;
    return batch->indices;
}

int dl_batch_lengths(const struct dl_batch *batch, const uint32_t **ret_lengths, size_t *ret_n,
                     uint64_t *ret_padded)
{
    if (!batch->planned)
        return -ENODATA;
    *ret_lengths = batch->planned->lists;
    *ret_n = batch->samples;
    *ret_padded = batch->planned->padded;
    return 0;
}

const char *dl_type_name(uint32_t dtype)
{
    return dtype_name(dtype);
}

size_t dl_type_bytes(uint32_t dtype)
{
    return dtype_bytes(dtype);
}

/* ---- leaves ---- */

/* The node at `path`; NULL, and the error's words are set: -ENOENT. */
static const struct tree_node *fields_find(struct dl_batch *batch, const char *path)
{
    const struct tree_node *node = NULL;

    if (view_find(batch->view, path, &node) < 0)
        client_fail(batch->client, ENOENT, path, "no such field in the batch");
    return node;
}

int dl_batch_tensor(struct dl_batch *batch, const char *path, struct dl_tensor *ret)
{
    const struct tree_node *node = fields_find(batch, path);

    if (!node)
        return -ENOENT;
    if (view_is_text(node))
        return client_fail(batch->client, EINVAL, path,
                           "%s, not a tensor: dl_batch_text() reads it",
                           node->kind == TREE_STRING ? "a string" : "bytes");
    if (node->kind == TREE_OBJECT)
        return client_fail(batch->client, EINVAL, path, OBJECT_WORDS);
    if (node->kind != TREE_TENSOR)
        return client_fail(batch->client, EINVAL, path,
                           "not a tensor but %u fields: name one of them", node->children);
    view_tensor(node, batch->slot, ret);
    return 0;
}

/* 0 if the node is text, else -EINVAL with words. */
static int fields_need_text(struct dl_batch *batch, const char *path, const struct tree_node *node)
{
    if (view_is_text(node))
        return 0;
    if (node->kind == TREE_TENSOR)
        return client_fail(batch->client, EINVAL, path,
                           "a tensor, not text: dl_batch_tensor() reads it");
    if (node->kind == TREE_OBJECT)
        return client_fail(batch->client, EINVAL, path, OBJECT_WORDS);
    return client_fail(batch->client, EINVAL, path, "not text but %u fields: name one of them",
                       node->children);
}

static int fields_read_text(struct dl_batch *batch, const char *path, const struct tree_node *node,
                            uint64_t i, const char **ret, size_t *ret_len)
{
    uint64_t len;
    int r = fields_need_text(batch, path, node);

    if (r < 0)
        return r;
    if (i >= view_text_count(node))
        return client_fail(batch->client, EINVAL, path, "string %llu where there are %llu", (ull)i,
                           (ull)view_text_count(node));
    if (!view_text(batch->view, node, batch->slot, i, ret, &len))
        return client_fail(batch->client, EPROTO, path,
                           "string %llu of step %llu points outside the batch: its slot was "
                           "overwritten",
                           (ull)i, (ull)batch->step);
    *ret_len = len;
    return 0;
}

int dl_batch_text(struct dl_batch *batch, const char *path, uint64_t i, const char **ret,
                  size_t *ret_len)
{
    const struct tree_node *node = fields_find(batch, path);

    if (!node)
        return -ENOENT;
    return fields_read_text(batch, path, node, i, ret, ret_len);
}

int dl_batch_text_count(struct dl_batch *batch, const char *path, uint64_t *ret)
{
    const struct tree_node *node = fields_find(batch, path);
    int r = node ? fields_need_text(batch, path, node) : -ENOENT;

    if (r == 0)
        *ret = view_text_count(node);
    return r;
}

uint32_t dl_batch_nodes(const struct dl_batch *batch)
{
    return batch->view->count;
}

/* Node `i`; NULL, and the error's words are set: -EINVAL. */
static const struct tree_node *fields_find_number(struct dl_batch *batch, uint32_t i)
{
    if (i < batch->view->count)
        return view_node(batch->view, i);
    client_fail(batch->client, EINVAL, "", "node %u of a tree of %u", i, batch->view->count);
    return NULL;
}

int dl_batch_node_text(struct dl_batch *batch, uint32_t node, uint64_t i, const char **ret,
                       size_t *ret_len)
{
    const struct tree_node *found = fields_find_number(batch, node);

    return found ? fields_read_text(batch, "", found, i, ret, ret_len) : -EINVAL;
}

int dl_batch_node(struct dl_batch *batch, uint32_t i, struct dl_node *ret)
{
    const struct tree_node *node = fields_find_number(batch, i);

    if (!node)
        return -EINVAL;
    *ret = (struct dl_node){
        .kind = (enum dl_node_kind)node->kind,
        .children = node->children,
        .depth = batch->view->depths[i],
    };
    if (node->key_len > 0) {
        ret->key = tree_key(batch->view->encoded, node);
        ret->key_len = node->key_len;
    }
    if (node->kind == TREE_TENSOR)
        view_tensor(node, batch->slot, &ret->tensor);
    if (view_is_text(node)) {
        ret->count = view_text_count(node);
        ret->is_list = node->ndim;
        /* A list's offsets count from the whole list's beginning, not from that of these rows. */
        ret->text = node->ndim && batch->view->whole ? NULL : batch->slot + node->offset;
        ret->text_nbytes = view_text_bytes(batch->view, node, batch->slot);
    }
    return 0;
}
