/* Walks over the tree of a batch: see leaves.h. */
#include "client/dlctl/batch/leaves.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

const char *leaves_kind_name(enum dl_node_kind kind)
{
    switch (kind) {
    case DL_NODE_TENSOR:
        return "tensor";
    case DL_NODE_DICT:
        return "dict";
    case DL_NODE_LIST:
        return "list";
    case DL_NODE_TUPLE:
        return "tuple";
    case DL_NODE_STRING:
        return "string";
    case DL_NODE_BYTES:
        return "bytes";
    case DL_NODE_OBJECT:
        return "object";
    }
    return "?";
}

struct walk {
    struct dl_batch *batch;
    leaves_visit *visit;
    void *data;
    uint32_t at; /* the node that comes next */
};

static int walk_node(struct walk *w, const char *path);

/* The children from `first` on, each at a path of its own. */
static int walk_below(struct walk *w, const struct dl_node *parent, uint32_t first,
                      const char *path)
{
    int r = 0;

    for (uint32_t i = first; i < parent->children && r == 0; i++) {
        _cleanup_free_ char *below = NULL;
        const char *dot = *path ? "." : "";
        struct dl_node child = {0};

        r = dl_batch_node(w->batch, w->at, &child);
        if (r < 0)
            return r;
        r = child.key ? asprintf(&below, "%s%s%.*s", path, dot, (int)child.key_len, child.key)
                      : asprintf(&below, "%s%s%" PRIu32, path, dot, i);
        if (r < 0) {
            below = NULL; /* asprintf leaves it undefined */
            return -ENOMEM;
        }
        r = walk_node(w, below);
    }
    return r;
}

/* Node w->at and all below it. */
static int walk_node(struct walk *w, const char *path)
{
    struct dl_node node = {0};
    uint32_t at = w->at++;
    int r = dl_batch_node(w->batch, at, &node);

    if (r < 0)
        return r;
    switch (node.kind) {
    case DL_NODE_TENSOR:
    case DL_NODE_STRING:
    case DL_NODE_BYTES:
        return w->visit(w->data, path, &node, at);
    case DL_NODE_OBJECT:
        w->at++;
        r = w->visit(w->data, path, &node, at);
        return r != 0 ? r : walk_below(w, &node, 1, path);
    case DL_NODE_DICT:
    case DL_NODE_LIST:
    case DL_NODE_TUPLE:
        if (node.children == 0)
            return w->visit(w->data, path, &node, at);
        return walk_below(w, &node, 0, path);
    }
    return 0;
}

int leaves_walk(struct dl_batch *batch, leaves_visit *visit, void *data)
{
    struct walk w = {.batch = batch, .visit = visit, .data = data};

    return walk_node(&w, "");
}
