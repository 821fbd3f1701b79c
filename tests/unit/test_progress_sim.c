/*
 * Ranks in lock step while nodes die, join, and have their daemons restarted, one or all: 1,200
 * schedules of progress.h against a model that knows nothing of points.
 *
 * The model: sample i belongs to the latest round that began at i or before, there to the rank
 * (i - beginning) mod world. Whatever happens,
 *
 *   - each next() of a rank is answered from what daemons know: no rank waits for another one's;
 *   - ranks that live have used the same number of batches when the epoch is over;
 *   - no sample comes twice to those that live, and those of the dead to whom they belonged are all
 *     that is left out: a step each at most.
 */
#include "tests/lib/harness.h"
#include "tests/lib/splitmix.h"

#include "daemon/cluster/progress/progress.h"
#include "proto/common/bytes.h"

enum { NODES = 4, LOCAL = 2, SAMPLES = 600, ROUNDS = 40, SCHEDULES = 1200, AHEAD = 3 };

struct sim_trainer {
    bool placed; /* it has a stream: */
    struct resume_place place;
    uint64_t used, delivered; /* steps of it */
    uint64_t turns;           /* batches that it has used in all */
    bool ended;               /* so has the epoch, for it */
    struct history before;    /* while it has none: what START says */
    struct former_place former;
};

struct sim_node {
    bool lives;
    uint32_t life;
    bool knows; /* its daemon: where the latest round began */
    struct progress progress;
    struct progress_rank ranks[LOCAL];
    struct sim_trainer trainers[LOCAL];
};

/* As the model has it. */
struct sim_round {
    uint64_t begin, world;
    uint64_t first[NODES];
    uint32_t life[NODES]; /* 0: not a member */
};

struct sim {
    uint64_t random;
    struct sim_node nodes[NODES];
    struct progress known; /* what the store has of it */
    struct sim_round rounds[ROUNDS];
    uint32_t n_rounds;
    uint32_t lives, deaths;
    bool used[NODES][SAMPLES]; /* by the nodes that live */
    bool used_by_dead[SAMPLES];
};

static uint64_t sim_draw(struct sim *sim, uint64_t below)
{
    return next_random(&sim->random) % below;
}

static uint64_t sim_prefix(const struct history *history)
{
    uint64_t samples = 0;

    for (uint32_t i = 0; i < history->n; i++)
        samples += history->stretches[i].world * history->stretches[i].steps;
    return samples;
}

static struct progress_point sim_point(const struct sim_trainer *t, uint64_t steps)
{
    struct progress_point point;

    assert_true(progress_point_after(&point, t->place.pass, t->place.epoch, &t->place.before,
                                     t->place.world, steps));
    return point;
}

/* ---- rounds ---- */

/* The trainer's stream ends behind the steps that it has used. */
static void sim_leave_stream(struct sim_node *node, unsigned local)
{
    struct sim_trainer *t = &node->trainers[local];
    struct progress_point at = sim_point(t, t->used);

    t->placed = false;
    t->before = at.history;
    t->former = (struct former_place){t->place.first + local, t->place.world};
    node->ranks[local].given = node->ranks[local].behind = at;
}

/* What daemons note when a round is over: a node has gone, or (`all_stay`) none has. */
static void sim_end_round(struct sim_node *node, bool all_stay)
{
    for (unsigned i = 0; i < LOCAL; i++) {
        struct sim_trainer *t = &node->trainers[i];

        if (!t->placed)
            continue;
        if (!all_stay) {
            sim_leave_stream(node, i);
            continue;
        }
        node->ranks[i].given = sim_point(t, t->delivered);
        node->ranks[i].behind = sim_point(t, t->used);
    }
}

