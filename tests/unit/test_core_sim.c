/* The loader's core played through: see core_sim.h for what is checked at each event. */
#include "tests/lib/core_sim.h"
#include "tests/lib/harness.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

static const struct sim_rules plain = {
    .ranks = 3, .workers = 2, .steps = 11, .credits = 3, .slots = 3, .segments = 12, .retries = 1};

/* So many schedules, each from a seed of its own. */
static struct sim_totals play(const struct sim_rules *rules, uint64_t seeds, uint64_t events)
{
    struct sim_totals totals = {0};

    for (uint64_t seed = 1; seed <= seeds; seed++)
        sim_play(rules, seed, events, NULL, 0, &totals);
    return totals;
}

static struct sim_rules rules_of(unsigned kind)
{
    struct sim_rules rules = plain;

    rules.any_order = kind & 1;
    rules.iterable = kind & 2;
    rules.dispatch = kind & 4;
    rules.job = kind & 8;
    return rules;
}

/* Each kind of loader, with room and without. */
TEST(test_every_kind)
{
    struct sim_totals all = {0};

    for (unsigned kind = 0; kind < 128; kind++) {
        struct sim_rules rules = rules_of(kind);

        rules.segments = kind & 16 ? 2 : 12;
        rules.leases = kind & 32 ? 2 : 0;
        rules.bypass = kind & 64 ? 1 : 0;
        if (rules.bypass && (!rules.any_order || rules.iterable))
            continue; /* which has none */
        if (rules.any_order && rules.dispatch)
            continue; /* which no spec may say */
        struct sim_totals totals = play(&rules, 40, 400);
        assert_true(totals.batches > 0 && totals.finished > 0 && totals.faults > 0);
        all.parked += totals.parked;
        all.resumed += totals.resumed;
        all.starved += totals.starved;
        all.kills += totals.kills;
    }
    assert_true(all.parked > 0 && all.resumed > 0 && all.starved > 0 && all.kills > 0);
}

/* Slots that are replaced by larger ones, in memory that is hardly enough: what is ready may hold
 * what an earlier step needs. */
TEST(test_slots_that_grow)
{
    struct sim_totals all = {0};

    for (unsigned kind = 0; kind < 128; kind++) {
        struct sim_rules rules = rules_of(kind);

        rules.bypass = kind & 64 ? 1 : 0;
        if (rules.bypass && (!rules.any_order || rules.iterable))
            continue;
        rules.ranks = kind & 16 ? 1 : 3;
        rules.slots = kind & 32 ? 1 : 2;
        rules.segments = rules.dispatch ? 2 : 1;
        rules.grows = true;
        if (rules.any_order && rules.dispatch)
            continue;
        struct sim_totals totals = play(&rules, 12, 400);
        assert_true(totals.batches > 0 && totals.finished > 0);
        all.starved += totals.starved;
    }
    assert_true(all.starved > 0);
}

/* Where there is memory, and nobody dies, a batch that did not fit goes to the worker that has it.
 */
TEST(test_batches_are_made_once)
{
    struct sim_rules rules = plain;

    rules.ranks = 1;
    rules.workers = 4;
    rules.credits = 9;
    rules.segments = 64;
    rules.steps = 100;
    rules.grows = rules.calm = true;
    struct sim_totals totals = play(&rules, 40, 600);
    assert_true(totals.outgrew > 100 && totals.kept == totals.outgrew);
}

/* Workers come and go while they work: each step comes once all the same, and where there are more
 * of them, more is loaded ahead. */
TEST(test_workers_that_come_and_go)
{
    struct sim_totals all = {0};

    for (unsigned kind = 0; kind < 64; kind++) {
        struct sim_rules rules = rules_of(kind & ~2U);

        rules.workers = 6;
        rules.resizes = true;
        rules.segments = kind & 16 ? 6 : 24;
        rules.leases = kind & 32 ? 2 : 0;
        rules.grows = kind & 2;
        if (rules.any_order && rules.dispatch)
            continue;
        struct sim_totals totals = play(&rules, 20, 600);
        assert_true(totals.batches > 0 && totals.finished > 0);
        all.resizes += totals.resizes;
        all.kills += totals.kills;
        all.most = max_u64(all.most, totals.most);
    }
    assert_true(all.resizes > 0 && all.kills > 0);
    assert_true(all.most >= 1 * 6 + 1);
}

