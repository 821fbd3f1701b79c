/* Pixels times weights: plain C, SSE2, AVX2 where the processor has it, and NEON. */
#include "daemon/data/decode/resize/resize_digits.h"
#include "daemon/data/decode/transform/vectors.h"

#include <errno.h>

#if defined(__x86_64__) && !defined(PLAIN_VECTORS)
#define RESIZE_VECTORS
#include <immintrin.h>
#define RESIZE_AVX2   __attribute__((target("avx2")))
#define RESIZE_INLINE static inline __attribute__((always_inline))
#elif defined(__aarch64__) && !defined(PLAIN_VECTORS)
#define RESIZE_NEON
#include <arm_neon.h>
#endif

enum {
    ROWS_BLOCK = 64, /* bytes of a row that are summed up together */
    TAPS_MAX = 2048, /* this many lower parts times 255 fit 31 bits */
    ROWS_GROUP = 4,  /* pixels that are weighted together */
    PACKED = 32,     /* 16-bit words of a group: 16 of upper parts, 16 of lower ones */
};

/* ---- plain ------------------------------------------------------------------------------------
 */

static inline uint8_t resize_to_byte(int32_t sum)
{
    sum >>= RESIZE_BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static void resize_across_plain(const struct resize_axis *axis, const uint8_t *row, uint8_t *out)
{
    for (uint32_t i = 0; i < axis->n; i++) {
        const uint8_t *p = row + (size_t)axis->from[i] * PICTURE_PIXEL;
        const int32_t *w = axis->weights + (size_t)i * axis->taps;
        for (unsigned c = 0; c < PICTURE_PIXEL; c++) {
            int32_t sum = 1 << (RESIZE_BITS - 1);
            for (uint32_t t = 0; t < axis->count[i]; t++)
                sum += p[(size_t)t * PICTURE_PIXEL + c] * w[t];
            out[(size_t)i * PICTURE_PIXEL + c] = resize_to_byte(sum);
        }
    }
}

/* One block of an output row; what is behind the row's end counts nothing. */
static void resize_down_block(const struct resize_axis *axis, uint32_t i,
                              const struct resize_rows *rows, size_t at, uint8_t *restrict out)
{
    const int32_t *weights = axis->weights + (size_t)i * axis->taps;
    const uint8_t *p = rows->pixels + axis->from[i] * rows->bytes + at;
    size_t here = rows->bytes - at < ROWS_BLOCK ? rows->bytes - at : ROWS_BLOCK;
    int32_t sum[ROWS_BLOCK];

    for (size_t k = 0; k < ROWS_BLOCK; k++)
        sum[k] = 1 << (RESIZE_BITS - 1);
    for (uint32_t t = 0; t < axis->count[i]; t++, p += rows->bytes) {
        int32_t w = weights[t];
        if (here == ROWS_BLOCK) {
            for (size_t k = 0; k < ROWS_BLOCK; k++)
                sum[k] += p[k] * w;
        } else {
            for (size_t k = 0; k < here; k++)
                sum[k] += p[k] * w;
        }
    }
    for (size_t k = 0; k < here; k++)
        out[at + k] = resize_to_byte(sum[k]);
}

static void resize_down_plain(const struct resize_axis *axis, uint32_t i,
                              const struct resize_rows *rows, uint8_t *out)
{
    for (size_t at = 0; at < rows->bytes; at += ROWS_BLOCK)
        resize_down_block(axis, i, rows, at, out);
}

const struct resize_kernels resize_plain = {
    .name = "plain", .across = resize_across_plain, .down = resize_down_plain};

#ifdef RESIZE_VECTORS

/* ---- SSE2: every processor of this kind has it ------------------------------------------------
 */

static int resize_split(struct resize_axis *axis)
{
    for (size_t i = 0; i < (size_t)axis->n * axis->taps; i++) {
        axis->high[i] = (int16_t)(axis->weights[i] >> RESIZE_LOW_BITS);
        axis->low[i] = (int16_t)(axis->weights[i] & ((1 << RESIZE_LOW_BITS) - 1));
    }
    return 0;
}

static int resize_set_across_sse2(struct resize_axis *axis, uint32_t inputs)
{
    (void)inputs;
    return resize_split(axis);
}

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
    const uint8_t *p = row + (size_t)axis->from[i] * PICTURE_PIXEL;
    const int16_t *high = axis->high + (size_t)i * axis->taps;
    const int16_t *low = axis->low + (size_t)i * axis->taps;
    __m128i upper = zero, lower = _mm_set1_epi32(1 << (RESIZE_BITS - 1));

    for (uint32_t t = 0; t < axis->count[i]; t += 2) {
        __m128i two = _mm_loadl_epi64((const void *)(p + (size_t)t * PICTURE_PIXEL));
        two = _mm_unpacklo_epi8(two, zero);
        two = _mm_unpacklo_epi16(two, _mm_srli_si128(two, 8));
        upper = _mm_add_epi32(upper, _mm_madd_epi16(two, resize_pair(high + t)));
        lower = _mm_add_epi32(lower, _mm_madd_epi16(two, resize_pair(low + t)));
    }
    return _mm_srai_epi32(_mm_add_epi32(_mm_slli_epi32(upper, RESIZE_LOW_BITS), lower),
                          RESIZE_BITS);
}

