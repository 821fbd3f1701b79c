#include "daemon/cluster/store/tcpstore_private.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <utlist.h>

enum { MOST_WATCHES = 1024 /* of a peer */, NUMBER_TEXT = 24 };

static const struct dl_span tcpstore_nothing = {.data = NULL, .len = 0};

static int tcpstore_requests_full(struct tcpstore_peer *peer)
{
    return tcpstore_break(peer, ENOSPC, "the value is larger than the room that is left");
}

/* ---- who is waiting ------------------------------------------------------------------------- */

/* One wait for this key is over. */
static void tcpstore_requests_end_wait(struct tcpstore_link *link)
{
    struct tcpstore_peer *peer = link->peer;

    tcpstore_unlink(link);
    assert(peer->awaited > 0);
    if (--peer->awaited > 0)
        return;
    peer->waiting = false;
    tcpstore_tell_u8(peer, TCPSTORE_STOP_WAITING);
}

static void tcpstore_requests_wake(struct tcpstore_entry *entry)
{
    while (entry->links[TCPSTORE_WAITS])
        tcpstore_requests_end_wait(entry->links[TCPSTORE_WAITS]);
}

static void tcpstore_requests_stop_waiting(struct tcpstore_peer *peer)
{
    tcpstore_unlink_all(peer, TCPSTORE_WAITS);
    peer->awaited = 0;
    peer->waiting = false;
}

static int tcpstore_requests_await(struct tcpstore_peer *peer, struct dl_span key)
{
    struct tcpstore_entry *entry = tcpstore_enter(peer->store, key);

    if (!entry || tcpstore_link(peer, entry, TCPSTORE_WAITS) < 0) {
        tcpstore_tidy(peer->store, entry);
        return tcpstore_requests_full(peer);
    }
    peer->awaited++;
    peer->waiting = true;
    return 0;
}

/* Tells the peers that watch the key what it was and becomes. */
static void tcpstore_requests_tell_watchers(const struct tcpstore_entry *entry, uint8_t change,
                                            struct dl_span head, struct dl_span tail)
{
    const struct dl_span key = {.data = entry->key, .len = entry->key_len};
    const struct tcpstore_link *link;

    DL_FOREACH (entry->links[TCPSTORE_WATCHES], link) {
        tcpstore_tell_u8(link->peer, change);
        tcpstore_tell_span(link->peer, key);
        tcpstore_tell_span(link->peer, tcpstore_value(entry));
        tcpstore_tell_i64(link->peer, (int64_t)(head.len + tail.len));
        tcpstore_tell(link->peer, head.data, head.len);
        tcpstore_tell(link->peer, tail.data, tail.len);
    }
}

/* ---- values --------------------------------------------------------------------------------- */

/* The value becomes head and tail; those who wait and watch hear of it. */
static int tcpstore_requests_store(struct tcpstore_peer *peer, struct tcpstore_entry *entry,
                                   struct dl_span head, struct dl_span tail)
{
    if (entry && entry->links[TCPSTORE_WATCHES])
        tcpstore_requests_tell_watchers(
            entry, entry->present ? TCPSTORE_KEY_UPDATED : TCPSTORE_KEY_CREATED, head, tail);
    if (!entry || tcpstore_store(peer->store, entry, head, tail) < 0) {
        tcpstore_tidy(peer->store, entry);
        return tcpstore_requests_full(peer);
    }
    tcpstore_requests_wake(entry);
    return 0;
}

static int tcpstore_requests_set(struct tcpstore_peer *peer, struct tcpstore_fields *fields)
{
    struct dl_span key = tcpstore_take_span(fields);
    struct dl_span value = tcpstore_take_span(fields);

    return tcpstore_requests_store(peer, tcpstore_enter(peer->store, key), value, tcpstore_nothing);
}

static int tcpstore_requests_append(struct tcpstore_peer *peer, struct tcpstore_fields *fields)
{
    struct dl_span key = tcpstore_take_span(fields);
    struct dl_span tail = tcpstore_take_span(fields);
    struct tcpstore_entry *entry = tcpstore_enter(peer->store, key);

    return tcpstore_requests_store(peer, entry, entry ? tcpstore_value(entry) : tcpstore_nothing,
                                   tail);
}

static bool tcpstore_requests_is_value(const struct tcpstore_entry *entry, struct dl_span value)
{
    return entry->len == value.len &&
           (value.len == 0 || memcmp(entry->value, value.data, value.len) == 0);
}

/*
 * Where the key does not exist, a client that expects some value gets that very value back, and
 * nothing is stored: what TCPStore's clients are used to.
 */
