/* What order the samples of a mixture's children have, each time that one is gone through. */
#include "daemon/plan/plan.h"

#include "tests/unit/mix_case.h"

/* Each child has an order of its own, another one each time that it begins again, and none of them
 * is another seed's. */
TEST(test_permutations)
{
    enum { SIZE = 50, PASSES = 4, ORDERS = 2 * 2 * PASSES };
    double weights[] = {1, 1};
    uint64_t sizes[] = {SIZE, SIZE}, order[2 * SIZE * PASSES], orders[ORDERS][SIZE];
    struct mix_point point = {.weights = weights};
    struct plan_params params = {.length = 2 * SIZE,
                                 .sampler = PLAN_MIXTURE,
                                 .order = PLAN_NATIVE,
                                 .world = 1,
                                 .batch_size = ARRAY_SIZE(order),
                                 .mix = {.schedule = {.n = 2, .n_points = 1, .points = &point},
                                         .sizes = sizes,
                                         .stop = MIX_STOP_NEVER,
                                         .length = ARRAY_SIZE(order)}};

    for (params.seed = 0; params.seed < 2; params.seed++) {
        uint64_t counts[2] = {0};

        struct plan *plan = make(&params);
        assert_int_equal(plan_step(plan, 0, 0, order), ARRAY_SIZE(order));
        plan_free(plan);
        for (size_t k = 0; k < ARRAY_SIZE(order); k++) {
            uint64_t child = order[k] / SIZE, nth = counts[child]++;
            assert_in_range(nth, 0, PASSES * SIZE - 1);
            orders[(params.seed * 2 + child) * PASSES + nth / SIZE][nth % SIZE] = order[k] % SIZE;
        }
    }
    for (size_t i = 0; i < ORDERS; i++) {
        bool seen[SIZE] = {false};

        for (size_t k = 0; k < SIZE; k++) {
            assert_false(seen[orders[i][k]]);
            seen[orders[i][k]] = true;
        }
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(orders[i], orders[j], sizeof orders[i]);
    }
}
