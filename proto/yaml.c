/*
 * YAML text → value, over libyaml's event parser.
 *
 * One document, one pass, recursion no deeper than DL_MAX_VALUE_DEPTH. What could make a small text
 * grow large (aliases) or mean different things to different readers (tags, duplicate keys) is
 * refused. Limits count as value_scan() does, so that what parses here also travels as msgpack.
 */
#include "proto/yaml.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <yaml.h>

struct reading {
    yaml_parser_t parser;
    const char *text;
    size_t len;
    const char *source;
    uint64_t budget; /* nodes that may still come */
    struct dl_error *err;
};

/* ---- pairs of JSON's ------------------------------------------------------------------------- */

/*
 * YAML refuses a surrogate pair of two escapes, JSON's form of a character above U+FFFF, but
 * accepts one escape of eight digits. In text that is otherwise JSON, quotes delimit strings
 * reliably; the pair is replaced in place, on the same line.
 */
struct yaml_joining {
    const char *at;
    const char *end;
    char *out;
    char last; /* character outside of strings, but for space; of a string its quote */
};

enum { YAML_ESCAPE = 6 }; /* \uD83D */

/* The number of the escape at `at`; 0 if there is no valid escape. */
static unsigned long yaml_escape(const char *at, const char *end)
{
    char digits[5] = {0};

    if (end - at < YAML_ESCAPE || at[0] != '\\' || at[1] != 'u')
        return 0;
    memcpy(digits, at + 2, 4);
    return strspn(digits, "0123456789abcdefABCDEF") == 4 ? strtoul(digits, NULL, 16) : 0;
}

static void yaml_join_escape(struct yaml_joining *j)
{
    unsigned long high = yaml_escape(j->at, j->end), low;
    ptrdiff_t len = min_u64(2, (uint64_t)(j->end - j->at));

    if (high >= 0xD800 && high < 0xDC00 &&
        (low = yaml_escape(j->at + YAML_ESCAPE, j->end)) >= 0xDC00 && low < 0xE000) {
        j->out += snprintf(j->out, 2 * YAML_ESCAPE, "\\U%08lx",
                           0x10000 + ((high & 0x3FF) << 10) + (low & 0x3FF));
        j->at += 2 * YAML_ESCAPE;
        return;
    }
    memcpy(j->out, j->at, (size_t)len);
    j->out += len;
    j->at += len;
}

static void yaml_join_string(struct yaml_joining *j)
{
    *j->out++ = *j->at++;
    while (j->at < j->end && *j->at != '"') {
        if (*j->at == '\\')
            yaml_join_escape(j);
        else
            *j->out++ = *j->at++;
    }
    if (j->at < j->end)
        *j->out++ = *j->at++;
    j->last = '"';
}

/* Whether `c` may come next outside of a string: what JSON has there, and no plain text of YAML's
 * that may have a quote in it. */
static bool yaml_is_json(const struct yaml_joining *j, char c)
{
    if (c == '"')
        return !j->last || strchr("{[,:", j->last);
    if (c == ':')
        return j->last == '"';
    return c && strchr("{}[],+-.0123456789 \t\r\ntrufalsenEINity", c);
}

/* The text with pairs joined, to be freed; *ret is NULL if it has no pairs or is not JSON.
 * -ENOMEM. */
static int yaml_join_pairs(const char *text, size_t len, char **ret, size_t *ret_len)
{
    struct yaml_joining j = {.at = text, .end = text + len};

    *ret = NULL;
    if (!len || (!memmem(text, len, "\\ud", 3) && !memmem(text, len, "\\uD", 3)))
        return 0;
    _cleanup_free_ char *made = j.out = malloc(len + 1);
    if (!made)
        return -ENOMEM;
    while (j.at < j.end) {
        if (!yaml_is_json(&j, *j.at))
            return 0;
        if (*j.at == '"') {
            yaml_join_string(&j);
            continue;
        }
        j.last = strchr(" \t\r\n", *j.at) ? j.last : *j.at;
        *j.out++ = *j.at++;
    }
    *ret_len = (size_t)(j.out - made);
    *ret = steal_ptr(made);
    return 0;
}

/* ---- errors --------------------------------------------------------------------------------- */

