#define PCRE2_CODE_UNIT_WIDTH 8

#include "daemon/data/decode/tokenizer/pattern.h"

#include "daemon/data/decode/tokenizer/growing.h"

#include <ctype.h>
#include <pcre2.h>
#include <stdio.h>

/* What a search may cost: PCRE2 counts the ways it tries. Usual ones take a few for each byte. */
enum { MATCH_LIMIT = 2000000, HEAP_LIMIT_KIB = 16384 };

struct pattern {
    pcre2_code *code;            /* owned */
    pcre2_match_data *match;     /* owned */
    pcre2_match_context *limits; /* owned */
};

/* ---- from the one syntax to the other -------------------------------------------------------- */

/* Oniguruma's classes: White_Space; alphabetic characters, marks, decimal numbers and connectors,
 * and the superscripts and fractions of Latin-1. */
#define SPACE                                                                      \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}" \
    "\\x{202f}\\x{205f}\\x{3000}"
#define WORD                                                                         \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\xb2\\xb3\\xb9\\xbc-\\xbe\\x{24b6}-\\x{24e9}" \
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define DIGIT "\\p{Nd}"
#define HEX   "0-9a-fA-F"

struct pattern_text {
    const char *at; /* what is left of Oniguruma's */
    const char *end;
    struct growing_bytes out; /* PCRE2's */
    char *why;
    int depth; /* of brackets */
};

static int pattern_refuse(const struct pattern_text *t, const char *what)
{
    snprintf(t->why, PATTERN_WHY_MAX, "%s", what);
    return -EINVAL;
}

static int pattern_add(struct pattern_text *t, const char *text)
{
    return growing_bytes_add(&t->out, text, strlen(text));
}

/* A class by its letter: in brackets as it is, else in brackets of its own. */
static int pattern_add_class(struct pattern_text *t, const char *class, bool negated)
{
    int r;

    if (t->depth > 0 && negated)
        return pattern_refuse(t, "\\S, \\W, \\D or \\H in brackets is not supported; write the "
                                 "class with \\p{...}");
    if (t->depth > 0)
        return pattern_add(t, class);
    r = pattern_add(t, negated ? "[^" : "[");
    if (r == 0)
        r = pattern_add(t, class);
    return r < 0 ? r : pattern_add(t, "]");
}

/* \p{...}: a category of one or two letters is the same; other names are scripts. PCRE2 takes a
 * bare name for the script's extensions. */
static int pattern_add_property(struct pattern_text *t)
{
    const char *close = memchr(t->at, '}', (size_t)(t->end - t->at));
    const char *name = t->at + 3;
    int r;

    if (t->end - t->at < 5 || t->at[2] != '{' || !close)
        return pattern_refuse(t, "\\p without a name in braces");
    size_t n = (size_t)(close - name), bare = n > 0 && *name == '^' ? n - 1 : n;
    r = growing_bytes_add(&t->out, t->at, (size_t)(name - t->at) + (n - bare));
    if (r == 0 && bare > 2 && !memchr(name, ':', n) && !memchr(name, '=', n))
        r = pattern_add(t, "sc:");
    if (r == 0)
        r = growing_bytes_add(&t->out, name + (n - bare), bare + 1);
    t->at = close + 1;
    return r;
}

#define EDGE    "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))"
#define NO_EDGE "(?:(?<=[" WORD "])(?=[" WORD "])|(?<![" WORD "])(?![" WORD "]))"

static int pattern_add_escape(struct pattern_text *t)
{
    static const struct {
        char letter;
        const char *class;
    } classes[] = {{'s', SPACE}, {'w', WORD}, {'d', DIGIT}, {'h', HEX}};
    char letter = t->at[1];

    if (letter == 'p' || letter == 'P')
        return pattern_add_property(t);
    for (size_t i = 0; i < ARRAY_SIZE(classes); i++)
        if (tolower((unsigned char)letter) == classes[i].letter) {
            t->at += 2;
            return pattern_add_class(t, classes[i].class, letter != classes[i].letter);
        }
    if (t->depth == 0 && (letter == 'b' || letter == 'B')) {
        t->at += 2;
        return pattern_add(t, letter == 'b' ? EDGE : NO_EDGE);
    }
    /* The rest of what is a letter is the same only of these. */
    if (isalpha((unsigned char)letter) && !strchr("tnrfvaexuAz", letter))
        return pattern_refuse(t, "it has an escape that is not supported");
    if (letter == 'u') { /* \uHHHH */
        char hex[12];
        if (t->end - t->at < 6)
            return pattern_refuse(t, "\\u without four digits");
        snprintf(hex, sizeof hex, "\\x{%.4s}", t->at + 2);
        t->at += 6;
        return pattern_add(t, hex);
    }
    t->at += 2;
    return growing_bytes_add(&t->out, t->at - 2, 2);
}

static int pattern_add_bracket(struct pattern_text *t)
{
    bool posix = t->end - t->at > 1 && t->at[1] == ':';

    if (t->depth > 0 && !posix)
        return pattern_refuse(t, "brackets in brackets are not supported; write one class");
    if (posix && t->depth > 0)
        return pattern_refuse(t, "[:...:] is not supported; write \\p{...}");
    t->depth++;
    t->at++;
    int r = pattern_add(t, "[");
    if (r == 0 && t->at < t->end && *t->at == '^') {
        t->at++;
        r = pattern_add(t, "^");
    }
    if (r == 0 && t->at < t->end && *t->at == ']') {
        t->at++;
        r = pattern_add(t, "\\]");
    }
    return r;
}

