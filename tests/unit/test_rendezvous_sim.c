/* The rendezvous played through by many nodes: see rdzv_sim.h for what is checked at each write. */
#include "tests/unit/rdzv_sim.h"

static struct rdzv_settings nodes_from_to(uint32_t min, uint32_t max)
{
    struct rdzv_settings set = RDZV_DEFAULTS;

    set.min = min;
    set.max = max;
    return set;
}

/* As the daemon has them, of nodes of which none may miss a beat. */
static struct rdzv_settings of_one_missed(uint32_t min, uint32_t max)
{
    struct rdzv_settings set = nodes_from_to(min, max);

    set.missed = 1;
    set.poll_ns = set.beat_ns / RDZV_POLLS_OF_ONE_MISSED;
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
TEST(test_all_meet)
{
    static const struct {
        uint32_t n, min, max;
        bool full;
    } cases[] = {{1, 1, 1, true},    {2, 2, 2, true},    {2, 1, 4, false},    {7, 3, 8, false},
                 {64, 64, 64, true}, {64, 2, 65, false}, {64, 1, 4096, false}};

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

/* What a node costs does not grow with their number: neither at rest, nor in writes of the state
 * when all come at once; and a death among many is known to all soon. */
TEST(test_cost)
{
    static const uint32_t counts[] = {16, 256, 1000};
    double rest[3], meet[3];

    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        struct sim sim = {.set = nodes_from_to(counts[i] - 1, counts[i]), .finds = true};

        sim_init(&sim, counts[i], 5);
        all_join(&sim, 10 * SIM_S);
        meet[i] = (double)sim.bytes / counts[i];
        assert_int_equal(sim.n_complete, 1);
        assert_true(sim.writes <= 20 && sim.lost_writes <= 40);
        sim_run(&sim, sim.now + 30 * SIM_S, NULL);
        uint64_t before = sim.bytes, writes = sim.writes;
        sim_run(&sim, sim.now + 60 * SIM_S, NULL);
        assert_int_equal(sim.writes, writes);
        rest[i] = (double)(sim.bytes - before) / 60 / counts[i];
        sim.nodes[counts[i] / 2].dead = true;
        sim.nodes[counts[i] / 2].since = sim.now;
        sim_run(&sim, sim.now + sim_ttl(&sim) + 2 * SIM_S, NULL);
        for (uint32_t k = 0; k < sim.n; k++)
            assert_true(sim.nodes[k].dead || sim.nodes[k].opened == 1);
        sim_run(&sim, sim.now + 3 * SIM_S + sim.set.last_call_ns, NULL);
        assert_true(sim_all_in(&sim));
        assert_int_equal(sim.n_complete, 2);
        sim_deinit(&sim);
    }
    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        printf("# of %u nodes each has %.0f bytes a second at rest, and %.0f until all have met\n",
               counts[i], rest[i], meet[i]);
        assert_true(rest[i] < 1.5 * rest[0]);
        assert_true(meet[i] < 1.5 * meet[0]);
    }
}

/* A run whose nodes are all gone, in a store that has kept it: those that come begin the next
 * round, once they know the others to be dead. */
TEST(test_left_behind)
{
    struct sim sim = {.set = nodes_from_to(2, 64)};

    sim_init(&sim, 24, 3);
    for (uint32_t i = 0; i < 16; i++)
        sim_owner(&sim, i, RDZV_JOIN);
    sim_run(&sim, sim.now + sim.set.last_call_ns + 3 * SIM_S, NULL);
    for (uint32_t i = 0; i < 16; i++) {
        sim.nodes[i].dead = true;
        sim.nodes[i].since = sim.now;
    }
    sim_run(&sim, sim.now + 100 * SIM_S, NULL);
    for (uint32_t i = 16; i < 24; i++)
        sim_owner(&sim, i, RDZV_JOIN);
    if (!sim_run(&sim, sim.now + 4 * sim_ttl(&sim) + sim.set.last_call_ns, sim_all_in))
        fail_msg("those that came are not in a round");
    sim_deinit(&sim);
}

