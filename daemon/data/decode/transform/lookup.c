#include "daemon/data/decode/transform/lookup.h"
#include "daemon/data/decode/transform/vectors.h"

#if defined(__x86_64__) && !defined(PLAIN_VECTORS)
#include <immintrin.h>
#define LOOKUP_VECTORS
#define LOOKUP_AVX512        __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))
#define LOOKUP_AVX512_INLINE static inline __attribute__((always_inline)) LOOKUP_AVX512
#endif

#ifdef LOOKUP_VECTORS

enum {
    LOOKUP_REGISTER = 64,
    LOOKUP_AT_ONCE = LOOKUP_REGISTER / PICTURE_PIXEL,
    QUARTERS = LOOKUP_LEVELS / LOOKUP_REGISTER
};

/* A table in registers: 64 levels each. */
struct lookup_registers {
    __m512i quarters[QUARTERS];
};

LOOKUP_AVX512_INLINE struct lookup_registers lookup_load(const uint8_t table[static LOOKUP_LEVELS])
{
    return (struct lookup_registers){{_mm512_loadu_si512(table),
                                      _mm512_loadu_si512(table + LOOKUP_REGISTER),
                                      _mm512_loadu_si512(table + 2 * LOOKUP_REGISTER),
                                      _mm512_loadu_si512(table + 3 * LOOKUP_REGISTER)}};
}

/* A register's bytes: the lower seven bits choose in each half of the table, the upper one between
 * these. */
LOOKUP_AVX512_INLINE __m512i lookup_bytes(const struct lookup_registers *table, __m512i bytes)
{
    __m512i low = _mm512_permutex2var_epi8(table->quarters[0], bytes, table->quarters[1]);
    __m512i high = _mm512_permutex2var_epi8(table->quarters[2], bytes, table->quarters[3]);

    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(bytes), low, high);
}

/* Which bytes of a register are of `n` pixels at most. */
LOOKUP_AVX512_INLINE __mmask64 lookup_there(size_t n)
{
    return n >= LOOKUP_AT_ONCE ? ~0ULL : (1ULL << n * PICTURE_PIXEL) - 1;
}

LOOKUP_AVX512 static void lookup_all_quick(uint8_t *pixels, size_t n,
                                           const uint8_t table[static LOOKUP_LEVELS])
{
    struct lookup_registers all = lookup_load(table);

    for (size_t i = 0; i < n; i += LOOKUP_AT_ONCE, pixels += LOOKUP_REGISTER) {
        __mmask64 there = lookup_there(n - i);
        __m512i bytes = _mm512_maskz_loadu_epi8(there, pixels);
        _mm512_mask_storeu_epi8(pixels, there, lookup_bytes(&all, bytes));
    }
}

LOOKUP_AVX512 static void lookup_each_quick(uint8_t *pixels, size_t n,
                                            const struct lookup_tables *tables)
{
    const __mmask64 green = 0x2222222222222222ULL, blue = green << 1;
    struct lookup_registers r = lookup_load(tables->colour[0]), g = lookup_load(tables->colour[1]);
    struct lookup_registers b = lookup_load(tables->colour[2]);

    for (size_t i = 0; i < n; i += LOOKUP_AT_ONCE, pixels += LOOKUP_REGISTER) {
        __mmask64 there = lookup_there(n - i);
        __m512i bytes = _mm512_maskz_loadu_epi8(there, pixels), done = lookup_bytes(&r, bytes);
        done = _mm512_mask_blend_epi8(green, done, lookup_bytes(&g, bytes));
        done = _mm512_mask_blend_epi8(blue, done, lookup_bytes(&b, bytes));
        _mm512_mask_storeu_epi8(pixels, there, done);
    }
}

bool lookup_is_quick(void)
{
    return vectors_have_avx512();
}

#else

bool lookup_is_quick(void)
{
    return false;
}

#endif

static void lookup_plain(uint8_t *px, size_t n, const uint8_t *red, const uint8_t *green,
                         const uint8_t *blue)
{
    for (; n > 0; n--, px += PICTURE_PIXEL) {
        px[0] = red[px[0]];
        px[1] = green[px[1]];
        px[2] = blue[px[2]];
    }
}

void lookup_all(uint8_t *pixels, size_t n, const uint8_t table[static LOOKUP_LEVELS])
{
#ifdef LOOKUP_VECTORS
    if (lookup_is_quick()) {
        lookup_all_quick(pixels, n, table);
        return;
    }
#endif
    lookup_plain(pixels, n, table, table, table);
}

void lookup_each(uint8_t *pixels, size_t n, const struct lookup_tables *tables)
{
#ifdef LOOKUP_VECTORS
    if (lookup_is_quick()) {
        lookup_each_quick(pixels, n, tables);
        return;
    }
#endif
    lookup_plain(pixels, n, tables->colour[0], tables->colour[1], tables->colour[2]);
}