/* As dl_error_set(), at a line; 0 = no line is known. */
static int _printf_(4, 5)
    yaml_refuse(const struct reading *rd, size_t line, int code, const char *fmt, ...)
{
    char path[DL_ERROR_PATH_MAX], text[DL_ERROR_MESSAGE_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    /* A long source is cut before the line number would be. */
    if (line)
        snprintf(path, sizeof path, "%.*s:%zu", DL_ERROR_PATH_MAX - 24, rd->source, line);
    else
        snprintf(path, sizeof path, "%s", rd->source);
    return dl_error_set(rd->err, code, path, "%s", text);
}

static size_t yaml_line_at(const struct reading *rd, size_t offset)
{
    size_t line = 1;
    for (size_t i = 0; i < offset && i < rd->len; i++)
        line += rd->text[i] == '\n';
    return line;
}

static int yaml_refuse_syntax(const struct reading *rd)
{
    const yaml_parser_t *parser = &rd->parser;
    const char *problem = parser->problem ? parser->problem : "malformed YAML";
    size_t line = parser->problem_mark.line + 1;
    size_t last = yaml_line_at(rd, rd->len - (rd->len && rd->text[rd->len - 1] == '\n'));

    switch (parser->error) {
    case YAML_MEMORY_ERROR:
        return yaml_refuse(rd, 0, ENOMEM, "out of memory for a text of %zu bytes", rd->len);
    case YAML_READER_ERROR:
        return yaml_refuse(rd, yaml_line_at(rd, parser->problem_offset), EINVAL, "%s", problem);
    default:
        /* libyaml puts the end of the text on a line of its own. */
        return yaml_refuse(rd, min_u64(line, last), EINVAL, "%s%s%s", problem,
                           parser->context ? ", " : "", parser->context ? parser->context : "");
    }
}

static int yaml_next_event(struct reading *rd, yaml_event_t *ret)
{
    if (!yaml_parser_parse(&rd->parser, ret))
        return yaml_refuse_syntax(rd);
    return 0;
}

static bool yaml_one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(text, *words) == 0)
            return true;
    return false;
}

/* [-+]?[0-9]+, 0o[0-7]+, 0x[0-9a-fA-F]+: the base and where the digits begin; 0 for others. */
static unsigned yaml_integer_base(const char *text, const char **ret_digits)
{
    const char *usable = "0123456789";
    unsigned base = 10;

    if (text[0] == '0' && text[1] == 'x') {
        usable = "0123456789abcdefABCDEF";
        base = 16;
    } else if (text[0] == '0' && text[1] == 'o') {
        usable = "01234567";
        base = 8;
    }
    const char *digits = text + (base == 10 ? text[0] == '-' || text[0] == '+' : 2);
    if (!digits[0] || digits[strspn(digits, usable)])
        return 0;
    *ret_digits = digits;
    return base;
}

static unsigned yaml_digit_value(char c)
{
    return c <= '9' ? (unsigned)(c - '0') : ((unsigned)c | 0x20U) - 'a' + 10U;
}

/* 1: `v` is set; 0: no integer; -ERANGE: beyond 64 bits. */
static int yaml_resolve_integer(const char *text, struct value *v)
{
    const char *digits;
    uint64_t n = 0;

    unsigned base = yaml_integer_base(text, &digits);
    if (!base)
        return 0;
    for (; *digits; digits++)
        if (mul_overflows(n, base, &n) || add_overflows(n, yaml_digit_value(*digits), &n))
            return -ERANGE;
    if (text[0] == '-') {
        if (n > (uint64_t)INT64_MAX + 1)
            return -ERANGE;
        v->type = VALUE_INT;
        v->integer = (int64_t)(0 - n);
    } else if (n > INT64_MAX) {
        v->type = VALUE_UINT;
        v->uinteger = n;
    } else {
        v->type = VALUE_INT;
        v->integer = (int64_t)n;
    }
    return 1;
}

/* [-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)? : strtod() on its own accepts far more. */
static bool yaml_is_float(const char *text)
{
    const char *c = text + (*text == '-' || *text == '+');
    size_t whole = strspn(c, "0123456789"), fraction = 0;

    c += whole;
    if (*c == '.') {
        fraction = strspn(++c, "0123456789");
        c += fraction;
    }
    if (whole + fraction == 0)
        return false;
    if (*c == 'e' || *c == 'E') {
        c++;
        c += *c == '-' || *c == '+';
        size_t exponent = strspn(c, "0123456789");
        if (exponent == 0)
            return false;
        c += exponent;
    }
    return *c == '\0';
}

/* 1: `v` is set; 0: no float; -ERANGE: larger than any double; -ENOMEM. */
static int yaml_resolve_float(const char *text, struct value *v)
{
    static const char *const infinities[] = {".inf", ".Inf", ".INF", NULL};
    static const char *const nans[] = {".nan", ".NaN", ".NAN", NULL};

    if (yaml_one_of(text, nans)) {
        v->number = NAN;
    } else if (yaml_one_of(text + (*text == '-' || *text == '+'), infinities)) {
        v->number = *text == '-' ? -HUGE_VAL : HUGE_VAL;
    } else if (yaml_is_float(text)) {
        /* The process's locale may have another decimal point. */
        locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
        if (!c_locale)
            return -ENOMEM;
        v->number = strtod_l(text, NULL, c_locale);
        freelocale(c_locale);
        if (isinf(v->number))
            return -ERANGE;
    } else {
        return 0;
    }
    v->type = VALUE_FLOAT;
    return 1;
}

