#include "daemon/cluster/store/tcpstore_private.h"

#include <assert.h>
#include <errno.h>
#include <utlist.h>

/* Its functions as our own. */
#define XXH_INLINE_ALL
#include <xxhash.h>

/* What the allocator and the hash table take for a block of their own, about. */
enum { OVERHEAD = 32, LEAST_VALUE = 32 };

const struct tcpstore_limits tcpstore_default_limits = {
    .stored_bytes = 256 << 20,
    .buffered_bytes = 256 << 20,
    .output_bytes = 64 << 20,
    .keys = 1000000,
};

struct tcpstore *tcpstore_new(const struct tcpstore_limits *limits, uint64_t seed)
{
    struct tcpstore *store = calloc(1, sizeof *store);

    if (!store)
        return NULL;
    store->limits = *limits;
    store->seed = seed;
    return store;
}

struct tcpstore_counts tcpstore_count(const struct tcpstore *store)
{
    return store->counts;
}

/* ---- memory --------------------------------------------------------------------------------- */

static int tcpstore_charge(struct tcpstore *store, size_t bytes)
{
    if (bytes > store->limits.stored_bytes ||
        store->counts.stored_bytes > store->limits.stored_bytes - bytes)
        return -ENOSPC;
    store->counts.stored_bytes += bytes;
    return 0;
}

static void tcpstore_discharge(struct tcpstore *store, size_t bytes)
{
    assert(store->counts.stored_bytes >= bytes);
    store->counts.stored_bytes -= bytes;
}

static size_t tcpstore_entry_bytes(const struct tcpstore_entry *entry)
{
    return sizeof *entry + entry->key_len + OVERHEAD;
}

static size_t tcpstore_value_bytes(size_t cap)
{
    return cap > 0 ? cap + OVERHEAD : 0;
}

static size_t tcpstore_item_bytes(const struct tcpstore_item *item)
{
    return sizeof *item + item->len + OVERHEAD;
}

enum { LINK_BYTES = sizeof(struct tcpstore_link) + OVERHEAD };

/* ---- entries -------------------------------------------------------------------------------- */

static unsigned tcpstore_hash(const struct tcpstore *store, struct dl_span key)
{
    return (unsigned)XXH3_64bits_withSeed(key.data, key.len, store->seed);
}

struct tcpstore_entry *tcpstore_find(struct tcpstore *store, struct dl_span key)
{
    struct tcpstore_entry *entry;

    HASH_FIND_BYHASHVALUE(hh, store->entries, key.data, key.len, tcpstore_hash(store, key), entry);
    return entry;
}

struct tcpstore_entry *tcpstore_enter(struct tcpstore *store, struct dl_span key)
{
    struct tcpstore_entry *entry = tcpstore_find(store, key);

    if (entry)
        return entry;
    entry = calloc(1, sizeof *entry + key.len);
    if (!entry)
        return NULL;
    entry->key_len = key.len;
    memcpy(entry->key, key.data, key.len);
    if (tcpstore_charge(store, tcpstore_entry_bytes(entry)) < 0) {
        free(entry);
        return NULL;
    }
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, store->entries, entry->key, entry->key_len,
                                tcpstore_hash(store, key), entry);
    if (!entry->hh.tbl) {
        tcpstore_discharge(store, tcpstore_entry_bytes(entry));
        free(entry);
        return NULL;
    }
    return entry;
}

void tcpstore_tidy(struct tcpstore *store, struct tcpstore_entry *entry)
{
    if (!entry || entry->present || entry->queue)
        return;
    for (int kind = 0; kind < TCPSTORE_LINKS; kind++) {
        if (entry->links[kind])
            return;
    }
    assert(!entry->value);
    HASH_DEL(store->entries, entry);
    tcpstore_discharge(store, tcpstore_entry_bytes(entry));
    free(entry);
}

struct tcpstore *tcpstore_free(struct tcpstore *store)
{
    struct tcpstore_entry *entry, *next;

