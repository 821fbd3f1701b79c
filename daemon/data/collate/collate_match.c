/*
 * Which leaves a batch has, and where each sample has their bytes.
 *
 * The rules are those of default_collate (torch/utils/data/_utils/collate.py): the first sample's
 * keys, in its order; further keys of others are ignored; lists and tuples are the same, and of one
 * length. Two are stricter: numbers and tensors of another dtype are refused, not promoted, and a
 * string instead of a list is not a list of characters.
 */
#include "daemon/data/collate/collate_batch.h"
#include "proto/common/array.h"
#include "proto/common/bisect.h"

#include <errno.h>
#include <inttypes.h>

static bool collate_match_is_sequence(const struct tree_node *node)
{
    return node->kind == TREE_LIST || node->kind == TREE_TUPLE;
}

/* ---- leaves --------------------------------------------------------------------------------- */

static int collate_match_no_memory(struct dl_error *err)
{
    return dl_error_set(err, ENOMEM, "collate", "out of memory for a batch");
}

static int collate_match_list_leaves(struct collate *c, const struct sample *sample,
                                     struct dl_error *err)
{
    const struct tree *tree = &sample->tree;

    if (!array_reserve(c->leaves, c->leaves_room, c->n_leaves + (uint64_t)tree->count))
        return collate_match_no_memory(err);
    for (uint32_t i = 0; i < tree->count; i++)
        if (collate_is_leaf(&tree->nodes[i]))
            c->leaves[c->n_leaves++] = (struct collate_leaf){.node = i, .like = &tree->nodes[i]};
    return 0;
}

static struct collate_source collate_match_source_of(const struct sample *sample, uint32_t node)
{
    const struct tree_node *leaf = &sample->tree.nodes[node];
    uint64_t extent = leaf->nbytes;

    if (leaf->kind == TREE_TENSOR)
        extent = leaf->ndim > 0 ? leaf->shape[0] : 1;
    return (struct collate_source){.data = sample->data[node], .extent = extent};
}

int collate_take(struct collate *c, const struct sample *sample, struct dl_error *err)
{
    size_t first = c->n_leaves;
    int r = collate_match_list_leaves(c, sample, err);

    if (r < 0)
        return r;
    if (!array_reserve(c->sources, c->sources_room, c->n_leaves))
        return collate_match_no_memory(err);
    for (size_t l = first; l < c->n_leaves; l++)
        c->sources[l] = collate_match_source_of(sample, c->leaves[l].node);
    return 0;
}

/* ---- each sample against the first ---------------------------------------------------------- */

/* A walk over the first sample's tree in preorder, with its like in sample `i`. */
struct collate_match_walk {
    struct collate *c;
    size_t i;
    uint32_t at;   /* next node of the first sample */
    uint32_t leaf; /* next leaf */
    struct dl_error *err;
};

static bool collate_match_same_shape(const struct collate_leaf *leaf, const struct tree_node *node)
{
    uint32_t first = leaf->padded ? 1 : 0;

    if (node->ndim != leaf->like->ndim)
        return false;
    return node->ndim <= first || memcmp(node->shape + first, leaf->like->shape + first,
                                         (node->ndim - first) * sizeof *node->shape) == 0;
}

/* Whether padding would make them equal. */
static bool collate_match_differ_in_length(const struct tree_node *a, const struct tree_node *b)
{
    return a->ndim == b->ndim && a->ndim > 0 &&
           memcmp(a->shape + 1, b->shape + 1, (TREE_DIMS - 1) * sizeof *a->shape) == 0;
}

static const char *collate_match_shape_remedy(const struct collate *c,
                                              const struct collate_leaf *leaf,
                                              const struct tree_node *have)
{
    if (leaf->padded)
        return c->kind == COLLATE_PACK ? "only the first dimension is packed"
                                       : "only the first dimension is padded";
    if (!collate_match_differ_in_length(have, leaf->like))
        return "samples of one batch need one shape";
    if (c->kind == COLLATE_PACK)
        return "name it in collate.fields to have it packed";
    return c->kind == COLLATE_PAD ? "name it in collate.fields to have it padded"
                                  : "collate: {kind: pad} would fill them up";
}

static int collate_match_leaf(struct collate_match_walk *w, uint32_t node)
{
    const struct sample *sample = &w->c->samples[w->i];
    const struct tree_node *have = &sample->tree.nodes[node];
    struct collate_leaf *leaf = &w->c->leaves[w->leaf];
    struct collate_difference d = {w->c, w->i, leaf->node, ""};

    if (have->kind != leaf->like->kind) {
        d.remedy = "samples of one batch need the same kind of field in each place";
        return collate_refuse_node(&d, have, w->err);
    }
    if (have->kind == TREE_TENSOR && have->dtype != leaf->like->dtype) {
        d.remedy = "convert them to one dtype in the dataset";
        return collate_refuse_node(&d, have, w->err);
    }
    if (have->kind == TREE_TENSOR && !collate_match_same_shape(leaf, have)) {
        d.remedy = collate_match_shape_remedy(w->c, leaf, have);
        return collate_refuse_node(&d, have, w->err);
    }
    w->c->sources[w->leaf * w->c->width + w->i] = collate_match_source_of(sample, node);
    w->leaf++;
    return 0;
}

