/*
 * Filters, tests and functions.
 */
#include "daemon/data/decode/jinja/jinja_tree.h"

#include "proto/common/array.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

/* ---- filters -------------------------------------------------------------------------------- */

static json_t *jinja_filter_method(struct jinja_run *run, const struct jinja_args *args)
{
    struct growing_bytes text = {0};
    struct jinja_args same = *args;

    if (!jinja_is_not_safe(run, args->node, args->self))
        return NULL;
    if (!json_is_string(args->self)) {
        (void)jinja_write(run, args->node, &text, args->self);
        same.self = jinja_take(run, &text);
    }
    const char *name = strcmp(args->node->name, "trim") == 0 ? "strip" : args->node->name;
    return same.self ? jinja_find_method(name, same.self)->fn(run, &same) : NULL;
}

static json_t *jinja_filter_tojson(struct jinja_run *run, const struct jinja_args *args)
{
    struct jinja_json style = {.comma = ", ", .colon = ": ", .indent = -1};
    struct growing_bytes text = {0};
    json_int_t indent;

    if ((args->at[0] && jinja_is_true(args->at[0])) || (args->at[3] && jinja_is_true(args->at[3])))
        return jinja_fail(run, args->node,
                          "tojson with ensure_ascii or sort_keys is not supported");
    if (args->at[1] && jinja_integer(args->at[1], &indent) && indent >= 0 && indent <= 64) {
        style.indent = (int)indent;
        style.comma = ",";
    } else if (args->at[1] && !json_is_null(args->at[1])) {
        return jinja_fail(run, args->node, "tojson with such an indent is not supported");
    }
    if (args->at[2] && !json_is_null(args->at[2])) {
        style.comma = json_string_value(json_array_get(args->at[2], 0));
        style.colon = json_string_value(json_array_get(args->at[2], 1));
        if (!style.comma || !style.colon)
            return jinja_fail(run, args->node, "tojson: separators are two strings");
    }
    (void)jinja_write_json(run, &text, args->self, &style, 0);
    return jinja_take(run, &text);
}

static json_t *jinja_filter_length(struct jinja_run *run, const struct jinja_args *args)
{
    size_t n = jinja_length(args->self);

    if (!jinja_is_no_generator(run, args->node, args->self, "length"))
        return NULL;
    return n == SIZE_MAX ? jinja_fail(run, args->node, "length of what has none")
                         : jinja_keep(run, json_integer((json_int_t)n));
}

static json_t *jinja_filter_default(struct jinja_run *run, const struct jinja_args *args)
{
    bool falsy = args->at[1] && jinja_is_true(args->at[1]) && !jinja_is_true(args->self);

    (void)run;
    if (args->self != jinja_undefined() && !falsy)
        return args->self;
    return args->at[0] ? args->at[0] : jinja_text(run, "", 0);
}

/* An attribute of an item, as "function.name" has it. */
static json_t *jinja_path_of(struct jinja_run *run, const struct jinja_args *args, json_t *item,
                             const json_t *path)
{
    const char *at = json_string_value(path);

    if (!at)
        return jinja_fail(run, args->node, "an attribute's name is not a string");
    for (const char *end; item; at = end + 1) {
        end = strchrnul(at, '.');
        if (end > at && at[0] >= '0' && at[0] <= '9')
            return jinja_fail(run, args->node, "a number as attribute is not supported");
        json_t *name = jinja_text(run, at, (size_t)(end - at));
        item = name ? jinja_item(run, args->node, item, name) : NULL;
        if (!*end)
            return item;
    }
    return NULL;
}

static json_t *jinja_filter_join(struct jinja_run *run, const struct jinja_args *args)
{
    json_t *items = jinja_iterate(run, args->node, args->self);
    struct growing_bytes text = {0};

    for (size_t i = 0; i < json_array_size(items); i++) {
        json_t *item = json_array_get(items, i);
        if (args->at[1] && !(item = jinja_path_of(run, args, item, args->at[1])))
            break;
        if ((i > 0 && args->at[0] && !jinja_write(run, args->node, &text, args->at[0])) ||
            !jinja_write(run, args->node, &text, item))
            break;
    }
    return jinja_take(run, &text);
}

