/*
 * A client of a TCPStore: PyTorch's own of either generation, or ours. It runs on the loop it is
 * given and never blocks it.
 *
 * It connects when there is something to ask, and again when the connection is lost, until what is
 * asked runs out of its time; which dialect the store speaks it finds out. Requests go out one
 * behind the other without waiting for answers, but nothing behind a wait. A wait that runs out of
 * time is cancelled, or where the dialect cannot, its connection is given up: its late answer is
 * never taken for that of another request.
 *
 * Every request is answered once, from the loop and never from inside a call; after
 * tcpstore_client_free() none is. One that was answered by an error may have been done or not.
 * Main thread only.
 */
#ifndef DL_TCPSTORE_CLIENT_H
#define DL_TCPSTORE_CLIENT_H

#include "daemon/cluster/store/tcpstore_wire.h"
#include "proto/common/error.h"

#include <uv.h>

struct tcpstore_client_options {
    uv_loop_t *loop;  /* borrowed, outlives the client */
    const char *host; /* name or address; copied */
    uint16_t port;
    enum tcpstore_dialect dialect; /* TCPSTORE_ANY: to be found out */
    uint64_t timeout_ms;           /* of a request that says none; 0: a minute */
};

/* What is asked; keys and values are copied. */
struct tcpstore_question {
    enum tcpstore_op op;
    const struct dl_span *keys;   /* as many as `times` */
    const struct dl_span *values; /* as many as the request has: COMPARE_SET expected, desired */
    uint64_t times;               /* of the part that repeats; 1 where none does */
    int64_t number;               /* what to add, or a barrier's world */
    uint64_t timeout_ms;          /* 0: the client's own */
};

struct tcpstore_answer {
    int status;                    /* 0, or a negative errno with `error` */
    const struct dl_error *error;  /* names the endpoint, what was tried, and for how long */
    struct tcpstore_fields fields; /* the reply's, as tcpstore_ops.def has them; for the call */
};

typedef void (*tcpstore_done)(void *owner, const struct tcpstore_answer *answer);

struct tcpstore_client;

struct tcpstore_client *tcpstore_client_new(const struct tcpstore_client_options *options);
/* The rest happens on the loop. NULL is fine; returns NULL. */
struct tcpstore_client *tcpstore_client_free(struct tcpstore_client *client);

/*
 * 0: it will be answered; -EINVAL: it will not, as no store takes it.
 * Requests without a reply (SET) are answered when they are sent.
 */
int _nodiscard_ tcpstore_client_ask(struct tcpstore_client *client,
                                    const struct tcpstore_question *question, tcpstore_done done,
                                    void *owner);

const char *tcpstore_client_endpoint(const struct tcpstore_client *client); /* "host:port" */
/* TCPSTORE_ANY: not connected. */
enum tcpstore_dialect tcpstore_client_dialect(const struct tcpstore_client *client);
/* Connections that there were: behind each there may be another store, which knows nothing. */
uint64_t tcpstore_client_links(const struct tcpstore_client *client);

#endif
