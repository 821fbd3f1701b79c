#include "daemon/data/decode/tokenizer/tokenizer.h"

#include "daemon/data/decode/tokenizer/added.h"
#include "daemon/data/decode/tokenizer/model.h"
#include "daemon/data/decode/tokenizer/post.h"
#include "daemon/data/decode/tokenizer/pretokenize.h"
#include "daemon/data/decode/tokenizer/tokenizer_read.h"
#include "daemon/data/decode/tokenizer/word_cache.h"
#include "daemon/data/files/source.h"
#include "proto/common/array.h"
#include "proto/common/utf8.h"

#include <errno.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* The largest that people publish have some 35 MB. */
enum { TOKENIZER_BYTES_MAX = 256 << 20 };

/* What begins at a byte of the text: a token of `added.plain`, or what is between two of these. */
struct tokenizer_place {
    size_t byte;
    size_t token;
    bool added;
};

struct hf_tokenizer {
    struct normalizer normalizer;
    struct pretokenizer pre;
    struct model model;
    struct added added;
    struct post post;
    struct word_cache cache;
    uint32_t truncation;            /* tokens of a text; 0: all */
    uint64_t content;               /* a hash of the file */
    struct growing_ids ids;         /* of the last text */
    size_t enough;                  /* of ids, before the special ones; the rest is not looked at */
    bool placed;                    /* the places of the last text, */
    struct tokenizer_place *places; /* owned; the last one is its end */
    size_t n_places, places_room;
    struct growing_ids part; /* owned; of what is looked at anew */
};

bool tokenizer_is_built(void)
{
    return true;
}

/* ---- a text --------------------------------------------------------------------------------- */

/* Not an error: there are as many as are wanted. */
enum { TOKENIZER_ENOUGH = 1 };

static int tokenizer_word(void *owner, const uint8_t *text, size_t n)
{
    struct hf_tokenizer *tokenizer = owner;
    struct growing_ids *ids = &tokenizer->ids;
    const struct cached_word *cached = word_cache_find(&tokenizer->cache, text, n);
    size_t first = ids->n;
    int r;

    if (cached) {
        r = growing_ids_add(ids, cached->ids, cached->n_ids);
    } else {
        r = model_encode(&tokenizer->model, text, n, ids);
        if (r == 0)
            word_cache_keep(&tokenizer->cache, text, n, ids->data + first, ids->n - first);
    }
    return r == 0 && ids->n >= tokenizer->enough ? TOKENIZER_ENOUGH : r;
}

static void tokenizer_expect(void *owner, const uint8_t *text, size_t n)
{
    const struct hf_tokenizer *tokenizer = owner;

    word_cache_expect(&tokenizer->cache, text, n);
}

static int tokenizer_add(struct hf_tokenizer *tokenizer, uint32_t id)
{
    int r = growing_ids_add_one(&tokenizer->ids, id);

    return r == 0 && tokenizer->ids.n >= tokenizer->enough ? TOKENIZER_ENOUGH : r;
}

static int tokenizer_note(struct hf_tokenizer *tokenizer, size_t byte, bool added)
{
    if (!array_reserve(tokenizer->places, tokenizer->places_room, tokenizer->n_places + 1))
        return -ENOMEM;
    tokenizer->places[tokenizer->n_places++] =
        (struct tokenizer_place){byte, tokenizer->ids.n, added};
    return 0;
}

