/* The view `members`: a mapping, with the nodes in a list. */
#include "daemon/base/row.h"
#include "daemon/cluster/world/members_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static const char *members_view_state_name(const struct members *m)
{
    static const char *const names[] = {[MEMBERS_JOINING] = "joining",
                                        [MEMBERS_IN] = "complete",
                                        [MEMBERS_FAILED] = "failed",
                                        [MEMBERS_CLOSED] = "closed"};

    return m->ending ? "leaving" : m->placed ? names[MEMBERS_IN] : names[m->state];
}

bool members_are_ready(const struct members *m, char *why, size_t size)
{
    const char *failure = "";

    *why = '\0';
    if (!m || ((m->state == MEMBERS_IN || m->placed) && !m->fenced && !m->ending))
        return true;
    if (m->trouble[0])
        failure = m->trouble;
    else if (m->failure.code)
        failure = m->failure.message;
    (void)snprintf(why, size, "rendezvous %s is %s%s%s", m->id,
                   m->fenced ? "fenced" : members_view_state_name(m), *failure ? ": " : "",
                   failure);
    return false;
}

static void members_view_put_age(struct row *row, const char *key, uint64_t at)
{
    row_seconds_if(row, key, at, uv_hrtime() - at);
}

static void members_view_put_health(struct row *row, const struct members *m)
{
    struct backend_health health;

    backend_health(m->backend, &health);
    row_string(row, "endpoint", health.endpoint);
    row_string(row, "store", health.answers ? "answers" : "does not answer");
    row_string(row, "served_here", health.here ? "yes" : "no");
    row_uint(row, "calls", health.calls);
    row_uint(row, "failures", health.failures);
    row_string(row, "latest_failure", health.latest.code ? health.latest.message : "");
    row_string(row, "trouble", m->trouble);
    members_view_put_age(row, "last_read_s", member_read_ns(m->member));
    members_view_put_age(row, "last_write_s", member_wrote_ns(m->member));
    row_string(row, "fenced", m->fenced ? "yes" : "no");
    row_uint(row, "left_out", left_out_total(m));
}

static int members_view_add_node(const struct members *m, const struct rdzv_state *state,
                                 uint32_t i, struct value *rows)
{
    const struct rdzv_node *node = &state->nodes[i];
    struct row row = row_push(rows);
    bool ranked = state->complete && node->member;
    bool self = node->id == member_id(m->member);
    struct rdzv_place place = {0};
    uint64_t beat = 0, age = 0;
    bool watched = member_beat(m->member, node->id, &beat, &age);

    if (ranked)
        place = rdzv_state_place(state, node->id);
    row_string(&row, "node", node->name);
    row_string(&row, "state", !node->member ? "waits" : node->ready ? "ready" : "stands still");
    row_string(&row, "self", self ? "yes" : "no");
    row_uint_if(&row, "node_rank", ranked, place.rank);
    row_uint_if(&row, "first_rank", ranked, place.first);
    row_uint(&row, "local_ranks", node->local);
    row_uint_if(&row, "beat", watched, beat);
    row_seconds_if(&row, "silence_s", watched, age);
    return row.r;
}

struct members_view_node {
    uint64_t rank; /* UINT64_MAX: none */
    uint32_t at;
};

static int members_view_compare_listed(const void *a, const void *b)
{
    const struct members_view_node *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

/* By their ranks; behind them those that have none, as they came. */
static int members_view_put_nodes(struct row *row, const struct members *m,
                                  const struct rdzv_state *state)
{
    uint32_t n = state ? state->n : 0;
    _cleanup_free_ struct members_view_node *list = calloc(max_u64(n, 1), sizeof *list);

    if (!list)
        return -ENOMEM;
    struct value *rows = row_list(row, "nodes");
    for (uint32_t i = 0; i < n; i++) {
        bool ranked = state->complete && state->nodes[i].member;
        list[i] = (struct members_view_node){
            ranked ? rdzv_state_place(state, state->nodes[i].id).rank : UINT64_MAX, i};
    }
    qsort(list, n, sizeof *list, members_view_compare_listed);
    for (uint32_t i = 0; i < n && row->r == 0; i++)
        row->r = members_view_add_node(m, state, list[i].at, rows);
    return row->r;
}

/* With its path, which is a setting's: the message alone leaves open what is over. */
static void members_view_put_failure(struct row *row, const struct dl_error *failure)
{
    char text[sizeof failure->path + sizeof failure->message + 2];

    if (!failure->code) {
        row_string(row, "failure", "");
        return;
    }
    snprintf(text, sizeof text, "%s: %s", failure->path, failure->message);
    row_string(row, "failure", text);
}

static void members_view_put_round(struct row *row, const struct members *m,
                                   const struct rdzv_state *state)
{
    bool in = (m->state == MEMBERS_IN || m->placed) && !m->ending;
    struct rdzv_count count = {0};

    if (state)
        count = rdzv_state_count(state);
    if (m->placed)
        count = (struct rdzv_count){.members = m->place.nodes, .ready = m->place.nodes};
    row_string(row, "state", members_view_state_name(m));
    row_uint_if(row, "round", state || m->placed, m->placed ? m->round : state ? state->round : 0);
    row_uint(row, "rounds", m->rounds);
    row_uint_if(row, "format", state != NULL, state ? state->format : 0);
    row_string(row, "why", state ? state->why : "");
    members_view_put_failure(row, &m->failure);
    row_uint(row, "min", m->min);
    row_uint(row, "max", m->max);
    row_uint(row, "members", count.members);
    row_uint(row, "ready", count.ready);
    row_uint(row, "waiting", count.waiting);
    row_uint_if(row, "node_rank", in, m->place.rank);
    row_uint_if(row, "first_rank", in, m->place.first);
    row_uint(row, "local_ranks", m->local);
    row_uint_if(row, "world", in, m->place.world);
}

/* Of a daemon that is alone: all keys, with nothing in them. */
static int members_view_say_alone(struct row *row)
{
    static const char *const keys[] = {
        "id",           "state",      "round",       "rounds",         "format",   "why",
        "failure",      "min",        "max",         "members",        "ready",    "waiting",
        "node_rank",    "first_rank", "local_ranks", "world",          "endpoint", "store",
        "served_here",  "calls",      "failures",    "latest_failure", "trouble",  "last_read_s",
        "last_write_s", "fenced",     "left_out"};

    row_string(row, "backend", "none");
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        row_null(row, keys[i]);
    (void)row_list(row, "nodes");
    (void)row_list(row, "missing");
    return row->r;
}

int members_view(const struct members *m, struct value *ret)
{
    struct row row = row_begin(ret);

    if (!m)
        return members_view_say_alone(&row);
    if (m->placed) /* the next view has it */
        member_list(m->member);
    row_string(&row, "backend", m->backend_name);
    row_string(&row, "id", m->id);
    members_view_put_round(&row, m, member_state(m->member));
    members_view_put_health(&row, m);
    int r = members_view_put_nodes(&row, m, member_state(m->member));
    struct value *missing = r < 0 ? NULL : row_list(&row, "missing");
    return missing ? left_out_view(m, missing) : -ENOMEM;
}
