/* Tables of 256 bytes where a byte's result depends on that byte alone; else pixel by pixel. */
#include "daemon/data/image/colour.h"
#include "daemon/data/image/vectors.h"

#include <math.h>

enum { PIXEL = PICTURE_PIXEL, COLOURS = 3, LEVELS = 256, BLOCK = 256 };

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

/* Image.blend() in float32, which is cut, not rounded. The limits are those of whole numbers, for
 * which the compiler has vectors; factors are far below what would not fit these. */
static inline uint8_t colour_mix(uint8_t from, uint8_t to, float factor)
{
    float step = factor * (float)((int)to - (int)from);

    return colour_to_byte((int)((float)from + step));
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

WIDE_VECTORS static void colour_mix_all(const uint8_t *restrict from, uint8_t *restrict to,
                                        size_t n, float factor)
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

static inline uint32_t colour_load(const uint8_t *px, size_t i)
{
    uint32_t pixel;

    memcpy(&pixel, px + i * PIXEL, sizeof pixel);
    return pixel;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "red is a pixel's lowest byte");

static inline uint32_t colour_luma(uint32_t pixel)
{
    return ((pixel & 255) * 19595U + (pixel >> 8 & 255) * 38470U + (pixel >> 16 & 255) * 7471U +
            0x8000) >>
           16;
}

WIDE_VECTORS static uint64_t colour_sum_luma(const uint8_t *px, size_t n)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n;) {
        uint32_t some = 0;
        size_t end = n - i < 65536 ? n : i + 65536;
        for (; i < end; i++)
            some += colour_luma(colour_load(px, i));
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

/* The grey of each pixel, in all of its bytes. */
WIDE_VECTORS static void colour_make_grey(const uint8_t *px, size_t n, uint8_t *out)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t pixel = colour_luma(colour_load(px, i)) * 0x01010101U;
        memcpy(out + i * PIXEL, &pixel, sizeof pixel);
    }
}

static void colour_saturate(uint8_t *px, size_t n, float factor)
{
    uint8_t grey[BLOCK * PIXEL];

    for (size_t here; n > 0; n -= here, px += here * PIXEL) {
        here = n < BLOCK ? n : BLOCK;
        colour_make_grey(px, here, grey);
        colour_mix_all(grey, px, here * PIXEL, factor);
    }
}

void colour_saturation(struct picture *p, double factor)
{
    if ((float)factor == 0)
        colour_grey(p, p->grey);
    else if ((float)factor != 1)
        colour_saturate(p->pixels, picture_pixels(p), (float)factor);
}

void colour_grey(struct picture *p, bool single)
{
    if (!p->grey)
        colour_make_grey(p->pixels, picture_pixels(p), p->pixels);
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
 * them. The hue and the saturation of a pixel are cut to 255ths. A block of pixels at a time, in
 * steps without branches, so that the compiler can use vectors.
 */
struct colour_hsv {
    int32_t hue[BLOCK];
    int32_t saturation[BLOCK];
    int32_t value[BLOCK];
    int32_t sixth[BLOCK]; /* of the circle, in which the hue lies */
    float rest[BLOCK];    /* how far in it */
    float share[BLOCK];   /* of colour */
};

static inline int32_t colour_max(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static inline int32_t colour_min(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

WIDE_VECTORS static void colour_to_hsv(const uint8_t *px, size_t n, uint8_t shift,
                                       struct colour_hsv *ret)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t pixel = colour_load(px, i);
        int32_t r = pixel & 255, g = pixel >> 8 & 255, b = pixel >> 16 & 255;
        int32_t most = colour_max(r, colour_max(g, b)), least = colour_min(r, colour_min(g, b));
        float range = (float)colour_max(most - least, 1); /* 0: grey, whatever its hue */
        float rc = (float)(most - r) / range, gc = (float)(most - g) / range;
        float bc = (float)(most - b) / range;
        float of_r = bc - gc, of_g = (float)(2.0 + (double)rc - (double)bc);
        float of_b = (float)(4.0 + (double)gc - (double)rc);
        float h = r == most ? of_r : g == most ? of_g : of_b;
        double turn = (double)h / 6.0 + 1.0;
        float within = (float)(turn - (turn >= 1 ? 1.0 : 0.0)); /* fmod(turn, 1): it is below 2 */
        float s = (float)(most - least) / (float)colour_max(most, 1);
        ret->hue[i] = ((int32_t)((double)within * 255.0) + shift) & 255;
        ret->saturation[i] = (int32_t)((double)s * 255.0);
        ret->value[i] = most;
    }
}

/* What hsv2rgb works out of a hue and of a saturation, for each there is. */
struct colour_circle {
    int32_t sixth[LEVELS];
    float rest[LEVELS];
    float share[LEVELS];
};

static void colour_circle_make(struct colour_circle *circle)
{
    for (unsigned i = 0; i < LEVELS; i++) {
        double sixths = (double)(float)i * 6.0 / 255.0;
        int whole = (int)floor(sixths);
        circle->sixth[i] = whole % 6;
        circle->rest[i] = (float)(sixths - (double)(float)whole);
        circle->share[i] = (float)((double)(float)i / 255.0);
    }
}

static void colour_look_up_circle(const struct colour_circle *circle, size_t n,
                                  struct colour_hsv *hsv)
{
    for (size_t i = 0; i < n; i++) {
        hsv->sixth[i] = circle->sixth[hsv->hue[i]];
        hsv->rest[i] = circle->rest[hsv->hue[i]];
        hsv->share[i] = circle->share[hsv->saturation[i]];
    }
}

/* round(), of what is not negative. */
static inline int32_t colour_fade(int32_t value, double left)
{
    return (int32_t)((double)(float)value * left + 0.5);
}

WIDE_VECTORS static void colour_from_hsv(const struct colour_hsv *hsv, size_t n, uint8_t *px)
{
    for (size_t i = 0; i < n; i++) {
        int32_t six = hsv->sixth[i], v = hsv->value[i];
        float rest = hsv->rest[i], share = hsv->share[i], product = share * rest;
        int32_t p = colour_fade(v, 1.0 - (double)share), q = colour_fade(v, 1.0 - (double)product);
        int32_t t = colour_fade(v, 1.0 - (double)share * (1.0 - (double)rest));
        int32_t in0 = -(six == 0), in1 = -(six == 1), in2 = -(six == 2), in3 = -(six == 3);
        int32_t in4 = -(six == 4), in5 = -(six == 5);
        int32_t r = (v & (in0 | in5)) | (q & in1) | (p & (in2 | in3)) | (t & in4);
        int32_t g = (t & in0) | (v & (in1 | in2)) | (q & in3) | (p & (in4 | in5));
        int32_t b = (p & (in0 | in1)) | (t & in2) | (v & (in3 | in4)) | (q & in5);
        uint32_t pixel = (uint32_t)r | (uint32_t)g << 8 | (uint32_t)b << 16;
        memcpy(px + i * PIXEL, &pixel, sizeof pixel);
    }
}

void colour_hue(struct picture *p, double turn)
{
    uint8_t shift = (uint8_t)(int32_t)(turn * 255), *px = p->pixels;
    struct colour_circle circle;
    struct colour_hsv hsv;

    if (p->grey)
        return;
    colour_circle_make(&circle);
    for (size_t n = picture_pixels(p), here; n > 0; n -= here, px += here * PIXEL) {
        here = n < BLOCK ? n : BLOCK;
        colour_to_hsv(px, here, shift, &hsv);
        colour_look_up_circle(&circle, here, &hsv);
        colour_from_hsv(&hsv, here, px);
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