    if (!store)
        return NULL;
    assert(!store->peers && store->counts.peers == 0 && store->counts.waits == 0);
    HASH_ITER (hh, store->entries, entry, next) {
        while (entry->queue)
            tcpstore_queue_drop(store, entry);
        tcpstore_unstore(store, entry);
        tcpstore_tidy(store, entry);
    }
    assert(store->counts.stored_bytes == 0 && store->counts.buffered_bytes == 0);
    free(store);
    return NULL;
}

/* ---- values --------------------------------------------------------------------------------- */

struct dl_span tcpstore_value(const struct tcpstore_entry *entry)
{
    return (struct dl_span){.data = entry->value, .len = entry->len};
}

/* Room that is not wasted, and that a value which is appended to does not outgrow each time. */
static size_t tcpstore_room_for(const struct tcpstore_entry *entry, size_t len)
{
    if (len == 0)
        return 0;
    if (len <= entry->cap && len >= entry->cap / 4)
        return entry->cap;
    if (entry->present && len > entry->cap && len < 2 * entry->cap)
        return 2 * entry->cap;
    return max_u64(len, LEAST_VALUE);
}

int tcpstore_store(struct tcpstore *store, struct tcpstore_entry *entry, struct dl_span head,
                   struct dl_span tail)
{
    size_t len = head.len + tail.len;
    size_t room = tcpstore_room_for(entry, len);
    uint8_t *value = entry->value;
    int r = 0;

    if (len > TCPSTORE_VALUE_MAX || (!entry->present && store->counts.keys >= store->limits.keys))
        return -ENOSPC;
    if (room != entry->cap) {
        tcpstore_discharge(store, tcpstore_value_bytes(entry->cap));
        value = NULL;
        if ((r = tcpstore_charge(store, tcpstore_value_bytes(room))) == 0 && room > 0 &&
            !(value = malloc(room))) {
            tcpstore_discharge(store, tcpstore_value_bytes(room));
            r = -ENOMEM;
        }
        if (r < 0) {
            store->counts.stored_bytes += tcpstore_value_bytes(entry->cap);
            return r;
        }
    }
    /* `head` may be the value there is. */
    if (value && head.len > 0 && head.data != value)
        memcpy(value, head.data, head.len);
    if (value && tail.len > 0)
        memcpy(value + head.len, tail.data, tail.len);
    if (value != entry->value)
        free(entry->value);
    entry->value = value;
    entry->len = len;
    entry->cap = room;
    store->counts.keys += !entry->present;
    entry->present = true;
    return 0;
}

void tcpstore_unstore(struct tcpstore *store, struct tcpstore_entry *entry)
{
    tcpstore_discharge(store, tcpstore_value_bytes(entry->cap));
    free(entry->value);
    entry->value = NULL;
    entry->len = entry->cap = 0;
    store->counts.keys -= entry->present;
    entry->present = false;
}

int tcpstore_queue_push(struct tcpstore *store, struct tcpstore_entry *entry, struct dl_span value)
{
    struct tcpstore_item *item = malloc(sizeof *item + value.len);
    int r;

    if (!item)
        return -ENOMEM;
    item->len = value.len;
    if (value.len > 0)
        memcpy(item->data, value.data, value.len);
    if ((r = tcpstore_charge(store, tcpstore_item_bytes(item))) < 0) {
        free(item);
        return r;
    }
    DL_APPEND(entry->queue, item);
    entry->queued++;
    return 0;
}

void tcpstore_queue_drop(struct tcpstore *store, struct tcpstore_entry *entry)
{
    struct tcpstore_item *item = entry->queue;

    DL_DELETE(entry->queue, item);
    entry->queued--;
    tcpstore_discharge(store, tcpstore_item_bytes(item));
    free(item);
}

/* ---- links ---------------------------------------------------------------------------------- */

int tcpstore_link(struct tcpstore_peer *peer, struct tcpstore_entry *entry,
                  enum tcpstore_table kind)
{
    struct tcpstore_link *link = calloc(1, sizeof *link);

