/* Weights, and two passes over the pixels. */
#include "daemon/data/image/resize.h"
#include "daemon/data/image/vectors.h"

#include <errno.h>
#include <math.h>

#if defined(__SSE2__) && !defined(PLAIN_VECTORS)
#include <emmintrin.h>
#endif

enum {
    PIXEL = PICTURE_PIXEL,
    BITS = 22,      /* of a weight: 8 for the pixel, and 2 for negative ones and sums above 1 */
    BLOCK = 64,     /* bytes of a row that are summed up together */
    LOW_BITS = 12,  /* of a weight that is split: both parts fit 16 bits */
    TAPS_MAX = 2048 /* so many lower parts times 255 fit 31 bits */
};

/* ---- filters: the weight at a distance, in output pixels --------------------------------------
 */

static double resize_box(double x)
{
    return x > -0.5 && x <= 0.5 ? 1 : 0;
}

static double resize_bilinear(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* Pillow has these two numbers as float32. */
static double resize_hamming(double x)
{
    x = fabs(x);
    if (x == 0)
        return 1;
    if (x >= 1)
        return 0;
    x *= M_PI;
    double window = (double)0.54F + (double)0.46F * cos(x);
    return sin(x) / x * window;
}

static double resize_bicubic(double x)
{
    static const double a = -0.5;

    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2)
        return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

static double resize_sinc(double x)
{
    if (x == 0)
        return 1;
    x *= M_PI;
    return sin(x) / x;
}

static double resize_lanczos(double x)
{
    return x >= -3 && x < 3 ? resize_sinc(x) * resize_sinc(x / 3) : 0;
}

static const struct {
    double (*weight)(double x);
    double support;
} filters[] = {
    [RESIZE_BOX] = {resize_box, 0.5},       [RESIZE_BILINEAR] = {resize_bilinear, 1},
    [RESIZE_HAMMING] = {resize_hamming, 1}, [RESIZE_BICUBIC] = {resize_bicubic, 2},
    [RESIZE_LANCZOS] = {resize_lanczos, 3},
};

/* ---- weights ----------------------------------------------------------------------------------
 */

static void resize_axis_deinit(struct resize_axis *axis)
{
    free(axis->from);
    free(axis->count);
    free(axis->weights);
    free(axis->high);
    free(axis->low);
    free(axis->shares);
    *axis = (struct resize_axis){0};
}

/* Room for `n` entries; what was there need not stay. NULL: out of memory. */
static void *resize_renew(void *memory, size_t *room, size_t n, size_t each)
{
    if (n <= *room)
        return memory;
    free(memory);
    memory = calloc(n, each);
    *room = memory ? n : 0;
    return memory;
}

static int resize_make_room(struct resize_axis *axis, size_t n, size_t taps)
{
    size_t room = axis->room, high_room = axis->tap_room, low_room = axis->tap_room;

    axis->from = resize_renew(axis->from, &room, n, sizeof *axis->from);
    axis->count = resize_renew(axis->count, &axis->room, n, sizeof *axis->count);
    axis->high = resize_renew(axis->high, &high_room, n * taps, sizeof *axis->high);
    axis->low = resize_renew(axis->low, &low_room, n * taps, sizeof *axis->low);
    axis->weights = resize_renew(axis->weights, &axis->tap_room, n * taps, sizeof *axis->weights);
    axis->shares = resize_renew(axis->shares, &axis->share_room, taps, sizeof *axis->shares);
    if (axis->from && axis->count && axis->weights && axis->high && axis->low && axis->shares)
        return 0;
    resize_axis_deinit(axis);
    return -ENOMEM;
}

static int32_t resize_fixed(double share)
{
    double scaled = share * (1 << BITS);

    return (int32_t)(share < 0 ? scaled - 0.5 : scaled + 0.5);
}

/* What of one direction becomes the outputs: `length` from `begin` on, of so many inputs. */
struct resize_span {
    uint32_t inputs;
    double begin;
    double length;
};

/* Output `i`, whose filter is `stretch` times as wide as it is long. */
static void resize_weigh(struct resize_axis *axis, uint32_t i, const struct resize_span *span,
                         double stretch, enum resize_filter filter)
{
    double support = filters[filter].support * stretch, narrow = 1 / stretch;
    double centre = span->begin + (i + 0.5) * (span->length / axis->n), sum = 0;
    uint32_t inputs = span->inputs;
    int32_t *weights = axis->weights + (size_t)i * axis->taps;
    int64_t from = (int64_t)(centre - support + 0.5), to = (int64_t)(centre + support + 0.5);

    from = from < 0 ? 0 : from;
    to = to > inputs ? inputs : to;
    for (int64_t x = from; x < to; x++) {
        double place = (double)x - centre + 0.5;
        double share = filters[filter].weight(place * narrow);
        axis->shares[x - from] = share;
        sum += share;
    }
    axis->from[i] = (uint32_t)from;
    axis->count[i] = (uint32_t)(to - from);
    for (uint32_t t = 0; t < axis->count[i]; t++)
        weights[t] = resize_fixed(sum != 0 ? axis->shares[t] / sum : axis->shares[t]);
    memset(weights + axis->count[i], 0, (axis->taps - axis->count[i]) * sizeof *weights);
    for (uint32_t t = 0; t < axis->taps; t++) {
        axis->high[(size_t)i * axis->taps + t] = (int16_t)(weights[t] >> LOW_BITS);
        axis->low[(size_t)i * axis->taps + t] = (int16_t)(weights[t] & ((1 << LOW_BITS) - 1));
    }
}

static int resize_axis_set(struct resize_axis *axis, const struct resize_span *span,
                           uint32_t outputs, enum resize_filter filter)
{
    double scale = span->length / outputs, stretch = scale < 1 ? 1 : scale;
    uint32_t taps = (uint32_t)ceil(filters[filter].support * stretch) * 2 + 2;
    int r = resize_make_room(axis, outputs, taps);

    if (r < 0)
        return r;
    axis->n = outputs;
    axis->taps = taps;
    for (uint32_t i = 0; i < outputs; i++)
        resize_weigh(axis, i, span, stretch, filter);
    return 0;
}

/* ---- pixels -----------------------------------------------------------------------------------
 */

static inline uint8_t resize_to_byte(int32_t sum)
{
    sum >>= BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* One row across. */
static void resize_across_plain(const struct resize_axis *axis, const uint8_t *row, uint8_t *out)
{
    for (uint32_t i = 0; i < axis->n; i++) {
        const uint8_t *p = row + (size_t)axis->from[i] * PIXEL;
        const int32_t *w = axis->weights + (size_t)i * axis->taps;
        for (unsigned c = 0; c < PIXEL; c++) {
            int32_t sum = 1 << (BITS - 1);
            for (uint32_t t = 0; t < axis->count[i]; t++)
                sum += p[(size_t)t * PIXEL + c] * w[t];
            out[(size_t)i * PIXEL + c] = resize_to_byte(sum);
        }
    }
}

#if defined(__SSE2__) && !defined(PLAIN_VECTORS)

static inline __m128i resize_pair(const int16_t *weights)
{
    int32_t pair;

    memcpy(&pair, weights, sizeof pair);
    return _mm_set1_epi32(pair);
}

/* Two pixels at once, times the upper and the lower parts of their weights: there is no product of
 * 32 bits in SSE2. An odd number of them reads one pixel behind, which has no weight. */
static inline __m128i resize_sum(const struct resize_axis *axis, const uint8_t *row, uint32_t i)
{
    const __m128i zero = _mm_setzero_si128();
    const uint8_t *p = row + (size_t)axis->from[i] * PIXEL;
    const int16_t *high = axis->high + (size_t)i * axis->taps;
    const int16_t *low = axis->low + (size_t)i * axis->taps;
    __m128i upper = zero, lower = _mm_set1_epi32(1 << (BITS - 1));

    for (uint32_t t = 0; t < axis->count[i]; t += 2) {
        __m128i two = _mm_loadl_epi64((const void *)(p + (size_t)t * PIXEL));
        two = _mm_unpacklo_epi8(two, zero);
        two = _mm_unpacklo_epi16(two, _mm_srli_si128(two, 8));
        upper = _mm_add_epi32(upper, _mm_madd_epi16(two, resize_pair(high + t)));
        lower = _mm_add_epi32(lower, _mm_madd_epi16(two, resize_pair(low + t)));
    }
    return _mm_srai_epi32(_mm_add_epi32(_mm_slli_epi32(upper, LOW_BITS), lower), BITS);
}

static void resize_across(const struct resize_axis *axis, const uint8_t *row, uint8_t *out)
{
    if (axis->taps > TAPS_MAX) {
        resize_across_plain(axis, row, out);
        return;
    }
    for (uint32_t i = 0; i < axis->n; i++) {
        __m128i sum = resize_sum(axis, row, i);
        sum = _mm_packs_epi32(sum, sum);
        int32_t pixel = _mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
        memcpy(out + (size_t)i * PIXEL, &pixel, sizeof pixel);
    }
}

#else

static void resize_across(const struct resize_axis *axis, const uint8_t *row, uint8_t *out)
{
    resize_across_plain(axis, row, out);
}

#endif

/* One output row, of the rows from `rows` on, which have `bytes`; a multiple of BLOCK at a time. */
WIDE_VECTORS static void resize_down(const int32_t *weights, uint32_t n, const uint8_t *rows,
                                     size_t bytes, uint8_t *restrict out)
{
    for (size_t at = 0; at < bytes; at += BLOCK) {
        size_t here = bytes - at < BLOCK ? bytes - at : BLOCK;
        int32_t sum[BLOCK];
        for (size_t k = 0; k < BLOCK; k++)
            sum[k] = 1 << (BITS - 1);
        if (here == BLOCK) {
            for (uint32_t t = 0; t < n; t++) {
                const uint8_t *p = rows + t * bytes + at;
                int32_t w = weights[t];
                for (size_t k = 0; k < BLOCK; k++)
                    sum[k] += p[k] * w;
            }
        } else {
            for (uint32_t t = 0; t < n; t++) {
                const uint8_t *p = rows + t * bytes + at;
                for (size_t k = 0; k < here; k++)
                    sum[k] += p[k] * weights[t];
            }
        }
        for (size_t k = 0; k < here; k++)
            out[at + k] = resize_to_byte(sum[k]);
    }
}

/* Pillow adds up the distance from pixel to pixel, and so has its rounding. */
static int resize_nearest(struct resizer *resizer, const struct picture *in, struct picture *out)
{
    uint32_t h = out->size.height, w = out->size.width;
    double step = (double)in->size.width / w, place = step * 0.5;

    if (resize_make_room(&resizer->across, w, 1) < 0)
        return -ENOMEM;
    for (uint32_t x = 0; x < w; x++) {
        resizer->across.from[x] =
            (uint32_t)min_u64((uint64_t)place, (uint64_t)in->size.width - 1) * PIXEL;
        place += step;
    }
    step = (double)in->size.height / h;
    place = step * 0.5;
    for (uint32_t y = 0; y < h; y++) {
        const uint8_t *row =
            picture_row(in, (uint32_t)min_u64((uint64_t)place, (uint64_t)in->size.height - 1));
        place += step;
        uint8_t *to = picture_row(out, y);
        for (uint32_t x = 0; x < w; x++)
            memcpy(to + (size_t)x * PIXEL, row + resizer->across.from[x], PIXEL);
    }
    return 0;
}

struct resize_rows {
    const uint8_t *pixels;
    uint32_t height;
    size_t bytes; /* of a row */
};

/* What is resized, to what. */
struct resize_job {
    struct resize_span across;
    struct resize_span down;
    struct image_size size;
    enum resize_filter filter;
};

static int resize_pass_across(struct resizer *resizer, const struct resize_rows *in,
                              const struct resize_job *job, uint8_t *out)
{
    struct resize_axis *axis = &resizer->across;
    size_t bytes = (size_t)job->size.width * PIXEL;

    if (resize_axis_set(axis, &job->across, job->size.width, job->filter) < 0)
        return -ENOMEM;
    for (uint32_t y = 0; y < in->height; y++)
        resize_across(axis, in->pixels + y * in->bytes, out + y * bytes);
    return 0;
}

static int resize_pass_down(struct resizer *resizer, const struct resize_rows *in,
                            const struct resize_job *job, uint8_t *out)
{
    struct resize_axis *axis = &resizer->down;

    if (resize_axis_set(axis, &job->down, job->size.height, job->filter) < 0)
        return -ENOMEM;
    for (uint32_t y = 0; y < job->size.height; y++)
        resize_down(axis->weights + (size_t)y * axis->taps, axis->count[y],
                    in->pixels + axis->from[y] * in->bytes, in->bytes, out + y * in->bytes);
    return 0;
}

/* Pillow 13's choice. Down first, where the height loses more than twice what the width does:
 * rounding to 8 bits between the two shows which it was. */
static bool resize_is_down_first(const struct resize_job *job)
{
    int64_t lost_h = (int64_t)job->down.inputs - job->size.height;
    int64_t lost_w = (int64_t)job->across.inputs - job->size.width;

    return lost_h > 0 && lost_h > 2 * lost_w;
}

static int resize_twice(struct resizer *resizer, const struct resize_rows *in,
                        const struct resize_job *job, struct picture *out)
{
    bool down_first = resize_is_down_first(job);
    struct resize_rows rows = {
        .height = down_first ? job->size.height : job->down.inputs,
        .bytes = (size_t)(down_first ? job->across.inputs : job->size.width) * PIXEL};
    int r;

    if (rows.bytes * rows.height / PIXEL > IMAGE_BYTES_MAX / 3)
        return -EFBIG;
    resizer->rows =
        resize_renew(resizer->rows, &resizer->room, rows.bytes * rows.height + PICTURE_SLACK, 1);
    rows.pixels = resizer->rows;
    if (!resizer->rows)
        return -ENOMEM;
    if (down_first)
        r = resize_pass_down(resizer, in, job, resizer->rows);
    else
        r = resize_pass_across(resizer, in, job, resizer->rows);
    if (r < 0)
        return r;
    return down_first ? resize_pass_across(resizer, &rows, job, out->pixels)
                      : resize_pass_down(resizer, &rows, job, out->pixels);
}

static bool resize_keeps(const struct resize_span *span, uint32_t outputs)
{
    return span->begin == 0 && span->length == outputs && span->inputs == outputs;
}

/* `out` has its size. */
static int resize_do(struct resizer *resizer, const struct picture *in,
                     const struct resize_job *job, struct picture *out)
{
    struct resize_rows rows = {
        .pixels = in->pixels, .height = in->size.height, .bytes = (size_t)in->size.width * PIXEL};
    bool same_width = resize_keeps(&job->across, job->size.width);

    if (!same_width && !resize_keeps(&job->down, job->size.height))
        return resize_twice(resizer, &rows, job, out);
    return same_width ? resize_pass_down(resizer, &rows, job, out->pixels)
                      : resize_pass_across(resizer, &rows, job, out->pixels);
}

int resizer_run(struct resizer *resizer, const struct picture *in, struct image_size size,
                enum resize_filter filter, struct picture *out)
{
    struct picture_part whole = {.height = in->size.height, .width = in->size.width};
    int r;

    if (filter != RESIZE_NEAREST)
        return resizer_run_part(resizer, in, &whole, size, filter, out);
    r = picture_set(out, size, in->grey);
    return r < 0 ? r : resize_nearest(resizer, in, out);
}

int resizer_run_part(struct resizer *resizer, const struct picture *in,
                     const struct picture_part *part, struct image_size size,
                     enum resize_filter filter, struct picture *out)
{
    const struct resize_job job = {
        .across = {.inputs = in->size.width, .begin = part->left, .length = part->width},
        .down = {.inputs = in->size.height, .begin = part->top, .length = part->height},
        .size = size,
        .filter = filter};
    int r = picture_set(out, size, in->grey);

    return r < 0 ? r : resize_do(resizer, in, &job, out);
}

void resizer_deinit(struct resizer *resizer)
{
    resize_axis_deinit(&resizer->across);
    resize_axis_deinit(&resizer->down);
    free(resizer->rows);
    *resizer = (struct resizer){0};
}
