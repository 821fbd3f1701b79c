#include "daemon/data/decode/jinja/jinja_tree.h"

#include <math.h>

/* ---- names ---------------------------------------------------------------------------------- */

static json_t *jinja_variable(struct jinja_run *run, const struct jinja_node *node)
{
    const struct jinja_binding *found = jinja_find(run, node->name);

    if (found && found->kind == JINJA_IS_VALUE)
        return found->value;
    if (found && found->kind == JINJA_IS_MACRO)
        return json_true();
    if (found)
        return jinja_fail(run, node, "%s is supported with an attribute alone, as in %s.x",
                          node->name, node->name);
    /* A function, for "is defined". */
    return jinja_find_function(node->name) ? json_true() : jinja_undefined();
}

static json_t *jinja_loop_attribute(struct jinja_run *run, const struct jinja_node *node,
                                    const struct jinja_loop *loop)
{
    json_int_t i = (json_int_t)loop->i, n = (json_int_t)json_array_size(loop->items);
    const struct {
        const char *name;
        json_int_t value;
    } numbers[] = {{"index", i + 1},
                   {"index0", i},
                   {"length", n},
                   {"revindex", n - i},
                   {"revindex0", n - i - 1},
                   {"depth", loop->depth},
                   {"depth0", (json_int_t)loop->depth - 1}};
    json_t *found;

    if (strcmp(node->name, "first") == 0)
        return jinja_bool(i == 0);
    if (strcmp(node->name, "last") == 0)
        return jinja_bool(i + 1 == n);
    for (size_t k = 0; k < ARRAY_SIZE(numbers); k++)
        if (strcmp(node->name, numbers[k].name) == 0)
            return jinja_keep(run, json_integer(numbers[k].value));
    if (strcmp(node->name, "previtem") == 0)
        found = i > 0 ? json_array_get(loop->items, loop->i - 1) : NULL;
    else if (strcmp(node->name, "nextitem") == 0)
        found = json_array_get(loop->items, loop->i + 1);
    else
        return jinja_fail(run, node, "loop.%s is not supported", node->name);
    return found ? found : jinja_undefined();
}

