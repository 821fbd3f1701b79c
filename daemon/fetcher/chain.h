/*
 * The nodes of a block's chain (daemon/cache/placement.h), as who needs the block asks them, and
 * brings it.
 *
 * The first one that answers, and has not got it, gives the turn to bring it: who asks that one
 * next waits until the turn has ended. So of all nodes one alone fetches it; this one looks at all
 * others of the chain first, as what had no room at one node may be at any behind it, and the one
 * before may have room again by now. What the store gives goes to the first one that has room for
 * it, of those that are left when one has none by then; where none has, to the first of all,
 * instead of others there. The turn ends when it is where it is to be found.
 *
 * Pure.
 */
#ifndef DL_FETCHER_CHAIN_H
#define DL_FETCHER_CHAIN_H

#include "daemon/cache/placement.h"

#define CHAIN_NONE UINT32_MAX

struct chain_node {
    uint64_t id;
    uint64_t room; /* bytes that there are for it; 0 also of one that was not asked, or failed */
    bool by_order; /* it keeps the block instead of others, too */
};

struct chain {
    struct chain_node nodes[PLACEMENT_CHAIN];
    uint32_t n;
    uint32_t at;     /* who is asked, or gets it; n: all have been */
    uint32_t turn;   /* who gave the turn; CHAIN_NONE: nobody */
    uint64_t blocks; /* that the turn is for */
};

void chain_begin(struct chain *chain, const uint64_t *ids, uint32_t n, uint64_t blocks);

/* The one that was asked has none of them; it gave the turn, if that had not been given. */
void chain_take_absent(struct chain *chain, uint64_t room, bool by_order);
/* It is not to be asked, or did not answer. */
void chain_pass(struct chain *chain);

/* Finds a node with room for `bytes`, from `at` on. False: no node has. */
bool chain_find_room(struct chain *chain, uint64_t bytes);
/* Then this one, instead of others; CHAIN_NONE: nobody. */
uint32_t chain_by_order(const struct chain *chain);

static inline bool chain_has_turn(const struct chain *chain)
{
    return chain->n > 0 && chain->turn != CHAIN_NONE;
}

#endif
