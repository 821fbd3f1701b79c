/*
 * Trainers in lock step, in one process group that nothing but a launcher makes anew, while their
 * daemons are killed, told to end, cut off, frozen, and come back at once or late; a launcher
 * starts all of them again, and their program goes back to an earlier state. What a daemon knows of
 * the cluster's world (daemon/cluster/world, daemon/cluster/progress/progress.c) runs as it is; the
 * store, the clock, the rendezvous and the trainers are simulated (tests/lib/world_around.h), and
 * streams as far as session_world.c treats them.
 *
 * Whatever happens,
 *
 *   - no sample comes twice to trainers that live,
 *   - what is missing at the epoch's end is told, and what is told is missing, or had been used by
 *     those that are dead,
 *   - all ranks have used equally many batches, and none waits for ever.
 *
 * What is taken for granted: a daemon that is gone without a word is taken out when the others have
 * gone as far as they can without it, since steps are shorter than rdzv_silence(); and its fence is
 * two steps earlier, since steps are shorter than half a heartbeat. One that was frozen looks at
 * the clock before a trainer uses what it gives out then (WAKES_SLOWLY: it does not, which is not
 * mended).
 *
 * Environment: WORLD_SIM_SEED: plays this schedule alone, and says what happens;
 * WORLD_SIM_SCHEDULES: plays so many, from WORLD_SIM_FIRST on. WORLD_SIM_KINDS: what may happen, by
 * the bits of sim_happen()'s cases; absent: all.
 */
#include "tests/unit/world_sim.h"

#include <unistd.h>

enum { SCHEDULES = 2000 };

/* ---- what happens --------------------------------------------------------------------------- */

/* Moves as they come, at most so many. False: there was none to make. */
static bool sim_move(void)
{
    unsigned from = (unsigned)sim_draw(2 * RANKS + NODES);

    for (unsigned i = 0; i < 2 * RANKS + NODES; i++) {
        unsigned k = (from + i) % (2 * RANKS + NODES);

        if (k < RANKS       ? sim_next(&sim->ranks[k])
            : k < 2 * RANKS ? sim_deliver(&sim->ranks[k - RANKS])
                            : sim_move_daemon(sim->daemons[k - 2 * RANKS]))
            return true;
    }
    return sim->changing && sim_complete_round();
}

static void sim_pass_time(uint64_t ns)
{
    around_pass(ns);
    for (unsigned i = 0; i < NODES; i++)
        if (sim->daemons[i] && !sim->daemons[i]->frozen)
            around_ring(&sim->daemons[i]->around);
}

static void sim_move_on(uint64_t moves)
{
    while (moves-- > 0 && sim_move())
        if (sim_draw(8) == 0)
            sim_pass_time(sim_draw(40) * MS);
}

/* Until no rank can go on, or each has gone on by so many steps; while so many timers ring. */
static void sim_go_on_for(uint64_t steps, unsigned rings)
{
    uint64_t moves = 0;

    for (unsigned i = 0; i < RANKS; i++)
        sim->ranks[i].most = steps > 0 ? sim->ranks[i].turns + steps : 0;
    for (unsigned i = 0; i <= rings; i++) {
        if (i > 0)
            sim_pass_time(100 * MS);
        while (sim_move())
            assert_in_range(++moves, 1, MOVES);
    }
    for (unsigned i = 0; i < RANKS; i++)
        sim->ranks[i].most = 0;
}

/* One that was fenced finds out meanwhile that it may go on. */
static void sim_go_as_far(uint64_t steps)
{
    sim_go_on_for(steps, 2);
}

static void sim_settle_round(void)
{
    uint64_t moves = 0;

    while (sim->changing || sim_any_round_due()) {
        sim_move();
        assert_in_range(++moves, 1, MOVES);
    }
}

static void sim_cut_off(struct sim_daemon *d, bool frozen)
{
    sim_say(frozen ? "is frozen" : "is cut off", d->number, 0);
    d->around.cut = true;
    d->around.cut_ns = uv_hrtime();
    d->frozen = frozen;
    sim_move_on(sim_draw(60));
    sim_pass_time(4000 * MS);
    sim_move_on(sim_draw(20));
}

static void sim_heal(struct sim_daemon *d)
{
    bool woke = d->frozen;

    sim_say("is reached again", d->number, d->evicted);
    d->frozen = false;
    if (woke) { /* what lies there is done first, and then timers ring */
        for (unsigned i = 0; i < RANKS; i++)
            if (sim->ranks[i].daemon == d)
                sim_deliver(&sim->ranks[i]);
        if (WAKES_SLOWLY)
            sim_move_on(sim_draw(8));
        around_ring(&d->around);
    }
    d->around.cut = false;
    d->around.unread = true;
}

