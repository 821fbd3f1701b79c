#include "daemon/data/image/vectors.h"

#ifdef __x86_64__

#include <cpuid.h>
#include <stdint.h>

/* XCR0: the kernel saves the registers of SSE and of AVX. */
static bool vectors_are_saved(void)
{
    enum { SAVED = 1 << 1 | 1 << 2 };
    uint32_t low, high;

    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & SAVED) == SAVED;
}

static bool vectors_ask(void)
{
    unsigned a, b, c, d;

    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !vectors_are_saved())
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
}

/* Asked once, for a hypervisor takes microseconds to answer; whoever asks at once hears the same.
 */
static enum { UNKNOWN, MISSING, THERE } vectors_known;

bool vectors_have_avx2(void)
{
    int is = __atomic_load_n(&vectors_known, __ATOMIC_RELAXED);

    if (is == UNKNOWN) {
        is = vectors_ask() ? THERE : MISSING;
        __atomic_store_n(&vectors_known, is, __ATOMIC_RELAXED);
    }
    return is == THERE;
}

#else

bool vectors_have_avx2(void)
{
    return false;
}

#endif
