/* Memory of pictures, and what only moves pixels. */
#include "daemon/data/decode/image/picture.h"

#include <errno.h>

#if defined(__SSE2__) && !defined(PLAIN_VECTORS)
#include <emmintrin.h>
#define PICTURE_VECTORS
#endif

int picture_set(struct picture *p, struct image_size size, bool grey)
{
    uint64_t pixels = (uint64_t)size.height * size.width;
    size_t bytes = pixels * PICTURE_PIXEL + PICTURE_SLACK;

    p->size = (struct image_size){0};
    p->grey = grey;
    if (pixels > IMAGE_BYTES_MAX / 3)
        return -EFBIG;
    if (bytes > p->room) {
        free(p->pixels);
        p->pixels = calloc(1, bytes);
        p->room = p->pixels ? bytes : 0;
    }
    if (!p->pixels)
        return -ENOMEM;
    p->size = size;
    return 0;
}

void picture_deinit(struct picture *p)
{
    free(p->pixels);
    *p = (struct picture){0};
}

static inline uint32_t picture_get(const uint8_t *row, size_t x)
{
    uint32_t pixel;

    memcpy(&pixel, row + x * PICTURE_PIXEL, sizeof pixel);
    return pixel;
}

static inline void picture_put(uint8_t *row, size_t x, uint32_t pixel)
{
    memcpy(row + x * PICTURE_PIXEL, &pixel, sizeof pixel);
}

static void picture_fill_pixels(uint8_t *row, size_t n, bool grey, struct picture_colour c)
{
    uint8_t bytes[PICTURE_PIXEL] = {c.rgb[0], c.rgb[grey ? 0 : 1], c.rgb[grey ? 0 : 2], 0};
    uint32_t pixel;

    memcpy(&pixel, bytes, sizeof pixel);
    for (size_t x = 0; x < n; x++)
        picture_put(row, x, pixel);
}

void picture_fill(struct picture *p, struct picture_colour colour)
{
    picture_fill_pixels(p->pixels, picture_pixels(p), p->grey, colour);
}

/* The part of [from, from + n) that lies in [0, most). */
static void picture_overlap(int64_t from, uint32_t n, uint32_t most, uint32_t *ret_first,
                            uint32_t *ret_end)
{
    int64_t first = from < 0 ? -from : 0, end = (int64_t)most - from;

    *ret_first = first > n ? n : (uint32_t)first;
    *ret_end = end < *ret_first ? *ret_first : end > n ? n : (uint32_t)end;
}

int picture_crop(const struct picture *in, const struct picture_box *box, struct picture *out)
{
    uint32_t top, bottom, left, right;
    int r = picture_set(out, box->size, in->grey);

    if (r < 0)
        return r;
    picture_overlap(box->top, box->size.height, in->size.height, &top, &bottom);
    picture_overlap(box->left, box->size.width, in->size.width, &left, &right);
    if (bottom - top < box->size.height || right - left < box->size.width)
        memset(out->pixels, 0, picture_pixels(out) * PICTURE_PIXEL);
    for (uint32_t y = top; left < right && y < bottom; y++)
        memcpy(picture_row(out, y) + (size_t)left * PICTURE_PIXEL,
               picture_row(in, (uint32_t)(box->top + y)) +
                   (size_t)(box->left + left) * PICTURE_PIXEL,
               (size_t)(right - left) * PICTURE_PIXEL);
    return 0;
}

#ifdef PICTURE_VECTORS

/* The row's ends, four pixels of each at once, as far as they do not meet; returns how many pixels
 * of each are done. */
static size_t picture_flip_ends(uint8_t *row, size_t w)
{
    enum { AT_ONCE = 4, TURNED = 0x1b };
    size_t x = 0;

    for (; 2 * (x + AT_ONCE) <= w; x += AT_ONCE) {
        __m128i *left = (void *)(row + x * PICTURE_PIXEL);
        __m128i *right = (void *)(row + (w - x - AT_ONCE) * PICTURE_PIXEL);
        __m128i first = _mm_loadu_si128(left), last = _mm_loadu_si128(right);
        _mm_storeu_si128(left, _mm_shuffle_epi32(last, TURNED));
        _mm_storeu_si128(right, _mm_shuffle_epi32(first, TURNED));
    }
    return x;
}

#else

static size_t picture_flip_ends(_unused_ uint8_t *row, _unused_ size_t w)
{
    return 0;
}

#endif

void picture_flip_horizontally(struct picture *p)
{
    size_t w = p->size.width;

    for (uint32_t y = 0; y < p->size.height; y++) {
        uint8_t *row = picture_row(p, y);
        for (size_t x = picture_flip_ends(row, w); x < w / 2; x++) {
            uint32_t pixel = picture_get(row, x);
            picture_put(row, x, picture_get(row, w - 1 - x));
            picture_put(row, w - 1 - x, pixel);
        }
    }
}

int picture_flip_vertically(const struct picture *in, struct picture *out)
{
    int r = picture_set(out, in->size, in->grey);

    for (uint32_t y = 0; r == 0 && y < in->size.height; y++)
        memcpy(picture_row(out, y), picture_row(in, in->size.height - 1 - y),
               (size_t)in->size.width * PICTURE_PIXEL);
    return r;
}