/* A plain scalar, by the core schema of YAML 1.2. As yaml_resolve_integer(). */
static int yaml_resolve(const char *text, struct value *v)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const trues[] = {"true", "True", "TRUE", NULL};
    static const char *const falses[] = {"false", "False", "FALSE", NULL};

    if (yaml_one_of(text, nulls))
        return 1;
    if (yaml_one_of(text, trues) || yaml_one_of(text, falses)) {
        v->type = VALUE_BOOL;
        v->boolean = yaml_one_of(text, trues);
        return 1;
    }
    int r = yaml_resolve_integer(text, v);
    return r ? r : yaml_resolve_float(text, v);
}

static int yaml_check_properties(const struct reading *rd, const yaml_event_t *event)
{
    size_t line = event->start_mark.line + 1;
    const yaml_char_t *anchor = NULL, *tag = NULL;

    switch (event->type) {
    case YAML_SCALAR_EVENT:
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
        break;
    default:
        return yaml_refuse(rd, line, EINVAL,
                           "aliases (*%.60s) are not accepted; write the value out",
                           (const char *)event->data.alias.anchor);
    }
    if (anchor)
        return yaml_refuse(rd, line, EINVAL, "anchors (&%.60s) are not accepted; leave it out",
                           (const char *)anchor);
    if (tag)
        return yaml_refuse(rd, line, EINVAL, "tags (%.60s) are not accepted; leave it out",
                           (const char *)tag);
    if (event->type == YAML_SCALAR_EVENT &&
        memchr(event->data.scalar.value, '\0', event->data.scalar.length))
        return yaml_refuse(rd, line, EINVAL, "a string holds a NUL character; leave it out");
    return 0;
}

/* Takes `n` nodes out of the budget. */
static int yaml_charge(struct reading *rd, const yaml_event_t *event, uint64_t n)
{
    if (n > rd->budget)
        return yaml_refuse(rd, event->start_mark.line + 1, EMSGSIZE,
                           "more than %llu elements in all", (ull)DL_MAX_VALUE_NODES);
    rd->budget -= n;
    return 0;
}

static int yaml_no_memory(const struct reading *rd)
{
    return yaml_refuse(rd, 0, ENOMEM, "out of memory for a text of %zu bytes", rd->len);
}

