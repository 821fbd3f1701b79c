#include "daemon/data/decode/tokenizer/word_cache.h"

#include <errno.h>

_Static_assert(sizeof(struct cached_word) == 64, "one cache line");

int word_cache_init(struct word_cache *cache)
{
    /* Not aligned_alloc(): calloc() has pages that are zero already, and none is touched here. */
    cache->memory = calloc(WORD_CACHE_WORDS + 2, sizeof *cache->words);
    if (!cache->memory)
        return -ENOMEM;
    uintptr_t place = align_up((uintptr_t)cache->memory, 2 * sizeof *cache->words);
    cache->words = (struct cached_word *)place;
    return 0;
}

void word_cache_deinit(struct word_cache *cache)
{
    free(cache->memory);
    *cache = (struct word_cache){0};
}

static uint64_t word_cache_load(const uint8_t *text)
{
    uint64_t eight;

    memcpy(&eight, text, sizeof eight);
    return eight;
}

/* The word as numbers: its beginning and its end, which overlap so that both together are all of
 * it. Words of equal length are equal where these are; there is no loop and no call. */
static void word_cache_parts(const uint8_t *text, size_t n, uint64_t parts[static 4])
{
    uint32_t four[2];

    parts[0] = parts[1] = parts[2] = parts[3] = 0;
    if (n >= 8) {
        parts[0] = word_cache_load(text);
        parts[1] = word_cache_load(text + n - 8);
        if (n > 16) {
            parts[2] = word_cache_load(text + 8);
            parts[3] = word_cache_load(text + n - 16);
        }
    } else if (n >= 4) {
        memcpy(&four[0], text, 4);
        memcpy(&four[1], text + n - 4, 4);
        parts[0] = (uint64_t)four[0] << 32 | four[1];
    } else {
        parts[0] = text[0] | (uint64_t)text[n / 2] << 8 | (uint64_t)text[n - 1] << 16;
    }
}

/* The first of the word's two places. */
static struct cached_word *word_cache_place(const struct word_cache *cache,
                                            const uint64_t parts[static 4], size_t n)
{
    uint64_t hash = (parts[0] ^ n) * UINT64_C(0x9E3779B97F4A7C15);

    hash ^= (parts[1] + (hash >> 32)) * UINT64_C(0xD6E8FEB86659FD93);
    hash ^= (parts[2] + parts[3] * 31 + (hash >> 32)) * UINT64_C(0xC2B2AE3D27D4EB4F);
    hash *= UINT64_C(0xD6E8FEB86659FD93);
    return &cache->words[(hash >> 40) % (WORD_CACHE_WORDS / 2) * 2];
}

static bool word_cache_is(const struct cached_word *word, const uint64_t parts[static 4], size_t n)
{
    uint64_t differs = word->n ^ n;

    for (unsigned i = 0; i < 4; i++)
        differs |= word->parts[i] ^ parts[i];
    return differs == 0;
}

void word_cache_expect(const struct word_cache *cache, const uint8_t *text, size_t n)
{
    uint64_t parts[4];

    if (n > WORD_CACHE_TEXT)
        return;
    word_cache_parts(text, n, parts);
    const struct cached_word *place = word_cache_place(cache, parts, n);
    __builtin_prefetch(&place[0]);
    __builtin_prefetch(&place[1]);
}

const struct cached_word *word_cache_find(struct word_cache *cache, const uint8_t *text, size_t n)
{
    uint64_t parts[4];

    if (n > WORD_CACHE_TEXT)
        return NULL;
    word_cache_parts(text, n, parts);
    struct cached_word *place = word_cache_place(cache, parts, n);
    if (word_cache_is(&place[0], parts, n))
        return &place[0];
    if (!word_cache_is(&place[1], parts, n))
        return NULL;
    struct cached_word second = place[1];
    place[1] = place[0];
    place[0] = second;
    return &place[0];
}

void word_cache_keep(struct word_cache *cache, const uint8_t *text, size_t n, const uint32_t *ids,
                     size_t n_ids)
{
    uint64_t parts[4];

    if (n > WORD_CACHE_TEXT || n_ids > WORD_CACHE_IDS)
        return;
    word_cache_parts(text, n, parts);
    struct cached_word *place = &word_cache_place(cache, parts, n)[1];
    *place = (struct cached_word){.n = (uint8_t)n, .n_ids = (uint8_t)n_ids};
    memcpy(place->parts, parts, sizeof parts);
    for (size_t i = 0; i < n_ids; i++)
        place->ids[i] = ids[i];
}
