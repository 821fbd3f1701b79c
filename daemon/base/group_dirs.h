/*
 * The control groups that this process is in, and those above it, as directories (v1 and v2); and
 * their small files.
 */
#ifndef DL_GROUP_DIRS_H
#define DL_GROUP_DIRS_H

#include "proto/common/base.h"

#include <limits.h>

/* More than any of these files have but mountinfo, which is read by line. */
enum { GROUP_TEXT_MAX = 16 * 1024 };
#define GROUP_NO_NUMBER UINT64_MAX

/*
 * Calls `visit` for each group that this process is in as to `controller` ("memory"), and for those
 * above it, as far as they are mounted; `unified`: it is of v2. `root` is put before the files'
 * names: "" but in tests.
 */
void group_dirs_visit(const char *root, const char *controller,
                      void (*visit)(void *context, const char *dir, bool unified), void *context);

/* The file's name; "", which opens nothing, if it is too long. */
void group_join(const char *dir, const char *name, char ret[static PATH_MAX]);
/* False: it cannot be read, or is empty. */
bool group_read_text(const char *dir, const char *name, char text[static GROUP_TEXT_MAX]);
/* Of a file with one number; GROUP_NO_NUMBER also for "max". */
uint64_t group_read_number(const char *dir, const char *name);

#endif
