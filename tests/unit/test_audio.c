/* Sound: what a file says, decoding, cuts, and what is refused. */
#include "tests/unit/audio_files.h"

#include <math.h>

BEFORE_TESTS
{
    if (!can_decode())
        exit(77);
}

#define NOT_READ "is neither a WAV, FLAC, Ogg nor MP3 file; \"ffmpeg -i IN out.flac\" makes FLAC"

static struct audio_decoder *must_decoder(const struct spec_dataset *spec)
{
    struct audio_decoder *decoder = NULL;
    struct dl_error err = {0};

    if (audio_decoder_new(spec, "dataset", &decoder, &err) < 0)
        fail_msg("%s", err.message);
    return decoder;
}

static struct audio_source source_of(const struct bytes *bytes)
{
    return (struct audio_source){.data = bytes->data, .fd = -1, .bytes = bytes->n, .path = "sound"};
}

static void must_decode(const struct spec_dataset *spec, const struct bytes *bytes, uint64_t index,
                        struct audio_shape *ret, void *out)
{
    struct audio_decoder *decoder = must_decoder(spec);
    struct audio_source source = source_of(bytes);
    struct audio_shape look;
    struct dl_error err = {0};
    struct rng rng;

    rng_init(&rng, key.seed, key.epoch, index);
    if (audio_open(decoder, &source, &rng, ret, &err) < 0)
        fail_msg("%s", err.message);
    audio_read(decoder, out);
    assert_int_equal(audio_look(decoder, &source, &look, &err), 0);
    if (look.frames != AUDIO_FRAMES_UNKNOWN)
        assert_int_equal(look.frames, ret->frames);
    assert_int_equal(look.channels, ret->channels);
    assert_int_equal(look.rate, ret->rate);
    audio_decoder_free(decoder);
}

TEST(test_pcm)
{
    static const int16_t stereo[] = {0, 2, 100, -100, 32767, 32767, -32768, -32768, 1, 2, -3, 4};
    const struct wav wav = {PCM, 2, 8000, 16, stereo, sizeof stereo};
    struct spec_dataset spec = spec_of(DL_DTYPE_INT16, AUDIO_KEEP, 0, 0, 0);
    static struct bytes file;
    struct audio_shape shape;
    int16_t ints[12];
    float floats[12];

    make_wav(&file, &wav);
    must_decode(&spec, &file, 0, &shape, ints);
    assert_int_equal(shape.frames, 6);
    assert_int_equal(shape.channels, 2);
    assert_int_equal(shape.rate, 8000);
    assert_memory_equal(ints, stereo, sizeof stereo);
    spec = spec_of(DL_DTYPE_FLOAT32, AUDIO_KEEP, 0, 0, 0);
    must_decode(&spec, &file, 0, &shape, floats);
    for (int i = 0; i < 12; i++)
        assert_true(floats[i] == (float)stereo[i] / 32768);
    spec = spec_of(DL_DTYPE_FLOAT32, AUDIO_MONO, 0, 0, 0);
    must_decode(&spec, &file, 0, &shape, floats);
    assert_int_equal(shape.channels, 1);
    for (int i = 0; i < 6; i++)
        assert_true(floats[i] == (float)(stereo[2 * i] + stereo[2 * i + 1]) / 65536);
    /* Rounded to the nearest, halves to the even one. */
    spec = spec_of(DL_DTYPE_INT16, AUDIO_MONO, 0, 0, 0);
    must_decode(&spec, &file, 0, &shape, ints);
    assert_memory_equal(ints, ((int16_t[]){1, 0, 32767, -32768, 2, 0}), 12);
}

TEST(test_floats_to_int16)
{
    static const float numbers[] = {0, 0.5f, -1, 1, 2, -7, NAN, INFINITY, 1.5f / 32768};
    const struct wav wav = {FLOATS, 1, 8000, 32, numbers, sizeof numbers};
    struct spec_dataset spec = spec_of(DL_DTYPE_INT16, AUDIO_MONO, 0, 0, 0);
    static struct bytes file;
    struct audio_shape shape;
    int16_t out[ARRAY_SIZE(numbers)];

    make_wav(&file, &wav);
    must_decode(&spec, &file, 0, &shape, out);
    assert_int_equal(shape.frames, ARRAY_SIZE(numbers));
    assert_memory_equal(out, ((int16_t[]){0, 16384, -32768, 32767, 32767, -32768, 0, 32767, 2}),
                        sizeof out);
}

