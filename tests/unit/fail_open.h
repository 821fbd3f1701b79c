/*
 * Each allocation of ours fails once, while a dataset is opened and all of its samples are made:
 * for tests of kinds of datasets, in programs that wrap calloc and realloc.
 */
#ifndef DL_TEST_FAIL_OPEN_H
#define DL_TEST_FAIL_OPEN_H

#include "daemon/data/base/dataset.h"
#include "tests/lib/harness.h"
#include "tests/unit/dataset_text.h"
#include "tests/unit/fail_alloc.h"

#include <errno.h>

/* The samples of a map-style dataset, or one pass of an iterable one. */
static inline int fail_open_take(struct dataset *ds, struct sample *sample, struct dl_error *err)
{
    const struct replica_params params = {.workers = 1, .world = 1};
    const struct sample_key any = {0};
    struct dataset_iter *it = NULL;
    int r = 0;

    if (!dataset_is_iterable(ds)) {
        for (uint64_t i = 0; r == 0 && i < ds->length; i++) {
            r = dataset_get(ds, &any, i, sample, err);
            if (r == 0)
                sample_clear(sample);
        }
        return r;
    }
    r = ds->ops->iterate(ds, &params, &it, err);
    while (r == 0) {
        r = it->ops->next(it, sample, err);
        if (r == 0)
            sample_clear(sample);
    }
    if (it)
        it->ops->close(it);
    return r == DATASET_END ? 0 : r;
}

/* Until all of it succeeds; each failure that is not survived is -ENOMEM and told. Returns how many
 * allocations there were, *ret_refused how many of them were needed. */
static inline int fail_open_each(const struct spec_dataset *spec, int *ret_refused)
{
    static const struct data_env env;
    bool failed = true;
    int k = 0;

    *ret_refused = 0;
    for (; failed; k++) {
        struct arena arena = {0};
        struct sample sample = {.arena = &arena};
        struct dataset *ds = NULL;
        struct dl_error err = {0};
        fail_in = k;
        int r = dataset_open(spec, &env, &ds, &err);
        if (r == 0)
            r = fail_open_take(ds, &sample, &err);
        failed = fail_in < 0;
        fail_in = -1;
        assert_true(r == 0 || (failed && r == -ENOMEM));
        assert_int_equal(err.code, -r);
        *ret_refused += r < 0;
        dataset_close(ds);
        sample_deinit(&sample);
        arena_deinit(&arena);
    }
    return k - 1;
}

/* Each of them is needed. Fewer than `least` are too few to have been all. */
static inline void expect_memory_failures(const struct spec_dataset *spec, int least)
{
    int refused, all = fail_open_each(spec, &refused);

    assert_int_equal(refused, all);
    assert_true(all >= least);
}

/* Of a spec as it is written. */
static inline void expect_failures_of(const char *text, int least)
{
    _cleanup_(spec_deinit) struct dl_spec spec = read_dataset(text);

    expect_memory_failures(&spec.dataset, least);
}

#endif
