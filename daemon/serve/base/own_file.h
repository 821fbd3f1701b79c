/*
 * Files that daemons of one socket leave for the next one, in a directory that others may write to.
 */
#ifndef DL_OWN_FILE_H
#define DL_OWN_FILE_H

#include "proto/common/base.h"

/* Opens it to read and write, with what `flags` adds, and makes it if there is none. 0, or a
 * negative errno: -EPERM if it is not a regular file of this user alone, under one name. */
int _nodiscard_ own_file_open(const char *path, int flags, int *ret);

#endif
