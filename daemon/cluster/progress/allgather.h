/*
 * All-gather through a store: of each node of a round a value, had by all. Every node writes its
 * value under a key of its own. Of many, those in front read the values of the others once they are
 * there, and leave them as one text (allgather_sum.h), which is all that the rest read: so what a
 * node reads hardly grows with their number. Should that text not come, more and more of the others
 * read the values, too: a node in front may lack some that this node waits for. In a round a value
 * never changes; that of the next round takes its place, so that the store does not grow with the
 * rounds. So an allgather whose round is over may time out, and need not be retried: the next round
 * gathers again. As long as a node waits for others it writes its value again if the store has lost
 * it.
 */
#ifndef DL_ALLGATHER_H
#define DL_ALLGATHER_H

#include "daemon/cluster/store/backend.h"

struct allgather;

struct allgather_node {
    uint64_t id;
    char name[64];
    bool wanted; /* its value is waited for */
};

static inline bool allgather_nodes_have(const struct allgather_node *nodes, uint32_t n, uint64_t id)
{
    uint32_t i = 0;

    while (i < n && nodes[i].id != id)
        i++;
    return i < n;
}

struct allgather_options {
    uv_loop_t *loop;
    struct backend *backend; /* borrowed, and freed after the allgather */
    const char *key;         /* of all values, in all rounds; copied */
    uint64_t round;
    const struct allgather_node *nodes; /* copied */
    uint32_t n;
    uint32_t self;        /* which of them this one is */
    struct dl_span value; /* its own; copied */
    uint64_t timeout_ns;
    bool sums; /* all nodes of the round leave sums where they are in front, and read them */
    /* What "no rank of" those nodes has done whose value is missing when the time is over, and the
     * remedy; static. NULL: requested the loader. */
    const char *missing;
    /* Called once. `error` NULL: of each node its value, empty where it was not wanted; borrowed
     * for the call. The allgather is gone after it. */
    void (*done)(void *owner, const struct dl_span *values, const struct dl_error *error);
    void *owner;
};

/* `done` never comes from inside it. */
struct allgather *allgather_start(const struct allgather_options *options);
/* `done` does not come any more; the backend has to be freed before the loop runs again. NULL is
 * fine; returns NULL. */
struct allgather *allgather_cancel(struct allgather *allgather);

#endif
