/*
 * One number that all nodes agree on: of several proposed under a key, the first one in the store
 * counts, and all other nodes take it. It never changes again.
 */
#ifndef DL_AGREE_H
#define DL_AGREE_H

#include "daemon/cluster/store/backend.h"

struct agreement;

struct agree_options {
    uv_loop_t *loop;
    struct backend *backend; /* borrowed, and freed after the agreement */
    const char *key;         /* copied */
    uint64_t proposal;
    uint64_t timeout_ns;
    /* Once: `error` NULL: `number` is it. The agreement is gone after the call. */
    void (*done)(void *owner, uint64_t number, const struct dl_error *error);
    void *owner;
};

/* `done` never comes from inside it. */
struct agreement *agree(const struct agree_options *options);
/* `done` does not come any more; the backend has to be freed before the loop runs again. NULL is
 * fine; returns NULL. */
struct agreement *agree_cancel(struct agreement *agreement);

#endif
