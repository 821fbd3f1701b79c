/* Tables: see table.h. */
#include "client/dlctl/table.h"

#include "client/dlctl/render.h"
#include "client/dlctl/text.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>

enum { TABLE_INDENT = 2, COLUMN_GAP = 2 };

struct table_column {
    const char *key; /* borrowed from the view */
    size_t width;
    bool right; /* only numbers and nulls in it */
    bool says;  /* something, of one row at least */
    bool shown;
};

struct table {
    const struct table_style *style; /* borrowed */
    const struct value *rows;        /* borrowed */
    struct table_column *columns;    /* owned */
    uint32_t n_columns;
    char **cells; /* owned; row by row, the headers first */
    size_t room;  /* columns of the screen; 0: any number */
};

static void table_deinit(struct table *t)
{
    uint64_t n = t->cells ? ((uint64_t)t->rows->count + 1) * t->n_columns : 0;

    for (uint64_t i = 0; i < n; i++)
        free(t->cells[i]);
    free(t->cells);
    free(t->columns);
}

/* Where a word stands among others; -1: it is none of them. */
static int table_place_of(const char *words, const char *word)
{
    size_t len = strlen(word);

    for (int i = 0; words && *words; i++) {
        size_t n = strcspn(words, " ");

        if (n == len && strncmp(words, word, n) == 0)
            return i;
        words += n + strspn(words + n, " ");
    }
    return -1;
}

/* Every key of every row, in the order of first appearance. */
static int table_find_columns(struct table *t)
{
    for (uint32_t r = 0; r < t->rows->count; r++) {
        const struct value *row = &t->rows->items[r];
        for (uint32_t i = 0; i < row->count; i++) {
            uint32_t c = 0;
            while (c < t->n_columns && strcmp(t->columns[c].key, row->items[i].key) != 0)
                c++;
            if (c < t->n_columns || table_place_of(t->style->never, row->items[i].key) >= 0)
                continue;
            struct table_column *more = realloc(t->columns, (c + 1) * sizeof *more);
            if (!more)
                return -ENOMEM;
            t->columns = more;
            t->columns[t->n_columns++] =
                (struct table_column){.key = row->items[i].key, .right = true};
        }
    }
    return 0;
}

/* ---- cells ---------------------------------------------------------------------------------- */

/* `v` NULL: the column's title. */
static char *table_make_text(const char *key, const struct value *v, bool title)
{
    char *text = NULL;
    size_t len;
    FILE *file = open_memstream(&text, &len);

    if (!file)
        return NULL;
    if (title)
        render_title(file, key);
    else if (v)
        render_inline(file, key, v);
    else
        fputc('-', file);
    if (fclose(file) == EOF) {
        free(text);
        return NULL;
    }
    for (char *p = text; title && *p; p++)
        *p = (char)toupper((unsigned char)*p);
    return text;
}

static bool table_is_number(const struct value *v)
{
    return v->type == VALUE_INT || v->type == VALUE_UINT || v->type == VALUE_FLOAT;
}

static int table_fill(struct table *t)
{
    t->cells = calloc(((uint64_t)t->rows->count + 1) * t->n_columns + 1, sizeof *t->cells);
    if (!t->cells)
        return -ENOMEM;
    for (uint32_t r = 0; r <= t->rows->count; r++) {
        for (uint32_t c = 0; c < t->n_columns; c++) {
            struct table_column *col = &t->columns[c];
            const struct value *v = r ? value_get(&t->rows->items[r - 1], col->key) : NULL;
            char *text = table_make_text(col->key, v, r == 0);
            if (!text)
                return -ENOMEM;
            t->cells[(uint64_t)r * t->n_columns + c] = text;
            col->width = max_u64(col->width, text_columns(text));
            col->says = col->says || (r > 0 && *text && strcmp(text, "-") != 0);
            if (v && v->type != VALUE_NULL && !table_is_number(v))
                col->right = false;
        }
    }
    return 0;
}

/* ---- what fits ------------------------------------------------------------------------------ */

/* The first column shows that there are rows, if nothing else does. */
static bool table_any_says(const struct table *t)
{
    for (uint32_t c = 0; c < t->n_columns; c++)
        if (t->columns[c].says)
            return true;
    return false;
}

