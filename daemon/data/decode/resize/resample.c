/* The triangle filter, separable. */
#include "daemon/data/decode/resize/resample.h"
#include "daemon/data/decode/image/picture.h"

#include <assert.h>
#include <errno.h>

#if defined(__SSE2__) && !defined(RESAMPLE_PLAIN)
#include <emmintrin.h>
#define RESAMPLE_SSE2
#endif

enum {
    MIN_BITS = 14, /* a weight of 1 fits 16 bits */
    MAX_BITS = 22, /* 255 · 2^22 and the half to round with fit 31 bits */
};

/* ---- weights -------------------------------------------------------------------------------- */

static int resample_make_room(struct resample_axis *axis, size_t n, size_t taps)
{
    if (n > axis->room) {
        free(axis->from);
        free(axis->count);
        axis->from = calloc(n, sizeof *axis->from);
        axis->count = calloc(n, sizeof *axis->count);
        axis->room = n;
    }
    if (n * taps > axis->tap_room) {
        free(axis->weights);
        free(axis->shares);
        axis->weights = calloc(n * taps, sizeof *axis->weights);
        axis->shares = calloc(n * taps, sizeof *axis->shares);
        axis->tap_room = n * taps;
    }
    if (!axis->from || !axis->count || !axis->weights || !axis->shares) {
        resample_axis_deinit(axis);
        return -ENOMEM;
    }
    return 0;
}

void resample_axis_deinit(struct resample_axis *axis)
{
    free(axis->from);
    free(axis->count);
    free(axis->weights);
    free(axis->shares);
    *axis = (struct resample_axis){0};
}

/* The inputs that the triangle of output `i` covers at their centres, and their shares, which add
 * up to 1. Returns the greatest. */
static float resample_share_out(struct resample_axis *axis, const struct resample_span *span,
                                uint32_t i, double scale, double support)
{
    uint32_t at = span->first + (span->mirror ? axis->n - 1 - i : i);
    float *shares = axis->shares + (size_t)i * axis->taps;
    double centre = span->begin + (at + 0.5) * scale;
    double inverse = 1 / support, sum = 0, most = 0;
    int64_t from = (int64_t)(centre - support + 0.5), to = (int64_t)(centre + support + 0.5);

    from = from < span->low ? span->low : from >= span->high ? span->high - 1 : from;
    to = to > span->high ? span->high : to <= from ? from + 1 : to;
    assert(to - from <= axis->taps);
    for (int64_t x = from; x < to; x++) {
        double share = 1 - __builtin_fabs((double)x + 0.5 - centre) * inverse;
        if (share < 0)
            share = 0;
        if (share > most)
            most = share;
        shares[x - from] = (float)share;
        sum += share;
    }
    if (sum <= 0) { /* rounding left none of them inside: the one that lies there is all */
        to = from + 1;
        shares[0] = 1;
        sum = most = 1;
    }
    axis->from[i] = (uint32_t)from;
    axis->count[i] = (uint32_t)(to - from);
    for (uint32_t t = 0; t < axis->count[i]; t++)
        shares[t] = (float)(shares[t] / sum);
    return (float)(most / sum);
}

/*
 * Shares become weights so that no error adds up: what the first are too much or too little, the
 * next makes good.
 */
static void resample_round_shares(struct resample_axis *axis, uint32_t i)
{
    const float *shares = axis->shares + (size_t)i * axis->taps;
    int16_t *weights = axis->weights + (size_t)i * axis->taps;
    uint32_t n = axis->count[i];
    int32_t one = 1 << axis->bits, given = 0;
    double upto = 0.5;

    for (uint32_t t = 0; t + 1 < n; t++) {
        upto += (double)shares[t] * one;
        weights[t] = (int16_t)((int32_t)upto - given);
        given = (int32_t)upto;
    }
    weights[n - 1] = (int16_t)(one - given);
    memset(weights + n, 0, (axis->taps - n) * sizeof *weights);
}

static unsigned resample_choose_bits(float most)
{
    unsigned bits = MIN_BITS;

    /* Two more for what rounding may add to one. */
    while (bits < MAX_BITS && (double)most * (2 << bits) + 2 <= INT16_MAX)
        bits++;
    return bits;
}

