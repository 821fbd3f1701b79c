/*
 * The fetcher: a process of the daemon's that reads remote objects for its workers, which have no
 * network. It gets a socket for each worker over `control`, and ends when that is closed.
 */
#ifndef DL_REMOTE_SERVICE_H
#define DL_REMOTE_SERVICE_H

#include <stdint.h>

/* Runs until the daemon hangs up. `memory`: bytes that are held of what no worker has in use.
 * Returns the process's exit status. */
int remote_serve(int control, uint64_t memory);

#endif
