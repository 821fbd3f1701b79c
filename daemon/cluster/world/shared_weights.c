#include "daemon/cluster/world/shared_weights.h"

#include "daemon/base/log.h"
#include "daemon/base/memory.h"
#include "daemon/cluster/world/shared_loader_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <utlist.h>

#define SECOND ((uint64_t)1000000000)

/* Clients wait for 30 s. */
static const uint64_t WEIGHTS_SAY_NS = 15 * SECOND, WEIGHTS_ASK_NS = 25 * SECOND;
/* A change that is open for longer is withdrawn by others. */
static const uint64_t WEIGHTS_OPEN_NS = 40 * SECOND;
/* Who knows what the store has lost puts it back sooner. */
static const uint64_t WEIGHTS_LOST_NS = 20 * SECOND;

enum { SHARED_WEIGHTS_NODES_A_MS = 4 };

struct weights_call {
    struct weights_call *prev, *next; /* members.weights_calls */
    struct members *members;
    struct shared_loader *shared; /* NULL: it is gone */
    bool writes;
};

/* This node's reach on its way into the store, and if it has asked, those of all on theirs here. */
struct weights_reach {
    struct weights_reach *prev, *next; /* members.weights_reaches */
    struct members *members;
    struct shared_loader *shared; /* NULL: it is gone */
    struct allgather *allgather;
    char key[BACKEND_KEY_MAX - 32]; /* a node's id follows */
    uint64_t number, round;         /* of the value, and of the nodes */
    uint32_t n;                     /* of these */
    bool asks;
};

static void shared_weights_go_on(struct shared_loader *shared);

/* ---- what the loader hears ------------------------------------------------------------------ */

static void shared_weights_sample(struct shared_weights *w)
{
    if (w->loader)
        w->reach = max_u64(w->reach, w->ops->planned(w->loader));
}

void shared_weights_note(struct shared_loader *shared)
{
    shared_weights_sample(&shared->weights);
}

/* What is decided comes first: what is held until then is free afterwards. */
static void shared_weights_tell(struct shared_loader *shared)
{
    struct shared_weights *w = &shared->weights;
    struct accord *a = &w->accord;

    if (!w->loader || a->seen.number == 0)
        return;
    uint64_t lacks = UINT64_MAX;
    if (w->told_number != a->seen.number)
        lacks = w->ops->take(w->loader, a->seen.list);
    if (lacks == UINT64_MAX)
        w->told_number = a->seen.number; /* else it would hear it with each answer */
    w->ops->hold(w->loader, min_u64(accord_hold(a), lacks));
}

void shared_weights_again(struct shared_loader *shared)
{
    shared->weights.told_number = 0;
    shared_weights_tell(shared);
}

void shared_weights_attach(struct shared_loader *shared, void *loader,
                           const struct shared_weights_ops *ops)
{
    struct shared_weights *w = &shared->weights;

    w->loader = loader;
    w->ops = ops;
    shared_weights_again(shared);
}

void shared_weights_begin_pass(struct shared_loader *shared, uint64_t pass)
{
    struct shared_weights *w = &shared->weights;

    if (pass <= w->pass)
        return;
    w->pass = pass;
    w->reach = 0; /* positions begin anew */
}

void shared_weights_detach(struct shared_loader *shared)
{
    struct shared_weights *w = &shared->weights;

    if (!w->loader)
        return;
    shared_weights_sample(w);
    w->ops->hold(w->loader, UINT64_MAX);
    w->loader = NULL;
}

/* ---- reaches --------------------------------------------------------------------------------- */

static void shared_weights_end_reach(struct weights_reach *reach)
{
    DL_DELETE(reach->members->weights_reaches, reach);
    free(reach);
}

/* The furthest of all; false: the store has what no node writes. */
static bool shared_weights_merge(const struct weights_reach *reach, const struct dl_span *values,
                                 uint64_t *ret)
{
    uint64_t one;

    *ret = 0;
    for (uint32_t i = 0; i < reach->n; i++) {
        if (!accord_reach_read(values[i], &one))
            return false;
        *ret = max_u64(*ret, one);
    }
    return true;
}

