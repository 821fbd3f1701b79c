/*
 * The way back after the daemon has ended: killed, restarted or upgraded.
 *
 *   client_lost() → CONNECTING → GREETING → OPENING each loader → STARTING each epoch → there
 *                       ↑ any end of the new session, a daemon that shuts down ↓
 *
 * Nothing here waits, or knows a socket: away_turn() does what can be done now, or names an errand
 * for reconnect.c, which says then how that went.
 *
 * Batches that have arrived stay valid: the mappings are this process's own, and a daemon that has
 * ended refills no slot. They are read and released without any message; the incarnation in their
 * mapping identifies them. Each epoch is started again at the first step that has not arrived, so
 * that each batch comes exactly once. An epoch of a job all of whose steps had arrived is started
 * behind the last, so that the daemon knows its position.
 */
#include "client/core/core.h"

#include <assert.h>
#include <errno.h>

#define PAUSE_MIN (NS_PER_S / 1000)
#define PAUSE_MAX (NS_PER_S / 10)

bool client_may_reconnect(const struct dl_client *client)
{
    const struct reconnect *rc = &client->reconnect;

    return rc->path && rc->patience > 0 && rc->life != 0;
}

/* ---- the end of a session ---- */

/* A batch that the user holds must be what it was: the daemon may have ended the session and lived
 * on. */
static int away_check_leased(struct dl_client *client)
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

static void away_leave_epoch(struct dl_epoch *epoch)
{
    epoch_apply(epoch, EPOCH_LOST);
    epoch->lent = epoch->unsent = 0;
    epoch->n_releases = epoch->n_pins = epoch->n_feeds = 0;
    assert(!epoch_rules_of(epoch)->daemon_has_it);
}

/* Forgets everything that concerned only the former daemon. */
static void away_leave_behind(struct dl_client *client)
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
            away_leave_epoch(epoch);
    }
    client->incarnation++;
    connection_restart(&client->conn);
}

/* The round of nodes that its rank was of is over: the daemon that took part in it is gone. */
static int away_break_epoch(struct dl_epoch *epoch)
{
    struct dl_error err = {0};

    dl_error_set(&err, ESTALE, "world",
                 "changed: the daemon of rank %u of %u is gone, and its successor joins the "
                 "cluster again; start the epoch again from its state",
                 epoch->rank, epoch->world);
    return epoch_cut(epoch, &err) < 0 ? connection_check(&epoch->loader->client->conn) : 1;
}

/* Other nodes may continue without this one, and no daemon could report how far this rank got: so
 * it uses no further batch. */
static int away_leave_world(struct dl_client *client)
{
    for (struct dl_loader *loader = client->loaders; loader; loader = loader->next)
        for (struct dl_epoch *epoch = loader->epochs; epoch; epoch = epoch->next)
            if (epoch->phase == EPOCH_AWAY && epoch->used && away_break_epoch(epoch) < 0)
                return connection_check(&client->conn);
    return 0;
}

static int away_give_up(struct dl_client *client)
{
    struct reconnect *rc = &client->reconnect;

    rc->away = AWAY_NOT;
    return connection_fail(&client->conn, ECONNRESET, rc->path,
                           "the daemon has ended, and no new one came within %g s: %s",
                           (double)rc->patience / (double)NS_PER_S, rc->cause.message);
}

/* The next try comes after a pause; each is longer than the one before. */
static int away_pause_then_try(struct dl_client *client, uint64_t now)
{
    struct reconnect *rc = &client->reconnect;

    if (now >= rc->deadline)
        return away_give_up(client);
    rc->next_try = now + rc->pause;
    rc->pause = min_u64(rc->pause * 2, PAUSE_MAX);
    return 0;
}

int client_lost(struct dl_client *client, const struct dl_error *why, uint64_t now)
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
    r = away_check_leased(client);
    if (r < 0)
        return r;
    rc->ended = rc->life;
    away_leave_behind(client);
    if ((r = away_leave_world(client)) < 0)
        return r;
    rc->call = (struct call){0};
    rc->away = AWAY_CONNECTING;
    if (again)
        return away_pause_then_try(client, now);
    rc->deadline = deadline_of(now, rc->patience);
    rc->pause = PAUSE_MIN;
    rc->next_try = now;
    return 0;
}

/* ---- the way back ---- */

