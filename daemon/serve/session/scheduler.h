/*
 * Sessions take turns on the loop: each handles a few messages, or as many as fit into TURN_NS, and
 * then goes behind the others (turns.h). After a while the loop does its other work, such as
 * finished tasks of workers, and returns at once for the rest. Connections to be accepted have
 * their turn, too.
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

/* So long was spent on the session's user outside of turns. */
void scheduler_charge(struct scheduler *scheduler, struct turn *turn, uint64_t ns);

/* `let_in` accepts waiting connections in a turn that begins at `now`, and returns the time at its
 * end. For each it calls scheduler_let_in(), which charges it. */
void scheduler_set_door(struct scheduler *scheduler,
                        uint64_t (*let_in)(void *context, uint64_t now), void *context);
/* A connection waits: `let_in` follows, from the loop. */
void scheduler_knock(struct scheduler *scheduler);
void scheduler_let_in(struct scheduler *scheduler, uint32_t uid, uint64_t ns);

/* It has something to say: `go` follows, from the loop. True: not soon, since its user pauses. */
bool scheduler_wait(struct scheduler *scheduler, struct turn *turn);

#endif
