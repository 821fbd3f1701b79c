#include "daemon/data/decode/audio/audio.h"

#include "daemon/data/decode/audio/audio_resample.h"

#include <errno.h>
#include <math.h>

enum {
    CHUNK_FRAMES = 65536, /* decoded at a time */
    RESAMPLERS = 4,
    INT16_SCALE = 32768,
    BLOCK_NUMBERS = 1024, /* made int16 at a time; at least AUDIO_CHANNELS_MAX */
};

struct audio_decoder {
    struct spec_audio spec;
    uint32_t dtype;          /* float32 or int16 */
    struct audio_file *file; /* owned */
    void *values;            /* owned; decoded: int16 if `as_int16`, else float */
    uint64_t values_room;    /* numbers */
    struct audio_resampler resamplers[RESAMPLERS]; /* owned; `from` 0: none yet */
    uint32_t rates[RESAMPLERS][2];                 /* which, from and to */
    uint32_t next;                                 /* the one that is replaced next */

    /* Of the file that is open. */
    struct audio_info info;
    const char *path;                  /* borrowed */
    struct audio_resampler *resampler; /* borrowed; NULL: its rate stays */
    bool as_int16;                     /* its integers are copied */
    uint32_t channels;                 /* of `values` and of the result */
    uint64_t first;                    /* frame of the source that `values` begin with */
    uint64_t frames;                   /* in them */
    uint64_t skip;                     /* of the whole result before what is wanted */
    uint64_t take;                     /* frames of it that are wanted; then comes silence */
    uint64_t result;                   /* frames of the result */
};

int audio_decoder_new(const struct spec_dataset *spec, const char *place,
                      struct audio_decoder **ret, struct dl_error *err)
{
    struct audio_decoder *decoder = calloc(1, sizeof *decoder);

    if (!decoder)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    decoder->spec = spec->audio;
    decoder->dtype = spec->dtype;
    int r = audio_file_new(place, &decoder->file, err);
    *ret = r < 0 ? audio_decoder_free(decoder) : decoder;
    return r;
}

struct audio_decoder *audio_decoder_free(struct audio_decoder *decoder)
{
    if (!decoder)
        return NULL;
    audio_file_free(decoder->file);
    for (size_t i = 0; i < RESAMPLERS; i++)
        audio_resampler_deinit(&decoder->resamplers[i]);
    free(decoder->values);
    free(decoder);
    return NULL;
}

bool audio_is_fixed(const struct audio_decoder *decoder, struct audio_shape *ret)
{
    const struct spec_audio *spec = &decoder->spec;

    *ret = (struct audio_shape){.frames = spec->frames, .channels = 1, .rate = spec->rate};
    return spec->frames > 0 && spec->channels == AUDIO_MONO;
}

uint32_t audio_dtype(const struct audio_decoder *decoder)
{
    return decoder->dtype;
}

static uint64_t audio_number_bytes(const struct audio_decoder *decoder)
{
    return decoder->dtype == DL_DTYPE_INT16 ? sizeof(int16_t) : sizeof(float);
}

uint64_t audio_bytes(const struct audio_decoder *decoder, const struct audio_shape *shape)
{
    return shape->frames * shape->channels * audio_number_bytes(decoder);
}

void audio_dimensions(const struct audio_decoder *decoder, const struct audio_shape *shape,
                      uint32_t *ret_ndim, uint64_t ret[static 2])
{
    *ret_ndim = decoder->spec.channels == AUDIO_MONO ? 1 : 2;
    ret[0] = shape->frames;
    ret[1] = shape->channels;
}

static int audio_no_memory(const struct audio_decoder *decoder, struct dl_error *err)
{
    return dl_error_set(err, ENOMEM, decoder->path, "out of memory for its sound");
}

static int audio_too_large(const struct audio_decoder *decoder, struct dl_error *err)
{
    return dl_error_set(err, EFBIG, decoder->path,
                        "has more than %llu values; divide it, or write frames: n",
                        (ull)AUDIO_VALUES_MAX);
}

/* ---- which frames --------------------------------------------------------------------------- */

/* The filter for the file's rate, if it is another one than the spec's. */
static int audio_find_resampler(struct audio_decoder *decoder, struct dl_error *err)
{
    uint32_t from = decoder->info.rate, to = decoder->spec.rate;

    decoder->resampler = NULL;
    if (to == 0 || from == to)
        return 0;
    for (uint32_t i = 0; i < RESAMPLERS; i++) {
        if (decoder->rates[i][0] == from && decoder->rates[i][1] == to)
            decoder->resampler = &decoder->resamplers[i];
    }
    if (decoder->resampler)
        return 0;
    uint32_t i = decoder->next++ % RESAMPLERS;
    audio_resampler_deinit(&decoder->resamplers[i]);
    decoder->rates[i][0] = 0;
    if (audio_resampler_init(&decoder->resamplers[i], from, to) < 0)
        return audio_no_memory(decoder, err);
    decoder->rates[i][0] = from;
    decoder->rates[i][1] = to;
    decoder->resampler = &decoder->resamplers[i];
    return 0;
}

