/* Which rows and columns of the daemon's views people see: see shape.h. */
#include "client/dlctl/shape.h"

#include "client/dlctl/form.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* What of a view fits a screen, the columns by importance. */
static const struct shape {
    const char *view;
    struct table_style style;
} SHAPES[] = {
    {"status", {.keys = "loader uid", .below = "verdict"}},
    {"loaders",
     {.keys = "name uid state batches workers faults bad starved_by samples length dataset batch "
              "retries users memory_bytes starved_s cache_pictures cache_hits cache_misses "
              "cache_used_bytes cache_bytes tokens padding",
      .never = "mixture lengths padded",
      .below = "verdict"}},
    {"epochs",
     {.keys = "loader uid rank step steps progress left_s state epoch waits_for waited_s padding "
              "tokens_per_s ready leased pinned world waits_why companions samples job leftover "
              "before running "
              "age_s",
      .never = "padded overlong empty carried repeated buckets mixture"}},
    {"mixtures",
     {.keys = "loader uid rank child dataset by wanted share token_share samples tokens epoch due "
              "world job"}},
    {"workers",
     {.keys =
          "loader uid worker helper state pid samples_per_s step_share restarts cpu_s memory_bytes "
          "stuck received_bytes round_trip_s tasks step fetch_s collate_s remote_s slow_s "
          "cpu_wait_s busy_s queued way_s sent_bytes"}},
    {"ring",
     {.keys = "loader uid segment slots leased ready filling free memory_bytes state slot_bytes "
              "worker"}},
    {"users",
     {.keys = "uid sessions control_group loaders workers memory_bytes overhead_bytes descriptors "
              "epochs leases "
              "weight worlds threads waiting_jobs log_lines_left_out refused loop_s"}},
    {"quarantine",
     {.keys = "loader sample done seen rank worker world dataset", .below = "message"}},
    {"lately", {.keys = "loader uid rank wait_share ten_minutes waited_s read_s age_s world job"}},
    {"top",
     {.keys =
          "name uid samples_per_s wait lately left_s workers memory_bytes errors cpu batches_per_s "
          "progress delivered_bytes_per_s state",
      .below = "verdict"}},
    {"slowest",
     {.keys = "loader uid sample took_s name helper epoch together seen",
      .below = "why_not",
      .below_once = true}},
    {"times",
     {.keys = "loader uid stage rank mean_s python_s half_s p99_s batches total_s python_total_s"}},
};

/* ---- epochs --------------------------------------------------------------------------------- */

enum { BEFORE_TEXT_MAX = 4096 };

static bool shape_get_count(const struct value *row, const char *key, uint64_t *ret)
{
    const struct value *v = value_get(row, key);

    if (!v || (v->type != VALUE_UINT && (v->type != VALUE_INT || v->integer < 0)))
        return false;
    *ret = v->type == VALUE_UINT ? v->uinteger : (uint64_t)v->integer;
    return true;
}

/* "3 steps of 2 ranks, 4 steps of 3 ranks"; "-": there is no such list. */
static void shape_say_before(const struct value *v, char text[static BEFORE_TEXT_MAX])
{
    size_t at = 0;

    snprintf(text, BEFORE_TEXT_MAX, "-");
    for (uint32_t i = 0; i < v->count && at < BEFORE_TEXT_MAX; i++) {
        const struct value *entry = &v->items[i];
        uint64_t world, steps;

        if (entry->type != VALUE_MAP || !shape_get_count(entry, "world", &world) ||
            !shape_get_count(entry, "steps", &steps))
            continue;
        at += (size_t)snprintf(text + at, BEFORE_TEXT_MAX - at,
                               "%s%" PRIu64 " steps of %" PRIu64 " ranks", at ? ", " : "", steps,
                               world);
    }
}

/*
 * `before`, which other numbers of ranks have had a part of the epoch, becomes text, and where
 * there are tokens comes `padding`, a share.
 */
static int shape_change_epoch(struct value *row)
{
    const struct value *before = value_get(row, "before");
    int error = 0;
    const struct form form = {.map = row, .error = &error};
    char text[BEFORE_TEXT_MAX];
    uint64_t tokens, padded;

    if (before && before->type == VALUE_ARRAY) {
        shape_say_before(before, text);
        form_text(&form, "before", text);
    }
    if (shape_get_count(row, "tokens", &tokens) && shape_get_count(row, "padded", &padded))
        form_padding(&form, tokens, padded);
    return error;
}

