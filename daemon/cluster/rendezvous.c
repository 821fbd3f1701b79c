#include "daemon/cluster/rendezvous.h"

#include "daemon/cluster/rendezvous_watch.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define SECOND ((uint64_t)1000000000)
#define NEVER  UINT64_MAX

/* Joiners of a new run do not all come at once; one whose write was lost lets others go first. */
static const uint64_t FIRST_READ_NS = SECOND * 3 / 10, RETRY_NS = SECOND / 250;
enum { RETRY_SHIFT_MAX = 8 };

/* How long a node tries to take itself out of a round that was not complete in time. */
static const uint64_t ROLLBACK_NS = 5 * SECOND;

const struct rdzv_settings RDZV_DEFAULTS = {.min = 1,
                                            .max = 1,
                                            .missed = 3,
                                            .join_ns = 600 * SECOND,
                                            .last_call_ns = 30 * SECOND,
                                            .close_ns = 30 * SECOND,
                                            .beat_ns = 5 * SECOND,
                                            .poll_ns = SECOND};

int rdzv_settings_check(const struct rdzv_settings *settings, struct dl_error *err)
{
    if (settings->min < 1 || settings->min > settings->max || settings->max > RDZV_NODES_MAX)
        return dl_error_set(err, EINVAL, "rendezvous.nodes",
                            "%u to %u: must be from 1 to %d, the smaller number first",
                            settings->min, settings->max, RDZV_NODES_MAX);
    if (settings->missed < 2 || settings->missed > 1000)
        return dl_error_set(err, EINVAL, "rendezvous.heartbeat.missed",
                            "%u: must be 2 to 1000, or one late beat is a death", settings->missed);
    const uint64_t times[] = {settings->join_ns, settings->last_call_ns, settings->close_ns,
                              settings->beat_ns, settings->poll_ns};
    for (size_t i = 0; i < ARRAY_SIZE(times); i++)
        if (times[i] < SECOND / 1000 || times[i] > 30 * 86400 * SECOND)
            return dl_error_set(err, EINVAL, "rendezvous",
                                "a time of %" PRIu64 " ns: must be 1 ms to 30 days", times[i]);
    if (settings->poll_ns > settings->beat_ns)
        return dl_error_set(err, EINVAL, "rendezvous.poll",
                            "is longer than the time between two beats");
    return 0;
}

const char *rdzv_news_name(enum rdzv_news news)
{
    static const char *const names[] = {"none",   "round",  "opened", "evicted",
                                        "closed", "failed", "left"};
    return names[news];
}

void rdzv_init(struct rdzv *rdzv, const struct rdzv_settings *settings,
               const struct rdzv_node *self)
{
    *rdzv = (struct rdzv){
        .set = *settings, .self = *self, .deadline = NEVER, .quorum_at = NEVER, .blind = true};
    rdzv->self.rank = RDZV_NO_RANK;
}

void rdzv_deinit(struct rdzv *rdzv)
{
    free(rdzv->peers);
    *rdzv = (struct rdzv){0};
}

/* 3/4 to 5/4 of it. */
static uint64_t about(struct rdzv *rdzv, uint64_t ns)
{
    return ns * 3 / 4 + rdzv_draw(rdzv) % (ns / 2 + 1);
}

/* ---- a turn: one state that was seen, and what becomes of it -------------------------------- */

struct turn {
    struct rdzv *rdzv;
    const struct rdzv_event *event;
    const struct rdzv_state *state; /* NULL: there is none */
    const struct rdzv_node *me;     /* in it; NULL: not in this life */
    struct rdzv_state *next;
    bool changed; /* `next` is what shall be */
    struct rdzv_out *out;
};

/* The machine is out; it can be asked to join again. */
static void finish(struct rdzv *rdzv, struct rdzv_out *out, enum rdzv_news news)
{
    out->news = news;
    rdzv->want = RDZV_WANT_NOTHING;
    rdzv->in_round = rdzv->present = rdzv->self.ready = false;
    rdzv->deadline = rdzv->quorum_at = NEVER;
    rdzv->failure = (struct dl_error){0};
    rdzv->self.life++;
    rdzv_watch_none(rdzv);
    rdzv->blind = true;
}

