#include "daemon/data/decode/jinja/jinja_parse.h"
#include "daemon/data/decode/tokenizer/chars.h"

#include <stdio.h>

static struct jinja_node *jinja_expression_unary(struct jinja_parser *p, bool filters);

/* ---- constants ------------------------------------------------------------------------------ */

static unsigned jinja_digit_of(char c)
{
    return c >= '0' && c <= '9'   ? (unsigned)(c - '0')
           : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
           : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
                                  : 16;
}

/* The escape behind a backslash; returns how many bytes it has, or 0: it is not supported. */
static size_t jinja_expression_escape(const char *at, size_t n, uint8_t to[static 4], size_t *ret_n)
{
    static const char from[] = "nrtabfv0\\'\"", into[] = "\n\r\t\a\b\f\v\0\\'\"";
    const char *known = memchr(from, at[0], sizeof from - 1);
    size_t digits = at[0] == 'x' ? 2 : at[0] == 'u' ? 4 : at[0] == 'U' ? 8 : 0;
    uint32_t c = 0;

    *ret_n = 0;
    if (known && !(at[0] == '0' && n > 1 && jinja_digit_of(at[1]) < 8)) {
        to[(*ret_n)++] = (uint8_t)into[known - from];
        return 1;
    }
    if (at[0] == '\n') /* the line goes on */
        return 1;
    if (digits == 0 && at[0] != 'N' && jinja_digit_of(at[0]) >= 8) { /* no escape */
        to[(*ret_n)++] = '\\';
        return SIZE_MAX;
    }
    if (digits == 0 || n <= digits)
        return 0;
    for (size_t i = 1; i <= digits; i++) {
        if (jinja_digit_of(at[i]) > 15)
            return 0;
        c = c << 4 | jinja_digit_of(at[i]);
    }
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        return 0;
    *ret_n = char_encode(c, to);
    return digits + 1;
}

/* Appends a string's token. */
static bool jinja_expression_unquote(struct jinja_parser *p, const struct jinja_token *token,
                                     struct growing_bytes *to)
{
    const char *text = token->text + 1;
    size_t n = token->n - 2;

    for (size_t i = 0; i < n;) {
        uint8_t made[4];
        size_t made_n = 1, passed;
        made[0] = (uint8_t)text[i++];
        if (made[0] == '\\' && i < n) {
            passed = jinja_expression_escape(text + i, n - i, made, &made_n);
            if (passed == 0)
                return jinja_parse_refuse(p, "an escape in a string is not supported") != NULL;
            i += passed == SIZE_MAX ? 0 : passed;
        }
        if (growing_bytes_add(to, made, made_n) < 0)
            return jinja_parse_no_memory(p) != NULL;
    }
    return true;
}

static struct jinja_node *jinja_expression_constant(struct jinja_parser *p, json_t *value)
{
    struct jinja_node *node = jinja_parse_node(p, JINJA_CONST);

    if (!node || !value) {
        json_decref(value);
        return jinja_parse_no_memory(p);
    }
    node->value = value;
    return node;
}

static struct jinja_node *jinja_expression_string(struct jinja_parser *p)
{
    struct growing_bytes text = {0};
    struct jinja_node *node = NULL;
    bool good = true;

    for (; good && jinja_parse_is(p, JINJA_STRING, NULL); p->at++)
        good = jinja_expression_unquote(p, p->at, &text);
    if (good)
        node = jinja_expression_constant(
            p, json_stringn_nocheck(text.data ? (char *)text.data : "", text.n));
    free(text.data);
    return node;
}

static struct jinja_node *jinja_expression_number(struct jinja_parser *p)
{
    char text[32], *end;
    size_t n = p->at->n;

    if (n >= sizeof text || memchr(p->at->text, '_', n) ||
        (n > 1 && p->at->text[0] == '0' && p->at->text[1] != '.'))
        return jinja_parse_refuse(p, "such a number is not supported");
    memcpy(text, p->at->text, n);
    text[n] = '\0';
    p->at++;
    errno = 0;
    if (strchr(text, '.'))
        return jinja_expression_constant(p, json_real(strtod(text, &end)));
    long long integer = strtoll(text, &end, 10);
    if (errno)
        return jinja_parse_refuse(p, "a number is too large");
    return jinja_expression_constant(p, json_integer(integer));
}

