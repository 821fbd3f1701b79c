/* Loader specs from text, for the tests of proto/spec.h. */
#ifndef DL_TEST_SPEC_TEXT_H
#define DL_TEST_SPEC_TEXT_H

#include "proto/spec.h"
#include "proto/yaml.h"
#include "tests/lib/harness.h"

static inline int read_spec(const char *text, const char *base, struct dl_spec *ret,
                            struct dl_error *err)
{
    _cleanup_(value_deinit)
    struct value v = {0};

    int r = yaml_parse(text, strlen(text), "spec", &v, err);
    if (r < 0)
        fail_msg("%s: %s: %s", text, err->path, err->message);
    return spec_from_value(&v, base, ret, err);
}

static inline void expect_spec(const char *text, struct dl_spec *ret)
{
    struct dl_error err = {0};
    int r = read_spec(text, "/base", ret, &err);
    if (r < 0)
        fail_msg("%s: %s: %s", text, err.path, err.message);
    assert_int_equal(err.code, 0);
}

#endif
