#include "daemon/data/decode/audio/audio_field.h"

int audio_field_decoder(const struct spec_dataset *spec, const char *place,
                        struct audio_decoder **ret, struct dl_error *err)
{
    *ret = NULL;
    return spec->decode && spec->n_audio > 0 ? audio_decoder_new(spec, place, ret, err) : 0;
}

static int audio_field_decode(const struct audio_field *field, const uint8_t *data, uint64_t bytes,
                              const char *name, struct sample *ret, struct dl_error *err)
{
    const struct audio_source source = {.data = data, .fd = -1, .bytes = bytes, .path = ""};
    const struct sample_key *key = field->key;
    struct audio_shape shape;
    uint64_t dimensions[2];
    uint32_t ndim;
    struct rng rng;

    rng_init(&rng, key->seed, key->epoch, key->base + field->index);
    int r = audio_open(field->decoder, &source, &rng, &shape, err);
    if (r < 0)
        return r;
    void *numbers = sample_alloc(ret, audio_bytes(field->decoder, &shape));
    if (!numbers)
        return ret->error;
    audio_read(field->decoder, numbers);
    audio_dimensions(field->decoder, &shape, &ndim, dimensions);
    return sample_tensor(ret, name, audio_dtype(field->decoder), ndim, dimensions, numbers);
}

int audio_field_add(const struct audio_field *field, const uint8_t *data, uint64_t bytes,
                    const char *name, struct sample *ret, struct dl_error *err)
{
    struct dl_error why; /* large: not cleared for each sound */

    why.code = 0;
    int r = audio_field_decode(field, data, bytes, name, ret, &why);
    return why.code ? dl_error_set(err, why.code, "", "is a sound that cannot be read: it %s",
                                   why.message)
                    : r;
}
