/*
 * A map-style dataset: the rows of a CSV file, as RFC 4180 has them, quotes and all.
 *
 *   dataset: {kind: plugin, path: /.../csv.so, config: {path: /.../table.csv, separator: ";"}}
 *
 * The first line names the columns. A sample is a dict of a row's cells: a column whose first cell
 * is a number holds numbers (float64; an empty cell is NaN), another one text.
 *
 *   cc -O2 -shared -fPIC csv.c $(pkg-config --cflags --libs dloader-plugin jansson) -o csv.so
 */
#include <dloader-plugin.h>
#include <jansson.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_MAX = 63, NAME_MAX_BYTES = 128 };

struct column {
    char *name; /* owned */
    int text;
};

struct csv {
    const struct dl_plugin_host *host;
    const char *data; /* the file; mapped by the host */
    const char *end;
    char separator;
    struct column *columns; /* owned */
    size_t n_columns;
    uint64_t *rows; /* owned; where each begins, from the start of the file */
    uint64_t n_rows;
};

/* ---- cells and lines ------------------------------------------------------------------------ */

struct cell {
    const char *text; /* without the quotes around it */
    size_t len;
    int doubled; /* it has quotes inside, written twice */
    int last;    /* of its line */
};

/* Reads the cell at `at`; returns where the next one begins, or NULL if its quotes never end. */
static const char *read_cell(const struct csv *csv, const char *at, struct cell *ret)
{
    int quoted = at < csv->end && *at == '"';

    *ret = (struct cell){.text = at + quoted};
    for (at += quoted; at < csv->end; at++) {
        if (quoted && *at == '"') {
            if (at + 1 == csv->end || at[1] != '"')
                break;
            ret->doubled = 1;
            at++;
        } else if (!quoted && (*at == csv->separator || *at == '\n')) {
            break;
        }
    }
    if (quoted && at == csv->end)
        return NULL;
    ret->len = (size_t)(at - ret->text);
    at += quoted;
    ret->last = at >= csv->end || *at != csv->separator;
    if (!quoted && ret->last && ret->len > 0 && ret->text[ret->len - 1] == '\r')
        ret->len--;
    if (quoted && ret->last && at < csv->end && *at == '\r')
        at++;
    if (at < csv->end && *at != csv->separator && *at != '\n')
        return NULL; /* something stands behind the closing quote */
    return at < csv->end ? at + 1 : at;
}

/* Copies a cell's text, doubled quotes made single, to `out`, which has room; its length. */
static size_t copy_text(const struct cell *cell, char *out)
{
    size_t len = 0;

    for (size_t i = 0; i < cell->len; i++) {
        out[len++] = cell->text[i];
        i += cell->doubled && cell->text[i] == '"';
    }
    return len;
}

/* The text of a cell: in place, or, where quotes are doubled, in memory of the sample. */
static const char *cell_text(const struct csv *csv, const struct cell *cell,
                             struct dl_plugin_sample *sample, size_t *ret_len)
{
    if (!cell->doubled) {
        *ret_len = cell->len;
        return cell->text;
    }
    char *out = csv->host->alloc(sample, cell->len);
    *ret_len = out ? copy_text(cell, out) : 0;
    return out;
}

/* 0 and *ret; an empty cell is NaN. -1: it is no number. */
static int cell_number(const struct cell *cell, double *ret)
{
    char text[NUMBER_MAX + 1];
    char *end;

    if (cell->len > NUMBER_MAX)
        return -1;
    memcpy(text, cell->text, cell->len);
    text[cell->len] = '\0';
    *ret = cell->len > 0 ? strtod(text, &end) : NAN;
    return cell->len > 0 && (end == text || *end != '\0') ? -1 : 0;
}

static unsigned long long line_of(const struct csv *csv, const char *at)
{
    unsigned long long line = 1;

    for (const char *c = csv->data; c < at; c++)
        line += *c == '\n';
    return line;
}

/* ---- samples -------------------------------------------------------------------------------- */

static int add_cell(const struct csv *csv, const struct column *column, const struct cell *cell,
                    struct dl_plugin_sample *sample)
{
    const struct dl_plugin_host *host = csv->host;
    double number;
    size_t len;

    if (column->text) {
        const char *text = cell_text(csv, cell, sample, &len);
        return host->string(sample, column->name, text, len);
    }
    if (cell_number(cell, &number) < 0)
        return host->fail(host, EINVAL, "line %llu: \"%.*s\" in column %s is not a number",
                          line_of(csv, cell->text), (int)(cell->len < 40 ? cell->len : 40),
                          cell->text, column->name);
    return host->real(sample, column->name, number);
}

static int csv_get(void *handle, uint64_t index, struct dl_plugin_sample *sample,
                   struct dl_plugin_rng *rng)
{
    const struct csv *csv = handle;
    const struct dl_plugin_host *host = csv->host;
    const char *begin = csv->data + csv->rows[index], *at = begin;
    struct cell cell = {0};
    int r;

    (void)rng; /* a row is what it is */
    host->begin(sample, DL_PLUGIN_DICT, NULL);
    for (size_t i = 0; i < csv->n_columns; i++) {
        at = cell.last ? NULL : read_cell(csv, at, &cell);
        if (!at)
            return host->fail(host, EINVAL, "line %llu has %zu cells, and the first line %zu",
                              line_of(csv, begin), i, csv->n_columns);
        r = add_cell(csv, &csv->columns[i], &cell, sample);
        if (r < 0)
            return r;
    }
    if (!cell.last)
        return host->fail(host, EINVAL, "line %llu has more cells than the first line: %zu",
                          line_of(csv, begin), csv->n_columns);
    return host->end(sample);
}

