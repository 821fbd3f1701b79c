/*
 * What each message of the daemon does to the client's objects: answers and segments here, an
 * epoch's stream in stream.c. Every number is checked: one that does not fit what was requested and
 * delivered so far ends the session with an error text.
 */
#include "client/core/dispatch.h"

#include "proto/common/array.h"
#include "proto/mix_changes.h"
#include "proto/pages.h"
#include "proto/position.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>

#define DAEMON_SPEAKS \
    "the daemon speaks version %llu of the protocol, this library " DL_PROTOCOL_SPOKEN
#define SAME_RELEASE "install the same release of both"

/* ---- answers ---- */

/* The call that waits for the answer: while away, the client makes calls of its own. */
static struct call *dispatch_due_call(struct dl_client *client)
{
    return client_is_away(client) ? &client->reconnect.call : &client->call;
}

/* Streams stopped before the request that is answered now: nothing of them can come any more. */
static void dispatch_forget_stopped(struct dl_client *client, uint64_t request)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < client->n_stopped; i++)
        if (client->stopped[i].request >= request)
            client->stopped[kept++] = client->stopped[i];
    client->n_stopped = kept;
}

/* Is this what the blocked call waits for? Latches if not. */
static int dispatch_check_answer(struct dl_client *client, const struct dl_message *msg,
                                 uint64_t request)
{
    const struct call *call = dispatch_due_call(client);

    if (call->answer == 0 || call->done || call->request != request)
        return violated(client, "%s answers request %llu, which is not pending",
                        message_name(msg->number), (ull)request);
    if (msg->number != DL_MSG_ERROR && call->answer != msg->number)
        return violated(client, "%s answers request %llu, which expects %s",
                        message_name(msg->number), (ull)request, message_name(call->answer));
    dispatch_forget_stopped(client, request);
    return 0;
}

static int dispatch_on_welcome(struct dl_client *client, const struct received *in)
{
    uint64_t version = in->msg.welcome.version;
    int r = dispatch_check_answer(client, &in->msg, 0);

    if (r < 0)
        return r;
    if (version < DL_PROTOCOL_OLDEST || version > DL_PROTOCOL_VERSION)
        return violated(client, DAEMON_SPEAKS "; " SAME_RELEASE, (ull)version);
    client->conn.version = (uint32_t)version;
    if (dispatch_due_call(client)->is_repeat && in->msg.welcome.life == client->reconnect.ended)
        return connection_fail(&client->conn, ECONNRESET, client->reconnect.path,
                               "the daemon ended this session; its log says why");
    client->reconnect.life = in->msg.welcome.life;
    dispatch_due_call(client)->done = true;
    return 0;
}

static bool dispatch_take_parts(struct dl_span bytes, uint64_t ret[static STATE_PARTS])
{
    if (bytes.len != STATE_PARTS * sizeof *ret)
        return false;
    memcpy(ret, bytes.data, bytes.len);
    for (unsigned i = 0; i < STATE_PARTS; i++)
        ret[i] = le64toh(ret[i]);
    return true;
}

static int dispatch_on_opened(struct dl_client *client, const struct received *in)
{
    const struct dl_msg_opened *opened = &in->msg.opened;
    struct dl_loader *loader;
    int r = dispatch_check_answer(client, &in->msg, opened->request);

    if (r < 0)
        return r;
    if (opened->credits == 0)
        return violated(client, "OPENED grants no credits");
    for (loader = client->loaders; loader; loader = loader->next)
        if (!loader->local && !loader->needs_open && loader->id == opened->loader)
            return violated(client, "OPENED: loader %u is open already", loader->id);
    if (dispatch_due_call(client)->is_repeat)
        return away_opened(client, opened);
    loader = client->call.loader;
    loader->name = span_dup(opened->label);
    if (!loader->name)
        return no_memory_for(client, &in->msg);
    loader->id = (uint32_t)opened->loader;
    loader->credits = (uint32_t)opened->credits;
    loader->length = opened->length;
    loader->batch_size = opened->batch;
    loader->iterable = opened->iterable;
    loader->in_order = opened->in_order;
    loader->drop_last = opened->drop_last;
    loader->replicas = (uint32_t)opened->replicas;
    loader->seed = opened->seed;
    loader->fingerprint = opened->fingerprint;
    loader->identity = (struct state_identity){.dataset = opened->dataset,
                                               .length = opened->length,
                                               .order = (enum state_order)opened->order,
                                               .seed = opened->seed,
                                               .workers = opened->iterable ? opened->workers : 0};
    if (!dispatch_take_parts(opened->parts, loader->identity.parts))
        return violated(client, "OPENED: %zu bytes are not the hashes of a spec's sections",
                        opened->parts.len);
    client->call.done = true;
    return 0;
}

