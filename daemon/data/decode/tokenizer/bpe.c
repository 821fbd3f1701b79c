#include "daemon/data/decode/tokenizer/byte_level.h"
#include "daemon/data/decode/tokenizer/model.h"
#include "proto/common/array.h"

#include <stdio.h>

/* Symbols of the longest word that is merged in an array; longer ones take a heap. */
enum { BPE_SHORT = 48 };

/* ---- reading -------------------------------------------------------------------------------- */

/* "a b", or ["a", "b"] */
static int bpe_pair_of(const struct file_node *item, const char *ret[2], size_t ret_n[2])
{
    const char *text = json_string_value(item->value);
    int r = 0;

    if (!text && file_items(item) != 2)
        return file_refuse(item, "is neither \"LEFT RIGHT\" nor [\"LEFT\", \"RIGHT\"]");
    for (unsigned i = 0; !text && r == 0 && i < 2; i++) {
        struct file_node part = file_item(item, i);
        r = file_need_text(&part, &ret[i], &ret_n[i]);
    }
    if (!text)
        return r;
    size_t n = json_string_length(item->value);
    const char *blank = memchr(text, ' ', n);
    if (!blank || memchr(blank + 1, ' ', n - (size_t)(blank + 1 - text)))
        return file_refuse(item, "is \"%.60s\", not two parts with a blank between", text);
    ret[0] = text;
    ret_n[0] = (size_t)(blank - text);
    ret[1] = blank + 1;
    ret_n[1] = n - ret_n[0] - 1;
    return 0;
}

static int bpe_read_merge(const struct file_node *item, uint32_t rank, struct model *model)
{
    size_t prefix = model->prefix ? strlen(model->prefix) : 0, n[2];
    const char *parts[2];
    uint32_t ids[2];
    int r = bpe_pair_of(item, parts, n);

    if (r < 0)
        return r;
    for (unsigned i = 0; i < 2; i++) {
        ids[i] = vocab_find(&model->vocab, parts[i], n[i]);
        if (ids[i] == VOCAB_NONE)
            return file_refuse(item, "has \"%.60s\", which is not in model.vocab", parts[i]);
    }
    if (n[1] < prefix)
        return file_refuse(item, "has a right part without the continuing_subword_prefix");
    model->scratch.n = 0;
    if (growing_bytes_add(&model->scratch, parts[0], n[0]) < 0 ||
        growing_bytes_add(&model->scratch, parts[1] + prefix, n[1] - prefix) < 0)
        return file_no_memory(item);
    uint32_t into = vocab_find(&model->vocab, model->scratch.data, model->scratch.n);
    if (into == VOCAB_NONE)
        return file_refuse(item, "makes \"%.*s\", which is not in model.vocab",
                           (int)min_u64(model->scratch.n, 60), (char *)model->scratch.data);
    merges_add(&model->merges,
               &(struct merge){.left = ids[0], .right = ids[1], .rank = rank, .into = into});
    return 0;
}

static int bpe_read_merges(const struct file_node *node, struct model *model)
{
    struct file_node merges = file_member(node, "merges");
    size_t n = file_items(&merges);
    uint32_t rank = 0;
    int r = 0;

    if (!json_is_array(merges.value))
        return file_refuse(&merges, "is not a list");
    if (n >= UINT32_MAX / 4)
        return file_refuse(&merges, "has too many items");
    if (merges_init(&model->merges, n) < 0)
        return file_no_memory(node);
    for (size_t i = 0; r == 0 && i < n; i++) {
        struct file_node item = file_item(&merges, i);
        const char *text = json_string_value(item.value);
        if (text && strncmp(text, "#version", strlen("#version")) == 0)
            continue;
        r = bpe_read_merge(&item, rank++, model);
    }
    return r;
}

void model_find_bytes(struct model *model)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        uint8_t letter[4];
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", byte);
        model->byte_ids[byte] =
            model->byte_fallback ? vocab_find(&model->vocab, name, strlen(name)) : VOCAB_NONE;
        model->letter_ids[byte] =
            model->byte_level && !model->prefix && !model->suffix
                ? vocab_find(&model->vocab, letter, byte_level_encode((uint8_t)byte, letter))
                : VOCAB_NONE;
    }
}

int bpe_read(const struct file_node *node, struct model *model)
{
    const struct file_node dropout = file_member(node, "dropout");
    const struct file_node fuse = file_member(node, "fuse_unk");
    const struct file_node fallback = file_member(node, "byte_fallback");
    const struct file_node ignore = file_member(node, "ignore_merges");
    int r;

    if (dropout.value && json_number_value(dropout.value) != 0)
        return file_unsupported(&dropout,
                                "set it to null: tokens would differ from epoch to epoch");
    if ((r = file_bool(&fuse, false, &model->fuse_unk)) < 0 ||
        (r = file_bool(&fallback, false, &model->byte_fallback)) < 0 ||
        (r = file_bool(&ignore, false, &model->ignore_merges)) < 0)
        return r;
    model_find_bytes(model);
    return bpe_read_merges(node, model);
}

