/* Unigram: of all ways to cut a word into tokens the one whose scores have the greatest sum. */
#include "daemon/data/decode/tokenizer/model.h"
#include "proto/common/array.h"
#include "proto/common/bisect.h"
#include "proto/common/utf8.h"

#include <stdio.h>

/* What an unknown character costs, besides the least score. */
static const double UNKNOWN_PENALTY = 10;

/* A node of the trie of all tokens; its children lie side by side, by their bytes. */
struct unigram_node {
    uint32_t first; /* child */
    uint32_t id;    /* VOCAB_NONE: no token ends here */
    uint16_t n;     /* children */
    uint8_t byte;   /* that leads here */
};

/* The best way to a place in the word. */
struct unigram_step {
    double score;
    uint32_t from; /* where its last token begins */
    uint32_t id;   /* which that is; VOCAB_NONE: there is no way yet */
    uint32_t to;   /* on the best way of all: where the next token ends */
};

struct unigram {
    double *scores; /* owned; of each id */
    double unknown;
    struct unigram_node *nodes; /* owned; the first is the root */
    struct unigram_step *steps; /* owned; of the word in hand */
    size_t room;
};

void unigram_free(struct unigram *unigram)
{
    if (!unigram)
        return;
    free(unigram->scores);
    free(unigram->nodes);
    free(unigram->steps);
    free(unigram);
}

/* ---- the trie ------------------------------------------------------------------------------- */

/* Tokens on their way to it: those of a node are some in a row, which begin with the same bytes. */
struct unigram_token {
    const uint8_t *text;
    uint32_t n;
    uint32_t id;
};
struct unigram_range {
    uint32_t begin, end;
    uint32_t depth;
};

static int unigram_compare(const void *a, const void *b)
{
    const struct unigram_token *left = a, *right = b;
    int order = memcmp(left->text, right->text, min_u64(left->n, right->n));

    return order != 0 ? order : (left->n > right->n) - (left->n < right->n);
}

/* The children of node `at` behind the last node; returns how many nodes there are then. */
static uint32_t unigram_grow(struct unigram_node *nodes, struct unigram_range *ranges, uint32_t n,
                             uint32_t at, const struct unigram_token *tokens)
{
    const struct unigram_range *range = &ranges[at];
    uint32_t i = range->begin;

    nodes[at].id = VOCAB_NONE;
    nodes[at].first = n;
    if (i < range->end && tokens[i].n == range->depth)
        nodes[at].id = tokens[i++].id;
    while (i < range->end) {
        uint8_t byte = tokens[i].text[range->depth];
        ranges[n] = (struct unigram_range){.begin = i, .depth = range->depth + 1};
        while (i < range->end && tokens[i].text[range->depth] == byte)
            i++;
        ranges[n].end = i;
        nodes[n++] = (struct unigram_node){.byte = byte};
        nodes[at].n++;
    }
    return n;
}

static int unigram_make_trie(const struct vocab *vocab, struct unigram *ret)
{
    uint64_t most = 1 + vocab->texts.n; /* nodes: a byte each */
    _cleanup_free_ struct unigram_token *tokens = calloc(max_u64(vocab->n, 1), sizeof *tokens);
    _cleanup_free_ struct unigram_range *ranges = NULL;
    struct unigram_node *smaller;
    uint32_t n = 1;

    if (most >= UINT32_MAX)
        return -E2BIG;
    ranges = malloc(most * sizeof *ranges);
    ret->nodes = malloc(most * sizeof *ret->nodes);
    if (!tokens || !ranges || !ret->nodes)
        return -ENOMEM;
    for (size_t i = 0; i < vocab->n; i++)
        tokens[i] = (struct unigram_token){.text = vocab->texts.data + vocab->entries[i].place,
                                           .n = vocab->entries[i].n,
                                           .id = vocab->entries[i].id};
    if (vocab->n > 0)
        qsort(tokens, vocab->n, sizeof *tokens, unigram_compare);
    ranges[0] = (struct unigram_range){.end = (uint32_t)vocab->n};
    ret->nodes[0] = (struct unigram_node){.byte = 0};
    for (uint32_t at = 0; at < n; at++)
        n = unigram_grow(ret->nodes, ranges, n, at, tokens);
    smaller = realloc(ret->nodes, n * sizeof *smaller);
    if (smaller)
        ret->nodes = smaller;
    return 0;
}

static const struct unigram_node *unigram_child(const struct unigram *unigram,
                                                const struct unigram_node *node, uint8_t byte)
{
    uint64_t end = node->first + node->n;
    uint64_t at = BISECT(node->first, end, i, unigram->nodes[i].byte < byte);

    return at < end && unigram->nodes[at].byte == byte ? &unigram->nodes[at] : NULL;
}

/* ---- the file ------------------------------------------------------------------------------- */

/*
 * A score as Hugging Face's library reads it, whose reader of JSON (serde_json) may be one off in
 * the last place: all digits as one number, which is rounded, divided by a power of ten. That
 * decides between ways of equal score. The digits are the fewest that tell the number, as they are
 * written.
 */
static double unigram_score(double exact)
{
    char text[40], power[16];
    double digits;
    int n = 0, exponent;

    do
        snprintf(text, sizeof text, "%.*e", n, exact);
    while (n++ < 16 && strtod(text, NULL) != exact);
    char *e = strchr(text, 'e'), *point = strchr(text, '.');
    if (!e || exact == 0)
        return exact;
    exponent = (int)strtol(e + 1, NULL, 10) - (point ? (int)(e - point - 1) : 0);
    *e = '\0';
    if (point)
        memmove(point, point + 1, strlen(point));
    digits = (double)strtoll(text, NULL, 10);
    snprintf(power, sizeof power, "1e%d", abs(exponent));
    if (exponent < -308)
        return exact;
    return exponent < 0 ? digits / strtod(power, NULL) : digits * strtod(power, NULL);
}

