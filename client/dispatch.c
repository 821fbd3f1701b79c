/*
 * What each message of the daemon does to the client's objects. Every number in it is doubted: one
 * that does not fit what was asked and delivered so far ends the session with a text.
 */
#include "client/internal.h"

#include <endian.h>
#include <errno.h>

/* Latches -EPROTO. */
#define violated(client, ...) connection_fail(&(client)->conn, EPROTO, "", __VA_ARGS__)

typedef unsigned long long ull; /* for printf */

static int no_memory(struct dl_client *client, const struct dl_message *msg)
{
    return connection_fail(&client->conn, ENOMEM, "", "no memory to handle %s",
                           message_name(msg->number));
}

struct dl_epoch *client_find_epoch(struct dl_client *client, uint32_t stream)
{
    for (struct dl_loader *loader = client->loaders; loader; loader = loader->next)
        for (struct dl_epoch *epoch = loader->epochs; epoch; epoch = epoch->next)
            if (!epoch->local && !epoch->gone && epoch->stream == stream)
                return epoch;
    return NULL;
}

/* ---- answers ---- */

/* The one that waits for an answer: a client that is away asks by itself. */
static struct call *due_call(struct dl_client *client)
{
    return client_is_away(client) ? &client->reconnect.call : &client->call;
}

/* Streams stopped before the request that is answered now: nothing of them can come any more. */
static void forget_stopped(struct dl_client *client, uint64_t request)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < client->n_stopped; i++)
        if (client->stopped[i].request >= request)
            client->stopped[kept++] = client->stopped[i];
    client->n_stopped = kept;
}

/* Is this what the blocked call waits for? Latches if not. */
static int check_answer(struct dl_client *client, const struct dl_message *msg, uint64_t request)
{
    const struct call *call = due_call(client);

    if (call->answer == 0 || call->done || call->request != request)
        return violated(client, "%s answers request %llu, which waits for no answer",
                        message_name(msg->number), (ull)request);
    if (msg->number != DL_MSG_ERROR && call->answer != msg->number)
        return violated(client, "%s answers request %llu, to which %s is due",
                        message_name(msg->number), (ull)request, message_name(call->answer));
    forget_stopped(client, request);
    return 0;
}

static int on_welcome(struct dl_client *client, const struct dl_message *msg)
{
    uint64_t version = msg->welcome.version;
    int r = check_answer(client, msg, 0);

    if (r < 0)
        return r;
    if (version != DL_PROTOCOL_VERSION)
        return violated(client,
                        "the daemon speaks protocol version %llu, this library %d: install the "
                        "same release of both",
                        (ull)version, DL_PROTOCOL_VERSION);
    if (due_call(client)->again && msg->welcome.life == client->reconnect.ended)
        return connection_fail(&client->conn, ECONNRESET, client->reconnect.path,
                               "the daemon ended the session, and not because it ended itself: its "
                               "log says why");
    client->reconnect.life = msg->welcome.life;
    due_call(client)->done = true;
    return 0;
}

static bool take_parts(struct dl_span bytes, uint64_t ret[static STATE_PARTS])
{
    if (bytes.len != STATE_PARTS * sizeof *ret)
        return false;
    memcpy(ret, bytes.data, bytes.len);
    for (unsigned i = 0; i < STATE_PARTS; i++)
        ret[i] = le64toh(ret[i]);
    return true;
}

static int on_opened(struct dl_client *client, const struct dl_message *msg)
{
    const struct dl_msg_opened *opened = &msg->opened;
    struct dl_loader *loader;
    int r = check_answer(client, msg, opened->request);

    if (r < 0)
        return r;
    if (opened->credits == 0)
        return violated(client, "OPENED grants no credits");
    for (loader = client->loaders; loader; loader = loader->next)
        if (!loader->local && !loader->gone && loader->id == opened->loader)
            return violated(client, "OPENED: loader %u is open already", loader->id);
    if (due_call(client)->again)
        return reconnect_opened(client, opened);
    loader = client->call.loader;
    loader->name = span_dup(opened->label);
    if (!loader->name)
        return no_memory(client, msg);
    loader->id = (uint32_t)opened->loader;
    loader->credits = (uint32_t)opened->credits;
    loader->length = opened->length;
    loader->batch_size = opened->batch;
    loader->iterable = opened->iterable;
    loader->in_order = opened->in_order;
    loader->drop_last = opened->drop_last;
    loader->seed = opened->seed;
    loader->fingerprint = opened->fingerprint;
    loader->identity = (struct state_identity){.dataset = opened->dataset,
                                               .length = opened->length,
                                               .order = (enum state_order)opened->order,
                                               .seed = opened->seed,
                                               .workers = opened->iterable ? opened->workers : 0};
    if (!take_parts(opened->parts, loader->identity.parts))
        return violated(client, "OPENED: %zu bytes tell no spec's parts", opened->parts.len);
    client->call.done = true;
    return 0;
}

