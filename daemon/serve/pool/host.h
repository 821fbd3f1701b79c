/*
 * Python hosts: processes that fork a worker whenever they are asked to. So a worker starts in the
 * time of a fork, and shares what its host has loaded. There are two kinds:
 *
 *   - the daemon's own: one for each loader, started with its first worker: what a dataset does to
 *     its host, it does to its own loader. One whose workers have all ended serves the next loader
 *     of that interpreter. It ends when nobody has wanted a worker of it for a while, or, in a
 *     private daemon, with the daemon; one that died is started anew with the next worker, so that
 *     pacing the workers' starts paces its own;
 *   - one that a client has brought for one loader: a process of the client's, known by its socket
 *     alone. It ends with its loader, and nothing takes its place.
 *
 * A host's workers die with it. What it says is untrusted: one that makes no sense is ended.
 *
 * Main thread only. Callbacks come from the loop, never from inside a call.
 */
#ifndef DL_HOST_H
#define DL_HOST_H

#include "daemon/base/config.h"
#include "daemon/base/relay.h"

#include <uv.h>

struct hosts;
struct host;       /* one that a client has brought, from host_adopt() to host_release() */
struct host_child; /* a worker, from host_start_child() to `ended` or host_child_free() */

struct hosts_options {
    uv_loop_t *loop;
    const struct config *config; /* borrowed; read when a host is started */
    bool private;                /* hosts get the daemon's environment, and stay */
    struct relay *relay; /* borrowed: gets what hosts and their workers say; NULL: nobody does */
};

/* How a worker ended. */
struct host_end {
    int status;
    int signal;
    /* What became of its host, or NULL: the end was its own. */
    const char *cause;
    /* The host never came to starting workers, by its own doing, or was not ready in time: another
     * try is not worth much. `place`: then, the key of the spec that is at fault. */
    bool never;
    const char *place;
};

struct host_child_events {
    void (*started)(void *owner, int pid);
    /* It is gone; the record is freed after the call. */
    void (*ended)(void *owner, const struct host_end *end);
};

struct hosts *hosts_new(const struct hosts_options *options);
struct relay *hosts_relay(const struct hosts *hosts);
/* Whether the daemon is a private one. */
bool hosts_private(const struct hosts *hosts);
/* No worker is left. The hosts end as soon as they can; the loop then runs dry. */
void hosts_end(struct hosts *hosts);
/* After the loop has run dry. NULL is fine. */
struct hosts *hosts_free(struct hosts *hosts);

/* Consumes `sock`, the daemon's end of a connection to it. `pid`: of the client, for messages. */
int _nodiscard_ host_adopt(struct hosts *hosts, int sock, int pid, struct host **ret,
                           struct dl_error *err);
/* It can start no worker any more. */
bool host_is_gone(const struct host *host);
/* Ends it; nobody wants a worker of it any more. NULL is fine; returns NULL. */
struct host *host_release(struct host *host);

struct host_child_options {
    struct host *host;                      /* one that was brought; NULL: that of */
    const char *interpreter;                /* absolute */
    const void *loader;                     /* whose worker it is; for comparison only */
    uid_t uid;                              /* whose loader that is, for the log */
    int sock;                               /* the worker's descriptor 3; copied */
    int errors;                             /* its standard error; copied */
    const struct host_child_events *events; /* borrowed, static */
    void *owner;
};

/* Has a host start a worker: it will have started, or have ended. Negative errno with `err`. */
int _nodiscard_ host_start_child(struct hosts *hosts, const struct host_child_options *options,
                                 struct host_child **ret, struct dl_error *err);
void host_kill_child(struct host_child *child);
/* Kills it, and nobody hears of it any more. NULL is fine; returns NULL. */
struct host_child *host_child_free(struct host_child *child);

#endif
