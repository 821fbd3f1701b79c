#include "daemon/base/blame.h"
#include "daemon/base/control_group.h"
#include "daemon/base/memory.h"
#include "daemon/serve/session/session_private.h"

#include <assert.h>
#include <errno.h>

#include <utlist.h>

enum {
    PENDING_MAX = 4 << 20,    /* bytes a client may leave unread before it is dropped, */
    PENDING_MARK = 256 << 10, /* and before its further requests have to wait */
    WAITING_MAX = 16,         /* requests that cannot be answered yet */
    LAST_READS = 64,          /* of what a client that is gone has left */
};

/* ---- sending -------------------------------------------------------------------------------- */

/* What the log has of its end. */
static struct log_fields session_ended(const struct session *s)
{
    return (struct log_fields){.event = LOG_EVENT_SESSION_ENDED,
                               .session = LOG_N(s->o.id),
                               .client_pid = LOG_N(s->who.pid),
                               .client_uid = LOG_N(s->who.uid)};
}

void session_flush(struct session *s)
{
    if (s->ending)
        return;
    int r = peer_flush(&s->peer);
    if (r == -ENOBUFS) {
        const struct log_fields fields = session_ended(s);

        log_about(LOG_WARNING, &fields,
                  "session %llu (uid %u, pid %d): dropped, it does not read its answers",
                  (ull)s->o.id, (unsigned)s->who.uid, (int)s->who.pid);
        s->violated = true; /* it is still connected, and would keep asking */
    }
    if (r < 0)
        session_end(s, NULL);
    else if (peer_pending(&s->peer) > 0)
        session_pay(s);
}

void session_queue(struct session *s, const struct dl_message *msg, int fd)
{
    struct dl_message sent = *msg;

    if (s->ending)
        return;
    sent.version = s->version;
    int r = peer_queue(&s->peer, &sent, &fd, fd >= 0);
    if (r < 0) {
        const struct log_fields fields = session_ended(s);

        log_about(LOG_WARNING, &fields, "session %llu: %s cannot be sent: %s", (ull)s->o.id,
                  message_name(msg->number), strerror(-r));
        session_end(s, NULL);
    }
}

void session_send(struct session *s, const struct dl_message *msg)
{
    session_queue(s, msg, -1);
    session_flush(s);
}

void session_send_error(struct session *s, uint64_t request, const struct dl_error *err)
{
    session_send(s, &(struct dl_message){.number = DL_MSG_ERROR,
                                         .error = {.request = request,
                                                   .code = (uint64_t)err->code,
                                                   .path = span_str(err->path),
                                                   .message = span_str(err->message)}});
}

/* ---- the end -------------------------------------------------------------------------------- */

/* A loader outlives its users' streams: they end before their users detach. */
static void session_drop_stream(struct session *s, struct client_stream *cs,
                                void (*end)(struct loader *, struct stream *))
{
    assert(cs->session == s && cs->opened->session == s);
    session_leave_world(cs, false);
    if (cs->shared)
        shared_loader_leave(cs->shared);
    position_free(cs->position);
    end(cs->opened->user.loader, cs->stream);
    HASH_DEL(s->streams, cs);
    free(cs);
    s->o.events->stream_ended(s->o.context);
}

void session_end_stream(struct session *s, struct client_stream *cs)
{
    session_drop_stream(s, cs, loader_end);
}

static void session_drop_loader(struct session *s, struct opened *opened,
                                void (*end)(struct loader *, struct stream *))
{
    struct loader *loader = opened->user.loader;
    struct client_stream *cs;
    struct client_stream *next;

    HASH_ITER (hh, s->streams, cs, next) {
        if (cs->opened == opened)
            session_drop_stream(s, cs, end);
    }
    assert(opened->session == s);
    loader_detach(&opened->user);
    HASH_DEL(s->opened, opened);
    if (opened->dataset_states.n > 0)
        s->dataset_state_bytes = 0;
    dataset_states_deinit(&opened->dataset_states);
    free(opened);
    if (loader)
        loader_pump(loader); /* others may want what was just released */
}

void session_close_loader(struct session *s, struct opened *opened)
{
    session_drop_loader(s, opened, loader_end);
}