/* By length, then by bytes. */
static int collate_match_compare_keys(const struct tree *a, const struct tree_node *x,
                                      const struct tree *b, const struct tree_node *y)
{
    if (x->key_len != y->key_len)
        return x->key_len < y->key_len ? -1 : 1;
    return x->key_len > 0 ? memcmp(a->keys + x->key_off, b->keys + y->key_off, x->key_len) : 0;
}

/* A child of a dict, by number and by node. */
struct child {
    uint32_t number;
    uint32_t node;
};

/* A dict in which another dict's keys are looked up, in that one's order. */
struct lookup {
    const struct tree *tree;
    uint32_t dict;
    struct child next;    /* most likely: the one after that found last */
    struct child *sorted; /* owned; all by key, when the order has turned out to be another */
};

enum { TRIED_IN_ORDER = 16 };

static void collate_match_lookup_deinit(struct lookup *lookup)
{
    free(lookup->sorted);
}

static void collate_match_step(struct lookup *lookup)
{
    lookup->next.number++;
    lookup->next.node = collate_skip(lookup->tree, lookup->next.node);
    if (lookup->next.number >= lookup->tree->nodes[lookup->dict].children)
        lookup->next = (struct child){0, lookup->dict + 1};
}

static int collate_match_compare_children(const void *a, const void *b, void *arg)
{
    const struct child *x = a, *y = b;
    const struct tree *tree = arg;
    int order =
        collate_match_compare_keys(tree, &tree->nodes[x->node], tree, &tree->nodes[y->node]);

    return order != 0 ? order : (x->number > y->number) - (x->number < y->number);
}

static int collate_match_sort_children(struct lookup *lookup)
{
    uint32_t n = lookup->tree->nodes[lookup->dict].children, node = lookup->dict + 1;

    lookup->sorted = calloc(n, sizeof *lookup->sorted);
    if (!lookup->sorted)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++, node = collate_skip(lookup->tree, node))
        lookup->sorted[i] = (struct child){i, node};
    qsort_r(lookup->sorted, n, sizeof *lookup->sorted, collate_match_compare_children,
            (void *)lookup->tree);
    return 0;
}

/* The child with the key of `wanted` becomes `next`. 0, -ENOENT, or -ENOMEM. */
static int collate_match_find_key(struct lookup *lookup, const struct tree *first,
                                  const struct tree_node *wanted)
{
    const struct tree *tree = lookup->tree;
    uint32_t children = tree->nodes[lookup->dict].children;

    for (uint32_t tried = 0; tried < min_u64(children, TRIED_IN_ORDER); tried++) {
        if (collate_match_compare_keys(first, wanted, tree, &tree->nodes[lookup->next.node]) == 0)
            return 0;
        collate_match_step(lookup);
    }
    if (children <= TRIED_IN_ORDER)
        return -ENOENT;
    if (!lookup->sorted && collate_match_sort_children(lookup) < 0)
        return -ENOMEM;
    uint64_t at = BISECT(
        0, children, i,
        collate_match_compare_keys(tree, &tree->nodes[lookup->sorted[i].node], first, wanted) < 0);
    if (at == children ||
        collate_match_compare_keys(tree, &tree->nodes[lookup->sorted[at].node], first, wanted) != 0)
        return -ENOENT;
    lookup->next = lookup->sorted[at];
    return 0;
}

static int collate_match_node(struct collate_match_walk *w, uint32_t node);

static int collate_match_dict(struct collate_match_walk *w, uint32_t dict, uint32_t children)
{
    const struct tree *first = &w->c->samples[0].tree;
    struct collate_difference d = {w->c, w->i, 0,
                                   "each sample of a batch needs the keys of the first"};
    _cleanup_(collate_match_lookup_deinit) struct lookup lookup = {
        .tree = &w->c->samples[w->i].tree, .dict = dict, .next.node = dict + 1};
    int r = 0;

    for (uint32_t k = 0; k < children && r == 0; k++) {
        d.node = w->at;
        r = collate_match_find_key(&lookup, first, &first->nodes[w->at]);
        if (r == -ENOENT)
            return collate_refuse(&d, "no such key", "one", w->err);
        if (r < 0)
            return collate_match_no_memory(w->err);
        r = collate_match_node(w, lookup.next.node);
        collate_match_step(&lookup);
    }
    return r;
}