/* ---- the symbols that a word begins as ------------------------------------------------------- */

/* A word's characters on their way to ids. */
struct bpe_word {
    struct model *model;
    struct growing_ids *to;
    bool unknown; /* one is pending, for the next to be fused with */
};

static int bpe_add(struct bpe_word *word, uint32_t id)
{
    int r = word->unknown ? growing_ids_add_one(word->to, word->model->unk) : 0;

    word->unknown = false;
    return r < 0 ? r : growing_ids_add_one(word->to, id);
}

static int bpe_add_unknown(struct bpe_word *word, const uint8_t *text, size_t n)
{
    const struct model *model = word->model;
    bool all = model->byte_fallback;
    int r = 0;

    for (size_t i = 0; all && i < n; i++)
        all = model->byte_ids[text[i]] != VOCAB_NONE;
    /* An unknown one that is pending stays so, as there. */
    for (size_t i = 0; all && r == 0 && i < n; i++)
        r = growing_ids_add_one(word->to, model->byte_ids[text[i]]);
    if (all || model->unk == VOCAB_NONE)
        return r;
    if (word->unknown && !model->fuse_unk)
        r = growing_ids_add_one(word->to, model->unk);
    word->unknown = true;
    return r;
}

/* One character, with the prefix and suffix of where it stands. */
static int bpe_add_char(struct bpe_word *word, const uint8_t *text, size_t n, bool first, bool last)
{
    struct model *model = word->model;
    bool prefixed = model->prefix && !first, suffixed = model->suffix && last;

    if (prefixed || suffixed) {
        struct growing_bytes *scratch = &model->scratch;
        scratch->n = 0;
        if ((prefixed && growing_bytes_add(scratch, model->prefix, strlen(model->prefix)) < 0) ||
            growing_bytes_add(scratch, text, n) < 0 ||
            (suffixed && growing_bytes_add(scratch, model->suffix, strlen(model->suffix)) < 0))
            return -ENOMEM;
        text = scratch->data;
        n = scratch->n;
    }
    uint32_t id = vocab_find(&model->vocab, text, n);
    return id == VOCAB_NONE ? bpe_add_unknown(word, text, n) : bpe_add(word, id);
}

static int bpe_add_letter(struct bpe_word *word, uint8_t byte, bool first, bool last)
{
    uint8_t letter[4];

    if (word->model->letter_ids[byte] != VOCAB_NONE)
        return bpe_add(word, word->model->letter_ids[byte]);
    return bpe_add_char(word, letter, byte_level_encode(byte, letter), first, last);
}

static int bpe_add_symbols(struct model *model, const uint8_t *text, size_t n,
                           struct growing_ids *to)
{
    struct bpe_word word = {.model = model, .to = to};
    int r = 0;

    for (size_t at = 0, bytes; r == 0 && at < n; at += bytes) {
        bytes = 1;
        if (!model->byte_level)
            (void)char_classes_at(text + at, &bytes);
        bool first = at == 0, last = at + bytes == n;
        r = model->byte_level ? bpe_add_letter(&word, text[at], first, last)
                              : bpe_add_char(&word, text + at, bytes, first, last);
    }
    return r == 0 && word.unknown ? growing_ids_add_one(to, model->unk) : r;
}

/* ---- merging -------------------------------------------------------------------------------- */

/* Few symbols: the lowest rank is looked for anew each time. Of equal ones the first counts. */
static size_t bpe_merge_short(const struct model *model, uint32_t *ids, size_t n)
{
    const struct merge *merges[BPE_SHORT]; /* of ids[i] and ids[i + 1] */

    for (size_t i = 0; i + 1 < n; i++)
        merges[i] = merges_find(&model->merges, ids[i], ids[i + 1]);
    while (n > 1) {
        uint32_t best = UINT32_MAX;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++)
            if (merges[i] && merges[i]->rank < best) {
                best = merges[i]->rank;
                at = i;
            }
        if (best == UINT32_MAX)
            break;
        ids[at] = merges[at]->into;
        n--;
        memmove(ids + at + 1, ids + at + 2, (n - at - 1) * sizeof *ids);
        if (at + 1 < n)
            memmove(merges + at + 1, merges + at + 2, (n - at - 2) * sizeof merges[0]);
        if (at + 1 < n)
            merges[at] = merges_find(&model->merges, ids[at], ids[at + 1]);
        if (at > 0)
            merges[at - 1] = merges_find(&model->merges, ids[at - 1], ids[at]);
    }
    return n;
}