/* By way of the text that lies in the store. */
static bool sim_report(const struct sim_node *node, uint64_t round, struct progress_report *ret)
{
    _cleanup_(buffer_deinit) struct dl_buffer text = {0};
    struct progress_report report = {.last = PROGRESS_NO_ROUND, .known = node->progress};

    if (!node->lives || !node->knows)
        return false;
    report.last = progress_latest(&node->progress)->number;
    for (unsigned i = 0; i < LOCAL; i++) {
        const struct progress_rank *rank = &node->ranks[i];

        if (rank->entered == PROGRESS_NO_ROUND ||
            (report.has_point && progress_compare(&rank->given, &report.point) != PROGRESS_AFTER))
            continue;
        report.has_point = true;
        report.point = rank->given;
    }
    progress_report_write(&report, &text);
    assert_true(progress_report_read((struct dl_span){text.data, text.len}, round, ret));
    return true;
}

static void sim_learn(struct sim_node *node, const struct progress *known)
{
    for (uint32_t i = 0; i < known->n; i++)
        if (known->rounds[i].known)
            progress_learn(&node->progress, known->rounds[i].number, &known->rounds[i].begin);
    node->knows = true;
}

/* Nodes agree on where it begins, from their reports alone. */
static struct progress_point sim_agree(struct sim *sim, uint64_t number)
{
    struct progress_report reports[NODES];
    struct node_report by_node[NODES];
    struct progress_point begin = {0};
    struct dl_error err = {0};
    uint32_t n = 0;

    for (unsigned i = 0; i < NODES; i++) {
        if (!sim_report(&sim->nodes[i], number, &reports[n]))
            continue;
        by_node[n] = (struct node_report){.node = "node", .report = &reports[n]};
        n++;
    }
    assert_int_equal(progress_merge(by_node, n, &begin, &err), n == 0);
    sim->known = (struct progress){0};
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < reports[i].known.n; k++)
            if (reports[i].known.rounds[k].known)
                progress_learn(&sim->known, reports[i].known.rounds[k].number,
                               &reports[i].known.rounds[k].begin);
    progress_learn(&sim->known, number, &begin);
    return begin;
}

/* The turn that ranks have when they are at the beginning: those that were given most. */
static uint64_t sim_turns_at(const struct sim *sim, uint64_t begin)
{
    for (unsigned i = 0; i < NODES * LOCAL; i++) {
        const struct sim_node *node = &sim->nodes[i / LOCAL];
        const struct sim_trainer *t = &node->trainers[i % LOCAL];

        if (node->lives && node->knows &&
            sim_prefix(&node->ranks[i % LOCAL].given.history) == begin)
            return t->turns + (t->placed ? t->delivered - t->used : 0);
    }
    return 0;
}

static void sim_begin_round(struct sim *sim, struct sim_node *joined)
{
    uint64_t number = sim->n_rounds, first = 0;
    struct sim_round *round = &sim->rounds[sim->n_rounds++];
    struct progress_point begin = sim_agree(sim, number);

    round->begin = sim_prefix(&begin.history);
    for (unsigned i = 0; i < NODES; i++) {
        round->life[i] = sim->nodes[i].lives ? sim->nodes[i].life : 0;
        round->first[i] = first;
        first += sim->nodes[i].lives ? LOCAL : 0;
    }
    round->world = first;
    for (unsigned i = 0; joined && i < LOCAL; i++)
        joined->trainers[i].turns = sim_turns_at(sim, round->begin);
    for (unsigned i = 0; i < NODES; i++) {
        struct sim_node *node = &sim->nodes[i];

        if (!node->lives)
            continue;
        progress_enter(&node->progress, number, round->first[i], round->world);
        if (node->knows || number == 0)
            sim_learn(node, &sim->known);
        for (unsigned k = 0; k < LOCAL; k++) {
            struct resume_place *place = &node->trainers[k].place;

            if (node->trainers[k].placed)
                place->limit = progress_limit(&node->progress, place->round, place->world,
                                              place->pass, place->epoch, &place->before);
        }
    }
}

