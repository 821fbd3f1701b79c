/* What becomes of a member by its extension. */
#include "daemon/data/base/json_field.h"
#include "daemon/data/decode/image/image_field.h"
#include "daemon/data/files/unpack.h"
#include "daemon/data/kinds/arrays/array.h"
#include "daemon/data/kinds/arrays/npz.h"
#include "daemon/data/kinds/tar/tar_sample.h"

#include <ctype.h>
#include <errno.h>

enum { NUMBER_DIGITS = 64, MEMBER_UNPACKED_MAX = 1 << 30, NPZ_ARRAYS_MAX = 1024 };

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

/* An array as a tensor: in place, or converted. */
static int tar_fields_add_array(const char *key, const struct array_header *header,
                                const uint8_t *data, struct sample *ret, struct dl_error *err)
{
    const struct stored stored = {.data = data,
                                  .dtype = header->dtype,
                                  .ndim = header->ndim,
                                  .shape = header->shape,
                                  .order = header->order};

    if (!stored_is_plain(header->order)) {
        uint8_t *ordered = malloc(max_u64(header->data_bytes, 1));
        if (!ordered || arena_hold(ret->arena, free, ordered) < 0) {
            free(ordered);
            return dl_error_set(err, ENOMEM, "", "ran out of memory");
        }
        stored_copy(&stored, ordered);
        data = ordered;
    }
    return sample_tensor(ret, key, header->dtype, header->ndim, header->shape, data);
}

static int tar_fields_add_npy(const struct tar_field *f, const struct tar_options *options,
                              const struct tar_randomness *randomness, struct sample *ret,
                              struct dl_error *err)
{
    struct array_header header = {0};
    struct dl_error why = {0};
    int r;

    if ((r = npy_parse(f->data, f->size, f->path, &header, &why)) < 0 ||
        (r = array_header_fits(&header, f->size, f->path, &why)) < 0)
        return tar_field_error(f, -r, err, "cannot be read: it %s", why.message);
    r = tar_fields_add_array(f->key, &header, f->data + header.data_off, ret, &why);
    return why.code ? tar_field_error(f, why.code, err, "%s", why.message) : r;
}

/* ---- several arrays ------------------------------------------------------------------------- */

/* Its bytes, in place where they are stored. */
static int tar_fields_npz_bytes(const struct npz_member *member, struct sample *ret,
                                const uint8_t **ret_data, struct dl_error *err)
{
    if (!member->deflated) {
        *ret_data = member->packed;
        return npz_check(member, err);
    }
    if (member->bytes > MEMBER_UNPACKED_MAX)
        return dl_error_set(err, EFBIG, "", "has more bytes than the %d that it may have",
                            MEMBER_UNPACKED_MAX);
    uint8_t *data = malloc(max_u64(member->bytes, 1));
    if (!data || arena_hold(ret->arena, free, data) < 0) {
        free(data);
        return dl_error_set(err, ENOMEM, "", "ran out of memory");
    }
    *ret_data = data;
    return npz_unpack(member, data, err);
}

/* Among the leaves behind node `dict`. */
static bool tar_fields_has_array(const struct sample *sample, uint32_t dict, const char *key)
{
    size_t len = strlen(key);

    for (uint32_t i = dict + 1; i < sample->tree.count; i++) {
        const struct tree_node *node = &sample->tree.nodes[i];
        if (node->key_len == len && memcmp(sample->tree.keys + node->key_off, key, len) == 0)
            return true;
    }
    return false;
}

/* An array; other members are bytes, as in numpy.load(). */
static int tar_fields_add_npz_member(const struct npz_member *member, uint32_t dict,
                                     struct sample *ret, struct dl_error *err)
{
    _cleanup_free_ char *key =
        span_dup((struct dl_span){(const uint8_t *)member->name, member->name_len});
    struct array_header header = {0};
    struct dl_error why = {0};
    const uint8_t *data = NULL;
    int r = tar_fields_npz_bytes(member, ret, &data, err);

    if (r < 0)
        return r;
    if (!key)
        return dl_error_set(err, ENOMEM, "", "ran out of memory");
    if (tar_fields_has_array(ret, dict, key))
        return dl_error_set(err, EINVAL, "", "has the array %s twice", key);
    if (!npy_is(data, member->bytes))
        return sample_text(ret, TREE_BYTES, key, data, member->bytes);
    if ((r = npy_parse_value(data, member->bytes, "", &header, &why)) < 0 ||
        (r = array_header_fits(&header, member->bytes, "", &why)) < 0)
        return dl_error_set(err, -r, "", "cannot be read: its array %s %s", key, why.message);
    return tar_fields_add_array(key, &header, data + header.data_off, ret, err);
}

/* A mapping of its arrays' names to arrays. */
static int tar_fields_add_npz(const struct tar_field *f, const struct tar_options *options,
                              const struct tar_randomness *randomness, struct sample *ret,
                              struct dl_error *err)
{
    struct dl_error why = {0};
    uint32_t dict = ret->tree.count;
    struct npz_member member;
    struct npz npz;
    int r = npz_begin(&npz, f->data, f->size, &why);

    if (r == 0 && npz.left > NPZ_ARRAYS_MAX)
        r = dl_error_set(&why, E2BIG, "", "has %u arrays, and may have %d; divide it", npz.left,
                         NPZ_ARRAYS_MAX);
    if (r == 0)
        sample_begin(ret, TREE_DICT, f->key);
    while (r == 0 && ret->error == 0) {
        r = npz_next(&npz, &member, &why);
        if (r == 0)
            r = tar_fields_add_npz_member(&member, dict, ret, &why);
    }
    if (why.code)
        return tar_field_error(f, why.code, err, "%s", why.message);
    return sample_end(ret);
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
