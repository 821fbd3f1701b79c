/*
 * The Jinja that chat templates are written in: text for text as jinja2 renders it in the
 * environment of transformers (immutable sandbox, trim_blocks, lstrip_blocks, loop controls,
 * generation blocks, its own tojson).
 *
 * It has if, for, set, macro, generation, break and continue; all operators; namespaces; the
 * filters, tests, methods and functions that the tables in jinja_calls.c and jinja_methods.c list.
 * What a template uses beyond that is refused when it is parsed, or, where only a value can show
 * it, when it is rendered: nothing is rendered otherwise than jinja2 does it, but that a tuple is
 * written as the list that it is here (so is what range(), keys(), values() and items() of a dict
 * give), and that a loop sees a variable that was given as long as
 * the template, further down, has not set it.
 *
 * Rendering is bounded in steps, depth and bytes, whatever the template. Values are JSON. Pure: a
 * parsed template is only read, by any thread.
 */
#ifndef DL_DATA_JINJA_H
#define DL_DATA_JINJA_H

#include "daemon/data/decode/tokenizer/growing.h"

#include <jansson.h>

enum { JINJA_WHY_MAX = 160 };

struct jinja;

/* -ENOMEM; -EINVAL with words in `why`, of JINJA_WHY_MAX bytes, which name the line. */
int _nodiscard_ jinja_parse(const char *text, size_t n, struct jinja **ret, char *why);
void jinja_free(struct jinja *jinja); /* NULL is fine */

/* Whether it says by generation blocks what the model is to write. */
bool jinja_has_generation(const struct jinja *jinja);

/* Bytes of what was rendered. */
struct jinja_span {
    size_t from, to;
    size_t item; /* of jinja_render.watch */
};

struct jinja_spans {
    struct jinja_span *list; /* owned */
    size_t n, room;
};

struct jinja_render {
    const json_t *variables; /* borrowed; an object */
    const json_t *watch;     /* borrowed; a list of `variables`, or NULL */
    const char *date;        /* borrowed; YYYY-MM-DD, for strftime_now(); NULL: it is refused */
    /* What comes back; to be freed by jinja_render_deinit(). */
    struct growing_bytes text;
    struct jinja_spans generation; /* each generation block */
    struct jinja_spans items;      /* each turn of a loop whose item is one of `watch` */
};

/* -ENOMEM; -E2BIG, -ELOOP: beyond the bounds; -EINVAL: words in `why`, such as the template's own.
 * What an earlier call left in `render` is replaced. */
int _nodiscard_ jinja_render(const struct jinja *jinja, struct jinja_render *render, char *why);
void jinja_render_deinit(struct jinja_render *render);

/* Whether the words are of what jinja2 may render, and this does not. */
bool jinja_lacks(const char *why);

/* What renders a template in its place that jinja_parse() refuses. Its functions are as
 * jinja_render(), with an empty `render`, and jinja_free(). */
struct jinja_renderer {
    bool generation;
    int (*render)(const struct jinja_renderer *renderer, struct jinja_render *render, char *why);
    void (*free)(struct jinja_renderer *renderer);
};

/* Owns it from then on, also where there is no memory. */
int _nodiscard_ jinja_of(struct jinja_renderer *renderer, struct jinja **ret);

/* Without what Python's str.isspace() has before valid UTF-8, or behind it. */
void jinja_strip(const char **text, size_t *n, bool left, bool right);

#endif
