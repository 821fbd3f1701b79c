/*
 * What is said to etcd, and what it says: bodies of its v3 JSON gateway (3.4 and later). Keys and
 * values are base64 there, 64-bit numbers are strings, and what is zero is left out. Pure.
 */
#ifndef DL_ETCD_JSON_H
#define DL_ETCD_JSON_H

#include "daemon/cluster/store/backend.h"

/* Bodies of requests; owned by the caller. NULL: out of memory. */
char *etcd_range_body(const char *key);
/* Writes if the key was last written at that revision; 0: if it does not exist; and with it the
 * notes (may be NULL). Either way the answer says what is there. `lease` 0: none. */
char *etcd_txn_body(const char *key, uint64_t revision, struct dl_span data, uint64_t lease,
                    const struct backend_note *note);
/* Writes in any case, and reads `ask`. */
char *etcd_put_body(const char *key, struct dl_span data, uint64_t lease, const char *ask);
/* Reads all keys that begin so, and `ask` (may be NULL). */
char *etcd_list_body(const char *prefix, const char *ask);
char *etcd_drop_body(const char *key);
/* Forgets what keys were before that revision. */
char *etcd_compact_body(uint64_t revision);
char *etcd_watch_body(const char *key);
char *etcd_grant_body(uint64_t lease, uint64_t seconds);
char *etcd_keepalive_body(uint64_t lease);
char *etcd_user_body(const char *user, const char *password);

/* What lies under the key: revision 0: nothing. */
struct etcd_kv {
    uint64_t revision;
    uint64_t created;      /* when it was not there before; a txn that wrote does not say it */
    bool won;              /* of a txn: it wrote */
    uint64_t written;      /* and this is the revision of what it wrote */
    struct dl_buffer data; /* owned */
};

struct etcd_list {
    struct backend_item *items; /* owned, with their names and bytes */
    uint32_t n;
    uint64_t revision; /* of the whole store, when it was read */
};
void etcd_list_deinit(struct etcd_list *list);

/* All of these: -EBADMSG: this is no such answer. */
int _nodiscard_ etcd_read_range(struct dl_span body, struct etcd_kv *ret);
int _nodiscard_ etcd_read_txn(struct dl_span body, struct etcd_kv *ret);
/* What lay under `ask`, where that was asked. */
int _nodiscard_ etcd_read_put(struct dl_span body, struct etcd_kv *ret);
/* Of the keys what follows the prefix, which has `prefix_len` bytes. */
int _nodiscard_ etcd_read_list(struct dl_span body, size_t prefix_len, struct etcd_list *ret,
                               struct etcd_kv *ret_ask);
int _nodiscard_ etcd_read_grant(struct dl_span body);
/* *ret_alive false: the lease is gone. */
int _nodiscard_ etcd_read_keepalive(struct dl_span body, bool *ret_alive);
int _nodiscard_ etcd_read_user(struct dl_span body, char **ret_token);

/* One line of a watch. *ret_goes_on false: the watch is over, and another is to be begun. `ret`
 * (initialised) takes what the key is now; nothing: the line does not say it. */
int _nodiscard_ etcd_read_watch(struct dl_span line, bool *ret_goes_on, struct dl_buffer *ret);

/* What an error says, and gRPC's number of it; -1: this is no error of etcd. */
int etcd_read_error(struct dl_span body, char *text, size_t size);

enum {
    ETCD_INVALID = 3,
    ETCD_NOT_FOUND = 5,
    ETCD_PRECONDITION = 9,
    ETCD_UNAVAILABLE = 14,
    ETCD_UNAUTHENTICATED = 16
};

#endif
