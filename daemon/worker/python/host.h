/*
 * The host of Python workers: forks one for each W_FORK (proto/PROTOCOL.md). It is a program that
 * the daemon has started, or a process of a client's that has the client's dataset in its memory.
 */
#ifndef DL_WORKER_PYTHON_HOST_H
#define DL_WORKER_PYTHON_HOST_H

#include "daemon/worker/python/py.h"

struct host_place {
    int sock;     /* to the daemon that has started it; -1: none has, and channel is given */
    int channel;  /* to the client, which hands over sockets to its daemons; -1: sock is given */
    pid_t client; /* with channel: it ends with that process, even if others hold the channel */
    bool keeps_errors; /* workers write to the client's standard error, and not to the daemon */
};

/*
 * Of a process of a client's. Signals that the client's program handles are for that program, as
 * when a batch system tells all of a job's processes to save their work. To end a host, send
 * SIGTERM.
 */
void host_leave_signals(void);

/*
 * Runs until the daemon that has started it hangs up, or the client does; then all workers are
 * killed. Returns the process's exit status, or -1 with an exception. Forked workers never return
 * from it.
 */
int host_serve(const struct host_place *place);

#endif
