/*
 * What a file of sound says it is, by its first bytes: looked at before the library that decodes it
 * sees it, so that only what is meant to be read gets there. Pure.
 *
 *   WAV   RIFF and RF64 (EBU Tech 3306): PCM, IEEE float, A-law, mu-law, also in
 *         WAVE_FORMAT_EXTENSIBLE; the chunks are those of Microsoft's "Multiple channel audio data
 *         and WAVE files"
 *   FLAC  RFC 9639
 *   Ogg   RFC 3533, of Vorbis and Opus: the pages of its headers, audio_ogg.c
 *   MP3   its first frame, or all, audio_mpeg.c
 */
#ifndef DL_DATA_AUDIO_HEAD_H
#define DL_DATA_AUDIO_HEAD_H

#include "proto/common/error.h"

/* As pread(): bytes at `at` of the file, fewer at its end, or a negative errno. */
struct audio_head_source {
    int64_t (*read)(void *owner, void *out, size_t n, uint64_t at);
    void *owner;
    uint64_t bytes; /* of the whole file */
};

/* Of MP3, of which libsndfile does not know all; else 0. */
struct audio_head {
    uint32_t mpeg_step;   /* samples of a channel in a frame */
    uint64_t mpeg_frames; /* samples of a channel in all frames, where the first does not say it */
};

/*
 * 0 where it is one of these, and has the bytes that it says. -EINVAL: neither, a coding that is
 * not read, or truncated; `err` names `path`, and its message continues "it". -errno: of read().
 */
int _nodiscard_ audio_head_check(const struct audio_head_source *source, const char *path,
                                 struct audio_head *ret, struct dl_error *err);

/* The same of an Ogg file, for audio_head_check(). */
int _nodiscard_ audio_head_check_ogg(const struct audio_head_source *source, const char *path,
                                     struct dl_error *err);

/* Likewise of one that begins so. */
bool audio_head_is_mpeg(const uint8_t first[static 4]);
int _nodiscard_ audio_head_check_mpeg(const struct audio_head_source *source, const char *path,
                                      struct audio_head *ret, struct dl_error *err);

#endif