/* ---- primary expressions -------------------------------------------------------------------- */

/* Items up to `end`, with a comma between. */
static struct jinja_node *jinja_expression_items(struct jinja_parser *p, enum jinja_op op,
                                                 const char *end)
{
    struct jinja_node *node = jinja_parse_node(p, op);
    struct jinja_node **last = node ? &node->list : NULL;

    while (node && !jinja_parse_is(p, JINJA_SIGN, end)) {
        for (unsigned i = 0; i < (op == JINJA_DICT ? 2U : 1U); i++) {
            if (i == 1 && !jinja_parse_need(p, JINJA_SIGN, ":"))
                return NULL;
            if (!(*last = jinja_parse_expression(p, false)))
                return NULL;
            last = &(*last)->next;
        }
        if (!jinja_parse_pass(p, JINJA_SIGN, ","))
            break;
    }
    return node && jinja_parse_need(p, JINJA_SIGN, end) ? node : NULL;
}

static struct jinja_node *jinja_expression_name(struct jinja_parser *p)
{
    static const char *const words[] = {"true", "True", "false", "False", "none", "None"};
    struct jinja_node *node;

    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (jinja_parse_pass(p, JINJA_NAME, words[i]))
            return jinja_expression_constant(p, i < 2   ? json_true()
                                                : i < 4 ? json_false()
                                                        : json_null());
    node = jinja_parse_node(p, JINJA_VARIABLE);
    return node && (node->name = jinja_parse_name(p)) ? node : NULL;
}

static struct jinja_node *jinja_expression_primary(struct jinja_parser *p)
{
    struct jinja_node *node;

    if (jinja_parse_is(p, JINJA_NAME, NULL))
        return jinja_expression_name(p);
    if (jinja_parse_is(p, JINJA_STRING, NULL))
        return jinja_expression_string(p);
    if (jinja_parse_is(p, JINJA_NUMBER, NULL))
        return jinja_expression_number(p);
    if (jinja_parse_pass(p, JINJA_SIGN, "["))
        return jinja_expression_items(p, JINJA_LIST, "]");
    if (jinja_parse_pass(p, JINJA_SIGN, "{"))
        return jinja_expression_items(p, JINJA_DICT, "}");
    if (jinja_parse_pass(p, JINJA_SIGN, "(")) {
        if (jinja_parse_pass(p, JINJA_SIGN, ")"))
            return jinja_parse_node(p, JINJA_LIST);
        node = jinja_parse_expression(p, true);
        return node && jinja_parse_need(p, JINJA_SIGN, ")") ? node : NULL;
    }
    return jinja_parse_refuse(p, "an expression is missing before \"%.*s\"",
                              (int)min_u64(p->at->n, 40), p->at->text ? p->at->text : "");
}

/* Behind "(". */
static bool jinja_expression_arguments(struct jinja_parser *p, struct jinja_node *call)
{
    struct jinja_node **last = &call->list;
    bool named = false;

    while (!jinja_parse_is(p, JINJA_SIGN, ")")) {
        struct jinja_node *value, *keyword = NULL;
        const struct jinja_token *behind = p->at->kind == JINJA_END ? p->at : p->at + 1;
        if (p->at->kind == JINJA_NAME && behind->kind == JINJA_SIGN && behind->n == 1 &&
            behind->text[0] == '=') {
            keyword = jinja_parse_node(p, JINJA_KEYWORD);
            if (!keyword || !(keyword->name = jinja_parse_name(p)))
                return false;
            p->at++;
        }
        if (!(value = jinja_parse_expression(p, false)))
            return false;
        if (named && !keyword)
            return jinja_parse_refuse(p, "an argument without a name behind one that has a name");
        named = keyword;
        if (keyword)
            keyword->a = value;
        *last = keyword ? keyword : value;
        last = &(*last)->next;
        if (!jinja_parse_pass(p, JINJA_SIGN, ","))
            break;
    }
    return jinja_parse_need(p, JINJA_SIGN, ")");
}

