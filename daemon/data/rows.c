#include "daemon/data/rows.h"
#include "proto/dtype.h"

#include <assert.h>
#include <errno.h>

struct leaf {
    struct tree_node *node; /* borrowed from rows.tree */
    uint64_t row_bytes;
};

struct rows {
    struct dataset *dataset; /* borrowed */
    uint64_t batch_size;     /* 0: not batched */

    struct tree_node *tree; /* owned: the encoded tree, as it goes into the slot */
    struct leaf *leaves;    /* owned; dataset->n_leaves of them */
    void **dst;             /* owned; where each leaf goes in the slot being filled */
    struct batch_mix *mix;  /* owned; NULL: none */
    void *labels;           /* owned; with a mix, labels as the dataset has them */
    uint64_t labels_room;   /* bytes of them */
    uint64_t label_bytes;   /* of one */

    /* The layout that `tree` holds now; samples 0: none. */
    uint64_t samples;
    struct batch_layout layout;
};

/* False, and no layout, when it would not fit any segment. */
static bool rows_lay_out(struct rows *rows, uint64_t samples, uint64_t begin)
{
    rows->samples = 0;
    rows->layout = batch_layout_begin(begin, &rows->dataset->schema);
    for (uint32_t i = 0; i < rows->dataset->n_leaves; i++) {
        struct leaf *leaf = &rows->leaves[i];
        if (mul_overflows(leaf->row_bytes, samples, &leaf->node->nbytes) ||
            !batch_layout_place(&rows->layout, leaf->node))
            return false;
        if (rows->batch_size > 0)
            leaf->node->shape[0] = samples;
    }
    rows->samples = samples;
    return true;
}

/* With a mix, a label is shares of all classes. */
static void rows_widen_label(struct rows *rows)
{
    struct leaf *leaf = &rows->leaves[batch_mix_label(rows->mix)];
    uint64_t classes = batch_mix_classes(rows->mix);

    rows->label_bytes = leaf->row_bytes;
    leaf->row_bytes = classes * sizeof(float);
    leaf->node->dtype = DL_DTYPE_FLOAT32;
    leaf->node->shape[leaf->node->ndim++] = classes;
}

/* The schema's encoded tree, with room made for the batch dimension. */
static int rows_build_tree(struct rows *rows, struct dl_error *err)
{
    const struct tree *schema = &rows->dataset->schema;
    uint32_t leaf = 0;

    rows->tree = calloc(1, tree_encoded_bytes(schema));
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
                                "samples of %u dimensions leave no dimension for the batch (%u "
                                "is the maximum); use null, or reshape the data",
                                node->ndim, (unsigned)TREE_DIMS);
        memmove(node->shape + 1, node->shape, node->ndim * sizeof *node->shape);
        node->ndim++;
    }
    assert(leaf == rows->dataset->n_leaves);
    if (rows->mix)
        rows_widen_label(rows);
    return 0;
}

static void rows_freep(struct rows **rows)
{
    *rows = rows_free(*rows);
}

int rows_new(struct dataset *dataset, uint64_t batch_size, struct batch_mix *mix, struct rows **ret,
             struct dl_error *err)
{
    _cleanup_(rows_freep) struct rows *rows = calloc(1, sizeof *rows);

    if (!rows) {
        batch_mix_free(mix);
        return dl_error_set(err, ENOMEM, "dataset", "out of memory");
    }
    rows->mix = mix;
    rows->dataset = dataset;
    rows->batch_size = batch_size;
    int r = rows_build_tree(rows, err);
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
    free(rows->labels);
    batch_mix_free(rows->mix);
    free(rows);
    return NULL;
}

int rows_measure(struct rows *rows, uint64_t samples, uint64_t begin, struct batch_layout *ret,
                 struct dl_error *err)
{
    if ((rows->samples != samples || rows->layout.begin != begin) &&
        !rows_lay_out(rows, samples, begin))
        return dl_error_set(err, EFBIG, "batch.size",
                            "%llu samples of this dataset need more than the %llu bytes a segment "
                            "can have; choose a smaller batch",
                            (ull)samples, (ull)DL_MAX_SEGMENT_BYTES);
    *ret = rows->layout;
    return 0;
}

