/*
 * Value trees: build, look up, copy, compare. value_msgpack.c has the way from and to bytes.
 *
 * Invariants: only maps' children have keys, and a map's keys are unique. Recursion follows the
 * nesting of a tree, which is at most DL_MAX_VALUE_DEPTH for what was decoded and shallow for what
 * this program builds.
 */
#include "proto/value.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

void value_deinit(struct value *v)
{
    for (uint32_t i = 0; i < v->count; i++)
        value_deinit(&v->items[i]);
    free(v->items);
    free(v->string);
    free(v->key);
    *v = (struct value){0};
}

uint64_t value_bytes(const struct value *v)
{
    uint64_t bytes =
        sizeof *v + (v->string ? strlen(v->string) + 1 : 0) + (v->key ? strlen(v->key) + 1 : 0);

    for (uint32_t i = 0; i < v->count; i++)
        bytes += value_bytes(&v->items[i]);
    return bytes;
}

void value_move(struct value *from, struct value *to)
{
    char *key = steal_ptr(to->key);
    struct value moved = *from;

    free(moved.key);
    *from = (struct value){0};
    value_deinit(to);
    *to = moved;
    to->key = key;
}

const struct value *value_get(const struct value *v, const char *key)
{
    if (!v || v->type != VALUE_MAP)
        return NULL;
    for (uint32_t i = 0; i < v->count; i++)
        if (strcmp(v->items[i].key, key) == 0)
            return &v->items[i];
    return NULL;
}

double value_real(const struct value *v)
{
    switch (v ? v->type : VALUE_NULL) {
    case VALUE_INT:
        return (double)v->integer;
    case VALUE_UINT:
        return (double)v->uinteger;
    case VALUE_FLOAT:
        return v->number;
    default:
        return NAN;
    }
}

uint64_t value_count(const struct value *v)
{
    if (v && v->type == VALUE_INT && v->integer > 0)
        return (uint64_t)v->integer;
    return v && v->type == VALUE_UINT ? v->uinteger : 0;
}

const char *value_type_name(const struct value *v)
{
    switch (v->type) {
    case VALUE_NULL:
        return "null";
    case VALUE_BOOL:
        return "a boolean";
    case VALUE_INT:
    case VALUE_UINT:
        return "an integer";
    case VALUE_FLOAT:
        return "a float";
    case VALUE_STRING:
        return "a string";
    case VALUE_ARRAY:
        return "a list";
    case VALUE_MAP:
        return "a mapping";
    }
    return "?";
}

static int value_reserve(struct value *v, uint32_t cap)
{
    if (cap <= v->cap)
        return 0;
    struct value *items = reallocarray(v->items, cap, sizeof *items);
    if (!items)
        return -ENOMEM;
    v->items = items;
    v->cap = cap;
    return 0;
}

/* Consumes `key`, which is NULL for an array's child. */
static int value_append_child(struct value *v, char *key, struct value **ret)
{
    _cleanup_free_ char *owned = key;

    if (v->count == v->cap) {
        if (v->cap > UINT32_MAX / 2)
            return -ENOMEM;
        int r = value_reserve(v, v->cap ? v->cap * 2 : 4);
        if (r < 0)
            return r;
    }
    struct value *child = &v->items[v->count++];
    *child = (struct value){.key = steal_ptr(owned)};
    *ret = child;
    return 0;
}

/* Only a value that holds nothing yet may become a container. */
static void value_become(struct value *v, enum value_type type)
{
    assert(v->type == type || v->type == VALUE_NULL);
    v->type = type;
}

int value_append(struct value *map, const char *key, size_t len, struct value **ret)
{
    value_become(map, VALUE_MAP);
    char *copy = strndup(len ? key : "", len);
    return copy ? value_append_child(map, copy, ret) : -ENOMEM;
}

int value_set(struct value *map, const char *key, struct value **ret)
{
    value_become(map, VALUE_MAP);
    for (uint32_t i = 0; i < map->count; i++) {
        struct value *child = &map->items[i];
        if (strcmp(child->key, key) == 0) {
            value_move(&(struct value){0}, child);
            *ret = child;
            return 0;
        }
    }
    return value_append(map, key, strlen(key), ret);
}

void value_unset(struct value *map, const char *key)
{
    for (uint32_t i = 0; i < map->count; i++) {
        if (strcmp(map->items[i].key, key) != 0)
            continue;
        value_deinit(&map->items[i]);
        map->count--;
        memmove(&map->items[i], &map->items[i + 1], (map->count - i) * sizeof *map->items);
        return;
    }
}

int value_push(struct value *array, struct value **ret)
{
    value_become(array, VALUE_ARRAY);
    return value_append_child(array, NULL, ret);
}

int value_set_int(struct value *map, const char *key, int64_t i)
{
    struct value *child;
    int r = value_set(map, key, &child);
    if (r < 0)
        return r;
    child->type = VALUE_INT;
    child->integer = i;
    return 0;
}