int resample_axis_set(struct resample_axis *axis, const struct resample_span *span)
{
    double scale = span->length / span->outputs;
    double support = scale > 1 ? scale : 1;
    float most = 0;

    assert(span->n > 0 && span->first + (uint64_t)span->n <= span->outputs);
    assert(span->low < span->high && span->begin >= span->low);
    /* From the centre 1/2 beyond the left end to that beyond the right one, and an even number. */
    uint32_t taps = (uint32_t)align_up((uint64_t)(2 * support) + 2, 2);
    int r = resample_make_room(axis, span->n, taps);
    if (r < 0)
        return r;
    axis->n = span->n;
    axis->taps = taps;
    axis->most = 2;
    axis->begin = UINT32_MAX;
    axis->end = 0;
    for (uint32_t i = 0; i < axis->n; i++) {
        float share = resample_share_out(axis, span, i, scale, support);
        most = share > most ? share : most;
        axis->most = (uint32_t)max_u64(axis->most, align_up(axis->count[i], 2));
        axis->begin = (uint32_t)min_u64(axis->begin, axis->from[i]);
        axis->end = (uint32_t)max_u64(axis->end, axis->from[i] + axis->count[i]);
    }
    axis->bits = resample_choose_bits(most);
    for (uint32_t i = 0; i < axis->n; i++)
        resample_round_shares(axis, i);
    return 0;
}

/* ---- pixels --------------------------------------------------------------------------------- */

/* What a row's or a column's weighted sum becomes: weights are ≥ 0 and add up to 1. */
static inline uint8_t resample_to_byte(int32_t sum, unsigned bits)
{
    return (uint8_t)((uint32_t)sum >> bits);
}

struct across {
    const struct resample_axis *axis;
    const uint8_t *row;
    uint32_t origin;
};

static inline const uint8_t *resample_first_pixel(const struct across *a, uint32_t i)
{
    return a->row + (size_t)(a->axis->from[i] - a->origin) * PICTURE_PIXEL;
}

#ifdef RESAMPLE_SSE2

/* Outputs that are made at once: as many pixels as fill a vector. */
enum { RESAMPLE_GROUP = 4 };

/* R, G, B and the fourth of output `i`; the number of taps is known where it is inlined. */
static inline __attribute__((always_inline)) __m128i resample_across_sum(const struct across *a,
                                                                         uint32_t i, uint32_t taps)
{
    const __m128i zero = _mm_setzero_si128();
    const int16_t *w = a->axis->weights + (size_t)i * a->axis->taps;
    const uint8_t *p = resample_first_pixel(a, i);
    __m128i sum = _mm_set1_epi32(1 << (a->axis->bits - 1));

    /* Two pixels at once; where there are fewer, the weight is 0. All outputs take the same number
     * of steps: to guess each one's own would cost more than it saves. */
    for (uint32_t t = 0; t < taps; t += 2) {
        int32_t pair;
        memcpy(&pair, w + t, sizeof pair);
        __m128i two = _mm_loadl_epi64((const void *)(p + (size_t)t * PICTURE_PIXEL));
        two = _mm_unpacklo_epi8(two, zero);
        two = _mm_unpacklo_epi16(two, _mm_srli_si128(two, 8));
        sum = _mm_add_epi32(sum, _mm_madd_epi16(two, _mm_set1_epi32(pair)));
    }
    return _mm_srl_epi32(sum, _mm_cvtsi32_si128((int)a->axis->bits));
}

/* Four pixels of four bytes; output `n` - 1 again where there are fewer than four. */
static inline __attribute__((always_inline)) __m128i resample_across_group(const struct across *a,
                                                                           uint32_t i,
                                                                           uint32_t taps)
{
    uint32_t last = a->axis->n - 1;
    __m128i s[RESAMPLE_GROUP];

    for (uint32_t k = 0; k < RESAMPLE_GROUP; k++)
        s[k] = resample_across_sum(a, i + k < last ? i + k : last, taps);
    return _mm_packus_epi16(_mm_packs_epi32(s[0], s[1]), _mm_packs_epi32(s[2], s[3]));
}

