/* Stands in for audio_file.c where this was built without libsndfile's header: nothing is opened.
 */
#include "daemon/data/decode/audio/audio_file.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

const char *audio_file_missing(void)
{
    return "this build has no libsndfile; build it with libsndfile1-dev";
}

const char *audio_file_missing_mp3(void)
{
    return NULL;
}

int audio_file_new(const char *place, struct audio_file **ret, struct dl_error *err)
{
    *ret = NULL;
    return dl_error_set(err, ENOTSUP, place, "sound is decoded by libsndfile, but %s",
                        audio_file_missing());
}

struct audio_file *audio_file_free(struct audio_file *file)
{
    assert(!file);
    return NULL;
}

/* Of a file that audio_file_new() has not made. */
static int audio_none(struct dl_error *err)
{
    assert(false);
    return dl_error_set(err, ENOTSUP, "", "%s", audio_file_missing());
}

int audio_file_open(struct audio_file *file, const struct audio_source *source,
                    struct audio_info *ret, struct dl_error *err)
{
    (void)file, (void)source, (void)ret;
    return audio_none(err);
}

void audio_file_close(struct audio_file *file)
{
    (void)file;
}

int audio_file_seek(struct audio_file *file, uint64_t frame, struct dl_error *err)
{
    (void)file, (void)frame;
    return audio_none(err);
}

int audio_file_read_float(struct audio_file *file, float *out, size_t n, size_t *ret,
                          struct dl_error *err)
{
    (void)file;
    memset(out, 0, n * sizeof *out);
    *ret = 0;
    return audio_none(err);
}

int audio_file_read_int16(struct audio_file *file, int16_t *out, size_t n, size_t *ret,
                          struct dl_error *err)
{
    (void)file;
    memset(out, 0, n * sizeof *out);
    *ret = 0;
    return audio_none(err);
}