static void kill_node(struct sim *sim, uint32_t i)
{
    sim->nodes[i].dead = true;
    sim->nodes[i].since = sim->now;
}

/* Since the death of one of them, until all others know of it. */
static uint64_t death_is_known(struct sim *sim)
{
    uint64_t since = sim->now;
    uint32_t know = 0;

    while (know < sim->n - 1 && sim->now - since < 600 * SIM_S) {
        sim_run(sim, sim->now + SIM_S / 4, NULL);
        know = 0;
        for (uint32_t i = 0; i < sim->n; i++)
            know += !sim->nodes[i].dead && sim->nodes[i].opened > 0;
    }
    return sim->now - since;
}

/* The store does all, or does not answer a tenth of what is asked, or a third: a death is known in
 * time, or soon. Who lives is not taken for dead (sim_check()). */
TEST(test_death_in_a_slow_store)
{
    static const struct {
        uint32_t lose;
        uint64_t within;
    } rows[] = {{0, 17 * SIM_S}, {50, 32 * SIM_S}, {170, 70 * SIM_S}};

    for (size_t row = 0; row < ARRAY_SIZE(rows); row++) {
        uint64_t longest = 0;

        for (uint64_t seed = 0; seed < 20; seed++) {
            struct sim sim = {
                .set = nodes_from_to(63, 64), .polls = seed % 2, .finds = seed % 4 == 0};

            sim_init(&sim, 64, seed);
            all_join(&sim, 10 * SIM_S);
            sim.lose = rows[row].lose;
            sim_run(&sim, sim.now + (20 + seed) * SIM_S, NULL);
            kill_node(&sim, (uint32_t)seed * 29 % 64);
            longest = max_u64(longest, death_is_known(&sim));
            sim_deinit(&sim);
        }
        printf("# of 1,000 messages %u are lost: a death is known after %.1f s at most\n",
               rows[row].lose, (double)longest / (double)SIM_S);
        assert_true(longest <= rows[row].within);
    }
}

/* One of 1,000: known to all within the silence and two seconds, whichever dies, one of those in
 * front that look at all beats, too; by etcd, which tells, and by a store that is polled. */
TEST(test_death_among_many)
{
    enum { MANY = 1000, RUNS = 10 };
    uint64_t longest = 0;

    for (uint64_t seed = 0; seed < RUNS; seed++) {
        struct sim sim = {
            .set = nodes_from_to(MANY - 1, MANY), .polls = seed % 2, .finds = seed % 4 < 2};

        sim_init(&sim, MANY, seed);
        all_join(&sim, 20 * SIM_S);
        sim_run(&sim, sim.now + 20 * SIM_S + sim_draw(&sim, 10 * SIM_S), NULL);
        kill_node(&sim, (uint32_t)(seed < 4 ? seed : sim_draw(&sim, MANY)));
        uint64_t known = death_is_known(&sim);
        if (known > sim_ttl(&sim) + 2 * SIM_S)
            fail_msg("seed %" PRIu64 ": known after %" PRIu64 " ms", seed, known / SIM_MS);
        longest = max_u64(longest, known);
        assert_int_equal(sim.removed, 1);
        sim_deinit(&sim);
    }
    printf("# of %d nodes one dies: known after %.2f s at most in %d runs\n", MANY,
           (double)longest / (double)SIM_S, RUNS);
}

/* Until the living have a round without the dead. */
static void survive(struct sim *sim, uint64_t within)
{
    if (!sim_run(sim, sim->now + within, sim_all_in))
        fail_msg("at %" PRIu64 " s the living are not in one round", sim->now / SIM_S);
}

/* Gone within the time that its beat may stand still, a poll, and last call; the others keep their
 * ranks, but for those that would leave a gap. */
