/*
 * Nodes that are given changed weights, as given.h says: 2,000 schedules of nodes that plan, are
 * given changes early, late, or others than the rest, wait in vain, die, come, and have their
 * daemons restarted, while what they say reaches the others at any time.
 *
 * The model: a node gets an error where it has planned positions before it learns that they have
 * other weights. In the end all nodes without one have planned each position with the weights of
 * one list, and nobody holds.
 */
#include "tests/lib/harness.h"
#include "tests/lib/splitmix.h"

#include "daemon/cluster/progress/given.h"

enum { NODES = 4, POSITIONS = 400, EVENTS = 2500, SCHEDULES = 2000, ORDERS = 64, NUMBERS = 64 };

struct sim_node {
    bool lives;
    uint64_t id;
    bool ready; /* for the next round, while one is open */
    bool knows; /* the loader, of an earlier round */
    bool fails;
    bool enters;  /* it has yet to hear that the round is complete */
    bool went_on; /* though others had yet to be given what it was */
    struct given given;
    uint64_t round;              /* that it is in */
    uint64_t orders;             /* so many were given to it */
    uint64_t next, reach;        /* position that it plans next; behind all that it has planned */
    uint64_t planned[POSITIONS]; /* by which weights; 0: not */
    uint64_t said[NUMBERS];      /* to others, in `round`: which list, by its bytes; 0: nothing */
};

struct sim {
    uint64_t random;
    struct sim_node nodes[NODES];
    uint64_t ids, round;
    bool fresh;              /* all of the complete round are new */
    bool open;               /* nodes gather for `round` */
    uint64_t members[NODES]; /* ids of the complete round; 0: none */
    /* Reports where the complete round begins. */
    struct mix_changes *reports[NODES];
    uint32_t n_reports;
    uint64_t orders[ORDERS], n_orders; /* positions at which a run's program changes the weights */
    uint64_t agreed, refused, released, late, failed;
};

static uint64_t sim_draw(struct sim *sim, uint64_t below)
{
    return next_random(&sim->random) % below;
}

/* Which weights hold at the position: 1 of the spec, else what the change has. */
static uint64_t sim_weights_at(const struct mix_changes *list, uint64_t position)
{
    uint64_t weights = 1;

    for (uint32_t i = 0; list && i < list->n_changes; i++)
        if (list->items[i].position <= position)
            weights = (uint64_t)list->items[i].weights[0];
    return weights;
}

/* One that stands for its bytes. */
static uint64_t sim_sum(const struct mix_changes *list)
{
    uint64_t sum = 14695981039346656037U;
    struct dl_buffer bytes = {0};

    assert_int_equal(mix_changes_write(list, &bytes), 0);
    for (size_t i = 0; i < bytes.len; i++)
        sum = (sum ^ bytes.data[i]) * 1099511628211U;
    buffer_deinit(&bytes);
    return sum ? sum : 1;
}