static int yaml_read_scalar(struct reading *rd, const yaml_event_t *event, struct value *v)
{
    const char *text = (const char *)event->data.scalar.value;
    int r = 0;

    if (event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        r = yaml_resolve(text, v);
    if (r == -ERANGE)
        return yaml_refuse(rd, event->start_mark.line + 1, EINVAL,
                           "%.60s does not fit a 64-bit number; put text in quotes", text);
    if (r == 0)
        r = value_make_string(v, text);
    return r < 0 ? yaml_no_memory(rd) : 0;
}

static int yaml_read_node(struct reading *rd, const yaml_event_t *event, uint32_t depth,
                          struct value *v);

static int yaml_read_sequence(struct reading *rd, uint32_t depth, struct value *v)
{
    v->type = VALUE_ARRAY;
    for (;;) {
        _cleanup_(yaml_event_delete) yaml_event_t event = {0};
        struct value *child;

        int r = yaml_next_event(rd, &event);
        if (r < 0 || event.type == YAML_SEQUENCE_END_EVENT)
            return r;
        r = yaml_charge(rd, &event, 1);
        if (r < 0)
            return r;
        if (value_push(v, &child) < 0)
            return yaml_no_memory(rd);
        r = yaml_read_node(rd, &event, depth, child);
        if (r < 0)
            return r;
    }
}

static int yaml_read_key(struct reading *rd, const yaml_event_t *event, struct value *map,
                         struct value **ret)
{
    int r = yaml_charge(rd, event, 2);
    if (r == 0)
        r = yaml_check_properties(rd, event);
    if (r < 0)
        return r;
    if (event->type != YAML_SCALAR_EVENT)
        return yaml_refuse(rd, event->start_mark.line + 1, EINVAL,
                           "a key is a list or a mapping; keys must be strings");
    r = value_append(map, (const char *)event->data.scalar.value, event->data.scalar.length, ret);
    return r < 0 ? yaml_no_memory(rd) : 0;
}

static int yaml_check_unique(const struct reading *rd, const struct value *map)
{
    const struct value *twice;

    if (value_duplicate(map, &twice) < 0)
        return yaml_no_memory(rd);
    if (twice)
        return yaml_refuse(rd, twice->line, EINVAL, "the key \"%.100s\" occurs twice", twice->key);
    return 0;
}

static int yaml_read_mapping(struct reading *rd, uint32_t depth, struct value *v)
{
    v->type = VALUE_MAP;
    for (;;) {
        _cleanup_(yaml_event_delete) yaml_event_t key = {0};
        _cleanup_(yaml_event_delete) yaml_event_t event = {0};
        struct value *child;

        int r = yaml_next_event(rd, &key);
        if (r < 0)
            return r;
        if (key.type == YAML_MAPPING_END_EVENT)
            return yaml_check_unique(rd, v);
        r = yaml_read_key(rd, &key, v, &child);
        if (r < 0)
            return r;
        r = yaml_next_event(rd, &event);
        if (r < 0)
            return r;
        r = yaml_read_node(rd, &event, depth, child);
        if (r < 0)
            return r;
        child->line = (uint32_t)key.start_mark.line + 1;
    }
}

/* `depth` containers are open around the node; `v` is a null value, on failure half-built. */
static int yaml_read_node(struct reading *rd, const yaml_event_t *event, uint32_t depth,
                          struct value *v)
{
    int r = yaml_check_properties(rd, event);
    if (r < 0)
        return r;
    v->line = (uint32_t)event->start_mark.line + 1;
    if (event->type == YAML_SCALAR_EVENT)
        return yaml_read_scalar(rd, event, v);
    if (depth == DL_MAX_VALUE_DEPTH)
        return yaml_refuse(rd, v->line, EMSGSIZE, "nested more than %llu levels deep",
                           (ull)DL_MAX_VALUE_DEPTH);
    if (event->type == YAML_SEQUENCE_START_EVENT)
        return yaml_read_sequence(rd, depth + 1, v);
    return yaml_read_mapping(rd, depth + 1, v);
}

/* The next event when it is of type `want`; *ret_line is where an event of another type stands. */
static int yaml_expect(struct reading *rd, yaml_event_type_t want, size_t *ret_line)
{
    _cleanup_(yaml_event_delete) yaml_event_t event = {0};
    int r = yaml_next_event(rd, &event);

    if (r < 0)
        return r;
    *ret_line = event.type == want ? 0 : event.start_mark.line + 1;
    return 0;
}

static int yaml_read_stream(struct reading *rd, struct value *v)
{
    _cleanup_(yaml_event_delete) yaml_event_t event = {0};
    size_t line;

    int r = yaml_expect(rd, YAML_STREAM_START_EVENT, &line);
    if (r < 0)
        return r;
    r = yaml_expect(rd, YAML_DOCUMENT_START_EVENT, &line);
    if (r < 0)
        return r;
    if (line)
        return yaml_refuse(rd, 0, EINVAL, "the text is empty");
    r = yaml_next_event(rd, &event);
    if (r == 0)
        r = yaml_read_node(rd, &event, 0, v);
    if (r == 0)
        r = yaml_expect(rd, YAML_DOCUMENT_END_EVENT, &line);
    if (r == 0)
        r = yaml_expect(rd, YAML_STREAM_END_EVENT, &line);
    if (r < 0)
        return r;
    if (line)
        return yaml_refuse(rd, line, EINVAL, "a second document begins here; only one is accepted");
    return 0;
}

int yaml_parse(const char *text, size_t len, const char *source, struct value *ret,
               struct dl_error *err)
{
    struct reading rd = {
        .text = text, .len = len, .source = source, .budget = DL_MAX_VALUE_NODES - 1, .err = err};
    _cleanup_(value_deinit) struct value made = {0};
    _cleanup_free_ char *joined = NULL;

    if (len > DL_MAX_SPEC_TEXT)
        return yaml_refuse(&rd, 0, EMSGSIZE, "%zu bytes of text are above the maximum of %llu", len,
                           (ull)DL_MAX_SPEC_TEXT);
    const char *nul = len ? memchr(text, '\0', len) : NULL;
    if (nul)
        return yaml_refuse(&rd, yaml_line_at(&rd, (size_t)(nul - text)), EINVAL,
                           "the text holds a NUL character; it is not YAML or JSON");
    if (yaml_join_pairs(text, len, &joined, &rd.len) < 0)
        return yaml_no_memory(&rd);
    if (joined)
        rd.text = joined;
    if (!yaml_parser_initialize(&rd.parser))
        return yaml_no_memory(&rd);
    yaml_parser_set_encoding(&rd.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&rd.parser, (const unsigned char *)(rd.len ? rd.text : ""),
                                 rd.len);
    int r = yaml_read_stream(&rd, &made);
    yaml_parser_delete(&rd.parser);
    if (r < 0)
        return r;
    *ret = made;
    made = (struct value){0};
    return 0;
}