static json_t *jinja_filter_end(struct jinja_run *run, const struct jinja_args *args)
{
    bool first = args->node->name[0] == 'f';
    json_t *items = NULL, *found;

    if (first || jinja_is_no_generator(run, args->node, args->self, "last"))
        items = jinja_iterate(run, args->node, args->self);
    if (!items)
        return NULL;
    size_t n = json_array_size(items);
    found = json_array_get(items, first ? 0 : n - (n > 0));
    return found ? found : jinja_undefined();
}

static json_t *jinja_filter_list(struct jinja_run *run, const struct jinja_args *args)
{
    return jinja_iterate(run, args->node, args->self);
}

static json_t *jinja_filter_reverse(struct jinja_run *run, const struct jinja_args *args)
{
    bool again = jinja_is_generator(args->self); /* then Python gives a list */
    json_t *ret, *items;

    if (!json_is_array(args->self))
        return jinja_fail(run, args->node, "reverse of what is not a list is not supported");
    items = jinja_iterate(run, args->node, args->self);
    ret = again ? jinja_keep(run, json_array()) : jinja_generator(run);
    for (size_t i = json_array_size(items); ret && i > 0; i--)
        if (!jinja_append(run, ret, json_array_get(items, i - 1)))
            return NULL;
    return items ? ret : NULL;
}

static json_t *jinja_filter_string(struct jinja_run *run, const struct jinja_args *args)
{
    struct growing_bytes text = {0};

    if (json_is_string(args->self))
        return args->self;
    (void)jinja_write(run, args->node, &text, args->self);
    return jinja_take(run, &text);
}

static json_t *jinja_filter_safe(struct jinja_run *run, const struct jinja_args *args)
{
    struct growing_bytes text = {0};

    if (!array_reserve(run->safe, run->safe_room, run->safe_n + 1))
        return jinja_give_up(run, -ENOMEM);
    (void)jinja_write(run, args->node, &text, args->self);
    json_t *ret = jinja_take(run, &text);
    if (ret)
        run->safe[run->safe_n++] = ret;
    return ret;
}

static json_t *jinja_filter_int(struct jinja_run *run, const struct jinja_args *args)
{
    const char *text = json_string_value(args->self);
    json_int_t i = 0;
    char *end = NULL;

    if (json_is_real(args->self) && fabs(json_real_value(args->self)) < 1e18)
        return jinja_keep(run, json_integer((json_int_t)json_real_value(args->self)));
    if (text) {
        errno = 0;
        i = strtoll(text, &end, 10);
        if (end == text || *end || errno || strlen(text) != json_string_length(args->self))
            return jinja_fail(run, args->node, "int of such a string is not supported");
    } else if (!jinja_integer(args->self, &i)) {
        return jinja_fail(run, args->node, "int of such a value is not supported");
    }
    return jinja_keep(run, json_integer(i));
}

/* A dict's keys and values in pairs. */
static json_t *jinja_pairs(struct jinja_run *run, const struct jinja_args *args)
{
    struct jinja_node node = *args->node;
    const struct jinja_args none = {.node = &node, .self = args->self};

    node.name = "items";
    return json_is_object(args->self)
               ? jinja_find_method("items", args->self)->fn(run, &none)
               : jinja_fail(run, args->node, "%s of what is no dict", args->node->name);
}

static json_t *jinja_filter_items(struct jinja_run *run, const struct jinja_args *args)
{
    bool there = args->self != jinja_undefined();
    json_t *pairs = there ? jinja_pairs(run, args) : NULL;
    json_t *ret = pairs || !there ? jinja_generator(run) : NULL;

    return ret && pairs && json_array_extend(ret, pairs) < 0 ? jinja_give_up(run, -ENOMEM) : ret;
}

/* Whether a pair's key stands before another's, whatever their cases. */
static bool jinja_sorts_before(const json_t *a, const json_t *b)
{
    const char *x = json_string_value(json_array_get(a, 0));
    const char *y = json_string_value(json_array_get(b, 0));

    return strcasecmp(x, y) < 0;
}

