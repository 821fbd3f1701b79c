/* Values as text and as JSON: see render.h. */
#include "client/dlctl/render.h"

#include "client/dlctl/text.h"
#include "client/dlctl/units.h"
#include "proto/utf8.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>

enum { INDENT = 2, COLUMN_GAP = 2 };

static bool ends_in(const char *key, const char *tail)
{
    size_t len = key ? strlen(key) : 0, n = strlen(tail);

    return len >= n && strcmp(key + len - n, tail) == 0;
}

static bool is_number(const struct value *v)
{
    return v->type == VALUE_INT || v->type == VALUE_UINT || v->type == VALUE_FLOAT;
}

static double as_double(const struct value *v)
{
    return v->type == VALUE_INT    ? (double)v->integer
           : v->type == VALUE_UINT ? (double)v->uinteger
                                   : v->number;
}

/* Writes a number in the unit its key names; false when the key names none. */
static bool put_unit(FILE *file, const char *key, const struct value *v)
{
    char text[UNITS_MAX];
    double d = as_double(v);

    if (ends_in(key, "bytes_per_s")) {
        format_bytes(d, text, sizeof text);
        fprintf(file, "%s/s", text);
    } else if (ends_in(key, "_per_s")) {
        format_count(d, text, sizeof text);
        fprintf(file, "%s/s", text);
    } else if (ends_in(key, "_bytes") || (key && strcmp(key, "bytes") == 0)) {
        format_bytes(d, text, sizeof text);
        fputs(text, file);
    } else if (ends_in(key, "_s")) {
        format_seconds(d, text, sizeof text);
        fputs(text, file);
    } else if (ends_in(key, "padding") || ends_in(key, "fill")) {
        fprintf(file, "%.2f%%", 100 * d);
    } else {
        return false;
    }
    return true;
}

/* One value on one line; containers in a compact form. */
static void put_inline(FILE *file, const char *key, const struct value *v)
{
    switch (v->type) {
    case VALUE_NULL:
        fputc('-', file);
        return;
    case VALUE_BOOL:
        fputs(v->boolean ? "yes" : "no", file);
        return;
    case VALUE_STRING:
        text_put(file, v->string);
        return;
    case VALUE_INT:
        if (!put_unit(file, key, v))
            fprintf(file, "%" PRId64, v->integer);
        return;
    case VALUE_UINT:
        if (!put_unit(file, key, v))
            fprintf(file, "%" PRIu64, v->uinteger);
        return;
    case VALUE_FLOAT:
        if (!put_unit(file, key, v))
            fprintf(file, "%.6g", v->number);
        return;
    case VALUE_ARRAY:
    case VALUE_MAP:
        for (uint32_t i = 0; i < v->count; i++) {
            fputs(i ? ", " : "", file);
            if (v->type == VALUE_MAP) {
                text_put(file, v->items[i].key);
                fputc('=', file);
            }
            put_inline(file, v->type == VALUE_MAP ? v->items[i].key : key, &v->items[i]);
        }
        if (v->count == 0)
            fputc('-', file);
        return;
    }
}

struct column {
    const char *key; /* borrowed from the view */
    size_t width;
    bool right; /* only numbers and nulls in it */
};

struct table {
    struct column *columns; /* owned */
    uint32_t n_columns;
    uint32_t n_rows;
    char **cells; /* owned; row by row, the headers first */
};

static void table_deinit(struct table *t)
{
    uint64_t n = t->cells ? ((uint64_t)t->n_rows + 1) * t->n_columns : 0;

    for (uint64_t i = 0; i < n; i++)
        free(t->cells[i]);
    free(t->cells);
    free(t->columns);
}

