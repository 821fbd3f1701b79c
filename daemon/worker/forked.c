#include "daemon/worker/forked.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

bool forked_copy;

static void (*forked_leave)(void *owner);
static void *forked_owner;
static bool forked_registered; /* stays so in children, as the handler does */

/* In the child. */
static void forked_on_fork(void)
{
    if (!forked_leave)
        return;
    forked_leave(forked_owner);
    forked_leave = NULL;
    forked_copy = true;
}

void forked_begin(void (*leave)(void *owner), void *owner)
{
    if (!forked_registered)
        forked_registered = pthread_atfork(NULL, NULL, forked_on_fork) == 0;
    forked_leave = leave;
    forked_owner = owner;
    forked_copy = false;
}

void forked_end(void)
{
    forked_leave = NULL;
}

void forked_keep(void *base, size_t bytes)
{
    (void)madvise(base, bytes, MADV_DONTFORK);
}

void forked_say_and_end(void)
{
    (void)dprintf(STDERR_FILENO,
                  "dloader-worker: process %d, which the dataset's code forked, returned from that "
                  "code; it ends here, and its worker continues. End forked processes with "
                  "os._exit(), or start them with multiprocessing or subprocess.\n",
                  (int)getpid());
    _exit(1);
}
