/* What is shown of each kind of row: columns for people, keys for programs. */
#include "client/dlctl/top/top.h"

#include "client/dlctl/form.h"
#include "client/dlctl/text.h"
#include <inttypes.h>
#include <math.h>

enum column_format {
    NAME, /* of the loader */
    JOB,
    EPOCH,
    NUMBER,   /* of the row */
    OF_WORLD, /* the same, and the size of the world */
    STATE,    /* "broken" and "starving" are bad */
    READY,    /* a worker's state: all but "ready" is worth a look */
    COUNT,
    FAULTS, /* a count that should be 0: bad if not */
    SLIPS,  /* likewise, but others make up for it */
    WHOLE,  /* a number that may not be known */
    RATE,
    BYTES,
    PERCENT,
    WAIT,
    WAIT_BAR,
    LEFT,
    RING,
    STEP,     /* of a rank, and of how many */
    RANKS_OF, /* of an epoch */
    STEPS_OF,
    DONE_BAR,
    DONE,
    SAMPLES, /* that a worker is at */
};

/* "train.py: ImageFolder" and some more. */
enum { NAME_MAX_COLUMNS = 26 };

/* What a rank that waits more than so is worth looking at, and what is bad. */
static const double WAITS = 0.05, WAITS_MUCH = 0.5;

#define KEY(name)    .key = (name)
#define FIGURE(name) .figure = (name)

/* title, format, width, keep */
static const struct top_column LOADER_COLUMNS[] = {
    {"LOADER", NAME, .width = 10, .keep = 99, .stretches = true, .whole = NAME_MAX_COLUMNS},
    {"STATE", STATE, .width = 9, .keep = 3},
    {"BATCH/S", RATE, FIGURE(TOP_BATCHES_PER_S), .width = 7, .keep = 8, .right = true},
    {"SAMPLE/S", RATE, FIGURE(TOP_SAMPLES_PER_S), .width = 8, .keep = 5, .right = true},
    {"DATA/S", BYTES, FIGURE(TOP_BYTES_PER_S), .width = 10, .keep = 2, .right = true},
    {"WAIT", WAIT, FIGURE(TOP_WAIT), .width = 5, .keep = 10, .right = true},
    {"RING", RING, .width = 8, .keep = 7},
    {"PAD", PERCENT, FIGURE(TOP_PADDING), .width = 5, .keep = 6, .right = true, .or_none = true},
    {"MIX", PERCENT, FIGURE(TOP_MIX_OFF), .width = 5, .keep = 3, .right = true, .or_none = true},
    {"CPU", PERCENT, FIGURE(TOP_CPU), .width = 6, .keep = 1, .right = true},
    {"MEMORY", BYTES, FIGURE(TOP_MEMORY), .width = 10, .keep = 4, .right = true},
    {"FAULT", FAULTS, KEY("faults"), .width = 5, .keep = 9, .right = true},
    {"RETRY", SLIPS, KEY("retries"), .width = 5, .keep = 7, .right = true},
    {"BAD", SLIPS, KEY("bad"), .width = 4, .keep = 8, .right = true},
};

static const struct top_column EPOCH_COLUMNS[] = {
    {"LOADER", NAME, .width = 12, .keep = 6, .whole = NAME_MAX_COLUMNS},
    {"JOB", JOB, .width = 8, .keep = 4, .or_none = true},
    {"EPOCH", EPOCH, .width = 5, .keep = 9, .right = true},
    {"RANKS", RANKS_OF, .width = 5, .keep = 3, .right = true},
    {"PROGRESS", DONE_BAR, .width = 8, .keep = 10, .stretches = true},
    {"DONE", DONE, .width = 5, .keep = 8, .right = true},
    {"STEPS", STEPS_OF, .width = 13, .keep = 2, .right = true},
    {"STEP/S", RATE, FIGURE(TOP_STEPS_PER_S), .width = 7, .keep = 5, .right = true},
    {"LEFT", LEFT, FIGURE(TOP_LEFT_S), .width = 11, .keep = 9, .right = true},
};

