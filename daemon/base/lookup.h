/*
 * Looks up a directory on storage that may not answer. A thread does it, so that the caller waits
 * at most LOOKUP_MS; after that the thread is left to end when it can.
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
