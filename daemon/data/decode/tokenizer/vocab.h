/*
 * A vocabulary: from a token's text to its id, and pairs of ids to what they merge into.
 *
 * Open hash tables, filled once and then only read: thread-safe from then on. The texts lie
 * in memory of the vocabulary's own.
 */
#ifndef DL_DATA_TOKENIZER_VOCAB_H
#define DL_DATA_TOKENIZER_VOCAB_H

#include "daemon/data/decode/tokenizer/growing.h"

#define VOCAB_NONE UINT32_MAX /* no id */

struct vocab_entry {
    uint64_t place; /* of the text, in `texts` */
    uint32_t n;     /* bytes */
    uint32_t id;
};

struct vocab {                   /* all zero: empty */
    struct growing_bytes texts;  /* owned */
    struct vocab_entry *entries; /* owned */
    uint32_t *slots;             /* owned; 1 + the entry that is there; 0: none */
    size_t n;
    size_t room;
    size_t mask;    /* slots - 1 */
    size_t longest; /* bytes */
    uint32_t end;   /* above every id */
};

/* The last of equal texts counts. -ENOMEM; -E2BIG: too many. */
int _nodiscard_ vocab_add(struct vocab *vocab, const void *text, size_t n, uint32_t id);
uint32_t vocab_find(const struct vocab *vocab, const void *text, size_t n);
void vocab_deinit(struct vocab *vocab);

struct merge {
    uint32_t left;
    uint32_t right;
    uint32_t rank; /* the lowest is merged first */
    uint32_t into;
};

struct merges {          /* all zero: empty */
    struct merge *slots; /* owned; free where into is VOCAB_NONE */
    size_t n;
    size_t mask;
};

/* Room for n merges. -ENOMEM. */
int _nodiscard_ merges_init(struct merges *merges, size_t n);
/* The last of equal pairs counts. There is room for it. */
void merges_add(struct merges *merges, const struct merge *merge);
void merges_deinit(struct merges *merges);

static inline size_t merges_hash(uint32_t left, uint32_t right)
{
    uint64_t key = ((uint64_t)left << 32 | right) * UINT64_C(0x9E3779B97F4A7C15);

    return (size_t)(key >> 20 ^ key >> 44);
}

/* NULL: the two are not merged. */
static inline const struct merge *merges_find(const struct merges *merges, uint32_t left,
                                              uint32_t right)
{
    if (!merges->slots)
        return NULL;
    for (size_t i = merges_hash(left, right);; i++) {
        const struct merge *merge = &merges->slots[i & merges->mask];
        if (merge->into == VOCAB_NONE)
            return NULL;
        if (merge->left == left && merge->right == right)
            return merge;
    }
}

#endif