TEST(test_deaths)
{
    struct sim sim = {.set = nodes_from_to(2, 32)};
    uint32_t kept = 0;

    sim_init(&sim, 16, 3);
    all_join(&sim, sim.set.last_call_ns + 2 * SIM_S);
    kill_node(&sim, 3);
    kill_node(&sim, 7);
    kill_node(&sim, 15);
    sim_run(&sim, sim.now + sim_ttl(&sim) + sim.set.beat_ns + 4 * SIM_S, NULL);
    assert_false(sim.store->state.complete);
    assert_int_equal(sim.store->state.n, 13);
    survive(&sim, sim.set.last_call_ns + 4 * SIM_S);
    for (uint32_t i = 0; i < sim.n; i++)
        kept += !sim.nodes[i].dead && sim.nodes[i].place.rank == i;
    assert_int_equal(kept, 11);                    /* 0..12 without 3 and 7 */
    assert_int_equal(sim.nodes[13].place.rank, 3); /* and they take the places */
    assert_int_equal(sim.nodes[14].place.rank, 7);
    assert_int_equal(sim.nodes[0].place.nodes, 13);
    sim_deinit(&sim);
}

/* A daemon that knows that the one of node i is dead, as node `heir`, which has not been there yet.
 */
static void succeed(struct sim *sim, uint32_t i, uint32_t heir)
{
    rdzv_replace(&sim->nodes[heir].rdzv, sim->nodes[i].self.id);
    sim_owner(sim, heir, RDZV_JOIN);
}

/* All die and are started again, or only some: they meet long before the dead have been silent for
 * long enough, who are all taken out, and nobody else. Where all are few it takes no poll; whoever
 * lives looks in its turn. */
TEST(test_successors)
{
    static const struct {
        uint32_t n, killed;
        uint64_t within;
    } cases[] = {{2, 2, SIM_S / 4},  {2, 1, SIM_S / 4},     {16, 16, SIM_S / 2},
                 {16, 5, SIM_S / 2}, {200, 200, 5 * SIM_S}, {200, 30, 5 * SIM_S}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            uint32_t n = cases[i].n, killed = cases[i].killed;
            struct sim sim = {.set = nodes_from_to(n, n), .polls = seed % 2, .finds = seed < 2};

            sim_init(&sim, n + killed, seed);
            for (uint32_t k = 0; k < n; k++)
                sim_owner(&sim, k, RDZV_JOIN);
            if (!sim_run(&sim, sim.now + 30 * SIM_S, sim_all_in))
                fail_msg("%u nodes have not met", n);
            for (uint32_t k = 0; k < killed; k++)
                kill_node(&sim, k);
            sim_run(&sim, sim.now + 100 * SIM_MS, NULL);
            uint64_t begun = sim.now, bytes = sim.bytes;
            for (uint32_t k = 0; k < killed; k++)
                succeed(&sim, k, n + k);
            if (!sim_run(&sim, sim.now + cases[i].within + (killed < n ? 3 * sim.set.poll_ns : 0),
                         sim_all_in))
                fail_msg("case %zu, seed %" PRIu64 ": no round after %" PRIu64 " ms", i, seed,
                         (sim.now - begun) / SIM_MS);
            assert_int_equal(sim.removed, killed);
            if (seed == 0)
                printf("# %u of %u killed: all in after %" PRIu64 " ms, %" PRIu64 " bytes a node\n",
                       killed, n, (sim.now - begun) / SIM_MS, (sim.bytes - bytes) / n);
            sim_deinit(&sim);
        }
}

enum { NODES = 3, TIMES = 8 };

/* Ids are drawn: those who come later may have greater ones, or smaller. */
static uint32_t generation(uint64_t seed, uint32_t i, uint32_t k)
{
    return NODES * (seed % 2 ? i : TIMES - 1 - i) + k;
}

/* Again and again, so soon that nobody has beaten twice: what the dead of all generations have left
 * brings none of them back, though those that look know nothing of earlier ones. */
