/*
 * Epochs: the queue of what the daemon delivered, next(), and giving leases back.
 *
 * Steps given back or pinned collect in `releases` and `pins` and go out together: when flush_at of
 * them (a quarter of the credits) wait, when no delivered batch is left here, and before the client
 * blocks. So a client that has batches in store makes one system call for a quarter of its credits.
 * One that is the sampler need not do so before it blocks either, as long as the daemon has enough
 * to go on with: see is_fed().
 */
#include "client/internal.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>

enum {
    ENTRIES_MIN = 16,
    HURRY_NS = 100 * 1000, /* between two batches, of a user who does next to nothing with them */
};

/* ---- the queue ---- */

struct fault *fault_free(struct fault *fault)
{
    if (fault) {
        free(fault->path);
        free(fault->message);
        free(fault->detail);
        free(fault);
    }
    return NULL;
}

void entry_deinit(struct entry *entry)
{
    entry->mapping = mapping_unref(entry->mapping);
    entry->fault = fault_free(entry->fault);
}

static int grow(struct dl_epoch *epoch)
{
    uint32_t cap = epoch->cap ? epoch->cap * 2 : ENTRIES_MIN;
    struct entry *grown = calloc(cap, sizeof *grown);

    if (!grown)
        return -ENOMEM;
    for (uint32_t i = 0; i < epoch->count; i++)
        grown[i] = epoch->entries[(epoch->head + i) & (epoch->cap - 1)];
    free(epoch->entries);
    epoch->entries = grown;
    epoch->cap = cap;
    epoch->head = 0;
    return 0;
}

int epoch_push(struct dl_epoch *epoch, const struct entry *entry)
{
    if (epoch->count == epoch->cap && grow(epoch) < 0) {
        struct entry lost = *entry;

        entry_deinit(&lost);
        return -ENOMEM;
    }
    epoch->entries[(epoch->head + epoch->count) & (epoch->cap - 1)] = *entry;
    epoch->count++;
    if (entry->fault) {
        epoch->faults++;
        epoch->detail_bytes += entry->fault->detail_len;
    }
    return 0;
}

static struct entry pop(struct dl_epoch *epoch)
{
    struct entry *entry = &epoch->entries[epoch->head];

    assert(epoch->count > 0);
    epoch->head = (epoch->head + 1) & (epoch->cap - 1);
    epoch->count--;
    if (entry->fault) {
        epoch->faults--;
        epoch->detail_bytes -= entry->fault->detail_len;
    }
    return *entry;
}

/* ---- giving back ---- */

static void send_steps(struct dl_epoch *epoch, bool pins)
{
    struct dl_message msg = {.number = pins ? DL_MSG_PIN : DL_MSG_RELEASE};
    uint32_t *n = pins ? &epoch->n_pins : &epoch->n_releases;
    struct dl_span steps = {.data = (const uint8_t *)(pins ? epoch->pins : epoch->releases),
                            .len = *n * sizeof(uint64_t)};

    if (*n == 0)
        return;
    if (pins) {
        msg.pin.stream = epoch->stream;
        msg.pin.steps = steps;
    } else {
        msg.release.stream = epoch->stream;
        msg.release.steps = steps;
        msg.release.waited = epoch->wait_ns - epoch->wait_told_ns;
        epoch->wait_told_ns = epoch->wait_ns;
    }
    *n = 0;
    client_send(epoch->loader->client, &msg);
}

/* Pending steps as messages. Pins first: a release may end one of them. */
static void queue_pending(struct dl_epoch *epoch)
{
    send_steps(epoch, true);
    send_steps(epoch, false);
    outlived_tell(epoch);
    assert(epoch->lent >= epoch->unsent);
    epoch->lent -= epoch->unsent;
    epoch->unsent = 0;
}

void client_queue_pending(struct dl_client *client)
{
    for (struct dl_loader *loader = client->loaders; loader; loader = loader->next)
        for (struct dl_epoch *epoch = loader->epochs; epoch; epoch = epoch->next) {
            queue_pending(epoch);
            feed_catch_up(epoch);
        }
}

