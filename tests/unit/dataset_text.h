/* Datasets of a spec as it is written, with paths from the test's folder. */
#ifndef DL_TEST_DATASET_TEXT_H
#define DL_TEST_DATASET_TEXT_H

#include "proto/yaml.h"
#include "tests/unit/data_files.h"

/* A whole spec, for spec_deinit(). */
static inline struct dl_spec read_loader(const char *text)
{
    _cleanup_(value_deinit) struct value v = {0};
    struct dl_spec spec = {0};
    struct dl_error err = {0};

    if (yaml_parse(text, strlen(text), "t", &v, &err) < 0 ||
        spec_from_value(&v, harness_tmpdir(), &spec, &err) < 0)
        fail_msg("%s: %s: %s", text, err.path, err.message);
    return spec;
}

/* A spec of that dataset, likewise. */
static inline struct dl_spec read_dataset(const char *text)
{
    _cleanup_free_ char *whole = NULL;

    assert_true(asprintf(&whole, "dataset: %s", text) > 0);
    return read_loader(whole);
}

static inline struct dataset *open_dataset(const char *text, const struct data_env *env)
{
    struct dl_spec spec = read_dataset(text);
    struct dl_error err = {0};
    struct dataset *ds = NULL;

    if (dataset_open(&spec.dataset, env, &ds, &err) < 0)
        fail_msg("%s: %s: %s", text, err.path, err.message);
    spec_deinit(&spec); /* an open dataset needs it no more */
    return ds;
}

#endif
