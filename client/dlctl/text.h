/* Text for people, in lines that fit a screen. */
#ifndef DLCTL_TEXT_H
#define DLCTL_TEXT_H

#include "proto/common/base.h"
#include "proto/common/figures.h"

#include <stdio.h>

enum { TEXT_WIDTH = 80 }; /* of what is printed, unless somebody asks for more */

/* Of the terminal on standard output; TEXT_WIDTH where it is no terminal. */
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

#endif
