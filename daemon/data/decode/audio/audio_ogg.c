/*
 * Pages of an Ogg file (RFC 3533). The first: those with the headers of Vorbis (Vorbis I, 4.2) or
 * Opus (RFC 7845), by their check sums; libsndfile forgets memory when it gives up on a header, so
 * damaged ones do not get there. And the last, which says that it is: libsndfile takes what is left
 * of a file that is cut for all of it.
 */
#include "daemon/data/decode/audio/audio_head.h"

#include <errno.h>

enum {
    OGG_PAGE_BYTES = 27, /* without the table of segments */
    FLAGS_AT = 5,
    FLAG_LAST = 4, /* of its stream */
    SEGMENTS_AT = 26,
    SUM_AT = 22,
    SUM_BYTES = 4,
    SEGMENT_MAX = 255, /* one of that length continues in the next */
    PAGE_MAX = OGG_PAGE_BYTES + SEGMENT_MAX + SEGMENT_MAX * SEGMENT_MAX,
    NAME_BYTES = 8,
    PART = 4096,      /* is read at once */
    PAGES_MAX = 4096, /* of headers: pictures of covers are among them */
    VORBIS_PACKETS = 3,
    OPUS_PACKETS = 2,
};

struct ogg_walk {
    const struct audio_head_source *source;
    const char *path;
    uint64_t at;       /* of the page */
    uint64_t body;     /* bytes of its segments */
    unsigned segments; /* number of them */
    uint8_t head[OGG_PAGE_BYTES + SEGMENT_MAX];
    unsigned packets; /* that ended so far */
};

static int audio_ogg_refuse(const struct ogg_walk *walk, const char *why, struct dl_error *err)
{
    return dl_error_set(err, EINVAL, walk->path, "%s at byte %llu", why, (ull)walk->at);
}

static int audio_ogg_read(const struct ogg_walk *walk, void *out, size_t n, uint64_t at,
                          struct dl_error *err)
{
    int64_t got = walk->source->read(walk->source->owner, out, n, at);

    if (got < 0)
        return dl_error_set(err, (int)-got, walk->path, "cannot be read: %s", strerror((int)-got));
    if ((size_t)got < n)
        return audio_ogg_refuse(walk, "is truncated: it ends in the page", err);
    return 0;
}

/* The sum of RFC 3533: a CRC of 32 bits by the polynomial 0x04c11db7, the highest bit first. */
static uint32_t audio_ogg_sum(uint32_t sum, const uint8_t *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sum ^= (uint32_t)data[i] << 24;
        for (int bit = 0; bit < 8; bit++)
            sum = sum << 1 ^ (sum >> 31 ? 0x04c11db7 : 0);
    }
    return sum;
}

static int audio_ogg_check_sum(struct ogg_walk *walk, size_t head_bytes, struct dl_error *err)
{
    uint8_t part[PART];
    uint32_t want;
    uint64_t at = walk->at + head_bytes, end = at + walk->body;

    memcpy(&want, walk->head + SUM_AT, SUM_BYTES);
    memset(walk->head + SUM_AT, 0, SUM_BYTES);
    uint32_t sum = audio_ogg_sum(0, walk->head, head_bytes);
    while (at < end) {
        size_t n = (size_t)min_u64(sizeof part, end - at);
        int r = audio_ogg_read(walk, part, n, at, err);
        if (r < 0)
            return r;
        sum = audio_ogg_sum(sum, part, n);
        at += n;
    }
    return sum == want ? 0 : audio_ogg_refuse(walk, "has a wrong checksum in the page", err);
}