/* The tokens of `set` become ids, and `then` gets what is between them. */
static int tokenizer_part(struct hf_tokenizer *tokenizer, const struct added_set *set,
                          const struct piece *piece,
                          int (*then)(struct hf_tokenizer *tokenizer, const struct piece *piece))
{
    bool placed = tokenizer->placed && set == &tokenizer->added.plain;
    struct added_match match;
    size_t done = 0, at = 0;
    int r = 0;

    while (r == 0 && added_find(set, piece->text, piece->n, at, done, &match, &at)) {
        if (match.start > done)
            r = then(tokenizer, &(struct piece){.text = piece->text + done,
                                                .n = match.start - done,
                                                .begins = piece->begins && done == 0});
        if (r == 0 && placed)
            r = tokenizer_note(tokenizer, match.start, true);
        if (r == 0)
            r = tokenizer_add(tokenizer, match.id);
        if (r == 0 && placed)
            r = tokenizer_note(tokenizer, match.end, false);
        done = match.end;
    }
    if (r != 0 || done >= piece->n)
        return r;
    return then(tokenizer, &(struct piece){.text = piece->text + done,
                                           .n = piece->n - done,
                                           .begins = piece->begins && done == 0});
}

static int tokenizer_cut(struct hf_tokenizer *tokenizer, const struct piece *piece)
{
    return pretokenize(&tokenizer->pre, piece);
}

static int tokenizer_normalize(struct hf_tokenizer *tokenizer, const struct piece *piece)
{
    struct piece normal = *piece;
    int r = normalize(&tokenizer->normalizer, piece->text, piece->n, &normal.text, &normal.n,
                      &normal.begins);

    return r < 0 ? r
                 : tokenizer_part(tokenizer, &tokenizer->added.normalized, &normal, tokenizer_cut);
}

int tokenizer_encode(struct hf_tokenizer *tokenizer, const struct tokenizer_text *text,
                     const uint32_t **ret, size_t *ret_n)
{
    const struct piece whole = {.text = text->text, .n = text->n, .begins = true};
    const struct post *post = &tokenizer->post;
    size_t before = text->specials ? post->n_before : 0;
    size_t behind = text->specials ? post->n_behind : 0;
    struct growing_ids *ids = &tokenizer->ids;
    int r;

    if (!utf8_valid(text->text, text->n))
        return -EILSEQ;
    tokenizer->enough = text->most ? text->most - behind : SIZE_MAX;
    ids->n = tokenizer->n_places = 0;
    tokenizer->placed = text->placed;
    r = growing_ids_add(ids, post->before, before);
    if (r == 0 && text->placed)
        r = tokenizer_note(tokenizer, 0, false);
    if (r == 0 && ids->n < tokenizer->enough)
        r = tokenizer_part(tokenizer, &tokenizer->added.plain, &whole, tokenizer_normalize);
    if (r >= 0 && text->placed)
        r = tokenizer_note(tokenizer, text->n, false);
    if (r < 0)
        return r;
    ids->n = min_u64(ids->n, tokenizer->enough);
    if ((r = growing_ids_add(ids, post->behind, behind)) < 0)
        return r;
    *ret = ids->data;
    *ret_n = ids->n;
    return 0;
}

/* The tokens of a part of the text, in tokenizer->part. */
static int tokenizer_again(struct hf_tokenizer *tokenizer, const struct piece *piece)
{
    struct growing_ids whole = tokenizer->ids;
    int r;

    tokenizer->ids = tokenizer->part;
    tokenizer->ids.n = 0;
    tokenizer->enough = SIZE_MAX;
    r = tokenizer_normalize(tokenizer, piece);
    tokenizer->part = tokenizer->ids;
    tokenizer->ids = whole;
    return r;
}

int tokenizer_token_at(struct hf_tokenizer *tokenizer, const uint8_t *text, size_t at, bool end,
                       size_t *ret)
{
    const struct tokenizer_place *place = tokenizer->places;
    size_t low = 0, high = tokenizer->n_places - 1, same = 0;
    int r;

    while (low < high) { /* the last place at or before it */
        size_t middle = high - (high - low) / 2;
        if (place[middle].byte <= at)
            low = middle;
        else
            high = middle - 1;
    }
    place += low;
    *ret = place->token;
    if (place->byte == at)
        return 0;
    if (place->added) {
        *ret += end;
        return 0;
    }
    r = tokenizer_again(tokenizer, &(struct piece){.text = text + place->byte,
                                                   .n = at - place->byte,
                                                   .begins = place->byte == 0});
    if (r < 0)
        return r;
    const uint32_t *ids = tokenizer->ids.data + place->token;
    size_t n = min_u64(tokenizer->part.n, place[1].token - place->token);
    while (same < n && ids[same] == tokenizer->part.data[same])
        same++;
    *ret += same;
    if (end && same < tokenizer->part.n && *ret < place[1].token)
        (*ret)++;
    return 0;
}

