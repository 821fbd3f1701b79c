/* The pickle machine's stack with only the classes on it: see pickle.h. */
#include "client/dlctl/batch/pickle.h"

#include "proto/utf8.h"
#include <stdio.h>

enum item_kind {
    ITEM_UNKNOWN,
    ITEM_MARK,
    ITEM_TYPE,     /* an object of the type `type` */
    ITEM_TEXT,     /* a string: `name` */
    ITEM_TUPLE,    /* `name`: its first element, if that is a string */
    ITEM_GLOBAL,   /* `module` and `name` themselves */
    ITEM_INSTANCE, /* what that makes */
};

/* Borrowed from the pickle. */
struct piece {
    const char *at;
    size_t len;
};

struct item {
    enum item_kind kind;
    const char *type; /* static */
    struct piece module;
    struct piece name;
};

struct items {
    struct item *list; /* owned */
    size_t n;
    size_t room;
};

struct machine {
    const uint8_t *data;
    size_t len;
    size_t at;
    struct items stack;
    struct items memo; /* the first PICKLE_DEPTH of n_memo */
    uint64_t n_memo;
};

enum effect {
    BAD, /* no opcode, or of a protocol that is not read */
    SKIP,
    MARK,
    STOP,
    POP,
    POP_MARK,
    PUSH,      /* an object of the type in the table */
    TEXT,      /* the argument */
    TAKE,      /* `pops` objects go into the one below them */
    TAKE_MARK, /* all above the mark do */
    TUPLE,     /* of `pops` objects */
    FROM_MARK, /* one of all above the mark */
    CALL,      /* the undermost of `pops` objects makes one of the others */
    NAME,      /* of the two strings on top */
    LINES,     /* of the argument's two lines */
    GET,
    MEMOIZE,
    PERSISTENT,
};

/* How an opcode's argument is laid out: 0 to 8 = so many bytes, or one of these. */
enum { LENGTH1 = 16, LENGTH4, LENGTH8, TWO_LINES };

static const struct opcode {
    uint8_t arg;
    uint8_t effect; /* enum effect */
    uint8_t pops;
    const char *type;
} OPCODES[256] = {
    ['('] = {0, MARK, 0, NULL},
    ['.'] = {0, STOP, 0, NULL},
    ['0'] = {0, POP, 0, NULL},
    ['1'] = {0, POP_MARK, 0, NULL},
    ['B'] = {LENGTH4, PUSH, 0, "bytes"},
    ['C'] = {LENGTH1, PUSH, 0, "bytes"},
    ['G'] = {8, PUSH, 0, "float"},
    ['J'] = {4, PUSH, 0, "int"},
    ['K'] = {1, PUSH, 0, "int"},
    ['M'] = {2, PUSH, 0, "int"},
    ['N'] = {0, PUSH, 0, "NoneType"},
    ['Q'] = {0, PERSISTENT, 1, NULL},
    ['R'] = {0, CALL, 2, NULL},
    ['X'] = {LENGTH4, TEXT, 0, NULL},
    [']'] = {0, PUSH, 0, "list"},
    ['a'] = {0, TAKE, 1, NULL},
    ['b'] = {0, TAKE, 1, NULL},
    ['c'] = {TWO_LINES, LINES, 0, NULL},
    ['d'] = {0, FROM_MARK, 0, "dict"},
    ['e'] = {0, TAKE_MARK, 0, NULL},
    ['h'] = {1, GET, 0, NULL},
    ['j'] = {4, GET, 0, NULL},
    ['l'] = {0, FROM_MARK, 0, "list"},
    ['s'] = {0, TAKE, 2, NULL},
    ['t'] = {0, FROM_MARK, 0, "tuple"},
    ['u'] = {0, TAKE_MARK, 0, NULL},
    [')'] = {0, PUSH, 0, "tuple"},
    ['}'] = {0, PUSH, 0, "dict"},
    [0x80] = {1, SKIP, 0, NULL}, /* PROTO */
    [0x81] = {0, CALL, 2, NULL}, /* NEWOBJ */
    [0x82] = {1, PUSH, 0, NULL}, /* EXT1, 2, 4: an agreement between the two ends */
    [0x83] = {2, PUSH, 0, NULL},
    [0x84] = {4, PUSH, 0, NULL},
    [0x85] = {0, TUPLE, 1, NULL},
    [0x86] = {0, TUPLE, 2, NULL},
    [0x87] = {0, TUPLE, 3, NULL},
    [0x88] = {0, PUSH, 0, "bool"},
    [0x89] = {0, PUSH, 0, "bool"},
    [0x8a] = {LENGTH1, PUSH, 0, "int"},
    [0x8b] = {LENGTH4, PUSH, 0, "int"},
    [0x8c] = {LENGTH1, TEXT, 0, NULL},
    [0x8d] = {LENGTH8, TEXT, 0, NULL},
    [0x8e] = {LENGTH8, PUSH, 0, "bytes"},
    [0x8f] = {0, PUSH, 0, "set"},
    [0x90] = {0, TAKE_MARK, 0, NULL},
    [0x91] = {0, FROM_MARK, 0, "frozenset"},
    [0x92] = {0, CALL, 3, NULL}, /* NEWOBJ_EX */
    [0x93] = {0, NAME, 2, NULL}, /* STACK_GLOBAL */
    [0x94] = {0, MEMOIZE, 0, NULL},
    [0x95] = {8, SKIP, 0, NULL}, /* FRAME */
    [0x96] = {LENGTH8, PUSH, 0, "bytearray"},
    [0x97] = {0, PUSH, 0, NULL}, /* NEXT_BUFFER */
    [0x98] = {0, SKIP, 0, NULL}, /* READONLY_BUFFER */
};

