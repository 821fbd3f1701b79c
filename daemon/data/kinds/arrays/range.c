/*
 * The dataset of kind range: sample i is the int64 number i. Uses no file and no memory. Map-style,
 * or iterable: then each replica counts through all of it, or, divided, through its own share.
 */
#include "daemon/data/kinds/arrays/array.h"
#include "daemon/data/kinds/kinds.h"

#include <errno.h>

struct range {
    struct dataset base;
    bool divide;
};

static int range_read_rows(struct dataset *ds, const struct sample_key *key,
                           const uint64_t *indices, size_t n, void *const *dst, size_t *ret_bad,
                           struct dl_error *err)
{
    uint64_t *out = dst[0];

    for (size_t i = 0; i < n; i++) {
        /* Once: another process may write to the slot these lie in. */
        uint64_t index = __atomic_load_n(&indices[i], __ATOMIC_RELAXED);
        if (index >= ds->length) {
            *ret_bad = i;
            return dataset_refuse_index(ds, index, err);
        }
        out[i] = index;
    }
    return 0;
}

/* ---- iterable ------------------------------------------------------------------------------- */

struct range_iter {
    struct dataset_iter base;
    uint64_t next;
    uint64_t stride;
    uint64_t length;
};

static int range_skip(struct dataset_iter *it, uint64_t n, uint64_t *ret)
{
    struct range_iter *range = container_of(it, struct range_iter, base);
    uint64_t left =
        range->length > range->next ? (range->length - range->next - 1) / range->stride + 1 : 0;

    range->next += min_u64(n, left) * range->stride;
    if (ret)
        *ret = min_u64(n, left);
    return n > left ? DATASET_END : 0;
}

static int range_next(struct dataset_iter *it, struct sample *ret, struct dl_error *err)
{
    struct range_iter *range = container_of(it, struct range_iter, base);

    if (range->next >= range->length)
        return DATASET_END;
    sample_int(ret, NULL, (int64_t)range->next);
    range->next += range->stride;
    return sample_check(ret, err);
}

static void range_iter_close(struct dataset_iter *it)
{
    free(container_of(it, struct range_iter, base));
}

static const struct dataset_iter_ops range_iter_ops = {
    .next = range_next, .skip = range_skip, .close = range_iter_close};

/* Divided as ranks and workers divide an order: ranks first, each rank's among its workers. */
static int range_iterate(struct dataset *ds, const struct replica_params *params,
                         struct dataset_iter **ret, struct dl_error *err)
{
    const struct range *range = container_of(ds, struct range, base);
    struct range_iter *it = calloc(1, sizeof *it);

    if (!it)
        return dl_error_set(err, ENOMEM, "dataset", "out of memory");
    *it = (struct range_iter){.base.ops = &range_iter_ops, .stride = 1, .length = ds->length};
    if (range->divide) {
        it->next = (uint64_t)params->worker * params->world + params->rank;
        it->stride = (uint64_t)params->workers * params->world;
    }
    *ret = &it->base;
    return 0;
}

/* ---- opening -------------------------------------------------------------------------------- */

static void range_close(struct dataset *ds)
{
    tree_deinit(&ds->schema);
    free(container_of(ds, struct range, base));
}

static const struct dataset_ops range_ops = {.read_rows = range_read_rows, .close = range_close};
static const struct dataset_ops range_iterable_ops = {.iterate = range_iterate,
                                                      .close = range_close};

int range_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
               struct dataset **ret, struct dl_error *err)
{
    struct range *range;
    struct dataset *ds;

    if (spec->length > INT64_MAX)
        return dl_error_set(err, EINVAL, "dataset.length",
                            "%llu is too large: samples are int64, at most %lld", (ull)spec->length,
                            (long long)INT64_MAX);
    range = calloc(1, sizeof *range);
    if (!range)
        return dl_error_set(err, ENOMEM, "dataset", "out of memory");
    ds = &range->base;
    ds->length = spec->length;
    range->divide = spec->divide;
    if (spec->iterable) {
        ds->ops = &range_iterable_ops;
        ds->can_skip = true;
    } else {
        ds->ops = &range_ops;
        ds->n_leaves = 1;
        if (tree_add_tensor(&ds->schema, NULL, DL_DTYPE_INT64, 0, NULL) < 0) {
            range_close(ds);
            return dl_error_set(err, ENOMEM, "dataset", "out of memory");
        }
    }
    *ret = ds;
    return 0;
}
