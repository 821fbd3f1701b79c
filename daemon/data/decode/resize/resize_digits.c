/*
 * The passes of resizing with AVX-512's sums of products of bytes (VNNI). A weight has 23 bits and
 * a sign: three digits to the base of 256, each a byte from -128 on. So a register of pixels that
 * are left as bytes is multiplied three times, four inputs of sixteen sums at once, where products
 * of 16 bits want the pixels widened, and take four times as many instructions.
 *
 * Sums of 32 bits wrap, and so does what is put together of three of them: the result is the sum of
 * the whole weights' products, which fits.
 */
#include "daemon/data/decode/resize/resize_digits.h"
#include "daemon/data/decode/transform/vectors.h"

#include <errno.h>

#ifdef RESIZE_DIGITS

#include <immintrin.h>

#define RESIZE_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")))
/* With checks of memory around each local variable, inlining takes the compiler a quarter of a
 * minute. */
#ifdef __SANITIZE_ADDRESS__
#define RESIZE_AVX512_INLINE static RESIZE_AVX512
#else
#define RESIZE_AVX512_INLINE static inline __attribute__((always_inline)) RESIZE_AVX512
#endif

enum {
    FOUR = 4,           /* inputs, and outputs, at once */
    DIGITS_VECTOR = 64, /* bytes */
    DIGITS = 3,
    SPAN = DIGITS_VECTOR / PICTURE_PIXEL, /* pixels that a register has */
    NARROW = 3,                           /* bytes of a pixel without the fourth */
};

/* ---- digits of weights ------------------------------------------------------------------------
 */

/* Units of one register that four outputs take: where their bytes are, of pixels of four bytes and
 * of three, and the digits of `groups`. */
static size_t resize_block_units(uint32_t groups)
{
    return 2 + (size_t)groups * DIGITS;
}

static size_t resize_blocks(const struct resize_axis *axis)
{
    return ((size_t)axis->n + FOUR - 1) / FOUR;
}

/* Whole registers of each digit are written, and blocks begin at a multiple of a register. */
static int resize_digits_make_room(struct resize_axis *axis)
{
    struct resize_digits *digits = &axis->digits;
    size_t each = align_up((uint64_t)axis->n * axis->taps, DIGITS_VECTOR),
           blocks = resize_blocks(axis);
    size_t bytes = DIGITS * each + blocks * resize_block_units(axis->taps / FOUR) * DIGITS_VECTOR +
                   DIGITS_VECTOR;

    if (bytes > digits->room) {
        free(digits->memory);
        digits->memory = calloc(1, bytes);
        digits->room = digits->memory ? bytes : 0;
    }
    if (blocks > digits->from_room) {
        free(digits->from);
        digits->from = calloc(blocks, sizeof *digits->from);
        digits->from_room = digits->from ? blocks : 0;
    }
    if (!digits->memory || !digits->from)
        return -ENOMEM;
    uint8_t *at = digits->memory + (-(uintptr_t)digits->memory & (DIGITS_VECTOR - 1));
    for (unsigned d = 0; d < DIGITS; d++, at += each)
        digits->planes[d] = (int8_t *)at;
    digits->blocks = at;
    return 0;
}

/* A weight's lowest digit is its lowest byte; half of 256 more, and that byte off, is the rest. */
RESIZE_AVX512 static int resize_digits_set_down(struct resize_axis *axis)
{
    const __m512i half = _mm512_set1_epi32(128);
    size_t n = (size_t)axis->n * axis->taps;
    __mmask16 beyond = 0;
    int r = resize_digits_make_room(axis);

    for (size_t i = 0; r == 0 && i < n; i += SPAN) {
        __mmask16 there = n - i >= SPAN ? 0xffff : (__mmask16)((1U << (n - i)) - 1);
        __m512i w = _mm512_maskz_loadu_epi32(there, axis->weights + i);
        __m512i upper = _mm512_srai_epi32(_mm512_add_epi32(w, half), 8);
        __m512i most = _mm512_srai_epi32(_mm512_add_epi32(upper, half), 8);
        __m128i digit = _mm512_cvtepi32_epi8(most);
        _mm_store_si128((void *)(axis->digits.planes[2] + i), _mm512_cvtepi32_epi8(w));
        _mm_store_si128((void *)(axis->digits.planes[1] + i), _mm512_cvtepi32_epi8(upper));
        _mm_store_si128((void *)(axis->digits.planes[0] + i), digit);
        beyond |= _mm512_cmpneq_epi32_mask(most, _mm512_cvtepi8_epi32(digit));
    }
    axis->digits.fit = beyond == 0;
    return r;
}

