#include "daemon/data/decode/audio/audio_file.h"

#include "daemon/data/decode/audio/audio_head.h"
#include "proto/common/fd_io.h"
#include "proto/common/library.h"

#include <errno.h>
#include <sndfile.h>

#ifndef SNDFILE_FILES
#define SNDFILE_FILES "libsndfile.so.1"
#endif

enum { BLOCK_BYTES = 32768, SKIP_VALUES = 4096 };

/* libsndfile 1.1's; its header may be an older one's. */
enum { FORMAT_MPEG = 0x230000, FORMAT_MPEG_LAYER_3 = 0x0082 };

#define SNDFILE_FUNCTIONS(X) \
    X(close)                 \
    X(command)               \
    X(error)                 \
    X(open_virtual)          \
    X(readf_float)           \
    X(readf_short)           \
    X(seek)                  \
    X(strerror)

/* Set once; the same whichever thread does it. */
static struct {
    bool is_there;
#define X(name) __typeof__(sf_##name) *name;
    SNDFILE_FUNCTIONS(X)
#undef X
} sndfile_library;

struct audio_file {
    SNDFILE *sound; /* owned; NULL: none is open */
    struct audio_source source;
    uint64_t at;               /* libsndfile's position in the bytes */
    uint32_t mp3_channels;     /* 0: it is not MP3 */
    int error;                 /* a negative errno of reading them; 0: none yet */
    size_t block;              /* bytes in `data` */
    uint64_t block_at;         /* where they are from */
    uint8_t data[BLOCK_BYTES]; /* of a file: what was read of it last */
};

static bool audio_file_find_library(void)
{
    static const char *const files[] = {SNDFILE_FILES, NULL};
    static const struct library_function functions[] = {
#define X(name) {"sf_" #name, &sndfile_library.name},
        SNDFILE_FUNCTIONS(X)
#undef X
    };

    if (!sndfile_library.is_there)
        sndfile_library.is_there = library_find(files, functions, ARRAY_SIZE(functions));
    return sndfile_library.is_there;
}

const char *audio_file_missing(void)
{
    if (audio_file_find_library())
        return NULL;
    return "this system has no libsndfile.so.1; install it (libsndfile1 of Debian and Ubuntu, "
           "libsndfile of Fedora)";
}

const char *audio_file_missing_mp3(void)
{
    int n = 0;
    bool is_there = false;

    (void)sndfile_library.command(NULL, SFC_GET_FORMAT_MAJOR_COUNT, &n, sizeof n);
    for (int i = 0; i < n && !is_there; i++) {
        SF_FORMAT_INFO info = {.format = i};
        is_there = sndfile_library.command(NULL, SFC_GET_FORMAT_MAJOR, &info, sizeof info) == 0 &&
                   info.format == FORMAT_MPEG;
    }
    return is_there
               ? NULL
               : "this system's libsndfile decodes no MP3; install version 1.1 or later, built "
                 "with MPEG, such as Debian 12's";
}

int audio_file_new(const char *place, struct audio_file **ret, struct dl_error *err)
{
    const char *missing = audio_file_missing();

    if (missing)
        return dl_error_set(err, ENOTSUP, place, "sound is decoded by libsndfile, but %s", missing);
    *ret = calloc(1, sizeof **ret);
    return *ret ? 0 : dl_error_set(err, ENOMEM, place, "out of memory");
}

struct audio_file *audio_file_free(struct audio_file *file)
{
    if (file)
        audio_file_close(file);
    free(file);
    return NULL;
}

/* ---- its bytes ------------------------------------------------------------------------------ */

/* What is small comes out of the block that was read last. */
static int64_t audio_file_read_block(struct audio_file *file, void *out, size_t n, uint64_t at)
{
    if (n > sizeof file->data / 2)
        return fd_pread_all(file->source.fd, out, n, at);
    if (at < file->block_at || at + n > file->block_at + file->block) {
        int64_t got = fd_pread_all(file->source.fd, file->data, sizeof file->data, at);
        file->block = got < 0 ? 0 : (size_t)got;
        file->block_at = at;
        if (got < 0)
            return got;
        n = min_u64(n, file->block);
    }
    memcpy(out, file->data + (at - file->block_at), n);
    return (int64_t)n;
}

static int64_t audio_file_bytes_at(void *owner, void *out, size_t n, uint64_t at)
{
    struct audio_file *file = owner;

    if (at >= file->source.bytes)
        return 0;
    n = min_u64(n, file->source.bytes - at);
    if (!file->source.data)
        return audio_file_read_block(file, out, n, at);
    memcpy(out, file->source.data + at, n);
    return (int64_t)n;
}

