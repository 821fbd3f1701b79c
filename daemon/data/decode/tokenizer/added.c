#include "daemon/data/decode/tokenizer/added.h"

#include "daemon/data/decode/tokenizer/chars.h"

/* ---- finding -------------------------------------------------------------------------------- */

/* The longest token that begins at text. VOCAB_NONE: none. */
static uint32_t added_longest(const struct added_set *set, const uint8_t *text, size_t left,
                              size_t *bytes)
{
    for (size_t n = min_u64(left, set->texts.longest); n >= set->shortest && n > 0; n--) {
        uint32_t found = vocab_find(&set->texts, text, n);
        if (found != VOCAB_NONE) {
            *bytes = n;
            return found;
        }
    }
    return VOCAB_NONE;
}

static bool added_is_alone(const uint8_t *text, size_t n, size_t start, size_t end)
{
    size_t bytes;

    if (start > 0 &&
        char_classes_at(text + start - char_bytes_before(text, start), &bytes) & CHAR_WORD)
        return false;
    return end == n || !(char_classes_at(text + end, &bytes) & CHAR_WORD);
}

static size_t added_strip_left(const uint8_t *text, size_t start, size_t done)
{
    size_t bytes;

    while (start > done) {
        size_t before = start - char_bytes_before(text, start);
        if (!(char_classes_at(text + before, &bytes) & CHAR_SPACE))
            break;
        start = before;
    }
    return max_u64(start, done);
}

static size_t added_strip_right(const uint8_t *text, size_t n, size_t end)
{
    size_t bytes;

    while (end < n && char_classes_at(text + end, &bytes) & CHAR_SPACE)
        end += bytes;
    return end;
}

bool added_find(const struct added_set *set, const uint8_t *text, size_t n, size_t at, size_t done,
                struct added_match *ret, size_t *next)
{
    size_t bytes;

    if (set->n == 0)
        return false;
    for (; at < n; at++) {
        if (!set->first[text[at]])
            continue;
        uint32_t found = added_longest(set, text + at, n - at, &bytes);
        if (found == VOCAB_NONE)
            continue;
        const struct added_token *token = &set->tokens[found];
        if (token->single_word && !added_is_alone(text, n, at, at + bytes)) {
            at += bytes - 1; /* what is within it is not looked at either */
            continue;
        }
        *next = at + bytes;
        ret->id = token->id;
        ret->start = token->lstrip ? added_strip_left(text, at, done) : at;
        ret->end = token->rstrip ? added_strip_right(text, n, at + bytes) : at + bytes;
        return true;
    }
    return false;
}

/* ---- reading -------------------------------------------------------------------------------- */

struct added_reading {
    const struct vocab *vocab;
    struct normalizer *normalizer;
    struct added *added;
    uint32_t next; /* the id of the next that is not in the vocabulary */
};

static int added_set_add(const struct file_node *node, struct added_set *set, const uint8_t *text,
                         size_t n, const struct added_token *token)
{
    struct added_token *more;

    if (n == 0)
        return file_refuse(node, "is empty after the normalizer; set its normalized to false");
    /* Which of equal ones counts, there, depends on how long the text is. */
    uint32_t same = vocab_find(&set->texts, text, n);
    if (same != VOCAB_NONE)
        return set->tokens[same].id == token->id
                   ? 0
                   : file_refuse(node, "is the same as another added token after the normalizer; "
                                       "remove one of them, or set its normalized to false");
    if (set->texts.n > 0 && (set->n & (set->n - 1)) == 0) /* a power of two: it is full */
        more = realloc(set->tokens, 2 * set->n * sizeof *more);
    else
        more = set->tokens ? set->tokens : malloc(sizeof *more);
    if (!more)
        return file_no_memory(node);
    set->tokens = more;
    if (vocab_add(&set->texts, text, n, (uint32_t)set->n) < 0)
        return file_no_memory(node);
    set->tokens[set->n++] = *token;
    set->shortest = set->n == 1 ? n : min_u64(set->shortest, n);
    set->first[text[0]] = true;
    return 0;
}

/* What the library makes of the token, whatever the file says: it is in the vocabulary, or follows
 * all that are there. */
