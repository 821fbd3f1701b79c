/* Between the client's requests (tcpstore_client.c) and its connection (tcpstore_connect.c). */
#ifndef DL_TCPSTORE_CLIENT_PRIVATE_H
#define DL_TCPSTORE_CLIENT_PRIVATE_H

#include "daemon/cluster/store/tcpstore_client.h"

/*
 *   DOWN       nothing is tried          → RESOLVING when something is asked and `retry_ms` is past
 *   RESOLVING  the name is looked up     → CONNECTING, to each address in turn
 *   CONNECTING                           → GREETING
 *   GREETING   the dialect is tried      → UP, or CONNECTING for the other dialect
 *   UP         requests go out
 * Whatever fails on the way leads to the next address, and after the last to DOWN.
 */
enum link_state { LINK_DOWN, LINK_RESOLVING, LINK_CONNECTING, LINK_GREETING, LINK_UP };

struct client_request {
    struct client_request *prev, *next; /* client.queue, client.flight */
    struct tcpstore_question question;  /* without keys and values */
    struct dl_buffer body;              /* all but the first byte */
    uint64_t asked_ms;
    uint64_t deadline_ms;
    bool cancelled; /* a wait that was answered; its end is waited for */
    tcpstore_done done;
    void *owner;
};

struct tcpstore_client {
    struct tcpstore_client_options options;
    char *host;     /* owned */
    char *endpoint; /* owned */
    uint32_t handles;
    bool ending;
    struct client_request *queue;  /* owned, to be sent */
    struct client_request *flight; /* owned, sent */

    enum link_state state;
    uv_timer_t timer;
    uv_poll_t poll;
    bool poll_open;    /* `poll` watches fd */
    bool poll_closing; /* `poll` is being closed: no other connection yet */
    int fd;            /* owned */
    int closing_fd;    /* owned, of the poll that is being closed */
    uv_getaddrinfo_t lookup;
    bool looking_up;
    struct addrinfo *addresses; /* owned */
    const struct addrinfo *address;
    enum tcpstore_dialect dialect; /* spoken or tried */
    bool tried_other;              /* the other dialect, at this address */
    uint32_t nonce;
    uint64_t step_ms;  /* when the step under way has taken too long */
    uint64_t retry_ms; /* when to try again */
    uint64_t delay_ms;
    uint32_t attempts; /* since it was last up */
    uint64_t links;    /* how often it was */
    char why[256];     /* the last attempt failed, or the connection ended */

    struct dl_buffer in;
    struct dl_buffer out;
    size_t out_begin;
    struct tcpstore_scan scan;
};

uint64_t client_now(const struct tcpstore_client *c);

/* ---- tcpstore_connect.c --------------------------------------------------------------------- */

/* Begins to connect if it is down and may. */
void connect_begin(struct tcpstore_client *c);
/* The step under way has taken too long, or can be taken now. */
void connect_step(struct tcpstore_client *c, bool ready);
/* What has come in while greeting is in c->in. */
void connect_greeted(struct tcpstore_client *c);
/* Ends the connection; requests in flight are the caller's affair. */
void connect_end(struct tcpstore_client *c, const char *why);
/* What the poll is to watch for. */
void connect_watch(struct tcpstore_client *c);
void connect_free(struct tcpstore_client *c);

/* ---- tcpstore_client.c ---------------------------------------------------------------------- */

/* Does all that can be done now. */
void client_turn(struct tcpstore_client *c);
void client_ready(struct tcpstore_client *c, int status, int events);
void client_release(struct tcpstore_client *c); /* a handle is closed */

#endif