/* ---- blocks: four outputs of a row ------------------------------------------------------------
 */

/* The last block ends with the last output, with some of what the one before has; where there are
 * fewer than four outputs it has the last one several times. */
static uint32_t resize_block_output(const struct resize_axis *axis, uint32_t block, uint32_t k)
{
    uint32_t i = block * FOUR, last = axis->n - 1;

    if (axis->n >= FOUR && i + FOUR > axis->n)
        i = axis->n - FOUR;
    return i + k < last ? i + k : last;
}

static uint32_t resize_block_groups(const struct resize_axis *axis)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < axis->n; i++)
        most = axis->count[i] > most ? axis->count[i] : most;
    return (most + FOUR - 1) / FOUR;
}

/* Whether the inputs of a group of all four outputs are in one register. */
static bool resize_block_fits(const struct resize_axis *axis, uint32_t block)
{
    uint32_t first = axis->from[resize_block_output(axis, block, 0)];
    uint32_t last = axis->from[resize_block_output(axis, block, FOUR - 1)];

    return last - first + FOUR <= SPAN;
}

/* Where the bytes of an output's four inputs are, from the first of them on: four of each channel
 * side by side. Of three channels the third one stands twice. */
#define RESIZE_ORDER        _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)
#define RESIZE_NARROW_ORDER _mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, 2, 5, 8, 11)

RESIZE_AVX512 static void resize_block_set(struct resize_axis *axis, uint32_t block)
{
    struct resize_digits *digits = &axis->digits;
    uint32_t groups = digits->groups, from = axis->from[resize_block_output(axis, block, 0)];
    uint8_t *order = digits->blocks + block * resize_block_units(groups) * DIGITS_VECTOR;

    digits->from[block] = from;
    for (uint32_t k = 0; k < FOUR; k++) {
        uint32_t i = resize_block_output(axis, block, k);
        uint8_t *to = order + k * DIGITS_VECTOR / FOUR;
        int at = (int)(axis->from[i] - from);
        _mm_store_si128((void *)to,
                        _mm_add_epi8(RESIZE_ORDER, _mm_set1_epi8((char)(at * PICTURE_PIXEL))));
        _mm_store_si128((void *)(to += DIGITS_VECTOR),
                        _mm_add_epi8(RESIZE_NARROW_ORDER, _mm_set1_epi8((char)(at * NARROW))));
        for (uint32_t g = 0; g < groups; g++) {
            for (uint32_t d = 0; d < DIGITS; d++) {
                int32_t four;
                memcpy(&four, digits->planes[d] + (size_t)i * axis->taps + (size_t)g * FOUR,
                       sizeof four);
                _mm_store_si128((void *)(to += DIGITS_VECTOR), _mm_set1_epi32(four));
            }
        }
    }
}

static int resize_digits_set_across(struct resize_axis *axis, uint32_t inputs)
{
    struct resize_digits *digits = &axis->digits;
    int r = resize_digits_set_down(axis);
    uint32_t blocks = (uint32_t)resize_blocks(axis);
    bool fit = r == 0 && digits->fit;

    digits->inputs = inputs;
    digits->groups = 0;
    for (uint32_t b = 0; fit && b < blocks; b++)
        fit = resize_block_fits(axis, b);
    if (r < 0 || !fit)
        return r < 0 ? r : resize_kernels_get(1)->set_across(axis, inputs);
    digits->groups = resize_block_groups(axis);
    for (uint32_t b = 0; b < blocks; b++)
        resize_block_set(axis, b);
    return 0;
}

