/*
 * How long C has been at what Python's code asks of it: the rest of a batch's time is Python's.
 * Any thread.
 */
#ifndef DL_WORKER_SPENT_H
#define DL_WORKER_SPENT_H

#include <stdint.h>

/* From `began_ns` until now C was at something. */
void spent_add(uint64_t began_ns);

/* In this process, in all; ns. */
uint64_t spent_ns(void);

#endif
