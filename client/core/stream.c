/*
 * What arrives in an epoch's stream: batches, faults and warnings, and its end. Each step must be
 * one that can be due, by what was requested and has arrived.
 */
#include "client/core/dispatch.h"

#include <assert.h>
#include <errno.h>

static bool stream_is_stopped(const struct dl_client *client, uint64_t stream)
{
    for (uint32_t i = 0; i < client->n_stopped; i++)
        if (client->stopped[i].stream == stream)
            return true;
    return false;
}

/* 1 and *ret: a running epoch; 0: stopped, to be ignored; or latched. */
static int stream_find_running(struct dl_client *client, const struct dl_message *msg,
                               uint64_t stream, struct dl_epoch **ret)
{
    struct dl_epoch *epoch = client_find_epoch(client, (uint32_t)stream);

    if (!epoch && stream_is_stopped(client, stream))
        return 0;
    if (!epoch)
        return violated(client, "%s: stream %llu is not known", message_name(msg->number),
                        (ull)stream);
    if (!epoch_rules_of(epoch)->daemon_sends)
        return violated(client, "%s: stream %llu is over", message_name(msg->number), (ull)stream);
    *ret = epoch;
    return 1;
}

/* How many steps must come in all; DL_UNKNOWN: as many as there are. */
static uint64_t stream_steps_due(const struct dl_epoch *epoch)
{
    if (epoch->feed.on)
        return epoch->feed.steps;
    if (epoch->loader->iterable || epoch->steps == DL_UNKNOWN)
        return DL_UNKNOWN;
    return epoch->steps > epoch->first ? epoch->steps - epoch->first : 0;
}

/* The step behind the last one; DL_UNKNOWN for an iterable dataset. */
static uint64_t stream_steps_end(const struct dl_epoch *epoch)
{
    if (epoch->feed.on)
        return epoch->first + epoch->feed.steps;
    return epoch->loader->iterable ? DL_UNKNOWN : epoch->steps;
}

/* Not in order: the step was delivered before, by this daemon or by one before it. */
static bool stream_has_come(const struct dl_epoch *epoch, uint64_t step)
{
    return step < epoch->expected || step_set_has(&epoch->arrived, step);
}

/* A batch or a fault must be of a step that can be due. */
static int stream_check_step(struct dl_client *client, const struct dl_message *msg,
                             const struct dl_epoch *epoch, uint64_t step)
{
    const struct dl_loader *loader = epoch->loader;
    const char *name = message_name(msg->number);

    if (!loader->in_order) {
        if (step < epoch->first || step >= stream_steps_end(epoch) ||
            stream_has_come(epoch, step) || epoch->delivered >= stream_steps_due(epoch))
            return violated(client,
                            "%s: step %llu of stream %u came before, or is not one of the "
                            "remaining steps %llu to %llu",
                            name, (ull)step, epoch->stream, (ull)epoch->first,
                            (ull)stream_steps_end(epoch) - 1);
    } else if (loader->iterable) {
        if (step < epoch->expected)
            return violated(client,
                            "%s: step %llu of stream %u instead of step %llu or a later "
                            "one",
                            name, (ull)step, epoch->stream, (ull)epoch->expected);
    } else if (step != epoch->expected || step >= stream_steps_end(epoch)) {
        return violated(client, "%s: step %llu of stream %u instead of step %llu of %llu", name,
                        (ull)step, epoch->stream, (ull)epoch->expected,
                        (ull)stream_steps_end(epoch));
    }
    return 0;
}

/* 0 or -ENOMEM. */
static int stream_count_step(struct dl_epoch *epoch, uint64_t step)
{
    int r = 0;

    epoch->delivered++;
    if (!epoch->loader->in_order)
        came_note(epoch, step);
    if (epoch->loader->in_order)
        epoch->expected = step + 1;
    else if (step != epoch->expected)
        r = step_set_add(&epoch->arrived, step);
    else
        epoch->expected++;
    while (epoch->arrived.count > 0 && step_set_has(&epoch->arrived, epoch->expected))
        step_set_remove(&epoch->arrived, epoch->expected++);
    assert(epoch->arrived.count == 0 || !epoch->loader->in_order);
    if (epoch->feed.on)
        feed_arrived(epoch);
    return r;
}

/*
 * Not in order, steps behind the first missing one had arrived before the daemon ended: the next
 * one makes them again.
 */
static bool stream_is_known(const struct dl_epoch *epoch, uint64_t step)
{
    return !epoch->loader->in_order && step >= epoch->first && step < stream_steps_end(epoch) &&
           stream_has_come(epoch, step);
}

/* 1: the step is due, and has a credit; 0: another daemon made it again, and it goes back unseen;
 * or latched. */
static int stream_admit(struct dl_client *client, const struct dl_message *msg,
                        struct dl_epoch *epoch, uint64_t step)
{
    bool is_known = epoch->resumed && stream_is_known(epoch, step);

