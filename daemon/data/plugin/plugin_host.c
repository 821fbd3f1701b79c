/*
 * What a plug-in may call: building and reading samples, random numbers, data files, words. It is
 * other people's code that calls, so arguments are checked and never asserted on.
 */
#include "daemon/data/plugin/plugin_private.h"

#include <errno.h>
#include <stdio.h>

_Static_assert((int)DL_PLUGIN_BOOL == (int)DL_DTYPE_BOOL &&
                   (int)DL_PLUGIN_UINT8 == (int)DL_DTYPE_UINT8 &&
                   (int)DL_PLUGIN_INT8 == (int)DL_DTYPE_INT8 &&
                   (int)DL_PLUGIN_UINT16 == (int)DL_DTYPE_UINT16 &&
                   (int)DL_PLUGIN_INT16 == (int)DL_DTYPE_INT16 &&
                   (int)DL_PLUGIN_UINT32 == (int)DL_DTYPE_UINT32 &&
                   (int)DL_PLUGIN_INT32 == (int)DL_DTYPE_INT32 &&
                   (int)DL_PLUGIN_UINT64 == (int)DL_DTYPE_UINT64 &&
                   (int)DL_PLUGIN_INT64 == (int)DL_DTYPE_INT64 &&
                   (int)DL_PLUGIN_FLOAT16 == (int)DL_DTYPE_FLOAT16 &&
                   (int)DL_PLUGIN_BFLOAT16 == (int)DL_DTYPE_BFLOAT16 &&
                   (int)DL_PLUGIN_FLOAT32 == (int)DL_DTYPE_FLOAT32 &&
                   (int)DL_PLUGIN_FLOAT64 == (int)DL_DTYPE_FLOAT64 &&
                   (int)DL_PLUGIN_COMPLEX64 == (int)DL_DTYPE_COMPLEX64 &&
                   (int)DL_PLUGIN_COMPLEX128 == (int)DL_DTYPE_COMPLEX128,
               "element types are numbered as on the wire");
_Static_assert((int)DL_PLUGIN_TENSOR == (int)TREE_TENSOR && (int)DL_PLUGIN_DICT == (int)TREE_DICT &&
                   (int)DL_PLUGIN_LIST == (int)TREE_LIST &&
                   (int)DL_PLUGIN_TUPLE == (int)TREE_TUPLE &&
                   (int)DL_PLUGIN_STRING == (int)TREE_STRING &&
                   (int)DL_PLUGIN_BYTES == (int)TREE_BYTES && (int)DL_PLUGIN_DIMS == (int)TREE_DIMS,
               "nodes are those of trees");

enum { LOG_LINE = 1024 };

/* The table is part of what it is the table of; that it is const is for plug-ins. */
static struct plugin *plugin_host_owner(const struct dl_plugin_host *host)
{
    return container_of((struct dl_plugin_host *)(uintptr_t)host, struct plugin, host);
}

/* ---- words ---------------------------------------------------------------------------------- */

_printf_(3, 4) static int plugin_host_fail(const struct dl_plugin_host *host, int code,
                                           const char *fmt, ...)
{
    struct plugin *p = plugin_host_owner(host);
    char text[DL_ERROR_MESSAGE_MAX];
    va_list args;

    va_start(args, fmt);
    if (!fmt || vsnprintf(text, sizeof text, fmt, args) < 0)
        snprintf(text, sizeof text, "it failed with a text that cannot be formatted");
    va_end(args);
    return dl_error_set(&p->said, code, p->path, "%s", text);
}

_printf_(2, 3) static void plugin_host_log(const struct dl_plugin_host *host, const char *fmt, ...)
{
    char text[LOG_LINE];
    va_list args;

    va_start(args, fmt);
    if (fmt && vsnprintf(text, sizeof text, fmt, args) >= 0)
        fprintf(stderr, "%s: %s\n", plugin_host_owner(host)->path, text);
    va_end(args);
}

static int plugin_host_map(const struct dl_plugin_host *host, const char *path,
                           const void **ret_data, uint64_t *ret_bytes)
{
    struct plugin *p = plugin_host_owner(host);
    struct dl_error err = {0};

    if (!path || path[0] != '/' || !ret_data || !ret_bytes)
        return plugin_host_fail(host, EINVAL, "%s: a data file is named by its absolute path",
                                path ? path : "(null)");
    struct plugin_map *map = calloc(1, sizeof *map);
    if (!map)
        return plugin_host_fail(host, ENOMEM, "%s: out of memory", path);
    int r = source_open(path, p->env, &map->source, &err);
    if (r < 0) {
        free(map);
        return plugin_host_fail(host, -r, "%s: %s", path, err.message);
    }
    map->next = p->maps;
    p->maps = map;
    *ret_data = map->source.data;
    *ret_bytes = map->source.bytes;
    return 0;
}

/* ---- building ------------------------------------------------------------------------------- */

/*
 * The sample to build on, or NULL. A read-only sample stays unchanged, even if a plug-in casts away
 * `const`.
 */
static struct sample *plugin_host_building(struct dl_plugin_sample *sample)
{
    return sample && sample->why ? sample->sample : NULL;
}