static int added_check_id(const struct file_node *node, struct added_reading *rd, const char *text,
                          size_t n, uint32_t *ret)
{
    const struct file_node id = file_member(node, "id");
    uint32_t said, is = vocab_find(rd->vocab, text, n);
    int r = file_need_uint(&id, &said);

    if (r < 0)
        return r;
    if (is == VOCAB_NONE)
        is = vocab_find(&rd->added->ids, text, n);
    if (is == VOCAB_NONE)
        is = rd->next++;
    if (is != said)
        return file_refuse(&id,
                           "is %u, but tokenizers counts it as %u: by model.vocab, or by where "
                           "that ends; correct it",
                           said, is);
    /* As many as the vocabulary has are counted, and not how far its ids go. */
    if (is >= rd->next)
        rd->next = is + 1;
    *ret = is;
    return vocab_add(&rd->added->ids, text, n, is) < 0 ? file_no_memory(node) : 0;
}

static int added_read_flags(const struct file_node *node, struct added_token *token,
                            bool *normalized)
{
    const struct file_node lstrip = file_member(node, "lstrip");
    const struct file_node rstrip = file_member(node, "rstrip");
    const struct file_node single = file_member(node, "single_word");
    const struct file_node normal = file_member(node, "normalized");
    const struct file_node special = file_member(node, "special");
    bool is_special;
    int r = file_bool(&special, false, &is_special);

    if (r < 0 || (r = file_bool(&lstrip, false, &token->lstrip)) < 0 ||
        (r = file_bool(&rstrip, false, &token->rstrip)) < 0 ||
        (r = file_bool(&single, false, &token->single_word)) < 0)
        return r;
    return file_bool(&normal, !is_special, normalized);
}

static int added_read_one(const struct file_node *node, struct added_reading *rd, bool special,
                          bool keep)
{
    const struct file_node content = file_member(node, "content");
    struct added_token token = {0};
    bool normalized, begins = true;
    const char *text;
    size_t n;
    int r = file_need_text(&content, &text, &n);

    if (r < 0 || (r = added_read_flags(node, &token, &normalized)) < 0)
        return r;
    if (n == 0)
        return 0;
    if (!keep)
        return added_check_id(node, rd, text, n, &token.id);
    token.id = vocab_find(&rd->added->ids, text, n);
    rd->added->special[token.id] |= special;
    if (!normalized)
        return added_set_add(node, &rd->added->plain, (const uint8_t *)text, n, &token);
    const uint8_t *normal;
    r = normalize(rd->normalizer, (const uint8_t *)text, n, &normal, &n, &begins);
    if (r < 0)
        return r == -ENOMEM ? file_no_memory(node) : file_refuse(&content, "cannot be normalized");
    return added_set_add(node, &rd->added->normalized, normal, n, &token);
}

/* First each gets its id, then they are kept: the special ones before the others. */
int added_read(const struct file_node *node, const struct vocab *vocab,
               struct normalizer *normalizer, struct added *ret)
{
    struct added_reading rd = {
        .vocab = vocab, .normalizer = normalizer, .added = ret, .next = (uint32_t)vocab->n};
    int r = 0;

    if (node->value && !json_is_array(node->value))
        return file_refuse(node, "is not a list");
    for (size_t i = 0; r == 0 && i < file_items(node); i++) {
        const struct file_node item = file_item(node, i);
        r = added_read_one(&item, &rd, false, false);
    }
    ret->special = calloc(max_u64(ret->ids.end, 1), sizeof *ret->special);
    if (r == 0 && !ret->special)
        r = file_no_memory(node);
    for (unsigned turn = 0; turn < 2; turn++)
        for (size_t i = 0; r == 0 && i < file_items(node); i++) {
            const struct file_node item = file_item(node, i);
            bool special = json_is_true(json_object_get(item.value, "special"));
            if (special == (turn == 0))
                r = added_read_one(&item, &rd, special, true);
        }
    return r;
}

static void added_set_deinit(struct added_set *set)
{
    vocab_deinit(&set->texts);
    free(set->tokens);
}

void added_deinit(struct added *added)
{
    added_set_deinit(&added->plain);
    added_set_deinit(&added->normalized);
    vocab_deinit(&added->ids);
    free(added->special);
    *added = (struct added){0};
}
