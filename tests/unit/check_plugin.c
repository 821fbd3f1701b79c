/*
 * Prints what a plug-in's dataset yields, one sample a line, as JSON: tensors as {"dtype", "shape",
 * "values"}, numbers as such, bytes in hex.
 *
 *   check_plugin PATH CONFIG [SEED EPOCH WORKER WORKERS SKIP]
 *
 * Lengths that the plug-in tells are compared with those of the samples. CONFIG is JSON. Errors go
 * to standard error as one line; exit status 1.
 */
#include "daemon/data/collate/lengths.h"
#include "daemon/data/plugin/plugin.h"
#include "proto/yaml.h"
#include "tests/lib/lengths.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>

static json_t *element(uint32_t dtype, const void *at)
{
    switch (dtype) {
    case DL_DTYPE_BOOL:
        return json_boolean(*(const uint8_t *)at);
    case DL_DTYPE_UINT8:
        return json_integer(*(const uint8_t *)at);
    case DL_DTYPE_INT64:
        return json_integer(*(const int64_t *)at);
    case DL_DTYPE_FLOAT64: {
        double number = *(const double *)at;
        return number == number ? json_real(number) : json_string("NaN");
    }
    default:
        return json_string(dtype_name(dtype));
    }
}

static json_t *tensor(const struct tree_node *node, const char *data)
{
    size_t size = dtype_bytes(node->dtype);
    json_t *shape = json_array(), *values = json_array();

    for (uint32_t i = 0; i < node->ndim; i++)
        json_array_append_new(shape, json_integer((json_int_t)node->shape[i]));
    for (uint64_t i = 0; i < node->nbytes / size; i++)
        json_array_append_new(values, element(node->dtype, data + i * size));
    return json_pack("{s:s, s:o, s:o}", "dtype", dtype_name(node->dtype), "shape", shape, "values",
                     values);
}

static json_t *hex(const uint8_t *data, uint64_t n)
{
    char text[256] = "";

    for (uint64_t i = 0; i < n && i < 100; i++)
        snprintf(text + 2 * i, 3, "%02x", data[i]);
    return json_pack("{s:s}", "bytes", text);
}

static json_t *tree(const struct sample *sample, const struct tree_node *node)
{
    const void *data = sample->data[node - sample->tree.nodes];
    const struct tree_node *child = node + 1;

    if (node->kind == TREE_STRING)
        return json_stringn(data, node->nbytes);
    if (node->kind == TREE_BYTES)
        return hex(data, node->nbytes);
    if (node->kind == TREE_TENSOR)
        return node->ndim == 0 ? element(node->dtype, data) : tensor(node, data);
    json_t *json = node->kind == TREE_DICT ? json_object() : json_array();
    for (uint32_t i = 0; i < node->children; i++, child = tree_skip(child)) {
        char key[DL_BOUND_NAME_BYTES + 1];
        snprintf(key, sizeof key, "%.*s", (int)child->key_len, sample->tree.keys + child->key_off);
        if (node->kind == TREE_DICT)
            json_object_set_new(json, key, tree(sample, child));
        else
            json_array_append_new(json, tree(sample, child));
    }
    return json;
}

static void print(struct sample *sample)
{
    json_t *json = tree(sample, sample->tree.nodes);
    _cleanup_free_ char *text = json_dumps(json, JSON_ENCODE_ANY | JSON_COMPACT);

    puts(text ? text : "?");
    json_decref(json);
    sample_clear(sample);
    arena_clear(sample->arena);
}

static int iterate(struct dataset *ds, const struct replica_params *params, uint64_t pass,
                   struct sample *sample, struct dl_error *err)
{
    struct dataset_iter *it = NULL;
    int r = ds->ops->iterate(ds, params, &it, err);

    if (r < 0)
        return r;
    if (pass > 0)
        r = it->ops->skip(it, pass, NULL);
    while (r == 0) {
        r = it->ops->next(it, sample, err);
        if (r == 0)
            print(sample);
    }
    it->ops->close(it);
    return r;
}

/* What the plug-in says of sample `i` without loading it, if anything, beside what it is. */
static int check_length(struct dataset *ds, uint64_t i, const struct sample *sample,
                        struct dl_error *err)
{
    uint64_t bad;
    uint32_t length, node = 0;
    int r = LENGTHS(dataset_known_lengths, ds, NULL, i, 1, &length, &bad, err);

    if (r < 0 || length == LENGTH_UNKNOWN)
        return r;
    while (node < sample->tree.count && sample->tree.nodes[node].ndim == 0)
        node++;
    if (node < sample->tree.count && sample->tree.nodes[node].shape[0] == length)
        return 0;
    return dl_error_set(err, EPROTO, "", "sample %llu: lengths() says %u", (unsigned long long)i,
                        length);
}

static int run(struct dataset *ds, const struct replica_params *params, uint64_t pass,
               struct dl_error *err)
{
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    int r = 0;

    if (dataset_is_iterable(ds))
        r = iterate(ds, params, pass, &sample, err);
    for (uint64_t i = pass; r == 0 && !dataset_is_iterable(ds) && i < ds->length; i++) {
        r = dataset_get(ds, &params->key, i, &sample, err);
        if (r == 0)
            r = check_length(ds, i, &sample, err);
        if (r == 0)
            print(&sample);
    }
    sample_deinit(&sample);
    arena_deinit(&arena);
    return r;
}

static uint64_t number(char **argv, int argc, int i, uint64_t otherwise)
{
    return i < argc ? strtoull(argv[i], NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    char root[] = "/", *dirs[] = {root};
    struct data_env env = {.plugins = dirs, .n_plugins = 1};
    struct dataset *ds = NULL;
    struct dl_error err = {0};

    if (argc < 3)
        return 2;
    struct spec_file file = {.path = argv[1]};
    struct spec_dataset spec = {.kind = DATASET_PLUGIN, .files = &file, .n_files = 1};
    struct replica_params params = {
        .key = {.seed = number(argv, argc, 3, 0), .epoch = number(argv, argc, 4, 0)},
        .worker = (uint32_t)number(argv, argc, 5, 0),
        .workers = (uint32_t)number(argv, argc, 6, 1),
        .world = 1};
    params.seed =
        dataset_replica_seed(params.key.seed, params.key.epoch, 0, params.workers, params.worker);
    int r = yaml_parse(argv[2], strlen(argv[2]), "config", &spec.config, &err);
    if (r == 0)
        r = dataset_open(&spec, &env, &ds, &err);
    if (r == 0)
        r = run(ds, &params, number(argv, argc, 7, 0), &err);
    if (r < 0)
        fprintf(stderr, "%s: %s\n", err.path, err.message);
    dataset_close(ds);
    value_deinit(&spec.config);
    return r < 0;
}
