/* Checks samples against the plan: their lengths, and where to cut them. */
#include "daemon/data/collate/collate_batch.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

static bool collate_planned_has_dimension(const struct tree_node *node)
{
    return node->kind == TREE_TENSOR && node->ndim > 0;
}

bool collate_length_leaf(const struct tree *tree, const char *path, uint32_t *ret)
{
    if (path)
        return tree->count > 0 && collate_find(tree, 0, path, ret) &&
               collate_planned_has_dimension(&tree->nodes[*ret]);
    for (*ret = 0; *ret < tree->count; ++*ret)
        if (collate_planned_has_dimension(&tree->nodes[*ret]))
            return true;
    return false;
}

/* One sample that is looked at. */
struct fit {
    const struct collate *c;
    struct sample *sample;
    uint64_t number;
    uint32_t planned;
    uint32_t cut;
    bool part;      /* it may be a part of the sample, */
    uint32_t begin; /* from that token on */
    struct dl_error *err;
};

static int collate_planned_refuse_leaf(const struct fit *f)
{
    const char *path = f->c->length_of;

    return dl_error_set(f->err, EINVAL, path ? "batch.length_of" : "dataset",
                        "sample %" PRIu64 " has no %s with a dimension, and had one when "
                        "lengths were taken; the data has changed: open the loader again",
                        f->number, path ? path : "leaf");
}

static int collate_planned_refuse_length(const struct fit *f, uint64_t has)
{
    if (f->cut == f->planned)
        return dl_error_set(f->err, EINVAL, "dataset",
                            "sample %" PRIu64 " has %" PRIu64 " tokens, and had at least %" PRIu32
                            " when lengths were taken; the data has changed: open the loader "
                            "again",
                            f->number, has, f->planned);
    return dl_error_set(f->err, EINVAL, "dataset",
                        "sample %" PRIu64 " has %" PRIu64 " tokens, and had %" PRIu32
                        " when lengths were taken; the data has changed: open the loader again",
                        f->number, has, f->planned);
}

/* Its first elements stay, or those of its part. */
static void collate_planned_cut_node(const struct fit *f, struct tree_node *node)
{
    uint64_t whole = node->shape[0];
    bool ok;

    if (f->begin > 0 && node->nbytes > 0) {
        const void **data = &f->sample->data[node - f->sample->tree.nodes];

        *data = (const char *)*data + node->nbytes / whole * f->begin;
    }
    node->shape[0] = f->planned;
    ok = tensor_bytes(node->dtype, node->ndim, node->shape, &node->nbytes);
    assert(ok); /* it is not above what it was, unless that was nothing */
}

/* Cuts the leaves that share the length: those of collate.fields, or all with that first
 * dimension. */
static void collate_planned_cut_sample(const struct fit *f, uint32_t leaf)
{
    struct tree *tree = &f->sample->tree;
    uint64_t whole = tree->nodes[leaf].shape[0];
    bool named = f->c->fields && (f->c->kind == COLLATE_PAD || f->c->kind == COLLATE_PACK);
    uint32_t node;

    for (uint32_t i = 0; !named && i < tree->count; i++)
        if (i != leaf && collate_planned_has_dimension(&tree->nodes[i]) &&
            tree->nodes[i].shape[0] == whole)
            collate_planned_cut_node(f, &tree->nodes[i]);
    for (uint32_t i = 0; named && i < f->c->n_fields; i++)
        if (collate_find(tree, 0, f->c->fields[i], &node) && node != leaf &&
            collate_planned_has_dimension(&tree->nodes[node]) &&
            tree->nodes[node].shape[0] == whole)
            collate_planned_cut_node(f, &tree->nodes[node]);
    collate_planned_cut_node(f, &tree->nodes[leaf]);
}

/* The part ends within the sample; one that is shorter than others ends with it, unless rows end
 * anywhere in samples. */
static bool collate_planned_has_part(const struct fit *f, uint64_t has)
{
    uint64_t end = (uint64_t)f->begin + f->planned;

    return has == end || (has > end && (f->planned == f->cut || f->c->cuts));
}

static int collate_planned_fit_sample(const struct fit *f)
{
    uint32_t leaf = 0;

    int r = sample_check(f->sample, f->err);
    if (r < 0)
        return r;
    if (!collate_length_leaf(&f->sample->tree, f->c->length_of, &leaf))
        return collate_planned_refuse_leaf(f);
    uint64_t has = f->sample->tree.nodes[leaf].shape[0];
    if (has == f->planned && f->begin == 0)
        return 0;
    if (f->part ? !collate_planned_has_part(f, has) : has < f->planned || f->planned != f->cut)
        return collate_planned_refuse_length(f, has);
    collate_planned_cut_sample(f, leaf);
    return 0;
}

int collate_fit(const struct collate *c, struct sample *samples, const uint64_t *numbers, size_t n,
                const struct planned *planned, size_t *ret_bad, struct dl_error *err)
{
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++) {
        *ret_bad = i;
        r = collate_planned_fit_sample(
            &(struct fit){.c = c,
                          .sample = &samples[i],
                          .number = numbers[i],
                          .planned = planned->lengths[i],
                          .cut = planned->cut,
                          .part = planned->begins,
                          .begin = planned->begins ? planned->begins[i] : 0,
                          .err = err});
    }
    return r;
}