void client_release_step(struct dl_client *client, uint32_t stream, uint64_t step)
{
    struct dl_message msg = {.number = DL_MSG_RELEASE};
    uint64_t le = htole64(step);

    msg.release.stream = stream;
    msg.release.steps = (struct dl_span){(const uint8_t *)&le, sizeof le};
    client_send(client, &msg);
}

void epoch_queue_pin(struct dl_epoch *epoch, uint64_t step)
{
    if (epoch->local)
        return;
    epoch->pins[epoch->n_pins++] = htole64(step);
    epoch->unsent++;
    if (epoch->n_pins == epoch->flush_at)
        queue_pending(epoch);
}

void epoch_queue_release(struct dl_epoch *epoch, uint64_t step, bool credit)
{
    epoch->releases[epoch->n_releases++] = htole64(step);
    epoch->unsent += credit;
    if (epoch->n_releases == epoch->flush_at)
        queue_pending(epoch);
}

/*
 * What the user says can wait for company, since a message of its own costs more than a small
 * batch: the daemon has half of what it may load ahead, less than a quarter waits here, and the
 * user is one who comes back at once. So the daemon never waits for what lies here.
 */
static bool is_fed(const struct dl_epoch *epoch)
{
    uint64_t ahead = epoch->feed.steps - epoch->received;
    uint32_t waiting = epoch->n_feeds + epoch->n_releases + epoch->n_pins + epoch->n_outlived;

    return epoch->hurried && epoch->feed.on && !epoch->feed.ended &&
           ahead >= epoch->credits / 2 + epoch->n_feeds && waiting < epoch->credits / 4;
}

void epoch_flush_if_due(struct dl_epoch *epoch)
{
    struct dl_client *client = epoch->loader->client;
    int r;

    if (is_fed(epoch))
        return;
    epoch->n_feeds = 0;
    if (epoch->count == 0 ||
        epoch->n_releases + epoch->n_pins + epoch->n_outlived >= epoch->flush_at)
        queue_pending(epoch);
    if (connection_output(&client->conn).len > 0) {
        r = client_flush(client); /* a failure is latched for the next call */
        (void)r;
    }
}

/* ---- start and end ---- */

void epoch_unlink(struct dl_epoch *epoch)
{
    for (struct dl_epoch **link = &epoch->loader->epochs; *link; link = &(*link)->next)
        if (*link == epoch) {
            *link = epoch->next;
            return;
        }
}

static struct dl_epoch *epoch_free(struct dl_epoch *epoch)
{
    if (!epoch)
        return NULL;
    epoch_unlink(epoch);
    while (epoch->count > 0) {
        struct entry entry = pop(epoch);

        entry_deinit(&entry);
    }
    view_unref(epoch->view);
    if (epoch->loader->client->reconnect.call.epoch == epoch)
        epoch->loader->client->reconnect.call.epoch = NULL;
    view_unref(epoch->slice);
    carry_deinit(epoch);
    fault_free(epoch->cut);
    free(epoch->job);
    free(epoch->entries);
    feed_deinit(&epoch->feed);
    held_deinit(&epoch->came);
    free(epoch->warning);
    free(epoch->told);
    free(epoch->releases);
    free(epoch->pins);
    free(epoch);
    return NULL;
}

static void epoch_freep(struct dl_epoch **epoch)
{
    epoch_free(*epoch);
}

uint64_t epoch_options_world(const struct dl_epoch_options *o)
{
    return o->world == DL_WORLD_CLUSTER ? 0 : o->world ? o->world : 1;
}

