/* Epochs: start, end, and what can be asked about them. */
#include "client/epoch_options.h"
#include "client/internal.h"

#include <errno.h>
#include <stdio.h>

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
        struct entry entry = epoch_pop(epoch);

        entry_deinit(&entry);
    }
    view_unref(epoch->view);
    if (epoch->loader->client->reconnect.call.epoch == epoch)
        epoch->loader->client->reconnect.call.epoch = NULL;
    view_unref(epoch->slice);
    saved_states_deinit(epoch);
    fault_free(epoch->cut);
    world_change_drop_position(epoch);
    free(epoch->job);
    free(epoch->entries);
    feed_deinit(&epoch->feed);
    step_set_deinit(&epoch->arrived);
    free(epoch->warning);
    free(epoch->warning_shown);
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

int epoch_take_options(struct dl_client *client, const struct dl_epoch_options *from,
                       struct dl_epoch_options *ret)
{
    int r = epoch_options_read(from, ret);

    return r < 0 ? client_fail(client, -r, "options", "they %s", epoch_options_why(r)) : 0;
}

static const char *epoch_options_job(const struct dl_epoch_options *o)
{
    return o->job ? o->job : "";
}

static int epoch_check_options(struct dl_client *client, const struct dl_epoch_options *o)
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
    if (o->priority > DL_PRIORITY_LOW)
        return client_fail(client, EINVAL, "priority",
                           "%u is not DL_PRIORITY_NORMAL (0), HIGH (1) or LOW (2)", o->priority);
    if (o->follow > DL_FOLLOW_SAME || (o->follow && !cluster))
        return client_fail(client, EINVAL, "follow",
                           "%u is not DL_FOLLOW_NOT (0), or in the cluster's world ANY (1) or SAME "
                           "(2)",
                           o->follow);
    if (o->left_out > DL_LEFT_OUT_IGNORE)
        return client_fail(client, EINVAL, "left_out",
                           "%u is not DL_LEFT_OUT_ERROR (0), WARN (1) or IGNORE (2)", o->left_out);
    if (o->state && (o->epoch != 0 || o->step != 0))
        return client_fail(client, EINVAL, o->epoch ? "epoch" : "step",
                           "%llu given with a state, which contains it; write 0",
                           (unsigned long long)(o->epoch ? o->epoch : o->step));
    if (o->replicas > DL_MAX_REPLICAS || (o->replica && o->replica >= o->replicas))
        return client_fail(client, EINVAL, "replica",
                           "%u of %u; it is below their number, which is at most %llu", o->replica,
                           o->replicas, (unsigned long long)DL_MAX_REPLICAS);
    if (strlen(epoch_options_job(o)) > DL_MAX_NAME_BYTES)
        return client_fail(client, EINVAL, "job", "a name of %zu bytes; it may have %llu",
                           strlen(epoch_options_job(o)), (unsigned long long)DL_MAX_NAME_BYTES);
    if (o->epoch == DL_RESUME && ((!epoch_options_job(o)[0] && !cluster) || o->step > 0))
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
    epoch->replica = o->replica;
    epoch->replicas = o->replicas;
    epoch->cluster = o->world == DL_WORLD_CLUSTER;
    epoch->follow = (enum dl_follow)o->follow;
    epoch->left_out = o->left_out;
    epoch->priority = o->priority;
    epoch->expected_steps = o->expected_steps;
    epoch->local_rank = o->rank;
    epoch->first = epoch->expected = epoch->position = place->step;
    epoch->before = place->before;
    epoch->job = strdup(epoch_options_job(o));
    epoch->failed = DL_UNKNOWN;
    epoch->lowest_former = UINT64_MAX;
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
    msg.start.priority = epoch->priority;
    msg.start.former_lease = former_leases_lowest(epoch);
    msg.start.replica = epoch->replica;
    msg.start.replicas = epoch->replicas;
    msg.start.told = epoch->loader->weights.known;
    msg.start.expected = epoch->expected_steps;
    return msg;
}

int epoch_start_remote(struct dl_epoch *epoch)
{
    struct dl_client *client = epoch->loader->client;
    uint8_t before[HISTORY_BYTES];
    struct dl_message msg = epoch_start_message(epoch, epoch->first, before);

    if (!client_is_away(client))
        saved_states_queue(epoch);
    client->call =
        (struct call){.request = msg.start.request, .answer = DL_MSG_STARTED, .epoch = epoch};
    /* Where nodes have to meet first, the daemon says how long that may take. */
    return client_call(client, &msg, epoch->cluster ? UINT64_MAX : REQUEST_TIMEOUT);
}

static int epoch_start_at(struct dl_loader *loader, const struct dl_epoch_options *o,
                          const struct state_place *place, struct dl_epoch **ret)
{
    _cleanup_(epoch_freep)
    struct dl_epoch *epoch = epoch_new(loader, o, place);

    if (!epoch)
        return client_fail(loader->client, ENOMEM, "", "no memory for an epoch");
    if (loader->local && o->epoch == DL_RESUME)
        return client_fail(loader->client, ENOENT, "job",
                           "this loader has no daemon that remembers the job's progress; start "
                           "an epoch by its number");
    if (loader->local && epoch->cluster)
        return client_fail(loader->client, ENOTSUP, "world",
                           "only a daemon knows the cluster's world, and this loader has none; "
                           "give a number, or workers.count");
    int r = state_take_dataset_states(epoch, o);
    if (r == 0)
        r = loader->local ? local_epoch_start(epoch, o->rank) : epoch_start_remote(epoch);
    if (r == 0)
        *ret = steal_ptr(epoch);
    return r;
}

