/* The screen as a whole: what keys have made of it, what there is to show, and the part of it that
 * there is room for. */
#include "client/dlctl/top/top.h"

#include "client/dlctl/text.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>

enum { LAYOUT_INDENT = 2, WORDS_MAX = 8, WORDS_FROM = 12, KEYS_FROM = 6 };

/* ---- keys ----------------------------------------------------------------------------------- */

void top_state_deinit(struct top_state *state)
{
    free(state->selected);
    free(state->picked);
    *state = (struct top_state){0};
}

bool top_state_shows(const struct top_state *state, const struct top_row *row)
{
    return !state->picked || (strcmp(row->loader, state->picked) == 0 &&
                              (!state->of_uid || row->uid == state->picked_uid));
}

int top_state_row(const struct top_state *state, const struct top_model *model)
{
    uint32_t n = model ? model->rows[TOP_LOADERS].n : 0;

    for (uint32_t i = 0; state->selected && i < n; i++) {
        const struct top_row *row = &model->rows[TOP_LOADERS].list[i];

        if (row->uid == state->selected_uid && strcmp(row->loader, state->selected) == 0)
            return (int)i;
    }
    return n > 0 ? 0 : -1;
}

/* Out of memory, all stays as it is: the key can be pressed again. */
static bool layout_take_name(const struct top_row *row, char **to, uint64_t *to_uid)
{
    char *copy = strdup(row->loader);

    if (!copy)
        return false;
    free(*to);
    *to = copy;
    *to_uid = row->uid;
    return true;
}

static void layout_move(struct top_state *state, const struct top_model *model, int by)
{
    int row = top_state_row(state, model) + by;

    if (model && !state->picked && row >= 0 && row < (int)model->rows[TOP_LOADERS].n)
        (void)layout_take_name(&model->rows[TOP_LOADERS].list[row], &state->selected,
                               &state->selected_uid);
}

static void layout_pick(struct top_state *state, const struct top_model *model)
{
    int row = top_state_row(state, model);

    if (row >= 0 && !state->picked)
        state->of_uid = layout_take_name(&model->rows[TOP_LOADERS].list[row], &state->picked,
                                         &state->picked_uid);
}

/* The keys that sort by one figure. */
static bool layout_sort(struct top_state *state, int key)
{
    static const char keys[TOP_SORTS + 1] = "nbwcme";
    const char *at = key > 0 && key < 0x80 ? strchr(keys, key) : NULL;

    if (at)
        state->sort = (enum top_sort)(at - keys);
    return at;
}

bool top_state_key(struct top_state *state, const struct top_model *model, int key)
{
    switch (key) {
    case 'q':
    case 'Q':
        state->quit = true;
        return true;
    case 'h':
    case '?':
        state->help = !state->help;
        return true;
    case 'p':
    case ' ':
        state->paused = !state->paused;
        return true;
    case 's':
        state->sort = (enum top_sort)((state->sort + 1) % TOP_SORTS);
        return true;
    case 'r':
        state->reverse = !state->reverse;
        return true;
    case TOP_KEY_UP:
    case 'k':
        layout_move(state, model, -1);
        return true;
    case TOP_KEY_DOWN:
    case 'j':
        layout_move(state, model, 1);
        return true;
    case TOP_KEY_ENTER:
        layout_pick(state, model);
        return true;
    case TOP_KEY_ESCAPE:
        if (state->help)
            state->help = false;
        else
            free_memoryp(&state->picked);
        return true;
    default:
        return layout_sort(state, key);
    }
}

/* ---- what there is, and room for it --------------------------------------------------------- */

struct layout {
    const struct top_model *model;
    const struct top_state *state;
    const char *notice;
    struct top_screen *s;
    struct top_table tables[TOP_KINDS];
    int words;  /* lines that a verdict may have */
    bool tight; /* what nobody reads has none */
    bool gaps;  /* an empty line before each table but the first */
};

static void layout_deinit(struct layout *l)
{
    for (int kind = 0; kind < TOP_KINDS; kind++)
        free(l->tables[kind].rows);
}

/* Where all rows are of one loader, its name stands once. */
static int layout_find_rows(struct layout *l)
{
    for (int kind = 0; l->model && kind < TOP_KINDS; kind++) {
        const struct top_rows *rows = &l->model->rows[kind];
        struct top_table *t = &l->tables[kind];
        int skip = kind != TOP_LOADERS && l->state->picked ? 1 : 0;

        t->kind = (enum top_kind)kind;
        t->columns = top_columns(t->kind, &t->n_columns) + skip;
        t->n_columns -= skip;
        t->rows = calloc(rows->n + 1u, sizeof *t->rows);
        if (!t->rows)
            return -ENOMEM;
        for (uint32_t i = 0; i < rows->n; i++)
            if (top_state_shows(l->state, &rows->list[i]))
                t->rows[t->n_rows++] = &rows->list[i];
    }
    return 0;
}

