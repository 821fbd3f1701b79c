/*
 * Whether a JPEG's markers say all that decoding needs. What libjpeg calls an error it finds in
 * them: in tables, in the frame, in the parameters of scans. Of coded data it only warns. So what
 * is refused here is all that it would refuse, and some that it would not.
 */
#include "daemon/data/decode/image/image_codec.h"

#include <string.h>

enum {
    MARKERS_BYTE = 0xFF,
    MARKERS_SOF0 = 0xC0,
    MARKERS_SOF2 = 0xC2,
    MARKERS_DHT = 0xC4,
    MARKERS_RST0 = 0xD0,
    MARKERS_RST7 = 0xD7,
    MARKERS_SOI = 0xD8,
    MARKERS_EOI = 0xD9,
    MARKERS_SOS = 0xDA,
    MARKERS_DQT = 0xDB,
    MARKERS_DRI = 0xDD,
    MARKERS_APP0 = 0xE0,
    MARKERS_APP15 = 0xEF,
    MARKERS_COM = 0xFE,
    MARKERS_TABLES = 4,     /* of each kind */
    MARKERS_COMPONENTS = 4, /* of a frame */
    MARKERS_BLOCKS = 64,    /* coefficients of one */
    MARKERS_LENGTHS = 16,   /* of Huffman codes */
    MARKERS_SIDE_MAX = 65500,
    MARKERS_MCU_BLOCKS = 10,
};

struct jpeg_component {
    uint8_t id, across, down, quant;
};

struct jpeg_markers {
    const uint8_t *at, *end; /* what follows; all there is */
    uint8_t quant, dc, ac;   /* a bit for each table that there is */
    uint8_t frame;           /* its marker; 0: there was none */
    struct image_size size;
    uint8_t n; /* components */
    struct jpeg_component components[MARKERS_COMPONENTS];
};

/* What a segment holds behind its length. */
struct jpeg_segment {
    const uint8_t *data;
    size_t bytes;
};

/* The segment at m->at, a marker; m->at is then behind it. False: it is not all there. */
static bool markers_take_segment(struct jpeg_markers *m, struct jpeg_segment *ret)
{
    const uint8_t *p = m->at;
    size_t length = m->end - p >= 4 ? (size_t)p[2] << 8 | p[3] : 0;

    if (length < 2 || length + 2 > (size_t)(m->end - p))
        return false;
    *ret = (struct jpeg_segment){p + 4, length - 2};
    m->at = p + 2 + length;
    return true;
}

static bool markers_read_quants(struct jpeg_markers *m, struct jpeg_segment s)
{
    while (s.bytes > 0) {
        unsigned wide = s.data[0] >> 4, table = s.data[0] & 15;
        size_t bytes = 1 + (wide + 1) * (size_t)MARKERS_BLOCKS;
        if (wide > 1 || table >= MARKERS_TABLES || bytes > s.bytes)
            return false;
        m->quant |= (uint8_t)(1 << table);
        s = (struct jpeg_segment){s.data + bytes, s.bytes - bytes};
    }
    return true;
}

/* How many symbols a table with these numbers of codes has; 0: none, or more than fit. */
static size_t markers_symbols(const uint8_t *counts)
{
    uint32_t codes = 0;
    size_t n = 0, all = 0;

    for (int i = 0; i < MARKERS_LENGTHS; i++)
        all += counts[i];
    for (int i = 0; i < MARKERS_LENGTHS && n < all; i++) {
        n += counts[i];
        codes += counts[i];
        if (codes >= 2U << i)
            return 0;
        codes <<= 1;
    }
    return all <= 256 ? all : 0;
}

static bool markers_read_huffman(struct jpeg_markers *m, struct jpeg_segment s)
{
    enum { DC_MOST = 15 };

    while (s.bytes > 0) {
        unsigned ac = s.data[0] >> 4, table = s.data[0] & 15;
        size_t n = s.bytes > 1 + MARKERS_LENGTHS ? markers_symbols(s.data + 1) : 0;
        const uint8_t *symbols = s.data + 1 + MARKERS_LENGTHS;
        if (ac > 1 || table >= MARKERS_TABLES || n == 0 || 1 + MARKERS_LENGTHS + n > s.bytes)
            return false;
        for (size_t i = 0; !ac && i < n; i++) {
            if (symbols[i] > DC_MOST)
                return false;
        }
        *(ac ? &m->ac : &m->dc) |= (uint8_t)(1 << table);
        s = (struct jpeg_segment){symbols + n, s.bytes - 1 - MARKERS_LENGTHS - n};
    }
    return true;
}

