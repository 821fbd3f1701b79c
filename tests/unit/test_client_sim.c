/* libdlclient and the loader's core played together: see client_sim.h for what must hold. */
#include "tests/lib/client_sim.h"
#include "tests/lib/harness.h"

static const struct client_sim_rules plain = {
    .workers = 2, .steps = 23, .credits = 8, .slots = 4, .segments = 12};

static struct client_sim_totals play(const struct client_sim_rules *rules, uint64_t seeds,
                                     uint64_t events)
{
    struct client_sim_totals totals = {0};

    for (uint64_t seed = 1; seed <= seeds; seed++)
        client_sim_play(rules, seed, events, &totals);
    return totals;
}

/* A daemon that stays: the two understand each other. */
static void test_a_calm_daemon(void **state)
{
    struct client_sim_rules rules = plain;

    rules.calm = true;
    struct client_sim_totals totals = play(&rules, 20, 600);
    assert_true(totals.batches > 1000 && totals.ended > 20 && totals.stopped > 0);
    assert_true(totals.pinned > 0 && totals.faults == 0);
}

/* Daemons that are killed, with loaders of each kind, and with little memory. */
static void test_daemons_that_end(void **state)
{
    struct client_sim_totals all = {0};

    for (unsigned kind = 0; kind < 16; kind++) {
        struct client_sim_rules rules = plain;

        rules.any_order = kind & 1;
        rules.iterable = kind & 2;
        rules.credits = kind & 4 ? 3 : 8;
        rules.job = kind & 8;
        struct client_sim_totals totals = play(&rules, 40, 600);
        assert_true(totals.batches > 0 && totals.ended > 0 && totals.faults > 0);
        all.kills += totals.kills;
        all.words += totals.words;
        all.cuts += totals.cuts;
        all.again += totals.again;
        all.former += totals.former;
    }
    assert_true(all.kills > 500 && all.words > 0 && all.cuts > 0 && all.again > 0 &&
                all.former > 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_calm_daemon),
    cmocka_unit_test(test_daemons_that_end),
};

TEST_MAIN(tests)
