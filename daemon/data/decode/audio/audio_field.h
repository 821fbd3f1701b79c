/*
 * A file of sound that is a field of a record, of whatever format: decoded as the spec says, at the
 * end of a sample.
 */
#ifndef DL_DATA_AUDIO_FIELD_H
#define DL_DATA_AUDIO_FIELD_H

#include "daemon/data/base/dataset.h"
#include "daemon/data/decode/audio/audio.h"

/* How the sounds of one sample are decoded. What is random in them is drawn for sample `index` of
 * `key`, for each sound of the sample anew from the beginning: all get the same numbers. */
struct audio_field {
    struct audio_decoder *decoder; /* borrowed */
    const struct sample_key *key;  /* borrowed */
    uint64_t index;
};

/* The decoder of a dataset's sounds, which is the caller's to free; NULL where `spec` has none.
 * Errors name what is below `place`. */
int _nodiscard_ audio_field_decoder(const struct spec_dataset *spec, const char *place,
                                    struct audio_decoder **ret, struct dl_error *err);

/*
 * Adds the sound in `bytes` of memory at `data`, a tensor as audio.h has it, under `name` (NULL
 * below a list). 0; or a negative errno with `err`, without a path, whose message continues the
 * field's name: "is a sound that cannot be read: it is truncated". An error of the sample's own is
 * not in `err`, and sticks in `ret`.
 */
int _nodiscard_ audio_field_add(const struct audio_field *field, const uint8_t *data,
                                uint64_t bytes, const char *name, struct sample *ret,
                                struct dl_error *err);

#endif
