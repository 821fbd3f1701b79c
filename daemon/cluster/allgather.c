#include "daemon/cluster/allgather.h"

#include "daemon/serve/base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { PAUSE_MS_MIN = 50, PAUSE_MS_MAX = 800, NAMES_MAX = 400, HEAD_MAX = 32 };

/* From so many values on that are missing, or of so few nodes, all are read at once. Where nodes
 * are many, each asks more rarely, by so many of them. */
enum { LIST_MIN = 5, LIST_NODES_MAX = 16, NODES_A_MS = 4 };

/* Values of nodes that are gone, at most, that one list removes. */
enum { DROPS_MAX = 16 };

#define HEAD "round %" PRIu64 "\n" /* then the value */

/* One call at a time. First the own value is written, then all are read, or where few are missing,
 * node by node, from `at` on. */
struct allgather {
    struct allgather_options o;
    char key[BACKEND_KEY_MAX - 32]; /* a node's id follows */
    struct allgather_node *nodes;   /* owned */
    struct dl_buffer *values;       /* owned: of each node; empty: not there yet */
    struct dl_buffer own_value;     /* with its head; written */
    uint64_t token;                 /* in the place of this */
    bool is_stored;                 /* the own value, as seen after the last pause */
    uint32_t at;
    uint64_t until, pause_ms;
    struct dl_error trouble; /* latest of the store; code 0: it answers */
    uv_timer_t timer;
};

static void allgather_on_closed(uv_handle_t *handle)
{
    struct allgather *g = handle->data;

    for (uint32_t i = 0; g->values && i < g->o.n; i++)
        buffer_deinit(&g->values[i]);
    buffer_deinit(&g->own_value);
    free(g->values);
    free(g->nodes);
    free(g);
}

static void allgather_finish(struct allgather *g, const struct dl_span *values,
                             const struct dl_error *error)
{
    void (*done)(void *, const struct dl_span *, const struct dl_error *) = g->o.done;

    done(g->o.owner, values, error);
    uv_close((uv_handle_t *)&g->timer, allgather_on_closed);
}

static bool allgather_is_missing(const struct allgather *g, uint32_t i)
{
    return (i == g->o.self || g->nodes[i].wanted) && g->values[i].len == 0;
}

static void allgather_name_missing(const struct allgather *g, struct dl_error *err)
{
    char names[NAMES_MAX] = "";
    size_t at = 0;

    for (uint32_t i = 0; i < g->o.n && at < sizeof names; i++)
        if (i != g->o.self && allgather_is_missing(g, i))
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "",
                                   g->nodes[i].name);
    dl_error_set(err, ETIMEDOUT, "rendezvous.timeouts.join",
                 "%" PRIu64
                 " s passed, and no rank of %s requested this loader in the cluster's world "
                 "with the same number of samples and the same seed; start the trainers there",
                 g->o.timeout_ns / 1000000000, names);
}

static void allgather_fail(struct allgather *g)
{
    struct dl_error err = {0};

    if (g->trouble.code)
        err = g->trouble;
    else
        allgather_name_missing(g, &err);
    allgather_finish(g, NULL, &err);
}

static void allgather_hand_over(struct allgather *g)
{
    _cleanup_free_ struct dl_span *values = must_alloc(max_u64(g->o.n, 1) * sizeof *values);

    for (uint32_t i = 0; i < g->o.n; i++)
        values[i] = (struct dl_span){g->values[i].data, g->values[i].len};
    allgather_finish(g, values, NULL);
}

static void allgather_on_answer(void *owner, const struct backend_answer *answer);

static void allgather_ask(struct allgather *g)
{
    char key[BACKEND_KEY_MAX];
    struct dl_span own_value = {g->own_value.data, g->own_value.len};

    (void)snprintf(key, sizeof key, "%s/%016" PRIx64, g->key,
                   g->nodes[g->is_stored ? g->at : g->o.self].id);
    if (g->is_stored)
        backend_get(g->o.backend, key, allgather_on_answer, g);
    else
        backend_set(g->o.backend, key, g->token, own_value, allgather_on_answer, g);
}