/* ---- the last ten minutes -------------------------------------------------------------------- */

enum { LINE_BLOCKS = 30, TOP_BLOCKS = 12 };

/* The mean of those of `n` numbers that there are; NAN: none is. */
static double shape_mean(const struct value *numbers, uint32_t n)
{
    double sum = 0;
    uint32_t there = 0;

    for (uint32_t i = 0; i < n; i++) {
        there += numbers[i].type != VALUE_NULL;
        sum += numbers[i].type != VALUE_NULL ? value_real(&numbers[i]) : 0;
    }
    return there ? sum / there : NAN;
}

static double shape_most(const struct value *list)
{
    double most = 0;

    for (uint32_t i = 0; i < list->count; i++)
        most = fmax(most, value_real(&list->items[i]));
    return most;
}

/* At most so many blocks, each for as many numbers, and as high as these are of `most`. */
static void shape_draw_line(const struct value *list, double most, uint32_t blocks,
                            char text[static 3 * LINE_BLOCKS + 1])
{
    uint32_t count = (uint32_t)min_u64(list->count, 2 * LINE_BLOCKS);
    uint32_t each = (count + blocks - 1) / blocks, n;
    size_t at = 0;

    for (uint32_t i = 0; i < count; i += n) {
        n = (uint32_t)min_u64(each, count - i);
        double mean = shape_mean(&list->items[i], n);
        int eighths = most > 0 ? (int)(7 * fmin(1, fmax(0, mean / most))) : 0;

        if (isnan(mean))
            text[at++] = ' ';
        else
            at += (size_t)snprintf(text + at, 4, "\xe2\x96%c", (char)(0x81 + eighths));
    }
    text[at] = '\0';
}

/* The share of its time that a rank waited, and a line: of that, or of a loader's batches. */
static int shape_change_lately(struct value *row)
{
    const struct value *waits = value_get(row, "waits"), *batches = value_get(row, "batches");
    double read = value_real(value_get(row, "read_s"));
    double waited = value_real(value_get(row, "waited_s"));
    int error = 0;
    const struct form form = {.map = row, .error = &error};
    char line[3 * LINE_BLOCKS + 1] = "";

    if (waits && waits->type == VALUE_ARRAY) {
        shape_draw_line(waits, 100, LINE_BLOCKS, line);
        form_real(&form, "wait_share", read > 0 ? waited / read : 0);
    } else if (batches && batches->type == VALUE_ARRAY) {
        shape_draw_line(batches, shape_most(batches), LINE_BLOCKS, line);
        (void)form_null(&form, "wait_share");
    }
    form_text(&form, "ten_minutes", line);
    return error;
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* The user whose loader a row is about; NULL: it is about none, or does not say. */
static const struct value *shape_user_of(const struct value *row)
{
    return value_get(row, "loader") || value_get(row, "name") ? value_get(row, "uid") : NULL;
}

static void shape_drop(struct value *row, const struct value *dropped)
{
    uint32_t at = (uint32_t)(dropped - row->items), left = --row->count - at;

    value_deinit(&row->items[at]);
    memmove(&row->items[at], &row->items[at + 1], left * sizeof *row->items);
    row->items[row->count] = (struct value){0};
}

/* A table need not say whose loaders they are that are all of one user. */
static void shape_drop_only_user(struct value *view)
{
    uint32_t n = view->type == VALUE_ARRAY ? view->count : 0;

    for (uint32_t i = 0; i < n; i++) {
        const struct value *first = shape_user_of(&view->items[0]),
                           *user = shape_user_of(&view->items[i]);

        if (!first || !user || !value_equal(first, user))
            return;
    }
    for (uint32_t i = 0; i < n; i++)
        shape_drop(&view->items[i], shape_user_of(&view->items[i]));
}

/* Whether nobody reads what the row is about: a loader, or a rank's epoch. */
static bool shape_is_idle(const struct value *row)
{
    static const char *const states[] = {"finished", "stopped", "parked", "expected"};
    const struct value *verdict = value_get(row, "verdict"), *state = value_get(row, "state");

    if (verdict)
        return verdict->type == VALUE_STRING && strncmp(verdict->string, "idle", 4) == 0;
    for (size_t i = 0; state && state->type == VALUE_STRING && i < ARRAY_SIZE(states); i++)
        if (strcmp(state->string, states[i]) == 0)
            return true;
    return false;
}

static bool shape_says_same(const struct value *a, const struct value *b, const char *key)
{
    const struct value *one = value_get(a, key), *other = value_get(b, key);

    return one && other ? value_equal(one, other) : !one && !other;
}

/* Of `times`: a rank's rows say the same as those of all ranks where it is the only one. */
static bool shape_is_only_rank(const struct value *rows, const struct value *row)
{
    const struct value *rank = value_get(row, "rank");

    for (uint32_t i = 0; i < rows->count; i++) {
        const struct value *other = value_get(&rows->items[i], "rank");

        if (shape_says_same(row, &rows->items[i], "loader") &&
            shape_says_same(row, &rows->items[i], "uid") && other && other->type != VALUE_NULL &&
            !value_equal(rank, other))
            return false;
    }
    return true;
}

static void shape_drop_only_rank(struct value *rows)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < rows->count; i++) {
        const struct value *rank = value_get(&rows->items[i], "rank");

        if (rank && rank->type != VALUE_NULL && shape_is_only_rank(rows, &rows->items[i]))
            continue;
        /* Those that are left out stand behind the others: they are still looked at. */
        struct value row = rows->items[n];
        rows->items[n++] = rows->items[i];
        if (n <= i)
            rows->items[i] = row;
    }
    while (rows->count > n)
        value_deinit(&rows->items[--rows->count]);
}

