/*
 * Batches of tokens: each rule by examples that were worked out by hand. Samples are letters; what
 * is in sequence is not shuffled, so that steps can be written down.
 */
#include <errno.h>

#include "tests/lib/row.h"
#include "tests/unit/fail_alloc.h"
#include "tests/unit/plan_case.h"

#define NO_BUCKET UINT32_MAX

enum { MOST = 26 };

/* One step of a rank, as letters. */
static void print_step(struct plan *plan, uint64_t rank, uint64_t step, char *ret)
{
    uint64_t indices[MOST];
    size_t n = plan_step(plan, rank, step, indices);

    assert_in_range(n, 1, plan_most(plan));
    for (size_t i = 0; i < n; i++)
        *ret++ = (char)('a' + indices[i]);
    *ret = '\0';
}

static void print_rank(struct plan *plan, uint64_t rank, char *ret)
{
    *ret = '\0';
    for (uint64_t step = 0; step < plan_steps(plan, rank); step++) {
        if (step > 0)
            strcat(ret, " ");
        print_step(plan, rank, step, ret + strlen(ret));
    }
}

static struct plan_params in_sequence(struct plan_tokens tokens, const char *lengths,
                                      uint32_t *room)
{
    size_t n = strlen(lengths);

    for (size_t i = 0; i < n; i++)
        room[i] = (uint32_t)(lengths[i] - '0');
    tokens.lengths = room;
    tokens.multiple = tokens.multiple ? tokens.multiple : 1;
    return (struct plan_params){.length = n, .world = 1, .even = true, .tokens = tokens};
}

#define SORTED .strategy = PLAN_SORTED
#define BUCKET .strategy = PLAN_BUCKET, .interval = 3
#define PACK   .strategy = PLAN_PACK, .row_length = 8
#define TURN   .strategy = PLAN_IN_TURN

/* ---- steps ---------------------------------------------------------------------------------- */

struct example {
    const char *lengths; /* a digit each */
    struct plan_tokens tokens;
    uint64_t world;
    bool uneven;
    const char *ranks[3];
    uint64_t overlong, leftover, repeated;
};

static void check_examples(const struct example *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t lengths[MOST];
        struct plan_params params = in_sequence(rows[i].tokens, rows[i].lengths, lengths);

        params.world = rows[i].world;
        params.even = !rows[i].uneven;
        _cleanup_plan_ struct plan *plan = prepared(params);
        for (uint64_t rank = 0; rank < params.world; rank++) {
            char steps[128];

            print_rank(plan, rank, steps);
            assert_string_equal(steps, rows[i].ranks[rank]);
        }
        assert_int_equal(plan_totals(plan)->overlong, rows[i].overlong);
        assert_int_equal(plan_totals(plan)->leftover, rows[i].leftover);
        assert_int_equal(plan_totals(plan)->repeated, rows[i].repeated);
    }
}

