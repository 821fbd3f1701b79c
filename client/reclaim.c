/*
 * Batches on their way home from DLPack tensors, which may be deleted in any thread and after the
 * client was closed.
 *
 * `head` is a stack that any thread pushes to and the client's thread takes whole. Closing swaps in
 * CLOSED, after which the last tensor of a batch frees it itself. A pusher owns a reference on the
 * stack (the batch's) until its push succeeded, so the stack cannot vanish under it.
 *
 * The socket lives here: a tensor is readable as long as the daemon keeps its lease, and the daemon
 * ends all leases of a session whose socket closes.
 */
#include "client/internal.h"

#include <assert.h>

struct reclaim {
    atomic_uint refs;
    int fd; /* owned */
    _Atomic(struct dl_batch *) head;
};

/* Never a batch: only its address is used. */
static const char closed_mark;
#define CLOSED ((struct dl_batch *)(void *)(uintptr_t)&closed_mark)

struct reclaim *reclaim_new(int fd)
{
    struct reclaim *reclaim = calloc(1, sizeof *reclaim);

    if (!reclaim)
        return NULL;
    atomic_init(&reclaim->refs, 1);
    atomic_init(&reclaim->head, NULL);
    reclaim->fd = fd;
    return reclaim;
}

struct reclaim *reclaim_ref(struct reclaim *reclaim)
{
    /* Relaxed: the caller holds a reference already. */
    unsigned before = atomic_fetch_add_explicit(&reclaim->refs, 1, memory_order_relaxed);

    assert(before > 0);
    return reclaim;
}

struct reclaim *reclaim_unref(struct reclaim *reclaim)
{
    if (!reclaim)
        return NULL;
    if (atomic_fetch_sub_explicit(&reclaim->refs, 1, memory_order_acq_rel) == 1) {
        close_fdp(&reclaim->fd);
        free(reclaim);
    }
    return NULL;
}

void reclaim_abandon(struct reclaim *reclaim)
{
    close_fdp(&reclaim->fd);
}

/* The client is closed: there is no pool, and no daemon to inform. */
static void reclaim_free_orphan(struct dl_batch *batch)
{
    assert(!batch->view);
    mapping_unref(batch->mapping);
    reclaim_unref(batch->reclaim);
    free(batch);
}

void reclaim_drop(struct dl_batch *batch)
{
    struct reclaim *reclaim = batch->reclaim;
    struct dl_batch *head;

    /* Release: the tensor's reads happen before the lease ends; acquire: for the thread that ends
     * it. */
    if (atomic_fetch_sub_explicit(&batch->refs, 1, memory_order_acq_rel) > 1)
        return;
    head = atomic_load_explicit(&reclaim->head, memory_order_acquire);
    do {
        if (head == CLOSED) {
            reclaim_free_orphan(batch);
            return;
        }
        batch->dropped = head;
        /* Release: the taker sees `dropped`, and everything read through the tensor is done. */
    } while (!atomic_compare_exchange_weak_explicit(&reclaim->head, &head, batch,
                                                    memory_order_release, memory_order_acquire));
}

struct dl_batch *reclaim_take(struct reclaim *reclaim)
{
    /* Relaxed: a push seen late is taken by the next call; the exchange orders what is taken. */
    if (!atomic_load_explicit(&reclaim->head, memory_order_relaxed))
        return NULL;
    return atomic_exchange_explicit(&reclaim->head, NULL, memory_order_acquire);
}

struct dl_batch *reclaim_close(struct reclaim *reclaim)
{
    /* Acquire: for what is taken; release: orphans' threads see the batches as we left them. */
    return atomic_exchange_explicit(&reclaim->head, CLOSED, memory_order_acq_rel);
}
