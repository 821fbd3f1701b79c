#include "daemon/data/field/json_field.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>

/* On the way through a document. */
struct json_walk {
    const char *name;   /* borrowed; of the field */
    const char *remedy; /* for null */
    struct sample *ret;
    struct dl_error *err;
    size_t where_len;
    char where[256]; /* ".a.b[3]", for messages; cut where it is long */
};

static int json_field_add_value(struct json_walk *walk, const char *key, json_t *value);

/* Extends `where`; pass the result to json_field_leave_place(). */
_printf_(2, 3) static size_t json_field_enter_place(struct json_walk *walk, const char *fmt, ...)
{
    size_t before = walk->where_len, room = sizeof walk->where - before;
    va_list args;

    va_start(args, fmt);
    int n = vsnprintf(walk->where + before, room, fmt, args);
    va_end(args);
    walk->where_len = before + (size_t)min_u64(n > 0 ? (uint64_t)n : 0, room - 1);
    return before;
}

static void json_field_leave_place(struct json_walk *walk, size_t before)
{
    walk->where_len = before;
    walk->where[before] = '\0';
}

static int json_field_add_list(struct json_walk *walk, const char *key, json_t *list)
{
    int r = sample_begin(walk->ret, TREE_LIST, key);

    for (size_t i = 0; r == 0 && i < json_array_size(list); i++) {
        size_t before = json_field_enter_place(walk, "[%zu]", i);
        r = json_field_add_value(walk, NULL, json_array_get(list, i));
        json_field_leave_place(walk, before);
    }
    return r < 0 ? r : sample_end(walk->ret);
}

static int json_field_add_dict(struct json_walk *walk, const char *key, json_t *dict)
{
    int r = sample_begin(walk->ret, TREE_DICT, key);

    for (void *at = json_object_iter(dict); r == 0 && at; at = json_object_iter_next(dict, at)) {
        const char *name = json_object_iter_key(at);
        size_t before = json_field_enter_place(walk, ".%s", name);
        r = json_field_add_value(walk, name, json_object_iter_value(at));
        json_field_leave_place(walk, before);
    }
    return r < 0 ? r : sample_end(walk->ret);
}

/* As deep as a sample may be: then sample_begin() refuses. */
static int json_field_add_value(struct json_walk *walk, const char *key, json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return json_field_add_dict(walk, key, value);
    case JSON_ARRAY:
        return json_field_add_list(walk, key, value);
    case JSON_STRING:
        return sample_text(walk->ret, TREE_STRING, key, json_string_value(value),
                           json_string_length(value));
    case JSON_INTEGER:
        return sample_int(walk->ret, key, json_integer_value(value));
    case JSON_REAL:
        return sample_float(walk->ret, key, json_real_value(value));
    case JSON_TRUE:
    case JSON_FALSE:
        return sample_bool(walk->ret, key, json_is_true(value));
    case JSON_NULL:
        break;
    }
    return dl_error_set(walk->err, EINVAL, "",
                        "has null at \"%s%s\", which a batch cannot hold; leave %s", walk->name,
                        walk->where, walk->remedy);
}

static void json_field_release(void *json)
{
    json_decref(json);
}

int json_field_add(const uint8_t *text, uint64_t bytes, const char *name, struct sample *ret,
                   struct dl_error *err)
{
    struct json_walk walk = {.name = name,
                             .remedy = "the key out, or take the text with decode: false",
                             .ret = ret,
                             .err = err};
    json_error_t why;
    json_t *root = json_loadb((const char *)text, bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);

    if (!root)
        return dl_error_set(err, EINVAL, "", "is not JSON: %s, in its line %d", why.text, why.line);
    /* Until the batch is made: the strings are the parser's. */
    int r = arena_hold(ret->arena, json_field_release, root);
    if (r < 0)
        return dl_error_set(err, ENOMEM, "", "ran out of memory");
    return json_field_add_value(&walk, name, root);
}

int json_field_add_parsed(struct json_t *value, const char *name, struct sample *ret,
                          struct dl_error *err)
{
    struct json_walk walk = {
        .name = name, .remedy = "the field out of dataset.fields", .ret = ret, .err = err};

    return json_field_add_value(&walk, name, value);
}