/* Every key of every row, in the order of first appearance. */
static int table_find_columns(struct table *t, const struct value *rows)
{
    for (uint32_t r = 0; r < rows->count; r++) {
        const struct value *row = &rows->items[r];
        for (uint32_t i = 0; i < row->count; i++) {
            uint32_t c = 0;
            while (c < t->n_columns && strcmp(t->columns[c].key, row->items[i].key) != 0)
                c++;
            if (c < t->n_columns)
                continue;
            struct column *more = realloc(t->columns, (c + 1) * sizeof *more);
            if (!more)
                return -ENOMEM;
            t->columns = more;
            t->columns[t->n_columns++] = (struct column){.key = row->items[i].key, .right = true};
        }
    }
    return 0;
}

static char *header_text(const char *key)
{
    char *text = strdup(key);

    for (char *p = text; p && *p; p++)
        *p = *p == '_' ? ' ' : *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p;
    return text;
}

static char *cell_text(const char *key, const struct value *v)
{
    char *text = NULL;
    size_t len;
    FILE *file = open_memstream(&text, &len);

    if (!file)
        return NULL;
    if (v)
        put_inline(file, key, v);
    else
        fputc('-', file);
    if (fclose(file) == EOF) {
        free(text);
        return NULL;
    }
    return text;
}

static int table_fill(struct table *t, const struct value *rows)
{
    assert(t->n_columns > 0); /* is_table() refuses empty rows */
    t->cells = calloc(((uint64_t)t->n_rows + 1) * t->n_columns, sizeof *t->cells);
    if (!t->cells)
        return -ENOMEM;
    for (uint32_t r = 0; r <= t->n_rows; r++) {
        for (uint32_t c = 0; c < t->n_columns; c++) {
            struct column *col = &t->columns[c];
            const struct value *v = r ? value_get(&rows->items[r - 1], col->key) : NULL;
            char *text = r ? cell_text(col->key, v) : header_text(col->key);
            if (!text)
                return -ENOMEM;
            t->cells[(uint64_t)r * t->n_columns + c] = text;
            col->width = max_u64(col->width, text_columns(text));
            if (v && v->type != VALUE_NULL && !is_number(v))
                col->right = false;
        }
    }
    return 0;
}

static void table_print(FILE *file, const struct table *t, int indent)
{
    for (uint32_t r = 0; r <= t->n_rows; r++) {
        fprintf(file, "%*s", indent, "");
        for (uint32_t c = 0; c < t->n_columns; c++) {
            const struct column *col = &t->columns[c];
            const char *text = t->cells[(uint64_t)r * t->n_columns + c];
            int pad = (int)(col->width - text_columns(text));
            bool last = c + 1 == t->n_columns;

            fprintf(file, "%*s", col->right ? pad : 0, "");
            text_put(file, text);
            fprintf(file, "%*s", last ? 0 : (col->right ? 0 : pad) + COLUMN_GAP, "");
        }
        fputc('\n', file);
    }
}

static bool is_table(const struct value *v)
{
    if (v->type != VALUE_ARRAY || v->count == 0)
        return false;
    for (uint32_t i = 0; i < v->count; i++)
        if (v->items[i].type != VALUE_MAP || v->items[i].count == 0)
            return false;
    return true;
}

static int render_table(FILE *file, const struct value *rows, int indent)
{
    _cleanup_(table_deinit)
    struct table t = {.n_rows = rows->count};
    int r = table_find_columns(&t, rows);

    if (r == 0)
        r = table_fill(&t, rows);
    if (r == 0)
        table_print(file, &t, indent);
    return r;
}

static int render_map(FILE *file, const struct value *map, int indent)
{
    int r = 0;

    for (uint32_t i = 0; i < map->count && r == 0; i++) {
        const struct value *v = &map->items[i];

        fprintf(file, "%*s", indent, "");
        text_put(file, v->key);
        fputc(':', file);
        if (v->type == VALUE_MAP && v->count) {
            fputc('\n', file);
            r = render_map(file, v, indent + INDENT);
        } else if (is_table(v)) {
            fputc('\n', file);
            r = render_table(file, v, indent + INDENT);
        } else {
            fputc(' ', file);
            put_inline(file, v->key, v);
            fputc('\n', file);
        }
    }
    return r;
}