/* Which frames remain, and the silence behind what is too short. */
TEST(test_crops)
{
    int16_t ramp[100], out[130];
    const struct wav wav = {PCM, 1, 8000, 16, ramp, sizeof ramp};
    static struct bytes file;
    struct audio_shape shape;
    uint32_t seen[91] = {0}, different = 0;

    for (int i = 0; i < 100; i++)
        ramp[i] = (int16_t)(i + 1);
    make_wav(&file, &wav);
    struct spec_dataset spec = spec_of(DL_DTYPE_INT16, AUDIO_MONO, 0, 10, AUDIO_CROP_START);
    must_decode(&spec, &file, 0, &shape, out);
    assert_int_equal(shape.frames, 10);
    assert_memory_equal(out, ramp, 20);
    spec.audio.crop = AUDIO_CROP_CENTER;
    must_decode(&spec, &file, 0, &shape, out);
    assert_memory_equal(out, ramp + 45, 20);
    spec.audio.crop = AUDIO_CROP_RANDOM;
    for (uint64_t i = 0; i < 400; i++) {
        must_decode(&spec, &file, i, &shape, out);
        assert_in_range(out[0], 1, 91);
        assert_memory_equal(out, ramp + out[0] - 1, 20);
        different += seen[out[0] - 1]++ == 0;
    }
    assert_true(different > 75); /* of 91: all ends, too */
    assert_true(seen[0] > 0 && seen[90] > 0);
    spec.audio.frames = 130;
    must_decode(&spec, &file, 0, &shape, out);
    assert_memory_equal(out, ramp, sizeof ramp);
    for (int i = 100; i < 130; i++)
        assert_int_equal(out[i], 0);
}

/* A cut of a compressed sound, or of one at another rate, is that of the whole. */
TEST(test_cuts_of_the_whole)
{
    static const char *const names[] = {"stereo.flac", "24.flac", "unknown.flac", "pcm16.wav",
                                        "vorbis.ogg",  "vbr.mp3", "cbr.mp3",      "bare.mp3"};
    static float whole[16384], part[16384];
    static struct bytes file;
    struct audio_shape shape, cut;

    for (size_t i = 0; i < ARRAY_SIZE(names) * 3; i++) {
        uint32_t rate = (uint32_t[]){0, 11025, 48000}[i % 3];
        from_corpus(&file, names[i / 3]);
        struct spec_dataset spec = spec_of(DL_DTYPE_FLOAT32, AUDIO_KEEP, rate, 0, 0);
        must_decode(&spec, &file, 0, &shape, whole);
        spec.audio.frames = 57;
        spec.audio.crop = AUDIO_CROP_CENTER;
        must_decode(&spec, &file, 0, &cut, part);
        assert_int_equal(cut.frames, 57);
        assert_memory_equal(part, whole + (shape.frames - 57) / 2 * shape.channels,
                            57 * shape.channels * sizeof *part);
    }
}

