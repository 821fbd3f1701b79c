/* A dataset that opens, and one sample of it with what holds it. */
#ifndef DL_TEST_TAKEN_H
#define DL_TEST_TAKEN_H

#include "daemon/data/base/dataset.h"
#include "tests/lib/harness.h"

static inline struct dataset *must_open(const struct spec_dataset *spec)
{
    static const struct data_env anywhere_at_all;
    struct dataset *ds = NULL;
    struct dl_error err = {0};

    if (dataset_open(spec, &anywhere_at_all, &ds, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    return ds;
}

struct taken {
    struct arena arena;
    struct sample sample;
    struct dl_error err;
};

/* 0, or the error, which is told. drop() either way. */
static inline int take(struct dataset *ds, const struct sample_key *key, uint64_t i,
                       struct taken *t)
{
    *t = (struct taken){.sample.arena = &t->arena};
    int r = dataset_get(ds, key, i, &t->sample, &t->err);

    assert_true(r == 0 || r == -t->err.code);
    return r;
}

static inline void drop(struct taken *t)
{
    sample_deinit(&t->sample);
    arena_deinit(&t->arena);
}

#endif