static bool session_is_last_word(enum message_number number)
{
    return number == DL_MSG_RELEASE || number == DL_MSG_STOP || number == DL_MSG_CLOSE;
}

/*
 * A client that is killed leaves what it wrote in the socket, but its end can be noticed first, as
 * when it had not read all either. What it released it had done with, so that counts.
 */
static void session_hear_last_words(struct session *s)
{
    BLAMING(blame_at()); /* messages name loaders */
    struct dl_error err = {0};
    struct dl_span payload;
    struct dl_message msg;
    int r;

    for (int reads = 0; reads < LAST_READS; reads++) {
        while ((r = peer_take(&s->peer, &msg, &payload, &err)) > 0)
            if (session_is_last_word(msg.number) && session_handle(s, &msg, &err) < 0)
                return;
        if (r < 0 || peer_receive(&s->peer) <= 0)
            return;
    }
}

static void session_free_waiting(struct session *s, struct waiting *waiting);

/* Releases whatever it held, without STOP or CLOSE: jobs may come back. A loader that breaks
 * meanwhile may remove others of these. */
static void session_let_go(struct session *s)
{
    struct sent_segment *segment;
    struct sent_segment *next_segment;

    loader_headspace_leave(&s->asker);
    s->changes = mix_changes_unref(s->changes);
    session_tables_leave(s);
    if (!s->violated)
        session_hear_last_words(s);
    while (s->opened)
        session_drop_loader(s, s->opened, loader_lose);
    HASH_ITER (hh, s->segments, segment, next_segment) {
        HASH_DEL(s->segments, segment);
        free(segment);
    }
    brought_deinit(&s->brought);
    pictures_list_deinit(&s->pictures);
    while (s->waiting)
        session_free_waiting(s, s->waiting);
    session_forget_opening(s);
    value_deinit(&s->view);
}

static void session_on_closed(void *owner)
{
    struct session *s = owner;
    struct quota_account *account = s->account;
    uint64_t began = uv_hrtime();

    session_let_go(s);
    quota_return(account, QUOTA_SESSIONS, 1);
    quota_return(account, QUOTA_OVERHEAD, s->paid_bytes);
    quota_return(account, QUOTA_DESCRIPTORS, s->paid_descriptors);
    peer_deinit(&s->peer);
    assert(s->ending);
    assert(!s->streams && !s->opened && !s->segments);
    assert(!s->waiting && s->n_waiting == 0 && s->waiting_bytes == 0);
    assert(!s->opening && !s->changes);
    assert(!s->tables.bringing && !s->tables.all && s->tables.n == 0);
    uint64_t took = uv_hrtime() - began;
    quota_add_loop_time(account, took);
    scheduler_charge(s->o.scheduler, &s->turn, took);
    scheduler_remove(s->o.scheduler, &s->turn);
    s->o.events->ended(s->o.context, s);
    free(s->credentials);
    free(s->agent);
    free(s);
}

void session_end(struct session *s, const struct dl_error *err)
{
    if (s->ending)
        return;
    if (err) {
        session_send_error(s, 0, err);
        if (s->ending)
            return;
    }
    s->ending = true;
    (void)peer_close(&s->peer);
}

void session_violates(struct session *s, const struct dl_error *err)
{
    const struct log_fields fields = session_ended(s);

    log_about(LOG_WARNING, &fields, "session %llu (uid %u, pid %d): ended: %s%s%s", (ull)s->o.id,
              (unsigned)s->who.uid, (int)s->who.pid, err->path, *err->path ? ": " : "",
              err->message);
    s->violated = true;
    session_end(s, err);
}

static void session_on_violation(void *owner, const struct dl_error *err)
{
    session_violates(owner, err);
}

/* ---- what it takes -------------------------------------------------------------------------- */

/* Of the daemon's memory: loaders and streams of their own pay for themselves. */
static uint64_t session_cost(const struct session *s)
{
    return peer_memory(&s->peer) + s->waiting_bytes + s->view_bytes + s->dataset_state_bytes +
           mix_changes_bytes(s->changes) +
           (s->tables.all ? DL_BOUND_MIX_CHANGES * sizeof *s->tables.all : 0) +
           (s->opening ? opening_bytes(s->opening) : 0) +
           HASH_COUNT(s->opened) * sizeof(struct opened) +
           HASH_COUNT(s->streams) * sizeof(struct client_stream) +
           HASH_COUNT(s->segments) * sizeof(struct sent_segment);
}

