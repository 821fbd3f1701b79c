/*
 * MP3: layer III of MPEG audio (ISO/IEC 11172-3; 13818-3 for the lower rates), behind the ID3v2
 * tags that players put in front. Most encoders begin with a frame of numbers, Xing's or Info, that
 * has the length; it is read as libmpg123 reads it. Without that frame, libsndfile guesses the
 * length from the first one's bytes, so here all frames are counted.
 */
#include "daemon/data/decode/audio/audio_head.h"
#include "proto/common/load.h"

#include <errno.h>

enum {
    MPEG_HEAD_BYTES = 4,
    TAG_BYTES = 10, /* ID3v2's own, with the bytes of what follows */
    TAG_SIZE_AT = 6,
    TAGS_MAX = 16,
    MARK_BYTES = 4,     /* "Xing" or "Info" */
    FIRST_BYTES = 64,   /* of a frame, with these numbers */
    MPEG_SIDE_MAX = 32, /* bytes of what says how a frame is coded */
    VERSION_1 = 3,      /* in a header; 2: MPEG-2, 0: MPEG-2.5 */
    LAYER_3 = 1,        /* likewise */
    HAS_FRAMES = 1,
    HAS_BYTES = 2,
};

struct mpeg_walk {
    const struct audio_head_source *source;
    const char *path;
    uint64_t at;         /* of the frame */
    uint32_t bytes;      /* of it */
    uint32_t samples;    /* of each channel in it */
    uint32_t numbers_at; /* in it, were it one of numbers */
};

static int audio_mpeg_refuse(const struct mpeg_walk *walk, const char *why, struct dl_error *err)
{
    return dl_error_set(err, EINVAL, walk->path, "%s at byte %llu", why, (ull)walk->at);
}

/* Up to `n` bytes there; *ret: how many. */
static int audio_mpeg_read(const struct mpeg_walk *walk, void *out, size_t n, size_t *ret,
                           struct dl_error *err)
{
    int64_t got = walk->source->read(walk->source->owner, out, n, walk->at);

    *ret = got < 0 ? 0 : (size_t)got;
    if (got >= 0)
        return 0;
    return dl_error_set(err, (int)-got, walk->path, "cannot be read: %s", strerror((int)-got));
}

bool audio_head_is_mpeg(const uint8_t first[static 4])
{
    return memcmp(first, "ID3", 3) == 0 || (first[0] == 0xFF && first[1] >= 0xE0);
}

/* Behind the tags. */
static int audio_mpeg_skip_tags(struct mpeg_walk *walk, struct dl_error *err)
{
    uint8_t tag[TAG_BYTES];
    size_t n;

    for (int i = 0; i < TAGS_MAX; i++) {
        int r = audio_mpeg_read(walk, tag, sizeof tag, &n, err);
        if (r < 0)
            return r;
        if (n < sizeof tag || memcmp(tag, "ID3", 3) != 0)
            return 0;
        walk->at += TAG_BYTES;
        for (int k = 0; k < 4; k++) /* seven bits of each byte */
            walk->at += (uint64_t)(tag[TAG_SIZE_AT + k] & 0x7F) << 7 * (3 - k);
    }
    return audio_mpeg_refuse(walk, "has more ID3 tags than are read; another may begin", err);
}

/* By the header of a frame; false: it is none of layer III, or has no size of its own. */
static bool audio_mpeg_take_head(struct mpeg_walk *walk, uint32_t head)
{
    static const uint16_t rates[2][15] = {
        {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},
        {0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320}};
    static const uint32_t frequencies[] = {44100, 48000, 32000};
    unsigned version = head >> 19 & 3, rate = head >> 12 & 15, frequency = head >> 10 & 3;
    bool one = version == VERSION_1, mono = (head >> 6 & 3) == 3;

    if (head >> 21 != 0x7FF || version == 1 || (head >> 17 & 3) != LAYER_3 || rate == 0 ||
        rate == 15 || frequency == 3)
        return false;
    unsigned hertz = frequencies[frequency] >> (one ? 0 : version == 2 ? 1 : 2);
    walk->samples = one ? 1152 : 576;
    walk->bytes = walk->samples / 8 * rates[one][rate] * 1000 / hertz + (head >> 9 & 1);
    walk->numbers_at = MPEG_HEAD_BYTES + (one ? mono ? 17 : MPEG_SIDE_MAX : mono ? 9 : 17);
    return true;
}

