#include "daemon/cluster/rendezvous/rendezvous_watch.h"

#include "daemon/base/memory.h"
#include "proto/common/bisect.h"

#include <assert.h>

/* Longer than that between two steps, and this node was asleep; a shorter nap, or a store that was
 * stuck as long, differs from a death: with the beat that was just not due yet it is no silence. */
static uint64_t rdzv_watch_patience(const struct rdzv *rdzv)
{
    uint64_t slack = rdzv_silence(&rdzv->set) - rdzv->set.beat_ns;

    return min_u64(2 * rdzv->set.beat_ns, slack * 2 / 3);
}

/* The store has failed. If it answered a moment ago, and there is room in a silence for a beat
 * after that, it is as a nap: else a store that is slow now and then would hide a death for long.
 */
void rdzv_watch_failed(struct rdzv *rdzv)
{
    if (rdzv->clock - rdzv->heard <= rdzv_silence(&rdzv->set) &&
        rdzv_watch_patience(rdzv) >= rdzv->set.beat_ns)
        rdzv->napped = true;
    else
        rdzv->blind = true;
}

void rdzv_pass_time(struct rdzv *rdzv, uint64_t now)
{
    uint64_t passed = now > rdzv->now ? now - rdzv->now : 0;

    if (now < rdzv->now || passed > rdzv_watch_patience(rdzv))
        rdzv->napped = true;
    rdzv->clock += min_u64(passed, rdzv_watch_patience(rdzv));
    rdzv->now = now;
}

/* Its own for each node, life and draw. */
uint64_t rdzv_draw(struct rdzv *rdzv)
{
    uint64_t n = rdzv->self.id + RDZV_MIX_STEP * ++rdzv->draws;

    return rdzv_mix(n ^ rdzv->self.life << 40);
}

/* Beats that a card can have that was written first a moment ago. */
enum { RDZV_YOUNG_BEATS = 2 };

static struct rdzv_peer *rdzv_watch_find(const struct rdzv *rdzv, uint64_t id)
{
    uint64_t at = BISECT(0, rdzv->n_peers, i, rdzv->peers[i].id < id);

    return at < rdzv->n_peers && rdzv->peers[at].id == id ? &rdzv->peers[at] : NULL;
}

const struct rdzv_peer *rdzv_peer(const struct rdzv *rdzv, uint64_t id)
{
    return rdzv_watch_find(rdzv, id);
}

struct rdzv_peer *rdzv_peer_of(struct rdzv *rdzv, uint64_t id)
{
    return rdzv_watch_find(rdzv, id);
}

/* What is known of it from earlier looks, and now. A node without a card has not beaten. */
static struct rdzv_peer rdzv_watch_peer(const struct rdzv *rdzv, const struct rdzv_node *node,
                                        const struct rdzv_card *card)
{
    const struct rdzv_peer *old = rdzv_peer(rdzv, card ? card->id : node->id);
    struct rdzv_peer peer = {.seen = rdzv->clock, .has_card = card != NULL};

    if (old)
        peer = *old;
    else if (node)
        peer.life = node->life;
    peer.id = card ? card->id : node->id;
    peer.has_card = card != NULL;
    if (card && (card->beat != peer.beat || card->life != peer.life)) {
        peer.counts = old != NULL;
        peer.beat = card->beat;
        peer.life = card->life;
        peer.seen = rdzv->clock;
        peer.suspect = peer.spared = false;
    }
    /* Taken out by another: it may be dead, and what it left is not a reason to let it in again. */
    if (old && old->in_state && !node && old->life == peer.life)
        peer.counts = false;
    peer.in_state = node != NULL;
    return peer;
}

static bool rdzv_watch_is_silent(const struct rdzv *rdzv, const struct rdzv_peer *peer)
{
    return peer->id != rdzv->self.id && rdzv->clock - peer->seen > rdzv->set.beat_ns * 5 / 4;
}

/* Of the time between two looks with a nap in between so much of rdzv_silence() counts. */
enum { RDZV_NAPS_A_SILENCE = 8 };

