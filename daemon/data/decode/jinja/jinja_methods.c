/*
 * Methods of strings and dicts.
 */
#include "daemon/data/decode/jinja/jinja_tree.h"

#include "proto/common/utf8.h"

/* Several share a function, and differ by the first letter of their names. */
static char jinja_method_letter(const struct jinja_args *args)
{
    const char *name = args->node->name;

    return strcmp(name, "trim") == 0 ? 's' : name[0];
}

static bool jinja_method_has(const char *set, size_t set_n, const char *at, size_t n)
{
    for (size_t i = 0, bytes; i < set_n; i += bytes) {
        bytes = utf8_char((const uint8_t *)set + i, set_n - i);
        if (bytes == n && memcmp(set + i, at, n) == 0)
            return true;
        if (bytes == 0)
            return false;
    }
    return false;
}

/* strip, lstrip, rstrip. */
static json_t *jinja_method_strip(struct jinja_run *run, const struct jinja_args *args)
{
    const char *text = json_string_value(args->self), *set;
    size_t n = json_string_length(args->self), set_n, bytes;
    bool left = jinja_method_letter(args) != 'r', right = jinja_method_letter(args) != 'l';

    if (!args->at[0] || json_is_null(args->at[0])) {
        jinja_strip(&text, &n, left, right);
        return jinja_text(run, text, n);
    }
    if (!(set = json_string_value(args->at[0])))
        return jinja_fail(run, args->node, "strip() of what is no string");
    set_n = json_string_length(args->at[0]);
    while (left && n > 0 && (bytes = utf8_char((const uint8_t *)text, n)) > 0 &&
           jinja_method_has(set, set_n, text, bytes)) {
        text += bytes;
        n -= bytes;
    }
    while (right && n > 0) {
        for (bytes = 1; bytes < n && (text[n - bytes] & 0xC0) == 0x80;)
            bytes++;
        if (!jinja_method_has(set, set_n, text + n - bytes, bytes))
            break;
        n -= bytes;
    }
    return jinja_text(run, text, n);
}

/* upper, lower, capitalize, of ASCII: other letters' cases are not known here. */
static json_t *jinja_method_case(struct jinja_run *run, const struct jinja_args *args)
{
    const char *text = json_string_value(args->self);
    size_t n = json_string_length(args->self);
    struct growing_bytes to = {0};
    char letter = jinja_method_letter(args);

    for (size_t i = 0; i < n; i++) {
        bool up = letter == 'u' || (letter == 'c' && i == 0);
        char c = text[i];
        if (c & 0x80)
            return free(to.data),
                   jinja_fail(run, args->node, "%s of what is not ASCII is not supported",
                              args->node->name);
        c = (char)(up && c >= 'a' && c <= 'z' ? c - 32 : !up && c >= 'A' && c <= 'Z' ? c + 32 : c);
        if (growing_bytes_add(&to, &c, 1) < 0) {
            (void)jinja_give_up(run, -ENOMEM);
            break;
        }
    }
    return jinja_take(run, &to);
}

/* The text `what` in `text`, from the left or the right; NULL: it is not there. */
static const char *jinja_method_find(const char *text, size_t n, const json_t *what, bool right)
{
    const char *found = NULL;
    size_t what_n = json_string_length(what);

    if (!right)
        return memmem(text, n, json_string_value(what), what_n);
    for (size_t i = n >= what_n ? n - what_n + 1 : 0; i > 0 && !found; i--)
        if (memcmp(text + i - 1, json_string_value(what), what_n) == 0)
            found = text + i - 1;
    return found;
}

/* By blanks: what is between them. */
static json_t *jinja_method_words(struct jinja_run *run, const char *text, size_t n)
{
    json_t *ret = jinja_keep(run, json_array());
    size_t bytes;

    while (ret) {
        jinja_strip(&text, &n, true, false);
        size_t word = 0;
        while (word < n && !jinja_is_space(text + word, n - word, &bytes))
            word += bytes;
        if (word == 0)
            return ret;
        if (!jinja_append(run, ret, jinja_text(run, text, word)))
            return NULL;
        text += word;
        n -= word;
    }
    return NULL;
}