/* Reads the next value that is missing, from `at` on. After the last it pauses and begins again,
 * with the own value first. */
static void allgather_go_on(struct allgather *g);

static void allgather_on_timer(uv_timer_t *timer)
{
    struct allgather *g = timer->data;

    if (g->is_stored)
        allgather_go_on(g);
    else
        allgather_ask(g);
}

static void allgather_pause_asking(struct allgather *g)
{
    uint64_t crowd = g->o.n / NODES_A_MS;

    uv_timer_start(&g->timer, allgather_on_timer, g->pause_ms + crowd, 0);
    g->pause_ms = min_u64(2 * g->pause_ms, PAUSE_MS_MAX + crowd);
}

static void allgather_list(struct allgather *g);

static void allgather_go_on(struct allgather *g)
{
    uint32_t missing = 0;

    for (uint32_t i = 0; i < g->o.n; i++)
        missing += allgather_is_missing(g, i);
    if (missing == 0) {
        allgather_hand_over(g);
        return;
    }
    if (uv_hrtime() >= g->until) {
        allgather_fail(g);
        return;
    }
    bool many = missing >= LIST_MIN || g->o.n <= LIST_NODES_MAX;
    if (g->at == 0 && many && backend_lists_all(g->o.backend)) {
        allgather_list(g);
        return;
    }
    while (g->at < g->o.n && !allgather_is_missing(g, g->at))
        g->at++;
    if (g->at < g->o.n) {
        allgather_ask(g);
        return;
    }
    g->at = 0;
    g->is_stored = false; /* the store may lose it before the other nodes have read it */
    allgather_pause_asking(g);
}

/* It is tried again as long as there is time. */
static bool allgather_has_failed(struct allgather *g, const struct backend_answer *answer)
{
    g->trouble.code = 0;
    if (answer->status == 0)
        return false;
    g->trouble = *answer->error;
    if (uv_hrtime() >= g->until)
        allgather_fail(g);
    else
        allgather_pause_asking(g);
    return true;
}

/* The value of a node, and the round in its head. False: it is none. */
static bool allgather_read_value(struct dl_span text, uint64_t *ret_round, struct dl_span *ret)
{
    char head[HEAD_MAX] = "", again[HEAD_MAX];

    if (text.len == 0)
        return false;
    memcpy(head, text.data, min_u64(text.len, sizeof head - 1));
    if (strncmp(head, "round ", strlen("round ")) != 0)
        return false;
    *ret_round = strtoull(head + strlen("round "), NULL, 10);
    size_t len = (size_t)snprintf(again, sizeof again, HEAD, *ret_round);
    if (strncmp(head, again, len) != 0)
        return false;
    *ret = (struct dl_span){text.data + len, text.len - len};
    return true;
}

/* ---- all at once ---------------------------------------------------------------------------- */

static const struct allgather_node *allgather_find(const struct allgather *g, uint64_t id)
{
    for (uint32_t i = 0; i < g->o.n; i++)
        if (g->nodes[i].id == id)
            return &g->nodes[i];
    return NULL;
}

/* If it is not done, the next round's first node finds it again. */
static void allgather_on_dropped(void *owner, const struct backend_answer *answer)
{
    (void)owner, (void)answer;
}

static void allgather_drop(struct allgather *g, const char *name)
{
    char key[BACKEND_KEY_MAX];

    (void)snprintf(key, sizeof key, "%s/%.16s", g->key, name);
    backend_drop(g->o.backend, key, allgather_on_dropped, NULL);
}

/* The first node also removes what nodes have left that are in this round no more. */
static void allgather_take_item(struct allgather *g, const struct backend_item *item,
                                unsigned *drops)
{
    const struct allgather_node *node = allgather_find(g, strtoull(item->name, NULL, 16));
    struct dl_span value;
    uint64_t round;

    if (!allgather_read_value(item->data, &round, &value))
        return;
    if (!node && g->o.self == 0 && round < g->o.round && ++*drops <= DROPS_MAX)
        allgather_drop(g, item->name);
    if (node && round == g->o.round && allgather_is_missing(g, (uint32_t)(node - g->nodes)))
        must_append(&g->values[node - g->nodes], value.data, value.len);
}

