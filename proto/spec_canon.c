/*
 * The canonical form of a spec and what follows from it: fingerprint and difference. Two specs are
 * the same loader when their canonical forms are equal, so every key that says something is in it,
 * defaults included.
 */
#include "proto/spec_table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

static int spec_canon_write_dataset(const struct spec_dataset *dataset, struct value *v);

static int spec_canon_write_files(const struct spec_dataset *dataset, struct value *v)
{
    if (!dataset->files[0].field)
        return value_make_string(v, dataset->files[0].path);
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < dataset->n_files; i++)
        r = value_set_string(v, dataset->files[i].field, dataset->files[i].path);
    return r;
}

static int spec_canon_write_uints(const uint64_t *numbers, uint32_t n, struct value *v)
{
    v->type = VALUE_ARRAY; /* also when there are none */
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

static int spec_canon_write_paths(const struct spec_dataset *dataset, struct value *v)
{
    v->type = VALUE_ARRAY;
    for (uint32_t i = 0; i < dataset->n_files; i++) {
        struct value *item;
        int r = value_push(v, &item);
        if (r == 0)
            r = value_make_string(item, dataset->files[i].path);
        if (r < 0)
            return r;
    }
    return 0;
}

static int spec_canon_write_size(const struct spec_image *image, struct value *v)
{
    const uint64_t size[] = {image->height, image->width};
    return spec_canon_write_uints(size, ARRAY_SIZE(size), v);
}

static int spec_canon_write_number(double number, struct value *v)
{
    v->type = VALUE_FLOAT;
    v->number = number;
    return 0;
}

/* From 1 on a number of samples, which is an integer. */
static int spec_canon_write_share(double number, struct value *v)
{
    if (number < 1)
        return spec_canon_write_number(number, v);
    value_make_uint(v, (uint64_t)number);
    return 0;
}

static int spec_canon_write_cost(const double *costs, struct value *v)
{
    static const char *const names[] = {"linear", "square"};
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

static int spec_canon_write_parts(const struct spec_dataset *dataset, struct value *v)
{
    return dataset->lengths ? spec_canon_write_uints(dataset->lengths, dataset->n_parts, v)
                            : spec_canon_write_floats(dataset->fractions, dataset->n_parts, v);
}

static int spec_canon_write_datasets(const struct spec_dataset *dataset, struct value *v)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < dataset->n_datasets; i++) {
        struct value *item;
        r = value_push(v, &item);
        if (r == 0)
            r = spec_canon_write_dataset(&dataset->datasets[i], item);
    }
    return r;
}

static int spec_canon_write_choice(const struct dl_spec *spec, const struct spec_key *key,
                                   struct value *v)
{
    return value_make_string(
        v, key->size ? spec_choice_name(key, (uint32_t)spec_field_get(spec, key)) : key->fallback);
}

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

static const char *spec_canon_path_of(const struct dl_spec *spec, const struct spec_key *key)
{
    if (spec_key_in(key, "collate"))
        return spec->collate.path;
    if (strcmp(key->key, "model") == 0)
        return spec->dataset.model;
    if (spec->dataset.kind == DATASET_PYTHON && strcmp(key->key, "root") == 0)
        return spec->dataset.kept;
    return spec->dataset.n_files > 0 ? spec->dataset.files[0].path : NULL;
}

