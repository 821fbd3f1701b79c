/*
 * What the daemon is asked for: greetings, loaders, streams and their end.
 */
#include "client/core/core.h"

#include "proto/common/array.h"

#include <assert.h>
#include <errno.h>

struct dl_message client_hello_message(const char *agent)
{
    return (struct dl_message){.number = DL_MSG_HELLO,
                               .hello = {.version = DL_PROTOCOL_VERSION,
                                         .agent = span_str(agent ? agent : "libdlclient")}};
}

struct dl_message loader_open_message(struct dl_loader *loader)
{
    struct dl_message msg = {.number = DL_MSG_OPEN};

    msg.open.request = connection_request(&loader->client->conn);
    msg.open.base = span_str(loader->base);
    msg.open.spec = (struct dl_span){loader->spec.data, loader->spec.len};
    msg.open.seeded = loader->name || loader->client->has_seed; /* `name`: it was open before */
    msg.open.seed = loader->name ? loader->seed : loader->client->seed;
    msg.open.writable = loader->wants_writable;
    msg.open.automatic = loader->wants_automatic;
    return msg;
}

struct lazy_mark epoch_mark_at(const struct dl_epoch *epoch, uint64_t step)
{
    for (size_t i = 0; i < ARRAY_SIZE(epoch->marks); i++)
        if (epoch->marks[i].step <= step)
            return epoch->marks[i].mark;
    return (struct lazy_mark){0};
}

void epoch_note_mark(struct dl_epoch *epoch, uint64_t step, struct lazy_mark mark)
{
    if (mark.window <= epoch->marks[0].mark.window || step < epoch->marks[0].step)
        return;
    epoch->marks[1] = epoch->marks[0];
    epoch->marks[0] = (struct marked){mark, step};
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
    msg.start.mark_window = epoch_mark_at(epoch, step).window;
    msg.start.mark_rows = epoch_mark_at(epoch, step).rows;
    if (!came_is_kept(epoch) || epoch->came.lost)
        return msg;
    msg.start.passed =
        (struct dl_span){epoch->came.passed, passed_write(&epoch->came.now, epoch->came.passed)};
    msg.start.journal = (struct dl_span){epoch->came.led.data, epoch->came.led.len};
    return msg;
}

static void requests_send_place(struct dl_epoch *epoch)
{
    struct dl_message msg = {.number = DL_MSG_PLACE};

    if (!epoch->cluster)
        return;
    msg.place.loader = epoch->loader->id;
    if (epoch->loader->former.local == epoch->local_rank) {
        msg.place.rank = epoch->loader->former.rank;
        msg.place.world = epoch->loader->former.world;
    }
    client_send(epoch->loader->client, &msg);
}

int epoch_queue_start(struct dl_epoch *epoch, const struct dl_message *start)
{
    saved_states_queue(epoch);
    requests_send_place(epoch);
    weights_send(epoch->loader);
    return connection_send(&epoch->loader->client->conn, start);
}

/* Batches may be on their way until the daemon has read STOP; even of a stream that is over the
 * news that its world has changed. */
static void requests_remember_stopped(struct dl_client *client, uint32_t stream)
{
    if (!array_reserve(client->stopped, client->cap_stopped, client->n_stopped + UINT64_C(1))) {
        connection_fail(&client->conn, ENOMEM, "", "no memory to stop an epoch");
        return;
    }
    client->stopped[client->n_stopped++] =
        (struct stopped){.stream = stream, .request = client->conn.last_request};
}

void client_stop_stream(struct dl_client *client, uint32_t stream)
{
    struct dl_message msg = {.number = DL_MSG_STOP};

    msg.stop.stream = stream;
    client_send(client, &msg);
    requests_remember_stopped(client, stream);
}

/* Everything delivered and not handed out goes back. */
static void requests_give_entries_back(struct dl_epoch *epoch)
{
    while (epoch->count > 0) {
        struct entry entry = epoch_pop(epoch);

        if (entry_is_lent(epoch->loader->client, &entry))
            epoch_queue_release(epoch, entry.descriptor.step, true);
        entry_deinit(&entry);
    }
}

/* What outlives the epoch. */
static void requests_disown(const struct dl_epoch *epoch, struct dl_batch *list)
{
    for (; list; list = list->next)
        if (list->epoch == epoch)
            list->epoch = NULL;
}

void epoch_disown(struct dl_epoch *epoch)
{
    requests_disown(epoch, epoch->loader->client->batches);
    requests_disown(epoch, epoch->loader->client->tensor_owned);
}

void epoch_leave_stream(struct dl_epoch *epoch)
{
    struct dl_client *client = epoch->loader->client;

    /* Batches that the user never saw are not acknowledged: they are released once the stream has
     * stopped. STOP is sent even after FINISHED, since it frees the stream's number. */
    epoch_queue_pending(epoch);
    if (epoch_rules_of(epoch)->daemon_has_it)
        client_stop_stream(client, epoch->stream);
    requests_give_entries_back(epoch);
    assert(epoch->count == 0 && epoch->faults == 0 && epoch->detail_bytes == 0);
    epoch_disown(epoch);
    epoch_queue_pending(epoch);
}
