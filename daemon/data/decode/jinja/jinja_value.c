#include "daemon/data/decode/jinja/jinja_tree.h"

#include "proto/common/utf8.h"

#include <math.h>
#include <stdio.h>

/* Levels of lists and dicts in each other that are compared and written. */
enum { JINJA_LEVELS_MAX = 64 };

/* Neither made nor freed: its count of references says that it is never freed. */
json_t *jinja_undefined(void)
{
    static const json_t undefined_value = {.type = JSON_NULL, .refcount = (size_t)-1};

    return (json_t *)(uintptr_t)&undefined_value;
}

/* ---- generators ----------------------------------------------------------------------------- */

static json_t *jinja_mark(void)
{
    static const json_t mark = {.type = JSON_NULL, .refcount = (size_t)-1};

    return (json_t *)(uintptr_t)&mark;
}

json_t *jinja_generator(struct jinja_run *run)
{
    json_t *ret = jinja_keep(run, json_array());

    return ret && jinja_append(run, ret, jinja_mark()) ? ret : NULL;
}

bool jinja_is_generator(const json_t *value)
{
    return json_array_get(value, 0) == jinja_mark();
}

bool jinja_is_no_generator(struct jinja_run *run, const struct jinja_node *node,
                           const json_t *value, const char *what)
{
    return !jinja_is_generator(value) ||
           jinja_fail(run, node,
                      "%s of what a filter gives that makes one item after another, such as map; "
                      "put |list behind it",
                      what) != NULL;
}

/* Its items, once: a second mark says that they are gone. */
static json_t *jinja_walk(struct jinja_run *run, const struct jinja_node *node, json_t *generator)
{
    json_t *list = jinja_keep(run, json_array());

    if (json_array_get(generator, 1) == jinja_mark())
        return jinja_fail(run, node,
                          "what a filter such as map gives is gone once it has been walked; put "
                          "|list behind it");
    for (size_t i = 1; list && i < json_array_size(generator); i++)
        if (!jinja_append(run, list, json_array_get(generator, i)))
            return NULL;
    (void)json_array_clear(generator);
    return list && jinja_append(run, generator, jinja_mark()) &&
                   jinja_append(run, generator, jinja_mark())
               ? list
               : NULL;
}

/* ---- numbers and truth ---------------------------------------------------------------------- */

bool jinja_integer(const json_t *value, json_int_t *ret)
{
    *ret = json_is_integer(value) ? json_integer_value(value) : json_is_true(value);
    return json_is_integer(value) || json_is_boolean(value);
}

bool jinja_number(const json_t *value, double *ret)
{
    json_int_t integer;

    if (json_is_real(value)) {
        *ret = json_real_value(value);
        return true;
    }
    if (!jinja_integer(value, &integer))
        return false;
    *ret = (double)integer;
    return true;
}

bool jinja_is_true(const json_t *value)
{
    double number;

    if (jinja_number(value, &number))
        return number != 0;
    return json_is_string(value)  ? json_string_length(value) > 0
           : json_is_array(value) ? json_array_size(value) > 0
                                  : json_object_size(value) > 0;
}

static bool jinja_equal_at(const json_t *a, const json_t *b, unsigned depth);

static bool jinja_equal_dicts(const json_t *a, const json_t *b, unsigned depth)
{
    const char *key;
    size_t key_n;
    json_t *value, *other;

    if (json_object_size(a) != json_object_size(b))
        return false;
    json_object_keylen_foreach((json_t *)(uintptr_t)a, key, key_n, value)
    {
        other = json_object_getn(b, key, key_n);
        if (!other || !jinja_equal_at(value, other, depth))
            return false;
    }
    return true;
}

static bool jinja_equal_at(const json_t *a, const json_t *b, unsigned depth)
{
    json_int_t p, q;
    double x, y;

    if (a == b)
        return true;
    if (depth > JINJA_LEVELS_MAX || jinja_is_generator(a) || jinja_is_generator(b))
        return false;
    if (jinja_integer(a, &p) && jinja_integer(b, &q))
        return p == q;
    if (jinja_number(a, &x) && jinja_number(b, &y))
        return x == y;
    if (json_is_string(a) && json_is_string(b))
        return json_string_length(a) == json_string_length(b) &&
               memcmp(json_string_value(a), json_string_value(b), json_string_length(a)) == 0;
    if (json_is_object(a) && json_is_object(b))
        return jinja_equal_dicts(a, b, depth + 1);
    if (!json_is_array(a) || !json_is_array(b) || json_array_size(a) != json_array_size(b))
        return false;
    for (size_t i = 0; i < json_array_size(a); i++)
        if (!jinja_equal_at(json_array_get(a, i), json_array_get(b, i), depth + 1))
            return false;
    return true;
}

