/*
 * Memory of the daemon's own book-keeping, zeroed. Running out of it ends the process: a daemon
 * that cannot keep its books must not go on half alive; the service manager restarts it. What a
 * client can make large (segments, plans, buffers) is bounded and checked instead.
 */
#ifndef DL_MEMORY_H
#define DL_MEMORY_H

#include "proto/base.h"

void *must_alloc(size_t size);
void *must_realloc(void *mem, size_t size);
char *must_strdup(const char *text);

#endif
