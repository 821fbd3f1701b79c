#include "proto/shared/value_json.h"

#include "proto/common/utf8.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { JSON_NUMBER_MAX = 32, ESCAPE_MAX = 8 };

static int value_json_put(struct dl_buffer *out, const char *text)
{
    return buffer_append(out, text, strlen(text));
}

/* What stands for one byte that cannot stand for itself; NULL: it can. */
static const char *value_json_escape(uint8_t c, bool utf8, char buf[static ESCAPE_MAX])
{
    if (c == '"')
        return "\\\"";
    if (c == '\\')
        return "\\\\";
    if (c == '\n')
        return "\\n";
    if (c >= 0x80 && !utf8)
        return "?";
    if (c >= 0x20 && c != 0x7F)
        return NULL;
    (void)snprintf(buf, ESCAPE_MAX, "\\u%04x", c);
    return buf;
}

static int value_json_text(const char *text, struct dl_buffer *out)
{
    size_t len = strlen(text), done = 0;
    bool utf8 = utf8_text((const uint8_t *)text, len);
    char buf[ESCAPE_MAX];
    int r = value_json_put(out, "\"");

    for (size_t i = 0; i < len && r == 0; i++) {
        const char *escape = value_json_escape((uint8_t)text[i], utf8, buf);

        if (!escape)
            continue;
        r = buffer_append(out, text + done, i - done);
        if (r == 0)
            r = value_json_put(out, escape);
        done = i + 1;
    }
    if (r == 0)
        r = buffer_append(out, text + done, len - done);
    return r < 0 ? r : value_json_put(out, "\"");
}

static int value_json_real(double d, struct dl_buffer *out)
{
    char text[JSON_NUMBER_MAX];

    if (!isfinite(d))
        return value_json_put(out, "null");
    (void)snprintf(text, sizeof text, "%.15g", d);
    return value_json_put(out, text);
}

static int value_json_integer(const struct value *v, struct dl_buffer *out)
{
    char text[JSON_NUMBER_MAX];

    if (v->type == VALUE_INT)
        (void)snprintf(text, sizeof text, "%" PRId64, v->integer);
    else
        (void)snprintf(text, sizeof text, v->uinteger > INT64_MAX ? "\"%" PRIu64 "\"" : "%" PRIu64,
                       v->uinteger);
    return value_json_put(out, text);
}

static int value_json_container(const struct value *v, struct dl_buffer *out)
{
    bool map = v->type == VALUE_MAP;
    int r = value_json_put(out, map ? "{" : "[");

    for (uint32_t i = 0; i < v->count && r == 0; i++) {
        if (i)
            r = value_json_put(out, ",");
        if (r == 0 && map)
            r = value_json_text(v->items[i].key, out);
        if (r == 0 && map)
            r = value_json_put(out, ":");
        if (r == 0)
            r = value_json_write(&v->items[i], out);
    }
    return r < 0 ? r : value_json_put(out, map ? "}" : "]");
}

int value_json_write(const struct value *v, struct dl_buffer *out)
{
    switch (v->type) {
    case VALUE_NULL:
        return value_json_put(out, "null");
    case VALUE_BOOL:
        return value_json_put(out, v->boolean ? "true" : "false");
    case VALUE_INT:
    case VALUE_UINT:
        return value_json_integer(v, out);
    case VALUE_FLOAT:
        return value_json_real(v->number, out);
    case VALUE_STRING:
        return value_json_text(v->string, out);
    case VALUE_ARRAY:
    case VALUE_MAP:
        return value_json_container(v, out);
    }
    return 0;
}