/* The daemon's, for sockets and what travels over them. */
static uint32_t session_descriptors(const struct session *s)
{
    return 1 + s->brought.sockets + peer_descriptors(&s->peer);
}

static int session_pay_for(struct session *s, enum quota_kind kind, uint64_t due, uint64_t *paid,
                           struct dl_error *err)
{
    if (due > *paid && quota_charge(s->account, kind, due - *paid, err) < 0)
        return -EDQUOT;
    if (due < *paid)
        quota_return(s->account, kind, *paid - due);
    *paid = due;
    return 0;
}

/* Memory by whole pages: small change is what limits.sessions is for. */
void session_pay(struct session *s)
{
    enum { PAGE = 4096 };
    struct dl_error err = {0};

    if (s->ending || s->violated)
        return;
    if (session_pay_for(s, QUOTA_OVERHEAD, session_cost(s) / PAGE * PAGE, &s->paid_bytes, &err) <
            0 ||
        session_pay_for(s, QUOTA_DESCRIPTORS, session_descriptors(s), &s->paid_descriptors, &err) <
            0)
        session_violates(s, &err);
}

/* ---- what waits ----------------------------------------------------------------------------- */

/* A loader that breaks before it was open takes all that the session has of it with it. */
void session_pump(struct session *s)
{
    struct opened *opened = s->opened;

    while (opened) {
        unsigned before = HASH_COUNT(s->opened);

        if (opened->user.loader)
            loader_pump(opened->user.loader);
        opened = HASH_COUNT(s->opened) == before ? opened->hh.next : s->opened;
    }
}

/* What the daemon is blamed for if it crashes of the message: an OPEN's spec, or what sort it is.
 */
static uint64_t session_blame_key(const struct session *s, const struct dl_message *msg)
{
    struct dl_span what = msg->number == DL_MSG_OPEN ? msg->open.spec : (struct dl_span){0};

    return blame_key(s->who.uid, msg->number, what.data, what.len);
}

/* As session_handle(), if no daemon has crashed of this too often. */
static int session_do(struct session *s, const struct dl_message *msg, struct dl_error *err)
{
    uint64_t key = session_blame_key(s, msg);
    int r = blame_check(key, message_name(msg->number), err);

    if (r < 0 && msg->number == DL_MSG_OPEN) {
        session_send_error(s, msg->open.request, err);
        return 0;
    }
    if (r < 0 && msg->number != DL_MSG_CONTROL) /* by which it is stopped */
        return r;
    BLAMING(key);
    return session_handle(s, msg, err);
}

/* A request that cannot be answered yet. NULL with `err`: there are too many. */
static struct waiting *session_keep_any(struct session *s, size_t len, size_t bytes,
                                        struct dl_error *err)
{
    if (s->n_waiting == WAITING_MAX) {
        (void)!dl_error_set(err, EPROTO, "request", "more than %d requests are pending",
                            WAITING_MAX);
        return NULL;
    }
    struct waiting *waiting = must_alloc(sizeof *waiting + len);
    waiting->asked = uv_hrtime();
    waiting->len = len;
    waiting->bytes = bytes;
    DL_APPEND(s->waiting, waiting);
    s->n_waiting++;
    s->waiting_bytes += bytes;
    return waiting;
}

static int session_keep(struct session *s, struct dl_span payload, struct dl_error *err)
{
    struct waiting *waiting = session_keep_any(s, payload.len, payload.len, err);

    if (!waiting)
        return -EPROTO;
    memcpy(waiting->payload, payload.data, payload.len);
    return 0;
}

int session_keep_opening(struct session *s, struct opening *opening, uint64_t asked,
                         struct dl_error *err)
{
    struct waiting *waiting = session_keep_any(s, 0, opening_bytes(opening), err);

    if (!waiting) {
        opening_free(opening);
        return -EPROTO;
    }
    waiting->opening = opening;
    waiting->asked = asked;
    return 0;
}

