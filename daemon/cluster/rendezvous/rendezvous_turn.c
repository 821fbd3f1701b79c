#include "daemon/cluster/rendezvous/rendezvous_turn.h"

#include "daemon/cluster/rendezvous/rendezvous_format.h"
#include "daemon/cluster/rendezvous/rendezvous_watch.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define SECOND ((uint64_t)1000000000)

void rdzv_finish(struct rdzv *rdzv, struct rdzv_out *out, enum rdzv_news news)
{
    assert(news == RDZV_LEFT || news == RDZV_CLOSED || (news == RDZV_FAILED && out->error.code));
    out->news = news;
    rdzv->want = RDZV_WANT_NOTHING;
    rdzv->in_round = rdzv->unlisted = rdzv->present = rdzv->self.ready = false;
    rdzv->deadline = rdzv->quorum_at = RDZV_NEVER;
    rdzv->failure = (struct dl_error){0};
    rdzv->self.life++;
    out->drops = rdzv->has_card;
    out->dropped = rdzv->self.id;
    rdzv->has_card = false;
    rdzv_watch_none(rdzv);
    rdzv->blind = true;
}

/* From here on `next` is to be changed. */
static void rdzv_turn_begin(struct rdzv_turn *turn, const struct rdzv_state *from)
{
    struct rdzv *rdzv = turn->rdzv;
    struct rdzv_state *next = turn->next;
    static const struct rdzv_state none;

    if (turn->changed)
        return;
    rdzv_state_copy(from ? from : &none, next);
    if (next->n == 0 && !next->complete)
        next->rules = rdzv_rules_of(&rdzv->set);
    next->seq++;
    next->writer = rdzv->self.id;
    next->nonce = rdzv_draw(rdzv);
    turn->changed = true;
    assert(next != from && (!from || next->seq > from->seq));
}

static void rdzv_turn_change(struct rdzv_turn *turn)
{
    rdzv_turn_begin(turn, turn->state);
}

/* As it is now, with what was changed so far. */
static const struct rdzv_state *rdzv_turn_now(const struct rdzv_turn *turn)
{
    return turn->changed ? turn->next : turn->state;
}

/* ---- what a state says to this node --------------------------------------------------------- */

static bool rdzv_turn_is_my_round(const struct rdzv *rdzv, const struct rdzv_state *state)
{
    return rdzv->in_round && state->complete && state->round == rdzv->round &&
           state->stamp == rdzv->stamp;
}

/* The round that the owner works in is over: nothing here may continue with its ranks. */
static void rdzv_turn_notice_end(struct rdzv_turn *turn)
{
    struct rdzv *rdzv = turn->rdzv;

    if (rdzv->in_round && !(turn->me && rdzv_turn_is_my_round(rdzv, turn->state))) {
        bool stayed = turn->me && !rdzv_state_is_let_in_again(turn->state, turn->me);

        rdzv->in_round = rdzv->unlisted = rdzv->self.ready = false;
        rdzv->deadline = RDZV_NEVER; /* until the owner is ready */
        turn->out->news = stayed ? RDZV_OPENED : RDZV_EVICTED;
    }
    if (rdzv->present && !turn->me)
        rdzv->self.life++; /* what others say of the life that ended does not hold of this one */
    rdzv->present = turn->me != NULL;
}

static void rdzv_turn_notice_round(struct rdzv_turn *turn)
{
    struct rdzv *rdzv = turn->rdzv;

    assert(!rdzv->in_round && turn->state->complete && turn->me->member);
    rdzv->in_round = rdzv->any = true;
    rdzv->round = turn->state->round;
    rdzv->stamp = turn->state->stamp;
    rdzv->self.ready = false;
    rdzv->deadline = RDZV_NEVER;
    turn->out->news = RDZV_ROUND;
}

/* When the members that are there now became enough, by this node's watch. */
static void rdzv_turn_notice_quorum(struct rdzv *rdzv, const struct rdzv_state *state)
{
    if (state->complete || !state->enough) {
        rdzv->quorum_at = RDZV_NEVER;
        return;
    }
    if (rdzv->quorum_at == RDZV_NEVER || rdzv->quorum != state->quorum ||
        rdzv->open_round != state->round) {
        rdzv->quorum_at = rdzv->clock;
        rdzv->quorum = state->quorum;
        rdzv->open_round = state->round;
    }
}