static int csv_length(void *handle, uint64_t *ret)
{
    const struct csv *csv = handle;

    *ret = csv->n_rows;
    return 0;
}

/* ---- opening -------------------------------------------------------------------------------- */

static void csv_close(void *handle)
{
    struct csv *csv = handle;

    for (size_t i = 0; i < csv->n_columns; i++)
        free(csv->columns[i].name);
    free(csv->columns);
    free(csv->rows);
    free(csv);
}

static int add_column(struct csv *csv, const struct cell *cell)
{
    const struct dl_plugin_host *host = csv->host;
    struct column *bigger = realloc(csv->columns, (csv->n_columns + 1) * sizeof *bigger);

    if (!bigger)
        return host->fail(host, ENOMEM, "out of memory");
    csv->columns = bigger;
    if (cell->len == 0 || cell->len > NAME_MAX_BYTES)
        return host->fail(host, EINVAL, "column %zu has a name of %zu bytes; 1 to %d are possible",
                          csv->n_columns + 1, cell->len, NAME_MAX_BYTES);
    bigger[csv->n_columns] = (struct column){.name = calloc(1, cell->len + 1)};
    if (!bigger[csv->n_columns].name)
        return host->fail(host, ENOMEM, "out of memory");
    copy_text(cell, bigger[csv->n_columns++].name);
    return 0;
}

/* The names; returns where the first row begins, or NULL. */
static const char *read_names(struct csv *csv)
{
    const char *at = csv->data;
    struct cell cell = {0};

    while (!cell.last) {
        at = read_cell(csv, at, &cell);
        if (!at)
            csv->host->fail(csv->host, EINVAL, "line 1: the quotes of a cell do not end with it");
        if (!at || add_column(csv, &cell) < 0)
            return NULL;
    }
    return at;
}

/* Where the rows begin. A line with nothing in it is none. */
static int index_rows(struct csv *csv, const char *at)
{
    uint64_t room = 0;

    while (at < csv->end) {
        const char *begin = at;
        struct cell cell = {0};
        while (!cell.last) {
            at = read_cell(csv, at, &cell);
            if (!at)
                return csv->host->fail(csv->host, EINVAL,
                                       "line %llu: the quotes of a cell do not end with it",
                                       line_of(csv, begin));
        }
        if (cell.text == begin && cell.len == 0)
            continue;
        if (csv->n_rows == room) {
            room = room ? 2 * room : 1024;
            uint64_t *bigger = realloc(csv->rows, room * sizeof *bigger);
            if (!bigger)
                return csv->host->fail(csv->host, ENOMEM, "out of memory");
            csv->rows = bigger;
        }
        csv->rows[csv->n_rows++] = (uint64_t)(begin - csv->data);
    }
    return 0;
}

/* Numbers or text, by the first row. */
static void judge_columns(struct csv *csv)
{
    const char *at = csv->n_rows > 0 ? csv->data + csv->rows[0] : NULL;
    struct cell cell = {0};
    double number;

    for (size_t i = 0; at && !cell.last && i < csv->n_columns; i++) {
        at = read_cell(csv, at, &cell);
        csv->columns[i].text = at && cell_number(&cell, &number) < 0;
    }
}

static int read_config(struct csv *csv, const char *config, const char **ret_path, json_t **ret)
{
    const char *separator = ",";

    *ret = json_loads(config, 0, NULL);
    if (!*ret || json_unpack(*ret, "{s:s, s?s}", "path", ret_path, "separator", &separator) < 0)
        return csv->host->fail(csv->host, EINVAL,
                               "config is not {path: text, separator: character}: %.200s", config);
    if (strlen(separator) != 1 || strchr("\"\r\n", *separator))
        return csv->host->fail(csv->host, EINVAL, "\"%.40s\" cannot separate cells", separator);
    csv->separator = *separator;
    return 0;
}

static int csv_open(const struct dl_plugin_host *host, const char *config, void **ret)
{
    struct csv *csv = calloc(1, sizeof *csv);
    const char *path, *rows = NULL;
    const void *data;
    json_t *json = NULL;
    uint64_t bytes;
    int r;

    if (!csv)
        return host->fail(host, ENOMEM, "out of memory");
    csv->host = host;
    r = read_config(csv, config, &path, &json);
    if (r == 0)
        r = host->map(host, path, &data, &bytes);
    if (r == 0) {
        csv->data = data;
        csv->end = csv->data + bytes;
        rows = read_names(csv);
        r = rows ? index_rows(csv, rows) : -EINVAL;
    }
    json_decref(json);
    if (r < 0) {
        csv_close(csv);
        return r;
    }
    judge_columns(csv);
    *ret = csv;
    return 0;
}

static const struct dl_plugin csv_plugin = {
    .abi = DL_PLUGIN_ABI,
    .size = sizeof csv_plugin,
    .open = csv_open,
    .close = csv_close,
    .length = csv_length,
    .get = csv_get,
};

const struct dl_plugin *dl_plugin_entry(void)
{
    return &csv_plugin;
}