static int tcpstore_requests_compare_set(struct tcpstore_peer *peer, struct tcpstore_fields *fields)
{
    struct dl_span key = tcpstore_take_span(fields);
    struct dl_span expected = tcpstore_take_span(fields);
    struct dl_span desired = tcpstore_take_span(fields);
    struct tcpstore_entry *entry = tcpstore_find(peer->store, key);
    bool present = entry && entry->present;
    int r = 0;

    if (present ? tcpstore_requests_is_value(entry, expected) : expected.len == 0) {
        if ((r = tcpstore_requests_store(peer, tcpstore_enter(peer->store, key), desired,
                                         tcpstore_nothing)) == 0)
            tcpstore_tell_span(peer, desired);
    } else {
        tcpstore_tell_span(peer, present ? tcpstore_value(entry) : expected);
    }
    return r;
}

static int tcpstore_requests_get(struct tcpstore_peer *peer, struct tcpstore_fields *fields)
{
    const struct tcpstore_entry *entry = tcpstore_find(peer->store, tcpstore_take_span(fields));

    if (entry && entry->present)
        tcpstore_tell_span(peer, tcpstore_value(entry));
    else if (peer->dialect == TCPSTORE_V1)
        return tcpstore_break(peer, ENOENT, "it requested a key that does not exist");
    else
        tcpstore_tell_span(peer, tcpstore_nothing);
    return 0;
}

/* Many small requests may have one large answer: it is measured before it is made. */
static int tcpstore_requests_multi_get(struct tcpstore_peer *peer, struct tcpstore_fields fields,
                                       uint64_t keys)
{
    struct tcpstore_fields again = fields;
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < keys; i++) {
        const struct tcpstore_entry *entry = tcpstore_find(peer->store, tcpstore_take_span(&again));
        bytes += 8 + (entry ? entry->len : 0);
    }
    if (!tcpstore_may_tell(peer, bytes))
        return tcpstore_break(peer, ENOBUFS, "it requested more than one answer may hold");
    for (uint64_t i = 0; i < keys; i++) {
        int r = tcpstore_requests_get(peer, &fields);
        if (r < 0)
            return r;
    }
    return 0;
}

static int tcpstore_requests_multi_set(struct tcpstore_peer *peer, struct tcpstore_fields *fields,
                                       uint64_t keys)
{
    for (uint64_t i = 0; i < keys; i++) {
        int r = tcpstore_requests_set(peer, fields);
        if (r < 0)
            return r;
    }
    return 0;
}

static struct dl_span tcpstore_requests_number_text(int64_t number, char text[NUMBER_TEXT])
{
    int len = snprintf(text, NUMBER_TEXT, "%lld", (long long)number);

    return (struct dl_span){.data = (const uint8_t *)text, .len = (size_t)len};
}

/* What a key counts; 0 where it is not there. */
static int tcpstore_requests_count_of(struct tcpstore_peer *peer,
                                      const struct tcpstore_entry *entry, int64_t *ret)
{
    *ret = 0;
    if (!entry || !entry->present || tcpstore_number(tcpstore_value(entry), ret) == 0)
        return 0;
    return tcpstore_break(peer, EINVAL, "it counts with a key whose value is not a number");
}

static int tcpstore_requests_add(struct tcpstore_peer *peer, struct tcpstore_fields *fields)
{
    struct dl_span key = tcpstore_take_span(fields);
    int64_t delta = tcpstore_take_i64(fields), number;
    struct tcpstore_entry *entry = tcpstore_find(peer->store, key);
    char text[NUMBER_TEXT];
    int r = tcpstore_requests_count_of(peer, entry, &number);

    if (r < 0)
        return r;
    number = (int64_t)((uint64_t)number + (uint64_t)delta); /* beyond the largest it wraps */
    if (!entry)
        entry = tcpstore_enter(peer->store, key);
    if ((r = tcpstore_requests_store(peer, entry, tcpstore_requests_number_text(number, text),
                                     tcpstore_nothing)) == 0)
        tcpstore_tell_i64(peer, number);
    return r;
}

static void tcpstore_requests_delete(struct tcpstore_peer *peer, struct tcpstore_fields *fields)
{
    struct tcpstore_entry *entry = tcpstore_find(peer->store, tcpstore_take_span(fields));
    bool present = entry && entry->present;

    if (present) {
        tcpstore_requests_tell_watchers(entry, TCPSTORE_KEY_DELETED, tcpstore_nothing,
                                        tcpstore_nothing);
        tcpstore_unstore(peer->store, entry);
        tcpstore_tidy(peer->store, entry);
    }
    tcpstore_tell_i64(peer, present);
}

/* ---- many keys ------------------------------------------------------------------------------ */

