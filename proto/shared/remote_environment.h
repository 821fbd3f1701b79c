/*
 * Whether two processes are to read remote files alike: which of a user's variables decide on the
 * server that a URL leads to, and on whose keys it gets.
 */
#ifndef DL_PROTO_REMOTE_ENVIRONMENT_H
#define DL_PROTO_REMOTE_ENVIRONMENT_H

#include "proto/common/base.h"

/* A number of these variables' values, never 0; of a process that has none of them, if `none`. No
 * value can be told from it. */
uint64_t remote_environment(bool none);

#endif
