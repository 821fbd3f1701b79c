/* Tables of 256 bytes where a byte's result depends on that byte alone and is no simple sum; else
 * pixel by pixel, for which the compiler has vectors. */
#include "daemon/data/decode/image/colour.h"
#include "daemon/data/decode/transform/lookup.h"
#include "daemon/data/decode/transform/vectors.h"

#include <math.h>

enum { COLOUR_BLOCK = 256 };

static inline uint8_t colour_to_byte(int n)
{
    return (uint8_t)(n < 0 ? 0 : n > 255 ? 255 : n);
}

static inline uint32_t colour_load(const uint8_t *px, size_t i)
{
    uint32_t pixel;

    memcpy(&pixel, px + i * PICTURE_PIXEL, sizeof pixel);
    return pixel;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "red is a pixel's lowest byte");

/* ---- blending ---------------------------------------------------------------------------------
 */

/* Image.blend() in float32, which is cut, not rounded. The limits are those of whole numbers, for
 * which the compiler has vectors; factors are far below what would not fit these. */
static inline uint8_t colour_mix(uint8_t from, uint8_t to, float factor)
{
    float step = factor * (float)((int)to - (int)from);

    return colour_to_byte((int)((float)from + step));
}

/* The three bytes of a pixel from one level. Each is as wide as the pixel while it is worked out,
 * so that vectors need no other order of bytes. */
static inline uint32_t colour_mix_pixel(int32_t level, uint32_t pixel, float factor)
{
    uint32_t mixed = 0;

    for (unsigned bit = 0; bit < PICTURE_COLOURS * 8; bit += 8) {
        float step = factor * (float)((int32_t)(pixel >> bit & 255) - level);
        int32_t n = (int32_t)((float)level + step);
        mixed |= (uint32_t)(n < 0 ? 0 : n > 255 ? 255 : n) << bit;
    }
    return mixed;
}

WIDE_VECTORS static void colour_mix_level(uint8_t *px, size_t n, uint8_t level, float factor)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t pixel = colour_mix_pixel(level, colour_load(px, i), factor);
        memcpy(px + i * PICTURE_PIXEL, &pixel, sizeof pixel);
    }
}

/* As colour_mix_level(): what a byte becomes depends on that byte alone. */
static void colour_look_up_mixed(uint8_t *px, size_t n, uint8_t level, float factor)
{
    uint8_t table[LOOKUP_LEVELS];

    for (unsigned i = 0; i < LOOKUP_LEVELS; i++)
        table[i] = colour_mix(level, (uint8_t)i, factor);
    lookup_all(px, n, table);
}

/* From one level for all pixels. */
static void colour_blend_level(struct picture *p, uint8_t level, double factor)
{
    if ((float)factor != 1)
        (lookup_is_quick() ? colour_look_up_mixed : colour_mix_level)(p->pixels, picture_pixels(p),
                                                                      level, (float)factor);
}

WIDE_VECTORS static void colour_mix_all(const uint8_t *restrict from, uint8_t *restrict to,
                                        size_t n, float factor)
{
    for (size_t i = 0; i < n; i++)
        to[i] = colour_mix(from[i], to[i], factor);
}

void colour_blend(const struct picture *from, double factor, struct picture *p)
{
    size_t bytes = picture_pixels(p) * PICTURE_PIXEL;

    if ((float)factor == 0)
        memcpy(p->pixels, from->pixels, bytes);
    else if ((float)factor != 1)
        colour_mix_all(from->pixels, p->pixels, bytes, (float)factor);
}

void colour_brightness(struct picture *p, double factor)
{
    colour_blend_level(p, 0, factor);
}

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
        memcpy(out + i * PICTURE_PIXEL, &pixel, sizeof pixel);
    }
}

WIDE_VECTORS static void colour_saturate(uint8_t *px, size_t n, float factor)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t pixel = colour_load(px, i);
        pixel = colour_mix_pixel((int32_t)colour_luma(pixel), pixel, factor);
        memcpy(px + i * PICTURE_PIXEL, &pixel, sizeof pixel);
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

