/*
 * Reconnects after the daemon has ended: killed, restarted or upgraded.
 *
 *   client_lost() → CONNECTING → GREETING → OPENING each loader → STARTING each epoch → there
 *                       ↑ any end of the new session, a daemon that shuts down ↓
 *
 * Nothing here blocks: reconnect_turn() does what can be done now, and every reader calls it, be it
 * a waiting call or the user's event loop. While there is no socket, a timer has its descriptor's
 * number and becomes readable when the next try is due.
 *
 * Batches that have arrived stay valid: the mappings are this process's own, and a daemon that has
 * ended refills no slot. They are read and released without any message; the incarnation in their
 * mapping identifies them. Each epoch is started again at the first step that has not arrived, so
 * that each batch comes exactly once. An epoch of a job all of whose steps had arrived is started
 * behind the last, so that the daemon knows its position.
 */
#include "client/daemon_user.h"
#include "client/internal.h"

#include "proto/slot_fill.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#define PAUSE_MIN (NS_PER_S / 1000)
#define PAUSE_MAX (NS_PER_S / 10)

typedef unsigned long long ull; /* for printf */

bool client_may_reconnect(const struct dl_client *client)
{
    const struct reconnect *rc = &client->reconnect;

    return rc->path && rc->patience > 0 && rc->life != 0;
}

/* ---- the descriptor ---- */

/* `fd` (consumed) takes the place of the client's, under its number. 0, or latched. */
static int reconnect_take_place(struct dl_client *client, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    int watch = client->reconnect.watch, r;

    if (watch >= 0)
        (void)epoll_ctl(watch, EPOLL_CTL_DEL, client->fd, NULL);
    r = dup3(fd, client->fd, O_CLOEXEC) < 0 ? -errno : 0;
    close(fd);
    if (r == 0 && watch >= 0 && epoll_ctl(watch, EPOLL_CTL_ADD, client->fd, &event) < 0)
        r = -errno;
    return r < 0 ? connection_fail(&client->conn, -r, "", "the socket cannot be replaced: %s",
                                   strerror(-r))
                 : 0;
}

/* Sets the timer that stands in the socket's place. 0, or latched. */
static int reconnect_set_timer(struct dl_client *client)
{
    uint64_t at = max_u64(client->reconnect.next_try, 1); /* 0 would disarm it */
    struct itimerspec spec = {
        .it_value = {.tv_sec = (time_t)(at / NS_PER_S), .tv_nsec = (long)(at % NS_PER_S)}};

    if (timerfd_settime(client->fd, TFD_TIMER_ABSTIME, &spec, NULL) == 0)
        return 0;
    return connection_fail(&client->conn, errno, "", "timerfd_settime: %s", strerror(errno));
}

static int reconnect_put_timer(struct dl_client *client)
{
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);

    if (fd < 0)
        return connection_fail(&client->conn, errno, "", "timerfd_create: %s", strerror(errno));
    return reconnect_take_place(client, fd) < 0 ? connection_check(&client->conn)
                                                : reconnect_set_timer(client);
}

/* ---- the end of a session ---- */

/* A batch that the user holds must be what it was: the daemon may have ended the session and lived
 * on. */
static int reconnect_check_leased(struct dl_client *client)
{
    for (const struct dl_batch *batch = client->batches; batch; batch = batch->next) {
        struct slot_header header;

        if (batch->detached || batch->loader->local || !client_has_lease(client, batch->mapping))
            continue;
        memcpy(&header, batch->slot, sizeof header);
        if (header.generation != batch->generation)
            return connection_fail(&client->conn, EPROTO, "",
                                   "the daemon ended the session and has refilled the slot of "
                                   "step %llu, which this client still holds",
                                   (ull)batch->step);
    }
    return 0;
}

static int reconnect_break_epoch(struct dl_epoch *epoch);

static void reconnect_leave_epoch(struct dl_epoch *epoch)
{
    epoch->phase = epoch_rules_of(epoch)->is_over ? EPOCH_LEFT : EPOCH_AWAY;
    epoch->lent = epoch->unsent = 0;
    epoch->n_releases = epoch->n_pins = epoch->n_feeds = 0;
}

/* Forgets everything that concerned only the former daemon. */
static void reconnect_leave_behind(struct dl_client *client)
{
    for (uint32_t i = 0; i < client->n_segments; i++)
        mapping_unref(client->segments[i]);
    client->n_segments = client->n_stopped = 0;
    for (struct dl_loader *loader = client->loaders; loader; loader = loader->next) {
        if (loader->local)
            continue;
        loader->needs_open = true;
        loader->extra_leases = 0;
        loader->held_bytes = 0;
        for (struct dl_epoch *epoch = loader->epochs; epoch; epoch = epoch->next)
            reconnect_leave_epoch(epoch);
    }
    client->incarnation++;
    connection_restart(&client->conn);
}

