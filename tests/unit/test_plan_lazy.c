/*
 * Packing and batching without a length pass: rows, or batches, depend on the order and the lengths
 * alone, whatever the world, and on no length behind the window that they are cut of.
 */
#include "tests/unit/plan_case.h"

#include "daemon/plan/plan_lazy.h"

#define PLAN_CHECK(condition) assert_true(condition)
#include "proto/segment_layout.h"
#include "tests/lib/plan_check.h"

#include <errno.h>
#include <math.h>

enum { SAMPLES = 400, ROW = 64, EACH = 3, RANKS = 6, ROUNDS = 300 };

/* ---- rows ------------------------------------------------------------------------------------ */

struct rows {
    uint64_t samples[SAMPLES];
    uint32_t ends[SAMPLES]; /* of each row, among the samples */
    size_t n;
};

static bool packs(const struct plan_params *params)
{
    return params->tokens.strategy == PLAN_PACK;
}

/* A step's rows are the next ones of the rank; with padding it is one row. */
static void add_rows(struct rows *rows, struct plan *plan, uint64_t rank, uint64_t step)
{
    struct plan_step_size size = plan_step_size(plan, rank, step);
    uint32_t lists[2 * SAMPLES], first = rows->n > 0 ? rows->ends[rows->n - 1] : 0;

    assert_int_equal(plan_step(plan, rank, step, rows->samples + first), size.samples);
    plan_step_lengths(plan, rank, step, lists);
    for (uint32_t row = 0; row < size.rows; row++) {
        first += lists[size.samples + row];
        rows->ends[rows->n++] = first;
    }
    if (size.rows == 0)
        rows->ends[rows->n++] = first + (uint32_t)size.samples;
}

/* Of a rank's step. */
static uint64_t rows_of(const struct plan_params *params)
{
    return packs(params) ? params->tokens.tokens / params->tokens.row_length : 1;
}

/* The epoch's rows one by one, as a single rank with one row a step gets them. */
static void take_rows(struct plan_params params, struct rows *ret)
{
    params.world = 1;
    params.tokens.tokens = packs(&params) ? params.tokens.row_length : params.tokens.tokens;
    params.tokens.leftover = PLAN_EMIT;
    params.before.n = 0;
    _cleanup_plan_ struct plan *plan = prepared(params);

    ret->n = 0;
    for (uint64_t step = 0; step < plan_steps(plan, 0); step++)
        add_rows(ret, plan, 0, step);
}

static void expect_row(const struct rows *got, size_t i, const struct rows *want, size_t k)
{
    uint32_t first = i > 0 ? got->ends[i - 1] : 0, from = k > 0 ? want->ends[k - 1] : 0;
    uint32_t n = got->ends[i] - first;

    assert_int_equal(n, want->ends[k] - from);
    assert_memory_equal(got->samples + first, want->samples + from, n * sizeof *got->samples);
}

/* Step k of rank r has rows base + k · each · world + r, + world, …; the last one has what is left.
 */
static void expect_dealt(const struct plan_params *params, struct plan *plan, uint64_t base,
                         const struct rows *all)
{
    uint64_t each = rows_of(params), group = each * params->world;

    for (uint64_t rank = 0; rank < params->world; rank++)
        for (uint64_t step = 0; step < plan_steps(plan, rank); step++) {
            uint64_t first = base + step * group, n = min_u64(group, all->n - first);
            struct rows got = {.n = 0};

            add_rows(&got, plan, rank, step);
            assert_int_equal(
                got.n, n < params->world ? 1 : n / params->world + (rank < n % params->world));
            for (size_t i = 0; i < got.n; i++)
                expect_row(&got, i, all,
                           first + (n < params->world ? rank % n : rank + i * params->world));
        }
}

