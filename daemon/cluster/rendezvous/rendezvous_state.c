#include "daemon/cluster/rendezvous/rendezvous_state.h"

#include "daemon/base/memory.h"
#include "proto/common/bisect.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

bool rdzv_rules_same(const struct rdzv_rules *a, const struct rdzv_rules *b)
{
    return a->min == b->min && a->max == b->max && a->missed == b->missed &&
           a->beat_ns == b->beat_ns;
}

uint64_t rdzv_rules_hash(const struct rdzv_rules *rules)
{
    uint64_t hash = rdzv_mix((uint64_t)rules->min << 32 | rules->max);

    hash = rdzv_mix(hash ^ rules->missed);
    return rdzv_mix(hash ^ rules->beat_ns);
}

void rdzv_state_deinit(struct rdzv_state *state)
{
    free(state->nodes);
    *state = (struct rdzv_state){0};
}

void rdzv_state_copy(const struct rdzv_state *from, struct rdzv_state *to)
{
    assert(from != to && from->n <= RDZV_NODES_MAX);
    must_reserve(to->nodes, to->cap, from->n);
    struct rdzv_node *nodes = to->nodes;
    uint32_t cap = to->cap;
    *to = *from;
    to->nodes = nodes;
    to->cap = cap;
    if (from->n > 0)
        memcpy(nodes, from->nodes, from->n * sizeof *nodes);
}

uint32_t rdzv_state_place_of(const struct rdzv_state *state, uint64_t id)
{
    return (uint32_t)BISECT(0, state->n, i, state->nodes[i].id < id);
}

uint32_t rdzv_pages(uint32_t members)
{
    uint32_t n = (members + RDZV_PAGE_NODES - 1) / RDZV_PAGE_NODES;

    return members <= RDZV_LISTED_MAX ? 0 : n < RDZV_PAGES_MAX ? n : RDZV_PAGES_MAX;
}

void rdzv_state_front(const struct rdzv_state *state, uint64_t ret[static RDZV_FRONT])
{
    for (uint32_t i = 0; i < RDZV_FRONT; i++)
        ret[i] = state->n > 0 ? state->nodes[min_u64(i, state->n - 1)].id : 0;
}

bool rdzv_head_is_in_front(const struct rdzv_head *head, uint64_t id)
{
    if (head->front[0] == 0)
        return id <= head->front[RDZV_FRONT - 1];
    for (uint32_t i = 0; i < RDZV_FRONT; i++)
        if (head->front[i] == id)
            return true;
    return false;
}

struct rdzv_node *rdzv_state_find(const struct rdzv_state *state, uint64_t id)
{
    uint32_t at = rdzv_state_place_of(state, id);

    return at < state->n && state->nodes[at].id == id ? &state->nodes[at] : NULL;
}

bool rdzv_state_is_let_in_again(const struct rdzv_state *state, const struct rdzv_node *node)
{
    if (node->rank != RDZV_NO_RANK)
        return false;
    for (uint32_t i = 0; i < state->n; i++)
        if (state->nodes[i].rank != RDZV_NO_RANK)
            return true;
    return false;
}

struct rdzv_count rdzv_state_count(const struct rdzv_state *state)
{
    struct rdzv_count count = {0};

    for (uint32_t i = 0; i < state->n; i++) {
        const struct rdzv_node *node = &state->nodes[i];

        count.members += node->member;
        count.ready += node->member && node->ready;
        count.waiting += !node->member;
    }
    return count;
}

static uint64_t rdzv_state_all_ranks(const struct rdzv_state *state)
{
    uint64_t ranks = 0;

    for (uint32_t i = 0; i < state->n; i++)
        ranks += state->nodes[i].local;
    return ranks;
}

