#include "daemon/data/kinds/arrow/arrow_features.h"

#include <errno.h>
#include <jansson.h>

/* Whether the field can be a file: bytes, or a struct that has some. */
static bool arrow_features_is_file(const struct arrow_field *field)
{
    const struct arrow_field *end = field + field->span;

    if (field->sort == ARROW_BYTES)
        return true;
    if (field->sort != ARROW_STRUCT)
        return false;
    for (const struct arrow_field *child = field + 1; child < end; child += child->span)
        if (child->sort == ARROW_BYTES && strcmp(child->name, "bytes") == 0 &&
            !child->has_dictionary)
            return true;
    return false;
}

static void arrow_features_mark_type(struct arrow_field *field, const char *type)
{
    static const char *const files[] = {"Image", "Audio", "Video"};
    bool array = strncmp(type, "Array", 5) == 0 && strlen(type) == sizeof "Array2D" - 1;

    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        if (strcmp(type, files[i]) == 0 && arrow_features_is_file(field))
            field->is_media = true;
    field->is_image |= field->is_media && strcmp(type, "Image") == 0;
    field->is_rectangular |= array && field->sort == ARROW_LIST;
}

static void arrow_features_mark_field(struct arrow_field *field, const json_t *feature);

/* Of a struct: {"name": feature, ...} */
static void arrow_features_mark_struct(struct arrow_field *field, const json_t *features)
{
    const struct arrow_field *end = field + field->span;

    for (struct arrow_field *child = field + 1; child < end; child += child->span)
        arrow_features_mark_field(child, json_object_get(features, child->name));
}

/* {"_type": "Image"}; of a list {"_type": "List", "feature": ...}, or [...] in older files. As deep
 * as the schema is. */
static void arrow_features_mark_field(struct arrow_field *field, const json_t *feature)
{
    const char *type = json_string_value(json_object_get(feature, "_type"));
    const json_t *inner =
        json_is_array(feature) ? json_array_get(feature, 0) : json_object_get(feature, "feature");
    bool list = field->sort == ARROW_LIST || field->sort == ARROW_FIXED_LIST;

    if (type)
        arrow_features_mark_type(field, type);
    if (list && inner)
        arrow_features_mark_field(field + 1, inner);
    else if (field->sort == ARROW_STRUCT && !field->is_media)
        arrow_features_mark_struct(field, inner && type ? inner : feature);
}

void arrow_features_mark(struct arrow_schema *schema)
{
    json_t *root =
        schema->features ? json_loadb(schema->features, schema->features_len, 0, NULL) : NULL;
    const json_t *features = json_object_get(json_object_get(root, "info"), "features");

    for (uint32_t i = 0; features && i < schema->n; i += schema->fields[i].span)
        arrow_features_mark_field(&schema->fields[i],
                                  json_object_get(features, schema->fields[i].name));
    json_decref(root);
}

/* The field that source `source` of the spec's `key` is, which must be a file. */
static int arrow_features_find(struct arrow_schema *schema, const char *source, const char *key,
                               const char *path, struct arrow_field **ret, struct dl_error *err)
{
    uint32_t found = arrow_schema_find(schema, source);

    if (found == ARROW_NONE)
        return dl_error_set(err, EINVAL, path, "has no column %s; see dataset.%s", source, key);
    *ret = &schema->fields[found];
    if (arrow_features_is_file(*ret))
        return 0;
    return dl_error_set(err, EINVAL, path,
                        "its column %s is of type %s, not bytes, and cannot be %s; see dataset.%s",
                        source, (*ret)->type, strcmp(key, "audio") == 0 ? "a sound" : "an image",
                        key);
}

int arrow_features_mark_media(struct arrow_schema *schema, const struct spec_dataset *spec,
                              const char *path, struct dl_error *err)
{
    struct arrow_field *field = NULL;
    int r;

    for (uint32_t i = 0; i < spec->n_images; i++) {
        if ((r = arrow_features_find(schema, spec->images[i], "images", path, &field, err)) < 0)
            return r;
        field->is_media = field->is_image = true;
    }
    for (uint32_t i = 0; i < spec->n_audio; i++) {
        if ((r = arrow_features_find(schema, spec->audios[i], "audio", path, &field, err)) < 0)
            return r;
        field->is_media = field->is_sound = true;
    }
    return 0;
}