    if (!is_known && stream_check_step(client, msg, epoch, step) < 0)
        return connection_check(&client->conn);
    if (epoch->lent >= epoch->credits)
        return violated(client, "step %llu of stream %u exceeds its %u credits", (ull)step,
                        epoch->stream, epoch->credits);
    epoch->lent++;
    if (!is_known)
        return 1;
    if (epoch->feed.on)
        feed_arrived(epoch);
    epoch_queue_release(epoch, step, true);
    return 0;
}

/* The batch as an entry; its mapping is not counted yet. */
static int stream_find_slot(struct dl_client *client, const struct dl_descriptor *d,
                            struct entry *entry)
{
    uint32_t segment = client_find_segment(client, d->segment);

    if (segment == UINT32_MAX)
        return violated(client, "DELIVER: step %llu lies in segment %u, which is not known",
                        (ull)d->step, d->segment);
    entry->slot = mapping_slot(client->segments[segment], d);
    if (!entry->slot || d->samples == 0 || d->samples > DL_MAX_BATCH_SIZE)
        return violated(client,
                        "DELIVER: step %llu with %u samples in %llu bytes at %llu of segment %u "
                        "is not a slot",
                        (ull)d->step, d->samples, (ull)d->bytes, (ull)d->offset, d->segment);
    if (d->repeated > d->samples)
        return violated(client, "DELIVER: step %llu repeats %u of its %u samples", (ull)d->step,
                        d->repeated, d->samples);
    entry->mapping = client->segments[segment];
    return 0;
}

static int stream_deliver_one(struct dl_client *client, const struct dl_message *msg,
                              struct dl_epoch *epoch, const struct dl_descriptor *d)
{
    struct entry entry = {.descriptor = *d};
    int r = stream_admit(client, msg, epoch, d->step);

    if (r <= 0)
        return r;
    r = stream_find_slot(client, d, &entry);
    if (r < 0)
        return r;
    mapping_ref(entry.mapping);
    if (epoch_push(epoch, &entry) < 0 || stream_count_step(epoch, d->step) < 0)
        return no_memory_for(client, msg);
    return 0;
}

int stream_deliver(struct dl_client *client, const struct received *in)
{
    struct dl_span all = in->msg.deliver.descriptors;
    struct dl_epoch *epoch = NULL;
    int found = stream_find_running(client, &in->msg, in->msg.deliver.stream, &epoch);

    if (found < 0)
        return found;
    for (size_t at = 0; at < all.len; at += sizeof(struct dl_descriptor)) {
        struct dl_descriptor d;
        int r;

        memcpy(&d, all.data + at, sizeof d);
        if (found == 0) {
            client_release_step(client, (uint32_t)in->msg.deliver.stream, d.step);
            continue;
        }
        r = stream_deliver_one(client, &in->msg, epoch, &d);
        if (r < 0)
            return r;
    }
    return connection_check(&client->conn);
}

/* A report is of many lines, so more than an error's text; what else a terminal would obey is not
 * in it. The message was found to be UTF-8: C1 is C2 80..9F in it. */
static void stream_clean_report(char *text)
{
    for (char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p;

        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F)
            *p = '?';
        else if (c == 0xC2 && (unsigned char)p[1] >= 0x80 && (unsigned char)p[1] < 0xA0)
            p[0] = p[1] = '?';
    }
}

/* NULL if the fault has no report, or without room or memory for it: the fault's message
 * suffices. */
static char *stream_report_dup(const struct dl_epoch *epoch, struct dl_span detail)
{
    char *copy;

    if (detail.len == 0 || epoch->detail_bytes + detail.len > EPOCH_DETAIL_MAX)
        return NULL;
    copy = span_dup(detail);
    if (copy)
        stream_clean_report(copy);
    return copy;
}

static struct fault *stream_fault_new(const struct dl_epoch *epoch, const struct dl_msg_fault *msg)
{
    struct fault *fault = calloc(1, sizeof *fault);

    if (!fault)
        return NULL;
    fault->code = msg->code ? (int)msg->code : EIO;
    fault->final = msg->final;
    fault->incarnation = epoch->loader->client->incarnation;
    /* These mean "not ready yet" and "feed it" to the caller of dl_epoch_next(). */
    if (fault->code == EAGAIN || fault->code == ETIMEDOUT || fault->code == ENODATA)
        fault->code = EIO;
    fault->path = span_dup(msg->path);
    fault->message = span_dup(msg->message);
    if (!fault->path || !fault->message)
        return fault_free(fault);
    fault->detail = stream_report_dup(epoch, msg->detail);
    fault->detail_len = fault->detail ? msg->detail.len : 0;
    return fault;
}

/* Drops what has arrived, so that this fault is returned next. It may come after the last delivery,
 * and is ignored once all was returned. */