static void sim_play_cut(struct sim_daemon *d, bool frozen)
{
    sim_cut_off(d, frozen);
    if (sim_draw(3) == 0) { /* nobody has missed it */
        sim_heal(d);
        return;
    }
    sim_go_as_far(frozen ? 0 : MARGIN);
    if (sim_draw(3) == 0) { /* it is taken out, and in again */
        d->evicted = true;
        sim_heal(d);
        sim_open_round();
        return;
    }
    sim_open_round();
    sim_settle_round();
    sim_move_on(sim_draw(200));
    sim_heal(d);
    sim_open_round();
}

static void sim_play_stop(struct sim_daemon *d, bool slow)
{
    unsigned number = (unsigned)d->number;
    uint64_t moves = 0;

    sim_stop_daemon(d);
    while (sim->daemons[number]) {
        sim_move();
        assert_in_range(++moves, 1, MOVES);
    }
    if (slow) {
        sim_open_round();
        sim_settle_round();
        sim_move_on(sim_draw(200));
    }
    sim_start_daemon(number);
    sim_open_round();
}

static void sim_play_kill(struct sim_daemon *d, bool slow)
{
    unsigned number = (unsigned)d->number;

    sim_kill_daemon(d);
    if (slow) {
        sim_move_on(sim_draw(60));
        sim_go_as_far(0);
        sim_open_round();
        sim_settle_round();
        sim_move_on(sim_draw(200));
    }
    sim_start_daemon(number);
    sim_open_round();
}

/* With its trainers. */
static void sim_play_loss(struct sim_daemon *d)
{
    unsigned number = (unsigned)d->number;

    while (d->around.calls) /* else it may have said that it is further than it is now */
        around_step(&d->around);
    sim_say("node is lost", number, 0);
    sim_kill_daemon(d);
    sim->deaths++;
    for (unsigned i = LOCAL * number; i < LOCAL * number + LOCAL; i++) {
        sim->ranks[i].lives = false;
        for (unsigned k = 0; k < SAMPLES; k++) {
            sim->by_dead[k] |= sim->user[k] == 1 + (int)i;
            sim->user[k] = sim->user[k] == 1 + (int)i ? 0 : sim->user[k];
        }
    }
    sim_move_on(sim_draw(30));
    sim_open_round();
}

/* A collective has failed, and the launcher starts all trainers again, once all have ended and the
 * store has what their daemons say of it. */
static void sim_play_restart(void)
{
    sim_say("all trainers start again", 0, 0);
    for (unsigned i = 0; i < RANKS; i++) {
        struct sim_rank *rank = &sim->ranks[i];

        if (!rank->lives)
            continue;
        if (rank->daemon && !rank->closed) {
            sim_note(rank);
            shared_loader_ended(rank->shared, sim_local(rank), rank, RANK_RESTS);
        }
        if (sim_daemon_of(rank))
            shared_loaders_forget_session(sim_daemon_of(rank)->m, &rank->session);
        sim->one_away |= !rank->daemon; /* where it was died with it: its daemon is new, too */
        sim_drop_stream(rank);
        *rank = (struct sim_rank){.lives = true, .anywhere = true, .again = true};
        rank->asked = uv_hrtime();
    }
    for (unsigned i = 0; i < NODES; i++)
        while (sim->daemons[i] && sim->daemons[i]->around.calls)
            around_step(&sim->daemons[i]->around);
}

/* Of that history the first so many samples; at the end of a step. */
static struct history sim_cut_history(const struct history *history, uint64_t samples)
{
    struct history cut = {0};

    for (uint32_t i = 0; i < history->n; i++) {
        const struct history_stretch *stretch = &history->stretches[i];
        uint64_t steps = min_u64(stretch->steps, samples / stretch->world);

        assert_true(history_add(&cut, stretch->world, steps));
        if (steps < stretch->steps)
            break;
        samples -= steps * stretch->world;
    }
    return cut;
}

/* A program goes back to a state that it saved so many samples before, with all ranks that live:
 * nothing that was used from there on counts, not even of those that are dead. */