static void resize_across_sse2(const struct resize_axis *axis, const uint8_t *row, uint8_t *out)
{
    if (axis->taps > TAPS_MAX) {
        resize_across_plain(axis, row, out);
        return;
    }
    for (uint32_t i = 0; i < axis->n; i++) {
        __m128i sum = resize_sum(axis, row, i);
        sum = _mm_packs_epi32(sum, sum);
        int32_t pixel = _mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
        memcpy(out + (size_t)i * PICTURE_PIXEL, &pixel, sizeof pixel);
    }
}

static const struct resize_kernels resize_sse2 = {.name = "SSE2",
                                                  .set_across = resize_set_across_sse2,
                                                  .across = resize_across_sse2,
                                                  .down = resize_down_plain};

/* ---- AVX2 -------------------------------------------------------------------------------------
 */

static int resize_pack_room(struct resize_axis *axis)
{
    size_t groups = (axis->taps + ROWS_GROUP - 1) / ROWS_GROUP, words = axis->n * groups * PACKED;

    if (words > axis->packed_room) {
        free(axis->packed);
        free(axis->packed_from);
        axis->packed = calloc(words, sizeof *axis->packed);
        axis->packed_from = calloc(axis->n * groups, sizeof *axis->packed_from);
        axis->packed_room = axis->packed && axis->packed_from ? words : 0;
    }
    return axis->packed_room > 0 ? 0 : -ENOMEM;
}

/* Four weights: two for each half of a vector, whose pixels are R, R, G, G, ... */
static void resize_pack_group(const int32_t weights[static ROWS_GROUP], int16_t *out)
{
    for (unsigned k = 0; k < PACKED / 2; k++) {
        int32_t w = weights[k / 8 * 2 + k % 2];
        out[k] = (int16_t)(w >> RESIZE_LOW_BITS);
        out[k + PACKED / 2] = (int16_t)(w & ((1 << RESIZE_LOW_BITS) - 1));
    }
}

/*
 * All outputs take the same number of groups, so that no processor has to guess it. Near the row's
 * end the first ones are 0, for nothing to be read behind it; groups 0: the row is too short.
 */
