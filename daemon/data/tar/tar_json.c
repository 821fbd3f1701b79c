/* JSON as part of a sample: the same nested, with tensors for numbers. */
#include "daemon/data/tar/tar_sample.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>

/* On the way through a document. */
struct json_walk {
    const struct tar_field *field;
    struct sample *ret;
    struct dl_error *err;
    size_t where_len;
    char where[256]; /* ".a.b[3]", for messages; cut where it is long */
};

static int tar_json_add_value(struct json_walk *walk, const char *key, json_t *value);

/* Goes on below `where`; returns what to give back to tar_json_leave_place(). */
_printf_(2, 3) static size_t tar_json_enter_place(struct json_walk *walk, const char *fmt, ...)
{
    size_t before = walk->where_len, room = sizeof walk->where - before;
    va_list args;

    va_start(args, fmt);
    int n = vsnprintf(walk->where + before, room, fmt, args);
    va_end(args);
    walk->where_len = before + (size_t)min_u64(n > 0 ? (uint64_t)n : 0, room - 1);
    return before;
}

static void tar_json_leave_place(struct json_walk *walk, size_t before)
{
    walk->where_len = before;
    walk->where[before] = '\0';
}

static int tar_json_add_list(struct json_walk *walk, const char *key, json_t *list)
{
    int r = sample_begin(walk->ret, TREE_LIST, key);

    for (size_t i = 0; r == 0 && i < json_array_size(list); i++) {
        size_t before = tar_json_enter_place(walk, "[%zu]", i);
        r = tar_json_add_value(walk, NULL, json_array_get(list, i));
        tar_json_leave_place(walk, before);
    }
    return r < 0 ? r : sample_end(walk->ret);
}

static int tar_json_add_dict(struct json_walk *walk, const char *key, json_t *dict)
{
    int r = sample_begin(walk->ret, TREE_DICT, key);

    for (void *at = json_object_iter(dict); r == 0 && at; at = json_object_iter_next(dict, at)) {
        const char *name = json_object_iter_key(at);
        size_t before = tar_json_enter_place(walk, ".%s", name);
        r = tar_json_add_value(walk, name, json_object_iter_value(at));
        tar_json_leave_place(walk, before);
    }
    return r < 0 ? r : sample_end(walk->ret);
}

/* As deep as a sample may be: then sample_begin() refuses. */
static int tar_json_add_value(struct json_walk *walk, const char *key, json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return tar_json_add_dict(walk, key, value);
    case JSON_ARRAY:
        return tar_json_add_list(walk, key, value);
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
    return tar_field_error(walk->field, EINVAL, walk->err,
                           "has null at \"%s%s\", which a batch cannot hold; leave the key out, "
                           "or take the text with decode: false",
                           walk->field->key, walk->where);
}

static void tar_json_release_json(void *json)
{
    json_decref(json);
}

int tar_add_json(const struct tar_field *f, struct sample *ret, struct dl_error *err)
{
    struct json_walk walk = {.field = f, .ret = ret, .err = err};
    json_error_t why;
    json_t *root =
        json_loadb((const char *)f->data, f->size, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);

    if (!root)
        return tar_field_error(f, EINVAL, err, "is not JSON: %s, in its line %d", why.text,
                               why.line);
    /* Until the batch is made: the strings are the parser's. */
    int r = arena_hold(ret->arena, tar_json_release_json, root);
    if (r < 0)
        return tar_field_error(f, ENOMEM, err, "ran out of memory");
    return tar_json_add_value(&walk, f->key, root);
}
