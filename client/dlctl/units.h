/* Numbers as people read them. Pure. Each writes at most `size` bytes with the final NUL. */
#ifndef DLCTL_UNITS_H
#define DLCTL_UNITS_H

#include "proto/base.h"

enum { UNITS_MAX = 32 }; /* enough for any of these */

void format_bytes(double bytes, char *buf, size_t size);     /* "512 B", "1.5 KiB", "3.0 GiB" */
void format_seconds(double seconds, char *buf, size_t size); /* "120 s", "3.2 s", "0.000430 s" */
void format_count(double n, char *buf, size_t size); /* "0", "9.5", "812", "45.2k", "1.3M" */

#endif
