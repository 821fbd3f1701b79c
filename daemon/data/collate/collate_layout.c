/* The tree of a batch, and where its leaves lie. */
#include "daemon/data/collate/collate_batch.h"

#include "proto/common/array.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

enum { SUFFIX = 16, KEY = DL_BOUND_NAME_BYTES + 1, PLACE = 300 };

/* A walk over a sample in preorder, which adds its nodes to the batch. */
struct emit {
    struct collate *c;
    const struct tree *from;
    uint32_t at;   /* next node of the sample */
    uint32_t leaf; /* next leaf */
    uint32_t depth;
    bool as_is; /* not merged, tuples stay */
    struct dl_error *err;
};

/* The batch's dimension, if the samples are stacked. */
static uint32_t collate_layout_stacked(const struct emit *e)
{
    return e->c->batched && !e->as_is ? 1 : 0;
}

/* ", at image"; nothing for the root. */
static const char *collate_layout_place_of(const struct emit *e, char *out)
{
    char path[COLLATE_WORDS];

    collate_path(e->from, e->c->leaves[e->leaf].node, path, sizeof path);
    collate_say(out, PLACE, 0, "%s%s", path[0] ? ", at " : "", path);
    return out;
}

static int collate_layout_too_large(struct dl_error *err)
{
    return dl_error_set(err, EFBIG, "batch.size",
                        "this batch needs more than the %" PRIu64
                        " bytes a segment can have; choose a smaller batch",
                        DL_MAX_SEGMENT_BYTES);
}

/* What became of a node that was added; it is written by `op`. */
static int collate_layout_added(const struct emit *e, int r, const char *key, enum collate_op op)
{
    struct collate *c = e->c;

    if (r == 0 && !array_reserve(c->parts, c->parts_room, c->tree.count))
        r = -ENOMEM;
    switch (r) {
    case 0:
        c->parts[c->tree.count - 1] = (struct collate_part){op, e->leaf};
        return 0;
    case -ENOMEM:
        return dl_error_set(e->err, ENOMEM, "collate", "out of memory for a batch");
    case -E2BIG:
        return dl_error_set(e->err, E2BIG, "collate",
                            "the batch has more than %d nodes; choose a smaller batch.size, or "
                            "samples with fewer fields",
                            DL_BOUND_TREE_NODES);
    case -ENAMETOOLONG:
        return dl_error_set(e->err, EINVAL, "collate",
                            "the key %s has more than %d bytes; choose a shorter one",
                            key ? key : "", DL_BOUND_NAME_BYTES);
    case -EOVERFLOW:
        return collate_layout_too_large(e->err);
    default:
        return dl_error_set(e->err, -r, "collate", "the batch has no tree: %s", strerror(-r));
    }
}

static int collate_layout_begin(struct emit *e, enum tree_kind kind, const char *key, uint32_t *ret)
{
    int r;

    if (e->depth == DL_BOUND_TREE_DEPTH)
        return dl_error_set(e->err, E2BIG, "collate", "the batch is nested deeper than %d levels",
                            DL_BOUND_TREE_DEPTH);
    r = collate_layout_added(e, tree_add(&e->c->tree, kind, key, 0), key, OP_NONE);
    *ret = e->c->tree.count - 1;
    e->depth++;
    return r;
}

static int collate_layout_add_text(struct emit *e, const char *key)
{
    struct collate *c = e->c;
    const struct collate_leaf *leaf = &c->leaves[e->leaf];
    uint64_t bytes = 0;
    int r;

    if (!collate_layout_stacked(e))
        return collate_layout_added(
            e, tree_add_text(&c->tree, leaf->like->kind, key, leaf->like->nbytes), key, OP_STACK);
    if (mul_overflows(c->n + (uint64_t)1, sizeof(uint64_t), &bytes))
        return collate_layout_too_large(e->err);
    for (size_t i = 0; i < c->n; i++)
        if (add_overflows(bytes, c->sources[e->leaf * c->width + i].extent, &bytes))
            return collate_layout_too_large(e->err);
    r = collate_layout_added(e, tree_add_text(&c->tree, leaf->like->kind, key, bytes), key,
                             OP_TEXTS);
    if (r == 0) {
        c->tree.nodes[c->tree.count - 1].ndim = 1;
        c->tree.nodes[c->tree.count - 1].shape[0] = c->n;
    }
    return r;
}

