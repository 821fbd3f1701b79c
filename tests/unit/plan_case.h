/* For tests of token batches: plans that are made and prepared, lengths, and numbers to try. */
#ifndef DL_TEST_PLAN_CASE_H
#define DL_TEST_PLAN_CASE_H

#include "daemon/plan/plan.h"
#include "tests/lib/harness.h"
#include "tests/lib/splitmix.h"

static inline struct plan *prepared(struct plan_params params)
{
    struct plan *plan = NULL;

    assert_int_equal(plan_new(&params, &plan), 0);
    assert_int_equal(plan_prepare(plan), 0);
    return plan;
}

#define _cleanup_plan_ _cleanup_(plan_freep)

static inline uint32_t below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(next_random(state) % n);
}

/* Many short ones, few long ones, as text has them: a product of three numbers. */
static inline void text_like(uint32_t *lengths, size_t n, uint32_t longest, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        double a = (double)below(&seed, 1000) / 1000, b = (double)below(&seed, 1000) / 1000;

        lengths[i] = 1 + (uint32_t)(a * (0.2 + 0.8 * b * b) * (longest - 1));
    }
}

#endif
