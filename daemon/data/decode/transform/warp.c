/* Pixel by pixel, in the order and the precision of Geometry.c. */
#include "daemon/data/decode/transform/warp.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

/* ---- between pixels ---------------------------------------------------------------------------
 */

static inline int64_t warp_floor(double v)
{
    return v < 0 ? (int64_t)floor(v) : (int64_t)v;
}

static inline uint32_t warp_clip(int64_t at, uint32_t n)
{
    return (uint32_t)(at < 0 ? 0 : at < n ? at : n - 1);
}

static inline bool warp_is_inside(const struct picture *in, double x, double y)
{
    return x >= 0 && x < in->size.width && y >= 0 && y < in->size.height;
}

static inline double warp_between(double a, double b, double share)
{
    return a + (b - a) * share;
}

static void warp_bilinear(const struct picture *in, double x, double y, uint8_t *out)
{
    int64_t left = warp_floor(x - 0.5), top = warp_floor(y - 0.5);
    double dx = x - 0.5 - (double)left, dy = y - 0.5 - (double)top;
    size_t x0 = (size_t)warp_clip(left, in->size.width) * PICTURE_PIXEL;
    size_t x1 = (size_t)warp_clip(left + 1, in->size.width) * PICTURE_PIXEL;
    const uint8_t *upper = picture_row(in, warp_clip(top, in->size.height));
    const uint8_t *lower = top + 1 < in->size.height ? picture_row(in, (uint32_t)(top + 1)) : NULL;

    for (unsigned c = 0; c < PICTURE_COLOURS; c++) {
        double v1 = warp_between(upper[x0 + c], upper[x1 + c], dx);
        double v2 = lower ? warp_between(lower[x0 + c], lower[x1 + c], dx) : v1;
        out[c] = (uint8_t)warp_between(v1, v2, dy);
    }
}

static inline double warp_cubic(const double v[static 4], double d)
{
    double p1 = v[1], p2 = -v[0] + v[2];
    double p3 = 2 * (v[0] - v[1]) + v[2] - v[3], p4 = -v[0] + v[1] - v[2] + v[3];

    return p1 + d * (p2 + d * (p3 + d * p4));
}

/* Rows beyond the picture are what the last one gave; the one above it is its first. */
static void warp_bicubic(const struct picture *in, double x, double y, uint8_t *out)
{
    int64_t left = warp_floor(x - 0.5), top = warp_floor(y - 0.5);
    double dx = x - 0.5 - (double)left, dy = y - 0.5 - (double)top;

    for (unsigned c = 0; c < PICTURE_COLOURS; c++) {
        double down[4];
        for (int i = 0; i < 4; i++) {
            int64_t at = top - 1 + i;
            if (i > 0 && (at < 0 || at >= in->size.height)) {
                down[i] = down[i - 1];
                continue;
            }
            const uint8_t *row = picture_row(in, warp_clip(at, in->size.height));
            double across[4];
            for (int j = 0; j < 4; j++)
                across[j] =
                    row[(size_t)warp_clip(left - 1 + j, in->size.width) * PICTURE_PIXEL + c];
            down[i] = warp_cubic(across, dx);
        }
        double v = warp_cubic(down, dy);
        out[c] = (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : v);
    }
}

/* The pixel at a place of the input; outside, `out` stays as it is. */
static inline void warp_look_up(const struct picture *in, enum warp_filter filter, double x,
                                double y, uint8_t *out)
{
    if (!warp_is_inside(in, x, y))
        return;
    if (filter == WARP_BILINEAR)
        warp_bilinear(in, x, y, out);
    else if (filter == WARP_BICUBIC)
        warp_bicubic(in, x, y, out);
    else
        memcpy(out, picture_row(in, (uint32_t)y) + (size_t)x * PICTURE_PIXEL, PICTURE_PIXEL);
}

/* ---- nearest ----------------------------------------------------------------------------------
 */

