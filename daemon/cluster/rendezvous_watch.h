/* Internal to the rendezvous: this node's time, its random numbers, and its watch over others. */
#ifndef DL_RENDEZVOUS_WATCH_H
#define DL_RENDEZVOUS_WATCH_H

#include "daemon/cluster/rendezvous.h"

/* Adds the time that has passed, as far as it counts. */
void rdzv_pass_time(struct rdzv *rdzv, uint64_t now);

/* The next number of its own. */
uint64_t rdzv_draw(struct rdzv *rdzv);

/* Notes the beats of a state that was just seen. */
void rdzv_watch(struct rdzv *rdzv, const struct rdzv_state *state);
void rdzv_watch_none(struct rdzv *rdzv);

/* Of the node at that place of the state that was watched last. */
bool rdzv_is_dead(const struct rdzv *rdzv, uint32_t at);

#endif
