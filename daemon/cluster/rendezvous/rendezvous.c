#include "daemon/cluster/rendezvous/rendezvous.h"

#include "daemon/cluster/rendezvous/rendezvous_turn.h"
#include "daemon/cluster/rendezvous/rendezvous_watch.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

#define SECOND ((uint64_t)1000000000)

/* One whose write was lost lets others go first. Among many, what is read at once by all is read
 * over some time. */
static const uint64_t RETRY_NS = SECOND / 250, CROWD_NS = SECOND / 1000;
enum { RETRY_SHIFT_MAX = 8 };

/* When a run begins, a few nodes look first: for a slot, or for some calls of a store that is slow
 * because all come at once, the others wait until what these saw is written. */
static const uint64_t FIRST_SLOT_NS = SECOND / 50;
enum { FIRST_SLOT_CALLS = 4, RETRY_CALLS = 2 };

/* Nodes that read each change of a state that does not concern them; more go by its head. */
enum { RDZV_READERS = RDZV_LISTED_MAX };

/* While nodes gather, the state changes, and all of them read it: where they are many, one change
 * takes a poll_ns for each NODES_A_CHANGE of them. */
enum { NODES_A_CHANGE = 256 };

/* A list that did not come in time was one of many: it takes longer to be asked for again. */
enum { LOOK_AGAIN = 8 };

void rdzv_init(struct rdzv *rdzv, const struct rdzv_settings *settings,
               const struct rdzv_node *self, bool polls)
{
    *rdzv = (struct rdzv){.set = *settings,
                          .self = *self,
                          .formats = RDZV_FORMATS,
                          .polls = polls,
                          .deadline = RDZV_NEVER,
                          .quorum_at = RDZV_NEVER,
                          .peek_at = RDZV_NEVER,
                          .post_at = RDZV_NEVER,
                          .read_at = RDZV_NEVER,
                          .skim_at = RDZV_NEVER,
                          .find_at = RDZV_NEVER,
                          .look_at = RDZV_NEVER,
                          .blind = true};
    rdzv->self.rank = RDZV_NO_RANK;
}

void rdzv_deinit(struct rdzv *rdzv)
{
    free(rdzv->peers);
    *rdzv = (struct rdzv){0};
}

/* 3/4 to 5/4 of it. */
static uint64_t rdzv_about(struct rdzv *rdzv, uint64_t ns)
{
    return ns * 3 / 4 + rdzv_draw(rdzv) % (ns / 2 + 1);
}

static uint64_t rdzv_within(struct rdzv *rdzv, uint64_t ns)
{
    return rdzv_draw(rdzv) % (ns + 1);
}

static void rdzv_sooner(uint64_t *at, uint64_t when)
{
    *at = min_u64(*at, when);
}

/* A round after all that this node knows is open: for many, the head is enough to say so. */
static bool rdzv_is_opened_by_head(const struct rdzv *rdzv)
{
    const struct rdzv_head *head = &rdzv->head;

    return rdzv->any && rdzv->has_head && !head->complete && !head->closed &&
           head->n > RDZV_READERS && head->round > rdzv->round &&
           !(rdzv->has_read && rdzv->read_round >= head->round);
}

/* ---- the own card --------------------------------------------------------------------------- */

/* As it should be in the store. */
static struct rdzv_card rdzv_card_of(const struct rdzv *rdzv)
{
    const struct rdzv_rules rules = rdzv_rules_of(&rdzv->set);
    struct rdzv_card card = {.id = rdzv->self.id,
                             .life = rdzv->self.life,
                             .in = rdzv->want == RDZV_WANT_IN,
                             .ready = rdzv->self.ready,
                             .rules = rdzv_rules_hash(&rules),
                             .local = rdzv->self.local,
                             .formats = rdzv->formats,
                             .replaces = rdzv->replaces};
    bool may_be_in = rdzv->any || rdzv->present;

    /* By what was read: a head can be one that was left behind, unless it is of a later round. A
     * stamp is that of a complete one. */
    if (rdzv->self.ready && !rdzv->in_round && may_be_in && rdzv->has_read && rdzv->read_stamp == 0)
        card.ready_for = rdzv->read_round + 1;
    if (rdzv->self.ready && !rdzv->in_round && rdzv_is_opened_by_head(rdzv))
        card.ready_for = rdzv->head.round + 1;
    memcpy(card.name, rdzv->self.name, sizeof card.name);
    return card;
}

