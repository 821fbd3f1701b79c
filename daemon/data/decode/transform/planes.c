#include "daemon/data/decode/transform/planes.h"
#include "daemon/data/decode/transform/vectors.h"

#if defined(__x86_64__) && !defined(PLAIN_VECTORS)
#include <immintrin.h>
#define PLANES_VECTORS
#define PLANES_AVX2 __attribute__((target("avx2")))
#endif

enum {
    PLANES_AT_ONCE = 32, /* pixels of three planes */
};

/* Of one channel, pixels from `from` on. */
static void planes_write_rest(const uint8_t *restrict pixels, size_t n, size_t from,
                              uint32_t channel, uint8_t *restrict out)
{
    for (size_t i = from; i < n; i++)
        out[i] = pixels[i * PICTURE_PIXEL + channel];
}

#ifdef PLANES_VECTORS

/* Eight pixels: the bytes of each channel side by side. */
PLANES_AVX2 static inline __m256i planes_sort_eight(const uint8_t *pixels)
{
    const __m256i bytes = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 0,
                                           4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m256i words = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i eight = _mm256_loadu_si256((const void *)pixels);

    return _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(eight, bytes), words);
}

/* Past the cache, for which `to` is a multiple of 32. */
PLANES_AVX2 static inline __attribute__((always_inline)) void planes_put(uint8_t *to, __m256i bytes,
                                                                         bool stream)
{
    if (stream)
        _mm256_stream_si256((void *)to, bytes);
    else
        _mm256_storeu_si256((void *)to, bytes);
}

/* All three planes, of 32 pixels at once; returns how many pixels are done. Each plane on its own
 * would read all pixels three times. */
PLANES_AVX2 static inline __attribute__((always_inline)) size_t planes_sort(
    const uint8_t *restrict pixels, size_t n, bool stream, uint8_t *restrict out)
{
    enum { PART = PLANES_AT_ONCE / 4 * PICTURE_PIXEL };
    size_t i = 0;

    for (; i + PLANES_AT_ONCE <= n;
         i += PLANES_AT_ONCE, pixels += (size_t)PLANES_AT_ONCE * PICTURE_PIXEL) {
        __m256i a = planes_sort_eight(pixels), b = planes_sort_eight(pixels + PART);
        __m256i c = planes_sort_eight(pixels + 2 * PART), d = planes_sort_eight(pixels + 3 * PART);
        __m256i red_blue = _mm256_unpacklo_epi64(a, b), green = _mm256_unpackhi_epi64(a, b);
        __m256i red_blue_2 = _mm256_unpacklo_epi64(c, d), green_2 = _mm256_unpackhi_epi64(c, d);
        planes_put(out + i, _mm256_permute2x128_si256(red_blue, red_blue_2, 0x20), stream);
        planes_put(out + n + i, _mm256_permute2x128_si256(green, green_2, 0x20), stream);
        planes_put(out + 2 * n + i, _mm256_permute2x128_si256(red_blue, red_blue_2, 0x31), stream);
    }
    return i;
}

/* A large picture is not read again here: its planes need not be brought into the cache first. */
PLANES_AVX2 static size_t planes_write_three(const uint8_t *restrict pixels, size_t n, bool near,
                                             uint8_t *restrict out)
{
    if (near || n < PLANES_STREAM_MIN || n % PLANES_AT_ONCE != 0 ||
        (uintptr_t)out % PLANES_AT_ONCE != 0)
        return planes_sort(pixels, n, false, out);
    n = planes_sort(pixels, n, true, out);
    _mm_sfence();
    return n;
}

/* One plane, of sixteen pixels at once; returns how many pixels are done. */
static inline __attribute__((always_inline)) size_t planes_write_one(const uint8_t *pixels,
                                                                     size_t n, int shift,
                                                                     uint8_t *out)
{
    enum { SIXTEEN = 16, VECTORS = 4 };
    const __m128i low = _mm_set1_epi32(255);
    size_t i = 0;

    for (; i + SIXTEEN <= n; i += SIXTEEN) {
        __m128i v[VECTORS];
        for (unsigned k = 0; k < VECTORS; k++) {
            v[k] = _mm_loadu_si128((const void *)(pixels + (i + 4 * k) * PICTURE_PIXEL));
            v[k] = _mm_and_si128(_mm_srli_epi32(v[k], shift), low);
        }
        v[0] = _mm_packs_epi32(v[0], v[1]);
        v[2] = _mm_packs_epi32(v[2], v[3]);
        _mm_storeu_si128((void *)(out + i), _mm_packus_epi16(v[0], v[2]));
    }
    return i;
}

void planes_write(const uint8_t *restrict pixels, size_t n, uint32_t channels, bool near,
                  uint8_t *restrict out)
{
    bool three = channels == PICTURE_COLOURS && vectors_have_avx2();
    size_t done = three ? planes_write_three(pixels, n, near, out) : 0;

    for (uint32_t c = 0; c < channels; c++, out += n) {
        if (!three)
            done = planes_write_one(pixels, n, (int)c * 8, out);
        planes_write_rest(pixels, n, done, c, out);
    }
}

#else

void planes_write(const uint8_t *restrict pixels, size_t n, uint32_t channels, bool near,
                  uint8_t *restrict out)
{
    (void)near;
    for (uint32_t c = 0; c < channels; c++, out += n)
        planes_write_rest(pixels, n, 0, c, out);
}

#endif
