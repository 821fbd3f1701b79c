/*
 * Receiving an epoch: next(), and when leases go back.
 *
 * Steps released or pinned collect in `releases` and `pins` and go out together: when flush_at of
 * them (a quarter of the credits) wait, when no delivered batch is left here, and before the client
 * blocks. So a client with batches in store makes one system call per quarter of its credits. A
 * client that is the sampler may skip the last case while the daemon has enough work: see
 * feed_may_wait().
 */
#include "client/internal.h"

#include "proto/position.h"

#include <errno.h>

/* Between two batches, for a user who hardly works on them. */
enum { HURRY_NS = 100 * 1000 };

/* Whether there is something else of its loaders that the client could let go of. */
static bool next_holds_more(const struct dl_epoch *than)
{
    for (const struct dl_loader *loader = than->loader->client->loaders; loader;
         loader = loader->next) {
        if (loader->extra_leases > 0)
            return true;
        for (const struct dl_epoch *epoch = loader->epochs; epoch; epoch = epoch->next) {
            if (epoch != than && (epoch->current || epoch->count > 0))
                return true;
        }
    }
    return false;
}

/* It says that memory.limit, or the user's quota, leaves no room for a further batch. */
static bool next_lacks_memory(const struct entry *entry)
{
    const struct fault *fault = entry->fault;

    return fault && !fault->final && entry->descriptor.step == UINT64_MAX &&
           (fault->code == ENOMEM || fault->code == EDQUOT);
}

/*
 * Drops reports of missing memory that the daemon sent before it received our releases: a user who
 * holds nothing more cannot act on them. If still short, the daemon reports it again.
 */
static void next_drop_stale(struct dl_epoch *epoch)
{
    while (epoch->count > 0 && next_lacks_memory(&epoch->entries[epoch->head]) &&
           !next_holds_more(epoch)) {
        struct entry stale = epoch_pop(epoch);
        entry_deinit(&stale);
    }
}

/* The first entry is about to be given out in a cluster. False: its world is over, as the daemon
 * is about to say, unless it is gone. */
static bool next_may_use(struct dl_epoch *epoch)
{
    const struct entry *first = &epoch->entries[epoch->head];

    return first->descriptor.step == UINT64_MAX || !epoch_rules_of(epoch)->daemon_has_it ||
           position_advance(epoch->used, first->descriptor.step + 1);
}

/* The first entry is to be given out now, or nothing more will come. */
static bool next_is_ready(struct dl_epoch *epoch)
{
    if (epoch->count > 0 && epoch->entries[epoch->head].fault)
        next_drop_stale(epoch);
    if (epoch->count == 0 || epoch->outcome == EPOCH_CUT)
        return epoch_rules_of(epoch)->is_over;
    return !epoch->used || next_may_use(epoch);
}

/* Until it is ready: 0, or why it is not. */
static int next_wait(struct dl_epoch *epoch, uint64_t deadline, bool block)
{
    struct dl_client *client = epoch->loader->client;
    /* Reading the socket would find nothing: a user who returns at once has just received all that
     * had arrived, while one who was away longer usually finds the next batch. */
    bool fed = epoch->feed.on, in_vain = block && epoch->hurried && !client_is_away(client) &&
                                         !(fed && feed_is_due(epoch));

    for (int turn = 0; !next_is_ready(epoch); turn++) {
        int r;

        if (fed)
            feed_catch_up(epoch);
        r = in_vain && turn == 0 ? client_flush(client) : client_exchange(client);
        if (r < 0)
            return client_fatal(client);
        /* Other epochs' messages may keep arriving, but the caller's time is limited. */
        if (r > 0 && turn < CLIENT_POLL_TURNS)
            continue;
        if (r > 0 && next_is_ready(epoch))
            break;
        if (fed && feed_is_due(epoch))
            return client_fail(client, ENODATA, "",
                               "every step that was fed was received; feed more, or feed the end");
        if (r > 0 && deadline != DEADLINE_NONE && clock_ns() >= deadline)
            r = CLIENT_LATE;
        else if (block)
            r = client_wait(client, deadline);
        if (r < 0)
            return client_fatal(client);
        if (!block || r == CLIENT_LATE)
            return client_fail(client, block ? ETIMEDOUT : EAGAIN, "", "no batch is ready yet");
    }
    return 0;
}