TEST(test_codings)
{
    static const struct {
        const char *name;
        unsigned frames, channels, rate;
    } rows[] = {
        {"pcm16.wav", 300, 2, 8000},  {"pcm24.wav", 60, 2, 44100},
        {"float.wav", 60, 1, 16000},  {"u8.wav", 60, 2, 8000},
        {"alaw.wav", 60, 1, 8000},    {"extensible.wav", 60, 2, 8000},
        {"rf64.wav", 60, 2, 8000},    {"stereo.flac", 300, 2, 8000},
        {"24.flac", 300, 1, 22050},   {"unknown.flac", 300, 2, 8000},
        {"vorbis.ogg", 300, 1, 8000}, {"opus.opus", 300, 1, 8000},
        {"vbr.mp3", 2500, 1, 22050},  {"cbr.mp3", 3000, 2, 44100},
        {"bare.mp3", 4608, 1, 16000}, /* with the encoder's delay, of which it says nothing */
    };
    static float out[16384];
    static struct bytes file;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct spec_dataset spec = spec_of(DL_DTYPE_FLOAT32, AUDIO_KEEP, 0, 0, 0);
        struct audio_shape shape;
        double most = 0;
        from_corpus(&file, rows[i].name);
        must_decode(&spec, &file, 0, &shape, out);
        assert_int_equal(shape.frames, rows[i].frames);
        assert_int_equal(shape.channels, rows[i].channels);
        assert_int_equal(shape.rate, rows[i].rate);
        /* The same sine in all of them: half of full scale, as far as they keep it. */
        for (unsigned k = 0; k < rows[i].frames; k++)
            most = fmax(most, fabs((double)out[k * rows[i].channels]));
        assert_true(most > 0.4 && most < 0.6);
    }
}

/* ---- bad files ------------------------------------------------------------------------------ */

static void expect_refused(const struct bytes *bytes, int code, const char *says)
{
    struct spec_dataset spec = spec_of(DL_DTYPE_FLOAT32, AUDIO_MONO, 0, 0, 0);
    struct audio_decoder *decoder = must_decoder(&spec);
    struct audio_source source = source_of(bytes);
    struct audio_shape shape;
    struct dl_error err = {0};
    struct rng rng;

    rng_init(&rng, 0, 0, 0);
    assert_int_equal(audio_open(decoder, &source, &rng, &shape, &err), -code);
    assert_string_equal(err.path, "sound");
    assert_error_has(&err, says);
    audio_decoder_free(decoder);
}

TEST(test_heads)
{
    static const int16_t some[8];
    static const struct {
        struct wav wav;
        size_t at; /* so many bytes become the number; 0: none */
        uint64_t number;
        size_t bytes;
        const char *says;
    } rows[] = {
        {{ADPCM, 1, 8000, 4, some, 16}, 0, 0, 0, "is a WAV file of coding 0x0002; PCM, float"},
        {{PCM, 2, 8000, 16, some, 16},
         40,
         17,
         4,
         "should have 17 bytes of sound, but there are 16"},
        {{PCM, 2, 8000, 16, some, 16}, 0, 0x46464951, 4, NOT_READ},
        {{PCM, 2, 8000, 16, some, 16}, 0, 0x04334449, 4, "ends in its ID3 tag; it is truncated"},
        {{PCM, 2, 8000, 16, some, 16}, 0, 0x0090FBFF, 4, "it ends in the frame at byte 0"},
        {{PCM, 2, 8000, 16, some, 16},
         0,
         0x0090FDFF,
         4,
         "has no MP3 frame at byte 0"}, /* layer II */
        {{PCM, 2, 8000, 16, some, 16}, 12, 0x20202020, 4, "is a WAV file without a format"},
        {{PCM, 2, 8000, 16, some, 16}, 16, 4000, 4, "ends in its header, at byte 60"},
        {{PCM, 2, 8000, 16, some, 16}, 36, 0x20202020, 4, "ends in its header, at byte 60"},
        {{PCM, 65, 8000, 16, some, 16}, 0, 0, 0, "has 65 channels; 1 to 64 can be read"},
        {{PCM, 1, 800000, 16, some, 16}, 0, 0, 0, "has 800000 frames a second"},
        {{PCM, 0, 8000, 16, some, 16}, 0, 0, 0, "cannot be decoded: "},
    };
    static struct bytes file;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        make_wav(&file, &rows[i].wav);
        if (rows[i].number)
            memcpy(file.data + rows[i].at, &rows[i].number, rows[i].bytes);
        expect_refused(&file, EINVAL, rows[i].says);
    }
    file.n = 0;
    expect_refused(&file, EINVAL, "is empty");
    file.n = 5;
    expect_refused(&file, EINVAL, "has 5 bytes; it is truncated");
}