static void shared_weights_on_heard(void *owner, const struct dl_span *values,
                                    const struct dl_error *error)
{
    struct weights_reach *reach = owner;
    struct shared_loader *shared = reach->shared;
    struct members *m = reach->members;
    bool counts = shared && reach->asks && m->state == MEMBERS_IN && reach->round == m->round &&
                  reach->number == shared->weights.accord.seen.number &&
                  shared->weights.accord.mine == ACCORD_ASKED;

    if (counts && error)
        shared->weights.failure = *error;
    else if (counts && !shared_weights_merge(reach, values, &shared->weights.end))
        dl_error_set(&shared->weights.failure, EBADMSG, "rendezvous",
                     "the store's value of a node was not written by dloaderd");
    else if (counts)
        shared->weights.heard = true;
    shared_weights_end_reach(reach);
    if (counts && !m->ending)
        m->events->changed(m->context);
}

/* Once the loader holds. */
static void shared_weights_say(struct shared_loader *shared)
{
    struct shared_weights *w = &shared->weights;
    struct members *m = shared->members;
    struct weights_reach *reach = must_alloc(sizeof *reach);
    _cleanup_free_ struct allgather_node *nodes = must_alloc(m->n_nodes * sizeof *nodes);
    char text[ACCORD_REACH_MAX];

    *reach = (struct weights_reach){.members = m,
                                    .shared = shared,
                                    .number = w->accord.seen.number,
                                    .round = m->round,
                                    .n = m->n_nodes,
                                    .asks = w->accord.seen.asker == w->accord.self};
    (void)snprintf(reach->key, sizeof reach->key, "reach/%s/%s/%" PRIu64 "-%" PRIu64, m->id,
                   shared->key, reach->number, reach->round);
    shared_weights_sample(w);
    accord_reach_write(w->reach, text);
    accord_said(&w->accord, reach->number);
    w->heard = false;
    memcpy(nodes, m->nodes, m->n_nodes * sizeof *nodes);
    for (uint32_t i = 0; i < m->n_nodes; i++)
        nodes[i].wanted = reach->asks;
    DL_APPEND(m->weights_reaches, reach);
    struct allgather_options options = {.loop = m->loop,
                                        .backend = m->backend,
                                        .key = reach->key,
                                        .round = reach->round,
                                        .nodes = nodes,
                                        .n = m->n_nodes,
                                        .self = m->self,
                                        .value = span_str(text),
                                        .timeout_ns = WEIGHTS_SAY_NS,
                                        .done = shared_weights_on_heard,
                                        .owner = reach};
    (void)snprintf(w->said_key, sizeof w->said_key, "%s/%016" PRIx64, reach->key, w->accord.self);
    w->said_number = reach->number;
    reach->allgather = allgather_start(&options);
}

/* What this node has said is of no use any more. */
static void shared_weights_unsay(struct shared_loader *shared)
{
    struct shared_weights *w = &shared->weights;

    if (!w->said_number || w->accord.seen.number <= w->said_number)
        return;
    w->said_number = 0;
    backend_forget(shared->members->backend, w->said_key);
}

/* ---- the value ------------------------------------------------------------------------------- */

static void shared_weights_on_answer(void *owner, const struct backend_answer *answer);

static struct weights_call *shared_weights_call(struct shared_loader *shared, bool writes)
{
    struct weights_call *call = must_alloc(sizeof *call);

    *call = (struct weights_call){.members = shared->members, .shared = shared, .writes = writes};
    DL_APPEND(shared->members->weights_calls, call);
    shared->weights.busy = true;
    accord_call(&shared->weights.accord);
    return call;
}

static void shared_weights_key(const struct shared_loader *shared, char ret[static BACKEND_KEY_MAX])
{
    (void)snprintf(ret, BACKEND_KEY_MAX, "changes/%s/%s", shared->members->id, shared->key);
}

static void shared_weights_read(struct shared_loader *shared, uint64_t now)
{
    char key[BACKEND_KEY_MAX];

    shared->weights.read_ns = now;
    shared_weights_key(shared, key);
    backend_get(shared->members->backend, key, shared_weights_on_answer,
                shared_weights_call(shared, false));
}

static void shared_weights_write(struct shared_loader *shared, const struct accord_value *value)
{
    _cleanup_(buffer_deinit)
    struct dl_buffer bytes = {0};
    char key[BACKEND_KEY_MAX];

    if (accord_value_write(value, &bytes) < 0)
        return; /* for want of memory: it is tried again */
    shared_weights_key(shared, key);
    backend_set(shared->members->backend, key, shared->weights.accord.token,
                (struct dl_span){bytes.data, bytes.len}, shared_weights_on_answer,
                shared_weights_call(shared, true));
}