/* What there is says that this node has no place in it; why, it has to read. */
static bool rdzv_is_refused(const struct rdzv *rdzv)
{
    const struct rdzv_rules mine = rdzv_rules_of(&rdzv->set);
    const struct rdzv_head *head = &rdzv->head;

    return rdzv->has_head &&
           (head->closed || (head->n > 0 && !rdzv_rules_same(&head->rules, &mine)));
}

static bool rdzv_card_is_due(const struct rdzv *rdzv)
{
    const struct rdzv_card card = rdzv_card_of(rdzv), *old = &rdzv->card;

    if (rdzv->want != RDZV_WANT_IN)
        return rdzv->want == RDZV_WANT_OUT && rdzv->has_card && old->in;
    if (!rdzv->has_card && rdzv_is_refused(rdzv))
        return false;
    return !rdzv->has_card || card.life != old->life || !old->in || card.ready != old->ready ||
           card.ready_for != old->ready_for || rdzv->clock >= rdzv->post_at;
}

/* ---- when to look --------------------------------------------------------------------------- */

/* It is in the state that was read last, as far back as its place says. */
static bool rdzv_is_placed(const struct rdzv *rdzv)
{
    return rdzv->place < rdzv->n_nodes;
}

/* Between two looks: the further back, the longer; but of few nodes none waits long. */
static uint64_t rdzv_look_period(const struct rdzv *rdzv)
{
    uint64_t place = rdzv_is_placed(rdzv) ? rdzv->place : rdzv->queue, n = rdzv->n_nodes;
    bool open = !(rdzv->has_head && rdzv->head.complete);
    uint64_t poll = rdzv->set.poll_ns;

    if (open)
        poll = max_u64(poll / 4, n * poll / 250);
    if (rdzv->suspects)
        return poll;
    /* Who is in no round has more to ask for. */
    uint64_t longest = 2 * rdzv->set.beat_ns * max_u64(1, n / (rdzv->in_round ? 8 : RDZV_READERS));
    return min_u64(poll * max_u64(1, place * place / 4), longest);
}

static bool rdzv_is_in_front(const struct rdzv *rdzv)
{
    return rdzv_is_placed(rdzv) && rdzv->place < RDZV_FRONT;
}

static void rdzv_plan_look(struct rdzv *rdzv)
{
    uint64_t at = rdzv->clock + rdzv_about(rdzv, rdzv_look_period(rdzv));

    if (rdzv->want == RDZV_WANT_OUT) /* of those who leave together one does it for all */
        at = rdzv->clock + rdzv_within(rdzv, rdzv->n_nodes * CROWD_NS);

    if (rdzv->quorum_at != RDZV_NEVER && !rdzv_last_call_is_over(rdzv) && rdzv_is_in_front(rdzv))
        at = min_u64(at, rdzv->quorum_at + rdzv->set.last_call_ns);
    rdzv->look_at = max_u64(at, rdzv->clock);
}

void rdzv_go_by_places(struct rdzv *rdzv)
{
    rdzv->finds = true;
}

void rdzv_want_list(struct rdzv *rdzv)
{
    if (rdzv->wants_list)
        return;
    rdzv->wants_list = true;
    if (rdzv->want == RDZV_WANT_IN && (rdzv->unlisted || rdzv->find_at != RDZV_NEVER))
        rdzv_sooner(&rdzv->read_at, rdzv->clock);
    rdzv->find_at = RDZV_NEVER;
}

void rdzv_look_soon(struct rdzv *rdzv)
{
    if (rdzv->want == RDZV_WANT_IN)
        rdzv_sooner(&rdzv->look_at, rdzv->clock);
}

/* Of writes that were lost one after another, the next waits: the longer, the more there were. */
static uint64_t rdzv_retry_at(struct rdzv *rdzv)
{
    unsigned shift = rdzv->lost < RETRY_SHIFT_MAX ? rdzv->lost : RETRY_SHIFT_MAX;

    return rdzv->clock + rdzv_draw(rdzv) % max_u64(RETRY_NS << shift, RETRY_CALLS * rdzv->latency);
}

/* ---- what the store says -------------------------------------------------------------------- */

/* Of many, or where many are to come, those in front read each change, as they look at the cards;
 * others when it concerns them. Where the head does not say who is in front, all do, in their
 * turn. */
static bool rdzv_says_front(const struct rdzv_head *head)
{
    return head->front[RDZV_FRONT - 1] > 0;
}

static bool rdzv_is_reader(const struct rdzv *rdzv)
{
    const struct rdzv_head *head = &rdzv->head;

    return max_u64(head->n, rdzv->set.min) <= RDZV_READERS || !rdzv_says_front(head) ||
           rdzv_head_is_in_front(head, rdzv->self.id);
}