static int stream_cut_with(struct dl_epoch *epoch, const struct dl_msg_fault *fault)
{
    epoch_apply(epoch, EPOCH_ENDED);
    if (epoch->outcome == EPOCH_HAD_ALL || epoch->outcome == EPOCH_CUT)
        return 0;
    epoch->outcome = EPOCH_CUT;
    epoch->cut = stream_fault_new(epoch, fault);
    return epoch->cut ? 0 : connection_fail(&epoch->loader->client->conn, ENOMEM, "", "no memory");
}

/* Only the last one is kept: a daemon that warns without end takes no memory. */
static int stream_note_warning(struct dl_epoch *epoch, struct dl_span message)
{
    _cleanup_free_ char *text = span_dup(message);
    struct dl_error clean = {0};

    if (!text)
        return -ENOMEM;
    dl_error_set(&clean, EIO, "", "%s", text); /* as errors: on one line, fit for a terminal */
    free(epoch->warning);
    epoch->warning = strndup(clean.message, sizeof clean.message);
    return epoch->warning ? 0 : -ENOMEM;
}

/* The epoch is at its end without what nodes that are gone have left out, which its user does not
 * want as an error. */
static bool stream_ends_without(const struct dl_epoch *epoch, const struct dl_msg_fault *fault)
{
    return fault->final && fault->step == UINT64_MAX && fault->code == ENOTRECOVERABLE &&
           epoch->left_out != DL_LEFT_OUT_ERROR;
}

int stream_fault(struct dl_client *client, const struct received *in)
{
    const struct dl_msg_fault *fault = &in->msg.fault;
    struct entry entry = {.descriptor = {.step = fault->step}};
    struct dl_epoch *epoch =
        fault->at_once && fault->final ? client_find_epoch(client, (uint32_t)fault->stream) : NULL;
    int r;

    if (epoch)
        return stream_cut_with(epoch, fault);
    r = stream_find_running(client, &in->msg, fault->stream, &epoch);
    if (r == 0 && fault->step != UINT64_MAX)
        client_release_step(client, (uint32_t)fault->stream, fault->step);
    if (r <= 0)
        return r < 0 ? r : connection_check(&client->conn);
    if (stream_ends_without(epoch, fault)) {
        epoch_apply(epoch, EPOCH_ENDED);
        if (epoch->left_out == DL_LEFT_OUT_WARN && stream_note_warning(epoch, fault->message) < 0)
            return no_memory_for(client, &in->msg);
        return 0;
    }
    if (epoch->phase == EPOCH_ENDING && fault->step == UINT64_MAX) { /* all steps had come */
        if (fault->final)
            epoch_apply(epoch, EPOCH_ENDED);
        return 0;
    }
    if (fault->final) {
        epoch_apply(epoch, EPOCH_ENDED);
        epoch->outcome = EPOCH_BROKEN;
    }
    if (fault->step != UINT64_MAX) {
        r = stream_admit(client, &in->msg, epoch, fault->step);
        if (r <= 0)
            return r;
        if (stream_count_step(epoch, fault->step) < 0)
            return no_memory_for(client, &in->msg);
    } else if (epoch->faults >= EPOCH_FAULTS_MAX + epoch->credits)
        return violated(client, "more than %d faults of stream %u without a step are unread",
                        EPOCH_FAULTS_MAX, epoch->stream);
    entry.fault = stream_fault_new(epoch, fault);
    if (!entry.fault || epoch_push(epoch, &entry) < 0)
        return no_memory_for(client, &in->msg);
    return 0;
}

int epoch_cut(struct dl_epoch *epoch, const struct dl_error *err)
{
    struct dl_msg_fault msg = {.code = (uint64_t)err->code,
                               .final = 1,
                               .path = span_str(err->path),
                               .message = span_str(err->message)};

    return stream_cut_with(epoch, &msg);
}

int stream_warning(struct dl_client *client, const struct received *in)
{
    struct dl_epoch *epoch = NULL;
    int r = stream_find_running(client, &in->msg, in->msg.warning.stream, &epoch);

    if (r <= 0)
        return r;
    return stream_note_warning(epoch, in->msg.warning.message) < 0 ? no_memory_for(client, &in->msg)
                                                                   : 0;
}

int stream_finished(struct dl_client *client, const struct received *in)
{
    struct dl_epoch *epoch = NULL;
    int r = stream_find_running(client, &in->msg, in->msg.finished.stream, &epoch);
    uint64_t due;

    if (r <= 0)
        return r;
    due = stream_steps_due(epoch);
    if (epoch->feed.on && !epoch->feed.ended)
        return violated(client, "FINISHED: stream %u ends before its order does", epoch->stream);
    if (due != DL_UNKNOWN && epoch->delivered < due)
        return violated(client, "FINISHED: stream %u ends after %llu of the %llu steps from %llu",
                        epoch->stream, (ull)epoch->delivered, (ull)due, (ull)epoch->first);
    epoch_apply(epoch, EPOCH_ENDED);
    return 0;
}
