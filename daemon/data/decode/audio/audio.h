/*
 * From the bytes of a file of sound to a sample's numbers: decoded, its channels mixed to one if
 * the spec says so, brought to the spec's rate, cut or filled up to its length, as float32 (±1 is
 * full scale) or int16.
 *
 * A result is [frames], or with `channels: keep` [frames, channels]: frames come first, as lengths
 * are compared, and padded, by the first dimension. Only what a crop needs is decoded.
 *
 * What WAV and FLAC give is the same on every machine; the codecs of Ogg and MP3 compute in floats,
 * and their results may differ in the last bit from one build of them to another.
 *
 * A file that is cut or corrupt is an error; memory is taken as frames are decoded, not as a header
 * says. Not thread-safe: one decoder for each thread.
 */
#ifndef DL_DATA_AUDIO_H
#define DL_DATA_AUDIO_H

#include "daemon/data/base/rng.h"
#include "daemon/data/decode/audio/audio_file.h"
#include "proto/spec.h"

/* Numbers of one sound, decoded or brought to another rate: 1 GiB of float32. */
#define AUDIO_VALUES_MAX ((uint64_t)1 << 28)

struct audio_decoder; /* the file, its numbers, and filters for a few rates, kept from one to the
                         next */

/* The numbers of a result. */
struct audio_shape {
    uint64_t frames;
    uint32_t channels;
    uint32_t rate; /* frames a second */
};

/* By the audio keys of `spec`, which are copied. -ENOTSUP: there is no libsndfile; -ENOMEM; errors
 * name `place`. */
int _nodiscard_ audio_decoder_new(const struct spec_dataset *spec, const char *place,
                                  struct audio_decoder **ret, struct dl_error *err);
struct audio_decoder *audio_decoder_free(struct audio_decoder *decoder); /* NULL in, NULL out */

/* The shape of all results, if the spec says it: of one channel, and a length. */
bool audio_is_fixed(const struct audio_decoder *decoder, struct audio_shape *ret);

/* A result as a leaf: its dtype, the bytes of a number, and *ret_ndim dimensions. */
uint32_t audio_dtype(const struct audio_decoder *decoder);
uint64_t audio_bytes(const struct audio_decoder *decoder, const struct audio_shape *shape);
void audio_dimensions(const struct audio_decoder *decoder, const struct audio_shape *shape,
                      uint32_t *ret_ndim, uint64_t ret[static 2]);

/*
 * Decodes what is needed of `source`. `rng` is the sample's, at its beginning; a random crop draws
 * one number of it. Errors name source->path, and continue "it": -EINVAL not a file of sound,
 * corrupt, truncated; -EFBIG more than AUDIO_VALUES_MAX; -EIO; -ENOMEM.
 */
int _nodiscard_ audio_open(struct audio_decoder *decoder, const struct audio_source *source,
                           struct rng *rng, struct audio_shape *ret, struct dl_error *err);

/* Once, after audio_open() succeeded: writes the result, frames · channels numbers. */
void audio_read(struct audio_decoder *decoder, void *out);

/*
 * The shape alone, by the header; frames are AUDIO_FRAMES_UNKNOWN where that does not say. As
 * audio_open().
 */
int _nodiscard_ audio_look(struct audio_decoder *decoder, const struct audio_source *source,
                           struct audio_shape *ret, struct dl_error *err);

#endif