static int check_options(struct dl_client *client, const struct dl_epoch_options *o)
{
    bool cluster = o->world == DL_WORLD_CLUSTER;
    uint32_t world = o->world ? o->world : 1;

    if (!cluster && world > DL_MAX_WORLD_SIZE)
        return client_fail(client, EINVAL, "world", "%u is above %llu", world,
                           (unsigned long long)DL_MAX_WORLD_SIZE);
    if (cluster && o->rank >= DL_MAX_WORLD_SIZE)
        return client_fail(client, EINVAL, "rank", "%u is not below %llu", o->rank,
                           (unsigned long long)DL_MAX_WORLD_SIZE);
    if (o->rank >= world)
        return client_fail(client, EINVAL, "rank", "%u is not below the world size, %u", o->rank,
                           world);
    if (o->credits > DL_MAX_CREDITS)
        return client_fail(client, EINVAL, "credits", "%u is above %llu", o->credits,
                           (unsigned long long)DL_MAX_CREDITS);
    if (o->follow > 1 || (o->follow && !cluster))
        return client_fail(client, EINVAL, "follow",
                           "%u, where there is 0, and 1 in the cluster's world", o->follow);
    if (o->state && (o->epoch != 0 || o->step != 0))
        return client_fail(client, EINVAL, o->epoch ? "epoch" : "step",
                           "%llu beside a state, which says it by itself: 0 is due",
                           (unsigned long long)(o->epoch ? o->epoch : o->step));
    if (o->job && strlen(o->job) > DL_MAX_NAME_BYTES)
        return client_fail(client, EINVAL, "job", "a name of %zu bytes; it may have %llu",
                           strlen(o->job), (unsigned long long)DL_MAX_NAME_BYTES);
    if (o->epoch == DL_RESUME && (((!o->job || !o->job[0]) && !cluster) || o->step > 0))
        return client_fail(client, EINVAL, o->step > 0 ? "step" : "job",
                           "resuming needs the job's name and no step");
    return 0;
}

static struct dl_epoch *epoch_new(struct dl_loader *loader, const struct dl_epoch_options *o,
                                  const struct state_place *place)
{
    struct dl_epoch *epoch = calloc(1, sizeof *epoch);

    if (!epoch)
        return NULL;
    epoch->loader = loader;
    epoch->number = place->epoch;
    epoch->rank = o->rank;
    epoch->world = (uint32_t)epoch_options_world(o);
    epoch->cluster = o->world == DL_WORLD_CLUSTER;
    epoch->follow = o->follow;
    epoch->local_rank = o->rank;
    epoch->first = epoch->expected = epoch->position = place->step;
    epoch->before = place->before;
    epoch->job = strdup(o->job ? o->job : "");
    epoch->failed = DL_UNKNOWN;
    epoch->outlived = UINT64_MAX;
    epoch->credits = o->credits ? o->credits : loader->credits;
    epoch->flush_at = epoch->credits / 4 ? epoch->credits / 4 : 1;
    epoch->releases = calloc(epoch->flush_at, sizeof *epoch->releases);
    epoch->pins = calloc(epoch->flush_at, sizeof *epoch->pins);
    if (!epoch->releases || !epoch->pins || !epoch->job)
        return epoch_free(epoch);
    return epoch;
}

struct dl_message epoch_start_message(struct dl_epoch *epoch, uint64_t step,
                                      uint8_t before[static HISTORY_BYTES])
{
    struct dl_message msg = {.number = DL_MSG_START};

    msg.start.request = connection_request(&epoch->loader->client->conn);
    msg.start.loader = epoch->loader->id;
    msg.start.epoch = epoch->number;
    msg.start.rank = epoch->cluster ? epoch->local_rank : epoch->rank;
    msg.start.world = epoch->cluster ? 0 : epoch->world;
    msg.start.step = step;
    msg.start.credits = epoch->credits;
    msg.start.before = (struct dl_span){before, history_write(&epoch->before, before)};
    msg.start.job = span_str(epoch->job);
    msg.start.held = outlived_lowest(epoch);
    return msg;
}

int epoch_start_remote(struct dl_epoch *epoch)
{
    struct dl_client *client = epoch->loader->client;
    uint8_t before[HISTORY_BYTES];
    struct dl_message msg = epoch_start_message(epoch, epoch->first, before);

    if (!client_is_away(client))
        carry_queue(epoch);
    client->call =
        (struct call){.request = msg.start.request, .answer = DL_MSG_STARTED, .epoch = epoch};
    /* Where nodes have to meet first, the daemon says how long that may take. */
    return client_call(client, &msg, epoch->cluster ? UINT64_MAX : REQUEST_TIMEOUT);
}