/* dictsort, of ASCII keys: the pairs by their keys, in a stable order. */
static json_t *jinja_filter_dictsort(struct jinja_run *run, const struct jinja_args *args)
{
    json_t *items = jinja_pairs(run, args);

    for (size_t i = 0; i < json_array_size(items); i++) {
        json_t *item = json_array_get(items, i);
        size_t to = i;
        for (const char *key = json_string_value(json_array_get(item, 0)); *key; key++)
            if (*key & 0x80)
                return jinja_fail(run, args->node,
                                  "dictsort of keys that are not ASCII is not "
                                  "supported");
        while (to > 0 && jinja_sorts_before(item, json_array_get(items, to - 1)))
            to--;
        run->steps += i - to;
        json_incref(item);
        (void)json_array_remove(items, i);
        if (json_array_insert_new(items, to, item) < 0)
            return jinja_give_up(run, -ENOMEM);
    }
    return items;
}

/* map(attribute="x"), or map("filter"). */
static json_t *jinja_filter_map(struct jinja_run *run, const struct jinja_args *args)
{
    json_t *items = jinja_iterate(run, args->node, args->self);
    json_t *ret = items ? jinja_generator(run) : NULL;
    const char *name = json_string_value(args->at[0]);
    const struct jinja_call *filter = name ? jinja_find_filter(name) : NULL;
    struct jinja_node node = *args->node;

    if (!filter == !args->at[1] || (filter && filter->least > 0))
        return jinja_fail(run, args->node, "map is supported with attribute= or a filter's name");
    node.name = filter ? filter->name : node.name;
    for (size_t i = 0; ret && i < json_array_size(items); i++) {
        json_t *item = json_array_get(items, i);
        const struct jinja_args one = {.node = &node, .self = item};
        item = filter ? filter->fn(run, &one) : jinja_path_of(run, args, item, args->at[1]);
        if (!jinja_append(run, ret, item))
            return NULL;
    }
    return ret;
}

/* select, reject, selectattr, rejectattr: by a test, or by truth. */
static json_t *jinja_filter_select(struct jinja_run *run, const struct jinja_args *args)
{
    json_t *items = jinja_iterate(run, args->node, args->self);
    json_t *ret = items ? jinja_generator(run) : NULL;
    bool attribute = args->node->call->most == 3, wanted = args->node->name[0] == 's';
    json_t *const *test_args = args->at + attribute;
    const char *name = json_string_value(test_args[0]);
    const struct jinja_call *test = name ? jinja_find_test(name) : NULL;

    if (test_args[0] && (!test || (test->least > 0 && !test_args[1])))
        return jinja_fail(run, args->node, "%s with such a test is not supported",
                          args->node->name);
    for (size_t i = 0; ret && i < json_array_size(items); i++) {
        json_t *item = json_array_get(items, i);
        json_t *value = attribute ? jinja_path_of(run, args, item, args->at[0]) : item;
        const struct jinja_args one = {.node = args->node, .self = value, .at = {test_args[1]}};
        if (value && test)
            value = test->fn(run, &one);
        if (!value || (jinja_is_true(value) == wanted && !jinja_append(run, ret, item)))
            return NULL;
    }
    return ret;
}

static const struct jinja_call jinja_filters[] = {
    {"trim", jinja_filter_method, 0, 1, {"chars"}},
    {"upper", jinja_filter_method, 0, 0, {NULL}},
    {"lower", jinja_filter_method, 0, 0, {NULL}},
    {"capitalize", jinja_filter_method, 0, 0, {NULL}},
    {"replace", jinja_filter_method, 2, 3, {"old", "new", "count"}},
    {"tojson", jinja_filter_tojson, 0, 4, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"length", jinja_filter_length, 0, 0, {NULL}},
    {"count", jinja_filter_length, 0, 0, {NULL}},
    {"default", jinja_filter_default, 0, 2, {"default_value", "boolean"}},
    {"d", jinja_filter_default, 0, 2, {"default_value", "boolean"}},
    {"join", jinja_filter_join, 0, 2, {"d", "attribute"}},
    {"first", jinja_filter_end, 0, 0, {NULL}},
    {"last", jinja_filter_end, 0, 0, {NULL}},
    {"list", jinja_filter_list, 0, 0, {NULL}},
    {"reverse", jinja_filter_reverse, 0, 0, {NULL}},
    {"string", jinja_filter_string, 0, 0, {NULL}},
    {"int", jinja_filter_int, 0, 0, {NULL}},
    {"items", jinja_filter_items, 0, 0, {NULL}},
    {"dictsort", jinja_filter_dictsort, 0, 0, {NULL}},
    {"map", jinja_filter_map, 0, 2, {"filter", "attribute"}},
    {"select", jinja_filter_select, 0, 2, {NULL}},
    {"reject", jinja_filter_select, 0, 2, {NULL}},
    {"selectattr", jinja_filter_select, 1, 3, {NULL}},
    {"rejectattr", jinja_filter_select, 1, 3, {NULL}},
    {"safe", jinja_filter_safe, 0, 0, {NULL}},
    {NULL, NULL, 0, 0, {NULL}},
};

