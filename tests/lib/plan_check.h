/*
 * What holds of every plan of token batches, whatever was asked for. PLAN_CHECK(condition) is the
 * includer's: it does not return when the condition is false.
 */
#ifndef DL_TEST_PLAN_CHECK_H
#define DL_TEST_PLAN_CHECK_H

#include "daemon/plan/plan.h"
#include "proto/segment_layout.h"

#include <string.h>

/* What all ranks have had so far. */
struct plan_sums {
    uint32_t *times; /* of each sample of the dataset */
    uint64_t samples;
    uint64_t tokens;
    uint64_t padded;
    uint64_t rows;
    uint64_t repeated;
};

static inline uint64_t plan_check_padded(const struct plan_tokens *tokens, uint64_t n)
{
    if (tokens->pad_length > 0)
        return tokens->pad_length;
    return (n + tokens->multiple - 1) / tokens->multiple * tokens->multiple;
}

/* Rows have their samples, and none is overfull. */
static inline void plan_check_rows(const struct plan_tokens *tokens,
                                   const struct plan_step_tokens *step, const uint32_t *lengths)
{
    const uint32_t *sizes = lengths + step->samples;

    PLAN_CHECK(step->rows <= tokens->tokens / tokens->row_length);
    PLAN_CHECK(step->padded == (uint64_t)step->rows * tokens->row_length);
    for (uint32_t row = 0; row < step->rows; row++) {
        uint64_t sum = 0;

        PLAN_CHECK(sizes[row] > 0);
        for (uint32_t i = 0; i < sizes[row]; i++)
            sum += *lengths++;
        PLAN_CHECK(sum <= tokens->row_length);
    }
    PLAN_CHECK(lengths == sizes);
}

/* What is said of a step in fewer words, and in its slot, is the same. */
static inline void plan_check_put(const struct plan_tokens *tokens, const struct plan *plan,
                                  uint64_t rank, uint64_t number, const uint32_t *lengths)
{
    struct plan_step_tokens step = plan_step_tokens(plan, rank, number);
    struct plan_step_size size = plan_step_size(plan, rank, number);
    struct slot_planned *planned = calloc(1, slot_planned_bytes(size.samples, size.rows));
    struct plan_step_tokens put = plan_put_planned(plan, rank, number, planned);

    PLAN_CHECK(size.samples == step.samples && size.rows == step.rows);
    PLAN_CHECK(put.samples == step.samples && put.tokens == step.tokens);
    PLAN_CHECK(put.padded == step.padded && put.longest == step.longest);
    PLAN_CHECK(put.bucket == step.bucket && put.rows == step.rows);
    PLAN_CHECK(planned->padded == step.padded && planned->rows == step.rows);
    PLAN_CHECK(planned->cut == (tokens->truncate ? plan_tokens_limit(tokens) : 0));
    PLAN_CHECK(memcmp(planned->lists, lengths, (step.samples + step.rows) * sizeof *lengths) == 0);
    free(planned);
}

static inline void plan_check_step(const struct plan_params *params, struct plan *plan,
                                   uint64_t rank, uint64_t number, struct plan_sums *sums)
{
    const struct plan_tokens *tokens = &params->tokens;
    uint64_t most = plan_most(plan), sum = 0;
    uint64_t *indices = calloc(most, sizeof *indices);
    uint32_t *lengths = calloc(2 * most, sizeof *lengths);
    uint32_t limit = plan_tokens_limit(tokens), longest = 0;
    size_t n = plan_step(plan, rank, number, indices);
    struct plan_step_tokens step = plan_step_tokens(plan, rank, number);

    PLAN_CHECK(n >= 1 && n <= most && step.samples == n);
    PLAN_CHECK(step.padded <= tokens->tokens || (n == 1 && tokens->max_length > 0));
    plan_step_lengths(plan, rank, number, lengths);
    plan_check_put(tokens, plan, rank, number, lengths);
    for (size_t i = 0; i < n; i++) {
        uint32_t whole = tokens->lengths[indices[i]];

        PLAN_CHECK(indices[i] < params->length && lengths[i] <= limit);
        PLAN_CHECK(lengths[i] == (tokens->truncate && whole > limit ? limit : whole));
        longest = lengths[i] > longest ? lengths[i] : longest;
        sum += lengths[i];
        sums->times[indices[i]]++;
    }
    PLAN_CHECK(plan_repeated(plan, rank, number) <= n);
    sums->repeated += plan_repeated(plan, rank, number);
    PLAN_CHECK(step.tokens == sum && step.longest == longest);
    PLAN_CHECK((tokens->strategy == PLAN_BUCKET) == (step.bucket != UINT32_MAX));
    if (tokens->strategy == PLAN_PACK)
        plan_check_rows(tokens, &step, lengths);
    else
        PLAN_CHECK(step.rows == 0 && step.padded == n * plan_check_padded(tokens, longest));
    /* All ranks are at the same bucket, but window by window, and it is wide enough for all. */
    if (tokens->strategy == PLAN_BUCKET) {
        if (tokens->lazy == 0) {
            PLAN_CHECK(step.bucket == plan_step_tokens(plan, 0, number).bucket);
            PLAN_CHECK(longest <= plan_bucket_at(plan, step.bucket).upper);
        }
        PLAN_CHECK(step.bucket >= (longest - 1) / tokens->interval);
    }
    sums->samples += n;
    sums->tokens += sum;
    sums->padded += step.padded;
    sums->rows += step.rows;
    free(indices);
    free(lengths);
}