static int start_at(struct dl_loader *loader, const struct dl_epoch_options *o,
                    const struct state_place *place, struct dl_epoch **ret)
{
    _cleanup_(epoch_freep)
    struct dl_epoch *epoch = epoch_new(loader, o, place);

    if (!epoch)
        return client_fail(loader->client, ENOMEM, "", "no memory for an epoch");
    if (loader->local && o->epoch == DL_RESUME)
        return client_fail(loader->client, ENOENT, "job",
                           "this loader has no daemon that would know how far the job has come; "
                           "start an epoch by its number");
    if (loader->local && epoch->cluster)
        return client_fail(loader->client, ENOTSUP, "world",
                           "the cluster's is known to a daemon alone, and this loader has none; "
                           "give a number, or workers.count");
    int r = state_take_carried(epoch, o);
    if (r == 0)
        r = loader->local ? local_epoch_start(epoch, o->rank) : epoch_start_remote(epoch);
    if (r == 0)
        *ret = steal_ptr(epoch);
    return r;
}

/* It was begun, and this rank has had all of it. What the steps of an iterable dataset are is only
 * an estimate; what a client feeds has no end yet. */
static bool has_nothing_left(const struct dl_epoch *epoch)
{
    return (epoch->first > 0 || epoch->before.n > 0) && !epoch->loader->iterable &&
           !epoch->feed.on && epoch->first >= epoch->steps;
}

int dl_epoch_start(struct dl_loader *loader, const struct dl_epoch_options *options,
                   struct dl_epoch **ret)
{
    static const struct dl_epoch_options defaults;
    const struct dl_epoch_options *o = options ? options : &defaults;
    struct dl_client *client = loader->client;
    struct state_place place;
    int r = client_begin(client);

    if (r == 0)
        r = check_options(client, o);
    if (r == 0)
        r = state_find_place(loader, o, &place);
    if (r == 0)
        r = start_at(loader, o, &place, ret);
    if (r < 0 || !o->state || !has_nothing_left(*ret))
        return r;
    dl_epoch_end(*ret);
    *ret = NULL;
    if (add_overflows(place.epoch, 1, &place.epoch))
        return client_fail(client, ERANGE, "epoch", "the state is at the end of the last one");
    place = (struct state_place){.epoch = place.epoch};
    return start_at(loader, o, &place, ret);
}

/* Batches may be on their way until the daemon has read STOP. */
static void remember_stopped(struct dl_client *client, uint32_t stream)
{
    if (client->n_stopped == client->cap_stopped) {
        uint32_t cap = client->cap_stopped ? client->cap_stopped * 2 : 8;
        struct stopped *grown = reallocarray(client->stopped, cap, sizeof *grown);

        if (!grown) {
            connection_fail(&client->conn, ENOMEM, "", "no memory to stop an epoch");
            return;
        }
        client->stopped = grown;
        client->cap_stopped = cap;
    }
    client->stopped[client->n_stopped++] =
        (struct stopped){.stream = stream, .request = client->conn.last_request};
}

/* Everything delivered and not handed out goes back. */
static void give_entries_back(struct dl_epoch *epoch)
{
    while (epoch->count > 0) {
        struct entry entry = pop(epoch);

        if (entry.mapping && client_has_lease(epoch->loader->client, entry.mapping))
            epoch_queue_release(epoch, entry.descriptor.step, true);
        entry_deinit(&entry);
    }
}

void client_stop_stream(struct dl_client *client, uint32_t stream, bool over)
{
    struct dl_message msg = {.number = DL_MSG_STOP};

    msg.stop.stream = stream;
    client_send(client, &msg);
    if (!over)
        remember_stopped(client, stream);
}

/* What outlives the epoch. */
static void disown(const struct dl_epoch *epoch, struct dl_batch *list)
{
    for (; list; list = list->next)
        if (list->epoch == epoch)
            list->epoch = NULL;
}

void epoch_leave_stream(struct dl_epoch *epoch)
{
    struct dl_client *client = epoch->loader->client;

    /* What nobody has seen is not acknowledged: it is given back once the stream has stopped. STOP
     * also comes after FINISHED: it is what frees the stream's number. */
    queue_pending(epoch);
    if (!epoch->gone)
        client_stop_stream(client, epoch->stream, epoch->over && !epoch->ending);
    give_entries_back(epoch);
    disown(epoch, client->batches);
    disown(epoch, client->kept);
    queue_pending(epoch);
}

