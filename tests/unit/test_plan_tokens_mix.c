/*
 * Batches of tokens as training meets them: lengths in no order over the epoch, each class of
 * lengths at its share from beginning to end, little padding, and nothing left out each time.
 */
#include "tests/unit/plan_case.h"

enum { LENGTH = 30000, LONGEST = 512, TOKENS = 4096, MAX_STEPS = 4000 };

static uint32_t lengths[LENGTH];

static struct plan_params mixed(enum plan_strategy strategy, uint64_t window, uint64_t seed)
{
    text_like(lengths, LENGTH, LONGEST, seed);
    return (struct plan_params){.length = LENGTH,
                                .order = seed % 2 ? PLAN_TORCH : PLAN_NATIVE,
                                .seed = seed,
                                .epoch = seed % 7,
                                .world = 1,
                                .even = true,
                                .tokens = {.tokens = TOKENS,
                                           .lengths = lengths,
                                           .strategy = strategy,
                                           .interval = 8,
                                           .multiple = 1,
                                           .row_length = 1024,
                                           .window = window}};
}

/* ---- order ---------------------------------------------------------------------------------- */

struct ranked {
    double value;
    size_t place;
};

static int by_value(const void *a, const void *b)
{
    double x = ((const struct ranked *)a)->value, y = ((const struct ranked *)b)->value;

    return x < y ? -1 : x > y;
}

/* Spearman's rank correlation of values with their places; equal values have their mean rank. */
static double correlation(const double *values, size_t n)
{
    static struct ranked ranked[MAX_STEPS];
    double squares = 0;

    assert_in_range(n, 30, MAX_STEPS);
    for (size_t i = 0; i < n; i++)
        ranked[i] = (struct ranked){values[i], i};
    qsort(ranked, n, sizeof *ranked, by_value);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && by_value(&ranked[i], &ranked[end]) == 0;)
            end++;
        for (size_t j = i; j < end; j++) {
            double d = (double)ranked[j].place - (double)(i + end - 1) / 2;

            squares += d * d;
        }
    }
    return 1 - 6 * squares / ((double)n * ((double)n * (double)n - 1));
}

static double step_correlation(struct plan_params params)
{
    static double means[MAX_STEPS];
    _cleanup_plan_ struct plan *plan = prepared(params);
    uint64_t steps = plan_steps(plan, 0);

    assert_in_range(steps, 1, MAX_STEPS);
    for (uint64_t step = 0; step < steps; step++) {
        struct plan_step_tokens tokens_of_step = plan_step_tokens(plan, 0, step);

        means[step] = (double)tokens_of_step.tokens / (double)tokens_of_step.samples;
    }
    return correlation(means, steps);
}

/* Averaged over seeds: one of them may well be off by 2 / sqrt(steps). */
static double mean_correlation(enum plan_strategy strategy, uint64_t window)
{
    enum { SEEDS = 12 };
    double sum = 0;

    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        sum += step_correlation(mixed(strategy, window, seed));
    return sum / SEEDS;
}

TEST(test_step_order_does_not_follow_length)
{
    static const struct {
        enum plan_strategy strategy;
        uint64_t window;
    } rows[] = {{PLAN_SORTED, 16},
                {PLAN_SORTED, 256},
                {PLAN_SORTED, 0},
                {PLAN_BUCKET, 0},
                {PLAN_PACK, 256}};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        double rho = mean_correlation(rows[i].strategy, rows[i].window);

        assert_true(rho > -0.03 && rho < 0.03);
    }
}

/* Lengths alike in number, few to a bucket. */
static double bucket_correlation(uint64_t window)
{
    enum { SEEDS = 12 };
    double sum = 0;

    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct plan_params params = mixed(PLAN_BUCKET, window, seed);

        params.length = 6000;
        for (size_t i = 0; i < LENGTH; i++)
            lengths[i] = 1 + i % LONGEST;
        sum += step_correlation(params);
    }
    return sum / SEEDS;
}

/* What is mended by shuffling the epoch: buckets of short samples fill late, and would come late.
 */
TEST(test_buckets_fill_in_an_order)
{
    assert_true(bucket_correlation(1) < -0.12);
    double whole = bucket_correlation(0);
    assert_true(whole > -0.06 && whole < 0.06);
    /* And what is sorted as a whole is short first, were it not shuffled. */
    struct plan_params params = mixed(PLAN_SORTED, 0, 2);
    params.order = PLAN_SEQUENTIAL;
    assert_true(step_correlation(params) > 0.9);
}

/* ---- shares --------------------------------------------------------------------------------- */

enum { CLASSES = 4, PARTS = 10 };

struct class
{
    uint64_t samples;
    uint64_t tokens;
    uint64_t seen;
};

static struct class *class_of(struct class *classes, uint64_t sample)
{
    return &classes[lengths[sample] * CLASSES / (LONGEST + 1)];
}

/* What came of a class, in `part` of the epoch: within four standard deviations of drawing steps.
 */