/* Headers with a flipped bit do not get to libsndfile. */
TEST(test_ogg)
{
    static const struct {
        const char *name;
        size_t at;
        const char *says;
    } rows[] = {
        {"opus.opus", 0, NOT_READ},
        {"opus.opus", 4, "has no Ogg page at byte 0"},
        {"opus.opus", 23, "has a wrong checksum in the page at byte 0"},
        {"opus.opus", 30, "has a wrong checksum in the page at byte 0"},
        {"opus.opus", 60, "has a wrong checksum in the page at byte 47"},
        {"vorbis.ogg", 100, "has a wrong checksum in the page at byte 58"},
        {"vorbis.ogg", 2000, "has a wrong checksum in the page at byte 58"},
    };
    static struct bytes file;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        from_corpus(&file, rows[i].name);
        file.data[rows[i].at] ^= 4;
        expect_refused(&file, EINVAL, rows[i].says);
    }
    from_corpus(&file, "vorbis.ogg");
    file.n = 1000;
    expect_refused(&file, EINVAL, "is truncated: it ends in the page at byte 58");
}

/* Of the decoded sound; AUDIO_FRAMES_UNKNOWN: it is refused. */
static uint64_t frames_of(const struct bytes *bytes)
{
    struct spec_dataset spec = spec_of(DL_DTYPE_FLOAT32, AUDIO_KEEP, 0, 0, 0);
    struct audio_decoder *decoder = must_decoder(&spec);
    struct audio_source source = source_of(bytes);
    struct audio_shape shape;
    struct dl_error err = {0};

    int r = audio_open(decoder, &source, NULL, &shape, &err);
    audio_decoder_free(decoder);
    assert_true(r == 0 || r == -EINVAL);
    return r == 0 ? shape.frames : AUDIO_FRAMES_UNKNOWN;
}

/* Cut anywhere: never a shorter sound. */
TEST(test_cut)
{
    static const char *const names[] = {"opus.opus", "vorbis.ogg", "rf64.wav",
                                        "pcm16.wav", "float.wav",  "stereo.flac",
                                        "24.flac",   "vbr.mp3",    "cbr.mp3"};
    static struct bytes file;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        from_corpus(&file, names[i]);
        uint64_t whole = frames_of(&file);
        assert_true(whole > 0 && whole < AUDIO_FRAMES_UNKNOWN);
        for (size_t n = file.n - 1; n > 0; n -= min_u64(n, 1 + n / 64)) {
            file.n = n;
            uint64_t frames = frames_of(&file);
            if (frames != whole) /* what is missing is behind the sound */
                assert_true(frames == AUDIO_FRAMES_UNKNOWN);
        }
        assert_true(frames_of(&file) == AUDIO_FRAMES_UNKNOWN);
    }
}

/* A page that libogg would leave out, and bytes that it would look at and drop. */
TEST(test_end_of_ogg)
{
    static struct bytes file;

    from_corpus(&file, "vorbis.ogg");
    uint8_t *last = file.data;
    for (uint8_t *at = last; at;
         at = memmem(at + 1, file.n - (size_t)(at + 1 - file.data), "OggS", 4))
        last = at;
    last[40] ^= 1;
    expect_refused(&file, EINVAL, "has a wrong checksum in the page at byte");
    from_corpus(&file, "vorbis.ogg");
    file.n = (size_t)(last - file.data);
    expect_refused(&file, EINVAL, "is not marked as the last");
    from_corpus(&file, "vorbis.ogg");
    memset(file.data + file.n, 'x', 5000);
    file.n += 5000;
    assert_true(frames_of(&file) != AUDIO_FRAMES_UNKNOWN);
}

/* Of an MP3 file, which has tags at both ends, and in which nothing says how long it is: cut where
 * a frame ends it is a shorter sound, which nobody can know; else an error. */
TEST(test_cut_of_frames)
{
    enum { TAG = 151, FRAME = 36, STEP = 576 };
    static struct bytes file;

    from_corpus(&file, "bare.mp3");
    assert_int_equal(file.n, TAG + 8 * FRAME + 128);
    for (file.n--; file.n >= TAG + 8 * FRAME + 3; file.n--)
        assert_int_equal(frames_of(&file), 8 * STEP);
    for (; file.n >= TAG + 2 * FRAME; file.n--) {
        if ((file.n - TAG) % FRAME == 0)
            assert_int_equal(frames_of(&file), (file.n - TAG) / FRAME * STEP);
        else
            expect_refused(&file, EINVAL, "is truncated: it ends in the frame at byte ");
    }
    for (; file.n > 12; file.n--)
        assert_true(frames_of(&file) == AUDIO_FRAMES_UNKNOWN);
}