int epoch_divide_ranks(struct dl_loader *loader, struct dl_epoch_options *o)
{
    uint32_t n = loader->replicas, world = o->world ? o->world : 1;
    char mesh[64], why[256];

    if (n <= 1)
        return 0;
    if (o->replicas > 0)
        return client_fail(loader->client, EINVAL, "replicas",
                           "%u beside shard.replicas %u of the spec; give one of them", o->replicas,
                           n);
    if (o->world == DL_WORLD_CLUSTER)
        return client_fail(
            loader->client, EINVAL, "world",
            "the cluster's does not go with shard.replicas; give rank and world size");
    if (world % n > 0)
        return client_fail(loader->client, EINVAL, "world",
                           "%u is not a multiple of shard.replicas, %u", world, n);
    (void)snprintf(mesh, sizeof mesh, "dp=%u,tp=%u", world / n, n);
    if (dl_epoch_options_set_mesh(o, mesh, o->rank, o->local_world, why, sizeof why) < 0)
        return client_fail(loader->client, EINVAL, "replicas", "%s", why);
    return 0;
}

/* The epoch had begun, and this rank has received all of it. Not for iterable datasets, whose
 * number of steps is an estimate, nor for a client that feeds, whose end is unknown. */
static bool epoch_has_nothing_left(const struct dl_epoch *epoch)
{
    return (epoch->first > 0 || epoch->before.n > 0) && !epoch->loader->iterable &&
           !epoch->feed.on && epoch->first >= epoch->steps;
}

int dl_epoch_start(struct dl_loader *loader, const struct dl_epoch_options *options,
                   struct dl_epoch **ret)
{
    struct dl_epoch_options divided = {0};
    const struct dl_epoch_options *o = &divided;
    struct dl_client *client = loader->client;
    struct state_place place;
    int r = client_begin(client);

    if (r == 0)
        r = epoch_take_options(client, options, &divided);
    if (r == 0)
        r = epoch_check_options(client, o);
    if (r == 0)
        r = epoch_divide_ranks(loader, &divided);
    if (r == 0)
        r = state_find_place(loader, o, &place);
    if (r == 0)
        r = weights_take(loader, o);
    if (r == 0)
        r = epoch_start_at(loader, o, &place, ret);
    if (r < 0 || !o->state || !epoch_has_nothing_left(*ret))
        return r;
    dl_epoch_end(*ret);
    *ret = NULL;
    if (add_overflows(place.epoch, 1, &place.epoch))
        return client_fail(client, ERANGE, "epoch",
                           "the state is at the end of the last epoch; "
                           "start with another state");
    place = (struct state_place){.epoch = place.epoch};
    return epoch_start_at(loader, o, &place, ret);
}

/* Batches may be on their way until the daemon has read STOP. */
static void epoch_remember_stopped(struct dl_client *client, uint32_t stream)
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
static void epoch_give_entries_back(struct dl_epoch *epoch)
{
    while (epoch->count > 0) {
        struct entry entry = epoch_pop(epoch);

        if (entry_is_lent(epoch->loader->client, &entry))
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
        epoch_remember_stopped(client, stream);
}

/* What outlives the epoch. */
static void epoch_disown(const struct dl_epoch *epoch, struct dl_batch *list)
{
    for (; list; list = list->next)
        if (list->epoch == epoch)
            list->epoch = NULL;
}

void epoch_leave_stream(struct dl_epoch *epoch)
{
    struct dl_client *client = epoch->loader->client;

    /* Batches that the user never saw are not acknowledged: they are released once the stream has
     * stopped. STOP is sent even after FINISHED, since it frees the stream's number. */
    epoch_queue_pending(epoch);
    if (epoch_rules_of(epoch)->daemon_has_it)
        client_stop_stream(client, epoch->stream, epoch->phase == EPOCH_OVER);
    epoch_give_entries_back(epoch);
    epoch_disown(epoch, client->batches);
    epoch_disown(epoch, client->tensor_owned);
    epoch_queue_pending(epoch);
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
        epoch_disown(epoch, client->batches);
        epoch_disown(epoch, client->tensor_owned);
        local_epoch_end(epoch);
        return epoch_free(epoch);
    }
    epoch_leave_stream(epoch);
    r = client_flush(client); /* a failure is latched for the next call */
    (void)r;
    return epoch_free(epoch);
}

/* ---- what can be asked ---- */

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
    free(epoch->warning_shown);
    epoch->warning_shown = steal_ptr(epoch->warning);
    return epoch->warning_shown;
}

uint64_t dl_epoch_wait_ns(const struct dl_epoch *epoch)
{
    return epoch->wait_ns;
}