static void resize_pack(struct resize_axis *axis, uint32_t inputs)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < axis->n; i++)
        most = axis->count[i] > most ? axis->count[i] : most;
    axis->groups = (most + ROWS_GROUP - 1) / ROWS_GROUP;
    if (axis->groups * ROWS_GROUP > inputs) {
        axis->groups = 0;
        return;
    }
    for (uint32_t i = 0; i < axis->n; i++) {
        uint32_t last = inputs - axis->groups * ROWS_GROUP;
        uint32_t from = axis->from[i] < last ? axis->from[i] : last, skip = axis->from[i] - from;
        const int32_t *weights = axis->weights + (size_t)i * axis->taps;
        axis->packed_from[i] = from;
        for (uint32_t g = 0; g < axis->groups; g++) {
            int32_t four[ROWS_GROUP];
            for (uint32_t t = 0; t < ROWS_GROUP; t++) {
                uint32_t at =
                    g * ROWS_GROUP + t - skip; /* beyond the count where it is less than skip */
                four[t] = at < axis->count[i] ? weights[at] : 0;
            }
            resize_pack_group(four, axis->packed + ((size_t)i * axis->groups + g) * PACKED);
        }
    }
}

static int resize_set_across_avx2(struct resize_axis *axis, uint32_t inputs)
{
    int r = resize_pack_room(axis);

    if (r < 0)
        return r;
    resize_pack(axis, inputs);
    return resize_split(axis);
}

/* Of output `i`: one half of the sum of each channel in each half of the vector. */
RESIZE_INLINE RESIZE_AVX2 __m256i resize_sum_groups(const struct resize_axis *axis,
                                                    const uint8_t *row, uint32_t i, uint32_t groups)
{
    const __m128i order = _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    const uint8_t *p = row + (size_t)axis->packed_from[i] * PICTURE_PIXEL;
    const int16_t *w = axis->packed + (size_t)i * groups * PACKED;
    __m256i upper = _mm256_setzero_si256(), lower = upper;

    for (uint32_t g = 0; g < groups; g++, p += ROWS_GROUP * PICTURE_PIXEL, w += PACKED) {
        __m128i four = _mm_shuffle_epi8(_mm_loadu_si128((const void *)p), order);
        __m256i wide = _mm256_cvtepu8_epi16(four);
        __m256i high = _mm256_loadu_si256((const void *)w);
        __m256i low = _mm256_loadu_si256((const void *)(w + PACKED / 2));
        upper = _mm256_add_epi32(upper, _mm256_madd_epi16(wide, high));
        lower = _mm256_add_epi32(lower, _mm256_madd_epi16(wide, low));
    }
    return _mm256_add_epi32(_mm256_slli_epi32(upper, RESIZE_LOW_BITS), lower);
}

/* Outputs `i` and `k`. */
RESIZE_INLINE RESIZE_AVX2 __m256i resize_two_pixels(const struct resize_axis *axis,
                                                    const uint8_t *row, uint32_t i, uint32_t k,
                                                    uint32_t groups)
{
    __m256i a = resize_sum_groups(axis, row, i, groups);
    __m256i b = resize_sum_groups(axis, row, k, groups);
    __m256i sum = _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                                   _mm256_permute2x128_si256(a, b, 0x31));

    return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(1 << (RESIZE_BITS - 1))),
                             RESIZE_BITS);
}

/* Outputs from `i` on; the last one again where there are fewer than four. */
RESIZE_INLINE RESIZE_AVX2 __m128i resize_four_pixels(const struct resize_axis *axis,
                                                     const uint8_t *row, uint32_t i,
                                                     uint32_t groups)
{
    uint32_t last = axis->n - 1;
    __m256i ab = resize_two_pixels(axis, row, i, i + 1 < last ? i + 1 : last, groups);
    __m256i cd = resize_two_pixels(axis, row, i + 2 < last ? i + 2 : last,
                                   i + 3 < last ? i + 3 : last, groups);
    __m256i words = _mm256_packs_epi32(ab, cd); /* a, c; b, d */
    __m256i bytes = _mm256_packus_epi16(words, words);

    return _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
}