static int on_progress(struct dl_client *client, const struct dl_message *msg)
{
    const struct dl_msg_progress *progress = &msg->progress;
    const struct call *call = due_call(client);

    if (call->answer != DL_MSG_OPENED || call->done || call->request != progress->request)
        return violated(client, "PROGRESS of request %llu, which is no OPEN that waits",
                        (ull)progress->request);
    if (client->progress.tell)
        client->progress.tell(client->progress.data, progress->done, progress->all);
    return 0;
}

/* The place that the nodes have agreed on: where this rank goes on, wherever that is. */
static int take_place(struct dl_client *client, struct dl_epoch *epoch,
                      const struct dl_msg_started *started)
{
    if (!history_read(started->before, &epoch->before))
        return violated(client, "STARTED: %zu bytes are no history of an epoch",
                        started->before.len);
    if (started->rank >= started->world)
        return violated(client, "STARTED: rank %llu of a cluster of %llu", (ull)started->rank,
                        (ull)started->world);
    epoch->rank = (uint32_t)started->rank;
    epoch->world = (uint32_t)started->world;
    if (epoch->number != DL_RESUME && started->epoch != epoch->number)
        return violated(client, "STARTED: epoch %llu, where epoch %llu was asked for",
                        (ull)started->epoch, (ull)epoch->number);
    return 0;
}

static int on_started(struct dl_client *client, const struct dl_message *msg)
{
    const struct dl_msg_started *started = &msg->started;
    struct dl_epoch *epoch = client->call.epoch;
    int r = check_answer(client, msg, started->request);

    if (r < 0)
        return r;
    if (client_find_epoch(client, (uint32_t)started->stream))
        return violated(client, "STARTED: stream %llu runs already", (ull)started->stream);
    if (due_call(client)->again)
        return reconnect_started(client, started);
    if (epoch->cluster && (r = take_place(client, epoch, started)) < 0)
        return r;
    if (!epoch->cluster && epoch->number != DL_RESUME &&
        (started->epoch != epoch->number || started->first != epoch->first))
        return violated(client,
                        "STARTED: epoch %llu from step %llu, where epoch %llu from step %llu was "
                        "asked for",
                        (ull)started->epoch, (ull)started->first, (ull)epoch->number,
                        (ull)epoch->first);
    epoch->number = started->epoch;
    epoch->first = epoch->expected = epoch->position = started->first;
    epoch->stream = (uint32_t)started->stream;
    epoch->steps = started->steps;
    epoch->samples = started->samples;
    /* Of a dataset with a length and a plan the daemon knows the steps. */
    epoch->feed.on = started->steps == DL_UNKNOWN && !epoch->loader->iterable;
    /* Linked here and not by the caller: its batches can follow in the same read. */
    epoch->next = epoch->loader->epochs;
    epoch->loader->epochs = epoch;
    client->call.done = true;
    return 0;
}

static int on_info(struct dl_client *client, const struct dl_message *msg)
{
    int r = check_answer(client, msg, msg->info.request);

    if (r < 0)
        return r;
    client->answer.len = 0;
    if (buffer_append(&client->answer, msg->info.value.data, msg->info.value.len) < 0)
        return no_memory(client, msg);
    client->call.done = true;
    return 0;
}

