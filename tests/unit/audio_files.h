/* What the tests of sound share: files of it, and specs. */
#ifndef DL_TEST_AUDIO_FILES_H
#define DL_TEST_AUDIO_FILES_H

#include "daemon/data/decode/audio/audio.h"
#include "tests/unit/data_files.h"

#include <errno.h>
#include <fcntl.h>

enum { PCM = 1, ADPCM = 2, FLOATS = 3, ROOM = 1 << 16 };

static const struct sample_key key = {.seed = 7, .epoch = 3};

struct bytes {
    uint8_t data[ROOM];
    size_t n;
};

static inline void add(struct bytes *bytes, uint64_t number, size_t n)
{
    memcpy(bytes->data + bytes->n, &number, n);
    bytes->n += n;
}

static inline void add_text(struct bytes *bytes, const char *text)
{
    memcpy(bytes->data + bytes->n, text, strlen(text));
    bytes->n += strlen(text);
}

/* A WAV file of `n` bytes of samples. */
struct wav {
    unsigned coding, channels, rate, bits;
    const void *data;
    size_t n;
};

static inline void make_wav(struct bytes *out, const struct wav *wav)
{
    unsigned block = wav->channels * wav->bits / 8;

    out->n = 0;
    add_text(out, "RIFF");
    add(out, 36 + wav->n, 4);
    add_text(out, "WAVEfmt ");
    add(out, 16, 4);
    add(out, wav->coding, 2);
    add(out, wav->channels, 2);
    add(out, wav->rate, 4);
    add(out, wav->rate * block, 4);
    add(out, block, 2);
    add(out, wav->bits, 2);
    add_text(out, "data");
    add(out, wav->n, 4);
    memcpy(out->data + out->n, wav->data, wav->n);
    out->n += wav->n;
}

static inline void from_corpus(struct bytes *out, const char *name)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%s", AUDIO_CORPUS, name);
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t n = read(fd, out->data, sizeof out->data);
    assert_true(n > 0);
    out->n = (size_t)n;
}

/* Whether this machine has the library; what needs it is skipped else. */
static inline bool can_decode(void)
{
    if (!audio_file_missing())
        return true;
    print_message("# skipped: %s\n", audio_file_missing());
    return false;
}

static inline struct spec_dataset spec_of(uint32_t dtype, enum audio_channels channels,
                                          uint32_t rate, uint64_t frames, enum audio_crop crop)
{
    return (struct spec_dataset){
        .kind = DATASET_AUDIOFOLDER,
        .dtype = dtype,
        .audio = {.channels = channels, .rate = rate, .frames = frames, .crop = crop}};
}

#endif
