#include "daemon/data/decode/jinja/jinja_parse.h"

#include "proto/common/utf8.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- what both parsers use ------------------------------------------------------------------ */

struct jinja_node *jinja_parse_refuse(struct jinja_parser *p, const char *fmt, ...)
{
    char words[JINJA_WHY_MAX];
    va_list args;

    if (p->error)
        return NULL;
    va_start(args, fmt);
    vsnprintf(words, sizeof words, fmt, args);
    va_end(args);
    snprintf(p->why, JINJA_WHY_MAX, "line %u: %.*s", p->at->line, JINJA_WHY_MAX - 24, words);
    p->error = -EINVAL;
    return NULL;
}

struct jinja_node *jinja_parse_no_memory(struct jinja_parser *p)
{
    if (!p->error)
        p->error = -ENOMEM;
    return NULL;
}

struct jinja_node *jinja_parse_node(struct jinja_parser *p, enum jinja_op op)
{
    struct jinja_node *node = p->error ? NULL : calloc(1, sizeof *node);

    if (!node)
        return jinja_parse_no_memory(p);
    node->op = op;
    node->line = p->at->line;
    node->all = p->jinja->nodes;
    p->jinja->nodes = node;
    return node;
}

bool jinja_parse_is(const struct jinja_parser *p, enum jinja_token_kind kind, const char *text)
{
    return p->at->kind == kind &&
           (!text || (p->at->n == strlen(text) && memcmp(p->at->text, text, p->at->n) == 0));
}

bool jinja_parse_pass(struct jinja_parser *p, enum jinja_token_kind kind, const char *text)
{
    bool is = !p->error && jinja_parse_is(p, kind, text);

    p->at += is;
    return is;
}

bool jinja_parse_need(struct jinja_parser *p, enum jinja_token_kind kind, const char *text)
{
    static const char *const kinds[] = {
        [JINJA_BLOCK_END] = "%}", [JINJA_OUTPUT_END] = "}}", [JINJA_NAME] = "a name"};

    if (jinja_parse_pass(p, kind, text))
        return true;
    (void)jinja_parse_refuse(p, "%s is missing before \"%.*s\"", text ? text : kinds[kind],
                             (int)min_u64(p->at->n, 40), p->at->text ? p->at->text : "");
    return false;
}

const char *jinja_parse_name(struct jinja_parser *p)
{
    const struct jinja_token *token = p->at;

    if (!jinja_parse_need(p, JINJA_NAME, NULL))
        return NULL;
    for (struct jinja_name *name = p->jinja->names; name; name = name->next)
        if (strlen(name->text) == token->n && memcmp(name->text, token->text, token->n) == 0)
            return name->text;
    struct jinja_name *name = calloc(1, sizeof *name + token->n + 1);
    if (!name) {
        (void)jinja_parse_no_memory(p);
        return NULL;
    }
    memcpy(name->text, token->text, token->n);
    name->next = p->jinja->names;
    p->jinja->names = name;
    return name->text;
}

/* ---- statements ----------------------------------------------------------------------------- */

static struct jinja_node *jinja_parse_block(struct jinja_parser *p, const char *const *ends);

/* The names that a loop or set gives values to. */
static struct jinja_node *jinja_parse_targets(struct jinja_parser *p)
{
    struct jinja_node *first = NULL, **last = &first;
    bool bracket = jinja_parse_pass(p, JINJA_SIGN, "(");

    do {
        struct jinja_node *name = jinja_parse_node(p, JINJA_VARIABLE);
        if (!name || !(name->name = jinja_parse_name(p)))
            return NULL;
        *last = name;
        last = &name->next;
    } while (jinja_parse_pass(p, JINJA_SIGN, ","));
    return bracket && !jinja_parse_need(p, JINJA_SIGN, ")") ? NULL : first;
}

static struct jinja_node *jinja_parse_if(struct jinja_parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    static const char *const last[] = {"endif", NULL};
    struct jinja_node *node = jinja_parse_node(p, JINJA_IF);

    if (!node || !(node->a = jinja_parse_expression(p, true)) ||
        !jinja_parse_need(p, JINJA_BLOCK_END, NULL))
        return NULL;
    node->b = jinja_parse_block(p, ends);
    if (jinja_parse_pass(p, JINJA_NAME, "elif")) {
        if (++p->depth > JINJA_NESTED_MAX)
            return jinja_parse_refuse(p, "too many elif");
        node->c = jinja_parse_if(p);
        p->depth--;
        return node->c ? node : NULL;
    }
    if (jinja_parse_pass(p, JINJA_NAME, "else")) {
        if (!jinja_parse_need(p, JINJA_BLOCK_END, NULL))
            return NULL;
        node->c = jinja_parse_block(p, last);
    }
    return jinja_parse_need(p, JINJA_NAME, "endif") ? node : NULL;
}

