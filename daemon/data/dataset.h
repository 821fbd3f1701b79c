/*
 * Datasets: where samples come from. Used by workers and by single-process loading.
 *
 * A dataset here is map-style with samples of one fixed shape: its `schema` says what a sample is
 * (tree.h), and gather() copies whole samples straight into the batch they belong to, so that a
 * byte moves once between the file and the trainer. Not thread-safe. May block on the disk.
 */
#ifndef DL_DATASET_H
#define DL_DATASET_H

#include "proto/spec.h"
#include "proto/tree.h"

struct dataset;

struct dataset_ops {
    /*
     * Copies samples indices[0..n) one after another into dst[l] for each leaf l of the schema in
     * preorder; sample i of leaf l lands at dst[l] + i·leaf bytes. Indices are below length.
     * Returns 0, or a negative errno with `err` and *ret_bad = position in `indices` at fault.
     */
    int (*gather)(struct dataset *ds, const uint64_t *indices, size_t n, void *const *dst,
                  size_t *ret_bad, struct dl_error *err);
    /* Asks the memory for the beginning of a sample that comes soon; below length. May be NULL. */
    void (*expect)(struct dataset *ds, uint64_t index);
    void (*close)(struct dataset *ds); /* frees what open made, and ds itself */
};

struct dataset {
    const struct dataset_ops *ops;
    uint64_t length;    /* samples */
    struct tree schema; /* owned; of one sample */
    uint32_t n_leaves;  /* tensors in the schema */
};

/* Directories that data files must lie below once links are resolved; n = 0: anywhere. */
struct data_roots {
    char **paths; /* borrowed; absolute, resolved */
    uint32_t n;
};

/*
 * Opens the dataset a spec describes. Errors name the file (err->path) and what is wrong with it:
 * missing, truncated, wrong magic, size that does not fit the shape, unequal lengths.
 */
int _nodiscard_ dataset_open(const struct spec_dataset *spec, const struct data_roots *roots,
                             struct dataset **ret, struct dl_error *err);
struct dataset *dataset_close(struct dataset *ds); /* NULL is fine; returns NULL */

static inline void dataset_expect(struct dataset *ds, uint64_t index)
{
    if (ds->ops->expect)
        ds->ops->expect(ds, index);
}

#endif
