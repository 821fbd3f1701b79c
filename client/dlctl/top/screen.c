/* Lines that fit: texts in a number of columns, and tables whose least columns go first where
 * there is no room. */
#include "client/dlctl/top/top.h"

#include "proto/common/utf8.h"
#include <assert.h>
#include <wchar.h>

enum { GAP = 1 };

static_assert((int)LOOKS <= '\n', "looks stand for themselves in a screen's text");

static const char ELLIPSIS[] = "…";

void top_screen_deinit(struct top_screen *screen)
{
    buffer_deinit(&screen->text);
}

/* ---- texts ---------------------------------------------------------------------------------- */

struct screen_char {
    const char *bytes; /* as it is shown */
    size_t len;
    int columns; /* 1 or 2 */
};

static struct screen_char screen_next(const struct top_screen *s, const char **text)
{
    const uint8_t *at = (const uint8_t *)*text;
    size_t n = utf8_char(at, strlen(*text));
    uint32_t ch = n ? utf8_decode(at, n) : '?';
    struct screen_char shown = {*text, n ? n : 1, 1};

    *text += shown.len;
    if (ch < 0x80) {
        if (ch < 0x20 || ch == 0x7F || n == 0)
            shown.bytes = "?";
        return shown;
    }
    if (s->unicode && (shown.columns = wcwidth((wchar_t)ch)) >= 1)
        return shown;
    if (!s->unicode && strncmp(shown.bytes, ELLIPSIS, n) == 0)
        return (struct screen_char){"~", 1, 1};
    return (struct screen_char){"?", 1, 1};
}

/* Columns that the text would take. */
static int screen_columns(const struct top_screen *s, const char *text)
{
    int sum = 0;

    while (*text)
        sum += screen_next(s, &text).columns;
    return sum;
}

static void screen_write(struct top_screen *s, const void *bytes, size_t len)
{
    if (s->error == 0 && (s->height == 0 || s->line < s->height))
        s->error = buffer_append(&s->text, bytes, len);
}

static void screen_blank(struct top_screen *s, int columns)
{
    for (int i = 0; i < columns; i++)
        screen_write(s, " ", 1);
}

/* As much of it as there is room for; the columns taken. */
static int screen_write_text(struct top_screen *s, const char *text, int room)
{
    bool cut = screen_columns(s, text) > room;
    const char *ellipsis = ELLIPSIS;
    int used = 0;

    while (*text) {
        struct screen_char next = screen_next(s, &text);

        if (used + next.columns > room - cut)
            break;
        screen_write(s, next.bytes, next.len);
        used += next.columns;
    }
    if (!cut)
        return used;
    struct screen_char end = screen_next(s, &ellipsis);
    screen_write(s, end.bytes, end.len);
    return used + 1;
}

void top_screen_put(struct top_screen *s, int columns, enum top_look look, bool right,
                    const char *text)
{
    uint8_t code = s->whole ? (uint8_t)s->whole : (uint8_t)look;
    int room = s->width - s->column < columns ? s->width - s->column : columns;
    int need = screen_columns(s, text), used = 0;

    if (room <= 0)
        return;
    screen_write(s, &code, 1);
    if (right && need < room)
        screen_blank(s, used = room - need);
    used += screen_write_text(s, text, room - used);
    screen_blank(s, room - used);
    s->column += room;
}

void top_screen_end_line(struct top_screen *s)
{
    if (s->whole)
        top_screen_put(s, s->width, s->whole, false, "");
    screen_write(s, "\n", 1);
    s->line++;
    s->column = 0;
    s->whole = 0;
}

void top_screen_line(struct top_screen *s, enum top_look look, const char *text)
{
    top_screen_put(s, s->width, look, false, text);
    top_screen_end_line(s);
}