TEST(test_generations)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct sim sim = {.set = nodes_from_to(NODES, NODES), .seed = seed};

        sim_init(&sim, NODES * TIMES, seed);
        for (uint32_t k = 0; k < NODES; k++)
            sim_owner(&sim, generation(seed, 0, k), RDZV_JOIN);
        if (!sim_run(&sim, sim.now + 5 * SIM_S, sim_all_in))
            fail_msg("seed %" PRIu64 ": the first have not met", seed);
        for (uint32_t i = 1; i < TIMES; i++) {
            sim_run(&sim, sim.now + sim_draw(&sim, 2 * SIM_S), NULL);
            for (uint32_t k = 0; k < NODES; k++)
                kill_node(&sim, generation(seed, i - 1, k));
            for (uint32_t k = 0; k < NODES; k++) {
                sim_run(&sim, sim.now + sim_draw(&sim, 20 * SIM_MS), NULL);
                succeed(&sim, generation(seed, i - 1, k), generation(seed, i, k));
            }
            if (!sim_run(&sim, sim.now + SIM_S, sim_all_in))
                fail_msg("seed %" PRIu64 ": generation %u has not met in a second", seed, i);
        }
        assert_int_equal(sim.removed, NODES * (TIMES - 1));
        sim_deinit(&sim);
    }
}

/* As test_successors, without the knowledge: whoever has the same name is somebody else, and the
 * dead are waited for. */
TEST(test_namesakes)
{
    struct sim sim = {.set = nodes_from_to(2, 4)};

    sim_init(&sim, 4, 3);
    for (uint32_t i = 0; i < sim.n; i++)
        memcpy(sim.nodes[i].rdzv.self.name, "node", 5);
    for (uint32_t i = 0; i < 3; i++)
        sim_owner(&sim, i, RDZV_JOIN);
    sim_run(&sim, sim.now + sim.set.last_call_ns + 2 * SIM_S, NULL);
    assert_true(sim_all_in(&sim));
    kill_node(&sim, 1);
    sim_owner(&sim, 3, RDZV_JOIN);
    sim_run(&sim, sim.now + sim_ttl(&sim) / 2, NULL);
    assert_int_equal(sim.store->state.n, 4);
    sim_run(&sim, sim.now + sim_ttl(&sim), NULL);
    assert_int_equal(sim.store->state.n, 3);
    assert_int_equal(sim.removed, 1);
    sim_deinit(&sim);
}

/* Beats of 200 ms, of which 15 may be missed, on machines so busy that each node has no processor
 * for 0.4 to 0.8 s, again and again: nobody who lives is taken out, and who dies is out after no
 * more than twice the silence. */
TEST(test_naps)
{
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct sim sim = {.set = nodes_from_to(2, 8), .seed = seed, .polls = seed % 2};
        uint64_t killed = 0, found = 0;

        sim.set.beat_ns = sim.set.poll_ns = 200 * SIM_MS;
        sim.set.missed = 15;
        sim.set.last_call_ns = SIM_S;
        sim_init(&sim, 2 + (uint32_t)seed % 5, seed);
        all_join(&sim, 10 * SIM_S);
        for (unsigned i = 0; i < 600 && found == 0; i++) {
            for (uint32_t k = 0; k < sim.n; k++)
                if (sim.nodes[k].naps_until <= sim.now && sim_draw(&sim, 3) == 0)
                    sim.nodes[k].naps_until = sim.now + (400 + sim_draw(&sim, 401)) * SIM_MS;
            sim_run(&sim, sim.now + (100 + sim_draw(&sim, 400)) * SIM_MS, NULL);
            if (i < 400) {
                assert_int_equal(sim.removed, 0);
                continue;
            }
            if (killed == 0)
                kill_node(&sim, 1);
            killed = killed ? killed : sim.now;
            if (sim.removed > 0)
                found = sim.now - killed;
        }
        assert_int_equal(sim.removed, 1);
        if (seed < 3)
            printf("# %u nodes that nap: a death is found after %" PRIu64
                   " ms of silence, of %" PRIu64 "\n",
                   sim.n, found / SIM_MS, sim_ttl(&sim) / SIM_MS);
        if (found > 2 * sim_ttl(&sim))
            fail_msg("seed %" PRIu64 ": found after %" PRIu64 " ms", seed, found / SIM_MS);
        sim_deinit(&sim);
    }
}

static void stop_all(struct sim *sim, bool stop)
{
    for (uint32_t i = 0; i < sim->n; i++)
        sim->nodes[i].asleep = stop && !sim->nodes[i].dead;
}