static bool rdzv_goes_by_place(const struct rdzv *rdzv)
{
    const struct rdzv_head *head = &rdzv->head;

    return rdzv->finds && !rdzv->wants_list && rdzv_pages(head->members) > 0 && rdzv->has_card &&
           rdzv->self.ready && !rdzv_head_is_in_front(head, rdzv->self.id) &&
           !rdzv_is_refused(rdzv);
}

/* A state that concerns this node is read soon: one by which its round is over, or another is
 * complete. Other states are read by only as many nodes as the store can bear. */
static void rdzv_plan_read(struct rdzv *rdzv)
{
    const struct rdzv_head *head = &rdzv->head;
    uint64_t crowd = head->n * CROWD_NS, poll = rdzv->set.poll_ns;

    rdzv->skim_at = rdzv_is_reader(rdzv) ? rdzv->skim_at : RDZV_NEVER;
    if (rdzv->has_read && rdzv->read_nonce == head->nonce)
        return;
    bool over = rdzv->in_round &&
                !(head->complete && head->round == rdzv->round && head->stamp == rdzv->stamp);
    bool complete =
        !rdzv->in_round && head->complete &&
        !(rdzv->has_read && rdzv->read_round == head->round && rdzv->read_stamp == head->stamp);
    if (complete && rdzv_goes_by_place(rdzv))
        rdzv_sooner(&rdzv->find_at, rdzv->clock + rdzv_within(rdzv, min_u64(crowd, 2 * poll)));
    else if (over || complete || rdzv_is_refused(rdzv))
        rdzv_sooner(&rdzv->read_at, rdzv->clock + rdzv_within(rdzv, min_u64(crowd, 2 * poll)));
    else if (rdzv->has_card && rdzv_is_reader(rdzv))
        rdzv_sooner(&rdzv->skim_at,
                    rdzv->clock +
                        (poll / 8 + rdzv_within(rdzv, poll / 4)) *
                            (rdzv_says_front(head) ? 1 : max_u64(1, head->n / RDZV_READERS)));
}

/* Half of all draw the last of some slots, a quarter the one before it, and so on: of however many
 * there are one or two draw the first one that anybody draws. There are slots enough for as many
 * nodes as can be; where fewer come the first ones are empty. */
static uint64_t rdzv_first_look(struct rdzv *rdzv)
{
    uint64_t calls = min_u64(FIRST_SLOT_CALLS * rdzv->latency, rdzv->set.poll_ns);
    uint64_t slot = max_u64(FIRST_SLOT_NS, max_u64(calls, rdzv->latency));
    uint64_t slots = 0, drawn = rdzv_draw(rdzv), before = 0;

    while (rdzv->set.max >> slots > 1)
        slots++;
    while (before < slots && drawn >> before & 1)
        before++;
    return (slots - before) * slot + rdzv_within(rdzv, slot);
}

/* Nobody is there: the run is new, or the store lost it. A node in front sees to it. */
static void rdzv_plan_begin(struct rdzv *rdzv, bool lost)
{
    uint64_t poll = rdzv->set.poll_ns;

    if (rdzv->present)
        rdzv_sooner(&rdzv->look_at, rdzv->clock + rdzv_within(rdzv, poll / 4) +
                                        min_u64(rdzv->place, 512) * (poll / 8));
    else if (rdzv->has_card && (lost || rdzv->look_at == RDZV_NEVER))
        rdzv_sooner(&rdzv->look_at, rdzv->clock + rdzv_first_look(rdzv));
}

/* Those who are in let this node in; it looks itself if they do not, of many after longer. */
static uint64_t rdzv_patience(struct rdzv *rdzv)
{
    uint64_t crowd = max_u64(rdzv->head.n, rdzv->set.min) / (2 * RDZV_READERS);
    uint64_t poll = rdzv->set.poll_ns * max_u64(1, crowd);

    return 2 * poll + rdzv_within(rdzv, 2 * poll);
}

/* The state has no members: a node that comes is the first. */
static bool rdzv_is_empty(const struct rdzv *rdzv)
{
    return !rdzv->has_head || (rdzv->head.n == 0 && !rdzv->head.closed);
}

static void rdzv_notice_opened(struct rdzv *rdzv, struct rdzv_out *out)
{
    if (!rdzv->in_round || !rdzv_is_opened_by_head(rdzv))
        return;
    rdzv->in_round = rdzv->unlisted = rdzv->self.ready = false;
    rdzv->deadline = RDZV_NEVER; /* until the owner is ready */
    out->news = RDZV_OPENED;
    out->why = rdzv->head.why;
}

