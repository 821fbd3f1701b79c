#include "daemon/data/kinds/litdata/litdata_shape.h"

#include "proto/common/array.h"
#include "proto/limits.h"

#include <errno.h>
#include <jansson.h>

enum {
    LITDATA_DEPTH = DL_BOUND_TREE_DEPTH - 1, /* a batch's leaf may be a list itself */
    LITDATA_NODES = 4096,
};

/* On the way through a spec. */
struct litdata_shape_reading {
    const char *path;
    struct litdata_shape shape;
    struct dl_error *err;
};

static int litdata_shape_refuse(const struct litdata_shape_reading *rd, const char *why)
{
    return dl_error_set(rd->err, EINVAL, rd->path, "its config.data_spec %s", why);
}

static int litdata_shape_no_memory(const struct litdata_shape_reading *rd)
{
    return dl_error_set(rd->err, ENOMEM, rd->path, "out of memory for the index");
}

void litdata_shape_deinit(struct litdata_shape *shape)
{
    for (uint32_t i = 0; i < shape->n; i++)
        free(shape->nodes[i].key);
    free(shape->nodes);
    *shape = (struct litdata_shape){0};
}

/* Adds a node with key `key`, at *ret_i. */
static int litdata_shape_grow(struct litdata_shape_reading *rd, const char *key, uint32_t *ret_i)
{
    struct litdata_shape *shape = &rd->shape;

    if (shape->n == LITDATA_NODES)
        return litdata_shape_refuse(rd, "has more than 4096 nodes");
    if (!array_reserve(shape->nodes, shape->room, shape->n + UINT64_C(1)))
        return litdata_shape_no_memory(rd);
    char *copy = key ? strdup(key) : NULL;
    if (key && !copy)
        return litdata_shape_no_memory(rd);
    *ret_i = shape->n;
    shape->nodes[shape->n++] = (struct litdata_node){.key = copy, .leaf = LITDATA_NO_LEAF};
    return 0;
}

/* "builtins.dict" */
static enum tree_kind litdata_shape_kind(const char *type)
{
    static const struct {
        const char *type;
        enum tree_kind kind;
    } types[] = {
        {"builtins.dict", TREE_DICT},
        {"collections.OrderedDict", TREE_DICT},
        {"builtins.list", TREE_LIST},
        {"builtins.tuple", TREE_TUPLE},
    };

    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if (strcmp(types[i].type, type) == 0)
            return types[i].kind;
    return 0;
}

static int litdata_shape_read(struct litdata_shape_reading *rd, const json_t *spec, const char *key,
                              uint32_t depth);

/* A dict's keys are JSON once more, in a string: ["id", "text"]. */
static int litdata_shape_read_children(struct litdata_shape_reading *rd, const json_t *children,
                                       const json_t *context, bool is_dict, uint32_t depth)
{
    const char *text = json_string_value(context);
    json_t *keys = is_dict && text ? json_loads(text, 0, NULL) : NULL;
    size_t n = json_array_size(children);
    int r = 0;

    if (is_dict && (!json_is_array(keys) || json_array_size(keys) != n))
        r = litdata_shape_refuse(rd, "has a dict with unequal numbers of keys and values");
    for (size_t i = 0; r == 0 && i < n; i++) {
        const char *key = json_string_value(json_array_get(keys, i));
        if (is_dict && !key)
            r = litdata_shape_refuse(rd, "has a dict with keys that are not text");
        else
            r = litdata_shape_read(rd, json_array_get(children, i), key, depth + 1);
    }
    json_decref(keys);
    return r;
}

static int litdata_shape_read(struct litdata_shape_reading *rd, const json_t *spec, const char *key,
                              uint32_t depth)
{
    const json_t *type = json_object_get(spec, "type");
    const json_t *children = json_object_get(spec, "children_spec");
    uint32_t i = 0;

    if (!type || !json_is_array(children) || depth > LITDATA_DEPTH)
        return litdata_shape_refuse(rd, "is damaged, or nested too deeply");
    int r = litdata_shape_grow(rd, key, &i);
    if (r < 0)
        return r;
    if (json_is_null(type)) {
        rd->shape.nodes[i].leaf = rd->shape.leaves++;
    } else {
        const char *name = json_string_value(type);
        enum tree_kind kind = name ? litdata_shape_kind(name) : 0;
        if (!kind)
            return dl_error_set(rd->err, EINVAL, rd->path,
                                "its config.data_spec has a %.60s; dicts, lists and tuples can be "
                                "read: write samples of these",
                                name ? name : "container without a name");
        rd->shape.nodes[i].kind = kind;
        rd->shape.nodes[i].children = (uint32_t)json_array_size(children);
        r = litdata_shape_read_children(rd, children, json_object_get(spec, "context"),
                                        kind == TREE_DICT, depth);
    }
    rd->shape.nodes[i].span = rd->shape.n - i;
    return r;
}

/* [1, {...}]: a version, and the spec. */
int litdata_shape_parse(const char *text, const char *path, struct litdata_shape *ret,
                        struct dl_error *err)
{
    struct litdata_shape_reading rd = {.path = path, .err = err};
    json_t *root = json_loads(text, 0, NULL);
    int r;

    if (json_integer_value(json_array_get(root, 0)) != 1 || json_array_size(root) != 2)
        r = litdata_shape_refuse(&rd, "is not of version 1, as litData writes it");
    else
        r = litdata_shape_read(&rd, json_array_get(root, 1), NULL, 0);
    json_decref(root);
    if (r < 0)
        litdata_shape_deinit(&rd.shape);
    else
        *ret = rd.shape;
    return r;
}