static int dispatch_on_progress(struct dl_client *client, const struct received *in)
{
    const struct dl_msg_progress *progress = &in->msg.progress;
    const struct call *call = dispatch_due_call(client);

    if (call->answer != DL_MSG_OPENED || call->done || call->request != progress->request)
        return violated(client, "PROGRESS of request %llu, which is not a pending OPEN",
                        (ull)progress->request);
    _cleanup_free_ char *what = client->progress.tell ? span_dup(progress->what) : NULL;
    if (what)
        client->progress.tell(client->progress.data, progress->done, progress->all, what);
    return 0;
}

/* The place that the nodes have agreed on: where this rank resumes. */
static int dispatch_take_place(struct dl_client *client, struct dl_epoch *epoch,
                               const struct dl_msg_started *started)
{
    if (!history_read(started->before, &epoch->before))
        return violated(client, "STARTED: %zu bytes are not a history of an epoch",
                        started->before.len);
    if (started->rank >= started->world)
        return violated(client, "STARTED: rank %llu of a cluster of %llu", (ull)started->rank,
                        (ull)started->world);
    epoch->rank = epoch->loader->former.rank = (uint32_t)started->rank;
    epoch->world = epoch->loader->former.world = (uint32_t)started->world;
    epoch->loader->former.local = epoch->local_rank;
    /* A later one: the others have left the requested one behind. */
    if (epoch->number != DL_RESUME && started->epoch < epoch->number)
        return violated(client, "STARTED: epoch %llu instead of the requested epoch %llu",
                        (ull)started->epoch, (ull)epoch->number);
    return 0;
}

static int dispatch_on_position(struct dl_client *client, const struct received *in)
{
    const struct call *call = dispatch_due_call(client);

    if (call->answer != DL_MSG_STARTED || call->done || call->request != in->msg.position.request ||
        !call->epoch || !call->epoch->cluster)
        return violated(client, "POSITION of request %llu, which is not a pending START",
                        (ull)in->msg.position.request);
    struct rank_position *used;
    int r = mapping_position(in->fd, in->msg.position.bytes, &used);
    if (r == -ENOMEM)
        return no_memory_for(client, &in->msg);
    if (r < 0)
        return violated(client, "POSITION: not a sealed memfd of %d bytes", POSITION_BYTES);
    epoch_drop_position(call->epoch);
    call->epoch->used = used;
    return 0;
}

/* The loader may have been closed meanwhile; then the message is dropped. */
static int dispatch_on_changed(struct dl_client *client, const struct received *in)
{
    _cleanup_(mix_changes_unrefp) struct mix_changes *changes = NULL;
    struct dl_loader *loader = client->loaders;

    while (loader && (loader->local || loader->needs_open || loader->id != in->msg.changed.loader))
        loader = loader->next;
    int r = mix_changes_read(in->msg.changed.changes, &changes);
    if (r == -EINVAL)
        return violated(client, "CHANGED: %zu bytes are not changed weights",
                        in->msg.changed.changes.len);
    if (r < 0 || (loader && weights_set(loader, in->msg.changed.changes) < 0))
        return no_memory_for(client, &in->msg);
    if (loader)
        loader->weights.sent_to = client->incarnation + 1;
    return 0;
}

