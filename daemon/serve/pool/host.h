/*
 * Python hosts: one interpreter process for each interpreter in use, which has the large modules
 * loaded and forks a worker whenever it is asked to. So a worker starts in the time of a fork, and
 * what the modules take is shared by all of them.
 *
 * A host is started with its first worker, or by hosts_prepare(). It ends when nobody has wanted a
 * worker of it for a while, or, in a private daemon, with the daemon; one that died is started anew
 * with the next worker, so that whoever paces the workers' starts paces its own. Its workers die
 * with it. What it says is untrusted: one that makes no sense is killed.
 *
 * Main thread only. Callbacks come from the loop, never from inside a call.
 */
#ifndef DL_HOST_H
#define DL_HOST_H

#include "daemon/serve/base/config.h"
#include "daemon/serve/base/relay.h"

#include <uv.h>

struct hosts;
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
     * try is not worth much. */
    bool never;
};

struct host_child_events {
    void (*started)(void *owner, int pid);
    /* It is gone; the record is freed after the call. */
    void (*ended)(void *owner, const struct host_end *end);
};

struct hosts *hosts_new(const struct hosts_options *options);
/*
 * Starts the host of that interpreter, an absolute path, before anybody wants a worker of it. What
 * keeps it from starting, the first worker is told.
 */
void hosts_prepare(struct hosts *hosts, const char *interpreter);
struct relay *hosts_relay(const struct hosts *hosts);
/* Whether the daemon is a private one. */
bool hosts_private(const struct hosts *hosts);
/* No worker is left. The hosts end as soon as they can; the loop then runs dry. */
void hosts_end(struct hosts *hosts);
/* After the loop has run dry. NULL is fine. */
struct hosts *hosts_free(struct hosts *hosts);

struct host_child_options {
    const char *interpreter;                /* absolute */
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
