/*
 * Paths of clients that see the data elsewhere: a container has them mounted at /data, say, and the
 * daemon at /mnt/data. Specs, errors and views have the client's paths; this translates them to
 * this process's paths (the place), and back.
 *
 * It compares names only, and only for opening: the opened file is checked by where it is.
 */
#ifndef DL_DATA_SEEN_H
#define DL_DATA_SEEN_H

#include "daemon/data/base/dataset.h"

#include <limits.h>

/* `path`, or in `ret` the place of what a client calls so. One that would be too long is a path
 * that nothing can have: to open it is -ENAMETOOLONG. */
const char *seen_place(const struct data_env *env, const char *path, char ret[static PATH_MAX]);

/* A client's name of `place`, which has no links: `place` itself, or written to `ret`. */
const char *seen_name(const struct data_env *env, const char *place, char ret[static PATH_MAX]);

#endif
