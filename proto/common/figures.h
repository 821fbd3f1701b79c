/*
 * Numbers as people read them, alike in every view, verdict, line of the log and error. The live
 * page (page.html) and the Python package (_figures.py) have the same rules in their languages;
 * tests/lib/figures.def holds all three to them. Each writes at most `size` bytes with the final
 * NUL, UNITS_MAX at the most. Pure.
 */
#ifndef DL_FIGURES_H
#define DL_FIGURES_H

#include <stddef.h>

enum { UNITS_MAX = 32 }; /* enough for any of these */

void format_seconds(double seconds, char *buf, size_t size); /* "23 µs", "1.2 s", "2 h 5 min" */
void format_percent(double share, char *buf, size_t size);   /* of 1: "86 %", "3.1 %" */
void format_bytes(double bytes, char *buf, size_t size);     /* "512 B", "1.5 KiB", "3.0 GiB" */
void format_count(double n, char *buf, size_t size);         /* "0", "9.5", "812", "45.2k" */

#endif
