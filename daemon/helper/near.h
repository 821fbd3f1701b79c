/*
 * A stand-in: to the daemon a worker, whose tasks a helper's worker on another machine does. See
 * link.h. One thread.
 */
#ifndef DL_HELPER_NEAR_H
#define DL_HELPER_NEAR_H

/* Runs until the daemon or the helper hangs up. Returns the process's exit status; standard error
 * has the reason, if it is not the daemon. */
int near_run(int sock);

#endif