/* Other nodes may continue without this one, and no daemon could report how far this rank got: so
 * it uses no further batch. */
static int reconnect_leave_world(struct dl_client *client)
{
    for (struct dl_loader *loader = client->loaders; loader; loader = loader->next)
        for (struct dl_epoch *epoch = loader->epochs; epoch; epoch = epoch->next)
            if (epoch->phase == EPOCH_AWAY && epoch->used && reconnect_break_epoch(epoch) < 0)
                return connection_check(&client->conn);
    return 0;
}

static int reconnect_give_up(struct dl_client *client)
{
    struct reconnect *rc = &client->reconnect;

    rc->away = AWAY_NOT;
    return connection_fail(&client->conn, ECONNRESET, rc->path,
                           "the daemon has ended, and no new one came within %g s: %s",
                           (double)rc->patience / (double)NS_PER_S, rc->cause.message);
}

/* The next try comes after a pause; each is longer than the one before. */
static int reconnect_pause_then_try(struct dl_client *client)
{
    struct reconnect *rc = &client->reconnect;
    uint64_t now = clock_ns();

    if (now >= rc->deadline)
        return reconnect_give_up(client);
    rc->next_try = now + rc->pause;
    rc->pause = min_u64(rc->pause * 2, PAUSE_MAX);
    return 0;
}

int client_lost(struct dl_client *client, const struct dl_error *why)
{
    struct reconnect *rc = &client->reconnect;
    bool again = client_is_away(client);
    int r;

    if (!client_may_reconnect(client))
        return why ? connection_fail(&client->conn, why->code, why->path, "%s", why->message)
                   : connection_end(&client->conn);
    if (why)
        rc->cause = *why;
    else
        dl_error_set(&rc->cause, ECONNRESET, "", "it closed the session");
    r = reconnect_check_leased(client);
    if (r < 0)
        return r;
    rc->ended = rc->life;
    if (!again)
        client->says = DL_PROTOCOL_VERSION;
    reconnect_leave_behind(client);
    if ((r = reconnect_leave_world(client)) < 0)
        return r;
    rc->call = (struct call){0};
    rc->away = AWAY_CONNECTING;
    if (again) {
        r = reconnect_pause_then_try(client);
    } else {
        rc->deadline = deadline_after(rc->patience);
        rc->pause = PAUSE_MIN;
        rc->next_try = clock_ns();
    }
    return r < 0 ? r : reconnect_put_timer(client);
}

/* ---- the way back ---- */

/* 0, or negative with the reason. Another user who listens there may go away again. */
static int reconnect_dial(struct dl_client *client, int *ret)
{
    struct dl_error *cause = &client->reconnect.cause;
    _cleanup_fd_ int fd = -1;
    int r = client_dial(client->reconnect.path, 0, &fd);

    if (r < 0)
        return dl_error_set(cause, -r, "", "connect: %s", strerror(-r));
    r = daemon_user_check(fd, cause);
    if (r == 0)
        *ret = steal_fd(&fd);
    return r;
}

static int reconnect_try_connect(struct dl_client *client)
{
    struct reconnect *rc = &client->reconnect;
    int fd = -1, r;

    if (clock_ns() < rc->next_try)
        return 0;
    r = reconnect_dial(client, &fd);
    if (r < 0) {
        r = reconnect_pause_then_try(client);
        return r < 0 ? r : reconnect_set_timer(client);
    }
    r = reconnect_take_place(client, fd);
    if (r < 0)
        return r;
    rc->away = AWAY_GREETING;
    rc->due = rc->deadline;
    rc->call = (struct call){.answer = DL_MSG_WELCOME, .is_repeat = true};
    client_greet(client, rc->agent);
    return 1;
}

static struct dl_loader *reconnect_next_loader(const struct dl_client *client)
{
    struct dl_loader *loader = client->loaders;

    while (loader && (!loader->needs_open || loader->closed))
        loader = loader->next;
    return loader;
}

/*
 * All of it had come: there is nothing to ask for, but where the job is. Over an iterable dataset
 * the workers would have to go through all of it once more.
 */
static bool reconnect_is_complete(const struct dl_epoch *epoch)
{
    const struct feed *feed = &epoch->feed;

    if (epoch->phase != EPOCH_LEFT || !epoch->job[0] || epoch->loader->iterable || epoch->cluster)
        return false;
    return feed->on ? feed->ended && epoch->expected == epoch->first + feed->steps
                    : epoch->expected == epoch->steps;
}