/* 0: it is ready. */
static int next_need_entry(struct dl_epoch *epoch, int64_t timeout_ns)
{
    uint64_t begin;
    int r;

    if (next_is_ready(epoch) && epoch->count > 0)
        return 0;
    if (!epoch->feed.on || !feed_may_wait(epoch)) {
        epoch->n_feeds = 0;
        client_queue_pending(epoch->loader->client);
    }
    begin = clock_ns();
    r = next_wait(epoch, timeout_ns < 0 ? DEADLINE_NONE : deadline_of(begin, (uint64_t)timeout_ns),
                  timeout_ns != 0);
    epoch->wait_ns += clock_ns() - begin;
    return r;
}

static int next_say_fault(struct dl_epoch *epoch, struct fault *fault)
{
    int r = client_fail(epoch->loader->client, fault->code, fault->path, "%s", fault->message);

    epoch->loader->client->detail = steal_ptr(fault->detail); /* client_fail() cleared it */
    return r;
}

static int next_take_fault(struct dl_epoch *epoch, struct entry *entry)
{
    struct dl_client *client = epoch->loader->client;
    int r = next_say_fault(epoch, entry->fault);

    epoch->failed = entry->descriptor.step;
    if (entry_is_lent(client, entry))
        epoch_queue_release(epoch, entry->descriptor.step, true);
    else if (entry_is_former_lease(client, entry))
        former_leases_note_returned(epoch);
    entry_deinit(entry);
    return r;
}

/* What has come stays where it is until the epoch is ended: it was not used. */
static int next_take_cut(struct dl_epoch *epoch)
{
    int r = DL_END;

    if (epoch->cut)
        r = next_say_fault(epoch, epoch->cut);
    epoch->cut = fault_free(epoch->cut);
    return r;
}

/* 0 and the entry, which is the caller's; or a negative errno. */
static int next_receive(struct dl_epoch *epoch, int64_t timeout_ns, struct entry *ret)
{
    struct dl_client *client = epoch->loader->client;
    int r = 0;

    /* What has come is of no use once the world is another: that is heard first. */
    if (epoch->cluster && epoch->count > 0 && !epoch_rules_of(epoch)->is_over)
        r = client_pump(client);
    if (r < 0)
        return client_fatal(client);
    r = next_need_entry(epoch, timeout_ns);
    if (epoch->outcome == EPOCH_CUT && r == 0)
        return next_take_cut(epoch);
    if (r == 0 && epoch->count == 0)
        r = DL_END;
    if (epoch->outcome < EPOCH_BROKEN)
        epoch->outcome = r == DL_END ? EPOCH_HAD_ALL : EPOCH_OPEN;
    if (r == 0)
        *ret = epoch_pop(epoch);
    return r;
}

/* The batch of an entry, which is consumed, or its fault. */
static int next_give(struct dl_epoch *epoch, struct entry *entry, struct dl_batch **ret)
{
    uint64_t step = entry->descriptor.step;
    int r;

    if (step != UINT64_MAX) {
        epoch->received++;
        epoch->position =
            !epoch->loader->in_order && came_is_kept(epoch) ? epoch->position + 1 : step + 1;
    }
    if (entry->fault)
        return next_take_fault(epoch, entry);
    r = batch_new(epoch, entry, &epoch->current);
    if (r < 0)
        epoch->failed = step;
    else
        *ret = epoch->current;
    return r;
}

/* One entry: without a daemon it is made here. */
static int next_once(struct dl_epoch *epoch, int64_t timeout_ns, struct dl_batch **ret)
{
    struct dl_client *client = epoch->loader->client;
    struct entry entry;
    int r =
        epoch->local ? local_epoch_make(epoch, &entry) : next_receive(epoch, timeout_ns, &entry);

    if (r != 0)
        return r;
    r = next_give(epoch, &entry, ret);
    if (connection_check(&client->conn) < 0)
        return client_fatal(client);
    if (!epoch->local)
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
    epoch->hurried = clock_ns() - epoch->given_ns < HURRY_NS;
    if (epoch->current)
        batch_give_back(epoch->current);
    do {
        r = next_once(epoch, timeout_ns, ret);
        if (r != DL_E_WORLD_CHANGED || !world_change_may_follow(epoch))
            return r;
        r = world_change_follow(epoch);
    } while (r == 0);
    return r;
}