int away_dialed(struct dl_client *client, bool connected, uint64_t now)
{
    struct reconnect *rc = &client->reconnect;
    const struct dl_message hello = client_hello_message(rc->agent);

    assert(rc->away == AWAY_CONNECTING);
    if (!connected)
        return away_pause_then_try(client, now);
    rc->away = AWAY_GREETING;
    rc->due = rc->deadline;
    rc->call = (struct call){.answer = DL_MSG_WELCOME, .is_repeat = true};
    client_send(client, &hello);
    return 1;
}

static struct dl_loader *away_next_loader(const struct dl_client *client)
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
static bool away_is_complete(const struct dl_epoch *epoch)
{
    const struct feed *feed = &epoch->feed;

    if (epoch->phase != EPOCH_LEFT || !epoch->job[0] || epoch->loader->iterable || epoch->cluster)
        return false;
    return feed->on ? feed->ended && epoch->expected == epoch->first + feed->steps
                    : epoch->expected == epoch->steps;
}

static struct dl_epoch *away_next_epoch(const struct dl_client *client)
{
    for (struct dl_loader *loader = client->loaders; loader; loader = loader->next)
        for (struct dl_epoch *epoch = loader->epochs; epoch; epoch = epoch->next)
            if (epoch->phase == EPOCH_AWAY || away_is_complete(epoch))
                return epoch;
    return NULL;
}

static int away_open_again(struct dl_client *client, struct dl_loader *loader, uint64_t now)
{
    struct reconnect *rc = &client->reconnect;
    struct dl_message msg = loader_open_message(loader);

    rc->call = (struct call){
        .request = msg.open.request, .answer = DL_MSG_OPENED, .is_repeat = true, .loader = loader};
    rc->away = AWAY_OPENING;
    rc->due = deadline_of(now, OPEN_TIMEOUT);
    client_send(client, &msg);
    return 1;
}

int away_brought_hosts(struct dl_client *client, struct dl_loader *loader, int r, uint64_t ended,
                       uint64_t now)
{
    assert(client->reconnect.call.done && (!loader || loader->needs_open));
    if (r < 0) /* what does not go now is tried with another daemon */
        return client_lost(client, NULL, now);
    if (!loader) {
        client->reconnect.away = AWAY_OPENING;
        return 1;
    }
    if (ended)
        return connection_fail(&client->conn, EPIPE, "dataset.host",
                               "a new daemon is running, but host %llu of the loader %s has "
                               "ended; open the loader again",
                               (ull)ended, loader->name);
    return away_open_again(client, loader, now);
}

int away_brought_tables(struct dl_client *client, struct dl_epoch *epoch,
                        const struct dl_error *err, uint64_t now)
{
    struct reconnect *rc = &client->reconnect;
    uint8_t before[HISTORY_BYTES];
    struct dl_message msg;

    if (err->code)
        return connection_fail(&client->conn, err->code, err->path,
                               "a new daemon is running, but %s", err->message);
    assert(!epoch_rules_of(epoch)->daemon_has_it && !epoch->loader->needs_open);
    if (came_follow_on(epoch) < 0)
        return connection_fail(&client->conn, ENOMEM, "", "no memory for a journal");
    msg = epoch_start_message(epoch, epoch->expected, before);
    rc->call = (struct call){
        .request = msg.start.request, .answer = DL_MSG_STARTED, .is_repeat = true, .epoch = epoch};
    rc->away = AWAY_STARTING;
    rc->due = deadline_of(now, REQUEST_TIMEOUT);
    return epoch_queue_start(epoch, &msg) < 0 ? connection_check(&client->conn) : 1;
}

/* What the next daemon reports must equal what the former one reported. */
static int away_differs(struct dl_client *client, const char *name, const char *what, uint64_t now,
                        uint64_t before)
{
    if (now == before)
        return 0;
    return connection_fail(&client->conn, ESTALE, name,
                           "a new daemon is running, but with another %s: %llu now, %llu before; "
                           "start the epoch again",
                           what, (ull)now, (ull)before);
}

int away_opened(struct dl_client *client, const struct dl_msg_opened *opened)
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
    if ((r = away_differs(client, loader->name, "spec fingerprint", opened->fingerprint,
                          loader->fingerprint)) < 0 ||
        (r = away_differs(client, loader->name, "kind of dataset (1: iterable)", opened->iterable,
                          loader->iterable)) < 0 ||
        (r = away_differs(client, loader->name, "length of the dataset", opened->length,
                          loader->length)) < 0 ||
        (r = away_differs(client, loader->name, "fingerprint of the data", opened->dataset,
                          loader->identity.dataset)) < 0 ||
        (r = away_differs(client, loader->name, "order (1: of the steps)", opened->in_order,
                          loader->in_order)) < 0 ||
        (r = away_differs(client, loader->name, "seed", opened->seed, loader->seed)) < 0)
        return r;
    loader->id = (uint32_t)opened->loader;
    loader->needs_open = false;
    return 0;
}

