/* The view `members`: a mapping, with the nodes in a list. */
#include "daemon/serve/world/members_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static const char *state_name(const struct members *m)
{
    static const char *const names[] = {[MEMBERS_JOINING] = "joining",
                                        [MEMBERS_IN] = "complete",
                                        [MEMBERS_FAILED] = "failed",
                                        [MEMBERS_CLOSED] = "closed"};

    return m->ending ? "leaving" : names[m->state];
}

/* The first failure, out of memory, sticks, and the rest does nothing. */
struct map {
    struct value *map;
    int r;
};

static void put_uint(struct map *map, const char *key, uint64_t u)
{
    if (map->r == 0)
        map->r = value_set_uint(map->map, key, u);
}

static void put_text(struct map *map, const char *key, const char *text)
{
    if (map->r == 0)
        map->r = value_set_string(map->map, key, text);
}

/* Null where there is none. */
static void put_uint_if(struct map *map, const char *key, bool is, uint64_t u)
{
    struct value *v;

    if (is)
        put_uint(map, key, u);
    else if (map->r == 0)
        map->r = value_set(map->map, key, &v);
}

static void put_health(struct map *map, const struct members *m)
{
    struct backend_health health;

    backend_health(m->backend, &health);
    put_text(map, "endpoint", health.endpoint);
    put_text(map, "store", health.answers ? "answers" : "does not answer");
    put_text(map, "served_here", health.here ? "yes" : "no");
    put_uint(map, "calls", health.calls);
    put_uint(map, "failures", health.failures);
    put_text(map, "latest_failure", health.latest.code ? health.latest.message : "");
}

static int add_node(const struct members *m, const struct rdzv_state *state, uint32_t i,
                    struct value *rows)
{
    const struct rdzv_node *node = &state->nodes[i];
    struct map row = {0};
    bool ranked = state->complete && node->member;
    bool self = node->id == member_id(m->member);
    struct rdzv_place place = {0};

    row.r = value_push(rows, &row.map);
    if (row.r < 0)
        return row.r;
    row.map->type = VALUE_MAP;
    if (ranked)
        place = rdzv_state_place(state, node->id);
    put_text(&row, "node", node->name);
    put_text(&row, "state", !node->member ? "waits" : node->ready ? "ready" : "stands still");
    put_text(&row, "self", self ? "yes" : "no");
    put_uint_if(&row, "node_rank", ranked, place.rank);
    put_uint_if(&row, "first_rank", ranked, place.first);
    put_uint(&row, "local_ranks", node->local);
    put_uint(&row, "beat", node->beat);
    if (row.r == 0)
        row.r = value_set_float(row.map, "silence_s", (double)member_beat_age(m->member, i) / 1e9);
    return row.r;
}

struct listed {
    uint64_t rank; /* UINT64_MAX: none */
    uint32_t at;
};

static int compare_listed(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

/* By their ranks; behind them those that have none, as they came. */
static int put_nodes(struct map *map, const struct members *m, const struct rdzv_state *state)
{
    uint32_t n = state ? state->n : 0;
    _cleanup_free_ struct listed *list = calloc(max_u64(n, 1), sizeof *list);
    struct value *rows;

    if (map->r == 0)
        map->r = list ? value_set(map->map, "nodes", &rows) : -ENOMEM;
    if (map->r < 0)
        return map->r;
    rows->type = VALUE_ARRAY;
    for (uint32_t i = 0; i < n; i++) {
        bool ranked = state->complete && state->nodes[i].member;
        list[i] = (struct listed){
            ranked ? rdzv_state_place(state, state->nodes[i].id).rank : UINT64_MAX, i};
    }
    qsort(list, n, sizeof *list, compare_listed);
    for (uint32_t i = 0; i < n; i++) {
        int r = add_node(m, state, list[i].at, rows);
        if (r < 0)
            return r;
    }
    return 0;
}

static void put_round(struct map *map, const struct members *m, const struct rdzv_state *state)
{
    bool in = m->state == MEMBERS_IN && !m->ending;
    struct rdzv_count count = {0};

    if (state)
        count = rdzv_state_count(state);
    put_text(map, "state", state_name(m));
    put_uint_if(map, "round", state != NULL, state ? state->round : 0);
    put_text(map, "why", state ? state->why : "");
    put_text(map, "failure", m->failure.code ? m->failure.message : "");
    put_uint(map, "min", m->min);
    put_uint(map, "max", m->max);
    put_uint(map, "members", count.members);
    put_uint(map, "ready", count.ready);
    put_uint(map, "waiting", count.waiting);
    put_uint_if(map, "node_rank", in, m->place.rank);
    put_uint_if(map, "first_rank", in, m->place.first);
    put_uint(map, "local_ranks", m->local);
    put_uint_if(map, "world", in, m->place.world);
}

/* Of a daemon that is alone: all keys, with nothing in them. */
static int say_alone(struct map *map)
{
    static const char *const keys[] = {
        "id",       "state", "round",       "why",       "failure",    "min",           "max",
        "members",  "ready", "waiting",     "node_rank", "first_rank", "local_ranks",   "world",
        "endpoint", "store", "served_here", "calls",     "failures",   "latest_failure"};
    struct value *nodes;

    put_text(map, "backend", "none");
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        put_uint_if(map, keys[i], false, 0);
    if (map->r == 0 && (map->r = value_set(map->map, "nodes", &nodes)) == 0)
        nodes->type = VALUE_ARRAY;
    return map->r;
}

int members_view(const struct members *m, struct value *ret)
{
    struct map map = {.map = ret};

    ret->type = VALUE_MAP;
    if (!m)
        return say_alone(&map);
    put_text(&map, "backend", m->backend_name);
    put_text(&map, "id", m->id);
    put_round(&map, m, member_state(m->member));
    put_health(&map, m);
    return put_nodes(&map, m, member_state(m->member));
}