/* From here on `next` is to be changed. */
static int begin(struct turn *turn, const struct rdzv_state *from)
{
    struct rdzv *rdzv = turn->rdzv;
    struct rdzv_state *next = turn->next;
    static const struct rdzv_state none;

    if (turn->changed)
        return 0;
    if (rdzv_state_copy(from ? from : &none, next) < 0)
        return -ENOMEM;
    if (next->n == 0 && !next->complete) {
        next->min = rdzv->set.min;
        next->max = rdzv->set.max;
    }
    next->seq++;
    next->writer = rdzv->self.id;
    next->nonce = rdzv_draw(rdzv);
    turn->changed = true;
    return 0;
}

static int change(struct turn *turn)
{
    return begin(turn, turn->state);
}

static struct rdzv_node *next_me(const struct turn *turn)
{
    struct rdzv_node *me = rdzv_state_find(turn->next, turn->rdzv->self.id);

    return me && me->life == turn->rdzv->self.life ? me : NULL;
}

/* ---- what a state says to this node --------------------------------------------------------- */

static bool is_my_round(const struct rdzv *rdzv, const struct rdzv_state *state)
{
    return rdzv->in_round && state->complete && state->round == rdzv->round &&
           state->stamp == rdzv->stamp;
}

/* The round that the owner works in is over: nobody here may go on with its ranks. */
static void notice_end(struct turn *turn)
{
    struct rdzv *rdzv = turn->rdzv;

    if (rdzv->in_round && !(turn->me && is_my_round(rdzv, turn->state))) {
        rdzv->in_round = rdzv->self.ready = false;
        rdzv->deadline = NEVER; /* until the owner is ready */
        turn->out->news = turn->me ? RDZV_OPENED : RDZV_EVICTED;
    }
    if (rdzv->present && !turn->me)
        rdzv->self.life++; /* what others say of the life that ended does not hold of this one */
    rdzv->present = turn->me != NULL;
}

static void notice_round(struct turn *turn)
{
    struct rdzv *rdzv = turn->rdzv;

    rdzv->in_round = rdzv->any = true;
    rdzv->round = turn->state->round;
    rdzv->stamp = turn->state->stamp;
    rdzv->self.ready = false;
    rdzv->deadline = NEVER;
    turn->out->news = RDZV_ROUND;
}

/* When the members that are there now became enough, by this node's watch. */
static void notice_quorum(struct rdzv *rdzv, const struct rdzv_state *state)
{
    if (state->complete || !state->enough) {
        rdzv->quorum_at = NEVER;
        return;
    }
    if (rdzv->quorum_at == NEVER || rdzv->quorum != state->quorum ||
        rdzv->open_round != state->round) {
        rdzv->quorum_at = rdzv->clock;
        rdzv->quorum = state->quorum;
        rdzv->open_round = state->round;
    }
}

/* It is of a time before one that this node knows, or says of it what it did not say: the store
 * was set back, or lost what it had. */
static bool is_stale(const struct turn *turn)
{
    const struct rdzv *rdzv = turn->rdzv;

    if (is_my_round(rdzv, turn->state))
        return false;
    return (rdzv->any && turn->state->round <= rdzv->round) ||
           (turn->state->complete && turn->me && turn->me->member && !rdzv->self.ready);
}

/* ---- what is done to it --------------------------------------------------------------------- */

static int add_self(struct turn *turn)
{
    struct rdzv_node self = turn->rdzv->self;
    int r = change(turn);

    if (r < 0)
        return r;
    if (rdzv_state_find(turn->next, self.id))
        rdzv_state_remove(turn->next, self.id, "a node came anew");
    struct rdzv_count count = rdzv_state_count(turn->next);
    self.member = !turn->next->complete && count.members < turn->next->max;
    self.beat = 0;
    return rdzv_state_add(turn->next, &self);
}

static int say_ready(struct turn *turn)
{
    int r = change(turn);

    if (r == 0) {
        struct rdzv_node *me = next_me(turn);

        me->ready = true;
        me->mark = turn->rdzv->self.mark;
    }
    return r;
}