/* The last group ends with the last output, with some of what is done already. */
RESIZE_INLINE RESIZE_AVX2 void resize_across_groups(const struct resize_axis *axis,
                                                    const uint8_t *row, uint32_t groups,
                                                    uint8_t *out)
{
    uint32_t n = axis->n;

    if (n < ROWS_GROUP) {
        __m128i four = resize_four_pixels(axis, row, 0, groups);
        memcpy(out, &four, (size_t)n * PICTURE_PIXEL);
        return;
    }
    for (uint32_t i = 0; i < n; i += ROWS_GROUP) {
        uint32_t at = i + ROWS_GROUP <= n ? i : n - ROWS_GROUP;
        _mm_storeu_si128((void *)(out + (size_t)at * PICTURE_PIXEL),
                         resize_four_pixels(axis, row, at, groups));
    }
}

/* The numbers of groups that are usual are known where it is inlined. */
RESIZE_AVX2 static void resize_across_avx2(const struct resize_axis *axis, const uint8_t *row,
                                           uint8_t *out)
{
    switch (axis->groups) {
    case 0:
        resize_across_sse2(axis, row, out);
        break;
    case 1:
        resize_across_groups(axis, row, 1, out);
        break;
    case 2:
        resize_across_groups(axis, row, 2, out);
        break;
    default:
        resize_across_groups(axis, row, axis->groups, out);
    }
}

struct resize_sums {
    __m256i s[4];
};

/* Without a loop: gcc -O2 leaves it, and the sums in memory. */
RESIZE_INLINE RESIZE_AVX2 void resize_add_words(struct resize_sums *sums, const __m256i wide[4],
                                                __m256i weights)
{
    sums->s[0] = _mm256_add_epi32(sums->s[0], _mm256_madd_epi16(wide[0], weights));
    sums->s[1] = _mm256_add_epi32(sums->s[1], _mm256_madd_epi16(wide[1], weights));
    sums->s[2] = _mm256_add_epi32(sums->s[2], _mm256_madd_epi16(wide[2], weights));
    sums->s[3] = _mm256_add_epi32(sums->s[3], _mm256_madd_epi16(wide[3], weights));
}

RESIZE_INLINE RESIZE_AVX2 __m256i resize_rounded(__m256i upper, __m256i lower)
{
    return _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(upper, RESIZE_LOW_BITS), lower),
                             RESIZE_BITS);
}

/* 32 bytes of two rows, whose weights are in the upper and lower halves of each word. */
RESIZE_INLINE RESIZE_AVX2 void resize_add_rows(struct resize_sums *upper, struct resize_sums *lower,
                                               __m256i a, __m256i b, __m256i high_weights,
                                               __m256i low_weights)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
    __m256i wide[] = {_mm256_unpacklo_epi8(low, zero), _mm256_unpackhi_epi8(low, zero),
                      _mm256_unpacklo_epi8(high, zero), _mm256_unpackhi_epi8(high, zero)};

    resize_add_words(upper, wide, high_weights);
    resize_add_words(lower, wide, low_weights);
}

RESIZE_INLINE RESIZE_AVX2 __m256i resize_weights_of_two(const int16_t *weights)
{
    int32_t pair;

    memcpy(&pair, weights, sizeof pair);
    return _mm256_set1_epi32(pair);
}

/* An odd number of rows: the last one twice, the second time without a weight. */
RESIZE_INLINE RESIZE_AVX2 void resize_down_32(const struct resize_axis *axis, uint32_t i,
                                              const struct resize_rows *rows, size_t at,
                                              uint8_t *out)
{
    const uint8_t *p = rows->pixels + axis->from[i] * rows->bytes + at;
    const int16_t *high = axis->high + (size_t)i * axis->taps;
    const int16_t *low = axis->low + (size_t)i * axis->taps;
    __m256i half = _mm256_set1_epi32(1 << (RESIZE_BITS - 1));
    struct resize_sums upper = {0}, lower = {{half, half, half, half}};

    for (uint32_t t = 0; t < axis->count[i]; t += 2, p += 2 * rows->bytes) {
        __m256i a = _mm256_loadu_si256((const void *)p);
        __m256i b =
            t + 1 < axis->count[i] ? _mm256_loadu_si256((const void *)(p + rows->bytes)) : a;
        resize_add_rows(&upper, &lower, a, b, resize_weights_of_two(high + t),
                        resize_weights_of_two(low + t));
    }
    __m256i first = _mm256_packs_epi32(resize_rounded(upper.s[0], lower.s[0]),
                                       resize_rounded(upper.s[1], lower.s[1]));
    __m256i second = _mm256_packs_epi32(resize_rounded(upper.s[2], lower.s[2]),
                                        resize_rounded(upper.s[3], lower.s[3]));
    _mm256_storeu_si256((void *)(out + at), _mm256_packus_epi16(first, second));
}