static void choose(struct plan_params *params, uint32_t *lengths, uint64_t *seed)
{
    *params = (struct plan_params){.length = below(seed, 3) ? SAMPLES : below(seed, SAMPLES),
                                   .order = (enum plan_order)below(seed, 3),
                                   .seed = next_random(seed),
                                   .epoch = below(seed, 5),
                                   .world = 1 + below(seed, RANKS),
                                   .even = below(seed, 2)};
    params->tokens =
        (struct plan_tokens){.strategy = (enum plan_strategy)below(seed, 4),
                             .tokens = ROW * (1 + below(seed, EACH)),
                             .row_length = ROW,
                             .multiple = 1 + below(seed, 2) * 7,
                             .interval = 1 + below(seed, 16),
                             .leftover = (enum plan_leftover)below(seed, 2),
                             .truncate = below(seed, 2),
                             .lengths = lengths,
                             .lazy = 1 + below(seed, below(seed, 2) ? 9 : 2 * SAMPLES)};
    if (packs(params))
        params->tokens.fill = (enum plan_fill)below(seed, PLAN_CUT);
    text_like(lengths, SAMPLES, below(seed, 2) ? ROW / 2 : ROW + 20, next_random(seed));
    for (uint32_t i = 0; i < SAMPLES; i += 1 + below(seed, 60))
        lengths[i] = 0;
}

/* ---- any world ------------------------------------------------------------------------------- */

TEST(test_rows_are_those_of_any_world)
{
    uint32_t lengths[SAMPLES], wanted[SAMPLES];
    uint64_t seed = 1;

    for (unsigned round = 0; round < ROUNDS; round++) {
        struct plan_params params;
        static struct rows all;

        choose(&params, lengths, &seed);
        take_rows(params, &all);
        _cleanup_plan_ struct plan *plan = prepared(params);
        expect_dealt(&params, plan, 0, &all);
        for (uint32_t i = 0; i < SAMPLES; i++)
            wanted[i] = i < params.length;
        plan_check(&params, plan, wanted);
    }
}

/* 4 ranks, then 3, then 8, …: the rows continue where they were left. */
TEST(test_worlds_follow_each_other)
{
    uint32_t lengths[SAMPLES];
    uint64_t seed = 2;

    for (unsigned round = 0; round < ROUNDS; round++) {
        struct plan_params params;
        static struct rows all;
        uint64_t base = 0;

        choose(&params, lengths, &seed);
        params.tokens.leftover = PLAN_EMIT;
        take_rows(params, &all);
        for (unsigned change = 0; change < 4; change++) {
            uint64_t steps = 1 + below(&seed, 6), world = params.world;

            base = min_u64(base + steps * world * rows_of(&params), all.n);
            assert_true(history_add(&params.before, world, steps));
            while (params.world == world)
                params.world = 1 + below(&seed, RANKS);
            _cleanup_plan_ struct plan *plan = prepared(params);
            expect_dealt(&params, plan, base, &all);
            assert_int_equal(plan_steps(plan, 0) > 0, base < all.n);
        }
    }
}

/* ---- window by window ------------------------------------------------------------------------ */

