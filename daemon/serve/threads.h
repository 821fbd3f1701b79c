/*
 * The threads of the loop, and the signals that only its own thread takes.
 */
#ifndef DL_THREADS_H
#define DL_THREADS_H

#include <stdint.h>

#include <uv.h>

enum { THREADS_SIGNALS = 3 };
extern const int threads_signals[THREADS_SIGNALS]; /* those that the daemon handles */

/* SIG_BLOCK or SIG_UNBLOCK: while they are blocked during shutdown, they cannot end the daemon
 * before it has cleaned up. */
void threads_hold_signals(int how);

/* As many as libuv makes, by its own rule. */
uint32_t threads_count(void);

/*
 * Makes the loop's threads with signals blocked, as they stay: otherwise a thread could take a
 * signal after the handlers are gone, which would end the daemon before it has cleaned up. `work`:
 * borrowed, until the loop has run it. Negative errno: they cannot be made, which was logged; libuv
 * would abort without a word.
 */
int threads_make(uv_loop_t *loop, uv_work_t *work);

#endif
