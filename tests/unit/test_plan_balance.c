/*
 * Balanced steps: how alike ranks' costs are with rows of log-normal lengths, with and without,
 * over one step and over the steps of one update; and that costs are what they are said to be.
 */
#include "tests/unit/plan_case.h"

#include <errno.h>
#include <math.h>

enum { ROW = 8192, SAMPLES = 60000, LIMIT = ROW };

static uint32_t *lengths;

/* A fraction above 0. */
static double fraction(uint64_t *seed)
{
    return ((double)(next_random(seed) >> 11) + 0.5) / 9007199254740992.0;
}

static int make_lengths(void **state)
{
    uint64_t seed = 7;

    lengths = calloc(SAMPLES, sizeof *lengths);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        double radius = sqrt(-2 * log(fraction(&seed)));
        double length = exp(6 + radius * cos(6.283185307179586 * fraction(&seed)));
        lengths[i] = (uint32_t)fmax(1, fmin(length, LIMIT));
    }
    return 0;
}

static int free_lengths(void **state)
{
    free(lengths);
    return 0;
}

static struct plan_params packed(uint64_t world, uint64_t rows, bool balance)
{
    return (struct plan_params){.length = SAMPLES,
                                .order = PLAN_NATIVE,
                                .seed = 3,
                                .world = world,
                                .even = true,
                                .tokens = {.tokens = rows * ROW,
                                           .lengths = lengths,
                                           .strategy = PLAN_PACK,
                                           .row_length = ROW,
                                           .window = 256,
                                           .balance = balance,
                                           .linear = balance,
                                           .square = balance ? 1.0 / 4096 : 0}};
}

static double cost_of(const struct plan_params *params, struct plan *plan, uint64_t rank,
                      uint64_t step)
{
    struct plan_step_tokens tokens = plan_step_tokens(plan, rank, step);
    _cleanup_free_ uint32_t *list = calloc(tokens.samples + tokens.rows, sizeof *list);
    bool rows = tokens.rows > 0;
    double sum = 0;

    plan_step_lengths(plan, rank, step, list);
    for (uint64_t i = 0; i < tokens.samples; i++) {
        double n = rows ? list[i] : tokens.longest;
        sum += n + n * n / 4096;
    }
    assert_int_equal(rows, params->tokens.strategy == PLAN_PACK);
    return sum;
}

/* The mean over all updates of `unit` steps of: the costliest rank's cost by the mean rank's. The
 * last unit, which may be small, is left out. */
static double imbalance(const struct plan_params *params, uint64_t unit)
{
    _cleanup_plan_ struct plan *plan = prepared(*params);
    uint64_t units = (plan_steps(plan, 0) - 1) / unit;
    double total = 0;

    for (uint64_t u = 0; u < units; u++) {
        double most = 0, sum = 0;

        for (uint64_t rank = 0; rank < params->world; rank++) {
            double cost = 0;

            for (uint64_t step = 0; step < unit; step++)
                cost += cost_of(params, plan, rank, u * unit + step);
            most = fmax(most, cost);
            sum += cost;
        }
        total += most / (sum / (double)params->world);
    }
    return total / (double)units;
}

TEST(test_rows)
{
    struct plan_params with = packed(8, 1, true), without = packed(8, 1, false);
    double balanced = imbalance(&with, 1), as_they_come = imbalance(&without, 1);

    print_message("# one row a rank: %.4f, without %.4f\n", balanced, as_they_come);
    assert_true(balanced <= 1.02);
    assert_true(as_they_come > 1.2);
}

TEST(test_several_rows)
{
    struct plan_params with = packed(8, 4, true), without = packed(8, 4, false);
    double balanced = imbalance(&with, 1), as_they_come = imbalance(&without, 1);

    print_message("# four rows a rank: %.4f, without %.4f\n", balanced, as_they_come);
    assert_true(balanced <= 1.02);
    assert_true(as_they_come > 1.08);
}

TEST(test_accumulated)
{
    struct plan_params with = packed(8, 1, true);
    with.tokens.accumulate = 4;
    double unit = imbalance(&with, 4), step = imbalance(&with, 1);

    print_message("# four steps an update: %.4f, each step %.4f\n", unit, step);
    assert_true(unit <= 1.01);
    assert_true(step <= 1.03);
}

/* The steps of one update are of all kinds, so that updates are alike, too. */
TEST(test_updates_are_alike)
{
    struct plan_params params = packed(4, 1, true);
    params.tokens.accumulate = 8;
    _cleanup_plan_ struct plan *plan = prepared(params);
    uint64_t units = plan_steps(plan, 0) / 8;
    double least = INFINITY, most = 0;

    for (uint64_t u = 0; u + 1 < units; u++) {
        double sum = 0;

        for (uint64_t step = 0; step < 8; step++)
            sum += cost_of(&params, plan, 0, u * 8 + step);
        least = fmin(least, sum);
        most = fmax(most, sum);
    }
    print_message("# the costliest update: %.3f of the cheapest\n", most / least);
    assert_true(most / least < 1.5);
}

TEST(test_batches)
{
    for (unsigned i = 0; i < 2; i++) {
        struct plan_params params = packed(8, 2, true);
        params.even = false;
        params.tokens.multiple = 1;
        params.tokens.strategy = i ? PLAN_SORTED : PLAN_IN_TURN;
        double balanced = imbalance(&params, 1);
        params.tokens.balance = false;
        double as_they_come = imbalance(&params, 1);

        print_message("# batches %s: %.4f, without %.4f\n", i ? "sorted" : "in turn", balanced,
                      as_they_come);
        assert_true(balanced <= 1.02);
        assert_true(balanced < as_they_come);
    }
}

/* By tokens alone, rows that are full are alike whatever is in them. */
TEST(test_tokens)
{
    struct plan_params params = packed(8, 1, true);

    params.tokens.square = 0;
    _cleanup_plan_ struct plan *plan = prepared(params);
    for (uint64_t step = 0; step + 1 < plan_steps(plan, 0); step++) {
        uint64_t least = UINT64_MAX, most = 0;

        for (uint64_t rank = 0; rank < 8; rank++) {
            uint64_t tokens = plan_step_tokens(plan, rank, step).tokens;
            least = min_u64(least, tokens);
            most = max_u64(most, tokens);
        }
        assert_true(most - least <= most / 50);
    }
}

TEST(test_refused)
{
    struct plan *plan = NULL;
    struct plan_params params = packed(2, 1, true);

    params.tokens.linear = params.tokens.square = 0;
    assert_int_equal(plan_new(&params, &plan), -EINVAL);
    params = packed(2, 1, true);
    params.tokens.square = NAN;
    assert_int_equal(plan_new(&params, &plan), -EINVAL);
    params = packed(2, 1, true);
    params.tokens.strategy = PLAN_SORTED;
    params.tokens.multiple = 1;
    assert_int_equal(plan_new(&params, &plan), -EINVAL);
    params = packed(2, 1, false);
    params.tokens.accumulate = 2;
    assert_int_equal(plan_new(&params, &plan), -EINVAL);
}

TEST_GROUP(make_lengths, free_lengths)
