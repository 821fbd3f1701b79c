/*
 * Words that came by lately, and their ids: text repeats few words often, and merging one costs far
 * more than finding it here.
 *
 * A word has two places by its hash, each a cache line; a new one takes the second, and what is
 * found there moves to the first. Words and lists of ids that do not fit a line are not kept: the
 * memory is WORD_CACHE_BYTES, whatever the text. Not thread-safe.
 */
#ifndef DL_DATA_TOKENIZER_WORD_CACHE_H
#define DL_DATA_TOKENIZER_WORD_CACHE_H

#include "proto/common/base.h"

enum { WORD_CACHE_TEXT = 32, WORD_CACHE_IDS = 7, WORD_CACHE_WORDS = 1 << 16 };

struct cached_word {
    uint64_t parts[4]; /* all of the word's bytes: see word_cache_parts() */
    uint32_t ids[WORD_CACHE_IDS];
    uint8_t n;     /* bytes; 0: nothing is here */
    uint8_t n_ids; /* may be 0 */
};

struct word_cache {
    struct cached_word *words; /* in `memory`, at the beginning of a line */
    void *memory;              /* owned */
};

int _nodiscard_ word_cache_init(struct word_cache *cache); /* -ENOMEM */
void word_cache_deinit(struct word_cache *cache);

/* Asks the memory for where the word would be, without waiting. n > 0. */
void word_cache_expect(const struct word_cache *cache, const uint8_t *text, size_t n);

/* NULL: not there. Stays until the next call. n > 0. */
const struct cached_word *word_cache_find(struct word_cache *cache, const uint8_t *text, size_t n);
void word_cache_keep(struct word_cache *cache, const uint8_t *text, size_t n, const uint32_t *ids,
                     size_t n_ids);

#endif
