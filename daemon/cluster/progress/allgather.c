#include "daemon/cluster/progress/allgather_sum.h"

#include "daemon/base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* A pause doubles; later it is so small a part of the time that has passed. Behind the front the
 * first one is longer: the sum cannot be there before those in front have read this node's value.
 */
enum {
    PAUSE_MS_MIN = 50,
    PAUSE_MS_BEHIND = 200,
    PAUSE_MS_MAX = 800,
    PAUSE_PARTS = 16,
    PAUSE_MS_END = 5000
};

enum { NAMES_MAX = 400, HEAD_MAX = 32 };

/* From LIST_MIN missing values on, or among LIST_NODES_MAX nodes or fewer, all values are read at
 * once. Among many nodes each asks more rarely: a millisecond for each NODES_A_MS of them. */
enum { LIST_MIN = 5, LIST_NODES_MAX = 16, NODES_A_MS = 4 };

/* Values of nodes that are gone, at most, that one list removes. */
enum { DROPS_MAX = 16 };

/* FRONT of the nodes that this one waits for are in front; each FRONT_MS their number doubles. */
enum { FRONT = 4, FRONT_MS = 30000 };

/* Values that are read at once, at most; pauses after which a node makes sure that the store still
 * has its own; and how often one in front tries to leave the sum while others do. */
enum { READS_MAX = 64, READS_GROW = 4, STORED_FOR = 4, LEAVES_MAX = 8 };

#define HEAD "round %" PRIu64 "\n" /* then the value */

struct allgather_read {
    struct allgather *gather;
    uint32_t at; /* which node's */
};

/*
 * First the own value is written. A node in front then reads all, or where few are missing, node by
 * node: from `at` on, more at once each time, up to one that is not there; after a pause, from that
 * one on. Last it leaves the sum, which is what a node behind reads, after a pause.
 */
struct allgather {
    struct allgather_options o;
    char key[BACKEND_KEY_MAX - 32]; /* a node's id follows, or "sum" */
    struct allgather_node *nodes;   /* owned */
    struct dl_buffer *values;       /* owned: of each node; empty: not there yet */
    struct dl_buffer own_value;     /* with its head; written */
    uint64_t token;                 /* in the place of this */
    uint32_t pauses;                /* since it was seen there */
    bool in_front;
    bool waits; /* behind, and for the first time */
    uint64_t front_at;
    bool to_the_end; /* all are read once more, past those that are missing: to name them */
    uint32_t at, at_once, reading;
    bool meets_missing;           /* one of those that are being read is not there */
    uint64_t checksum, sum_token; /* of the nodes; of what lies in the place of the sum */
    uint32_t leaves;
    uint64_t began, until, pause_ms;
    struct dl_error trouble; /* latest of the store; code 0: it answers */
    uv_timer_t timer;
    struct allgather_read reads[READS_MAX];
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

static bool allgather_is_wanted(const struct allgather *g, uint32_t i)
{
    return i == g->o.self || g->nodes[i].wanted;
}

static bool allgather_is_missing(const struct allgather *g, uint32_t i)
{
    return allgather_is_wanted(g, i) && g->values[i].len == 0;
}

static uint32_t allgather_count_missing(const struct allgather *g)
{
    uint32_t missing = 0;

    for (uint32_t i = 0; i < g->o.n; i++)
        missing += allgather_is_missing(g, i);
    return missing;
}

static const char ALLGATHER_NOT_REQUESTED[] =
    "requested this loader in the cluster's world with the same number of samples and the same "
    "seed; start the trainers there";

static void allgather_name_missing(const struct allgather *g, struct dl_error *err)
{
    char names[NAMES_MAX] = "";
    size_t at = 0;

    for (uint32_t i = 0; i < g->o.n && at < sizeof names; i++)
        if (i != g->o.self && allgather_is_missing(g, i))
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "",
                                   g->nodes[i].name);
    dl_error_set(err, ETIMEDOUT, "rendezvous.timeouts.join",
                 "%" PRIu64 " s passed, and no rank of %s %s", g->o.timeout_ns / 1000000000, names,
                 g->o.missing ? g->o.missing : ALLGATHER_NOT_REQUESTED);
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
        if (allgather_is_wanted(g, i))
            values[i] = (struct dl_span){g->values[i].data, g->values[i].len};
    allgather_finish(g, values, NULL);
}

