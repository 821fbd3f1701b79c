/*
 * What this node looks after as time passes: without the store it gives out nothing more after a
 * while (the fence); it publishes how far its ranks are; and it knows which node is late.
 */
#include "daemon/base/log.h"
#include "daemon/cluster/world/members_private.h"

#include <errno.h>
#include <inttypes.h>

#define SECOND ((uint64_t)1000000000)

/* A machine that is only busy runs a daemon again within this time. */
enum { BUSY_S = 5 };

/* A heartbeat, and two looks at it. */
static uint64_t members_watch_late_ns(const struct members *m)
{
    return m->beat_ns + 2 * m->poll_ns;
}

static bool members_watch_is_recent(const struct members *m, uint64_t seen_ns)
{
    return uv_hrtime() - seen_ns <= members_watch_late_ns(m);
}

/* Nodes look at each other's beats in turn, and rarely where they are many: who has to know looks,
 * or reads what those in front have seen. */
static bool members_watch_has_looked(const struct members *m)
{
    return members_watch_is_recent(m, max_u64(member_looked_ns(m->member), sights_seen_ns(m)));
}

bool members_watch_is_late(const struct members *m, uint64_t id)
{
    return member_beat_age(m->member, id) > members_watch_late_ns(m);
}

static enum members_sight members_watch_judge(const struct members *m, uint64_t id)
{
    bool late = members_watch_is_recent(m, member_looked_ns(m->member))
                    ? members_watch_is_late(m, id)
                    : sights_is_late(m, id);

    return late ? MEMBERS_LATE : MEMBERS_THERE;
}

/* Without the store this node sees nobody. */
static bool members_watch_is_blind(const struct members *m)
{
    return uv_hrtime() - member_wrote_ns(m->member) > members_watch_late_ns(m);
}

static enum members_sight members_watch_find(const struct members *m,
                                             const struct left_out_node *node, uint64_t *ret_heir)
{
    const struct rdzv_state *state = member_state(m->member);
    enum members_sight found = MEMBERS_GONE;

    for (uint32_t i = 0; i < state->n; i++) {
        if (state->nodes[i].id == node->id)
            return members_watch_judge(m, node->id);
        if (strcmp(state->nodes[i].name, node->name) != 0)
            continue;
        found = members_watch_judge(m, state->nodes[i].id);
        if (found == MEMBERS_THERE) {
            found = MEMBERS_REPLACED;
            *ret_heir = state->nodes[i].id;
        }
    }
    return found;
}

enum members_sight members_look_for(struct members *m, const struct left_out_node *node,
                                    uint64_t *ret_heir)
{
    enum members_sight found = MEMBERS_LATE;

    *ret_heir = 0;
    if (!member_state(m->member) || members_watch_is_blind(m))
        return MEMBERS_LATE;
    if (members_watch_has_looked(m))
        found = members_watch_find(m, node, ret_heir);
    if (found == MEMBERS_LATE)
        sights_ask(m);
    return found;
}

static void members_watch_end_streams(struct members *m, uint64_t without)
{
    dl_error_set(&m->why_over, ESTALE, "world",
                 "is not known any more: for %" PRIu64 " s no heartbeat of this node has reached "
                 "the store of rendezvous %s (rendezvous.fence and timeouts.join): %s; start the "
                 "epoch again from its state once the store is back",
                 without / SECOND, m->id, m->trouble);
    m->fenced_over = true;
    log_warning("%s %s", m->why_over.path, m->why_over.message);
    m->events->happened(m->context, WORLD_LOST, &m->why_over);
}

static void members_watch_begin_fence(struct members *m, uint64_t now, uint64_t without)
{
    log_warning("rendezvous %s: no heartbeat of this node has reached the store for %" PRIu64
                " ms (rendezvous.fence): nothing is given out until one does",
                m->id, without / 1000000);
    m->fenced = true;
    m->fenced_ns = now;
    dl_error_set(&m->why_over, ESTALE, "world",
                 "may have changed: for %" PRIu64 " ms no heartbeat of this node has reached the "
                 "store of rendezvous %s (rendezvous.fence), and what it gave out and was not used "
                 "is taken back; start the epoch again from its state once the store is back",
                 without / 1000000, m->id);
    m->events->happened(m->context, WORLD_FENCED, &m->why_over);
}

/* Where no other node can be, nobody goes on without this one. A daemon that was stopped, or whose
 * machine slept, is fenced at once; but has all of timeouts.join to reach the store. */
static void members_watch_fence(struct members *m, uint64_t now)
{
    uint64_t without = now - member_wrote_ns(m->member);
    bool is = m->state == MEMBERS_IN && m->max > 1 && without > m->fence_ns;

    if (is && !m->fenced) {
        members_watch_begin_fence(m, now, without);
    } else if (!is && m->fenced && member_read_ns(m->member) > m->fenced_ns) {
        /* By then it knows whether it was taken out. */
        log_info("rendezvous %s: batches are given out again", m->id);
        m->fenced = m->fenced_over = false;
        m->events->changed(m->context);
    } else if (!is && m->fenced) {
        member_read(m->member); /* of many nodes its turn to look comes after minutes */
    } else if (is && !m->fenced_over && now - m->fenced_ns > m->join_ns) {
        members_watch_end_streams(m, without);
    }
}

static void members_watch_publish(struct members *m, uint64_t now)
{
    if (m->state != MEMBERS_IN || !m->shared_loaders || now - m->published_ns < m->beat_ns)
        return;
    m->published_ns = now;
    m->events->happened(m->context, WORLD_NOTED, NULL);
    shared_loaders_publish_positions(m);
    left_out_ask_again(m);
    restarts_say_again(m);
}

uint64_t members_watch_woke_ns(struct members *m)
{
    uint64_t now = uv_hrtime();

    if (m->ticked_ns > 0 && now - m->ticked_ns > max_u64(2 * m->beat_ns, BUSY_S * SECOND))
        m->woke_ns = now;
    m->ticked_ns = now;
    return m->woke_ns;
}

static void members_watch_on_timer(uv_timer_t *timer)
{
    struct members *m = timer->data;
    uint64_t now = uv_hrtime();

    (void)members_watch_woke_ns(m);
    members_watch_fence(m, now);
    members_watch_publish(m, now);
    if (!members_watch_is_blind(m))
        sights_tick(m);
    given_weights_tick(m);
    peers_told_tick(m, now);
}

void members_watch_begin(struct members *m)
{
    uint64_t ms = max_u64(min_u64(m->poll_ns, m->fence_ns / 4) / 1000000, 1);

    uv_timer_init(m->loop, &m->watch);
    m->watch.data = m;
    uv_timer_start(&m->watch, members_watch_on_timer, ms, ms);
}
