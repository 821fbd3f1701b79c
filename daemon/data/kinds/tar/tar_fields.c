/* What becomes of a member by its extension. */
#include "daemon/data/files/unpack.h"
#include "daemon/data/kinds/arrays/array_leaf.h"
#include "daemon/data/kinds/tar/tar_sample.h"

#include <ctype.h>
#include <errno.h>

enum { NUMBER_DIGITS = 64, MEMBER_UNPACKED_MAX = 1 << 30 };

/* The number in [at, end), which may have space around it. */
static bool tar_fields_read_integer(const char *at, const char *end, int64_t *ret)
{
    char text[NUMBER_DIGITS];
    char *rest;

    while (at < end && isspace((unsigned char)*at))
        at++;
    while (at < end && isspace((unsigned char)end[-1]))
        end--;
    size_t len = (size_t)(end - at);
    if (len == 0 || len >= sizeof text || memchr(at, '\0', len))
        return false;
    memcpy(text, at, len);
    text[len] = '\0';
    errno = 0;
    long long value = strtoll(text, &rest, 10);
    if (errno != 0 || *rest != '\0')
        return false;
    *ret = value;
    return true;
}

static int tar_fields_add_integer(const struct field *field, struct sample *ret,
                                  struct dl_error *err)
{
    const char *text = (const char *)field->data;
    int64_t value;

    if (!tar_fields_read_integer(text, text + field->bytes, &value))
        return dl_error_set(err, EINVAL, "",
                            "is not an integer of 64 bits (\"%.*s\"), as the extension says; "
                            "write decimal digits, or take its bytes with decode: false",
                            (int)min_u64(field->bytes, 40), text);
    return sample_int(ret, field->name, value);
}

static int tar_fields_add_npy(const struct field *field, struct sample *ret, struct dl_error *err)
{
    return array_leaf_add_npy(field->data, field->bytes, field->name, ret, err);
}

/* A mapping of its arrays' names to arrays. */
static int tar_fields_add_npz(const struct field *field, struct sample *ret, struct dl_error *err)
{
    return array_leaf_add_npz(field->data, field->bytes, field->name, NULL, ret, err);
}

/* A sort of fields that all records may have, or a function for one of tar's own. */
static const struct {
    const char *extension;
    enum field_sort sort;
    int (*add)(const struct field *field, struct sample *ret, struct dl_error *err);
} tar_decoders[] = {
    {"jpg", FIELD_IMAGE, NULL},
    {"jpeg", FIELD_IMAGE, NULL},
    {"png", FIELD_IMAGE, NULL},
    {"webp", FIELD_IMAGE, NULL},
    {"tif", FIELD_IMAGE, NULL},
    {"tiff", FIELD_IMAGE, NULL},
    {"cls", .add = tar_fields_add_integer},
    {"cls2", .add = tar_fields_add_integer},
    {"index", .add = tar_fields_add_integer},
    {"id", .add = tar_fields_add_integer},
    {"txt", FIELD_TEXT, NULL},
    {"text", FIELD_TEXT, NULL},
    {"json", FIELD_JSON, NULL},
    {"npy", .add = tar_fields_add_npy},
    {"npz", .add = tar_fields_add_npz},
    {NULL, FIELD_BYTES, NULL},
};

static int tar_fields_add_plain(const struct tar_field *f, const struct decoding *decoding,
                                struct sample *ret, struct dl_error *err)
{
    const bool is_sound = field_names_have(&decoding->fields->sounds, f->extension);
    struct field field = {FIELD_SOUND, f->key, f->data, f->size};
    struct dl_error why = {0};
    size_t i = 0;
    int r;

    while (tar_decoders[i].extension && strcmp(f->extension, tar_decoders[i].extension) != 0)
        i++;
    if (!is_sound)
        field.sort = tar_decoders[i].sort;
    if (!is_sound && tar_decoders[i].add)
        r = tar_decoders[i].add(&field, ret, &why);
    else
        r = field_add(&field, decoding, ret, &why);
    return why.code ? tar_field_error(f, why.code, err, "%s", why.message) : r;
}

static enum compression tar_fields_compression(const char *extension)
{
    if (strcmp(extension, "gz") == 0)
        return COMPRESSION_GZIP;
    return strcmp(extension, "zst") == 0 ? COMPRESSION_ZSTD : COMPRESSION_NONE;
}

/* The unpacked content, by the extension before; without one, bytes. */
static int tar_fields_add_packed(const struct tar_field *f, enum compression by,
                                 const struct decoding *decoding, struct sample *ret,
                                 struct dl_error *err)
{
    char inner[DL_BOUND_PATH_BYTES + 1];
    struct tar_field plain = *f;
    struct dl_error why = {0};
    uint8_t *data = NULL;
    int r = unpack(by, f->data, f->size, MEMBER_UNPACKED_MAX, "", &data, &plain.size, &why);

    if (r < 0)
        return tar_field_error(f, -r, err, "%s", why.message);
    if (arena_hold(ret->arena, free, data) < 0)
        return tar_field_error(f, ENOMEM, err, "ran out of memory");
    size_t len = strlen(f->source) - strlen(f->extension);
    memcpy(inner, f->source, len);
    inner[len > 0 ? len - 1 : 0] = '\0';
    plain.data = data;
    plain.source = inner;
    plain.extension = strrchr(inner, '.') ? strrchr(inner, '.') + 1 : inner;
    return tar_fields_add_plain(&plain, decoding, ret, err);
}

int tar_add_field(const struct tar_field *f, const struct decoding *decoding, struct sample *ret,
                  struct dl_error *err)
{
    bool decode = decoding->fields->decode;
    enum compression by = decode ? tar_fields_compression(f->extension) : COMPRESSION_NONE;

    if (!decode)
        return sample_text(ret, TREE_BYTES, f->key, f->data, f->size);
    return by ? tar_fields_add_packed(f, by, decoding, ret, err)
              : tar_fields_add_plain(f, decoding, ret, err);
}
