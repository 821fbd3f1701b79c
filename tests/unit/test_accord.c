/*
 * Nodes that change weights by accord.h: 2,000 schedules of nodes that plan, ask for changes, die,
 * come, and have their daemons restarted, over a store that answers late, by errors, and forgets.
 *
 * The model: whatever happens, for each position all nodes that live have planned with the same
 * weights, which are those of the list that the store has in the end. And in the end nobody holds.
 */
#include "tests/lib/harness.h"
#include "tests/lib/splitmix.h"

#include "daemon/cluster/progress/accord.h"

#include <errno.h>
#include <stdio.h>

enum { NODES = 4, POSITIONS = 400, EVENTS = 2500, SCHEDULES = 2000 };

struct sim_call {
    enum accord_do what; /* NOTHING: none is on its way */
    uint64_t token;
    struct dl_buffer bytes; /* of a WRITE */
    bool done;              /* in the store; its answer is on its way: */
    bool fails;
    uint64_t answer_token;
    struct dl_buffer answer;
};

struct sim_node {
    bool lives;
    uint64_t id;
    bool ready; /* for the next round, while one is open */
    bool knows; /* the loader, of an earlier round */
    bool fails;
    bool enters; /* it has yet to hear that the round is complete */
    struct accord accord;
    struct sim_call call;
    uint64_t there; /* number of the value that was in the store when it wanted a change */
    uint64_t next;  /* position that it plans next */
    uint64_t reach; /* behind all that it has planned in its life */
    uint64_t planned[POSITIONS];      /* by which weights; 0: not */
    uint64_t said_number, said_reach; /* in the store */
};