/* Whether chroma is a whole number of times smaller. */
static bool markers_checks_sampling(const struct jpeg_markers *m)
{
    unsigned across = 1, down = 1;

    for (int i = 0; i < m->n; i++) {
        const struct jpeg_component *c = &m->components[i];
        if (c->across == 0 || c->across > 4 || c->down == 0 || c->down > 4)
            return false;
        across = c->across > across ? c->across : across;
        down = c->down > down ? c->down : down;
    }
    for (int i = 0; i < m->n; i++) {
        if (across % m->components[i].across || down % m->components[i].down)
            return false;
    }
    return true;
}

static struct jpeg_component *markers_find(struct jpeg_markers *m, uint8_t id)
{
    for (int i = 0; i < m->n; i++) {
        if (m->components[i].id == id)
            return &m->components[i];
    }
    return NULL;
}

static bool markers_read_frame(struct jpeg_markers *m, uint8_t code, struct jpeg_segment s)
{
    enum { FIXED = 6, EACH = 3 };
    const uint8_t *p = s.data;
    unsigned n = s.bytes >= FIXED ? p[5] : 0;

    if (m->frame || (n != 1 && n != 3 && n != 4) || s.bytes != FIXED + EACH * n || p[0] != 8)
        return false;
    unsigned height = (unsigned)p[1] << 8 | p[2], width = (unsigned)p[3] << 8 | p[4];
    if (height == 0 || width == 0 || height > MARKERS_SIDE_MAX || width > MARKERS_SIDE_MAX)
        return false;
    for (p += FIXED; m->n < n; m->n++, p += EACH) {
        if (markers_find(m, p[0]))
            return false;
        m->components[m->n] = (struct jpeg_component){p[0], p[1] >> 4, p[1] & 15, p[2]};
    }
    m->frame = code;
    m->size = (struct image_size){.height = height, .width = width};
    return markers_checks_sampling(m);
}

/* What of a component's coefficients a scan brings. */
struct jpeg_band {
    unsigned first, last, high, low;
};

static bool markers_checks_band(const struct jpeg_markers *m, unsigned n, struct jpeg_band b)
{
    enum { LOW_MOST = 13 };

    if (m->frame != MARKERS_SOF2)
        return n == m->n && b.first == 0 && b.last == MARKERS_BLOCKS - 1 && b.high == 0 &&
               b.low == 0;
    bool band = b.first == 0 ? b.last == 0 : n == 1 && b.first <= b.last && b.last < MARKERS_BLOCKS;
    return band && b.low <= LOW_MOST && (b.high == 0 || b.high == b.low + 1);
}

static bool markers_has(unsigned tables, unsigned table)
{
    return table < MARKERS_TABLES && (tables >> table & 1);
}

/* tables: of DC and AC, four bits each. */
static bool markers_has_tables(const struct jpeg_markers *m, const struct jpeg_component *c,
                               uint8_t tables, struct jpeg_band band)
{
    bool reads_dc = band.first == 0 && band.high == 0, reads_ac = band.last > 0;

    return markers_has(m->quant, c->quant) && (!reads_dc || markers_has(m->dc, tables >> 4)) &&
           (!reads_ac || markers_has(m->ac, tables & 15));
}

static bool markers_read_scan(struct jpeg_markers *m, struct jpeg_segment s)
{
    enum { FIXED = 4, EACH = 2 };
    unsigned n = s.bytes >= FIXED ? s.data[0] : 0, blocks = 0, seen = 0;

    if (!m->frame || n == 0 || n > m->n || s.bytes != FIXED + (size_t)EACH * n)
        return false;
    const uint8_t *p = s.data + 1, *tail = p + (size_t)EACH * n;
    const struct jpeg_band band = {tail[0], tail[1], tail[2] >> 4, tail[2] & 15};
    for (; p < tail; p += EACH) {
        const struct jpeg_component *c = markers_find(m, p[0]);
        unsigned bit = c ? 1U << (c - m->components) : 0;
        if (!c || (seen & bit) || !markers_has_tables(m, c, p[1], band))
            return false;
        seen |= bit;
        blocks += (unsigned)c->across * c->down;
    }
    return (n == 1 || blocks <= MARKERS_MCU_BLOCKS) && markers_checks_band(m, n, band);
}

/* m->at is then the marker that ends coded data. False: no marker does. */
static bool markers_skip_data(struct jpeg_markers *m)
{
    const uint8_t *p = m->at;

    while (m->end - p >= 2 && (p = memchr(p, MARKERS_BYTE, (size_t)(m->end - p) - 1))) {
        bool restarts = p[1] >= MARKERS_RST0 && p[1] <= MARKERS_RST7;
        if (p[1] != 0 && p[1] != MARKERS_BYTE && !restarts) {
            m->at = p;
            return true;
        }
        p += p[1] == MARKERS_BYTE ? 1 : 2;
    }
    return false;
}

