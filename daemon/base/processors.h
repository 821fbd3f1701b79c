/*
 * How many processors this process may use: those that its affinity allows, or what the quotas of
 * its control groups leave (v1 and v2), if that is less.
 */
#ifndef DL_PROCESSORS_H
#define DL_PROCESSORS_H

#include "proto/common/base.h"

/* Above 0; a quota may be a fraction. `root` is put before the groups' files: "" but in tests. */
double processors_read(const char *root);

#endif