/* ---- for libsndfile, which reads by these -----------------------------------------------------
 */

static sf_count_t audio_file_vio_length(void *owner)
{
    return (sf_count_t)((struct audio_file *)owner)->source.bytes;
}

static sf_count_t audio_file_vio_seek(sf_count_t offset, int whence, void *owner)
{
    struct audio_file *file = owner;
    int64_t from = whence == SEEK_SET   ? 0
                   : whence == SEEK_CUR ? (int64_t)file->at
                                        : (int64_t)file->source.bytes;
    int64_t to;

    if (__builtin_add_overflow(from, offset, &to) || to < 0)
        return -1;
    file->at = (uint64_t)to;
    return to;
}

static sf_count_t audio_file_vio_read(void *out, sf_count_t n, void *owner)
{
    struct audio_file *file = owner;
    int64_t got = n > 0 ? audio_file_bytes_at(file, out, (size_t)n, file->at) : 0;

    if (got < 0) {
        file->error = (int)got;
        return 0;
    }
    file->at += (uint64_t)got;
    return got;
}

static sf_count_t audio_file_vio_write(const void *data, sf_count_t n, void *owner)
{
    (void)data, (void)n, (void)owner;
    return 0;
}

static sf_count_t audio_file_vio_tell(void *owner)
{
    return (sf_count_t)((struct audio_file *)owner)->at;
}

/* ---- opening -------------------------------------------------------------------------------- */

/* What libsndfile says, without the full stop. */
static int audio_file_refuse(const struct audio_file *file, struct dl_error *err)
{
    const char *why = sndfile_library.strerror(file->sound);
    size_t len = strlen(why);

    while (len > 0 && (why[len - 1] == '.' || why[len - 1] == ' ' || why[len - 1] == '\n'))
        len--;
    if (file->error < 0)
        return dl_error_set(err, -file->error, file->source.path, "cannot be read: %s",
                            strerror(-file->error));
    return dl_error_set(err, EINVAL, file->source.path, "cannot be decoded: %.*s", (int)len, why);
}

static bool audio_file_is_float(int format)
{
    int coding = format & SF_FORMAT_SUBMASK;

    return coding == SF_FORMAT_FLOAT || coding == SF_FORMAT_DOUBLE || coding == SF_FORMAT_VORBIS ||
           coding == SF_FORMAT_OPUS || coding == FORMAT_MPEG_LAYER_3;
}

static bool audio_file_is_known(int format)
{
    static const int types[] = {SF_FORMAT_WAV,  SF_FORMAT_WAVEX, SF_FORMAT_RF64,
                                SF_FORMAT_FLAC, SF_FORMAT_OGG,   FORMAT_MPEG};
    static const int codings[] = {SF_FORMAT_PCM_S8, SF_FORMAT_PCM_U8, SF_FORMAT_PCM_16,
                                  SF_FORMAT_PCM_24, SF_FORMAT_PCM_32, SF_FORMAT_ULAW,
                                  SF_FORMAT_ALAW};
    bool type = false, coding = audio_file_is_float(format);

    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        type = type || (format & SF_FORMAT_TYPEMASK) == types[i];
    for (size_t i = 0; i < ARRAY_SIZE(codings); i++)
        coding = coding || (format & SF_FORMAT_SUBMASK) == codings[i];
    return type && coding;
}

static int audio_file_check(const struct audio_file *file, const SF_INFO *info,
                            struct dl_error *err)
{
    const char *path = file->source.path;

    if (!audio_file_is_known(info->format))
        return dl_error_set(
            err, EINVAL, path,
            "has a coding that is not supported (libsndfile's 0x%x); convert it to FLAC",
            (unsigned)info->format);
    if (info->channels < 1 || info->channels > AUDIO_CHANNELS_MAX)
        return dl_error_set(err, EINVAL, path, "has %d channels; 1 to %d can be read",
                            info->channels, AUDIO_CHANNELS_MAX);
    if (info->samplerate < 1 || info->samplerate > AUDIO_RATE_MAX)
        return dl_error_set(err, EINVAL, path, "has %d frames a second; 1 to %d can be read",
                            info->samplerate, AUDIO_RATE_MAX);
    return 0;
}