/* How long a peer is silent, without what does not count of the time since the look before this
 * one. A busy machine naps again and again: if each nap made an end of all silence, a death would
 * be found there very late. So silence up to the nap stays, and of the nap a little counts. But
 * once in a silence there is time for a beat after a nap: of those who napped, too. */
static uint64_t rdzv_watch_silence(const struct rdzv *rdzv, struct rdzv_peer *peer)
{
    uint64_t silence = rdzv_silence(&rdzv->set), gap = rdzv->clock - rdzv->answered;
    uint64_t silent = rdzv->clock - peer->seen, most = silence - rdzv_watch_patience(rdzv);
    uint64_t skipped = gap - min_u64(gap, silence / RDZV_NAPS_A_SILENCE);

    assert(most > 0 && most <= silence);
    if (rdzv->blind) {
        peer->spared = false;
        return 0;
    }
    silent -= min_u64(silent, skipped);
    if (silent <= most || peer->spared)
        return silent;
    peer->spared = true;
    return most;
}

void rdzv_replace(struct rdzv *rdzv, uint64_t id)
{
    rdzv->replaces = id;
}

static void rdzv_watch_note_replaced(struct rdzv *rdzv, const struct rdzv_card *cards, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct rdzv_peer *peer =
            cards[i].replaces ? rdzv_watch_find(rdzv, cards[i].replaces) : NULL;

        if (peer && peer->id != cards[i].id)
            peer->replaced = true;
    }
}

/* This node slept, or the store was stuck or failed, since the look before this one. */
static void rdzv_watch_leave_out_gap(struct rdzv *rdzv)
{
    bool late = rdzv->clock - rdzv->answered > rdzv_watch_patience(rdzv);

    if (!rdzv->blind && !rdzv->napped && !late)
        return;
    for (uint32_t i = 0; i < rdzv->n_peers; i++) {
        struct rdzv_peer *peer = &rdzv->peers[i];

        peer->counts &= peer->seen == rdzv->clock;
        peer->seen = rdzv->clock - rdzv_watch_silence(rdzv, peer);
        assert(peer->seen <= rdzv->clock);
    }
}

void rdzv_watch(struct rdzv *rdzv, const struct rdzv_state *state, const struct rdzv_card *cards,
                uint32_t n)
{
    uint32_t nodes = state ? state->n : 0, i = 0, k = 0, n_peers = 0;
    struct rdzv_peer *peers = must_alloc(max_u64(nodes + n, 1) * sizeof *peers);

    rdzv->suspects = false;
    while (i < nodes || k < n) {
        bool of_node = i < nodes && (k == n || state->nodes[i].id <= cards[k].id);
        bool of_card = k < n && (i == nodes || cards[k].id <= state->nodes[i].id);

        peers[n_peers] =
            rdzv_watch_peer(rdzv, of_node ? &state->nodes[i] : NULL, of_card ? &cards[k] : NULL);
        peers[n_peers].suspect |= rdzv_watch_is_silent(rdzv, &peers[n_peers]);
        rdzv->suspects |= peers[n_peers].suspect;
        n_peers++;
        i += of_node;
        k += of_card;
    }
    assert(n_peers <= nodes + n);
    free(rdzv->peers);
    rdzv->peers = peers;
    rdzv->n_peers = n_peers;
    rdzv_watch_note_replaced(rdzv, cards, n);
    rdzv_watch_leave_out_gap(rdzv);
    rdzv->blind = rdzv->napped = false;
    rdzv->answered = rdzv->clock;
}

void rdzv_watch_none(struct rdzv *rdzv)
{
    free(rdzv->peers);
    rdzv->peers = NULL;
    rdzv->n_peers = 0;
    rdzv->suspects = rdzv->blind = rdzv->napped = false;
    rdzv->answered = rdzv->clock;
}

bool rdzv_is_dead(const struct rdzv *rdzv, const struct rdzv_peer *peer)
{
    if (peer->id == rdzv->self.id)
        return false;
    return peer->replaced ||
           (rdzv->asked > peer->seen && rdzv->asked - peer->seen > rdzv_silence(&rdzv->set));
}

bool rdzv_is_alive(const struct rdzv_peer *peer)
{
    return !peer->suspect && !peer->replaced && (peer->counts || peer->beat <= RDZV_YOUNG_BEATS);
}
