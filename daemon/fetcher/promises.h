/*
 * Blocks that somebody is bringing from the store: who asks for one meanwhile waits for it, so that
 * it leaves the store once. A promise ends when they have come; with who made it, if that is a
 * connection, which closes when its node dies; and after PROMISE_MS: its node may stand still, or
 * have failed.
 *
 * Main thread only. Callbacks come from the loop, and from promises_end(); never from
 * promises_wait().
 */
#ifndef DL_FETCHER_PROMISES_H
#define DL_FETCHER_PROMISES_H

#include "proto/common/base.h"

#include <uv.h>

enum { PROMISE_MS = 10 * 1000 };

struct promises;
struct promise_wait;

struct promises *promises_new(uv_loop_t *loop);
/* Nobody waits. NULL is fine; returns NULL. */
struct promises *promises_free(struct promises *promises);

bool promises_have(const struct promises *promises, const char *where, uint64_t block);
/* By `maker`, NULL: this node; also those that another one has made. */
void promises_make(struct promises *promises, const char *where, uint64_t first, uint64_t n,
                   const void *maker);
/* They have come, or come no more. */
void promises_end(struct promises *promises, const char *where, uint64_t first, uint64_t n);
/* All of a maker that is gone. */
void promises_end_of(struct promises *promises, const void *maker);

/* Of one that is promised: until it is not any more. The wait is gone after the call. */
struct promise_wait *promises_wait(struct promises *promises, const char *where, uint64_t block,
                                   void (*done)(void *owner), void *owner);
/* NULL is fine; returns NULL. */
struct promise_wait *promise_wait_cancel(struct promise_wait *wait);

#endif
