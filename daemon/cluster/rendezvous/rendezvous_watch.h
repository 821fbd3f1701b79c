/* Internal to the rendezvous: this node's time, its random numbers, and its watch over others. */
#ifndef DL_RENDEZVOUS_WATCH_H
#define DL_RENDEZVOUS_WATCH_H

#include "daemon/cluster/rendezvous/rendezvous.h"

/* Adds the time that has passed, as far as it counts. */
void rdzv_pass_time(struct rdzv *rdzv, uint64_t now);

/* A call of the store has failed. */
void rdzv_watch_failed(struct rdzv *rdzv);

/* The next number of its own. */
uint64_t rdzv_draw(struct rdzv *rdzv);

/* Notes the beats of all nodes of the state (or NULL) and of the cards, which were just looked
 * at; and whether somebody is suspected to be dead. */
void rdzv_watch(struct rdzv *rdzv, const struct rdzv_state *state, const struct rdzv_card *cards,
                uint32_t n);
void rdzv_watch_none(struct rdzv *rdzv);

bool rdzv_is_dead(const struct rdzv *rdzv, const struct rdzv_peer *peer);

/* Whether the one who wrote that card lives, as far as can be told: it was seen to beat, and not
 * long ago; or has just begun. */
bool rdzv_is_alive(const struct rdzv_peer *peer);

/* As rdzv_peer(), to be changed. */
struct rdzv_peer *rdzv_peer_of(struct rdzv *rdzv, uint64_t id);

#endif