static int collate_layout_add_tensor(struct emit *e, const char *key)
{
    const struct collate_leaf *leaf = &e->c->leaves[e->leaf];
    uint32_t batch = collate_layout_stacked(e), ndim = leaf->like->ndim;
    uint64_t shape[TREE_DIMS + 1] = {e->c->n};
    char place[PLACE];

    if (ndim + batch > TREE_DIMS)
        return dl_error_set(e->err, EINVAL, "batch.size",
                            "samples of %u dimensions leave no dimension for the batch (%u is "
                            "the maximum)%s; use null, or reshape the data",
                            ndim, (unsigned)TREE_DIMS, collate_layout_place_of(e, place));
    memcpy(shape + batch, leaf->like->shape, ndim * sizeof *shape);
    if (leaf->padded)
        shape[batch] = leaf->length;
    if (leaf->padded && e->c->kind == COLLATE_PACK)
        shape[0] = e->c->planned->rows;
    return collate_layout_added(
        e, tree_add_tensor(&e->c->tree, key, leaf->like->dtype, ndim + batch, shape), key,
        !leaf->padded                ? OP_STACK
        : e->c->kind == COLLATE_PACK ? OP_PACK
                                     : OP_PAD);
}

static int collate_layout_check_value(struct emit *e)
{
    const struct collate_leaf *leaf = &e->c->leaves[e->leaf];
    uint8_t element[COLLATE_ELEMENT];
    char place[PLACE];

    if (collate_element(e->c->value, leaf->like->dtype, element) == 0)
        return 0;
    return dl_error_set(
        e->err, EINVAL, "collate.value",
        "%.17g is not a value of %s%s; choose another value, or name the fields to pad in "
        "collate.fields",
        e->c->value, dtype_name(leaf->like->dtype), collate_layout_place_of(e, place));
}

/* A padded leaf's three tensors, under these keys. */
static int collate_layout_add_padded(struct emit *e, const char *values, const char *lengths,
                                     const char *mask)
{
    struct tree *tree = &e->c->tree;
    uint32_t batch = collate_layout_stacked(e);
    uint64_t shape[2] = {e->c->n};
    int r;

    shape[batch] = e->c->leaves[e->leaf].length;
    if ((r = collate_layout_check_value(e)) < 0 || (r = collate_layout_add_tensor(e, values)) < 0)
        return r;
    r = collate_layout_added(e, tree_add_tensor(tree, lengths, DL_DTYPE_INT64, batch, shape),
                             lengths, OP_LENGTHS);
    if (r < 0)
        return r;
    return collate_layout_added(e, tree_add_tensor(tree, mask, DL_DTYPE_BOOL, batch + 1, shape),
                                mask, OP_MASK);
}

static int collate_layout_add_padded_dict(struct emit *e)
{
    uint32_t dict = 0;
    int r;

    r = collate_layout_begin(e, TREE_DICT, NULL, &dict);
    if (r < 0)
        return r;
    r = collate_layout_add_padded(e, "values", "lengths", "mask");
    e->c->tree.nodes[dict].children = 3;
    e->depth--;
    return r;
}

/* The tensors that separate the samples of packed rows. */
static const char *const packed_keys[] = {"segment_ids", "position_ids", "cu_seqlens", "max_seqlen",
                                          "context"};

/* The last one only where there is some. */
static uint32_t collate_layout_packed_keys(const struct collate *c)
{
    return ARRAY_SIZE(packed_keys) - (c->overlap == 0);
}

static int collate_layout_add_packed_keys(struct emit *e)
{
    static const enum collate_op ops[] = {OP_SEGMENTS, OP_POSITIONS, OP_BOUNDS, OP_LONGEST,
                                          OP_CONTEXT};
    static const uint32_t ndims[] = {2, 2, 1, 0, 2};
    const uint64_t rows[] = {e->c->planned->rows, e->c->length};
    const uint64_t bounds[] = {collate_bounds(e->c)};
    int r = 0;

    for (uint32_t i = 0; i < collate_layout_packed_keys(e->c) && r == 0; i++)
        r = collate_layout_added(
            e,
            tree_add_tensor(&e->c->tree, packed_keys[i],
                            ops[i] == OP_CONTEXT ? DL_DTYPE_BOOL : DL_DTYPE_INT32, ndims[i],
                            ndims[i] == 2 ? rows : bounds),
            packed_keys[i], ops[i]);
    return r;
}