/* Not one beat may be missed: nobody who lives is taken out, though messages take up to a tenth
 * of a second there and back, clocks differ, the store fails, and machines stop together. Who dies
 * is out when the next beat is half an interval late. */
TEST(test_one_missed)
{
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct sim sim = {.set = of_one_missed(2, 16), .delay_ns = SIM_S / 20, .seed = seed};

        sim_init(&sim, 12, seed);
        for (uint32_t i = 0; i < sim.n; i++)
            sim_set_clock(&sim, &sim.nodes[i], sim_draw(&sim, 1000) * SIM_S,
                          990 + sim_draw(&sim, 21));
        all_join(&sim, sim.set.last_call_ns + 20 * SIM_S);
        for (unsigned i = 0; i < 100; i++) {
            sim_run(&sim, sim.now + sim_draw(&sim, 20 * SIM_S), NULL);
            stop_all(&sim, i % 2 == 0);
            sim.down = i % 2 == 1;
            sim_run(&sim, sim.now + (sim.down ? 5 * SIM_S : 0) + sim_draw(&sim, 15 * SIM_S), NULL);
            stop_all(&sim, false);
            sim.down = false;
        }
        sim_run(&sim, sim.now + 20 * SIM_S, NULL);
        assert_true(sim_all_in(&sim));
        assert_int_equal(sim.removed, 0);
        assert_int_equal(sim.n_complete, 1);
        kill_node(&sim, 3);
        sim_run(&sim, sim.now + 10 * SIM_S, NULL);
        assert_null(rdzv_state_find(&sim.store->state, 4));
        assert_int_equal(sim.store->state.n, 11);
        sim_deinit(&sim);
    }
}

/* All but one die, then there are too few; others come and there are enough again. */
TEST(test_too_few)
{
    struct sim sim = {.set = nodes_from_to(3, 8)};

    sim_init(&sim, 6, 3);
    for (uint32_t i = 0; i < 4; i++)
        sim_owner(&sim, i, RDZV_JOIN);
    sim_run(&sim, sim.now + sim.set.last_call_ns + 2 * SIM_S, NULL);
    for (uint32_t i = 1; i < 4; i++)
        kill_node(&sim, i);
    sim_run(&sim, sim.now + 100 * SIM_S, NULL);
    assert_false(sim.store->state.complete);
    assert_int_equal(sim.store->state.n, 1);
    for (uint32_t i = 4; i < 6; i++)
        sim_owner(&sim, i, RDZV_JOIN);
    survive(&sim, sim.set.last_call_ns + 2 * SIM_S);
    assert_int_equal(sim.nodes[0].rounds, 2);
    assert_int_equal(sim.nodes[0].place.rank, 0);
    sim_deinit(&sim);
}

/* Fewer than the minimum until the end: each is told so, and none stays behind. */
TEST(test_never_enough)
{
    struct sim sim = {.set = nodes_from_to(5, 8)};

    sim_init(&sim, 3, 3);
    for (uint32_t i = 0; i < sim.n; i++)
        sim_owner(&sim, i, RDZV_JOIN);
    sim_run(&sim, sim.now + sim.set.join_ns + 10 * SIM_S, NULL);
    for (uint32_t i = 0; i < sim.n; i++) {
        assert_int_equal(sim.nodes[i].news, RDZV_FAILED);
        assert_string_equal(sim.nodes[i].error.path, "rendezvous.timeouts.join");
        assert_non_null(strstr(sim.nodes[i].error.message, "of at least 5 nodes"));
    }
    assert_int_equal(sim.store->state.n, 0);
    sim_deinit(&sim);
}