static struct jinja_node *jinja_expression_call(struct jinja_parser *p, struct jinja_node *of)
{
    if (of->op == JINJA_VARIABLE) {
        of->op = JINJA_CALL;
        of->call = jinja_find_function(of->name);
    } else if (of->op == JINJA_ATTRIBUTE) {
        of->op = JINJA_METHOD;
        if (!jinja_find_method(of->name, NULL))
            return jinja_parse_refuse(p, "the method %s() is not supported", of->name);
    } else {
        return jinja_parse_refuse(p, "a call of what is not a name");
    }
    return jinja_expression_arguments(p, of) ? of : NULL;
}

/* Behind "[". */
static struct jinja_node *jinja_expression_subscript(struct jinja_parser *p, struct jinja_node *of)
{
    struct jinja_node *node = jinja_parse_node(p, JINJA_ITEM), **parts[3];
    unsigned colons = 0;

    if (!node)
        return NULL;
    node->a = of;
    parts[0] = &node->b;
    parts[1] = &node->c;
    parts[2] = &node->d;
    while (!jinja_parse_is(p, JINJA_SIGN, "]")) {
        if (jinja_parse_pass(p, JINJA_SIGN, ":")) {
            if (++colons > 2)
                return jinja_parse_refuse(p, "a slice has three parts at most");
        } else if (*parts[colons] || !(*parts[colons] = jinja_parse_expression(p, false))) {
            return jinja_parse_refuse(p, "] is missing");
        }
    }
    if (colons > 0)
        node->op = JINJA_SLICE;
    else if (!node->b)
        return jinja_parse_refuse(p, "an index is missing");
    p->at++;
    return node;
}

static struct jinja_node *jinja_expression_postfix(struct jinja_parser *p, struct jinja_node *of)
{
    while (of) {
        if (jinja_parse_pass(p, JINJA_SIGN, ".")) {
            struct jinja_node *node = jinja_parse_node(p, JINJA_ATTRIBUTE);
            if (!node || !(node->name = jinja_parse_name(p)))
                return NULL;
            node->a = of;
            of = node;
        } else if (jinja_parse_pass(p, JINJA_SIGN, "[")) {
            of = jinja_expression_subscript(p, of);
        } else if (jinja_parse_pass(p, JINJA_SIGN, "(")) {
            of = jinja_expression_call(p, of);
        } else {
            return of;
        }
    }
    return NULL;
}

/* ---- filters and tests ---------------------------------------------------------------------- */

static struct jinja_node *jinja_expression_filter(struct jinja_parser *p, struct jinja_node *of)
{
    struct jinja_node *node = jinja_parse_node(p, JINJA_FILTER);

    if (!node || !(node->name = jinja_parse_name(p)))
        return NULL;
    node->a = of;
    if (!(node->call = jinja_find_filter(node->name)))
        return jinja_parse_refuse(p, "the filter %s is not supported", node->name);
    if (jinja_parse_pass(p, JINJA_SIGN, "(") && !jinja_expression_arguments(p, node))
        return NULL;
    return node;
}

/* Whether an argument follows a test without brackets, as in "is divisibleby 3". */
static bool jinja_expression_has_bare(const struct jinja_parser *p)
{
    if (jinja_parse_is(p, JINJA_NAME, NULL))
        return !jinja_parse_is(p, JINJA_NAME, "else") && !jinja_parse_is(p, JINJA_NAME, "or") &&
               !jinja_parse_is(p, JINJA_NAME, "and") && !jinja_parse_is(p, JINJA_NAME, "is");
    return jinja_parse_is(p, JINJA_STRING, NULL) || jinja_parse_is(p, JINJA_NUMBER, NULL) ||
           jinja_parse_is(p, JINJA_SIGN, "[") || jinja_parse_is(p, JINJA_SIGN, "{");
}

/* Behind "is". */
static struct jinja_node *jinja_expression_test(struct jinja_parser *p, struct jinja_node *of)
{
    struct jinja_node *test, *not ;
    bool negated = jinja_parse_pass(p, JINJA_NAME, "not");