bool jinja_equal(const json_t *a, const json_t *b)
{
    return jinja_equal_at(a, b, 0);
}

int jinja_order(const json_t *a, const json_t *b)
{
    json_int_t p, q;
    double x, y;

    if (jinja_integer(a, &p) && jinja_integer(b, &q))
        return p < q ? -1 : p > q;
    if (jinja_number(a, &x) && jinja_number(b, &y))
        return x < y ? -1 : x > y;
    if (!json_is_string(a) || !json_is_string(b))
        return -2;
    size_t an = json_string_length(a), bn = json_string_length(b);
    int r = memcmp(json_string_value(a), json_string_value(b), min_u64(an, bn));
    return r < 0 ? -1 : r > 0 ? 1 : an < bn ? -1 : an > bn;
}

/* ---- what holds others ---------------------------------------------------------------------- */

/* Characters of valid UTF-8. */
static size_t jinja_chars(const char *text, size_t n)
{
    size_t chars = 0;

    for (size_t i = 0; i < n; i++)
        chars += (text[i] & 0xC0) != 0x80;
    return chars;
}

/* The byte where character `at` begins. */
static size_t jinja_char_at(const char *text, size_t n, size_t at)
{
    size_t i = 0;

    for (; i < n; i++)
        if ((text[i] & 0xC0) != 0x80 && at-- == 0)
            break;
    return i;
}

size_t jinja_length(const json_t *value)
{
    if (json_is_string(value))
        return jinja_chars(json_string_value(value), json_string_length(value));
    if (json_is_array(value))
        return json_array_size(value);
    if (json_is_object(value))
        return json_object_size(value);
    return value == jinja_undefined() ? 0 : SIZE_MAX;
}

bool jinja_contains(struct jinja_run *run, const struct jinja_node *node, const json_t *in,
                    const json_t *what)
{
    if (json_is_string(in) && json_is_string(what))
        return memmem(json_string_value(in), json_string_length(in), json_string_value(what),
                      json_string_length(what)) != NULL;
    if (!jinja_is_no_generator(run, node, in, "in"))
        return false;
    if (json_is_object(in) && (json_is_array(what) || json_is_object(what)))
        return jinja_fail(run, node, "in: a list or dict is no key of a dict") != NULL;
    if (json_is_object(in))
        return json_is_string(what) &&
               json_object_getn(in, json_string_value(what), json_string_length(what));
    if (!json_is_array(in) && in != jinja_undefined())
        return jinja_fail(run, node,
                          "in: neither a list, a dict nor a string, or no string in "
                          "one") != NULL;
    for (size_t i = 0; i < json_array_size(in); i++)
        if (jinja_equal(json_array_get(in, i), what))
            return true;
    return false;
}

static json_t *jinja_one_char(struct jinja_run *run, const char *text, size_t n, size_t at)
{
    size_t from = jinja_char_at(text, n, at);
    size_t bytes = jinja_char_at(text + from, n - from, 1);

    return jinja_text(run, text + from, bytes);
}

json_t *jinja_item(struct jinja_run *run, const struct jinja_node *node, json_t *of, json_t *at)
{
    json_int_t i, n = (json_int_t)jinja_length(of);
    json_t *found;

    if (of == jinja_undefined())
        return jinja_fail(run, node, "what is not defined has no items");
    if (json_is_object(of)) {
        found = json_is_string(at)
                    ? json_object_getn(of, json_string_value(at), json_string_length(at))
                    : NULL;
        return found ? found : jinja_undefined();
    }
    if ((!json_is_array(of) && !json_is_string(of)) || jinja_is_generator(of) ||
        !jinja_integer(at, &i))
        return jinja_undefined();
    if (i < 0)
        i += n;
    if (i < 0 || i >= n)
        return jinja_undefined();
    return json_is_array(of)
               ? json_array_get(of, (size_t)i)
               : jinja_one_char(run, json_string_value(of), json_string_length(of), (size_t)i);
}

/* A bound of a slice, as Python's slice.indices() has it. */
static json_int_t jinja_slice_bound(const json_t *given, json_int_t fallback, json_int_t n,
                                    bool back)
{
    json_int_t i;

    if (!given || json_is_null(given) || !jinja_integer(given, &i))
        return fallback;
    if (i < 0)
        i = i < -n ? -1 : i + n;
    else if (i > n)
        i = n;
    if (i < 0)
        return back ? -1 : 0;
    return back && i >= n ? n - 1 : i;
}

