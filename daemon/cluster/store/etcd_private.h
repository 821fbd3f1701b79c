/*
 * The inside of the backend on etcd: etcd.c has its calls, etcd_keep.c what they depend on. Nobody
 * else includes it.
 */
#ifndef DL_ETCD_PRIVATE_H
#define DL_ETCD_PRIVATE_H

#include "daemon/base/memory.h"
#include "daemon/cluster/store/etcd.h"
#include "daemon/cluster/store/etcd_client.h"
#include "daemon/cluster/store/etcd_json.h"
#include "daemon/cluster/store/etcd_watch.h"
#include "daemon/cluster/store/patience.h"

enum { TRIED_MAX = 640 };

/* Of one call: how often a lease or a token may turn out to be gone. */
enum { RENEWALS_MAX = 3 };

enum etcd_call_kind { ETCD_CALL_GET, ETCD_CALL_SET, ETCD_CALL_PUT, ETCD_CALL_LIST, ETCD_CALL_DROP };

/* From its call to its answer. */
struct etcd_call {
    struct etcd *etcd;
    enum etcd_call_kind kind;
    char key[BACKEND_PREFIX_MAX + BACKEND_KEY_MAX]; /* of a list the prefix */
    /* What else is asked; "": none. */
    char other[BACKEND_PREFIX_MAX + BACKEND_KEY_MAX];
    uint64_t token;
    struct dl_buffer data;      /* owned */
    struct backend_note *notes; /* owned, a list in an array, with keys and bytes; NULL: none */
    backend_done done;
    void *owner;
    struct http_call *http; /* owned; NULL while it waits for a token, a lease, or the loop */
    uint64_t began;
    unsigned tries;    /* endpoints that were asked */
    unsigned renewals; /* of the lease or the token */
    char tried[TRIED_MAX];
    struct etcd_call *prev, *next; /* in etcd->calls */
};

struct etcd {
    struct backend backend;
    uv_loop_t *loop;
    struct etcd_client client;
    struct patience patience;
    uint64_t keep_s;
    char prefix[BACKEND_PREFIX_MAX];

    struct etcd_call *calls;
    uv_timer_t soon;            /* they are begun, and `renewed` is said */
    struct http_call *renewing; /* of the token or the lease; owned */
    bool renews_token;
    bool has_lease; /* it was there when last asked about */
    bool is_renewed;
    uint64_t lease;            /* the run's; 0: there is to be none */
    struct http_call *keeping; /* owned */
    uv_timer_t keep;
    struct http_call *compacting; /* owned */
    uint64_t history, history_ms; /* revision that etcd had then, in ms of the loop; 0: none */

    char watched[BACKEND_PREFIX_MAX + BACKEND_KEY_MAX]; /* "": nothing */
    struct etcd_watch *watch;                           /* owned */
    uint64_t created; /* revision at which that key came to be; 0: it was not there */
    void (*renewed)(void *context);
    void *context;

    unsigned open_handles;
    struct backend_health health;
};

static inline struct etcd *etcd_of(const struct backend *backend)
{
    return container_of(backend, struct etcd, backend);
}

/* ---- etcd.c --------------------------------------------------------------------------------- */

/* The call is done with, and gone; its owner may do anything, also free the backend. */
void etcd_answer_error(struct etcd_call *call, int code, const char *what);
/* A call may take as long as it may; one that is stuck leaves time for the other endpoints. */
uint64_t etcd_try_ns(const struct etcd *etcd);
/* What this endpoint said is noted. False: each was asked. Else the next is asked from now on, by
 * this call and the others. */
bool etcd_try_next(struct etcd_call *call, const char *why, bool worth);
/* One that waits for the loop, a token or a lease; NULL: none does. */
struct etcd_call *etcd_first_waiting(const struct etcd *etcd);
/* All that wait run again, from the loop. */
void etcd_at_soon(struct etcd *etcd, uint64_t ms);

/* ---- etcd_keep.c ---------------------------------------------------------------------------- */

/* True: a token or a lease is asked for, and calls have to wait for it. */
bool etcd_keep_renew(struct etcd *etcd, bool sets);
/* Keeps it alive; also of a node that only reads. */
void etcd_keep_lease(uv_timer_t *timer);
/* etcd keeps each value that a key ever had until somebody says that nobody needs it: without that
 * the beats of a long run would fill it. Only nodes that list keys do it; `revision`: of now. */
void etcd_keep_history_short(struct etcd *etcd, uint64_t revision);

#endif