void colour_grey_row(uint8_t *row, size_t n)
{
    colour_make_grey(row, n, row);
}

WIDE_VECTORS void colour_grey_bytes(const uint8_t *px, size_t n, uint8_t *restrict out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)colour_luma(colour_load(px, i));
}

void colour_permute(struct picture *p, const uint32_t order[static PICTURE_COLOURS])
{
    uint8_t *px = p->pixels;

    for (size_t n = picture_pixels(p); n > 0; n--, px += PICTURE_PIXEL) {
        uint8_t old[PICTURE_COLOURS] = {px[0], px[1], px[2]};
        for (unsigned c = 0; c < PICTURE_COLOURS; c++)
            px[c] = old[order[c]];
    }
}

/* ---- hue --------------------------------------------------------------------------------------
 */

/*
 * HSV of 8 bits each, there and back, as Pillow's Convert.c (rgb2hsv_row, hsv2rgb) works it out in
 * float32 and float64. What it cuts or rounds are fractions of small whole numbers, so far from
 * each other that less exact sums give the same, but where a fraction is whole: then Pillow may
 * have it just below. Those are told apart here. A block of pixels at a time, in steps without
 * branches, so that the compiler can use vectors. The unit test compares all colours.
 */
enum {
    CIRCLE = 255, /* hues */
    THIRD = CIRCLE / 3,
    SIXTH = 85,           /* of the circle, in halves of a hue */
    SHARES = 255 * SIXTH, /* of 1: a saturation times halves of a hue */
};

struct colour_hsv {
    uint32_t hue[COLOUR_BLOCK]; /* its place in colour_circle; then what is there */
    float saturation[COLOUR_BLOCK];
    float value[COLOUR_BLOCK];
};

static inline int32_t colour_max(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static inline int32_t colour_min(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* 2h if the hue is h, 2h + 1 if it is between h and h + 1: then it is 1/510 or more from both,
 * since `range` is at most 255. */
static inline uint32_t colour_place(int32_t r, int32_t g, int32_t b, int32_t most, int32_t range)
{
    const float near = 1.0F / 1024;
    int32_t by_r = -(r == most), by_g = -(g == most) & ~by_r, by_b = ~(by_r | by_g);
    int32_t step = ((g - b) & by_r) | ((b - r) & by_g) | ((r - g) & by_b);
    int32_t start = (CIRCLE & by_r & -(g < b)) | (THIRD & by_g) | (2 * THIRD & by_b);
    float hue = (float)start + (float)step * (CIRCLE / 6.0F) / (float)colour_max(range, 1);

    return (uint32_t)((int32_t)(hue + near) + (int32_t)(hue + (1 - near)));
}

/* The whole part of `share` * 255 in float64. In float32 the product may be rounded up to the next
 * whole number; these differences are exact in float32. */
static inline float colour_saturation_of(float share)
{
    float whole = (float)(int32_t)(share * 255);

    return whole - (share * 256 - whole < share ? 1.0F : 0.0F);
}

WIDE_VECTORS static void colour_to_hsv(const uint8_t *restrict px, size_t n,
                                       struct colour_hsv *restrict ret)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t pixel = colour_load(px, i);
        int32_t r = pixel & 255, g = pixel >> 8 & 255, b = pixel >> 16 & 255;
        int32_t most = colour_max(r, colour_max(g, b));
        int32_t range = most - colour_min(r, colour_min(g, b));
        ret->hue[i] = colour_place(r, g, b, most, range);
        ret->saturation[i] = colour_saturation_of((float)range / (float)colour_max(most, 1));
        ret->value[i] = (float)most;
    }
}

/* For each place, a byte each from the lowest on: how many halves of a hue the middle colour is
 * from the brightest; and the bits of a pixel where the brightest, the middle and the darkest
 * begin. */