/* Steps that are there stay what they are, and need no length of a later window. */
TEST(test_a_window_needs_its_own_lengths_alone)
{
    uint32_t lengths[SAMPLES], known[SAMPLES];
    uint64_t seed = 3;

    for (unsigned round = 0; round < ROUNDS; round++) {
        struct plan_params params;
        uint64_t window[2 * SAMPLES], seen = 0, windows = 0;

        choose(&params, lengths, &seed);
        _cleanup_plan_ struct plan *whole = prepared(params);
        for (uint32_t i = 0; i < SAMPLES; i++)
            known[i] = UINT32_MAX;
        params.tokens.lengths = known;
        struct plan *plan = NULL;
        assert_int_equal(plan_new(&params, &plan), 0);
        assert_true(plan_is_lazy(plan));
        assert_int_equal(plan_begin(plan), 0);
        assert_int_equal(plan_is_whole(plan), params.length == 0);
        while (!plan_is_whole(plan)) {
            size_t n = plan_window(plan, window);
            uint64_t steps = plan_steps(plan, 0);

            assert_int_equal(n, min_u64(params.tokens.lazy, params.length - seen));
            for (size_t i = 0; i < n; i++)
                known[window[i]] = lengths[window[i]];
            seen += n;
            assert_int_equal(plan_cut_window(plan), 0);
            assert_int_equal(plan_windows(plan), ++windows);
            assert_int_equal(plan_steps_before_window(plan), steps);
            assert_in_range(plan_steps(plan, 0), steps, plan_steps(whole, 0));
        }
        assert_int_equal(plan_window(plan, window), 0);
        assert_memory_equal(plan_totals(plan), plan_totals(whole), sizeof(struct plan_totals));
        for (uint64_t rank = 0; rank < params.world; rank++) {
            assert_int_equal(plan_steps(plan, rank), plan_steps(whole, rank));
            for (uint64_t step = 0; step < plan_steps(plan, rank); step++) {
                uint64_t a[SAMPLES], b[SAMPLES];
                size_t n = plan_step(plan, rank, step, a);

                assert_int_equal(plan_step(whole, rank, step, b), n);
                assert_memory_equal(a, b, n * sizeof *a);
                assert_int_equal(plan_repeated(plan, rank, step), plan_repeated(whole, rank, step));
            }
        }
        plan_free(plan);
    }
}

/* What was cut does not change when more is: the same step, at each window's end. */
TEST(test_steps_stay)
{
    uint32_t lengths[SAMPLES];
    uint64_t seed = 4, first[SAMPLES], again[SAMPLES], window[SAMPLES];
    struct plan_params params;

    choose(&params, lengths, &seed);
    params.length = SAMPLES;
    params.world = 2;
    params.tokens.lazy = 40;
    struct plan *plan = NULL;
    assert_int_equal(plan_new(&params, &plan), 0);
    assert_int_equal(plan_begin(plan), 0);
    assert_int_equal(plan_window(plan, window), 40);
    assert_int_equal(plan_cut_window(plan), 0);
    size_t n = plan_step(plan, 1, 0, first);
    while (!plan_is_whole(plan)) {
        assert_int_equal(plan_cut_window(plan), 0);
        assert_int_equal(plan_step(plan, 1, 0, again), n);
        assert_memory_equal(again, first, n * sizeof *first);
    }
    assert_int_equal(plan_windows(plan), 10);
    plan_free(plan);
}

/* ---- marks ----------------------------------------------------------------------------------- */

/* A plan that begins at a mark has the same steps from there on. */
static void expect_resumed(struct plan_params params, struct plan *whole, uint64_t step)
{
    params.tokens.mark = plan_mark(whole, step);
    _cleanup_plan_ struct plan *plan = prepared(params);
    uint64_t first = plan_first_step(&params), a[SAMPLES], b[SAMPLES];

    assert_in_range(first, 0, step);
    for (uint64_t rank = 0; rank < params.world; rank++) {
        assert_int_equal(plan_steps(plan, rank), plan_steps(whole, rank));
        for (uint64_t k = first; k < plan_steps(plan, rank); k++) {
            size_t n = plan_step(plan, rank, k, a);

            assert_int_equal(plan_step(whole, rank, k, b), n);
            assert_memory_equal(a, b, n * sizeof *a);
        }
    }
    for (uint64_t k = step; k < plan_steps(plan, 0); k++)
        assert_memory_equal(&(struct lazy_mark[]){plan_mark(plan, k)},
                            &(struct lazy_mark[]){plan_mark(whole, k)}, sizeof(struct lazy_mark));
}