/* Ranks that read the same batches: all of them get each, and nobody waits for ever. */
TEST(test_sharers)
{
    struct sim_totals all = {0};

    for (unsigned kind = 0; kind < 32; kind++) {
        struct sim_rules rules = plain;

        rules.sharers = kind & 1 ? 2 : 3;
        rules.ranks = 6;
        rules.iterable = kind & 2;
        rules.job = kind & 4;
        rules.segments = kind & 8 ? 2 : 12;
        rules.leases = kind & 16 ? 2 : 0;
        struct sim_totals totals = play(&rules, 40, 600);
        assert_true(totals.batches > 0 && totals.finished > 0 && totals.faults > 0);
        all.starved += totals.starved;
        all.kills += totals.kills;
    }
    assert_true(all.starved > 0 && all.kills > 0);
}

/* Jobs that read the same batches: each gets all of its own, wherever the others are; batches are
 * made once for those that are not far apart; and nobody is held up for longer than may be. */
TEST(test_companions)
{
    struct sim_totals all = {0};

    for (unsigned kind = 0; kind < 128; kind++) {
        struct sim_rules rules = plain;

        rules.ranks = 4;
        rules.slices = kind & 64;
        rules.window = kind & 1 ? 1 : 6;
        rules.wait = kind & 2 ? 0 : 4000000;
        rules.job = kind & 4;
        rules.leases = kind & 16 ? 2 : 0;
        rules.resizes = kind & 32;
        rules.grows = kind & 32 && kind & 1;
        rules.workers = rules.resizes ? 6 : 2;
        rules.segments = kind & 8 ? rules.workers : 24;
        struct sim_totals totals = play(&rules, 12, 500);
        assert_true(totals.batches > 0 && totals.finished > 0 && totals.faults > 0);
        all.left += totals.left;
        all.moved += totals.moved;
        all.starved += totals.starved;
        all.kills += totals.kills;
    }
    assert_true(all.left > 0 && all.moved > 0 && all.starved > 0 && all.kills > 0);
}

/* Those that begin together and are not too far apart have each batch made once. */
TEST(test_companions_in_step)
{
    struct sim_rules rules = plain;

    rules.ranks = 4;
    rules.steps = 100;
    rules.window = 100;
    rules.wait = 1000000000;
    rules.segments = 80;
    rules.calm = true;
    struct sim_totals totals = play(&rules, 20, 600);
    assert_true(totals.left == 0 && totals.batches > 3 * totals.made);
}

/* A user who may have little: sources are refused, others end, and all goes on. */
TEST(test_sources_that_are_not_paid_for)
{
    uint64_t unpaid = 0;

    for (unsigned kind = 0; kind < 8; kind++) {
        struct sim_rules rules = plain;

        rules.dispatch = kind & 1;
        rules.sharers = kind & 1 ? 0 : 3;
        rules.ranks = 6;
        rules.iterable = kind & 2;
        rules.job = kind & 4;
        rules.overhead = 4 * sizeof(struct stream);
        struct sim_totals totals = play(&rules, 40, 400);
        assert_true(totals.batches > 0 && totals.finished > 0);
        unpaid += totals.unpaid;
    }
    assert_true(unpaid > 0);
}

/* A thousand ranks, who are slow, die and come back; and nobody waits for ever. */
TEST(test_a_thousand_ranks)
{
    for (unsigned kind = 0; kind < 4; kind++) {
        struct sim_rules rules = plain;

        rules.ranks = 1000;
        rules.workers = 8;
        rules.steps = 5;
        rules.segments = 1000;
        rules.iterable = kind & 1;
        rules.dispatch = kind & 2;
        struct sim_totals totals = play(&rules, 1, 20000);
        assert_true(totals.finished > 500);
    }
}

/* The figure: CORE_SIM_SECONDS=10 in a release; printed, not judged. */
TEST(test_many)
{
    const char *seconds = getenv("CORE_SIM_SECONDS");
    double limit = seconds ? atof(seconds) : 0;
    struct sim_totals totals = {0};
    clock_t begin = clock();
    uint64_t seed = 1000;

    while ((double)(clock() - begin) / CLOCKS_PER_SEC < limit)
        sim_play(&plain, ++seed, 400, NULL, 0, &totals);
    if (seconds)
        print_message("%" PRIu64 " schedules and %" PRIu64 " events in %.1f s\n", seed - 1000,
                      totals.events, limit);
}