int render_view(FILE *file, const struct value *view, const char *name)
{
    if (view->count == 0 && (view->type == VALUE_ARRAY || view->type == VALUE_MAP)) {
        fprintf(file, "no %s\n", name);
        return 0;
    }
    if (is_table(view))
        return render_table(file, view, 0);
    if (view->type == VALUE_MAP)
        return render_map(file, view, 0);
    put_inline(file, NULL, view);
    fputc('\n', file);
    return 0;
}

/* One character as it is shown, into `out`; returns the bytes of `in` that it took. */
static size_t quote_char(const uint8_t *in, size_t len, char out[8])
{
    static const char letters[] = "\nn\tt\rr\"\"\\\\";
    size_t n = utf8_char(in, len);

    for (size_t i = 0; i + 1 < sizeof letters; i += 2) {
        if (*in == (uint8_t)letters[i]) {
            snprintf(out, 8, "\\%c", letters[i + 1]);
            return 1;
        }
    }
    /* C0, DEL, and C1, which in UTF-8 is C2 80..9F: all that a terminal would obey. */
    if (n == 0 || *in < 0x20 || *in == 0x7f || (n == 2 && *in == 0xc2 && in[1] < 0xa0)) {
        snprintf(out, 8, "\\x%02x", *in);
        return 1;
    }
    memcpy(out, in, n);
    out[n] = '\0';
    return n;
}

void render_quoted(const char *text, size_t len, char *buf, size_t size)
{
    static const char end[] = "\"...";
    const uint8_t *in = (const uint8_t *)text;
    size_t at = 1, done = 0;

    assert(size >= RENDER_QUOTED_MIN);
    buf[0] = '"';
    while (done < len) {
        char shown[8];
        size_t took = quote_char(in + done, len - done, shown), n = strlen(shown);

        if (at + n + sizeof end > size)
            break;
        at += (size_t)snprintf(buf + at, size - at, "%s", shown);
        done += took;
    }
    snprintf(buf + at, size - at, "%.*s", done < len ? 4 : 1, end);
}

json_t *render_json_u64(uint64_t n)
{
    char text[UNITS_MAX];

    if (n <= INT64_MAX)
        return json_integer((json_int_t)n);
    snprintf(text, sizeof text, "%" PRIu64, n);
    return json_string(text);
}

json_t *render_json_real(double d)
{
    return isfinite(d) ? json_real(d) : json_null();
}

json_t *render_json_text(const char *text)
{
    json_t *json = json_string(text);
    _cleanup_free_ char *copy = NULL;

    if (json)
        return json;
    copy = strdup(text);
    for (char *p = copy; p && *p; p++)
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    return copy ? json_string(copy) : NULL;
}

/* Consumes `child`, which may be NULL; the key may be no UTF-8. Returns -1 on failure. */
static int object_set(json_t *object, const char *key, json_t *child)
{
    json_t *text = render_json_text(key);
    int r = json_object_set_new(object, text ? json_string_value(text) : NULL, child);

    json_decref(text);
    return r;
}

static json_t *json_container(const struct value *v)
{
    json_t *json = v->type == VALUE_MAP ? json_object() : json_array();

    for (uint32_t i = 0; i < v->count && json; i++) {
        json_t *child = render_json(&v->items[i]);
        int r = v->type == VALUE_MAP ? object_set(json, v->items[i].key, child)
                                     : json_array_append_new(json, child);
        if (r < 0) {
            json_decref(json);
            json = NULL;
        }
    }
    return json;
}

json_t *render_json(const struct value *v)
{
    switch (v->type) {
    case VALUE_NULL:
        return json_null();
    case VALUE_BOOL:
        return json_boolean(v->boolean);
    case VALUE_INT:
        return json_integer(v->integer);
    case VALUE_UINT:
        return render_json_u64(v->uinteger);
    case VALUE_FLOAT:
        return render_json_real(v->number);
    case VALUE_STRING:
        return render_json_text(v->string);
    case VALUE_ARRAY:
    case VALUE_MAP:
        return json_container(v);
    }
    return NULL;
}
