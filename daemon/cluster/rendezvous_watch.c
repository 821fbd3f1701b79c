#include "daemon/cluster/rendezvous_watch.h"

#include "daemon/serve/base/memory.h"

/* Longer than that between two steps, and this node was asleep. Where one beat that is half an
 * interval late is a death, a shorter nap, or a store that was stuck as long, is told from it. */
static uint64_t rdzv_watch_patience(const struct rdzv *rdzv)
{
    return rdzv->set.missed == 1 ? rdzv->set.beat_ns / 3 : 2 * rdzv->set.beat_ns;
}

void rdzv_pass_time(struct rdzv *rdzv, uint64_t now)
{
    uint64_t passed = now > rdzv->now ? now - rdzv->now : 0;

    if (now < rdzv->now || passed > rdzv_watch_patience(rdzv))
        rdzv->blind = true;
    rdzv->clock += min_u64(passed, rdzv_watch_patience(rdzv));
    rdzv->now = now;
}

/* Its own for each node, life and draw. */
uint64_t rdzv_draw(struct rdzv *rdzv)
{
    uint64_t n = rdzv->self.id + RDZV_MIX_STEP * ++rdzv->draws;

    return rdzv_mix(n ^ rdzv->self.life << 40);
}

static bool rdzv_watch_same_nodes(const struct rdzv *rdzv, const struct rdzv_state *state)
{
    if (rdzv->n_peers != state->n)
        return false;
    for (uint32_t i = 0; i < state->n; i++)
        if (rdzv->peers[i].id != state->nodes[i].id)
            return false;
    return true;
}

/* A list with a place for each node of the state, and what is known of those that were there. */
static void rdzv_watch_change_peers(struct rdzv *rdzv, const struct rdzv_state *state)
{
    struct rdzv_peer *peers = must_alloc((state->n ? state->n : 1) * sizeof *peers);
    uint32_t old = 0;

    for (uint32_t i = 0; i < state->n; i++) {
        const struct rdzv_node *node = &state->nodes[i];

        while (old < rdzv->n_peers && rdzv->peers[old].id < node->id)
            old++;
        if (old < rdzv->n_peers && rdzv->peers[old].id == node->id)
            peers[i] = rdzv->peers[old];
        else
            peers[i] = (struct rdzv_peer){node->id, node->life, node->beat, rdzv->clock};
    }
    free(rdzv->peers);
    rdzv->peers = peers;
    rdzv->n_peers = state->n;
}

void rdzv_watch(struct rdzv *rdzv, const struct rdzv_state *state)
{
    if (!rdzv_watch_same_nodes(rdzv, state))
        rdzv_watch_change_peers(rdzv, state);
    if (rdzv->clock - rdzv->answered > rdzv_watch_patience(rdzv))
        rdzv->blind = true;
    for (uint32_t i = 0; i < state->n; i++) {
        const struct rdzv_node *node = &state->nodes[i];
        struct rdzv_peer *peer = &rdzv->peers[i];

        if (rdzv->blind || peer->beat != node->beat || peer->life != node->life)
            *peer = (struct rdzv_peer){node->id, node->life, node->beat, rdzv->clock};
    }
    rdzv->blind = false;
    rdzv->answered = rdzv->clock;
}

void rdzv_watch_none(struct rdzv *rdzv)
{
    free(rdzv->peers);
    rdzv->peers = NULL;
    rdzv->n_peers = 0;
    rdzv->blind = false;
    rdzv->answered = rdzv->clock;
}

bool rdzv_is_dead(const struct rdzv *rdzv, uint32_t at)
{
    const struct rdzv_peer *peer = &rdzv->peers[at];

    return peer->id != rdzv->self.id && rdzv->asked > peer->seen &&
           rdzv->asked - peer->seen > rdzv_silence(&rdzv->set);
}
