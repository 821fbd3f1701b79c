/* The dataset of kind range: sample i is the int64 number i. Has no file and no memory. */
#include "daemon/data/array.h"

#include <errno.h>

static int range_gather(struct dataset *ds, const struct sample_key *key, const uint64_t *indices,
                        size_t n, void *const *dst, size_t *ret_bad, struct dl_error *err)
{
    uint64_t *out = dst[0];

    for (size_t i = 0; i < n; i++) {
        /* Once: another process may write to the slot these lie in. */
        uint64_t index = __atomic_load_n(&indices[i], __ATOMIC_RELAXED);
        if (index >= ds->length) {
            *ret_bad = i;
            return dl_error_set(err, ERANGE, "", "sample %llu is beyond the dataset's %llu samples",
                                (unsigned long long)index, (unsigned long long)ds->length);
        }
        out[i] = index;
    }
    return 0;
}

static void range_close(struct dataset *ds)
{
    tree_deinit(&ds->schema);
    free(ds);
}

static const struct dataset_ops range_ops = {.gather = range_gather, .close = range_close};

int range_open(const struct spec_dataset *spec, struct dataset **ret, struct dl_error *err)
{
    struct dataset *ds;
    int r;

    if (spec->length > INT64_MAX)
        return dl_error_set(err, EINVAL, "dataset.length",
                            "%llu is too large: samples are int64, at most %lld",
                            (unsigned long long)spec->length, (long long)INT64_MAX);
    ds = calloc(1, sizeof *ds);
    if (!ds)
        return dl_error_set(err, ENOMEM, "dataset", "out of memory");
    *ds = (struct dataset){.ops = &range_ops, .length = spec->length, .n_leaves = 1};
    r = tree_add_tensor(&ds->schema, NULL, DL_DTYPE_INT64, 0, NULL);
    if (r < 0) {
        range_close(ds);
        return dl_error_set(err, -r, "dataset", "out of memory");
    }
    *ret = ds;
    return 0;
}