struct dl_epoch *dl_epoch_end(struct dl_epoch *epoch)
{
    struct dl_client *client;
    int r;

    if (!epoch)
        return NULL;
    client = epoch->loader->client;
    reclaim_drain(client);
    if (epoch->current)
        batch_give_back(epoch->current);
    if (epoch->local) {
        disown(epoch, client->batches);
        disown(epoch, client->kept);
        local_epoch_end(epoch);
        return epoch_free(epoch);
    }
    epoch_leave_stream(epoch);
    r = client_flush(client); /* a failure is latched for the next call */
    (void)r;
    return epoch_free(epoch);
}

/* ---- next ---- */

/* Until an entry is there, or nothing more will come. */
static int wait_entry(struct dl_epoch *epoch, uint64_t deadline, bool block)
{
    struct dl_client *client = epoch->loader->client;

    for (int turn = 0; epoch->count == 0 && !epoch->over; turn++) {
        int r;

        feed_catch_up(epoch);
        r = client_flush(client);
        if (r == 0)
            r = client_pump(client);
        if (r < 0)
            return client_fatal(client);
        /* What other epochs sent may go on arriving: the caller's time is limited all the same. */
        if (r > 0 && turn < CLIENT_POLL_TURNS)
            continue;
        if (feed_is_due(epoch))
            return -ENODATA;
        if (!block)
            return -EAGAIN;
        if (r > 0 && deadline != DEADLINE_NONE && clock_ns() >= deadline)
            return -ETIMEDOUT;
        r = client_wait(client, deadline);
        if (r == -ETIMEDOUT && connection_check(&client->conn) == 0)
            return -ETIMEDOUT;
        if (r < 0)
            return client_fatal(client);
    }
    return epoch->count > 0 ? 0 : DL_END;
}

/* Whether there is something else of its loaders that the client could let go of. */
static bool holds_more(const struct dl_epoch *than)
{
    for (const struct dl_loader *loader = than->loader->client->loaders; loader;
         loader = loader->next) {
        if (loader->held > 0)
            return true;
        for (const struct dl_epoch *epoch = loader->epochs; epoch; epoch = epoch->next) {
            if (epoch != than && (epoch->current || epoch->count > 0))
                return true;
        }
    }
    return false;
}

/* It says that memory.limit, or the user's quota, leaves no room for a further batch. */
static bool lacks_memory(const struct entry *entry)
{
    const struct fault *fault = entry->fault;

    return fault && !fault->final && entry->descriptor.step == UINT64_MAX &&
           (fault->code == ENOMEM || fault->code == EDQUOT);
}

/*
 * Drops words about a lack of memory that were said before the daemon heard of what has been given
 * back: who holds nothing any more can do nothing about it. It says so again should it have to.
 */
static void drop_stale(struct dl_epoch *epoch)
{
    while (epoch->count > 0 && lacks_memory(&epoch->entries[epoch->head]) && !holds_more(epoch)) {
        struct entry stale = pop(epoch);
        entry_deinit(&stale);
    }
}

static int need_entry(struct dl_epoch *epoch, int64_t timeout_ns)
{
    struct dl_client *client = epoch->loader->client;
    uint64_t begin, deadline = DEADLINE_NONE;
    int r;

    drop_stale(epoch);
    if (epoch->count > 0)
        return 0;
    if (!is_fed(epoch)) {
        epoch->n_feeds = 0;
        client_queue_pending(client);
    }
    begin = clock_ns();
    if (timeout_ns >= 0 && add_overflows(begin, (uint64_t)timeout_ns, &deadline))
        deadline = DEADLINE_NONE;
    do {
        r = wait_entry(epoch, deadline, timeout_ns != 0);
        drop_stale(epoch);
    } while (r == 0 && epoch->count == 0);
    epoch->wait_ns += clock_ns() - begin;
    if (r == -ENODATA)
        return client_fail(client, ENODATA, "",
                           "every step that was fed was received: feed more, or say the end");
    if (r == -EAGAIN || r == -ETIMEDOUT)
        return client_fail(client, -r, "", "no batch is ready yet");
    return r;
}

