#include "daemon/data/field/field.h"

#include "daemon/data/base/rng.h"
#include "daemon/data/decode/image/image_raw.h"
#include "daemon/data/field/json_field.h"

#include <errno.h>

/* ---- of a dataset --------------------------------------------------------------------------- */

int fields_open(struct fields *fields, const struct spec_dataset *spec, bool has_pictures,
                const char *place, struct dl_error *err)
{
    int r;

    fields->decode = spec->decode;
    fields->image = spec->image;
    if ((r = field_choice_init(&fields->choice, spec, place, err)) < 0 ||
        (r = field_names_copy(&fields->pictures, spec->images, spec->n_images, place, err)) < 0 ||
        (r = field_names_copy(&fields->sounds, spec->audios, spec->n_audio, place, err)) < 0)
        return r;
    if (spec->decode && has_pictures &&
        ((r = image_check_spec(&spec->image, place, err)) < 0 ||
         (r = image_decoder_new(&fields->images, err)) < 0))
        return r;
    return spec->decode && spec->n_audio > 0 ? audio_decoder_new(spec, place, &fields->audio, err)
                                             : 0;
}

void fields_close(struct fields *fields)
{
    image_decoder_free(fields->images);
    audio_decoder_free(fields->audio);
    field_names_deinit(&fields->pictures);
    field_names_deinit(&fields->sounds);
    field_choice_deinit(&fields->choice);
    *fields = (struct fields){0};
}

/* ---- pictures and sounds -------------------------------------------------------------------- */

static struct rng field_rng(const struct decoding *decoding)
{
    const struct sample_key *key = decoding->key;
    struct rng rng;

    rng_init(&rng, key->seed, key->epoch, key->base + decoding->index);
    return rng;
}

static int field_decode_image(const struct field *field, const struct decoding *decoding,
                              struct sample *ret, struct dl_error *err)
{
    const struct image_file file = {.data = field->data, .bytes = field->bytes, .path = ""};
    const struct fields *fields = decoding->fields;
    struct rng rng = field_rng(decoding);
    struct image_size size;
    uint64_t shape[3];
    int r = image_open(fields->images, &file, &size, err);

    if (r < 0)
        return r;
    image_shape(&fields->image, image_result(&fields->image, size), shape);
    uint8_t *pixels = sample_alloc(ret, shape[0] * shape[1] * shape[2]);
    if (!pixels)
        return ret->error;
    r = image_decode(fields->images, &fields->image, &rng, pixels, err);
    return r < 0 ? r : sample_tensor(ret, field->name, DL_DTYPE_UINT8, 3, shape, pixels);
}

static int field_decode_sound(const struct field *field, const struct decoding *decoding,
                              struct sample *ret, struct dl_error *err)
{
    const struct audio_source source = {
        .data = field->data, .fd = -1, .bytes = field->bytes, .path = ""};
    struct audio_decoder *decoder = decoding->fields->audio;
    struct rng rng = field_rng(decoding);
    struct audio_shape shape;
    uint64_t dimensions[2];
    uint32_t ndim;
    int r = audio_open(decoder, &source, &rng, &shape, err);

    if (r < 0)
        return r;
    void *numbers = sample_alloc(ret, audio_bytes(decoder, &shape));
    if (!numbers)
        return ret->error;
    audio_read(decoder, numbers);
    audio_dimensions(decoder, &shape, &ndim, dimensions);
    return sample_tensor(ret, field->name, audio_dtype(decoder), ndim, dimensions, numbers);
}

static int field_add_media(const struct field *field, const struct decoding *decoding,
                           struct sample *ret, struct dl_error *err)
{
    bool is_image = field->sort == FIELD_IMAGE;
    struct dl_error why; /* large: not cleared for each */

    why.code = 0;
    int r = is_image ? field_decode_image(field, decoding, ret, &why)
                     : field_decode_sound(field, decoding, ret, &why);
    return why.code ? dl_error_set(err, why.code, "", "is %s that cannot be read: it %s",
                                   is_image ? "an image" : "a sound", why.message)
                    : r;
}

/* ---- any field ------------------------------------------------------------------------------ */

/* What it becomes here: bytes where its sort is not decoded. */
static enum field_sort field_sort_of(const struct field *field, const struct decoding *decoding)
{
    const struct fields *fields = decoding ? decoding->fields : NULL;
    bool decodes = true;

    if (field->sort == FIELD_IMAGE || field->sort == FIELD_PIXELS)
        decodes = fields && fields->images;
    else if (field->sort == FIELD_SOUND)
        decodes = fields && fields->audio;
    else if (field->sort == FIELD_JSON)
        decodes = fields && fields->decode;
    return decodes ? field->sort : FIELD_BYTES;
}

int field_add(const struct field *field, const struct decoding *decoding, struct sample *ret,
              struct dl_error *err)
{
    int r;

    switch (field_sort_of(field, decoding)) {
    case FIELD_TEXT:
        r = sample_text(ret, TREE_STRING, field->name, field->data, field->bytes);
        return r == -EILSEQ ? dl_error_set(err, EILSEQ, "", "is not UTF-8") : r;
    case FIELD_IMAGE:
    case FIELD_SOUND:
        return field_add_media(field, decoding, ret, err);
    case FIELD_PIXELS:
        return image_raw_add(field->data, field->bytes, &decoding->fields->image, field->name, ret,
                             err);
    case FIELD_JSON:
        return json_field_add(field->data, field->bytes, field->name, ret, err);
    case FIELD_BYTES:
        break;
    }
    return sample_text(ret, TREE_BYTES, field->name, field->data, field->bytes);
}

int field_refuse_size(const struct field *field, const char *format, struct dl_error *err)
{
    return dl_error_set(err, EINVAL, "", "has %llu bytes, which \"%s\" cannot have",
                        (ull)field->bytes, format);
}

int field_add_array(const struct field *field, const struct field_array *array, const char *format,
                    struct sample *ret, struct dl_error *err)
{
    uint64_t bytes;

    if (!tensor_bytes(array->dtype, array->ndim, array->shape, &bytes) ||
        bytes != (uint64_t)(field->data + field->bytes - array->elements))
        return field_refuse_size(field, format, err);
    return sample_tensor(ret, field->name, array->dtype, array->ndim, array->shape,
                         array->elements);
}