TEST(test_marks)
{
    uint32_t lengths[SAMPLES];
    uint64_t seed = 6, marked = 0;

    for (unsigned round = 0; round < ROUNDS; round++) {
        struct plan_params params;

        choose(&params, lengths, &seed);
        params.tokens.lazy = 1 + below(&seed, 9);
        if (below(&seed, 2))
            assert_true(history_add(&params.before, params.world + 1, 1 + below(&seed, 4)));
        _cleanup_plan_ struct plan *whole = prepared(params);
        for (uint64_t step = 0; step < plan_steps(whole, 0); step += 1 + below(&seed, 5)) {
            struct lazy_mark mark = plan_mark(whole, step);

            assert_int_equal(mark.window % LAZY_CHAIN, 0);
            marked += mark.window > 0;
            expect_resumed(params, whole, step);
        }
    }
    assert_true(marked > ROUNDS);
}

TEST(test_marks_that_cannot_be)
{
    static const uint32_t lengths[40] = {1};
    static const struct lazy_mark marks[] = {
        {1, 0}, {0, 1}, {LAZY_CHAIN, 33}, {2 * LAZY_CHAIN, 0}, {UINT64_MAX - 15, 1}};
    struct plan_params params = {.length = 40, .world = 1};
    struct plan *plan = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
        params.tokens = (struct plan_tokens){.strategy = PLAN_PACK,
                                             .tokens = 8,
                                             .row_length = 8,
                                             .lengths = lengths,
                                             .lazy = 2,
                                             .mark = marks[i]};
        assert_int_equal(plan_new(&params, &plan), -EINVAL);
    }
}

/* ---- how full rows are ----------------------------------------------------------------------- */

TEST(test_rows_are_full)
{
    enum { MANY = 200000 };
    static const struct {
        uint32_t row_length;
        uint64_t window;
        double full;
        enum plan_fill fill;
    } rows[] = {{2048, 4096, 0.999, PLAN_BEST_FIT}, {8192, 4096, 0.999, PLAN_BEST_FIT},
                {8192, 1024, 0.999, PLAN_BEST_FIT}, {8192, 16, 0.9, PLAN_BEST_FIT},
                {2048, 4096, 0.99, PLAN_FIRST_FIT}, {8192, 4096, 0.999, PLAN_FIRST_FIT},
                {8192, 4096, 0.95, PLAN_NEXT_FIT},  {8192, 4096, 0.9997, PLAN_CUT}};
    uint32_t *lengths = calloc(MANY, sizeof *lengths);
    uint64_t seed = 5;

    text_like(lengths, MANY, 2048, seed);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct plan_params params = {
            .length = MANY, .order = PLAN_NATIVE, .seed = i, .world = 4, .even = true};

        params.tokens = (struct plan_tokens){.strategy = PLAN_PACK,
                                             .tokens = rows[i].row_length,
                                             .row_length = rows[i].row_length,
                                             .lengths = lengths,
                                             .lazy = rows[i].window,
                                             .fill = rows[i].fill,
                                             .split = rows[i].fill == PLAN_CUT};
        _cleanup_plan_ struct plan *plan = prepared(params);
        const struct plan_totals *totals = plan_totals(plan);
        assert_true((double)totals->tokens / (double)totals->padded > rows[i].full);
    }
    free(lengths);
}

/* ---- buckets --------------------------------------------------------------------------------- */