/* It is of a time before one that this node knows, or says of it what it did not say. */
bool rdzv_turn_is_stale(const struct rdzv_turn *turn)
{
    const struct rdzv *rdzv = turn->rdzv;

    if (rdzv_turn_is_my_round(rdzv, turn->state))
        return false;
    return (rdzv->any && turn->state->round <= rdzv->round) ||
           (turn->state->complete && turn->me && turn->me->member && !rdzv->self.ready);
}

/* ---- what is done to it --------------------------------------------------------------------- */

static void rdzv_turn_too_many(struct rdzv_turn *turn)
{
    dl_error_set(&turn->out->error, ENOSPC, "rendezvous",
                 "there are already %u nodes, the most that a rendezvous can have", turn->next->n);
    rdzv_finish(turn->rdzv, turn->out, RDZV_FAILED);
}

static void rdzv_turn_add(struct rdzv_turn *turn, const struct rdzv_card *card)
{
    struct rdzv_node node = {
        .id = card->id, .life = card->life, .local = card->local, .ready = card->ready};

    rdzv_turn_change(turn);
    struct rdzv_count count = rdzv_state_count(turn->next);
    node.member = !turn->next->complete && count.members < turn->next->rules.max;
    memcpy(node.name, card->name, sizeof node.name);
    if (rdzv_state_add(turn->next, &node) < 0 && card->id == turn->rdzv->self.id)
        rdzv_turn_too_many(turn);
}

static void rdzv_turn_take_out(struct rdzv_turn *turn, uint64_t id, const char *name)
{
    char why[RDZV_TEXT_MAX];

    (void)snprintf(why, sizeof why, "%s has left", name);
    rdzv_turn_change(turn);
    rdzv_state_remove(turn->next, id, why);
}

static void rdzv_turn_say_ready(struct rdzv_turn *turn, uint64_t id)
{
    rdzv_turn_change(turn);
    struct rdzv_node *node = rdzv_state_find(turn->next, id);
    assert(node && node->member && !turn->next->complete);
    node->ready = true;
}

/* A node that looks says it once of each. */
static bool rdzv_turn_meets(struct rdzv_turn *turn, const struct rdzv_card *card)
{
    struct rdzv_peer *peer = rdzv_peer_of(turn->rdzv, card->id);

    if (rdzv_formats_meet(&turn->formats, &card->formats))
        return true;
    if (!peer->refused && turn->out->notice.code == 0) {
        rdzv_format_refusal(card, &turn->formats, &turn->out->notice);
        peer->refused = true;
    }
    return false;
}

/* The others know whether a stranger's card is that of one who lives; the own is. */
static bool rdzv_turn_may_add(const struct rdzv_turn *turn, const struct rdzv_card *card)
{
    const struct rdzv_peer *peer = rdzv_peer(turn->rdzv, card->id);

    return card->in && card->rules == rdzv_rules_hash(&rdzv_turn_now(turn)->rules) && peer &&
           (card->id == turn->rdzv->self.id || rdzv_is_alive(peer));
}

static void rdzv_turn_follow_card(struct rdzv_turn *turn, const struct rdzv_card *card)
{
    const struct rdzv_state *now = rdzv_turn_now(turn);
    const struct rdzv_node *node = rdzv_state_find(now, card->id);

    if (node && card->life > node->life) {
        rdzv_turn_change(turn);
        rdzv_state_remove(turn->next, card->id, "a node joined again");
        node = NULL;
        now = turn->next;
    }
    if (!node) {
        if (rdzv_turn_may_add(turn, card) && rdzv_turn_meets(turn, card))
            rdzv_turn_add(turn, card);
    } else if (card->life == node->life && !card->in) {
        rdzv_turn_take_out(turn, card->id, card->name);
    } else if (card->life == node->life && !now->complete && node->member && !node->ready &&
               card->ready_for == now->round + 1) {
        rdzv_turn_say_ready(turn, card->id);
    }
}