json_t *jinja_slice(struct jinja_run *run, const struct jinja_node *node, json_t *of,
                    json_t *const parts[static 3])
{
    json_int_t n = (json_int_t)jinja_length(of), step = 1;
    json_t *list;

    if (!jinja_is_no_generator(run, node, of, "a slice"))
        return NULL;
    if (parts[2] && !json_is_null(parts[2]) && (!jinja_integer(parts[2], &step) || step == 0))
        return jinja_fail(run, node, "a slice's step is no number, or 0");
    json_int_t from = jinja_slice_bound(parts[0], step < 0 ? n - 1 : 0, n, step < 0);
    json_int_t to = jinja_slice_bound(parts[1], step < 0 ? -1 : n, n, step < 0);
    if (json_is_string(of) && step == 1) {
        const char *text = json_string_value(of);
        size_t bytes = json_string_length(of);
        size_t begin = jinja_char_at(text, bytes, (size_t)from);
        size_t end = jinja_char_at(text, bytes, (size_t)max_u64((uint64_t)from, (uint64_t)to));
        return jinja_text(run, text + begin, end - begin);
    }
    if (!json_is_array(of))
        return jinja_fail(run, node, "a slice is of a list, or of a string without a step");
    list = jinja_keep(run, json_array());
    for (json_int_t i = from; list && (step > 0 ? i < to : i > to); i += step) {
        if (!jinja_append(run, list, json_array_get(of, (size_t)i)))
            return NULL;
        if (__builtin_add_overflow(i, step, &(json_int_t){0}))
            break;
    }
    return list;
}

json_t *jinja_iterate(struct jinja_run *run, const struct jinja_node *node, json_t *over)
{
    const char *text = json_string_value(over), *key;
    size_t n = json_string_length(over), key_n;
    json_t *list, *value;

    if (json_is_array(over))
        return jinja_is_generator(over) ? jinja_walk(run, node, over) : over;
    if (!text && !json_is_object(over) && over != jinja_undefined())
        return jinja_fail(run, node, "a loop over what has no items");
    list = jinja_keep(run, json_array());
    for (size_t i = 0, bytes; list && text && i < n; i += bytes) {
        bytes = jinja_char_at(text + i, n - i, 1);
        if (!jinja_append(run, list, jinja_text(run, text + i, bytes)))
            return NULL;
    }
    if (list && json_is_object(over))
        json_object_keylen_foreach(over, key, key_n, value)
        {
            if (!jinja_append(run, list, jinja_text(run, key, key_n)))
                return NULL;
        }
    return list;
}

/* ---- text ----------------------------------------------------------------------------------- */

/* Python's repr() of a float: the fewest digits that give it back. */
static int jinja_real_text(double value, char ret[static 40])
{
    char digits[40];
    int precision = 0, exponent, n;

    if (!isfinite(value))
        return snprintf(ret, 40, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
    do
        snprintf(digits, sizeof digits, "%.*e", precision, value);
    while (strtod(digits, NULL) != value && ++precision < 17);
    exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    if (exponent >= -4 && exponent < 16) {
        n = snprintf(ret, 40, "%.*f", precision > exponent ? precision - exponent : 0, value);
        return strchr(ret, '.') ? n : n + snprintf(ret + n, (size_t)(40 - n), ".0");
    }
    return snprintf(ret, 40, "%.*se%c%02d", (int)(strchr(digits, 'e') - digits), digits,
                    exponent < 0 ? '-' : '+', abs(exponent));
}

static bool jinja_put(struct jinja_run *run, struct growing_bytes *to, const char *text, size_t n)
{
    run->bytes += n;
    if (growing_bytes_add(to, text, n) < 0)
        return jinja_give_up(run, -ENOMEM) != NULL;
    return true;
}

/* What str() and json.dumps() write alike, but for words. */
static bool jinja_put_number(struct jinja_run *run, struct growing_bytes *to, const json_t *value)
{
    char text[40];
    int n = json_is_real(value)
                ? jinja_real_text(json_real_value(value), text)
                : snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));

    return jinja_put(run, to, text, (size_t)n);
}

