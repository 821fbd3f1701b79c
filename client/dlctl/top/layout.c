#include "client/dlctl/top/layout.h"

#include "client/dlctl/top/bars.h"
#include "client/dlctl/top/columns.h"
#include "client/dlctl/units.h"
#include <errno.h>
#include <inttypes.h>

enum { LOADERS, EPOCHS, RANKS, WORKERS, SECTIONS };

enum { INDENT = 2, WORDS_MAX = 8, WORDS_FROM = 12, KEYS_FROM = 6 };

/* Rows of one kind, and how many of them are shown. */
struct section {
    struct top_table table;
    uint32_t *which; /* owned */
    int shown;       /* rows; 0: not even the titles */
    int first;       /* of the shown ones */
};

struct layout {
    const struct top_model *model;
    const struct top_state *state;
    const char *notice;
    struct top_shape shape;
    struct section sections[SECTIONS];
    int words;  /* lines that a verdict may have */
    bool tight; /* what nobody reads has none */
    bool gaps;  /* an empty line before each section but the first */
    struct top_grid grid;
    int line; /* the next one */
};

static void layout_deinit(struct layout *l)
{
    for (int i = 0; i < SECTIONS; i++)
        free(l->sections[i].which);
    top_grid_deinit(&l->grid);
}

/* ---- rows ----------------------------------------------------------------------------------- */

static bool is_picked(const struct layout *l, const void *row)
{
    return top_state_shows(l->state, row); /* its place is what each row begins with */
}

static int choose_rows(struct layout *l, struct section *s, uint32_t n)
{
    s->which = calloc(n + 1u, sizeof *s->which);
    if (!s->which)
        return -ENOMEM;
    s->table.which = s->which;
    for (uint32_t i = 0; i < n; i++)
        if (is_picked(l, (const char *)s->table.rows + i * s->table.row_bytes))
            s->which[s->table.n_rows++] = i;
    return 0;
}

/* Where all rows are of one loader, its name stands once. */
static int find_rows(struct layout *l)
{
    const struct top_model *m = l->model;
    const struct {
        const struct top_column *columns;
        const void *rows;
        size_t row_bytes;
        int n_columns;
        uint32_t n_rows;
    } kinds[SECTIONS] = {
        [LOADERS] = {top_loader_columns, m->loaders, sizeof *m->loaders, top_loader_columns_n,
                     m->n_loaders},
        [EPOCHS] = {top_epoch_columns, m->epochs, sizeof *m->epochs, top_epoch_columns_n,
                    m->n_epochs},
        [RANKS] = {top_rank_columns, m->ranks, sizeof *m->ranks, top_rank_columns_n, m->n_ranks},
        [WORKERS] = {top_worker_columns, m->workers, sizeof *m->workers, top_worker_columns_n,
                     m->n_workers},
    };
    int r = 0;

    for (int kind = 0; kind < SECTIONS && r == 0; kind++) {
        int skip = kind != LOADERS && l->state->picked ? 1 : 0;
        struct section *s = &l->sections[kind];

        s->table.columns = kinds[kind].columns + skip;
        s->table.n_columns = kinds[kind].n_columns - skip;
        s->table.rows = kinds[kind].rows;
        s->table.row_bytes = kinds[kind].row_bytes;
        r = choose_rows(l, s, kinds[kind].n_rows);
    }
    return r;
}

static const char *verdict_of(const struct layout *l, int row)
{
    const struct top_loader *loader = top_table_row(&l->sections[LOADERS].table, row);

    return loader->verdict;
}

/* Lines of a verdict, as many as it may have. */
static int count_words(const struct layout *l, int row)
{
    const struct top_loader *loader = top_table_row(&l->sections[LOADERS].table, row);
    const char *text = loader->verdict;
    int n = 0;

    if (l->tight && loader->at.idle)
        return 0;
    while (*text && n < l->words) {
        (void)top_grid_break(&l->grid, &text, l->shape.width - INDENT);
        n++;
    }
    return n;
}

/* Lines of a row. */
static int cost_of(const struct layout *l, int kind, int row)
{
    return kind == LOADERS ? 1 + count_words(l, row) : 1;
}

/* ---- room ----------------------------------------------------------------------------------- */

static bool has_keys(const struct layout *l)
{
    return l->shape.keys && (l->shape.height == 0 || l->shape.height >= KEYS_FROM);
}

static int fixed_lines(const struct layout *l)
{
    return 1 + (l->notice ? 1 : 0) + (has_keys(l) ? 1 : 0);
}

