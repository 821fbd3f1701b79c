#include "daemon/data/decode/image/image_field.h"

#include "daemon/data/base/rng.h"

int image_field_decoder(const struct spec_dataset *spec, const char *place,
                        struct image_decoder **ret, struct dl_error *err)
{
    int r = spec->decode ? image_check_spec(&spec->image, place, err) : 0;

    *ret = NULL;
    return r < 0 || !spec->decode ? r : image_decoder_new(ret, err);
}

static int image_field_decode(const struct image_field *field, const struct image_file *file,
                              const char *name, struct sample *ret, struct dl_error *err)
{
    const struct sample_key *key = field->key;
    struct image_size size;
    struct rng rng;
    uint64_t shape[3];
    uint8_t *pixels;
    int r = image_open(field->decoder, file, &size, err);

    if (r < 0)
        return r;
    size = image_result(field->spec, size);
    image_shape(field->spec, size, shape);
    pixels = sample_alloc(ret, shape[0] * shape[1] * shape[2]);
    if (!pixels)
        return ret->error;
    rng_init(&rng, key->seed, key->epoch, key->base + field->index);
    r = image_decode(field->decoder, field->spec, &rng, pixels, err);
    return r < 0 ? r : sample_tensor(ret, name, DL_DTYPE_UINT8, 3, shape, pixels);
}

int image_field_add(const struct image_field *field, const struct image_file *file,
                    const char *name, struct sample *ret, struct dl_error *err)
{
    struct dl_error why; /* large: not cleared for each image */

    why.code = 0;
    int r = image_field_decode(field, file, name, ret, &why);
    return why.code ? dl_error_set(err, why.code, "", "is an image that cannot be read: it %s",
                                   why.message)
                    : r;
}
