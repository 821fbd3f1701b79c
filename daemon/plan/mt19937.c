/*
 * MT19937 (Matsumoto and Nishimura 1998) with the plain init_genrand seeding that torch uses. The
 * invariant: words[next..] are this block's unused outputs, untempered.
 */
#include "daemon/plan/mt19937.h"

enum { SHIFT = 397 };

void mt19937_init(struct mt19937 *mt, uint64_t seed)
{
    uint32_t word = (uint32_t)seed;

    mt->words[0] = word;
    for (unsigned i = 1; i < MT19937_WORDS; i++) {
        word = UINT32_C(1812433253) * (word ^ word >> 30) + i;
        mt->words[i] = word;
    }
    mt->next = MT19937_WORDS;
}

static inline uint32_t mt19937_twist(uint32_t here, uint32_t after, uint32_t shifted)
{
    uint32_t mixed = (here & UINT32_C(0x80000000)) | (after & UINT32_C(0x7fffffff));

    return shifted ^ mixed >> 1 ^ (-(mixed & 1) & UINT32_C(0x9908b0df));
}

/* Three loops rather than one with remainders, so that the compiler can use vectors. */
static void mt19937_regenerate(struct mt19937 *mt)
{
    uint32_t *w = mt->words;
    unsigned i;

    for (i = 0; i < MT19937_WORDS - SHIFT; i++)
        w[i] = mt19937_twist(w[i], w[i + 1], w[i + SHIFT]);
    for (; i < MT19937_WORDS - 1; i++)
        w[i] = mt19937_twist(w[i], w[i + 1], w[i + SHIFT - MT19937_WORDS]);
    w[i] = mt19937_twist(w[i], w[0], w[SHIFT - 1]);
    mt->next = 0;
}

uint32_t mt19937_next32(struct mt19937 *mt)
{
    if (mt->next == MT19937_WORDS)
        mt19937_regenerate(mt);
    uint32_t y = mt->words[mt->next++];

    y ^= y >> 11;
    y ^= y << 7 & UINT32_C(0x9d2c5680);
    y ^= y << 15 & UINT32_C(0xefc60000);
    return y ^ y >> 18;
}

uint64_t mt19937_next64(struct mt19937 *mt)
{
    uint64_t high = mt19937_next32(mt);

    return high << 32 | mt19937_next32(mt);
}
