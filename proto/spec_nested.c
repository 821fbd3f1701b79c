/*
 * Datasets made of datasets: concat, chain, mix, subset, split. A dataset that stands in another
 * one is read by the same rows as the spec's own, so that it has the same keys, defaults and
 * messages; only the place that they name is longer.
 */
#include "proto/remote_wire.h"
#include "proto/spec_table.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

void spec_dataset_deinit(struct spec_dataset *dataset)
{
    for (uint32_t i = 0; i < dataset->n_files; i++) {
        free(dataset->files[i].field);
        free(dataset->files[i].path);
    }
    for (uint32_t i = 0; i < dataset->n_datasets; i++)
        spec_dataset_deinit(&dataset->datasets[i]);
    free(dataset->files);
    free(dataset->datasets);
    free(dataset->indices);
    free(dataset->lengths);
    free(dataset->fractions);
    spec_mixture_deinit(dataset);
    free(dataset->field);
    free(dataset->second);
    free(dataset->model);
    free(dataset->chat_template);
    value_deinit(&dataset->chat_args);
    free(dataset->prompt);
    free(dataset->tools);
    value_deinit(&dataset->bos);
    value_deinit(&dataset->eos);
    free(dataset->index_path);
    spec_fields_deinit(dataset);
    free(dataset->object);
    free(dataset->pictures_root);
    value_deinit(&dataset->config);
    value_deinit(&dataset->transforms);
    value_deinit(&dataset->views);
    value_deinit(&dataset->nulls);
    value_deinit(&dataset->filter);
    value_deinit(&dataset->types);
    value_deinit(&dataset->prefix);
    *dataset = (struct spec_dataset){0};
}

const char *spec_dataset_label(const struct spec_dataset *dataset)
{
    while (dataset->n_datasets == 1)
        dataset = &dataset->datasets[0];
    if (dataset->kind == DATASET_PYTHON)
        return dataset->object ? dataset->object : dataset_kind_name(dataset->kind);
    return dataset->n_files > 0 ? dataset->files[0].path : dataset_kind_name(dataset->kind);
}

static int spec_nested_alloc_datasets(struct spec_reading *rd, uint32_t n)
{
    rd->spec->dataset.datasets = calloc(n, sizeof *rd->spec->dataset.datasets);
    return rd->spec->dataset.datasets ? 0 : spec_no_memory(rd);
}

bool spec_dataset_is_iterable(const struct spec_dataset *dataset)
{
    bool iterable = false;

    for (uint32_t i = 0; dataset->kind == DATASET_MIX && i < dataset->n_datasets; i++)
        iterable = iterable || spec_dataset_is_iterable(&dataset->datasets[i]);
    return iterable || dataset->kind == DATASET_CHAIN ||
           (dataset->kind == DATASET_TAR && dataset->index <= INDEX_OFF) ||
           (dataset->kind == DATASET_RANGE && dataset->iterable);
}

static bool spec_nested_is_foreign(const struct spec_dataset *part)
{
    bool foreign = part->kind == DATASET_MIX;

    for (uint32_t i = 0; foreign && i < part->n_datasets; i++)
        foreign = spec_nested_is_foreign(&part->datasets[i]);
    return foreign || part->kind == DATASET_PLUGIN || part->kind == DATASET_PYTHON;
}

/* A mix takes either sort, but not both: the part is the last one so far. */
static int spec_nested_check_mixed(const struct spec_reading *rd, const char *place,
                                   const struct spec_dataset *part)
{
    const struct spec_dataset *outer = &rd->spec->dataset;
    bool iterable = spec_dataset_is_iterable(part);

    for (uint32_t i = 0; i + 1 < outer->n_datasets; i++) {
        const struct spec_dataset *other = &outer->datasets[i];

        if (spec_nested_is_foreign(other) || spec_dataset_is_iterable(other) == iterable)
            continue;
        return dl_error_set(
            rd->err, EINVAL, place,
            "%s is %s, and number %" PRIu32
            " of the list, from 0, %s; a mix takes only map-style or only iterable datasets%s",
            dataset_kind_name(part->kind), iterable ? "iterable" : "map-style", i,
            iterable ? "map-style" : "iterable",
            (iterable ? part : other)->kind == DATASET_TAR
                ? ": write index: auto for the tar shards"
                : "");
    }
    return 0;
}

