/*
 * The batch image: header | indices | tree | tensors, each part 64-byte aligned.
 *
 * The image's layout depends only on the number of samples. It is worked out once for the full
 * batch, with its tree already encoded, and again only when the number changes (the last, short
 * batch of an epoch). A fill is then: the tree copied, the gaps zeroed, and each leaf's rows
 * gathered to where they stay.
 *
 * The slot's header and indices are shared memory: each field is read once, checked, and used.
 */
#include "daemon/data/fetch.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

enum { ERROR_ALIGN = 8 };

struct fetcher {
    struct dataset *dataset; /* owned */
    uint64_t batch_size;     /* 0: not batched */
    uint64_t seed;
    uint64_t slot_bytes; /* for `largest` samples */

    struct tree_node *tree; /* owned: the encoded tree, as it goes into the slot */
    uint32_t tree_len;
    uint32_t tree_count;

    struct fetch_leaf *leaves; /* owned; dataset->n_leaves of them */
    void **dst;                /* owned; where each leaf goes in the slot being filled */

    /* The layout that `tree` holds now; offsets from the start of the slot. */
    uint64_t samples;
    uint64_t tree_off;
    uint64_t data_off;
    uint64_t used;
};

struct fetch_leaf {
    struct tree_node *node; /* borrowed from fetcher.tree */
    uint64_t row_bytes;
    uint64_t gap; /* bytes between its end and the next leaf */
};

/*
 * Lays the image out for `samples` and writes it into the tree. -ENOBUFS, with the layout
 * unchanged in effect (samples = 0: none), when it would not fit any segment.
 */
static int lay_out(struct fetcher *f, uint64_t samples)
{
    const uint64_t limit = DL_MAX_SEGMENT_BYTES - SEGMENT_HEADER_BYTES;
    uint64_t end;

    assert(samples >= 1 && samples <= DL_MAX_BATCH_SIZE);
    f->samples = 0;
    f->tree_off = align_up(SLOT_HEADER_BYTES + samples * sizeof(uint64_t), TREE_ALIGN);
    f->data_off = align_up(f->tree_off + f->tree_len, TREE_ALIGN);
    end = f->data_off;
    for (uint32_t i = 0; i < f->dataset->n_leaves; i++) {
        struct fetch_leaf *leaf = &f->leaves[i];
        uint64_t start = align_up(end, TREE_ALIGN), nbytes;

        if (i > 0)
            f->leaves[i - 1].gap = start - end;
        if (mul_overflows(leaf->row_bytes, samples, &nbytes) || nbytes > limit - start)
            return -ENOBUFS;
        leaf->node->offset = start;
        leaf->node->nbytes = nbytes;
        if (f->batch_size > 0)
            leaf->node->shape[0] = samples;
        end = start + nbytes;
        leaf->gap = 0;
        if (align_up(end, SLOT_ALIGN) > limit)
            return -ENOBUFS;
    }
    f->used = end;
    f->samples = samples;
    return 0;
}

/* The schema's encoded tree, with room made for the batch dimension. */
static int build_tree(struct fetcher *f, struct dl_error *err)
{
    const struct tree *schema = &f->dataset->schema;
    uint32_t leaf = 0;

    f->tree_len = (uint32_t)tree_encoded_bytes(schema);
    f->tree_count = schema->count;
    f->tree = calloc(1, f->tree_len);
    f->leaves = calloc(f->dataset->n_leaves, sizeof *f->leaves);
    f->dst = calloc(f->dataset->n_leaves, sizeof *f->dst);
    if (!f->tree || !f->leaves || !f->dst)
        return dl_error_set(err, ENOMEM, "dataset", "out of memory");
    tree_encode(schema, f->tree);

    for (uint32_t i = 0; i < schema->count; i++) {
        struct tree_node *node = &f->tree[i];
        if (node->kind != TREE_TENSOR)
            continue;
        assert(leaf < f->dataset->n_leaves);
        f->leaves[leaf++] = (struct fetch_leaf){.node = node, .row_bytes = node->nbytes};
        if (f->batch_size == 0)
            continue;
        if (node->ndim == TREE_DIMS)
            return dl_error_set(err, EINVAL, "batch.size",
                                "samples of %u dimensions leave none for the batch (%u in all); "
                                "use null, or reshape the data",
                                node->ndim, (unsigned)TREE_DIMS);
        memmove(node->shape + 1, node->shape, node->ndim * sizeof *node->shape);
        node->ndim++;
    }
    assert(leaf == f->dataset->n_leaves);
    return 0;
}