/* Where no chain ends, a batch has as many samples as its bucket's bound allows, all of it. */
TEST(test_buckets)
{
    enum { BUDGET = 512, WIDE = 16, DOCUMENTS = 40 };
    uint32_t lengths[SAMPLES];
    struct plan_params params = {.length = SAMPLES, .order = PLAN_NATIVE, .seed = 3, .world = 2};
    uint64_t window[DOCUMENTS], indices[BUDGET], whole = 0;
    struct plan *plan = NULL;

    text_like(lengths, SAMPLES, 120, 8);
    params.tokens = (struct plan_tokens){.strategy = PLAN_BUCKET,
                                         .tokens = BUDGET,
                                         .interval = WIDE,
                                         .multiple = 1,
                                         .lengths = lengths,
                                         .lazy = DOCUMENTS};
    assert_int_equal(plan_new(&params, &plan), 0);
    assert_int_equal(plan_begin(plan), 0);
    while (plan_windows(plan) < SAMPLES / DOCUMENTS - 1) { /* the last one cuts the rest */
        assert_int_equal(plan_window(plan, window), DOCUMENTS);
        assert_int_equal(plan_cut_window(plan), 0);
    }
    for (uint64_t rank = 0; rank < params.world; rank++)
        for (uint64_t step = 0; step < plan_steps(plan, rank); step++, whole++) {
            uint32_t bucket = plan_step_tokens(plan, rank, step).bucket;
            size_t n = plan_step(plan, rank, step, indices);

            assert_int_equal(n, BUDGET / ((bucket + 1) * WIDE));
            for (size_t i = 0; i < n; i++)
                assert_int_equal((lengths[indices[i]] - 1) / WIDE, bucket);
        }
    assert_true(whole > 10);
    plan_free(plan);
}

/* ---- shares of tokens ------------------------------------------------------------------------ */

enum { CHILDREN = 3 };

static const uint64_t child_sizes[CHILDREN] = {160, 140, 100};
static const double shares[CHILDREN] = {0.5, 0.3, 0.2};
static const uint32_t shortest[CHILDREN] = {5, 20, 1}, longest[CHILDREN] = {15, 60, 64};

static uint32_t child_of(uint64_t sample)
{
    return sample < child_sizes[0] ? 0 : sample < child_sizes[0] + child_sizes[1] ? 1 : 2;
}

static void choose_mix(struct plan_params *params, struct mix_point *point, uint32_t *lengths,
                       uint64_t *seed)
{
    double *weights;

    choose(params, lengths, seed);
    memcpy(&weights, &(const double *){shares}, sizeof weights);
    *point = (struct mix_point){.weights = weights};
    params->length = SAMPLES;
    params->order = PLAN_NATIVE;
    params->sampler = PLAN_MIXTURE;
    params->tokens.truncate = false;
    params->mix = (struct plan_mix){.schedule = {.n = CHILDREN, .n_points = 1, .points = point},
                                    .sizes = child_sizes,
                                    .stop = below(seed, 2) ? MIX_STOP_FIRST : MIX_STOP_NEVER,
                                    .by = MIX_BY_TOKENS,
                                    .length = 1 + below(seed, SAMPLES / 8)};
    params->epoch = below(seed, 3);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        uint32_t child = child_of(i);

        lengths[i] = shortest[child] + below(seed, longest[child] - shortest[child] + 1);
    }
}

/* The plan whose lengths are asked for is that whose lengths are all there. */
TEST(test_mixed_by_tokens_as_with_all_lengths)
{
    uint32_t lengths[SAMPLES], known[SAMPLES];
    uint64_t seed = 21, window[2 * SAMPLES];
    struct mix_point point;

    for (unsigned round = 0; round < ROUNDS; round++) {
        struct plan_params params;
        uint64_t a[SAMPLES], b[SAMPLES];

        choose_mix(&params, &point, lengths, &seed);
        _cleanup_plan_ struct plan *whole = prepared(params);
        memset(known, 0, sizeof known);
        params.tokens.lengths = known;
        _cleanup_plan_ struct plan *plan = NULL;
        assert_int_equal(plan_new(&params, &plan), 0);
        assert_int_equal(plan_begin(plan), 0);
        while (!plan_is_whole(plan)) {
            size_t n = plan_window(plan, window);

            assert_in_range(n, 1, params.tokens.lazy);
            for (size_t i = 0; i < n; i++)
                known[window[i]] = lengths[window[i]];
            assert_int_equal(plan_cut_window(plan), 0);
        }
        assert_memory_equal(plan_totals(plan), plan_totals(whole), sizeof(struct plan_totals));
        for (uint64_t step = 0; step < plan_steps(plan, 0); step++) {
            size_t n = plan_step(plan, 0, step, a);

            assert_int_equal(plan_step(whole, 0, step, b), n);
            assert_memory_equal(a, b, n * sizeof *a);
            assert_int_equal(plan_mark(plan, step).window, 0);
        }
        params.tokens.mark = (struct lazy_mark){LAZY_CHAIN, 1};
        struct plan *none = NULL;
        assert_int_equal(plan_new(&params, &none), -EINVAL);
    }
}

