/* Convolutions. */
#include "daemon/data/decode/transform/sharpen.h"
#include "daemon/data/decode/image/colour.h"
#include "daemon/data/decode/transform/vectors.h"

#include <errno.h>
#include <math.h>

/* ---- sharpness --------------------------------------------------------------------------------
 */

/*
 * All pixels of a row between two others but the first and the last: the middle five times, its
 * neighbours once, of 13. Filter.c sums up in float32, and cuts 0.5 more than that. The true sum is
 * a 26th or more from any whole number, and float32 nearer to the true sum than that: so whole
 * numbers give the same.
 */
WIDE_VECTORS static void sharpen_smooth_row(const uint8_t *above, const uint8_t *row,
                                            const uint8_t *below, size_t n, uint8_t *restrict out)
{
    for (size_t x = PICTURE_PIXEL; x < n - PICTURE_PIXEL; x++) {
        const uint8_t *a = above + x, *p = row + x, *b = below + x;
        uint32_t sum =
            (uint32_t)(a[-PICTURE_PIXEL] + a[0] + a[PICTURE_PIXEL] + p[-PICTURE_PIXEL] +
                       p[PICTURE_PIXEL] + b[-PICTURE_PIXEL] + b[0] + b[PICTURE_PIXEL] + 5 * p[0]);
        out[x] = (uint8_t)((2 * sum + 13) * 20165U >> 19); /* divided by 26 */
    }
}

int sharpen_picture(struct picture *p, double factor, struct picture *spare)
{
    uint32_t h = p->size.height, w = p->size.width;
    size_t bytes = (size_t)w * PICTURE_PIXEL;

    if (factor == 1 || h < 3 || w < 3)
        return 0;
    int r = picture_set(spare, p->size, p->grey);
    if (r < 0)
        return r;
    memcpy(spare->pixels, p->pixels, bytes * h);
    for (uint32_t y = 1; y + 1 < h; y++)
        sharpen_smooth_row(picture_row(p, y - 1), picture_row(p, y), picture_row(p, y + 1), bytes,
                           picture_row(spare, y));
    colour_blend(spare, factor, p);
    return 0;
}

/* ---- blur -------------------------------------------------------------------------------------
 */

/* torch.linspace(): from each end to the middle, in float32. */
static float sharpen_place(uint32_t i, uint32_t n)
{
    double limit = (n - 1) / (2 * sqrt(2));
    float low = (float)-limit, high = (float)limit,
          step = n > 1 ? (high - low) / (float)(n - 1) : 0;
    float way = step * (float)(i < n / 2 ? i : n - 1 - i);

    return i < n / 2 ? low + way : high - way;
}

void sharpen_weigh_blur(uint32_t n, double sigma, float *ret)
{
    float most = 0, sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        float place = sharpen_place(i, n) / (float)sigma;
        ret[i] = -(place * place);
        most = i == 0 || ret[i] > most ? ret[i] : most;
    }
    for (uint32_t i = 0; i < n; i++) {
        ret[i] = (float)exp((double)(ret[i] - most));
        sum += ret[i];
    }
    for (uint32_t i = 0; i < n; i++)
        ret[i] /= sum;
}

static uint32_t sharpen_reflected(int64_t at, uint32_t n)
{
    at = at < 0 ? -at : at;
    return (uint32_t)(at < n ? at : 2 * ((int64_t)n - 1) - at);
}

static inline uint8_t sharpen_rounded(float sum)
{
    /* Added to so large a number, halves become even, and what is behind the point is gone. It is
     * between 0 and 255, as weights add up to 1 or a little more. */
    static const float large = 0x1.8p23F;
    int whole = (int)((sum + large) - large);

    return (uint8_t)(whole > 255 ? 255 : whole);
}

/* Row `y` of the picture, blurred down: n sums, PICTURE_PIXEL for each pixel. */
WIDE_VECTORS static void sharpen_blur_down(const struct picture *in, const struct sharpen_kernel *k,
                                           uint32_t y, float *restrict sums)
{
    size_t n = (size_t)in->size.width * PICTURE_PIXEL;

    memset(sums, 0, n * sizeof *sums);
    for (uint32_t i = 0; i < k->height; i++) {
        int64_t at = (int64_t)y + i - k->height / 2;
        const uint8_t *row = picture_row(in, sharpen_reflected(at, in->size.height));
        float weight = k->down[i];
        for (size_t x = 0; x < n; x++)
            sums[x] += (float)row[x] * weight;
    }
}

/* The margins that the kernel reaches beyond a row: mirrored, without the edge itself. */
static void sharpen_mirror(float *row, uint32_t width, uint32_t margin)
{
    for (uint32_t x = 1; x <= margin; x++) {
        memcpy(row - (size_t)x * PICTURE_PIXEL, row + (size_t)x * PICTURE_PIXEL,
               PICTURE_PIXEL * sizeof *row);
        memcpy(row + (size_t)(width - 1 + x) * PICTURE_PIXEL,
               row + (size_t)(width - 1 - x) * PICTURE_PIXEL, PICTURE_PIXEL * sizeof *row);
    }
}

/* `row` is its first pixel less the kernel's margin; `sums` has room for n. */
WIDE_VECTORS static void sharpen_blur_across(const float *row, const struct sharpen_kernel *k,
                                             size_t n, float *restrict sums, uint8_t *restrict out)
{
    memset(sums, 0, n * sizeof *sums);
    for (uint32_t i = 0; i < k->width; i++) {
        const float *from = row + (size_t)i * PICTURE_PIXEL;
        float weight = k->across[i];
        for (size_t x = 0; x < n; x++)
            sums[x] += from[x] * weight;
    }
    for (size_t x = 0; x < n; x++)
        out[x] = sharpen_rounded(sums[x]);
}

int sharpen_blur(const struct picture *in, const struct sharpen_kernel *kernel, struct picture *out)
{
    uint32_t w = in->size.width, margin = kernel->width / 2;
    size_t n = (size_t)w * PICTURE_PIXEL;

    if (in->size.height <= kernel->height / 2 || w <= margin)
        return -EINVAL;
    int r = picture_set(out, in->size, in->grey);
    float *row = calloc(2 * n + (size_t)margin * 2 * PICTURE_PIXEL, sizeof *row);
    if (r == 0 && !row)
        r = -ENOMEM;
    for (uint32_t y = 0; r == 0 && y < in->size.height; y++) {
        sharpen_blur_down(in, kernel, y, row + (size_t)margin * PICTURE_PIXEL);
        sharpen_mirror(row + (size_t)margin * PICTURE_PIXEL, w, margin);
        sharpen_blur_across(row, kernel, n, row + n + (size_t)margin * 2 * PICTURE_PIXEL,
                            picture_row(out, y));
    }
    free(row);
    return r;
}