int away_started(struct dl_client *client, const struct dl_msg_started *started)
{
    struct dl_epoch *epoch = client->reconnect.call.epoch;
    uint32_t stream = (uint32_t)started->stream;

    client->reconnect.call.done = true;
    if (!epoch) {
        client_stop_stream(client, stream);
        return 0;
    }
    /* Of an iterable dataset it is an estimate. */
    if (!epoch->loader->iterable && away_differs(client, epoch->loader->name, "number of steps",
                                                 started->steps, epoch->steps) < 0)
        return connection_check(&client->conn);
    if (away_differs(client, epoch->loader->name, "first step", started->first, epoch->expected) <
        0)
        return connection_check(&client->conn);
    epoch->stream = stream;
    epoch_apply(epoch, EPOCH_TAKEN_UP);
    epoch->resumed = true;
    former_leases_report(epoch);
    if (epoch->feed.on) {
        feed_rewind(epoch);
        feed_catch_up(epoch);
    }
    return 0;
}

/*
 * Retries on a daemon that is about to end, and on one that does not know the loader's name yet, if
 * the name is all we have: the client with its spec may still be reconnecting. An epoch that is
 * over needs nothing from the daemon: the other ranks may be far ahead by now. All other refusals
 * go to the user.
 */
static int away_refused(struct dl_client *client, const struct dl_error *err, uint64_t now)
{
    struct dl_epoch *epoch = client->reconnect.call.epoch;
    const struct dl_error why = *err;

    if (why.code == ESHUTDOWN || (why.code == ENOENT && strcmp(why.path, "name") == 0)) {
        int r = client_lost(client, &why, now);

        client->reconnect.ended = 0; /* it may be this one again */
        return r;
    }
    if (epoch && epoch_rules_of(epoch)->is_over) {
        epoch_apply(epoch, EPOCH_REFUSED);
        client->reconnect.call.refused = (struct dl_error){0};
        return 1;
    }
    return connection_fail(&client->conn, why.code, why.path, "a new daemon is running, but %s",
                           why.message);
}

static int away_overdue(struct dl_client *client)
{
    struct reconnect *rc = &client->reconnect;

    if (rc->away == AWAY_GREETING) {
        dl_error_set(&rc->cause, ETIMEDOUT, "", "it does not answer");
        return away_give_up(client);
    }
    return connection_fail(&client->conn, ETIMEDOUT, rc->path,
                           "a new daemon is running, but does not answer with %s",
                           message_name(rc->call.answer));
}

/* The next errand, or the end of the way. */
static int away_go_on(struct dl_client *client, struct errand *ret)
{
    struct dl_loader *loader = away_next_loader(client);
    struct dl_epoch *epoch = away_next_epoch(client);

    if (client->reconnect.away == AWAY_GREETING)
        *ret = (struct errand){.kind = ERRAND_HOSTS, .hosts = &client->hosts};
    else if (loader)
        *ret = (struct errand){.kind = ERRAND_HOSTS, .hosts = &loader->hosts, .loader = loader};
    else if (epoch && epoch->cluster)
        return away_break_epoch(epoch);
    else if (epoch)
        *ret = (struct errand){.kind = ERRAND_TABLES, .epoch = epoch};
    else
        client->reconnect.away = AWAY_NOT;
    return ret->kind == ERRAND_NONE;
}

int away_turn(struct dl_client *client, uint64_t now, struct errand *ret)
{
    struct reconnect *rc = &client->reconnect;

    *ret = (struct errand){0};
    assert(client_is_away(client));
    if (rc->away == AWAY_CONNECTING) {
        ret->kind = now < rc->next_try ? ERRAND_NONE : ERRAND_DIAL;
        return 0;
    }
    if (!rc->call.done)
        return now < rc->due ? 0 : away_overdue(client);
    if (rc->call.refused.code)
        return away_refused(client, &rc->call.refused, now);
    return away_go_on(client, ret);
}

uint64_t away_wake(const struct dl_client *client)
{
    const struct reconnect *rc = &client->reconnect;

    if (rc->away == AWAY_CONNECTING)
        return rc->next_try;
    return rc->call.done ? 0 : rc->due;
}