static const struct top_column RANK_COLUMNS[] = {
    {"LOADER", NAME, .width = 11, .keep = 10, .stretches = true, .whole = NAME_MAX_COLUMNS},
    {"JOB", JOB, .width = 8, .keep = 4, .or_none = true},
    {"EPOCH", EPOCH, .width = 5, .keep = 5, .right = true},
    {"RANK", OF_WORLD, .width = 6, .keep = 20, .right = true},
    {"WAIT", WAIT, FIGURE(TOP_WAIT), .width = 5, .keep = 19, .right = true},
    {"", WAIT_BAR, FIGURE(TOP_WAIT), .width = 10, .keep = 0},
    {"STEP", STEP, .width = 13, .keep = 8, .right = true},
    {"SAMPLE/S", RATE, FIGURE(TOP_SAMPLES_PER_S), .width = 8, .keep = 7, .right = true},
    {"READY", COUNT, KEY("ready"), .width = 5, .keep = 9, .right = true},
    {"HELD", COUNT, KEY("leased"), .width = 4, .keep = 6, .right = true},
    {"PINNED", COUNT, KEY("pinned"), .width = 6, .keep = 2, .right = true},
    {"PAD", PERCENT, FIGURE(TOP_PADDING), .width = 5, .keep = 5, .right = true, .or_none = true},
    {"MIX", PERCENT, FIGURE(TOP_MIX_OFF), .width = 5, .keep = 3, .right = true, .or_none = true},
    {"LEFT", LEFT, FIGURE(TOP_LEFT_S), .width = 11, .keep = 1, .right = true},
    {"STATE", STATE, .width = 8, .keep = 9},
};

static const struct top_column WORKER_COLUMNS[] = {
    {"LOADER", NAME, .width = 12, .keep = 9, .whole = NAME_MAX_COLUMNS},
    {"WORKER", NUMBER, .width = 6, .keep = 20, .right = true},
    {"PID", WHOLE, KEY("pid"), .width = 7, .keep = 2, .right = true},
    {"STATE", READY, .width = 8, .keep = 8},
    {"CPU", PERCENT, FIGURE(TOP_CPU), .width = 5, .keep = 12, .right = true},
    {"MEMORY", BYTES, FIGURE(TOP_MEMORY), .width = 10, .keep = 11, .right = true},
    {"TASK/S", RATE, FIGURE(TOP_TASKS_PER_S), .width = 6, .keep = 5, .right = true},
    {"QUEUE", COUNT, KEY("queued"), .width = 5, .keep = 3, .right = true},
    {"DIED", SLIPS, KEY("restarts"), .width = 4, .keep = 6, .right = true},
    {"STEP", WHOLE, KEY("step"), .width = 7, .keep = 4, .right = true},
    {"SAMPLES", SAMPLES, .width = 12, .keep = 10, .stretches = true},
};

const struct top_column *top_columns(enum top_kind kind, int *ret_n)
{
    static const struct {
        const struct top_column *columns;
        int n;
    } kinds[TOP_KINDS] = {
        [TOP_LOADERS] = {LOADER_COLUMNS, ARRAY_SIZE(LOADER_COLUMNS)},
        [TOP_EPOCHS] = {EPOCH_COLUMNS, ARRAY_SIZE(EPOCH_COLUMNS)},
        [TOP_RANKS] = {RANK_COLUMNS, ARRAY_SIZE(RANK_COLUMNS)},
        [TOP_WORKERS] = {WORKER_COLUMNS, ARRAY_SIZE(WORKER_COLUMNS)},
    };

    *ret_n = kinds[kind].n;
    return kinds[kind].columns;
}

/* ---- bars and times ------------------------------------------------------------------------- */

static int columns_bounded(int columns)
{
    return columns < 0 ? 0 : columns > TOP_BAR_MAX ? TOP_BAR_MAX : columns;
}