/* What no function of sample.h would say. */
_printf_(3, 4) static int plugin_host_refuse(struct dl_plugin_sample *sample, const char *key,
                                             const char *fmt, ...)
{
    char text[DL_ERROR_MESSAGE_MAX];
    va_list args;

    if (sample->sample->error)
        return sample->sample->error;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    sample->sample->error = dl_error_set(sample->why, EINVAL, "", "%s%s%s%s", key ? "\"" : "",
                                         key ? key : "", key ? "\": " : "", text);
    return sample->sample->error;
}

/* Reports the first failure of sample.h with its place. */
static int plugin_host_note(struct dl_plugin_sample *sample, const char *key, int r)
{
    struct dl_error err = {0};

    if (r < 0 && sample->why->code == 0 && sample_check(sample->sample, &err) < 0)
        dl_error_set(sample->why, err.code, "", "%s%s%s%s", key ? "\"" : "", key ? key : "",
                     key ? "\": " : "", err.message);
    return r;
}

static int plugin_host_begin(struct dl_plugin_sample *sample, uint32_t kind, const char *key)
{
    struct sample *s = plugin_host_building(sample);

    if (!s)
        return -EPERM;
    if (kind != TREE_DICT && kind != TREE_LIST && kind != TREE_TUPLE)
        return plugin_host_refuse(sample, key, "%u is not a kind of container", kind);
    return plugin_host_note(sample, key, sample_begin(s, kind, key));
}

static int plugin_host_end(struct dl_plugin_sample *sample)
{
    struct sample *s = plugin_host_building(sample);

    return s ? plugin_host_note(sample, NULL, sample_end(s)) : -EPERM;
}

static void *plugin_host_alloc(struct dl_plugin_sample *sample, size_t bytes)
{
    struct sample *s = plugin_host_building(sample);

    if (!s)
        return NULL;
    if (bytes > DL_MAX_SEGMENT_BYTES) {
        plugin_host_refuse(sample, NULL,
                           "it requests %zu bytes of memory at once; a batch has at most %llu",
                           bytes, (ull)DL_MAX_SEGMENT_BYTES);
        return NULL;
    }
    void *memory = sample_alloc(s, bytes);
    plugin_host_note(sample, NULL, memory ? 0 : s->error);
    return memory;
}

static int plugin_host_tensor(struct dl_plugin_sample *sample, const char *key, uint32_t type,
                              uint32_t ndim, const uint64_t *shape, const void *data)
{
    struct sample *s = plugin_host_building(sample);
    uint64_t bytes;

    if (!s)
        return -EPERM;
    if (dtype_bytes(type) == 0)
        return plugin_host_refuse(sample, key, "%u is not a type of a tensor's elements", type);
    if (ndim > TREE_DIMS)
        return plugin_host_refuse(sample, key, "a tensor of %u dimensions; the maximum is %d", ndim,
                                  TREE_DIMS);
    if (ndim > 0 && !shape)
        return plugin_host_refuse(sample, key, "a tensor of %u dimensions has no shape: NULL",
                                  ndim);
    if (!tensor_bytes(type, ndim, shape, &bytes))
        return plugin_host_refuse(sample, key, "a tensor of 2^63 bytes or more");
    if (bytes > 0 && !data)
        return plugin_host_refuse(sample, key, "a tensor of %llu bytes has no data: NULL",
                                  (ull)bytes);
    return plugin_host_note(sample, key, sample_tensor(s, key, type, ndim, shape, data));
}

static int plugin_host_add_text(struct dl_plugin_sample *sample, enum tree_kind kind,
                                const char *key, const void *data, size_t len)
{
    struct sample *s = plugin_host_building(sample);

    if (!s)
        return -EPERM;
    if (len > DL_MAX_SEGMENT_BYTES)
        return plugin_host_refuse(sample, key, "%zu bytes of text; a batch has at most %llu", len,
                                  (ull)DL_MAX_SEGMENT_BYTES);
    if (len > 0 && !data)
        return plugin_host_refuse(sample, key, "%zu bytes of text have no data: NULL", len);
    return plugin_host_note(sample, key, sample_text(s, kind, key, data ? data : "", len));
}

static int plugin_host_string(struct dl_plugin_sample *sample, const char *key, const char *text,
                              size_t len)
{
    return plugin_host_add_text(sample, TREE_STRING, key, text, len);
}

static int plugin_host_bytes(struct dl_plugin_sample *sample, const char *key, const void *data,
                             size_t len)
{
    return plugin_host_add_text(sample, TREE_BYTES, key, data, len);
}

static int plugin_host_integer(struct dl_plugin_sample *sample, const char *key, int64_t value)
{
    struct sample *s = plugin_host_building(sample);

    return s ? plugin_host_note(sample, key, sample_int(s, key, value)) : -EPERM;
}

static int plugin_host_real(struct dl_plugin_sample *sample, const char *key, double value)
{
    struct sample *s = plugin_host_building(sample);

    return s ? plugin_host_note(sample, key, sample_float(s, key, value)) : -EPERM;
}

