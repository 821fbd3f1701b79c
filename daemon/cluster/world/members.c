#include "daemon/cluster/world/members.h"

#include "daemon/base/log.h"
#include "daemon/base/memory.h"
#include "daemon/cluster/world/members_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define SECOND ((uint64_t)1000000000)

/* By tests/cluster/scale.py. */
enum { NODES_TESTED = 1000 };

enum { MEMBERS_PAUSE_MS_MIN = 1000, MEMBERS_PAUSE_MS_MAX = 60000, STAY_POLLS = 3 };

static void members_destroy(struct members *m);

/* Who is there, as people are told when it is not enough. */
static void members_note_there(struct members *m, const struct rdzv_state *state)
{
    const struct rdzv_node *self = rdzv_state_find(state, member_id(m->member));
    size_t at = 0;

    if (!self)
        return;
    at = (size_t)snprintf(m->there, sizeof m->there, "%s", self->name);
    m->n_there = state->n;
    for (uint32_t i = 0; i < state->n && at < sizeof m->there; i++)
        if (&state->nodes[i] != self)
            at +=
                (size_t)snprintf(m->there + at, sizeof m->there - at, ", %s", state->nodes[i].name);
}

static void members_log_who_came(const struct members *m, const struct rdzv_state *before,
                                 const struct rdzv_state *now)
{
    for (uint32_t i = 0; i < now->n; i++)
        if (!rdzv_state_find(before, now->nodes[i].id))
            log_info("rendezvous %s: node %s has joined%s", m->id, now->nodes[i].name,
                     now->nodes[i].member ? "" : ", and waits for a place");
}

static void members_log_who_went(const struct members *m, const struct rdzv_state *before,
                                 const struct rdzv_state *now)
{
    char why[RDZV_TEXT_MAX];

    for (uint32_t i = 0; i < before->n; i++) {
        const struct rdzv_node *node = &before->nodes[i];

        if (rdzv_state_find(now, node->id))
            continue;
        rdzv_state_gone(before, now, node, why);
        bool says_so = strncmp(why, "has left", strlen("has left")) == 0;
        log_info("rendezvous %s: node %s %s%s", m->id, node->name, says_so ? "" : "has left: it ",
                 why);
    }
}

static void members_on_seen(void *owner, const struct rdzv_state *before,
                            const struct rdzv_state *now)
{
    static const struct rdzv_state none;
    struct members *m = owner;

    members_note_there(m, now);
    if (!before)
        before = &none;
    members_log_who_came(m, before, now);
    members_log_who_went(m, before, now);
    if (!now->complete && (before->complete || before->round != now->round) && now->why[0])
        log_info("rendezvous %s: round %" PRIu64 " is open: %s", m->id, now->round, now->why);
}

static void members_on_notice(void *owner, const struct dl_error *words)
{
    struct members *m = owner;

    log_warning("rendezvous %s: %s", m->id, words->message);
}

static void members_on_store(void *owner, const struct dl_error *trouble)
{
    struct members *m = owner;

    m->trouble[0] = '\0';
    if (trouble)
        (void)snprintf(m->trouble, sizeof m->trouble, "%s: %s", trouble->path, trouble->message);
    if (trouble)
        log_warning("rendezvous %s: the store fails: %s: %s", m->id, trouble->path,
                    trouble->message);
    else
        log_info("rendezvous %s: the store works again", m->id);
}

static void members_on_again(uv_timer_t *timer)
{
    struct members *m = timer->data;

    m->state = MEMBERS_JOINING;
    member_join(m->member);
}

/* Of the nodes of the last round, whether all are in this state, and were all the time: the ranks
 * of one that was removed have ended, or will. */
static bool members_all_stay(const struct members *m, const struct rdzv_state *state)
{
    for (uint32_t i = 0; i < m->n_nodes; i++) {
        const struct rdzv_node *node = state ? rdzv_state_find(state, m->nodes[i].id) : NULL;

        if (!node || rdzv_state_is_let_in_again(state, node))
            return false;
    }
    return true;
}

static void members_note_share(struct members *m, const struct rdzv_state *state,
                               const struct rdzv_node *node, bool came)
{
    struct rdzv_place place = rdzv_state_place(state, node->id);
    struct left_out_node *share = &m->shares[m->n_nodes];

    *share = (struct left_out_node){.id = node->id,
                                    .first = place.first,
                                    .local = node->local,
                                    .world = place.world,
                                    .came = came};
    (void)snprintf(share->name, sizeof share->name, "%s", node->name);
}

