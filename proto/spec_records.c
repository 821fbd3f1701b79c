/*
 * What datasets of records have: which of a record's fields a sample has and what they are called,
 * which are images, and where an index of the samples comes from.
 */
#include "proto/spec_table.h"

#include <errno.h>
#include <inttypes.h>

void spec_fields_deinit(struct spec_dataset *dataset)
{
    for (uint32_t i = 0; i < dataset->n_fields; i++) {
        free(dataset->fields[i].name);
        free(dataset->fields[i].source);
    }
    for (uint32_t i = 0; i < dataset->n_images; i++)
        free(dataset->images[i]);
    for (uint32_t i = 0; i < dataset->n_audio; i++)
        free(dataset->audios[i]);
    free(dataset->fields);
    free(dataset->images);
    free(dataset->audios);
}

int spec_read_index(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    char place[DL_ERROR_PATH_MAX];
    int number = v->type == VALUE_STRING ? spec_choice_number(key, v->string) : -1;

    if (number > 0) {
        spec_field_set(rd->spec, key, (uint64_t)number);
        return 0;
    }
    if (v->type != VALUE_STRING || !v->string[0])
        return spec_refuse(rd, key, v, "is not off, auto or a path%s", spec_quote_hint(v));
    spec_field_set(rd->spec, key, INDEX_FILE);
    spec_place(rd, key, place);
    return spec_resolve_path(rd, place, v, &rd->spec->dataset.index_path);
}

/* Whether it can be what a record calls a field: like a field's name, but with dots. */
static bool spec_records_good_source(const char *source)
{
    size_t len = strlen(source);

    for (size_t i = 0; i < len; i++)
        if ((uint8_t)source[i] < 0x20 || source[i] == 0x7F)
            return false;
    return len > 0 && len <= DL_MAX_NAME_BYTES;
}

static int spec_records_refuse_source(const struct spec_reading *rd, const char *place,
                                      const struct value *v)
{
    char shown[SPEC_SHOWN_MAX];

    return dl_error_set(rd->err, EINVAL, place,
                        "%s is not a field of a record: 1 to %" PRIu64
                        " bytes without control characters%s",
                        spec_show(v, shown), DL_MAX_NAME_BYTES, spec_quote_hint(v));
}

/* What a field may be called. A column keeps its name, which may have dots, though no key of the
 * spec can address it then. */
static bool spec_records_good_name(const struct spec_dataset *dataset, const char *name,
                                   const char *source)
{
    bool columns = dataset->kind == DATASET_CSV || dataset->kind == DATASET_PARQUET ||
                   dataset->kind == DATASET_ARROW;

    return spec_good_field(name, strlen(name)) || (columns && strcmp(name, source) == 0);
}

static int spec_records_add_field(struct spec_reading *rd, const char *place, const char *name,
                                  const struct value *v)
{
    struct spec_dataset *dataset = &rd->spec->dataset;
    struct spec_field *field = &dataset->fields[dataset->n_fields];

    if (v->type != VALUE_STRING || !spec_records_good_source(v->string))
        return spec_records_refuse_source(rd, place, v);
    if (!name)
        name = v->string;
    if (!spec_records_good_name(dataset, name, v->string) ||
        (name == v->string && strchr(name, ';')))
        return dl_error_set(rd->err, EINVAL, place,
                            "%s cannot be the name of a sample's field, which has no dots; give "
                            "it another, such as {image: %s}",
                            name, v->string);
    for (uint32_t i = 0; i < dataset->n_fields; i++)
        if (strcmp(dataset->fields[i].name, name) == 0)
            return dl_error_set(rd->err, EINVAL, place, "%s is given twice", name);
    dataset->n_fields++;
    field->name = strdup(name);
    field->source = strdup(v->string);
    return field->name && field->source ? 0 : spec_no_memory(rd);
}

static int spec_records_compare(const void *a, const void *b)
{
    const struct spec_field *left = a, *right = b;

    return strcmp(left->name, right->name);
}

int spec_read_fields(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    struct spec_dataset *dataset = &rd->spec->dataset;
    char list[DL_ERROR_PATH_MAX], place[DL_ERROR_PATH_MAX];
    bool map = v->type == VALUE_MAP;
    int r = 0;

    if ((!map && v->type != VALUE_ARRAY) || v->count < key->min)
        return spec_refuse(rd, key, v,
                           "is not a list of fields, such as [jpg, cls], nor a mapping of names to "
                           "them, such as {image: jpg}");
    spec_place(rd, key, list);
    if (v->count > key->max)
        return dl_error_set(rd->err, EINVAL, list,
                            "%" PRIu32 " fields are above the maximum of %" PRIu64, v->count,
                            key->max);
    dataset->fields = calloc(v->count, sizeof *dataset->fields);
    if (!dataset->fields)
        return spec_no_memory(rd);
    for (uint32_t i = 0; r == 0 && i < v->count; i++) {
        if (map)
            spec_place_below(list, v->items[i].key, place);
        else
            spec_place_item(list, i, place);
        r = spec_records_add_field(rd, place, map ? v->items[i].key : NULL, &v->items[i]);
    }
    if (r == 0) /* the order of a map's keys does not matter */
        qsort(dataset->fields, dataset->n_fields, sizeof *dataset->fields, spec_records_compare);
    return r;
}

/* Integers stay what they are; a number of any kind fits a column or does not. */
int spec_read_nulls(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    struct value *nulls = (struct value *)(void *)((char *)rd->spec + key->offset);

    if (v->type == VALUE_STRING && strcmp(v->string, "refuse") == 0) {
        value_deinit(nulls);
        return 0;
    }
    if (v->type != VALUE_INT && v->type != VALUE_UINT && v->type != VALUE_FLOAT)
        return spec_refuse(rd, key, v, "is neither refuse nor a number, such as 0 or .nan");
    return value_copy(v, nulls) < 0 ? spec_no_memory(rd) : 0;
}

/* Where the key's sources are, and how many. */
static char ***spec_records_features_at(struct spec_dataset *dataset, const struct spec_key *key,
                                        uint32_t **ret_n)
{
    bool audio = strcmp(key->key, "audio") == 0;

    *ret_n = audio ? &dataset->n_audio : &dataset->n_images;
    return audio ? &dataset->audios : &dataset->images;
}

char **spec_features(const struct spec_dataset *dataset, const struct spec_key *key,
                     uint32_t *ret_n)
{
    struct spec_dataset same = *dataset;
    uint32_t *count;
    char ***features = spec_records_features_at(&same, key, &count);

    *ret_n = *count;
    return *features;
}

int spec_read_features(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    uint32_t *count;
    char ***features = spec_records_features_at(&rd->spec->dataset, key, &count);
    char list[DL_ERROR_PATH_MAX], place[DL_ERROR_PATH_MAX];

    int r = spec_check_list(rd, key, v, "features",
                            count == &rd->spec->dataset.n_audio ? "[flac]" : "[image/encoded]");
    if (r < 0)
        return r;
    *features = calloc(v->count, sizeof **features);
    if (!*features)
        return spec_no_memory(rd);
    spec_place(rd, key, list);
    for (uint32_t i = 0; i < v->count; i++) {
        const struct value *item = &v->items[i];
        spec_place_item(list, i, place);
        if (item->type != VALUE_STRING || !spec_records_good_source(item->string))
            return spec_records_refuse_source(rd, place, item);
        (*features)[i] = strdup(item->string);
        if (!(*features)[i])
            return spec_no_memory(rd);
        ++*count;
    }
    return 0;
}