/* ---- across -----------------------------------------------------------------------------------
 */

/* Sums of a digit each. */
struct resize_thirds {
    __m512i s[DIGITS];
};

RESIZE_AVX512_INLINE struct resize_thirds resize_thirds_zero(void)
{
    __m512i zero = _mm512_setzero_si512();

    return (struct resize_thirds){{zero, zero, _mm512_set1_epi32(1 << (RESIZE_BITS - 1))}};
}

RESIZE_AVX512_INLINE __m512i resize_thirds_sum(const struct resize_thirds *t)
{
    __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(t->s[0], 8), t->s[1]);

    return _mm512_srai_epi32(_mm512_add_epi32(_mm512_slli_epi32(sum, 8), t->s[2]), RESIZE_BITS);
}

/* The same of all pixels at once, one digit after the other: that takes no sums of three parts. */
RESIZE_AVX512_INLINE __m512i resize_half(void)
{
    return _mm512_set1_epi32(1 << (RESIZE_BITS - 1 - 16));
}

RESIZE_AVX512_INLINE __m512i resize_sum_one(__m512i px, const __m512i digits[static DIGITS])
{
    __m512i sum = _mm512_dpbusd_epi32(resize_half(), px, digits[0]);

    sum = _mm512_dpbusd_epi32(_mm512_slli_epi32(sum, 8), px, digits[1]);
    sum = _mm512_dpbusd_epi32(_mm512_slli_epi32(sum, 8), px, digits[2]);
    return _mm512_srai_epi32(sum, RESIZE_BITS);
}

RESIZE_AVX512_INLINE __m512i resize_sum_two(__m512i px, const __m512i digits[static DIGITS],
                                            __m512i more, const __m512i others[static DIGITS])
{
    __m512i sum = _mm512_dpbusd_epi32(resize_half(), px, digits[0]);

    sum = _mm512_slli_epi32(_mm512_dpbusd_epi32(sum, more, others[0]), 8);
    sum = _mm512_dpbusd_epi32(sum, px, digits[1]);
    sum = _mm512_slli_epi32(_mm512_dpbusd_epi32(sum, more, others[1]), 8);
    sum = _mm512_dpbusd_epi32(sum, px, digits[2]);
    return _mm512_srai_epi32(_mm512_dpbusd_epi32(sum, more, others[2]), RESIZE_BITS);
}

/* A row that is resized: pixels of `step` bytes. */
struct resize_line {
    const struct resize_digits *digits;
    const uint8_t *row;
    uint32_t groups;
    uint32_t step;
};

/* The four inputs of each output's group `g`, of which the row need not have all. */
RESIZE_AVX512_INLINE __m512i resize_load_pixels(const struct resize_line *line, uint32_t from,
                                                __m512i order)
{
    int64_t bytes = ((int64_t)line->digits->inputs - from) * line->step;
    const uint8_t *p = line->row + (size_t)from * line->step;
    __m512i px;

    if (bytes >= DIGITS_VECTOR)
        px = _mm512_loadu_si512(p);
    else
        px = _mm512_maskz_loadu_epi8((1ULL << (bytes > 0 ? bytes : 0)) - 1, p);
    return _mm512_permutexvar_epi8(order, px);
}

/* Of any number of groups. */
RESIZE_AVX512_INLINE __m512i resize_sum_digits(const struct resize_line *line, uint32_t from,
                                               __m512i order, const uint8_t *unit)
{
    struct resize_thirds sums = resize_thirds_zero();

    for (uint32_t g = 0; g < line->groups; g++, from += FOUR) {
        __m512i px = resize_load_pixels(line, from, order);
        sums.s[0] = _mm512_dpbusd_epi32(sums.s[0], px, _mm512_load_si512(unit += DIGITS_VECTOR));
        sums.s[1] = _mm512_dpbusd_epi32(sums.s[1], px, _mm512_load_si512(unit += DIGITS_VECTOR));
        sums.s[2] = _mm512_dpbusd_epi32(sums.s[2], px, _mm512_load_si512(unit += DIGITS_VECTOR));
    }
    return resize_thirds_sum(&sums);
}

