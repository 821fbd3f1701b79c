#include "daemon/data/decode/audio/audio_head.h"
#include "proto/common/load.h"

#include <errno.h>

enum {
    RIFF_BYTES = 12, /* "RIFF", size, "WAVE" */
    CHUNK_BYTES = 8, /* name, size */
    FORMAT_BYTES = 40,
    SUBFORMAT_AT = 24,    /* in an extensible format */
    CHUNKS_MAX = 1000,    /* before the samples */
    UNSIZED = 0x7FFFEF00, /* of a size so large, or larger, the writer did not know it */
    SIZES_BYTES = 16,     /* of RF64's own: of the file, and of the samples */
};
enum { CODING_PCM = 1, CODING_FLOAT = 3, CODING_ALAW = 6, CODING_ULAW = 7, CODING_MORE = 0xFFFE };

/* A walk through the chunks of a WAV file. */
struct wav_walk {
    const struct audio_head_source *source;
    const char *path;
    uint64_t at;     /* of the chunk */
    uint64_t size;   /* of its content, as it says */
    char name[5];    /* of it */
    bool has_format; /* it was met */
    uint64_t sound;  /* bytes of the samples, as RF64 says it; 0: it does not */
};

static uint64_t audio_head_u32(const uint8_t *at)
{
    return load_le32(at);
}

/* `n` bytes, or -EINVAL where there are fewer. */
static int audio_head_read(const struct wav_walk *walk, void *out, size_t n, uint64_t at,
                           struct dl_error *err)
{
    const struct audio_head_source *source = walk->source;
    int64_t got = source->read(source->owner, out, n, at);

    if (got < 0)
        return dl_error_set(err, (int)-got, walk->path, "cannot be read: %s", strerror((int)-got));
    if ((size_t)got == n)
        return 0;
    return dl_error_set(err, EINVAL, walk->path,
                        "ends in its header, at byte %llu; it is truncated",
                        (ull)min_u64(at + (uint64_t)got, source->bytes));
}

static int audio_head_check_format(struct wav_walk *walk, struct dl_error *err)
{
    uint8_t format[FORMAT_BYTES] = {0};
    size_t n = walk->size < sizeof format ? (size_t)walk->size : sizeof format;
    int r = audio_head_read(walk, format, n, walk->at + CHUNK_BYTES, err);

    if (r < 0)
        return r;
    uint32_t coding = load_le16(format);
    if (coding == CODING_MORE)
        coding = load_le16(format + SUBFORMAT_AT);
    walk->has_format = true;
    if (coding == CODING_PCM || coding == CODING_FLOAT || coding == CODING_ALAW ||
        coding == CODING_ULAW)
        return 0;
    return dl_error_set(err, EINVAL, walk->path,
                        "is a WAV file of coding 0x%04x; PCM, float, A-law and mu-law are "
                        "supported: convert it to FLAC",
                        coding);
}

/* RF64's sizes, which 32 bits would not hold. A program that still records writes -1, or 0. */
static int audio_head_take_sizes(struct wav_walk *walk, struct dl_error *err)
{
    uint8_t sizes[SIZES_BYTES];
    int r = audio_head_read(walk, sizes, sizeof sizes, walk->at + CHUNK_BYTES, err);

    if (r < 0)
        return r;
    walk->sound = audio_head_u32(sizes + 8) | audio_head_u32(sizes + 12) << 32;
    return 0;
}

/* The bytes of the samples; false: it is not known. What is written while it is recorded has the
 * largest size, of which SoX's is half. */
static bool audio_head_is_sized(const struct wav_walk *walk, uint64_t *ret)
{
    *ret = walk->size == UINT32_MAX && walk->sound > 0 ? walk->sound : walk->size;
    return walk->size < UNSIZED || (*ret == walk->sound && *ret != UINT64_MAX);
}

static int audio_head_check_data(const struct wav_walk *walk, struct dl_error *err)
{
    uint64_t there = walk->source->bytes - walk->at - CHUNK_BYTES, size;

    if (!walk->has_format)
        return dl_error_set(err, EINVAL, walk->path, "is a WAV file without a format");
    if (!audio_head_is_sized(walk, &size) || size <= there)
        return 0;
    return dl_error_set(err, EINVAL, walk->path,
                        "should have %llu bytes of sound, but there are %llu; it is truncated",
                        (ull)size, (ull)there);
}

/* The next chunk; 1: it is that of the samples, and all is well. */
static int audio_head_step(struct wav_walk *walk, struct dl_error *err)
{
    uint8_t chunk[CHUNK_BYTES];
    int r = audio_head_read(walk, chunk, sizeof chunk, walk->at, err);

    if (r < 0)
        return r;
    memcpy(walk->name, chunk, 4);
    walk->size = audio_head_u32(chunk + 4);
    if (strcmp(walk->name, "data") == 0)
        return (r = audio_head_check_data(walk, err)) < 0 ? r : 1;
    if (strcmp(walk->name, "fmt ") == 0 && (r = audio_head_check_format(walk, err)) < 0)
        return r;
    if (strcmp(walk->name, "ds64") == 0 && (r = audio_head_take_sizes(walk, err)) < 0)
        return r;
    walk->at += CHUNK_BYTES + walk->size + walk->size % 2;
    return 0;
}

static int audio_head_check_wav(struct wav_walk *walk, struct dl_error *err)
{
    for (int i = 0; i < CHUNKS_MAX; i++) {
        int r = audio_head_step(walk, err);
        if (r != 0)
            return r < 0 ? r : 0;
    }
    return dl_error_set(err, EINVAL, walk->path, "is a WAV file with %d chunks before its sound",
                        CHUNKS_MAX);
}

int audio_head_check(const struct audio_head_source *source, const char *path,
                     struct audio_head *ret, struct dl_error *err)
{
    struct wav_walk walk = {.source = source, .path = path, .at = RIFF_BYTES};
    uint8_t first[RIFF_BYTES];
    int64_t n = source->read(source->owner, first, sizeof first, 0);

    *ret = (struct audio_head){0};
    if (n < 0)
        return dl_error_set(err, (int)-n, path, "cannot be read: %s", strerror((int)-n));
    if (n == 0)
        return dl_error_set(err, EINVAL, path, "is empty");
    if (n < (int64_t)sizeof first)
        return dl_error_set(err, EINVAL, path, "has %lld bytes; it is truncated", (long long)n);
    if (memcmp(first, "OggS", 4) == 0)
        return audio_head_check_ogg(source, path, err);
    if (memcmp(first, "fLaC", 4) == 0)
        return 0;
    if ((memcmp(first, "RIFF", 4) == 0 || memcmp(first, "RF64", 4) == 0) &&
        memcmp(first + 8, "WAVE", 4) == 0)
        return audio_head_check_wav(&walk, err);
    if (audio_head_is_mpeg(first))
        return audio_head_check_mpeg(source, path, ret, err);
    return dl_error_set(err, EINVAL, path,
                        "is neither a WAV, FLAC, Ogg nor MP3 file; \"ffmpeg -i IN out.flac\" makes "
                        "FLAC of others");
}