/* ---- tests ---------------------------------------------------------------------------------- */

/* One that looks at the value, and at what it is compared with. */
#define JINJA_TEST(name, is)                                                               \
    static json_t *jinja_test_##name(struct jinja_run *run, const struct jinja_args *args) \
    {                                                                                      \
        json_t *self = args->self;                                                         \
        (void)run;                                                                         \
        return jinja_bool(is);                                                             \
    }
JINJA_TEST(defined, self != jinja_undefined())
JINJA_TEST(undefined, self == jinja_undefined())
JINJA_TEST(none, json_is_null(self) && self != jinja_undefined())
JINJA_TEST(string, json_is_string(self))
JINJA_TEST(mapping, json_is_object(self))
JINJA_TEST(iterable, json_is_string(self) || json_is_array(self) || json_is_object(self) ||
                         self == jinja_undefined())
JINJA_TEST(number, jinja_number(self, &(double){0}))
JINJA_TEST(integer, json_is_integer(self))
JINJA_TEST(float, json_is_real(self))
JINJA_TEST(boolean, json_is_boolean(self))
JINJA_TEST(true, json_is_true(self))
JINJA_TEST(false, json_is_false(self))
JINJA_TEST(equal, jinja_equal(self, args->at[0]))
JINJA_TEST(unequal, !jinja_equal(self, args->at[0]))

static json_t *jinja_test_sequence(struct jinja_run *run, const struct jinja_args *args)
{
    return jinja_is_generator(args->self) ? json_false() : jinja_test_iterable(run, args);
}

static json_t *jinja_test_in(struct jinja_run *run, const struct jinja_args *args)
{
    bool in = jinja_contains(run, args->node, args->at[0], args->self);

    return run->error ? NULL : jinja_bool(in);
}

/* What % gives for an integer, never below 0; false: no integer, or a division by 0. */
static bool jinja_remainder(struct jinja_run *run, const struct jinja_args *args, json_int_t by,
                            json_int_t *ret)
{
    json_int_t i;

    if (!jinja_integer(args->self, &i) || by < 1)
        return jinja_fail(run, args->node, "%s of no integer is not supported", args->node->name) !=
               NULL;
    *ret = i % by + (i % by < 0 ? by : 0);
    return true;
}

static json_t *jinja_test_even(struct jinja_run *run, const struct jinja_args *args)
{
    json_int_t rest = 0;

    return jinja_remainder(run, args, 2, &rest) ? jinja_bool(rest == 0) : NULL;
}

static json_t *jinja_test_odd(struct jinja_run *run, const struct jinja_args *args)
{
    json_int_t rest = 0;

    return jinja_remainder(run, args, 2, &rest) ? jinja_bool(rest == 1) : NULL;
}

static json_t *jinja_test_divisible(struct jinja_run *run, const struct jinja_args *args)
{
    json_int_t rest = 0, by = 0;

    (void)jinja_integer(args->at[0], &by);
    return jinja_remainder(run, args, by, &rest) ? jinja_bool(rest == 0) : NULL;
}