static struct jinja_node *jinja_parse_for(struct jinja_parser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    static const char *const last[] = {"endfor", NULL};
    struct jinja_node *node = jinja_parse_node(p, JINJA_FOR);

    if (!node || !(node->list = jinja_parse_targets(p)) || !jinja_parse_need(p, JINJA_NAME, "in") ||
        !(node->a = jinja_parse_or(p)))
        return NULL;
    if (jinja_parse_pass(p, JINJA_NAME, "if") && !(node->d = jinja_parse_expression(p, false)))
        return NULL;
    if (!jinja_parse_need(p, JINJA_BLOCK_END, NULL))
        return NULL;
    p->loops++;
    node->b = jinja_parse_block(p, ends);
    p->loops--;
    if (jinja_parse_pass(p, JINJA_NAME, "else")) {
        if (!jinja_parse_need(p, JINJA_BLOCK_END, NULL))
            return NULL;
        node->c = jinja_parse_block(p, last);
    }
    return jinja_parse_need(p, JINJA_NAME, "endfor") ? node : NULL;
}

static struct jinja_node *jinja_parse_set(struct jinja_parser *p)
{
    static const char *const ends[] = {"endset", NULL};
    struct jinja_node *node = jinja_parse_node(p, JINJA_SET);

    if (!node || !(node->list = jinja_parse_targets(p)))
        return NULL;
    if (!node->list->next && jinja_parse_pass(p, JINJA_SIGN, ".") &&
        !(node->attribute = jinja_parse_name(p)))
        return NULL;
    if (node->attribute && node->attribute[0] == '_')
        return jinja_parse_refuse(p, "an attribute of a namespace begins with _");
    if (jinja_parse_pass(p, JINJA_SIGN, "="))
        return (node->a = jinja_parse_expression(p, true)) ? node : NULL;
    if (node->list->next || !jinja_parse_need(p, JINJA_BLOCK_END, NULL))
        return jinja_parse_refuse(p, "a value is missing");
    node->b = jinja_parse_block(p, ends);
    return jinja_parse_need(p, JINJA_NAME, "endset") ? node : NULL;
}

static struct jinja_node *jinja_parse_macro(struct jinja_parser *p)
{
    static const char *const ends[] = {"endmacro", NULL};
    struct jinja_node *node = jinja_parse_node(p, JINJA_MACRO);
    unsigned n = 0, loops = p->loops;

    if (!node || !(node->name = jinja_parse_name(p)) || !jinja_parse_need(p, JINJA_SIGN, "("))
        return NULL;
    for (struct jinja_node **last = &node->list; !jinja_parse_is(p, JINJA_SIGN, ")");) {
        struct jinja_node *parameter = jinja_parse_node(p, JINJA_VARIABLE);
        if (!parameter || !(parameter->name = jinja_parse_name(p)))
            return NULL;
        if (++n > JINJA_ARGS_MAX)
            return jinja_parse_refuse(p, "a macro with more than %d parameters is not supported",
                                      JINJA_ARGS_MAX);
        if (jinja_parse_pass(p, JINJA_SIGN, "=") &&
            !(parameter->a = jinja_parse_expression(p, false)))
            return NULL;
        *last = parameter;
        last = &parameter->next;
        if (!jinja_parse_pass(p, JINJA_SIGN, ","))
            break;
    }
    if (!jinja_parse_need(p, JINJA_SIGN, ")") || !jinja_parse_need(p, JINJA_BLOCK_END, NULL))
        return NULL;
    p->loops = 0;
    node->b = jinja_parse_block(p, ends);
    p->loops = loops;
    return jinja_parse_need(p, JINJA_NAME, "endmacro") ? node : NULL;
}

static struct jinja_node *jinja_parse_generation(struct jinja_parser *p)
{
    static const char *const ends[] = {"endgeneration", NULL};
    struct jinja_node *node = jinja_parse_node(p, JINJA_GENERATION);
    unsigned loops = p->loops;

    if (!node || !jinja_parse_need(p, JINJA_BLOCK_END, NULL))
        return NULL;
    p->jinja->generation = true;
    p->loops = 0; /* it is called, as macros are */
    node->b = jinja_parse_block(p, ends);
    p->loops = loops;
    return jinja_parse_need(p, JINJA_NAME, "endgeneration") ? node : NULL;
}

static struct jinja_node *jinja_parse_leave(struct jinja_parser *p, enum jinja_op op)
{
    return p->loops > 0 ? jinja_parse_node(p, op)
                        : jinja_parse_refuse(p, "break or continue outside of a loop");
}

/* Behind "{%". */
static struct jinja_node *jinja_parse_statement(struct jinja_parser *p)
{
    struct jinja_node *node;

    if (jinja_parse_pass(p, JINJA_NAME, "if"))
        node = jinja_parse_if(p);
    else if (jinja_parse_pass(p, JINJA_NAME, "for"))
        node = jinja_parse_for(p);
    else if (jinja_parse_pass(p, JINJA_NAME, "set"))
        node = jinja_parse_set(p);
    else if (jinja_parse_pass(p, JINJA_NAME, "macro"))
        node = jinja_parse_macro(p);
    else if (jinja_parse_pass(p, JINJA_NAME, "generation"))
        node = jinja_parse_generation(p);
    else if (jinja_parse_pass(p, JINJA_NAME, "break"))
        node = jinja_parse_leave(p, JINJA_BREAK);
    else if (jinja_parse_pass(p, JINJA_NAME, "continue"))
        node = jinja_parse_leave(p, JINJA_CONTINUE);
    else
        node = jinja_parse_refuse(p, "the tag %.*s is not supported", (int)min_u64(p->at->n, 40),
                                  p->at->text ? p->at->text : "");
    return node && jinja_parse_need(p, JINJA_BLOCK_END, NULL) ? node : NULL;
}