static int spec_canon_write_fields(const struct spec_dataset *dataset, struct value *v)
{
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

static int spec_canon_write_schedule(const struct spec_dataset *dataset, struct value *v)
{
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

static bool spec_canon_has_features(const struct dl_spec *spec, const struct spec_key *key)
{
    uint32_t n;

    (void)spec_features(&spec->dataset, key, &n);
    return n > 0;
}

static int spec_canon_write_features(const struct dl_spec *spec, const struct spec_key *key,
                                     struct value *v)
{
    uint32_t n;
    char **features = spec_features(&spec->dataset, key, &n);

    return spec_canon_write_strings(features, n, v);
}

/* `v` is a null value. */
static int spec_canon_write_key(const struct dl_spec *spec, const struct spec_key *key,
                                struct value *v)
{
    switch (key->type) {
    case KEY_NAME:
        return value_make_string(v, spec->name);
    case KEY_LABEL:
        return value_make_string(v, spec->label);
    case KEY_CHOICE:
        return spec_canon_write_choice(spec, key, v);
    case KEY_BOOL:
        return spec_canon_write_bool(spec, key, v);
    case KEY_DURATION:
        return spec_canon_write_duration(spec, key, v);
    case KEY_PATH:
        return value_make_string(v, spec_canon_path_of(spec, key));
    case KEY_PATHS:
        return spec_canon_write_paths(&spec->dataset, v);
    case KEY_CALLABLE:
        return value_make_string(v, spec_key_in(key, "collate") ? spec->collate.object
                                                                : spec->dataset.object);
    case KEY_FIELD_NAME:
        return value_make_string(v, spec->dataset.field);
    case KEY_SIZE:
        return spec_canon_write_size(&spec->dataset.image, v);
    case KEY_NUMBER:
        return spec_canon_write_number(*spec_numbers_at(spec, key), v);
    case KEY_SHARE:
        return spec_canon_write_share(*spec_numbers_at(spec, key), v);
    case KEY_COST:
        return spec_canon_write_cost(spec_numbers_at(spec, key), v);
    case KEY_RANGE:
        return spec_canon_write_floats(spec_numbers_at(spec, key), 2, v);
    case KEY_LEAVES:
        return spec_canon_write_strings(spec->collate.fields, spec->collate.n_fields, v);
    case KEY_INDEX:
        return spec->dataset.index_path ? value_make_string(v, spec->dataset.index_path)
                                        : spec_canon_write_choice(spec, key, v);
    case KEY_FIELDS:
        return spec_canon_write_fields(&spec->dataset, v);
    case KEY_FEATURES:
        return spec_canon_write_features(spec, key, v);
    case KEY_NULLS:
        return spec_value_at(spec, key)->type == VALUE_NULL
                   ? value_make_string(v, "refuse")
                   : value_copy(spec_value_at(spec, key), v);
    case KEY_LEAF:
        return value_make_string(v, spec->batch.length_of);
    case KEY_TOKEN:
    case KEY_VALUE:
        return value_copy(spec_value_at(spec, key), v);
    case KEY_FILES:
        return spec_canon_write_files(&spec->dataset, v);
    case KEY_DTYPE:
        return value_make_string(v, dtype_name(spec->dataset.dtype));
    case KEY_SHAPE:
        return spec_canon_write_uints(spec->dataset.shape, spec->dataset.ndim, v);
    case KEY_INDICES:
        return spec_canon_write_uints(spec->indices, spec->n_indices, v);
    case KEY_WEIGHTS:
        return spec_canon_write_floats(spec->weights, spec->n_weights, v);
    case KEY_DATASET:
        return spec_canon_write_dataset(&spec->dataset.datasets[0], v);
    case KEY_DATASETS:
        return spec_canon_write_datasets(&spec->dataset, v);
    case KEY_MEMBERS:
        return spec_canon_write_uints(spec->dataset.indices, spec->dataset.n_indices, v);
    case KEY_PARTS:
        return spec_canon_write_parts(&spec->dataset, v);
    case KEY_SHARES:
        return spec_canon_write_floats(spec->dataset.points[0].weights, spec->dataset.n_datasets,
                                       v);
    case KEY_SCHEDULE:
        return spec_canon_write_schedule(&spec->dataset, v);
    case KEY_UINT_OR_NULL:
        if (spec_field_get(spec, key) == 0)
            return 0;
        break;
    case KEY_UINT:
    case KEY_SEED:
    case KEY_BYTES:
        break;
    }
    value_make_uint(v, spec_field_get(spec, key));
    return 0;
}

/*
 * Whether the key came later than the first saved states, and says what the spec meant without it.
 * Such a key is left out: loaders would else lose the fingerprint that states know them by.
 */
static bool spec_canon_says_nothing_new(const struct dl_spec *spec, const struct spec_key *key)
{
    if (strcmp(key->key, "iterable") == 0)
        return !spec->dataset.iterable;
    if (key->type == KEY_TOKEN)
        return spec_value_at(spec, key)->type == VALUE_NULL;
    if (key->type == KEY_INDEX)
        return spec->dataset.index <= INDEX_OFF;
    if (strcmp(key->key, "cache") == 0)
        return spec->dataset.cache == 0;
    if (strcmp(key->key, "tokens") == 0)
        return !spec->batch.tokens;
    if (strcmp(key->key, "block") == 0)
        return !spec->block;
    if (strcmp(key->key, "replicas") == 0)
        return spec->replicas <= 1;
    if (strcmp(key->key, "balance") == 0)
        return spec->batch.balance == BALANCE_NONE;
    if (spec_key_in(key, "collate") && strcmp(key->key, "length") == 0)
        return !spec->collate.length;
    return strcmp(key->key, "to") == 0 && spec->collate.to != PAD_TO_BUCKET;
}

/* Keys of batches that are mixed, where these are not. */
static bool spec_canon_is_unmixed(const struct dl_spec *spec, const struct spec_key *key)
{
    if (!spec_key_in(key, "collate"))
        return false;
    return (strcmp(key->key, "mixup") == 0 && spec->collate.mixup == 0) ||
           (strcmp(key->key, "cutmix") == 0 && spec->collate.cutmix == 0) ||
           (strcmp(key->key, "classes") == 0 && !spec->collate.classes);
}

/* Whether the key says anything about this spec. */
static bool spec_canon_present(const struct dl_spec *spec, const struct spec_key *key)
{
    if (key->type == KEY_NAME)
        return spec->name && !spec->label;
    if (key->type == KEY_LABEL)
        return spec->label;
    if (key->type == KEY_SEED && !key->section[0])
        return spec->has_seed;
    if (key->type == KEY_WEIGHTS)
        return spec->weights;
    if (key->type == KEY_BOOL && strcmp(key->key, "writable") == 0)
        return spec->has_writable;
    if (key->type == KEY_DTYPE && !spec->dataset.dtype)
        return false; /* tokens of a .npy file */
    if (key->type == KEY_SIZE && !spec->dataset.image.height)
        return false;
    if (spec_canon_is_unmixed(spec, key))
        return false;
    if ((strcmp(key->key, "transforms") == 0 && spec->dataset.transforms.type == VALUE_NULL) ||
        (strcmp(key->key, "views") == 0 && spec->dataset.views.type == VALUE_NULL))
        return false;
    if ((key->type == KEY_LEAVES && !spec->collate.fields) ||
        (key->type == KEY_FIELDS && !spec->dataset.fields) ||
        (key->type == KEY_FEATURES && !spec_canon_has_features(spec, key)))
        return false;
    if (spec->dataset.kind == DATASET_PYTHON && spec_key_in(key, "dataset") &&
        ((key->type == KEY_CALLABLE && !spec->dataset.object) ||
         (key->type == KEY_PATH && !spec_canon_path_of(spec, key)) ||
         (key->type == KEY_UINT && !spec->dataset.host)))
        return false;
    if (key->type == KEY_CALLABLE && spec_key_in(key, "collate") && !spec->collate.object)
        return false;
    if ((key->type == KEY_SHARES && spec->dataset.n_points != 1) ||
        (key->type == KEY_SCHEDULE && spec->dataset.n_points < 2) ||
        (strcmp(key->key, "global_batch") == 0 && !spec->dataset.global_batch))
        return false;
    if (key->type == KEY_LEAF && !spec->batch.length_of)
        return false;
    if (strcmp(key->key, "strategy") == 0 && !spec->batch.strategy)
        return false; /* packing is its own */
    if (spec_canon_says_nothing_new(spec, key))
        return false;
    if (key->kinds && !(key->kinds & 1U << spec_section_kind(spec, key->section)))
        return false;
    return !spec_without_meaning(spec, key);
}

static int spec_canon_write_dataset(const struct spec_dataset *dataset, struct value *v)
{
    const struct dl_spec spec = {.dataset = *dataset}; /* rows are of a spec; owns nothing */
    size_t n;
    const struct spec_key *keys = spec_keys(&n);

    for (size_t i = 0; i < n; i++) {
        struct value *item;
        if (!spec_key_in(&keys[i], "dataset") || !spec_canon_present(&spec, &keys[i]))
            continue;
        int r = value_set(v, keys[i].key, &item);
        if (r == 0)
            r = spec_canon_write_key(&spec, &keys[i], item);
        if (r < 0)
            return r;
    }
    return 0;
}

int spec_dataset_to_value(const struct spec_dataset *dataset, struct value *ret)
{
    _cleanup_(value_deinit)
    struct value v = {.type = VALUE_MAP};

    int r = spec_canon_write_dataset(dataset, &v);
    if (r < 0)
        return r;
    *ret = v;
    v = (struct value){0};
    return 0;
}

/* The section's map in `root`, made when it is not the last child already. */
static int spec_canon_open_section(struct value *root, const char *section, struct value **ret)
{
    if (root->count && strcmp(root->items[root->count - 1].key, section) == 0) {
        *ret = &root->items[root->count - 1];
        return 0;
    }
    return value_set(root, section, ret);
}

static int spec_canon_write_row(const struct dl_spec *spec, const struct spec_key *key,
                                struct value *root)
{
    struct value *map = root, *v;
    int r = 0;

    if (key->section[0])
        r = spec_canon_open_section(root, key->section, &map);
    if (r < 0)
        return r;
    r = value_set(map, key->key, &v);
    return r < 0 ? r : spec_canon_write_key(spec, key, v);
}

int spec_to_value(const struct dl_spec *spec, struct value *ret)
{
    _cleanup_(value_deinit)
    struct value root = {.type = VALUE_MAP};
    size_t n;
    const struct spec_key *keys = spec_keys(&n);

    for (size_t i = 0; i < n; i++) {
        int r =
            spec_canon_present(spec, &keys[i]) ? spec_canon_write_row(spec, &keys[i], &root) : 0;
        if (r < 0)
            return r;
    }
    *ret = root;
    root = (struct value){0};
    return 0;
}

/* Neither who asks, how many for the same, nor how fast changes which samples come in which order.
 */
static bool spec_canon_decides_content(const struct spec_key *key)
{
    bool sampler_seed = key->type == KEY_SEED && !key->section[0];
    return key->type != KEY_NAME && key->type != KEY_LABEL && !sampler_seed &&
           strcmp(key->key, "replicas") != 0 && !spec_key_in(key, "workers") &&
           !spec_key_in(key, "memory");
}

int spec_fingerprint(const struct dl_spec *spec, uint64_t *ret)
{
    _cleanup_(value_deinit)
    struct value root = {.type = VALUE_MAP};
    _cleanup_(buffer_deinit)
    struct dl_buffer packed = {0};
    size_t n;
    const struct spec_key *keys = spec_keys(&n);

    for (size_t i = 0; i < n; i++) {
        if (!spec_canon_decides_content(&keys[i]) || !spec_canon_present(spec, &keys[i]))
            continue;
        int r = spec_canon_write_row(spec, &keys[i], &root);
        if (r < 0)
            return r;
    }
    int r = value_pack(&root, &packed);
    if (r < 0)
        return r;
    *ret = XXH3_64bits(packed.data, packed.len);
    return 0;
}

static void spec_canon_tell_difference(const char *path, const struct value *have,
                                       const struct value *want, struct dl_error *err)
{
    char left[SPEC_SHOWN_MAX], right[SPEC_SHOWN_MAX];

    dl_error_set(err, EEXIST, path, "the open loader has %s, this spec asks for %s",
                 have ? spec_show(have, left) : "nothing",
                 want ? spec_show(want, right) : "nothing");
}

static bool spec_canon_differs(const char *path, const struct value *have, const struct value *want,
                               struct dl_error *err);

/* Their lengths, or the first item that differs: a whole list is too much to show. */
static bool spec_canon_lists_differ(const char *path, const struct value *have,
                                    const struct value *want, struct dl_error *err)
{
    char below[DL_ERROR_PATH_MAX];

    if (have->count != want->count) {
        dl_error_set(err, EEXIST, path,
                     "the open loader has a list of %" PRIu32
                     ", this spec asks for one of %" PRIu32,
                     have->count, want->count);
        return true;
    }
    for (uint32_t i = 0; i < have->count; i++) {
        if (value_equal(&have->items[i], &want->items[i]))
            continue;
        snprintf(below, sizeof below, "%s.%" PRIu32, path, i);
        if (spec_canon_differs(below, &have->items[i], &want->items[i], err))
            return true;
    }
    return false;
}

/* True when a difference was found and told. Either may be NULL, where the other has a key. */
static bool spec_canon_differs(const char *path, const struct value *have, const struct value *want,
                               struct dl_error *err)
{
    char below[DL_ERROR_PATH_MAX];
    bool maps = have && want && have->type == VALUE_MAP && want->type == VALUE_MAP;

    if (strcmp(path, "seed") == 0 && (!have || !want))
        return false;
    if (strcmp(path, "memory.writable") == 0 && (!have || !want))
        return false; /* it is as whoever opened it first has it */
    if (have && want && have->type == VALUE_ARRAY && want->type == VALUE_ARRAY)
        return spec_canon_lists_differ(path, have, want, err);
    if (!maps) {
        if (have && want && value_equal(have, want))
            return false;
        spec_canon_tell_difference(path, have, want, err);
        return true;
    }
    for (uint32_t i = 0; i < have->count; i++) {
        const struct value *item = &have->items[i];
        snprintf(below, sizeof below, "%s%s%s", path, path[0] ? "." : "", item->key);
        if (spec_canon_differs(below, item, value_get(want, item->key), err))
            return true;
    }
    for (uint32_t i = 0; i < want->count; i++) {
        const struct value *item = &want->items[i];
        snprintf(below, sizeof below, "%s%s%s", path, path[0] ? "." : "", item->key);
        if (!value_get(have, item->key) && spec_canon_differs(below, NULL, item, err))
            return true;
    }
    return false;
}

bool spec_differs(const struct dl_spec *have, const struct dl_spec *want, struct dl_error *err)
{
    _cleanup_(value_deinit)
    struct value left = {0};
    _cleanup_(value_deinit)
    struct value right = {0};

    if (spec_to_value(have, &left) < 0 || spec_to_value(want, &right) < 0) {
        /* Unknown is as good as different: the caller refuses to share, in these words. */
        dl_error_set(err, ENOMEM, "", "out of memory for comparing two loader specs");
        return true;
    }
    return spec_canon_differs("", &left, &right, err);
}