/* As in ChainDataset and ConcatDataset. Foreign code reveals its style only once it is open. */
static int spec_nested_check_part(const struct spec_reading *rd, const char *place,
                                  const struct spec_dataset *part)
{
    enum dataset_kind outer = rd->spec->dataset.kind;
    const char *kind = dataset_kind_name(part->kind);
    bool iterable = spec_dataset_is_iterable(part);
    const char *remedy = part->kind == DATASET_TAR ? ": write index: auto" : "";

    if (part->kind == DATASET_MIX && outer != DATASET_MIX)
        return dl_error_set(rd->err, EINVAL, place,
                            "a mix decides in which order samples come, and cannot stand in a %s; "
                            "put the %s into the mix instead",
                            dataset_kind_name(outer), dataset_kind_name(outer));
    int r = part->kind == DATASET_MIX ? spec_mixture_check_inner(rd, place, part) : 0;
    if (r < 0)
        return r;
    if (spec_nested_is_foreign(part))
        return 0;
    if (outer == DATASET_MIX)
        return spec_nested_check_mixed(rd, place, part);
    if (iterable == (outer == DATASET_CHAIN))
        return 0;
    if (outer == DATASET_CHAIN)
        return dl_error_set(rd->err, EINVAL, place,
                            "%s is map-style%s; chain takes iterable datasets, concat map-style "
                            "ones",
                            kind,
                            part->kind == DATASET_RANGE ? " without iterable: true"
                            : part->kind == DATASET_TAR ? " with an index"
                                                        : "");
    if (outer == DATASET_CONCAT)
        return dl_error_set(
            rd->err, EINVAL, place,
            "%s is iterable; concat takes map-style datasets, chain iterable ones%s", kind, remedy);
    return dl_error_set(rd->err, EINVAL, place,
                        "%s is iterable and has no indices; %s takes a map-style dataset%s", kind,
                        dataset_kind_name(outer), remedy);
}

static int spec_nested_add_dataset(struct spec_reading *rd, const char *place,
                                   const struct value *v)
{
    struct spec_dataset *dataset = &rd->spec->dataset;
    struct spec_dataset *part = &dataset->datasets[dataset->n_datasets];

    int r = spec_read_inner(rd, place, v, part);
    if (r < 0)
        return r;
    dataset->n_datasets++;
    return spec_nested_check_part(rd, place, part);
}

int spec_read_dataset(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    char place[DL_ERROR_PATH_MAX];

    spec_place(rd, key, place);
    int r = spec_nested_alloc_datasets(rd, 1);
    return r < 0 ? r : spec_nested_add_dataset(rd, place, v);
}

/* "dataset.datasets.1". */
static void spec_nested_item_place(const struct spec_reading *rd, const struct spec_key *key,
                                   uint32_t i, char ret[static DL_ERROR_PATH_MAX])
{
    char list[DL_ERROR_PATH_MAX];

    spec_place(rd, key, list);
    spec_place_item(list, i, ret);
}

int spec_check_list(const struct spec_reading *rd, const struct spec_key *key,
                    const struct value *v, const char *what, const char *example)
{
    char place[DL_ERROR_PATH_MAX];

    if (v->type != VALUE_ARRAY)
        return spec_refuse(rd, key, v, "is not a list of %s, such as %s", what, example);
    spec_place(rd, key, place);
    if (v->count < key->min)
        return dl_error_set(rd->err, EINVAL, place, "the list is empty; give %s, such as %s", what,
                            example);
    if (v->count <= key->max)
        return 0;
    return dl_error_set(rd->err, EINVAL, place,
                        "%" PRIu32 " entries are above the maximum of %" PRIu64, v->count,
                        key->max);
}

int spec_refuse_item(const struct spec_reading *rd, const struct spec_key *key,
                     const struct value *list, uint32_t i, const char *what)
{
    char place[DL_ERROR_PATH_MAX], shown[SPEC_SHOWN_MAX];

    spec_nested_item_place(rd, key, i, place);
    return dl_error_set(rd->err, EINVAL, place, "%s is not %s", spec_show(&list->items[i], shown),
                        what);
}

int spec_read_datasets(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    char place[DL_ERROR_PATH_MAX];

    int r = spec_check_list(rd, key, v, "datasets", "[{kind: npy, paths: a.npy}, ...]");
    if (r == 0)
        r = spec_nested_alloc_datasets(rd, v->count);
    for (uint32_t i = 0; r == 0 && i < v->count; i++) {
        spec_nested_item_place(rd, key, i, place);
        r = spec_nested_add_dataset(rd, place, &v->items[i]);
    }
    return r;
}

int spec_read_whole(const struct spec_reading *rd, const struct spec_key *key,
                    const struct value *list, uint64_t *ret)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct value *item = &list->items[i];
        if (item->type != VALUE_INT || item->integer < 0)
            return spec_refuse_item(rd, key, list, i, "a non-negative integer below 2^63");
        ret[i] = (uint64_t)item->integer;
    }
    return 0;
}

int spec_read_members(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    struct spec_dataset *dataset = &rd->spec->dataset;

    int r = spec_check_list(rd, key, v, "indices", "[0, 1, 2]");
    if (r < 0 || v->count == 0)
        return r;
    dataset->indices = calloc(v->count, sizeof *dataset->indices);
    if (!dataset->indices)
        return spec_no_memory(rd);
    dataset->n_indices = v->count;
    return spec_read_whole(rd, key, v, dataset->indices);
}

