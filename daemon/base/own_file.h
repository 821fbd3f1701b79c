/*
 * Files that daemons of one socket leave for the next one, in a directory that others may write to.
 */
#ifndef DL_OWN_FILE_H
#define DL_OWN_FILE_H

#include "proto/common/base.h"

/* Opens it for reading and writing, with `flags` added, or creates it. 0, or a negative errno:
 * -EPERM unless it is a regular file that only this user can access, under one name. */
int _nodiscard_ own_file_open(const char *path, int flags, int *ret);

#endif