static void shared_weights_share(struct mix_changes *list, const struct mix_changes *with)
{
    if (list && with)
        mix_changes_share_tables(list, with);
}

/* Gives a list the tables of weights that this node has of it. */
static void shared_weights_take(struct shared_loader *shared, const struct backend_answer *answer,
                                struct accord_value *value)
{
    struct shared_weights *w = &shared->weights;
    uint64_t number = w->accord.seen.number, now = uv_hrtime();

    shared_weights_share(value->list, w->accord.seen.list);
    shared_weights_share(value->list, w->accord.decided);
    shared_weights_share(value->list, w->accord.own);
    accord_seen(&w->accord, answer->token, value);
    if (w->accord.seen.number > 0)
        w->missing_ns = 0;
    else if (!w->missing_ns)
        w->missing_ns = now;
    if (w->accord.seen.number != number)
        w->seen_ns = now;
    shared_weights_unsay(shared);
    shared_weights_tell(shared);
}

static void shared_weights_on_answer(void *owner, const struct backend_answer *answer)
{
    struct weights_call *call = owner;
    struct shared_loader *shared = call->shared;
    struct members *m = call->members;
    struct accord_value value = {0};
    int r = 0;

    DL_DELETE(m->weights_calls, call);
    free(call);
    if (!shared)
        return;
    const struct accord *a = &shared->weights.accord;
    const uint64_t number = a->seen.number;
    const bool known = accord_is_known(a);
    shared->weights.busy = false;
    if (answer->status == 0 && answer->token != 0)
        r = accord_value_read(answer->data, &value);
    if (r == -EINVAL && !shared->weights.failure.code) {
        dl_error_set(&shared->weights.failure, EBADMSG, "rendezvous",
                     "the store's value of changed weights was not written by dloaderd");
        log_warning("rendezvous %s: loader %.16s: %s", m->id, shared->key,
                    shared->weights.failure.message);
    }
    if (answer->status < 0 || r < 0)
        accord_failed(&shared->weights.accord);
    else
        shared_weights_take(shared, answer, &value);
    if (m->ending)
        return;
    if (answer->status == 0 && r == 0)
        shared_weights_go_on(shared);
    if (a->seen.number != number || accord_is_known(a) != known || a->mine != ACCORD_IDLE)
        m->events->changed(m->context);
}

/* ---- turns ----------------------------------------------------------------------------------- */

static bool shared_weights_is_asker_there(const struct shared_loader *shared, uint64_t now)
{
    const struct members *m = shared->members;
    const struct shared_weights *w = &shared->weights;

    if (now - w->seen_ns > WEIGHTS_OPEN_NS)
        return false;
    for (uint32_t i = 0; i < m->n_nodes; i++)
        if (m->nodes[i].id == w->accord.seen.asker)
            return true;
    return false;
}

/* Of many nodes each reads more rarely. */
static uint64_t shared_weights_pause(const struct shared_loader *shared)
{
    const struct members *m = shared->members;
    const struct accord *a = &shared->weights.accord;
    bool waits = a->seen.asker || a->mine != ACCORD_IDLE || !accord_is_known(a);
    uint64_t pause = waits ? m->poll_ns : max_u64(m->poll_ns, min_u64(m->beat_ns, SECOND));

    return max_u64(pause, (uint64_t)m->n_nodes * 1000000 / SHARED_WEIGHTS_NODES_A_MS);
}

/* What the store is asked next, if anything. */
static void shared_weights_go_on(struct shared_loader *shared)
{
    struct shared_weights *w = &shared->weights;
    struct accord_value value;
    uint64_t now = uv_hrtime();

    if (!w->on || w->busy || shared->members->state != MEMBERS_IN)
        return;
    if (w->missing_ns && now - w->missing_ns > WEIGHTS_LOST_NS)
        accord_give_up(&w->accord);
    bool there = shared_weights_is_asker_there(shared, now);
    switch (accord_next(&w->accord, there, &value)) {
    case ACCORD_READ:
        shared_weights_read(shared, now);
        break;
    case ACCORD_WRITE:
        shared_weights_write(shared, &value);
        break;
    case ACCORD_SAY:
        shared_weights_say(shared);
        break;
    case ACCORD_NOTHING:
        break;
    }
}