RESIZE_AVX2 static void resize_down_avx2(const struct resize_axis *axis, uint32_t i,
                                         const struct resize_rows *rows, uint8_t *out)
{
    enum { VECTOR = sizeof(__m256i) };

    if (rows->bytes < VECTOR || axis->taps > TAPS_MAX) {
        resize_down_plain(axis, i, rows, out);
        return;
    }
    for (size_t at = 0; at < rows->bytes; at += VECTOR)
        resize_down_32(axis, i, rows, at + VECTOR <= rows->bytes ? at : rows->bytes - VECTOR, out);
}

static const struct resize_kernels resize_avx2 = {.name = "AVX2",
                                                  .set_across = resize_set_across_avx2,
                                                  .set_down = resize_split,
                                                  .across = resize_across_avx2,
                                                  .down = resize_down_avx2};

const struct resize_kernels *resize_kernels_get(unsigned i)
{
    static const struct resize_kernels *const all[] = {&resize_avx512, &resize_avx2, &resize_sse2,
                                                       &resize_plain};

    i += vectors_have_avx512() ? 0 : vectors_have_avx2() ? 1 : 2;
    return i < ARRAY_SIZE(all) ? all[i] : NULL;
}

#elif defined(RESIZE_NEON)

/* ---- NEON: every processor of this kind has it ------------------------------------------------
 */

/* Two pixels at once. An odd number of them reads one pixel behind, which has no weight. */
static inline int32x4_t resize_sum_neon(const struct resize_axis *axis, const uint8_t *row,
                                        uint32_t i)
{
    const uint8_t *p = row + (size_t)axis->from[i] * PICTURE_PIXEL;
    const int32_t *w = axis->weights + (size_t)i * axis->taps;
    int32x4_t sum = vdupq_n_s32(1 << (RESIZE_BITS - 1));

    for (uint32_t t = 0; t < axis->count[i]; t += 2) {
        int16x8_t two = vreinterpretq_s16_u16(vmovl_u8(vld1_u8(p + (size_t)t * PICTURE_PIXEL)));
        int32x2_t weights = vld1_s32(w + t);
        sum = vmlaq_lane_s32(sum, vmovl_s16(vget_low_s16(two)), weights, 0);
        sum = vmlaq_lane_s32(sum, vmovl_s16(vget_high_s16(two)), weights, 1);
    }
    return vshrq_n_s32(sum, RESIZE_BITS);
}

static void resize_across_neon(const struct resize_axis *axis, const uint8_t *row,
                               uint8_t *restrict out)
{
    for (uint32_t i = 0; i < axis->n; i++) {
        uint16x4_t words = vqmovun_s32(resize_sum_neon(axis, row, i));
        uint8x8_t bytes = vqmovn_u16(vcombine_u16(words, words));
        uint32_t pixel = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
        memcpy(out + (size_t)i * PICTURE_PIXEL, &pixel, sizeof pixel);
    }
}

/* Down, the compiler makes of plain C what would be written here. */
static const struct resize_kernels resize_neon = {
    .name = "NEON", .across = resize_across_neon, .down = resize_down_plain};

const struct resize_kernels *resize_kernels_get(unsigned i)
{
    static const struct resize_kernels *const all[] = {&resize_neon, &resize_plain};

    return i < ARRAY_SIZE(all) ? all[i] : NULL;
}

#else

const struct resize_kernels *resize_kernels_get(unsigned i)
{
    return i == 0 ? &resize_plain : NULL;
}

#endif