static const struct jinja_call jinja_tests[] = {
    {"defined", jinja_test_defined, 0, 0, {NULL}},
    {"undefined", jinja_test_undefined, 0, 0, {NULL}},
    {"none", jinja_test_none, 0, 0, {NULL}},
    {"string", jinja_test_string, 0, 0, {NULL}},
    {"mapping", jinja_test_mapping, 0, 0, {NULL}},
    {"iterable", jinja_test_iterable, 0, 0, {NULL}},
    {"sequence", jinja_test_sequence, 0, 0, {NULL}},
    {"number", jinja_test_number, 0, 0, {NULL}},
    {"integer", jinja_test_integer, 0, 0, {NULL}},
    {"float", jinja_test_float, 0, 0, {NULL}},
    {"boolean", jinja_test_boolean, 0, 0, {NULL}},
    {"true", jinja_test_true, 0, 0, {NULL}},
    {"false", jinja_test_false, 0, 0, {NULL}},
    {"equalto", jinja_test_equal, 1, 1, {NULL}},
    {"eq", jinja_test_equal, 1, 1, {NULL}},
    {"==", jinja_test_equal, 1, 1, {NULL}},
    {"ne", jinja_test_unequal, 1, 1, {NULL}},
    {"!=", jinja_test_unequal, 1, 1, {NULL}},
    {"in", jinja_test_in, 1, 1, {NULL}},
    {"even", jinja_test_even, 0, 0, {NULL}},
    {"odd", jinja_test_odd, 0, 0, {NULL}},
    {"divisibleby", jinja_test_divisible, 1, 1, {NULL}},
    {NULL, NULL, 0, 0, {NULL}},
};

/* ---- functions ------------------------------------------------------------------------------ */

static json_t *jinja_function_range(struct jinja_run *run, const struct jinja_args *args)
{
    json_int_t bounds[3] = {0, 0, 1};
    json_t *ret = jinja_keep(run, json_array());

    for (size_t i = 0; i < args->n; i++)
        if (!jinja_integer(args->at[i], &bounds[args->n == 1 ? 1 : i]))
            return jinja_fail(run, args->node, "range() of what is no integer");
    if (bounds[2] == 0)
        return jinja_fail(run, args->node, "range() with a step of 0");
    for (json_int_t i = bounds[0]; ret && (bounds[2] > 0 ? i < bounds[1] : i > bounds[1]);) {
        if (!jinja_append(run, ret, jinja_keep(run, json_integer(i))))
            return NULL;
        if (__builtin_add_overflow(i, bounds[2], &i))
            break;
    }
    return ret;
}

static json_t *jinja_function_raise(struct jinja_run *run, const struct jinja_args *args)
{
    struct growing_bytes text = {0};
    json_t *words;

    (void)jinja_write(run, args->node, &text, args->at[0]);
    words = jinja_take(run, &text);
    return words ? jinja_fail(run, NULL, "%s", json_string_value(words)) : NULL;
}

static json_t *jinja_function_now(struct jinja_run *run, const struct jinja_args *args)
{
    const char *format = json_string_value(args->at[0]);
    struct tm day = {0};
    char text[128];

    if (!run->render->date)
        return jinja_fail(run, args->node,
                          "it writes today's date, by which tokens would differ each day; write "
                          "chat_args: {strftime_now: YYYY-MM-DD}");
    for (const char *at = format; at && (at = strchr(at, '%')); at += 2)
        if (!at[1] || !strchr("YmdBbyAajeF", at[1]))
            return jinja_fail(run, args->node,
                              "strftime_now() with such a format is not "
                              "supported");
    if (!format || !strptime(run->render->date, "%Y-%m-%d", &day))
        return jinja_fail(run, args->node, "strftime_now() without a format, or a date");
    size_t n = strftime(text, sizeof text, format, &day);
    return jinja_text(run, text, n);
}

/* set x = namespace() makes one; anything else would make a value of it. */
static json_t *jinja_function_namespace(struct jinja_run *run, const struct jinja_args *args)
{
    return jinja_fail(run, args->node, "namespace() is supported as the value of a set alone");
}

static const struct jinja_call jinja_functions[] = {
    {"range", jinja_function_range, 1, 3, {NULL}},
    {"raise_exception", jinja_function_raise, 1, 1, {"message"}},
    {"strftime_now", jinja_function_now, 1, 1, {"format"}},
    {"namespace", jinja_function_namespace, 0, 0, {NULL}},
    {NULL, NULL, 0, 0, {NULL}},
};

static const struct jinja_call *jinja_find_call(const struct jinja_call *calls, const char *name)
{
    while (calls->name && strcmp(calls->name, name) != 0)
        calls++;
    return calls->name ? calls : NULL;
}

const struct jinja_call *jinja_find_filter(const char *name)
{
    return jinja_find_call(jinja_filters, name);
}

const struct jinja_call *jinja_find_test(const char *name)
{
    return jinja_find_call(jinja_tests, name);
}

const struct jinja_call *jinja_find_function(const char *name)
{
    return jinja_find_call(jinja_functions, name);
}
