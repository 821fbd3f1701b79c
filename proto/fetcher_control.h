/*
 * What the daemon sends the fetcher over their control socket: a byte, and a descriptor with it.
 * Both are of one build.
 */
#ifndef DL_PROTO_FETCHER_CONTROL_H
#define DL_PROTO_FETCHER_CONTROL_H

enum fetcher_control {
    FETCHER_WORKER,    /* a worker's socket */
    FETCHER_LISTENER,  /* a socket that listens for other nodes */
    FETCHER_PEER_LIST, /* a memfd: who they are (daemon/fetcher/peers.h) */
};

enum { FETCHER_PEER_LIST_MAX = 1 << 20 }; /* bytes */

#endif