static int say_fault(struct dl_epoch *epoch, struct fault *fault)
{
    int r = client_fail(epoch->loader->client, fault->code, fault->path, "%s", fault->message);

    epoch->loader->client->detail = steal_ptr(fault->detail); /* the error before has none left */
    return r;
}

static int take_fault(struct dl_epoch *epoch, struct entry *entry)
{
    int r = say_fault(epoch, entry->fault);

    epoch->failed = entry->descriptor.step;
    entry_deinit(entry);
    return r;
}

/* What has come stays where it is until the epoch is ended: it was not used. */
static int take_cut(struct dl_epoch *epoch)
{
    int r = DL_END;

    if (epoch->cut)
        r = say_fault(epoch, epoch->cut);
    epoch->cut = fault_free(epoch->cut);
    return r;
}

static int next_remote(struct dl_epoch *epoch, int64_t timeout_ns, struct dl_batch **ret)
{
    struct dl_client *client = epoch->loader->client;
    struct dl_batch *batch;
    struct entry entry;
    uint64_t step;
    int r = 0;

    /* What has come is of no use once the world is another: that is heard first. */
    if (epoch->cluster && epoch->count > 0 && !epoch->over)
        r = client_pump(client);
    if (r < 0)
        return client_fatal(client);
    r = need_entry(epoch, timeout_ns);

    if (epoch->is_cut && (r == 0 || r == DL_END))
        return take_cut(epoch);
    epoch->ended = r == DL_END && !epoch->broken;
    if (r != 0)
        return r;
    entry = pop(epoch);
    if (entry.descriptor.step != UINT64_MAX) {
        epoch->received++;
        epoch->position = entry.descriptor.step + 1;
    }
    if (entry.fault) {
        r = take_fault(epoch, &entry);
    } else {
        step = entry.descriptor.step;
        r = batch_new(epoch, &entry, &batch);
        if (connection_check(&client->conn) < 0)
            return client_fatal(client);
        if (r < 0)
            epoch->failed = step;
        else
            *ret = epoch->current = batch;
    }
    epoch_flush_if_due(epoch);
    epoch->given_ns = clock_ns();
    return r;
}

int dl_epoch_next(struct dl_epoch *epoch, int64_t timeout_ns, struct dl_batch **ret)
{
    int r = client_begin(epoch->loader->client);

    if (r < 0)
        return r;
    epoch->failed = DL_UNKNOWN;
    if (!epoch->local)
        epoch->hurried = clock_ns() - epoch->given_ns < HURRY_NS;
    if (epoch->current)
        batch_give_back(epoch->current);
    if (epoch->local)
        return local_epoch_next(epoch, ret);
    do {
        r = next_remote(epoch, timeout_ns, ret);
        if (!epoch_may_follow(epoch, r))
            return r;
        r = epoch_go_on(epoch);
    } while (r == 0);
    return r;
}

uint64_t dl_epoch_failed_step(const struct dl_epoch *epoch)
{
    return epoch->failed;
}

uint64_t dl_epoch_held_bytes(const struct dl_epoch *epoch)
{
    reclaim_drain(epoch->loader->client);
    return epoch->loader->held_bytes;
}

uint64_t dl_epoch_number(const struct dl_epoch *epoch)
{
    return epoch->number;
}

uint64_t dl_epoch_first(const struct dl_epoch *epoch)
{
    return epoch->first;
}

uint32_t dl_epoch_rank(const struct dl_epoch *epoch)
{
    return epoch->rank;
}

uint32_t dl_epoch_world(const struct dl_epoch *epoch)
{
    return epoch->world;
}

uint32_t dl_epoch_changes(const struct dl_epoch *epoch)
{
    return epoch->changes;
}

uint64_t dl_epoch_steps(const struct dl_epoch *epoch)
{
    return epoch->steps;
}

uint64_t dl_epoch_samples(const struct dl_epoch *epoch)
{
    return epoch->samples;
}

const char *dl_epoch_warning(struct dl_epoch *epoch)
{
    free(epoch->told);
    epoch->told = steal_ptr(epoch->warning);
    return epoch->told;
}

uint64_t dl_epoch_wait_ns(const struct dl_epoch *epoch)
{
    return epoch->wait_ns;
}