int rdzv_state_add(struct rdzv_state *state, const struct rdzv_node *node)
{
    uint32_t at = rdzv_state_place_of(state, node->id);

    assert(at == state->n || state->nodes[at].id != node->id);
    if (state->n >= RDZV_NODES_MAX || rdzv_state_all_ranks(state) + node->local > DL_MAX_WORLD_SIZE)
        return -ENOSPC;
    must_reserve(state->nodes, state->cap, state->n + 1);
    memmove(&state->nodes[at + 1], &state->nodes[at], (state->n - at) * sizeof *state->nodes);
    state->nodes[at] = *node;
    state->nodes[at].rank = RDZV_NO_RANK;
    state->n++;
    assert(state->n <= state->cap && rdzv_state_find(state, node->id) == &state->nodes[at]);
    return 0;
}

void rdzv_state_remove(struct rdzv_state *state, uint64_t id, const char *why)
{
    uint32_t at = rdzv_state_place_of(state, id);

    assert(at < state->n && state->nodes[at].id == id);
    if (state->complete && state->nodes[at].member)
        rdzv_state_open(state, 0, why);
    state->n--;
    memmove(&state->nodes[at], &state->nodes[at + 1], (state->n - at) * sizeof *state->nodes);
}

/* What the reason for a new round says of that node; NULL: it is about another. */
static const char *rdzv_state_said_of(const struct rdzv_state *state, const char *name)
{
    size_t len = strlen(name);

    return strncmp(state->why, name, len) == 0 && state->why[len] == ' ' ? state->why + len + 1
                                                                         : NULL;
}

/* A node of that name has come in its stead. */
static bool rdzv_state_is_again(const struct rdzv_state *before, const struct rdzv_state *now,
                                const struct rdzv_node *node)
{
    for (uint32_t i = 0; i < now->n; i++)
        if (strcmp(now->nodes[i].name, node->name) == 0 &&
            !rdzv_state_find(before, now->nodes[i].id))
            return true;
    return false;
}

void rdzv_state_gone(const struct rdzv_state *before, const struct rdzv_state *now,
                     const struct rdzv_node *node, char ret[RDZV_TEXT_MAX])
{
    const char *said = now->round != before->round ? rdzv_state_said_of(now, node->name) : NULL;
    bool one_write = now->seq == before->seq + 1;
    const struct rdzv_node *writer = one_write ? rdzv_state_find(now, now->writer) : NULL;

    /* Who is in no complete round leaves without a word: but nobody takes out others that live. */
    if (said)
        (void)snprintf(ret, RDZV_TEXT_MAX, "%s", said);
    else if (one_write && now->writer == node->id)
        (void)snprintf(ret, RDZV_TEXT_MAX, "has left");
    else if (writer)
        (void)snprintf(ret, RDZV_TEXT_MAX, "%s, says %s",
                       rdzv_state_is_again(before, now, node) ? "was started again"
                                                              : "sent no heartbeat",
                       writer->name);
    else
        (void)snprintf(ret, RDZV_TEXT_MAX, "has left, or sent no heartbeat");
}

void rdzv_state_open(struct rdzv_state *state, uint64_t known, const char *why)
{
    state->round = max_u64(state->round, known) + 1;
    state->complete = false;
    state->enough = false;
    state->stamp = 0;
    assert(state->round > known); /* nobody takes it for one that is known */
    (void)snprintf(state->why, sizeof state->why, "%s", why);
    for (uint32_t i = 0; i < state->n; i++)
        if (state->nodes[i].member)
            state->nodes[i].ready = false;
}

/* ---- ranks ---------------------------------------------------------------------------------- */

static bool rdzv_state_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Two runs of digits as numbers, however long; both are stepped over. */
static int rdzv_state_compare_numbers(const char **a, const char **b)
{
    size_t n = 0, m = 0;

    while (**a == '0')
        (*a)++;
    while (**b == '0')
        (*b)++;
    while (rdzv_state_is_digit((*a)[n]))
        n++;
    while (rdzv_state_is_digit((*b)[m]))
        m++;
    int r = n != m ? (n < m ? -1 : 1) : strncmp(*a, *b, n);
    *a += n;
    *b += m;
    return r;
}

int rdzv_name_compare(const char *a, const char *b)
{
    while (*a && *b) {
        int r;

        if (rdzv_state_is_digit(*a) && rdzv_state_is_digit(*b)) {
            r = rdzv_state_compare_numbers(&a, &b);
        } else {
            r = (unsigned char)*a - (unsigned char)*b;
            a++;
            b++;
        }
        if (r != 0)
            return r;
    }
    return (unsigned char)*a - (unsigned char)*b;
}