static void columns_add(char *buf, size_t size, const char *text)
{
    size_t len = strlen(buf);

    if (len + strlen(text) < size)
        memcpy(buf + len, text, strlen(text) + 1);
}

void top_bar(double share, int columns, bool unicode, char *buf, size_t size)
{
    static const char *const parts[] = {"░", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
    int eighths;

    snprintf(buf, size, "%s", isnan(share) ? "-" : "");
    columns = columns_bounded(columns);
    if (isnan(share))
        return;
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    eighths = (int)(share * columns * 8); /* down: what is full is done */
    for (int i = 0; i < columns; i++) {
        int part = eighths - 8 * i;

        part = part < 0 ? 0 : part > 8 ? 8 : part;
        columns_add(buf, size, unicode ? parts[part] : part == 8 ? "#" : ".");
    }
}

void top_ring_bar(const double slots[static 4], int columns, bool unicode, char *buf, size_t size)
{
    static const char *const drawn[] = {"█", "▓", "▒", "░"}, *const plain[] = {"#", "=", "-", "."};
    double total = slots[0] + slots[1] + slots[2] + slots[3];

    snprintf(buf, size, "%s", total > 0 ? "" : "-");
    columns = columns_bounded(columns);
    for (int i = 0; i < columns && total > 0; i++) {
        double at = (i + 0.5) * total / columns;
        int kind = 0;

        while (kind < 3 && at >= slots[kind])
            at -= slots[kind++];
        columns_add(buf, size, unicode ? drawn[kind] : plain[kind]);
    }
}

/* ---- cells ---------------------------------------------------------------------------------- */

static bool columns_is_one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strncmp(text, *words, strlen(*words)) == 0)
            return true;
    return false;
}

enum top_look top_verdict_look(const char *verdict)
{
    static const char *const good[] = {"healthy", "trainer-bound", NULL};
    static const char *const slow[] = {"loader-bound", "starved", "throttled", "straggling", NULL};

    return columns_is_one_of(verdict, good)   ? LOOK_GOOD
           : columns_is_one_of(verdict, slow) ? LOOK_WARN
                                              : LOOK_FAINT;
}

static void columns_text(struct top_cell *cell, const char *text, enum top_look look)
{
    snprintf(cell->text, sizeof cell->text, "%s", *text ? text : "-");
    cell->look = look;
}

static void columns_count(struct top_cell *cell, uint64_t n, enum top_look if_any)
{
    snprintf(cell->text, sizeof cell->text, "%" PRIu64, n);
    cell->look = n ? if_any : LOOK_PLAIN;
}

/* What is hardly anything has no room for "< 0.1 %". */
static void columns_percent(struct top_cell *cell, double share)
{
    if (isnan(share))
        columns_text(cell, "-", LOOK_PLAIN);
    else
        format_percent(fabs(share) < 0.0005 ? 0 : share, cell->text, sizeof cell->text);
}

static void columns_left(struct top_cell *cell, double seconds)
{
    if (isnan(seconds) || isinf(seconds))
        columns_text(cell, "-", LOOK_PLAIN);
    else
        format_seconds(seconds, cell->text, sizeof cell->text);
}

static void columns_of(struct top_cell *cell, double n, double all)
{
    if (isnan(all))
        snprintf(cell->text, sizeof cell->text, "%.0f", n);
    else
        snprintf(cell->text, sizeof cell->text, "%.0f/%.0f", n, all);
}

static void columns_state(struct top_cell *cell, const char *state)
{
    static const char *const bad[] = {"broken", "starving", NULL};

    columns_text(cell, state, columns_is_one_of(state, bad) ? LOOK_BAD : LOOK_PLAIN);
}

static void columns_wait(struct top_cell *cell, double wait)
{
    columns_percent(cell, wait);
    cell->look = wait >= WAITS_MUCH ? LOOK_BAD : wait >= WAITS ? LOOK_WARN : LOOK_PLAIN;
}

