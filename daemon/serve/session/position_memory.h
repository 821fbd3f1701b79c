/* The memory in which a client counts the steps that it uses: proto/position.h. */
#ifndef DL_POSITION_MEMORY_H
#define DL_POSITION_MEMORY_H

#include "proto/position.h"

/* ret_fd: the caller's, for the client. NULL: out of memory or descriptors. */
struct rank_position *position_new(int *ret_fd);
struct rank_position *position_free(
    struct rank_position *position); /* NULL is fine; returns NULL */

#endif