void value_make_uint(struct value *v, uint64_t u)
{
    if (u > INT64_MAX) {
        v->type = VALUE_UINT;
        v->uinteger = u;
    } else {
        v->type = VALUE_INT;
        v->integer = (int64_t)u;
    }
}

int value_set_uint(struct value *map, const char *key, uint64_t u)
{
    struct value *child;
    int r = value_set(map, key, &child);
    if (r < 0)
        return r;
    value_make_uint(child, u);
    return 0;
}

int value_set_bool(struct value *map, const char *key, bool b)
{
    struct value *child;
    int r = value_set(map, key, &child);
    if (r < 0)
        return r;
    child->type = VALUE_BOOL;
    child->boolean = b;
    return 0;
}

int value_set_float(struct value *map, const char *key, double d)
{
    struct value *child;
    int r = value_set(map, key, &child);
    if (r < 0)
        return r;
    child->type = VALUE_FLOAT;
    child->number = d;
    return 0;
}

int value_make_string(struct value *v, const char *s)
{
    struct value made = {.type = VALUE_STRING, .string = strdup(s), .line = v->line};
    if (!made.string)
        return -ENOMEM;
    value_move(&made, v);
    return 0;
}

int value_set_string(struct value *map, const char *key, const char *s)
{
    /* Copied first: a map without the key must not be left with a null in its place. */
    _cleanup_(value_deinit) struct value made = {0};
    int r = value_make_string(&made, s);
    if (r < 0)
        return r;
    struct value *child;
    r = value_set(map, key, &child);
    if (r < 0)
        return r;
    value_move(&made, child);
    return 0;
}

/* `ret` is zeroed; on failure it is left half-built for the caller to deinit. */
static int value_copy_into(const struct value *from, struct value *ret)
{
    int r = value_reserve(ret, from->count);
    if (r < 0)
        return r;
    ret->type = from->type;
    ret->boolean = from->boolean;
    ret->integer = from->integer;
    ret->uinteger = from->uinteger;
    ret->number = from->number;
    ret->line = from->line;
    if (from->string) {
        ret->string = strdup(from->string);
        if (!ret->string)
            return -ENOMEM;
    }
    for (uint32_t i = 0; i < from->count; i++) {
        const struct value *item = &from->items[i];
        struct value *child;
        r = item->key ? value_append(ret, item->key, strlen(item->key), &child)
                      : value_push(ret, &child);
        if (r == 0)
            r = value_copy_into(item, child);
        if (r < 0)
            return r;
    }
    return 0;
}

int value_copy(const struct value *from, struct value *to)
{
    _cleanup_(value_deinit) struct value made = {0};
    int r = value_copy_into(from, &made);
    if (r < 0)
        return r;
    value_move(&made, to);
    return 0;
}

static bool value_map_equal(const struct value *a, const struct value *b)
{
    for (uint32_t i = 0; i < a->count; i++) {
        const struct value *left = &a->items[i];
        const struct value *right = &b->items[i];
        if (strcmp(left->key, right->key) != 0)
            right = value_get(b, left->key);
        if (!right || !value_equal(left, right))
            return false;
    }
    return true;
}

bool value_equal(const struct value *a, const struct value *b)
{
    if (a->type != b->type || a->count != b->count)
        return false;
    switch (a->type) {
    case VALUE_NULL:
        return true;
    case VALUE_BOOL:
        return a->boolean == b->boolean;
    case VALUE_INT:
        return a->integer == b->integer;
    case VALUE_UINT:
        return a->uinteger == b->uinteger;
    case VALUE_FLOAT:
        return a->number == b->number || (isnan(a->number) && isnan(b->number));
    case VALUE_STRING:
        return strcmp(a->string, b->string) == 0;
    case VALUE_ARRAY:
        for (uint32_t i = 0; i < a->count; i++)
            if (!value_equal(&a->items[i], &b->items[i]))
                return false;
        return true;
    case VALUE_MAP:
        return value_map_equal(a, b);
    }
    return false;
}

/* By key, then by place: of equal keys the earlier comes first. */
static int value_compare_keys(const void *left, const void *right)
{
    const struct value *a = *(const struct value *const *)left;
    const struct value *b = *(const struct value *const *)right;
    int order = strcmp(a->key, b->key);
    return order ? order : (a > b) - (a < b);
}

int value_duplicate(const struct value *map, const struct value **ret)
{
    const struct value *found = NULL;

    if (map->count > 1) {
        /* Sorted, because a peer chooses the number of keys: comparing all pairs of 32,768 keys
         * would hold up the daemon for seconds. */
        _cleanup_free_ const struct value **sorted = calloc(map->count, sizeof(void *));
        if (!sorted)
            return -ENOMEM;
        for (uint32_t i = 0; i < map->count; i++)
            sorted[i] = &map->items[i];
        qsort(sorted, map->count, sizeof(void *), value_compare_keys);
        for (uint32_t i = 1; i < map->count; i++)
            if (strcmp(sorted[i - 1]->key, sorted[i]->key) == 0 && (!found || sorted[i] < found))
                found = sorted[i];
    }
    *ret = found;
    return 0;
}
