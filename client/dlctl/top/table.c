#include "client/dlctl/top/table.h"

#include <assert.h>

enum { GAP = 1 };

const void *top_table_row(const struct top_table *table, int i)
{
    size_t n = table->which ? table->which[i] : (size_t)i;

    return (const char *)table->rows + n * table->row_bytes;
}

static void make_text(const struct top_column *column, const void *row, int columns, bool unicode,
                      struct top_text *ret)
{
    ret->text[0] = '\0';
    ret->look = LOOK_PLAIN;
    ret->columns = columns;
    ret->unicode = unicode;
    column->make(row, ret);
}

static bool says_something(const struct top_table *table, const struct top_column *column)
{
    struct top_text text;

    for (int i = 0; i < table->n_rows; i++) {
        make_text(column, top_table_row(table, i), column->width, false, &text);
        if (text.text[0] && strcmp(text.text, "-") != 0)
            return true;
    }
    return false;
}

/* Names are to be read, and typed: they are cut where they are very long. */
static int width_of(const struct top_table *table, const struct top_column *column,
                    const struct top_grid *grid)
{
    struct top_text text;
    int width = column->width;

    for (int i = 0; i < table->n_rows && width < column->whole; i++) {
        int columns;

        make_text(column, top_table_row(table, i), column->whole, grid->unicode, &text);
        columns = top_grid_columns(grid, text.text);
        if (columns > width)
            width = columns < column->whole ? columns : column->whole;
    }
    return width;
}

static int sum_widths(const struct top_columns *columns, int n)
{
    int sum = -GAP;

    for (int i = 0; i < n; i++)
        sum += columns->width[i] ? columns->width[i] + GAP : 0;
    return sum;
}

/* The one that matters least; -1: it is the last. */
static int least(const struct top_table *table, const struct top_columns *columns)
{
    int found = -1, shown = 0;

    for (int i = 0; i < table->n_columns; i++) {
        if (!columns->width[i])
            continue;
        shown++;
        if (found < 0 || table->columns[i].keep < table->columns[found].keep)
            found = i;
    }
    return shown > 1 ? found : -1;
}

void top_table_fit(const struct top_table *table, const struct top_grid *grid,
                   struct top_columns *ret)
{
    int out, left;

    assert(table->n_columns <= TOP_COLUMNS_MAX);
    *ret = (struct top_columns){0};
    for (int i = 0; i < table->n_columns; i++) {
        const struct top_column *column = &table->columns[i];

        if (!column->or_none || says_something(table, column))
            ret->width[i] = width_of(table, column, grid);
    }
    while (sum_widths(ret, table->n_columns) > grid->width && (out = least(table, ret)) >= 0)
        ret->width[out] = 0;
    left = grid->width - sum_widths(ret, table->n_columns);
    for (int i = 0; i < table->n_columns && left > 0; i++) {
        if (!ret->width[i] || !table->columns[i].stretches)
            continue;
        ret->width[i] += left;
        return;
    }
}

static void put_cell(struct top_grid *grid, int line, int at, int width, bool right,
                     const struct top_text *text)
{
    int need = top_grid_columns(grid, text->text);
    int shift = right && need < width ? width - need : 0;

    top_grid_put(grid, line, at + shift, width - shift, text->look, text->text);
}

void top_table_head(const struct top_table *table, const struct top_columns *columns,
                    struct top_grid *grid, int line)
{
    int at = 0;

    for (int i = 0; i < table->n_columns; i++) {
        struct top_text text = {.look = LOOK_HEAD};

        if (!columns->width[i])
            continue;
        snprintf(text.text, sizeof text.text, "%s", table->columns[i].title);
        put_cell(grid, line, at, columns->width[i], table->columns[i].right, &text);
        at += columns->width[i] + GAP;
    }
    top_grid_look(grid, line, LOOK_HEAD);
}

void top_table_line(const struct top_table *table, const struct top_columns *columns,
                    struct top_grid *grid, int line, int row)
{
    int at = 0;

    for (int i = 0; i < table->n_columns; i++) {
        struct top_text text;

        if (!columns->width[i])
            continue;
        make_text(&table->columns[i], top_table_row(table, row), columns->width[i], grid->unicode,
                  &text);
        put_cell(grid, line, at, columns->width[i], table->columns[i].right, &text);
        at += columns->width[i] + GAP;
    }
}