TEST(test_examples)
{
    static const struct example rows[] = {
        /* As many as fit; what is left at the end comes, or does not. */
        ROW("351462", {SORTED, .tokens = 12}, 1, false, {"cfa db e"}, 0, 0, 0),
        ROW("351462", {SORTED, .tokens = 12, .leftover = PLAN_DROP}, 1, false, {"cfa db"}, 0, 1, 0),
        ROW("351462", {SORTED, .tokens = 6}, 2, false, {"c a b", "f d e"}, 0, 0, 0),
        /* Two for each of two ranks; the fifth has a rank to itself, or comes twice. */
        ROW("11111", {SORTED, .tokens = 2}, 2, false, {"ac e", "bd e"}, 0, 0, 1),
        ROW("11111", {SORTED, .tokens = 2}, 2, true, {"ab e", "cd"}, 0, 0, 0),
        ROW("11111", {SORTED, .tokens = 2, .leftover = PLAN_DROP}, 2, false, {"ac", "bd"}, 0, 1, 0),
        /* Three ranks share five: not all have two. */
        ROW("11111", {SORTED, .tokens = 2}, 3, false, {"ad", "be", "c"}, 0, 0, 0),
        /* The third is too long to join the first two, though no rank would have two of it. */
        ROW("113", {SORTED, .tokens = 3}, 2, false, {"a c", "b c"}, 0, 0, 1),
        ROW("21", {SORTED, .tokens = 8}, 3, false, {"b", "a", "b"}, 0, 0, 1),
        ROW("21", {SORTED, .tokens = 8}, 3, true, {"b", "a", ""}, 0, 0, 0),
        /* A window has four tokens, and what the one before has left. */
        ROW("413112", {SORTED, .tokens = 4, .window = 1}, 1, false, {"a b c de f"}, 0, 0, 0),
        ROW("12121", {SORTED, .tokens = 4, .window = 1}, 1, false, {"ac bd e"}, 0, 0, 0),
        /* Padded to eights, to eight, or cut. */
        ROW("3591", {SORTED, .tokens = 16, .multiple = 8}, 1, false, {"da b c"}, 0, 0, 0),
        ROW("35819", {SORTED, .tokens = 16, .pad_length = 8}, 1, false, {"da bc"}, 1, 0, 0),
        ROW("351", {SORTED, .tokens = 12, .max_length = 4}, 1, false, {"ca"}, 1, 0, 0),
        ROW("351", {SORTED, .tokens = 12, .max_length = 4, .truncate = true}, 1, false, {"cab"}, 1,
            0, 0),
        ROW("999", {SORTED, .tokens = 8}, 1, false, {""}, 3, 0, 0),
        ROW("999", {SORTED, .tokens = 8, .pad_length = 9, .truncate = true}, 1, false, {""}, 3, 0,
            0),
        ROW("", {SORTED, .tokens = 8}, 2, false, {"", ""}, 0, 0, 0),
        ROW("7", {SORTED, .tokens = 8}, 1, false, {"a"}, 0, 0, 0),
        /* Up to 3 are one bucket, four of them a batch; up to 6 another, two of them a batch. */
        ROW("351462", {BUCKET, .tokens = 12}, 1, false, {"bd acf e"}, 0, 0, 0),
        ROW("351462", {BUCKET, .tokens = 12, .leftover = PLAN_DROP}, 1, false, {"bd"}, 0, 4, 0),
        ROW("33333", {BUCKET, .tokens = 14}, 1, false, {"abcd e"}, 0, 0, 0),
        ROW("33333", {BUCKET, .tokens = 11}, 1, false, {"abc de"}, 0, 0, 0),
        ROW("5462514", {BUCKET, .tokens = 12}, 2, false, {"ac d g", "be f g"}, 0, 0, 1),
        ROW("5462514", {BUCKET, .tokens = 12}, 2, true, {"ac d g", "be f"}, 0, 0, 0),
        /* Too few for all ranks go with the next bucket's; these may then be too many. */
        ROW("15", {BUCKET, .tokens = 12}, 2, false, {"a", "b"}, 0, 0, 0),
        ROW("5181", {BUCKET, .tokens = 12}, 3, false, {"b c", "d c", "a c"}, 0, 0, 2),
        ROW("1144", {BUCKET, .tokens = 6}, 3, false, {"a d", "b d", "c d"}, 0, 0, 2),
        ROW("1144", {BUCKET, .tokens = 6}, 3, true, {"a d", "b", "c"}, 0, 0, 0),
        /* 7 is in the bucket up to 9, which is more than 8. */
        ROW("76", {BUCKET, .tokens = 8}, 1, false, {"b"}, 1, 0, 0),
        ROW("76", {BUCKET, .tokens = 8, .truncate = true}, 1, false, {"a b"}, 1, 0, 0),
        ROW("42", {BUCKET, .tokens = 12, .multiple = 5}, 1, false, {"a b"}, 0, 0, 0),
        ROW("42424", {BUCKET, .tokens = 12, .pad_length = 4}, 1, false, {"ace bd"}, 0, 0, 0),
        ROW("", {BUCKET, .tokens = 8}, 1, false, {""}, 0, 0, 0),
        /* The longest first, into the row that has the least room for it. */
        ROW("53442", {PACK, .tokens = 8}, 1, false, {"ab dc e"}, 0, 0, 0),
        ROW("53442", {PACK, .tokens = 17}, 1, false, {"abdc e"}, 0, 0, 0),
        ROW("53442", {PACK, .tokens = 16, .leftover = PLAN_DROP}, 1, false, {"abdc"}, 0, 1, 0),
        ROW("53442", {PACK, .tokens = 8}, 2, false, {"ab e", "dc e"}, 0, 0, 1),
        ROW("53442", {PACK, .tokens = 8}, 2, true, {"ab e", "dc"}, 0, 0, 0),
        /* 6 leaves 2, 5 leaves 3: 2 goes to the 6, though the 5 is the later row. */
        ROW("652", {PACK, .tokens = 8}, 1, false, {"ac b"}, 0, 0, 0),
        /* 5 and 3, 4 and 3 are fuller than the first row, which has but the 6. */
        ROW("33546", {PACK, .tokens = 16}, 1, false, {"cbda e"}, 0, 0, 0),
        ROW("999", {PACK, .tokens = 8}, 1, false, {""}, 3, 0, 0),
        ROW("991", {PACK, .tokens = 8, .truncate = true}, 1, false, {"b a c"}, 2, 0, 0),
        /* Of the first window's rows, the two that are fullest are kept. */
        ROW("78284", {PACK, .tokens = 16, .window = 1}, 1, false, {"ba dec"}, 0, 0, 0),
        ROW("", {PACK, .tokens = 8}, 1, false, {""}, 0, 0, 0),
    };

    check_examples(rows, ARRAY_SIZE(rows));
}