static void sim_play_back(uint64_t back)
{
    const struct sim_rank *least = NULL;

    for (unsigned i = 0; i < RANKS; i++)
        if (sim->ranks[i].lives && (!least || sim_position(&sim->ranks[i]) < sim_position(least)))
            least = &sim->ranks[i];
    struct history at = sim_history(least);
    uint64_t all = sim_prefix(&at);
    at = sim_cut_history(&at, all - min_u64(all, back));
    uint64_t from = sim_prefix(&at);
    sim->told = 0;
    sim_say("all go back to sample", from, 0);
    for (uint64_t k = from; k < SAMPLES; k++) {
        sim->user[k] = 0;
        sim->by_dead[k] = false;
    }
    for (unsigned i = 0; i < RANKS; i++) {
        struct sim_rank *rank = &sim->ranks[i];

        if (!rank->lives)
            continue;
        sim_go_back(rank, &at);
        rank->turns = 0;
        rank->back = true;
        rank->state = at;
        rank->again = rank->agreed = rank->anywhere = false;
    }
}

static bool sim_is_over(void)
{
    for (unsigned i = 0; i < RANKS; i++)
        if (sim->ranks[i].lives && sim->ranks[i].phase != RANK_DONE)
            return false;
    return true;
}

static bool sim_is_agreeing(void)
{
    for (unsigned i = 0; i < RANKS && sim->has_group; i++)
        if (sim->ranks[i].lives && sim->ranks[i].again && !sim->ranks[i].agreed)
            return true;
    return false;
}

/* Or goes back, and its daemon does not know it yet. */
static bool sim_is_restarting(void)
{
    for (unsigned i = 0; i < RANKS; i++)
        if (sim->ranks[i].lives && sim->ranks[i].back)
            return true;
    return sim_is_agreeing();
}

static bool sim_has_begun(void)
{
    for (unsigned i = 0; i < RANKS; i++)
        if (sim->ranks[i].lives && sim->ranks[i].phase != RANK_READS)
            return false;
    return !sim_is_agreeing();
}

/* All of its ranks have asked it for something: world-changes.md says what is not covered. */
static bool sim_knows_its_ranks(const struct sim_daemon *d, unsigned node)
{
    for (unsigned i = LOCAL * node; i < LOCAL * node + LOCAL; i++)
        if (sim->ranks[i].lives && (!d || sim->ranks[i].known_to != member_id(d->m->member)))
            return false;
    return true;
}

static bool sim_all_are_known(void)
{
    for (unsigned i = 0; i < NODES; i++)
        if (!sim_knows_its_ranks(sim->daemons[i], i))
            return false;
    return true;
}

/* Another one that knows how far its ranks are would be left. */
static bool sim_one_knows_besides(const struct sim_daemon *d)
{
    for (unsigned i = 0; i < NODES; i++)
        if (sim->daemons[i] && sim->daemons[i] != d && sim_knows_its_ranks(sim->daemons[i], i))
            return true;
    return false;
}

/* Trainers know nothing of rounds that begin and end meanwhile. */
static bool sim_may_happen(unsigned what, const struct sim_daemon *d)
{
    if (what >= 7)
        return !sim_is_restarting() && sim_all_are_known();
    return d && !sim->changing && !sim_any_round_due() && sim_has_begun() &&
           sim_knows_its_ranks(d, (unsigned)d->number) && sim_one_knows_besides(d);
}

static void sim_happen(void)
{
    unsigned what = (unsigned)sim_draw(9), number = (unsigned)sim_draw(NODES);
    struct sim_daemon *d = sim->daemons[number];

    if (sim->faults == 0 || !(sim_kinds >> what & 1) || !sim_may_happen(what, d))
        return;
    sim->faults--;
    switch (what) {
    case 0:
    case 1:
        sim_play_cut(d, what);
        break;
    case 2:
    case 3:
        sim_play_stop(d, what == 3);
        break;
    case 4:
    case 5:
        sim_play_kill(d, what == 5);
        break;
    case 6:
        if (sim->deaths == 0 && sim_draw(2) == 0)
            sim_play_loss(d);
        break;
    case 7:
        sim_play_restart();
        break;
    default:
        sim_play_back(sim_draw(3) == 0 ? 0 : sim_draw(30));
    }
}

/* ---- schedules ------------------------------------------------------------------------------ */

