/*
 * A TCPStore (tcpstore.h) on a port: what PyTorch's own server is to PyTorch's clients, for both
 * generations of them. It runs on the loop it is given and never waits for anybody: half a request
 * is kept until the rest comes, an answer that is not read is kept up to a bound, and who neither
 * sends nor reads on for `stall_ms` while there is something to, is let go.
 *
 * When as many are connected as may be, the one that has been connected longest without a request
 * makes room; where all have made some, the newcomer is turned away. (A client of torch 1 has a
 * second connection that says nothing unless it watches keys.)
 *
 * Main thread only.
 */
#ifndef DL_TCPSTORE_SERVER_H
#define DL_TCPSTORE_SERVER_H

#include "daemon/cluster/store/tcpstore.h"
#include "proto/common/error.h"

#include <uv.h>

struct tcpstore_server_options {
    uv_loop_t *loop;   /* borrowed, outlives the server */
    const char *host;  /* a numeric address; NULL: all of this machine's, IPv6 and IPv4 */
    uint16_t port;     /* 0: any that is free */
    int fd;            /* consumed: a socket that is bound already, instead of both; -1: none */
    uint32_t peers;    /* at most; 0: 16,384 */
    uint64_t stall_ms; /* 0: a minute */
    struct tcpstore_limits limits; /* all zero: tcpstore_default_limits */
    /* Somebody was let go, for a reason of ours. May be NULL. */
    void (*dropped)(void *context, const char *peer, const char *why);
    void *context;
};

struct tcpstore_server;

/* 0, or a negative errno and `err` saying which address and what to do. */
int _nodiscard_ tcpstore_server_new(const struct tcpstore_server_options *options,
                                    struct tcpstore_server **ret, struct dl_error *err);
/* Lets all go; what is stored is lost. The rest happens on the loop. NULL is fine; returns NULL. */
struct tcpstore_server *tcpstore_server_free(struct tcpstore_server *server);

uint16_t tcpstore_server_port(const struct tcpstore_server *server);
struct tcpstore_counts tcpstore_server_count(const struct tcpstore_server *server);

#endif