static int remove_dead(struct turn *turn)
{
    for (uint32_t i = 0; i < turn->state->n; i++) {
        const struct rdzv_node *node = &turn->state->nodes[i];
        char why[RDZV_TEXT_MAX];

        if (!rdzv_is_dead(turn->rdzv, i) ||
            (turn->changed && !rdzv_state_find(turn->next, node->id)))
            continue;
        (void)snprintf(why, sizeof why, "%s gave no sign of life for %" PRIu64 " s", node->name,
                       turn->rdzv->set.missed * turn->rdzv->set.beat_ns / SECOND);
        int r = change(turn);
        if (r < 0)
            return r;
        rdzv_state_remove(turn->next, node->id, why);
    }
    return 0;
}

static int let_in_others(struct turn *turn)
{
    const struct rdzv_state *state = turn->state;
    struct rdzv_count count = rdzv_state_count(state);

    if (!state->complete || count.waiting == 0 || count.members >= state->max || !turn->me ||
        !turn->me->member || (turn->changed && !turn->next->complete))
        return 0;
    int r = change(turn);
    if (r < 0)
        return r;
    count = rdzv_state_count(turn->next);
    if (count.waiting > 0 && count.members < turn->next->max)
        rdzv_state_open(turn->next, 0, "another node wants in");
    return 0;
}

static bool last_call_is_over(const struct rdzv *rdzv)
{
    return rdzv->quorum_at != NEVER && rdzv->clock - rdzv->quorum_at >= rdzv->set.last_call_ns;
}

/* The members that the quorum was of, and all of them ready. */
static int end_last_call(struct turn *turn)
{
    struct rdzv *rdzv = turn->rdzv;
    const struct rdzv_state *now = turn->changed ? turn->next : turn->state;

    if (turn->state->complete || now->complete || !turn->me || !turn->me->member ||
        !last_call_is_over(rdzv))
        return 0;
    struct rdzv_count count = rdzv_state_count(now);
    if (now->round != turn->state->round || count.members < now->min || count.ready < count.members)
        return 0;
    int r = change(turn);
    if (r == 0)
        rdzv_state_complete(turn->next);
    return r;
}

/* Whatever is written counts the own beat up; and when nothing else is to be, a beat that is due.
 */
static int beat(struct turn *turn)
{
    struct rdzv *rdzv = turn->rdzv;
    int r = 0;

    if (turn->me && rdzv->clock - rdzv->beat_at >= rdzv->set.beat_ns)
        r = change(turn);
    if (r == 0 && turn->changed) {
        struct rdzv_node *me = next_me(turn);

        if (me)
            me->beat++;
    }
    return r;
}

/* ---- by what the node wants ----------------------------------------------------------------- */

static int too_many(struct turn *turn)
{
    dl_error_set(&turn->out->error, ENOSPC, "rendezvous",
                 "there are %u nodes already, as many as a rendezvous can hold", turn->state->n);
    turn->changed = false;
    finish(turn->rdzv, turn->out, RDZV_FAILED);
    return 0;
}

static void say_late(const struct turn *turn, struct dl_error *ret)
{
    const struct rdzv_settings *set = &turn->rdzv->set;
    const struct rdzv_state *state = turn->state;
    struct rdzv_count count = rdzv_state_count(state);

    if (count.members < state->min)
        dl_error_set(ret, ETIMEDOUT, "rendezvous.timeouts.join",
                     "%" PRIu64 " s are over, and %u of at least %u nodes are there",
                     set->join_ns / SECOND, count.members, state->min);
    else
        dl_error_set(ret, ETIMEDOUT, "rendezvous.timeouts.join",
                     "%" PRIu64 " s are over, and round %" PRIu64
                     " is not complete: %u of %u nodes are ready, %u wait",
                     set->join_ns / SECOND, state->round, count.ready, count.members,
                     count.waiting);
}

/* Too late: it takes itself out first, so that no round is made with it. */
static int give_up(struct turn *turn)
{
    struct rdzv *rdzv = turn->rdzv;

    say_late(turn, &rdzv->failure);
    rdzv->want = RDZV_WANT_OUT;
    rdzv->deadline = rdzv->clock + ROLLBACK_NS;
    if (!turn->me) {
        turn->out->error = rdzv->failure;
        finish(rdzv, turn->out, RDZV_FAILED);
        return 0;
    }
    int r = change(turn);
    if (r == 0)
        rdzv_state_remove(turn->next, rdzv->self.id, "a node's time to join was over");
    return r;
}

