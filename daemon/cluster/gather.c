#include "daemon/cluster/gather.h"

#include "daemon/serve/base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { PAUSE_MS_MIN = 50, PAUSE_MS_MAX = 800, NAMES_MAX = 400, HEAD_MAX = 32 };

#define HEAD "round %" PRIu64 "\n" /* then the word */

/* One call at a time: the node `at` is the next to be asked about, its own word first. */
struct gather {
    struct gather_options o;
    char key[BACKEND_KEY_MAX - 32]; /* a node's id follows */
    struct gather_node *nodes;      /* owned */
    struct dl_buffer *words;        /* owned: of each node; empty: not heard yet */
    struct dl_buffer own;           /* its own with its head, */
    uint64_t token;                 /* in the place of this, */
    bool left;                      /* and it lies in the store, as seen after the last pause */
    uint32_t at;
    uint64_t until, pause_ms;
    struct dl_error trouble; /* latest of the store; code 0: it answers */
    uv_timer_t timer;
};

static void gather_on_closed(uv_handle_t *handle)
{
    struct gather *g = handle->data;

    for (uint32_t i = 0; g->words && i < g->o.n; i++)
        buffer_deinit(&g->words[i]);
    buffer_deinit(&g->own);
    free(g->words);
    free(g->nodes);
    free(g);
}

static void gather_finish(struct gather *g, const struct dl_span *words,
                          const struct dl_error *error)
{
    void (*done)(void *, const struct dl_span *, const struct dl_error *) = g->o.done;

    done(g->o.owner, words, error);
    uv_close((uv_handle_t *)&g->timer, gather_on_closed);
}

static bool gather_is_missing(const struct gather *g, uint32_t i)
{
    return (i == g->o.self || g->nodes[i].wanted) && g->words[i].len == 0;
}

static void gather_say_missing(const struct gather *g, struct dl_error *err)
{
    char names[NAMES_MAX] = "";
    size_t at = 0;

    for (uint32_t i = 0; i < g->o.n && at < sizeof names; i++)
        if (i != g->o.self && gather_is_missing(g, i))
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "",
                                   g->nodes[i].name);
    dl_error_set(
        err, ETIMEDOUT, "rendezvous.timeouts.join",
        "%" PRIu64 " s are over, and no rank of %s has asked for this loader in the "
        "cluster's world, with as many samples and the same seed; start the trainers there",
        g->o.timeout_ns / 1000000000, names);
}

static void gather_fail(struct gather *g)
{
    struct dl_error err = {0};

    if (g->trouble.code)
        err = g->trouble;
    else
        gather_say_missing(g, &err);
    gather_finish(g, NULL, &err);
}

static void gather_hand_over(struct gather *g)
{
    _cleanup_free_ struct dl_span *words = must_alloc(max_u64(g->o.n, 1) * sizeof *words);

    for (uint32_t i = 0; i < g->o.n; i++)
        words[i] = (struct dl_span){g->words[i].data, g->words[i].len};
    gather_finish(g, words, NULL);
}

static void gather_on_answer(void *owner, const struct backend_answer *answer);

static void gather_ask(struct gather *g)
{
    char key[BACKEND_KEY_MAX];
    struct dl_span own = {g->own.data, g->own.len};

    (void)snprintf(key, sizeof key, "%s/%016" PRIx64, g->key,
                   g->nodes[g->left ? g->at : g->o.self].id);
    if (g->left)
        backend_get(g->o.backend, key, gather_on_answer, g);
    else
        backend_set(g->o.backend, key, g->token, own, gather_on_answer, g);
}

/* The next that is missing from `at` on; after the last a pause, and all over again, with its own
 * word first. */
static void gather_go_on(struct gather *g);

static void gather_on_timer(uv_timer_t *timer)
{
    struct gather *g = timer->data;

    if (g->left)
        gather_go_on(g);
    else
        gather_ask(g);
}