/* Four outputs' channels, not yet cut to a byte. */
RESIZE_AVX512_INLINE __m512i resize_block_sums(const struct resize_line *line, uint32_t block)
{
    const uint8_t *unit =
        line->digits->blocks + block * resize_block_units(line->groups) * DIGITS_VECTOR;
    const __m512i *digits = (const void *)(unit + 2 * (size_t)DIGITS_VECTOR);
    __m512i order = _mm512_load_si512(line->step == NARROW ? unit + DIGITS_VECTOR : unit);
    uint32_t from = line->digits->from[block];

    if (line->groups == 1)
        return resize_sum_one(resize_load_pixels(line, from, order), digits);
    if (line->groups == 2)
        return resize_sum_two(resize_load_pixels(line, from, order), digits,
                              resize_load_pixels(line, from + FOUR, order), digits + DIGITS);
    return resize_sum_digits(line, from, order, unit + DIGITS_VECTOR);
}

RESIZE_AVX512_INLINE __m128i resize_block_pixels(const struct resize_line *line, uint32_t block)
{
    __m512i sum = _mm512_max_epi32(resize_block_sums(line, block), _mm512_setzero_si512());

    return _mm512_cvtusepi32_epi8(sum);
}

/* Four blocks: packing leaves the first output of each side by side, then the second ones. */
RESIZE_AVX512_INLINE __m512i resize_four_blocks(const struct resize_line *line, uint32_t block)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i low =
        _mm512_packs_epi32(resize_block_sums(line, block), resize_block_sums(line, block + 1));
    __m512i high =
        _mm512_packs_epi32(resize_block_sums(line, block + 2), resize_block_sums(line, block + 3));

    return _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high));
}

RESIZE_AVX512_INLINE void resize_across_blocks(const struct resize_axis *axis,
                                               const struct resize_line *line, uint8_t *out)
{
    uint32_t blocks = (uint32_t)resize_blocks(axis), whole = axis->n / FOUR, b = 0;

    if (axis->n < FOUR) {
        __m128i four = resize_block_pixels(line, 0);
        memcpy(out, &four, (size_t)axis->n * PICTURE_PIXEL);
        return;
    }
    for (; b + FOUR <= whole; b += FOUR)
        _mm512_storeu_si512(out + (size_t)b * FOUR * PICTURE_PIXEL, resize_four_blocks(line, b));
    for (; b < blocks; b++) {
        uint32_t at = b + 1 < blocks ? b * FOUR : axis->n - FOUR;
        _mm_storeu_si128((void *)(out + (size_t)at * PICTURE_PIXEL), resize_block_pixels(line, b));
    }
}

/* The numbers of groups that are usual are known where it is inlined. */
RESIZE_AVX512_INLINE void resize_across_step(const struct resize_axis *axis, const uint8_t *row,
                                             uint32_t step, uint8_t *out)
{
    struct resize_line line = {
        .digits = &axis->digits, .row = row, .groups = axis->digits.groups, .step = step};

    if (line.groups == 1)
        resize_across_blocks(axis, &(struct resize_line){&axis->digits, row, 1, step}, out);
    else if (line.groups == 2)
        resize_across_blocks(axis, &(struct resize_line){&axis->digits, row, 2, step}, out);
    else
        resize_across_blocks(axis, &line, out);
}

RESIZE_AVX512 static void resize_across_avx512(const struct resize_axis *axis, const uint8_t *row,
                                               uint8_t *out)
{
    if (axis->digits.groups == 0)
        resize_kernels_get(1)->across(axis, row, out);
    else
        resize_across_step(axis, row, PICTURE_PIXEL, out);
}