/* All places are taken: whoever waits does so as long as it takes. */
static bool is_full(const struct rdzv_state *state)
{
    return state->complete && rdzv_state_count(state).members >= state->max;
}

static int others_settings(struct turn *turn)
{
    const struct rdzv_settings *set = &turn->rdzv->set;

    dl_error_set(&turn->out->error, EINVAL, "rendezvous.nodes",
                 "%u to %u, and the nodes that are there have %u to %u; write the same everywhere, "
                 "or take another rendezvous.id",
                 set->min, set->max, turn->state->min, turn->state->max);
    finish(turn->rdzv, turn->out, RDZV_FAILED);
    return 0;
}

static void say_closed(const struct turn *turn)
{
    dl_error_set(&turn->out->error, ECANCELED, "rendezvous.id", "is closed: %s; take another",
                 turn->state->closed);
}

/* The changes of a state that this node is, or wants to be, in: those of the table, in its order.
 */
static int improve(struct turn *turn)
{
    struct rdzv *rdzv = turn->rdzv;
    int r = 0;

    if (is_stale(turn) && (r = change(turn)) == 0)
        rdzv_state_open(turn->next, rdzv->round, "the store does not know the latest round");
    if (r == 0 && !turn->me)
        r = add_self(turn);
    if (r == 0 && turn->me && turn->me->member && rdzv->self.ready &&
        !(turn->changed ? next_me(turn) : turn->me)->ready)
        r = say_ready(turn);
    if (r == 0)
        r = remove_dead(turn);
    if (r == 0)
        r = let_in_others(turn);
    if (r == 0 && turn->changed)
        rdzv_state_settle(turn->next);
    if (r == 0)
        r = end_last_call(turn);
    return r < 0 ? r : beat(turn);
}

/* The store holds nothing: it is new, or lost what it had. What all had agreed on is put back. */
static int restore(struct turn *turn)
{
    struct rdzv *rdzv = turn->rdzv;
    const struct rdzv_state *last = turn->event->last;
    bool mine = rdzv->present && last && rdzv_state_find(last, rdzv->self.id);
    int r = begin(turn, mine ? last : NULL);

    if (r < 0)
        return r;
    if (!mine) {
        if (rdzv->any)
            rdzv_state_open(turn->next, rdzv->round, "the store has lost its state");
        r = add_self(turn);
    }
    return r < 0 ? r : beat(turn);
}

static int seen_in(struct turn *turn)
{
    struct rdzv *rdzv = turn->rdzv;
    const struct rdzv_state *state = turn->state;
    struct rdzv_out *out = turn->out;

    if (!state)
        return restore(turn);
    if (state->closed[0]) {
        say_closed(turn);
        finish(rdzv, out, RDZV_CLOSED);
        return 0;
    }
    if (state->n > 0 && (state->min != rdzv->set.min || state->max != rdzv->set.max))
        return others_settings(turn);
    notice_end(turn);
    notice_quorum(rdzv, state);
    bool member = state->complete && turn->me && turn->me->member && !is_stale(turn);
    if (member && !rdzv->in_round)
        notice_round(turn);
    if (!member && is_full(state) && rdzv->self.ready)
        rdzv->deadline = rdzv->clock + rdzv->set.join_ns;
    if (!member && rdzv->clock > rdzv->deadline)
        return give_up(turn);
    int r = improve(turn);
    return r == -ENOSPC ? too_many(turn) : r;
}

static int seen_out(struct turn *turn)
{
    struct rdzv *rdzv = turn->rdzv;
    char why[RDZV_TEXT_MAX];

    if (!turn->me || turn->state->closed[0]) {
        turn->out->error = rdzv->failure;
        finish(rdzv, turn->out, rdzv->failure.code ? RDZV_FAILED : RDZV_LEFT);
        return 0;
    }
    (void)snprintf(why, sizeof why, "%s has left", rdzv->self.name);
    int r = change(turn);
    if (r == 0)
        rdzv_state_remove(turn->next, rdzv->self.id, why);
    return r;
}

static int seen_closed(struct turn *turn)
{
    struct rdzv *rdzv = turn->rdzv;

    if (turn->state && turn->state->closed[0]) {
        say_closed(turn);
        finish(rdzv, turn->out, RDZV_CLOSED);
        return 0;
    }
    int r = change(turn);
    if (r == 0)
        memcpy(turn->next->closed, rdzv->reason, sizeof rdzv->reason);
    return r;
}