static void sim_judge(void)
{
    uint64_t end = 0, missing = 0, by_dead = 0, told = sim->told, turns = UINT64_MAX;

    for (unsigned i = 0; i < RANKS; i++) {
        const struct sim_rank *rank = &sim->ranks[i];

        if (!rank->lives)
            continue;
        if (turns != UINT64_MAX && turns != rank->turns)
            fail_msg("rank %u has used %d batches in its life, and others %d", i, (int)rank->turns,
                     (int)turns);
        turns = rank->turns;
        end = max_u64(end, sim_prefix(&rank->place.before) + sim_steps(rank) * rank->place.world);
    }
    for (unsigned i = 0; i < end; i++) {
        missing += !sim->user[i] && !sim->by_dead[i];
        if (!sim->user[i])
            sim_say("nobody has used sample", i, sim->by_dead[i]);
        by_dead += !sim->user[i] && sim->by_dead[i];
    }
    /* Nobody knows of the last steps of one that is dead that it had them. */
    if ((missing > told && !sim->one_behind) || (!sim->one_away && told > missing + by_dead))
        fail_msg("%d samples are missing, and %d are said to be; %d the dead had", (int)missing,
                 (int)told, (int)by_dead);
}

static void sim_clear(void)
{
    for (unsigned i = 0; i < NODES; i++)
        if (sim->daemons[i])
            sim_kill_daemon(sim->daemons[i]);
    around_end();
    quota_free(sim->quota);
    free(sim);
    sim = NULL;
}

static void sim_set_up(uint64_t seed)
{
    static const struct config_limits limits = {.worlds = 100};

    sim = must_alloc(sizeof *sim);
    *sim = (struct sim){.random = seed, .quota = quota_new(&limits)};
    sim->faults = 1 + (unsigned)sim_draw(FAULTS);
    sim->has_group = seed % 2;
    around_begin();
    for (unsigned i = 0; i < NODES; i++)
        sim_start_daemon(i);
    for (unsigned i = 0; i < RANKS; i++)
        sim->ranks[i] = (struct sim_rank){.lives = true, .asked = uv_hrtime()};
    sim_open_round();
}

static void sim_run(void)
{
    uint64_t idle = 0, moves = 0;

    while (!sim_is_over()) {
        if (sim_move()) {
            idle = 0;
        } else {
            sim_pass_time(100 * MS);
            if (++idle > 2000)
                fail_msg("all wait for ever");
        }
        if (sim_draw(8) == 0)
            sim_pass_time(sim_draw(40) * MS);
        if (sim_draw(60) == 0)
            sim_happen();
        if (++moves > MOVES)
            fail_msg("the epoch does not end");
    }
}

static void sim_play(uint64_t seed)
{
    sim_set_up(seed);
    sim_run();
    sim_judge();
    sim_clear();
}

/* Until they wait for something. */
static void sim_move_ranks_of(unsigned node)
{
    for (unsigned i = LOCAL * node; i < LOCAL * node + LOCAL; i++)
        while (sim_next(&sim->ranks[i]))
            ;
}

/* A node is lost at the epoch's end, and another one asks in vain how far it was, tells its ranks
 * what may be missing, and asks once more. The loader goes on there, too. */
TEST(test_asked_in_vain)
{
    sim_set_up(sim_seed = 0);
    sim->faults = 0;
    sim_go_as_far(SAMPLES / RANKS);
    struct sim_daemon *d = sim->daemons[0];
    sim_play_loss(sim->daemons[NODES - 1]);
    sim_tell_over(d);
    assert_non_null(d->around.calls);
    d->around.cut = true;
    while (d->around.calls)
        around_step(&d->around);
    d->around.cut = false;
    for (unsigned i = 0; i < 3; i++) {
        sim_move_ranks_of(0);
        assert_int_not_equal(sim->ranks[0].phase, RANK_DONE);
        sim_pass_time(1000 * MS);
    }
    sim_move_ranks_of(0);
    assert_int_equal(sim->ranks[0].phase, RANK_DONE);
    assert_int_equal(sim->told, SAMPLES / NODES);
    sim_settle_round();
    sim_play_back(30);
    sim_run();
    sim_clear();
}

/* At the epoch's end a daemon that has taken another's place is late for longer than the fence.
 * Once it is there again it has the time to say that the same ranks go on. */
TEST(test_heir_is_late)
{
    sim_set_up(sim_seed = 0);
    sim->faults = 0;
    sim_go_as_far(5);
    sim_play_kill(sim->daemons[0], false);
    sim_go_as_far(SAMPLES / RANKS - 5);
    struct sim_daemon *heir = sim->daemons[0];
    heir->frozen = heir->around.cut = true;
    heir->around.cut_ns = uv_hrtime();
    sim_pass_time(1000 * MS);
    sim_move_ranks_of(1);
    sim_pass_time(4000 * MS);
    sim_move_ranks_of(1);
    assert_int_equal(sim->ranks[LOCAL].phase, RANK_ENDS);
    sim_heal(heir);
    sim_run();
    assert_int_equal(sim->told, 0);
    sim_clear();
}