/* There is no place: it waits beyond its time to join, and takes that of one that leaves. */
TEST(test_stand_in)
{
    struct sim sim = {.set = nodes_from_to(2, 3)};

    sim_init(&sim, 4, 5);
    for (uint32_t i = 0; i < 3; i++)
        sim_owner(&sim, i, RDZV_JOIN);
    sim_run(&sim, sim.now + 2 * SIM_S, sim_all_in);
    sim_owner(&sim, 3, RDZV_JOIN);
    sim_run(&sim, sim.now + 2 * sim.set.join_ns, NULL);
    assert_int_equal(sim.nodes[3].rounds, 0);
    assert_int_equal(sim.nodes[3].news, RDZV_NO_NEWS);
    sim_owner(&sim, 1, RDZV_LEAVE);
    survive(&sim, 4 * SIM_S); /* full at once */
    assert_int_equal(sim.nodes[3].place.rank, 1);
    assert_int_equal(sim.nodes[1].news, RDZV_LEFT);
    sim_deinit(&sim);
}

TEST(test_all_leave)
{
    struct sim sim = {.set = nodes_from_to(2, 8)};

    sim_init(&sim, 8, 5);
    all_join(&sim, 2 * SIM_S);
    for (uint32_t i = 0; i < sim.n; i++)
        sim_owner(&sim, i, RDZV_LEAVE);
    sim_run(&sim, sim.now + 5 * SIM_S, NULL);
    assert_int_equal(sim.store->state.n, 0);
    for (uint32_t i = 0; i < sim.n; i++)
        assert_int_equal(sim.nodes[i].news, RDZV_LEFT);
    /* And come back: not to a round that was. */
    all_join(&sim, 2 * SIM_S);
    assert_int_equal(sim.nodes[0].rounds, 2);
    sim_deinit(&sim);
}

TEST(test_closed)
{
    struct sim sim = {.set = nodes_from_to(2, 8)};

    sim_init(&sim, 9, 5);
    for (uint32_t i = 0; i < 8; i++)
        sim_owner(&sim, i, RDZV_JOIN);
    sim_run(&sim, sim.now + 2 * SIM_S, NULL);
    sim_owner(&sim, 2, RDZV_CLOSE);
    sim_run(&sim, sim.now + 2 * SIM_S, NULL);
    sim_owner(&sim, 8, RDZV_JOIN);
    sim_run(&sim, sim.now + 2 * SIM_S, NULL);
    for (uint32_t i = 0; i < sim.n; i++) {
        assert_int_equal(sim.nodes[i].news, RDZV_CLOSED);
        assert_non_null(strstr(sim.nodes[i].error.message, "is closed: all is done"));
    }
    sim_deinit(&sim);
}

/* The store is away for a minute, and knows all or nothing when it is back: the round holds. */
TEST(test_store_restarts)
{
    for (int forgets = 0; forgets < 2; forgets++) {
        struct sim sim = {.set = nodes_from_to(2, 16)};

        sim_init(&sim, 10, 11);
        all_join(&sim, sim.set.last_call_ns + 2 * SIM_S);
        for (unsigned i = 0; i < 5; i++) {
            sim.down = true;
            sim_run(&sim, sim.now + sim_draw(&sim, 60 * SIM_S), NULL);
            if (forgets)
                sim_forget(&sim);
            sim.down = false;
            sim_run(&sim, sim.now + 60 * SIM_S, NULL);
            assert_true(sim_all_in(&sim));
        }
        assert_int_equal(sim.removed, 0);
        assert_int_equal(sim.n_complete, 1);
        sim_deinit(&sim);
    }
}

/* ---- all of it at once ---------------------------------------------------------------------- */

/* Nodes that are not there before one of the dead is started again as one of them. */
enum { HEIRS = 6 };

/* Of one that has died a while ago, or just now; at most once. */
static void start_again(struct sim *sim, struct sim_node *node, uint32_t number)
{
    if (!node->dead || node->heir)
        return;
    for (uint32_t i = sim->n - HEIRS; i < sim->n && !node->heir; i++)
        if (!sim->nodes[i].dead && sim->nodes[i].calls == 0) {
            node->heir = true;
            succeed(sim, number, i);
        }
}

/* Longer than between two beats, or looks; not so long that its beat stands still for too long. */
static void nap(struct sim *sim, struct sim_node *node)
{
    uint64_t longest = sim_ttl(sim) - sim->set.beat_ns - 3 * SIM_S;

    if (!node->dead && !node->asleep && sim->now > node->naps_until + 2 * sim->set.beat_ns)
        node->naps_until = sim->now + 400 * SIM_MS + sim_draw(sim, longest);
}