static bool push(struct items *items, struct item item)
{
    if (items->n == items->room) {
        size_t room = items->room ? 2 * items->room : 64;
        struct item *more =
            items->n < PICKLE_DEPTH ? realloc(items->list, room * sizeof *more) : NULL;

        if (!more)
            return false;
        items->list = more;
        items->room = room;
    }
    items->list[items->n++] = item;
    return true;
}

/* Removes the mark and what is above it. */
static bool pop_mark(struct items *stack)
{
    while (stack->n > 0)
        if (stack->list[--stack->n].kind == ITEM_MARK)
            return true;
    return false;
}

static bool read_number(struct machine *m, size_t bytes, uint64_t *ret)
{
    if (m->len - m->at < bytes)
        return false;
    *ret = 0;
    for (size_t i = bytes; i-- > 0;)
        *ret = *ret << 8 | m->data[m->at + i];
    m->at += bytes;
    return true;
}

static bool read_line(struct machine *m, struct piece *ret)
{
    const uint8_t *begin = m->data + m->at, *end = memchr(begin, '\n', m->len - m->at);

    if (!end)
        return false;
    *ret = (struct piece){(const char *)begin, (size_t)(end - begin)};
    m->at += ret->len + 1;
    return true;
}

/* An opcode's argument: a number, a text, or two lines. */
struct argument {
    uint64_t number;
    struct piece text;
    struct piece more;
};

static bool read_argument(struct machine *m, uint8_t layout, struct argument *ret)
{
    uint64_t len;

    if (layout == TWO_LINES)
        return read_line(m, &ret->text) && read_line(m, &ret->more);
    if (layout < LENGTH1)
        return read_number(m, layout, &ret->number);
    if (!read_number(m,
                     layout == LENGTH1   ? 1
                     : layout == LENGTH4 ? 4
                                         : 8,
                     &len) ||
        len > m->len - m->at)
        return false;
    ret->text = (struct piece){(const char *)m->data + m->at, len};
    m->at += len;
    return true;
}

/* Makes one item of the `n` on top, which must be no marks. */
static bool combine(struct items *stack, enum effect effect, size_t n)
{
    struct item *first, made = {.kind = ITEM_UNKNOWN};

    if (stack->n < n)
        return false;
    first = &stack->list[stack->n - n];
    for (size_t i = 0; i < n; i++)
        if (first[i].kind == ITEM_MARK)
            return false;
    if (effect == TUPLE) {
        made = (struct item){.kind = ITEM_TUPLE};
        if (first->kind == ITEM_TEXT)
            made.name = first->name;
    } else if (effect == CALL && first->kind == ITEM_GLOBAL) {
        made = *first;
        made.kind = ITEM_INSTANCE;
    } else if (effect == NAME && first[0].kind == ITEM_TEXT && first[1].kind == ITEM_TEXT) {
        made = (struct item){ITEM_GLOBAL, NULL, first[0].name, first[1].name};
    } else if (effect == PERSISTENT && first->kind == ITEM_TUPLE && first->name.len == 1) {
        char letter = *first->name.at;
        const char *type = letter == 't' ? "torch.Tensor" : letter == 'n' ? "numpy.ndarray" : NULL;
        made = (struct item){.kind = type ? ITEM_TYPE : ITEM_UNKNOWN, .type = type};
    }
    stack->n -= n;
    return push(stack, made);
}

/* `pops` objects go; there is one left to have them. */
static bool take(struct items *stack, size_t pops)
{
    if (stack->n <= pops)
        return false;
    stack->n -= pops;
    return stack->list[stack->n - 1].kind != ITEM_MARK;
}