static int unigram_read_token(const struct file_node *item, uint32_t id, struct model *model)
{
    const struct file_node name = file_item(item, 0), score = file_item(item, 1);
    struct unigram *unigram = model->unigram;
    const char *text;
    size_t n;

    if (file_items(item) != 2 || !json_is_number(score.value))
        return file_refuse(item, "is not a token and its score");
    int r = file_need_text(&name, &text, &n);
    if (r < 0)
        return r;
    unigram->scores[id] = unigram_score(json_number_value(score.value));
    if (id == 0 || unigram->scores[id] < unigram->unknown)
        unigram->unknown = unigram->scores[id];
    return vocab_add(&model->vocab, text, n, id) < 0 ? file_no_memory(item) : 0;
}

static int unigram_read_unk(const struct file_node *node, struct model *model)
{
    const struct file_node unk = file_member(node, "unk_id");
    int r = file_need_uint(&unk, &model->unk);

    if (r == 0 && model->unk >= model->vocab.end)
        r = file_refuse(&unk, "is %u, but model.vocab has %u tokens", model->unk, model->vocab.end);
    return r;
}

int unigram_read(const struct file_node *node, struct model *model)
{
    const struct file_node fallback = file_member(node, "byte_fallback");
    const struct file_node vocab = file_member(node, "vocab");
    const size_t n = file_items(&vocab);
    int r = file_bool(&fallback, false, &model->byte_fallback);

    if (r < 0)
        return r;
    if (n == 0 || n >= INT32_MAX)
        return file_refuse(&vocab, "is not a list of tokens and their scores");
    model->unigram = calloc(1, sizeof *model->unigram);
    if (model->unigram)
        model->unigram->scores = calloc(n, sizeof *model->unigram->scores);
    if (!model->unigram || !model->unigram->scores)
        return file_no_memory(node);
    for (size_t i = 0; r == 0 && i < n; i++) {
        const struct file_node item = file_item(&vocab, i);
        r = unigram_read_token(&item, (uint32_t)i, model);
    }
    if (r < 0 || (r = unigram_read_unk(node, model)) < 0)
        return r;
    model->unigram->unknown -= UNKNOWN_PENALTY;
    model_find_bytes(model);
    r = unigram_make_trie(&model->vocab, model->unigram);
    return r < 0 ? file_no_memory(node) : 0;
}

/* ---- words ---------------------------------------------------------------------------------- */

static void unigram_offer(struct unigram_step *steps, size_t from, size_t to, double score,
                          uint32_t id)
{
    score += steps[from].score;
    if (steps[to].id == VOCAB_NONE || score > steps[to].score)
        steps[to] = (struct unigram_step){.score = score, .from = (uint32_t)from, .id = id};
}

/* All tokens that begin at a place, and the character there, if no token is that alone. */
static void unigram_look(const struct model *model, const uint8_t *word, size_t n, size_t from)
{
    const struct unigram *unigram = model->unigram;
    const struct unigram_node *node = &unigram->nodes[0];
    size_t own = utf8_char(word + from, n - from);
    bool known = false;

    for (size_t at = from; at < n && (node = unigram_child(unigram, node, word[at]));) {
        at++;
        if (node->id == VOCAB_NONE)
            continue;
        unigram_offer(unigram->steps, from, at, unigram->scores[node->id], node->id);
        known |= at - from == own;
    }
    if (!known)
        unigram_offer(unigram->steps, from, from + own, unigram->unknown, model->unk);
}

/* The id of a token; or of what is unknown, several in a row at once, its bytes. */
static int unigram_add(const struct model *model, const uint8_t *text, size_t n,
                       struct growing_ids *to)
{
    uint32_t id = vocab_find(&model->vocab, text, n);
    bool bytes = id == VOCAB_NONE && model->byte_fallback;
    int r = 0;

    for (size_t i = 0; bytes && i < n; i++)
        bytes = model->byte_ids[text[i]] != VOCAB_NONE;
    if (!bytes)
        return growing_ids_add_one(to, id == VOCAB_NONE ? model->unk : id);
    for (size_t i = 0; r == 0 && i < n; i++)
        r = growing_ids_add_one(to, model->byte_ids[text[i]]);
    return r;
}

int unigram_encode(struct model *model, const uint8_t *word, size_t n, struct growing_ids *to)
{
    struct unigram *unigram = model->unigram;

    if (!array_reserve(unigram->steps, unigram->room, n + 1))
        return -ENOMEM;
    for (size_t i = 0; i <= n; i++)
        unigram->steps[i] = (struct unigram_step){.id = VOCAB_NONE};
    for (size_t at = 0; at < n; at += utf8_char(word + at, n - at))
        unigram_look(model, word, n, at);
    /* From the end back to where each token begins: what is unknown in a row is one. */
    for (size_t end = n; end > 0;) {
        size_t begin = unigram->steps[end].from;
        while (unigram->steps[end].id == model->unk && begin > 0 &&
               unigram->steps[begin].id == model->unk)
            begin = unigram->steps[begin].from;
        unigram->steps[begin].to = (uint32_t)end;
        end = begin;
    }
    int r = 0;
    for (size_t at = 0, end; r == 0 && at < n; at = end) {
        end = unigram->steps[at].to;
        r = unigram_add(model, word + at, end - at, to);
    }
    return r;
}