static void disturb(struct sim *sim)
{
    uint32_t number = (uint32_t)sim_draw(sim, sim->n);
    struct sim_node *node = &sim->nodes[number];

    switch (sim_draw(sim, 12)) {
    case 0:
        if (!node->dead && !node->asleep)
            sim_owner(sim, number, RDZV_LEAVE);
        break;
    case 1:
    case 2:
        if (number < sim->n - HEIRS && !node->dead && !node->asleep &&
            node->rdzv.want == RDZV_WANT_NOTHING)
            sim_owner(sim, number, RDZV_JOIN);
        break;
    case 3:
        node->asleep = !node->asleep && !node->dead;
        node->since = sim->now;
        break;
    case 4:
        node->cut = !node->cut;
        node->since = sim->now;
        break;
    case 5:
        sim_set_clock(sim, node, sim_clock(sim, node) + sim_draw(sim, 7200) * SIM_S,
                      950 + sim_draw(sim, 101));
        break;
    case 6:
        sim->down = !sim->down;
        break;
    case 7:
        if (sim_draw(sim, 4) == 0)
            sim_forget(sim);
        break;
    case 8:
    case 9:
        nap(sim, node);
        break;
    case 10:
        start_again(sim, node, number);
        break;
    default:
        if (sim_draw(sim, 8) == 0 && number > 0 && node->calls > 0) { /* one at least is left */
            kill_node(sim, number);
            if (sim_draw(sim, 2) == 0)
                start_again(sim, node, number);
        }
    }
}

static void calm_down(struct sim *sim)
{
    sim->down = false;
    sim->lose = 0;
    for (uint32_t i = 0; i < sim->n; i++) {
        struct sim_node *node = &sim->nodes[i];

        if (node->asleep || node->cut)
            node->since = sim->now;
        node->asleep = node->cut = false;
    }
    sim_run(sim, sim->now + 10 * SIM_S, NULL);
    for (uint32_t i = 0; i < sim->n; i++) {
        const struct sim_node *node = &sim->nodes[i];
        bool was_there = i < sim->n - HEIRS || node->calls > 0;

        if (was_there && !node->dead && node->rdzv.want == RDZV_WANT_NOTHING)
            sim_owner(sim, i, RDZV_JOIN);
    }
}

TEST(test_at_random)
{
    const char *seeds = getenv("RDZV_SEEDS");
    uint64_t n = seeds ? strtoull(seeds, NULL, 10) : 60;

    for (uint64_t seed = 0; seed < n; seed++) {
        bool many = seed % 15 == 14; /* who go by heads */
        struct sim sim = {.set = nodes_from_to(1, many ? 64 : 16)};

        sim.lose = seed % 3 == 0 ? 10 : 0;
        sim.ready_ns = seed % 7 == 0 ? 3 * SIM_S : 0;
        sim.delay_ns = seed % 5 == 0 ? 80 * SIM_MS : 2 * SIM_MS;
        sim.seed = seed;
        sim.polls = seed % 2;
        sim.finds = many && !sim.polls;
        sim.behind = seed % 4 < 2 ? 100 : 0;
        sim_init(&sim, (many ? 36 : 2) + HEIRS + (uint32_t)(seed % 11), seed);
        for (uint32_t i = 0; i < sim.n && seed % 2; i++) /* of several releases */
            sim.nodes[i].rdzv.formats.greatest = 2 + (uint32_t)sim_draw(&sim, 3);
        for (uint32_t i = 0; i < sim.n - HEIRS; i++)
            sim_owner(&sim, i, RDZV_JOIN);
        for (unsigned i = 0; i < 60; i++) {
            sim_run(&sim, sim.now + sim_draw(&sim, 20 * SIM_S), NULL);
            disturb(&sim);
        }
        calm_down(&sim);
        if (!sim_run(&sim, sim.now + 300 * SIM_S, sim_all_in))
            fail_msg("seed %" PRIu64 ": the living are not in one round", seed);
        sim_deinit(&sim);
    }
}