static int dispatch_on_started(struct dl_client *client, const struct received *in)
{
    const struct dl_msg_started *started = &in->msg.started;
    struct dl_epoch *epoch = client->call.epoch;
    int r = dispatch_check_answer(client, &in->msg, started->request);

    if (r < 0)
        return r;
    if (client_find_epoch(client, (uint32_t)started->stream))
        return violated(client, "STARTED: stream %llu runs already", (ull)started->stream);
    if (dispatch_due_call(client)->is_repeat)
        return away_started(client, started);
    if (epoch->cluster && (r = dispatch_take_place(client, epoch, started)) < 0)
        return r;
    if (!epoch->cluster && epoch->number != DL_RESUME &&
        (started->epoch != epoch->number || started->first != epoch->first))
        return violated(client,
                        "STARTED: epoch %llu from step %llu instead of the requested epoch %llu "
                        "from step %llu",
                        (ull)started->epoch, (ull)started->first, (ull)epoch->number,
                        (ull)epoch->first);
    epoch->loader->weights.known = true; /* CHANGED has reported what START did not know */
    epoch->loader->weights.sent_to = client->incarnation + 1;
    epoch->loader->weights.from = started->epoch;
    epoch->number = started->epoch;
    if (started->first != epoch->first &&
        came_begin(epoch, started->first, &(struct passed){.head = started->first}) < 0)
        return no_memory_for(client, &in->msg);
    epoch->stream = (uint32_t)started->stream;
    epoch->steps = started->steps;
    epoch->samples = started->samples;
    epoch->feed.on = started->steps == DL_UNKNOWN && !epoch->loader->iterable &&
                     epoch->loader->identity.order == STATE_CLIENT;
    /* Linked here and not by the caller: its batches can follow in the same read. */
    epoch->next = epoch->loader->epochs;
    epoch->loader->epochs = epoch;
    client->call.done = true;
    return 0;
}

static int dispatch_on_info(struct dl_client *client, const struct received *in)
{
    int r = dispatch_check_answer(client, &in->msg, in->msg.info.request);

    if (r < 0)
        return r;
    if (!client->call.has_more)
        client->answer.len = 0;
    if (client->call.has_more || in->msg.info.next > 0)
        r = pages_join(&client->answer, in->msg.info.value.data, in->msg.info.value.len);
    else
        r = buffer_append(&client->answer, in->msg.info.value.data, in->msg.info.value.len);
    if (r == -EBADMSG)
        return violated(client, "INFO has a page that is not a list");
    if (r < 0)
        return no_memory_for(client, &in->msg);
    client->call.next = in->msg.info.next;
    client->call.done = true;
    return 0;
}

/* The session is over. */
static int dispatch_on_end(struct dl_client *client, int code, const char *path, const char *text,
                           uint64_t now)
{
    if (code == ESHUTDOWN && client_may_reconnect(client)) {
        struct dl_error why = {0};

        (void)!dl_error_set(&why, code, path, "%s", text);
        return client_lost(client, &why, now);
    }
    return connection_fail(&client->conn, code, path, "%s", text);
}

/* An older daemon may not know a key of the spec, or may start another package's host, and its
 * message cannot say so. The hint is cut where it does not fit. */
static void dispatch_refuse(struct dl_client *client, int code, const char *path, const char *text)
{
    struct call *call = dispatch_due_call(client);

    if (call->answer == DL_MSG_OPENED && client->conn.version < DL_PROTOCOL_VERSION &&
        (code == EINVAL || strcmp(path, "dataset.interpreter") == 0))
        dl_error_set(&call->refused, code, path,
                     "%.800s; " DAEMON_SPEAKS ": if this release takes it, " SAME_RELEASE, text,
                     (ull)client->conn.version);
    else
        dl_error_set(&call->refused, code, path, "%s", text);
}