/* Whether the first frame is one of numbers with a length. Its bytes begin with it; those that they
 * name may be those of the tags, too. */
static int audio_mpeg_take_numbers(const struct mpeg_walk *walk, bool *ret, struct dl_error *err)
{
    static const uint8_t none[MPEG_SIDE_MAX];
    uint8_t first[FIRST_BYTES] = {0};
    const uint8_t *mark = first + walk->numbers_at, *numbers = mark + MARK_BYTES;
    size_t n;
    int r = audio_mpeg_read(walk, first, min_u64(sizeof first, walk->bytes), &n, err);

    *ret = false;
    if (r < 0 || (memcmp(mark, "Xing", MARK_BYTES) != 0 && memcmp(mark, "Info", MARK_BYTES) != 0) ||
        /* But for a check sum, there is no sound in it. */
        memcmp(first + MPEG_HEAD_BYTES + 2, none, walk->numbers_at - MPEG_HEAD_BYTES - 2) != 0)
        return r;
    uint32_t has = load_be32(numbers);
    *ret = has & HAS_FRAMES && load_be32(numbers + 4) > 0;
    uint32_t bytes = has & HAS_BYTES ? load_be32(numbers + (has & HAS_FRAMES ? 8 : 4)) : 0;
    if (bytes <= walk->source->bytes)
        return 0;
    return dl_error_set(err, EINVAL, walk->path,
                        "should have %lu bytes of MP3, but there are %llu; it is truncated",
                        (unsigned long)bytes, (ull)walk->source->bytes);
}

/* What may be behind the last frame. */
static bool audio_mpeg_is_tag(const uint8_t *at, size_t n)
{
    static const char *const tags[] = {"TAG", "APETAGEX", "LYRICSBEGIN", "ID3"};
    bool is = false;

    for (size_t i = 0; i < ARRAY_SIZE(tags); i++)
        is = is || (n >= strlen(tags[i]) && memcmp(at, tags[i], strlen(tags[i])) == 0);
    return is;
}

/* The samples of all frames. */
static int audio_mpeg_count(struct mpeg_walk *walk, uint64_t *ret, struct dl_error *err)
{
    uint8_t head[TAG_BYTES + 1];
    size_t n;
    int r;

    *ret = 0;
    while ((r = audio_mpeg_read(walk, head, sizeof head, &n, err)) == 0 && n > 0 &&
           !audio_mpeg_is_tag(head, n)) {
        if (n < MPEG_HEAD_BYTES)
            return audio_mpeg_refuse(walk, "is truncated: it ends in the frame", err);
        if (!audio_mpeg_take_head(walk, load_be32(head)))
            return audio_mpeg_refuse(walk, "has no MP3 frame", err);
        if (walk->source->bytes - walk->at < walk->bytes)
            return audio_mpeg_refuse(walk, "is truncated: it ends in the frame", err);
        walk->at += walk->bytes;
        *ret += walk->samples;
    }
    return r;
}

int audio_head_check_mpeg(const struct audio_head_source *source, const char *path,
                          struct audio_head *ret, struct dl_error *err)
{
    struct mpeg_walk walk = {.source = source, .path = path};
    uint8_t head[MPEG_HEAD_BYTES] = {0};
    bool is_known;
    size_t n;
    int r;

    if ((r = audio_mpeg_skip_tags(&walk, err)) < 0 ||
        (r = audio_mpeg_read(&walk, head, sizeof head, &n, err)) < 0)
        return r;
    if (walk.at >= source->bytes)
        return dl_error_set(err, EINVAL, path, "ends in its ID3 tag; it is truncated");
    if (!audio_mpeg_take_head(&walk, load_be32(head)))
        return audio_mpeg_refuse(&walk, "has no MP3 frame", err);
    ret->mpeg_step = walk.samples;
    if ((r = audio_mpeg_take_numbers(&walk, &is_known, err)) < 0 || is_known)
        return r;
    return audio_mpeg_count(&walk, &ret->mpeg_frames, err);
}