int picture_turn(const struct picture *in, unsigned quarters, struct picture *out)
{
    uint32_t h = in->size.height, w = in->size.width;
    struct image_size size = quarters == 2 ? in->size : (struct image_size){w, h};
    int r = picture_set(out, size, in->grey);

    if (r < 0)
        return r;
    for (uint32_t y = 0; y < h; y++) {
        const uint8_t *row = picture_row(in, y);
        for (uint32_t x = 0; x < w; x++) {
            uint32_t to_y = quarters == 1 ? w - 1 - x : quarters == 2 ? h - 1 - y : x;
            uint32_t to_x = quarters == 1 ? y : quarters == 2 ? w - 1 - x : h - 1 - y;
            picture_put(picture_row(out, to_y), to_x, picture_get(row, x));
        }
    }
    return 0;
}

/* ---- means ---------------------------------------------------------------------------------- */

/* 2²⁴ / n, as Pillow calculates it: in floats. */
static uint32_t picture_share(uint32_t n)
{
    return (uint32_t)(0x1p24F / (float)n);
}

static void picture_add_row(const uint8_t *row, size_t n, uint32_t *sums)
{
    for (size_t i = 0; i < n; i++)
        sums[i] += row[i];
}

/* A row of the result: sums of `rows` rows, of which each `across` pixels become one. */
static void picture_put_means(const uint32_t *sums, uint32_t width, uint32_t across, uint32_t rows,
                              uint8_t *out)
{
    for (uint32_t x = 0; x < width; x += across) {
        uint32_t n = (uint32_t)min_u64(across, width - x), of = n * rows;
        uint32_t sum[PICTURE_PIXEL] = {of / 2, of / 2, of / 2, of / 2}, share = picture_share(of);
        for (uint32_t i = 0; i < n; i++, sums += PICTURE_PIXEL) {
            for (unsigned c = 0; c < PICTURE_PIXEL; c++)
                sum[c] += sums[c];
        }
        for (unsigned c = 0; c < PICTURE_PIXEL; c++)
            *out++ = (uint8_t)(sum[c] * share >> 24);
    }
}

int picture_reduce(const struct picture *in, struct image_size factors, struct picture *out)
{
    size_t n = (size_t)in->size.width * PICTURE_PIXEL;
    struct image_size size = {(in->size.height - 1) / factors.height + 1,
                              (in->size.width - 1) / factors.width + 1};
    _cleanup_free_ uint32_t *sums = calloc(n, sizeof *sums);
    int r = picture_set(out, sums ? size : (struct image_size){0}, in->grey);

    if (!sums)
        return -ENOMEM;
    for (uint32_t y = 0; r == 0 && y < size.height; y++) {
        uint32_t from = y * factors.height;
        uint32_t rows = (uint32_t)min_u64(factors.height, in->size.height - from);
        memset(sums, 0, n * sizeof *sums);
        for (uint32_t i = 0; i < rows; i++)
            picture_add_row(picture_row(in, from + i), n, sums);
        picture_put_means(sums, in->size.width, factors.width, rows, picture_row(out, y));
    }
    return r;
}

/* ---- padding -------------------------------------------------------------------------------- */

/* Where in 0..n-1 place `at` of the padded picture is taken from. */
static uint32_t picture_reflected(int64_t at, uint32_t n, enum picture_padding mode)
{
    if (mode == PADDING_EDGE)
        return at < 0 ? 0 : at >= n ? n - 1 : (uint32_t)at;
    bool twice = mode == PADDING_SYMMETRIC; /* the edge itself is mirrored, too */
    int64_t period = twice ? 2 * (int64_t)n : 2 * ((int64_t)n - 1);
    if (period == 0)
        return 0;
    at %= period;
    if (at < 0)
        at += period;
    return (uint32_t)(at < n ? at : twice ? period - 1 - at : period - at);
}

static void picture_pad_row(const struct picture *in, const struct picture_margins *m, uint32_t y,
                            uint8_t *out)
{
    uint32_t w = in->size.width;
    const uint8_t *row = picture_row(in, y);

    memcpy(out + (size_t)m->left * PICTURE_PIXEL, row, (size_t)w * PICTURE_PIXEL);
    if (m->mode == PADDING_CONSTANT) {
        picture_fill_pixels(out, m->left, in->grey, m->fill);
        picture_fill_pixels(out + ((size_t)m->left + w) * PICTURE_PIXEL, m->right, in->grey,
                            m->fill);
        return;
    }
    for (uint32_t x = 0; x < m->left; x++)
        picture_put(out, x, picture_get(row, picture_reflected((int64_t)x - m->left, w, m->mode)));
    for (uint32_t x = 0; x < m->right; x++)
        picture_put(out, (size_t)m->left + w + x,
                    picture_get(row, picture_reflected((int64_t)w + x, w, m->mode)));
}

int picture_pad(const struct picture *in, const struct picture_margins *m, struct picture *out)
{
    uint64_t width = (uint64_t)in->size.width + m->left + m->right;
    uint64_t height = (uint64_t)in->size.height + m->top + m->bottom;

    out->size = (struct image_size){0};
    if (width > UINT32_MAX || height > UINT32_MAX)
        return -EFBIG;
    int r = picture_set(out, (struct image_size){(uint32_t)height, (uint32_t)width}, in->grey);
    for (uint32_t y = 0; r == 0 && y < height; y++) {
        int64_t from = (int64_t)y - m->top;
        bool outside = from < 0 || from >= in->size.height;
        if (outside && m->mode == PADDING_CONSTANT)
            picture_fill_pixels(picture_row(out, y), width, in->grey, m->fill);
        else
            picture_pad_row(in, m, picture_reflected(from, in->size.height, m->mode),
                            picture_row(out, y));
    }
    return r;
}