static void allgather_key(const struct allgather *g, uint32_t i, char ret[static BACKEND_KEY_MAX])
{
    (void)snprintf(ret, BACKEND_KEY_MAX, "%s/%016" PRIx64, g->key, g->nodes[i].id);
}

static void allgather_on_stored(void *owner, const struct backend_answer *answer);

static void allgather_store(struct allgather *g)
{
    const struct dl_span own_value = {g->own_value.data, g->own_value.len};
    char key[BACKEND_KEY_MAX];

    g->pauses = STORED_FOR;
    allgather_key(g, g->o.self, key);
    backend_set(g->o.backend, key, g->token, own_value, allgather_on_stored, g);
}

static void allgather_go_on(struct allgather *g);

/* Now and then the own value is written again: the store may lose it before the other nodes have
 * read it. */
static void allgather_on_timer(uv_timer_t *timer)
{
    struct allgather *g = timer->data;

    if (++g->pauses < STORED_FOR)
        allgather_go_on(g);
    else
        allgather_store(g);
}

static void allgather_pause(struct allgather *g)
{
    uint64_t crowd = g->o.n / NODES_A_MS, waited_ms = (uv_hrtime() - g->began) / 1000000;
    uint64_t part = min_u64(waited_ms / PAUSE_PARTS, PAUSE_MS_END);

    g->waits = false;
    uv_timer_start(&g->timer, allgather_on_timer, max_u64(g->pause_ms, part) + crowd, 0);
    g->pause_ms = min_u64(2 * g->pause_ms, PAUSE_MS_MAX);
    g->at = 0;
    g->at_once = 1;
}

static void allgather_list(struct allgather *g);
static void allgather_read(struct allgather *g);
static void allgather_read_sum(struct allgather *g);
static void allgather_leave_sum(struct allgather *g);

/* Reads what is missing. */
static void allgather_go_on(struct allgather *g)
{
    uint32_t missing = allgather_count_missing(g);
    bool many = missing >= LIST_MIN || g->o.n <= LIST_NODES_MAX;
    g->in_front |= uv_hrtime() >= g->front_at;
    if (missing == 0 && g->pauses > 0)
        allgather_store(g); /* others may wait for it */
    else if (missing == 0 && g->in_front && g->o.sums)
        allgather_leave_sum(g);
    else if (missing == 0)
        allgather_hand_over(g);
    else if (g->waits)
        allgather_pause(g);
    else if (!g->in_front)
        allgather_read_sum(g);
    else if (g->at_once > 1 && many && backend_lists_all(g->o.backend))
        allgather_list(g);
    else
        allgather_read(g);
}

/* Some are missing. When the time is over, it is those that are not there then. */
static void allgather_wait(struct allgather *g)
{
    if (uv_hrtime() < g->until) {
        allgather_pause(g);
    } else if (g->to_the_end) {
        allgather_fail(g);
    } else {
        g->to_the_end = g->in_front = true;
        g->at = 0;
        g->at_once = READS_MAX;
        allgather_go_on(g);
    }
}

/* The store has failed: it is asked again as long as there is time. */
static void allgather_retry(struct allgather *g)
{
    g->pauses = STORED_FOR;
    if (uv_hrtime() >= g->until)
        allgather_fail(g);
    else
        allgather_pause(g);
}