static void sim_start_daemon(struct sim_node *node)
{
    node->knows = false;
    node->progress = (struct progress){0};
    for (unsigned i = 0; i < LOCAL; i++)
        node->ranks[i] = (struct progress_rank){.entered = PROGRESS_NO_ROUND};
}

/* ---- ranks ---- */

static uint64_t sim_end_of(const struct sim_trainer *t)
{
    uint64_t left = SAMPLES - sim_prefix(&t->place.before);

    return min_u64(left / t->place.world, t->place.limit);
}

/* START: it is answered at once. */
static void sim_start(struct sim *sim, struct sim_node *node, unsigned local)
{
    struct sim_trainer *t = &node->trainers[local];
    struct progress_rank *rank = &node->ranks[local];
    bool is_new = t->before.n == 0 && t->former.world == 0;
    struct resume_request request = {.epoch = is_new ? RESUME_ANYWHERE : 0,
                                     .before = t->before,
                                     .local = local,
                                     .former = t->former};
    struct dl_error err = {0};

    if (!node->knows)
        sim_learn(node, &sim->known);
    if (progress_resume(&node->progress, rank, &request, &t->place, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    assert_int_equal(t->place.lost, 0);
    t->placed = true;
    t->used = t->delivered = t->place.step;
    rank->entered = t->place.round;
    rank->given = rank->behind = sim_point(t, t->used);
}

static void sim_use(struct sim *sim, const struct sim_node *node, struct sim_trainer *t,
                    unsigned local)
{
    uint64_t sample =
        sim_prefix(&t->place.before) + t->used * t->place.world + t->place.first + local;

    assert_in_range(sample, 0, SAMPLES - 1);
    for (unsigned i = 0; i < NODES; i++)
        assert_false(sim->used[i][sample]);
    sim->used[node - sim->nodes][sample] = true;
    t->used++;
    t->turns++;
}

static void sim_next(struct sim *sim, struct sim_node *node, unsigned local)
{
    struct sim_trainer *t = &node->trainers[local];

    for (unsigned worlds = 0;; worlds++) {
        assert_in_range(worlds, 0, PROGRESS_ROUNDS);
        if (!t->placed)
            sim_start(sim, node, local);
        if (t->used < sim_end_of(t))
            break;
        if (t->used < t->place.limit) {
            t->ended = true;
            return;
        }
        sim_leave_stream(node, local);
    }
    if (t->used == t->delivered)
        t->delivered += 1 + sim_draw(sim, min_u64(AHEAD, sim_end_of(t) - t->used));
    sim_use(sim, node, t, local);
}

/* ---- events ---- */

static void sim_join(struct sim *sim, struct sim_node *node)
{
    for (unsigned i = 0; i < NODES; i++)
        if (sim->nodes[i].lives)
            sim_end_round(&sim->nodes[i], true);
    *node = (struct sim_node){.lives = true, .life = ++sim->lives};
    sim_start_daemon(node);
    sim_begin_round(sim, node);
    for (unsigned i = 0; i < LOCAL; i++)
        sim_start(sim, node, i);
}

/* What the dead have used. */
static void sim_bury(struct sim *sim, const struct sim_node *node)
{
    bool *used = sim->used[node - sim->nodes];

    sim->deaths++;
    for (unsigned i = 0; i < SAMPLES; i++)
        sim->used_by_dead[i] = sim->used_by_dead[i] || used[i];
    memset(used, 0, SAMPLES * sizeof *used);
}

/* With its trainers, or the daemon alone: another takes its place, and knows nothing. */
static void sim_kill(struct sim *sim, struct sim_node *victim, bool trainers)
{
    for (unsigned i = 0; i < NODES; i++)
        if (sim->nodes[i].lives)
            sim_end_round(&sim->nodes[i], false);
    victim->lives = !trainers;
    if (trainers)
        sim_bury(sim, victim);
    sim_start_daemon(victim);
    sim_begin_round(sim, NULL);
}

/* Some rank has had all of its old world, or nothing yet of a new one: what it is to do next only
 * its daemon knows. */
static bool sim_is_between(const struct sim_node *node)
{
    for (unsigned i = 0; i < LOCAL; i++) {
        const struct sim_trainer *t = &node->trainers[i];

        if (t->used == t->place.limit || (t->used == t->place.step && t->place.before.n > 0))
            return true;
    }
    return false;
}

/* All are in the latest world, so that each has its place again in one like it. */
static bool sim_is_together(const struct sim *sim)
{
    for (unsigned i = 0; i < NODES * LOCAL; i++) {
        const struct sim_node *node = &sim->nodes[i / LOCAL];

        if (node->lives && (sim_is_between(node) || !node->knows ||
                            node->trainers[i % LOCAL].place.round + 1 != sim->n_rounds))
            return false;
    }
    return true;
}

/* Every daemon: nobody is left who knows anything, and one rank asks first. */
static void sim_restart_all(struct sim *sim)
{
    const struct sim_round *before = &sim->rounds[sim->n_rounds - 1];
    struct sim_round *round = &sim->rounds[sim->n_rounds];
    struct progress_point begin = {0};
    unsigned first = (unsigned)sim_draw(sim, NODES * LOCAL);

    while (!sim->nodes[first / LOCAL].lives)
        first = (first + 1) % (NODES * LOCAL);
    for (unsigned i = 0; i < NODES; i++) {
        if (!sim->nodes[i].lives)
            continue;
        sim_end_round(&sim->nodes[i], false);
        sim_start_daemon(&sim->nodes[i]);
        progress_enter(&sim->nodes[i].progress, sim->n_rounds, before->first[i], before->world);
    }
    const struct sim_trainer *t = &sim->nodes[first / LOCAL].trainers[first % LOCAL];
    struct resume_request request = {
        .before = t->before, .local = first % LOCAL, .former = t->former};
    assert_true(
        progress_begin_as_before(&request, before->first[first / LOCAL], before->world, &begin));
    assert_in_range(sim_prefix(&begin.history), 0, before->begin);
    *round = *before; /* nobody has anything else to do than before */
    sim->known = (struct progress){0};
    progress_learn(&sim->known, sim->n_rounds++, &begin);
    for (unsigned i = 0; i < NODES; i++)
        if (sim->nodes[i].lives)
            sim_learn(&sim->nodes[i], &sim->known);
}

/* A rank that may go on: no living one has used fewer batches. False: the epoch is over. */
static bool sim_step(struct sim *sim)
{
    uint64_t least = UINT64_MAX;
    uint32_t n = 0, chosen;

    for (unsigned i = 0; i < NODES * LOCAL; i++)
        if (sim->nodes[i / LOCAL].lives)
            least = min_u64(least, sim->nodes[i / LOCAL].trainers[i % LOCAL].turns);
    for (unsigned i = 0; i < NODES * LOCAL; i++) {
        const struct sim_trainer *t = &sim->nodes[i / LOCAL].trainers[i % LOCAL];
        n += sim->nodes[i / LOCAL].lives && !t->ended && t->turns == least;
    }
    if (n == 0)
        return false;
    chosen = (uint32_t)sim_draw(sim, n);
    for (unsigned i = 0; i < NODES * LOCAL; i++) {
        const struct sim_trainer *t = &sim->nodes[i / LOCAL].trainers[i % LOCAL];
        bool may = sim->nodes[i / LOCAL].lives && !t->ended && t->turns == least;
        if (may && chosen-- == 0) {
            sim_next(sim, &sim->nodes[i / LOCAL], i % LOCAL);
            break;
        }
    }
    return true;
}

/* One thing at a time: each daemon has heard from its ranks since the last one. */
static bool sim_is_settled(const struct sim *sim)
{
    for (unsigned i = 0; i < NODES * LOCAL; i++) {
        const struct sim_node *node = &sim->nodes[i / LOCAL];

        if (node->lives && (!node->trainers[i % LOCAL].placed || node->trainers[i % LOCAL].ended))
            return false;
    }
    return sim->n_rounds < ROUNDS;
}

static void sim_change(struct sim *sim)
{
    struct sim_node *node = &sim->nodes[sim_draw(sim, NODES)];
    uint32_t living = 0;

    for (unsigned i = 0; i < NODES; i++)
        living += sim->nodes[i].lives;
    if (sim_is_together(sim) && sim_draw(sim, 4) == 0)
        sim_restart_all(sim);
    else if (!node->lives)
        sim_join(sim, node);
    else if (living > 1)
        sim_kill(sim, node, sim_is_between(node) || sim_draw(sim, 2) > 0);
}

/* ---- the model's judgement ---- */

/* Whose sample it was in the end: a node that lives, or NULL. */
static const struct sim_node *sim_owner(const struct sim *sim, uint64_t sample)
{
    uint32_t r = sim->n_rounds;

    do
        assert_in_range(r--, 1, ROUNDS);
    while (sample < sim->rounds[r].begin);
    const struct sim_round *round = &sim->rounds[r];
    uint64_t rank = (sample - round->begin) % round->world;
    for (unsigned i = 0; i < NODES; i++)
        if (round->life[i] && rank - round->first[i] < LOCAL)
            return round->life[i] == sim->nodes[i].life && sim->nodes[i].lives ? &sim->nodes[i]
                                                                               : NULL;
    fail_msg("nobody has rank %llu", (unsigned long long)rank);
    return NULL;
}

static void sim_judge(const struct sim *sim)
{
    const struct sim_round *last = &sim->rounds[sim->n_rounds - 1];
    uint64_t end = SAMPLES - (SAMPLES - last->begin) % last->world, left_out = 0;
    uint64_t turns = UINT64_MAX;

    for (unsigned i = 0; i < NODES * LOCAL; i++) {
        const struct sim_trainer *t = &sim->nodes[i / LOCAL].trainers[i % LOCAL];

        if (!sim->nodes[i / LOCAL].lives)
            continue;
        assert_true(t->ended);
        assert_true(turns == UINT64_MAX || turns == t->turns);
        turns = t->turns;
    }
    for (uint64_t sample = 0; sample < end; sample++) {
        const struct sim_node *owner = sim_owner(sim, sample);

        if (owner)
            assert_true(sim->used[owner - sim->nodes][sample]);
        else
            left_out += !sim->used_by_dead[sample];
    }
    assert_in_range(left_out, 0, sim->deaths * LOCAL);
}

static uint64_t sim_play(uint64_t seed)
{
    struct sim *sim = calloc(1, sizeof *sim);

    assert_non_null(sim);
    sim->random = seed;
    for (unsigned i = 0; i < NODES - 1; i++) {
        sim->nodes[i] = (struct sim_node){.lives = true, .life = ++sim->lives};
        sim_start_daemon(&sim->nodes[i]);
    }
    sim_begin_round(sim, NULL);
    do {
        if (sim_is_settled(sim) && sim_draw(sim, 20) == 0)
            sim_change(sim);
    } while (sim_step(sim));
    sim_judge(sim);
    uint64_t rounds = sim->n_rounds;
    free(sim);
    return rounds;
}

static uint64_t sim_seed; /* of the schedule that is played */

static int say_seed(void **state)
{
    print_message("# the last seed was %llu\n", (unsigned long long)sim_seed);
    return 0;
}

TEST(test_schedules, NULL, say_seed)
{
    uint64_t rounds = 0;

    for (sim_seed = 0; sim_seed < SCHEDULES; sim_seed += harness_stride())
        rounds += sim_play(sim_seed);
    assert_true(rounds > 3 * SCHEDULES / harness_stride()); /* they were about something */
}
