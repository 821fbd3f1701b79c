/*
 * Some samples of a dataset: those the spec lists (subset), or one part of a random split of all of
 * them (split), which is that of torch.utils.data.random_split() for a generator with the spec's
 * seed. Either is a table of indices; a split keeps only those of its own part.
 */
#include "daemon/data/base/place.h"
#include "daemon/data/collate/lengths.h"
#include "daemon/data/kinds/combine/combine.h"
#include "daemon/data/kinds/kinds.h"
#include "daemon/plan/permute.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

struct subset {
    struct dataset base;
    struct dataset *inner; /* owned */
    uint32_t *narrow;      /* owned; indices, where all of them fit; else NULL */
    uint64_t *wide;        /* owned; indices otherwise */
    struct leaf_cursor cursor;
};

static uint64_t subset_index_at(const struct subset *subset, uint64_t i)
{
    return subset->narrow ? subset->narrow[i] : subset->wide[i];
}

static int subset_read_rows(struct dataset *ds, const struct sample_key *key,
                            const uint64_t *indices, size_t n, void *const *dst, size_t *ret_bad,
                            struct dl_error *err)
{
    struct subset *subset = container_of(ds, struct subset, base);
    uint64_t inner[COMBINE_CHUNK];
    size_t count;

    leaf_cursor_begin(&subset->cursor, dst);
    for (size_t begin = 0; begin < n; begin += count) {
        count = min_u64(n - begin, COMBINE_CHUNK);
        for (size_t i = 0; i < count; i++) {
            uint64_t index = __atomic_load_n(&indices[begin + i], __ATOMIC_RELAXED);
            if (index >= ds->length) {
                *ret_bad = begin + i;
                return dataset_refuse_index(ds, index, err);
            }
            inner[i] = subset_index_at(subset, index);
        }
        int r =
            dataset_read_rows(subset->inner, key, inner, count, subset->cursor.dst, ret_bad, err);
        if (r < 0) {
            *ret_bad += begin;
            return r;
        }
        leaf_cursor_advance(&subset->cursor, count);
    }
    return 0;
}

static int subset_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                      struct sample *ret, struct dl_error *err)
{
    const struct subset *subset = container_of(ds, struct subset, base);

    return dataset_get(subset->inner, key, subset_index_at(subset, index), ret, err);
}

static void subset_expect(struct dataset *ds, uint64_t index)
{
    const struct subset *subset = container_of(ds, struct subset, base);
    dataset_expect(subset->inner, subset_index_at(subset, index));
}

static void subset_locate(struct dataset *ds, uint64_t index)
{
    const struct subset *subset = container_of(ds, struct subset, base);
    dataset_locate(subset->inner, subset_index_at(subset, index));
}

static size_t subset_name(struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    const struct subset *subset = container_of(ds, struct subset, base);
    return dataset_name(subset->inner, subset_index_at(subset, index), ret, room);
}

/* One call for each run of samples that follow each other in the inner dataset too. */
static int subset_lengths(struct dataset *ds, struct lengths_wanted *w, struct dl_error *err)
{
    const struct subset *subset = container_of(ds, struct subset, base);
    struct lengths_wanted inner = {.leaf = w->leaf};

    for (size_t done = 0; done < w->n; done += inner.n) {
        inner.first = subset_index_at(subset, w->first + done);
        for (inner.n = 1; done + inner.n < w->n; inner.n++)
            if (subset_index_at(subset, w->first + done + inner.n) != inner.first + inner.n)
                break;
        inner.ret = w->ret + done;
        int r = dataset_known_lengths(subset->inner, &inner, err);
        if (r < 0) {
            w->bad =
                inner.bad == UINT64_MAX ? inner.bad : w->first + done + (inner.bad - inner.first);
            return r;
        }
    }
    return 0;
}

static void subset_close(struct dataset *ds)
{
    struct subset *subset = container_of(ds, struct subset, base);

    dataset_close(subset->inner);
    free(subset->narrow);
    free(subset->wide);
    leaf_cursor_deinit(&subset->cursor);
    tree_deinit(&ds->schema);
    free(subset);
}

static const struct dataset_ops subset_ops = {.read_rows = subset_read_rows,
                                              .name = subset_name,
                                              .expect = subset_expect,
                                              .locate = subset_locate,
                                              .close = subset_close};
static const struct dataset_ops subset_varying_ops = {.get = subset_get,
                                                      .lengths = subset_lengths,
                                                      .name = subset_name,
                                                      .expect = subset_expect,
                                                      .locate = subset_locate,
                                                      .close = subset_close};

static int subset_alloc_table(struct subset *subset, uint64_t n, const char *place,
                              struct dl_error *err)
{
    uint64_t slots = max_u64(n, 1);

    subset->base.length = n;
    if (subset->inner->length <= UINT32_MAX)
        subset->narrow = calloc(slots, sizeof *subset->narrow);
    else
        subset->wide = calloc(slots, sizeof *subset->wide);
    if (subset->narrow || subset->wide)
        return 0;
    return dl_error_set(err, ENOMEM, place, "out of memory for the indices of %llu samples",
                        (ull)n);
}