static void rdzv_on_head(struct rdzv *rdzv, const struct rdzv_head *head, struct rdzv_out *out)
{
    bool had = !rdzv_is_empty(rdzv), is_new = head && head->nonce != rdzv->told_nonce;

    rdzv->has_head = head != NULL;
    rdzv->has_news = true;
    rdzv->told_at = rdzv->clock;
    rdzv->peek_at = RDZV_NEVER;
    if (head) {
        rdzv->head = *head;
        rdzv->told_nonce = head->nonce;
    }
    if (rdzv->want != RDZV_WANT_IN)
        return;
    if (rdzv->polls)
        rdzv->peek_at = rdzv->clock + rdzv_about(rdzv, rdzv->set.poll_ns);
    if (!head || (rdzv_is_empty(rdzv) && !rdzv->present)) {
        rdzv_plan_begin(rdzv, had);
        return;
    }
    rdzv_notice_opened(rdzv, out);
    rdzv_plan_read(rdzv);
    if (!had && is_new && !rdzv->present) /* left behind by a node that is gone: it comes again */
        rdzv->look_at = rdzv->clock + rdzv_patience(rdzv);
}

/* What was read is what there is, unless a head came in between. */
static void rdzv_note_head_of(struct rdzv *rdzv, const struct rdzv_state *state)
{
    if (rdzv->has_news) {
        if (rdzv->has_head && rdzv->want == RDZV_WANT_IN)
            rdzv_plan_read(rdzv);
        return;
    }
    rdzv->has_head = true;
    rdzv->head = (struct rdzv_head){.nonce = state->nonce,
                                    .round = state->round,
                                    .stamp = state->stamp,
                                    .complete = state->complete,
                                    .closed = state->closed[0],
                                    .n = state->n,
                                    .members = rdzv_state_count(state).members,
                                    .rules = state->rules};
    rdzv_state_front(state, rdzv->head.front);
}

static void rdzv_note_read(struct rdzv *rdzv, const struct rdzv_state *state)
{
    bool was_in = rdzv_is_placed(rdzv), was_in_front = rdzv_is_in_front(rdzv);

    rdzv->read_at = rdzv->skim_at = RDZV_NEVER;
    rdzv->has_read = state != NULL;
    rdzv->n_nodes = state ? state->n : 0;
    rdzv->place = rdzv->n_nodes;
    if (!state)
        return;
    if (rdzv->read_nonce != state->nonce)
        rdzv->changed_at = rdzv->clock;
    rdzv->read_nonce = state->nonce;
    rdzv->read_round = state->round;
    rdzv->read_stamp = state->stamp;
    rdzv_note_head_of(rdzv, state);
    if (rdzv_state_find(state, rdzv->self.id))
        rdzv->place = rdzv_state_place_of(state, rdzv->self.id);
    if (rdzv_is_placed(rdzv) && (!was_in || (!was_in_front && rdzv_is_in_front(rdzv))))
        rdzv_plan_look(rdzv);
}

static void rdzv_take_turn(struct rdzv *rdzv, struct rdzv_turn *turn)
{
    if (turn->state)
        turn->me = rdzv_state_find(turn->state, rdzv->self.id);
    if (turn->me && turn->me->life != rdzv->self.life)
        turn->me = NULL;
    rdzv_turn(turn);
    turn->changed &= rdzv->want != RDZV_WANT_NOTHING;
    if (turn->changed) {
        assert(turn->next->writer == rdzv->self.id && turn->next != turn->state);
        rdzv_state_settle(turn->next);
        turn->out->store = RDZV_WRITE;
    }
}

/* When many nodes come, only the first of them changes the state. */
static bool rdzv_yields(const struct rdzv *rdzv)
{
    return rdzv->want == RDZV_WANT_IN && rdzv->n_peers > RDZV_READERS && !rdzv_is_in_front(rdzv);
}

static void rdzv_yield(struct rdzv *rdzv)
{
    if (rdzv_is_placed(rdzv))
        rdzv_plan_look(rdzv);
    else
        rdzv->look_at = rdzv->clock + rdzv_patience(rdzv);
}

/* The one that it replaces is in what was read: of few, or where that one was in front, this node
 * sees to it. Among many those in front do, who may have died as well. */
static bool rdzv_sees_replaced(const struct rdzv *rdzv, const struct rdzv_state *state)
{
    return rdzv->want == RDZV_WANT_IN && rdzv->replaces != 0 &&
           rdzv_state_find(state, rdzv->replaces) &&
           (state->n <= RDZV_READERS || rdzv_state_place_of(state, rdzv->replaces) < RDZV_FRONT);
}