/* Without rotation: one table of columns, whose places are added up as in ImagingScaleAffine(). */
static int warp_scale(const struct picture *in, const double a[static 6], struct picture *out)
{
    uint32_t first = out->size.width, end = 0;
    uint32_t *columns = calloc(max_u64(out->size.width, 1), sizeof *columns);
    double x = a[2] + a[0] * 0.5, y = a[5] + a[4] * 0.5;

    if (!columns)
        return -ENOMEM;
    for (uint32_t i = 0; i < out->size.width; i++) {
        if (x >= 0 && x < in->size.width) {
            end = i + 1;
            first = i < first ? i : first;
            columns[i] = (uint32_t)x;
        }
        x += a[0];
    }
    for (uint32_t j = 0; j < out->size.height; j++) {
        double at = y;

        y += a[4];
        if (!(at >= 0 && at < in->size.height))
            continue;
        const uint8_t *row = picture_row(in, (uint32_t)at);
        uint8_t *to = picture_row(out, j);
        for (uint32_t i = first; i < end; i++)
            memcpy(to + (size_t)i * PICTURE_PIXEL, row + (size_t)columns[i] * PICTURE_PIXEL,
                   PICTURE_PIXEL);
    }
    free(columns);
    return 0;
}

static bool warp_fits_fixed(const double a[static 6], double x, double y)
{
    return fabs(x * a[0] + y * a[1] + a[2]) < 32768 && fabs(x * a[3] + y * a[4] + a[5]) < 32768;
}

static int32_t warp_fixed(double v)
{
    return (int32_t)warp_floor(v * 65536 + 0.5);
}

/* Places in 16.16 fixed point, as affine_fixed(); their sums may wrap where nothing is looked up.
 */
static void warp_in_fixed(const struct picture *in, const double a[static 6], struct picture *out)
{
    uint32_t x_step = (uint32_t)warp_fixed(a[0]), x_down = (uint32_t)warp_fixed(a[1]);
    uint32_t y_step = (uint32_t)warp_fixed(a[3]), y_down = (uint32_t)warp_fixed(a[4]);
    uint32_t x_row = (uint32_t)warp_fixed(a[2] + a[0] * 0.5 + a[1] * 0.5);
    uint32_t y_row = (uint32_t)warp_fixed(a[5] + a[3] * 0.5 + a[4] * 0.5);
    uint32_t h = in->size.height, w = in->size.width;

    for (uint32_t j = 0; j < out->size.height; j++, x_row += x_down, y_row += y_down) {
        uint8_t *to = picture_row(out, j);
        uint32_t x = x_row, y = y_row;
        for (uint32_t i = 0; i < out->size.width;
             i++, x += x_step, y += y_step, to += PICTURE_PIXEL) {
            uint32_t at_x = (uint32_t)((int32_t)x >> 16), at_y = (uint32_t)((int32_t)y >> 16);
            if (at_x < w && at_y < h)
                memcpy(to, in->pixels + ((size_t)at_y * w + at_x) * PICTURE_PIXEL, PICTURE_PIXEL);
        }
    }
}

static void warp_nearest(const struct picture *in, const double a[static 6], struct picture *out)
{
    double x_row = a[2] + a[1] * 0.5 + a[0] * 0.5, y_row = a[5] + a[4] * 0.5 + a[3] * 0.5;

    for (uint32_t j = 0; j < out->size.height; j++) {
        uint8_t *to = picture_row(out, j);
        double x = x_row, y = y_row;
        for (uint32_t i = 0; i < out->size.width; i++, to += PICTURE_PIXEL) {
            warp_look_up(in, WARP_NEAREST, x, y, to);
            x += a[0];
            y += a[3];
        }
        x_row += a[1];
        y_row += a[4];
    }
}

/* ---- transforms -------------------------------------------------------------------------------
 */

static void warp_smooth(const struct picture *in, enum warp_filter filter, const double a[static 6],
                        struct picture *out)
{
    for (uint32_t j = 0; j < out->size.height; j++) {
        uint8_t *to = picture_row(out, j);
        double y = j + 0.5;
        for (uint32_t i = 0; i < out->size.width; i++, to += PICTURE_PIXEL) {
            double x = i + 0.5;
            warp_look_up(in, filter, a[0] * x + a[1] * y + a[2], a[3] * x + a[4] * y + a[5], to);
        }
    }
}

int warp_affine(const struct picture *in, const struct warp *warp, const double a[static 6],
                struct image_size size, struct picture *out)
{
    double w = size.width, h = size.height;
    int r = picture_set(out, size, in->grey);