static int on_error(struct dl_client *client, const struct dl_message *msg)
{
    _cleanup_free_ char *path = span_dup(msg->error.path);
    _cleanup_free_ char *text = span_dup(msg->error.message);
    int code = msg->error.code ? (int)msg->error.code : EPROTO;
    int r;

    if (!path || !text)
        return no_memory(client, msg);
    if (msg->error.request == 0 && code == ESHUTDOWN && client_may_reconnect(client)) {
        struct dl_error why = {0};

        dl_error_set(&why, code, path, "%s", text);
        return client_lost(client, &why);
    }
    if (msg->error.request == 0)
        return connection_fail(&client->conn, code, path, "%s", text);
    r = check_answer(client, msg, msg->error.request);
    if (r < 0)
        return r;
    dl_error_set(&due_call(client)->refused, code, path, "%s", text);
    due_call(client)->done = true;
    return 0;
}

/* ---- segments ---- */

static uint32_t find_segment(const struct dl_client *client, uint64_t id)
{
    uint32_t i = client->n_segments;

    while (i > 0 && client->segments[i - 1]->id != id)
        i--;
    return i > 0 ? i - 1 : UINT32_MAX;
}

static int on_segment(struct dl_client *client, const struct dl_message *msg, int fd)
{
    const struct dl_msg_segment *segment = &msg->segment;
    struct dl_error err = {0};
    struct mapping *mapping;

    if (find_segment(client, segment->id) != UINT32_MAX)
        return violated(client, "SEGMENT %llu came before", (ull)segment->id);
    if (client->n_segments == CLIENT_SEGMENTS_MAX)
        return violated(client, "more than %d segments", CLIENT_SEGMENTS_MAX);
    if (client->n_segments == client->cap_segments) {
        uint32_t cap = client->cap_segments ? client->cap_segments * 2 : 8;
        struct mapping **grown = reallocarray(client->segments, cap, sizeof *grown);

        if (!grown)
            return no_memory(client, msg);
        client->segments = grown;
        client->cap_segments = cap;
    }
    if (mapping_new(fd, (uint32_t)segment->id, segment->bytes, segment->writable, &mapping, &err) <
        0)
        return connection_fail(&client->conn, err.code, err.path, "%s", err.message);
    mapping->incarnation = client->incarnation;
    client->segments[client->n_segments++] = mapping;
    /* Not locked it is only slower: the next dl_client_pin() says why. */
    if (client->pin && mapping_pin(mapping, client->pin, &err) < 0)
        client->pin = pin_unref(client->pin);
    return 0;
}

static int on_retire(struct dl_client *client, const struct dl_message *msg)
{
    uint32_t i = find_segment(client, msg->retire.id);

    if (i == UINT32_MAX)
        return violated(client, "RETIRE: segment %llu is not known", (ull)msg->retire.id);
    mapping_unref(client->segments[i]);
    client->segments[i] = client->segments[--client->n_segments];
    return 0;
}

/* ---- streams ---- */

static bool is_stopped(const struct dl_client *client, uint64_t stream)
{
    for (uint32_t i = 0; i < client->n_stopped; i++)
        if (client->stopped[i].stream == stream)
            return true;
    return false;
}

/* 1 and *ret: a running epoch; 0: stopped, to be ignored; or latched. */
static int find_stream(struct dl_client *client, const struct dl_message *msg, uint64_t stream,
                       struct dl_epoch **ret)
{
    struct dl_epoch *epoch = client_find_epoch(client, (uint32_t)stream);

    if (!epoch && is_stopped(client, stream))
        return 0;
    if (!epoch)
        return violated(client, "%s: stream %llu is not known", message_name(msg->number),
                        (ull)stream);
    if (epoch->over && !epoch->ending)
        return violated(client, "%s: stream %llu is over", message_name(msg->number), (ull)stream);
    *ret = epoch;
    return 1;
}

/* How many steps must come in all; DL_UNKNOWN: as many as there are. */
static uint64_t steps_due(const struct dl_epoch *epoch)
{
    if (epoch->feed.on)
        return epoch->feed.steps;
    if (epoch->loader->iterable || epoch->steps == DL_UNKNOWN)
        return DL_UNKNOWN;
    return epoch->steps > epoch->first ? epoch->steps - epoch->first : 0;
}

/* The steps end before this one; those of an iterable dataset are told by its own estimate. */
static uint64_t steps_end(const struct dl_epoch *epoch)
{
    if (epoch->feed.on)
        return epoch->first + epoch->feed.steps;
    return epoch->loader->iterable ? DL_UNKNOWN : epoch->steps;
}