/* Where each rank's batch is cut by itself, and what is no part of any. */
TEST(test_examples_of_batches)
{
    static const struct example rows[] = {
        /* Without `even`, ranks have as many as fit their own batch. */
        ROW("11114444", {SORTED, .tokens = 8}, 2, true, {"abcd g", "ef h"}, 0, 0, 0),
        ROW("1111144444", {SORTED, .tokens = 8}, 2, true, {"abcde hi", "fg j"}, 0, 0, 0),
        ROW("11114444", {SORTED, .tokens = 8}, 3, true, {"abcd", "ef", "gh"}, 0, 0, 0),
        ROW("1111", {SORTED, .tokens = 8}, 3, true, {"a", "cd", "b"}, 0, 0, 0),
        ROW("11", {SORTED, .tokens = 8}, 3, true, {"a", "b", ""}, 0, 0, 0),
        ROW("1111144444", {SORTED, .tokens = 8, .leftover = PLAN_DROP}, 2, true, {"abcde", "fg"}, 0,
            3, 0),
        /* In turn: closed when the next would be too much. */
        ROW("3514", {TURN, .tokens = 8}, 1, false, {"a b cd"}, 0, 0, 0),
        ROW("3314421", {TURN, .tokens = 9}, 1, false, {"abc de fg"}, 0, 0, 0),
        ROW("3314421", {TURN, .tokens = 9}, 2, false, {"abc f", "de g"}, 0, 0, 0),
        ROW("3314421", {TURN, .tokens = 9, .leftover = PLAN_DROP}, 2, false, {"abc", "de"}, 0, 2,
            0),
        ROW("33144", {TURN, .tokens = 9, .multiple = 4}, 1, false, {"ab cd e"}, 0, 0, 0),
        ROW("3914", {TURN, .tokens = 8}, 1, false, {"ac d"}, 1, 0, 0),
        ROW("3914", {TURN, .tokens = 8, .truncate = true}, 1, false, {"a b cd"}, 1, 0, 0),
        ROW("55", {TURN, .tokens = 8}, 3, false, {"a", "b", "a"}, 0, 0, 1),
        ROW("", {TURN, .tokens = 8}, 1, false, {""}, 0, 0, 0),
        /* What has no token is left out. */
        ROW("0301", {SORTED, .tokens = 8}, 1, false, {"db"}, 0, 0, 0),
        ROW("0301", {BUCKET, .tokens = 9}, 1, false, {"bd"}, 0, 0, 0),
        ROW("0301", {PACK, .tokens = 8}, 1, false, {"bd"}, 0, 0, 0),
        ROW("000", {TURN, .tokens = 8}, 2, false, {"", ""}, 0, 0, 0),
    };

    check_examples(rows, ARRAY_SIZE(rows));
}

