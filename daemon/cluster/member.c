#include "daemon/cluster/member.h"

#include "daemon/serve/base/memory.h"

#include <errno.h>
#include <stdio.h>

struct member {
    struct rdzv rdzv;
    struct backend *backend; /* owned */
    char key[BACKEND_KEY_MAX];
    const struct member_events *events;
    void *owner;
    uv_timer_t timer;
    struct rdzv_state state, next;
    bool has_state;
    uint64_t token; /* of what lies there; 0: nothing */
    bool troubled;  /* the store failed, last */
    struct dl_buffer bytes;
    struct rdzv_out
        deferred; /* news that a request of the owner brought; the timer tells them at once */
};

static void member_on_timer(uv_timer_t *timer);
static void member_on_answer(void *owner, const struct backend_answer *answer);

/* ---- one step ------------------------------------------------------------------------------- */

static void member_ask(struct member *member, enum rdzv_do what)
{
    if (what == RDZV_READ) {
        backend_get(member->backend, member->key, member_on_answer, member);
        return;
    }
    member->bytes.len = 0;
    rdzv_state_pack(&member->next, &member->bytes);
    backend_set(member->backend, member->key, member->token,
                (struct dl_span){member->bytes.data, member->bytes.len}, member_on_answer, member);
}

static void member_tell(struct member *member, const struct rdzv_out *out)
{
    const struct member_events *events = member->events;

    if (out->news == RDZV_ROUND) {
        struct rdzv_place place = rdzv_state_place(&member->state, member->rdzv.self.id);

        events->round(member->owner, &member->state, &place);
    } else if (out->news == RDZV_OPENED || out->news == RDZV_EVICTED) {
        const char *why = member->state.why;

        events->over(member->owner, out->news == RDZV_EVICTED,
                     why[0] ? why
                            : "the run was "
                              "restarted");
    } else if (out->news != RDZV_NO_NEWS) {
        events->ended(member->owner, out->news, out->error.code ? &out->error : NULL);
    }
}

/* What the machine makes of it. */
static void member_step(struct member *member, struct rdzv_event *event, struct rdzv_out *out)
{
    event->now = uv_hrtime();
    rdzv_step(&member->rdzv, event, &member->next, out);
}

static void member_act(struct member *member, const struct rdzv_out *out)
{
    uint64_t now = uv_hrtime();

    if (out->store != RDZV_NOTHING)
        member_ask(member, out->store);
    if (member->deferred.news != RDZV_NO_NEWS)
        uv_timer_start(&member->timer, member_on_timer, 0, 0);
    else if (out->wake == UINT64_MAX)
        uv_timer_stop(&member->timer);
    else
        uv_timer_start(&member->timer, member_on_timer,
                       out->wake > now ? (out->wake - now) / 1000000 + 1 : 0, 0);
}

/* What it wants; the news last, for the owner may be done with the member then. */
static void member_follow(struct member *member, const struct rdzv_out *out)
{
    member_act(member, out);
    member_tell(member, out);
}

static void member_tick(struct member *member, enum rdzv_event_type type)
{
    struct rdzv_event event = {.type = type};
    struct rdzv_out out;

    member_step(member, &event, &out);
    member_follow(member, &out);
}

static void member_on_timer(uv_timer_t *timer)
{
    struct member *member = container_of(timer, struct member, timer);
    struct rdzv_out deferred = member->deferred;

    if (deferred.news == RDZV_NO_NEWS) {
        member_tick(member, RDZV_TICK);
        return;
    }
    member->deferred.news = RDZV_NO_NEWS;
    uv_timer_start(timer, member_on_timer, 0, 0); /* and then what else there is to do */
    member_tell(member, &deferred);
}

static void member_on_changed(void *owner)
{
    member_tick(owner, RDZV_CHANGED);
}

/* A request of the owner. Its outcome is told later, from the loop. */
static void member_request(struct member *member, enum rdzv_event_type type, const char *reason)
{
    struct rdzv_event event = {.type = type, .reason = reason};
    struct rdzv_out out;

    member_step(member, &event, &out);
    if (out.news != RDZV_NO_NEWS)
        member->deferred = out;
    member_act(member, &out);
}

/* ---- the store ------------------------------------------------------------------------------ */

static void member_tell_trouble(struct member *member, const struct dl_error *trouble)
{
    bool news = member->troubled != (trouble != NULL);

    member->troubled = trouble != NULL;
    if (news && member->events->store)
        member->events->store(member->owner, trouble);
}

static void member_on_failure(struct member *member, const struct dl_error *error)
{
    struct rdzv_event event = {.type = RDZV_FAILING, .error = error};
    struct rdzv_out out;

    member_tell_trouble(member, error);
    member_step(member, &event, &out);
    member_follow(member, &out);
}

