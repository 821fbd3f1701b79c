/*
 * What the parts of jinja.h share: tokens, the tree, and a rendering on its way.
 */
#ifndef DL_DATA_JINJA_TREE_H
#define DL_DATA_JINJA_TREE_H

#include "daemon/data/decode/jinja/jinja.h"

/* ---- tokens --------------------------------------------------------------------------------- */

enum jinja_token_kind {
    JINJA_END,
    JINJA_TEXT,
    JINJA_OUTPUT_BEGIN,
    JINJA_OUTPUT_END,
    JINJA_BLOCK_BEGIN,
    JINJA_BLOCK_END,
    JINJA_NAME,
    JINJA_STRING, /* with its quotes */
    JINJA_NUMBER,
    JINJA_SIGN
};

struct jinja_token {
    enum jinja_token_kind kind;
    const char *text; /* borrowed */
    size_t n;
    uint32_t line;
};

struct jinja_tokens {
    struct jinja_token *list; /* owned */
    size_t n, room;
};

/* The tokens of a text whose lines end in \n. -ENOMEM; -EINVAL with words. */
int _nodiscard_ jinja_lex(const char *text, size_t n, struct jinja_tokens *ret, char *why);

/* Python's str.isspace() of the character that valid UTF-8 begins with, and its bytes. */
bool jinja_is_space(const char *text, size_t n, size_t *ret_bytes);

/* ---- the tree ------------------------------------------------------------------------------- */

enum jinja_op {
    /* expressions */
    JINJA_CONST = 1, /* value */
    JINJA_VARIABLE,  /* name */
    JINJA_ATTRIBUTE, /* a.name */
    JINJA_ITEM,      /* a[b] */
    JINJA_SLICE,     /* a[b:c:d], each but a may be NULL */
    JINJA_CALL,      /* name(list) */
    JINJA_METHOD,    /* a.name(list) */
    JINJA_FILTER,    /* a|name(list) */
    JINJA_TEST,      /* a is name(list) */
    JINJA_KEYWORD,   /* in a list of arguments: name=a */
    JINJA_LIST,      /* list */
    JINJA_DICT,      /* list: keys and values in turn */
    JINJA_NOT,
    JINJA_NEGATE,
    JINJA_AND,
    JINJA_OR,
    JINJA_CHOOSE,   /* b if a else c, which may be NULL */
    JINJA_COMPARE,  /* a, then list of JINJA_COMPARED */
    JINJA_COMPARED, /* name: the operator; a */
    JINJA_ADD,
    JINJA_SUBTRACT,
    JINJA_MULTIPLY,
    JINJA_DIVIDE,
    JINJA_FLOOR,
    JINJA_MODULO,
    JINJA_CONCAT,
    /* statements */
    JINJA_WRITE,      /* a */
    JINJA_IF,         /* a: condition, b: then, c: else */
    JINJA_FOR,        /* list: names, a: over, b: body, c: else, d: condition */
    JINJA_SET,        /* list: names, or name and `attribute`; a: value, or b: block */
    JINJA_MACRO,      /* name, list: parameters with defaults in a, b: body */
    JINJA_GENERATION, /* b: body */
    JINJA_BREAK,
    JINJA_CONTINUE
};

struct jinja_call;

struct jinja_node {
    enum jinja_op op;
    uint32_t line;
    const char *name;              /* borrowed; of the template's names: one pointer a name */
    const char *attribute;         /* likewise */
    const struct jinja_call *call; /* of FILTER, TEST, and CALL of a function */
    json_t *value;                 /* owned */
    struct jinja_node *a, *b, *c, *d;
    struct jinja_node *list; /* the first */
    struct jinja_node *next; /* in its list, or the statement behind it */
    struct jinja_node *all;  /* of the template's nodes */
};

struct jinja_name {
    struct jinja_name *next;
    char text[];
};

struct jinja {
    struct jinja_node *root;  /* the first statement */
    struct jinja_node *nodes; /* owned; all */
    struct jinja_name *names; /* owned */
    bool generation;
    struct jinja_renderer *renderer; /* owned; NULL: the above is rendered */
};

/* ---- a rendering ---------------------------------------------------------------------------- */

enum jinja_binding_kind { JINJA_IS_VALUE = 1, JINJA_IS_NAMESPACE, JINJA_IS_LOOP, JINJA_IS_MACRO };

struct jinja_loop {
    json_t *items; /* kept by the run */
    size_t i;
    unsigned depth;
};

struct jinja_binding {
    const char *name;
    enum jinja_binding_kind kind;
    json_t *value;                  /* VALUE, NAMESPACE */
    const struct jinja_loop *loop;  /* LOOP */
    const struct jinja_node *macro; /* MACRO */
};

struct jinja_run {
    const struct jinja *jinja;
    struct jinja_render *render;
    struct growing_bytes *to; /* what is written goes there */
    json_t **kept;            /* owned, with what is in it: values live until the end */
    size_t kept_n, kept_room;
    const json_t **safe; /* owned; values of `kept` that the filter safe has made */
    size_t safe_n, safe_room;
    struct jinja_binding *bindings; /* owned */
    size_t n, room;
    size_t top;   /* bindings of the template itself, which macros see */
    size_t base;  /* those below are not seen, but for these */
    size_t frame; /* where set writes */
    uint64_t steps, bytes;
    unsigned depth, loops;
    int error; /* negative errno; 0: none so far */
    char *why;
};