/* Opens it, and says what is done with it. */
static int audio_begin(struct audio_decoder *decoder, const struct audio_source *source,
                       struct dl_error *err)
{
    const struct spec_audio *spec = &decoder->spec;
    const struct audio_info *info = &decoder->info;
    int r;

    decoder->path = source->path;
    if ((r = audio_file_open(decoder->file, source, &decoder->info, err)) < 0 ||
        (r = audio_find_resampler(decoder, err)) < 0)
        return r;
    decoder->channels = spec->channels == AUDIO_MONO ? 1 : info->channels;
    decoder->as_int16 = decoder->dtype == DL_DTYPE_INT16 && info->is_int && !decoder->resampler &&
                        decoder->channels == info->channels;
    return 0;
}

static bool audio_is_too_long(uint64_t frames)
{
    return frames != AUDIO_FRAMES_UNKNOWN && frames > UINT32_MAX;
}

/* How many frames the whole result has, of `frames` of the file. */
static uint64_t audio_whole(const struct audio_decoder *decoder, uint64_t frames)
{
    return decoder->resampler ? audio_resampler_length(decoder->resampler, frames) : frames;
}

static void audio_choose(struct audio_decoder *decoder, uint64_t whole, struct rng *rng)
{
    const struct spec_audio *spec = &decoder->spec;
    uint64_t more = spec->frames && whole > spec->frames ? whole - spec->frames : 0;

    decoder->result = spec->frames ? spec->frames : whole;
    decoder->take = whole - more;
    decoder->skip = 0;
    if (more > 0 && spec->crop == AUDIO_CROP_RANDOM)
        decoder->skip = rng_below(rng, more + 1);
    else if (more > 0 && spec->crop == AUDIO_CROP_CENTER)
        decoder->skip = more / 2;
}

/* Which frames of the file the wanted ones are made of. */
static void audio_needs(const struct audio_decoder *decoder, uint64_t length, uint64_t *ret_first,
                        uint64_t *ret_end)
{
    *ret_first = decoder->skip;
    *ret_end = decoder->skip + decoder->take;
    if (decoder->resampler)
        audio_resampler_needs(decoder->resampler, length, decoder->skip, decoder->take, ret_first,
                              ret_end);
}

/* ---- decoding ------------------------------------------------------------------------------- */

static int audio_make_room(struct audio_decoder *decoder, uint64_t values, struct dl_error *err)
{
    if (values <= decoder->values_room)
        return 0;
    if (values > AUDIO_VALUES_MAX + (uint64_t)CHUNK_FRAMES * AUDIO_CHANNELS_MAX)
        return audio_too_large(decoder, err);
    uint64_t room = values + values / 2;
    void *memory = realloc(decoder->values, room * sizeof(float));
    if (!memory)
        return audio_no_memory(decoder, err);
    decoder->values = memory;
    decoder->values_room = room;
    return 0;
}

/* Each frame becomes the mean of its channels. In place: what is written lies before what is read.
 */
static void audio_mix(float *values, uint64_t frames, uint32_t channels)
{
    for (uint64_t i = 0; i < frames; i++) {
        double sum = 0;
        for (uint32_t c = 0; c < channels; c++)
            sum += (double)values[i * channels + c];
        values[i] = (float)(sum / channels);
    }
}

/* Up to `n` more frames. *ret: how many came. */
static int audio_decode_chunk(struct audio_decoder *decoder, size_t n, size_t *ret,
                              struct dl_error *err)
{
    uint64_t at = decoder->frames * decoder->channels;
    int r = audio_make_room(decoder, at + (uint64_t)n * decoder->info.channels, err);

    if (r < 0)
        return r;
    if (decoder->as_int16)
        return audio_file_read_int16(decoder->file, (int16_t *)decoder->values + at, n, ret, err);
    float *values = (float *)decoder->values + at;
    r = audio_file_read_float(decoder->file, values, n, ret, err);
    if (r == 0 && decoder->channels < decoder->info.channels)
        audio_mix(values, *ret, decoder->info.channels);
    return r;
}

/* Frames first..end-1 of the file; an `end` that is not known is where it ends. */
static int audio_decode(struct audio_decoder *decoder, uint64_t first, uint64_t end,
                        struct dl_error *err)
{
    int r = first > 0 ? audio_file_seek(decoder->file, first, err) : 0;

    decoder->first = first;
    decoder->frames = 0;
    while (r == 0 && first + decoder->frames < end) {
        size_t n = (size_t)min_u64(CHUNK_FRAMES, end - first - decoder->frames), got = 0;
        r = audio_decode_chunk(decoder, n, &got, err);
        decoder->frames += got;
        if (r < 0 || got == n)
            continue;
        if (end == AUDIO_FRAMES_UNKNOWN)
            break;
        return dl_error_set(err, EINVAL, decoder->path,
                            "ends after %llu of its %llu frames; it is truncated",
                            (ull)first + decoder->frames, (ull)decoder->info.frames);
    }
    return r;
}