    test = jinja_parse_node(p, JINJA_TEST);
    if (!test || !(test->name = jinja_parse_name(p)))
        return NULL;
    test->a = of;
    if (!(test->call = jinja_find_test(test->name)))
        return jinja_parse_refuse(p, "the test %s is not supported", test->name);
    if (jinja_parse_pass(p, JINJA_SIGN, "(")) {
        if (!jinja_expression_arguments(p, test))
            return NULL;
    } else if (jinja_expression_has_bare(p) &&
               !(test->list = jinja_expression_postfix(p, jinja_expression_primary(p)))) {
        return NULL;
    }
    if (!negated)
        return test;
    if ((not = jinja_parse_node(p, JINJA_NOT)))
        not ->a = test;
    return not ;
}

static struct jinja_node *jinja_expression_filters(struct jinja_parser *p, struct jinja_node *of)
{
    while (of) {
        if (jinja_parse_pass(p, JINJA_SIGN, "|"))
            of = jinja_expression_filter(p, of);
        else if (jinja_parse_pass(p, JINJA_NAME, "is"))
            of = jinja_expression_test(p, of);
        else
            return of;
    }
    return NULL;
}

/* ---- operators ------------------------------------------------------------------------------ */

static struct jinja_node *jinja_expression_pair(struct jinja_parser *p, enum jinja_op op,
                                                struct jinja_node *a, struct jinja_node *b)
{
    struct jinja_node *node = a && b ? jinja_parse_node(p, op) : NULL;

    if (node) {
        node->a = a;
        node->b = b;
    }
    return node;
}

static struct jinja_node *jinja_expression_unary(struct jinja_parser *p, bool filters)
{
    struct jinja_node *node;

    if (++p->depth > JINJA_NESTED_MAX)
        return jinja_parse_refuse(p, "an expression is nested too deep");
    if (jinja_parse_pass(p, JINJA_SIGN, "-")) {
        struct jinja_node *of = jinja_expression_unary(p, false);
        node = of ? jinja_parse_node(p, JINJA_NEGATE) : NULL;
        if (node)
            node->a = of;
    } else {
        node = jinja_expression_primary(p);
    }
    node = jinja_expression_postfix(p, node);
    if (filters)
        node = jinja_expression_filters(p, node);
    p->depth--;
    return node;
}

struct jinja_operator {
    const char *text;
    enum jinja_op op;
};

static enum jinja_op jinja_expression_operator(struct jinja_parser *p,
                                               const struct jinja_operator *of)
{
    for (; of->text; of++)
        if (jinja_parse_pass(p, JINJA_SIGN, of->text))
            return of->op;
    return 0;
}

static struct jinja_node *jinja_expression_product(struct jinja_parser *p)
{
    static const struct jinja_operator operators[] = {{"*", JINJA_MULTIPLY},
                                                      {"/", JINJA_DIVIDE},
                                                      {"//", JINJA_FLOOR},
                                                      {"%", JINJA_MODULO},
                                                      {NULL, 0}};
    struct jinja_node *node = jinja_expression_unary(p, true);
    enum jinja_op op;

    if (jinja_parse_is(p, JINJA_SIGN, "**"))
        return jinja_parse_refuse(p, "** is not supported");
    while (node && (op = jinja_expression_operator(p, operators)))
        node = jinja_expression_pair(p, op, node, jinja_expression_unary(p, true));
    return node;
}

static struct jinja_node *jinja_expression_concat(struct jinja_parser *p)
{
    struct jinja_node *node = jinja_expression_product(p);

    while (node && jinja_parse_pass(p, JINJA_SIGN, "~"))
        node = jinja_expression_pair(p, JINJA_CONCAT, node, jinja_expression_product(p));
    return node;
}

static struct jinja_node *jinja_expression_sum(struct jinja_parser *p)
{
    static const struct jinja_operator operators[] = {
        {"+", JINJA_ADD}, {"-", JINJA_SUBTRACT}, {NULL, 0}};
    struct jinja_node *node = jinja_expression_concat(p);
    enum jinja_op op;

    while (node && (op = jinja_expression_operator(p, operators)))
        node = jinja_expression_pair(p, op, node, jinja_expression_concat(p));
    return node;
}