    if (!link || tcpstore_charge(peer->store, LINK_BYTES) < 0) {
        free(link);
        return -ENOSPC;
    }
    link->entry = entry;
    link->peer = peer;
    link->kind = kind;
    DL_APPEND(entry->links[kind], link);
    DL_APPEND2(peer->links[kind], link, peer_prev, peer_next);
    peer->store->counts.waits += kind == TCPSTORE_WAITS;
    return 0;
}

void tcpstore_unlink(struct tcpstore_link *link)
{
    struct tcpstore *store = link->peer->store;

    DL_DELETE(link->entry->links[link->kind], link);
    DL_DELETE2(link->peer->links[link->kind], link, peer_prev, peer_next);
    store->counts.waits -= link->kind == TCPSTORE_WAITS;
    tcpstore_discharge(store, LINK_BYTES);
    free(link);
}

void tcpstore_unlink_all(struct tcpstore_peer *peer, enum tcpstore_table kind)
{
    while (peer->links[kind]) {
        struct tcpstore_entry *entry = peer->links[kind]->entry;

        tcpstore_unlink(peer->links[kind]);
        tcpstore_tidy(peer->store, entry);
    }
}

/* ---- the books ------------------------------------------------------------------------------ */

static size_t tcpstore_links_of(const struct tcpstore_entry *entry, int kind)
{
    const struct tcpstore_link *link;
    size_t n = 0;

    DL_FOREACH (entry->links[kind], link) {
        assert(link->entry == entry && (int)link->kind == kind);
        n++;
    }
    return n;
}

static void tcpstore_count_entry(const struct tcpstore_entry *entry, struct tcpstore_counts *counts)
{
    const struct tcpstore_item *item;
    uint64_t queued = 0, links = 0;

    DL_FOREACH (entry->queue, item) {
        counts->stored_bytes += tcpstore_item_bytes(item);
        queued++;
    }
    assert(queued == entry->queued && entry->len <= entry->cap);
    assert(entry->present || entry->cap == 0);
    counts->waits += tcpstore_links_of(entry, TCPSTORE_WAITS);
    for (int kind = 0; kind < TCPSTORE_LINKS; kind++)
        links += tcpstore_links_of(entry, kind);
    assert(entry->present || entry->queue || links > 0);
    counts->keys += entry->present;
    counts->stored_bytes +=
        tcpstore_entry_bytes(entry) + tcpstore_value_bytes(entry->cap) + links * LINK_BYTES;
}

static void tcpstore_count_peer(const struct tcpstore_peer *peer, struct tcpstore_counts *counts)
{
    const struct tcpstore_link *link;
    uint64_t awaited = 0;

    for (link = peer->links[TCPSTORE_WAITS]; link; link = link->peer_next)
        awaited++;
    assert(awaited == peer->awaited && peer->waiting == (awaited > 0));
    assert(!peer->why || (peer->in.cap == 0 && peer->out.cap == 0));
    assert(peer->out_begin <= peer->out.len);
    counts->buffered_bytes += peer->in.cap + peer->out.cap;
    counts->peers++;
}

void tcpstore_check(const struct tcpstore *store)
{
    struct tcpstore_counts counts = {0};
    const struct tcpstore_entry *entry;
    const struct tcpstore_peer *peer;

    for (entry = store->entries; entry; entry = entry->hh.next)
        tcpstore_count_entry(entry, &counts);
    DL_FOREACH (store->peers, peer) {
        tcpstore_count_peer(peer, &counts);
    }
    assert(counts.keys == store->counts.keys && counts.waits == store->counts.waits);
    assert(counts.stored_bytes == store->counts.stored_bytes);
    assert(counts.buffered_bytes == store->counts.buffered_bytes);
    assert(counts.peers == store->counts.peers);
    assert(counts.stored_bytes <= store->limits.stored_bytes);
    assert(counts.buffered_bytes <= store->limits.buffered_bytes);
    assert(counts.keys <= store->limits.keys);
}