/* A node that the ranks of this one have gone on without is about to be in a round again. */
static bool members_one_is_back(const struct members *m, const struct rdzv_state *state)
{
    for (uint32_t i = 0; state && i < state->n; i++)
        if (!allgather_nodes_have(m->nodes, m->n_nodes, state->nodes[i].id) &&
            left_outs_miss(m, state->nodes[i].name))
            return true;
    return false;
}

static void members_note_nodes(struct members *m, const struct rdzv_state *state)
{
    struct allgather_node *before = m->nodes;
    uint32_t n_before = m->n_nodes;

    free(m->shares);
    m->nodes = must_alloc(state->n * sizeof *m->nodes);
    m->shares = must_alloc(state->n * sizeof *m->shares);
    m->n_nodes = 0;
    for (uint32_t i = 0; i < state->n; i++) {
        struct allgather_node *node = &m->nodes[m->n_nodes];

        if (!state->nodes[i].member)
            continue;
        if (state->nodes[i].id == member_id(m->member))
            m->self = m->n_nodes;
        members_note_share(m, state, &state->nodes[i],
                           !allgather_nodes_have(before, n_before, state->nodes[i].id));
        *node = (struct allgather_node){.id = state->nodes[i].id};
        (void)snprintf(node->name, sizeof node->name, "%s", state->nodes[i].name);
        m->n_nodes++;
    }
    free(before);
}

static void members_log_complete(const struct members *m)
{
    log_info("rendezvous %s: round %" PRIu64 " is complete: this is node %u of %u, with ranks "
             "%" PRIu64 " to %" PRIu64 " of %" PRIu64,
             m->id, m->round, m->place.rank, m->place.nodes, m->place.first,
             m->place.first + m->local - 1, m->place.world);
}

/* From now on the loaders of the cluster's world need the list. */
static void members_on_placed(void *owner, uint64_t round, const struct rdzv_place *place)
{
    struct members *m = owner;

    if (m->ending)
        return;
    m->placed = true;
    m->rounds++;
    m->round = round;
    m->place = *place;
    m->failure.code = 0;
    m->pause_ms = MEMBERS_PAUSE_MS_MIN;
    members_log_complete(m);
    if (m->shared_loaders || m->paused)
        member_list(m->member);
    m->events->changed(m->context); /* who waits asks again, and that asks for the list */
}

static void members_on_round(void *owner, const struct rdzv_state *state,
                             const struct rdzv_place *place)
{
    struct members *m = owner;

    if (m->ending)
        return;
    if (m->paused && !members_all_stay(m, state))
        m->events->happened(m->context, WORLD_LOST, &m->why_over);
    m->paused = false;
    shared_loaders_note_gone(m, state);
    members_note_nodes(m, state);
    m->sums = state->format >= RDZV_SUMS;
    sights_enter_round(m);
    m->state = MEMBERS_IN;
    bool told = m->placed && m->round == state->round;
    m->placed = false;
    m->round = state->round;
    m->place = *place;
    newcomers_enter_round(m, told); /* the list was asked for by who waits */
    m->failure.code = 0;
    m->pause_ms = MEMBERS_PAUSE_MS_MIN;
    if (!told) {
        m->rounds++;
        members_log_complete(m);
    }
    shared_loaders_enter_round(m);
    m->events->happened(m->context, WORLD_NOTED, NULL);
    shared_loaders_publish(m);
    peers_told_enter_round(m);
    m->events->changed(m->context);
}

static void members_end_round(struct members *m, const char *reason, bool stay)
{
    struct dl_error *why = &m->why_over;

    if (m->state == MEMBERS_IN) {
        dl_error_set(why, ESTALE, "world",
                     "changed: round %" PRIu64 " of rendezvous %s is over because %s; start the "
                     "epoch again from its state",
                     m->round, m->id, reason);
        log_info("%s %s", why->path, why->message);
    } else if (!m->paused) {
        return;
    }
    m->state = MEMBERS_JOINING;
    m->paused = stay;
    given_weights_leave_rounds(m);
    m->events->happened(m->context, stay ? WORLD_JOINED : WORLD_LOST, why);
}

/* Too few: in words that say who is there. */
static int members_say_too_few(const struct members *m, struct dl_error *err)
{
    uint32_t missing = m->min - m->n_there;

    return dl_error_set(err, ETIMEDOUT, "rendezvous.timeouts.join",
                        "%" PRIu64 " s passed, and of at least %u nodes %u %s there (%s), %u %s "
                        "missing; start dloaderd there with the same rendezvous.id, %s",
                        m->join_ns / SECOND, m->min, m->n_there, m->n_there == 1 ? "is" : "are",
                        m->there, missing, missing == 1 ? "is" : "are", m->id);
}

