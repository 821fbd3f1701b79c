/*
 * The keys of collate, and the configuration of plug-ins: any value at all, kept as it is but for
 * the order of its maps' keys, which says nothing.
 */
#include "proto/spec_table.h"

#include <errno.h>
#include <inttypes.h>

void spec_collate_deinit(struct spec_collate *collate)
{
    for (uint32_t i = 0; i < collate->n_fields; i++)
        free(collate->fields[i]);
    free(collate->fields);
    free(collate->path);
    free(collate->object);
    value_deinit(&collate->config);
    *collate = (struct spec_collate){0};
}

const struct value *spec_value_at(const struct dl_spec *spec, const struct spec_key *key)
{
    return (const struct value *)((const char *)spec + key->offset);
}

static int spec_collate_compare_keys(const void *a, const void *b)
{
    const struct value *left = a, *right = b;
    return strcmp(left->key, right->key);
}

/* No deeper than DL_MAX_VALUE_DEPTH, as any value that was parsed. */
static void spec_collate_sort_maps(struct value *v)
{
    if (v->type == VALUE_MAP && v->count > 1)
        qsort(v->items, v->count, sizeof *v->items, spec_collate_compare_keys);
    for (uint32_t i = 0; i < v->count; i++)
        spec_collate_sort_maps(&v->items[i]);
}

int spec_read_value(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    struct value *field = (struct value *)((char *)rd->spec + key->offset);

    if (value_copy(v, field) < 0)
        return spec_no_memory(rd);
    spec_collate_sort_maps(field);
    return 0;
}

bool spec_good_leaf(const char *leaf)
{
    for (const char *part = leaf;; part++) {
        size_t len = strcspn(part, ".");
        if (!spec_good_field(part, len))
            return false;
        part += len;
        if (!*part)
            return true;
    }
}

static int spec_collate_compare_leaves(const void *a, const void *b)
{
    const char *const *left = a, *const *right = b;
    return strcmp(*left, *right);
}

static int spec_collate_add_leaf(struct spec_reading *rd, const char *place, const struct value *v)
{
    struct spec_collate *collate = &rd->spec->collate;
    char shown[SPEC_SHOWN_MAX];

    if (v->type != VALUE_STRING)
        return dl_error_set(rd->err, EINVAL, place, "%s is not the name of a leaf%s",
                            spec_show(v, shown), spec_quote_hint(v));
    if (!spec_good_leaf(v->string))
        return dl_error_set(rd->err, EINVAL, place,
                            "%s is not the name of a leaf, such as tokens or pair.0",
                            spec_show(v, shown));
    char *leaf = strdup(v->string);
    if (!leaf)
        return spec_no_memory(rd);
    collate->fields[collate->n_fields++] = leaf;
    return 0;
}

/* Sorted, because their order says nothing, and because any number of them may be equal. */
static int spec_collate_sort_leaves(struct spec_reading *rd, const char *place)
{
    const struct spec_collate *collate = &rd->spec->collate;

    qsort(collate->fields, collate->n_fields, sizeof *collate->fields, spec_collate_compare_leaves);
    for (uint32_t i = 1; i < collate->n_fields; i++)
        if (strcmp(collate->fields[i - 1], collate->fields[i]) == 0)
            return dl_error_set(rd->err, EINVAL, place, "\"%.64s\" occurs twice",
                                collate->fields[i]);
    return 0;
}

int spec_read_leaves(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    struct spec_collate *collate = &rd->spec->collate;
    const char *done = collate->kind == COLLATE_PACK ? "pack" : "pad";
    char list[DL_ERROR_PATH_MAX], place[DL_ERROR_PATH_MAX];
    int r = 0;

    if (v->type != VALUE_ARRAY || v->count < key->min)
        return spec_refuse(
            rd, key, v, "%s%s, such as [tokens, pair.0]; leave fields out to %s all leaves",
            v->type == VALUE_ARRAY ? "is empty; list the leaves to " : "is not a list of leaves",
            v->type == VALUE_ARRAY ? done : "", done);
    spec_place(rd, key, list);
    if (v->count > key->max)
        return dl_error_set(rd->err, EINVAL, list,
                            "%" PRIu32 " leaves are above the maximum of %" PRIu64, v->count,
                            key->max);
    collate->fields = calloc(v->count, sizeof *collate->fields);
    if (!collate->fields)
        return spec_no_memory(rd);
    for (uint32_t i = 0; r == 0 && i < v->count; i++) {
        spec_place_item(list, i, place);
        r = spec_collate_add_leaf(rd, place, &v->items[i]);
    }
    return r < 0 ? r : spec_collate_sort_leaves(rd, list);
}

bool spec_is_callable(const char *text)
{
    const char *colon = strchr(text, ':');

    if (strlen(text) > DL_MAX_NAME_BYTES || !colon || colon == text || !colon[1])
        return false;
    for (const char *c = text; *c; c++)
        if ((uint8_t)*c <= ' ' || *c == '/' || (*c == ':' && c != colon))
            return false;
    return true;
}

int spec_read_callable(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    bool collate = spec_key_in(key, "collate");
    char **field = collate ? &rd->spec->collate.object : &rd->spec->dataset.object;

    if (v->type != VALUE_STRING || !spec_is_callable(v->string))
        return spec_refuse(rd, key, v, "is not module:name, such as %s%s",
                           collate ? "mypackage.batches:collate" : "mypackage.data:Dataset",
                           spec_quote_hint(v));
    *field = strdup(v->string);
    return *field ? 0 : spec_no_memory(rd);
}

int spec_check_python(struct spec_reading *rd)
{
    const struct dl_spec *spec = rd->spec;

    if (spec->collate.kind == COLLATE_PYTHON && spec->dataset.kind != DATASET_PYTHON)
        return dl_error_set(rd->err, EINVAL, "collate.kind",
                            "python takes the samples of a dataset of kind python; with kind %s "
                            "write default, pad, none or plugin",
                            dataset_kind_name(spec->dataset.kind));
    return 0;
}