static int lines_of(const struct layout *l, int kind, int rows)
{
    int n = rows > 0 ? 1 : 0; /* the titles */

    for (int i = 0; i < rows; i++)
        n += cost_of(l, kind, i);
    return n;
}

/* Of everything, without gaps. */
static int all_lines(const struct layout *l, int *ret_sections)
{
    int n = fixed_lines(l);

    *ret_sections = 0;
    for (int kind = 0; kind < SECTIONS; kind++) {
        n += lines_of(l, kind, l->sections[kind].table.n_rows);
        *ret_sections += l->sections[kind].table.n_rows > 0;
    }
    return n;
}

/* Each kind of row its first one, as long as there is room, and then one more to whichever has
 * fewest. */
static void share_room(struct layout *l, int room)
{
    for (int kind = 0; kind < SECTIONS; kind++) {
        struct section *s = &l->sections[kind];
        int need = s->table.n_rows > 0 ? 1 + cost_of(l, kind, 0) : 0;

        if (need == 0 || need > room)
            continue;
        s->shown = 1;
        room -= need;
    }
    for (;;) {
        int fewest = -1;

        for (int kind = 0; kind < SECTIONS; kind++) {
            const struct section *s = &l->sections[kind];

            if (s->shown > 0 && s->shown < s->table.n_rows && cost_of(l, kind, s->shown) <= room &&
                (fewest < 0 || s->shown < l->sections[fewest].shown))
                fewest = kind;
        }
        if (fewest < 0)
            return;
        room -= cost_of(l, fewest, l->sections[fewest].shown++);
    }
}

static void show_all(struct layout *l)
{
    for (int kind = 0; kind < SECTIONS; kind++)
        l->sections[kind].shown = l->sections[kind].table.n_rows;
}

/* Where the selected loader is beyond what is shown, the rows begin further down. */
static void scroll(struct layout *l)
{
    struct section *s = &l->sections[LOADERS];
    int row = l->shape.keys && !l->state->picked ? top_state_row(l->state, l->model) : 0;
    /* The last line may be taken by how many more there are. */
    int full = s->shown < s->table.n_rows && s->shown > 1 ? s->shown - 1 : s->shown;

    if (row >= full)
        s->first = row - full + 1;
}

/* All of it; else all but the verdicts of what nobody reads; else what there is room for. */
static void fit(struct layout *l)
{
    int height = l->shape.height, sections, n;

    l->words = height == 0 || height >= WORDS_FROM ? WORDS_MAX : 0;
    for (int tight = 0; tight <= 1; tight++) {
        l->tight = tight;
        n = all_lines(l, &sections);
        if (height > 0 && n > height)
            continue;
        l->gaps = height == 0 || n + sections - 1 <= height;
        show_all(l);
        return;
    }
    share_room(l, height - fixed_lines(l));
    scroll(l);
}

/* Where there is as much room as it takes. */
static int height_of(const struct layout *l)
{
    int sections, n = all_lines(l, &sections);

    n += sections > 1 ? sections - 1 : 0;
    return n + (l->model && l->sections[LOADERS].table.n_rows == 0);
}

/* ---- lines ---------------------------------------------------------------------------------- */

static void put(struct layout *l, enum top_look look, const char *text)
{
    top_grid_put(&l->grid, l->line++, 0, l->shape.width, look, text);
}

static void put_title(struct layout *l)
{
    const struct top_model *m = l->model;
    char text[256], up[UNITS_MAX], bytes[UNITS_MAX];
    const char *right = l->state->paused ? " PAUSED " : "";
    int used = (int)strlen(right);

    if (m) {
        top_left(m->uptime_s, up, sizeof up);
        format_bytes((double)m->memory, bytes, sizeof bytes);
        snprintf(text, sizeof text,
                 "dloaderd %.32s %.32s, up %s, %" PRIu64 " session%s, %s, by %s%s", m->version,
                 l->notice ? "away" : m->state, up, m->sessions, m->sessions == 1 ? "" : "s", bytes,
                 top_sort_name(l->state->sort), l->state->reverse ? ", reversed" : "");
    } else {
        snprintf(text, sizeof text, "dloaderd");
    }
    if (used >= l->shape.width)
        used = 0;
    top_grid_put(&l->grid, l->line, 0, l->shape.width - used, LOOK_STRONG, text);
    top_grid_put(&l->grid, l->line++, l->shape.width - used, used, LOOK_PICK, right);
}

