#include "daemon/cluster/rendezvous.h"

#include "daemon/cluster/rendezvous_turn.h"
#include "daemon/cluster/rendezvous_watch.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define SECOND ((uint64_t)1000000000)

/* Joiners of a new run do not all come at once; one whose write was lost lets others go first. */
static const uint64_t FIRST_READ_NS = SECOND * 3 / 10, RETRY_NS = SECOND / 250;
enum { RETRY_SHIFT_MAX = 8 };

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
    if (settings->missed < 1 || settings->missed > 1000)
        return dl_error_set(err, EINVAL, "rendezvous.heartbeat.missed", "%u: must be 1 to 1000",
                            settings->missed);
    const uint64_t times[] = {settings->join_ns, settings->last_call_ns, settings->close_ns,
                              settings->beat_ns, settings->poll_ns};
    for (size_t i = 0; i < ARRAY_SIZE(times); i++)
        if (times[i] < SECOND / 1000 || times[i] > 30 * 86400 * SECOND)
            return dl_error_set(err, EINVAL, "rendezvous",
                                "a time of %" PRIu64 " ns: must be 1 ms to 30 days", times[i]);
    if (settings->poll_ns > settings->beat_ns)
        return dl_error_set(err, EINVAL, "rendezvous.poll",
                            "is longer than the time between two heartbeats");
    if (settings->missed == 1 && settings->poll_ns > settings->beat_ns / RDZV_POLLS_OF_ONE_MISSED)
        return dl_error_set(err, EINVAL, "rendezvous.poll",
                            "is longer than an eighth of the time between two heartbeats, none "
                            "of which may be missed");
    return 0;
}

uint64_t rdzv_silence(const struct rdzv_settings *settings)
{
    return settings->missed * settings->beat_ns +
           (settings->missed == 1 ? settings->beat_ns / 2 : 0);
}

