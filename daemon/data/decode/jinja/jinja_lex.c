#include "daemon/data/decode/jinja/jinja_tree.h"

#include "proto/common/array.h"
#include "proto/common/utf8.h"

#include <stdio.h>

struct jinja_lexer {
    const char *text;
    size_t n, at;
    uint32_t line;
    struct jinja_tokens *tokens;
    char *why;
};

bool jinja_is_space(const char *text, size_t n, size_t *ret_bytes)
{
    size_t bytes = utf8_char((const uint8_t *)text, n);

    *ret_bytes = bytes ? bytes : 1;
    if (bytes <= 1)
        return n > 0 && ((*text >= '\t' && *text <= '\r') || (*text >= 0x1C && *text <= ' '));
    uint32_t c = utf8_decode((const uint8_t *)text, bytes);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

void jinja_strip(const char **text, size_t *n, bool left, bool right)
{
    size_t bytes;

    while (left && *n > 0 && jinja_is_space(*text, *n, &bytes)) {
        *text += bytes;
        *n -= bytes;
    }
    while (right && *n > 0) {
        size_t back = 1;
        while (back < *n && back < 4 && ((*text)[*n - back] & 0xC0) == 0x80)
            back++;
        if (!jinja_is_space(*text + *n - back, back, &bytes))
            return;
        *n -= back;
    }
}

static int jinja_lex_refuse(const struct jinja_lexer *l, const char *words)
{
    snprintf(l->why, JINJA_WHY_MAX, "line %u: %s", l->line, words);
    return -EINVAL;
}

static int jinja_lex_add(struct jinja_lexer *l, enum jinja_token_kind kind, const char *text,
                         size_t n)
{
    struct jinja_tokens *tokens = l->tokens;

    if (!array_reserve(tokens->list, tokens->room, tokens->n + 1))
        return -ENOMEM;
    tokens->list[tokens->n++] =
        (struct jinja_token){.kind = kind, .text = text, .n = n, .line = l->line};
    return 0;
}

static void jinja_lex_pass(struct jinja_lexer *l, size_t n)
{
    for (; n > 0 && l->at < l->n; n--)
        l->line += l->text[l->at++] == '\n';
}

/* Whether a tag ends here, as "%}": with a sign before it, and the blanks behind that go with it.
 */
static bool jinja_lex_ends(const struct jinja_lexer *l, const char *end, bool newline, size_t *ret)
{
    const char *at = l->text + l->at;
    size_t left = l->n - l->at, n = 0, bytes;
    char sign = 0;

    if (left > 0 && (*at == '-' || (*at == '+' && newline)))
        sign = at[n++];
    if (left < n + 2 || memcmp(at + n, end, 2) != 0)
        return false;
    n += 2;
    while (sign == '-' && n < left && jinja_is_space(at + n, left - n, &bytes))
        n += bytes;
    if (!sign && newline && n < left && at[n] == '\n')
        n++;
    *ret = n;
    return true;
}

/* The text before a tag, without what the tag takes of it. */
static int jinja_lex_text(struct jinja_lexer *l, const char *text, size_t n, char kind, char sign)
{
    const char *rest = text;
    size_t left = n;

    if (sign == '-') {
        jinja_strip(&rest, &left, false, true);
        n = left;
    } else if (sign != '+' && kind != '{') { /* lstrip_blocks: a tag that begins its line */
        const char *line = n > 0 ? memrchr(text, '\n', n) : NULL;
        bool begins = line || text == l->text || text[-1] == '\n';
        rest = line ? line + 1 : text;
        left = n - (size_t)(rest - text);
        jinja_strip(&rest, &left, true, false);
        if (begins && left == 0)
            n = line ? (size_t)(line + 1 - text) : 0;
    }
    return n > 0 ? jinja_lex_add(l, JINJA_TEXT, text, n) : 0;
}

static bool jinja_lex_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static size_t jinja_lex_number(const char *at, size_t n)
{
    size_t i = 0;

    while (i < n && ((at[i] >= '0' && at[i] <= '9') || at[i] == '_'))
        i++;
    if (i + 1 >= n || at[i] != '.' || at[i + 1] < '0' || at[i + 1] > '9')
        return i;
    i++;
    while (i < n && at[i] >= '0' && at[i] <= '9')
        i++;
    return i;
}

/* One token inside a tag. */
static int jinja_lex_one(struct jinja_lexer *l)
{
    static const char *const twos[] = {"**", "//", "==", "!=", ">=", "<="};
    const char *at = l->text + l->at;
    size_t left = l->n - l->at, n = 1;
    int r;

    if (*at == '\'' || *at == '"') {
        while (n < left && at[n] != *at)
            n += at[n] == '\\' ? 2 : 1;
        if (n >= left)
            return jinja_lex_refuse(l, "a string has no end");
        r = jinja_lex_add(l, JINJA_STRING, at, ++n);
    } else if (*at >= '0' && *at <= '9') {
        n = jinja_lex_number(at, left);
        r = jinja_lex_add(l, JINJA_NUMBER, at, n);
    } else if (jinja_lex_word(*at)) {
        while (n < left && jinja_lex_word(at[n]))
            n++;
        r = jinja_lex_add(l, JINJA_NAME, at, n);
    } else if (strchr("+-/*%~[](){}=<>!.:|,", *at) && *at) {
        for (size_t i = 0; left > 1 && i < ARRAY_SIZE(twos); i++)
            if (memcmp(at, twos[i], 2) == 0)
                n = 2;
        r = jinja_lex_add(l, JINJA_SIGN, at, n);
    } else {
        return jinja_lex_refuse(l, "a character that no expression has");
    }
    jinja_lex_pass(l, n);
    return r;
}

static int jinja_lex_tag(struct jinja_lexer *l, bool block)
{
    unsigned brackets = 0;
    size_t n;
    int r = jinja_lex_add(l, block ? JINJA_BLOCK_BEGIN : JINJA_OUTPUT_BEGIN, NULL, 0);

    while (r == 0) {
        while (l->at < l->n && jinja_is_space(l->text + l->at, l->n - l->at, &n))
            jinja_lex_pass(l, n);
        if (l->at >= l->n)
            return jinja_lex_refuse(l, "a tag has no end");
        if (brackets == 0 && jinja_lex_ends(l, block ? "%}" : "}}", block, &n)) {
            r = jinja_lex_add(l, block ? JINJA_BLOCK_END : JINJA_OUTPUT_END, NULL, 0);
            jinja_lex_pass(l, n);
            return r;
        }
        char c = l->text[l->at];
        if (strchr("([{", c) && c)
            brackets++;
        else if (strchr(")]}", c) && c)
            brackets -= brackets > 0;
        r = jinja_lex_one(l);
    }
    return r;
}

static int jinja_lex_comment(struct jinja_lexer *l)
{
    size_t n;

    while (l->at < l->n && !jinja_lex_ends(l, "#}", true, &n))
        jinja_lex_pass(l, 1);
    if (l->at >= l->n)
        return jinja_lex_refuse(l, "a comment has no end");
    jinja_lex_pass(l, n);
    return 0;
}

/* The tag that begins at or behind `at`, or the end. */
static size_t jinja_lex_find(const struct jinja_lexer *l, size_t at)
{
    for (; at + 1 < l->n; at++)
        if (l->text[at] == '{' && strchr("%{#", l->text[at + 1]) && l->text[at + 1])
            return at;
    return l->n;
}

int jinja_lex(const char *text, size_t n, struct jinja_tokens *ret, char *why)
{
    struct jinja_lexer l = {.text = text, .n = n, .line = 1, .tokens = ret};
    int r = 0;

    l.why = why;
    while (r == 0 && l.at < l.n) {
        size_t tag = jinja_lex_find(&l, l.at);
        const char *before = text + l.at;
        char kind = tag < n ? text[tag + 1] : '{';
        char sign = tag + 2 < n ? text[tag + 2] : 0;
        r = jinja_lex_text(&l, before, tag - l.at, kind, sign);
        jinja_lex_pass(&l, tag - l.at);
        if (r < 0 || tag == n)
            break;
        jinja_lex_pass(&l, sign == '-' || sign == '+' ? 3 : 2);
        r = kind == '#' ? jinja_lex_comment(&l) : jinja_lex_tag(&l, kind == '%');
    }
    return r < 0 ? r : jinja_lex_add(&l, JINJA_END, NULL, 0);
}