/* After a state that was read, or written, when to look. */
static void rdzv_plan_after(struct rdzv *rdzv, const struct rdzv_turn *turn, bool lost)
{
    uint64_t poll = rdzv->set.poll_ns, clock = rdzv->clock;

    if (lost && rdzv_yields(rdzv))
        rdzv_yield(rdzv);
    else if (lost)
        rdzv->look_at = rdzv->lost > 1 ? rdzv_retry_at(rdzv) : clock;
    else if (rdzv->again)
        rdzv->look_at = clock;
    else if (rdzv->want == RDZV_WANT_OUT)
        rdzv_plan_look(rdzv);
    else if (turn->state && rdzv_sees_replaced(rdzv, turn->state))
        rdzv_sooner(&rdzv->look_at, clock);
    else if (turn->state && rdzv_turn_is_stale(turn))
        rdzv_sooner(&rdzv->look_at, clock + rdzv_within(rdzv, poll / 4));
    else if (turn->state && !rdzv_is_placed(rdzv) && rdzv->look_at <= clock)
        rdzv->look_at = clock + rdzv_within(rdzv, poll * max_u64(1, rdzv->n_nodes / RDZV_READERS));
    else if (turn->state && !rdzv_is_placed(rdzv))
        rdzv_sooner(&rdzv->look_at, clock + rdzv_patience(rdzv));
}

static void rdzv_on_seen(struct rdzv *rdzv, const struct rdzv_event *event, struct rdzv_state *next,
                         struct rdzv_out *out)
{
    struct rdzv_turn turn = {
        .rdzv = rdzv, .state = event->state, .last = event->last, .next = next, .out = out};
    bool lost = rdzv->doing == RDZV_WRITE && !event->won;

    if (rdzv->doing == RDZV_WRITE)
        rdzv->lost = lost ? rdzv->lost + 1 : 0;
    rdzv->unreadable.code = 0;
    rdzv_note_read(rdzv, event->state);
    rdzv_take_turn(rdzv, &turn);
    if (out->store == RDZV_WRITE && rdzv->lost > 1) { /* of one that closes */
        out->store = RDZV_NOTHING;
        rdzv->read_at = rdzv_retry_at(rdzv);
    } else if (rdzv->want != RDZV_WANT_NOTHING && rdzv->want != RDZV_WANT_CLOSED) {
        if (out->news == RDZV_ROUND)
            rdzv_plan_look(rdzv);
        rdzv_plan_after(rdzv, &turn, lost);
    }
}

static bool rdzv_is_what_was_read(const struct rdzv *rdzv, const struct rdzv_event *event)
{
    if (!event->head)
        return !event->state;
    return event->state && rdzv->has_read && rdzv->read_nonce == event->head->nonce;
}

/* What the page says is what the state would, if it is of the round that the head tells of. */
static bool rdzv_is_found(const struct rdzv *rdzv, const struct rdzv_found *found)
{
    const struct rdzv_head *head = &rdzv->head;

    return found && rdzv->has_head && head->complete && !head->closed &&
           found->stamp == head->stamp && found->life == rdzv->self.life && rdzv->self.ready &&
           !rdzv->in_round && !(rdzv->any && head->round <= rdzv->round);
}

static void rdzv_on_found(struct rdzv *rdzv, const struct rdzv_found *found, struct rdzv_out *out)
{
    rdzv->find_at = RDZV_NEVER;
    if (!rdzv_is_found(rdzv, found)) {
        rdzv_sooner(&rdzv->read_at, rdzv->clock);
        return;
    }
    rdzv->in_round = rdzv->any = rdzv->present = rdzv->unlisted = true;
    rdzv->round = rdzv->head.round;
    rdzv->stamp = rdzv->head.stamp;
    rdzv->self.ready = false;
    rdzv->deadline = rdzv->quorum_at = RDZV_NEVER;
    rdzv->place = found->index;
    rdzv->n_nodes = max_u64(rdzv->head.n, found->index + 1);
    rdzv_plan_look(rdzv);
    if (rdzv->wants_list)
        rdzv->read_at = rdzv->clock;
    out->news = RDZV_PLACED;
    out->place = found->place;
}

/* How many wait in front of this one, to be let in. */
static void rdzv_note_queue(struct rdzv *rdzv, const struct rdzv_event *event)
{
    rdzv->queue = 0;
    for (uint32_t i = 0; i < event->n_cards && event->cards[i].id < rdzv->self.id; i++)
        rdzv->queue += !event->state || !rdzv_state_find(event->state, event->cards[i].id);
}

/* All nodes that gather read each change of an open round: where they are many, those that come one
 * after the other are let in together, unless they are the last. */
