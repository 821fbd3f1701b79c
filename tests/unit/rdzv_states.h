/* States of a rendezvous in short, for its tests. */
#ifndef DL_RDZV_STATES_H
#define DL_RDZV_STATES_H

#include "tests/lib/harness.h"

#include "daemon/cluster/rendezvous/rendezvous.h"

#include <stdio.h>

#define SECOND ((uint64_t)1000000000)

enum { ME = 5, MIN = 2, MAX = 3 };

static inline struct rdzv_settings settings(void)
{
    struct rdzv_settings set = RDZV_DEFAULTS;

    set.min = MIN;
    set.max = MAX;
    return set;
}

static inline struct rdzv_rules rules(void)
{
    const struct rdzv_settings set = settings();

    return rdzv_rules_of(&set);
}

/*
 * "3 open 1r 2 5w 6n": round, open or complete or closed, and nodes: a member; r: ready; w: waits;
 * n: came since the last complete round. The others' ranks are those of the order.
 */
static inline struct rdzv_state make(const char *text)
{
    static uint64_t nonces;
    struct rdzv_state state = {.rules = rules(), .seq = 10, .nonce = ++nonces};
    char copy[128], *at = copy;

    (void)snprintf(copy, sizeof copy, "%s", text);
    state.round = strtoull(strsep(&at, " "), NULL, 10);
    const char *kind = strsep(&at, " ");
    state.complete = strcmp(kind, "complete") == 0;
    state.stamp = state.complete ? 77 : 0;
    if (strcmp(kind, "closed") == 0)
        (void)snprintf(state.closed, sizeof state.closed, "the end");
    uint32_t rank = 0;
    while (at && *at) {
        const char *word = strsep(&at, " ");
        struct rdzv_node node = {.id = strtoull(word, NULL, 10), .local = 1};

        node.member = !strchr(word, 'w');
        node.ready = strchr(word, 'r') || strchr(word, 'w') || state.complete;
        (void)snprintf(node.name, sizeof node.name, "node%d", word[0] - '0');
        assert_int_equal(rdzv_state_add(&state, &node), 0);
        if (node.member && !strchr(word, 'n'))
            rdzv_state_find(&state, node.id)->rank = rank++;
    }
    struct rdzv_count count = rdzv_state_count(&state);
    state.enough = !state.complete && count.members >= MIN;
    return state;
}

static inline const char *show(const struct rdzv_state *state)
{
    static char text[160];
    size_t len = (size_t)snprintf(text, sizeof text, "%d %s", (int)state->round,
                                  state->closed[0]  ? "closed"
                                  : state->complete ? "complete"
                                                    : "open");

    for (uint32_t i = 0; i < state->n; i++) {
        const struct rdzv_node *node = &state->nodes[i];

        len += (size_t)snprintf(text + len, sizeof text - len, " %d%s", (int)node->id,
                                !node->member                     ? "w"
                                : node->ready && !state->complete ? "r"
                                                                  : "");
    }
    return text;
}

#endif
