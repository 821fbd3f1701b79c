/* NumPy's default generator. See pcg64.h. */
#include "daemon/plan/pcg64.h"

/* ---- the seed -------------------------------------------------------------------------------- */

enum { PCG64_POOL = 4, PCG64_STATE = 8 };

/* A hash whose constant changes with each word. */
struct pcg64_hash {
    uint32_t constant;
    uint32_t factor;
};

static uint32_t pcg64_hash_word(struct pcg64_hash *hash, uint32_t word)
{
    word ^= hash->constant;
    hash->constant *= hash->factor;
    word *= hash->constant;
    return word ^ word >> 16;
}

static uint32_t pcg64_mix(uint32_t a, uint32_t b)
{
    uint32_t mixed = a * UINT32_C(0xca01f9dd) - b * UINT32_C(0x4973f715);

    return mixed ^ mixed >> 16;
}

static void pcg64_fill_pool(uint64_t seed, uint32_t pool[static PCG64_POOL])
{
    const uint32_t words[PCG64_POOL] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    struct pcg64_hash hash = {UINT32_C(0x43b0d7e5), UINT32_C(0x931e8875)};

    for (int i = 0; i < PCG64_POOL; i++)
        pool[i] = pcg64_hash_word(&hash, words[i]);
    for (int from = 0; from < PCG64_POOL; from++)
        for (int to = 0; to < PCG64_POOL; to++)
            if (from != to)
                pool[to] = pcg64_mix(pool[to], pcg64_hash_word(&hash, pool[from]));
}

static unsigned __int128 pcg64_wide(const uint32_t words[static 4])
{
    uint64_t high = (uint64_t)words[1] << 32 | words[0], low = (uint64_t)words[3] << 32 | words[2];

    return (unsigned __int128)high << 64 | low;
}

/* ---- the generator --------------------------------------------------------------------------- */

static unsigned __int128 pcg64_factor(void)
{
    return (unsigned __int128)UINT64_C(0x2360ed051fc65da4) << 64 | UINT64_C(0x4385df649fccf645);
}

static void pcg64_step(struct pcg64 *generator)
{
    generator->state = generator->state * pcg64_factor() + generator->increment;
}

void pcg64_init(struct pcg64 *generator, uint64_t seed)
{
    struct pcg64_hash hash = {UINT32_C(0x8b51f9dd), UINT32_C(0x58f38ded)};
    uint32_t pool[PCG64_POOL], words[PCG64_STATE];

    pcg64_fill_pool(seed, pool);
    for (int i = 0; i < PCG64_STATE; i++)
        words[i] = pcg64_hash_word(&hash, pool[i % PCG64_POOL]);
    *generator = (struct pcg64){.increment = pcg64_wide(words + 4) << 1 | 1};
    pcg64_step(generator);
    generator->state += pcg64_wide(words);
    pcg64_step(generator);
}

/* Two steps of a linear map are one of another: squares of it, for each bit. */
void pcg64_skip(struct pcg64 *generator, uint64_t draws)
{
    unsigned __int128 factor = pcg64_factor(), add = generator->increment;

    for (; draws > 0; draws >>= 1) {
        if (draws & 1)
            generator->state = generator->state * factor + add;
        add *= factor + 1;
        factor *= factor;
    }
}

uint64_t pcg64_next(struct pcg64 *generator)
{
    pcg64_step(generator);
    uint64_t word = (uint64_t)(generator->state >> 64) ^ (uint64_t)generator->state;
    unsigned turn = (unsigned)(generator->state >> 122);

    return word >> turn | word << (-turn & 63);
}
