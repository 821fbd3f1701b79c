/*
 * The TCPStore that nodes meet in, on the node that the endpoint names.
 *
 * Hosting by itself: where the endpoint's host is an address of this machine, its port is listened
 * on and a store served there (tcpstore_server.h). If somebody does already (another daemon, or
 * PyTorch), that store is as good. A host that is given in numbers is listened on alone; one with
 * a name means different addresses on different machines, and is listened on at all of this one's.
 *
 * Main thread only.
 */
#ifndef DL_C10D_HOST_H
#define DL_C10D_HOST_H

#include "daemon/cluster/store/tcpstore_server.h"

enum c10d_hosting {
    C10D_HOST_NO,
    C10D_HOST_AUTO, /* where the endpoint is this machine's */
    C10D_HOST_YES,  /* also where that cannot be told: behind address translation, say */
};

/* Of a guest that was let go; of where the store is; of what may need somebody. */
enum c10d_saying { C10D_DETAIL, C10D_NOTE, C10D_TROUBLE };

/* Called from the loop. */
typedef void (*c10d_said)(void *context, enum c10d_saying what, const char *text);

struct c10d_host_options {
    uv_loop_t *loop;
    const char *host; /* copied */
    uint16_t port;
    enum c10d_hosting hosting;
    c10d_said said; /* may be NULL */
    void *context;
};

struct c10d_host;

struct c10d_host *c10d_host_new(const struct c10d_host_options *options);
/* The store goes, with all that is in it. NULL is fine; returns NULL. */
struct c10d_host *c10d_host_free(struct c10d_host *host);

/* Nobody answers there: serves, if this is the place. What comes of it comes from the loop. */
void c10d_host_try(struct c10d_host *host);

bool c10d_host_serves(const struct c10d_host *host);
/* Who is connected to what is served here. */
uint64_t c10d_host_peers(const struct c10d_host *host);

#endif
