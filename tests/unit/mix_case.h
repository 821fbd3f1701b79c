/* For tests of mixtures: numbers to try, and what the ranks of a world have. */
#ifndef DL_TEST_MIX_CASE_H
#define DL_TEST_MIX_CASE_H

#include "daemon/plan/mt19937.h"
#include "daemon/plan/plan.h"
#include "tests/lib/harness.h"

static inline uint32_t draw(struct mt19937 *g, uint32_t below)
{
    return mt19937_next32(g) % below;
}

static inline struct plan *make(const struct plan_params *params)
{
    struct plan *plan = NULL;

    assert_int_equal(plan_new(params, &plan), 0);
    return plan;
}

/* The steps from `first` to `end` of at most 8 ranks together, in batches of at most 8, in the
 * order of positions; returns how many samples these are. */
static inline uint64_t collect(const struct plan_params *params, uint64_t first, uint64_t end,
                               uint64_t *ret)
{
    struct plan *plan = make(params);
    uint64_t n = 0, steps = min_u64(plan_steps(plan, 0), end), got[8][8], counts[8];

    for (uint64_t step = first; step < steps; step++) {
        for (uint64_t r = 0; r < params->world; r++)
            counts[r] = step < plan_steps(plan, r) ? plan_step(plan, r, step, got[r]) : 0;
        for (uint64_t i = 0; i < params->batch_size; i++)
            for (uint64_t r = 0; r < params->world; r++)
                if (i < counts[r])
                    ret[n++] = got[r][i];
    }
    plan_free(plan);
    return n;
}

#endif