/* The column says that they are samples; where they have no numbers, other words come. */
static void columns_samples(struct top_cell *cell, const char *words)
{
    static const char *const heads[] = {"samples ", "sample "};

    for (size_t i = 0; i < ARRAY_SIZE(heads); i++)
        if (strncmp(words, heads[i], strlen(heads[i])) == 0)
            words += strlen(heads[i]);
    columns_text(cell, words, LOOK_PLAIN);
}

static double columns_done(const struct top_row *epoch)
{
    double done = epoch->figure[TOP_DONE], steps = epoch->figure[TOP_STEPS];

    return steps > 0 ? done / steps : isnan(steps) ? NAN : 1;
}

static void columns_number(struct top_cell *cell, int format, double d)
{
    if (isnan(d))
        columns_text(cell, "-", LOOK_PLAIN);
    else if (format == RATE)
        format_count(d, cell->text, sizeof cell->text);
    else if (format == BYTES)
        format_bytes(d, cell->text, sizeof cell->text);
    else
        snprintf(cell->text, sizeof cell->text, "%.0f", d);
}

void top_column_cell(const struct top_column *column, const struct top_row *row, int columns,
                     bool unicode, struct top_cell *ret)
{
    double figure = row->figure[column->figure];
    uint64_t count = column->key ? top_row_count(row, column->key) : 0;
    const char *state = top_row_text(row, "state");

    ret->text[0] = '\0';
    ret->look = LOOK_PLAIN;
    switch ((enum column_format)column->format) {
    case NAME:
        return columns_text(ret, row->loader, LOOK_STRONG);
    case JOB:
        return columns_text(ret, row->job, LOOK_PLAIN);
    case EPOCH:
        return columns_count(ret, row->epoch, LOOK_PLAIN);
    case NUMBER:
        return columns_count(ret, row->number, LOOK_PLAIN);
    case OF_WORLD:
        return columns_of(ret, (double)row->number, (double)row->world);
    case STATE:
        return columns_state(ret, state);
    case READY:
        return columns_text(ret, state, strcmp(state, "ready") == 0 ? LOOK_PLAIN : LOOK_WARN);
    case COUNT:
        return columns_count(ret, count, LOOK_PLAIN);
    case FAULTS:
        return columns_count(ret, count, LOOK_BAD);
    case SLIPS:
        return columns_count(ret, count, LOOK_WARN);
    case WHOLE:
        return columns_number(ret, WHOLE, value_real(value_get(row->view, column->key)));
    case RATE:
    case BYTES:
        return columns_number(ret, column->format, figure);
    case PERCENT:
        return columns_percent(ret, figure);
    case WAIT:
        return columns_wait(ret, figure);
    case WAIT_BAR:
        columns_wait(ret, figure);
        return top_bar(figure, columns, unicode, ret->text, sizeof ret->text);
    case LEFT:
        return columns_left(ret, figure);
    case RING:
        return top_ring_bar(&row->figure[TOP_LEASED], columns, unicode, ret->text,
                            sizeof ret->text);
    case STEP:
        return columns_of(ret, (double)top_row_count(row, "step"),
                          value_real(value_get(row->view, "steps")));
    case RANKS_OF:
        return columns_of(ret, row->figure[TOP_RANKS_HERE], (double)row->world);
    case STEPS_OF:
        return columns_of(ret, row->figure[TOP_DONE], row->figure[TOP_STEPS]);
    case DONE_BAR:
        ret->look = LOOK_GOOD;
        return top_bar(columns_done(row), columns, unicode, ret->text, sizeof ret->text);
    case DONE:
        return columns_percent(ret, floor(100 * columns_done(row)) / 100);
    case SAMPLES:
        return columns_samples(ret, top_row_text(row, "samples"));
    }
}

/* ---- for programs --------------------------------------------------------------------------- */

