/*
 * A collate function: ragged batches, without padding.
 *
 *   collate: {kind: plugin, path: /.../ragged.so}
 *
 * Samples are dicts of leaves. A field that is a tensor of one dimension becomes the samples'
 * values one after another; the field `<name>_offsets` beside it, int64 [B + 1], says where each
 * begins: what torch.nested and the kernels of attention over packed sequences take. Of any other
 * field the batch has a list, with one entry for each sample.
 *
 *   cc -O2 -shared -fPIC ragged.c $(pkg-config --cflags dloader-plugin) -o ragged.so
 */
#include <dloader-plugin.h>

#include <errno.h>
#include <string.h>

#define OFFSETS "_offsets"

enum { KEY_MAX = 128 };

struct batch {
    const struct dl_plugin_host *host;
    const struct dl_plugin_sample *const *samples;
    size_t n;
    struct dl_plugin_sample *result;
};

static int is_ragged(const struct dl_plugin_node *node)
{
    return node->kind == DL_PLUGIN_TENSOR && node->ndim == 1;
}

/* Leaf i of a sample, which must be of the same field as that of the first sample. */
static int read_leaf(const struct batch *b, size_t sample, uint32_t i,
                     const struct dl_plugin_node *first, struct dl_plugin_node *ret)
{
    if (b->host->node(b->samples[sample], i, ret) < 0 || ret->kind != first->kind ||
        ret->type != first->type || is_ragged(ret) != is_ragged(first) ||
        ret->key_len != first->key_len || memcmp(ret->key, first->key, ret->key_len) != 0)
        return b->host->fail(b->host, EINVAL,
                             "sample %zu of the batch has no field \"%.*s\" of this kind in place "
                             "%u",
                             sample, (int)first->key_len, first->key, i - 1);
    return 0;
}

/* ---- the two sorts of fields ---------------------------------------------------------------- */

static int measure(const struct batch *b, uint32_t i, const struct dl_plugin_node *first,
                   int64_t *offsets, uint64_t *ret_bytes)
{
    struct dl_plugin_node node;
    uint64_t bytes = 0;

    offsets[0] = 0;
    for (size_t s = 0; s < b->n; s++) {
        int r = read_leaf(b, s, i, first, &node);
        if (r < 0)
            return r;
        offsets[s + 1] = offsets[s] + (int64_t)node.shape[0];
        bytes += node.nbytes;
    }
    *ret_bytes = bytes;
    return 0;
}

static int add_values(const struct batch *b, uint32_t i, const struct dl_plugin_node *first)
{
    const struct dl_plugin_host *host = b->host;
    const uint64_t n_offsets = b->n + 1;
    int64_t *offsets = host->alloc(b->result, n_offsets * sizeof *offsets);
    struct dl_plugin_node node;
    char key[KEY_MAX + sizeof OFFSETS];
    uint64_t bytes;

    if (!offsets)
        return host->fail(host, ENOMEM, "out of memory");
    int r = measure(b, i, first, offsets, &bytes);
    char *values = r == 0 ? host->alloc(b->result, bytes) : NULL;
    if (!values)
        return r < 0 ? r : host->fail(host, ENOMEM, "out of memory");
    char *at = values;
    for (size_t s = 0; s < b->n; s++) {
        host->node(b->samples[s], i, &node);
        if (node.nbytes > 0)
            memcpy(at, node.data, node.nbytes);
        at += node.nbytes;
    }
    memcpy(key, first->key, first->key_len);
    key[first->key_len] = '\0';
    const uint64_t length = (uint64_t)offsets[b->n];
    host->tensor(b->result, key, first->type, 1, &length, values);
    memcpy(key + first->key_len, OFFSETS, sizeof OFFSETS);
    return host->tensor(b->result, key, DL_PLUGIN_INT64, 1, &n_offsets, offsets);
}

/* Leaves stay where they are: the batch may point to what the samples point to. */
static int add_list(const struct batch *b, uint32_t i, const struct dl_plugin_node *first)
{
    const struct dl_plugin_host *host = b->host;
    struct dl_plugin_node node;
    char key[KEY_MAX + 1];

    memcpy(key, first->key, first->key_len);
    key[first->key_len] = '\0';
    host->begin(b->result, DL_PLUGIN_LIST, key);
    for (size_t s = 0; s < b->n; s++) {
        int r = read_leaf(b, s, i, first, &node);
        if (r < 0)
            return r;
        if (node.kind == DL_PLUGIN_TENSOR)
            host->tensor(b->result, NULL, node.type, node.ndim, node.shape, node.data);
        else if (node.kind == DL_PLUGIN_STRING)
            host->string(b->result, NULL, node.data, node.nbytes);
        else
            host->bytes(b->result, NULL, node.data, node.nbytes);
    }
    return host->end(b->result);
}

/* ---- the plug-in ---------------------------------------------------------------------------- */

static int ragged_collate(void *handle, const struct dl_plugin_sample *const *samples,
                          const uint64_t *numbers, size_t n, struct dl_plugin_sample *result)
{
    const struct dl_plugin_host *host = handle;
    const struct batch b = {.host = host, .samples = samples, .n = n, .result = result};
    struct dl_plugin_node first;

    host->node(samples[0], 0, &first);
    if (first.kind != DL_PLUGIN_DICT || first.children + 1 != host->nodes(samples[0]))
        return host->fail(host, EINVAL, "sample %llu is not a dict of leaves",
                          (unsigned long long)numbers[0]);
    host->begin(result, DL_PLUGIN_DICT, NULL);
    for (uint32_t i = 1; i < host->nodes(samples[0]); i++) {
        host->node(samples[0], i, &first);
        int r = is_ragged(&first) ? add_values(&b, i, &first) : add_list(&b, i, &first);
        if (r < 0)
            return r;
    }
    return host->end(result);
}

/* The host is all it needs. */
static int ragged_open(const struct dl_plugin_host *host, const char *config, void **ret)
{
    if (strcmp(config, "null") != 0)
        return host->fail(host, EINVAL, "there is nothing to configure: %.200s", config);
    *ret = (void *)(uintptr_t)host;
    return 0;
}

static const struct dl_plugin ragged_plugin = {
    .abi = DL_PLUGIN_ABI,
    .size = sizeof ragged_plugin,
    .open = ragged_open,
    .collate = ragged_collate,
};

const struct dl_plugin *dl_plugin_entry(void)
{
    return &ragged_plugin;
}
