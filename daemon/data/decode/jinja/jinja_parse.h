/*
 * What the parsers of statements and of expressions share. Each returns NULL after an error.
 */
#ifndef DL_DATA_JINJA_PARSE_H
#define DL_DATA_JINJA_PARSE_H

#include "daemon/data/decode/jinja/jinja_tree.h"

/* Levels of what is nested: expressions, statements. */
enum { JINJA_NESTED_MAX = 100 };

struct jinja_parser {
    struct jinja *jinja;
    const struct jinja_token *at; /* the list ends with JINJA_END */
    unsigned depth;
    unsigned loops;
    int error; /* negative errno */
    char *why;
};

struct jinja_node *jinja_parse_refuse(struct jinja_parser *p, const char *fmt, ...) _printf_(2, 3);
struct jinja_node *jinja_parse_no_memory(struct jinja_parser *p);
struct jinja_node *jinja_parse_node(struct jinja_parser *p, enum jinja_op op);
/* One pointer for each name of the template. */
const char *jinja_parse_name(struct jinja_parser *p);
bool jinja_parse_is(const struct jinja_parser *p, enum jinja_token_kind kind, const char *text);
/* Passes it if it is there. */
bool jinja_parse_pass(struct jinja_parser *p, enum jinja_token_kind kind, const char *text);
/* False, with an error, if it is not. */
bool jinja_parse_need(struct jinja_parser *p, enum jinja_token_kind kind, const char *text);

/* An expression; with `tuple`, commas make a list of several. */
struct jinja_node *jinja_parse_expression(struct jinja_parser *p, bool tuple);
/* Without "... if ...", for what a loop goes over. */
struct jinja_node *jinja_parse_or(struct jinja_parser *p);

#endif