static bool bpe_comes_first(const struct bpe_candidate *a, const struct bpe_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

/* There is room: a merge takes one from the heap and adds at most two, and there are at most as
 * many merges as symbols. */
static void bpe_push(struct model *model, const struct bpe_candidate *candidate)
{
    struct bpe_candidate *heap = model->heap;
    size_t at = model->heap_n++;

    for (; at > 0 && bpe_comes_first(candidate, &heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = *candidate;
}

static struct bpe_candidate bpe_pop(struct model *model)
{
    struct bpe_candidate *heap = model->heap, top = heap[0], last = heap[--model->heap_n];
    size_t at = 0, n = model->heap_n;

    for (size_t below; (below = 2 * at + 1) < n; at = below) {
        if (below + 1 < n && bpe_comes_first(&heap[below + 1], &heap[below]))
            below++;
        if (!bpe_comes_first(&heap[below], &last))
            break;
        heap[at] = heap[below];
    }
    heap[at] = last;
    return top;
}

static void bpe_consider(struct model *model, int32_t left)
{
    const struct bpe_symbol *symbols = model->symbols;

    if (left < 0 || symbols[left].behind < 0)
        return;
    const struct merge *merge =
        merges_find(&model->merges, symbols[left].id, symbols[symbols[left].behind].id);
    if (merge)
        bpe_push(model, &(struct bpe_candidate){
                            .rank = merge->rank, .at = (uint32_t)left, .into = merge->into});
}

static void bpe_merge_one(struct model *model, const struct bpe_candidate *top)
{
    struct bpe_symbol *symbols = model->symbols, *left = &symbols[top->at];

    if (left->length == 0 || left->behind < 0)
        return;
    struct bpe_symbol *right = &symbols[left->behind];
    const struct merge *merge = merges_find(&model->merges, left->id, right->id);
    if (!merge || merge->into != top->into)
        return; /* one of the two has become another since */
    left->id = top->into;
    left->behind = right->behind;
    right->length = 0;
    if (right->behind >= 0)
        symbols[right->behind].before = (int32_t)top->at;
    bpe_consider(model, left->before);
    bpe_consider(model, (int32_t)top->at);
}

static int bpe_merge_long(struct model *model, uint32_t *ids, size_t *n)
{
    size_t count = *n;

    if (count > INT32_MAX / 4)
        return -E2BIG;
    if (!array_reserve(model->symbols, model->symbols_room, count) ||
        !array_reserve(model->heap, model->heap_room, 3 * count))
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        model->symbols[i] = (struct bpe_symbol){.id = ids[i],
                                                .length = 1,
                                                .before = (int32_t)i - 1,
                                                .behind = i + 1 < count ? (int32_t)i + 1 : -1};
    model->heap_n = 0;
    for (size_t i = 0; i < count; i++)
        bpe_consider(model, (int32_t)i);
    while (model->heap_n > 0) {
        struct bpe_candidate top = bpe_pop(model);
        bpe_merge_one(model, &top);
    }
    *n = 0;
    for (int32_t i = 0; i >= 0; i = model->symbols[i].behind)
        ids[(*n)++] = model->symbols[i].id;
    return 0;
}

/* The word's own id; VOCAB_NONE: the vocabulary does not have it as a whole. */
static int bpe_whole(struct model *model, const uint8_t *word, size_t n, uint32_t *ret)
{
    struct growing_bytes *letters = &model->scratch;

    *ret = VOCAB_NONE;
    if (n > model->vocab.longest)
        return 0;
    if (!model->byte_level) {
        *ret = vocab_find(&model->vocab, word, n);
        return 0;
    }
    int r = model_write_letters(word, n, letters);
    if (r == 0)
        *ret = vocab_find(&model->vocab, letters->data, letters->n);
    return r;
}

int bpe_encode(struct model *model, const uint8_t *word, size_t n, struct growing_ids *to)
{
    uint32_t whole = VOCAB_NONE;
    size_t first = to->n;
    int r = model->ignore_merges ? bpe_whole(model, word, n, &whole) : 0;

    if (r < 0)
        return r;
    if (whole != VOCAB_NONE)
        return growing_ids_add_one(to, whole);
    r = bpe_add_symbols(model, word, n, to);
    size_t count = to->n - first;
    if (r < 0 || count < 2)
        return r;
    if (count <= BPE_SHORT)
        count = bpe_merge_short(model, to->data + first, count);
    else
        r = bpe_merge_long(model, to->data + first, &count);
    to->n = first + count;
    return r;
}