static void member_on_nothing(struct member *member)
{
    struct rdzv_event event = {.type = RDZV_SEEN};
    struct rdzv_out out;

    if (member->has_state)
        event.last = &member->state;
    member_tell_trouble(member, NULL);
    member->token = 0;
    member_step(member, &event, &out);
    member_follow(member, &out);
}

static void member_tell_changed(struct member *member, const struct rdzv_state *before)
{
    const struct rdzv_state *now = &member->state;

    if (member->events->changed && !(before && before->seq == now->seq &&
                                     before->writer == now->writer && before->nonce == now->nonce))
        member->events->changed(member->owner, before, now);
}

/* The new state takes the old one's place before the owner hears of it. */
static void member_on_state(struct member *member, struct rdzv_state *state,
                            const struct backend_answer *answer)
{
    struct rdzv_event event = {.type = RDZV_SEEN, .won = answer->won, .state = state};
    struct rdzv_out out;

    if (member->has_state)
        event.last = &member->state;
    member_tell_trouble(member, NULL);
    member->token = answer->token;
    member_step(member, &event, &out);
    struct rdzv_state before = member->state;
    member->state = *state;
    member_tell_changed(member, member->has_state ? &before : NULL);
    member->has_state = true;
    rdzv_state_deinit(&before);
    member_follow(member, &out);
}

static void member_on_answer(void *owner, const struct backend_answer *answer)
{
    struct member *member = owner;
    struct rdzv_state state = {0};
    struct dl_error err = {0};

    if (answer->status < 0)
        member_on_failure(member, answer->error);
    else if (answer->token == 0)
        member_on_nothing(member);
    else if (rdzv_state_unpack(answer->data, &state, &err) < 0)
        member_on_failure(member, &err);
    else
        member_on_state(member, &state, answer);
}

/* ---- the owner ------------------------------------------------------------------------------ */

void member_join(struct member *member)
{
    member_request(member, RDZV_JOIN, NULL);
}

void member_ready(struct member *member)
{
    member_request(member, RDZV_READY, NULL);
}

void member_leave(struct member *member)
{
    member_request(member, RDZV_LEAVE, NULL);
}

void member_close(struct member *member, const char *reason)
{
    member_request(member, RDZV_CLOSE, reason);
}

const struct rdzv_state *member_state(const struct member *member)
{
    return member->has_state ? &member->state : NULL;
}

uint64_t member_id(const struct member *member)
{
    return member->rdzv.self.id;
}

uint64_t member_beat_age(const struct member *member, uint32_t at)
{
    const struct rdzv *rdzv = &member->rdzv;

    return at < rdzv->n_peers ? rdzv->clock - rdzv->peers[at].seen : 0;
}

static int member_check(const struct member_options *options, struct dl_error *err)
{
    size_t name = strlen(options->name), run = strlen(options->run);

    if (run == 0 || run > DL_MAX_NAME_BYTES)
        return dl_error_set(err, EINVAL, "rendezvous.id", "must have 1 to %d bytes",
                            (int)DL_MAX_NAME_BYTES);
    if (name == 0 || name >= RDZV_NAME_MAX)
        return dl_error_set(err, EINVAL, "rendezvous.node", "%s: must have 1 to %d bytes",
                            options->name, RDZV_NAME_MAX - 1);
    if (options->local > RDZV_LOCAL_MAX)
        return dl_error_set(err, EINVAL, "rendezvous.local_ranks",
                            "%u: a node can have %d at "
                            "most",
                            options->local, RDZV_LOCAL_MAX);
    return rdzv_settings_check(options->settings, err);
}

int member_new(const struct member_options *options, struct member **ret, struct dl_error *err)
{
    struct rdzv_node self = {.local = options->local};
    int r = member_check(options, err);

    if (r == 0 && uv_random(NULL, NULL, &self.id, sizeof self.id, 0, NULL) < 0)
        r = dl_error_set(err, EIO, "rendezvous", "the system provides no random numbers");
    if (r < 0) {
        backend_free(options->backend);
        return r;
    }
    struct member *member = must_alloc(sizeof *member);
    (void)snprintf(self.name, sizeof self.name, "%s", options->name);
    (void)snprintf(member->key, sizeof member->key, "rendezvous/%s", options->run);
    rdzv_init(&member->rdzv, options->settings, &self);
    member->backend = options->backend;
    member->events = options->events;
    member->owner = options->owner;
    (void)uv_timer_init(options->loop, &member->timer);
    backend_watch(member->backend, member->key, member_on_changed, member);
    *ret = member;
    return 0;
}

static void member_on_closed(uv_handle_t *handle)
{
    struct member *member = container_of(handle, struct member, timer);

    rdzv_deinit(&member->rdzv);
    rdzv_state_deinit(&member->state);
    rdzv_state_deinit(&member->next);
    buffer_deinit(&member->bytes);
    free(member);
}

struct member *member_free(struct member *member)
{
    if (!member)
        return NULL;
    member->backend = backend_free(member->backend);
    uv_close((uv_handle_t *)&member->timer, member_on_closed);
    return NULL;
}
