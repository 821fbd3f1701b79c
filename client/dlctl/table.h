/*
 * Rows as a table that fits a screen: where there is no room for all columns, those that matter
 * least are left out. A column in which no row says anything is never shown.
 */
#ifndef DLCTL_TABLE_H
#define DLCTL_TABLE_H

#include "proto/value.h"

#include <stdio.h>

struct table_style {
    const char *keys;  /* of the columns, by importance, with blanks between; a table that fits a
                          width has no others; NULL: all, as they stand */
    const char *never; /* keys that are for programs alone; NULL: none */
    const char *below; /* the key of a text that stands below its row, where there is a width */
    bool below_once;   /* rows that follow each other with the same text have it below the last */
    size_t width;      /* 0: as wide as it takes, all of a row on one line */
};

/* True if it is an array of maps that are not empty. */
bool table_fits(const struct value *v);

/* 0 or -ENOMEM. */
int _nodiscard_ table_print(FILE *file, const struct value *rows, const struct table_style *style,
                            int indent);

#endif