static bool markers_read_segment(struct jpeg_markers *m, uint8_t code)
{
    struct jpeg_segment s;

    if (!markers_take_segment(m, &s))
        return false;
    if (code >= MARKERS_SOF0 && code <= MARKERS_SOF2)
        return markers_read_frame(m, code, s);
    if (code == MARKERS_DHT)
        return markers_read_huffman(m, s);
    if (code == MARKERS_DQT)
        return markers_read_quants(m, s);
    if (code == MARKERS_DRI)
        return s.bytes == 2;
    if (code == MARKERS_SOS)
        return markers_read_scan(m, s) && markers_skip_data(m);
    return (code >= MARKERS_APP0 && code <= MARKERS_APP15) || code == MARKERS_COM;
}

/* Behind coded data there are the file's last marker, or, of a progressive picture, more scans. */
static bool markers_may_follow(const struct jpeg_markers *m, uint8_t code)
{
    return m->frame == MARKERS_SOF2 && (code == MARKERS_SOS || code == MARKERS_DHT);
}

size_t image_jpeg_whole(const struct image_file *file)
{
    struct jpeg_markers m = {.at = file->data, .end = file->data + file->bytes};
    bool has_scans = false;

    if (file->bytes < 2 || m.at[0] != MARKERS_BYTE || m.at[1] != MARKERS_SOI)
        return 0;
    for (m.at += 2; m.end - m.at >= 2 && m.at[0] == MARKERS_BYTE;) {
        uint8_t code = m.at[1];
        if (has_scans && code == MARKERS_EOI)
            return (size_t)(m.at + 2 - (const uint8_t *)file->data);
        if ((has_scans && !markers_may_follow(&m, code)) || !markers_read_segment(&m, code))
            return 0;
        has_scans |= code == MARKERS_SOS;
    }
    return 0;
}

/* ---- what comes before the coded data ------------------------------------------------------- */

static bool markers_begins(struct jpeg_segment s, const char *name, size_t bytes)
{
    return s.bytes >= bytes && memcmp(s.data, name, bytes) == 0;
}

#define MARKERS_BEGINS(segment, name) markers_begins(segment, name, sizeof(name) - 1)

/* What an application's segment says. False: Pillow may refuse it, or have more to do with it than
 * to keep it. */
static bool markers_read_app(unsigned n, struct jpeg_segment s, struct jpeg_header *header)
{
    enum { JFIF_LEAST = 7, JFIF_WHOLE = 12, ADOBE_LEAST = 7, ICC_LEAST = 14, JFIF_UNIT = 7 };

    if (n == 0 && MARKERS_BEGINS(s, "JFIF")) {
        header->has_density |=
            s.bytes >= JFIF_WHOLE && (s.data[JFIF_UNIT] == 1 || s.data[JFIF_UNIT] == 2);
        return s.bytes >= JFIF_LEAST;
    }
    if (n == 1) {
        header->has_exif |= MARKERS_BEGINS(s, "Exif\0\0");
        header->has_xmp |= MARKERS_BEGINS(s, "http://ns.adobe.com/xap/1.0/\0");
    }
    if (n == 2)
        return !MARKERS_BEGINS(s, "MPF\0") &&
               (!MARKERS_BEGINS(s, "ICC_PROFILE\0") || s.bytes >= ICC_LEAST);
    return n == 14 ? !MARKERS_BEGINS(s, "Adobe") || s.bytes >= ADOBE_LEAST
                   : n != 13 || !MARKERS_BEGINS(s, "Photoshop 3.0\0");
}

static bool markers_read_header_segment(struct jpeg_markers *m, uint8_t code,
                                        struct jpeg_header *header)
{
    struct jpeg_segment s;

    if (!markers_take_segment(m, &s))
        return false;
    if (code >= MARKERS_SOF0 && code <= MARKERS_SOF2)
        return markers_read_frame(m, code, s);
    if (code >= MARKERS_APP0 && code <= MARKERS_APP15)
        return markers_read_app(code - MARKERS_APP0, s, header);
    if (code == MARKERS_DQT)
        return markers_read_quants(m, s);
    return code == MARKERS_DHT || code == MARKERS_DRI || code == MARKERS_COM ||
           (code == MARKERS_SOS && m->frame);
}

bool image_jpeg_looks_plain(const struct image_file *file, struct jpeg_header *ret)
{
    struct jpeg_markers m = {.at = file->data, .end = file->data + file->bytes};

    if (file->bytes < 2 || m.at[0] != MARKERS_BYTE || m.at[1] != MARKERS_SOI)
        return false;
    *ret = (struct jpeg_header){0};
    for (m.at += 2; m.end - m.at >= 2 && m.at[0] == MARKERS_BYTE;) {
        uint8_t code = m.at[1];
        if (!markers_read_header_segment(&m, code, ret))
            return false;
        if (code != MARKERS_SOS)
            continue;
        ret->size = m.size;
        ret->components = m.n;
        ret->bytes = (size_t)(m.at - file->data);
        return ret->has_density || !ret->has_exif;
    }
    return false;
}