/* ---- events --------------------------------------------------------------------------------- */

/* When to look again, with nothing to be done now. */
static uint64_t next_read(struct rdzv *rdzv, const struct turn *turn)
{
    uint64_t at = rdzv->clock + about(rdzv, rdzv->set.poll_ns);

    if (turn->me)
        at = min_u64(at, rdzv->beat_at + rdzv->set.beat_ns);
    if (rdzv->quorum_at != NEVER && !last_call_is_over(rdzv))
        at = min_u64(at, rdzv->quorum_at + rdzv->set.last_call_ns);
    return max_u64(at, rdzv->clock);
}

static int decide(struct turn *turn)
{
    switch (turn->rdzv->want) {
    case RDZV_WANT_IN:
        return seen_in(turn);
    case RDZV_WANT_OUT:
        return seen_out(turn);
    case RDZV_WANT_CLOSED:
        return seen_closed(turn);
    case RDZV_WANT_NOTHING:
        break;
    }
    return 0;
}

/* Of writes that were lost one after another, the next waits: the longer, the more there were. */
static uint64_t retry_at(struct rdzv *rdzv)
{
    unsigned shift = rdzv->lost < RETRY_SHIFT_MAX ? rdzv->lost : RETRY_SHIFT_MAX;

    return rdzv->clock + rdzv_draw(rdzv) % (RETRY_NS << shift);
}

/* Looked at again soon, but not once for each change of many. In a round most changes are beats,
 * for which polling is enough. */
static void hint(struct rdzv *rdzv)
{
    uint64_t wait = rdzv->set.poll_ns / 8 + rdzv_draw(rdzv) % (rdzv->set.poll_ns / 4);

    if (!rdzv->in_round)
        rdzv->read_at = min_u64(rdzv->read_at, rdzv->clock + wait);
}

static int on_seen(struct rdzv *rdzv, const struct rdzv_event *event, struct rdzv_state *next,
                   struct rdzv_out *out)
{
    struct turn turn = {
        .rdzv = rdzv, .event = event, .state = event->state, .next = next, .out = out};
    bool lost = rdzv->writing && !event->won;

    rdzv->trouble.code = 0;
    if (event->won)
        rdzv->beat_at = rdzv->asked;
    rdzv->lost = event->won ? 0 : rdzv->lost + lost;
    bool held = lost && rdzv->lost > 1;
    if (event->state && rdzv_watch(rdzv, event->state) < 0)
        return -ENOMEM;
    if (!event->state)
        rdzv_watch_none(rdzv);
    if (event->state)
        turn.me = rdzv_state_find(event->state, rdzv->self.id);
    if (turn.me && turn.me->life != rdzv->self.life)
        turn.me = NULL;
    int r = decide(&turn);
    if (r < 0)
        return r;
    if (turn.changed && !held) {
        rdzv_state_settle(next);
        out->store = RDZV_WRITE;
    }
    rdzv->read_at = turn.changed && held ? retry_at(rdzv) : next_read(rdzv, &turn);
    if (rdzv->hinted)
        hint(rdzv);
    rdzv->hinted = false;
    return 0;
}

/* The time to join, leave or close is over, and the store is of no help. */
static void check_deadline(struct rdzv *rdzv, struct rdzv_out *out)
{
    static const char *const settings[] = {"rendezvous", "rendezvous.timeouts.join",
                                           "rendezvous.timeouts.close",
                                           "rendezvous.timeouts.close"};
    uint64_t late = rdzv->want == RDZV_WANT_IN ? ROLLBACK_NS : 0;

    if (rdzv->deadline == NEVER || rdzv->clock <= rdzv->deadline + late)
        return;
    if (rdzv->failure.code)
        out->error = rdzv->failure;
    else
        dl_error_set(&out->error, ETIMEDOUT, settings[rdzv->want], "is over: %s",
                     rdzv->trouble.code ? rdzv->trouble.message : "the store did not answer");
    finish(rdzv, out, RDZV_FAILED);
}