TEST(test_mixed_by_tokens_in_any_world)
{
    uint32_t lengths[SAMPLES];
    uint64_t seed = 22;
    struct mix_point point;

    for (unsigned round = 0; round < ROUNDS; round++) {
        struct plan_params params;
        static struct rows all;

        choose_mix(&params, &point, lengths, &seed);
        take_rows(params, &all);
        _cleanup_plan_ struct plan *plan = prepared(params);
        expect_dealt(&params, plan, 0, &all);
    }
}

/* At each window's end a child has had its share of the tokens to within two of the longest
 * samples, and what begins the next window: less than a row, or a batch of each bucket. */
TEST(test_shares_are_those_of_what_was_delivered)
{
    uint32_t lengths[SAMPLES], parts[2 * SAMPLES];
    uint64_t seed = 23, indices[SAMPLES], windows = 0;
    struct mix_point point;

    for (unsigned round = 0; round < ROUNDS; round++) {
        double had[CHILDREN] = {0}, sum = 0;
        struct plan_params params;
        uint64_t step = 0;

        choose_mix(&params, &point, lengths, &seed);
        params.world = 1;
        params.epoch = 0;
        params.mix.stop = MIX_STOP_FIRST;
        params.tokens.strategy = PLAN_PACK;
        params.tokens.fill = (enum plan_fill)(round % (PLAN_CUT + 1));
        params.tokens.split = params.tokens.fill == PLAN_CUT;
        params.tokens.tokens = ROW;
        _cleanup_plan_ struct plan *plan = NULL;
        assert_int_equal(plan_new(&params, &plan), 0);
        assert_int_equal(plan_begin(plan), 0);
        while (!plan_is_whole(plan)) {
            assert_int_equal(plan_cut_window(plan), 0);
            for (; step < plan_steps(plan, 0); step++) {
                size_t n = plan_step(plan, 0, step, indices);

                plan_step_lengths(plan, 0, step, parts);
                for (size_t i = 0; i < n; i++) {
                    had[child_of(indices[i])] += parts[i];
                    sum += parts[i];
                }
            }
            windows++;
            for (uint32_t i = 0; i < CHILDREN; i++)
                assert_true(fabs(had[i] - shares[i] * sum) <= 2 * 64 + ROW);
        }
    }
    assert_true(windows > 2 * ROUNDS);
}

/* ---- parts of samples -------------------------------------------------------------------------
 */

/* What of each sample came, in parts, and how many of them. */
static void expect_parts(const struct plan_params *params, struct plan *plan, uint64_t *parts)
{
    uint64_t tokens[SAMPLES] = {0};
    uint32_t most = plan_tokens_limit(&params->tokens), overlap = params->tokens.overlap;

    for (uint64_t step = 0; step < plan_steps(plan, 0); step++) {
        struct plan_step_size size = plan_step_size(plan, 0, step);
        uint64_t indices[4 * SAMPLES];
        _cleanup_free_ struct slot_planned *put =
            calloc(1, slot_planned_bytes(size.samples, size.rows + size.begins));

        assert_int_equal(size.begins, size.samples);
        plan_put_planned(plan, 0, step, put);
        assert_int_equal(put->cut, SLOT_SPLIT | most);
        assert_int_equal(plan_step(plan, 0, step, indices), size.samples);
        for (uint64_t i = 0; i < size.samples; i++) {
            uint32_t n = put->lists[i], begin = put->lists[size.samples + size.rows + i];
            uint32_t length = params->tokens.lengths[indices[i]];

            assert_int_equal(begin % (most - overlap), 0);
            assert_true(begin + n == length || (n == most && begin + n < length));
            assert_true(begin == 0 || n > overlap);
            tokens[indices[i]] += begin > 0 ? n - overlap : n;
            ++*parts;
        }
    }
    for (uint64_t i = 0; i < params->length; i++)
        assert_int_equal(tokens[i], params->tokens.lengths[i]);
}