static json_t *jinja_method_split(struct jinja_run *run, const struct jinja_args *args)
{
    const char *text = json_string_value(args->self), *found;
    size_t n = json_string_length(args->self), by_n = json_string_length(args->at[0]);
    json_int_t most = -1;
    json_t *ret;

    if (args->at[1] && !jinja_integer(args->at[1], &most))
        return jinja_fail(run, args->node, "split(): its number is no integer");
    if ((!args->at[0] || json_is_null(args->at[0])) && most < 0)
        return jinja_method_words(run, text, n);
    if (by_n == 0)
        return jinja_fail(run, args->node, "split() by such a separator is not supported");
    ret = jinja_keep(run, json_array());
    while (ret && most != 0 && (found = jinja_method_find(text, n, args->at[0], false))) {
        if (!jinja_append(run, ret, jinja_text(run, text, (size_t)(found - text))))
            return NULL;
        n -= (size_t)(found - text) + by_n;
        text = found + by_n;
        most -= most > 0;
    }
    return ret && jinja_append(run, ret, jinja_text(run, text, n)) ? ret : NULL;
}

static json_t *jinja_method_rsplit(struct jinja_run *run, const struct jinja_args *args)
{
    const char *text = json_string_value(args->self), *found;
    size_t n = json_string_length(args->self), by_n = json_string_length(args->at[0]);
    json_int_t most;
    json_t *ret = jinja_keep(run, json_array());

    if (by_n == 0 || !args->at[1] || !jinja_integer(args->at[1], &most) || most < 0)
        return jinja_fail(run, args->node, "rsplit() is supported with a separator and a number");
    while (ret && most-- > 0 && (found = jinja_method_find(text, n, args->at[0], true))) {
        const char *behind = found + by_n;
        json_t *part = jinja_text(run, behind, n - (size_t)(behind - text));
        if (!part || json_array_insert(ret, 0, part) < 0)
            return jinja_give_up(run, -ENOMEM);
        n = (size_t)(found - text);
    }
    json_t *first = ret ? jinja_text(run, text, n) : NULL;
    if (!first || json_array_insert(ret, 0, first) < 0)
        return jinja_give_up(run, -ENOMEM);
    return ret;
}

static bool jinja_method_meets(const struct jinja_args *args, const json_t *what)
{
    const char *text = json_string_value(args->self);
    size_t n = json_string_length(args->self), what_n = json_string_length(what);

    if (what_n > n)
        return false;
    return memcmp(jinja_method_letter(args) == 's' ? text : text + n - what_n,
                  json_string_value(what), what_n) == 0;
}

/* startswith, endswith: of a string, or of one of several. */
static json_t *jinja_method_meets_one(struct jinja_run *run, const struct jinja_args *args)
{
    const json_t *what = args->at[0];

    if (json_is_string(what))
        return jinja_bool(jinja_method_meets(args, what));
    for (size_t i = 0; i < json_array_size(what); i++) {
        const json_t *one = json_array_get(what, i);
        if (!json_is_string(one))
            return jinja_fail(run, args->node, "%s() of what is no string", args->node->name);
        if (jinja_method_meets(args, one))
            return json_true();
    }
    return json_is_array(what)
               ? json_false()
               : jinja_fail(run, args->node, "%s() of what is no string", args->node->name);
}

static json_t *jinja_method_replace(struct jinja_run *run, const struct jinja_args *args)
{
    const char *text = json_string_value(args->self), *found;
    size_t n = json_string_length(args->self), old_n = json_string_length(args->at[0]);
    struct growing_bytes to = {0};
    json_int_t most = -1;

    if (!json_is_string(args->at[0]) || !json_is_string(args->at[1]) || old_n == 0 ||
        (args->at[2] && !json_is_null(args->at[2]) && !jinja_integer(args->at[2], &most)))
        return jinja_fail(run, args->node, "replace() of such values is not supported");
    while (!run->error && most != 0 && (found = jinja_method_find(text, n, args->at[0], false))) {
        size_t new_n = json_string_length(args->at[1]);
        run->bytes += (size_t)(found - text) + new_n;
        if (run->bytes > JINJA_BYTES_MAX)
            (void)jinja_give_up(run, -E2BIG);
        else if (growing_bytes_add(&to, text, (size_t)(found - text)) < 0 ||
                 growing_bytes_add(&to, json_string_value(args->at[1]), new_n) < 0)
            (void)jinja_give_up(run, -ENOMEM);
        n -= (size_t)(found - text) + old_n;
        text = found + old_n;
        most -= most > 0;
    }
    if (growing_bytes_add(&to, text, n) < 0)
        (void)jinja_give_up(run, -ENOMEM);
    return jinja_take(run, &to);
}