bool tokenizer_find(const struct hf_tokenizer *tokenizer, const char *text, size_t n, uint32_t *ret)
{
    uint32_t id = vocab_find(&tokenizer->added.ids, text, n);

    if (id == VOCAB_NONE)
        id = vocab_find(&tokenizer->model.vocab, text, n);
    *ret = id;
    return id != VOCAB_NONE;
}

bool tokenizer_is_special(const struct hf_tokenizer *tokenizer, uint32_t id)
{
    return id < tokenizer->added.ids.end && tokenizer->added.special[id];
}

uint32_t tokenizer_size(const struct hf_tokenizer *tokenizer)
{
    return (uint32_t)max_u64(tokenizer->model.vocab.end, tokenizer->added.ids.end);
}

uint32_t tokenizer_specials(const struct hf_tokenizer *tokenizer)
{
    return tokenizer->post.n_before + tokenizer->post.n_behind;
}

uint32_t tokenizer_specials_before(const struct hf_tokenizer *tokenizer)
{
    return tokenizer->post.n_before;
}

uint32_t tokenizer_truncation(const struct hf_tokenizer *tokenizer)
{
    return tokenizer->truncation;
}

/* ---- reading -------------------------------------------------------------------------------- */

static int tokenizer_check_truncation(const struct file_node *truncation)
{
    const struct file_node direction = file_member(truncation, "direction");
    const struct file_node strategy = file_member(truncation, "strategy");
    const char *text;
    size_t n;
    int r;

    if (!json_is_object(truncation->value))
        return file_refuse(truncation, "is not an object");
    if ((r = file_text(&direction, &text, &n)) < 0)
        return r;
    if (text && strcmp(text, "Right") != 0)
        return file_unsupported(&direction, "it cuts texts at their end, by \"Right\"");
    if ((r = file_text(&strategy, &text, &n)) < 0)
        return r;
    if (text && strcmp(text, "LongestFirst") != 0 && strcmp(text, "OnlyFirst") != 0)
        return file_unsupported(&strategy, "it cuts the only text, by \"LongestFirst\"");
    return 0;
}

/* After the post-processor: its tokens count. What is cut off overlaps by the stride, and is not
 * used; but the library refuses one that is too large. */
static int tokenizer_read_truncation(const struct file_node *truncation,
                                     struct hf_tokenizer *tokenizer)
{
    const struct file_node most = file_member(truncation, "max_length");
    const struct file_node stride = file_member(truncation, "stride");
    uint32_t specials = tokenizer_specials(tokenizer), overlap;
    int r;

    if (!truncation->value)
        return 0;
    if ((r = tokenizer_check_truncation(truncation)) < 0 ||
        (r = file_need_uint(&most, &tokenizer->truncation)) < 0 ||
        (r = file_uint(&stride, 0, &overlap)) < 0)
        return r;
    if (tokenizer->truncation <= specials)
        return file_refuse(&most, "leaves no room for a text beside %u special tokens", specials);
    if (overlap >= tokenizer->truncation - specials)
        return file_refuse(&stride, "is not below max_length without special tokens");
    return 0;
}

