/*
 * How each key's value is written in a spec's canonical form: a writer for each type of value, as
 * spec.c has a reader for each.
 */
#include "proto/spec_table.h"

#include <assert.h>

static int spec_canon_write_uints(const uint64_t *numbers, uint32_t n, struct value *v)
{
    v->type = VALUE_ARRAY; /* also when it stays empty */
    for (uint32_t i = 0; i < n; i++) {
        struct value *item;
        int r = value_push(v, &item);
        if (r < 0)
            return r;
        value_make_uint(item, numbers[i]);
    }
    return 0;
}

static int spec_canon_write_floats(const double *numbers, uint32_t n, struct value *v)
{
    v->type = VALUE_ARRAY;
    for (uint32_t i = 0; i < n; i++) {
        struct value *item;
        int r = value_push(v, &item);
        if (r < 0)
            return r;
        *item = (struct value){.type = VALUE_FLOAT, .number = numbers[i]};
    }
    return 0;
}

static int spec_canon_write_strings(char *const *texts, uint32_t n, struct value *v)
{
    v->type = VALUE_ARRAY;
    for (uint32_t i = 0; i < n; i++) {
        struct value *item;
        int r = value_push(v, &item);
        if (r == 0)
            r = value_make_string(item, texts[i]);
        if (r < 0)
            return r;
    }
    return 0;
}

/* A writer that is one expression. */
#define WRITER(name, write)                                                                    \
    static int spec_canon_write_##name(const struct dl_spec *spec, const struct spec_key *key, \
                                       struct value *v)                                        \
    {                                                                                          \
        return write;                                                                          \
    }
WRITER(size, spec_canon_write_uints((const uint64_t[]){spec->dataset.image.height,
                                                       spec->dataset.image.width},
                                    2, v))

static int spec_canon_write_number(const struct dl_spec *spec, const struct spec_key *key,
                                   struct value *v)
{
    v->type = VALUE_FLOAT;
    v->number = *spec_numbers_at(spec, key);
    return 0;
}

/* From 1 on a number of samples, which is an integer. */
static int spec_canon_write_share(const struct dl_spec *spec, const struct spec_key *key,
                                  struct value *v)
{
    const double number = *spec_numbers_at(spec, key);

    if (number < 1)
        return spec_canon_write_number(spec, key, v);
    value_make_uint(v, (uint64_t)number);
    return 0;
}

static int spec_canon_write_cost(const struct dl_spec *spec, const struct spec_key *key,
                                 struct value *v)
{
    static const char *const names[] = {"linear", "square"};
    const double *costs = spec_numbers_at(spec, key);
    int r = 0;

    v->type = VALUE_MAP;
    for (uint32_t i = 0; r == 0 && i < ARRAY_SIZE(names); i++) {
        struct value *item;
        r = value_set(v, names[i], &item);
        if (r == 0)
            *item = (struct value){.type = VALUE_FLOAT, .number = costs[i], .key = item->key};
    }
    return r;
}

static int spec_canon_write_parts(const struct dl_spec *spec, const struct spec_key *key,
                                  struct value *v)
{
    const struct spec_dataset *dataset = &spec->dataset;

    return dataset->lengths ? spec_canon_write_uints(dataset->lengths, dataset->n_parts, v)
                            : spec_canon_write_floats(dataset->fractions, dataset->n_parts, v);
}

static int spec_canon_write_datasets(const struct dl_spec *spec, const struct spec_key *key,
                                     struct value *v)
{
    const struct spec_dataset *dataset = &spec->dataset;
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < dataset->n_datasets; i++) {
        struct value *item;
        r = value_push(v, &item);
        if (r == 0)
            r = spec_canon_write_dataset(&dataset->datasets[i], item);
    }
    return r;
}

WRITER(choice,
       value_make_string(v, key->size ? spec_choice_name(key, (uint32_t)spec_field_get(spec, key))
                                      : key->fallback))

static int spec_canon_write_duration(const struct dl_spec *spec, const struct spec_key *key,
                                     struct value *v)
{
    char text[SPEC_DURATION_MAX];

    format_duration(spec_field_get(spec, key), text);
    return value_make_string(v, text);
}

