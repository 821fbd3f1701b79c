/*
 * A screen before it is on one: characters in lines and columns, each with a look. Nothing can be
 * put outside it, and nothing in it but what shows: of the texts of other processes all that a
 * terminal would obey, or that has no width of its own, becomes '?'. Pure; how wide a character is
 * comes from the locale.
 */
#ifndef DLCTL_TOP_GRID_H
#define DLCTL_TOP_GRID_H

#include "proto/base.h"

#include <stdio.h>

enum top_look {
    LOOK_PLAIN,
    LOOK_STRONG,
    LOOK_FAINT,
    LOOK_HEAD, /* titles of columns */
    LOOK_PICK, /* the line that keys act on */
    LOOK_GOOD,
    LOOK_WARN,
    LOOK_BAD,
    LOOKS,
};

struct top_cell {
    uint32_t ch; /* Unicode; 0: the right half of the one before */
    enum top_look look;
};

struct top_grid {
    struct top_cell *cells; /* owned; line by line */
    int width, height;
    bool unicode; /* else ASCII alone */
};

/* Blank. Both at least 1. -ENOMEM. */
int _nodiscard_ top_grid_init(struct top_grid *grid, int width, int height, bool unicode);
void top_grid_deinit(struct top_grid *grid);
const struct top_cell *top_grid_at(const struct top_grid *grid, int line, int column);

/*
 * As much of the text as `columns` have room for, from `column` on; what was cut ends in an
 * ellipsis. Returns the columns taken. A line or column outside the grid takes none.
 */
int top_grid_put(struct top_grid *grid, int line, int column, int columns, enum top_look look,
                 const char *text);
/* The look of a whole line. */
void top_grid_look(struct top_grid *grid, int line, enum top_look look);
/* Columns that the text would take. */
int top_grid_columns(const struct top_grid *grid, const char *text);

/*
 * Where the text is to be broken: the bytes of its beginning that fit, whole words if there are
 * any; *text is then at the next word.
 */
size_t top_grid_break(const struct top_grid *grid, const char **text, int columns);

/* The lines as text without looks, nor blanks at their ends. */
void top_grid_print(const struct top_grid *grid, FILE *file);

#endif