struct colour_circle {
    uint32_t hues[2 * LOOKUP_LEVELS];
};

static uint32_t colour_circle_at(unsigned hue)
{
    static const uint32_t shifts[] = {0x100800, 0x100008, 0x001008, 0x000810, 0x080010, 0x081000};
    unsigned sixth = hue * 2 / SIXTH % 6, place = hue * 2 % SIXTH;

    return shifts[sixth] << 8 | (sixth & 1 ? place : SIXTH - place);
}

static void colour_circle_make(uint8_t shift, struct colour_circle *circle)
{
    /* Bit h: Pillow has the hue h just below that, and cuts it to h - 1. */
    static const uint32_t below[] = {
        0xfffffffe, 0x00000000, 0x11000000, 0x00000111, 0x222aaaaa, 0x23232222, 0x00022222, 0,
    };

    for (unsigned i = 0; i < LOOKUP_LEVELS; i++) {
        unsigned cut = i - (below[i / 32] >> i % 32 & 1);
        circle->hues[2 * i] = colour_circle_at((cut + shift) % LOOKUP_LEVELS);
        circle->hues[2 * i + 1] = colour_circle_at((i + shift) % LOOKUP_LEVELS);
    }
}

static void colour_look_up_circle(const struct colour_circle *circle, size_t n, uint32_t *hue)
{
    for (size_t i = 0; i < n; i++)
        hue[i] = circle->hues[hue[i]];
}

/* `value`, less as much of it as `lost` SHARES are, rounded. It is never nearer to a half than half
 * of a SHARE, for SHARES are odd, and the sums here are wrong by less. */
static inline uint32_t colour_fade(float value, float lost)
{
    return (uint32_t)(int32_t)(value * (SHARES - lost) * (1.0F / SHARES) + 0.5F);
}

WIDE_VECTORS static void colour_from_hsv(const struct colour_hsv *restrict hsv, size_t n,
                                         uint8_t *restrict px)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t todo = hsv->hue[i];
        float value = hsv->value[i], saturation = hsv->saturation[i];
        uint32_t middle = colour_fade(value, saturation * (float)(int32_t)(todo & 255));
        uint32_t darkest = colour_fade(value, saturation * SIXTH);
        uint32_t pixel = (uint32_t)(int32_t)value << (todo >> 8 & 31) |
                         middle << (todo >> 16 & 31) | darkest << (todo >> 24);
        memcpy(px + i * PICTURE_PIXEL, &pixel, sizeof pixel);
    }
}

void colour_hue(struct picture *p, double turn)
{
    uint8_t *px = p->pixels;
    struct colour_circle circle;
    struct colour_hsv hsv;

    if (p->grey)
        return;
    colour_circle_make((uint8_t)(int32_t)(turn * 255), &circle);
    for (size_t n = picture_pixels(p), here; n > 0; n -= here, px += here * PICTURE_PIXEL) {
        here = n < COLOUR_BLOCK ? n : COLOUR_BLOCK;
        colour_to_hsv(px, here, &hsv);
        colour_look_up_circle(&circle, here, hsv.hue);
        colour_from_hsv(&hsv, here, px);
    }
}

/* ---- tables -----------------------------------------------------------------------------------
 */

void colour_invert(struct picture *p)
{
    uint8_t *px = p->pixels;

    for (size_t n = picture_pixels(p) * PICTURE_PIXEL; n > 0; n--, px++)
        *px = (uint8_t) ~*px;
}

void colour_posterize(struct picture *p, unsigned bits)
{
    uint8_t mask = (uint8_t)(0xff00 >> (bits < 8 ? bits : 8)), *px = p->pixels;

    for (size_t n = picture_pixels(p) * PICTURE_PIXEL; n > 0; n--, px++)
        *px &= mask;
}