static bool memoize(struct machine *m)
{
    if (!take(&m->stack, 0))
        return false;
    return m->n_memo++ >= PICKLE_DEPTH || push(&m->memo, m->stack.list[m->stack.n - 1]);
}

static bool recall(struct machine *m, uint64_t i)
{
    if (i >= m->n_memo)
        return false;
    return push(&m->stack, i < m->memo.n ? m->memo.list[i] : (struct item){.kind = ITEM_UNKNOWN});
}

static bool apply(struct machine *m, const struct opcode *op, const struct argument *arg)
{
    struct items *stack = &m->stack;

    switch ((enum effect)op->effect) {
    case SKIP:
        return true;
    case MARK:
        return push(stack, (struct item){.kind = ITEM_MARK});
    case POP:
        return stack->n > 0 && stack->n-- > 0;
    case POP_MARK:
        return pop_mark(stack);
    case FROM_MARK:
        if (!pop_mark(stack))
            return false;
        return push(stack, (struct item){.kind = ITEM_TYPE, .type = op->type});
    case PUSH:
        return push(stack,
                    (struct item){.kind = op->type ? ITEM_TYPE : ITEM_UNKNOWN, .type = op->type});
    case TEXT:
        return push(stack, (struct item){.kind = ITEM_TEXT, .name = arg->text});
    case TAKE:
        return take(stack, op->pops);
    case TAKE_MARK:
        return pop_mark(stack) && take(stack, 0);
    case TUPLE:
    case CALL:
    case NAME:
    case PERSISTENT:
        return combine(stack, (enum effect)op->effect, op->pops);
    case LINES:
        return push(stack, (struct item){ITEM_GLOBAL, NULL, arg->text, arg->more});
    case GET:
        return recall(m, arg->number);
    case MEMOIZE:
        return memoize(m);
    case STOP:
    case BAD:
        return false;
    }
    return false;
}

/* Follows the opcodes to STOP; the object is then on top of the stack. */
static bool follow(struct machine *m)
{
    while (m->at < m->len) {
        const struct opcode *op = &OPCODES[m->data[m->at++]];
        struct argument arg = {0};

        if (op->effect == STOP)
            return take(&m->stack, 0);
        if (!read_argument(m, op->arg, &arg) || !apply(m, op, &arg))
            return false;
    }
    return false;
}

/* Whether it can be shown to people as it is: no control characters, no space, UTF-8. */
static bool printable(const char *text)
{
    const uint8_t *in = (const uint8_t *)text;
    size_t len = strlen(text), n;

    for (; len > 0; in += n, len -= n) {
        n = utf8_char(in, len);
        if (n == 0 || *in <= ' ' || *in == 0x7f || (n == 2 && *in == 0xc2 && in[1] <= 0xa0))
            return false;
    }
    return true;
}

static bool is(struct piece piece, const char *text)
{
    return piece.len == strlen(text) && memcmp(piece.at, text, piece.len) == 0;
}

/* "module.name"; a builtin's name alone. What getattr() makes is no getattr. */
static bool name_instance(const struct item *item, char ret[PICKLE_CLASS])
{
    struct piece module = item->module, name = item->name;
    size_t at = 0;

    if (is(module, "builtins"))
        module.len = 0;
    if (module.len + name.len + 2 > PICKLE_CLASS || name.len == 0 ||
        (module.len == 0 && is(name, "getattr")) || memchr(name.at, '\0', name.len) ||
        (module.len && memchr(module.at, '\0', module.len)))
        return false;
    if (module.len) {
        memcpy(ret, module.at, module.len);
        at = module.len;
        ret[at++] = '.';
    }
    memcpy(ret + at, name.at, name.len);
    ret[at + name.len] = '\0';
    return printable(ret);
}

static bool name_item(const struct item *item, char ret[PICKLE_CLASS])
{
    switch (item->kind) {
    case ITEM_TYPE:
        snprintf(ret, PICKLE_CLASS, "%s", item->type);
        return true;
    case ITEM_TEXT:
        snprintf(ret, PICKLE_CLASS, "str");
        return true;
    case ITEM_TUPLE:
        snprintf(ret, PICKLE_CLASS, "tuple");
        return true;
    case ITEM_INSTANCE:
        return name_instance(item, ret);
    case ITEM_UNKNOWN:
    case ITEM_MARK:
    case ITEM_GLOBAL:
        return false;
    }
    return false;
}

bool pickle_class(const void *data, size_t len, char ret[PICKLE_CLASS])
{
    struct machine m = {.data = data, .len = len};
    bool known =
        len <= PICKLE_SCAN_MAX && follow(&m) && name_item(&m.stack.list[m.stack.n - 1], ret);

    if (!known)
        ret[0] = '\0';
    free(m.stack.list);
    free(m.memo.list);
    return known;
}