size_t top_screen_break(const struct top_screen *s, const char **text, int columns)
{
    const char *begin = *text, *at = begin, *blank = NULL, *next;
    int used = 0;

    for (next = at; *next; at = next) {
        if (*at == ' ')
            blank = at;
        used += screen_next(s, &next).columns;
        if (used > columns && *at != ' ')
            break;
    }
    if (used <= columns || !*at)
        at = next;
    else if (blank && blank > begin)
        at = blank;
    if (at == begin && *at) /* not even one: it has to advance */
        (void)screen_next(s, &at);
    *text = at + strspn(at, " ");
    return (size_t)(at - begin);
}

void top_screen_print(const struct top_screen *s, FILE *file)
{
    size_t blanks = 0;

    for (size_t i = 0; i < s->text.len; i++) {
        uint8_t byte = s->text.data[i];

        if (byte == ' ') {
            blanks++;
        } else if (byte >= LOOKS) { /* '\n', too */
            for (; blanks > 0 && byte != '\n'; blanks--)
                fputc(' ', file);
            blanks = 0;
            fputc(byte, file);
        }
    }
}

/* ---- tables --------------------------------------------------------------------------------- */

static bool screen_says_something(const struct top_table *t, const struct top_column *column)
{
    struct top_cell cell;

    for (int i = 0; i < t->n_rows; i++) {
        top_column_cell(column, t->rows[i], column->width, false, &cell);
        if (cell.text[0] && strcmp(cell.text, "-") != 0)
            return true;
    }
    return false;
}

/* Names are to be read, and typed: they are cut where they are very long. */
static int screen_column_width(const struct top_screen *s, const struct top_table *t,
                               const struct top_column *column)
{
    struct top_cell cell;
    int width = column->width;

    if (column->or_none && !screen_says_something(t, column))
        return 0;
    for (int i = 0; i < t->n_rows && width < column->whole; i++) {
        int columns;

        top_column_cell(column, t->rows[i], column->whole, s->unicode, &cell);
        columns = screen_columns(s, cell.text);
        if (columns > width)
            width = columns < column->whole ? columns : column->whole;
    }
    return width;
}

static int screen_table_width(const struct top_table *t)
{
    int sum = -GAP;

    for (int i = 0; i < t->n_columns; i++)
        sum += t->width[i] ? t->width[i] + GAP : 0;
    return sum;
}

/* The column that matters least; -1: it is the last. */
static int screen_least(const struct top_table *t)
{
    int found = -1, shown = 0;

    for (int i = 0; i < t->n_columns; i++) {
        if (!t->width[i])
            continue;
        shown++;
        if (found < 0 || t->columns[i].keep < t->columns[found].keep)
            found = i;
    }
    return shown > 1 ? found : -1;
}

void top_table_fit(const struct top_screen *s, struct top_table *t)
{
    int out, left;

    assert(t->n_columns <= TOP_COLUMNS_MAX);
    for (int i = 0; i < t->n_columns; i++)
        t->width[i] = screen_column_width(s, t, &t->columns[i]);
    while (screen_table_width(t) > s->width && (out = screen_least(t)) >= 0)
        t->width[out] = 0;
    left = s->width - screen_table_width(t);
    for (int i = 0; i < t->n_columns && left > 0; i++) {
        if (t->width[i] && t->columns[i].stretches) {
            t->width[i] += left;
            left = 0;
        }
    }
}

void top_table_put(struct top_screen *s, const struct top_table *t, const struct top_row *row)
{
    for (int i = 0; i < t->n_columns; i++) {
        const struct top_column *column = &t->columns[i];
        struct top_cell cell = {.look = LOOK_HEAD};

        if (!t->width[i])
            continue;
        if (row)
            top_column_cell(column, row, t->width[i], s->unicode, &cell);
        top_screen_put(s, t->width[i], cell.look, column->right, row ? cell.text : column->title);
        if (s->column < s->width)
            top_screen_put(s, GAP, LOOK_PLAIN, false, "");
    }
    top_screen_end_line(s);
}