/* False: it waits on. */
static bool session_do_anew(struct session *s, const struct waiting *waiting)
{
    struct dl_message msg;
    struct dl_error err = {0};

    if (waiting->opening)
        return session_try_opening(s, waiting->opening, waiting->asked, &err) == 0;
    int r = message_decode(waiting->payload, waiting->len, FROM_CLIENT, &msg, &err);
    s->asked = waiting->asked;
    if (r == 0)
        r = session_do(s, &msg, &err);
    s->asked = 0;
    if (r < 0) /* what it was about may be gone by now: no violation */
        session_send_error(s, msg.start.request, &err);
    return r != 1;
}

static void session_free_waiting(struct session *s, struct waiting *waiting)
{
    assert(s->n_waiting > 0 && s->waiting_bytes >= waiting->bytes);
    DL_DELETE(s->waiting, waiting);
    s->n_waiting--;
    s->waiting_bytes -= waiting->bytes;
    opening_free(waiting->opening);
    free(waiting);
}

void session_ask_again(struct session *s)
{
    struct waiting *waiting;
    struct waiting *next;

    if (!s->waiting || s->ending)
        return;
    DL_FOREACH_SAFE (s->waiting, waiting, next) {
        if (!s->ending && session_do_anew(s, waiting))
            session_free_waiting(s, waiting);
    }
    if (!s->ending)
        session_pump(s);
    session_flush(s);
}

/* ---- the socket ----------------------------------------------------------------------------- */

static void session_on_message(void *owner, const struct dl_message *msg, struct dl_span payload)
{
    struct session *s = owner;
    struct dl_error err = {0};

    int r = session_do(s, msg, &err);

    if (r == 1)
        r = session_keep(s, payload, &err);
    if (r < 0)
        session_violates(s, &err);
}

static void session_on_heard(void *owner)
{
    struct session *s = owner;

    if (!scheduler_wait(s->o.scheduler, &s->turn) || s->muted || s->ending)
        return;
    s->muted = true; /* else its socket would wake the loop again and again */
    peer_mute(&s->peer, true);
}

uint64_t session_take_turn(struct turn *turn, uint64_t now)
{
    struct session *s = container_of(turn, struct session, turn);

    if (s->muted) {
        s->muted = false;
        peer_mute(&s->peer, false);
    }
    if (peer_read_some(&s->peer, TURN_MESSAGES, now + TURN_NS))
        (void)scheduler_wait(s->o.scheduler, turn);
    session_pay(s);
    uint64_t ended = uv_hrtime();
    quota_add_loop_time(s->account, ended - now);
    return ended;
}

static void session_on_paused(void *owner)
{
    session_pump(owner);
    session_flush(owner);
}

static void session_on_lost(void *owner, int r)
{
    (void)r;
    session_end(owner, NULL);
}

static const struct peer_events session_peer_events = {.heard = session_on_heard,
                                                       .message = session_on_message,
                                                       .paused = session_on_paused,
                                                       .lost = session_on_lost,
                                                       .violates = session_on_violation,
                                                       .closed = session_on_closed};

static void session_refuse(const struct session_options *o, const struct dl_error *err)
{
    const struct log_fields fields = {.event = LOG_EVENT_CONNECTION_REFUSED,
                                      .client_pid = LOG_N(o->who.pid),
                                      .client_uid = LOG_N(o->who.uid)};
    struct outbox out = {0};
    struct dl_message msg = {.number = DL_MSG_ERROR,
                             .error = {.code = (uint64_t)err->code,
                                       .path = span_str(err->path),
                                       .message = span_str(err->message)}};

    log_about(LOG_WARNING, &fields, "a connection was refused: %s: %s", err->path, err->message);
    if (outbox_append(&out, &msg, NULL, 0) == 0)
        (void)!outbox_flush(&out, o->fd);
    outbox_deinit(&out);
}

/* Clients whose control group is unknown share the user's account. */
static struct quota_account *session_find_account(const struct session_options *o)
{
    const struct ucred *who = &o->who;
    const struct log_fields fields = {.client_pid = LOG_N(who->pid), .client_uid = LOG_N(who->uid)};
    char group[CONTROL_GROUP_MAX];
    struct dl_error err = {0};

    if (o->by_group && control_group_of_peer(o->fd, group, &err) == 0)
        return quota_account_in(o->quota, who->uid, group);
    struct quota_account *account = quota_account(o->quota, who->uid);
    if (o->by_group && quota_tell_once(account))
        log_about(LOG_WARNING, &fields, "clients of uid %u are charged to it: %s: %s",
                  (unsigned)who->uid, err.path, err.message);
    return account;
}

