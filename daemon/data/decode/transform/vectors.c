#include "daemon/data/decode/transform/vectors.h"

#ifdef __x86_64__

#include <cpuid.h>
#include <stdint.h>

enum {
    VECTORS_ASKED = 1,
    VECTORS_AVX2 = 2,
    VECTORS_AVX512 = 4, /* with bytes as vectors.h says */
};

/* XCR0: the registers that the kernel saves; of SSE and AVX, and those that AVX-512 has beside. */
static uint32_t vectors_saved(void)
{
    uint32_t low, high;

    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static unsigned vectors_ask(void)
{
    enum { SAVED = 1 << 1 | 1 << 2, SAVED_512 = SAVED | 1 << 5 | 1 << 6 | 1 << 7 };
    const unsigned words = bit_AVX512F | bit_AVX512BW | bit_AVX512VL;
    const unsigned bytes = bit_AVX512VBMI | bit_AVX512VNNI;
    unsigned a, b, c, d, known = VECTORS_ASKED;

    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return known;
    uint32_t saved = vectors_saved();
    if ((saved & SAVED) != SAVED || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2))
        return known;
    known |= VECTORS_AVX2;
    if ((saved & SAVED_512) == SAVED_512 && (b & words) == words && (c & bytes) == bytes)
        known |= VECTORS_AVX512;
    return known;
}

/* Asked once, for a hypervisor takes microseconds to answer; threads that ask at the same time get
 * the same answer.
 */
static unsigned vectors_known;

static bool vectors_have(unsigned what)
{
    unsigned known = __atomic_load_n(&vectors_known, __ATOMIC_RELAXED);

    if (known == 0) {
        known = vectors_ask();
        __atomic_store_n(&vectors_known, known, __ATOMIC_RELAXED);
    }
    return known & what;
}

bool vectors_have_avx2(void)
{
    return vectors_have(VECTORS_AVX2);
}

bool vectors_have_avx512(void)
{
    return vectors_have(VECTORS_AVX512);
}

#else

bool vectors_have_avx2(void)
{
    return false;
}

bool vectors_have_avx512(void)
{
    return false;
}

#endif
