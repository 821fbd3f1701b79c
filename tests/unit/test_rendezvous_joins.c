/* What many nodes that come at once cost the store until they have met: see rdzv_sim.h. */
#include "tests/unit/rdzv_sim.h"

#include <math.h>

enum { SEEDS = 2 };

static const uint32_t COUNTS[] = {16, 64, 256, 1000};

/* `lead`: one comes so much before the others. `again`: all have been in a round before, and left:
 * the store has kept the state. */
struct joins {
    uint64_t within, delay_ns, call_ns;
    bool again;
    uint64_t lead;
};

struct join_cost {
    double bytes[ARRAY_SIZE(COUNTS)]; /* of all nodes, on average */
    double looks;                     /* of the most nodes */
    uint64_t longest;
};

static void have_met_before(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->n; i++)
        sim_owner(sim, i, RDZV_JOIN);
    if (!sim_run(sim, sim->now + 30 * SIM_S, sim_all_in))
        fail_msg("%u nodes are not all in a first round after 30 s", sim->n);
    for (uint32_t i = 0; i < sim->n; i++)
        sim_owner(sim, i, RDZV_LEAVE);
    sim_run(sim, sim->now + 60 * SIM_S, NULL);
    assert_int_equal(sim->store->state.n, 0);
}

static void join_within(struct sim *sim, uint64_t lead, uint64_t within)
{
    uint64_t bytes = sim->bytes, looks = sim->calls_of[RDZV_LOOK], begun = sim->now;
    uint32_t complete = sim->n_complete;

    for (uint32_t i = 0; i < sim->n; i++) {
        uint64_t after = i + 1 < sim->n ? lead : 0; /* the greatest id is before all in front */

        sim_plan(sim, sim->now + after + sim_draw(sim, within + 1), SIM_JOIN, i, 0);
    }
    if (!sim_run(sim, sim->now + 30 * SIM_S, sim_all_in))
        fail_msg("%u nodes are not all in one round after 30 s", sim->n);
    assert_int_equal(sim->n_complete, complete + 1);
    assert_int_equal(sim->removed, 0);
    sim->bytes -= bytes;
    sim->calls_of[RDZV_LOOK] -= looks;
    sim->now -= begun;
}

static void measure(const struct joins *joins, bool polls, uint32_t count, uint64_t seed,
                    struct join_cost *ret)
{
    struct sim sim = {.set = RDZV_DEFAULTS,
                      .finds = true,
                      .polls = polls,
                      .delay_ns = joins->delay_ns,
                      .call_ns = joins->call_ns};

    sim.set.max = COUNTS[count];
    sim.set.min = COUNTS[count] - 1;
    sim.set.last_call_ns = 3 * SIM_S;
    sim_init(&sim, COUNTS[count], seed);
    if (joins->again)
        have_met_before(&sim);
    join_within(&sim, joins->lead, joins->within);
    ret->bytes[count] += (double)sim.bytes / SEEDS;
    ret->looks = (double)sim.calls_of[RDZV_LOOK];
    ret->longest = max_u64(ret->longest, sim.now);
    sim_deinit(&sim);
}

/* Of a power of the number of nodes, by least squares. */
static double exponent(const double *bytes)
{
    const double n = ARRAY_SIZE(COUNTS);
    double x = 0, y = 0, xy = 0, xx = 0;

    for (size_t i = 0; i < ARRAY_SIZE(COUNTS); i++) {
        x += log(COUNTS[i]) / n;
        y += log(bytes[i]) / n;
    }
    for (size_t i = 0; i < ARRAY_SIZE(COUNTS); i++) {
        xy += (log(COUNTS[i]) - x) * (log(bytes[i]) - y);
        xx += (log(COUNTS[i]) - x) * (log(COUNTS[i]) - x);
    }
    return xy / xx;
}

static void judge(const struct joins *joins, bool polls, const struct join_cost *cost)
{
    double grows = exponent(cost->bytes);

    printf("# %s%s, one %3" PRIu64 " ms before, within %4" PRIu64 " ms, messages of up to %3" PRIu64
           " ms, calls of %3" PRIu64 " us: bytes a node",
           polls ? "asked" : "told", joins->again ? " again" : "", joins->lead / SIM_MS,
           joins->within / SIM_MS, joins->delay_ns / SIM_MS, joins->call_ns / 1000);
    for (size_t i = 0; i < ARRAY_SIZE(COUNTS); i++)
        printf(" %.0f of %u,", cost->bytes[i] / COUNTS[i], COUNTS[i]);
    printf(" %.0f looks: nodes^%.2f; met in %.1f s at most\n", cost->looks, grows,
           (double)cost->longest / SIM_S);
    assert_true(grows <= 1.1);
    assert_true(cost->bytes[ARRAY_SIZE(COUNTS) - 1] <= 10e6);
}

/* What passes until all have met grows as the nodes do, however slow the store is, whether it tells
 * of changes or is asked, and however many come at the same time, or after one who was alone: they
 * do not all look at the cards of all, nor read each state. */
TEST(test_cost_of_joins)
{
    static const struct joins rows[] = {
        {0, 2 * SIM_MS, 0, false},
        {0, 2 * SIM_MS, SIM_MS / 2, false},
        {0, 100 * SIM_MS, 0, false},
        {SIM_S, 300 * SIM_MS, SIM_MS / 2, false},
        {3 * SIM_S, 100 * SIM_MS, 0, false},
        {0, 100 * SIM_MS, 0, true},
        {100 * SIM_MS, 2 * SIM_MS, SIM_MS / 5, false, SIM_S},
    };

    for (size_t r = 0; r < 2 * ARRAY_SIZE(rows); r++) {
        struct join_cost cost = {0};

        for (uint32_t i = 0; i < SEEDS * ARRAY_SIZE(COUNTS); i++)
            measure(&rows[r / 2], r % 2, i / SEEDS, i, &cost);
        judge(&rows[r / 2], r % 2, &cost);
    }
}
