/* The manual pages as plain text, made by manuals.py. */
#ifndef DLCTL_MANUALS_H
#define DLCTL_MANUALS_H

#include <stddef.h>

enum { MANUALS = 6 };

struct manual {
    const char *name; /* "dlctl" of dlctl(1); NULL behind the last */
    const char *text; /* lines of 80 columns, mostly */
};

extern const struct manual manuals[MANUALS + 1];

#endif