/* The loader has another list: what it has planned must be the same by both. */
static void sim_take(struct sim_node *node, struct mix_changes *before)
{
    if (node->reach > 0 && mix_changes_differ_at(before, node->given.list) < node->next)
        node->fails = true;
    mix_changes_unref(before);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static struct sim_node *sim_find(struct sim *sim, uint64_t id)
{
    for (unsigned i = 0; i < NODES; i++)
        if (sim->nodes[i].id == id)
            return &sim->nodes[i];
    return NULL;
}

/* What all nodes of the round were given, if all have said it. */
static bool sim_hear(struct sim *sim, const struct sim_node *node, bool *ret_same)
{
    uint64_t number = node->given.compared;

    *ret_same = true;
    for (unsigned i = 0; i < NODES; i++) {
        const struct sim_node *other = sim->members[i] ? sim_find(sim, sim->members[i]) : NULL;

        if (!sim->members[i])
            continue;
        if (!other || other->round != node->round || !other->said[number])
            return false;
        *ret_same = *ret_same && other->said[number] == node->said[number];
    }
    return true;
}

static void sim_compare(struct sim *sim, struct sim_node *node)
{
    struct given *g = &node->given;
    bool same;

    if (!g->in || !g->wanted)
        return;
    assert_true(g->compared < NUMBERS);
    if (!node->said[g->compared])
        node->said[g->compared] = sim_sum(g->wanted); /* the first is the one that counts */
    if (sim->open || node->round != sim->round || !sim_hear(sim, node, &same))
        return;
    if (!same) {
        given_refuse(g);
        node->fails = true;
        sim->refused++;
        return;
    }
    struct mix_changes *before = mix_changes_ref(g->list);
    given_agree(g);
    sim_take(node, before);
    assert_true(!node->fails || node->went_on); /* it has held */
    node->went_on = false;
    sim->agreed++;
}

static void sim_plan(struct sim_node *node)
{
    const struct given *g = &node->given;

    if (!g->in || node->next >= POSITIONS || node->next >= given_hold(g))
        return;
    node->planned[node->next] = sim_weights_at(g->list, node->next);
    node->next++;
    node->reach = max_u64(node->reach, node->next);
}

/* ---- what clients give ----------------------------------------------------------------------- */

/* The program, the same on all nodes, decides on a change that is somewhat ahead. */
static void sim_order(struct sim *sim)
{
    uint64_t from = sim->n_orders ? sim->orders[sim->n_orders - 1] : 0;

    for (unsigned i = 0; i < NODES; i++)
        from = max_u64(from, sim->nodes[i].lives ? sim->nodes[i].next : 0);
    from += 1 + sim_draw(sim, 30);
    if (from < POSITIONS && sim->n_orders < ORDERS)
        sim->orders[sim->n_orders++] = from;
}

static bool sim_has(const struct mix_changes *list, uint64_t position)
{
    bool has = false;

    for (uint32_t i = 0; list && i < list->n_changes; i++)
        has = has || list->items[i].position == position;
    return has;
}

static void sim_give(struct sim *sim, struct sim_node *node, bool calm)
{
    struct given *g = &node->given;
    uint64_t order = node->orders;
    double weights[1] = {(double)order + 2};

    if (order >= sim->n_orders || !g->in || g->wanted)
        return;
    node->orders++;
    if (sim_has(g->list, sim->orders[order]))
        return; /* by others, before this node was there */
    if (!calm && sim_draw(sim, 300) == 0)
        weights[0] = 1000; /* another program here */
    struct mix_change change = {.position = sim->orders[order], .weights = weights};
    struct mix_changes *list = NULL;
    assert_int_equal(mix_changes_with(g->list, &change, 1, &list), 0);
    if (change.position < node->next) { /* refused: the program ends */
        node->fails = true;
        sim->late++;
    } else {
        given_give(g, list);
    }
    mix_changes_unref(list);
}

/* Its ranks have waited for too long, and go on without it, until it is given again. */
static void sim_release(struct sim *sim, struct sim_node *node, bool calm)
{
    if (!node->given.wanted)
        return;
    if (node->given.released && sim_draw(sim, 4) == 0)
        given_release(&node->given, false);
    else if (!calm && sim_draw(sim, 100) == 0) {
        given_release(&node->given, true);
        node->went_on = true;
        sim->released++;
    }
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void sim_end_node(struct sim_node *node)
{
    given_deinit(&node->given);
    *node = (struct sim_node){0};
}

static void sim_begin_node(struct sim *sim, struct sim_node *node)
{
    *node = (struct sim_node){.lives = true, .id = ++sim->ids};
}

static void sim_open(struct sim *sim)
{
    if (!sim->open)
        sim->round++;
    sim->open = true;
    for (unsigned i = 0; i < NODES; i++)
        sim->nodes[i].ready = false;
}

/* A node that is ready has heard that the round before is over. */
static void sim_be_ready(struct sim_node *node)
{
    given_leave(&node->given);
    node->enters = false;
    node->ready = true;
}

static bool sim_is_fresh(const struct sim *sim)
{
    for (unsigned i = 0; i < NODES; i++)
        if (sim->nodes[i].lives && sim->nodes[i].knows)
            return false;
    return true;
}

static void sim_forget_reports(struct sim *sim)
{
    while (sim->n_reports > 0)
        mix_changes_unref(sim->reports[--sim->n_reports]);
}

/* Those that were in the latest round of any that lives; all, where nobody was in one. */
static void sim_report(struct sim *sim)
{
    uint64_t latest = 0;

    sim_forget_reports(sim);
    for (unsigned i = 0; i < NODES; i++)
        if (sim->nodes[i].lives)
            latest = max_u64(latest, sim->nodes[i].round);
    for (unsigned i = 0; i < NODES; i++)
        if (sim->nodes[i].lives && sim->nodes[i].round == latest)
            sim->reports[sim->n_reports++] = mix_changes_ref(given_report(&sim->nodes[i].given));
}

/* All go on from what is furthest back among those that live and know. */
static void sim_complete(struct sim *sim)
{
    uint64_t begin = UINT64_MAX;

    for (unsigned i = 0; i < NODES; i++)
        if (sim->nodes[i].lives && !sim->nodes[i].ready)
            return;
    for (unsigned i = 0; i < NODES; i++)
        if (sim->nodes[i].lives && sim->nodes[i].knows)
            begin = min_u64(begin, sim->nodes[i].next);
    sim->open = false;
    sim->fresh = sim_is_fresh(sim);
    sim_report(sim);
    if (sim->fresh)
        sim->n_orders = 0; /* another run */
    for (unsigned i = 0; i < NODES; i++) {
        struct sim_node *node = &sim->nodes[i];

        sim->members[i] = node->lives ? node->id : 0;
        node->enters = node->lives;
        if (sim->fresh)
            node->orders = 0;
        if (begin < UINT64_MAX)
            node->next = begin;
    }
}

static void sim_enter(struct sim *sim, struct sim_node *node)
{
    struct mix_changes *before = mix_changes_ref(node->given.list);

    if (node->given.released)
        node->orders = 0; /* its program had an error, and begins again */
    while (node->orders < sim->n_orders && sim->orders[node->orders] < node->next)
        node->orders++; /* the program is past these */

    node->fails = !given_begin(&node->given, given_choose(sim->reports, sim->n_reports));
    sim_take(node, before);
    node->round = sim->round;
    node->went_on = false;
    memset(node->said, 0, sizeof node->said);
    node->enters = false;
    node->knows = true;
}

static void sim_change_nodes(struct sim *sim)
{
    struct sim_node *node = &sim->nodes[sim_draw(sim, NODES)];
    unsigned lives = 0;

    for (unsigned i = 0; i < NODES; i++)
        lives += sim->nodes[i].lives;
    if (node->lives && lives < 2)
        return;
    if (node->lives)
        sim_end_node(node);
    if (sim_draw(sim, 2) || lives < 3)
        sim_begin_node(sim, node);
    sim_open(sim);
}

static void sim_restart_all(struct sim *sim)
{
    for (unsigned i = 0; i < NODES; i++) {
        bool lives = sim->nodes[i].lives;

        sim_end_node(&sim->nodes[i]);
        if (lives)
            sim_begin_node(sim, &sim->nodes[i]);
    }
    sim_open(sim);
}

/* ---- schedules ------------------------------------------------------------------------------- */

static void sim_turn(struct sim *sim, struct sim_node *node, bool calm)
{
    switch (sim_draw(sim, 7)) {
    case 0:
    case 1:
    case 2:
        sim_compare(sim, node);
        break;
    case 3:
        sim_give(sim, node, calm);
        break;
    case 4:
        if (sim->open && !node->ready)
            sim_be_ready(node);
        break;
    case 5:
        sim_release(sim, node, calm);
        break;
    default:
        if (sim_draw(sim, 3) == 0)
            sim_plan(node);
        break;
    }
}

/* What nodes know of the loader they know from the round on in which they entered. */
static void sim_enter_some(struct sim *sim)
{
    if (sim->open) {
        sim_complete(sim);
        return;
    }
    for (unsigned i = 0; i < NODES; i++)
        if (sim->nodes[i].enters && sim_draw(sim, 2))
            sim_enter(sim, &sim->nodes[i]);
}

static void sim_disturb(struct sim *sim)
{
    if (sim_draw(sim, 400) == 0)
        sim_change_nodes(sim);
    if (sim_draw(sim, 2000) == 0)
        sim_restart_all(sim);
    if (sim_draw(sim, 60) == 0)
        sim_order(sim);
}

static void sim_check(const struct sim *sim)
{
    const struct given *first = NULL;

    for (unsigned i = 0; i < NODES; i++) {
        const struct sim_node *node = &sim->nodes[i];

        if (!node->lives)
            continue;
        first = first ? first : &node->given;
        assert_true(node->given.in && !node->given.wanted);
        assert_true(given_hold(&node->given) == UINT64_MAX);
        assert_true(mix_changes_equal(node->given.list, first->list));
        for (uint64_t p = 0; p < node->next; p++)
            if (node->planned[p])
                assert_int_equal(node->planned[p], sim_weights_at(first->list, p));
    }
    assert_non_null(first);
}

static void sim_play(uint64_t seed, struct sim *totals)
{
    struct sim *sim = calloc(1, sizeof *sim);

    assert_non_null(sim);
    sim->random = seed;
    for (unsigned i = 0; i < 3; i++)
        sim_begin_node(sim, &sim->nodes[i]);
    sim_open(sim);
    for (unsigned event = 0; event < 2 * EVENTS; event++) {
        struct sim_node *node = &sim->nodes[sim_draw(sim, NODES)];
        bool calm = event >= EVENTS;

        if (!calm)
            sim_disturb(sim);
        if (sim_draw(sim, 4) == 0)
            sim_enter_some(sim);
        if (node->lives)
            sim_turn(sim, node, calm);
        if (node->fails) {
            sim_end_node(node);
            sim_begin_node(sim, node);
            sim_open(sim);
            sim->failed++;
        }
    }
    sim_check(sim);
    totals->agreed += sim->agreed;
    totals->refused += sim->refused;
    totals->released += sim->released;
    totals->late += sim->late;
    totals->failed += sim->failed;
    for (unsigned i = 0; i < NODES; i++)
        sim_end_node(&sim->nodes[i]);
    sim_forget_reports(sim);
    free(sim);
}

TEST(test_schedules)
{
    struct sim totals = {0};
    uint64_t n = SCHEDULES / harness_stride();

    for (uint64_t seed = 1; seed <= SCHEDULES; seed += harness_stride())
        sim_play(seed, &totals);
    print_message("# %llu changes in force, %llu differed, %llu late, %llu waited for in vain, "
                  "%llu nodes failed\n",
                  (unsigned long long)totals.agreed, (unsigned long long)totals.refused,
                  (unsigned long long)totals.late, (unsigned long long)totals.released,
                  (unsigned long long)totals.failed);
    assert_true(totals.agreed > n && totals.refused > 0 && totals.late > 0 && totals.released > 0 &&
                totals.failed > 0);
}

/* ---- where a round begins -------------------------------------------------------------------- */

static struct mix_changes *make_list(const struct mix_changes *before, uint64_t position,
                                     double weight)
{
    const struct mix_change change = {.position = position, .weights = &weight};
    struct mix_changes *list;

    assert_int_equal(mix_changes_with(before, &change, 1, &list), 0);
    return list;
}

TEST(test_choose)
{
    struct mix_changes *one = make_list(NULL, 10, 2), *two = make_list(one, 20, 3);
    struct mix_changes *other = make_list(one, 20, 4);

    assert_null(given_choose(NULL, 0));
    assert_ptr_equal(given_choose((struct mix_changes *[]){NULL, one, NULL}, 3), one);
    assert_ptr_equal(given_choose((struct mix_changes *[]){one, two, one}, 3), two);
    assert_ptr_equal(given_choose((struct mix_changes *[]){one, other, two}, 3), other);
    mix_changes_unref(one);
    mix_changes_unref(two);
    mix_changes_unref(other);
}

/* A node that has waited in vain reports no change that it alone was given. */
TEST(test_released)
{
    struct mix_changes *one = make_list(NULL, 10, 2);
    struct given g = {0};

    assert_true(given_begin(&g, NULL));
    given_give(&g, one);
    assert_true(given_hold(&g) == 10);
    assert_ptr_equal(given_report(&g), one);
    given_release(&g, true);
    assert_true(given_hold(&g) == UINT64_MAX);
    assert_null(given_report(&g));
    given_leave(&g);
    assert_true(given_begin(&g, NULL));
    assert_null(given_latest(&g));
    given_give(&g, one);
    given_leave(&g);
    assert_false(given_begin(&g, NULL));
    given_deinit(&g);
    mix_changes_unref(one);
}