/* Lines of a row, with its verdict. */
static int layout_row_lines(const struct layout *l, const struct top_table *t, int i)
{
    const char *text = top_row_text(t->rows[i], "verdict");
    int n = 1;

    if (t->kind != TOP_LOADERS || (l->tight && t->rows[i]->idle))
        return 1;
    for (; *text && n <= l->words; n++)
        (void)top_screen_break(l->s, &text, l->s->width - LAYOUT_INDENT);
    return n;
}

static bool layout_has_keys(const struct layout *l)
{
    return l->s->keys && (l->s->height == 0 || l->s->height >= KEYS_FROM);
}

static int layout_fixed_lines(const struct layout *l)
{
    return 1 + (l->notice ? 1 : 0) + (layout_has_keys(l) ? 1 : 0);
}

/* Of everything, without gaps. */
static int layout_all_lines(const struct layout *l, int *ret_tables)
{
    int n = layout_fixed_lines(l);

    *ret_tables = 0;
    for (int kind = 0; kind < TOP_KINDS; kind++) {
        const struct top_table *t = &l->tables[kind];

        for (int i = 0; i < t->n_rows; i++)
            n += layout_row_lines(l, t, i);
        n += t->n_rows > 0; /* the titles */
        *ret_tables += t->n_rows > 0;
    }
    return n;
}

/* Each kind of row its first one, as long as there is room, and then one more to whichever has
 * fewest. */
static void layout_share_room(struct layout *l, int room)
{
    struct top_table *t, *fewest;

    for (t = l->tables; t < l->tables + TOP_KINDS; t++) {
        int need = t->n_rows > 0 ? 1 + layout_row_lines(l, t, 0) : 0;

        t->shown = need > 0 && need <= room;
        room -= t->shown ? need : 0;
    }
    do {
        fewest = NULL;
        for (t = l->tables; t < l->tables + TOP_KINDS; t++)
            if (t->shown > 0 && t->shown < t->n_rows && layout_row_lines(l, t, t->shown) <= room &&
                (!fewest || t->shown < fewest->shown))
                fewest = t;
        if (fewest)
            room -= layout_row_lines(l, fewest, fewest->shown++);
    } while (fewest);
}

/* The loader that keys act on; -1: none. */
static int layout_selected(const struct layout *l)
{
    return l->s->keys && !l->state->picked ? top_state_row(l->state, l->model) : -1;
}

/* All of it; else all but the verdicts of what nobody reads; else what there is room for, with the
 * loader that is selected. */
static void layout_fit(struct layout *l)
{
    struct top_table *loaders = &l->tables[TOP_LOADERS];
    int height = l->s->height, tables, n;

    l->words = height == 0 || height >= WORDS_FROM ? WORDS_MAX : 0;
    for (int tight = 0; tight <= 1; tight++) {
        l->tight = tight;
        n = layout_all_lines(l, &tables);
        if (height > 0 && n > height)
            continue;
        l->gaps = height == 0 || n + tables - 1 <= height;
        for (int kind = 0; kind < TOP_KINDS; kind++)
            l->tables[kind].shown = l->tables[kind].n_rows;
        return;
    }
    layout_share_room(l, height - layout_fixed_lines(l));
    /* The last line may be taken by how many more there are. */
    n = loaders->shown - (loaders->shown < loaders->n_rows && loaders->shown > 1);
    if (layout_selected(l) >= n)
        loaders->first = layout_selected(l) - n + 1;
}

/* ---- lines ---------------------------------------------------------------------------------- */

static void layout_put_title(struct layout *l)
{
    const struct value *status = l->model ? &l->model->views[0] : NULL;
    const struct top_row daemon = {.view = status};
    const char *right = l->state->paused ? " PAUSED " : "";
    int used = (int)strlen(right) < l->s->width ? (int)strlen(right) : 0;
    char text[256] = "dloaderd", up[UNITS_MAX], bytes[UNITS_MAX];

    if (l->model) {
        uint64_t sessions = top_row_count(&daemon, "sessions");

        format_seconds(value_real(value_get(status, "uptime_s")), up, sizeof up);
        format_bytes((double)top_row_count(&daemon, "memory_bytes"), bytes, sizeof bytes);
        snprintf(
            text, sizeof text, "dloaderd %.32s %.32s, up %s, %" PRIu64 " session%s, %s, by %s%s",
            top_row_text(&daemon, "version"), l->notice ? "away" : top_row_text(&daemon, "state"),
            up, sessions, sessions == 1 ? "" : "s", bytes, top_sort_name(l->state->sort),
            l->state->reverse ? ", reversed" : "");
    }
    top_screen_put(l->s, l->s->width - used, LOOK_STRONG, false, text);
    top_screen_put(l->s, used, LOOK_PICK, false, right);
    top_screen_end_line(l->s);
}