static bool members_are_too_few(const struct members *m)
{
    return m->n_there > 0 && m->n_there < m->min;
}

/* What the store is to blame for, it says itself. */
static void members_name_failure(struct members *m, const struct dl_error *error)
{
    struct backend_health health;

    backend_health(m->backend, &health);
    m->failure = *error;
    if (error->code == ETIMEDOUT && health.answers && members_are_too_few(m))
        members_say_too_few(m, &m->failure);
}

static void members_fail(struct members *m, const struct dl_error *error)
{
    bool told = m->failure.code == error->code;

    members_name_failure(m, error);
    m->failed_ns = uv_hrtime();
    m->state = MEMBERS_FAILED;
    if (!told)
        log_warning("rendezvous %s: %s: %s", m->id, m->failure.path, m->failure.message);
    uv_timer_start(&m->again, members_on_again, m->pause_ms, 0);
    m->pause_ms = min_u64(2 * m->pause_ms, MEMBERS_PAUSE_MS_MAX);
    m->events->changed(m->context);
}

static void members_close_for_good(struct members *m, const struct dl_error *error)
{
    m->failure = *error;
    m->state = MEMBERS_CLOSED;
    log_warning("rendezvous %s: %s: %s", m->id, error->path, error->message);
    m->events->changed(m->context);
}

void members_be_ready(struct members *m)
{
    if (!m->root.putting && m->state != MEMBERS_IN)
        member_ready(m->member);
}

static void members_on_over(void *owner, bool evicted, const char *why)
{
    struct members *m = owner;
    char reason[MEMBERS_TEXT_MAX];

    if (m->ending)
        return;
    if (m->placed)
        log_info("rendezvous %s: round %" PRIu64 " is over because %s", m->id, m->round, why);
    m->placed = false;
    (void)snprintf(reason, sizeof reason, "%s%s", evicted ? "this node was removed from it: " : "",
                   why);
    const struct rdzv_state *state = member_state(m->member);
    if (!evicted && state && m->state == MEMBERS_IN)
        shared_loaders_note_gone(m, state); /* with one of them the store may go */
    members_end_round(m, reason,
                      !evicted && members_all_stay(m, state) && !members_one_is_back(m, state));
    if (m->forgets)
        members_put_seed_back(m);
    members_be_ready(m);
}

static void members_on_stayed(uv_timer_t *timer)
{
    members_destroy(timer->data);
}

/* The store goes with this daemon: the others are given the time to see there that it has left. */
static bool members_stay_a_while(struct members *m, enum rdzv_news how)
{
    struct backend_health health;

    backend_health(m->backend, &health);
    if (how != RDZV_LEFT || !health.here || health.peers < 2) /* of which one is its own */
        return false;
    log_info("rendezvous %s: the store served here ends, and the other nodes need another", m->id);
    uv_timer_start(&m->again, members_on_stayed, STAY_POLLS * m->poll_ns / 1000000, 0);
    return true;
}

/* At the daemon's end. */
static void members_log_left(const struct members *m, enum rdzv_news how,
                             const struct dl_error *err)
{
    if (how == RDZV_FAILED && err)
        log_warning("rendezvous %s: the others may not know that this node has left: %s: %s", m->id,
                    err->path, err->message);
    else if (m->joined)
        log_info("rendezvous %s: left", m->id);
}

static void members_on_ended(void *owner, enum rdzv_news how, const struct dl_error *err)
{
    struct members *m = owner;

    if (m->ending) {
        members_log_left(m, how, err);
        if (how == RDZV_LEFT)
            predecessor_forget(m->predecessor);
        if (!members_stay_a_while(m, how))
            members_destroy(m);
        return;
    }
    char reason[sizeof err->path + sizeof err->message + 1] = "this node has left";

    m->placed = false;
    if (err)
        (void)snprintf(reason, sizeof reason, "%s%s%s", err->path, *err->path ? " " : "",
                       err->message);
    members_end_round(m, reason, false);
    if (how == RDZV_CLOSED)
        members_close_for_good(m, err);
    else if (how == RDZV_FAILED)
        members_fail(m, err);
}

/* ---- beginning and end ---------------------------------------------------------------------- */

static void members_on_patience(uv_timer_t *timer)
{
    struct members *m = timer->data;

    m->events->changed(m->context);
}