/* Not in order: the step was delivered before, by this daemon or by one before it. */
static bool has_come(const struct dl_epoch *epoch, uint64_t step)
{
    return step < epoch->expected || held_has(&epoch->came, step);
}

/* The step that a batch or a fault claims must be one whose turn it can be. */
static int check_step(struct dl_client *client, const struct dl_message *msg,
                      const struct dl_epoch *epoch, uint64_t step)
{
    const struct dl_loader *loader = epoch->loader;
    const char *name = message_name(msg->number);

    if (!loader->in_order) {
        if (step < epoch->first || step >= steps_end(epoch) || has_come(epoch, step) ||
            epoch->delivered >= steps_due(epoch))
            return violated(client,
                            "%s: step %llu of stream %u has come before, or is none of the steps "
                            "%llu to %llu that are left",
                            name, (ull)step, epoch->stream, (ull)epoch->first,
                            (ull)steps_end(epoch) - 1);
    } else if (loader->iterable) {
        if (step < epoch->expected)
            return violated(client, "%s: step %llu of stream %u where %llu or a later one is due",
                            name, (ull)step, epoch->stream, (ull)epoch->expected);
    } else if (step != epoch->expected || step >= steps_end(epoch)) {
        return violated(client, "%s: step %llu of stream %u where %llu of %llu is due", name,
                        (ull)step, epoch->stream, (ull)epoch->expected, (ull)steps_end(epoch));
    }
    return 0;
}

/* 0 or -ENOMEM. */
static int count_step(struct dl_epoch *epoch, uint64_t step)
{
    int r = 0;

    epoch->delivered++;
    if (epoch->loader->in_order)
        epoch->expected = step + 1;
    else if (step != epoch->expected)
        r = held_add(&epoch->came, step);
    else
        epoch->expected++;
    while (epoch->came.count > 0 && held_has(&epoch->came, epoch->expected))
        held_remove(&epoch->came, epoch->expected++);
    feed_arrived(epoch);
    return r;
}

/*
 * Not in order, steps behind the first missing one had arrived before the daemon ended: the next
 * one makes them again.
 */
static bool is_known(const struct dl_epoch *epoch, uint64_t step)
{
    return epoch->resumed && !epoch->loader->in_order && step >= epoch->first &&
           step < steps_end(epoch) && has_come(epoch, step);
}

static int check_credit(struct dl_client *client, const struct dl_epoch *epoch, uint64_t step)
{
    if (epoch->lent < epoch->credits)
        return 0;
    return violated(client, "DELIVER: step %llu of stream %u exceeds its %u credits", (ull)step,
                    epoch->stream, epoch->credits);
}

/* Another daemon made it again. */
static int give_back_unseen(struct dl_epoch *epoch, uint64_t step)
{
    int r = check_credit(epoch->loader->client, epoch, step);

    if (r < 0)
        return r;
    epoch->lent++;
    feed_arrived(epoch);
    epoch_queue_release(epoch, step, true);
    return 0;
}

/* The batch as an entry; its mapping is not counted yet. */
static int find_slot(struct dl_client *client, const struct dl_descriptor *d, struct entry *entry)
{
    uint32_t segment = find_segment(client, d->segment);

    if (segment == UINT32_MAX)
        return violated(client, "DELIVER: step %llu lies in segment %u, which is not known",
                        (ull)d->step, d->segment);
    entry->slot = mapping_slot(client->segments[segment], d);
    if (!entry->slot || d->samples == 0 || d->samples > DL_MAX_BATCH_SIZE)
        return violated(client,
                        "DELIVER: step %llu with %u samples in %llu bytes at %llu of segment %u "
                        "is no slot",
                        (ull)d->step, d->samples, (ull)d->bytes, (ull)d->offset, d->segment);
    if (d->repeated > d->samples)
        return violated(client, "DELIVER: step %llu repeats %u of its %u samples", (ull)d->step,
                        d->repeated, d->samples);
    entry->mapping = client->segments[segment];
    return 0;
}

static int deliver_one(struct dl_client *client, const struct dl_message *msg,
                       struct dl_epoch *epoch, const struct dl_descriptor *d)
{
    struct entry entry = {.descriptor = *d};
    int r;