static void layout_put_verdict(struct layout *l, const struct top_table *t, int row)
{
    const char *text = top_row_text(t->rows[row], "verdict"), *begin = text;
    enum top_look look = top_verdict_look(text);
    char part[TOP_TEXT_MAX];

    for (int i = 1, n = layout_row_lines(l, t, row); i < n; i++, begin = text) {
        size_t len = top_screen_break(l->s, &text, l->s->width - LAYOUT_INDENT);

        if (i + 1 == n) /* what is left, cut where it has to be */
            len = strlen(begin);
        snprintf(part, sizeof part, "%.*s", (int)min_u64(len, sizeof part - 1), begin);
        top_screen_put(l->s, LAYOUT_INDENT, LOOK_PLAIN, false, "");
        top_screen_line(l->s, look, part);
    }
}

/* Rows that are not shown are counted in place of the last one, if it is not the only one. */
static void layout_put_table(struct layout *l, struct top_table *t)
{
    int hidden = t->n_rows - t->shown, last = t->first + t->shown - 1;
    char more[48];

    top_table_fit(l->s, t);
    l->s->whole = LOOK_HEAD;
    top_table_put(l->s, t, NULL);
    for (int i = t->first; i <= last; i++) {
        if (hidden > 0 && t->shown > 1 && i == last) {
            snprintf(more, sizeof more, "(%d more)", hidden + 1);
            top_screen_line(l->s, LOOK_FAINT, more);
            return;
        }
        if (t->kind == TOP_LOADERS && i == layout_selected(l))
            l->s->whole = LOOK_PICK;
        top_table_put(l->s, t, t->rows[i]);
        layout_put_verdict(l, t, i);
    }
}

static void layout_put_tables(struct layout *l)
{
    bool first = true;

    for (struct top_table *t = l->tables; t < l->tables + TOP_KINDS; t++) {
        if (t->shown == 0)
            continue;
        if (l->gaps && !first)
            top_screen_end_line(l->s);
        layout_put_table(l, t);
        first = false;
    }
    if (l->model && l->tables[TOP_LOADERS].n_rows == 0)
        top_screen_line(l->s, LOOK_FAINT,
                        l->state->picked ? "that loader is not open" : "no loader is open");
}

static const char *const HELP[] = {
    "q      ends",
    "s      sorts by the next figure: name, rate, wait, cpu, memory, errors",
    "n b w c m e   sort by name, rate of batches, wait, CPU, memory, errors",
    "r      reverses the order",
    "arrows choose a loader; Enter shows it alone, Esc all again",
    "p      pauses and continues",
    "h      shows or hides this help",
    "WAIT   share of the time that trainers wait for batches",
    "RING   slots leased #, ready =, being filled -, free . (dark to bright)",
    "CPU    100 % is one core; MEMORY of workers is without files and the ring",
    "PAD    share of the tokens that are padding",
};

/* The last line, and before it as many empty ones as there are left. */
static void layout_put_keys(struct layout *l)
{
    static const char all[] = "q quit  s sort  r reverse  arrows, Enter pick  p pause  h help";
    static const char picked[] = "q quit  s sort  r reverse  Esc all loaders  p pause  h help";

    while (l->s->line < l->s->height - layout_has_keys(l))
        top_screen_end_line(l->s);
    if (layout_has_keys(l))
        top_screen_line(l->s, LOOK_FAINT, l->state->picked ? picked : all);
}

int top_layout(const struct top_model *model, const struct top_state *state, const char *notice,
               struct top_screen *s)
{
    _cleanup_(layout_deinit)
    struct layout l = {.model = model, .state = state, .notice = notice, .s = s};

    assert(s->width > 0 && s->height >= 0);
    s->text.len = 0;
    s->line = s->column = s->error = 0;
    if (layout_find_rows(&l) < 0)
        return -ENOMEM;
    layout_fit(&l);
    layout_put_title(&l);
    if (notice)
        top_screen_line(s, LOOK_BAD, notice);
    if (!state->help)
        layout_put_tables(&l);
    for (size_t i = 0; state->help && i < ARRAY_SIZE(HELP); i++)
        if (s->height == 0 || s->line < s->height - layout_has_keys(&l))
            top_screen_line(s, LOOK_PLAIN, HELP[i]);
    layout_put_keys(&l);
    return s->error;
}
