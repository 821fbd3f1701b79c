/*
 * Processes that a dataset's code forks from its worker.
 *
 * Such a process is a copy of the worker: it has the worker's memory, and is in the middle of its
 * loop. One that runs separately, like those of multiprocessing, or becomes another program, is
 * harmless. One that returns from the dataset's code would also make batches, in the same slots and
 * queues: it must end.
 *
 * So a copy gets none of what a worker shares with the daemon: the mappings of segments and queues
 * are kept from it (forked_keep()), its descriptors are closed as it begins, and after each call of
 * the dataset's code the worker calls forked_end_copy(). A copy made by a direct system call
 * instead of fork() goes unnoticed; it has no mappings either, and dies when it touches one.
 */
#ifndef DL_WORKER_FORKED_H
#define DL_WORKER_FORKED_H

#include "proto/common/base.h"

/* This process is a worker from now on. In a copy, `leave` closes the worker's own descriptors. */
void forked_begin(void (*leave)(void *owner), void *owner);
/* It stops being one. */
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