/* RGB after RGB. The fourth byte is the next pixel's first, or slack. */
static inline void resample_put_packed(__m128i group, uint8_t *out)
{
    for (unsigned k = 0; k < RESAMPLE_GROUP; k++) {
        int32_t pixel = _mm_cvtsi128_si32(group);
        memcpy(out + (size_t)k * PICTURE_COLOURS, &pixel, sizeof pixel);
        group = _mm_srli_si128(group, PICTURE_PIXEL);
    }
}

/* Four bytes each of R, G and B. */
static inline void resample_put_planar(__m128i group, uint8_t *out, size_t n)
{
    __m128i pairs = _mm_unpacklo_epi8(group, _mm_srli_si128(group, 8)); /* 0 and 2, 1 and 3 */
    __m128i four = _mm_unpacklo_epi8(pairs, _mm_srli_si128(pairs, 8));
    uint8_t some[RESAMPLE_GROUP];

    for (unsigned c = 0; c < PICTURE_COLOURS; c++) {
        int32_t bytes = _mm_cvtsi128_si32(four);
        memcpy(some, &bytes, sizeof some);
        memcpy(out + c * n, some, n < RESAMPLE_GROUP ? n : RESAMPLE_GROUP);
        four = _mm_srli_si128(four, PICTURE_PIXEL);
    }
}

/* The last group ends with the last output, with some of what is done already. */
static inline uint32_t resample_group_at(uint32_t i, uint32_t n)
{
    return i + RESAMPLE_GROUP <= n ? i : n > RESAMPLE_GROUP ? n - RESAMPLE_GROUP : 0;
}

#define ACROSS(taps_)                                                                  \
    static void across_##taps_(const struct across *a, bool planar, uint8_t *out)      \
    {                                                                                  \
        uint32_t n = a->axis->n;                                                       \
        for (uint32_t i = 0; i < n; i += RESAMPLE_GROUP) {                             \
            uint32_t at = resample_group_at(i, n);                                     \
            if (planar)                                                                \
                resample_put_planar(resample_across_group(a, at, taps_), out + at, n); \
            else                                                                       \
                resample_put_packed(resample_across_group(a, at, taps_),               \
                                    out + (size_t)at * PICTURE_COLOURS);               \
        }                                                                              \
    }
#define most a->axis->most
ACROSS(2)
ACROSS(4)
ACROSS(6)
ACROSS(8)
ACROSS(most)
#undef most
#undef ACROSS

static void resample_across_all(const struct across *a, bool planar, uint8_t *out)
{
    static void (*const known[])(const struct across *, bool, uint8_t *) = {
        [1] = across_2, [2] = across_4, [3] = across_6, [4] = across_8};
    uint32_t pairs = a->axis->most / 2;

    if (pairs < ARRAY_SIZE(known))
        known[pairs](a, planar, out);
    else
        across_most(a, planar, out);
}

#else

static void resample_across_all(const struct across *a, bool planar, uint8_t *out)
{
    const struct resample_axis *axis = a->axis;
    size_t pixel = planar ? 1 : PICTURE_COLOURS, colour = planar ? axis->n : 1;

    for (uint32_t i = 0; i < axis->n; i++) {
        const uint8_t *p = resample_first_pixel(a, i);
        const int16_t *w = axis->weights + (size_t)i * axis->taps;
        for (unsigned c = 0; c < PICTURE_COLOURS; c++) {
            int32_t sum = 1 << (axis->bits - 1);
            for (uint32_t t = 0; t < axis->count[i]; t++)
                sum += p[(size_t)t * PICTURE_PIXEL + c] * w[t];
            out[i * pixel + c * colour] = resample_to_byte(sum, axis->bits);
        }
    }
}

#endif

void resample_across(const struct resample_axis *axis, const uint8_t *row, uint32_t origin,
                     bool planar, uint8_t *out)
{
    resample_across_all(&(struct across){.axis = axis, .row = row, .origin = origin}, planar, out);
}

/* ---- rows ----------------------------------------------------------------------------------- */

