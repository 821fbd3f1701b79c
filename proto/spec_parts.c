/*
 * What a state identifies a spec by: its sections, each with its own fingerprint, so that the one
 * that differs can be named. The location of files and keys that matter only within a session are
 * left out: the same data at another place is the same dataset.
 */
#include "proto/spec_table.h"

#include <errno.h>
#include <xxhash.h>

/* The keys that say where something is. What a path leads to is in the dataset's own fingerprint.
 */
static bool spec_parts_is_place(const struct spec_key *key, const struct value *v)
{
    bool path = v->type == VALUE_STRING && v->string[0] == '/';

    return key->type == KEY_PATH || key->type == KEY_PATHS || (key->type == KEY_INDEX && path) ||
           strcmp(key->key, "host") == 0;
}

/* The number of ranks that read the same batches changes no batch: a state can resume with another
 * one. */
static void spec_parts_forget_replicas(struct value *map)
{
    value_unset(map, "replicas");
}

/* Paths by field keep the fields. */
static void spec_parts_forget_place(struct value *v)
{
    for (uint32_t i = 0; v->type == VALUE_MAP && i < v->count; i++)
        value_move(&(struct value){0}, &v->items[i]);
    if (v->type != VALUE_MAP)
        value_move(&(struct value){0}, v);
}

/* Caching changes no sample: a state can resume with another cache size. Parquet's `cache` is an
 * exception: it has always been in the fingerprint. */
static void spec_parts_forget_cache(struct value *dataset)
{
    const struct value *kind = value_get(dataset, "kind");

    if (!kind || kind->type != VALUE_STRING)
        return;
    bool hosted = strcmp(kind->string, "python") == 0;
    if (hosted || strcmp(kind->string, "imagefolder") == 0)
        value_unset(dataset, "cache");
    if (hosted)
        value_unset(dataset, "paths");
    value_unset(dataset, "shared");
}

static void spec_parts_forget_places(const char *section, struct value *map)
{
    if (strcmp(section, "dataset") == 0)
        spec_parts_forget_cache(map);
    for (uint32_t i = 0; i < map->count; i++) {
        struct value *v = &map->items[i];
        const struct spec_key *key = spec_key_find(section, v->key);

        if (key && spec_parts_is_place(key, v))
            spec_parts_forget_place(v);
        else if (key && key->type == KEY_DATASET)
            spec_parts_forget_places(section, v);
        else if (key && key->type == KEY_DATASETS)
            for (uint32_t d = 0; d < v->count; d++)
                spec_parts_forget_places(section, &v->items[d]);
    }
}

static int spec_parts_print(struct value *root, const char *section, uint64_t *ret)
{
    _cleanup_(buffer_deinit) struct dl_buffer packed = {0};
    int r = 0;

    *ret = 0;
    for (uint32_t i = 0; r == 0 && i < root->count; i++) {
        struct value *map = &root->items[i];

        if (map->type != VALUE_MAP || strcmp(map->key, section) != 0)
            continue;
        spec_parts_forget_places(section, map);
        spec_parts_forget_replicas(map);
        r = spec_to_former(map);
        if (r == 0)
            r = value_pack(map, &packed);
    }
    if (r == 0)
        *ret = XXH3_64bits(packed.data, packed.len);
    return r;
}

int spec_parts(const struct dl_spec *spec, uint64_t ret[static STATE_PARTS])
{
    _cleanup_(value_deinit) struct value root = {0};
    int r = spec_to_value(spec, &root);

    for (unsigned i = 0; r == 0 && i < STATE_PARTS; i++)
        r = spec_parts_print(&root, state_part_name((enum state_part)i), &ret[i]);
    return r;
}

enum state_order spec_state_order(const struct dl_spec *spec)
{
    if (spec->sampler == SAMPLER_CLIENT)
        return STATE_CLIENT;
    if (spec->sampler == SAMPLER_SEQUENTIAL || spec->sampler == SAMPLER_INDICES)
        return STATE_SEQUENTIAL;
    return spec->order == ORDER_TORCH ? STATE_TORCH : STATE_NATIVE;
}

int spec_check_history(const struct dl_spec *spec, const struct history *before,
                       struct dl_error *err)
{
    int r = 0;

    if (before->n == 0)
        return 0;
    if (spec->sampler == SAMPLER_CLIENT)
        return dl_error_set(err, EINVAL, "sampler.kind",
                            "client: only the client has the order, so another number of ranks "
                            "cannot continue it");
    for (uint32_t i = 0; r == 0 && i < before->n; i++)
        r = spec_check_world(spec, before->stretches[i].world, err);
    return r;
}