static int plugin_host_boolean(struct dl_plugin_sample *sample, const char *key, int value)
{
    struct sample *s = plugin_host_building(sample);

    return s ? plugin_host_note(sample, key, sample_bool(s, key, value != 0)) : -EPERM;
}

/* ---- random numbers ------------------------------------------------------------------------- */

static uint64_t plugin_host_random(struct dl_plugin_rng *rng)
{
    return rng_u64(&rng->rng);
}

static double plugin_host_uniform(struct dl_plugin_rng *rng)
{
    return rng_uniform(&rng->rng);
}

static uint64_t plugin_host_below(struct dl_plugin_rng *rng, uint64_t n)
{
    return n > 0 ? rng_below(&rng->rng, n) : 0;
}

/* ---- reading -------------------------------------------------------------------------------- */

static uint32_t plugin_host_nodes(const struct dl_plugin_sample *sample)
{
    return sample ? sample->sample->tree.count : 0;
}

/* The parent of node i is a dict: only there it has a key. */
static bool plugin_host_has_key(const struct tree *tree, uint32_t i)
{
    const struct tree_node *wanted = &tree->nodes[i], *node = tree->nodes;

    while (node != wanted) {
        const struct tree_node *child = node + 1;
        while (tree_skip(child) <= wanted)
            child = tree_skip(child);
        if (child == wanted)
            return node->kind == TREE_DICT;
        node = child;
    }
    return false;
}

/* NULL plus 0 is undefined: a tree whose keys are all empty has no memory for them. */
static const char *plugin_host_key_of(const struct tree *tree, const struct tree_node *node)
{
    return node->key_len > 0 ? tree->keys + node->key_off : "";
}

static int plugin_host_node(const struct dl_plugin_sample *sample, uint32_t i,
                            struct dl_plugin_node *ret)
{
    if (!sample || !ret)
        return -EINVAL;
    const struct tree *tree = &sample->sample->tree;
    if (i >= tree->count)
        return -ENOENT;
    const struct tree_node *node = &tree->nodes[i];
    *ret = (struct dl_plugin_node){
        .kind = node->kind,
        .type = node->dtype,
        .ndim = node->ndim,
        .children = node->children,
        .next = (uint32_t)(tree_skip(node) - tree->nodes),
        .key_len = node->key_len,
        .key = plugin_host_has_key(tree, i) ? plugin_host_key_of(tree, node) : NULL,
        .data = sample->sample->data[i],
        .nbytes = node->nbytes,
    };
    memcpy(ret->shape, node->shape, sizeof ret->shape);
    return 0;
}

/* The child of the container `node` with key text[0..len); or NULL. */
static const struct tree_node *plugin_host_find_child(const struct tree *tree,
                                                      const struct tree_node *node,
                                                      const char *text, size_t len)
{
    const struct tree_node *child = node + 1;
    char number[16];

    for (uint32_t i = 0; i < node->children; i++, child = tree_skip(child)) {
        snprintf(number, sizeof number, "%u", i);
        const char *name = node->kind == TREE_DICT ? plugin_host_key_of(tree, child) : number;
        size_t name_len = node->kind == TREE_DICT ? child->key_len : strlen(number);
        if (name_len == len && (len == 0 || memcmp(name, text, len) == 0))
            return child;
    }
    return NULL;
}

static int plugin_host_find(const struct dl_plugin_sample *sample, const char *path,
                            struct dl_plugin_node *ret)
{
    if (!sample || !path || !ret)
        return -EINVAL;
    const struct tree *tree = &sample->sample->tree;
    const struct tree_node *node = tree->count > 0 ? tree->nodes : NULL;
    while (node && *path) {
        size_t len = strcspn(path, ".");
        node = plugin_host_find_child(tree, node, path, len);
        path += len + (path[len] == '.');
    }
    return node ? plugin_host_node(sample, (uint32_t)(node - tree->nodes), ret) : -ENOENT;
}

/* ---- the table ------------------------------------------------------------------------------ */

void plugin_host_init(struct plugin *p)
{
    p->host = (struct dl_plugin_host){
        .abi = DL_PLUGIN_ABI,
        .size = sizeof p->host,
        .path = p->path,
        .fail = plugin_host_fail,
        .log = plugin_host_log,
        .map = plugin_host_map,
        .begin = plugin_host_begin,
        .end = plugin_host_end,
        .alloc = plugin_host_alloc,
        .tensor = plugin_host_tensor,
        .string = plugin_host_string,
        .bytes = plugin_host_bytes,
        .integer = plugin_host_integer,
        .real = plugin_host_real,
        .boolean = plugin_host_boolean,
        .random = plugin_host_random,
        .uniform = plugin_host_uniform,
        .below = plugin_host_below,
        .nodes = plugin_host_nodes,
        .node = plugin_host_node,
        .find = plugin_host_find,
    };
}

void plugin_host_deinit(struct plugin *p)
{
    while (p->maps) {
        struct plugin_map *map = p->maps;
        p->maps = map->next;
        source_close(&map->source);
        free(map);
    }
}