TEST(test_frames_of_mp3)
{
    static const struct {
        const char *name;
        size_t at, n; /* so many bytes become `byte` */
        uint8_t byte;
        const char *says;
    } rows[] = {
        {"bare.mp3", 6, 4, 0x7F, "ends in its ID3 tag; it is truncated"},
        {"bare.mp3", 151, 1, 0, "has no MP3 frame at byte 151"},
        {"bare.mp3", 187, 1, 0, "has no MP3 frame at byte 187"},
        {"bare.mp3", 153, 1, 0xF8, "has no MP3 frame at byte 151"}, /* a rate that there is not */
        {"bare.mp3", 153, 1, 0x08, "has no MP3 frame at byte 151"}, /* free of one */
        {"vbr.mp3", 25, 1, 4, "should have 67109827 bytes of MP3, but there are 963"},
        {"vbr.mp3", 20, 1, 0, "as its header has no length; \"ffmpeg -i IN -c copy"},
        {"vbr.mp3", 13, 1, 0, "as its header has no length"},
        {"vbr.mp3", 24, 1, 15, "ends after "},
    };
    static struct bytes file;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        from_corpus(&file, rows[i].name);
        memset(file.data + rows[i].at, rows[i].byte, rows[i].n);
        expect_refused(&file, EINVAL, rows[i].says);
    }
    for (size_t i = 0; i < 20; i++)
        memcpy(file.data + 10 * i, "ID3\4\0\0\0\0\0", 10);
    expect_refused(&file, EINVAL, "has more ID3 tags than are read; another may begin at byte 160");
}

/* One that lies about its length takes no memory for it; one that is cut is an error. */
TEST(test_lengths_that_lie)
{
    static struct bytes file;

    from_corpus(&file, "cut.flac");
    expect_refused(&file, EINVAL, "");
    from_corpus(&file, "long.flac");
    expect_refused(&file, EFBIG, "has more than 268435456 values");
    file.data[21] &= 0xF0; /* 2^32 - 1 frames: not too many to look for them */
    expect_refused(&file, EINVAL, "ends after 300 of its 4294967295 frames; it is truncated");
    from_corpus(&file, "stereo.flac");
    file.data[file.n - 40] ^= 0x10;
    expect_refused(&file, EINVAL, "");
}

/* Cut at each byte, a bit flipped at each byte: an error that names the file, or a sound. */
TEST(test_damaged)
{
    static const char *const names[] = {"pcm16.wav", "extensible.wav", "stereo.flac",
                                        "opus.opus", "vbr.mp3",        "bare.mp3"};
    struct spec_dataset spec = spec_of(DL_DTYPE_INT16, AUDIO_MONO, 0, 100, AUDIO_CROP_RANDOM);
    static struct bytes file, bad;
    int16_t out[100];

    struct audio_decoder *decoder = must_decoder(&spec);
    for (size_t i = 0; i < 2 * ARRAY_SIZE(names); i++) {
        from_corpus(&file, names[i / 2]);
        for (size_t at = 0; at < file.n; at += at < 200 ? 1 : 13) {
            struct audio_shape shape;
            struct dl_error err = {0};
            struct rng rng;
            bad = file;
            if (i % 2)
                bad.n = at;
            else
                bad.data[at] ^= (uint8_t)(1U << at % 8);
            struct audio_source source = source_of(&bad);
            rng_init(&rng, 0, 0, at);
            int r = audio_open(decoder, &source, &rng, &shape, &err);
            assert_true(r == 0 || (r == -err.code && err.message[0]));
            if (r == 0)
                audio_read(decoder, out);
            else
                assert_string_equal(err.path, "sound");
        }
    }
    audio_decoder_free(decoder);
}
