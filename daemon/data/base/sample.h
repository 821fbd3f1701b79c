/*
 * One sample, between a dataset and collate: a tree whose leaves point to their bytes. Leaves are
 * tensors (a number is one without dimensions: int64, float64 or bool), strings (UTF-8) and bytes.
 *
 * Built in preorder. The first failure sticks: further calls do nothing and return it, so that a
 * builder may check once, at the end. Leaves' bytes are borrowed until the batch is made: they lie
 * in a mapped file, or in the sample's arena (sample_alloc()).
 *
 * A sample can also be its dataset's own object instead of a tree (sample_object()): rounds of
 * iterable datasets may consist of either, but collate accepts only trees.
 */
#ifndef DL_SAMPLE_H
#define DL_SAMPLE_H

#include "daemon/data/base/arena.h"
#include "proto/limits.h"
#include "proto/tree.h"

struct sample {
    struct tree tree;    /* owned; offsets mean nothing */
    const void **data;   /* owned; of each node; NULL for a container */
    struct arena *arena; /* borrowed; outlives what the sample points to */
    void *object;        /* owned; NULL: the sample is the tree */
    void (*release)(void *object);
    uint32_t data_room;                 /* entries of data */
    uint32_t depth;                     /* containers open */
    uint32_t open[DL_BOUND_TREE_DEPTH]; /* their nodes */
    int error;                          /* negative errno, or 0 */
    uint8_t origin; /* of a mix of iterable datasets: which gave it (slot_header.origins_off) */
};

/* Containers: a key only below a dict, and there always. begin … end around the children. -EINVAL
 * where a node cannot stand, or is of no such kind; -E2BIG, -ENAMETOOLONG. */
int sample_begin(struct sample *sample, enum tree_kind kind, const char *key);
int sample_end(struct sample *sample);

/* Leaves. `shape` in elements; `data` C-contiguous; -EFAULT: NULL, but of bytes there are some.
 * -EOVERFLOW, -E2BIG, -ENAMETOOLONG, -EINVAL as tree_add_tensor(). */
int sample_tensor(struct sample *sample, const char *key, uint32_t dtype, uint32_t ndim,
                  const uint64_t *shape, const void *data);
/* TREE_STRING (-EILSEQ: not UTF-8) or TREE_BYTES, of `len` bytes. */
int sample_text(struct sample *sample, enum tree_kind kind, const char *key, const void *data,
                size_t len);
/* Numbers; the value is copied. */
int sample_int(struct sample *sample, const char *key, int64_t value);
int sample_float(struct sample *sample, const char *key, double value);
int sample_bool(struct sample *sample, const char *key, bool value);

/*
 * Of a whole sample: each leaf of bytes becomes a tensor of one dimension of `dtype`, where it
 * lies, with the lowest byte of a number first. 0; or -EINVAL with `err`, whose message continues
 * the sample's name: a leaf's bytes are no whole number of elements.
 */
int _nodiscard_ sample_bytes_to_numbers(struct sample *sample, uint32_t dtype,
                                        struct dl_error *err);

/* Copies a whole tree of tensors, whose bytes lie at data[l] for leaf l. */
int sample_copy_tree(struct sample *sample, const struct tree *tree, const void *const *data);

/* The sample is `object`, which it takes over: `release` frees it. */
void sample_object(struct sample *sample, void *object, void (*release)(void *object));
/* Passes the object to the caller, who releases it; or NULL. */
void *sample_take_object(struct sample *sample);

/* Memory for a leaf's bytes, 64-byte aligned; NULL if out of memory, and -ENOMEM sticks. */
void *sample_alloc(struct sample *sample, size_t bytes);

/* Empty again; keeps its memory, its arena and forgets the error. */
void sample_clear(struct sample *sample);
void sample_deinit(struct sample *sample);

/* 0 for a whole sample: an object, or one root and nothing open; else the error, in words at `err`.
 */
int _nodiscard_ sample_check(const struct sample *sample, struct dl_error *err);

#endif
