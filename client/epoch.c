/* Epochs: start, end, and what can be asked about them. */
#include "client/epoch_options.h"
#include "client/internal.h"

#include <errno.h>

static void epoch_freep(struct dl_epoch **epoch)
{
    epoch_free(*epoch);
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
    if (came_begin(epoch, place->step, &place->passed) < 0)
        return epoch_free(epoch);
    epoch->before = place->before;
    epoch->marks[0] = (struct marked){place->mark, place->step};
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

int epoch_start_remote(struct dl_epoch *epoch)
{
    struct dl_client *client = epoch->loader->client;
    uint8_t before[HISTORY_BYTES];
    struct dl_message msg = epoch_start_message(epoch, epoch->first, before);

    client->call =
        (struct call){.request = msg.start.request, .answer = DL_MSG_STARTED, .epoch = epoch};
    /* Where nodes have to meet first, the daemon says how long that may take. */
    return client_call(client, &msg, epoch->cluster ? UINT64_MAX : REQUEST_TIMEOUT);
}

static int epoch_start_at(struct dl_loader *loader, const struct dl_epoch_options *o,
                          const struct state_place *place, struct dl_epoch **ret)
{
    _cleanup_(epoch_freep) struct dl_epoch *epoch = epoch_new(loader, o, place);

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
        r = journal_follow(epoch, o);
    if (r == 0)
        r = loader->local ? local_epoch_start(epoch, o->rank) : epoch_start_remote(epoch);
    if (r == 0)
        *ret = steal_ptr(epoch);
    return r;
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

struct dl_epoch *dl_epoch_end(struct dl_epoch *epoch)
{
    struct dl_client *client;
    int r;

    if (!epoch)
        return NULL;
    client = epoch->loader->client;
    client_drain(client);
    if (epoch->current)
        batch_give_back(epoch->current);
    if (epoch->local) {
        epoch_disown(epoch);
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
    client_drain(epoch->loader->client);
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
