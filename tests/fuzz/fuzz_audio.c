/*
 * Files of sound, of any bytes: each is a sound of the shape that it was said to have, or an error
 * that names it. What libsndfile makes of them is played as well, where there is one; the harness
 * does not see into it.
 */
#include "daemon/data/decode/audio/audio.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>

enum { LARGEST = 1 << 13, FRAMES = 500, FRAMES_MAX = 1 << 20 };

static const struct spec_dataset specs[] = {
    {.dtype = DL_DTYPE_FLOAT32, .audio = {.channels = AUDIO_KEEP}},
    {.dtype = DL_DTYPE_INT16,
     .audio = {.channels = AUDIO_MONO, .rate = 16000, .frames = FRAMES, .crop = AUDIO_CROP_RANDOM}},
};

static void play(const struct spec_dataset *spec, const struct audio_source *source)
{
    struct audio_decoder *decoder = NULL;
    struct audio_shape look, shape;
    struct dl_error err = {0};
    struct rng rng;

    if (audio_decoder_new(spec, "fuzz", &decoder, &err) < 0)
        return; /* there is no libsndfile */
    rng_init(&rng, 1, 2, source->bytes);
    int r = audio_look(decoder, source, &look, &err);
    FUZZ_ASSERT(r == 0 || (r == -err.code && err.message[0]));
    if (r == 0 && (look.frames <= FRAMES_MAX || look.frames == AUDIO_FRAMES_UNKNOWN)) {
        r = audio_open(decoder, source, &rng, &shape, &err);
        FUZZ_ASSERT(r == 0 || (r == -err.code && err.message[0]));
        FUZZ_ASSERT(r < 0 || look.frames == AUDIO_FRAMES_UNKNOWN || shape.frames == look.frames);
        uint8_t *out = r == 0 ? malloc(audio_bytes(decoder, &shape) + 1) : NULL;
        if (out)
            audio_read(decoder, out);
        free(out);
    }
    audio_decoder_free(decoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct audio_source source = {.data = data, .fd = -1, .bytes = size, .path = "fuzz"};

    for (size_t i = 0; i < ARRAY_SIZE(specs) && size <= LARGEST; i++)
        play(&specs[i], &source);
    return 0;
}