static struct dl_epoch *reconnect_next_epoch(const struct dl_client *client)
{
    for (struct dl_loader *loader = client->loaders; loader; loader = loader->next)
        for (struct dl_epoch *epoch = loader->epochs; epoch; epoch = epoch->next)
            if (epoch->phase == EPOCH_AWAY || reconnect_is_complete(epoch))
                return epoch;
    return NULL;
}

static int reconnect_open_again(struct dl_client *client, struct dl_loader *loader)
{
    struct reconnect *rc = &client->reconnect;
    struct dl_message msg;
    uint64_t ended;

    /* What does not go at once with a new socket is tried with another one. */
    if (hosts_send(client, &loader->hosts, &ended) < 0)
        return client_lost(client, NULL);
    if (ended)
        return connection_fail(&client->conn, EPIPE, "dataset.host",
                               "a new daemon is running, but host %llu of the loader %s has "
                               "ended; open the loader again",
                               (ull)ended, loader->name);
    msg = loader_open_message(loader);
    rc->call = (struct call){
        .request = msg.open.request, .answer = DL_MSG_OPENED, .is_repeat = true, .loader = loader};
    rc->away = AWAY_OPENING;
    rc->due = deadline_after(OPEN_TIMEOUT);
    client_send(client, &msg);
    return 1;
}

/* The round of nodes that its rank was of is over: the daemon that took part in it is gone. */
static int reconnect_break_epoch(struct dl_epoch *epoch)
{
    struct dl_error err = {0};

    dl_error_set(&err, ESTALE, "world",
                 "changed: the daemon of rank %u of %u is gone, and its successor joins the "
                 "cluster again; start the epoch again from its state",
                 epoch->rank, epoch->world);
    return epoch_cut(epoch, &err) < 0 ? connection_check(&epoch->loader->client->conn) : 1;
}

static int reconnect_start_again(struct dl_client *client, struct dl_epoch *epoch)
{
    struct reconnect *rc = &client->reconnect;
    uint8_t before[HISTORY_BYTES];
    struct dl_error err = {0};
    struct dl_message msg = epoch_start_message(epoch, epoch->expected, before);

    rc->call = (struct call){
        .request = msg.start.request, .answer = DL_MSG_STARTED, .is_repeat = true, .epoch = epoch};
    rc->away = AWAY_STARTING;
    rc->due = deadline_after(REQUEST_TIMEOUT);
    int r = sample_weights_bring(epoch, &err);
    if (r < 0 && err.code)
        return connection_fail(&client->conn, err.code, err.path, "a new daemon is running, but %s",
                               err.message);
    if (r < 0)
        return r;
    saved_states_queue(epoch);
    weights_send(epoch->loader);
    client_send(client, &msg);
    return 1;
}

/* What the next daemon reports must equal what the former one reported. */
static int reconnect_differs(struct dl_client *client, const char *name, const char *what,
                             uint64_t now, uint64_t before)
{
    if (now == before)
        return 0;
    return connection_fail(&client->conn, ESTALE, name,
                           "a new daemon is running, but with another %s: %llu now, %llu before; "
                           "start the epoch again",
                           what, (ull)now, (ull)before);
}

int reconnect_opened(struct dl_client *client, const struct dl_msg_opened *opened)
{
    struct dl_loader *loader = client->reconnect.call.loader;
    struct dl_message close = {.number = DL_MSG_CLOSE};
    int r = 0;

    client->reconnect.call.done = true;
    if (!loader) {
        close.close.loader = opened->loader;
        client_send(client, &close);
        return 0;
    }
    if ((r = reconnect_differs(client, loader->name, "spec fingerprint", opened->fingerprint,
                               loader->fingerprint)) < 0 ||
        (r = reconnect_differs(client, loader->name, "kind of dataset (1: iterable)",
                               opened->iterable, loader->iterable)) < 0 ||
        (r = reconnect_differs(client, loader->name, "length of the dataset", opened->length,
                               loader->length)) < 0 ||
        (r = reconnect_differs(client, loader->name, "fingerprint of the data", opened->dataset,
                               loader->identity.dataset)) < 0 ||
        (r = reconnect_differs(client, loader->name, "order (1: of the steps)", opened->in_order,
                               loader->in_order)) < 0 ||
        (r = reconnect_differs(client, loader->name, "seed", opened->seed, loader->seed)) < 0)
        return r;
    loader->id = (uint32_t)opened->loader;
    loader->needs_open = false;
    return 0;
}

