#include "daemon/data/decode/image/pixel_rows.h"
#include "daemon/data/decode/transform/vectors.h"

#include <string.h>

#if defined(__x86_64__) && !defined(PLAIN_VECTORS)
#include <immintrin.h>
#define PIXEL_ROWS_SHUFFLES
#endif

#ifdef PIXEL_ROWS_SHUFFLES

enum { PIXEL_ROWS_AT_ONCE = 4, PIXEL_ROWS_VECTOR = 16 };

/* Four pixels at once, of 16 bytes that are read; returns how many pixels are done. */
__attribute__((target("avx2"))) static size_t pixel_rows_widen_quick(const uint8_t *in, size_t n,
                                                                     uint8_t *out)
{
    const __m128i order = _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
    size_t x = 0;

    for (; (x + PIXEL_ROWS_AT_ONCE) * PICTURE_COLOURS + PIXEL_ROWS_VECTOR <= n * PICTURE_COLOURS;
         x += PIXEL_ROWS_AT_ONCE) {
        __m128i four = _mm_loadu_si128((const void *)(in + x * PICTURE_COLOURS));
        _mm_storeu_si128((void *)(out + x * PICTURE_PIXEL), _mm_shuffle_epi8(four, order));
    }
    return x;
}

/* Likewise; of the 16 bytes that are written the last four are the next pixels' to overwrite. */
__attribute__((target("avx2"))) static size_t pixel_rows_narrow_quick(const uint8_t *in, size_t n,
                                                                      uint8_t *out)
{
    const __m128i order = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    size_t x = 0;

    for (; x * PICTURE_COLOURS + PIXEL_ROWS_VECTOR <= n * PICTURE_COLOURS;
         x += PIXEL_ROWS_AT_ONCE) {
        __m128i four = _mm_loadu_si128((const void *)(in + x * PICTURE_PIXEL));
        _mm_storeu_si128((void *)(out + x * PICTURE_COLOURS), _mm_shuffle_epi8(four, order));
    }
    return x;
}

static size_t pixel_rows_widen_begin(const uint8_t *in, size_t n, uint8_t *out)
{
    return vectors_have_avx2() ? pixel_rows_widen_quick(in, n, out) : 0;
}

static size_t pixel_rows_narrow_begin(const uint8_t *in, size_t n, uint8_t *out)
{
    return vectors_have_avx2() ? pixel_rows_narrow_quick(in, n, out) : 0;
}

#else

static size_t pixel_rows_widen_begin(const uint8_t *in, size_t n, uint8_t *out)
{
    (void)in;
    (void)n;
    (void)out;
    return 0;
}

#define pixel_rows_narrow_begin pixel_rows_widen_begin

#endif

/* The next pixel's first byte is taken along, but for the last one. */
void pixel_rows_widen(const uint8_t *restrict in, size_t n, uint8_t *restrict out)
{
    for (size_t x = pixel_rows_widen_begin(in, n, out); x + 1 < n; x++)
        memcpy(out + x * PICTURE_PIXEL, in + x * PICTURE_COLOURS, PICTURE_PIXEL);
    if (n > 0)
        memcpy(out + (n - 1) * PICTURE_PIXEL, in + (n - 1) * PICTURE_COLOURS, PICTURE_COLOURS);
}

WIDE_VECTORS void pixel_rows_spread(const uint8_t *restrict in, size_t n, uint8_t *restrict out)
{
    for (size_t x = 0; x < n; x++) {
        uint32_t pixel = in[x] * 0x01010101U;
        memcpy(out + x * PICTURE_PIXEL, &pixel, sizeof pixel);
    }
}

void pixel_rows_narrow(const uint8_t *restrict in, size_t n, uint8_t *restrict out)
{
    for (size_t x = pixel_rows_narrow_begin(in, n, out); x < n; x++)
        memcpy(out + x * PICTURE_COLOURS, in + x * PICTURE_PIXEL, PICTURE_COLOURS);
}