void colour_solarize(struct picture *p, double threshold)
{
    uint8_t table[LOOKUP_LEVELS];

    for (unsigned i = 0; i < LOOKUP_LEVELS; i++)
        table[i] = (uint8_t)(i < threshold ? i : 255 - i);
    lookup_all(p->pixels, picture_pixels(p), table);
}

struct colour_counts {
    uint64_t colour[PICTURE_COLOURS][LOOKUP_LEVELS];
};

/* Neighbours often have the same level, and to count it twice in one place is to wait for the first
 * sum: so each lane has its own. The gap keeps one level of two lanes from addresses that differ by
 * a multiple of 4 KiB, which processors take for the same at first. */
enum { COLOUR_LANES = 4, GAP = 16 };

struct colour_lanes {
    uint32_t counts[COLOUR_LANES][PICTURE_COLOURS][LOOKUP_LEVELS + GAP];
};

static inline void colour_count_pixel(uint32_t pixel,
                                      uint32_t counts[static PICTURE_COLOURS][LOOKUP_LEVELS + GAP])
{
    counts[0][pixel & 255]++;
    counts[1][pixel >> 8 & 255]++;
    counts[2][pixel >> 16 & 255]++;
}

static void colour_count(const struct picture *p, struct colour_counts *ret)
{
    struct colour_lanes lanes = {0};
    size_t i = 0, n = picture_pixels(p);

    for (; i + COLOUR_LANES <= n; i += COLOUR_LANES) {
        for (unsigned lane = 0; lane < COLOUR_LANES; lane++)
            colour_count_pixel(colour_load(p->pixels, i + lane), lanes.counts[lane]);
    }
    for (; i < n; i++)
        colour_count_pixel(colour_load(p->pixels, i), lanes.counts[0]);
    *ret = (struct colour_counts){0};
    for (unsigned lane = 0; lane < COLOUR_LANES; lane++) {
        for (unsigned c = 0; c < PICTURE_COLOURS; c++) {
            for (i = 0; i < LOOKUP_LEVELS; i++)
                ret->colour[c][i] += lanes.counts[lane][c][i];
        }
    }
}

static void colour_stretch(const uint64_t counts[static LOOKUP_LEVELS],
                           uint8_t table[static LOOKUP_LEVELS])
{
    int low = 0, high = LOOKUP_LEVELS - 1;

    while (low < LOOKUP_LEVELS - 1 && !counts[low])
        low++;
    while (high > 0 && !counts[high])
        high--;
    double scale = high > low ? 255.0 / (high - low) : 1;
    double offset = high > low ? -low * scale : 0;
    for (int i = 0; i < LOOKUP_LEVELS; i++) {
        double scaled = i * scale;
        table[i] = colour_to_byte((int)(scaled + offset));
    }
}

void colour_autocontrast(struct picture *p)
{
    struct colour_counts counts;
    struct lookup_tables tables;

    colour_count(p, &counts);
    for (unsigned c = 0; c < PICTURE_COLOURS; c++)
        colour_stretch(counts.colour[c], tables.colour[c]);
    lookup_each(p->pixels, picture_pixels(p), &tables);
}

static void colour_level(const uint64_t counts[static LOOKUP_LEVELS], uint64_t pixels,
                         uint8_t table[static LOOKUP_LEVELS])
{
    unsigned last = LOOKUP_LEVELS - 1;

    while (last > 0 && !counts[last])
        last--;
    uint64_t step = (pixels - counts[last]) / 255, sum = step / 2;
    for (unsigned i = 0; i < LOOKUP_LEVELS; i++) {
        table[i] = (uint8_t)(step ? min_u64(sum / step, 255) : i);
        sum += counts[i];
    }
}

void colour_equalize(struct picture *p)
{
    struct colour_counts counts;
    struct lookup_tables tables;

    colour_count(p, &counts);
    for (unsigned c = 0; c < PICTURE_COLOURS; c++)
        colour_level(counts.colour[c], picture_pixels(p), tables.colour[c]);
    lookup_each(p->pixels, picture_pixels(p), &tables);
}
