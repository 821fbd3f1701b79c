/* Values as text and as JSON: see render.h. */
#include "client/dlctl/render.h"

#include "client/dlctl/text.h"
#include "proto/common/utf8.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>

enum { RENDER_INDENT = 2 };

static bool render_ends_in(const char *key, const char *tail)
{
    size_t len = key ? strlen(key) : 0, n = strlen(tail);

    return len >= n && strcmp(key + len - n, tail) == 0;
}

static double render_as_double(const struct value *v)
{
    return v->type == VALUE_INT    ? (double)v->integer
           : v->type == VALUE_UINT ? (double)v->uinteger
                                   : v->number;
}

/* Writes a number in the unit its key names; false when the key names none. */
static bool render_put_unit(FILE *file, const char *key, const struct value *v)
{
    static const struct {
        const char *tail;
        void (*format)(double, char *, size_t);
    } units[] = {
        {"bytes_per_s", format_bytes}, {"_per_s", format_count},    {"bytes", format_bytes},
        {"_s", format_seconds},        {"padding", format_percent}, {"fill", format_percent},
        {"share", format_percent},     {"wanted", format_percent},  {"progress", format_percent},
        {"wait", format_percent},      {"cpu", format_percent},
    };
    char text[UNITS_MAX];
    double d = render_as_double(v);

    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (!render_ends_in(key, units[i].tail))
            continue;
        units[i].format(d, text, sizeof text);
        fputs(text, file);
        return true;
    }
    return false;
}

/*
 * The key without what the value says by itself: "used_bytes" is "used", "batches_per_s" is
 * "batches/s".
 */
void render_title(FILE *file, const char *key)
{
    static const struct {
        const char *tail, *instead;
    } units[] = {{"_bytes_per_s", "/s"}, {"_per_s", "/s"}, {"_bytes", ""}, {"_s", ""}};
    size_t len = strlen(key);
    const char *behind = "";

    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (!render_ends_in(key, units[i].tail) || strcmp(key, units[i].tail) == 0)
            continue;
        len -= strlen(units[i].tail);
        behind = units[i].instead;
        break;
    }
    for (size_t i = 0; i < len; i++) {
        const char c[] = {key[i] == '_' ? ' ' : key[i], '\0'};
        text_put(file, c);
    }
    fputs(behind, file);
}

void render_inline(FILE *file, const char *key, const struct value *v)
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
        if (!render_put_unit(file, key, v))
            fprintf(file, "%" PRId64, v->integer);
        return;
    case VALUE_UINT:
        if (!render_put_unit(file, key, v))
            fprintf(file, "%" PRIu64, v->uinteger);
        return;
    case VALUE_FLOAT:
        if (!render_put_unit(file, key, v))
            fprintf(file, "%.6g", v->number);
        return;
    case VALUE_ARRAY:
    case VALUE_MAP:
        for (uint32_t i = 0; i < v->count; i++) {
            fputs(i ? ", " : "", file);
            if (v->type == VALUE_MAP) {
                render_title(file, v->items[i].key);
                fputc('=', file);
            }
            render_inline(file, v->type == VALUE_MAP ? v->items[i].key : key, &v->items[i]);
        }
        if (v->count == 0)
            fputc('-', file);
        return;
    }
}

static int render_map(FILE *file, const struct value *map, const struct table_style *style,
                      int indent)
{
    int r = 0;

    for (uint32_t i = 0; i < map->count && r == 0; i++) {
        const struct value *v = &map->items[i];

        fprintf(file, "%*s", indent, "");
        render_title(file, v->key);
        fputc(':', file);
        if (v->type == VALUE_MAP && v->count) {
            fputc('\n', file);
            r = render_map(file, v, style, indent + RENDER_INDENT);
        } else if (table_fits(v)) {
            fputc('\n', file);
            r = table_print(file, v, style, indent + RENDER_INDENT);
        } else {
            fputc(' ', file);
            render_inline(file, v->key, v);
            fputc('\n', file);
        }
    }
    return r;
}

int render_view(FILE *file, const struct value *view, const char *name,
                const struct table_style *style)
{
    static const struct table_style usual = {.width = TEXT_WIDTH};

    if (!style)
        style = &usual;
    if (view->count == 0 && (view->type == VALUE_ARRAY || view->type == VALUE_MAP)) {
        fprintf(file, "no %s\n", name);
        return 0;
    }
    if (table_fits(view))
        return table_print(file, view, style, 0);
    if (view->type == VALUE_MAP)
        return render_map(file, view, style, 0);
    render_inline(file, NULL, view);
    fputc('\n', file);
    return 0;
}

/* One character as it is shown, into `out`; returns the bytes of `in` that it took. */
static size_t render_quote_char(const uint8_t *in, size_t len, char out[8])
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
        size_t took = render_quote_char(in + done, len - done, shown), n = strlen(shown);

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
static int render_object_set(json_t *object, const char *key, json_t *child)
{
    json_t *text = render_json_text(key);
    int r = json_object_set_new(object, text ? json_string_value(text) : NULL, child);

    json_decref(text);
    return r;
}

static json_t *render_json_container(const struct value *v)
{
    json_t *json = v->type == VALUE_MAP ? json_object() : json_array();

    for (uint32_t i = 0; i < v->count && json; i++) {
        json_t *child = render_json(&v->items[i]);
        int r = v->type == VALUE_MAP ? render_object_set(json, v->items[i].key, child)
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
        return render_json_container(v);
    }
    return NULL;
}