static bool sim_any_asks(void)
{
    for (unsigned i = 0; i < RANKS; i++)
        if (sim->ranks[i].phase == RANK_ASKS)
            return true;
    return false;
}

/* All trainers are started again, while some had their last batch in their hands, and the others
 * waited for the next one. By their daemons alone they resume at one step. */
TEST(test_started_again_at_one_step)
{
    sim_set_up(sim_seed = 0);
    sim->faults = 0;
    sim_go_as_far(5);
    sim->ranks[1].released = sim->ranks[RANKS - 1].released = sim->ranks[RANKS - 2].released = 4;
    sim_play_restart();
    for (unsigned i = 0; sim_any_asks(); i++) {
        sim_move();
        assert_in_range(i, 0, MOVES);
    }
    for (unsigned i = 0; i < RANKS; i++)
        assert_int_equal(sim->ranks[i].place.step, 4);
    sim_run();
    sim_judge();
    sim_clear();
}

/* The epoch has ended, without what a node lacked that was lost; then all ranks go back to before
 * that, and it is told once more, as far as it is before the place that they go back to. */
TEST(test_told_again)
{
    sim_set_up(sim_seed = 0);
    sim->faults = 0;
    sim_go_as_far(5);
    sim_pass_time(400 * MS);
    sim_go_on_for(3, 0);
    sim_play_loss(sim->daemons[0]);
    sim_run();
    assert_in_range(sim->told, (8 - 5) * LOCAL, SAMPLES);
    sim_play_back(sim_position(&sim->ranks[LOCAL]) - 7 * RANKS);
    sim_run();
    assert_int_equal(sim->told, (7 - 5) * LOCAL);
    sim_judge();
    sim_clear();
}

/* Its end is told while a node is out. That comes back, and all ranks go back to the end, before
 * all other nodes know that their round is over. */
TEST(test_back_at_the_end)
{
    sim_set_up(sim_seed = 0);
    sim->faults = 0;
    sim_go_on_for(SAMPLES / RANKS, 0);
    struct sim_daemon *out = sim->daemons[1];
    sim_cut_off(out, false);
    sim_open_round();
    sim_settle_round();
    for (unsigned i = 0; i < 50; i++) {
        sim_move_ranks_of(0);
        sim_move_ranks_of(2);
        sim_move_on(10);
        sim_pass_time(100 * MS);
    }
    assert_int_equal(sim->ranks[0].phase, RANK_DONE);
    sim_heal(out);
    sim_open_round();
    sim_tell_over(sim->daemons[0]);
    sim_play_back(0);
    sim_move_ranks_of(2);
    sim_run();
    sim_judge();
    sim_clear();
}

/* A rank had used a step more than others, and waits for them, when its daemon is replaced; before
 * it has asked the new one for anything a node is lost that was as far. */
TEST(test_lost_before_it_asks)
{
    sim_set_up(sim_seed = 0);
    sim->faults = 0;
    sim_go_as_far(5);
    for (unsigned i = 0; i < RANKS; i++)
        sim->ranks[i].most = i == 0 || i == LOCAL ? 6 : 5;
    sim_move_ranks_of(0);
    sim_move_ranks_of(1);
    assert_int_equal(sim->ranks[0].used + sim->ranks[LOCAL].used, 2 * 6);
    sim_play_kill(sim->daemons[0], false);
    sim_settle_round();
    while (sim_move())
        ;
    assert_false(sim_knows_its_ranks(sim->daemons[0], 0));
    sim_play_loss(sim->daemons[1]);
    sim_settle_round();
    sim_go_as_far(0);
    sim_run();
    sim_judge();
    sim_clear();
}

static int say_seed(void **state)
{
    print_message("# the last seed was %llu\n", (unsigned long long)sim_seed);
    return 0;
}

static uint64_t env_number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text ? strtoull(text, NULL, 10) : otherwise;
}

TEST(test_schedules, NULL, say_seed)
{
    uint64_t first = env_number("WORLD_SIM_FIRST", 0),
             n = env_number("WORLD_SIM_SCHEDULES", SCHEDULES);

    sim_kinds = env_number("WORLD_SIM_KINDS", UINT64_MAX);
    if (getenv("WORLD_SIM_SEED")) {
        around_verbose = true;
        sim_play(sim_seed = env_number("WORLD_SIM_SEED", 0));
        return;
    }
    if (getenv("WORLD_SIM_SCHEDULES"))
        alarm(0); /* it takes as long as it takes */
    for (sim_seed = first; sim_seed < first + n; sim_seed += harness_stride())
        sim_play(sim_seed);
}