static json_t *jinja_attribute(struct jinja_run *run, const struct jinja_node *node)
{
    const struct jinja_binding *binding =
        node->a->op == JINJA_VARIABLE ? jinja_find(run, node->a->name) : NULL;
    json_t *of, *found;

    if (binding && binding->kind == JINJA_IS_LOOP)
        return jinja_loop_attribute(run, node, binding->loop);
    of = binding && binding->kind == JINJA_IS_NAMESPACE ? binding->value
                                                        : jinja_evaluate(run, node->a);
    if (!of)
        return NULL;
    if (of == jinja_undefined())
        return jinja_fail(run, node, "%s of what is not defined", node->name);
    if (json_is_object(of) && !(binding && binding->kind == JINJA_IS_NAMESPACE) &&
        jinja_is_dict_method(node->name))
        return jinja_fail(run, node, ".%s is a method of a dict; ['%s'] is its item", node->name,
                          node->name);
    found = json_object_get(of, node->name);
    return found ? found : jinja_undefined();
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* The place among `parameters` that an argument's name has; -1: there is no such. */
static int jinja_place_of(const struct jinja_call *call, const char *name)
{
    for (int i = 0; i < (int)ARRAY_SIZE(call->parameters) && call->parameters[i]; i++)
        if (strcmp(call->parameters[i], name) == 0)
            return i;
    return -1;
}

static bool jinja_arguments(struct jinja_run *run, const struct jinja_node *node,
                            const struct jinja_call *call, struct jinja_args *args)
{
    for (const struct jinja_node *given = node->list; given; given = given->next) {
        bool named = given->op == JINJA_KEYWORD;
        int at = named ? jinja_place_of(call, given->name) : (int)args->n;
        if (at < 0 || at >= call->most || args->at[at])
            return jinja_fail(run, node, "%s() does not support such arguments", call->name) !=
                   NULL;
        if (!(args->at[at] = jinja_evaluate(run, named ? given->a : given)))
            return false;
        args->n += !named;
    }
    for (unsigned i = 0; i < call->least; i++)
        if (!args->at[i])
            return jinja_fail(run, node, "%s() lacks an argument", call->name) != NULL;
    return true;
}

static json_t *jinja_call(struct jinja_run *run, const struct jinja_node *node,
                          const struct jinja_call *call, json_t *self)
{
    struct jinja_args args = {.node = node, .self = self};

    if (!jinja_arguments(run, node, call, &args))
        return NULL;
    return call->fn(run, &args);
}

/* The arguments of a macro's call, by its parameters; those not given stay NULL. */
static bool jinja_macro_arguments(struct jinja_run *run, const struct jinja_node *node,
                                  const struct jinja_node *macro, json_t **ret)
{
    unsigned n = 0;

    for (const struct jinja_node *given = node->list; given; given = given->next) {
        const struct jinja_node *parameter = macro->list;
        unsigned at = 0;
        bool named = given->op == JINJA_KEYWORD;
        while (parameter && (named ? parameter->name != given->name : at < n)) {
            parameter = parameter->next;
            at++;
        }
        if (!parameter || ret[at])
            return jinja_fail(run, node, "the macro %s has no such parameter", macro->name) != NULL;
        if (!(ret[at] = jinja_evaluate(run, named ? given->a : given)))
            return false;
        n += !named;
    }
    return true;
}

static json_t *jinja_call_macro(struct jinja_run *run, const struct jinja_node *node,
                                const struct jinja_node *macro)
{
    json_t *given[JINJA_ARGS_MAX] = {NULL}, *ret = NULL;
    size_t base = run->base, frame = run->frame, n = run->n;
    unsigned i = 0, loops = run->loops;
    bool good = jinja_macro_arguments(run, node, macro, given);

    run->base = run->frame = n;
    run->loops = 0;
    for (const struct jinja_node *p = macro->list; good && p; p = p->next, i++) {
        json_t *value = given[i] ? given[i] : p->a ? jinja_evaluate(run, p->a) : jinja_undefined();
        good = jinja_bind_value(run, p->name, value);
    }
    if (good)
        ret = jinja_capture(run, macro->b);
    run->base = base;
    run->frame = frame;
    run->loops = loops;
    run->n = n;
    return ret;
}

static json_t *jinja_call_name(struct jinja_run *run, const struct jinja_node *node)
{
    const struct jinja_binding *found = jinja_find(run, node->name);

    if (found && found->kind == JINJA_IS_MACRO)
        return jinja_call_macro(run, node, found->macro);
    if (!node->call || found)
        return jinja_fail(run, node, "the function %s() is not supported", node->name);
    return jinja_call(run, node, node->call, NULL);
}

static json_t *jinja_call_method(struct jinja_run *run, const struct jinja_node *node)
{
    json_t *self = jinja_evaluate(run, node->a);
    const struct jinja_call *call = self ? jinja_find_method(node->name, self) : NULL;

    if (!self)
        return NULL;
    if (self == jinja_undefined())
        return jinja_fail(run, node, "%s() of what is not defined", node->name);
    if (!jinja_is_not_safe(run, node, self))
        return NULL;
    if (!call)
        return jinja_fail(run, node, "the method %s() of such a value is not supported",
                          node->name);
    return jinja_call(run, node, call, self);
}

static json_t *jinja_call_on(struct jinja_run *run, const struct jinja_node *node)
{
    json_t *self = jinja_evaluate(run, node->a);

    return self ? jinja_call(run, node, node->call, self) : NULL;
}

json_t *jinja_namespace(struct jinja_run *run, const struct jinja_node *node)
{
    json_t *ret = jinja_keep(run, json_object());

    for (const struct jinja_node *given = node->list; ret && given; given = given->next) {
        json_t *value = given->op == JINJA_KEYWORD ? jinja_evaluate(run, given->a) : NULL;
        if (given->op != JINJA_KEYWORD)
            return jinja_fail(run, node, "namespace() is supported with names alone");
        if (!value || json_object_set_nocheck(ret, given->name, value) < 0)
            return jinja_give_up(run, -ENOMEM);
    }
    return ret;
}

/* ---- operators ------------------------------------------------------------------------------ */

static json_t *jinja_add_lists(struct jinja_run *run, const struct jinja_node *node, json_t *a,
                               json_t *b)
{
    json_t *ret = NULL;

    if (jinja_is_no_generator(run, node, a, "+") && jinja_is_no_generator(run, node, b, "+"))
        ret = jinja_keep(run, json_array());
    for (size_t i = 0; ret && i < json_array_size(a); i++)
        if (!jinja_append(run, ret, json_array_get(a, i)))
            return NULL;
    for (size_t i = 0; ret && i < json_array_size(b); i++)
        if (!jinja_append(run, ret, json_array_get(b, i)))
            return NULL;
    return ret;
}

static json_t *jinja_repeat(struct jinja_run *run, const json_t *text, json_int_t times)
{
    struct growing_bytes to = {0};
    size_t n = json_string_length(text);

    for (json_int_t i = 0; i < times && n > 0 && !run->error; i++) {
        run->bytes += n;
        if (run->bytes > JINJA_BYTES_MAX || growing_bytes_add(&to, json_string_value(text), n) < 0)
            (void)jinja_give_up(run, run->bytes > JINJA_BYTES_MAX ? -E2BIG : -ENOMEM);
    }
    return jinja_take(run, &to);
}

static json_t *jinja_whole(struct jinja_run *run, const struct jinja_node *node, json_int_t a,
                           json_int_t b)
{
    json_int_t ret = 0;
    bool over = false;

    if ((node->op == JINJA_FLOOR || node->op == JINJA_MODULO) &&
        (b == 0 || (b == -1 && a < -INT64_MAX)))
        return jinja_fail(run, node, "a division by 0");
    switch (node->op) {
    case JINJA_ADD:
        over = __builtin_add_overflow(a, b, &ret);
        break;
    case JINJA_SUBTRACT:
        over = __builtin_sub_overflow(a, b, &ret);
        break;
    case JINJA_MULTIPLY:
        over = __builtin_mul_overflow(a, b, &ret);
        break;
    case JINJA_FLOOR:
        ret = a / b - (a % b != 0 && (a % b < 0) != (b < 0));
        break;
    default:
        ret = a % b;
        ret += ret != 0 && (ret < 0) != (b < 0) ? b : 0;
    }
    return over ? jinja_fail(run, node, "a number is too large")
                : jinja_keep(run, json_integer(ret));
}

static json_t *jinja_calculate(struct jinja_run *run, const struct jinja_node *node, json_t *a,
                               json_t *b)
{
    json_int_t p, q;
    double x, y;

    if (jinja_integer(a, &p) && jinja_integer(b, &q) && node->op != JINJA_DIVIDE)
        return jinja_whole(run, node, p, q);
    if (!jinja_number(a, &x) || !jinja_number(b, &y))
        return jinja_fail(run, node, "an operator does not go with what stands beside it");
    switch (node->op) {
    case JINJA_ADD:
        x += y;
        break;
    case JINJA_SUBTRACT:
        x -= y;
        break;
    case JINJA_MULTIPLY:
        x *= y;
        break;
    case JINJA_DIVIDE:
        if (y == 0)
            return jinja_fail(run, node, "a division by 0");
        x /= y;
        break;
    default:
        return jinja_fail(run, node, "// and %% of real numbers are not supported");
    }
    return isfinite(x) ? jinja_keep(run, json_real(x))
                       : jinja_fail(run, node, "a number is too large");
}

static json_t *jinja_concat(struct jinja_run *run, const struct jinja_node *node, json_t *a,
                            json_t *b)
{
    struct growing_bytes to = {0};

    if (jinja_write(run, node, &to, a))
        (void)jinja_write(run, node, &to, b);
    return jinja_take(run, &to);
}

static json_t *jinja_operate(struct jinja_run *run, const struct jinja_node *node)
{
    json_t *a = jinja_evaluate(run, node->a), *b = a ? jinja_evaluate(run, node->b) : NULL;
    json_int_t times;

    if (!b)
        return NULL;
    if (node->op != JINJA_CONCAT &&
        (!jinja_is_not_safe(run, node, a) || !jinja_is_not_safe(run, node, b)))
        return NULL;
    if (node->op == JINJA_CONCAT ||
        (node->op == JINJA_ADD && json_is_string(a) && json_is_string(b)))
        return jinja_concat(run, node, a, b);
    if (node->op == JINJA_ADD && json_is_array(a) && json_is_array(b))
        return jinja_add_lists(run, node, a, b);
    if (node->op == JINJA_MULTIPLY && json_is_string(a) && jinja_integer(b, &times))
        return jinja_repeat(run, a, times);
    return jinja_calculate(run, node, a, b);
}

/* -1: an error. */
static int jinja_compare_one(struct jinja_run *run, const struct jinja_node *with, const json_t *a,
                             const json_t *b)
{
    const char *sign = with->name;
    int order;

    if (strcmp(sign, "==") == 0)
        return jinja_equal(a, b);
    if (strcmp(sign, "!=") == 0)
        return !jinja_equal(a, b);
    if (strcmp(sign, "in") == 0 || strcmp(sign, "not in") == 0) {
        bool in = jinja_contains(run, with, b, a);
        return run->error ? -1 : in == (sign[0] == 'i');
    }
    order = jinja_order(a, b);
    if (order == -2) {
        (void)jinja_fail(run, with, "%s of what has no order", sign);
        return -1;
    }
    return sign[0] == '<' ? (order < 0 || (sign[1] && order == 0))
                          : (order > 0 || (sign[1] && order == 0));
}

static json_t *jinja_compare(struct jinja_run *run, const struct jinja_node *node)
{
    json_t *a = jinja_evaluate(run, node->a), *b;

    for (const struct jinja_node *with = node->list; a && with; with = with->next) {
        if (!(b = jinja_evaluate(run, with->a)))
            return NULL;
        int r = jinja_compare_one(run, with, a, b);
        if (r < 1)
            return r < 0 ? NULL : json_false();
        a = b;
    }
    return a ? json_true() : NULL;
}

static json_t *jinja_negate(struct jinja_run *run, const struct jinja_node *node)
{
    json_t *value = jinja_evaluate(run, node->a);
    json_int_t i;

    if (json_is_real(value))
        return jinja_keep(run, json_real(-json_real_value(value)));
    if (value && jinja_integer(value, &i) && i >= -INT64_MAX)
        return jinja_keep(run, json_integer(-i));
    return value ? jinja_fail(run, node, "- of what is no number") : NULL;
}

/* ---- expressions ---------------------------------------------------------------------------- */

static json_t *jinja_make_list(struct jinja_run *run, const struct jinja_node *node)
{
    json_t *ret = jinja_keep(run, json_array());

    for (const struct jinja_node *item = node->list; ret && item; item = item->next)
        if (!jinja_append(run, ret, jinja_evaluate(run, item)))
            return NULL;
    return ret;
}

static json_t *jinja_make_dict(struct jinja_run *run, const struct jinja_node *node)
{
    json_t *ret = jinja_keep(run, json_object());

    for (const struct jinja_node *item = node->list; ret && item; item = item->next->next) {
        json_t *key = jinja_evaluate(run, item);
        json_t *value = key ? jinja_evaluate(run, item->next) : NULL;
        if (!value)
            return NULL;
        if (!json_is_string(key))
            return jinja_fail(run, node, "a key that is no string is not supported");
        if (json_object_setn_nocheck(ret, json_string_value(key), json_string_length(key), value) <
            0)
            return jinja_give_up(run, -ENOMEM);
    }
    return ret;
}

static json_t *jinja_make_slice(struct jinja_run *run, const struct jinja_node *node)
{
    json_t *of = jinja_evaluate(run, node->a), *parts[3] = {NULL};
    const struct jinja_node *nodes[] = {node->b, node->c, node->d};

    for (size_t i = 0; of && i < 3; i++)
        if (nodes[i] && !(parts[i] = jinja_evaluate(run, nodes[i])))
            return NULL;
    return of && jinja_is_not_safe(run, node, of) ? jinja_slice(run, node, of, parts) : NULL;
}

static json_t *jinja_item_of(struct jinja_run *run, const struct jinja_node *node)
{
    json_t *of = jinja_evaluate(run, node->a), *at = of ? jinja_evaluate(run, node->b) : NULL;

    return at ? jinja_item(run, node, of, at) : NULL;
}

/* and, or, if: what is not needed is not evaluated. */
static json_t *jinja_choose(struct jinja_run *run, const struct jinja_node *node)
{
    json_t *value = jinja_evaluate(run, node->a);
    bool is = value && jinja_is_true(value);

    if (!value)
        return NULL;
    if (node->op == JINJA_CHOOSE)
        return is        ? jinja_evaluate(run, node->b)
               : node->c ? jinja_evaluate(run, node->c)
                         : jinja_undefined();
    return is == (node->op == JINJA_OR) ? value : jinja_evaluate(run, node->b);
}

static json_t *jinja_evaluate_op(struct jinja_run *run, const struct jinja_node *node)
{
    json_t *value;

    switch (node->op) {
    case JINJA_CONST:
        return node->value;
    case JINJA_VARIABLE:
        return jinja_variable(run, node);
    case JINJA_ATTRIBUTE:
        return jinja_attribute(run, node);
    case JINJA_ITEM:
        return jinja_item_of(run, node);
    case JINJA_SLICE:
        return jinja_make_slice(run, node);
    case JINJA_CALL:
        return jinja_call_name(run, node);
    case JINJA_METHOD:
        return jinja_call_method(run, node);
    case JINJA_FILTER:
    case JINJA_TEST:
        return jinja_call_on(run, node);
    case JINJA_LIST:
        return jinja_make_list(run, node);
    case JINJA_DICT:
        return jinja_make_dict(run, node);
    case JINJA_NOT:
        value = jinja_evaluate(run, node->a);
        return value ? jinja_bool(!jinja_is_true(value)) : NULL;
    case JINJA_NEGATE:
        return jinja_negate(run, node);
    case JINJA_AND:
    case JINJA_OR:
    case JINJA_CHOOSE:
        return jinja_choose(run, node);
    case JINJA_COMPARE:
        return jinja_compare(run, node);
    default:
        return jinja_operate(run, node);
    }
}

json_t *jinja_evaluate(struct jinja_run *run, const struct jinja_node *node)
{
    if (!jinja_enter(run, node))
        return NULL;
    json_t *ret = jinja_evaluate_op(run, node);
    run->depth--;
    return ret;
}
