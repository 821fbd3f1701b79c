/*
 * Paths of clients that see the data elsewhere: a container has them mounted at /data, say, and the
 * daemon at /mnt/data. A spec has the client's paths, and so have all errors and views; here is
 * where a file is for this process (the place), and what a client calls what is there.
 *
 * By names alone, and for nothing but opening: what was opened is judged by where it is.
 */
#ifndef DL_DATA_SEEN_H
#define DL_DATA_SEEN_H

#include "daemon/data/base/dataset.h"

#include <limits.h>

/* `path`, or in `ret` the place of what a client calls so. One that would be too long is a path
 * that nothing can have: to open it is -ENAMETOOLONG. */
const char *seen_place(const struct data_env *env, const char *path, char ret[static PATH_MAX]);

/* `place`, which has no links in it, or in `ret` what a client calls it. */
const char *seen_name(const struct data_env *env, const char *place, char ret[static PATH_MAX]);

#endif