static void allgather_on_listed(void *owner, const struct backend_answer *answer)
{
    struct allgather *g = owner;
    unsigned drops = 0;

    if (allgather_has_failed(g, answer))
        return;
    for (uint32_t i = 0; i < answer->n; i++)
        allgather_take_item(g, &answer->items[i], &drops);
    g->at = g->o.n;
    allgather_go_on(g);
}

static void allgather_list(struct allgather *g)
{
    char prefix[BACKEND_KEY_MAX];

    (void)snprintf(prefix, sizeof prefix, "%s/", g->key);
    backend_list(g->o.backend, prefix, NULL, allgather_on_listed, g);
}

/* ---- one by one ----------------------------------------------------------------------------- */

/* The first value of this round is the one that stays. */
static void allgather_keep_own(struct allgather *g, struct dl_span text, struct dl_span value)
{
    g->own_value.len = 0;
    must_append(&g->own_value, text.data, text.len);
    must_append(&g->values[g->o.self], value.data, value.len);
}

static void allgather_on_stored(struct allgather *g, const struct backend_answer *answer)
{
    struct dl_error err = {0};
    struct dl_span value;
    uint64_t round;
    bool is_value = answer->token != 0 && allgather_read_value(answer->data, &round, &value);

    if (is_value && round > g->o.round) {
        dl_error_set(&err, ESTALE, "rendezvous", "round %" PRIu64 " is over", g->o.round);
        allgather_finish(g, NULL, &err);
    } else if (is_value && round == g->o.round) {
        g->is_stored = true;
        if (allgather_is_missing(g, g->o.self))
            allgather_keep_own(g, answer->data, value);
        allgather_go_on(g);
    } else if (uv_hrtime() >= g->until) {
        allgather_fail(g);
    } else {
        bool again = g->token != 0;

        g->token = answer->token;
        again ? allgather_pause_asking(g) : allgather_ask(g);
    }
}

static void allgather_on_answer(void *owner, const struct backend_answer *answer)
{
    struct allgather *g = owner;
    struct dl_span value;
    uint64_t round;

    if (allgather_has_failed(g, answer))
        return;
    if (!g->is_stored) {
        allgather_on_stored(g, answer);
        return;
    }
    if (answer->token != 0 && allgather_read_value(answer->data, &round, &value) &&
        round == g->o.round)
        must_append(&g->values[g->at], value.data, value.len);
    g->at++;
    allgather_go_on(g);
}

static void allgather_copy_own(struct allgather *g)
{
    char head[HEAD_MAX];
    int r = snprintf(head, sizeof head, HEAD, g->o.round);

    must_append(&g->own_value, head, (size_t)r);
    must_append(&g->own_value, g->o.value.data, g->o.value.len);
}

struct allgather *allgather_start(const struct allgather_options *options)
{
    struct allgather *g = must_alloc(sizeof *g);

    g->o = *options;
    g->nodes = must_alloc(options->n * sizeof *g->nodes);
    g->values = must_alloc(options->n * sizeof *g->values);
    allgather_copy_own(g);
    memcpy(g->nodes, options->nodes, options->n * sizeof *g->nodes);
    (void)snprintf(g->key, sizeof g->key, "%s", options->key);
    g->until = uv_hrtime() + options->timeout_ns;
    g->pause_ms = PAUSE_MS_MIN;
    uv_timer_init(options->loop, &g->timer);
    g->timer.data = g;
    allgather_ask(g);
    return g;
}

struct allgather *allgather_cancel(struct allgather *g)
{
    if (g)
        uv_close((uv_handle_t *)&g->timer, allgather_on_closed);
    return NULL;
}