static void on_failing(struct rdzv *rdzv, const struct rdzv_event *event, struct rdzv_out *out)
{
    int code = event->error->code;

    rdzv->trouble = *event->error;
    rdzv->blind = true;
    rdzv->read_at = rdzv->clock + about(rdzv, rdzv->set.poll_ns / 4);
    /* No time makes a state of what is none. */
    if ((code == EBADMSG || code == EPROTONOSUPPORT) && !rdzv->in_round) {
        out->error = *event->error;
        finish(rdzv, out, RDZV_FAILED);
    }
}

static void on_wish(struct rdzv *rdzv, enum rdzv_want want, uint64_t within)
{
    rdzv->want = want;
    rdzv->failure = (struct dl_error){0};
    rdzv->deadline = rdzv->clock + within;
    rdzv->read_at = rdzv->clock;
}

/* Ready to be of a round. */
static void on_ready(struct rdzv *rdzv, uint64_t mark)
{
    rdzv->self.ready = true;
    rdzv->self.mark = mark;
    rdzv->read_at = rdzv->clock;
    if (!rdzv->in_round)
        rdzv->deadline = rdzv->clock + rdzv->set.join_ns;
}

static void on_join(struct rdzv *rdzv, uint64_t mark)
{
    on_wish(rdzv, RDZV_WANT_IN, rdzv->set.join_ns);
    on_ready(rdzv, mark);
    if (!rdzv->any)
        rdzv->read_at = rdzv->clock + rdzv_draw(rdzv) % FIRST_READ_NS;
}

static void on_owner(struct rdzv *rdzv, const struct rdzv_event *event, struct rdzv_out *out)
{
    bool is_in = rdzv->want == RDZV_WANT_IN;

    if (event->type == RDZV_JOIN && !is_in) {
        on_join(rdzv, event->mark);
    } else if (event->type == RDZV_JOIN || event->type == RDZV_READY) {
        if (is_in && !rdzv->in_round)
            on_ready(rdzv, event->mark);
    } else if (event->type == RDZV_CLOSE) {
        on_wish(rdzv, RDZV_WANT_CLOSED, rdzv->set.close_ns);
        (void)snprintf(rdzv->reason, sizeof rdzv->reason, "%s", event->reason);
    } else if (rdzv->want == RDZV_WANT_NOTHING) {
        finish(rdzv, out, RDZV_LEFT);
    } else {
        on_wish(rdzv, RDZV_WANT_OUT, rdzv->set.close_ns);
    }
}

static int on_event(struct rdzv *rdzv, const struct rdzv_event *event, struct rdzv_state *next,
                    struct rdzv_out *out)
{
    int r = 0;

    switch (event->type) {
    case RDZV_SEEN:
    case RDZV_FAILING:
        assert(rdzv->busy);
        rdzv->busy = false;
        if (rdzv->want == RDZV_WANT_NOTHING)
            break;
        if (event->type == RDZV_FAILING)
            on_failing(rdzv, event, out);
        else
            r = on_seen(rdzv, event, next, out);
        break;
    case RDZV_CHANGED:
        rdzv->hinted = rdzv->busy;
        hint(rdzv);
        break;
    case RDZV_TICK:
        break;
    default:
        on_owner(rdzv, event, out);
    }
    if (out->news == RDZV_NO_NEWS && out->store == RDZV_NOTHING)
        check_deadline(rdzv, out);
    return r;
}

int rdzv_step(struct rdzv *rdzv, const struct rdzv_event *event, struct rdzv_state *next,
              struct rdzv_out *out)
{
    *out = (struct rdzv_out){.wake = NEVER};
    rdzv_pass_time(rdzv, event->now);
    int r = on_event(rdzv, event, next, out);

    if (r < 0)
        rdzv->read_at = rdzv->clock + rdzv->set.poll_ns;
    if (rdzv->want == RDZV_WANT_NOTHING)
        return r;
    if (out->store == RDZV_NOTHING && !rdzv->busy && rdzv->clock >= rdzv->read_at)
        out->store = RDZV_READ;
    if (out->store != RDZV_NOTHING) {
        rdzv->busy = true;
        rdzv->writing = out->store == RDZV_WRITE;
        rdzv->asked = rdzv->clock;
    }
    /* Also while the store is asked: time counts only while there are steps. */
    out->wake = event->now + rdzv->set.poll_ns;
    if (!rdzv->busy)
        out->wake = min_u64(out->wake, event->now + (rdzv->read_at - rdzv->clock));
    return r;
}