/* Reads the page and moves past it. */
static int audio_ogg_step(struct ogg_walk *walk, struct dl_error *err)
{
    int r = audio_ogg_read(walk, walk->head, OGG_PAGE_BYTES, walk->at, err);

    if (r < 0)
        return r;
    walk->segments = walk->head[SEGMENTS_AT];
    if (memcmp(walk->head, "OggS\0", 5) != 0)
        return audio_ogg_refuse(walk, "has no Ogg page", err);
    r = audio_ogg_read(walk, walk->head + OGG_PAGE_BYTES, walk->segments, walk->at + OGG_PAGE_BYTES,
                       err);
    if (r < 0)
        return r;
    walk->body = 0;
    for (unsigned i = 0; i < walk->segments; i++) {
        walk->body += walk->head[OGG_PAGE_BYTES + i];
        walk->packets += walk->head[OGG_PAGE_BYTES + i] < SEGMENT_MAX;
    }
    if ((r = audio_ogg_check_sum(walk, OGG_PAGE_BYTES + walk->segments, err)) < 0)
        return r;
    walk->at += OGG_PAGE_BYTES + walk->segments + walk->body;
    return 0;
}

/* How many packets the headers are, by the beginning of the first. */
static int audio_ogg_find_codec(struct ogg_walk *walk, unsigned *ret, struct dl_error *err)
{
    char name[NAME_BYTES] = {0};
    uint64_t at = OGG_PAGE_BYTES + walk->segments;

    if (walk->body >= sizeof name) {
        int r = audio_ogg_read(walk, name, sizeof name, at, err);
        if (r < 0)
            return r;
    }
    *ret = memcmp(name, "OpusHead", NAME_BYTES) == 0 ? OPUS_PACKETS : VORBIS_PACKETS;
    if (*ret == OPUS_PACKETS || memcmp(name, "\1vorbis", NAME_BYTES - 1) == 0)
        return 0;
    return dl_error_set(err, EINVAL, walk->path,
                        "is an Ogg file of neither Vorbis nor Opus; convert it to FLAC");
}

/* The last page of those that begin in [from, end) of the file; false: none does. */
static bool audio_ogg_find_page(const struct ogg_walk *walk, uint64_t from, uint64_t end,
                                uint64_t *ret)
{
    enum { MARK = 4 };
    uint8_t part[PART + MARK - 1];
    int64_t n = walk->source->read(walk->source->owner, part, end - from + MARK - 1, from);

    for (int64_t i = n - MARK; i >= 0; i--) {
        if (memcmp(part + i, "OggS", MARK) == 0) {
            *ret = from + (uint64_t)i;
            return true;
        }
    }
    return false;
}

/* Of the page that begins last: bytes behind it may be no page. */
static int audio_ogg_check_end(struct ogg_walk *walk, struct dl_error *err)
{
    uint64_t end = walk->source->bytes, least = end - min_u64(end, PAGE_MAX);
    bool found = false;
    int r;

    while (!found && end > least) {
        uint64_t from = end - min_u64(PART, end - least);
        found = audio_ogg_find_page(walk, from, end, &walk->at);
        end = from;
    }
    if (!found)
        return audio_ogg_refuse(walk, "has no page of sound", err);
    uint64_t last = walk->at;
    if ((r = audio_ogg_step(walk, err)) < 0)
        return r;
    if (walk->head[FLAGS_AT] & FLAG_LAST)
        return 0;
    return dl_error_set(err, EINVAL, walk->path,
                        "is truncated: its last page, at byte %llu, is not marked as the last; if "
                        "no sound is missing, \"ffmpeg -i IN -c copy OUT\" marks it",
                        (ull)last);
}

int audio_head_check_ogg(const struct audio_head_source *source, const char *path,
                         struct dl_error *err)
{
    struct ogg_walk walk = {.source = source, .path = path};
    unsigned packets = 0;
    int r = audio_ogg_step(&walk, err);

    if (r < 0 || (r = audio_ogg_find_codec(&walk, &packets, err)) < 0)
        return r;
    for (int i = 0; walk.packets < packets; i++) {
        if (i == PAGES_MAX)
            return audio_ogg_refuse(&walk, "has too many headers: another begins", err);
        if ((r = audio_ogg_step(&walk, err)) < 0)
            return r;
    }
    return audio_ogg_check_end(&walk, err);
}