/* The comparison that is next, by a name of ours; or NULL. */
static const char *jinja_expression_comparison(struct jinja_parser *p)
{
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">"};

    for (size_t i = 0; i < ARRAY_SIZE(signs); i++)
        if (jinja_parse_pass(p, JINJA_SIGN, signs[i]))
            return signs[i];
    if (jinja_parse_pass(p, JINJA_NAME, "in"))
        return "in";
    if (!jinja_parse_is(p, JINJA_NAME, "not"))
        return NULL;
    p->at++;
    if (jinja_parse_pass(p, JINJA_NAME, "in"))
        return "not in";
    p->at--;
    return NULL;
}

static struct jinja_node *jinja_expression_compare(struct jinja_parser *p)
{
    struct jinja_node *first = jinja_expression_sum(p), *node = NULL, **last = NULL;
    const char *sign;

    while (first && !p->error && (sign = jinja_expression_comparison(p))) {
        if (!node) {
            if (!(node = jinja_parse_node(p, JINJA_COMPARE)))
                return NULL;
            node->a = first;
            last = &node->list;
        }
        struct jinja_node *with = jinja_parse_node(p, JINJA_COMPARED);
        if (!with || !(with->a = jinja_expression_sum(p)))
            return NULL;
        with->name = sign;
        *last = with;
        last = &with->next;
    }
    return node ? node : first;
}

static struct jinja_node *jinja_expression_not(struct jinja_parser *p)
{
    struct jinja_node *node, *of;

    if (!jinja_parse_pass(p, JINJA_NAME, "not"))
        return jinja_expression_compare(p);
    if (++p->depth > JINJA_NESTED_MAX)
        return jinja_parse_refuse(p, "an expression is nested too deep");
    of = jinja_expression_not(p);
    p->depth--;
    node = of ? jinja_parse_node(p, JINJA_NOT) : NULL;
    if (node)
        node->a = of;
    return node;
}

static struct jinja_node *jinja_expression_and(struct jinja_parser *p)
{
    struct jinja_node *node = jinja_expression_not(p);

    while (node && jinja_parse_pass(p, JINJA_NAME, "and"))
        node = jinja_expression_pair(p, JINJA_AND, node, jinja_expression_not(p));
    return node;
}

struct jinja_node *jinja_parse_or(struct jinja_parser *p)
{
    struct jinja_node *node = jinja_expression_and(p);

    while (node && jinja_parse_pass(p, JINJA_NAME, "or"))
        node = jinja_expression_pair(p, JINJA_OR, node, jinja_expression_and(p));
    return node;
}

static struct jinja_node *jinja_expression_choose(struct jinja_parser *p)
{
    struct jinja_node *node = jinja_parse_or(p);

    while (node && jinja_parse_pass(p, JINJA_NAME, "if")) {
        struct jinja_node *choose = jinja_parse_node(p, JINJA_CHOOSE);
        if (!choose || !(choose->a = jinja_parse_or(p)))
            return NULL;
        choose->b = node;
        if (jinja_parse_pass(p, JINJA_NAME, "else") && !(choose->c = jinja_expression_choose(p)))
            return NULL;
        node = choose;
    }
    return node;
}

struct jinja_node *jinja_parse_expression(struct jinja_parser *p, bool tuple)
{
    struct jinja_node *node, *list, **last;

    if (++p->depth > JINJA_NESTED_MAX)
        return jinja_parse_refuse(p, "an expression is nested too deep");
    node = jinja_expression_choose(p);
    if (node && tuple && jinja_parse_is(p, JINJA_SIGN, ",")) {
        if (!(list = jinja_parse_node(p, JINJA_LIST)))
            return NULL;
        list->list = node;
        last = &node->next;
        while (jinja_parse_pass(p, JINJA_SIGN, ",")) {
            if (jinja_parse_is(p, JINJA_SIGN, ")") || jinja_parse_is(p, JINJA_BLOCK_END, NULL))
                break;
            if (!(*last = jinja_expression_choose(p)))
                return NULL;
            last = &(*last)->next;
        }
        node = list;
    }
    p->depth--;
    return node;
}