static int spec_canon_write_bool(const struct dl_spec *spec, const struct spec_key *key,
                                 struct value *v)
{
    v->type = VALUE_BOOL;
    v->boolean = key->size && spec_field_get(spec, key);
    return 0;
}

const char *spec_canon_path_of(const struct dl_spec *spec, const struct spec_key *key)
{
    if (spec_key_in(key, "collate"))
        return spec->collate.path;
    if (strcmp(key->key, "model") == 0)
        return spec->dataset.model;
    if (strcmp(key->key, "chat_template") == 0)
        return spec->dataset.chat_template;
    if (spec->dataset.kind == DATASET_PYTHON && key->type == KEY_PATHS)
        return spec->dataset.pictures_root;
    return spec->dataset.n_files > 0 ? spec->dataset.files[0].path : NULL;
}

static int spec_canon_write_fields(const struct dl_spec *spec, const struct spec_key *key,
                                   struct value *v)
{
    const struct spec_dataset *dataset = &spec->dataset;
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < dataset->n_fields; i++)
        r = value_set_string(v, dataset->fields[i].name, dataset->fields[i].source);
    return r;
}

static int spec_canon_write_point(const struct mix_point *point, uint32_t n, struct value *v)
{
    struct value *weights;
    int r = value_set_uint(v, "step", point->step);

    if (r == 0)
        r = value_set(v, "weights", &weights);
    if (r == 0)
        r = spec_canon_write_floats(point->weights, n, weights);
    return r < 0 ? r : value_set_string(v, "ramp", point->ramp ? "linear" : "none");
}

static int spec_canon_write_schedule(const struct dl_spec *spec, const struct spec_key *key,
                                     struct value *v)
{
    const struct spec_dataset *dataset = &spec->dataset;
    int r = 0;

    v->type = VALUE_ARRAY;
    for (uint32_t i = 0; r == 0 && i < dataset->n_points; i++) {
        struct value *item;
        r = value_push(v, &item);
        if (r == 0)
            r = spec_canon_write_point(&dataset->points[i], dataset->n_datasets, item);
    }
    return r;
}

static int spec_canon_write_features(const struct dl_spec *spec, const struct spec_key *key,
                                     struct value *v)
{
    uint32_t n;
    char **features = spec_features(&spec->dataset, key, &n);

    return spec_canon_write_strings(features, n, v);
}

WRITER(name, value_make_string(v, spec->name))
WRITER(label, value_make_string(v, spec->label))
WRITER(path, value_make_string(v, spec_canon_path_of(spec, key)))

static int spec_canon_write_paths(const struct dl_spec *spec, const struct spec_key *key,
                                  struct value *v)
{
    const struct spec_dataset *dataset = &spec->dataset;
    enum spec_paths paths = spec_paths_of(dataset->kind);
    int r = 0;

    if (paths == PATHS_ONE || (paths == PATHS_BY_FIELD && !dataset->files[0].field))
        return spec_canon_write_path(spec, key, v);
    for (uint32_t i = 0; r == 0 && i < dataset->n_files; i++) {
        struct value *item;
        r = paths == PATHS_MANY ? value_push(v, &item)
                                : value_set(v, dataset->files[i].field, &item);
        if (r == 0)
            r = value_make_string(item, dataset->files[i].path);
    }
    return r;
}

WRITER(callable, value_make_string(v, spec_key_in(key, "collate") ? spec->collate.object
                                                                  : spec->dataset.object))

const char *spec_canon_field_of(const struct spec_dataset *dataset, const struct spec_key *key)
{
    return strcmp(key->key, "second") == 0   ? dataset->second
           : strcmp(key->key, "prompt") == 0 ? dataset->prompt
           : strcmp(key->key, "tools") == 0  ? dataset->tools
                                             : dataset->field;
}

WRITER(field_name, value_make_string(v, spec_canon_field_of(&spec->dataset, key)))
WRITER(range, spec_canon_write_floats(spec_numbers_at(spec, key), 2, v))
WRITER(leaves, spec_canon_write_strings(spec->collate.fields, spec->collate.n_fields, v))
WRITER(leaf, value_make_string(v, spec->batch.length_of))
WRITER(index, spec->dataset.index_path ? value_make_string(v, spec->dataset.index_path)
                                       : spec_canon_write_choice(spec, key, v))