TEST(test_parts)
{
    uint32_t lengths[SAMPLES];
    uint64_t seed = 31, parts = 0;

    for (unsigned round = 0; round < ROUNDS / 4; round++) {
        struct plan_params params;

        choose(&params, lengths, &seed);
        params.length = min_u64(params.length, SAMPLES);
        params.world = 1;
        params.tokens.strategy = PLAN_PACK;
        params.tokens.leftover = PLAN_EMIT;
        params.tokens.truncate = false;
        params.tokens.split = true;
        params.tokens.fill = (enum plan_fill)below(&seed, PLAN_CUT);
        params.tokens.overlap = below(&seed, 2) * below(&seed, ROW / 2);
        for (uint32_t i = 0; i < SAMPLES; i += 1 + below(&seed, 90))
            lengths[i] = ROW / 2 + below(&seed, 3 * ROW);
        _cleanup_plan_ struct plan *plan = prepared(params);
        expect_parts(&params, plan, &parts);
        expect_resumed(params, plan, plan_steps(plan, 0) / 2);
    }
    assert_true(parts > ROUNDS * 50);
    struct plan *none = NULL;
    struct plan_params params;
    choose(&params, lengths, &seed);
    params.tokens.strategy = PLAN_PACK;
    params.tokens.truncate = false;
    params.tokens.split = true;
    params.tokens.overlap = ROW;
    assert_int_equal(plan_new(&params, &none), -EINVAL);
    params.tokens.overlap = 0;
    params.tokens.strategy = PLAN_SORTED;
    assert_int_equal(plan_new(&params, &none), -EINVAL);
}

/* ---- weights that change while it is cut -------------------------------------------------------
 */

/* As a plan that is not there yet would be asked for: now, behind what is known; or ahead. */
static struct mix_changes *changed(const struct plan_params *params, const struct plan *plan,
                                   bool ahead, uint64_t *seed)
{
    struct mix_changes *made = NULL;
    double weights[CHILDREN];
    struct mix_change change = {.weights = weights,
                                .position = params->epoch * params->mix.length + plan_known(plan)};

    for (uint32_t i = 0; i < CHILDREN; i++)
        weights[i] = 1 + (double)below(seed, 5);
    if (ahead)
        change.position =
            mix_ahead(params->epoch, (uint32_t)(plan_rows_so_far(plan) + 1 + below(seed, 20)));
    assert_int_equal(mix_changes_with(plan_changes_now(plan), &change, CHILDREN, &made), 0);
    return made;
}

/* Cuts all of it and changes weights now and then, the last time ahead: *ret_asked is the list from
 * then on, before any window is cut. */
static void cut_and_change(const struct plan_params *params, struct plan *plan,
                           struct mix_changes **ret_asked, uint64_t *seed)
{
    uint64_t window[2 * SAMPLES];

    assert_int_equal(plan_begin(plan), 0);
    while (!plan_is_whole(plan)) {
        if (!*ret_asked && below(seed, 3) == 0) {
            bool ahead = below(seed, 2);
            struct mix_changes *list = changed(params, plan, ahead, seed);

            if (below(seed, 2))
                (void)plan_window(plan, window); /* what was asked for may not be needed now */
            assert_int_equal(plan_change(plan, list), 0);
            if (ahead)
                *ret_asked = mix_changes_ref(list);
            mix_changes_unref(list);
        }
        (void)plan_window(plan, window);
        assert_int_equal(plan_cut_window(plan), 0);
    }
}

