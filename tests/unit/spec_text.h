/* Loader specs from text, for the tests of proto/spec.h. */
#ifndef DL_TEST_SPEC_TEXT_H
#define DL_TEST_SPEC_TEXT_H

#include "proto/spec_table.h"
#include "proto/yaml.h"
#include "tests/lib/harness.h"

#include <errno.h>
#include <stdio.h>

static inline int read_spec(const char *text, const char *base, struct dl_spec *ret,
                            struct dl_error *err)
{
    _cleanup_(value_deinit) struct value v = {0};

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

/* A section as written, and its canonical form. */
struct form {
    const char *written;
    const char *canonical;
};

static inline void pack_yaml(const char *text, struct dl_buffer *ret)
{
    _cleanup_(value_deinit) struct value v = {0};

    assert_int_equal(yaml_parse(text, strlen(text), "t", &v, NULL), 0);
    assert_int_equal(value_pack(&v, ret), 0);
}

/* The canonical form byte by byte; and that it is its own. */
static inline void expect_form(const char *section, const char *text, const char *canonical)
{
    _cleanup_(spec_deinit) struct dl_spec spec = {0}, again = {0};
    _cleanup_(value_deinit) struct value got = {0};
    _cleanup_(buffer_deinit) struct dl_buffer got_packed = {0}, want_packed = {0};
    struct dl_error err = {0};

    expect_spec(text, &spec);
    assert_int_equal(spec_to_value(&spec, &got), 0);
    assert_int_equal(value_pack(value_get(&got, section), &got_packed), 0);
    pack_yaml(canonical, &want_packed);
    if (got_packed.len != want_packed.len ||
        memcmp(got_packed.data, want_packed.data, got_packed.len) != 0)
        fail_msg("%s is not %s", text, canonical);
    if (spec_from_value(&got, NULL, &again, &err) < 0)
        fail_msg("%s: %s: %s", text, err.path, err.message);
    assert_false(spec_differs(&spec, &again, NULL));
}

/* What is written, below a head that is always the same, and how it is refused. */
struct refusal {
    const char *text;
    const char *path;
    const char *message;
};

static inline void expect_refusals(const char *head, const struct refusal *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        _cleanup_free_ char *text = NULL;
        struct dl_spec spec = {.workers = 77};
        struct dl_error err = {0};

        assert_true(asprintf(&text, "%s%s", head, cases[i].text) >= 0);
        int r = read_spec(text, "/base", &spec, &err);
        if (r != -EINVAL || strcmp(err.path, cases[i].path) != 0 ||
            strcmp(err.message, cases[i].message) != 0)
            fail_msg("%s: %d\n  %s: %s", text, r, err.path, err.message);
        assert_int_equal(err.code, EINVAL);
        assert_true(spec.workers == 77 && !spec.name);
        assert_int_equal(read_spec(text, "/base", &spec, &(struct dl_error){0}), -EINVAL);
    }
}

#define EXPECT_REFUSALS(head, cases) expect_refusals(head, cases, ARRAY_SIZE(cases))

/* Whether the key has a meaning for batches measured in tokens only. */
static inline bool of_tokens(const struct spec_key *key)
{
    return strcmp(key->section, "batch") == 0 && strcmp(key->key, "tokens") != 0 &&
           strcmp(key->key, "size") != 0 && strcmp(key->key, "drop_last") != 0;
}

#endif