/* A queue that has something counts as a key that is there. */
static bool tcpstore_requests_is_there(struct tcpstore *store, struct dl_span key)
{
    const struct tcpstore_entry *entry = tcpstore_find(store, key);

    return entry && (entry->present || entry->queue);
}

static void tcpstore_requests_check(struct tcpstore_peer *peer, struct tcpstore_fields *fields,
                                    uint64_t keys)
{
    bool all = true;

    for (uint64_t i = 0; i < keys && all; i++)
        all = tcpstore_requests_is_there(peer->store, tcpstore_take_span(fields));
    tcpstore_tell_u8(peer, all ? TCPSTORE_READY : TCPSTORE_NOT_READY);
}

static int tcpstore_requests_wait_for(struct tcpstore_peer *peer, struct tcpstore_fields *fields,
                                      uint64_t keys)
{
    tcpstore_requests_stop_waiting(peer);
    for (uint64_t i = 0; i < keys; i++) {
        struct dl_span key = tcpstore_take_span(fields);
        if (!tcpstore_requests_is_there(peer->store, key) && tcpstore_requests_await(peer, key) < 0)
            return tcpstore_requests_full(peer);
    }
    if (!peer->waiting)
        tcpstore_tell_u8(peer, TCPSTORE_STOP_WAITING);
    return 0;
}

static int tcpstore_requests_list_keys(struct tcpstore_peer *peer)
{
    const struct tcpstore_entry *entry;
    uint64_t bytes = 8;

    for (entry = peer->store->entries; entry; entry = entry->hh.next)
        bytes += entry->present ? 8 + entry->key_len : 0;
    if (!tcpstore_may_tell(peer, bytes))
        return tcpstore_break(peer, ENOBUFS, "it requested more than one answer may hold");
    tcpstore_tell_i64(peer, (int64_t)peer->store->counts.keys);
    for (entry = peer->store->entries; entry; entry = entry->hh.next) {
        if (entry->present)
            tcpstore_tell_span(peer, (struct dl_span){.data = entry->key, .len = entry->key_len});
    }
    return 0;
}

/* ---- queues, barriers, watches -------------------------------------------------------------- */

/* Wakes one, who has been waiting longest. */
static int tcpstore_requests_queue_push(struct tcpstore_peer *peer, struct tcpstore_fields *fields)
{
    struct dl_span key = tcpstore_take_span(fields);
    struct dl_span value = tcpstore_take_span(fields);
    struct tcpstore_entry *entry = tcpstore_enter(peer->store, key);

    if (!entry || tcpstore_queue_push(peer->store, entry, value) < 0) {
        tcpstore_tidy(peer->store, entry);
        return tcpstore_requests_full(peer);
    }
    if (entry->links[TCPSTORE_WAITS])
        tcpstore_requests_end_wait(entry->links[TCPSTORE_WAITS]);
    return 0;
}

static void tcpstore_requests_queue_pop(struct tcpstore_peer *peer, struct tcpstore_fields *fields)
{
    struct tcpstore_entry *entry = tcpstore_find(peer->store, tcpstore_take_span(fields));

    tcpstore_tell_i64(peer, entry ? (int64_t)entry->queued : 0);
    if (!entry || !entry->queue)
        return;
    tcpstore_tell_span(peer,
                       (struct dl_span){.data = entry->queue->data, .len = entry->queue->len});
    tcpstore_queue_drop(peer->store, entry);
    tcpstore_tidy(peer->store, entry);
}

static void tcpstore_requests_queue_length(struct tcpstore_peer *peer,
                                           struct tcpstore_fields *fields)
{
    const struct tcpstore_entry *entry = tcpstore_find(peer->store, tcpstore_take_span(fields));

    tcpstore_tell_i64(peer, entry ? (int64_t)entry->queued : 0);
}

/* The key itself counts the clients that come; one that gives up waiting stays counted. */
static int tcpstore_requests_barrier(struct tcpstore_peer *peer, struct tcpstore_fields *fields)
{
    struct dl_span key = tcpstore_take_span(fields);
    int64_t world = tcpstore_take_i64(fields), number;
    struct tcpstore_entry *entry;
    char text[NUMBER_TEXT];
    int r;

    if (world <= 0)
        return tcpstore_break(peer, EINVAL, "it requests a barrier without members");
    tcpstore_requests_stop_waiting(peer);
    entry = tcpstore_enter(peer->store, key);
    if ((r = tcpstore_requests_count_of(peer, entry, &number)) < 0)
        return r;
    if (number < INT64_MAX)
        number++;
    if (!entry || tcpstore_store(peer->store, entry, tcpstore_requests_number_text(number, text),
                                 tcpstore_nothing) < 0) {
        tcpstore_tidy(peer->store, entry);
        return tcpstore_requests_full(peer);
    }
    if (number < world)
        return tcpstore_requests_await(peer, key);
    tcpstore_requests_wake(entry);
    tcpstore_tell_u8(peer, TCPSTORE_STOP_WAITING);
    return 0;
}