/* More ranks than there could ever be samples. */
TEST(test_huge_world)
{
    for (unsigned i = 0; i < 6; i++) {
        struct plan_tokens tokens = {.strategy = (enum plan_strategy)(i % 3),
                                     .tokens = UINT32_MAX,
                                     .interval = 4,
                                     .row_length = 8,
                                     .window = UINT64_MAX};
        uint32_t lengths[MOST];
        uint64_t index, last = UINT64_MAX - 1;
        struct plan_params params = in_sequence(tokens, "111", lengths);

        params.world = UINT64_MAX;
        params.even = i < 3;
        _cleanup_plan_ struct plan *plan = prepared(params);
        assert_int_equal(plan_steps(plan, 0), 1);
        assert_int_equal(plan_steps(plan, last), params.even);
        assert_int_equal(plan_samples(plan, last), params.even ? plan_samples(plan, 0) : 0);
        if (params.even && i % 3 != PLAN_PACK)
            assert_int_equal(plan_step(plan, last, 0, &index), 1);
    }
}

/* ---- what is said of them ------------------------------------------------------------------- */

TEST(test_step_tokens)
{
    static const struct {
        const char *lengths;
        struct plan_tokens tokens;
        uint64_t rank, step;
        struct plan_step_tokens want;
        uint32_t parts[6]; /* lengths, then rows' sizes */
    } rows[] = {
        ROW("351462", {SORTED, .tokens = 12}, 0, 0, {2, 4, 6, 3, NO_BUCKET, 0}, {1, 3}),
        ROW("351462", {SORTED, .tokens = 12}, 1, 0, {2, 6, 8, 4, NO_BUCKET, 0}, {2, 4}),
        ROW("351462", {SORTED, .tokens = 12, .multiple = 4}, 1, 0, {2, 6, 8, 4, NO_BUCKET, 0},
            {2, 4}),
        ROW("351462", {SORTED, .tokens = 16, .pad_length = 8}, 0, 0, {2, 4, 16, 3, NO_BUCKET, 0},
            {1, 3}),
        ROW("3614", {SORTED, .tokens = 12, .max_length = 5, .truncate = true}, 1, 0,
            {2, 8, 10, 5, NO_BUCKET, 0}, {3, 5}),
        ROW("456664", {BUCKET, .tokens = 12}, 1, 0, {2, 11, 12, 6, 1, 0}, {5, 6}),
        /* What joins a higher bucket is counted as that on all ranks. */
        ROW("15", {BUCKET, .tokens = 12}, 0, 0, {1, 1, 1, 1, 1, 0}, {1}),
        ROW("53442", {PACK, .tokens = 16}, 0, 0, {3, 10, 16, 5, NO_BUCKET, 2}, {5, 3, 2, 2, 1}),
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint32_t lengths[MOST], parts[2 * MOST] = {0};
        struct plan_params params = in_sequence(rows[i].tokens, rows[i].lengths, lengths);

        params.world = 2;
        _cleanup_plan_ struct plan *plan = prepared(params);
        struct plan_step_tokens got = plan_step_tokens(plan, rows[i].rank, rows[i].step);
        assert_int_equal(got.samples, rows[i].want.samples);
        assert_int_equal(got.tokens, rows[i].want.tokens);
        assert_int_equal(got.padded, rows[i].want.padded);
        assert_int_equal(got.longest, rows[i].want.longest);
        assert_int_equal(got.bucket, rows[i].want.bucket);
        assert_int_equal(got.rows, rows[i].want.rows);
        plan_step_lengths(plan, rows[i].rank, rows[i].step, parts);
        assert_memory_equal(parts, rows[i].parts, sizeof rows[i].parts);
    }
}