RESIZE_AVX512 static bool resize_across_narrow(const struct resize_axis *axis, const uint8_t *row,
                                               uint8_t *out)
{
    if (axis->digits.groups == 0)
        return false;
    resize_across_step(axis, row, NARROW, out);
    return true;
}

/* ---- down -------------------------------------------------------------------------------------
 */

/* Four weights, each digit of them in all places. */
RESIZE_AVX512_INLINE __m512i resize_digit_of(const int8_t *digits)
{
    int32_t four;

    memcpy(&four, digits, sizeof four);
    return _mm512_set1_epi32(four);
}

/* Four rows from byte 0 on, and their weights. */
struct resize_four {
    const uint8_t *row[FOUR];
    __m512i digits[DIGITS];
};

/* Rows `t` and on of output `i`. Behind the last one that counts: that one again, which has no
 * weight there. */
RESIZE_AVX512_INLINE struct resize_four resize_four_of(const struct resize_axis *axis, uint32_t i,
                                                       const struct resize_rows *rows, uint32_t t)
{
    const uint8_t *first = rows->pixels + axis->from[i] * rows->bytes;
    size_t at = (size_t)i * axis->taps + t;
    uint32_t last = axis->count[i] - 1;

    return (struct resize_four){.row = {first + min_u64(t, last) * rows->bytes,
                                        first + min_u64(t + 1, last) * rows->bytes,
                                        first + min_u64(t + 2, last) * rows->bytes,
                                        first + min_u64(t + 3, last) * rows->bytes},
                                .digits = {resize_digit_of(axis->digits.planes[0] + at),
                                           resize_digit_of(axis->digits.planes[1] + at),
                                           resize_digit_of(axis->digits.planes[2] + at)}};
}

/* A register's bytes of four rows: a quarter each, in the order that unpacking leaves. */
struct resize_quarters {
    __m512i a, b, c, d;
};

RESIZE_AVX512_INLINE struct resize_quarters resize_four_rows(const struct resize_four *four,
                                                             size_t at)
{
    __m512i r0 = _mm512_loadu_si512(four->row[0] + at), r1 = _mm512_loadu_si512(four->row[1] + at);
    __m512i r2 = _mm512_loadu_si512(four->row[2] + at), r3 = _mm512_loadu_si512(four->row[3] + at);
    __m512i low01 = _mm512_unpacklo_epi8(r0, r1), high01 = _mm512_unpackhi_epi8(r0, r1);
    __m512i low23 = _mm512_unpacklo_epi8(r2, r3), high23 = _mm512_unpackhi_epi8(r2, r3);

    return (struct resize_quarters){
        _mm512_unpacklo_epi16(low01, low23), _mm512_unpackhi_epi16(low01, low23),
        _mm512_unpacklo_epi16(high01, high23), _mm512_unpackhi_epi16(high01, high23)};
}

/* To bytes, in their order again. */
RESIZE_AVX512_INLINE __m512i resize_pack_quarters(const struct resize_quarters *sums)
{
    return _mm512_packus_epi16(_mm512_packs_epi32(sums->a, sums->b),
                               _mm512_packs_epi32(sums->c, sums->d));
}

/* The last register ends with the row, with some of what is done already. */
RESIZE_AVX512_INLINE size_t resize_register_at(size_t at, size_t bytes)
{
    return at + DIGITS_VECTOR <= bytes ? at : bytes - DIGITS_VECTOR;
}

/* Of up to four rows. */
RESIZE_AVX512_INLINE void resize_down_four(const struct resize_axis *axis, uint32_t i,
                                           const struct resize_rows *rows, uint8_t *out)
{
    struct resize_four four = resize_four_of(axis, i, rows, 0);

    for (size_t k = 0; k < rows->bytes; k += DIGITS_VECTOR) {
        size_t at = resize_register_at(k, rows->bytes);
        struct resize_quarters px = resize_four_rows(&four, at);
        struct resize_quarters sums = {
            resize_sum_one(px.a, four.digits), resize_sum_one(px.b, four.digits),
            resize_sum_one(px.c, four.digits), resize_sum_one(px.d, four.digits)};
        _mm512_storeu_si512(out + at, resize_pack_quarters(&sums));
    }
}