/* To where `n` rows from here go. */
static void rows_advance(struct rows *rows, int64_t n)
{
    for (uint32_t i = 0; i < rows->dataset->n_leaves; i++) {
        bool mixed = rows->mix && i == batch_mix_label(rows->mix);
        uint64_t bytes = mixed ? rows->label_bytes : rows->leaves[i].row_bytes;
        rows->dst[i] = (char *)rows->dst[i] + n * (int64_t)bytes;
    }
}

/* Rows between a prefetch and its use: time enough for one access to memory. */
enum { ROWS_AHEAD = 8 };

/* Which is what read_rows() does by itself for rows that it reads together. */
static void rows_announce(const struct rows *rows, const uint64_t *indices, uint64_t i)
{
    uint64_t index = i < rows->samples ? __atomic_load_n(&indices[i], __ATOMIC_RELAXED) : 0;

    if (i < rows->samples && index < rows->dataset->length)
        dataset_expect(rows->dataset, index);
}

static int rows_read_watched(struct rows *rows, const struct sample_key *key,
                             const uint64_t *indices, struct slow_watch *watch, size_t *ret_bad,
                             struct dl_error *err)
{
    uint64_t i;
    int r = 0;

    for (i = 0; i < rows->samples && r == 0; i++) {
        uint64_t index = __atomic_load_n(&indices[i], __ATOMIC_RELAXED);
        size_t bad = 1;

        rows_announce(rows, indices, i + ROWS_AHEAD);
        r = dataset_read_rows(rows->dataset, key, &index, 1, rows->dst, &bad, err);
        if (r < 0 && bad == 0)
            *ret_bad = i;
        (void)slow_watch_sample(watch, index);
        rows_advance(rows, 1);
    }
    rows_advance(rows, -(int64_t)i);
    return r;
}

/* As dataset_read_rows(), of all rows to rows->dst; watched, one by one. */
static int rows_read(struct rows *rows, const struct sample_key *key, const uint64_t *indices,
                     struct slow_watch *watch, size_t *ret_bad, struct dl_error *err)
{
    if (watch->on)
        return rows_read_watched(rows, key, indices, watch, ret_bad, err);
    return dataset_read_rows(rows->dataset, key, indices, rows->samples, rows->dst, ret_bad, err);
}

/* The labels apart; and mixes them. */
static int rows_write_mixed(struct rows *rows, const struct sample_key *key,
                            const uint64_t *indices, struct slow_watch *watch, size_t *ret_bad,
                            struct dl_error *err)
{
    struct batch_mix_rows mix_rows = {.leaves = rows->dst, .n = rows->samples};
    uint32_t label = batch_mix_label(rows->mix);
    uint64_t bytes = rows->samples * rows->label_bytes;
    void *soft = rows->dst[label];
    struct draws_keyed draws;

    if (bytes > rows->labels_room) {
        free(rows->labels);
        rows->labels = calloc(1, bytes);
        rows->labels_room = rows->labels ? bytes : 0;
    }
    if (!rows->labels)
        return dl_error_set(err, ENOMEM, "collate", "out of memory for labels");
    rows->dst[label] = rows->labels;
    draws_keyed_init_batch(&draws, key->seed, key->epoch,
                           key->base + __atomic_load_n(&indices[0], __ATOMIC_RELAXED));
    int r = rows_read(rows, key, indices, watch, ret_bad, err);
    rows->dst[label] = soft;
    mix_rows.labels = rows->labels;
    return r < 0 ? r : batch_mix_run(rows->mix, &draws.base, &mix_rows, ret_bad, err);
}

int rows_write(struct rows *rows, const struct sample_key *key, const uint64_t *indices, void *slot,
               struct slow_watch *watch, size_t *ret_bad, struct dl_error *err)
{
    char *bytes = slot;

    batch_layout_zero_gaps(&rows->layout, rows->tree, slot);
    memcpy(bytes + rows->layout.tree_off, rows->tree, rows->layout.tree_len);
    for (uint32_t i = 0; i < rows->dataset->n_leaves; i++)
        rows->dst[i] = bytes + rows->leaves[i].node->offset;
    if (rows->mix)
        return rows_write_mixed(rows, key, indices, watch, ret_bad, err);
    return rows_read(rows, key, indices, watch, ret_bad, err);
}