/* What str.isprintable() says no to, beyond ASCII: separators, what is invisible, private use. */
static bool jinja_is_hidden(uint32_t c)
{
    static const uint32_t hidden[][2] = {
        {0x80, 0xA0},     {0xAD, 0xAD},     {0x600, 0x605},   {0x61C, 0x61C},   {0x6DD, 0x6DD},
        {0x70F, 0x70F},   {0x890, 0x891},   {0x8E2, 0x8E2},   {0x1680, 0x1680}, {0x180E, 0x180E},
        {0x2000, 0x200F}, {0x2028, 0x202F}, {0x205F, 0x206F}, {0x3000, 0x3000}, {0xE000, 0xF8FF},
        {0xFEFF, 0xFEFF}, {0xFFF0, 0xFFFB}, {0xFFFE, 0xFFFF}};

    for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
        if (c >= hidden[i][0] && c <= hidden[i][1])
            return true;
    return false;
}

/* Of emoji this is known; other planes have letters beside what is not assigned. */
static bool jinja_is_unknown(uint32_t c)
{
    return c >= 0x10000 && !(c >= 0x1F300 && c <= 0x1F64F);
}

/* Python's repr() of a character in a string between `quote`; 0: it is written as it is. */
static int jinja_escape(uint32_t c, char quote, char ret[static 12])
{
    if (c == '\n' || c == '\r' || c == '\t')
        return snprintf(ret, 12, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    if (c == '\\' || c == (uint32_t)quote)
        return snprintf(ret, 12, "\\%c", (int)c);
    if (c < 0x20 || c == 0x7F || (c <= 0xFF && jinja_is_hidden(c)))
        return snprintf(ret, 12, "\\x%02x", c);
    return jinja_is_hidden(c) ? snprintf(ret, 12, "\\u%04x", c) : 0;
}

static bool jinja_write_repr_text(struct jinja_run *run, const struct jinja_node *node,
                                  struct growing_bytes *to, const char *text, size_t n)
{
    const char quote = memchr(text, '\'', n) && !memchr(text, '"', n) ? '"' : '\'';
    bool good = jinja_put(run, to, &quote, 1);
    char escape[12];

    for (size_t i = 0, bytes; good && i < n; i += bytes) {
        bytes = utf8_char((const uint8_t *)text + i, n - i);
        uint32_t c = utf8_decode((const uint8_t *)text + i, bytes);
        int length = jinja_escape(c, quote, escape);
        if (jinja_is_unknown(c))
            return jinja_fail(run, node,
                              "the text of a list or dict with the character U+%04X is "
                              "not supported",
                              c) != NULL;
        good =
            jinja_put(run, to, length > 0 ? escape : text + i, length > 0 ? (size_t)length : bytes);
    }
    return good && jinja_put(run, to, &quote, 1);
}

/* Python's repr() of a list or dict, and of what is in them. */
static bool jinja_write_repr(struct jinja_run *run, const struct jinja_node *node,
                             struct growing_bytes *to, const json_t *value, unsigned depth)
{
    bool dict = json_is_object(value), good;
    const char *key;
    size_t key_n, i = 0;
    json_t *item;

    if (json_is_string(value))
        return jinja_write_repr_text(run, node, to, json_string_value(value),
                                     json_string_length(value));
    if (!dict && !json_is_array(value))
        return value == jinja_undefined() ? jinja_put(run, to, "Undefined", 9)
                                          : jinja_write(run, node, to, value);
    if (depth > JINJA_LEVELS_MAX || run->bytes > JINJA_BYTES_MAX)
        return jinja_give_up(run, -E2BIG) != NULL;
    if (!jinja_is_no_generator(run, node, value, "the text"))
        return false;
    good = jinja_put(run, to, dict ? "{" : "[", 1);
    for (; good && !dict && i < json_array_size(value); i++)
        good = (i == 0 || jinja_put(run, to, ", ", 2)) &&
               jinja_write_repr(run, node, to, json_array_get(value, i), depth + 1);
    json_object_keylen_foreach((json_t *)(uintptr_t)value, key, key_n, item)
    {
        good = good && (i++ == 0 || jinja_put(run, to, ", ", 2)) &&
               jinja_write_repr_text(run, node, to, key, key_n) && jinja_put(run, to, ": ", 2) &&
               jinja_write_repr(run, node, to, item, depth + 1);
    }
    return good && jinja_put(run, to, dict ? "}" : "]", 1);
}

bool jinja_write(struct jinja_run *run, const struct jinja_node *node, struct growing_bytes *to,
                 const json_t *value)
{
    if (json_is_string(value))
        return jinja_put(run, to, json_string_value(value), json_string_length(value));
    if (json_is_number(value))
        return jinja_put_number(run, to, value);
    if (value == jinja_undefined())
        return true;
    if (json_is_boolean(value))
        return jinja_put(run, to, json_is_true(value) ? "True" : "False",
                         json_is_true(value) ? 4 : 5);
    if (json_is_null(value))
        return jinja_put(run, to, "None", 4);
    return jinja_write_repr(run, node, to, value, 0);
}

static bool jinja_write_quoted(struct jinja_run *run, struct growing_bytes *to, const char *text,
                               size_t n)
{
    static const char from[] = "\"\\\n\r\t\b\f", into[] = "\"\\nrtbf";
    char escape[8];
    size_t done = 0;

    if (!jinja_put(run, to, "\"", 1))
        return false;
    for (size_t i = 0; i < n; i++) {
        const char *known = text[i] ? strchr(from, text[i]) : NULL;
        if (!known && (unsigned char)text[i] >= 0x20)
            continue;
        int length = known ? snprintf(escape, sizeof escape, "\\%c", into[known - from])
                           : snprintf(escape, sizeof escape, "\\u%04x", (unsigned)text[i]);
        if (!jinja_put(run, to, text + done, i - done) ||
            !jinja_put(run, to, escape, (size_t)length))
            return false;
        done = i + 1;
    }
    return jinja_put(run, to, text + done, n - done) && jinja_put(run, to, "\"", 1);
}

static bool jinja_write_break(struct jinja_run *run, struct growing_bytes *to,
                              const struct jinja_json *style, unsigned depth)
{
    if (style->indent < 0)
        return true;
    bool good = jinja_put(run, to, "\n", 1);
    for (unsigned i = 0; good && i < depth * (unsigned)style->indent; i++)
        good = jinja_put(run, to, " ", 1);
    return good;
}

static bool jinja_write_dict(struct jinja_run *run, struct growing_bytes *to, const json_t *value,
                             const struct jinja_json *style, unsigned depth)
{
    const char *key;
    size_t key_n, i = 0;
    json_t *item;

    json_object_keylen_foreach((json_t *)(uintptr_t)value, key, key_n, item)
    {
        if ((i++ > 0 && !jinja_put(run, to, style->comma, strlen(style->comma))) ||
            !jinja_write_break(run, to, style, depth) || !jinja_write_quoted(run, to, key, key_n) ||
            !jinja_put(run, to, style->colon, strlen(style->colon)) ||
            !jinja_write_json(run, to, item, style, depth))
            return false;
    }
    return true;
}

static bool jinja_write_items(struct jinja_run *run, struct growing_bytes *to, const json_t *value,
                              const struct jinja_json *style, unsigned depth)
{
    for (size_t i = 0; i < json_array_size(value); i++)
        if ((i > 0 && !jinja_put(run, to, style->comma, strlen(style->comma))) ||
            !jinja_write_break(run, to, style, depth) ||
            !jinja_write_json(run, to, json_array_get(value, i), style, depth))
            return false;
    return true;
}

bool jinja_write_json(struct jinja_run *run, struct growing_bytes *to, const json_t *value,
                      const struct jinja_json *style, unsigned depth)
{
    bool dict = json_is_object(value), good = true;

    if (value == jinja_undefined())
        return jinja_fail(run, NULL, "tojson of what is not defined") != NULL;
    if (depth > JINJA_LEVELS_MAX || run->bytes > JINJA_BYTES_MAX)
        return jinja_give_up(run, -E2BIG) != NULL;
    if (!jinja_is_no_generator(run, NULL, value, "tojson"))
        return false;
    if (json_is_string(value))
        return jinja_write_quoted(run, to, json_string_value(value), json_string_length(value));
    if (json_is_number(value))
        return jinja_put_number(run, to, value);
    if (json_is_boolean(value))
        return jinja_put(run, to, json_is_true(value) ? "true" : "false",
                         json_is_true(value) ? 4 : 5);
    if (json_is_null(value))
        return jinja_put(run, to, "null", 4);
    if (!jinja_put(run, to, dict ? "{" : "[", 1))
        return false;
    good = dict ? jinja_write_dict(run, to, value, style, depth + 1)
                : jinja_write_items(run, to, value, style, depth + 1);
    if (good && jinja_length(value) > 0)
        good = jinja_write_break(run, to, style, depth);
    return good && jinja_put(run, to, dict ? "}" : "]", 1);
}