static void fetcher_freep(struct fetcher **fetcher)
{
    *fetcher = fetcher_free(*fetcher);
}

int fetcher_new(const struct dl_spec *spec, const struct data_env *env, struct fetcher **ret,
                struct dl_error *err)
{
    _cleanup_(fetcher_freep)
    struct fetcher *f = NULL;
    uint64_t largest;
    int r;

    if (spec->batch_size > DL_MAX_BATCH_SIZE)
        return dl_error_set(err, EINVAL, "batch.size", "%llu is more than %llu",
                            (unsigned long long)spec->batch_size,
                            (unsigned long long)DL_MAX_BATCH_SIZE);
    f = calloc(1, sizeof *f);
    if (!f)
        return dl_error_set(err, ENOMEM, "dataset", "out of memory");
    f->batch_size = spec->batch_size;
    f->seed = spec->seed;
    if ((r = dataset_open(&spec->dataset, env, &f->dataset, err)) < 0 ||
        (r = build_tree(f, err)) < 0)
        return r;
    /* "All of it in one batch" is written as a large number; slots need not be as large. */
    largest = max_u64(min_u64(f->batch_size, f->dataset->length), 1);
    if (lay_out(f, largest) < 0)
        return dl_error_set(err, EFBIG, "batch.size",
                            "%llu samples of this dataset need more than the %llu bytes a segment "
                            "can have; choose a smaller batch",
                            (unsigned long long)largest, (unsigned long long)DL_MAX_SEGMENT_BYTES);
    f->slot_bytes = align_up(f->used, SLOT_ALIGN);
    *ret = steal_ptr(f);
    return 0;
}

struct fetcher *fetcher_free(struct fetcher *f)
{
    if (!f)
        return NULL;
    dataset_close(f->dataset);
    free(f->tree);
    free(f->leaves);
    free(f->dst);
    free(f);
    return NULL;
}

uint64_t fetcher_length(const struct fetcher *f)
{
    return f->dataset->length;
}

bool fetcher_is_iterable(const struct fetcher *f)
{
    return dataset_is_iterable(f->dataset);
}

void fetcher_forget(struct fetcher *f, uint32_t stream)
{
    (void)f;
    (void)stream;
}

uint64_t fetcher_slot_bytes(const struct fetcher *f)
{
    return f->slot_bytes;
}

/*
 * Leaves the error in the slot, where the tree would begin, cut to the room there is. `err` is the
 * error's only other copy; its path and message become one text, as dlctl prints them.
 */
static int put_error(struct slot_header *header, uint64_t slot_bytes, uint64_t samples,
                     uint64_t index, const struct dl_error *err)
{
    uint64_t off = align_up(SLOT_HEADER_BYTES + samples * sizeof(uint64_t), ERROR_ALIGN);
    char *text = (char *)header + off;
    int len = 0;

    header->tree_off = 0;
    header->tree_len = 0;
    header->tree_count = 0;
    header->data_off = 0;
    header->error_code = (uint32_t)err->code;
    header->error_index = index;
    header->error_off = 0;
    header->error_len = 0;
    header->used = SLOT_HEADER_BYTES + samples * sizeof(uint64_t);
    if (off >= slot_bytes)
        return -err->code;
    len = snprintf(text, slot_bytes - off, "%s%s%s", err->path, err->path[0] ? ": " : "",
                   err->message);
    header->error_off = off;
    header->error_len = (uint32_t)min_u64((uint64_t)len, slot_bytes - off - 1);
    header->used = off + header->error_len + 1;
    return -err->code;
}

