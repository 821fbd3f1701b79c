/*
 * The worker: one process that owns a dataset and fills slots with it.
 *
 * It is started by the daemon with a socket as descriptor 3, over which it gets its loader, its
 * queues and the segments it may write. Tasks come through the task queue, each names a slot in
 * which the daemon has put the sample indices; the batch is collated right there and a completion
 * goes back. The worker trusts the daemon and ends when the daemon does. One thread.
 */
#ifndef DL_WORKER_H
#define DL_WORKER_H

#include "proto/base.h"

/* Runs until the daemon hangs up. Returns the process's exit status. */
int worker_run(int sock);

#endif