void rdzv_init(struct rdzv *rdzv, const struct rdzv_settings *settings,
               const struct rdzv_node *self)
{
    *rdzv = (struct rdzv){.set = *settings,
                          .self = *self,
                          .deadline = RDZV_NEVER,
                          .quorum_at = RDZV_NEVER,
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

/* ---- events --------------------------------------------------------------------------------- */

/* When to look again, with nothing to be done now. */
static uint64_t rdzv_next_read(struct rdzv *rdzv, const struct rdzv_turn *turn)
{
    uint64_t at = rdzv->clock + rdzv_about(rdzv, rdzv->set.poll_ns);

    if (turn->me)
        at = min_u64(at, rdzv->beat_at + rdzv->set.beat_ns);
    if (rdzv->quorum_at != RDZV_NEVER && !rdzv_last_call_is_over(rdzv))
        at = min_u64(at, rdzv->quorum_at + rdzv->set.last_call_ns);
    return max_u64(at, rdzv->clock);
}

/* Of writes that were lost one after another, the next waits: the longer, the more there were. */
static uint64_t rdzv_retry_at(struct rdzv *rdzv)
{
    unsigned shift = rdzv->lost < RETRY_SHIFT_MAX ? rdzv->lost : RETRY_SHIFT_MAX;

    return rdzv->clock + rdzv_draw(rdzv) % (RETRY_NS << shift);
}

/* Looked at again soon, but not once for each change of many. In a round most changes are beats,
 * for which polling is enough. */
static void rdzv_hint(struct rdzv *rdzv)
{
    uint64_t wait = rdzv->set.poll_ns / 8 + rdzv_draw(rdzv) % (rdzv->set.poll_ns / 4);

    if (!rdzv->in_round)
        rdzv->read_at = min_u64(rdzv->read_at, rdzv->clock + wait);
}

static void rdzv_on_seen(struct rdzv *rdzv, const struct rdzv_event *event, struct rdzv_state *next,
                         struct rdzv_out *out)
{
    struct rdzv_turn turn = {
        .rdzv = rdzv, .state = event->state, .last = event->last, .next = next, .out = out};
    bool lost = rdzv->writing && !event->won;

    rdzv->trouble.code = 0;
    if (event->won)
        rdzv->beat_at = rdzv->asked;
    rdzv->lost = event->won ? 0 : rdzv->lost + lost;
    bool held = lost && rdzv->lost > 1;
    if (event->state)
        rdzv_watch(rdzv, event->state);
    else
        rdzv_watch_none(rdzv);
    if (event->state)
        turn.me = rdzv_state_find(event->state, rdzv->self.id);
    if (turn.me && turn.me->life != rdzv->self.life)
        turn.me = NULL;
    rdzv_turn(&turn);
    if (turn.changed && !held) {
        rdzv_state_settle(next);
        out->store = RDZV_WRITE;
    }
    rdzv->read_at = turn.changed && held ? rdzv_retry_at(rdzv) : rdzv_next_read(rdzv, &turn);
    if (rdzv->hinted)
        rdzv_hint(rdzv);
    rdzv->hinted = false;
}

/* The time to join, leave or close is over, and the store is of no help. */
static void rdzv_check_deadline(struct rdzv *rdzv, struct rdzv_out *out)
{
    static const char *const settings[] = {"rendezvous", "rendezvous.timeouts.join",
                                           "rendezvous.timeouts.close",
                                           "rendezvous.timeouts.close"};
    uint64_t late = rdzv->want == RDZV_WANT_IN ? RDZV_ROLLBACK_NS : 0;

    if (rdzv->deadline == RDZV_NEVER || rdzv->clock <= rdzv->deadline + late)
        return;
    if (rdzv->failure.code)
        out->error = rdzv->failure;
    else
        dl_error_set(&out->error, ETIMEDOUT, settings[rdzv->want], "is over: %s",
                     rdzv->trouble.code ? rdzv->trouble.message : "the store did not answer");
    rdzv_finish(rdzv, out, RDZV_FAILED);
}

static void rdzv_on_failing(struct rdzv *rdzv, const struct rdzv_event *event, struct rdzv_out *out)
{
    int code = event->error->code;

    rdzv->trouble = *event->error;
    rdzv->blind = true;
    rdzv->read_at = rdzv->clock + rdzv_about(rdzv, rdzv->set.poll_ns / 4);
    /* No time makes a state of what is none. */
    if ((code == EBADMSG || code == EPROTONOSUPPORT) && !rdzv->in_round) {
        out->error = *event->error;
        rdzv_finish(rdzv, out, RDZV_FAILED);
    }
}

static void rdzv_on_request(struct rdzv *rdzv, enum rdzv_want want, uint64_t within)
{
    rdzv->want = want;
    rdzv->failure = (struct dl_error){0};
    rdzv->deadline = rdzv->clock + within;
    rdzv->read_at = rdzv->clock;
}

/* Ready to be of a round. */
static void rdzv_on_ready(struct rdzv *rdzv)
{
    rdzv->self.ready = true;
    rdzv->read_at = rdzv->clock;
    if (!rdzv->in_round)
        rdzv->deadline = rdzv->clock + rdzv->set.join_ns;
}

static void rdzv_on_join(struct rdzv *rdzv)
{
    rdzv_on_request(rdzv, RDZV_WANT_IN, rdzv->set.join_ns);
    rdzv_on_ready(rdzv);
    if (!rdzv->any)
        rdzv->read_at = rdzv->clock + rdzv_draw(rdzv) % FIRST_READ_NS;
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

static void rdzv_on_event(struct rdzv *rdzv, const struct rdzv_event *event,
                          struct rdzv_state *next, struct rdzv_out *out)
{
    switch (event->type) {
    case RDZV_SEEN:
    case RDZV_FAILING:
        assert(rdzv->busy);
        rdzv->busy = false;
        if (rdzv->want == RDZV_WANT_NOTHING)
            break;
        if (event->type == RDZV_FAILING)
            rdzv_on_failing(rdzv, event, out);
        else
            rdzv_on_seen(rdzv, event, next, out);
        break;
    case RDZV_CHANGED:
        rdzv->hinted = rdzv->busy;
        rdzv_hint(rdzv);
        break;
    case RDZV_TICK:
        break;
    default:
        rdzv_on_owner(rdzv, event, out);
    }
    if (out->news == RDZV_NO_NEWS && out->store == RDZV_NOTHING)
        rdzv_check_deadline(rdzv, out);
}

void rdzv_step(struct rdzv *rdzv, const struct rdzv_event *event, struct rdzv_state *next,
               struct rdzv_out *out)
{
    *out = (struct rdzv_out){.wake = RDZV_NEVER};
    rdzv_pass_time(rdzv, event->now);
    rdzv_on_event(rdzv, event, next, out);
    if (rdzv->want == RDZV_WANT_NOTHING)
        return;
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
}
