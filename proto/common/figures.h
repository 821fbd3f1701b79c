/* Times and shares as people read them, alike in every view, verdict and error; the live page has
 * the same rules (span() and percent() of page.html). Pure. */
#ifndef DL_FIGURES_H
#define DL_FIGURES_H

#include <stddef.h>

enum { UNITS_MAX = 32 }; /* enough for any of these */

void format_seconds(double seconds, char *buf, size_t size); /* "23 µs", "4.2 ms", "1.2 s" */
void format_percent(double share, char *buf, size_t size);   /* of 1: "86 %", "3.1 %" */

#endif