struct sim {
    uint64_t random;
    struct sim_node nodes[NODES];
    uint64_t ids, weights;
    uint64_t round;
    bool fresh;              /* all of the complete round are new */
    bool open;               /* nodes gather for `round` */
    uint64_t members[NODES]; /* ids of the complete round; 0: none */
    struct dl_buffer value;  /* in the store */
    uint64_t token;
    bool lost; /* what was there, and not put back yet */
    uint64_t done, dropped, raced, late, withdrawn, begun_anew, failed;
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

/* ---- the store ------------------------------------------------------------------------------- */

static void sim_set(struct dl_buffer *to, const struct dl_buffer *from)
{
    to->len = 0;
    if (from->len > 0)
        assert_int_equal(buffer_append(to, from->data, from->len), 0);
}

static void sim_execute(struct sim *sim, struct sim_call *call)
{
    call->done = true;
    if (call->what == ACCORD_WRITE && call->token == sim->token) {
        sim_set(&sim->value, &call->bytes);
        sim->token += 7;
        sim->lost = false;
    }
    call->answer_token = sim->value.len ? sim->token : 0;
    sim_set(&call->answer, &sim->value);
}

static void sim_answer(struct sim_node *node)
{
    struct sim_call *call = &node->call;
    struct accord_value value = {0};

    call->what = ACCORD_NOTHING;
    if (call->fails) {
        accord_failed(&node->accord);
        return;
    }
    if (call->answer.len > 0)
        assert_int_equal(
            accord_value_read((struct dl_span){call->answer.data, call->answer.len}, &value), 0);
    /* It went by what an earlier run had left, since a new list was about to be begun by a node
     * that has gone from its round meanwhile: its ranks are told, and begin anew. */
    bool anew =
        node->accord.seen.number > 0 && value.born > node->accord.seen.born && node->reach > 0;
    accord_seen(&node->accord, call->answer_token, &value);
    node->fails = anew;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static bool sim_is_member(const struct sim *sim, uint64_t id)
{
    for (unsigned i = 0; i < NODES; i++)
        if (id && sim->members[i] == id)
            return true;
    return false;
}

static struct sim_node *sim_find(struct sim *sim, uint64_t id)
{
    for (unsigned i = 0; i < NODES; i++)
        if (sim->nodes[i].id == id)
            return &sim->nodes[i];
    return NULL;
}

/* All reaches of the round, if all are there. */
static bool sim_hear(struct sim *sim, struct sim_node *node, uint64_t *ret)
{
    *ret = 0;
    for (unsigned i = 0; i < NODES; i++) {
        const struct sim_node *other = sim->members[i] ? sim_find(sim, sim->members[i]) : NULL;

        if (!sim->members[i])
            continue;
        if (!other || other->said_number != node->accord.seen.number)
            return false;
        *ret = max_u64(*ret, other->said_reach);
    }
    return true;
}

static void sim_decide(struct sim *sim, struct sim_node *node)
{
    struct accord *a = &node->accord;
    double weights[1] = {(double)++sim->weights};
    struct mix_change change = {.position = a->wanted, .weights = weights};
    struct mix_changes *list = NULL;
    uint64_t reach;

    if (a->mine != ACCORD_ASKED || !a->in || a->round != sim->round || sim->open ||
        a->said != a->seen.number || !sim_hear(sim, node, &reach))
        return;
    if (change.position == 0)
        change.position = reach;
    if (change.position < reach || change.position >= POSITIONS) {
        accord_forget(a); /* it is withdrawn */
        return;
    }
    int r = mix_changes_with(a->seen.list, &change, 1, &list);
    if (r == 0)
        accord_hear(a, list);
    else
        accord_forget(a);
    mix_changes_unref(list);
}

static void sim_say(struct sim_node *node)
{
    accord_said(&node->accord, node->accord.seen.number);
    if (node->said_number == node->accord.seen.number)
        return; /* the first is the one that counts */
    node->said_number = node->accord.seen.number;
    node->said_reach = node->reach;
}

/* For long: a node that knows more would have put it back. */
static bool sim_nobody_knows(const struct sim *sim)
{
    for (unsigned i = 0; i < NODES; i++)
        if (sim->nodes[i].lives && sim->nodes[i].accord.seen.number > 0)
            return false;
    return true;
}

static void sim_call(struct sim *sim, struct sim_node *node)
{
    struct accord_value value;
    struct sim_call *call = &node->call;
    bool there = sim_is_member(sim, node->accord.seen.asker) && sim_draw(sim, 1000) > 0;

    if (call->what != ACCORD_NOTHING)
        return;
    if (node->accord.in && node->accord.read && sim->value.len == 0 && sim_nobody_knows(sim) &&
        sim_draw(sim, 20) == 0)
        accord_give_up(&node->accord);
    enum accord_do what = accord_next(&node->accord, there, &value);
    if (what == ACCORD_SAY)
        sim_say(node);
    if (what == ACCORD_NOTHING && node->accord.in && sim_draw(sim, 2))
        what = ACCORD_READ; /* now and then */
    if (what != ACCORD_READ && what != ACCORD_WRITE)
        return;
    accord_call(&node->accord);
    call->what = what;
    call->done = false;
    call->fails = sim_draw(sim, 12) == 0;
    call->token = node->accord.token;
    call->bytes.len = 0;
    if (what == ACCORD_WRITE) {
        assert_int_equal(accord_value_write(&value, &call->bytes), 0);
        sim->withdrawn +=
            node->accord.seen.asker && value.asker == 0 && node->accord.mine != ACCORD_HEARD;
        sim->begun_anew += value.born > node->accord.seen.born;
    }
}

static void sim_plan(struct sim_node *node)
{
    const struct accord *a = &node->accord;

    if (!accord_is_known(a) || node->next >= POSITIONS || node->next >= accord_hold(a))
        return;
    node->planned[node->next] = sim_weights_at(a->seen.list, node->next);
    node->next++;
    node->reach = max_u64(node->reach, node->next);
}

/* Of the value in the store; 0: there is none. */
static uint64_t sim_number(const struct sim *sim)
{
    struct accord_value value;

    if (sim->value.len == 0)
        return 0;
    assert_int_equal(accord_value_read((struct dl_span){sim->value.data, sim->value.len}, &value),
                     0);
    uint64_t number = value.number;
    accord_value_deinit(&value);
    return number;
}

static void sim_ask(struct sim *sim, struct sim_node *node)
{
    struct accord *a = &node->accord;

    /* Only what another node has decided since can be in its way. */
    if (a->mine == ACCORD_RACED)
        assert_true(a->seen.number > node->there);
    if (a->mine > ACCORD_HEARD) {
        sim->done += a->mine == ACCORD_DONE;
        sim->dropped += a->mine == ACCORD_DROPPED;
        sim->raced += a->mine == ACCORD_RACED;
        sim->late += a->mine == ACCORD_LATE;
        accord_forget(a);
    }
    if (accord_may_ask(a) && sim_draw(sim, 8) == 0) {
        accord_ask(a, sim_draw(sim, 3) ? node->next + sim_draw(sim, 30) : 0);
        node->there = sim_number(sim);
    }
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void sim_end_node(struct sim_node *node)
{
    accord_deinit(&node->accord);
    buffer_deinit(&node->call.bytes);
    buffer_deinit(&node->call.answer);
    *node = (struct sim_node){0};
}

static void sim_begin_node(struct sim *sim, struct sim_node *node)
{
    *node = (struct sim_node){.lives = true, .id = ++sim->ids};
    node->accord.self = node->id;
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
    accord_leave(&node->accord);
    node->enters = false;
    node->ready = true;
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
    for (unsigned i = 0; i < NODES; i++) {
        struct sim_node *node = &sim->nodes[i];

        sim->members[i] = node->lives ? node->id : 0;
        node->enters = node->lives;
        if (begin < UINT64_MAX)
            node->next = begin;
    }
}

static bool sim_is_fresh(const struct sim *sim)
{
    for (unsigned i = 0; i < NODES; i++)
        if (sim->nodes[i].lives && sim->nodes[i].knows)
            return false;
    return true;
}

static void sim_enter(struct sim *sim, struct sim_node *node)
{
    accord_enter(&node->accord, sim->round, sim->fresh);
    accord_bring(&node->accord, NULL);
    node->enters = false;
}

static void sim_change_nodes(struct sim *sim)
{
    struct sim_node *node = &sim->nodes[sim_draw(sim, NODES)];
    unsigned lives = 0;

    for (unsigned i = 0; i < NODES; i++)
        lives += sim->nodes[i].lives;
    if ((node->lives && lives < 2) || sim->lost)
        return; /* with the store, and all who knew what it had, the list would be lost */
    if (node->lives)
        sim_end_node(node);
    if (sim_draw(sim, 2) || lives < 3)
        sim_begin_node(sim, node);
    sim_open(sim);
}

/* All daemons are new: what the store has is of an earlier run. */
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

/* All of those that live have seen what is lost, so that it can be put back. */
static void sim_lose_store(struct sim *sim)
{
    uint64_t number = sim_number(sim);

    if (number == 0 || sim->open)
        return;
    for (unsigned i = 0; i < NODES; i++)
        if (sim->nodes[i].lives &&
            (sim->nodes[i].accord.seen.number != number || sim->nodes[i].call.what))
            return;
    sim->value.len = 0;
    sim->token = 0;
    sim->lost = true;
}

/* ---- schedules ------------------------------------------------------------------------------- */

static void sim_turn(struct sim *sim, struct sim_node *node, bool calm)
{
    if (!node->lives)
        return;
    switch (sim_draw(sim, 6)) {
    case 0:
        if (node->call.what && !node->call.done)
            sim_execute(sim, &node->call);
        else if (node->call.what)
            sim_answer(node);
        break;
    case 1:
        sim_call(sim, node);
        break;
    case 2:
        sim_decide(sim, node);
        break;
    case 3:
        if (!calm)
            sim_ask(sim, node);
        break;
    case 4:
        if (sim->open && !node->ready)
            sim_be_ready(node);
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
        sim->fresh = sim_is_fresh(sim);
        return;
    }
    for (unsigned i = 0; i < NODES; i++)
        if (sim->nodes[i].enters && sim_draw(sim, 2)) {
            sim_enter(sim, &sim->nodes[i]);
            sim->nodes[i].knows = true;
        }
}

static void sim_check(struct sim *sim)
{
    struct accord_value value;

    assert_int_equal(accord_value_read((struct dl_span){sim->value.data, sim->value.len}, &value),
                     0);
    assert_true(value.asker == 0);
    for (unsigned i = 0; i < NODES; i++) {
        const struct sim_node *node = &sim->nodes[i];

        for (uint64_t p = 0; node->lives && p < node->next; p++)
            if (node->planned[p])
                assert_int_equal(node->planned[p], sim_weights_at(value.list, p));
        if (node->lives)
            assert_true(accord_hold(&node->accord) == UINT64_MAX);
    }
    accord_value_deinit(&value);
}

static void sim_play(uint64_t seed, struct sim *totals)
{
    struct sim *sim = calloc(1, sizeof *sim);

    assert_non_null(sim);
    sim->random = seed;
    sim->weights = 1;
    for (unsigned i = 0; i < 3; i++)
        sim_begin_node(sim, &sim->nodes[i]);
    sim_open(sim);
    for (unsigned event = 0; event < 2 * EVENTS; event++) {
        bool calm = event >= EVENTS;

        if (!calm && sim_draw(sim, 400) == 0)
            sim_change_nodes(sim);
        if (!calm && sim_draw(sim, 2000) == 0)
            sim_restart_all(sim);
        if (!calm && sim_draw(sim, 200) == 0)
            sim_lose_store(sim);
        if (sim_draw(sim, 4) == 0)
            sim_enter_some(sim);
        struct sim_node *node = &sim->nodes[sim_draw(sim, NODES)];
        sim_turn(sim, node, calm);
        if (node->fails) {
            sim_end_node(node);
            sim_begin_node(sim, node);
            sim_open(sim);
            sim->failed++;
        }
    }
    sim_check(sim);
    totals->done += sim->done;
    totals->dropped += sim->dropped;
    totals->raced += sim->raced;
    totals->late += sim->late;
    totals->withdrawn += sim->withdrawn;
    totals->failed += sim->failed;
    totals->begun_anew += sim->begun_anew;
    for (unsigned i = 0; i < NODES; i++)
        sim_end_node(&sim->nodes[i]);
    buffer_deinit(&sim->value);
    free(sim);
}

TEST(test_schedules)
{
    struct sim totals = {0};

    for (uint64_t seed = 1; seed <= SCHEDULES; seed += harness_stride())
        sim_play(seed, &totals);
    print_message("# %llu changes were made, %llu withdrawn, %llu dropped, %llu raced, %llu late, "
                  "%llu lists begun, %llu nodes failed\n",
                  (unsigned long long)totals.done, (unsigned long long)totals.withdrawn,
                  (unsigned long long)totals.dropped, (unsigned long long)totals.raced,
                  (unsigned long long)totals.late, (unsigned long long)totals.begun_anew,
                  (unsigned long long)totals.failed);
    uint64_t n = SCHEDULES / harness_stride();
    assert_true(totals.done > n && totals.dropped > 0 && totals.raced > 0 && totals.late > 0 &&
                totals.withdrawn > 0 && totals.begun_anew > n);
}

/* ---- two nodes ------------------------------------------------------------------------------- */

/* What the other node, 2, has done to the store's value 1 when this one, 1, wants a change: values
 * that this one had heard of before, that lay there then, and that it hears of afterwards. A letter
 * is one value: o without a request, r with one of the other, d without one and with its change. */
static const struct {
    const char *heard, *there, *later;
    enum accord_mine want;
} rivals[] = {
    {"o", "o", "", ACCORD_ASKED},     /* nobody else asks */
    {"o", "ord", "", ACCORD_LATE},    /* the other was through before, of which nothing was known */
    {"o", "oro", "", ACCORD_LATE},    /* likewise, without a change */
    {"or", "ord", "", ACCORD_LATE},   /* it was known that it asks, but not that it is through */
    {"ord", "ord", "", ACCORD_ASKED}, /* it was known */
    {"o", "or", "d", ACCORD_RACED},   /* the other was about to */
    {"or", "or", "d", ACCORD_RACED},  {"o", "or", "o", ACCORD_LATE}, /* but has not */
    {"o", "ordr", "d", ACCORD_RACED}, {"or", "or", "drd", ACCORD_RACED},
};

struct rival_store {
    struct mix_changes *lists[16];
};

static void rival_see(struct accord *a, const struct rival_store *store, const char *values)
{
    size_t n = strlen(values);
    struct accord_value value = {.number = n, .born = 1, .list = mix_changes_ref(store->lists[n])};

    value.asker = values[n - 1] == 'r' ? 2 : 0;
    value.asked = value.asker ? 50 : 0;
    accord_call(a);
    accord_seen(a, n, &value);
}

/* Until its fate is known; the store executes writes that have its token. */
static enum accord_mine rival_follow(struct accord *a, const struct rival_store *store,
                                     const char *there, const char *later)
{
    char now[16];
    struct accord_value value;

    (void)snprintf(now, sizeof now, "%s", there);
    while (a->mine == ACCORD_WANTED) {
        enum accord_do what = accord_next(a, true, &value);

        if (what == ACCORD_SAY) {
            accord_said(a, a->seen.number);
            continue;
        }
        if (what == ACCORD_WRITE && a->token == strlen(now)) {
            mix_changes_ref(value.list);
            accord_call(a);
            accord_seen(a, value.number, &value);
            continue;
        }
        rival_see(a, store, now);
        if (what == ACCORD_NOTHING && *later)
            (void)snprintf(now + strlen(now), 2, "%c", *later++);
    }
    return a->mine;
}

static void rival_play(size_t row)
{
    char all[16];
    struct accord a = {.self = 1};
    struct rival_store store = {0};

    (void)snprintf(all, sizeof all, "%s%s", rivals[row].there, rivals[row].later);
    for (size_t i = 0; all[i]; i++) {
        double weights[1] = {(double)i + 2};
        struct mix_change change = {.position = 50 + i, .weights = weights};

        store.lists[i + 1] = mix_changes_ref(store.lists[i]);
        if (all[i] != 'd')
            continue;
        mix_changes_unref(store.lists[i + 1]);
        assert_int_equal(mix_changes_with(store.lists[i], &change, 1, &store.lists[i + 1]), 0);
    }
    accord_enter(&a, 1, false);
    rival_see(&a, &store, rivals[row].heard);
    accord_ask(&a, 70);
    enum accord_mine got = rival_follow(&a, &store, rivals[row].there, rivals[row].later);
    if (got != rivals[row].want)
        print_message("# heard %s, there %s, later %s\n", rivals[row].heard, rivals[row].there,
                      rivals[row].later);
    assert_int_equal(got, rivals[row].want);
    accord_forget(&a);
    accord_deinit(&a);
    for (size_t i = 0; i < sizeof store.lists / sizeof *store.lists; i++)
        mix_changes_unref(store.lists[i]);
}

TEST(test_rivals)
{
    for (size_t i = 0; i < sizeof rivals / sizeof *rivals; i++)
        rival_play(i);
}

/* An answer to what was asked of the store before the wish says nothing of who asks now. */
TEST(test_old_answer)
{
    struct accord a = {.self = 1};
    struct rival_store store = {0};

    accord_enter(&a, 1, false);
    rival_see(&a, &store, "o");
    accord_call(&a);
    accord_ask(&a, 70);
    struct accord_value value = {.number = 2, .born = 1, .asker = 2, .asked = 50};
    accord_seen(&a, 2, &value);
    assert_int_equal(accord_next(&a, true, &value), ACCORD_READ);
    rival_see(&a, &store, "ord");
    assert_int_equal(a.mine, ACCORD_LATE);
    accord_deinit(&a);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

TEST(test_bytes)
{
    double weights[2] = {0.25, 3};
    const struct mix_change change = {.position = 77, .weights = weights};
    struct accord_value value = {.number = 12, .born = 3, .asker = 0xAB, .asked = 90}, again;
    struct dl_buffer bytes = {0};

    assert_int_equal(mix_changes_with(NULL, &change, 2, &value.list), 0);
    assert_int_equal(accord_value_write(&value, &bytes), 0);
    assert_memory_equal(bytes.data, "1 12 3 00000000000000ab 90\n", 27);
    assert_int_equal(accord_value_read((struct dl_span){bytes.data, bytes.len}, &again), 0);
    assert_true(again.number == 12 && again.born == 3 && again.asker == 0xAB && again.asked == 90);
    assert_true(mix_changes_equal(value.list, again.list));
    accord_value_deinit(&again);
    for (size_t len = 0; len < bytes.len; len++)
        if (len != 27) /* of an empty list */
            assert_int_equal(accord_value_read((struct dl_span){bytes.data, len}, &again), -EINVAL);
    accord_value_deinit(&value);
    buffer_deinit(&bytes);
}

TEST(test_bad_bytes)
{
    static const char *const bad[] = {
        "",
        "2 1 0 0000000000000000 0\n",
        "1 0 0 0000000000000000 0\n",
        "1 1 0 0 0\n",
        "1 1  0 0000000000000000 0\n",
        "1 01 0 0000000000000000 0\n",
        "1 -1 0 0000000000000000 0\n",
        "1 1 0 0000000000000000\n",
        "1 1 0 0000000000000000 0",
        "1 99999999999999999999999 0 0000000000000000 0\n",
        "1 1 0 0000000000000000 0\nxyz",
    };
    struct accord_value value;
    uint64_t reach;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(accord_value_read(span_str(bad[i]), &value), -EINVAL);
    assert_true(accord_reach_read(span_str("0"), &reach) && reach == 0);
    assert_true(accord_reach_read(span_str("70368744177664"), &reach) && reach == 1ULL << 46);
    assert_false(accord_reach_read(span_str(""), &reach));
    assert_false(accord_reach_read(span_str("-1"), &reach));
    assert_false(accord_reach_read(span_str("1 "), &reach));
    assert_false(accord_reach_read(span_str("111111111111111111111111111111"), &reach));
}
