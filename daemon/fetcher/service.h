/*
 * The fetcher: a process of the daemon's that reads remote objects for its workers, which have no
 * network. It gets a socket for each worker over `control`, and ends when that is closed.
 */
#ifndef DL_REMOTE_SERVICE_H
#define DL_REMOTE_SERVICE_H

/* Runs until the daemon hangs up. Returns the process's exit status. */
int remote_serve(int control);

#endif