/* random_split() takes numbers that sum to 1 for fractions, whole ones too. */
static bool spec_nested_are_fractions(const struct value *v)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < v->count; i++) {
        if (v->items[i].type == VALUE_FLOAT)
            return true;
        if (v->items[i].type != VALUE_INT || v->items[i].integer < 0 || v->items[i].integer > 1)
            return false;
        sum += (uint64_t)v->items[i].integer;
    }
    return sum == 1;
}

static int spec_nested_read_fractions(struct spec_reading *rd, const struct spec_key *key,
                                      const struct value *v, double *ret)
{
    char place[DL_ERROR_PATH_MAX];
    double sum = 0;

    for (uint32_t i = 0; i < v->count; i++) {
        const struct value *item = &v->items[i];
        double part = item->type == VALUE_INT     ? (double)item->integer
                      : item->type == VALUE_FLOAT ? item->number
                                                  : -1;
        if (!(part >= 0 && part <= 1))
            return spec_refuse_item(rd, key, v, i, "a fraction from 0 to 1");
        ret[i] = part + 0.0; /* -0.0 is 0 */
        sum += part;
    }
    if (fabs(sum - 1) <= 1e-9)
        return 0;
    spec_place(rd, key, place);
    return dl_error_set(rd->err, EINVAL, place, "these fractions add up to %.10g instead of 1",
                        sum);
}

int spec_read_parts(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    struct spec_dataset *dataset = &rd->spec->dataset;

    int r = spec_check_list(rd, key, v, "parts", "[800, 200] or [0.8, 0.2]");
    if (r < 0)
        return r;
    if (spec_nested_are_fractions(v)) {
        dataset->fractions = calloc(v->count, sizeof *dataset->fractions);
        r = dataset->fractions ? spec_nested_read_fractions(rd, key, v, dataset->fractions)
                               : spec_no_memory(rd);
    } else {
        dataset->lengths = calloc(v->count, sizeof *dataset->lengths);
        r = dataset->lengths ? spec_read_whole(rd, key, v, dataset->lengths) : spec_no_memory(rd);
    }
    dataset->n_parts = v->count;
    return r;
}

/* Pictures are kept where the client's host decodes files of one directory. A URL says that the
 * host's workers read such. */
static int spec_nested_check_pictures(const struct spec_reading *rd)
{
    const struct spec_dataset *dataset = &rd->spec->dataset;
    char place[DL_ERROR_PATH_MAX];

    spec_place(rd, spec_key_find("dataset", dataset->pictures_root ? "paths" : "cache"), place);
    bool remote = dataset->pictures_root && remote_is_url(dataset->pictures_root);
    if (remote ? dataset->host && !dataset->cache
               : !dataset->pictures_root == !dataset->cache &&
                     (!dataset->pictures_root || dataset->host))
        return 0;
    if (remote)
        return dl_error_set(rd->err, EINVAL, place,
                            "is a URL: it is for a client's own host, whose workers read such "
                            "files, and is given without cache");
    if (dataset->cache && !dataset->pictures_root)
        return dl_error_set(rd->err, EINVAL, place,
                            "is given without paths, the directory whose pictures are kept");
    return dl_error_set(rd->err, EINVAL, place, "%s",
                        dataset->cache ? "is for a client's own host, whose pictures cache keeps; "
                                         "leave out both"
                                       : "is given without cache, the memory for its pictures");
}

static int spec_nested_check_python_dataset(const struct spec_reading *rd)
{
    const struct spec_dataset *dataset = &rd->spec->dataset;
    char place[DL_ERROR_PATH_MAX];

    if (dataset->kind != DATASET_PYTHON)
        return 0;
    if (dataset->host && dataset->n_files > 0) {
        spec_place(rd, spec_key_find("dataset", "interpreter"), place);
        return dl_error_set(
            rd->err, EINVAL, place,
            "is given together with host, which already runs; leave out one of them");
    }
    if (!dataset->object != !dataset->host)
        return spec_nested_check_pictures(rd);
    spec_place(rd, spec_key_find("dataset", "object"), place);
    return dl_error_set(rd->err, EINVAL, place, "%s",
                        dataset->object ? "is given together with host; leave out one of them"
                                        : "missing; a dataset of kind python needs it, such as "
                                          "mypackage.data:Dataset");
}

int spec_check_dataset(struct spec_reading *rd)
{
    struct spec_dataset *dataset = &rd->spec->dataset;

    int bad = spec_check_mixture(rd);

    if (bad < 0)
        return bad;
    if (dataset->kind == DATASET_TOKENS && dataset->stride == 0)
        dataset->stride = dataset->sequence_length;
    if (dataset->kind == DATASET_SPLIT && dataset->part >= dataset->n_parts) {
        char place[DL_ERROR_PATH_MAX];
        spec_place(rd, spec_key_find("dataset", "part"), place);
        return dl_error_set(rd->err, EINVAL, place,
                            "%" PRIu32 " is not one of the %" PRIu32 " parts, which count from 0",
                            dataset->part, dataset->n_parts);
    }
    int r = spec_nested_check_python_dataset(rd);
    return r < 0 ? r : spec_check_image(rd);
}
