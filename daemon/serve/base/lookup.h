/*
 * Looking up a directory that may lie on storage that does not answer. It is done by a thread, so
 * that its caller waits for LOOKUP_MS at most; the thread is left alone then, and ends when it can.
 */
#ifndef DL_LOOKUP_H
#define DL_LOOKUP_H

#include "proto/common/base.h"

#include <limits.h>

enum { LOOKUP_MS = 3000 };

/*
 * The directory's path with all links resolved. 0, or a negative errno: -ENOTDIR if it is something
 * else, -ETIMEDOUT if nothing answered in time.
 */
int _nodiscard_ lookup_directory(const char *path, char ret[PATH_MAX]);

#endif