static int tokenizer_read_parts(const struct file_node *file, struct hf_tokenizer *tokenizer)
{
    const struct file_node truncation = file_member(file, "truncation");
    const struct file_node padding = file_member(file, "padding");
    const struct file_node normalizer = file_member(file, "normalizer");
    const struct file_node pre = file_member(file, "pre_tokenizer");
    const struct file_node model = file_member(file, "model");
    const struct file_node added = file_member(file, "added_tokens");
    const struct file_node post = file_member(file, "post_processor");
    int r;

    if (padding.value)
        return file_unsupported(&padding, "set it to null, and collate: {kind: pad} in the spec");
    if (!json_is_object(model.value))
        return file_refuse(&model, "is not an object; name the tokenizer.json that "
                                   "save_pretrained() or Tokenizer.save() wrote");
    if ((r = normalizer_read(&normalizer, &tokenizer->normalizer)) < 0 ||
        (r = pretokenizer_read(&pre, &tokenizer->pre)) < 0 ||
        (r = model_read(&model, tokenizer->pre.byte_level, &tokenizer->model)) < 0 ||
        (r = added_read(&added, &tokenizer->model.vocab, &tokenizer->normalizer,
                        &tokenizer->added)) < 0)
        return r;
    r = post_read(&post, &tokenizer->post);
    return r < 0 ? r : tokenizer_read_truncation(&truncation, tokenizer);
}

int tokenizer_read(const void *json, size_t n, const char *path, struct hf_tokenizer **ret,
                   struct dl_error *err)
{
    struct hf_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    json_error_t why;
    json_t *root = json_loadb(json, n, JSON_ALLOW_NUL, &why);
    struct file_node file = {.value = root, .path = path, .err = err};
    int r;

    if (!root)
        r = dl_error_set(err, EINVAL, path,
                         "is not JSON (%s, line %d); name the tokenizer.json that "
                         "save_pretrained() or Tokenizer.save() wrote",
                         why.text, why.line);
    else if (!tokenizer || word_cache_init(&tokenizer->cache) < 0 ||
             growing_ids_add_one(&tokenizer->ids, 0) < 0 || /* from then on it is not NULL */
             growing_ids_add_one(&tokenizer->part, 0) < 0)
        r = file_no_memory(&file);
    else
        r = tokenizer_read_parts(&file, tokenizer);
    json_decref(root);
    if (r < 0) {
        tokenizer_free(tokenizer);
        return r;
    }
    tokenizer->pre.word = tokenizer_word;
    tokenizer->pre.expect = tokenizer_expect;
    tokenizer->pre.owner = tokenizer;
    *ret = tokenizer;
    return 0;
}

int tokenizer_open(const char *path, const char *place, const struct data_env *env,
                   struct hf_tokenizer **ret, struct dl_error *err)
{
    _cleanup_free_ uint8_t *data = NULL;
    _cleanup_fd_ int fd = -1;
    uint64_t bytes;
    int r = source_open_file(path, env, &fd, &bytes, err);

    if (r < 0)
        return r;
    if (bytes > TOKENIZER_BYTES_MAX)
        return dl_error_set(err, EINVAL, path,
                            "has %llu bytes and is not a tokenizer.json; name the one that "
                            "save_pretrained() or Tokenizer.save() wrote",
                            (ull)bytes);
    data = malloc(bytes + 1);
    if (!data)
        return dl_error_set(err, ENOMEM, path, "out of memory for the tokenizer");
    if ((r = source_read_file(fd, path, data, bytes, &bytes, err)) < 0)
        return r;
    r = tokenizer_read(data, bytes, path, ret, err);
    if (r == 0)
        (*ret)->content = XXH3_64bits(data, bytes);
    return r;
}

uint64_t tokenizer_content(const struct hf_tokenizer *tokenizer)
{
    return tokenizer->content;
}

void tokenizer_free(struct hf_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    normalizer_deinit(&tokenizer->normalizer);
    pretokenizer_deinit(&tokenizer->pre);
    model_deinit(&tokenizer->model);
    added_deinit(&tokenizer->added);
    word_cache_deinit(&tokenizer->cache);
    free(tokenizer->ids.data);
    free(tokenizer->part.data);
    free(tokenizer->places);
    free(tokenizer);
}