static int collate_layout_add_packed(struct emit *e, const char *key)
{
    int r = e->c->leaves[e->leaf].padded ? collate_layout_check_value(e) : 0;

    return r < 0 ? r : collate_layout_add_tensor(e, key);
}

/* The leaf whose length counts, without a key of its own. */
static int collate_layout_add_packed_dict(struct emit *e)
{
    uint32_t dict = 0;
    int r = collate_layout_begin(e, TREE_DICT, NULL, &dict);

    if (r == 0)
        r = collate_layout_add_packed(e, "values");
    if (r == 0)
        r = collate_layout_add_packed_keys(e);
    e->c->tree.nodes[dict].children = 1 + collate_layout_packed_keys(e->c);
    e->depth--;
    return r;
}

/* The leaf whose length counts is a child of this dict. */
static bool collate_layout_has_length_leaf(const struct emit *e, uint32_t dict)
{
    const struct tree_node *nodes = e->from->nodes, *child = &nodes[dict + 1];

    if (e->c->kind != COLLATE_PACK || nodes[dict].kind != TREE_DICT)
        return false;
    for (uint32_t i = 0; i < nodes[dict].children; i++, child = tree_skip(child))
        if ((uint32_t)(child - nodes) == e->c->length_leaf)
            return true;
    return false;
}

static bool collate_layout_is_key(const struct emit *e, const struct tree_node *child,
                                  const char *key)
{
    return child->key_len == strlen(key) &&
           memcmp(e->from->keys + child->key_off, key, child->key_len) == 0;
}

/* Adds the packed keys before the other children of the dict that has the leaf whose length
 * counts. */
static int collate_layout_add_packed_siblings(struct emit *e, uint32_t dict, uint32_t container)
{
    const struct tree_node *nodes = e->from->nodes, *child = &nodes[dict + 1];

    if (!collate_layout_has_length_leaf(e, dict))
        return 0;
    for (uint32_t i = 0; i < nodes[dict].children; i++, child = tree_skip(child))
        for (uint32_t k = 0; k < collate_layout_packed_keys(e->c); k++)
            if (collate_layout_is_key(e, child, packed_keys[k]))
                return dl_error_set(e->err, EINVAL, "collate",
                                    "the samples have a field %s, which packing would add; rename "
                                    "it",
                                    packed_keys[k]);
    e->c->tree.nodes[container].children += collate_layout_packed_keys(e->c);
    return collate_layout_add_packed_keys(e);
}

/* Whether child `key` of `dict`, of `len` bytes, is padded. */
static bool collate_layout_is_padded(const struct emit *e, uint32_t dict, const char *key,
                                     size_t len)
{
    const struct tree_node *nodes = e->from->nodes, *child = &nodes[dict + 1];
    const struct collate_leaf *leaf;

    for (uint32_t i = 0; i < nodes[dict].children; i++, child = tree_skip(child)) {
        if (child->key_len != len ||
            (len > 0 && memcmp(e->from->keys + child->key_off, key, len) != 0))
            continue;
        leaf = collate_is_leaf(child) ? collate_leaf_at(e->c, (uint32_t)(child - nodes)) : NULL;
        return leaf && leaf->padded;
    }
    return false;
}

/* A key that padding another would add. Few have such endings, so that it is cheap to look. */
static int collate_layout_check_clash(const struct emit *e, uint32_t dict, const char *key)
{
    static const char *const endings[] = {"_lengths", "_mask"};
    size_t len = strlen(key);

    for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
        size_t ending = strlen(endings[i]);
        if (len < ending || strcmp(key + len - ending, endings[i]) != 0 ||
            !collate_layout_is_padded(e, dict, key, len - ending))
            continue;
        return dl_error_set(e->err, EINVAL, "collate",
                            "the samples have a field %s, which padding %.*s would add; rename "
                            "it, or leave %.*s out of collate.fields",
                            key, (int)(len - ending), key, (int)(len - ending), key);
    }
    return 0;
}

/* A padded child of a dict: 3 nodes. */
static int collate_layout_add_padded_siblings(struct emit *e, const char *key)
{
    char lengths[KEY + SUFFIX], mask[KEY + SUFFIX];

    snprintf(lengths, sizeof lengths, "%s_lengths", key);
    snprintf(mask, sizeof mask, "%s_mask", key);
    return collate_layout_add_padded(e, key, lengths, mask);
}