static int members_become_member(struct members *m, const struct config_rendezvous *config,
                                 struct dl_error *err)
{
    static const struct member_events events = {.changed = members_on_seen,
                                                .notice = members_on_notice,
                                                .placed = members_on_placed,
                                                .store = members_on_store,
                                                .round = members_on_round,
                                                .over = members_on_over,
                                                .ended = members_on_ended};
    struct rdzv_settings settings = members_settings(config);
    char name[RDZV_NAME_MAX];

    members_name_self(config, name);
    (void)snprintf(m->self_name, sizeof m->self_name, "%s", name);
    struct member_options options = {.loop = m->loop,
                                     .backend = m->backend,
                                     .run = config->id,
                                     .settings = &settings,
                                     .name = name,
                                     .local = m->local,
                                     .events = &events,
                                     .owner = m};
    return member_new(&options, &m->member, err);
}

int members_new(uv_loop_t *loop, const struct config_rendezvous *config,
                const struct members_events *events, void *context, struct members **ret,
                struct dl_error *err)
{
    int r;

    *ret = NULL;
    if (config->backend == CONFIG_BACKEND_NONE || !*config->id)
        return 0;
    struct members *m = must_alloc(sizeof *m);
    *m = (struct members){.loop = loop,
                          .events = events,
                          .context = context,
                          .join_ns = config->timeouts.join,
                          .poll_ns = members_settings(config).poll_ns,
                          .fence_ns = members_fence_ns(config),
                          .beat_ns = config->heartbeat.interval,
                          .min = (uint32_t)config->nodes.min,
                          .max = (uint32_t)config->nodes.max,
                          .local = (uint32_t)config->local_ranks,
                          .pause_ms = MEMBERS_PAUSE_MS_MIN};
    r = members_backend_open(m, config, err);
    if (r == 0)
        r = members_become_member(m, config, err);
    if (r < 0) {
        free(m);
        return r;
    }
    m->id = must_strdup(config->id);
    dl_error_set(&m->why_over, ESTALE, "world",
                 "changed: a round of rendezvous %s was over before this daemon was started; start "
                 "the epoch again from its state",
                 m->id);
    uv_timer_init(loop, &m->again);
    uv_timer_init(loop, &m->patience);
    m->again.data = m->patience.data = m;
    members_watch_begin(m);
    *ret = m;
    return 0;
}

/* Without it the others wait until the one before this daemon has been silent for long enough. */
static void members_succeed(struct members *m, const char *path)
{
    struct dl_error err = {0};
    uint64_t before = 0;

    if (predecessor_open(path, member_id(m->member), &m->predecessor, &before, &err) < 0)
        log_info("rendezvous %s: %s: %s", m->id, err.path, err.message);
    member_replace(m->member, before);
}

void members_join(struct members *m, const char *path)
{
    if (!m)
        return;
    members_succeed(m, path);
    log_info("rendezvous %s: joining %u to %u nodes by %s", m->id, m->min, m->max, m->backend_name);
    if (m->max > NODES_TESTED)
        log_warning("rendezvous %s: rendezvous.nodes.max is %u; more than %d nodes are not tested: "
                    "they may take longer than timeouts.join to join",
                    m->id, m->max, NODES_TESTED);
    m->joined = true;
    member_join(m->member);
}

int members_close(struct members *m, struct dl_error *err)
{
    char reason[RDZV_TEXT_MAX];

    if (!m)
        return dl_error_set(err, ENOTSUP, "rendezvous.backend",
                            "none: this daemon is in no cluster, so there is no run to close");
    if (m->state == MEMBERS_CLOSED)
        return 0;
    uv_timer_stop(&m->again);
    if (m->state == MEMBERS_FAILED)
        m->state = MEMBERS_JOINING;
    (void)snprintf(reason, sizeof reason, "dlctl close-run was used on node %s", m->self_name);
    log_info("rendezvous %s: closing the run", m->id);
    member_close(m->member, reason);
    return 0;
}

static void members_on_closed(uv_handle_t *handle)
{
    struct members *m = handle->data;

    if (--m->closing > 0)
        return;
    free(m->nodes);
    free(m->shares);
    free(m->id);
    free(m);
}

static void members_destroy(struct members *m)
{
    agree_cancel(m->root.agreement);
    shared_loaders_deinit(m);
    newcomers_deinit(m);
    given_weights_deinit(m);
    sights_deinit(m);
    m->member = member_free(m->member); /* and the backend */
    peers_told_deinit(m);
    left_out_deinit(m);
    m->predecessor = predecessor_close(m->predecessor);
    m->closing = 3;
    uv_close((uv_handle_t *)&m->watch, members_on_closed);
    uv_close((uv_handle_t *)&m->again, members_on_closed);
    uv_close((uv_handle_t *)&m->patience, members_on_closed);
}