/* An empty state has nobody's rules yet: it takes those of this node. */
static void rdzv_turn_follow_cards(struct rdzv_turn *turn)
{
    if (turn->state && turn->state->n == 0 && !turn->state->complete && turn->n_cards > 0)
        rdzv_turn_change(turn);
    for (uint32_t i = 0; i < turn->n_cards && turn->out->news != RDZV_FAILED; i++)
        rdzv_turn_follow_card(turn, &turn->cards[i]);
}

static void rdzv_turn_remove_dead(struct rdzv_turn *turn)
{
    const struct rdzv *rdzv = turn->rdzv;

    for (uint32_t i = 0; i < turn->state->n; i++) {
        const struct rdzv_node *node = &turn->state->nodes[i];
        const struct rdzv_peer *peer = rdzv_peer(rdzv, node->id);
        char why[RDZV_TEXT_MAX];

        if (!peer || !rdzv_is_dead(rdzv, peer) || !rdzv_state_find(rdzv_turn_now(turn), node->id))
            continue;
        if (peer->replaced)
            (void)snprintf(why, sizeof why, "%s was started again", node->name);
        else
            (void)snprintf(why, sizeof why, "%s sent no heartbeat for %g s", node->name,
                           (double)rdzv_silence(&rdzv->set) / (double)SECOND);
        rdzv_turn_change(turn);
        rdzv_state_remove(turn->next, node->id, why);
    }
}

/* By it alone who comes now knows that another one, whose card is there, is dead. */
static bool rdzv_turn_is_witness(const struct rdzv_turn *turn, const struct rdzv_card *card)
{
    const struct rdzv_peer *peer = card->replaces ? rdzv_peer(turn->rdzv, card->replaces) : NULL;

    return peer && peer->has_card;
}

/* What a dead one has left that is not taken into account any more. */
static void rdzv_turn_drop_card(struct rdzv_turn *turn)
{
    for (uint32_t i = 0; i < turn->n_cards && !turn->out->drops; i++) {
        const struct rdzv_peer *peer = rdzv_peer(turn->rdzv, turn->cards[i].id);

        if (peer && rdzv_is_dead(turn->rdzv, peer) &&
            !rdzv_turn_is_witness(turn, &turn->cards[i]) &&
            !rdzv_state_find(rdzv_turn_now(turn), peer->id)) {
            turn->out->drops = true;
            turn->out->dropped = peer->id;
        }
    }
}

static void rdzv_turn_let_in_others(struct rdzv_turn *turn)
{
    const struct rdzv_state *state = turn->state;
    struct rdzv_count count = rdzv_state_count(state);

    if (!state->complete || count.waiting == 0 || count.members >= state->rules.max || !turn->me ||
        !turn->me->member || (turn->changed && !turn->next->complete))
        return;
    rdzv_turn_change(turn);
    count = rdzv_state_count(turn->next);
    if (count.waiting > 0 && count.members < turn->next->rules.max)
        rdzv_state_open(turn->next, 0, "another node wants to join");
}

bool rdzv_last_call_is_over(const struct rdzv *rdzv)
{
    return rdzv->quorum_at != RDZV_NEVER && rdzv->clock - rdzv->quorum_at >= rdzv->set.last_call_ns;
}

/* The members that the quorum was of, and all of them ready. */
static void rdzv_turn_end_last_call(struct rdzv_turn *turn)
{
    struct rdzv *rdzv = turn->rdzv;
    const struct rdzv_state *now = rdzv_turn_now(turn);

    if (turn->state->complete || now->complete || !turn->me || !turn->me->member ||
        !rdzv_last_call_is_over(rdzv))
        return;
    struct rdzv_count count = rdzv_state_count(now);
    if (now->round != turn->state->round || count.members < now->rules.min ||
        count.ready < count.members)
        return;
    rdzv_turn_change(turn);
    rdzv_state_complete(turn->next);
}

/* ---- by what the node wants ----------------------------------------------------------------- */