/* The figures by their keys, and the kinds of row that have them. */
static const struct {
    enum top_figure figure;
    const char *key;
    unsigned kinds;
    bool count;
} FIGURES[] = {
    {TOP_BATCHES_PER_S, "batches_per_s", 1 << TOP_LOADERS, false},
    {TOP_SAMPLES_PER_S, "samples_per_s", 1 << TOP_LOADERS | 1 << TOP_RANKS, false},
    {TOP_BYTES_PER_S, "delivered_bytes_per_s", 1 << TOP_LOADERS, false},
    {TOP_RANKS_HERE, "ranks", 1 << TOP_EPOCHS, true},
    {TOP_DONE, "done", 1 << TOP_EPOCHS, true},
    {TOP_STEPS, "steps", 1 << TOP_EPOCHS, true},
    {TOP_STEPS_PER_S, "steps_per_s", 1 << TOP_EPOCHS | 1 << TOP_RANKS, false},
    {TOP_TASKS_PER_S, "tasks_per_s", 1 << TOP_WORKERS, false},
    {TOP_WAIT, "wait", 1 << TOP_LOADERS | 1 << TOP_RANKS, false},
    {TOP_CPU, "cpu", 1 << TOP_LOADERS | 1 << TOP_WORKERS, false},
    {TOP_PADDING, "padding", 1 << TOP_LOADERS | 1 << TOP_RANKS, false},
    {TOP_MIX_OFF, "mix_off", 1 << TOP_LOADERS | 1 << TOP_RANKS, false},
    {TOP_LEFT_S, "left_s", 1 << TOP_EPOCHS | 1 << TOP_RANKS, false},
};

/* What an epoch has no view for. */
static void columns_put_epoch(const struct form *form, const struct top_row *epoch)
{
    form_text(form, "loader", epoch->loader);
    form_u64(form, "uid", epoch->uid);
    form_text(form, "job", epoch->job);
    form_u64(form, "epoch", epoch->epoch);
    form_u64(form, "world", epoch->world);
}

static void columns_put_ring(const struct form *form, const struct top_row *loader)
{
    static const char *const names[] = {"leased", "ready", "filling", "free"};
    const struct form ring = form_map(form, "ring");

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        form_u64(&ring, names[i], (uint64_t)loader->figure[TOP_LEASED + i]);
}

static void columns_put_row(const struct form *form, enum top_kind kind, const struct top_row *row)
{
    if (row->view && form->map)
        form_note(form, value_copy(row->view, form->map));
    else
        columns_put_epoch(form, row);
    for (size_t i = 0; i < ARRAY_SIZE(FIGURES); i++) {
        double d = row->figure[FIGURES[i].figure];

        if (!(FIGURES[i].kinds & 1U << kind))
            continue;
        if (FIGURES[i].count && d >= 0 && d < 0x1p63)
            form_u64(form, FIGURES[i].key, (uint64_t)d);
        else
            form_real(form, FIGURES[i].key, d);
    }
    if (kind == TOP_LOADERS)
        columns_put_ring(form, row);
}

int top_model_value(const struct top_model *m, const char *pick, struct value *ret)
{
    static const char *const keys[TOP_KINDS] = {"loaders", "epochs", "ranks", "workers"};
    _cleanup_(value_deinit)
    struct value map = {.type = VALUE_MAP};
    int error = 0;
    const struct form form = {.map = &map, .error = &error};
    struct value *daemon = form_null(&form, "daemon");

    if (daemon)
        form_note(&form, value_copy(&m->views[0], daemon));
    for (int kind = 0; kind < TOP_KINDS; kind++) {
        struct value *rows = form_array(&form, keys[kind]);

        for (uint32_t i = 0; i < m->rows[kind].n; i++) {
            const struct top_row *row = &m->rows[kind].list[i];

            if (pick && strcmp(row->loader, pick) != 0)
                continue;
            const struct form to = form_row(&form, rows);
            columns_put_row(&to, (enum top_kind)kind, row);
        }
    }
    if (error == 0)
        value_move(&map, ret);
    return error;
}
