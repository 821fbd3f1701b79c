/* Internal to the rendezvous: a turn, which is one state that was seen, and, where the cards were
 * looked at, what becomes of it. */
#ifndef DL_RENDEZVOUS_TURN_H
#define DL_RENDEZVOUS_TURN_H

#include "daemon/cluster/rendezvous/rendezvous.h"

#define RDZV_NEVER UINT64_MAX

/* How long a node tries to take itself out of a round that was not complete in time. */
#define RDZV_ROLLBACK_NS ((uint64_t)5000000000)

struct rdzv_turn {
    struct rdzv *rdzv;
    const struct rdzv_state *state; /* or NULL */
    bool looked;                    /* at these, since that was read: it can be changed */
    const struct rdzv_card *cards;
    uint32_t n_cards;
    struct rdzv_formats formats;   /* of all nodes of the state and this one, and of those added */
    const struct rdzv_state *last; /* the one seen before; NULL: none was */
    const struct rdzv_node *me;    /* in `state`; NULL: not in this life */
    struct rdzv_state *next;
    bool changed; /* `next` is what shall be */
    struct rdzv_out *out;
};

/* What the table in rendezvous.h says. */
void rdzv_turn(struct rdzv_turn *turn);

/* The state as it is, by another write. */
void rdzv_turn_write_again(struct rdzv_turn *turn);

/* The state is of a format that this node does not know: so it is not in it, and waits for another.
 * Then what the cards say of those who live, by which it reads again, or is out. */
void rdzv_unreadable_begin(struct rdzv *rdzv, const struct dl_error *error, struct rdzv_out *out);
void rdzv_unreadable_looked(struct rdzv *rdzv, const struct rdzv_card *cards, uint32_t n,
                            struct rdzv_out *out);

/* The machine is out; it can be asked to join again. */
void rdzv_finish(struct rdzv *rdzv, struct rdzv_out *out, enum rdzv_news news);

bool rdzv_last_call_is_over(const struct rdzv *rdzv);

/* The store was set back to a time before one that this node knows, or lost what it had. */
bool rdzv_turn_is_stale(const struct rdzv_turn *turn);

#endif