int reconnect_started(struct dl_client *client, const struct dl_msg_started *started)
{
    struct dl_epoch *epoch = client->reconnect.call.epoch;
    uint32_t stream = (uint32_t)started->stream;

    client->reconnect.call.done = true;
    if (!epoch) {
        client_stop_stream(client, stream, false);
        return 0;
    }
    /* Of an iterable dataset it is an estimate. */
    if (!epoch->loader->iterable &&
        reconnect_differs(client, epoch->loader->name, "number of steps", started->steps,
                          epoch->steps) < 0)
        return connection_check(&client->conn);
    if (reconnect_differs(client, epoch->loader->name, "first step", started->first,
                          epoch->expected) < 0)
        return connection_check(&client->conn);
    epoch->stream = stream;
    epoch->phase = epoch_rules_of(epoch)->is_over ? EPOCH_ENDING : EPOCH_RUNNING;
    epoch->resumed = true;
    former_leases_report(epoch);
    feed_rewind(epoch);
    feed_catch_up(epoch);
    return 0;
}

/*
 * Retries on a daemon that is about to end, and on one that does not know the loader's name yet, if
 * the name is all we have: the client with its spec may still be reconnecting. An epoch that is
 * over needs nothing from the daemon: the other ranks may be far ahead by now. All other refusals
 * go to the user.
 */
static int reconnect_refused(struct dl_client *client, const struct dl_error *err)
{
    struct dl_epoch *epoch = client->reconnect.call.epoch;
    const struct dl_error why = *err;

    if (why.code == ESHUTDOWN || (why.code == ENOENT && strcmp(why.path, "name") == 0)) {
        int r = client_lost(client, &why);

        client->reconnect.ended = 0; /* it may be this one again */
        return r;
    }
    if (epoch && epoch_rules_of(epoch)->is_over) {
        epoch->phase = EPOCH_UNWANTED;
        client->reconnect.call.refused = (struct dl_error){0};
        return 1;
    }
    return connection_fail(&client->conn, why.code, why.path, "a new daemon is running, but %s",
                           why.message);
}

static int reconnect_overdue(struct dl_client *client)
{
    struct reconnect *rc = &client->reconnect;

    if (rc->away == AWAY_GREETING) {
        dl_error_set(&rc->cause, ETIMEDOUT, "", "it does not answer");
        return reconnect_give_up(client);
    }
    return connection_fail(&client->conn, ETIMEDOUT, rc->path,
                           "a new daemon is running, but does not answer with %s",
                           message_name(rc->call.answer));
}

/* The next request, or the end of the way. */
static int reconnect_go_on(struct dl_client *client)
{
    struct reconnect *rc = &client->reconnect;
    struct dl_loader *loader = reconnect_next_loader(client);
    struct dl_epoch *epoch = reconnect_next_epoch(client);
    uint64_t ended; /* one that no loader needs */

    if (rc->away == AWAY_GREETING && hosts_send(client, &client->hosts, &ended) < 0)
        return client_lost(client, NULL);
    if (loader)
        return reconnect_open_again(client, loader);
    if (epoch)
        return epoch->cluster ? reconnect_break_epoch(epoch) : reconnect_start_again(client, epoch);
    rc->away = AWAY_NOT;
    return 1;
}

int reconnect_turn(struct dl_client *client)
{
    struct reconnect *rc = &client->reconnect;

    if (rc->away == AWAY_CONNECTING)
        return reconnect_try_connect(client);
    if (!rc->call.done)
        return clock_ns() < rc->due ? 0 : reconnect_overdue(client);
    if (rc->call.refused.code)
        return reconnect_refused(client, &rc->call.refused);
    return reconnect_go_on(client);
}

uint64_t reconnect_wake(const struct dl_client *client)
{
    const struct reconnect *rc = &client->reconnect;

    if (rc->away == AWAY_CONNECTING)
        return rc->next_try;
    return rc->call.done ? 0 : rc->due;
}

void reconnect_deinit(struct dl_client *client)
{
    struct reconnect *rc = &client->reconnect;

    close_fdp(&rc->watch);
    free(rc->path);
    free(rc->agent);
    client->hosts = hosts_free(client->hosts);
}

/* ---- for the user ---- */

void dl_client_set_reconnect(struct dl_client *client, uint64_t timeout_ns)
{
    client->reconnect.patience = timeout_ns;
}

/* epoll would not notice that another file has taken the number, so the user watches an epoll
 * descriptor of ours. If it cannot be made, at least the number stays the same. */
int dl_client_fd(struct dl_client *client)
{
    struct epoll_event event = {.events = EPOLLIN};
    struct reconnect *rc = &client->reconnect;

    if (client->fd < 0 || rc->watch >= 0 || !client_may_reconnect(client))
        return rc->watch >= 0 ? rc->watch : client->fd;
    rc->watch = epoll_create1(EPOLL_CLOEXEC);
    if (rc->watch >= 0 && epoll_ctl(rc->watch, EPOLL_CTL_ADD, client->fd, &event) < 0)
        close_fdp(&rc->watch);
    return rc->watch >= 0 ? rc->watch : client->fd;
}
