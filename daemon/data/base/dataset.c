/* What datasets of all kinds share. */
#include "daemon/data/base/dataset.h"

#include "daemon/data/base/rng.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

int dataset_refuse_index(const struct dataset *ds, uint64_t index, struct dl_error *err)
{
    return dl_error_set(err, ERANGE, "", "sample %llu is beyond the dataset's %llu samples",
                        (ull)index, (ull)ds->length);
}

size_t dataset_put_name(const char *path, const char *what, uint64_t n, char *ret, size_t room)
{
    int len = snprintf(ret, room, "%s: %s %llu", path, what, (ull)n);

    return len < 0 ? 0 : (size_t)len;
}

struct dataset *dataset_close(struct dataset *ds)
{
    if (ds)
        ds->ops->close(ds);
    return NULL;
}

/* The schema as the sample's tree, and memory for each leaf. */
static int dataset_copy_schema(const struct dataset *ds, struct sample *ret, void **dst)
{
    const struct tree *schema = &ds->schema;
    uint32_t leaf = 0;

    for (uint32_t i = 0; i < schema->count; i++) {
        const struct tree_node *node = &schema->nodes[i];
        if (node->kind == TREE_TENSOR)
            dst[leaf++] = sample_alloc(ret, node->nbytes);
    }
    return sample_copy_tree(ret, schema, (const void *const *)dst);
}

/* With the sample's name in the error. */
static int dataset_make_raw(struct dataset *ds, uint64_t index, struct sample *sample,
                            struct dl_error *err)
{
    char name[DL_ERROR_PATH_MAX] = "";
    struct dl_error why = {0};
    int r = sample_bytes_to_numbers(sample, ds->raw, &why);

    if (r == 0)
        return 0;
    dataset_name(ds, index, name, sizeof name);
    return dl_error_set(err, -r, name, "%s", why.message);
}

int dataset_read_rows(struct dataset *ds, const struct sample_key *key, const uint64_t *indices,
                      size_t n, void *const *dst, size_t *ret_bad, struct dl_error *err)
{
    int r = 0;

    if (ds->ops->read_rows)
        return ds->ops->read_rows(ds, key, indices, n, dst, ret_bad, err);
    for (size_t i = 0; r == 0 && i < n; i++) {
        /* Once: another process may write to the slot these lie in. */
        uint64_t index = __atomic_load_n(&indices[i], __ATOMIC_RELAXED);
        *ret_bad = i;
        r = index < ds->length ? ds->ops->read_row(ds, key, index, dst, i, err)
                               : dataset_refuse_index(ds, index, err);
    }
    return r;
}

int dataset_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                struct sample *ret, struct dl_error *err)
{
    size_t bad;

    if (index >= ds->length)
        return dataset_refuse_index(ds, index, err);
    if (ds->ops->get) {
        int r = ds->ops->get(ds, key, index, ret, err);
        return r == 0 && ds->raw ? dataset_make_raw(ds, index, ret, err) : r;
    }
    void **dst = sample_alloc(ret, max_u64(ds->n_leaves, 1) * sizeof *dst);
    int r = dst ? dataset_copy_schema(ds, ret, dst) : ret->error;
    if (r < 0)
        return sample_check(ret, err);
    return dataset_read_rows(ds, key, &index, 1, dst, &bad, err);
}

/* Counters that no sample uses: those of samples are 0 in this place. */
enum { COUNTER_REPLICAS = 1, COUNTER_STEPS = 2 };

uint64_t dataset_replica_seed(uint64_t seed, uint64_t epoch, uint32_t rank, uint32_t workers,
                              uint32_t worker)
{
    philox4x64_key_t key = {.v = {seed, epoch}};
    philox4x64_ctr_t counter = {.v = {0, 0, 0, COUNTER_REPLICAS}};

    /* 63 bits, like PyTorch's base seed; replicas of one epoch differ by the number added. */
    return (philox4x64(counter, key).v[0] >> 1) + (uint64_t)rank * workers + worker;
}

uint64_t dataset_step_seed(uint64_t seed, uint64_t epoch, uint32_t rank, uint64_t step)
{
    philox4x64_key_t key = {.v = {seed, epoch}};
    philox4x64_ctr_t counter = {.v = {step, rank, 0, COUNTER_STEPS}};

    return philox4x64(counter, key).v[0] >> 1;
}