/* What begins with "(": groups, which are the same but for (?m), and PCRE2's verbs. */
static int pattern_add_group(struct pattern_text *t)
{
    const char *at = t->at + 1;

    if (at < t->end && *at == '*')
        return pattern_refuse(t, "(*...) is not supported");
    if (at < t->end && *at == '?') {
        for (at++; at < t->end && (isalpha((unsigned char)*at) || *at == '-'); at++)
            if (*at != 'i' && *at != 'x' && *at != '-')
                return pattern_refuse(t, "of the options (?...), i and x are supported");
        if (at >= t->end || !strchr(":)=!<>#", *at))
            return pattern_refuse(t, "a group (?...) of this sort is not supported");
    }
    t->at++;
    return pattern_add(t, "(");
}

/* {n,m}+ is possessive there and not here. */
static int pattern_add_braces(struct pattern_text *t)
{
    const char *close = memchr(t->at, '}', (size_t)(t->end - t->at));

    if (t->depth == 0 && close && close + 1 < t->end && close[1] == '+')
        return pattern_refuse(t, "{n,m}+ is not supported; write (?:...{n,m})+");
    t->at++;
    return pattern_add(t, "{");
}

static int pattern_add_next(struct pattern_text *t)
{
    char c = *t->at;

    if (c == '\\')
        return t->end - t->at > 1 ? pattern_add_escape(t) : pattern_refuse(t, "it ends with \\");
    if (c == '[')
        return pattern_add_bracket(t);
    if (c == '&' && t->depth > 0 && t->end - t->at > 1 && t->at[1] == '&')
        return pattern_refuse(t, "&& in brackets is not supported");
    if (c == '(' && t->depth == 0)
        return pattern_add_group(t);
    if (c == '{')
        return pattern_add_braces(t);
    if (c == ']' && t->depth > 0)
        t->depth--;
    t->at++;
    return growing_bytes_add(&t->out, &c, 1);
}

/* ---- compiling and matching ------------------------------------------------------------------ */

static int pattern_compile(const struct growing_bytes *text, struct pattern *pattern, char *why)
{
    _cleanup_free_ PCRE2_UCHAR *words = malloc(PATTERN_WHY_MAX);
    PCRE2_SIZE place;
    int code;

    if (!words)
        return -ENOMEM;
    pattern->code = pcre2_compile(text->data, text->n,
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE |
                                      PCRE2_NEVER_BACKSLASH_C | PCRE2_DOLLAR_ENDONLY,
                                  &code, &place, NULL);
    if (!pattern->code) {
        if (code == PCRE2_ERROR_NOMEMORY || code == 121)
            return -ENOMEM;
        pcre2_get_error_message(code, words, PATTERN_WHY_MAX);
        snprintf(why, PATTERN_WHY_MAX, "%.*s", PATTERN_WHY_MAX - 1, (const char *)words);
        return -EINVAL;
    }
    /* Where memory may not become code, it is interpreted, which is slower. */
    (void)pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE);
    pattern->match = pcre2_match_data_create(1, NULL);
    pattern->limits = pcre2_match_context_create(NULL);
    if (!pattern->match || !pattern->limits)
        return -ENOMEM;
    pcre2_set_match_limit(pattern->limits, MATCH_LIMIT);
    pcre2_set_heap_limit(pattern->limits, HEAP_LIMIT_KIB);
    return 0;
}

int pattern_new(const char *text, size_t n, struct pattern **ret, char *why)
{
    struct pattern_text t = {.at = text, .end = text + n, .why = why};
    struct pattern *pattern = calloc(1, sizeof *pattern);
    int r = pattern ? growing_bytes_reserve(&t.out, n + 1) : -ENOMEM;

    while (r == 0 && t.at < t.end)
        r = pattern_add_next(&t);
    if (r == 0)
        r = pattern_compile(&t.out, pattern, why);
    free(t.out.data);
    if (r < 0) {
        pattern_free(pattern);
        return r;
    }
    *ret = pattern;
    return 0;
}

void pattern_free(struct pattern *pattern)
{
    if (!pattern)
        return;
    pcre2_code_free(pattern->code);
    pcre2_match_data_free(pattern->match);
    pcre2_match_context_free(pattern->limits);
    free(pattern);
}

int pattern_find(struct pattern *pattern, const uint8_t *text, size_t n, size_t from, size_t *start,
                 size_t *end)
{
    int r = pcre2_match(pattern->code, text, n, from, PCRE2_NO_UTF_CHECK, pattern->match,
                        pattern->limits);

    if (r == PCRE2_ERROR_JIT_STACKLIMIT) /* its code has a small stack */
        r = pcre2_match(pattern->code, text, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        pattern->match, pattern->limits);
    if (r == PCRE2_ERROR_NOMATCH)
        return 0;
    if (r == PCRE2_ERROR_NOMEMORY)
        return -ENOMEM;
    if (r < 0)
        return -ELOOP;
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(pattern->match);
    *start = found[0];
    *end = found[1];
    return 1;
}
