/*
 * The host of Python workers: one process for each interpreter, which has imported what all of
 * them need, and forks a worker for each W_FORK (proto/PROTOCOL.md).
 */
#ifndef DL_WORKER_PYTHON_HOST_H
#define DL_WORKER_PYTHON_HOST_H

#include "daemon/worker/python/py.h"

/*
 * Runs until the daemon hangs up; then all workers are killed. Returns the process's exit status,
 * or -1 with an exception. Forked workers never return from it.
 */
int host_serve(int sock);

#endif
