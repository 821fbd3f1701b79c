/*
 * Rows in columns that fit: where there is no room for all of them, those that matter least go
 * first. Pure.
 */
#ifndef DLCTL_TOP_TABLE_H
#define DLCTL_TOP_TABLE_H

#include "client/dlctl/top/grid.h"

enum { TOP_TEXT_MAX = 512 };

/* What a column makes of a row. */
struct top_text {
    char text[TOP_TEXT_MAX]; /* UTF-8, or what another process takes for it */
    enum top_look look;
    int columns; /* there are so many for it */
    bool unicode;
};

struct top_column {
    const char *title;
    void (*make)(const void *row, struct top_text *text);
    int width; /* at least; of texts that are cut, at most */
    int keep;  /* the smallest goes first */
    bool right;
    bool stretches; /* takes what is left of the line; the first one that does */
    bool or_none;   /* goes where it has nothing to say of any row: "-" or "" */
    int whole;      /* as wide as its longest text, up to this; 0: `width` */
};

enum { TOP_COLUMNS_MAX = 16 };

struct top_table {
    const struct top_column *columns;
    int n_columns;
    const void *rows;
    size_t row_bytes;
    int n_rows;
    /* which rows, by their numbers; NULL: the first n_rows */
    const uint32_t *which; /* borrowed */
};

const void *top_table_row(const struct top_table *table, int i);

/* Which columns there are, and how wide: once for all rows of a table. */
struct top_columns {
    int width[TOP_COLUMNS_MAX]; /* 0: not shown */
};
void top_table_fit(const struct top_table *table, const struct top_grid *grid,
                   struct top_columns *ret);

void top_table_head(const struct top_table *table, const struct top_columns *columns,
                    struct top_grid *grid, int line);
void top_table_line(const struct top_table *table, const struct top_columns *columns,
                    struct top_grid *grid, int line, int row);

#endif