WRITER(value, value_copy(spec_value_at(spec, key), v))
WRITER(nulls, spec_value_at(spec, key)->type == VALUE_NULL ? value_make_string(v, "refuse")
                                                           : spec_canon_write_value(spec, key, v))
WRITER(dtype, value_make_string(v, dtype_name(spec_dtype_of(spec, key))))
WRITER(shape, spec_canon_write_uints(spec->dataset.shape, spec->dataset.ndim, v))
WRITER(indices, spec_canon_write_uints(spec->indices, spec->n_indices, v))
WRITER(weights, spec_canon_write_floats(spec->weights, spec->n_weights, v))
WRITER(inner, spec_canon_write_dataset(&spec->dataset.datasets[0], v))
WRITER(members, spec_canon_write_uints(spec->dataset.indices, spec->dataset.n_indices, v))
WRITER(shares,
       spec_canon_write_floats(spec->dataset.points[0].weights, spec->dataset.n_datasets, v))

static int spec_canon_write_uint(const struct dl_spec *spec, const struct spec_key *key,
                                 struct value *v)
{
    value_make_uint(v, spec_field_get(spec, key));
    return 0;
}

WRITER(uint_or_null, spec_field_get(spec, key) == 0 ? 0 : spec_canon_write_uint(spec, key, v))
WRITER(workers,
       spec->workers_auto ? value_make_string(v, "auto") : spec_canon_write_uint(spec, key, v))

typedef int writer(const struct dl_spec *spec, const struct spec_key *key, struct value *v);

/* clang-format off */
static writer *const spec_canon_writers[] = {
    [KEY_NAME] = spec_canon_write_name,
    [KEY_LABEL] = spec_canon_write_label,
    [KEY_CHOICE] = spec_canon_write_choice,
    [KEY_BOOL] = spec_canon_write_bool,
    [KEY_UINT] = spec_canon_write_uint,
    [KEY_UINT_OR_NULL] = spec_canon_write_uint_or_null,
    [KEY_WORKERS] = spec_canon_write_workers,
    [KEY_UINT_OR_AUTO] = spec_canon_write_uint,
    [KEY_SEED] = spec_canon_write_uint,
    [KEY_DURATION] = spec_canon_write_duration,
    [KEY_BYTES] = spec_canon_write_uint,
    [KEY_PATH] = spec_canon_write_path,
    [KEY_DTYPE] = spec_canon_write_dtype,
    [KEY_SHAPE] = spec_canon_write_shape,
    [KEY_INDICES] = spec_canon_write_indices,
    [KEY_WEIGHTS] = spec_canon_write_weights,
    [KEY_DATASET] = spec_canon_write_inner,
    [KEY_DATASETS] = spec_canon_write_datasets,
    [KEY_MEMBERS] = spec_canon_write_members,
    [KEY_PARTS] = spec_canon_write_parts,
    [KEY_PATHS] = spec_canon_write_paths,
    [KEY_FIELD_NAME] = spec_canon_write_field_name,
    [KEY_SIZE] = spec_canon_write_size,
    [KEY_NUMBER] = spec_canon_write_number,
    [KEY_RANGE] = spec_canon_write_range,
    [KEY_SHARE] = spec_canon_write_share,
    [KEY_COST] = spec_canon_write_cost,
    [KEY_LEAVES] = spec_canon_write_leaves,
    [KEY_LEAF] = spec_canon_write_leaf,
    [KEY_TOKEN] = spec_canon_write_value,
    [KEY_VALUE] = spec_canon_write_value,
    [KEY_CALLABLE] = spec_canon_write_callable,
    [KEY_INDEX] = spec_canon_write_index,
    [KEY_FIELDS] = spec_canon_write_fields,
    [KEY_FEATURES] = spec_canon_write_features,
    [KEY_NULLS] = spec_canon_write_nulls,
    [KEY_SHARES] = spec_canon_write_shares,
    [KEY_SCHEDULE] = spec_canon_write_schedule,
};
/* clang-format on */

int spec_canon_write(const struct dl_spec *spec, const struct spec_key *key, struct value *v)
{
    assert(key->type < ARRAY_SIZE(spec_canon_writers) && spec_canon_writers[key->type]);
    return spec_canon_writers[key->type](spec, key, v);
}
