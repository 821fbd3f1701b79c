/*
 * What each node of a round has to say, heard by all: every node leaves its word under a key of its
 * own and reads those of the others once they are there. In a round a word never changes; that of
 * the next takes its place, so that the store does not grow with the rounds. So a gather whose
 * round is over may not end before its time, and need not: what was heard there is to be said again
 * in the next. As long as a node waits for others it sees to it that its word is there, whatever
 * the store forgets.
 */
#ifndef DL_GATHER_H
#define DL_GATHER_H

#include "daemon/cluster/backend.h"

struct gather;

struct gather_node {
    uint64_t id;
    char name[64];
    bool wanted; /* its word is waited for */
};

struct gather_options {
    uv_loop_t *loop;
    struct backend *backend; /* borrowed, and freed after the gather */
    const char *key;         /* of the words together, in all rounds; copied */
    uint64_t round;
    const struct gather_node *nodes; /* copied */
    uint32_t n;
    uint32_t self;       /* which of them this one is */
    struct dl_span word; /* its own; copied */
    uint64_t timeout_ns;
    /* Once: `error` NULL: of each node its word, empty where it was not wanted; borrowed for the
     * call. The gather is gone after it. */
    void (*done)(void *owner, const struct dl_span *words, const struct dl_error *error);
    void *owner;
};

/* `done` never comes from inside it. */
struct gather *gather(const struct gather_options *options);
/* `done` does not come any more; the backend has to be freed before the loop goes on. NULL is
 * fine; returns NULL. */
struct gather *gather_cancel(struct gather *gather);

#endif