    if (r < 0)
        return r;
    picture_fill(out, warp->fill);
    if (warp->filter != WARP_NEAREST)
        warp_smooth(in, warp->filter, a, out);
    else if (a[1] == 0 && a[3] == 0)
        return warp_scale(in, a, out);
    else if (warp_fits_fixed(a, 0, 0) && warp_fits_fixed(a, w, h) && warp_fits_fixed(a, 0, h) &&
             warp_fits_fixed(a, w, 0))
        warp_in_fixed(in, a, out);
    else
        warp_nearest(in, a, out);
    return 0;
}

int warp_perspective(const struct picture *in, const struct warp *warp, const double a[static 8],
                     struct picture *out)
{
    int r = picture_set(out, in->size, in->grey);

    if (r < 0)
        return r;
    picture_fill(out, warp->fill);
    for (uint32_t j = 0; j < out->size.height; j++) {
        uint8_t *to = picture_row(out, j);
        double y = j + 0.5;
        for (uint32_t i = 0; i < out->size.width; i++, to += PICTURE_PIXEL) {
            double x = i + 0.5, depth = a[6] * x + a[7] * y + 1;
            warp_look_up(in, warp->filter, (a[0] * x + a[1] * y + a[2]) / depth,
                         (a[3] * x + a[4] * y + a[5]) / depth, to);
        }
    }
    return 0;
}

/* ---- rotation ---------------------------------------------------------------------------------
 */

/* Python's round(x, 15) of a sine: by way of the decimal number, which snprintf() rounds rightly.
 */
static double warp_round_15(double x)
{
    char text[32];

    snprintf(text, sizeof text, "%.15f", x);
    return strtod(text, NULL);
}

static void warp_move(const double a[static 6], double x, double y, double *ret_x, double *ret_y)
{
    *ret_x = a[0] * x + a[1] * y + a[2];
    *ret_y = a[3] * x + a[4] * y + a[5];
}

/* The whole of the turned picture, and its matrix moved to there. */
static struct image_size warp_expand(double a[static 6], double w, double h)
{
    double corners[4][2] = {{0, 0}, {w, 0}, {w, h}, {0, h}}, low[2], high[2];

    for (int i = 0; i < 4; i++) {
        double to[2];
        warp_move(a, corners[i][0], corners[i][1], &to[0], &to[1]);
        for (int k = 0; k < 2; k++) {
            low[k] = i == 0 || to[k] < low[k] ? to[k] : low[k];
            high[k] = i == 0 || to[k] > high[k] ? to[k] : high[k];
        }
    }
    double width = ceil(high[0]) - floor(low[0]), height = ceil(high[1]) - floor(low[1]), x, y;
    warp_move(a, -(width - w) / 2, -(height - h) / 2, &x, &y);
    a[2] = x;
    a[5] = y;
    return (struct image_size){(uint32_t)height, (uint32_t)width};
}

int warp_rotate(const struct picture *in, const struct warp *warp,
                const struct warp_rotation *rotation, struct picture *out)
{
    double w = in->size.width, h = in->size.height;
    double angle = fmod(rotation->angle, 360);
    struct image_size size = in->size;

    angle = angle < 0 ? angle + 360 : angle;
    if (!rotation->center && (angle == 0 || angle == 360))
        return picture_crop(in, &(struct picture_box){.size = size}, out);
    if (!rotation->center && angle == 180)
        return picture_turn(in, 2, out);
    if (!rotation->center && (angle == 90 || angle == 270) && (rotation->expand || w == h))
        return picture_turn(in, angle == 90 ? 1 : 3, out);
    double x = rotation->center ? rotation->center[0] : w / 2;
    double y = rotation->center ? rotation->center[1] : h / 2;
    double turn = -(angle * (M_PI / 180));
    double a[6] = {warp_round_15(cos(turn)),  warp_round_15(sin(turn)), 0,
                   warp_round_15(-sin(turn)), warp_round_15(cos(turn)), 0};
    double moved_x, moved_y;
    warp_move(a, -x - 0, -y - 0, &moved_x, &moved_y);
    a[2] = moved_x + x;
    a[5] = moved_y + y;
    if (rotation->expand)
        size = warp_expand(a, w, h);
    return warp_affine(in, warp, a, size, out);
}
