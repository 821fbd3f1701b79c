#include "daemon/data/rows.h"

#include "proto/segment_layout.h"

#include <assert.h>
#include <errno.h>

struct leaf {
    struct tree_node *node; /* borrowed from rows.tree */
    uint64_t row_bytes;
    uint64_t gap; /* bytes between its end and the next leaf */
};

struct rows {
    struct dataset *dataset; /* borrowed */
    uint64_t batch_size;     /* 0: not batched */

    struct tree_node *tree; /* owned: the encoded tree, as it goes into the slot */
    struct leaf *leaves;    /* owned; dataset->n_leaves of them */
    void **dst;             /* owned; where each leaf goes in the slot being filled */

    /* The layout that `tree` holds now; samples 0: none. */
    uint64_t samples;
    uint64_t begin;
    struct batch_layout layout;
};

/* -EFBIG, and no layout, when it would not fit any segment. */
static int lay_out(struct rows *rows, uint64_t samples, uint64_t begin)
{
    const uint64_t limit = DL_MAX_SEGMENT_BYTES - SEGMENT_HEADER_BYTES;
    struct batch_layout *layout = &rows->layout;
    uint64_t end;

    rows->samples = 0;
    rows->begin = begin;
    layout->tree_off = align_up(begin, TREE_ALIGN);
    layout->data_off = align_up(layout->tree_off + layout->tree_len, TREE_ALIGN);
    end = layout->data_off;
    for (uint32_t i = 0; i < rows->dataset->n_leaves; i++) {
        struct leaf *leaf = &rows->leaves[i];
        uint64_t start = align_up(end, TREE_ALIGN), nbytes;

        if (i > 0)
            rows->leaves[i - 1].gap = start - end;
        if (mul_overflows(leaf->row_bytes, samples, &nbytes) || nbytes > limit - start)
            return -EFBIG;
        leaf->node->offset = start;
        leaf->node->nbytes = nbytes;
        if (rows->batch_size > 0)
            leaf->node->shape[0] = samples;
        end = start + nbytes;
        leaf->gap = 0;
        if (align_up(end, SLOT_ALIGN) > limit)
            return -EFBIG;
    }
    layout->used = end;
    rows->samples = samples;
    return 0;
}

/* The schema's encoded tree, with room made for the batch dimension. */
static int build_tree(struct rows *rows, struct dl_error *err)
{
    const struct tree *schema = &rows->dataset->schema;
    uint32_t leaf = 0;

    rows->layout.tree_len = (uint32_t)tree_encoded_bytes(schema);
    rows->layout.tree_count = schema->count;
    rows->tree = calloc(1, rows->layout.tree_len);
    rows->leaves = calloc(rows->dataset->n_leaves, sizeof *rows->leaves);
    rows->dst = calloc(rows->dataset->n_leaves, sizeof *rows->dst);
    if (!rows->tree || !rows->leaves || !rows->dst)
        return dl_error_set(err, ENOMEM, "dataset", "out of memory");
    tree_encode(schema, rows->tree);

    for (uint32_t i = 0; i < schema->count; i++) {
        struct tree_node *node = &rows->tree[i];
        if (node->kind != TREE_TENSOR)
            continue;
        assert(leaf < rows->dataset->n_leaves);
        rows->leaves[leaf++] = (struct leaf){.node = node, .row_bytes = node->nbytes};
        if (rows->batch_size == 0)
            continue;
        if (node->ndim == TREE_DIMS)
            return dl_error_set(err, EINVAL, "batch.size",
                                "samples of %u dimensions leave none for the batch (%u in all); "
                                "use null, or reshape the data",
                                node->ndim, (unsigned)TREE_DIMS);
        memmove(node->shape + 1, node->shape, node->ndim * sizeof *node->shape);
        node->ndim++;
    }
    assert(leaf == rows->dataset->n_leaves);
    return 0;
}

static void rows_freep(struct rows **rows)
{
    *rows = rows_free(*rows);
}

int rows_new(struct dataset *dataset, uint64_t batch_size, struct rows **ret, struct dl_error *err)
{
    _cleanup_(rows_freep)
    struct rows *rows = calloc(1, sizeof *rows);

    if (!rows)
        return dl_error_set(err, ENOMEM, "dataset", "out of memory");
    rows->dataset = dataset;
    rows->batch_size = batch_size;
    int r = build_tree(rows, err);
    if (r < 0)
        return r;
    *ret = steal_ptr(rows);
    return 0;
}

struct rows *rows_free(struct rows *rows)
{
    if (!rows)
        return NULL;
    free(rows->tree);
    free(rows->leaves);
    free(rows->dst);
    free(rows);
    return NULL;
}

int rows_measure(struct rows *rows, uint64_t samples, uint64_t begin, struct batch_layout *ret,
                 struct dl_error *err)
{
    if ((rows->samples != samples || rows->begin != begin) && lay_out(rows, samples, begin) < 0)
        return dl_error_set(err, EFBIG, "batch.size",
                            "%llu samples of this dataset need more than the %llu bytes a segment "
                            "can have; choose a smaller batch",
                            (unsigned long long)samples, (unsigned long long)DL_MAX_SEGMENT_BYTES);
    *ret = rows->layout;
    return 0;
}

int rows_write(struct rows *rows, const struct sample_key *key, const uint64_t *indices, void *slot,
               size_t *ret_bad, struct dl_error *err)
{
    const struct batch_layout *layout = &rows->layout;
    uint64_t tree_end = layout->tree_off + layout->tree_len;
    char *bytes = slot;

    memset(bytes + rows->begin, 0, layout->tree_off - rows->begin);
    memcpy(bytes + layout->tree_off, rows->tree, layout->tree_len);
    memset(bytes + tree_end, 0, layout->data_off - tree_end);
    for (uint32_t i = 0; i < rows->dataset->n_leaves; i++) {
        const struct leaf *leaf = &rows->leaves[i];
        rows->dst[i] = bytes + leaf->node->offset;
        memset(bytes + leaf->node->offset + leaf->node->nbytes, 0, leaf->gap);
    }
    return rows->dataset->ops->gather(rows->dataset, key, indices, rows->samples, rows->dst,
                                      ret_bad, err);
}