/* What of MP3's frames libsndfile does not know, it guesses; it gives no more than that. */
static int audio_file_count(const struct audio_file *file, const struct audio_head *head,
                            uint64_t *frames, struct dl_error *err)
{
    if (head->mpeg_frames == 0)
        return 0;
    if (head->mpeg_frames - min_u64(head->mpeg_frames, *frames) >= head->mpeg_step)
        return dl_error_set(err, EINVAL, file->source.path,
                            "has %llu frames of sound, of which libsndfile finds %llu, as its "
                            "header has no length; \"ffmpeg -i IN -c copy OUT.mp3\" writes one",
                            (ull)head->mpeg_frames, (ull)*frames);
    *frames = min_u64(*frames, head->mpeg_frames);
    return 0;
}

int audio_file_open(struct audio_file *file, const struct audio_source *source,
                    struct audio_info *ret, struct dl_error *err)
{
    static SF_VIRTUAL_IO io = {
        .get_filelen = audio_file_vio_length,
        .seek = audio_file_vio_seek,
        .read = audio_file_vio_read,
        .write = audio_file_vio_write,
        .tell = audio_file_vio_tell,
    };
    const struct audio_head_source head = {
        .read = audio_file_bytes_at, .owner = file, .bytes = source->bytes};
    struct audio_head told;
    SF_INFO info = {0};
    int r;

    audio_file_close(file);
    file->source = *source;
    file->at = 0;
    file->error = 0;
    file->block = 0;
    file->mp3_channels = 0;
    if ((r = audio_head_check(&head, source->path, &told, err)) < 0)
        return r;
    const char *missing = told.mpeg_step ? audio_file_missing_mp3() : NULL;
    if (missing)
        return dl_error_set(err, ENOTSUP, source->path, "is MP3, but %s", missing);
    file->sound = sndfile_library.open_virtual(&io, SFM_READ, &info, file);
    if (!file->sound)
        return audio_file_refuse(file, err);
    if ((r = audio_file_check(file, &info, err)) < 0)
        return r;
    *ret = (struct audio_info){.frames = info.frames < 0 || info.frames == SF_COUNT_MAX
                                             ? AUDIO_FRAMES_UNKNOWN
                                             : (uint64_t)info.frames,
                               .channels = (uint32_t)info.channels,
                               .rate = (uint32_t)info.samplerate,
                               .is_int = !audio_file_is_float(info.format)};
    file->mp3_channels = told.mpeg_step ? ret->channels : 0;
    return audio_file_count(file, &told, &ret->frames, err);
}

void audio_file_close(struct audio_file *file)
{
    if (file->sound)
        (void)sndfile_library.close(file->sound);
    file->sound = NULL;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* libmpg123 lands on other bits than it decodes from the beginning; at low rates, on another sound.
 */
static int audio_file_skip(struct audio_file *file, uint64_t frames, struct dl_error *err)
{
    float values[SKIP_VALUES];
    size_t got = 0;
    int r = 0;

    for (uint64_t at = 0; r == 0 && at < frames; at += got) {
        size_t n = (size_t)min_u64(frames - at, SKIP_VALUES / file->mp3_channels);
        r = audio_file_read_float(file, values, n, &got, err);
        if (r == 0 && got < n)
            return dl_error_set(err, EINVAL, file->source.path,
                                "ends after %llu frames; it is truncated", (ull)at + got);
    }
    return r;
}

int audio_file_seek(struct audio_file *file, uint64_t frame, struct dl_error *err)
{
    if (file->mp3_channels)
        return audio_file_skip(file, frame, err);
    if (sndfile_library.seek(file->sound, (sf_count_t)frame, SEEK_SET) == (sf_count_t)frame)
        return 0;
    if (file->error < 0 || sndfile_library.error(file->sound) != SF_ERR_NO_ERROR)
        return audio_file_refuse(file, err);
    return dl_error_set(err, EINVAL, file->source.path, "has no frame %llu, or it cannot be found",
                        (ull)frame);
}

static int audio_file_check_read(const struct audio_file *file, sf_count_t got, size_t *ret,
                                 struct dl_error *err)
{
    if (got < 0 || file->error < 0 || sndfile_library.error(file->sound) != SF_ERR_NO_ERROR)
        return audio_file_refuse(file, err);
    *ret = (size_t)got;
    return 0;
}

int audio_file_read_float(struct audio_file *file, float *out, size_t n, size_t *ret,
                          struct dl_error *err)
{
    sf_count_t got = sndfile_library.readf_float(file->sound, out, (sf_count_t)n);

    return audio_file_check_read(file, got, ret, err);
}

int audio_file_read_int16(struct audio_file *file, int16_t *out, size_t n, size_t *ret,
                          struct dl_error *err)
{
    sf_count_t got = sndfile_library.readf_short(file->sound, out, (sf_count_t)n);

    return audio_file_check_read(file, got, ret, err);
}
