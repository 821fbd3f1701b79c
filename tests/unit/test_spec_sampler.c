/* The sampler's keys in the loader spec: defaults by kind, the canonical form, the longest lists,
 * and what must fit the dataset. What is refused at once stands in test_spec_errors.c.
 */
#include "tests/unit/spec_text.h"

TEST(test_samplers)
{
    static const struct {
        const char *sampler;
        const char *canonical;
        struct dl_spec want; /* what the sampler says of it */
    } cases[] = {
        {"{kind: random}",
         "{kind: random, replacement: false, num_samples: null, order: torch}",
         {.sampler = SAMPLER_RANDOM, .order = ORDER_TORCH}},
        {"{kind: random, replacement: true, num_samples: 9223372036854775807, order: native}",
         "{kind: random, replacement: true, num_samples: 9223372036854775807, order: native}",
         {.sampler = SAMPLER_RANDOM,
          .order = ORDER_NATIVE,
          .replacement = true,
          .num_samples = INT64_MAX}},
        {"{indices: [2, 0, 2], kind: indices}",
         "{kind: indices, indices: [2, 0, 2]}",
         {.sampler = SAMPLER_INDICES, .n_indices = 3}},
        {"{indices: [], kind: indices}",
         "{kind: indices, indices: []}",
         {.sampler = SAMPLER_INDICES}},
        {"{kind: subset_random, indices: [1, 2]}",
         "{kind: subset_random, indices: [1, 2], order: torch}",
         {.sampler = SAMPLER_SUBSET_RANDOM, .order = ORDER_TORCH, .n_indices = 2}},
        {"{kind: weighted, weights: [0, 0.25, 3]}",
         "{kind: weighted, replacement: true, num_samples: null, weights: [0.0, 0.25, 3.0],"
         " order: torch}",
         {.sampler = SAMPLER_WEIGHTED, .order = ORDER_TORCH, .replacement = true, .n_weights = 3}},
        {"{kind: weighted, weights: [-0.0, 1, 1], num_samples: 2, replacement: false,"
         " order: native}",
         "{kind: weighted, replacement: false, num_samples: 2, weights: [0.0, 1.0, 1.0],"
         " order: native}",
         {.sampler = SAMPLER_WEIGHTED, .order = ORDER_NATIVE, .num_samples = 2, .n_weights = 3}},
        {"{kind: weighted, weights: null}",
         "{kind: weighted, replacement: true, num_samples: null, order: torch}",
         {.sampler = SAMPLER_WEIGHTED, .order = ORDER_TORCH, .replacement = true}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(spec_deinit) struct dl_spec spec = {0}, again = {0};
        _cleanup_(value_deinit) struct value got = {0}, want = {0};
        char text[512];

        snprintf(text, sizeof text, "{dataset: {kind: range, length: 3}, sampler: %s}",
                 cases[i].sampler);
        expect_spec(text, &spec);
        assert_int_equal(spec.sampler, cases[i].want.sampler);
        assert_int_equal(spec.order, cases[i].want.order);
        assert_int_equal(spec.replacement, cases[i].want.replacement);
        assert_int_equal(spec.num_samples, cases[i].want.num_samples);
        assert_int_equal(spec.n_indices, cases[i].want.n_indices);
        assert_int_equal(spec.n_weights, cases[i].want.n_weights);
        assert_true(!spec.weights == !spec.n_weights);
        assert_int_equal(spec_to_value(&spec, &got), 0);
        assert_int_equal(
            yaml_parse(cases[i].canonical, strlen(cases[i].canonical), "t", &want, NULL), 0);
        assert_true(value_equal(value_get(&got, "sampler"), &want));
        assert_int_equal(spec_from_value(&got, "/base", &again, NULL), 0);
        assert_false(spec_differs(&spec, &again, NULL));
    }
}

/* As many as may be still fit the canonical form, which must fit a message. */
TEST(test_the_longest_lists)
{
    for (int weights = 0; weights < 2; weights++) {
        for (uint64_t over = 0; over < 2; over++) {
            _cleanup_(spec_deinit) struct dl_spec spec = {0};
            _cleanup_(value_deinit) struct value v = {0};
            struct dl_error err = {0};
            struct value *section, *list, *item;
            const char *key = weights ? "weights" : "indices";
            static const char text[] = "dataset: {kind: npy, paths: x}";

            assert_int_equal(yaml_parse(text, strlen(text), "t", &v, NULL), 0);
            assert_int_equal(value_set(&v, "sampler", &section), 0);
            assert_int_equal(value_set_string(section, "kind", weights ? "weighted" : "indices"),
                             0);
            assert_int_equal(value_set(section, key, &list), 0);
            for (uint64_t i = 0; i < DL_MAX_SAMPLER_LIST + over; i++) {
                assert_int_equal(value_push(list, &item), 0);
                value_make_uint(item, INT64_MAX - i);
            }
            int r = spec_from_value(&v, "/base", &spec, &err);
            if (over) {
                assert_int_equal(r, -EINVAL);
                assert_string_equal(err.message, "65001 entries are above the maximum of 65000");
                continue;
            }
            assert_int_equal(r, 0);
            _cleanup_(buffer_deinit) struct dl_buffer packed = {0};
            _cleanup_(value_deinit) struct value canonical = {0};
            assert_int_equal(spec_to_value(&spec, &canonical), 0);
            assert_int_equal(value_pack(&canonical, &packed), 0);
            assert_true(packed.len < DL_MAX_FRAME_BYTES);
        }
    }
}

TEST(test_check_length)
{
    static const struct {
        const char *sampler;
        uint64_t length;
        const char *path; /* NULL: it fits */
        const char *message;
    } cases[] = {
        {"{kind: sequential}", 0, NULL, NULL},
        {"{kind: random}", 0, NULL, NULL},
        {"{kind: random, num_samples: 5}", 1, NULL, NULL},
        {"{kind: random, num_samples: 5}", 0, "sampler.num_samples",
         "5 samples cannot be drawn from a dataset that has none"},
        {"{kind: indices, indices: []}", 0, NULL, NULL},
        {"{kind: indices, indices: [4, 0, 9]}", 10, NULL, NULL},
        {"{kind: indices, indices: [4, 0, 9]}", 9, "sampler.indices.2",
         "9 is past the end of a dataset of 9 samples, whose indices start from 0"},
        {"{kind: subset_random, indices: [4, 9223372036854775807, 10]}", 10, "sampler.indices.1",
         "9223372036854775807 is past the end of a dataset of 10 samples, whose indices start "
         "from 0"},
        {"{kind: weighted, weights: [1, 2, 3]}", 3, NULL, NULL},
        {"{kind: weighted, weights: [1, 2, 3]}", 4, "sampler.weights",
         "3 weights do not fit a dataset of 4 samples; give one for each"},
        {"{kind: weighted, weights: [1, 2, 3]}", 0, "sampler.weights",
         "3 weights do not fit a dataset of 0 samples; give one for each"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(spec_deinit) struct dl_spec spec = {0};
        struct dl_error err = {0};
        char text[512];

        snprintf(text, sizeof text, "{dataset: {kind: npy, paths: x}, sampler: %s}",
                 cases[i].sampler);
        expect_spec(text, &spec);
        int r = spec_check_length(&spec, cases[i].length, &err);
        assert_int_equal(r, cases[i].path ? -EINVAL : 0);
        if (cases[i].path) {
            assert_string_equal(err.path, cases[i].path);
            assert_string_equal(err.message, cases[i].message);
        }
    }
}