int audio_open(struct audio_decoder *decoder, const struct audio_source *source, struct rng *rng,
               struct audio_shape *ret, struct dl_error *err)
{
    uint64_t first, end;
    int r = audio_begin(decoder, source, err);

    if (r < 0)
        return r;
    uint64_t length = decoder->info.frames;
    bool is_known = length != AUDIO_FRAMES_UNKNOWN;
    if (!is_known && (r = audio_decode(decoder, 0, AUDIO_FRAMES_UNKNOWN, err)) < 0)
        return r;
    length = is_known ? length : decoder->frames;
    if (audio_is_too_long(length))
        return audio_too_large(decoder, err);
    audio_choose(decoder, audio_whole(decoder, length), rng);
    audio_needs(decoder, length, &first, &end);
    if (is_known && (r = audio_decode(decoder, first, end, err)) < 0)
        return r;
    audio_file_close(decoder->file);
    if (decoder->result > AUDIO_VALUES_MAX / decoder->channels)
        return audio_too_large(decoder, err);
    *ret =
        (struct audio_shape){.frames = decoder->result,
                             .channels = decoder->channels,
                             .rate = decoder->spec.rate ? decoder->spec.rate : decoder->info.rate};
    return 0;
}

int audio_look(struct audio_decoder *decoder, const struct audio_source *source,
               struct audio_shape *ret, struct dl_error *err)
{
    int r = audio_begin(decoder, source, err);

    if (r < 0)
        return r;
    audio_file_close(decoder->file);
    uint64_t frames = decoder->info.frames;
    if (audio_is_too_long(frames))
        return audio_too_large(decoder, err);
    if (decoder->spec.frames)
        frames = decoder->spec.frames;
    else if (frames != AUDIO_FRAMES_UNKNOWN)
        frames = audio_whole(decoder, frames);
    *ret =
        (struct audio_shape){.frames = frames,
                             .channels = decoder->channels,
                             .rate = decoder->spec.rate ? decoder->spec.rate : decoder->info.rate};
    return 0;
}

/* ---- the result ----------------------------------------------------------------------------- */

static int16_t audio_to_int16(float value)
{
    double scaled = rint((double)value * INT16_SCALE);

    if (!(scaled > INT16_MIN)) /* no number is silence */
        return isnan(scaled) ? 0 : INT16_MIN;
    return scaled < INT16_MAX ? (int16_t)scaled : INT16_MAX;
}

/* Frame skip + i of the whole result is out[i·channels]. */
static void audio_resample_channels(const struct audio_decoder *decoder, uint64_t skip, uint64_t n,
                                    float *out)
{
    for (uint32_t c = 0; c < decoder->channels; c++) {
        const struct audio_span span = {.data = (const float *)decoder->values + c,
                                        .first = decoder->first,
                                        .n = decoder->frames,
                                        .stride = decoder->channels};
        audio_resampler_run(decoder->resampler, &span, skip, n, out + c, decoder->channels);
    }
}

static void audio_read_int16(const struct audio_decoder *decoder, int16_t *out)
{
    float block[BLOCK_NUMBERS];
    uint64_t step = BLOCK_NUMBERS / decoder->channels;

    for (uint64_t i = 0; i < decoder->take; i += step) {
        uint64_t n = min_u64(step, decoder->take - i);
        uint64_t at = (decoder->skip + i - decoder->first) * decoder->channels;
        const float *from = decoder->resampler ? block : (const float *)decoder->values + at;
        if (decoder->resampler)
            audio_resample_channels(decoder, decoder->skip + i, n, block);
        for (uint64_t k = 0; k < n * decoder->channels; k++)
            *out++ = audio_to_int16(from[k]);
    }
}

/* What was decoded is what is wanted: int16 or float, as it lies. */
static void audio_copy(const struct audio_decoder *decoder, void *out)
{
    uint64_t bytes = audio_number_bytes(decoder) * decoder->channels;
    uint64_t begin = decoder->skip - decoder->first;

    memcpy(out, (const char *)decoder->values + begin * bytes, decoder->take * bytes);
}

void audio_read(struct audio_decoder *decoder, void *out)
{
    uint64_t bytes = audio_number_bytes(decoder) * decoder->channels;
    uint64_t silence = decoder->result - decoder->take;

    if (decoder->dtype == DL_DTYPE_INT16 && !decoder->as_int16)
        audio_read_int16(decoder, out);
    else if (decoder->resampler)
        audio_resample_channels(decoder, decoder->skip, decoder->take, out);
    else if (decoder->take > 0)
        audio_copy(decoder, out);
    memset((char *)out + decoder->take * bytes, 0, silence * bytes);
}