struct members *members_end(struct members *m)
{
    if (!m)
        return NULL;
    if (m->joined)
        log_info("rendezvous %s: leaving", m->id);
    m->ending = true;
    uv_timer_stop(&m->again);
    uv_timer_stop(&m->patience);
    uv_timer_stop(&m->watch);
    shared_loaders_publish_positions(m);
    m->leaving = true;
    members_go_on_leaving(m);
    return NULL;
}

/* The others read how far its ranks are when they see that it has left. */
void members_go_on_leaving(struct members *m)
{
    if (!m->leaving || left_outs_are_writing(m))
        return;
    m->leaving = false;
    member_leave(m->member);
}

/* ---- what is asked for ---------------------------------------------------------------------- */

void members_be_patient(struct members *m, uint64_t now, uint64_t at)
{
    uint64_t ms = at > now ? (at - now) / 1000000 + 1 : 1;

    if (!uv_is_active((uv_handle_t *)&m->patience) || uv_timer_get_due_in(&m->patience) > ms)
        uv_timer_start(&m->patience, members_on_patience, ms, 0);
}

static int members_say_failure(const struct dl_error *failure, struct dl_error *err)
{
    if (err)
        *err = *failure;
    return -failure->code;
}

/* Neither the others nor the store have been of help for as long as this one asks. */
static int members_say_late(const struct members *m, struct dl_error *err)
{
    struct backend_health health;

    if (m->failure.code)
        return members_say_failure(&m->failure, err);
    backend_health(m->backend, &health);
    if (!health.answers && health.latest.code)
        return dl_error_set(err, ETIMEDOUT, "rendezvous.timeouts.join",
                            "%" PRIu64 " s passed, and the store fails: %s", m->join_ns / SECOND,
                            health.latest.message);
    if (!health.answers)
        return dl_error_set(err, ETIMEDOUT, "rendezvous.timeouts.join",
                            "%" PRIu64 " s passed, and the store at %s has not answered yet",
                            m->join_ns / SECOND, health.endpoint);
    if (members_are_too_few(m))
        return members_say_too_few(m, err);
    if (m->n_there == 0)
        return dl_error_set(err, ETIMEDOUT, "rendezvous.timeouts.join",
                            "%" PRIu64 " s passed, and rendezvous %s has no nodes yet",
                            m->join_ns / SECOND, m->id);
    return dl_error_set(err, ETIMEDOUT, "rendezvous.timeouts.join",
                        "%" PRIu64 " s passed, and rendezvous %s has no complete round: %u of "
                        "%u to %u nodes have joined (%s)",
                        m->join_ns / SECOND, m->id, m->n_there, m->min, m->max, m->there);
}

int members_wait(struct members *m, uint64_t asked, uint64_t patience_ns, struct dl_error *err)
{
    uint64_t now = uv_hrtime();

    asked = max_u64(asked, members_watch_woke_ns(m)); /* while it was stopped nobody could come */
    if (now > asked + patience_ns)
        return members_say_late(m, err);
    if (m->placed)
        member_list(m->member);
    members_be_patient(m, now, asked + patience_ns);
    return 1;
}

int members_place(struct members *m, uint64_t local, uint64_t asked, struct members_place *ret,
                  struct dl_error *err)
{
    if (!m)
        return dl_error_set(err, ENOTSUP, "world",
                            "the cluster's world was requested, but this daemon is in no "
                            "cluster; set rendezvous.backend in its configuration, or give a "
                            "number");
    if (local >= m->local)
        return dl_error_set(err, EINVAL, "rank",
                            "%" PRIu64 " is not below the number of ranks on this node, %u "
                            "(rendezvous.local_ranks)",
                            local, m->local);
    if (m->state == MEMBERS_IN && !m->fenced) {
        *ret = (struct members_place){m->place.first + local, m->place.world};
        return 0;
    }
    if (m->state == MEMBERS_CLOSED)
        return members_say_failure(&m->failure, err);
    /* What no time mends is said at once; else those who waited are told, and others wait anew. */
    if (m->state == MEMBERS_FAILED && (m->failure.code != ETIMEDOUT || asked < m->failed_ns))
        return members_say_failure(&m->failure, err);
    return members_wait(m, asked, m->join_ns, err);
}
