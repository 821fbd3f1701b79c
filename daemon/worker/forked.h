/*
 * Processes that a dataset's code forks from its worker.
 *
 * Such a process is a copy of the worker: it has the worker's memory, and stands in the middle of
 * its loop. One that runs on by itself, as those of multiprocessing do, or becomes another program,
 * is welcome. One that comes back from the dataset's code would make batches, too, into the same
 * slots and the same queues: it must end.
 *
 * So a copy gets none of what a worker shares with the daemon: the mappings of segments and queues
 * are kept from it (forked_keep()), its descriptors are closed as it begins, and whoever has called
 * the dataset's code asks forked_end_copy() afterwards. What comes by a system call of its own, and
 * not by fork(), is not seen here; it has no mappings either, and dies where it touches one.
 */
#ifndef DL_WORKER_FORKED_H
#define DL_WORKER_FORKED_H

#include "proto/common/base.h"

/* This process is a worker now. `leave` closes, in a copy, what is the worker's own. */
void forked_begin(void (*leave)(void *owner), void *owner);
/* It is none any more. */
void forked_end(void);

/* Copies do not have this memory. */
void forked_keep(void *base, size_t bytes);

extern bool forked_copy; /* this process is a copy, and no worker */

/* Says why, and ends the process. */
_Noreturn void forked_say_and_end(void);

static inline void forked_end_copy(void)
{
    if (forked_copy)
        forked_say_and_end();
}

#endif