static void rdzv_turn_say_late(const struct rdzv_turn *turn, struct dl_error *ret)
{
    const struct rdzv_settings *set = &turn->rdzv->set;
    const struct rdzv_state *state = turn->state;
    struct rdzv_count count = rdzv_state_count(state);

    if (count.members < state->rules.min)
        dl_error_set(ret, ETIMEDOUT, "rendezvous.timeouts.join",
                     "%" PRIu64 " s passed, and %u of at least %u nodes have joined",
                     set->join_ns / SECOND, count.members, state->rules.min);
    else
        dl_error_set(ret, ETIMEDOUT, "rendezvous.timeouts.join",
                     "%" PRIu64 " s passed, and round %" PRIu64
                     " is not complete: %u of %u nodes are ready, %u wait",
                     set->join_ns / SECOND, state->round, count.ready, count.members,
                     count.waiting);
}

/* Too late: it leaves first, so that no round is made with it. */
static void rdzv_turn_give_up(struct rdzv_turn *turn)
{
    struct rdzv *rdzv = turn->rdzv;

    rdzv_turn_say_late(turn, &rdzv->failure);
    assert(rdzv->want == RDZV_WANT_IN && rdzv->failure.code);
    rdzv->want = RDZV_WANT_OUT;
    rdzv->deadline = rdzv->clock + RDZV_ROLLBACK_NS;
    rdzv->look_at = rdzv->clock;
    if (!turn->me) {
        turn->out->error = rdzv->failure;
        rdzv_finish(rdzv, turn->out, RDZV_FAILED);
    }
}

/* All places are taken: a node that waits does so as long as it takes. */
static bool rdzv_turn_is_full(const struct rdzv_state *state)
{
    return state->complete && rdzv_state_count(state).members >= state->rules.max;
}

static void rdzv_turn_others_rules(struct rdzv_turn *turn)
{
    const struct rdzv_rules mine = rdzv_rules_of(&turn->rdzv->set), *theirs = &turn->state->rules;
    struct dl_error *err = &turn->out->error;

    if (mine.min != theirs->min || mine.max != theirs->max)
        dl_error_set(err, EINVAL, "rendezvous.nodes",
                     "%u to %u, but the other nodes have %u to %u; write the same on all nodes, or "
                     "choose another rendezvous.id",
                     mine.min, mine.max, theirs->min, theirs->max);
    else
        dl_error_set(err, EINVAL, "rendezvous.heartbeat",
                     "interval %g s and missed %u, but the other nodes have %g s and %u; write the "
                     "same on all nodes, or choose another rendezvous.id",
                     (double)mine.beat_ns / (double)SECOND, mine.missed,
                     (double)theirs->beat_ns / (double)SECOND, theirs->missed);
    rdzv_finish(turn->rdzv, turn->out, RDZV_FAILED);
}

static void rdzv_turn_say_closed(const struct rdzv_turn *turn)
{
    dl_error_set(&turn->out->error, ECANCELED, "rendezvous.id", "is closed: %s; choose another",
                 turn->state->closed);
}

/* The changes of a state that this node is, or wants to be, in: those of the table, in its order.
 */
static void rdzv_turn_improve(struct rdzv_turn *turn)
{
    struct rdzv *rdzv = turn->rdzv;

    if (rdzv_turn_is_stale(turn)) {
        rdzv_turn_change(turn);
        rdzv_state_open(turn->next, rdzv->round, "the store does not know the latest round");
    }
    rdzv_turn_follow_cards(turn);
    if (turn->out->news == RDZV_FAILED) {
        turn->changed = false;
        return;
    }
    rdzv_turn_remove_dead(turn);
    rdzv_turn_let_in_others(turn);
    if (turn->changed)
        rdzv_state_settle(turn->next);
    rdzv_turn_end_last_call(turn);
    if (!turn->changed)
        rdzv_turn_drop_card(turn);
}

/* The store holds nothing: it is new, or lost what it had. What all had agreed on is put back. */
static void rdzv_turn_restore(struct rdzv_turn *turn)
{
    struct rdzv *rdzv = turn->rdzv;
    const struct rdzv_state *last = turn->last;
    bool mine = rdzv->present && last && rdzv_state_find(last, rdzv->self.id) &&
                (!rdzv->in_round || last->stamp == rdzv->stamp);

    rdzv_turn_begin(turn, mine ? last : NULL);
    if (!mine && rdzv->any)
        rdzv_state_open(turn->next, rdzv->round, "the store has lost its state");
    if (mine)
        return;
    rdzv_turn_follow_cards(turn);
    rdzv_state_settle(turn->next);
}