    if (is_known(epoch, d->step))
        return give_back_unseen(epoch, d->step);
    r = check_step(client, msg, epoch, d->step);
    if (r == 0)
        r = check_credit(client, epoch, d->step);
    if (r == 0)
        r = find_slot(client, d, &entry);
    if (r < 0)
        return r;
    mapping_ref(entry.mapping);
    if (epoch_push(epoch, &entry) < 0)
        return no_memory(client, msg);
    epoch->lent++;
    if (count_step(epoch, d->step) < 0)
        return no_memory(client, msg);
    return 0;
}

static int on_deliver(struct dl_client *client, const struct dl_message *msg)
{
    struct dl_span all = msg->deliver.descriptors;
    struct dl_epoch *epoch = NULL;
    int found = find_stream(client, msg, msg->deliver.stream, &epoch);

    if (found < 0)
        return found;
    for (size_t at = 0; at < all.len; at += sizeof(struct dl_descriptor)) {
        struct dl_descriptor d;
        int r;

        memcpy(&d, all.data + at, sizeof d);
        if (found == 0) {
            client_release_step(client, (uint32_t)msg->deliver.stream, d.step);
            continue;
        }
        r = deliver_one(client, msg, epoch, &d);
        if (r < 0)
            return r;
    }
    return connection_check(&client->conn);
}

/* A report is of many lines, so more than an error's text; what else a terminal would obey is not
 * in it. The message was found to be UTF-8: C1 is C2 80..9F in it. */
static void clean_report(char *text)
{
    for (char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p;

        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F)
            *p = '?';
        else if (c == 0xC2 && (unsigned char)p[1] >= 0x80 && (unsigned char)p[1] < 0xA0)
            p[0] = p[1] = '?';
    }
}

/* NULL: there is none, no room for it, or no memory: the fault's message says enough. */
static char *report_dup(const struct dl_epoch *epoch, struct dl_span detail)
{
    char *copy;

    if (detail.len == 0 || epoch->detail_bytes + detail.len > EPOCH_DETAIL_MAX)
        return NULL;
    copy = span_dup(detail);
    if (copy)
        clean_report(copy);
    return copy;
}

static struct fault *fault_new(const struct dl_epoch *epoch, const struct dl_msg_fault *msg)
{
    struct fault *fault = calloc(1, sizeof *fault);

    if (!fault)
        return NULL;
    fault->code = msg->code ? (int)msg->code : EIO;
    fault->final = msg->final;
    /* These mean "not ready yet" and "feed it" to the caller of dl_epoch_next(). */
    if (fault->code == EAGAIN || fault->code == ETIMEDOUT || fault->code == ENODATA)
        fault->code = EIO;
    fault->path = span_dup(msg->path);
    fault->message = span_dup(msg->message);
    if (!fault->path || !fault->message)
        return fault_free(fault);
    fault->detail = report_dup(epoch, msg->detail);
    fault->detail_len = fault->detail ? msg->detail.len : 0;
    return fault;
}

/* Nothing of what has come is given out any more: this is the next thing that is said. It can come
 * when all has been delivered, and means nothing once all was given out. */
static int cut_with(struct dl_epoch *epoch, const struct dl_msg_fault *fault)
{
    epoch->over = true;
    epoch->ending = false;
    if (epoch->ended || epoch->is_cut)
        return 0;
    epoch->broken = epoch->is_cut = true;
    epoch->cut = fault_new(epoch, fault);
    return epoch->cut ? 0 : connection_fail(&epoch->loader->client->conn, ENOMEM, "", "no memory");
}

