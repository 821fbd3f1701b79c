/* A batch as a file of arrays: which array is what of its tree, and what is said beside them. */
#ifndef DLCTL_ARCHIVE_H
#define DLCTL_ARCHIVE_H

#include "client/dlclient.h"
#include "proto/error.h"
#include <jansson.h>

/*
 * Writes `batch` to `path` for numpy.load(); the manual says how it lies there. `about`, which is
 * borrowed and gets the batch's "tree", goes with it. Returns a negative errno with `err` filled;
 * nothing is at `path` then but what was there before.
 */
int _nodiscard_ archive_write(struct dl_batch *batch, const char *path, json_t *about,
                              struct dl_error *err);

#endif
