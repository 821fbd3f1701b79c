/* Nodes of several releases in one run: in which format the state is written, and who is refused.
 */
#include "tests/unit/rdzv_sim.h"

#include "daemon/cluster/rendezvous/rendezvous_format.h"

TEST(test_meet)
{
    static const struct {
        struct rdzv_formats all, one;
        bool meet;
        struct rdzv_formats both;
    } rows[] = {
        {{2, 2}, {2, 2}, true, {2, 2}},  {{2, 3}, {2, 2}, true, {2, 2}},
        {{2, 4}, {3, 9}, true, {3, 4}},  {{3, 9}, {2, 4}, true, {3, 4}},
        {{2, 2}, {3, 3}, false, {2, 2}}, {{4, 5}, {2, 3}, false, {4, 5}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct rdzv_formats all = rows[i].all;

        assert_int_equal(rdzv_formats_meet(&all, &rows[i].one), rows[i].meet);
        assert_int_equal(all.least, rows[i].both.least);
        assert_int_equal(all.greatest, rows[i].both.greatest);
    }
}

/* Nodes 1 to n of a state, with cards of these greatest formats; 0: its card is missing. */
TEST(test_choose)
{
    static const struct {
        uint32_t own, before;
        uint32_t cards[3], n;
        uint32_t format;
    } rows[] = {
        {4, 0, {0}, 0, 4},       {4, 0, {3, 4, 4}, 3, 3}, {4, 3, {4, 4, 4}, 3, 4},
        {4, 3, {4, 4, 2}, 3, 2}, {2, 2, {4, 4, 4}, 3, 2}, {4, 3, {4, 0, 4}, 3, 3},
        {4, 3, {4, 0, 2}, 3, 2}, {4, 0, {0, 4, 4}, 3, 4},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_(rdzv_state_deinit) struct rdzv_state there = {0};
        struct rdzv_formats own = {2, rows[i].own};
        struct rdzv_card cards[3];
        uint32_t n = 0;

        for (uint32_t k = 0; k < rows[i].n; k++) {
            assert_int_equal(rdzv_state_add(&there, &(struct rdzv_node){.id = k + 1}), 0);
            if (rows[i].cards[k])
                cards[n++] = (struct rdzv_card){.id = k + 1, .formats = {2, rows[i].cards[k]}};
        }
        assert_int_equal(rdzv_format_choose(&own, rows[i].before, &there, cards, n),
                         rows[i].format);
    }
}

/* ---- runs ----------------------------------------------------------------------------------- */

static void of_release(struct sim *sim, uint32_t node, uint32_t least, uint32_t greatest)
{
    sim->nodes[node].rdzv.formats = (struct rdzv_formats){least, greatest};
}

static void all_meet(struct sim *sim, uint32_t format)
{
    if (!sim_run(sim, sim->now + sim->set.last_call_ns + 60 * SIM_S, sim_all_in))
        fail_msg("the nodes are not all in one round");
    assert_int_equal(sim->store->state.format, format);
}

/* A node is told to leave, and comes back as one of another release. */
static void upgrade(struct sim *sim, uint32_t node, uint32_t greatest)
{
    struct sim_node *upgraded = &sim->nodes[node];

    sim_owner(sim, node, RDZV_LEAVE);
    for (unsigned i = 0; i < 60 && upgraded->news != RDZV_LEFT; i++)
        sim_run(sim, sim->now + SIM_S, NULL);
    assert_int_equal(upgraded->news, RDZV_LEFT);
    of_release(sim, node, 2, greatest);
    sim_owner(sim, node, RDZV_JOIN);
}

/* One after the other; and one of them back again. */
TEST(test_rolling)
{
    for (int polls = 0; polls < 2; polls++) {
        struct sim sim = {.set = RDZV_DEFAULTS, .polls = polls};

        sim.set.min = 2;
        sim.set.max = 8;
        sim_init(&sim, 5, 11);
        for (uint32_t i = 0; i < sim.n; i++)
            of_release(&sim, i, 2, 2);
        for (uint32_t i = 0; i < sim.n; i++)
            sim_owner(&sim, i, RDZV_JOIN);
        all_meet(&sim, 2);
        for (uint32_t i = 0; i < sim.n; i++) {
            upgrade(&sim, i, 3);
            all_meet(&sim, i + 1 < sim.n ? 2 : 3);
        }
        upgrade(&sim, 1, 2);
        all_meet(&sim, 2);
        for (uint32_t i = 0; i < sim.n; i++)
            assert_int_equal(sim.nodes[i].evicted, 0);
        sim_deinit(&sim);
    }
}

/* One node knows formats that the others do not; they stay as they are. */
TEST(test_refused)
{
    static const struct {
        uint32_t least, greatest;
        const char *words, *others_words;
    } rows[] = {
        {4, 4,
         "of this run knows formats 2 to 3 of the state in the store, and this release knows "
         "format 4",
         "node2 is not let in: its release knows format 4 of the state in the store, and the nodes "
         "of this run know formats 2 to 3"},
        {1, 1,
         "of this run knows formats 2 to 3 of the state in the store, and this release knows "
         "format 1",
         "node2 is not let in: its release knows format 1 of"},
    };

    for (size_t i = 0; i < 2 * ARRAY_SIZE(rows); i++) {
        struct sim sim = {.set = RDZV_DEFAULTS, .polls = i % 2};
        const struct sim_node *last;

        sim.set.min = 2;
        sim.set.max = 8;
        sim_init(&sim, 3, i);
        last = &sim.nodes[2];
        of_release(&sim, 0, 2, 3);
        of_release(&sim, 1, 2, 3);
        of_release(&sim, 2, rows[i / 2].least, rows[i / 2].greatest);
        sim_owner(&sim, 0, RDZV_JOIN);
        sim_owner(&sim, 1, RDZV_JOIN);
        sim_run(&sim, sim.now + sim.set.last_call_ns + 10 * SIM_S, NULL);
        assert_int_equal(sim.n_complete, 1);
        sim_owner(&sim, 2, RDZV_JOIN);
        sim_run(&sim, sim.now + 30 * SIM_S, NULL);
        assert_int_equal(last->news, RDZV_FAILED);
        assert_int_equal(last->error.code, EPROTONOSUPPORT);
        assert_non_null(strstr(last->error.message, rows[i / 2].words));
        assert_int_equal(last->notices, 1);
        assert_true(sim.nodes[0].notices + sim.nodes[1].notices > 0);
        const char *said = sim.nodes[sim.nodes[0].notices ? 0 : 1].notice.message;
        assert_non_null(strstr(said, rows[i / 2].others_words));
        assert_int_equal(sim.n_complete, 1); /* the others have not moved */
        assert_int_equal(sim.store->state.format, 3);
        sim_deinit(&sim);
    }
}

/* Cut off, and taken out by others, who then go on in a format that it does not know: its round is
 * over for it, and it comes back. */
TEST(test_cut_off)
{
    struct sim sim = {.set = RDZV_DEFAULTS};

    sim.set.min = 2;
    sim.set.max = 8;
    sim_init(&sim, 4, 9);
    of_release(&sim, 2, 2, 2);
    for (uint32_t i = 0; i < sim.n; i++)
        sim_owner(&sim, i, RDZV_JOIN);
    all_meet(&sim, 2);
    sim.nodes[2].cut = true;
    sim.nodes[2].since = sim.now;
    sim_run(&sim, sim.now + sim_ttl(&sim) + sim.set.last_call_ns + 10 * SIM_S, NULL);
    assert_int_equal(sim.store->state.format, 4);
    assert_int_equal(sim.nodes[2].evicted, 0);
    sim.nodes[2].cut = false;
    sim.nodes[2].since = sim.now;
    all_meet(&sim, 2);
    assert_int_equal(sim.nodes[2].evicted, 1);
    sim_deinit(&sim);
}

/* A state of another format, and nobody there who could write one: its writer has left a card, or
 * none. */
static void alone_with_state(bool has_card)
{
    struct sim sim = {.set = RDZV_DEFAULTS};

    sim.set.min = 1;
    sim.set.max = 8;
    sim_init(&sim, 2, 5);
    of_release(&sim, 0, 4, 4);
    of_release(&sim, 1, 2, 3);
    sim_owner(&sim, 0, RDZV_JOIN);
    sim_run(&sim, sim.now + sim.set.last_call_ns + 5 * SIM_S, NULL);
    assert_int_equal(sim.n_complete, 1);
    sim.nodes[0].dead = true;
    sim.nodes[0].since = sim.now;
    if (!has_card)
        sim.cards[0].life = RDZV_NUMBER_MAX;
    uint64_t before = sim.now;
    sim_owner(&sim, 1, RDZV_JOIN);
    for (unsigned i = 0; i < 60 && sim.nodes[1].news != RDZV_FAILED; i++)
        sim_run(&sim, sim.now + SIM_S, NULL);
    assert_int_equal(sim.nodes[1].news, RDZV_FAILED);
    assert_string_equal(sim.nodes[1].error.message, "another format");
    if (has_card)
        assert_true(sim.now - before >= 2 * sim.set.beat_ns && sim.now - before < 20 * SIM_S);
    else
        assert_true(sim.now - before <= 2 * SIM_S);
    sim_deinit(&sim);
}

TEST(test_nobody_there)
{
    alone_with_state(true);
    alone_with_state(false);
}
