/*
 * A file of sound that is open: WAV, FLAC, Ogg Vorbis and Opus, MP3, by libsndfile, which is looked
 * for at run time, at the first use, so that nobody else loads it and the codecs that it brings.
 *
 * libsndfile opens nothing by its name: it reads through us, from a descriptor or from memory, and
 * only what audio_head.h has looked at. The file may be cut meanwhile; that is an error of its own.
 * Not thread-safe; several may be open.
 */
#ifndef DL_DATA_AUDIO_FILE_H
#define DL_DATA_AUDIO_FILE_H

#include "proto/common/error.h"

#define AUDIO_FRAMES_UNKNOWN UINT64_MAX

enum { AUDIO_CHANNELS_MAX = 64, AUDIO_RATE_MAX = 768000 };

/* Where its bytes are; borrowed while it is open. */
struct audio_source {
    const uint8_t *data; /* NULL: in the file `fd` */
    int fd;              /* read by pread() */
    uint64_t bytes;
    const char *path; /* for messages */
};

struct audio_info {
    uint64_t frames;   /* as its header says, or unknown */
    uint32_t channels; /* 1..AUDIO_CHANNELS_MAX */
    uint32_t rate;     /* frames a second, 1..AUDIO_RATE_MAX */
    bool is_int;       /* its samples are integers, or A-law and mu-law, not floats */
};

struct audio_file; /* with a buffer for what is read of it; kept from file to file */

/* NULL: libsndfile is here; else why it is missing, and what to do, for people. */
const char *audio_file_missing(void);

/* Likewise, where libsndfile is here: it decodes MP3, or why not. */
const char *audio_file_missing_mp3(void);

/* -ENOTSUP: no libsndfile; -ENOMEM. Errors name `place`. */
int _nodiscard_ audio_file_new(const char *place, struct audio_file **ret, struct dl_error *err);
struct audio_file *audio_file_free(struct audio_file *file); /* NULL in, NULL out */

/*
 * Opens `source`; the one that was open is closed. Errors name its path, and continue "it":
 * -EINVAL, -EIO, ...
 */
int _nodiscard_ audio_file_open(struct audio_file *file, const struct audio_source *source,
                                struct audio_info *ret, struct dl_error *err);
void audio_file_close(struct audio_file *file); /* one that is not open is fine */

/* The next frame that is read is `frame`; of MP3 only forward from the beginning. */
int _nodiscard_ audio_file_seek(struct audio_file *file, uint64_t frame, struct dl_error *err);

/*
 * Up to `n` frames, their channels interleaved: float, ±1 being full scale, or, where `is_int` was
 * said, int16. *ret: how many came; fewer than `n` only at the end. -EINVAL: what is there cannot
 * be decoded.
 */
int _nodiscard_ audio_file_read_float(struct audio_file *file, float *out, size_t n, size_t *ret,
                                      struct dl_error *err);
int _nodiscard_ audio_file_read_int16(struct audio_file *file, int16_t *out, size_t n, size_t *ret,
                                      struct dl_error *err);

#endif