static bool rdzv_can_wait(const struct rdzv *rdzv, const struct rdzv_turn *turn)
{
    const struct rdzv_state *now = turn->state, *next = turn->next;

    return rdzv->want == RDZV_WANT_IN && turn->changed && now && !now->complete &&
           !next->complete && next->round == now->round && next->n >= now->n &&
           now->n > RDZV_READERS &&
           rdzv->clock - rdzv->changed_at < now->n * rdzv->set.poll_ns / NODES_A_CHANGE;
}

/* The cards are no older than the state: it can be changed on their grounds. A head that differs
 * again is one that was left behind, and is written anew with the state. */
static void rdzv_on_looked(struct rdzv *rdzv, const struct rdzv_event *event,
                           struct rdzv_state *next, struct rdzv_out *out)
{
    struct rdzv_turn turn = {.rdzv = rdzv,
                             .state = event->state,
                             .last = event->last,
                             .looked = true,
                             .cards = event->cards,
                             .n_cards = event->n_cards,
                             .next = next,
                             .out = out};
    bool again = rdzv->again;

    rdzv_on_head(rdzv, event->head, out);
    rdzv_watch(rdzv, event->state, event->cards, event->n_cards);
    rdzv_note_queue(rdzv, event);
    rdzv->look_at = RDZV_NEVER;
    if (rdzv->unreadable.code) {
        rdzv_unreadable_looked(rdzv, event->cards, event->n_cards, out);
        return;
    }
    rdzv->again = !again && !rdzv_is_what_was_read(rdzv, event);
    if (rdzv->again) {
        rdzv->read_at = rdzv->clock;
        return;
    }
    rdzv_take_turn(rdzv, &turn);
    if (rdzv->want == RDZV_WANT_NOTHING)
        return;
    if (rdzv_can_wait(rdzv, &turn)) {
        turn.changed = false;
        out->store = RDZV_NOTHING;
    }
    if (!turn.changed)
        rdzv->lost = 0;
    if (again && !turn.changed && event->state && !rdzv_is_what_was_read(rdzv, event)) {
        rdzv_turn_write_again(&turn);
        out->store = RDZV_WRITE;
    }
    rdzv_plan_look(rdzv);
}

/* The time to join, leave or close is over, and the store is of no help. */
static void rdzv_check_deadline(struct rdzv *rdzv, struct rdzv_out *out)
{
    static const char *const settings[] = {"rendezvous", "rendezvous.timeouts.join",
                                           "rendezvous.timeouts.close",
                                           "rendezvous.timeouts.close"};
    uint64_t late = rdzv->want == RDZV_WANT_IN ? RDZV_ROLLBACK_NS : 0;

    if (rdzv->deadline == RDZV_NEVER || rdzv->clock <= rdzv->deadline)
        return;
    if (rdzv->want == RDZV_WANT_IN) /* what is there says why */
        rdzv_sooner(&rdzv->read_at, rdzv->asked + rdzv->set.poll_ns / 4);
    if (rdzv->clock <= rdzv->deadline + late)
        return;
    if (rdzv->failure.code)
        out->error = rdzv->failure;
    else if (rdzv->unreadable.code)
        out->error = rdzv->unreadable;
    else
        dl_error_set(&out->error, ETIMEDOUT, settings[rdzv->want], "is over: %s",
                     rdzv->trouble.code ? rdzv->trouble.message : "the store did not answer");
    rdzv_finish(rdzv, out, RDZV_FAILED);
}

/* It is asked again, but not by many all the time. */
static void rdzv_on_failing(struct rdzv *rdzv, const struct rdzv_event *event, struct rdzv_out *out)
{
    uint64_t pause = rdzv->set.poll_ns / 4 << (rdzv->failures < 3 ? rdzv->failures : 3);
    int code = event->error->code;

    if (code == EPROTONOSUPPORT && rdzv->want != RDZV_WANT_CLOSED) {
        rdzv_unreadable_begin(rdzv, event->error, out);
        return;
    }
    rdzv->trouble = *event->error;
    rdzv_watch_failed(rdzv);
    rdzv->failures++;
    rdzv->again = false;
    rdzv->not_before =
        rdzv->clock + rdzv_about(rdzv, min_u64(pause, rdzv->set.beat_ns)) +
        rdzv_within(rdzv, (rdzv->doing == RDZV_LOOK ? LOOK_AGAIN : 1) * rdzv->n_nodes * CROWD_NS);
    if (rdzv->doing == RDZV_READ)
        rdzv->read_at = rdzv->clock;
    else if (rdzv->doing == RDZV_FIND)
        rdzv->find_at = rdzv->clock;
    else if (rdzv->doing == RDZV_PEEK)
        rdzv->peek_at = rdzv->clock;
    else if (rdzv->doing != RDZV_POST)
        rdzv->look_at = rdzv->clock;
    else
        rdzv->post_at = rdzv->clock;
    if (rdzv->doing == RDZV_WRITE)
        rdzv->read_at = rdzv->clock; /* it may have been done */
    /* No time makes a state of what is none. */
    if ((code == EBADMSG || code == EPROTONOSUPPORT) && !rdzv->in_round) { /* also to close it */
        out->error = *event->error;
        rdzv_finish(rdzv, out, RDZV_FAILED);
    }
}

