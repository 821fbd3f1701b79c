/* The rendezvous played through by many nodes: see rdzv_sim.h for what is checked at each write. */
#include "tests/unit/rdzv_sim.h"

#include <time.h>

static struct rdzv_settings nodes_from_to(uint32_t min, uint32_t max)
{
    struct rdzv_settings set = RDZV_DEFAULTS;

    set.min = min;
    set.max = max;
    return set;
}

static void all_join(struct sim *sim, uint64_t within)
{
    for (uint32_t i = 0; i < sim->n; i++)
        sim_owner(sim, i, RDZV_JOIN);
    if (!sim_run(sim, sim->now + within, sim_all_in))
        fail_msg("%u nodes are not all in one round; %" PRIu64 " writes, %" PRIu64 " lost", sim->n,
                 sim->writes, sim->lost_writes);
}

/* As many as can be: complete with the last of them. Fewer: two seconds after last call. */
static void test_all_meet(void **state)
{
    static const struct {
        uint32_t n, min, max;
        bool full;
    } cases[] = {{1, 1, 1, true},    {2, 2, 2, true},    {2, 1, 4, false},    {7, 3, 8, false},
                 {64, 64, 64, true}, {64, 2, 65, false}, {64, 1, 4096, false}};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct sim sim = {.set = nodes_from_to(cases[i].min, cases[i].max)};

        sim_init(&sim, cases[i].n, i);
        all_join(&sim, (cases[i].full ? 0 : sim.set.last_call_ns) + 2 * SIM_S);
        assert_int_equal(sim.n_complete, 1);
        assert_int_equal(sim.removed, 0);
        for (uint32_t k = 0; k < sim.n; k++) /* by name */
            assert_int_equal(sim.nodes[k].place.rank, k);
        sim_deinit(&sim);
    }
}

/* The figure: simulated nodes and seconds, and what they cost; printed, not judged. */
static void test_thousand(void **state)
{
    struct sim sim = {.set = nodes_from_to(2, 4096)};
    clock_t start = clock();

    (void)state;
    sim_init(&sim, 1000, 7);
    all_join(&sim, sim.set.last_call_ns + 5 * SIM_S);
    sim_run(&sim, sim.now + 20 * SIM_S, NULL);
    assert_true(sim_all_in(&sim));
    assert_int_equal(sim.removed, 0);
    printf("# 1000 nodes, %" PRIu64 " s: %" PRIu64 " writes, %" PRIu64 " lost, %" PRIu64
           " reads; %.2f s of CPU\n",
           sim.now / SIM_S, sim.writes, sim.lost_writes, sim.reads,
           (double)(clock() - start) / CLOCKS_PER_SEC);
    sim_deinit(&sim);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_all_meet),
    cmocka_unit_test(test_thousand),
};

TEST_MAIN(tests)
