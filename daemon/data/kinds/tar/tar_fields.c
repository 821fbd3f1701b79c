/* What becomes of a member by its extension. */
#include "daemon/data/decode/image/image_field.h"
#include "daemon/data/field/json_field.h"
#include "daemon/data/files/unpack.h"
#include "daemon/data/kinds/arrays/array_leaf.h"
#include "daemon/data/kinds/tar/tar_sample.h"

#include <ctype.h>
#include <errno.h>

enum { NUMBER_DIGITS = 64, MEMBER_UNPACKED_MAX = 1 << 30 };

typedef int (*add_fn)(const struct tar_field *f, const struct tar_options *options,
                      const struct tar_randomness *randomness, struct sample *ret,
                      struct dl_error *err);

static int tar_fields_add_bytes(const struct tar_field *f, struct sample *ret)
{
    return sample_text(ret, TREE_BYTES, f->key, f->data, f->size);
}

static int tar_fields_add_string(const struct tar_field *f, const struct tar_options *options,
                                 const struct tar_randomness *randomness, struct sample *ret,
                                 struct dl_error *err)
{
    return sample_text(ret, TREE_STRING, f->key, f->data, f->size);
}

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

static int tar_fields_add_integer(const struct tar_field *f, const struct tar_options *options,
                                  const struct tar_randomness *randomness, struct sample *ret,
                                  struct dl_error *err)
{
    const char *text = (const char *)f->data;
    int64_t value;

    if (!tar_fields_read_integer(text, text + f->size, &value))
        return tar_field_error(f, EINVAL, err,
                               "is not an integer of 64 bits (\"%.*s\"), as the extension says; "
                               "write decimal digits, or take its bytes with decode: false",
                               (int)min_u64(f->size, 40), text);
    return sample_int(ret, f->key, value);
}

static int tar_fields_add_npy(const struct tar_field *f, const struct tar_options *options,
                              const struct tar_randomness *randomness, struct sample *ret,
                              struct dl_error *err)
{
    struct dl_error why = {0};
    int r = array_leaf_add_npy(f->data, f->size, f->key, ret, &why);

    return why.code ? tar_field_error(f, why.code, err, "%s", why.message) : r;
}

/* A mapping of its arrays' names to arrays. */
static int tar_fields_add_npz(const struct tar_field *f, const struct tar_options *options,
                              const struct tar_randomness *randomness, struct sample *ret,
                              struct dl_error *err)
{
    struct dl_error why = {0};
    int r = array_leaf_add_npz(f->data, f->size, f->key, NULL, ret, &why);

    return why.code ? tar_field_error(f, why.code, err, "%s", why.message) : r;
}

static int tar_fields_add_json(const struct tar_field *f, const struct tar_options *options,
                               const struct tar_randomness *randomness, struct sample *ret,
                               struct dl_error *err)
{
    struct dl_error why = {0};
    int r = json_field_add(f->data, f->size, f->key, ret, &why);

    return why.code ? tar_field_error(f, why.code, err, "%s", why.message) : r;
}

static int tar_fields_add_image(const struct tar_field *f, const struct tar_options *options,
                                const struct tar_randomness *randomness, struct sample *ret,
                                struct dl_error *err)
{
    struct image_file file = {.data = f->data, .bytes = f->size, .path = f->path};
    struct image_field field = {.decoder = options->decoder,
                                .spec = &options->image,
                                .key = &randomness->key,
                                .index = randomness->index};
    struct dl_error why = {0};
    int r = image_field_add(&field, &file, f->key, ret, &why);

    return why.code ? tar_field_error(f, why.code, err, "%s", why.message) : r;
}

static int tar_fields_add_sound(const struct tar_field *f, const struct tar_options *options,
                                const struct tar_randomness *randomness, struct sample *ret,
                                struct dl_error *err)
{
    struct audio_field field = {
        .decoder = options->audio, .key = &randomness->key, .index = randomness->index};
    struct dl_error why = {0};
    int r = audio_field_add(&field, f->data, f->size, f->key, ret, &why);

    return why.code ? tar_field_error(f, why.code, err, "%s", why.message) : r;
}

static bool tar_fields_is_sound(const struct tar_options *options, const char *extension)
{
    for (uint32_t i = 0; i < options->n_sounds; i++)
        if (strcmp(options->sounds[i], extension) == 0)
            return true;
    return false;
}

static const struct {
    const char *extension;
    add_fn add;
} tar_decoders[] = {
    {"jpg", tar_fields_add_image},     {"jpeg", tar_fields_add_image},
    {"png", tar_fields_add_image},     {"webp", tar_fields_add_image},
    {"tif", tar_fields_add_image},     {"tiff", tar_fields_add_image},
    {"cls", tar_fields_add_integer},   {"cls2", tar_fields_add_integer},
    {"index", tar_fields_add_integer}, {"id", tar_fields_add_integer},
    {"txt", tar_fields_add_string},    {"text", tar_fields_add_string},
    {"json", tar_fields_add_json},     {"npy", tar_fields_add_npy},
    {"npz", tar_fields_add_npz},
};

static int tar_fields_add_plain(const struct tar_field *f, const struct tar_options *options,
                                const struct tar_randomness *randomness, struct sample *ret,
                                struct dl_error *err)
{
    if (tar_fields_is_sound(options, f->extension))
        return tar_fields_add_sound(f, options, randomness, ret, err);
    for (size_t i = 0; i < ARRAY_SIZE(tar_decoders); i++) {
        if (strcmp(f->extension, tar_decoders[i].extension) == 0)
            return tar_decoders[i].add(f, options, randomness, ret, err);
    }
    return tar_fields_add_bytes(f, ret);
}

static enum compression tar_fields_compression(const char *extension)
{
    if (strcmp(extension, "gz") == 0)
        return COMPRESSION_GZIP;
    return strcmp(extension, "zst") == 0 ? COMPRESSION_ZSTD : COMPRESSION_NONE;
}

/* The unpacked content, by the extension before; without one, bytes. */
static int tar_fields_add_packed(const struct tar_field *f, enum compression by,
                                 const struct tar_options *options,
                                 const struct tar_randomness *randomness, struct sample *ret,
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
    return tar_fields_add_plain(&plain, options, randomness, ret, err);
}

int tar_add_field(const struct tar_field *f, const struct tar_options *options,
                  const struct tar_randomness *randomness, struct sample *ret, struct dl_error *err)
{
    enum compression by = options->decode ? tar_fields_compression(f->extension) : COMPRESSION_NONE;

    if (!options->decode)
        return tar_fields_add_bytes(f, ret);
    return by ? tar_fields_add_packed(f, by, options, randomness, ret, err)
              : tar_fields_add_plain(f, options, randomness, ret, err);
}
