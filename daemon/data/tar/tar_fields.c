/* What becomes of a member by its extension. */
#include "daemon/data/arrays/array.h"
#include "daemon/data/tar/tar_sample.h"

#include <ctype.h>
#include <errno.h>

enum { NUMBER_DIGITS = 64 };

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
    struct array_header header = {0};
    struct dl_error why = {0};
    int r;

    if ((r = npy_parse(f->data, f->size, f->path, &header, &why)) < 0 ||
        (r = array_header_fits(&header, f->size, f->path, &why)) < 0)
        return tar_field_error(f, -r, err, "cannot be read: it %s", why.message);
    return sample_tensor(ret, f->key, header.dtype, header.ndim, header.shape,
                         f->data + header.data_off);
}

static int tar_fields_add_json(const struct tar_field *f, const struct tar_options *options,
                               const struct tar_randomness *randomness, struct sample *ret,
                               struct dl_error *err)
{
    return tar_add_json(f, ret, err);
}

static int tar_fields_add_image(const struct tar_field *f, const struct tar_options *options,
                                const struct tar_randomness *randomness, struct sample *ret,
                                struct dl_error *err)
{
    struct image_file file = {.data = f->data, .bytes = f->size, .path = f->path};
    const struct sample_key *key = &randomness->key;
    struct dl_error why = {0};
    struct image_size size;
    struct rng rng;
    uint64_t shape[3];
    uint8_t *pixels = NULL;
    int r;

    r = image_open(options->decoder, &file, &size, &why);
    if (r == 0) {
        size = image_result(options->image, size);
        image_shape(options->image, size, shape);
        pixels = sample_alloc(ret, shape[0] * shape[1] * shape[2]);
        if (!pixels)
            return ret->error;
        rng_init(&rng, key->seed, key->epoch, key->base + randomness->index);
        r = image_decode(options->decoder, options->image, &rng, pixels, &why);
    }
    if (r < 0)
        return tar_field_error(f, -r, err, "is an image that cannot be read: it %s", why.message);
    return sample_tensor(ret, f->key, DL_DTYPE_UINT8, 3, shape, pixels);
}

static const struct {
    const char *extension;
    add_fn add;
} decoders[] = {
    {"jpg", tar_fields_add_image},    {"jpeg", tar_fields_add_image},
    {"png", tar_fields_add_image},    {"cls", tar_fields_add_integer},
    {"cls2", tar_fields_add_integer}, {"index", tar_fields_add_integer},
    {"id", tar_fields_add_integer},   {"txt", tar_fields_add_string},
    {"text", tar_fields_add_string},  {"json", tar_fields_add_json},
    {"npy", tar_fields_add_npy},
};

int tar_add_field(const struct tar_field *f, const struct tar_options *options,
                  const struct tar_randomness *randomness, struct sample *ret, struct dl_error *err)
{
    for (size_t i = 0; options->decode && i < ARRAY_SIZE(decoders); i++) {
        if (strcmp(f->extension, decoders[i].extension) == 0)
            return decoders[i].add(f, options, randomness, ret, err);
    }
    return tar_fields_add_bytes(f, ret);
}