static int on_fault(struct dl_client *client, const struct dl_message *msg)
{
    const struct dl_msg_fault *fault = &msg->fault;
    struct entry entry = {.descriptor = {.step = fault->step}};
    struct dl_epoch *epoch =
        fault->at_once && fault->final ? client_find_epoch(client, (uint32_t)fault->stream) : NULL;
    int r;

    if (epoch)
        return cut_with(epoch, fault);
    r = find_stream(client, msg, fault->stream, &epoch);
    if (r <= 0)
        return r;
    if (epoch->ending && fault->step == UINT64_MAX) { /* all steps had come: nobody misses it */
        epoch->ending = !fault->final;
        return 0;
    }
    epoch->broken = epoch->broken || fault->final;
    if (fault->step != UINT64_MAX && is_known(epoch, fault->step)) {
        feed_arrived(epoch);
        epoch->over = epoch->over || fault->final;
        return 0;
    }
    if (fault->step != UINT64_MAX) {
        r = check_step(client, msg, epoch, fault->step);
        if (r < 0)
            return r;
        if (count_step(epoch, fault->step) < 0)
            return no_memory(client, msg);
    }
    if (epoch->faults >= EPOCH_FAULTS_MAX)
        return violated(client, "more than %d faults of stream %u wait", EPOCH_FAULTS_MAX,
                        epoch->stream);
    entry.fault = fault_new(epoch, fault);
    if (!entry.fault || epoch_push(epoch, &entry) < 0)
        return no_memory(client, msg);
    if (fault->final)
        epoch->over = true;
    return 0;
}

int epoch_cut(struct dl_epoch *epoch, const struct dl_error *err)
{
    struct dl_msg_fault msg = {.code = (uint64_t)err->code,
                               .final = 1,
                               .path = span_str(err->path),
                               .message = span_str(err->message)};

    return cut_with(epoch, &msg);
}

/* Only the last one is kept: a daemon that warns without end takes no memory. */
static int on_warning(struct dl_client *client, const struct dl_message *msg)
{
    _cleanup_free_ char *text = NULL;
    struct dl_error clean = {0};
    struct dl_epoch *epoch = NULL;
    int r = find_stream(client, msg, msg->warning.stream, &epoch);

    if (r <= 0)
        return r;
    text = span_dup(msg->warning.message);
    if (!text)
        return no_memory(client, msg);
    dl_error_set(&clean, EIO, "", "%s", text); /* as errors: on one line, fit for a terminal */
    free(epoch->warning);
    epoch->warning = strndup(clean.message, sizeof clean.message);
    return epoch->warning ? 0 : no_memory(client, msg);
}

static int on_finished(struct dl_client *client, const struct dl_message *msg)
{
    struct dl_epoch *epoch = NULL;
    int r = find_stream(client, msg, msg->finished.stream, &epoch);
    uint64_t due;

    if (r <= 0)
        return r;
    due = steps_due(epoch);
    if (epoch->feed.on && !epoch->feed.ended)
        return violated(client, "FINISHED: stream %u ends before its order does", epoch->stream);
    if (due != DL_UNKNOWN && epoch->delivered < due)
        return violated(client, "FINISHED: stream %u ends after %llu of the %llu steps from %llu",
                        epoch->stream, (ull)epoch->delivered, (ull)due, (ull)epoch->first);
    epoch->over = true;
    epoch->ending = false;
    return 0;
}

int client_dispatch(struct dl_client *client, const struct dl_message *msg, int fd)
{
    _cleanup_fd_ int owned = fd;

    if (due_call(client)->answer == DL_MSG_WELCOME && !due_call(client)->done &&
        msg->number != DL_MSG_WELCOME && msg->number != DL_MSG_ERROR)
        return violated(client, "%s came before WELCOME", message_name(msg->number));
    switch (msg->number) {
    case DL_MSG_WELCOME:
        return on_welcome(client, msg);
    case DL_MSG_OPENED:
        return on_opened(client, msg);
    case DL_MSG_PROGRESS:
        return on_progress(client, msg);
    case DL_MSG_STARTED:
        return on_started(client, msg);
    case DL_MSG_INFO:
        return on_info(client, msg);
    case DL_MSG_ERROR:
        return on_error(client, msg);
    case DL_MSG_SEGMENT:
        return on_segment(client, msg, owned);
    case DL_MSG_RETIRE:
        return on_retire(client, msg);
    case DL_MSG_DELIVER:
        return on_deliver(client, msg);
    case DL_MSG_FAULT:
        return on_fault(client, msg);
    case DL_MSG_WARNING:
        return on_warning(client, msg);
    case DL_MSG_FINISHED:
        return on_finished(client, msg);
    default:
        return violated(client, "message %d is not the daemon's to send", (int)msg->number);
    }
}
