/* Between the files of the store: what is kept (tcpstore.c), peers and their bytes
 * (tcpstore_peer.c), what requests do (tcpstore_requests.c). */
#ifndef DL_TCPSTORE_PRIVATE_H
#define DL_TCPSTORE_PRIVATE_H

#include "daemon/cluster/store/tcpstore.h"

/* Adding to a table may fail; the element then is in none. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

enum tcpstore_table { TCPSTORE_WAITS, TCPSTORE_WATCHES, TCPSTORE_LINKS };

/* A peer's interest in a key: it waits for it, or watches its changes. */
struct tcpstore_link {
    struct tcpstore_link *prev, *next;           /* entry.links[kind] */
    struct tcpstore_link *peer_prev, *peer_next; /* peer.links[kind] */
    struct tcpstore_entry *entry;
    struct tcpstore_peer *peer;
    enum tcpstore_table kind;
};

struct tcpstore_item {
    struct tcpstore_item *prev, *next; /* entry.queue */
    size_t len;
    uint8_t data[];
};

/* A key of which there is anything: a value, a queue, somebody's interest. */
struct tcpstore_entry {
    UT_hash_handle hh; /* store.entries, by key */
    bool present;      /* has a value */
    uint8_t *value;    /* owned; may be NULL when len is 0 */
    size_t len, cap;
    struct tcpstore_item *queue; /* owned, the oldest first */
    uint64_t queued;
    struct tcpstore_link *links[TCPSTORE_LINKS]; /* owned */
    size_t key_len;
    uint8_t key[];
};

struct tcpstore_peer {
    struct tcpstore_peer *prev, *next;                 /* store.peers */
    struct tcpstore_peer *touched_prev, *touched_next; /* store.touched, if `touched` */
    struct tcpstore *store;                            /* borrowed, outlives the peer */
    void *owner;
    const char *why; /* broken; static text */
    int code;
    bool touched;
    enum tcpstore_dialect dialect;
    bool validated; /* in v2: VALIDATE has come */
    struct tcpstore_scan scan;
    struct dl_buffer in; /* of requests that are not done */
    bool reading_in;     /* one of them is being done */
    struct dl_buffer out;
    size_t out_begin;
    uint64_t requests;
    bool waiting;
    uint64_t awaited; /* links of waits that have yet to be answered */
    uint32_t watches;
    struct tcpstore_link *links[TCPSTORE_LINKS];
};

struct tcpstore {
    struct tcpstore_limits limits;
    uint64_t seed;
    struct tcpstore_entry *entries;
    struct tcpstore_peer *peers;
    struct tcpstore_peer *touched;
    struct tcpstore_counts counts;
};

/* ---- tcpstore.c ----------------------------------------------------------------------------- */

struct tcpstore_entry *tcpstore_find(struct tcpstore *store, struct dl_span key); /* may be NULL */
/* Makes it if it does not exist. NULL: no memory, or beyond the limit. */
struct tcpstore_entry *tcpstore_enter(struct tcpstore *store, struct dl_span key);
/* Frees it unless there is something of it. NULL is fine. */
void tcpstore_tidy(struct tcpstore *store, struct tcpstore_entry *entry);

/* The value becomes `head` and `tail` in one. 0, -ENOMEM, -ENOSPC: nothing has changed. */
int _nodiscard_ tcpstore_store(struct tcpstore *store, struct tcpstore_entry *entry,
                               struct dl_span head, struct dl_span tail);
void tcpstore_unstore(struct tcpstore *store, struct tcpstore_entry *entry);
struct dl_span tcpstore_value(const struct tcpstore_entry *entry);

int _nodiscard_ tcpstore_queue_push(struct tcpstore *store, struct tcpstore_entry *entry,
                                    struct dl_span value);
void tcpstore_queue_drop(struct tcpstore *store, struct tcpstore_entry *entry); /* the oldest */

int _nodiscard_ tcpstore_link(struct tcpstore_peer *peer, struct tcpstore_entry *entry,
                              enum tcpstore_table kind);
/* The entry stays, though nothing may be left of it. */
void tcpstore_unlink(struct tcpstore_link *link);
void tcpstore_unlink_all(struct tcpstore_peer *peer, enum tcpstore_table kind);

/* ---- tcpstore_peer.c ------------------------------------------------------------------------ */

/* The connection has to end; returns -code. `why` is static. */
int tcpstore_break(struct tcpstore_peer *peer, int code, const char *why);

/* Appends to the peer's output; does nothing for one that is broken, or gets broken by it. */
void tcpstore_tell(struct tcpstore_peer *peer, const void *data, size_t len);
void tcpstore_tell_u8(struct tcpstore_peer *peer, uint8_t value);
void tcpstore_tell_i64(struct tcpstore_peer *peer, int64_t value);
void tcpstore_tell_span(struct tcpstore_peer *peer, struct dl_span span);
/* Whether the peer may be told so much more in one go. */
bool tcpstore_may_tell(const struct tcpstore_peer *peer, uint64_t bytes);

/* ---- tcpstore_requests.c -------------------------------------------------------------------- */

/* 0, or a negative errno: the peer is broken. */
int _nodiscard_ tcpstore_do(struct tcpstore_peer *peer, const struct tcpstore_request *request);

#endif