static void rdzv_turn_seen_in(struct rdzv_turn *turn)
{
    struct rdzv *rdzv = turn->rdzv;
    const struct rdzv_state *state = turn->state;
    const struct rdzv_rules mine = rdzv_rules_of(&rdzv->set);
    struct rdzv_out *out = turn->out;

    if (!state) {
        if (turn->looked)
            rdzv_turn_restore(turn);
        return;
    }
    if (state->closed[0]) {
        rdzv_turn_say_closed(turn);
        rdzv_finish(rdzv, out, RDZV_CLOSED);
        return;
    }
    if (state->n > 0 && !rdzv_rules_same(&state->rules, &mine)) {
        rdzv_turn_others_rules(turn);
        return;
    }
    rdzv_turn_notice_end(turn);
    rdzv_turn_notice_quorum(rdzv, state);
    bool member = state->complete && turn->me && turn->me->member && !rdzv_turn_is_stale(turn);
    if (member && !rdzv->in_round)
        rdzv_turn_notice_round(turn);
    else if (member && rdzv->unlisted)
        out->news = RDZV_ROUND;
    rdzv->unlisted = false;
    if (!member && rdzv_turn_is_full(state) && rdzv->self.ready)
        rdzv->deadline = rdzv->clock + rdzv->set.join_ns;
    if (!member && rdzv->clock > rdzv->deadline)
        rdzv_turn_give_up(turn);
    else if (turn->looked)
        rdzv_turn_improve(turn);
}

static void rdzv_turn_seen_out(struct rdzv_turn *turn)
{
    struct rdzv *rdzv = turn->rdzv;

    if (!turn->me || turn->state->closed[0]) {
        turn->out->error = rdzv->failure;
        rdzv_finish(rdzv, turn->out, rdzv->failure.code ? RDZV_FAILED : RDZV_LEFT);
        return;
    }
    if (!turn->looked)
        return;
    for (uint32_t i = 0; i < turn->n_cards; i++) {
        const struct rdzv_card *card = &turn->cards[i];
        const struct rdzv_node *node = rdzv_state_find(rdzv_turn_now(turn), card->id);

        if (node && node->life == card->life && !card->in)
            rdzv_turn_take_out(turn, card->id, card->name);
    }
    if (rdzv_state_find(rdzv_turn_now(turn), rdzv->self.id)) /* its card may be lost */
        rdzv_turn_take_out(turn, rdzv->self.id, rdzv->self.name);
}

static void rdzv_turn_seen_closed(struct rdzv_turn *turn)
{
    struct rdzv *rdzv = turn->rdzv;

    if (turn->state && turn->state->closed[0]) {
        rdzv_turn_say_closed(turn);
        rdzv_finish(rdzv, turn->out, RDZV_CLOSED);
        return;
    }
    rdzv_turn_change(turn);
    memcpy(turn->next->closed, rdzv->reason, sizeof rdzv->reason);
}

void rdzv_turn_write_again(struct rdzv_turn *turn)
{
    rdzv_turn_change(turn);
}

/* Who has not looked at the cards leaves the format; a first state without them is for all. */
static void rdzv_turn_choose_format(struct rdzv_turn *turn)
{
    const struct rdzv *rdzv = turn->rdzv;
    uint32_t before = turn->next->format;

    if (turn->looked)
        turn->next->format =
            rdzv_format_choose(&rdzv->formats, before, turn->next, turn->cards, turn->n_cards);
    else if (before == 0)
        turn->next->format = rdzv->formats.least;
}

void rdzv_turn(struct rdzv_turn *turn)
{
    assert(!turn->changed && turn->out->store == RDZV_NOTHING);
    if (turn->looked)
        turn->formats =
            rdzv_formats_of(&turn->rdzv->formats, turn->state, turn->cards, turn->n_cards);
    switch (turn->rdzv->want) {
    case RDZV_WANT_IN:
        rdzv_turn_seen_in(turn);
        break;
    case RDZV_WANT_OUT:
        rdzv_turn_seen_out(turn);
        break;
    case RDZV_WANT_CLOSED:
        rdzv_turn_seen_closed(turn);
        break;
    case RDZV_WANT_NOTHING:
        break;
    }
    if (turn->changed)
        rdzv_turn_choose_format(turn);
}