static void put_verdict(struct layout *l, int row)
{
    const char *text = verdict_of(l, row), *begin = text;
    enum top_look look = top_verdict_look(text);
    char part[TOP_TEXT_MAX];

    for (int i = 0, n = count_words(l, row); i < n; i++, begin = text) {
        size_t len = top_grid_break(&l->grid, &text, l->shape.width - INDENT);

        if (i + 1 == n) /* what is left, cut where it has to be */
            len = strlen(begin);
        snprintf(part, sizeof part, "%.*s", (int)min_u64(len, sizeof part - 1), begin);
        top_grid_put(&l->grid, l->line++, INDENT, l->shape.width - INDENT, look, part);
    }
}

/* Rows that are not shown are counted in place of the last one, if it is not the only one. */
static void put_section(struct layout *l, int kind)
{
    const struct section *s = &l->sections[kind];
    int hidden = s->table.n_rows - s->shown;
    int selected = kind == LOADERS && l->shape.keys && !l->state->picked
                       ? top_state_row(l->state, l->model)
                       : -1;
    struct top_columns columns;

    if (s->shown == 0)
        return;
    top_table_fit(&s->table, &l->grid, &columns);
    top_table_head(&s->table, &columns, &l->grid, l->line++);
    for (int i = s->first; i < s->first + s->shown; i++) {
        if (hidden > 0 && s->shown > 1 && i + 1 == s->first + s->shown) {
            char more[48];

            snprintf(more, sizeof more, "(%d more)", hidden + 1);
            put(l, LOOK_FAINT, more);
            return;
        }
        top_table_line(&s->table, &columns, &l->grid, l->line, i);
        if (i == selected)
            top_grid_look(&l->grid, l->line, LOOK_PICK);
        l->line++;
        if (kind == LOADERS)
            put_verdict(l, i);
    }
}

static void put_sections(struct layout *l)
{
    int n = 0;

    for (int kind = 0; kind < SECTIONS; kind++) {
        if (l->sections[kind].shown == 0)
            continue;
        l->line += l->gaps && n > 0;
        put_section(l, kind);
        n++;
    }
    if (l->model && l->sections[LOADERS].table.n_rows == 0)
        put(l, LOOK_FAINT, l->state->picked ? "that loader is not open" : "no loader is open");
}

static const char *const HELP[] = {
    "q      ends",
    "s      sorts by the next figure: name, rate, wait, cpu, memory, errors",
    "n b w c m e   sort by name, rate of batches, wait, CPU, memory, errors",
    "r      turns the order round",
    "arrows choose a loader; Enter shows it alone, Esc all again",
    "p      lets the screen stand still, and go on",
    "h      shows this, or not",
    "WAIT   share of the time that trainers wait for batches",
    "RING   slots leased #, ready =, being filled -, free . (dark to bright)",
    "CPU    100% is one core; MEMORY of workers is without files and the ring",
    "PAD    share of the tokens that are padding",
};

static void put_help(struct layout *l)
{
    for (size_t i = 0; i < ARRAY_SIZE(HELP) && l->line < l->grid.height - has_keys(l); i++)
        put(l, LOOK_PLAIN, HELP[i]);
}

static void put_keys(struct layout *l)
{
    static const char all[] = "q quit  s sort  r reverse  arrows, Enter pick  p pause  h help";
    static const char picked[] = "q quit  s sort  r reverse  Esc all loaders  p pause  h help";

    if (!has_keys(l))
        return;
    l->line = l->grid.height - 1;
    put(l, LOOK_FAINT, l->state->picked ? picked : all);
}

static int draw(struct layout *l)
{
    int height = l->shape.height;

    /* How wide a text is does not depend on the grid's size. */
    l->grid.unicode = l->shape.unicode;
    if (l->model)
        fit(l);
    if (height == 0)
        height = l->state->help ? fixed_lines(l) + (int)ARRAY_SIZE(HELP) : height_of(l);
    if (top_grid_init(&l->grid, l->shape.width, height, l->shape.unicode) < 0)
        return -ENOMEM;
    put_title(l);
    if (l->notice)
        put(l, LOOK_BAD, l->notice);
    if (l->state->help)
        put_help(l);
    else
        put_sections(l);
    put_keys(l);
    return 0;
}

int top_layout(const struct top_model *model, const struct top_state *state, const char *notice,
               const struct top_shape *shape, struct top_grid *ret)
{
    _cleanup_(layout_deinit)
    struct layout l = {.model = model, .state = state, .notice = notice, .shape = *shape};
    int r = model ? find_rows(&l) : 0;

    if (r == 0)
        r = draw(&l);
    if (r < 0)
        return r;
    *ret = l.grid;
    l.grid = (struct top_grid){0};
    return 0;
}