/* ---- what the owner wants ------------------------------------------------------------------- */

static void rdzv_on_request(struct rdzv *rdzv, enum rdzv_want want, uint64_t within)
{
    rdzv->want = want;
    rdzv->failure = (struct dl_error){0};
    rdzv->deadline = rdzv->clock + within;
    rdzv->read_at = rdzv->skim_at = rdzv->find_at = rdzv->look_at = rdzv->peek_at = RDZV_NEVER;
    *(want == RDZV_WANT_IN ? &rdzv->peek_at : &rdzv->read_at) = rdzv->clock;
}

/* Ready to be of a round. */
static void rdzv_on_ready(struct rdzv *rdzv)
{
    assert(rdzv->want == RDZV_WANT_IN);
    rdzv->self.ready = true;
    if (!rdzv->in_round)
        rdzv->deadline = rdzv->clock + rdzv->set.join_ns;
}

/* What was seen before is of a time when it was not in. */
static void rdzv_on_join(struct rdzv *rdzv)
{
    rdzv_on_request(rdzv, RDZV_WANT_IN, rdzv->set.join_ns);
    rdzv->has_head = rdzv->has_read = rdzv->again = rdzv->unlisted = false;
    rdzv->unreadable.code = 0;
    rdzv->told_nonce = 0;
    rdzv->post_at = RDZV_NEVER;
    rdzv->place = rdzv->n_nodes = rdzv->queue = 0;
    rdzv_on_ready(rdzv);
}

static void rdzv_on_owner(struct rdzv *rdzv, const struct rdzv_event *event, struct rdzv_out *out)
{
    bool is_in = rdzv->want == RDZV_WANT_IN;

    if (event->type == RDZV_JOIN && !is_in) {
        rdzv_on_join(rdzv);
    } else if (event->type == RDZV_JOIN || event->type == RDZV_READY) {
        if (is_in && !rdzv->in_round)
            rdzv_on_ready(rdzv);
    } else if (event->type == RDZV_CLOSE) {
        rdzv_on_request(rdzv, RDZV_WANT_CLOSED, rdzv->set.close_ns);
        (void)snprintf(rdzv->reason, sizeof rdzv->reason, "%s", event->reason);
    } else if (rdzv->want == RDZV_WANT_NOTHING) {
        rdzv_finish(rdzv, out, RDZV_LEFT);
    } else {
        rdzv_on_request(rdzv, RDZV_WANT_OUT, rdzv->set.close_ns);
    }
}

/* ---- events --------------------------------------------------------------------------------- */

static void rdzv_on_answer(struct rdzv *rdzv, const struct rdzv_event *event,
                           struct rdzv_state *next, struct rdzv_out *out)
{
    assert(rdzv->doing != RDZV_NOTHING);
    if (event->type != RDZV_FAILING) {
        rdzv->latency = max_u64(rdzv->clock - rdzv->asked, rdzv->latency / 2);
        rdzv->heard = rdzv->clock;
        rdzv->trouble.code = 0;
        rdzv->failures = 0;
        rdzv->not_before = 0;
    }
    if (rdzv->want == RDZV_WANT_NOTHING)
        ;
    else if (event->type == RDZV_FAILING)
        rdzv_on_failing(rdzv, event, out);
    else if (event->type == RDZV_HEAD)
        rdzv_on_head(rdzv, event->head, out);
    else if (event->type == RDZV_FOUND)
        rdzv_on_found(rdzv, event->found, out);
    else if (event->type == RDZV_SEEN)
        rdzv_on_seen(rdzv, event, next, out);
    else
        rdzv_on_looked(rdzv, event, next, out);
    rdzv->doing = RDZV_NOTHING;
}