/* ---- rounds ---------------------------------------------------------------------------------- */

void shared_weights_begin(struct shared_loader *shared, bool changeable)
{
    shared->weights.on = changeable;
    shared->weights.accord.self = member_id(shared->members->member);
}

void shared_weights_enter_round(struct shared_loader *shared, uint64_t round, bool fresh)
{
    struct shared_weights *w = &shared->weights;

    if (!w->on)
        return;
    w->accord.self = member_id(shared->members->member);
    w->missing_ns = 0;
    w->heard = false;
    accord_enter(&w->accord, round, fresh);
    shared_weights_go_on(shared);
}

void shared_weights_leave_rounds(struct members *m)
{
    struct shared_loader *shared;

    DL_FOREACH (m->shared_loaders, shared)
        accord_leave(&shared->weights.accord);
}

void shared_weights_end(struct shared_loader *shared)
{
    struct members *m = shared->members;
    struct weights_call *call;
    struct weights_reach *reach;

    DL_FOREACH (m->weights_calls, call)
        if (call->shared == shared)
            call->shared = NULL;
    DL_FOREACH (m->weights_reaches, reach)
        if (reach->shared == shared)
            reach->shared = NULL;
    accord_deinit(&shared->weights.accord);
}

void shared_weights_deinit(struct members *m)
{
    while (m->weights_calls) {
        struct weights_call *call = m->weights_calls;

        DL_DELETE(m->weights_calls, call);
        free(call);
    }
    while (m->weights_reaches) {
        allgather_cancel(m->weights_reaches->allgather);
        shared_weights_end_reach(m->weights_reaches);
    }
}

bool shared_weights_are_idle(const struct shared_loader *shared)
{
    return shared->weights.accord.mine == ACCORD_IDLE;
}

/* ---- ranks that begin ------------------------------------------------------------------------ */

int shared_weights_list(struct shared_loader *shared, struct mix_changes *known, uint64_t asked,
                        struct mix_changes **ret, struct dl_error *err)
{
    struct shared_weights *w = &shared->weights;
    struct members *m = shared->members;

    accord_bring(&w->accord, known);
    if (!accord_is_known(&w->accord))
        shared_weights_go_on(shared);
    *ret = w->accord.seen.list;
    if (accord_is_known(&w->accord))
        return 0;
    if (w->failure.code == EBADMSG) {
        *err = w->failure;
        return -err->code;
    }
    return members_wait(m, asked, m->join_ns, err);
}

/* ---- who asks for a change ------------------------------------------------------------------- */

static bool shared_weights_is_asker(const struct shared_weights *w,
                                    const struct shared_weights_asker *asker)
{
    return w->session == asker->session && w->request == asker->request;
}

void shared_weights_forget(struct shared_loader *shared)
{
    struct shared_weights *w = &shared->weights;

    accord_forget(&w->accord);
    w->session = NULL;
    w->heard = false;
    w->failure.code = 0;
}

/* The change of its own that nobody waits for any more; one that is asked for is withdrawn. */
static void shared_weights_give_up(struct shared_loader *shared)
{
    struct accord *a = &shared->weights.accord;

    if (a->mine == ACCORD_HEARD)
        return; /* it is on its way */
    shared_weights_forget(shared);
    shared_weights_go_on(shared);
}

static enum shared_weights_turn shared_weights_end_turn(struct shared_loader *shared,
                                                        struct dl_error *err)
{
    enum accord_mine mine = shared->weights.accord.mine;

    if (mine == ACCORD_RACED)
        return SHARED_WEIGHTS_OTHER;
    if (mine == ACCORD_LATE)
        return SHARED_WEIGHTS_LATE;
    shared_weights_forget(shared);
    if (mine == ACCORD_DONE)
        return SHARED_WEIGHTS_DONE;
    dl_error_set(err, EAGAIN, "weights",
                 "another node has withdrawn the change, as this node was late; try again");
    return SHARED_WEIGHTS_FAILED;
}

static enum shared_weights_turn shared_weights_fail(struct shared_loader *shared,
                                                    const struct dl_error *why,
                                                    struct dl_error *err)
{
    const struct members *m = shared->members;

    dl_error_set(err, EAGAIN, "weights",
                 "the nodes of rendezvous %s have not agreed on a step: %s; nothing was changed",
                 m->id,
                 why             ? why->message
                 : m->trouble[0] ? m->trouble
                                 : "they have not answered in time; try again");
    shared_weights_give_up(shared);
    return SHARED_WEIGHTS_FAILED;
}

