#include "daemon/fetcher/chain.h"

#include <assert.h>

void chain_begin(struct chain *chain, const uint64_t *ids, uint32_t n, uint64_t blocks)
{
    assert(n <= PLACEMENT_CHAIN);
    *chain = (struct chain){.n = n, .turn = CHAIN_NONE, .blocks = blocks};
    for (uint32_t i = 0; i < n; i++)
        chain->nodes[i].id = ids[i];
}

void chain_take_absent(struct chain *chain, uint64_t room, bool by_order)
{
    assert(chain->at < chain->n);
    chain->nodes[chain->at].room = room;
    chain->nodes[chain->at].by_order = by_order;
    if (chain->turn == CHAIN_NONE)
        chain->turn = chain->at;
    chain->at++;
}

void chain_pass(struct chain *chain)
{
    assert(chain->at < chain->n);
    chain->at++;
}

bool chain_find_room(struct chain *chain, uint64_t bytes)
{
    while (chain->at < chain->n && chain->nodes[chain->at].room < bytes)
        chain->at++;
    return chain->at < chain->n;
}

uint32_t chain_by_order(const struct chain *chain)
{
    uint32_t i = 0;

    while (i < chain->n && !chain->nodes[i].by_order)
        i++;
    return i < chain->n ? i : CHAIN_NONE;
}