/* Of up to eight. */
RESIZE_AVX512_INLINE void resize_down_eight(const struct resize_axis *axis, uint32_t i,
                                            const struct resize_rows *rows, uint8_t *out)
{
    struct resize_four four = resize_four_of(axis, i, rows, 0);
    struct resize_four more = resize_four_of(axis, i, rows, FOUR);

    for (size_t k = 0; k < rows->bytes; k += DIGITS_VECTOR) {
        size_t at = resize_register_at(k, rows->bytes);
        struct resize_quarters px = resize_four_rows(&four, at);
        struct resize_quarters others = resize_four_rows(&more, at);
        struct resize_quarters sums = {resize_sum_two(px.a, four.digits, others.a, more.digits),
                                       resize_sum_two(px.b, four.digits, others.b, more.digits),
                                       resize_sum_two(px.c, four.digits, others.c, more.digits),
                                       resize_sum_two(px.d, four.digits, others.d, more.digits)};
        _mm512_storeu_si512(out + at, resize_pack_quarters(&sums));
    }
}

RESIZE_AVX512_INLINE void resize_thirds_add(struct resize_thirds *t, __m512i px,
                                            const __m512i digits[static DIGITS])
{
    t->s[0] = _mm512_dpbusd_epi32(t->s[0], px, digits[0]);
    t->s[1] = _mm512_dpbusd_epi32(t->s[1], px, digits[1]);
    t->s[2] = _mm512_dpbusd_epi32(t->s[2], px, digits[2]);
}

/* 64 bytes of any number of rows. */
RESIZE_AVX512_INLINE __m512i resize_down_64(const struct resize_axis *axis, uint32_t i,
                                            const struct resize_rows *rows, size_t at)
{
    struct resize_thirds a = resize_thirds_zero(), b = a, c = a, d = a;

    for (uint32_t t = 0; t < axis->count[i]; t += FOUR) {
        struct resize_four four = resize_four_of(axis, i, rows, t);
        struct resize_quarters px = resize_four_rows(&four, at);
        resize_thirds_add(&a, px.a, four.digits);
        resize_thirds_add(&b, px.b, four.digits);
        resize_thirds_add(&c, px.c, four.digits);
        resize_thirds_add(&d, px.d, four.digits);
    }
    struct resize_quarters sums = {resize_thirds_sum(&a), resize_thirds_sum(&b),
                                   resize_thirds_sum(&c), resize_thirds_sum(&d)};
    return resize_pack_quarters(&sums);
}

RESIZE_AVX512 static void resize_down_avx512(const struct resize_axis *axis, uint32_t i,
                                             const struct resize_rows *rows, uint8_t *out)
{
    if (rows->bytes < DIGITS_VECTOR || !axis->digits.fit || axis->count[i] == 0) {
        resize_plain.down(axis, i, rows, out);
    } else if (axis->count[i] <= FOUR) {
        resize_down_four(axis, i, rows, out);
    } else if (axis->count[i] <= 2 * FOUR) {
        resize_down_eight(axis, i, rows, out);
    } else {
        for (size_t k = 0; k < rows->bytes; k += DIGITS_VECTOR) {
            size_t at = resize_register_at(k, rows->bytes);
            _mm512_storeu_si512(out + at, resize_down_64(axis, i, rows, at));
        }
    }
}

const struct resize_kernels resize_avx512 = {
    .name = "AVX-512",
    .set_across = resize_digits_set_across,
    .set_down = resize_digits_set_down,
    .across = resize_across_avx512,
    .across_narrow = resize_across_narrow,
    .down = resize_down_avx512,
};

#endif
