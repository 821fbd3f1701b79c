/* Text for people, in lines that fit a screen, and numbers as people read them. */
#ifndef DLCTL_TEXT_H
#define DLCTL_TEXT_H

#include "proto/common/base.h"
#include "proto/common/figures.h"

#include <stdio.h>

enum { TEXT_WIDTH = 80 }; /* of what is printed, unless somebody asks for more */

/* Of the terminal on standard output; TEXT_WIDTH where there is none. */
size_t text_screen_width(void);

/* Columns on a terminal, taking each code point for one. */
size_t text_columns(const char *text);

/*
 * Prints `text` from column `at` on, broken at blanks so that no line passes `width`; each further
 * line begins at `indent`. A word that is longer stands whole. Control characters become '?'.
 */
void text_wrap(FILE *file, const char *text, size_t at, size_t indent, size_t width);

/* As fputs(), with control characters as '?': for text of other processes. */
void text_put(FILE *file, const char *text);

/* Numbers: each writes at most `size` bytes with the final NUL, UNITS_MAX at the most. Pure. */
void format_bytes(double bytes, char *buf, size_t size); /* "512 B", "1.5 KiB", "3.0 GiB" */
void format_count(double n, char *buf, size_t size);     /* "0", "9.5", "812", "45.2k", "1.3M" */

#endif