static void check_share(const struct class *class, double part)
{
    double off = (double)class->seen / (double)class->samples - part;
    double steps = (double)class->tokens / TOKENS;

    assert_true(steps > 30);
    assert_true(off * off < 16 * part * (1 - part) / steps + 1e-9);
}

TEST(test_shares_over_the_epoch)
{
    for (unsigned strategy = 0; strategy < 3; strategy++) {
        struct plan_params params = mixed((enum plan_strategy)strategy, strategy == 1 ? 0 : 256, 7);
        _cleanup_plan_ struct plan *plan = prepared(params);
        struct class classes[CLASSES] = {0};
        uint64_t steps = plan_steps(plan, 0), indices[TOKENS];

        for (size_t i = 0; i < LENGTH; i++) {
            class_of(classes, i)->samples++;
            class_of(classes, i)->tokens += lengths[i];
        }
        for (uint64_t step = 0; step < steps; step++) {
            for (size_t n = plan_step(plan, 0, step, indices); n > 0; n--)
                class_of(classes, indices[n - 1])->seen++;
            if ((step + 1) % (steps / PARTS) == 0 || step + 1 == steps)
                for (size_t c = 0; c < CLASSES; c++)
                    check_share(&classes[c], (double)(step + 1) / (double)steps);
        }
    }
}

/* With drop, no sample is left out in every epoch; few are in any. */
TEST(test_dropped_are_others_each_time)
{
    enum { EPOCHS = 12, FEW = 3000 };
    static unsigned times[FEW];

    for (unsigned strategy = 0; strategy < 3; strategy += 2) {
        struct plan_params params = mixed((enum plan_strategy)strategy, 0, 6);
        uint64_t indices[TOKENS], left = 0;

        memset(times, 0, sizeof times);
        params.length = FEW;
        params.tokens.leftover = PLAN_DROP;
        for (params.epoch = 0; params.epoch < EPOCHS; params.epoch++) {
            _cleanup_plan_ struct plan *plan = prepared(params);

            left += plan_totals(plan)->leftover;
            for (uint64_t step = 0; step < plan_steps(plan, 0); step++)
                for (size_t n = plan_step(plan, 0, step, indices); n > 0; n--)
                    times[indices[n - 1]]++;
        }
        for (size_t i = 0; i < FEW; i++)
            assert_in_range(times[i], EPOCHS / 2, EPOCHS);
        assert_in_range(left, 1, EPOCHS * FEW / 50);
    }
}

/* Rows were filled beginning with the longest samples; no batch shows that. */
TEST(test_rows_in_no_order)
{
    _cleanup_plan_ struct plan *plan = prepared(mixed(PLAN_PACK, 0, 4));
    uint32_t of_step[2 * TOKENS];
    size_t up = 0, down = 0;

    for (uint64_t step = 0; step < plan_steps(plan, 0); step++) {
        struct plan_step_tokens tokens_of_step = plan_step_tokens(plan, 0, step);
        const uint32_t *first = of_step;

        plan_step_lengths(plan, 0, step, of_step);
        for (uint32_t row = 0; row + 1 < tokens_of_step.rows; row++) {
            const uint32_t *next = first + of_step[tokens_of_step.samples + row];

            up += *first < *next;
            down += *first > *next;
            first = next;
        }
    }
    assert_true(up + down > 1000 && up > down * 4 / 5 && down > up * 4 / 5);
}

/* ---- padding -------------------------------------------------------------------------------- */

static double padding(struct plan_params params)
{
    _cleanup_plan_ struct plan *plan = prepared(params);
    const struct plan_totals *totals = plan_totals(plan);

    return (double)(totals->padded - totals->tokens) / (double)totals->padded;
}

TEST(test_padding)
{
    double mean = 0;

    assert_true(padding(mixed(PLAN_SORTED, 256, 3)) < 0.02);
    assert_true(padding(mixed(PLAN_SORTED, 0, 3)) < padding(mixed(PLAN_SORTED, 16, 3)));
    assert_true(padding(mixed(PLAN_PACK, 256, 3)) < 0.01);
    /* An interval of 8 costs 3.5 tokens a sample, if the lengths in it are alike in number. */
    struct plan_params bucket = mixed(PLAN_BUCKET, 0, 3);
    for (size_t i = 0; i < LENGTH; i++)
        mean += (double)lengths[i] / LENGTH;
    assert_true(padding(bucket) < 3.5 / mean * 1.1);
}

/* A small corpus: dealt out sample by sample, each of three ranks pads to the longest of its group
 * of all three's; cut apart, each rank's part is filled for itself. */
TEST(test_padding_of_ranks)
{
    struct plan_params params = mixed(PLAN_SORTED, 256, 3);

    params.length = 20000;
    params.world = 3;
    params.tokens.tokens = 8192;
    double alike = padding(params);
    params.even = false;
    double apart = padding(params);
    print_message("# 20,000 samples, 3 ranks: padding of %.2f %%, without even %.2f %%\n",
                  100 * alike, 100 * apart);
    assert_true(apart < 0.5 * alike);
    assert_true(apart < 0.015);
}