static bool allgather_has_failed(struct allgather *g, const struct backend_answer *answer)
{
    g->trouble.code = 0;
    if (answer->status == 0)
        return false;
    g->trouble = *answer->error;
    allgather_retry(g);
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

/* The first value of this round is the one that stays. */
static void allgather_keep_own(struct allgather *g, struct dl_span text, struct dl_span value)
{
    g->own_value.len = 0;
    must_append(&g->own_value, text.data, text.len);
    must_append(&g->values[g->o.self], value.data, value.len);
}

static void allgather_on_stored(void *owner, const struct backend_answer *answer)
{
    struct allgather *g = owner;
    struct dl_error err = {0};
    struct dl_span value;
    uint64_t round;

    if (allgather_has_failed(g, answer))
        return;
    bool is_value = answer->token != 0 && allgather_read_value(answer->data, &round, &value);
    if (is_value && round > g->o.round) {
        dl_error_set(&err, ESTALE, "rendezvous", "round %" PRIu64 " is over", g->o.round);
        allgather_finish(g, NULL, &err);
    } else if (is_value && round == g->o.round) {
        g->pauses = 0;
        if (allgather_is_missing(g, g->o.self))
            allgather_keep_own(g, answer->data, value);
        allgather_go_on(g);
    } else if (uv_hrtime() >= g->until) {
        allgather_fail(g);
    } else {
        bool again = g->token != 0;

        g->token = answer->token;
        again ? allgather_pause(g) : allgather_store(g);
    }
}

/* ---- all at once ---------------------------------------------------------------------------- */

static const struct allgather_node *allgather_find(const struct allgather *g, uint64_t id)
{
    for (uint32_t i = 0; i < g->o.n; i++)
        if (g->nodes[i].id == id)
            return &g->nodes[i];
    return NULL;
}

static void allgather_drop(struct allgather *g, const char *name)
{
    char key[BACKEND_KEY_MAX];

    (void)snprintf(key, sizeof key, "%s/%.16s", g->key, name);
    backend_forget(g->o.backend, key);
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
    g->at_once = 1;
    if (allgather_count_missing(g) > 0)
        allgather_wait(g);
    else
        allgather_go_on(g);
}

static void allgather_list(struct allgather *g)
{
    char prefix[BACKEND_KEY_MAX];

    (void)snprintf(prefix, sizeof prefix, "%s/", g->key);
    backend_list(g->o.backend, prefix, NULL, allgather_on_listed, g);
}

/* ---- one by one ----------------------------------------------------------------------------- */

static void allgather_take_value(struct allgather *g, uint32_t at,
                                 const struct backend_answer *answer)
{
    struct dl_span value;
    uint64_t round;

    if (answer->status < 0)
        g->trouble = *answer->error;
    else if (answer->token != 0 && allgather_read_value(answer->data, &round, &value) &&
             round == g->o.round)
        must_append(&g->values[at], value.data, value.len);
    else
        g->meets_missing = true;
}

static void allgather_on_read(void *owner, const struct backend_answer *answer)
{
    struct allgather_read *read = owner;
    struct allgather *g = read->gather;

    allgather_take_value(g, read->at, answer);
    if (--g->reading > 0)
        return;
    if (g->trouble.code) {
        allgather_retry(g);
    } else if (g->meets_missing && !g->to_the_end) {
        allgather_wait(g);
    } else {
        g->at_once = (uint32_t)min_u64(READS_GROW * g->at_once, READS_MAX);
        allgather_go_on(g);
    }
}

static void allgather_read(struct allgather *g)
{
    char key[BACKEND_KEY_MAX];

    g->trouble.code = 0;
    g->meets_missing = false;
    for (; g->at < g->o.n && g->reading < g->at_once; g->at++) {
        if (!allgather_is_missing(g, g->at))
            continue;
        struct allgather_read *read = &g->reads[g->reading++];
        *read = (struct allgather_read){g, g->at};
        allgather_key(g, g->at, key);
        backend_get(g->o.backend, key, allgather_on_read, read);
    }
    if (g->reading == 0)
        allgather_wait(g);
}

/* ---- the sum -------------------------------------------------------------------------------- */

static void allgather_sum_key(const struct allgather *g, char ret[static BACKEND_KEY_MAX])
{
    (void)snprintf(ret, BACKEND_KEY_MAX, "%s/sum", g->key);
}

static enum allgather_sum_age allgather_take_sum(struct allgather *g, struct dl_span data)
{
    return allgather_sum_read(data, g->o.round, g->checksum, g->values, g->o.n);
}

/* In a sum, the own value is where the others find it. */
static void allgather_take_sum_behind(struct allgather *g, struct dl_span data)
{
    struct dl_buffer own = g->values[g->o.self];

    g->values[g->o.self] = (struct dl_buffer){0};
    (void)allgather_take_sum(g, data);
    if (g->values[g->o.self].len > 0)
        g->pauses = 0;
    buffer_deinit(&g->values[g->o.self]);
    g->values[g->o.self] = own;
}

static void allgather_on_sum(void *owner, const struct backend_answer *answer)
{
    struct allgather *g = owner;

    if (allgather_has_failed(g, answer))
        return;
    allgather_take_sum_behind(g, answer->data);
    if (allgather_count_missing(g) > 0)
        allgather_wait(g);
    else
        allgather_go_on(g);
}

static void allgather_read_sum(struct allgather *g)
{
    char key[BACKEND_KEY_MAX];

    allgather_sum_key(g, key);
    backend_get(g->o.backend, key, allgather_on_sum, g);
}

static void allgather_on_left(void *owner, const struct backend_answer *answer);

/* Unless it is what lies there. */
static void allgather_leave(struct allgather *g, struct dl_span there)
{
    char key[BACKEND_KEY_MAX];
    _cleanup_(buffer_deinit) struct dl_buffer sum = {0};

    allgather_sum_write(g->o.round, g->checksum, g->values, g->o.n, &sum);
    bool same = sum.len == there.len && memcmp(sum.data, there.data, sum.len) == 0;
    if (same || sum.len > BACKEND_VALUE_MAX) {
        allgather_hand_over(g);
        return;
    }
    allgather_sum_key(g, key);
    backend_set(g->o.backend, key, g->sum_token, (struct dl_span){sum.data, sum.len},
                allgather_on_left, g);
}

/* Others in front may have waited for fewer nodes, or for more: what lies there in the end is what
 * all of them have. */
static void allgather_on_left(void *owner, const struct backend_answer *answer)
{
    struct allgather *g = owner;

    if (answer->status < 0 && uv_hrtime() < g->until)
        allgather_pause(g);
    else if (answer->status < 0 || answer->won || ++g->leaves == LEAVES_MAX ||
             allgather_take_sum(g, answer->data) == ALLGATHER_SUM_LATER) {
        allgather_hand_over(g);
    } else {
        g->sum_token = answer->token;
        allgather_leave(g, answer->data);
    }
}

static void allgather_leave_sum(struct allgather *g)
{
    allgather_leave(g, (struct dl_span){0});
}

/* ---- beginning and end ---------------------------------------------------------------------- */

static void allgather_copy_own(struct allgather *g)
{
    char head[HEAD_MAX];
    int r = snprintf(head, sizeof head, HEAD, g->o.round);

    must_append(&g->own_value, head, (size_t)r);
    must_append(&g->own_value, g->o.value.data, g->o.value.len);
}

/* When this node is in front: at once, or, by its place among those that are waited for, later, but
 * soon enough to know in the end who is missing. */
static uint64_t allgather_front_at(const struct allgather *g)
{
    uint64_t half = g->o.timeout_ns / 2, ms = FRONT_MS;
    uint32_t place = 0;

    for (uint32_t i = 0; i < g->o.self; i++)
        place += g->nodes[i].wanted;
    if (!g->o.sums || place < FRONT)
        return 0;
    for (; place >= 2 * FRONT; place /= 2)
        ms += FRONT_MS;
    return g->began + min_u64(half, ms * 1000000);
}

/* So few are all in front. */
static bool allgather_is_small(const struct allgather *g)
{
    uint32_t wanted = 0;

    for (uint32_t i = 0; i < g->o.n; i++)
        wanted += allgather_is_wanted(g, i);
    return wanted <= FRONT;
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
    g->o.sums &= !allgather_is_small(g);
    g->checksum = allgather_sum_checksum(g->nodes, g->o.n);
    g->began = uv_hrtime();
    g->until = g->began + options->timeout_ns;
    g->front_at = allgather_front_at(g);
    g->waits = g->front_at > g->began;
    g->pause_ms = g->waits ? PAUSE_MS_BEHIND : PAUSE_MS_MIN;
    g->at_once = READS_GROW;
    uv_timer_init(options->loop, &g->timer);
    g->timer.data = g;
    allgather_store(g);
    return g;
}

struct allgather *allgather_cancel(struct allgather *g)
{
    if (g)
        uv_close((uv_handle_t *)&g->timer, allgather_on_closed);
    return NULL;
}
