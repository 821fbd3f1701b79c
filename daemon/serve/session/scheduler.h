/*
 * Sessions take turns on the loop: each says a few messages, or as many as
 * TURN_NS suffices for, and goes behind others then (turns.h). After so long the loop looks after
 * all else, workers that are done among it, and comes back for the rest at once.
 *
 * Main thread only.
 */
#ifndef DL_SCHEDULER_H
#define DL_SCHEDULER_H

#include "daemon/serve/session/turns.h"

#include <uv.h>

struct scheduler;

/* What a session may use in one turn. */
enum { TURN_MESSAGES = 32, TURN_NS = 25 * 1000 };

/*
 * `go` has a session take its turn, which begins at `now` (of uv_hrtime()), and returns the time at
 * its end; it says scheduler_wait() if there is more to say. The turn's time is charged to the
 * session's user.
 */
struct scheduler *scheduler_new(uv_loop_t *loop, uint64_t (*go)(struct turn *turn, uint64_t now));
/* All sessions are removed. NULL is fine. */
struct scheduler *scheduler_free(struct scheduler *scheduler);

void scheduler_add(struct scheduler *scheduler, struct turn *turn, uint32_t uid);
void scheduler_remove(struct scheduler *scheduler, struct turn *turn);

/* It has something to say: `go` follows, from the loop. True: not soon, since its user pauses. */
bool scheduler_wait(struct scheduler *scheduler, struct turn *turn);

#endif
