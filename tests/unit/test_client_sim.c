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
TEST(test_a_calm_daemon)
{
    struct client_sim_rules rules = plain;

    rules.calm = true;
    struct client_sim_totals totals = play(&rules, 20, 600);
    assert_true(totals.batches > 1000 && totals.ended > 20 && totals.stopped > 0);
    assert_true(totals.pinned > 0 && totals.faults == 0);
}

/* Daemons that are killed, with loaders of each kind, and with little memory. */
TEST(test_daemons_that_end)
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

/* Sessions that have hardly begun. */
TEST(test_daemons_that_end_at_once)
{
    struct client_sim_totals totals = play(&plain, 4000, 1);

    assert_true(totals.kills > 4000 && totals.words > 50);
}

/* Weights of a mixture, and of samples, through daemons that end. */
TEST(test_changed_weights)
{
    assert_int_equal(setenv("DLOADER_WEIGHTS", harness_tmpdir(), 1), 0);
    for (unsigned kind = 0; kind < 4; kind++) {
        struct client_sim_rules rules = plain;

        rules.mix = kind & 1;
        rules.tables = !rules.mix;
        rules.job = kind & 2;
        uint64_t seeds = rules.tables ? 25 : 100; /* each table is written to the disk */
        struct client_sim_totals totals = play(&rules, seeds, 600);
        assert_true(totals.kills > seeds && totals.ended > seeds && totals.changed > 2 * seeds);
        assert_true(totals.told > seeds / 4 && (totals.tables > seeds) == rules.tables);
    }
}

/* A cluster's world that changes, by itself and as daemons end. */
TEST(test_worlds_that_change)
{
    struct client_sim_rules rules = plain;

    rules.cluster = rules.calm = true;
    struct client_sim_totals calm = play(&rules, 100, 600);
    assert_true(calm.worlds > 200 && calm.kills == 100 && calm.ended > 100);
    rules.calm = false;
    struct client_sim_totals totals = play(&rules, 200, 600);
    assert_true(totals.worlds > 300 && totals.kills > 200 && totals.ended > 100);
    rules.mix = true;
    totals = play(&rules, 100, 600);
    assert_true(totals.worlds > 100 && totals.told > 20);
}