int rdzv_state_compare_nodes(const void *a, const void *b)
{
    const struct rdzv_node *x = *(const struct rdzv_node *const *)a;
    const struct rdzv_node *y = *(const struct rdzv_node *const *)b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    int r = rdzv_name_compare(x->name, y->name);
    return r != 0 ? r : x->id < y->id ? -1 : x->id > y->id;
}

uint64_t rdzv_mix(uint64_t n)
{
    n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9U;
    n = (n ^ n >> 27) * 0x94d049bb133111ebU;
    return n ^ n >> 31;
}

static void rdzv_state_assign_ranks(struct rdzv_state *state, uint32_t members)
{
    bool taken[RDZV_NODES_MAX] = {false};
    struct rdzv_node *others[RDZV_NODES_MAX];
    uint32_t n = 0, rank = 0;

    for (uint32_t i = 0; i < state->n; i++) {
        struct rdzv_node *node = &state->nodes[i];

        if (!node->member)
            continue;
        if (node->rank < members && !taken[node->rank])
            taken[node->rank] = true;
        else
            others[n++] = node;
    }
    qsort(others, n, sizeof(struct rdzv_node *), rdzv_state_compare_nodes);
    for (uint32_t i = 0; i < n; i++) {
        while (taken[rank])
            rank++;
        others[i]->rank = rank++;
        assert(rank <= members); /* as many ranks as members, from 0 */
    }
}

void rdzv_state_complete(struct rdzv_state *state)
{
    struct rdzv_count count = rdzv_state_count(state);

    assert(!state->complete && count.members > 0 && count.ready == count.members);
    rdzv_state_assign_ranks(state, count.members);
    state->complete = true;
    state->enough = false;
    uint64_t drawn = rdzv_mix(state->nonce + RDZV_MIX_STEP);
    state->stamp = (rdzv_mix((state->writer ^ drawn) + RDZV_MIX_STEP) & RDZV_NUMBER_MAX) | 1;
    assert(state->stamp != 0); /* which an open round has */
}

/* ---- what follows of itself ----------------------------------------------------------------- */

/* Those who wait become members, while there are places, in the order of their names. */
static uint32_t rdzv_state_let_in(struct rdzv_state *state, uint32_t places)
{
    struct rdzv_node *waiting[RDZV_NODES_MAX];
    uint32_t n = 0;

    for (uint32_t i = 0; i < state->n; i++)
        if (!state->nodes[i].member)
            waiting[n++] = &state->nodes[i];
    qsort(waiting, n, sizeof(struct rdzv_node *), rdzv_state_compare_nodes);
    n = n < places ? n : places;
    for (uint32_t i = 0; i < n; i++)
        waiting[i]->member = true;
    return n;
}

void rdzv_state_settle(struct rdzv_state *state)
{
    struct rdzv_count count = rdzv_state_count(state);

    if (state->complete)
        return;
    if (count.waiting > 0 && count.members < state->rules.max &&
        rdzv_state_let_in(state, state->rules.max - count.members) > 0)
        count = rdzv_state_count(state);
    bool enough = count.members >= state->rules.min;
    if (enough && !state->enough)
        state->quorum++;
    state->enough = enough;
    if (enough && count.ready == count.members && count.members == state->rules.max)
        rdzv_state_complete(state);
}

struct rdzv_place rdzv_state_place(const struct rdzv_state *state, uint64_t id)
{
    const struct rdzv_node *self = rdzv_state_find(state, id);
    struct rdzv_place place = {0};

    assert(state->complete && self && self->member);
    place.rank = self->rank;
    for (uint32_t i = 0; i < state->n; i++) {
        const struct rdzv_node *node = &state->nodes[i];

        if (!node->member)
            continue;
        place.nodes++;
        place.world += node->local;
        if (node->rank < self->rank)
            place.first += node->local;
    }
    return place;
}