static void rdzv_on_event(struct rdzv *rdzv, const struct rdzv_event *event,
                          struct rdzv_state *next, struct rdzv_out *out)
{
    switch (event->type) {
    case RDZV_HEAD:
    case RDZV_SEEN:
    case RDZV_FOUND:
    case RDZV_LOOKED:
    case RDZV_FAILING:
        rdzv_on_answer(rdzv, event, next, out);
        break;
    case RDZV_CHANGED:
        if (event->head)
            rdzv_on_head(rdzv, event->head, out);
        else if (rdzv->want == RDZV_WANT_IN)
            rdzv_sooner(&rdzv->peek_at, rdzv->clock + rdzv_within(rdzv, rdzv->set.poll_ns / 4));
        break;
    case RDZV_TICK:
        break;
    default:
        rdzv_on_owner(rdzv, event, out);
    }
    if (out->news == RDZV_NO_NEWS && out->store == RDZV_NOTHING)
        rdzv_check_deadline(rdzv, out);
}

/* All cards of many are not looked at for what somebody else may have done in the meantime. */
static bool rdzv_asks_first(const struct rdzv *rdzv)
{
    return rdzv->want == RDZV_WANT_IN && rdzv_is_empty(rdzv) && !rdzv->present &&
           rdzv->set.max > RDZV_READERS && rdzv->told_at < rdzv->clock;
}

/* What there is to be asked for now. */
static enum rdzv_do rdzv_next(const struct rdzv *rdzv)
{
    bool knows = rdzv->peek_at > rdzv->clock || rdzv->has_card;

    if (rdzv->clock < rdzv->not_before)
        return RDZV_NOTHING;
    if (knows && rdzv_card_is_due(rdzv))
        return RDZV_POST;
    if (rdzv->clock >= min_u64(rdzv->read_at, rdzv->skim_at))
        return RDZV_READ;
    if (rdzv->clock >= rdzv->find_at)
        return RDZV_FIND;
    if (rdzv->clock >= rdzv->look_at && rdzv_asks_first(rdzv))
        return RDZV_PEEK;
    if (rdzv->clock >= rdzv->look_at) {
        bool may_be_in = !rdzv_is_placed(rdzv) && rdzv->has_head && rdzv->want == RDZV_WANT_IN &&
                         !(rdzv->has_read && rdzv->read_nonce == rdzv->head.nonce);
        return may_be_in ? RDZV_READ : RDZV_LOOK;
    }
    return rdzv->clock >= rdzv->peek_at ? RDZV_PEEK : RDZV_NOTHING;
}

static uint64_t rdzv_next_at(const struct rdzv *rdzv)
{
    uint64_t read_at = min_u64(rdzv->read_at, rdzv->skim_at);
    uint64_t at = min_u64(min_u64(rdzv->peek_at, read_at), min_u64(rdzv->find_at, rdzv->look_at));

    if (rdzv->want == RDZV_WANT_IN)
        at = min_u64(at, rdzv->post_at);
    return max_u64(max_u64(at, rdzv->not_before), rdzv->clock);
}

static void rdzv_begin_asking(struct rdzv *rdzv, struct rdzv_out *out)
{
    assert(rdzv->doing == RDZV_NOTHING && rdzv->want != RDZV_WANT_NOTHING); /* one call at a time */
    rdzv->doing = out->store;
    rdzv->asked = rdzv->clock;
    rdzv->has_news = false;
    out->members = rdzv->head.members;
    if (out->store != RDZV_POST)
        return;
    uint64_t beat = rdzv->has_card && rdzv->card.life == rdzv->self.life ? rdzv->card.beat + 1 : 0;
    rdzv->card = rdzv_card_of(rdzv);
    rdzv->card.beat = beat;
    rdzv->has_card = true;
    rdzv->post_at = rdzv->clock + rdzv->set.beat_ns;
    out->card = rdzv->card;
}

void rdzv_step(struct rdzv *rdzv, const struct rdzv_event *event, struct rdzv_state *next,
               struct rdzv_out *out)
{
    *out = (struct rdzv_out){.wake = RDZV_NEVER};
    rdzv_pass_time(rdzv, event->now);
    rdzv_on_event(rdzv, event, next, out);
    if (rdzv->want == RDZV_WANT_NOTHING) {
        assert(!rdzv->in_round && !rdzv->has_card && out->store == RDZV_NOTHING);
        return;
    }
    if (out->store == RDZV_NOTHING && rdzv->doing == RDZV_NOTHING)
        out->store = rdzv_next(rdzv);
    if (out->store != RDZV_NOTHING)
        rdzv_begin_asking(rdzv, out);
    /* Also while the store is asked: time counts only while there are steps. */
    out->wake = event->now + rdzv->set.poll_ns;
    if (rdzv->doing == RDZV_NOTHING)
        out->wake = min_u64(out->wake, event->now + (rdzv_next_at(rdzv) - rdzv->clock));
}