TEST(test_buckets)
{
    static const struct plan_bucket want[] = {{3, 3, 0, 3}, {6, 3, 2, 1}, {9, 1, 1, 0}};
    uint32_t lengths[MOST];
    struct plan_params params =
        in_sequence((struct plan_tokens){BUCKET, .tokens = 12}, "3514628", lengths);
    _cleanup_plan_ struct plan *plan = prepared(params);

    assert_int_equal(plan_buckets(plan), ARRAY_SIZE(want));
    for (uint32_t i = 0; i < ARRAY_SIZE(want); i++) {
        struct plan_bucket bucket = plan_bucket_at(plan, i);

        assert_int_equal(bucket.upper, want[i].upper);
        assert_int_equal(bucket.members, want[i].members);
        assert_int_equal(bucket.full, want[i].full);
        assert_int_equal(bucket.leftover, want[i].leftover);
    }
    params.tokens = (struct plan_tokens){SORTED, .tokens = 12, .lengths = lengths, .multiple = 1};
    _cleanup_plan_ struct plan *sorted = prepared(params);
    assert_int_equal(plan_buckets(sorted), 0);
}

/* ---- lengths -------------------------------------------------------------------------------- */

TEST(test_limit)
{
    static const struct {
        struct plan_tokens tokens;
        uint32_t want;
    } rows[] = {
        {{SORTED, .tokens = 100, .multiple = 1}, 100},
        {{SORTED, .tokens = 100, .multiple = 1, .max_length = 70}, 70},
        {{SORTED, .tokens = 100, .multiple = 1, .max_length = 170}, 170},
        {{SORTED, .tokens = 100, .multiple = 8}, 96},
        {{SORTED, .tokens = 100, .multiple = 101}, 0},
        {{SORTED, .tokens = 100, .multiple = 1, .pad_length = 60}, 60},
        {{SORTED, .tokens = 100, .multiple = 1, .pad_length = 60, .max_length = 9}, 9},
        {{SORTED, .tokens = 100, .multiple = 1, .pad_length = 101}, 0},
        {{SORTED, .tokens = UINT32_MAX, .multiple = 1}, UINT32_MAX},
        {{SORTED, .tokens = UINT32_MAX, .multiple = UINT32_MAX}, UINT32_MAX},
        {{BUCKET, .tokens = 100, .multiple = 1}, 99},
        {{BUCKET, .tokens = 101, .multiple = 50}, 99},
        {{BUCKET, .tokens = 100, .multiple = 1, .max_length = 98}, 98},
        {{BUCKET, .tokens = 100, .multiple = 1, .max_length = 101}, 101},
        {{BUCKET, .tokens = 100, .multiple = 1, .pad_length = 100}, 100},
        {{PACK, .tokens = 100, .multiple = 1}, 8},
        {{PACK, .tokens = 100, .multiple = 1, .max_length = 7}, 7},
        {{PACK, .tokens = 100, .multiple = 1, .max_length = 9}, 8},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        assert_int_equal(plan_tokens_limit(&rows[i].tokens), rows[i].want);
}

TEST(test_look_at_lengths)
{
    static const struct {
        uint32_t lengths[5];
        uint64_t length;
        struct plan_lengths want;
    } rows[] = {
        {{0}, 0, {0, 0, 0, UINT64_MAX, 0, 0}},
        {{5}, 1, {5, 5, 0, UINT64_MAX, 0, 5}},
        {{4, 8, 9, 2, 10}, 5, {2, 10, 0, 2, 2, 33}},
        {{4, 0, 9, 0, 10}, 5, {0, 10, 2, 2, 2, 23}},
        {{UINT32_MAX, UINT32_MAX}, 2, {UINT32_MAX, UINT32_MAX, 0, 0, 2, UINT64_C(8589934590)}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct plan_tokens tokens = {.tokens = 8, .multiple = 1, .lengths = rows[i].lengths};
        struct plan_lengths got;

        plan_look_at_lengths(&tokens, rows[i].length, &got);
        assert_memory_equal(&got, &rows[i].want, sizeof got);
    }
}

/* ---- what is refused ------------------------------------------------------------------------ */

TEST(test_refused)
{
    static const uint32_t lengths[] = {1, 2};
    static const double weights[] = {1, 1};
    static const struct plan_params rows[] = {
        ROW(.tokens = {SORTED, .multiple = 0}),
        ROW(.tokens = {SORTED, .multiple = 1, .leftover = PLAN_CARRY}),
        ROW(.tokens = {SORTED, .multiple = 1, .leftover = (enum plan_leftover)3}),
        ROW(.tokens = {.strategy = (enum plan_strategy)4, .multiple = 1}),
        ROW(.tokens = {TURN, .multiple = 0}),
        ROW(.tokens = {TURN, .multiple = 1, .leftover = PLAN_CARRY}),
        ROW(.tokens = {BUCKET, .multiple = 0}),
        ROW(.tokens = {.strategy = PLAN_BUCKET, .interval = 0, .multiple = 1}),
        ROW(.tokens = {.strategy = PLAN_BUCKET, .interval = 9, .multiple = 1}),
        ROW(.tokens = {PACK, .leftover = PLAN_CARRY}),
        ROW(.tokens = {.strategy = PLAN_PACK, .row_length = 0}),
        ROW(.tokens = {.strategy = PLAN_PACK, .row_length = 9}),
        ROW(.tokens = {BUCKET, .multiple = 1, .leftover = PLAN_CARRY}, .order = PLAN_NATIVE,
            .replacement = true),
        ROW(.tokens = {BUCKET, .multiple = 1, .leftover = PLAN_CARRY}, .order = PLAN_NATIVE,
            .num_samples = 3),
        ROW(.tokens = {BUCKET, .multiple = 1, .leftover = PLAN_CARRY}, .order = PLAN_NATIVE,
            .sampler = PLAN_WEIGHTS, .weights = weights),
        ROW(.tokens = {SORTED, .multiple = 1}, .order = PLAN_NATIVE,
            .num_samples = UINT64_C(1) << 32),
        ROW(.tokens = {SORTED, .multiple = 1}, .length = UINT64_C(1) << 32),
        ROW(.tokens = {SORTED, .multiple = 1, .tokens = UINT64_C(1) << 32}),
    };

    for (size_t i = 0; i <= ARRAY_SIZE(rows); i++) {
        struct plan_params params = rows[i < ARRAY_SIZE(rows) ? i : 0];
        struct plan *plan = NULL;

        params.world = 1;
        params.length = params.length ? params.length : 2;
        params.tokens.tokens = params.tokens.tokens ? params.tokens.tokens : 8;
        params.tokens.lengths = i < ARRAY_SIZE(rows) ? lengths : NULL;
        if (i == ARRAY_SIZE(rows))
            params.tokens.multiple = 1;
        assert_int_equal(plan_new(&params, &plan), -EINVAL);
        assert_null(plan);
    }
}

/* All that carry can do with one sample each: num_samples that says no more, a list of indices. */
TEST(test_carry_is_not_refused)
{
    static const uint32_t lengths[] = {1, 2, 3, 1, 2, 3};
    static const uint64_t indices[] = {5, 1, 1};
    static const struct plan_params rows[] = {
        {.order = PLAN_NATIVE, .num_samples = 6},
        {.order = PLAN_TORCH},
        {.order = PLAN_SEQUENTIAL},
        {.order = PLAN_NATIVE, .sampler = PLAN_INDICES, .indices = indices, .n_indices = 3},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct plan_params params = rows[i];

        params.world = 1;
        params.length = ARRAY_SIZE(lengths);
        params.tokens = (struct plan_tokens){BUCKET, .tokens = 9, .lengths = lengths, .multiple = 1,
                                             .leftover = PLAN_CARRY};
        _cleanup_plan_ struct plan *plan = prepared(params);
        assert_int_equal(plan_steps(plan, 0), params.indices ? 1 : 2);
    }
}

TEST(test_no_memory)
{
    static const struct plan_params rows[] = {
        {.tokens = {SORTED}}, {.tokens = {SORTED, .leftover = PLAN_DROP}},
        {.tokens = {BUCKET}}, {.tokens = {BUCKET, .leftover = PLAN_CARRY}},
        {.tokens = {PACK}},   {.order = PLAN_NATIVE, .tokens = {PACK, .leftover = PLAN_DROP}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct plan_params params = rows[i];
        uint32_t lengths[200];
        uint64_t seed = i;
        int r = -ENOMEM;

        for (size_t j = 0; j < ARRAY_SIZE(lengths); j++)
            lengths[j] = 1 + below(&seed, 8);
        params.world = 1;
        params.length = ARRAY_SIZE(lengths);
        params.tokens.tokens = 9;
        params.tokens.multiple = 1;
        params.tokens.lengths = lengths;
        for (int k = 0; r < 0; k++) {
            struct plan *plan = NULL;

            fail_in = k;
            r = plan_new(&params, &plan);
            if (r == 0)
                r = plan_prepare(plan);
            if (r < 0)
                assert_int_equal(r, -ENOMEM);
            assert_true((fail_in == -1) == (r < 0));
            fail_in = -1;
            plan_free(plan);
            assert_in_range(k, 0, 60);
        }
    }
}

/* ---- before and after ----------------------------------------------------------------------- */

TEST(test_backlog)
{
    static const uint32_t lengths[] = {1, 2, 3};

    for (unsigned order = 0; order < 3; order++) {
        for (uint64_t n = 0; n <= 3; n += 3) {
            struct plan_params params = {
                .length = n,
                .order = (enum plan_order)order,
                .world = 2,
                .tokens = {SORTED, .tokens = 4, .multiple = 1, .lengths = lengths}};
            struct plan *plan = NULL;

            assert_int_equal(plan_new(&params, &plan), 0);
            assert_int_equal(plan_backlog(plan, 1, 7), n > 0 ? n : 1);
            assert_int_equal(plan_prepare(plan), 0);
            assert_int_equal(plan_backlog(plan, 1, 7), 0);
            plan_free(plan);
        }
    }
}

/* A plan of batches of samples answers, too, as far as it can. */
TEST(test_without_tokens)
{
    static const struct {
        uint64_t length, world, batch_size, most;
        bool drop_last;
    } rows[] = {
        {10, 1, 4, 4, false}, {3, 1, 4, 3, false}, {3, 1, 4, 0, true},
        {0, 1, 4, 0, false},  {9, 2, 5, 5, false}, {10, 1, 0, 1, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_plan_ struct plan *plan =
            prepared((struct plan_params){.length = rows[i].length,
                                          .world = rows[i].world,
                                          .batch_size = rows[i].batch_size,
                                          .drop_last = rows[i].drop_last,
                                          .even = true});

        assert_int_equal(plan_most(plan), rows[i].most);
        assert_null(plan_totals(plan));
        assert_int_equal(plan_buckets(plan), 0);
    }
}