static bool table_is_below(const struct table *t, const struct table_column *col)
{
    return t->room && t->style->below && strcmp(col->key, t->style->below) == 0;
}

/* How little it matters; a column that is not asked for matters nothing, which is -1. */
static int table_rank_of(const struct table *t, uint32_t c)
{
    const struct table_column *col = &t->columns[c];

    if (table_is_below(t, col) || (!col->says && (c > 0 || table_any_says(t))))
        return -1;
    return t->room && t->style->keys ? table_place_of(t->style->keys, col->key) : (int)c;
}

/* The one that matters most of those that come after `rank`; or NULL. */
static struct table_column *table_next_column(struct table *t, int *rank)
{
    struct table_column *found = NULL;
    int best = INT32_MAX;

    for (uint32_t c = 0; c < t->n_columns; c++) {
        int n = table_rank_of(t, c);

        if (n <= *rank || n >= best)
            continue;
        best = n;
        found = &t->columns[c];
    }
    *rank = best;
    return found;
}

static void table_choose_columns(struct table *t)
{
    size_t used = 0;
    struct table_column *col;
    int rank = -1;

    while ((col = table_next_column(t, &rank))) {
        size_t need = col->width + (used ? COLUMN_GAP : 0);

        col->shown = !t->room || used == 0 || used + need <= t->room;
        used += col->shown ? need : 0;
    }
}

/* ---- lines ---------------------------------------------------------------------------------- */

static void table_print_line(FILE *file, const struct table *t, uint32_t r, int indent)
{
    size_t owed = (size_t)indent; /* blanks, unless nothing follows */

    for (uint32_t c = 0; c < t->n_columns; c++) {
        const struct table_column *col = &t->columns[c];
        const char *text = t->cells[(uint64_t)r * t->n_columns + c];
        size_t pad = col->width - text_columns(text);

        if (!col->shown)
            continue;
        fprintf(file, "%*s", (int)(owed + (col->right ? pad : 0)), "");
        text_put(file, text);
        owed = (col->right ? 0 : pad) + COLUMN_GAP;
    }
    fputc('\n', file);
}

static bool table_says_it_again(const struct table *t, uint32_t r, uint32_t c)
{
    const char *text = t->cells[(uint64_t)r * t->n_columns + c];

    return t->style->below_once && r < t->rows->count &&
           strcmp(text, t->cells[(r + UINT64_C(1)) * t->n_columns + c]) == 0;
}

static void table_print_below(FILE *file, const struct table *t, uint32_t r, int indent)
{
    for (uint32_t c = 0; c < t->n_columns; c++) {
        const char *text = t->cells[(uint64_t)r * t->n_columns + c];
        size_t at = (size_t)indent + TABLE_INDENT;

        if (!table_is_below(t, &t->columns[c]) || strcmp(text, "-") == 0 ||
            table_says_it_again(t, r, c))
            continue;
        fprintf(file, "%*s", (int)at, "");
        text_wrap(file, text, at, at, t->style->width);
    }
}

/* A name with a text below it says what it is by itself. */
static bool table_needs_titles(const struct table *t)
{
    uint32_t shown = 0;
    bool below = false;

    for (uint32_t c = 0; c < t->n_columns; c++) {
        shown += t->columns[c].shown;
        below = below || table_is_below(t, &t->columns[c]);
    }
    return shown > 1 || !below;
}

bool table_fits(const struct value *v)
{
    if (v->type != VALUE_ARRAY || v->count == 0)
        return false;
    for (uint32_t i = 0; i < v->count; i++)
        if (v->items[i].type != VALUE_MAP || v->items[i].count == 0)
            return false;
    return true;
}

int table_print(FILE *file, const struct value *rows, const struct table_style *style, int indent)
{
    _cleanup_(table_deinit) struct table t = {.style = style, .rows = rows};
    int r;

    assert(table_fits(rows));
    if (style->width)
        t.room = style->width > (size_t)indent ? style->width - (size_t)indent : 1;
    r = table_find_columns(&t);
    if (r == 0)
        r = table_fill(&t);
    if (r < 0)
        return r;
    table_choose_columns(&t);
    for (uint32_t i = table_needs_titles(&t) ? 0 : 1; i <= rows->count; i++) {
        table_print_line(file, &t, i, indent);
        if (i > 0)
            table_print_below(file, &t, i, indent);
    }
    return 0;
}
