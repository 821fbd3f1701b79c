/*
 * What the daemon sends the fetcher over their control socket, and a descriptor with it. Both are
 * of one build.
 */
#ifndef DL_PROTO_FETCHER_CONTROL_H
#define DL_PROTO_FETCHER_CONTROL_H

#include <stdint.h>

enum fetcher_control {
    FETCHER_WORKER,    /* a worker's socket */
    FETCHER_LISTENER,  /* a socket that listens for other nodes */
    FETCHER_PEER_LIST, /* a memfd: who they are (daemon/fetcher/peers.h) */
};

struct fetcher_word {
    uint64_t what;
    uint64_t loader; /* of a worker: the same number for all of one loader; 0: it is alone */
};

enum { FETCHER_PEER_LIST_MAX = 1 << 20 }; /* bytes */

#endif
