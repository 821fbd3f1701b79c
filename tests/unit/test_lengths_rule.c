/* Which lengths a spec takes: pure. */
#include "tests/lib/harness.h"

#include "daemon/plan/lengths_rule.h"
#include "tests/unit/spec_text.h"

#include <errno.h>

static const uint32_t lengths[] = {3, 17, 1, 40, 64, 65, 100};

static const struct {
    const char *batch;
    uint32_t given[4]; /* lengths; 0 ends */
    int r;
    uint64_t overlong;
    const char *message; /* NULL: it is fine */
} cases[] = {
    {"{tokens: 64}", {3, 64}, 0, 0, NULL},
    {"{tokens: 64}", {3, 65, 70}, 0, 2, NULL},
    {"{tokens: 64, max_length: 10}", {3, 11, 10}, 0, 1, NULL},
    {"{tokens: 64, overlong: truncate}", {65}, 0, 1, NULL},
    {"{tokens: 64, overlong: error}", {64, 64}, 0, 0, NULL},
    {"{tokens: 64, overlong: error}",
     {64, 70},
     -EINVAL,
     1,
     "sample 101 has 70 tokens, and a batch takes samples of at most 64 (batch.max_length, "
     "batch.tokens); write overlong: drop or truncate"},
};

static struct lengths_rule rule_of(const char *batch)
{
    struct dl_spec spec = {0};
    char text[256];

    snprintf(
        text, sizeof text,
        "dataset: {kind: text, paths: /x, tokenizer: bytes}\nbatch: %s\ncollate: {kind: pad}\n",
        batch);
    expect_spec(text, &spec);
    struct lengths_rule rule = lengths_rule_of(&spec);
    spec_deinit(&spec);
    return rule;
}

TEST(test_what_a_batch_takes)
{
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct lengths_rule rule = rule_of(cases[i].batch);
        struct dl_error err = {0};
        struct lengths_found found = {.overlong = 5};
        uint64_t n = 0;

        while (n < 4 && cases[i].given[n])
            n++;
        assert_int_equal(lengths_check(&rule, 100, cases[i].given, n, &found, &err), cases[i].r);
        assert_int_equal(found.overlong, 5 + cases[i].overlong);
        assert_int_equal(found.empty, 0);
        assert_string_equal(err.message, cases[i].message ? cases[i].message : "");
    }
}

TEST(test_no_tokens)
{
    struct lengths_rule rule = rule_of("{tokens: 64}");
    static const uint32_t some[] = {4, 0, 2};
    struct dl_error err = {0};
    struct lengths_found found = {.empty = 2};

    assert_int_equal(lengths_check(&rule, 7, some, 3, &found, &err), 0);
    assert_int_equal(found.empty, 3);
    assert_int_equal(found.overlong, 0);
}

TEST(test_in_parts_as_at_once)
{
    struct lengths_rule rule = rule_of("{tokens: 64}");
    struct dl_error err = {0};
    struct lengths_found whole = {0}, parts = {0};

    assert_int_equal(lengths_check(&rule, 0, lengths, ARRAY_SIZE(lengths), &whole, &err), 0);
    for (size_t i = 0; i < ARRAY_SIZE(lengths); i++)
        assert_int_equal(lengths_check(&rule, i, lengths + i, 1, &parts, &err), 0);
    assert_int_equal(whole.overlong, 2);
    assert_memory_equal(&parts, &whole, sizeof whole);
}

/* Each length is in the bin that ends at it or at the next greater one. */
TEST(test_bins)
{
    static const uint32_t first[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48};

    for (uint32_t i = 0; i < ARRAY_SIZE(first); i++)
        assert_int_equal(lengths_bin_upper(i), first[i]);
    for (uint32_t bin = 1; bin < LENGTHS_BINS; bin++) {
        uint64_t upper = lengths_bin_upper(bin), below = lengths_bin_upper(bin - 1);

        assert_true(upper > below);
        assert_int_equal(lengths_bin_of((uint32_t)(below + 1)), bin);
        assert_int_equal(lengths_bin_of((uint32_t)min_u64(upper, UINT32_MAX)), bin);
    }
    assert_int_equal(lengths_bin_of(0), 0);
    assert_int_equal(lengths_bin_of(UINT32_MAX), LENGTHS_BINS - 1);
}

TEST(test_histogram)
{
    struct lengths_rule rule = rule_of("{tokens: 64}");
    struct lengths_found found = {0};
    struct dl_error err = {0};
    uint64_t all = 0;

    assert_int_equal(lengths_check(&rule, 0, lengths, ARRAY_SIZE(lengths), &found, &err), 0);
    for (uint32_t bin = 0; bin < LENGTHS_BINS; bin++)
        all += found.bins[bin];
    assert_int_equal(all, ARRAY_SIZE(lengths)); /* those that no batch takes, too */
    assert_int_equal(found.bins[lengths_bin_of(64)], 1);
    assert_int_equal(found.bins[lengths_bin_of(65)], 1);
}

TEST(test_how_many)
{
    struct dl_error err = {0};

    assert_int_equal(lengths_check_count(UINT32_MAX, &err), 0);
    assert_int_equal(lengths_check_count((uint64_t)UINT32_MAX + 1, &err), -EFBIG);
    assert_string_equal(err.path, "batch.tokens");
}
