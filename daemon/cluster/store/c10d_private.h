/*
 * The inside of the backend on a TCPStore: c10d.c has its calls on one value, c10d_list.c those on
 * keys that are listed. Nobody else includes it.
 */
#ifndef DL_C10D_PRIVATE_H
#define DL_C10D_PRIVATE_H

#include "daemon/base/memory.h"
#include "daemon/cluster/store/c10d.h"
#include "daemon/cluster/store/patience.h"
#include "daemon/cluster/store/tcpstore_client.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* What nobody stores: compared and set with itself, it changes nothing, and comes back only where
 * there is nothing else. */
#define C10D_NOTHING "dloader: no value"

/* The last part of its key: see c10d_list.c. */
#define C10D_DIRECTORY "*"

enum c10d_call_kind { C10D_CALL_GET, C10D_CALL_SET, C10D_CALL_PUT, C10D_CALL_LIST, C10D_CALL_DROP };

struct c10d_call;

/* One of the values that a list reads. */
struct listed {
    struct c10d_call *call;
    char *name; /* owned */
    struct dl_buffer data;
    bool is_there;
};

/* From its call to its answer. */
struct c10d_call {
    struct c10d *c10d;
    enum c10d_call_kind kind;
    bool writes; /* what the store was asked last: to put `data` in the place of `expected` */
    char key[BACKEND_PREFIX_MAX + BACKEND_KEY_MAX];
    /* The note's, or what else is asked; "": none. */
    char other[BACKEND_PREFIX_MAX + BACKEND_KEY_MAX];
    char directory[BACKEND_PREFIX_MAX + BACKEND_KEY_MAX + sizeof C10D_DIRECTORY];
    uint64_t token;
    struct dl_buffer data, note; /* owned */
    struct dl_buffer expected;   /* owned */
    struct dl_buffer asked;      /* owned: what lies under `other` */
    struct listed *listed;       /* owned */
    uint32_t n_listed, waits;    /* `waits`: requests of a list that are not answered yet */
    struct dl_error error;       /* of one of them; code 0: none */
    backend_done done;
    void *owner;
    uint64_t began;
    struct c10d_call *prev, *next; /* in c10d->calls */
};

struct c10d {
    struct backend backend;
    uv_loop_t *loop;
    struct tcpstore_client *client; /* owned */
    struct c10d_host *host;         /* owned */
    struct patience patience;
    char prefix[BACKEND_PREFIX_MAX];
    struct c10d_call *calls;
    uint64_t links; /* of the client, that are known of */
    void (*renewed)(void *context);
    void *context;
    char known_key[BACKEND_PREFIX_MAX + BACKEND_KEY_MAX]; /* "": none */
    struct dl_buffer known;                               /* what it was seen to have last */
    struct backend_health health;
};

static inline struct c10d *c10d_of(const struct backend *backend)
{
    return container_of(backend, struct c10d, backend);
}

static inline struct dl_span c10d_span_of(const struct dl_buffer *buffer)
{
    return (struct dl_span){buffer->data, buffer->len};
}

static inline bool c10d_is_same(struct dl_span a, struct dl_span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static inline struct dl_span c10d_nothing(void)
{
    return span_str(C10D_NOTHING);
}

static inline uint64_t c10d_token_of(struct dl_span data)
{
    uint64_t hash = XXH3_64bits(data.data, data.len);

    return hash ? hash : 1;
}

static inline void c10d_put(struct dl_buffer *ret, struct dl_span data)
{
    ret->len = 0;
    must_append(ret, data.data, data.len);
}

/* What follows the last slash; the directory's key has another there. */
static inline const char *c10d_name_of(const struct c10d_call *call)
{
    return strrchr(call->key, '/') + 1;
}

/* ---- c10d.c --------------------------------------------------------------------------------- */

/* The call is done with, and gone; its owner may do anything, also free the backend. */
void c10d_answer(struct c10d_call *call, const struct backend_answer *with);
void c10d_answer_error(struct c10d_call *call, int code, const char *what);
void c10d_answer_nothing(struct c10d_call *call);
/* `values`: as many as the operation has. */
void c10d_ask_for(struct c10d_call *call, enum tcpstore_op op, const char *key,
                  const struct dl_span *values, tcpstore_done done, void *owner);
/* What lies under another key than the call's. */
void c10d_read_key(struct c10d_call *call, const char *key, tcpstore_done done, void *owner);
/* Something was answered: perhaps over another connection than before. */
void c10d_notice_link(struct c10d *c10d);
/* What an answer has; false: it was an error, and the call was answered so. */
bool c10d_take(struct c10d_call *call, const struct tcpstore_answer *with, struct dl_span *ret);

/* ---- c10d_list.c ---------------------------------------------------------------------------- */

/* The first request of a call on listed keys, by its kind. */
void c10d_list_begin(struct c10d_call *call);

#endif