void shared_weights_tick(struct members *m, uint64_t now)
{
    struct shared_loader *shared;

    DL_FOREACH (m->shared_loaders, shared) {
        struct shared_weights *w = &shared->weights;

        if (!w->on)
            continue;
        shared_weights_sample(w);
        if (w->accord.mine != ACCORD_IDLE && now - w->asked_ns > WEIGHTS_OPEN_NS)
            shared_weights_give_up(shared); /* the client that asked is gone */
        if (!w->busy && w->accord.in && m->state == MEMBERS_IN &&
            now - w->read_ns >= shared_weights_pause(shared))
            shared_weights_read(shared, now);
    }
}

enum shared_weights_turn shared_weights_look(struct shared_loader *shared,
                                             const struct shared_weights_asker *asker,
                                             struct shared_weights_place *ret_place,
                                             struct dl_error *err)
{
    struct shared_weights *w = &shared->weights;
    bool is_own = shared_weights_is_asker(w, asker);
    bool late = uv_hrtime() - asker->asked > WEIGHTS_ASK_NS;

    if (w->accord.mine > ACCORD_HEARD && !is_own)
        shared_weights_forget(shared); /* who asked is gone */
    if (accord_may_ask(&w->accord))
        return SHARED_WEIGHTS_FREE;
    *ret_place = w->place;
    if (is_own && w->accord.mine > ACCORD_HEARD)
        return shared_weights_end_turn(shared, err);
    if (is_own && w->failure.code)
        return shared_weights_fail(shared, &w->failure, err);
    if (late && (is_own || w->accord.mine == ACCORD_IDLE))
        return shared_weights_fail(shared, NULL, err);
    if (is_own && w->accord.mine == ACCORD_ASKED && w->heard && w->accord.in) {
        ret_place->position = w->end;
        return SHARED_WEIGHTS_DECIDE;
    }
    members_be_patient(shared->members, uv_hrtime(), asker->asked + WEIGHTS_ASK_NS + 1);
    return SHARED_WEIGHTS_WAIT;
}

void shared_weights_ask(struct shared_loader *shared, const struct shared_weights_asker *asker,
                        uint64_t position)
{
    struct shared_weights *w = &shared->weights;

    w->session = asker->session;
    w->request = asker->request;
    w->asked_ns = uv_hrtime();
    w->heard = false;
    w->failure.code = 0;
    log_info("rendezvous %s: loader %.16s: the nodes are asked for new weights from sample %" PRIu64
             " on",
             shared->members->id, shared->key, position);
    accord_ask(&w->accord, position);
    shared_weights_go_on(shared);
}

void shared_weights_decide(struct shared_loader *shared, struct mix_changes *list,
                           const struct shared_weights_place *place)
{
    struct shared_weights *w = &shared->weights;

    if (list) {
        w->place = *place;
        accord_hear(&w->accord, list);
        shared_weights_go_on(shared);
    } else {
        shared_weights_give_up(shared);
    }
}

uint64_t shared_weights_hold_position(const struct shared_loader *shared)
{
    return accord_hold(&shared->weights.accord);
}

struct mix_changes *shared_weights_before(const struct shared_loader *shared)
{
    return shared->weights.accord.before;
}

struct mix_changes *shared_weights_in_force(const struct shared_loader *shared)
{
    return shared->weights.accord.seen.list;
}

void shared_weights_forget_session(struct shared_loader *shared, const void *session)
{
    struct shared_weights *w = &shared->weights;

    if (w->session == session && w->accord.mine != ACCORD_IDLE)
        shared_weights_give_up(shared);
}

struct shared_loader *shared_weights_find(struct members *m, const void *loader,
                                          const struct shared_weights_asker *asker, uint32_t *ret_n)
{
    struct shared_loader *shared, *found = NULL;

    *ret_n = 0;
    if (!m)
        return NULL;
    DL_FOREACH (m->shared_loaders, shared) {
        const struct shared_weights *w = &shared->weights;
        bool asks = w->accord.mine != ACCORD_IDLE && shared_weights_is_asker(w, asker);

        if (w->loader != loader && !asks)
            continue;
        found = shared;
        *ret_n = asks ? 1 : *ret_n + 1;
        if (asks)
            break;
    }
    return found;
}