static int collate_match_node(struct collate_match_walk *w, uint32_t node)
{
    const struct tree *tree = &w->c->samples[w->i].tree;
    const struct tree_node *have = &tree->nodes[node];
    const struct tree_node *want = &w->c->samples[0].tree.nodes[w->at];
    struct collate_difference d = {w->c, w->i, w->at++, ""};
    int r = 0;

    if (collate_is_leaf(want))
        return collate_match_leaf(w, node);
    if (want->kind == TREE_DICT ? have->kind != TREE_DICT : !collate_match_is_sequence(have)) {
        d.remedy = "samples of one batch need the same kind of field in each place";
        return collate_refuse_node(&d, have, w->err);
    }
    if (want->kind == TREE_DICT)
        return collate_match_dict(w, node, want->children);
    if (have->children != want->children) {
        d.remedy = "lists of one batch need equal length; collate: {kind: none} takes any";
        return collate_refuse_node(&d, have, w->err);
    }
    node++;
    for (uint32_t k = 0; k < want->children && r == 0; k++, node = collate_skip(tree, node))
        r = collate_match_node(w, node);
    return r;
}

/* Byte for byte: then every node has the same place and shape as in the first sample. */
static bool collate_match_same_tree(const struct tree *a, const struct tree *b)
{
    return a->count == b->count && a->keys_len == b->keys_len &&
           memcmp(a->nodes, b->nodes, a->count * sizeof *a->nodes) == 0 &&
           (a->keys_len == 0 || memcmp(a->keys, b->keys, a->keys_len) == 0);
}

/* What the spec gives, if no source is longer. */
static int collate_match_measure_given(struct collate *c, size_t l, size_t *ret_bad,
                                       struct dl_error *err)
{
    char path[COLLATE_WORDS];

    for (size_t i = 0; i < c->width; i++) {
        uint64_t extent = c->sources[l * c->width + i].extent;
        if (extent <= c->length)
            continue;
        *ret_bad = i;
        collate_path(&c->samples[0].tree, c->leaves[l].node, path, sizeof path);
        return dl_error_set(err, EINVAL, "collate.length",
                            "sample %" PRIu64 " has %" PRIu64 " elements%s%s, more than %" PRIu64
                            "; choose a greater length, or cut samples with batch: {max_length: "
                            "%" PRIu64 ", overlong: truncate}",
                            c->numbers[i], extent, path[0] ? " at " : "", path, c->length,
                            c->length);
    }
    c->leaves[l].length = c->length;
    return 0;
}

/* The longest source, up to the next multiple. */
static int collate_match_measure_longest(struct collate *c, size_t l, struct dl_error *err)
{
    struct collate_leaf *leaf = &c->leaves[l];
    uint64_t longest = 0, beyond;

    for (size_t i = 0; i < c->width; i++)
        longest = max_u64(longest, c->sources[l * c->width + i].extent);
    beyond = longest % c->multiple_of;
    if (add_overflows(longest, beyond ? c->multiple_of - beyond : 0, &leaf->length) ||
        leaf->length > INT64_MAX)
        return dl_error_set(err, EFBIG, "collate.multiple_of",
                            "%" PRIu64 " elements have no multiple of %" PRIu64
                            " above them within the limits; choose a smaller one",
                            longest, c->multiple_of);
    return 0;
}

int collate_match(struct collate *c, size_t *ret_bad, struct dl_error *err)
{
    const struct tree *first = &c->samples[0].tree;
    uint64_t sources;
    int r;

    if ((r = collate_match_list_leaves(c, &c->samples[0], err)) < 0 ||
        (r = collate_choose_padded(c, err)) < 0)
        return r;
    if (mul_overflows(c->n_leaves, c->n, &sources) ||
        !array_reserve(c->sources, c->sources_room, sources))
        return collate_match_no_memory(err);
    for (size_t i = 0; i < c->n; i++) {
        const struct sample *sample = &c->samples[i];
        struct collate_match_walk walk = {.c = c, .i = i, .err = err};
        if (collate_match_same_tree(&sample->tree, first)) {
            for (size_t l = 0; l < c->n_leaves; l++)
                c->sources[l * c->n + i] = collate_match_source_of(sample, c->leaves[l].node);
        } else if ((r = collate_match_node(&walk, 0)) < 0) {
            *ret_bad = i;
            return r;
        }
    }
    for (size_t l = 0; l < c->n_leaves && r == 0; l++)
        if (c->leaves[l].padded && c->kind == COLLATE_PAD)
            r = c->length ? collate_match_measure_given(c, l, ret_bad, err)
                          : collate_match_measure_longest(c, l, err);
    return r;
}