static int dispatch_on_error(struct dl_client *client, const struct received *in)
{
    _cleanup_free_ char *path = span_dup(in->msg.error.path);
    _cleanup_free_ char *text = span_dup(in->msg.error.message);
    int code = in->msg.error.code ? (int)in->msg.error.code : EPROTO;
    int r;

    if (!path || !text)
        return no_memory_for(client, &in->msg);
    if (in->msg.error.request == 0)
        return dispatch_on_end(client, code, path, text, in->now);
    r = dispatch_check_answer(client, &in->msg, in->msg.error.request);
    if (r < 0)
        return r;
    dispatch_refuse(client, code, path, text);
    dispatch_due_call(client)->done = true;
    return 0;
}

/* ---- segments ---- */

static int dispatch_on_segment(struct dl_client *client, const struct received *in)
{
    const struct dl_msg_segment *segment = &in->msg.segment;
    struct dl_error err = {0};
    struct mapping *mapping;

    if (client_find_segment(client, segment->id) != UINT32_MAX)
        return violated(client, "SEGMENT %llu came before", (ull)segment->id);
    if (client->n_segments == CLIENT_SEGMENTS_MAX)
        return violated(client, "more than %d segments", CLIENT_SEGMENTS_MAX);
    if (!array_reserve(client->segments, client->cap_segments, client->n_segments + UINT64_C(1)))
        return no_memory_for(client, &in->msg);
    if (mapping_new(in->fd, (uint32_t)segment->id, segment->bytes, segment->writable, &mapping,
                    &err) < 0)
        return connection_fail(&client->conn, err.code, err.path, "%s", err.message);
    mapping->incarnation = client->incarnation;
    client->segments[client->n_segments++] = mapping;
    assert(client->n_segments <= CLIENT_SEGMENTS_MAX);
    /* Not locked it is only slower: the next dl_client_pin() says why. */
    if (client->pin && mapping_pin(mapping, client->pin, &err) < 0)
        client->pin = pin_unref(client->pin);
    return 0;
}

static int dispatch_on_retire(struct dl_client *client, const struct received *in)
{
    uint32_t i = client_find_segment(client, in->msg.retire.id);

    if (i == UINT32_MAX)
        return violated(client, "RETIRE: segment %llu is not known", (ull)in->msg.retire.id);
    mapping_unref(client->segments[i]);
    client->segments[i] = client->segments[--client->n_segments];
    return 0;
}

/* ---- the table ---- */

static int (*const dispatch_table[])(struct dl_client *client, const struct received *in) = {
    [DL_MSG_WELCOME] = dispatch_on_welcome,   [DL_MSG_OPENED] = dispatch_on_opened,
    [DL_MSG_PROGRESS] = dispatch_on_progress, [DL_MSG_POSITION] = dispatch_on_position,
    [DL_MSG_STARTED] = dispatch_on_started,   [DL_MSG_INFO] = dispatch_on_info,
    [DL_MSG_ERROR] = dispatch_on_error,       [DL_MSG_CHANGED] = dispatch_on_changed,
    [DL_MSG_SEGMENT] = dispatch_on_segment,   [DL_MSG_RETIRE] = dispatch_on_retire,
    [DL_MSG_DELIVER] = stream_deliver,        [DL_MSG_FAULT] = stream_fault,
    [DL_MSG_WARNING] = stream_warning,        [DL_MSG_FINISHED] = stream_finished,
};

int client_dispatch(struct dl_client *client, const struct received *in)
{
    _cleanup_fd_ int owned = in->fd;
    const struct call *call = dispatch_due_call(client);
    enum message_number number = in->msg.number;

    (void)owned; /* clang does not count its cleanup */
    if (call->answer == DL_MSG_WELCOME && !call->done && number != DL_MSG_WELCOME &&
        number != DL_MSG_ERROR)
        return violated(client, "%s came before WELCOME", message_name(number));
    if (number >= ARRAY_SIZE(dispatch_table) || !dispatch_table[number])
        return violated(client, "message %d, which a daemon must not send", (int)number);
    return dispatch_table[number](client, in);
}