static int collate_layout_emit_node(struct emit *e, const char *key);

static int collate_layout_emit_children(struct emit *e, uint32_t parent, uint32_t container)
{
    const struct tree_node *node = &e->from->nodes[parent];
    char key[KEY];
    int r = collate_layout_add_packed_siblings(e, parent, container);

    for (uint32_t i = 0; i < node->children && r == 0; i++) {
        const struct tree_node *child = &e->from->nodes[e->at];
        bool keyed = node->kind == TREE_DICT;
        bool padded = e->c->kind == COLLATE_PAD && e->leaf < e->c->n_leaves &&
                      e->c->leaves[e->leaf].like == child && e->c->leaves[e->leaf].padded;
        snprintf(key, sizeof key, "%.*s", (int)child->key_len,
                 child->key_len > 0 ? e->from->keys + child->key_off : "");
        if (keyed && e->c->kind == COLLATE_PAD)
            r = collate_layout_check_clash(e, parent, key);
        if (r < 0)
            break;
        if (keyed && padded) {
            r = collate_layout_add_padded_siblings(e, key);
            e->at++;
            e->leaf++;
        } else {
            r = collate_layout_emit_node(e, keyed ? key : NULL);
        }
        e->c->tree.nodes[container].children += keyed && padded ? 3 : 1;
    }
    return r;
}

static int collate_layout_emit_tensor(struct emit *e, const char *key)
{
    const struct collate_leaf *leaf = &e->c->leaves[e->leaf];
    int r;

    if (e->c->kind == COLLATE_PACK)
        r = !key && leaf->node == e->c->length_leaf ? collate_layout_add_packed_dict(e)
                                                    : collate_layout_add_packed(e, key);
    else
        r = leaf->padded ? collate_layout_add_padded_dict(e) : collate_layout_add_tensor(e, key);
    e->leaf++;
    return r;
}

/* The node the walk is at, and all below it. */
static int collate_layout_emit_node(struct emit *e, const char *key)
{
    const struct tree_node *node = &e->from->nodes[e->at];
    uint32_t parent = e->at++, container = 0;
    enum tree_kind kind = node->kind;
    int r;

    switch (kind) {
    case TREE_TENSOR:
        return collate_layout_emit_tensor(e, key);
    case TREE_STRING:
    case TREE_BYTES:
        r = collate_layout_add_text(e, key);
        e->leaf++;
        return r;
    case TREE_TUPLE:
        kind = e->as_is ? TREE_TUPLE : TREE_LIST;
        break;
    case TREE_DICT:
    case TREE_LIST:
    case TREE_OBJECT: /* samples have no objects */
        break;
    }
    r = collate_layout_begin(e, kind, key, &container);
    if (r == 0)
        r = collate_layout_emit_children(e, parent, container);
    e->depth--;
    return r;
}

/* The list of samples, each as it is. */
static int collate_layout_emit_list(struct emit *e)
{
    uint32_t list;
    int r;

    r = collate_layout_begin(e, TREE_LIST, NULL, &list);
    for (size_t i = 0; i < e->c->n && r == 0; i++) {
        e->from = &e->c->samples[i].tree;
        e->at = 0;
        r = collate_layout_emit_node(e, NULL);
        e->c->tree.nodes[list].children++;
    }
    return r;
}

/* Where everything stands. */
static int collate_layout_place(struct collate *c, struct dl_error *err)
{
    c->layout = batch_layout_begin(c->layout.begin, &c->tree);
    for (uint32_t i = 0; i < c->tree.count; i++)
        if (c->parts[i].op != OP_NONE && !batch_layout_place(&c->layout, &c->tree.nodes[i]))
            return collate_layout_too_large(err);
    c->layout.used = max_u64(c->layout.used, c->layout.data_off);
    return 0;
}

int collate_lay_out(struct collate *c, struct dl_error *err)
{
    bool as_is = c->kind == COLLATE_NONE || c->kind == COLLATE_PLUGIN;
    struct emit e = {.c = c, .from = &c->samples[0].tree, .as_is = as_is, .err = err};
    int r = as_is && c->batched && c->kind == COLLATE_NONE ? collate_layout_emit_list(&e)
                                                           : collate_layout_emit_node(&e, NULL);

    return r < 0 ? r : collate_layout_place(c, err);
}