/* What is in progress comes first; else rows stay as they are. */
static int shape_put_idle_last(struct value *rows)
{
    _cleanup_(value_deinit) struct value sorted = {.type = VALUE_ARRAY};

    for (int idle = 0; idle <= 1; idle++) {
        for (uint32_t i = 0; i < rows->count; i++) {
            struct value *row = &rows->items[i], *to;

            if (row->type == VALUE_NULL || shape_is_idle(row) != idle)
                continue;
            if (value_push(&sorted, &to) < 0)
                return -ENOMEM;
            value_move(row, to);
        }
    }
    value_move(&sorted, rows);
    return 0;
}

/* Of a loader in `top`: a line of its batches, without the ten seconds that are not over yet. */
static int shape_change_top(struct value *row)
{
    const struct value *lately = value_get(row, "lately");
    int error = 0;
    const struct form form = {.map = row, .error = &error};
    char line[3 * LINE_BLOCKS + 1] = "";

    if (lately && lately->type == VALUE_ARRAY) {
        struct value whole = *lately; /* borrows its items */

        whole.count -= whole.count > 1;
        shape_draw_line(&whole, shape_most(&whole), TOP_BLOCKS, line);
    }
    form_text(&form, "lately", line);
    if (shape_is_idle(row)) /* its figures say so */
        (void)form_null(&form, "verdict");
    return error;
}

static const struct {
    const char *view;
    int (*change)(struct value *row);
} CHANGES[] = {{"epochs", shape_change_epoch},
               {"loaders", shape_change_epoch},
               {"lately", shape_change_lately},
               {"top", shape_change_top}};

int shape_view(const char *name, struct value *view, struct table_style *ret_style)
{
    struct value *rows = view;
    int r = 0;

    *ret_style = (struct table_style){0};
    for (size_t i = 0; i < ARRAY_SIZE(SHAPES); i++)
        if (strcmp(SHAPES[i].view, name) == 0)
            *ret_style = SHAPES[i].style;
    for (uint32_t i = 0; view->type == VALUE_MAP && i < view->count; i++)
        if (strcmp(view->items[i].key, "verdicts") == 0)
            rows = &view->items[i];
    if (rows->type != VALUE_ARRAY)
        return 0;
    if (strcmp(name, "times") == 0)
        shape_drop_only_rank(rows);
    shape_drop_only_user(rows);
    r = shape_put_idle_last(rows);
    for (size_t c = 0; c < ARRAY_SIZE(CHANGES); c++)
        for (uint32_t i = 0; strcmp(name, CHANGES[c].view) == 0 && i < rows->count && r == 0; i++)
            if (rows->items[i].type == VALUE_MAP)
                r = CHANGES[c].change(&rows->items[i]);
    return r;
}