/* The plan that has lived through it is that of the list in the end, and of the list as it was
 * asked for, in any world and from any mark. */
TEST(test_weights_that_change_while_it_is_cut)
{
    uint32_t lengths[SAMPLES];
    uint64_t seed = 24, placed = 0;
    struct mix_point point;

    for (unsigned round = 0; round < ROUNDS / 4; round++) {
        _cleanup_(mix_changes_unrefp) struct mix_changes *asked = NULL;
        struct plan_params params;
        static struct rows all;

        choose_mix(&params, &point, lengths, &seed);
        params.mix.stop = MIX_STOP_NEVER;
        params.mix.length = SAMPLES / 4 + below(&seed, SAMPLES * 3 / 4);
        params.mix.by = below(&seed, 2) ? MIX_BY_TOKENS : MIX_BY_SAMPLES;
        params.tokens.lazy = 1 + below(&seed, 40);
        _cleanup_plan_ struct plan *plan = NULL;
        assert_int_equal(plan_new(&params, &plan), 0);
        cut_and_change(&params, plan, &asked, &seed);
        params.mix.changes = plan_changes_now(plan);
        assert_true(mix_changes_ahead(params.mix.changes) == UINT64_MAX);
        take_rows(params, &all);
        expect_dealt(&params, plan, 0, &all);
        for (uint64_t step = 0; step < plan_steps(plan, 0); step += 31)
            expect_resumed(params, plan, step);
        if (!asked)
            continue;
        assert_true(mix_changes_is_placed(asked, params.mix.changes) ||
                    params.mix.changes->n_changes < asked->n_changes);
        params.mix.changes = asked;
        params.world = 1 + below(&seed, RANKS);
        _cleanup_plan_ struct plan *other = prepared(params);
        expect_dealt(&params, other, 0, &all);
        placed++;
    }
    assert_true(placed > ROUNDS / 8);
}

/* ---- what cannot be -------------------------------------------------------------------------- */

TEST(test_refusals)
{
    static const uint32_t lengths[4] = {1, 2, 3, 4};
    const struct plan_tokens sound = {.strategy = PLAN_PACK,
                                      .tokens = 8,
                                      .row_length = 8,
                                      .multiple = 1,
                                      .interval = 1,
                                      .lengths = lengths,
                                      .lazy = 2};
    struct plan_params params = {.length = 4, .world = 1, .tokens = sound};
    struct plan *plan = NULL;

    assert_int_equal(plan_new(&params, &plan), 0);
    plan = plan_free(plan);
    params.tokens.lazy = PLAN_LAZY_MAX + 1;
    assert_int_equal(plan_new(&params, &plan), -EINVAL);
    params.tokens = sound;
    params.tokens.strategy = PLAN_BUCKET;
    params.tokens.leftover = PLAN_CARRY;
    assert_int_equal(plan_new(&params, &plan), -EINVAL);
    params.tokens = sound;
    params.tokens.balance = true;
    params.tokens.linear = 1;
    assert_int_equal(plan_new(&params, &plan), -EINVAL);
}

/* Others have taken more than there is. */
TEST(test_no_row_is_left)
{
    uint32_t lengths[10] = {8, 8, 8, 8, 8, 8, 8, 8, 8, 8};
    struct plan_params params = {.length = 10, .world = 3, .even = true};

    params.tokens = (struct plan_tokens){
        .strategy = PLAN_PACK, .tokens = 8, .row_length = 8, .lengths = lengths, .lazy = 4};
    for (uint64_t steps = 4; steps > 0;
         steps = steps * 3 / 2 > UINT64_MAX / 8 ? 0 : steps * 3 / 2) {
        params.before = (struct history){0};
        assert_true(history_add(&params.before, 4, steps));
        _cleanup_plan_ struct plan *plan = prepared(params);
        assert_int_equal(plan_steps(plan, 0), 0);
        assert_int_equal(plan_most(plan), 0);
    }
}