static void gather_pause_asking(struct gather *g)
{
    uv_timer_start(&g->timer, gather_on_timer, g->pause_ms, 0);
    g->pause_ms = min_u64(2 * g->pause_ms, PAUSE_MS_MAX);
}

static void gather_go_on(struct gather *g)
{
    bool any = false;

    for (uint32_t i = 0; i < g->o.n && !any; i++)
        any = gather_is_missing(g, i);
    if (!any) {
        gather_hand_over(g);
        return;
    }
    if (uv_hrtime() >= g->until) {
        gather_fail(g);
        return;
    }
    while (g->at < g->o.n && !gather_is_missing(g, g->at))
        g->at++;
    if (g->at < g->o.n) {
        gather_ask(g);
        return;
    }
    g->at = 0;
    g->left = false; /* the store may forget it before the others have come */
    gather_pause_asking(g);
}

/* The word of a node in the round that its head tells. False: it is none. */
static bool gather_read_word(struct dl_span text, uint64_t *ret_round, struct dl_span *ret)
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

/* What it said first in this round is what it says from now on. */
static void gather_keep_own(struct gather *g, struct dl_span text, struct dl_span word)
{
    g->own.len = 0;
    must_append(&g->own, text.data, text.len);
    must_append(&g->words[g->o.self], word.data, word.len);
}

static void gather_on_left(struct gather *g, const struct backend_answer *answer)
{
    struct dl_error err = {0};
    struct dl_span word;
    uint64_t round;
    bool is_word = answer->token != 0 && gather_read_word(answer->data, &round, &word);

    if (is_word && round > g->o.round) {
        dl_error_set(&err, ESTALE, "rendezvous", "round %" PRIu64 " is over", g->o.round);
        gather_finish(g, NULL, &err);
    } else if (is_word && round == g->o.round) {
        g->left = true;
        if (gather_is_missing(g, g->o.self))
            gather_keep_own(g, answer->data, word);
        gather_go_on(g);
    } else if (uv_hrtime() >= g->until) {
        gather_fail(g);
    } else {
        bool again = g->token != 0;

        g->token = answer->token;
        again ? gather_pause_asking(g) : gather_ask(g);
    }
}

static void gather_on_answer(void *owner, const struct backend_answer *answer)
{
    struct gather *g = owner;
    struct dl_span word;
    uint64_t round;

    if (answer->status < 0) {
        g->trouble = *answer->error;
        if (uv_hrtime() >= g->until)
            gather_fail(g);
        else
            gather_pause_asking(g);
        return;
    }
    g->trouble.code = 0;
    if (!g->left) {
        gather_on_left(g, answer);
        return;
    }
    if (answer->token != 0 && gather_read_word(answer->data, &round, &word) && round == g->o.round)
        must_append(&g->words[g->at], word.data, word.len);
    g->at++;
    gather_go_on(g);
}

static void gather_copy_own(struct gather *g)
{
    char head[HEAD_MAX];
    int r = snprintf(head, sizeof head, HEAD, g->o.round);

    must_append(&g->own, head, (size_t)r);
    must_append(&g->own, g->o.word.data, g->o.word.len);
}

struct gather *gather(const struct gather_options *options)
{
    struct gather *g = must_alloc(sizeof *g);

    g->o = *options;
    g->nodes = must_alloc(options->n * sizeof *g->nodes);
    g->words = must_alloc(options->n * sizeof *g->words);
    gather_copy_own(g);
    memcpy(g->nodes, options->nodes, options->n * sizeof *g->nodes);
    (void)snprintf(g->key, sizeof g->key, "%s", options->key);
    g->until = uv_hrtime() + options->timeout_ns;
    g->pause_ms = PAUSE_MS_MIN;
    uv_timer_init(options->loop, &g->timer);
    g->timer.data = g;
    gather_ask(g);
    return g;
}

struct gather *gather_cancel(struct gather *g)
{
    if (g)
        uv_close((uv_handle_t *)&g->timer, gather_on_closed);
    return NULL;
}
