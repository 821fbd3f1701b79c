/* Tables of 256 bytes where a byte's result depends on that byte alone; else pixel by pixel. */
#include "daemon/data/image/colour.h"
#include "daemon/data/image/vectors.h"

#include <math.h>

enum { PIXEL = PICTURE_PIXEL, COLOURS = 3, LEVELS = 256 };

struct colour_tables {
    uint8_t of[COLOURS][LEVELS];
};

static void colour_look_up(struct picture *p, const struct colour_tables *tables)
{
    uint8_t *px = p->pixels;

    for (size_t n = picture_pixels(p); n > 0; n--, px += PIXEL) {
        for (unsigned c = 0; c < COLOURS; c++)
            px[c] = tables->of[c][px[c]];
    }
}

/* The same table for all channels. */
static void colour_look_up_all(struct picture *p, const uint8_t table[static LEVELS])
{
    uint8_t *px = p->pixels;

    for (size_t n = picture_pixels(p); n > 0; n--, px += PIXEL) {
        px[0] = table[px[0]];
        px[1] = table[px[1]];
        px[2] = table[px[2]];
    }
}

static inline uint8_t colour_to_byte(int n)
{
    return (uint8_t)(n < 0 ? 0 : n > 255 ? 255 : n);
}

/* ---- blending ---------------------------------------------------------------------------------
 */

/* Image.blend() in float32, which is cut, not rounded; between the two it needs no limits. */
static inline uint8_t colour_mix(uint8_t from, uint8_t to, float factor)
{
    float step = factor * (float)((int)to - (int)from), mixed = (float)from + step;

    return (uint8_t)(int)(mixed <= 0 ? 0 : mixed >= 255 ? 255 : mixed);
}

/* From one level for all pixels. */
static void colour_blend_level(struct picture *p, uint8_t level, double factor)
{
    uint8_t table[LEVELS];

    if ((float)factor == 1)
        return;
    for (unsigned i = 0; i < LEVELS; i++)
        table[i] = (float)factor == 0 ? level : colour_mix(level, (uint8_t)i, (float)factor);
    colour_look_up_all(p, table);
}

WIDE_VECTORS static void colour_mix_all(const uint8_t *from, uint8_t *to, size_t n, float factor)
{
    for (size_t i = 0; i < n; i++)
        to[i] = colour_mix(from[i], to[i], factor);
}

void colour_blend(const struct picture *from, double factor, struct picture *p)
{
    size_t bytes = picture_pixels(p) * PIXEL;

    if ((float)factor == 0)
        memcpy(p->pixels, from->pixels, bytes);
    else if ((float)factor != 1)
        colour_mix_all(from->pixels, p->pixels, bytes, (float)factor);
}

void colour_brightness(struct picture *p, double factor)
{
    colour_blend_level(p, 0, factor);
}

static inline uint8_t colour_luma(const uint8_t *px)
{
    return (uint8_t)((px[0] * 19595U + px[1] * 38470U + px[2] * 7471U + 0x8000) >> 16);
}

WIDE_VECTORS static uint64_t colour_sum_luma(const uint8_t *px, size_t n)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n;) {
        uint32_t some = 0;
        size_t end = n - i < 65536 ? n : i + 65536;
        for (; i < end; i++)
            some += colour_luma(px + i * PIXEL);
        sum += some;
    }
    return sum;
}

void colour_contrast(struct picture *p, double factor)
{
    size_t n = picture_pixels(p);

    if (n == 0)
        return;
    double mean = (double)colour_sum_luma(p->pixels, n) / (double)n;
    colour_blend_level(p, (uint8_t)(int)(mean + 0.5), factor);
}

WIDE_VECTORS static void colour_saturate(uint8_t *px, size_t n, float factor)
{
    for (size_t i = 0; i < n; i++, px += PIXEL) {
        uint8_t grey = colour_luma(px);
        for (unsigned c = 0; c < PIXEL; c++)
            px[c] = colour_mix(grey, px[c], factor);
    }
}

void colour_saturation(struct picture *p, double factor)
{
    if ((float)factor == 0)
        colour_grey(p, p->grey);
    else if ((float)factor != 1)
        colour_saturate(p->pixels, picture_pixels(p), (float)factor);
}

WIDE_VECTORS static void colour_put_grey(uint8_t *px, size_t n)
{
    for (size_t i = 0; i < n; i++, px += PIXEL)
        px[0] = px[1] = px[2] = colour_luma(px);
}

void colour_grey(struct picture *p, bool single)
{
    if (!p->grey)
        colour_put_grey(p->pixels, picture_pixels(p));
    p->grey = single;
}

void colour_permute(struct picture *p, const uint32_t order[static COLOURS])
{
    uint8_t *px = p->pixels;

    for (size_t n = picture_pixels(p); n > 0; n--, px += PIXEL) {
        uint8_t old[COLOURS] = {px[0], px[1], px[2]};
        for (unsigned c = 0; c < COLOURS; c++)
            px[c] = old[order[c]];
    }
}

/* ---- hue --------------------------------------------------------------------------------------
 */

/*
 * HSV of 8 bits each, as Convert.c (rgb2hsv_row, hsv2rgb) has it: float32 and float64 where it has
 * them. The hue and the saturation of a pixel are cut to 255ths.
 */
static inline uint8_t colour_hue_of(const uint8_t *px, uint8_t most, uint8_t least)
{
    float range = (float)(most - least);
    float rc = (float)(most - px[0]) / range, gc = (float)(most - px[1]) / range;
    float bc = (float)(most - px[2]) / range, h;

    if (px[0] == most)
        h = bc - gc;
    else if (px[1] == most)
        h = (float)(2.0 + (double)rc - (double)bc);
    else
        h = (float)(4.0 + (double)gc - (double)rc);
    double turn = (double)h / 6.0 + 1.0;
    h = (float)(turn >= 1 ? turn - 1 : turn); /* fmod(turn, 1): it is below 2 */
    return colour_to_byte((int)((double)h * 255.0));
}