static inline void plan_check_buckets(struct plan *plan)
{
    struct plan_bucket sum = {0};

    for (uint32_t i = 0; i < plan_buckets(plan); i++) {
        struct plan_bucket bucket = plan_bucket_at(plan, i);

        PLAN_CHECK(bucket.upper > sum.upper);
        sum.upper = bucket.upper;
        sum.members += bucket.members;
        sum.full += bucket.full;
        sum.leftover += bucket.leftover;
    }
    const struct plan_totals *totals = plan_totals(plan);
    PLAN_CHECK(plan_buckets(plan) == 0 || sum.full + sum.leftover == sum.members + totals->carried);
    PLAN_CHECK(sum.full <= totals->samples);
}

/* An epoch is one pass: each sample `wanted` times, but for what is repeated or left out. */
static inline void plan_check_pass(const struct plan_params *params, const struct plan *plan,
                                   const struct plan_sums *sums, const uint32_t *wanted)
{
    const struct plan_totals *totals = plan_totals(plan);
    uint32_t limit = plan_tokens_limit(&params->tokens);
    bool repeats = totals->repeated > 0, leaves = totals->leftover > 0;
    uint64_t order = 0, overlong = 0, empty = 0;

    for (uint64_t i = 0; i < params->length; i++) {
        bool is_long = params->tokens.lengths[i] > limit;
        bool none = params->tokens.lengths[i] == 0;
        bool out = none || (is_long && (limit == 0 || !params->tokens.truncate));
        uint32_t want = out ? 0 : wanted[i];

        overlong += is_long ? wanted[i] : 0;
        empty += none ? wanted[i] : 0;
        order += want;
        PLAN_CHECK(want > 0 || sums->times[i] == 0);
        if (params->tokens.leftover == PLAN_CARRY)
            continue;
        PLAN_CHECK(sums->times[i] <= want || repeats);
        PLAN_CHECK(sums->times[i] >= want || leaves);
    }
    PLAN_CHECK(overlong == totals->overlong && empty == totals->empty);
    PLAN_CHECK(order + totals->carried + totals->repeated == totals->samples + totals->leftover);
    PLAN_CHECK(totals->leftover == 0 || params->tokens.leftover != PLAN_EMIT);
    PLAN_CHECK(totals->carried == 0 || params->tokens.leftover == PLAN_CARRY);
    PLAN_CHECK(!repeats || (params->even && params->tokens.leftover == PLAN_EMIT));
    PLAN_CHECK(params->tokens.strategy == PLAN_PACK || params->tokens.lazy > 0 ||
               totals->repeated < params->world);
}

/* Steps that are balanced together are whole, but for those at the end. */
static inline void plan_check_units(const struct plan_params *params, const struct plan *plan)
{
    const struct plan_tokens *tokens = &params->tokens;

    if (tokens->balance && tokens->accumulate > 1 && tokens->leftover == PLAN_DROP)
        PLAN_CHECK(plan_totals(plan)->groups % tokens->accumulate == 0);
}

/* `wanted`: how often the sampler gives each sample. The plan is prepared. */
static inline void plan_check(const struct plan_params *params, struct plan *plan,
                              const uint32_t *wanted)
{
    const struct plan_totals *totals = plan_totals(plan);
    struct plan_sums sums = {.times = calloc(params->length + 1, sizeof *sums.times)};

    for (uint64_t rank = 0; rank < params->world; rank++) {
        uint64_t before = sums.samples, steps = plan_steps(plan, rank);

        PLAN_CHECK(steps == totals->groups || (!params->even && steps + 1 == totals->groups));
        PLAN_CHECK(rank > 0 || steps == totals->groups);
        for (uint64_t number = 0; number < steps; number++)
            plan_check_step(params, plan, rank, number, &sums);
        PLAN_CHECK(sums.samples - before == plan_samples(plan, rank));
    }
    PLAN_CHECK(sums.samples == totals->samples && sums.tokens == totals->tokens);
    PLAN_CHECK(sums.repeated == totals->repeated);
    PLAN_CHECK(sums.padded == totals->padded && sums.rows == totals->rows);
    PLAN_CHECK((totals->groups == 0) == (plan_most(plan) == 0));
    plan_check_buckets(plan);
    plan_check_units(params, plan);
    plan_check_pass(params, plan, &sums, wanted);
    free(sums.times);
}

#endif