/* What stands in the header before the fill. */
struct task {
    const uint64_t *indices;
    uint64_t samples;
};

static int read_task(const struct fetcher *f, const void *slot, uint64_t slot_bytes,
                     struct task *ret, struct dl_error *err)
{
    const volatile struct slot_header *header = slot;
    uint64_t samples, off;
    uint32_t unbatched;

    if (slot_bytes < SLOT_HEADER_BYTES)
        return dl_error_set(err, EINVAL, "", "a slot of %llu bytes has no room for its header",
                            (unsigned long long)slot_bytes);
    samples = header->samples;
    off = header->indices_off;
    unbatched = header->unbatched;
    if (samples == 0 || samples > max_u64(f->batch_size, 1))
        return dl_error_set(err, EINVAL, "", "a task of %llu samples, where batch.size is %llu",
                            (unsigned long long)samples, (unsigned long long)f->batch_size);
    if (unbatched != (f->batch_size == 0) || off != SLOT_HEADER_BYTES ||
        slot_bytes < off + samples * sizeof(uint64_t))
        return dl_error_set(err, EINVAL, "", "the slot's header is damaged");
    *ret = (struct task){.indices = (const void *)((const char *)slot + off), .samples = samples};
    return 0;
}

/* Everything but the rows: tree, gaps, the worker's part of the header. */
static void write_frame(const struct fetcher *f, struct slot_header *header)
{
    char *slot = (char *)header;
    uint64_t indices_end = SLOT_HEADER_BYTES + f->samples * sizeof(uint64_t);
    uint64_t tree_end = f->tree_off + f->tree_len;

    memset(slot + indices_end, 0, f->tree_off - indices_end);
    memcpy(slot + f->tree_off, f->tree, f->tree_len);
    memset(slot + tree_end, 0, f->data_off - tree_end);
    for (uint32_t i = 0; i < f->dataset->n_leaves; i++) {
        const struct fetch_leaf *leaf = &f->leaves[i];
        f->dst[i] = slot + leaf->node->offset;
        memset(slot + leaf->node->offset + leaf->node->nbytes, 0, leaf->gap);
    }
    header->tree_off = f->tree_off;
    header->tree_len = f->tree_len;
    header->tree_count = f->tree_count;
    header->data_off = f->data_off;
    header->used = f->used;
    header->error_code = 0;
    header->error_len = 0;
    header->error_off = 0;
    header->error_index = UINT64_MAX;
}

int fetcher_fill(struct fetcher *f, void *slot, uint64_t slot_bytes, uint64_t *ret_used,
                 struct dl_error *err)
{
    struct slot_header *header = slot;
    struct dl_error own = {0};
    struct task task = {0};
    size_t bad = 0;
    int r;

    assert((uintptr_t)slot % TREE_ALIGN == 0);
    if (!err)
        err = &own;
    r = read_task(f, slot, slot_bytes, &task, err);
    if (r < 0)
        return slot_bytes < SLOT_HEADER_BYTES ? r
                                              : put_error(header, slot_bytes, 0, UINT64_MAX, err);
    if (task.samples != f->samples && lay_out(f, task.samples) < 0) {
        dl_error_set(err, EFBIG, "batch.size",
                     "%llu samples of this dataset need more than the %llu bytes a segment can "
                     "have; choose a smaller batch",
                     (unsigned long long)task.samples, (unsigned long long)DL_MAX_SEGMENT_BYTES);
        return put_error(header, slot_bytes, task.samples, UINT64_MAX, err);
    }
    if (f->used > slot_bytes) {
        *ret_used = f->used;
        return -ENOBUFS;
    }
    write_frame(f, header);
    struct sample_key key = {.seed = f->seed, .epoch = header->epoch};
    r = f->dataset->ops->gather(f->dataset, &key, task.indices, task.samples, f->dst, &bad, err);
    if (r < 0)
        return put_error(header, slot_bytes, task.samples, task.indices[bad], err);
    *ret_used = f->used;
    return 0;
}
