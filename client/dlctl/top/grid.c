#include "client/dlctl/top/grid.h"

#include "proto/utf8.h"
#include <assert.h>
#include <errno.h>
#include <wchar.h>

enum { UNKNOWN = '?', ELLIPSIS = 0x2026 };

int top_grid_init(struct top_grid *grid, int width, int height, bool unicode)
{
    assert(width > 0 && height > 0);
    size_t n = (size_t)width * (size_t)height;
    struct top_cell *cells = calloc(n, sizeof *cells);

    if (!cells)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        cells[i].ch = ' ';
    *grid = (struct top_grid){cells, width, height, unicode};
    return 0;
}

void top_grid_deinit(struct top_grid *grid)
{
    free(grid->cells);
    *grid = (struct top_grid){0};
}

static struct top_cell *cell_at(const struct top_grid *grid, int line, int column)
{
    assert(line >= 0 && line < grid->height && column >= 0 && column < grid->width);
    return &grid->cells[(size_t)line * (size_t)grid->width + (size_t)column];
}

const struct top_cell *top_grid_at(const struct top_grid *grid, int line, int column)
{
    return cell_at(grid, line, column);
}

/* ---- characters ----------------------------------------------------------------------------- */

/* What stands for it in ASCII, where it is one of our own. */
static uint32_t ascii_of(uint32_t ch)
{
    return ch < 0x80 ? ch : ch == ELLIPSIS ? '~' : UNKNOWN;
}

/* The next character of a text, as it is shown; the columns it takes are 1 or 2. */
static uint32_t next_char(const struct top_grid *grid, const char **text, int *ret_columns)
{
    const uint8_t *at = (const uint8_t *)*text;
    size_t n = utf8_char(at, strlen(*text));
    uint32_t ch = n ? utf8_decode(at, n) : UNKNOWN;

    *text += n ? n : 1;
    if (!grid->unicode)
        ch = ascii_of(ch);
    *ret_columns = ch < 0x20 || ch == 0x7F ? -1 : ch < 0x7F ? 1 : wcwidth((wchar_t)ch);
    if (*ret_columns == 1 || *ret_columns == 2)
        return ch;
    *ret_columns = 1;
    return UNKNOWN;
}

int top_grid_columns(const struct top_grid *grid, const char *text)
{
    int sum = 0, columns;

    while (*text) {
        (void)next_char(grid, &text, &columns);
        sum += columns;
    }
    return sum;
}

static void put_char(struct top_grid *grid, int line, int column, int columns, enum top_look look,
                     uint32_t ch)
{
    *cell_at(grid, line, column) = (struct top_cell){ch, look};
    if (columns == 2)
        *cell_at(grid, line, column + 1) = (struct top_cell){0, look};
}

int top_grid_put(struct top_grid *grid, int line, int column, int columns, enum top_look look,
                 const char *text)
{
    int at = 0, wide, room = grid->width - column;

    if (line < 0 || line >= grid->height || column < 0 || room <= 0)
        return 0;
    if (room > columns)
        room = columns;
    bool cut = top_grid_columns(grid, text) > room;
    while (*text) {
        uint32_t ch = next_char(grid, &text, &wide);

        if (at + wide > room - cut)
            break;
        put_char(grid, line, column + at, wide, look, ch);
        at += wide;
    }
    if (!cut || room <= 0)
        return at;
    put_char(grid, line, column + at, 1, look, grid->unicode ? ELLIPSIS : ascii_of(ELLIPSIS));
    return at + 1;
}

void top_grid_look(struct top_grid *grid, int line, enum top_look look)
{
    for (int column = 0; line >= 0 && line < grid->height && column < grid->width; column++)
        cell_at(grid, line, column)->look = look;
}

size_t top_grid_break(const struct top_grid *grid, const char **text, int columns)
{
    const char *begin = *text, *at = begin, *blank = NULL, *next;
    int used = 0, wide;

    for (next = at; *next; at = next) {
        if (*at == ' ')
            blank = at;
        (void)next_char(grid, &next, &wide);
        used += wide;
        if (used > columns && *at != ' ')
            break;
    }
    if (used <= columns || !*at)
        at = next;
    else if (blank && blank > begin)
        at = blank;
    if (at == begin && *at) /* not even one: it has to go on */
        (void)next_char(grid, &at, &wide);
    *text = at + strspn(at, " ");
    return (size_t)(at - begin);
}

/* ---- text ----------------------------------------------------------------------------------- */

static void print_char(uint32_t ch, FILE *file)
{
    if (ch < 0x80) {
        fputc((int)ch, file);
        return;
    }
    if (ch < 0x800) {
        fputc((int)(0xC0 | ch >> 6), file);
    } else if (ch < 0x10000) {
        fputc((int)(0xE0 | ch >> 12), file);
        fputc((int)(0x80 | (ch >> 6 & 0x3F)), file);
    } else {
        fputc((int)(0xF0 | ch >> 18), file);
        fputc((int)(0x80 | (ch >> 12 & 0x3F)), file);
        fputc((int)(0x80 | (ch >> 6 & 0x3F)), file);
    }
    fputc((int)(0x80 | (ch & 0x3F)), file);
}

void top_grid_print(const struct top_grid *grid, FILE *file)
{
    for (int line = 0; line < grid->height; line++) {
        int end = grid->width;

        while (end > 0 && top_grid_at(grid, line, end - 1)->ch == ' ')
            end--;
        for (int column = 0; column < end; column++)
            if (top_grid_at(grid, line, column)->ch)
                print_char(top_grid_at(grid, line, column)->ch, file);
        fputc('\n', file);
    }
}