enum {
    JINJA_ARGS_MAX = 8,
    JINJA_BYTES_MAX = 64 << 20, /* of all texts that a rendering makes */
    JINJA_STEPS_MAX = 20 << 20,
    JINJA_DEPTH_MAX = 400
};

struct jinja_args {
    const struct jinja_node *node; /* for errors */
    json_t *self;                  /* the filter's input, the method's object */
    json_t *at[JINJA_ARGS_MAX];    /* by the parameters of the call; NULL: not given */
    size_t n;                      /* given by position */
};

typedef json_t *jinja_fn(struct jinja_run *run, const struct jinja_args *args);

struct jinja_call {
    const char *name;
    jinja_fn *fn;
    uint8_t least, most;
    const char *parameters[4]; /* their names */
};

const struct jinja_call *jinja_find_filter(const char *name);
const struct jinja_call *jinja_find_test(const char *name);
const struct jinja_call *jinja_find_function(const char *name);
/* One of a string, or of a dict; the first also if the type is not known. */
const struct jinja_call *jinja_find_method(const char *name, const json_t *self);
bool jinja_is_dict_method(const char *name);

/* NULL, with the error in `run`, "line N: WORDS". The first error counts. */
json_t *jinja_fail(struct jinja_run *run, const struct jinja_node *node, const char *fmt, ...)
    _printf_(3, 4);
json_t *jinja_give_up(struct jinja_run *run, int error);

/* The value of an expression; NULL: an error. */
json_t *jinja_evaluate(struct jinja_run *run, const struct jinja_node *node);
/* What statements write, as a text. */
json_t *jinja_capture(struct jinja_run *run, const struct jinja_node *body);
/* namespace(name=value, ...): of the run, but no value of the template. */
json_t *jinja_namespace(struct jinja_run *run, const struct jinja_node *node);
/* A step of the run, and a level, which the caller takes back; false: beyond the bounds. */
bool jinja_enter(struct jinja_run *run, const struct jinja_node *node);

/* What a name is bound to, or NULL; and binding it where set does. */
struct jinja_binding *jinja_find(const struct jinja_run *run, const char *name);
bool jinja_bind(struct jinja_run *run, const struct jinja_binding *binding);
bool jinja_bind_value(struct jinja_run *run, const char *name, json_t *value);
bool jinja_bind_targets(struct jinja_run *run, const struct jinja_node *targets, json_t *value);

/* Owned by the run from now on; NULL: there was no memory, or too much was made. */
json_t *jinja_keep(struct jinja_run *run, json_t *value);
json_t *jinja_text(struct jinja_run *run, const char *text, size_t n);
/* The text of `bytes`, which are freed. */
json_t *jinja_take(struct jinja_run *run, struct growing_bytes *bytes);
bool jinja_append(struct jinja_run *run, json_t *list, json_t *value);

json_t *jinja_undefined(void);

/* What map(), select() and their like give: true even if it is empty, without length and items, and
 * gone once it has been walked. Here a list with a mark before the first item. */
json_t *jinja_generator(struct jinja_run *run);
bool jinja_is_generator(const json_t *value);
/* False, with an error: the value is one, which `what` says cannot be so used. */
bool jinja_is_no_generator(struct jinja_run *run, const struct jinja_node *node,
                           const json_t *value, const char *what);
/* False, with an error: the filter safe has made it, and so what it is used for would escape
 * text. */
bool jinja_is_not_safe(struct jinja_run *run, const struct jinja_node *node, const json_t *value);

static inline json_t *jinja_bool(bool value)
{
    return value ? json_true() : json_false();
}

/* One of these with the value that a name has: `item` of a dict or list. Undefined: not there. */
json_t *jinja_item(struct jinja_run *run, const struct jinja_node *node, json_t *of, json_t *at);
json_t *jinja_slice(struct jinja_run *run, const struct jinja_node *node, json_t *of,
                    json_t *const parts[static 3]);
/* A list of what iterating over it gives. */
json_t *jinja_iterate(struct jinja_run *run, const struct jinja_node *node, json_t *over);

bool jinja_is_true(const json_t *value);
bool jinja_equal(const json_t *a, const json_t *b);
bool jinja_number(const json_t *value, double *ret); /* False: it is none */
bool jinja_integer(const json_t *value, json_int_t *ret);
/* -2: they have no order; else as strcmp(). */
int jinja_order(const json_t *a, const json_t *b);
/* Whether Python's `in` finds it; false with an error where it fails. */
bool jinja_contains(struct jinja_run *run, const struct jinja_node *node, const json_t *in,
                    const json_t *what);
size_t jinja_length(const json_t *value); /* SIZE_MAX: it has none */
/* Appends str(value). False: an error. */
bool jinja_write(struct jinja_run *run, const struct jinja_node *node, struct growing_bytes *to,
                 const json_t *value);

struct jinja_json {
    const char *comma, *colon;
    int indent; /* -1: one line */
};
bool jinja_write_json(struct jinja_run *run, struct growing_bytes *to, const json_t *value,
                      const struct jinja_json *style, unsigned depth);

#endif
