#include "daemon/data/decode/tokenizer/vocab.h"

#include "proto/common/array.h"

#include <assert.h>
#include <xxhash.h>

/* At most half of the slots are used: a search ends. */
static int vocab_widen(struct vocab *vocab)
{
    size_t slots = vocab->slots ? (vocab->mask + 1) * 2 : 64;
    uint32_t *wider = calloc(slots, sizeof *wider);

    if (!wider)
        return -ENOMEM;
    for (size_t i = 0; i < vocab->n; i++) {
        const struct vocab_entry *entry = &vocab->entries[i];
        size_t at = XXH3_64bits(vocab->texts.data + entry->place, entry->n) & (slots - 1);
        while (wider[at])
            at = (at + 1) & (slots - 1);
        wider[at] = (uint32_t)i + 1;
    }
    free(vocab->slots);
    vocab->slots = wider;
    vocab->mask = slots - 1;
    return 0;
}

/* The slot of a text, or the free one where it would stand. */
static uint32_t *vocab_slot(const struct vocab *vocab, const void *text, size_t n)
{
    size_t at = XXH3_64bits(text, n) & vocab->mask;

    for (;; at = (at + 1) & vocab->mask) {
        if (!vocab->slots[at])
            return &vocab->slots[at];
        const struct vocab_entry *entry = &vocab->entries[vocab->slots[at] - 1];
        if (entry->n == n && memcmp(vocab->texts.data + entry->place, text, n) == 0)
            return &vocab->slots[at];
    }
}

int vocab_add(struct vocab *vocab, const void *text, size_t n, uint32_t id)
{
    int r;

    if (n > UINT32_MAX || vocab->n >= UINT32_MAX / 2)
        return -E2BIG;
    if ((!vocab->slots || vocab->n * 2 > vocab->mask) && (r = vocab_widen(vocab)) < 0)
        return r;
    /* A text without bytes must not be at NULL, for memcmp(). */
    if ((r = growing_bytes_reserve(&vocab->texts, n + 1)) < 0)
        return r;
    if (!array_reserve(vocab->entries, vocab->room, vocab->n + 1))
        return -ENOMEM;
    uint32_t *slot = vocab_slot(vocab, text, n);
    vocab->end = (uint32_t)max_u64(vocab->end, (uint64_t)id + 1);
    if (*slot) {
        vocab->entries[*slot - 1].id = id;
        return 0;
    }
    vocab->entries[vocab->n] =
        (struct vocab_entry){.place = vocab->texts.n, .n = (uint32_t)n, .id = id};
    r = growing_bytes_add(&vocab->texts, text, n);
    assert(r == 0); /* reserved above */
    *slot = (uint32_t)++vocab->n;
    vocab->longest = max_u64(vocab->longest, n);
    return 0;
}

uint32_t vocab_find(const struct vocab *vocab, const void *text, size_t n)
{
    if (!vocab->slots || n > vocab->longest)
        return VOCAB_NONE;
    uint32_t slot = *vocab_slot(vocab, text, n);
    return slot ? vocab->entries[slot - 1].id : VOCAB_NONE;
}

void vocab_deinit(struct vocab *vocab)
{
    free(vocab->texts.data);
    free(vocab->entries);
    free(vocab->slots);
    *vocab = (struct vocab){0};
}

int merges_init(struct merges *merges, size_t n)
{
    size_t slots = 64;

    while (slots < n * 2)
        slots *= 2;
    merges->slots = malloc(slots * sizeof *merges->slots);
    if (!merges->slots)
        return -ENOMEM;
    for (size_t i = 0; i < slots; i++)
        merges->slots[i].into = VOCAB_NONE;
    merges->mask = slots - 1;
    return 0;
}

void merges_add(struct merges *merges, const struct merge *merge)
{
    size_t at = merges_hash(merge->left, merge->right);

    for (;; at++) {
        struct merge *slot = &merges->slots[at & merges->mask];
        bool is_free = slot->into == VOCAB_NONE;
        if (!is_free && (slot->left != merge->left || slot->right != merge->right))
            continue;
        *slot = *merge;
        merges->n += is_free;
        assert(merges->n <= merges->mask);
        return;
    }
}

void merges_deinit(struct merges *merges)
{
    free(merges->slots);
    *merges = (struct merges){0};
}