static struct jinja_node *jinja_parse_one(struct jinja_parser *p)
{
    struct jinja_node *node;

    if (jinja_parse_is(p, JINJA_TEXT, NULL)) {
        node = jinja_parse_node(p, JINJA_WRITE);
        if (!node || !(node->a = jinja_parse_node(p, JINJA_CONST)))
            return NULL;
        node->a->value = json_stringn_nocheck(p->at->text, p->at->n);
        p->at++;
        return node->a->value ? node : jinja_parse_no_memory(p);
    }
    if (jinja_parse_pass(p, JINJA_OUTPUT_BEGIN, NULL)) {
        node = jinja_parse_node(p, JINJA_WRITE);
        if (!node || !(node->a = jinja_parse_expression(p, true)))
            return NULL;
        return jinja_parse_need(p, JINJA_OUTPUT_END, NULL) ? node : NULL;
    }
    p->at++; /* BLOCK_BEGIN, the only other one that is outside of tags */
    return jinja_parse_statement(p);
}

/* The statements up to a tag of `ends`, whose name is next; NULL: up to the end. May be none. */
static struct jinja_node *jinja_parse_block(struct jinja_parser *p, const char *const *ends)
{
    struct jinja_node *first = NULL, **last = &first;

    if (++p->depth > JINJA_NESTED_MAX)
        return jinja_parse_refuse(p, "statements are nested too deep");
    while (!p->error && !jinja_parse_is(p, JINJA_END, NULL)) {
        for (size_t i = 0; ends && jinja_parse_is(p, JINJA_BLOCK_BEGIN, NULL) && ends[i]; i++) {
            p->at++;
            if (jinja_parse_is(p, JINJA_NAME, ends[i])) {
                p->depth--;
                return first;
            }
            p->at--;
        }
        *last = jinja_parse_one(p);
        if (*last)
            last = &(*last)->next;
    }
    p->depth--;
    return ends ? jinja_parse_refuse(p, "a block has no {%% %s %%}", ends[0]) : first;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Lines end in \n, and the last one has no end. */
static char *jinja_parse_lines(const char *text, size_t n, size_t *ret_n)
{
    char *to = malloc(n + 1);
    size_t at = 0;

    for (size_t i = 0; to && i < n; i++) {
        if (text[i] == '\r' && i + 1 < n && text[i + 1] == '\n')
            continue;
        to[at++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (to && at > 0 && to[at - 1] == '\n')
        at--;
    *ret_n = at;
    return to;
}

static int jinja_parse_tokens(struct jinja *jinja, const struct jinja_tokens *tokens, char *why)
{
    struct jinja_parser p = {.jinja = jinja, .at = tokens->list};

    p.why = why;
    jinja->root = jinja_parse_block(&p, NULL);
    return p.error;
}

int jinja_parse(const char *text, size_t n, struct jinja **ret, char *why)
{
    struct jinja *jinja = calloc(1, sizeof *jinja);
    struct jinja_tokens tokens = {0};
    size_t lines_n;
    char *lines = jinja_parse_lines(text, n, &lines_n);
    int r = jinja && lines ? 0 : -ENOMEM;

    if (r == 0 && !utf8_valid((const uint8_t *)text, n)) {
        snprintf(why, JINJA_WHY_MAX, "is not UTF-8");
        r = -EINVAL;
    }
    if (r == 0)
        r = jinja_lex(lines, lines_n, &tokens, why);
    if (r == 0)
        r = jinja_parse_tokens(jinja, &tokens, why);
    free(tokens.list);
    free(lines);
    if (r < 0)
        jinja_free(jinja);
    else
        *ret = jinja;
    return r;
}

void jinja_free(struct jinja *jinja)
{
    if (!jinja)
        return;
    if (jinja->renderer)
        jinja->renderer->free(jinja->renderer);
    for (struct jinja_node *node = jinja->nodes, *all; node; node = all) {
        all = node->all;
        json_decref(node->value);
        free(node);
    }
    for (struct jinja_name *name = jinja->names, *next; name; name = next) {
        next = name->next;
        free(name);
    }
    free(jinja);
}

int jinja_of(struct jinja_renderer *renderer, struct jinja **ret)
{
    struct jinja *jinja = calloc(1, sizeof *jinja);

    if (!jinja) {
        renderer->free(renderer);
        return -ENOMEM;
    }
    jinja->renderer = renderer;
    jinja->generation = renderer->generation;
    *ret = jinja;
    return 0;
}

bool jinja_has_generation(const struct jinja *jinja)
{
    return jinja->generation;
}