int resample_ring_set(struct resample_ring *ring, const struct resample_axis *axis, size_t bytes)
{
    size_t row_bytes = align_up(bytes + RESAMPLE_SLACK, RESAMPLE_SLACK);

    ring->rows = axis->taps;
    ring->row_bytes = row_bytes;
    if (ring->rows * row_bytes > ring->room) {
        free(ring->data);
        ring->data = calloc(ring->rows, row_bytes);
        ring->room = ring->rows * row_bytes;
    }
    if (ring->rows + (size_t)1 > ring->order_room) {
        free(ring->order);
        ring->order = calloc(ring->rows + (size_t)1, sizeof *ring->order);
        ring->order_room = ring->rows + (size_t)1;
    }
    if (!ring->data || !ring->order) {
        resample_ring_deinit(ring);
        return -ENOMEM;
    }
    return 0;
}

void resample_ring_deinit(struct resample_ring *ring)
{
    free(ring->data);
    free(ring->order);
    *ring = (struct resample_ring){0};
}

struct down {
    const uint8_t *const *rows; /* one more than have a weight, if they are odd */
    const int16_t *weights;
    uint32_t count;
    unsigned bits;
};

static inline uint8_t resample_down_byte(const struct down *d, size_t x)
{
    int32_t sum = 1 << (d->bits - 1);

    for (uint32_t t = 0; t < d->count; t++)
        sum += d->rows[t][x] * d->weights[t];
    return resample_to_byte(sum, d->bits);
}

#ifdef RESAMPLE_SSE2
enum { RESAMPLE_BLOCK = sizeof(__m128i) };

/* A block of bytes, of two rows at a time. */
static inline void resample_down_block(const struct down *d, size_t x, uint8_t *out)
{
    const __m128i zero = _mm_setzero_si128(), bits = _mm_cvtsi32_si128((int)d->bits);
    __m128i s0 = _mm_set1_epi32(1 << (d->bits - 1)), s1 = s0, s2 = s0, s3 = s0;

    for (uint32_t t = 0; t < d->count; t += 2) {
        int32_t pair;
        memcpy(&pair, d->weights + t, sizeof pair);
        __m128i w = _mm_set1_epi32(pair);
        __m128i a = _mm_loadu_si128((const void *)(d->rows[t] + x));
        __m128i b = _mm_loadu_si128((const void *)(d->rows[t + 1] + x));
        __m128i low = _mm_unpacklo_epi8(a, b), high = _mm_unpackhi_epi8(a, b);
        s0 = _mm_add_epi32(s0, _mm_madd_epi16(_mm_unpacklo_epi8(low, zero), w));
        s1 = _mm_add_epi32(s1, _mm_madd_epi16(_mm_unpackhi_epi8(low, zero), w));
        s2 = _mm_add_epi32(s2, _mm_madd_epi16(_mm_unpacklo_epi8(high, zero), w));
        s3 = _mm_add_epi32(s3, _mm_madd_epi16(_mm_unpackhi_epi8(high, zero), w));
    }
    s0 = _mm_packs_epi32(_mm_srl_epi32(s0, bits), _mm_srl_epi32(s1, bits));
    s2 = _mm_packs_epi32(_mm_srl_epi32(s2, bits), _mm_srl_epi32(s3, bits));
    _mm_storeu_si128((void *)out, _mm_packus_epi16(s0, s2));
}
#endif

void resample_down(const struct resample_axis *axis, uint32_t i, const struct resample_ring *ring,
                   size_t from, size_t n, uint8_t *out)
{
    struct down d = {
        .rows = ring->order,
        .weights = axis->weights + (size_t)i * axis->taps,
        .count = axis->count[i],
        .bits = axis->bits,
    };
    size_t x = 0;

    for (uint32_t t = 0; t <= d.count; t++)
        ring->order[t] = resample_ring_row(ring, axis->from[i] + t - (t == d.count)) + from;
#ifdef RESAMPLE_SSE2
    for (; x + RESAMPLE_BLOCK <= n; x += RESAMPLE_BLOCK)
        resample_down_block(&d, x, out + x);
    if (x < n && n >= RESAMPLE_BLOCK) { /* the end, with some of what is done already */
        resample_down_block(&d, n - RESAMPLE_BLOCK, out + n - RESAMPLE_BLOCK);
        x = n;
    }
#endif
    for (; x < n; x++)
        out[x] = resample_down_byte(&d, x);
}