/* removeprefix, removesuffix. */
static json_t *jinja_method_remove(struct jinja_run *run, const struct jinja_args *args)
{
    const char *text = json_string_value(args->self), *part = json_string_value(args->at[0]);
    size_t n = json_string_length(args->self), part_n = json_string_length(args->at[0]);
    bool prefix = args->node->name[6] == 'p';

    if (!part)
        return jinja_fail(run, args->node, "%s() of what is no string", args->node->name);
    if (part_n > n || memcmp(prefix ? text : text + n - part_n, part, part_n) != 0)
        return args->self;
    return jinja_text(run, prefix ? text + part_n : text, n - part_n);
}

/* find: where it is, in characters. */
static json_t *jinja_method_where(struct jinja_run *run, const struct jinja_args *args)
{
    const char *text = json_string_value(args->self), *found;
    json_t *before;

    if (!json_is_string(args->at[0]))
        return jinja_fail(run, args->node, "find() of what is no string");
    found = jinja_method_find(text, json_string_length(args->self), args->at[0], false);
    before = found ? jinja_text(run, text, (size_t)(found - text)) : NULL;
    if (found && !before)
        return NULL;
    return jinja_keep(run, json_integer(found ? (json_int_t)jinja_length(before) : -1));
}

/* ---- dicts ---------------------------------------------------------------------------------- */

/* items, keys, values. */
static json_t *jinja_method_list(struct jinja_run *run, const struct jinja_args *args)
{
    json_t *ret = jinja_keep(run, json_array()), *value, *item;
    char letter = jinja_method_letter(args);
    const char *key;
    size_t key_n;

    json_object_keylen_foreach(args->self, key, key_n, value)
    {
        item = letter == 'v' ? value : jinja_text(run, key, key_n);
        if (item && letter == 'i') {
            json_t *pair = jinja_keep(run, json_array());
            item = pair && jinja_append(run, pair, item) && jinja_append(run, pair, value) ? pair
                                                                                           : NULL;
        }
        if (!ret || !item || !jinja_append(run, ret, item))
            return NULL;
    }
    return ret;
}

static json_t *jinja_method_get(struct jinja_run *run, const struct jinja_args *args)
{
    json_t *found = jinja_item(run, args->node, args->self, args->at[0]);

    return found != jinja_undefined() ? found : args->at[1] ? args->at[1] : json_null();
}

/* ---- the tables ----------------------------------------------------------------------------- */

static const struct jinja_call jinja_string_methods[] = {
    {"strip", jinja_method_strip, 0, 1, {NULL}},
    {"lstrip", jinja_method_strip, 0, 1, {NULL}},
    {"rstrip", jinja_method_strip, 0, 1, {NULL}},
    {"upper", jinja_method_case, 0, 0, {NULL}},
    {"lower", jinja_method_case, 0, 0, {NULL}},
    {"capitalize", jinja_method_case, 0, 0, {NULL}},
    {"split", jinja_method_split, 0, 2, {"sep", "maxsplit"}},
    {"rsplit", jinja_method_rsplit, 0, 2, {"sep", "maxsplit"}},
    {"startswith", jinja_method_meets_one, 1, 1, {NULL}},
    {"endswith", jinja_method_meets_one, 1, 1, {NULL}},
    {"replace", jinja_method_replace, 2, 3, {NULL}},
    {"removeprefix", jinja_method_remove, 1, 1, {NULL}},
    {"removesuffix", jinja_method_remove, 1, 1, {NULL}},
    {"find", jinja_method_where, 1, 1, {NULL}},
};

static const struct jinja_call jinja_dict_methods[] = {
    {"items", jinja_method_list, 0, 0, {NULL}},
    {"keys", jinja_method_list, 0, 0, {NULL}},
    {"values", jinja_method_list, 0, 0, {NULL}},
    {"get", jinja_method_get, 1, 2, {NULL}},
};

static const struct jinja_call *jinja_find_method_in(const struct jinja_call *calls, size_t n,
                                                     const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(calls[i].name, name) == 0)
            return &calls[i];
    return NULL;
}

const struct jinja_call *jinja_find_method(const char *name, const json_t *self)
{
    const struct jinja_call *found = NULL;

    if (!self || json_is_string(self))
        found = jinja_find_method_in(jinja_string_methods, ARRAY_SIZE(jinja_string_methods), name);
    if (!found && (!self || json_is_object(self)))
        found = jinja_find_method_in(jinja_dict_methods, ARRAY_SIZE(jinja_dict_methods), name);
    return found;
}

bool jinja_is_dict_method(const char *name)
{
    static const char *const others[] = {"clear",   "copy",       "fromkeys", "pop",
                                         "popitem", "setdefault", "update"};

    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        if (strcmp(others[i], name) == 0)
            return true;
    return jinja_find_method_in(jinja_dict_methods, ARRAY_SIZE(jinja_dict_methods), name);
}