/* What every session takes of its user's limits. */
static int session_charge(struct quota_account *account, struct dl_error *err)
{
    int r = quota_charge(account, QUOTA_SESSIONS, 1, err);

    if (r == 0 && (r = quota_charge(account, QUOTA_DESCRIPTORS, 1, err)) < 0)
        quota_return(account, QUOTA_SESSIONS, 1);
    return r;
}

static void session_discharge(struct quota_account *account)
{
    quota_return(account, QUOTA_SESSIONS, 1);
    quota_return(account, QUOTA_DESCRIPTORS, 1);
}

int session_new(const struct session_options *options, struct session **ret, struct dl_error *err)
{
    _cleanup_free_ struct credentials *credentials = NULL;
    _cleanup_fd_ int fd = options->fd;
    struct quota_account *account = session_find_account(options);
    int r = session_charge(account, err);

    if (r < 0) {
        session_refuse(options, err);
        return r;
    }
    if ((r = credentials_read(fd, &options->who, &credentials, err)) < 0) {
        session_discharge(account);
        return r;
    }
    struct session *s = must_alloc(sizeof *s);
    s->o = *options;
    s->account = account;
    s->paid_descriptors = 1;
    s->who = options->who;
    s->credentials = steal_ptr(credentials);
    const struct peer_options how = {
        .from = FROM_CLIENT,
        .limit = PENDING_MAX,
        .mark = PENDING_MARK,
        .sends_fds = true,
        .fd_rule = "a client may send file descriptors only with HOST and TABLE",
        .events = &session_peer_events,
        .owner = s};
    r = peer_open(&s->peer, &how, options->loop, steal_fd(&fd));
    if (r < 0) {
        dl_error_set(err, -r, "", "the connection cannot be watched: %s", uv_strerror(r));
        session_discharge(account);
        peer_deinit(&s->peer);
        free(s->credentials);
        free(s);
        return r;
    }
    scheduler_add(options->scheduler, &s->turn, s->who.uid);
    *ret = s;
    return 0;
}

/* ---- views ---------------------------------------------------------------------------------- */

int session_take_host(struct session *s, uint64_t number, int *ret_sock, struct dl_error *err)
{
    return brought_take(&s->brought, number, ret_sock, err);
}

uint64_t session_id(const struct session *s)
{
    return s->o.id;
}

int session_pid(const struct session *s)
{
    return s->who.pid;
}

uid_t session_uid(const struct session *s)
{
    return s->who.uid;
}

const struct credentials *session_credentials(const struct session *s)
{
    return s->credentials;
}

struct quota_account *session_account(const struct session *s)
{
    return s->account;
}

void session_view(const struct session *s, struct session_view *ret)
{
    const struct client_stream *cs;
    const struct waiting *waiting;

    *ret = (struct session_view){.id = s->o.id,
                                 .uid = s->who.uid,
                                 .pid = s->who.pid,
                                 .agent = s->agent ? s->agent : "",
                                 .loaders = HASH_COUNT(s->opened),
                                 .streams = HASH_COUNT(s->streams),
                                 .pending_bytes = peer_pending(&s->peer)};
    DL_FOREACH (s->waiting, waiting) {
        if (!ret->waits && waiting->opening)
            ret->waits = opening_waits(waiting->opening, &ret->opens);
        if (ret->waits && ret->waits_ns == 0)
            ret->waits_ns = uv_hrtime() - waiting->asked;
    }
    for (cs = s->streams; cs; cs = cs->hh.next) {
        ret->leased += cs->stream->in_state[STEP_LEASED];
        ret->pinned += cs->stream->in_state[STEP_PINNED];
    }
}

const struct session *stream_session(const struct stream *stream)
{
    return ((const struct client_stream *)stream->sink)->session;
}

struct session *session_next(const struct session *s)
{
    return s->next;
}

void session_list_add(struct session_list *list, struct session *s)
{
    DL_APPEND(list->head, s);
}

void session_list_remove(struct session_list *list, struct session *s)
{
    DL_DELETE(list->head, s);
}