static int tcpstore_requests_watch(struct tcpstore_peer *peer, struct tcpstore_fields *fields)
{
    struct tcpstore_entry *entry = tcpstore_enter(peer->store, tcpstore_take_span(fields));

    if (!entry || peer->watches == MOST_WATCHES ||
        tcpstore_link(peer, entry, TCPSTORE_WATCHES) < 0) {
        tcpstore_tidy(peer->store, entry);
        return tcpstore_requests_full(peer);
    }
    peer->watches++;
    tcpstore_tell_u8(peer, TCPSTORE_KEY_WATCHED);
    return 0;
}

/* ---- all ------------------------------------------------------------------------------------ */

/* A v2 connection begins with it, and has it once. */
static int tcpstore_requests_validate(struct tcpstore_peer *peer, struct tcpstore_fields *fields)
{
    if (peer->validated || tcpstore_take_u32(fields) != TCPSTORE_MAGIC)
        return tcpstore_break(peer, EPROTO, "it starts a second handshake");
    peer->validated = true;
    return 0;
}

static int tcpstore_requests_cancel_wait(struct tcpstore_peer *peer)
{
    tcpstore_requests_stop_waiting(peer);
    tcpstore_tell_u8(peer, TCPSTORE_WAIT_CANCELED);
    return 0;
}

static int tcpstore_requests_ping(struct tcpstore_peer *peer, const struct tcpstore_fields *fields)
{
    tcpstore_tell(peer, fields->at, 4);
    return 0;
}

/* Those that have an answer in any case. */
static void tcpstore_requests_ask(struct tcpstore_peer *peer,
                                  const struct tcpstore_request *request)
{
    struct tcpstore_fields fields = request->fields;

    switch (request->op) {
    case TCPSTORE_CHECK:
        tcpstore_requests_check(peer, &fields, request->count);
        break;
    case TCPSTORE_COUNT_KEYS:
        tcpstore_tell_i64(peer, (int64_t)peer->store->counts.keys);
        break;
    case TCPSTORE_DELETE:
        tcpstore_requests_delete(peer, &fields);
        break;
    case TCPSTORE_QUEUE_POP:
        tcpstore_requests_queue_pop(peer, &fields);
        break;
    case TCPSTORE_QUEUE_LENGTH:
        tcpstore_requests_queue_length(peer, &fields);
        break;
    default:
        assert(false);
    }
}

int tcpstore_do(struct tcpstore_peer *peer, const struct tcpstore_request *request)
{
    struct tcpstore_fields fields = request->fields;

    if (peer->dialect == TCPSTORE_V1 && peer->waiting)
        tcpstore_requests_stop_waiting(peer);
    switch (request->op) {
    case TCPSTORE_VALIDATE:
        return tcpstore_requests_validate(peer, &fields);
    case TCPSTORE_SET:
        return tcpstore_requests_set(peer, &fields);
    case TCPSTORE_COMPARE_SET:
        return tcpstore_requests_compare_set(peer, &fields);
    case TCPSTORE_GET:
        return tcpstore_requests_get(peer, &fields);
    case TCPSTORE_ADD:
        return tcpstore_requests_add(peer, &fields);
    case TCPSTORE_WAIT:
        return tcpstore_requests_wait_for(peer, &fields, request->count);
    case TCPSTORE_APPEND:
        return tcpstore_requests_append(peer, &fields);
    case TCPSTORE_MULTI_GET:
        return tcpstore_requests_multi_get(peer, fields, request->count);
    case TCPSTORE_MULTI_SET:
        return tcpstore_requests_multi_set(peer, &fields, request->count);
    case TCPSTORE_CANCEL_WAIT:
        return tcpstore_requests_cancel_wait(peer);
    case TCPSTORE_PING:
        return tcpstore_requests_ping(peer, &fields);
    case TCPSTORE_QUEUE_PUSH:
        return tcpstore_requests_queue_push(peer, &fields);
    case TCPSTORE_LIST_KEYS:
        return tcpstore_requests_list_keys(peer);
    case TCPSTORE_BARRIER:
        return tcpstore_requests_barrier(peer, &fields);
    case TCPSTORE_WATCH:
        return tcpstore_requests_watch(peer, &fields);
    default:
        tcpstore_requests_ask(peer, request);
        return 0;
    }
}
