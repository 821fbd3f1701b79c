#include "daemon/data/decode/tokenizer/chars.h"
#include "daemon/data/decode/tokenizer/model.h"

static bool wordpiece_is_too_long(const struct model *model, const uint8_t *word, size_t n)
{
    size_t chars = 0;

    for (size_t i = 0; i < n; i++)
        chars += (word[i] & 0xC0) != 0x80;
    return chars > model->most_chars;
}

/* The longest token that the rest of a word begins with; *end: where it ends. */
static uint32_t wordpiece_next(struct model *model, const uint8_t *word, size_t n, size_t start,
                               size_t *end)
{
    size_t prefix = start > 0 && model->prefix ? strlen(model->prefix) : 0;
    /* The prefix overwrites what is behind us of the word's copy (wordpiece_encode()). */
    uint8_t *prefixed = model->scratch.data + start;
    const uint8_t *text = prefix ? prefixed : word + start;

    if (prefix)
        memcpy(prefixed, model->prefix, prefix);
    *end = min_u64(n, start + model->vocab.longest);
    while (*end < n && (word[*end] & 0xC0) == 0x80)
        (*end)--;
    for (; *end > start; *end -= char_bytes_before(word, *end)) {
        uint32_t id = vocab_find(&model->vocab, text, *end - start + prefix);
        if (id != VOCAB_NONE)
            return id;
    }
    return VOCAB_NONE;
}

int wordpiece_encode(struct model *model, const uint8_t *word, size_t n, struct growing_ids *to)
{
    size_t prefix = model->prefix ? strlen(model->prefix) : 0, first = to->n;
    bool bad = wordpiece_is_too_long(model, word, n);
    int r = 0;

    /* A copy of the word, with room for a prefix before it. */
    model->scratch.n = 0;
    if (!bad && growing_bytes_reserve(&model->scratch, prefix + n) < 0)
        return -ENOMEM;
    if (!bad)
        memcpy(model->scratch.data + prefix, word, n);
    for (size_t start = 0, end; r == 0 && !bad && start < n; start = end) {
        uint32_t id = wordpiece_next(model, word, n, start, &end);
        bad = id == VOCAB_NONE;
        if (!bad)
            r = growing_ids_add_one(to, id);
    }
    if (r < 0 || !bad)
        return r;
    to->n = first;
    return growing_ids_add_one(to, model->unk);
}