static void subset_put_index(struct subset *subset, uint64_t i, uint64_t index)
{
    if (subset->narrow)
        subset->narrow[i] = (uint32_t)index;
    else
        subset->wide[i] = index;
}

/* ---- subset --------------------------------------------------------------------------------- */

static int subset_take_indices(struct subset *subset, const struct spec_dataset *spec,
                               const char *place, struct dl_error *err)
{
    char path[DL_ERROR_PATH_MAX];

    int r = subset_alloc_table(subset, spec->n_indices, place, err);
    for (uint32_t i = 0; r == 0 && i < spec->n_indices; i++) {
        if (spec->indices[i] >= subset->inner->length) {
            place_item(path, place, "indices", i);
            return dl_error_set(err, EINVAL, path, "%llu is beyond the %llu samples of its dataset",
                                (ull)spec->indices[i], (ull)subset->inner->length);
        }
        subset_put_index(subset, i, spec->indices[i]);
    }
    return r;
}

/* ---- split ---------------------------------------------------------------------------------- */

/* random_split()'s own arithmetic: the product is a double, its floor an integer. */
static uint64_t subset_floor_of(uint64_t length, double fraction)
{
    double samples = floor((double)length * fraction);
    return samples >= (double)length ? length : (uint64_t)samples;
}

/* How many samples part p has when what the floors leave goes round from the first part on. */
static uint64_t subset_fraction_length(const struct spec_dataset *spec, uint64_t length,
                                       uint64_t rest, uint32_t p)
{
    return subset_floor_of(length, spec->fractions[p]) + rest / spec->n_parts +
           (p < rest % spec->n_parts ? 1 : 0);
}

/* The consecutive piece of the order that is the spec's part. */
static int subset_find_piece(const struct spec_dataset *spec, uint64_t length, const char *place,
                             uint64_t *ret_begin, uint64_t *ret_count, struct dl_error *err)
{
    char path[DL_ERROR_PATH_MAX];
    uint64_t sum = 0, rest = 0, count = 0;

    for (uint32_t p = 0; p < spec->n_parts; p++) {
        uint64_t n = spec->lengths ? spec->lengths[p] : subset_floor_of(length, spec->fractions[p]);
        if (add_overflows(sum, n, &sum))
            sum = UINT64_MAX;
    }
    place_key(path, place, "parts");
    if (spec->lengths ? sum != length : sum > length)
        return dl_error_set(err, EINVAL, path,
                            "they add up to %llu samples, but the dataset has %llu", (ull)sum,
                            (ull)length);
    rest = length - sum;
    *ret_begin = 0;
    for (uint32_t p = 0; p <= spec->part; p++) {
        *ret_begin += count;
        count = spec->lengths ? spec->lengths[p] : subset_fraction_length(spec, length, rest, p);
    }
    *ret_count = count;
    return 0;
}

static int subset_take_part(struct subset *subset, const struct spec_dataset *spec,
                            const char *place, struct dl_error *err)
{
    struct permute_torch *order = NULL;
    uint64_t begin = 0, count = 0, length = subset->inner->length;
    int r;

    if ((r = subset_find_piece(spec, length, place, &begin, &count, err)) < 0 ||
        (r = subset_alloc_table(subset, count, place, err)) < 0)
        return r;
    if (permute_torch_new(length, length, spec->seed, PERMUTE_TORCH_INSIDE_OUT_FROM, &order) < 0)
        return dl_error_set(err, ENOMEM, place,
                            "out of memory for the random order of %llu samples", (ull)length);
    permute_torch_extend(order, begin + count);
    for (uint64_t i = 0; i < count; i++)
        subset_put_index(subset, i, permute_torch_at(order, begin + i));
    permute_torch_free(order);
    return 0;
}

/* subset and split: some samples of one dataset, in an order of their own. */
static int subset_open_some(const struct spec_dataset *spec, const char *place,
                            const struct data_env *env, struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep) struct dataset *ds = NULL;
    struct subset *subset;
    char path[DL_ERROR_PATH_MAX];
    int r;

    if (spec->n_datasets != 1 || (spec->kind == DATASET_SPLIT && spec->part >= spec->n_parts))
        return dl_error_set(err, EINVAL, place, "is not one dataset and a part of it");
    subset = calloc(1, sizeof *subset);
    if (!subset)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &subset->base;
    ds->ops = &subset_ops;
    place_key(path, place, "dataset");
    r = dataset_open_at(&spec->datasets[0], path, env, &subset->inner, err);
    if (r == 0)
        r = combine_check(subset->inner, path, err);
    if (r < 0)
        return r;
    ds->content = subset->inner->content;
    r = spec->kind == DATASET_SPLIT ? subset_take_part(subset, spec, place, err)
                                    : subset_take_indices(subset, spec, place, err);
    if (r < 0)
        return r;
    if (!dataset_is_fixed(subset->inner))
        ds->ops = &subset_varying_ops;
    else if (combine_schema(subset->inner, ds, &subset->cursor) < 0)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    *ret = steal_ptr(ds);
    return 0;
}

int subset_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                struct dataset **ret, struct dl_error *err)
{
    return subset_open_some(spec, place, env, ret, err);
}

int split_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
               struct dataset **ret, struct dl_error *err)
{
    return subset_open_some(spec, place, env, ret, err);
}