/* What hsv2rgb does with a hue: its sixth of the circle, and how far in it. */
struct colour_sector {
    unsigned sixth;
    float rest;
};

static inline uint8_t colour_fade(uint8_t value, double left)
{
    return colour_to_byte((int)((double)value * left + 0.5));
}

static inline void colour_put_hsv(uint8_t *px, const struct colour_sector *sector, float saturation,
                                  uint8_t v)
{
    static const uint8_t places[6][COLOURS] = {{0, 3, 1}, {2, 0, 1}, {1, 0, 3},
                                               {1, 2, 0}, {3, 1, 0}, {0, 1, 2}};
    float rest = saturation * sector->rest;
    uint8_t parts[4] = {v, colour_fade(v, 1.0 - (double)saturation),
                        colour_fade(v, 1.0 - (double)rest), 0};

    parts[3] = colour_fade(v, 1.0 - (double)saturation * (1.0 - (double)sector->rest));
    for (unsigned c = 0; c < COLOURS; c++)
        px[c] = parts[places[sector->sixth][c]];
}

void colour_hue(struct picture *p, double turn)
{
    uint8_t shift = (uint8_t)(int32_t)(turn * 255), *px = p->pixels;
    struct colour_sector sectors[LEVELS];
    float saturations[LEVELS];

    if (p->grey)
        return;
    for (unsigned i = 0; i < LEVELS; i++) {
        double sixths = (double)(float)i * 6.0 / 255.0;
        int whole = (int)floor(sixths);
        sectors[i].sixth = (unsigned)whole % 6;
        sectors[i].rest = (float)(sixths - (double)(float)whole);
        saturations[i] = (float)((double)(float)i / 255.0);
    }
    for (size_t n = picture_pixels(p); n > 0; n--, px += PIXEL) {
        uint8_t most = (uint8_t)max_u64(px[0], max_u64(px[1], px[2]));
        uint8_t least = (uint8_t)min_u64(px[0], min_u64(px[1], px[2]));
        if (most == least)
            continue;
        float s = (float)(most - least) / (float)most;
        uint8_t saturation = (uint8_t)(int)((double)s * 255.0);
        uint8_t hue = (uint8_t)(colour_hue_of(px, most, least) + shift);
        if (saturation == 0)
            px[0] = px[1] = px[2] = most;
        else
            colour_put_hsv(px, &sectors[hue], saturations[saturation], most);
    }
}

/* ---- tables -----------------------------------------------------------------------------------
 */

void colour_invert(struct picture *p)
{
    uint8_t *px = p->pixels;

    for (size_t n = picture_pixels(p) * PIXEL; n > 0; n--, px++)
        *px = (uint8_t) ~*px;
}

void colour_posterize(struct picture *p, unsigned bits)
{
    uint8_t mask = (uint8_t)(0xff00 >> (bits < 8 ? bits : 8)), *px = p->pixels;

    for (size_t n = picture_pixels(p) * PIXEL; n > 0; n--, px++)
        *px &= mask;
}

void colour_solarize(struct picture *p, double threshold)
{
    uint8_t table[LEVELS];

    for (unsigned i = 0; i < LEVELS; i++)
        table[i] = (uint8_t)(i < threshold ? i : 255 - i);
    colour_look_up_all(p, table);
}

struct colour_counts {
    uint64_t of[COLOURS][LEVELS];
};

/* Four tables a channel would be faster still; two neighbours often have the same level. */
static void colour_count(const struct picture *p, struct colour_counts *ret)
{
    const uint8_t *px = p->pixels;

    *ret = (struct colour_counts){0};
    for (size_t n = picture_pixels(p); n > 0; n--, px += PIXEL) {
        for (unsigned c = 0; c < COLOURS; c++)
            ret->of[c][px[c]]++;
    }
}

static void colour_stretch(const uint64_t counts[static LEVELS], uint8_t table[static LEVELS])
{
    int low = 0, high = LEVELS - 1;

    while (low < LEVELS - 1 && !counts[low])
        low++;
    while (high > 0 && !counts[high])
        high--;
    double scale = high > low ? 255.0 / (high - low) : 1;
    double offset = high > low ? -low * scale : 0;
    for (int i = 0; i < LEVELS; i++) {
        double scaled = i * scale;
        table[i] = colour_to_byte((int)(scaled + offset));
    }
}

void colour_autocontrast(struct picture *p)
{
    struct colour_counts counts;
    struct colour_tables tables;

    colour_count(p, &counts);
    for (unsigned c = 0; c < COLOURS; c++)
        colour_stretch(counts.of[c], tables.of[c]);
    colour_look_up(p, &tables);
}

static void colour_level(const uint64_t counts[static LEVELS], uint64_t pixels,
                         uint8_t table[static LEVELS])
{
    unsigned last = LEVELS - 1;

    while (last > 0 && !counts[last])
        last--;
    uint64_t step = (pixels - counts[last]) / 255, sum = step / 2;
    for (unsigned i = 0; i < LEVELS; i++) {
        table[i] = (uint8_t)(step ? min_u64(sum / step, 255) : i);
        sum += counts[i];
    }
}

void colour_equalize(struct picture *p)
{
    struct colour_counts counts;
    struct colour_tables tables;

    colour_count(p, &counts);
    for (unsigned c = 0; c < COLOURS; c++)
        colour_level(counts.of[c], picture_pixels(p), tables.of[c]);
    colour_look_up(p, &tables);
}
