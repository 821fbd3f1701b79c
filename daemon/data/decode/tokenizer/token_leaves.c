#include "daemon/data/decode/tokenizer/token_leaves.h"

#include "daemon/data/base/rng.h"
#include "daemon/data/decode/tokenizer/chat.h"
#include "daemon/data/decode/tokenizer/growing.h"
#include "daemon/data/decode/tokenizer/text_model.h"
#include "daemon/data/decode/tokenizer/tokenizer.h"

#include <errno.h>
#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Of ten tokens that are hidden, as BERT's are (Devlin and others, 2019, 3.1, "Masked LM"). */
#define TOKEN_BECOMES_MASK  0.8
#define TOKEN_BECOMES_OTHER 0.9 /* a random one, from there up to here; the rest stays */

/* The tokens of a conversation, and which of them a loss is taken of. */
struct token_chat {
    struct chat_text text;
    struct growing_ids ids;    /* owned */
    struct growing_bytes mask; /* owned */
};

static void token_chat_free(struct token_chat *talk)
{
    if (talk) {
        free(talk->ids.data);
        free(talk->mask.data);
    }
    free(talk);
}

struct token_leaves {
    enum tokenizer kind;
    struct hf_tokenizer *tokenizer; /* owned; of huggingface */
    struct spm_model *pieces;       /* owned; of sentencepiece */
    struct ids_cache *kept;         /* borrowed; NULL: none */
    uint64_t maker;                 /* a hash of all that makes a text's ids, for it */
    uint64_t most;                  /* tokens of a sample; 0: all */
    bool specials;
    bool has_bos, has_eos;
    uint32_t bos, eos, mask;
    double mlm_probability;
    bool has_chat;
    struct chat *chat; /* owned; NULL: samples are texts */
    enum chat_cut cut;
    struct token_chat *talk; /* owned; the conversation on its way */
    const char *name;        /* borrowed; of the leaf */
};

/* ---- opening -------------------------------------------------------------------------------- */

/* A token of the spec, by its number or its text. */
static int token_leaves_find(const struct token_leaves *leaves, const char *place, const char *key,
                             const struct value *token, const char *path, bool *has, uint32_t *ret,
                             struct dl_error *err)
{
    char where[DL_ERROR_PATH_MAX];

    if (token->type != VALUE_STRING && token->type != VALUE_INT)
        return 0;
    snprintf(where, sizeof where, "%s.%s", place, key);
    *has = true;
    if (token->type == VALUE_STRING) {
        if (tokenizer_find(leaves->tokenizer, token->string, strlen(token->string), ret))
            return 0;
        return dl_error_set(err, EINVAL, where, "\"%s\" is not a token of %s; write one that is",
                            token->string, path);
    }
    *ret = (uint32_t)token->integer;
    if (!leaves->tokenizer || *ret < tokenizer_size(leaves->tokenizer))
        return 0;
    return dl_error_set(err, EINVAL, where,
                        "%u is not a token of %s, which has %u; write one that is", *ret, path,
                        tokenizer_size(leaves->tokenizer));
}

static int token_leaves_find_mask(struct token_leaves *leaves, const char *place, const char *path,
                                  struct dl_error *err)
{
    static const char *const names[] = {"[MASK]", "<mask>", "<|mask|>"};
    char where[DL_ERROR_PATH_MAX];

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (tokenizer_find(leaves->tokenizer, names[i], strlen(names[i]), &leaves->mask))
            return 0;
    snprintf(where, sizeof where, "%s.mlm_probability", place);
    return dl_error_set(err, EINVAL, where,
                        "%s has none of the tokens [MASK], <mask> and <|mask|>; take a tokenizer "
                        "of a masked language model",
                        path);
}

/* Tokens that a text's own stand between. */
static uint32_t token_leaves_around(const struct token_leaves *leaves)
{
    return (leaves->specials ? tokenizer_specials(leaves->tokenizer) : 0) + leaves->has_bos +
           leaves->has_eos;
}

static int token_leaves_check_room(const struct token_leaves *leaves, const char *place,
                                   struct dl_error *err)
{
    char where[DL_ERROR_PATH_MAX];
    uint32_t around = token_leaves_around(leaves);

    /* Of other tokenizers, what has no room is left out. */
    if (!leaves->tokenizer || leaves->most == 0 || leaves->most > around)
        return 0;
    snprintf(where, sizeof where, "%s.max_length", place);
    return dl_error_set(err, EINVAL, where,
                        "%llu leaves no room for a text beside %u special tokens; give more, or "
                        "write special_tokens: false and leave bos and eos out",
                        (ull)leaves->most, around);
}

static int token_leaves_open_chat(struct token_leaves *leaves, const struct spec_dataset *spec,
                                  const char *place, const struct data_env *env,
                                  struct dl_error *err)
{
    char where[DL_ERROR_PATH_MAX];
    const char *missing;
    size_t n;
    uint32_t id;

    if (!leaves->has_chat)
        return 0;
    snprintf(where, sizeof where, "%s.chat", place);
    if (leaves->mlm_probability > 0)
        return dl_error_set(err, EINVAL, where,
                            "messages and mlm_probability do not go together; leave one out");
    for (size_t i = 0; (missing = chat_needs(spec->chat, i, &n)); i++)
        if (!tokenizer_find(leaves->tokenizer, missing, n, &id))
            return dl_error_set(err, EINVAL, where,
                                "%s has no token %.*s, which this template writes; take another "
                                "template, or the tokenizer of a model for it",
                                spec->model, (int)n, missing);
    leaves->cut = spec->cut ? spec->cut : CUT_TOKENS;
    if (!(leaves->talk = calloc(1, sizeof *leaves->talk)))
        return dl_error_set(err, ENOMEM, place, "out of memory");
    return chat_open(spec, place, env, &leaves->chat, err);
}

static int token_leaves_open_file(struct token_leaves *leaves, const struct spec_dataset *spec,
                                  const char *place, const struct data_env *env,
                                  struct dl_error *err)
{
    if (leaves->kind == TOKENIZER_SENTENCEPIECE)
        return text_model_open(spec, place, env, &leaves->pieces, &leaves->maker, err);
    if (leaves->kind != TOKENIZER_HUGGINGFACE)
        return 0;
    int r = tokenizer_open(spec->model, place, env, &leaves->tokenizer, err);
    uint32_t most = r == 0 ? tokenizer_truncation(leaves->tokenizer) : 0;

    leaves->maker = r == 0 ? tokenizer_content(leaves->tokenizer) : 0;
    /* Templates of chats are written for transformers, which does not heed it. */
    if (most > 0 && !leaves->has_chat)
        leaves->most = leaves->most ? min_u64(leaves->most, most) : most;
    return r;
}

/* Tokens that a text's ids are cut to; 0: all. */
static uint64_t token_leaves_most(const struct token_leaves *leaves)
{
    return leaves->most ? leaves->most - leaves->has_bos - leaves->has_eos : 0;
}

/* Memory for the ids that this file makes; of conversations the places of tokens are needed, too.
 */
static void token_leaves_find_kept(struct token_leaves *leaves, const struct spec_dataset *spec,
                                   const struct data_env *env)
{
    const uint64_t how[] = {leaves->kind, leaves->specials,
                            leaves->tokenizer ? token_leaves_most(leaves) : 0};

    for (uint32_t i = 0; env && spec->model && !leaves->has_chat && i < env->n_pictures; i++) {
        if (env->pictures[i].ids.arena && strcmp(env->pictures[i].root, spec->model) == 0)
            leaves->kept = &env->pictures[i].ids;
    }
    leaves->maker = XXH3_64bits_withSeed(how, sizeof how, leaves->maker);
}

int token_leaves_open(const struct spec_dataset *spec, const char *place,
                      const struct data_env *env, struct token_leaves **ret, struct dl_error *err)
{
    struct token_leaves *leaves = calloc(1, sizeof *leaves);
    int r;

    if (!leaves)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    leaves->kind = spec->tokenizer;
    leaves->name = "tokens";
    leaves->has_chat = spec->chat > CHAT_NONE;
    leaves->most = spec->max_length;
    leaves->specials = spec->special_tokens && !leaves->has_chat;
    leaves->mlm_probability = spec->mlm_probability;
    if ((r = token_leaves_open_file(leaves, spec, place, env, err)) < 0 ||
        (r = token_leaves_find(leaves, place, "bos", &spec->bos, spec->model, &leaves->has_bos,
                               &leaves->bos, err)) < 0 ||
        (r = token_leaves_find(leaves, place, "eos", &spec->eos, spec->model, &leaves->has_eos,
                               &leaves->eos, err)) < 0 ||
        (r = token_leaves_check_room(leaves, place, err)) < 0 ||
        (r = token_leaves_open_chat(leaves, spec, place, env, err)) < 0 ||
        (leaves->mlm_probability > 0 &&
         (r = token_leaves_find_mask(leaves, place, spec->model, err)) < 0)) {
        token_leaves_free(leaves);
        return r;
    }
    token_leaves_find_kept(leaves, spec, env);
    *ret = leaves;
    return 0;
}

void token_leaves_free(struct token_leaves *leaves)
{
    if (leaves) {
        tokenizer_free(leaves->tokenizer);
        spm_free(leaves->pieces);
        chat_free(leaves->chat);
        token_chat_free(leaves->talk);
    }
    free(leaves);
}

void token_leaves_set_name(struct token_leaves *leaves, const char *name)
{
    leaves->name = name;
}

bool token_leaves_has_chat(const struct token_leaves *leaves)
{
    return leaves->has_chat;
}

bool token_leaves_has_mask(const struct token_leaves *leaves)
{
    return leaves->has_chat || leaves->mlm_probability > 0;
}

/* ---- a text --------------------------------------------------------------------------------- */

static int token_leaves_refuse(int r, char *why)
{
    if (r == -ELOOP)
        snprintf(why, TOKEN_WHY_MAX, "a pattern of the tokenizer takes too long");
    else if (r == -E2BIG)
        snprintf(why, TOKEN_WHY_MAX, "it is too long");
    return r;
}

/* Hides tokens, as the keyed generator says: two numbers for each that may be hidden, whether or
 * not it is. */
static void token_leaves_hide(const struct token_leaves *leaves, const struct sample_key *key,
                              uint64_t index, int64_t *tokens, uint64_t n, bool *mask)
{
    struct rng rng;

    rng_init(&rng, key->seed, key->epoch, key->base + index);
    for (uint64_t i = 0; i < n; i++) {
        mask[i] = false;
        if (tokenizer_is_special(leaves->tokenizer, (uint32_t)tokens[i]))
            continue;
        double hidden = rng_uniform(&rng), becomes = rng_uniform(&rng);
        mask[i] = hidden < leaves->mlm_probability;
        if (mask[i] && becomes < TOKEN_BECOMES_MASK)
            tokens[i] = leaves->mask;
        else if (mask[i] && becomes < TOKEN_BECOMES_OTHER)
            tokens[i] = (int64_t)rng_below(&rng, tokenizer_size(leaves->tokenizer));
    }
}

static int token_leaves_add_mlm(const struct token_leaves *leaves, const struct sample_key *key,
                                uint64_t index, int64_t *tokens, uint64_t n, struct sample *ret)
{
    int64_t *labels = sample_alloc(ret, n * sizeof *labels);
    bool *mask = sample_alloc(ret, n);
    uint64_t begin = n > 0 && leaves->has_bos, end = n - (n > 0 && leaves->has_eos);

    if (!labels || !mask)
        return -ENOMEM;
    memcpy(labels, tokens, n * sizeof *labels);
    memset(mask, 0, n);
    token_leaves_hide(leaves, key, index, tokens + begin, end - begin, mask + begin);
    (void)sample_tensor(ret, "tokens", DL_DTYPE_INT64, 1, &n, tokens);
    (void)sample_tensor(ret, "labels", DL_DTYPE_INT64, 1, &n, labels);
    return sample_tensor(ret, "loss_mask", DL_DTYPE_BOOL, 1, &n, mask);
}

/* Tokens of a text, which stay until the next one. */
struct token_run {
    const uint32_t *ids;  /* of a model; NULL: */
    const uint8_t *bytes; /* each of these is one */
    size_t n;
};

/* How many of `n` tokens are kept, and in *ret_marks how many stand around them. A text without a
 * token has neither bos nor eos; one that is cut ends in eos as others do. */
static uint64_t token_leaves_keep(const struct token_leaves *leaves, uint64_t n,
                                  uint64_t *ret_marks)
{
    uint64_t marks = n > 0 ? (uint64_t)leaves->has_bos + leaves->has_eos : 0;

    if (leaves->most > 0) {
        marks = min_u64(marks, leaves->most);
        n = min_u64(n, leaves->most - marks);
    }
    *ret_marks = marks;
    return n;
}

uint64_t token_leaves_count(const struct token_leaves *leaves, uint64_t n)
{
    uint64_t marks, kept = token_leaves_keep(leaves, n, &marks);

    return kept + marks;
}

static int token_leaves_make(struct token_leaves *leaves, const void *text, size_t bytes,
                             struct token_run *ret, char *why)
{
    const struct tokenizer_text whole = {
        .text = text, .n = bytes, .specials = leaves->specials, .most = token_leaves_most(leaves)};
    char words[SPM_WHY_MAX] = "";
    const int *ids;
    int r;

    if (leaves->kind == TOKENIZER_HUGGINGFACE) {
        r = tokenizer_encode(leaves->tokenizer, &whole, &ret->ids, &ret->n);
        return token_leaves_refuse(r, why);
    }
    if (leaves->kind == TOKENIZER_SENTENCEPIECE) {
        r = spm_encode(leaves->pieces, text, bytes, &ids, &ret->n, words);
        ret->ids = (const uint32_t *)ids;
        snprintf(why, TOKEN_WHY_MAX, "%.*s", TOKEN_WHY_MAX - 1, words);
        return r;
    }
    ret->bytes = text;
    ret->n = bytes;
    return 0;
}

/* The same, from where they are kept, if they are. */
static int token_leaves_encode(struct token_leaves *leaves, const void *text, size_t bytes,
                               struct token_run *ret, char *why)
{
    if (!leaves->kept)
        return token_leaves_make(leaves, text, bytes, ret, why);
    const struct ids_key key = ids_key_of(leaves->maker, text, bytes);
    if (ids_cache_find(leaves->kept, &key, &ret->ids, &ret->n))
        return 0;
    int r = token_leaves_make(leaves, text, bytes, ret, why);
    if (r == 0)
        ids_cache_put(leaves->kept, &key, ret->ids, ret->n);
    return r;
}

static void token_leaves_put(const struct token_run *run, uint64_t n, int64_t *out)
{
    for (uint64_t i = 0; run->ids && i < n; i++)
        out[i] = run->ids[i];
    for (uint64_t i = 0; !run->ids && i < n; i++)
        out[i] = run->bytes[i];
}

int token_leaves_text(struct token_leaves *leaves, const struct sample_key *key, uint64_t index,
                      const void *text, size_t bytes, struct sample *ret, char *why)
{
    struct token_run run = {0};
    int r = token_leaves_encode(leaves, text, bytes, &run, why);
    uint64_t marks, n;

    if (r < 0)
        return r;
    uint64_t kept = token_leaves_keep(leaves, run.n, &marks);
    n = kept + marks;
    int64_t *tokens = n <= SIZE_MAX / sizeof *tokens ? sample_alloc(ret, n * sizeof *tokens) : NULL;
    if (!tokens)
        return -ENOMEM;
    token_leaves_put(&run, kept, tokens + (marks > 0 && leaves->has_bos));
    if (marks > 0 && leaves->has_bos)
        tokens[0] = leaves->bos;
    if (marks > 0 && leaves->has_eos)
        tokens[n - 1] = leaves->eos;
    if (leaves->mlm_probability > 0)
        return token_leaves_add_mlm(leaves, key, index, tokens, n, ret);
    return sample_tensor(ret, leaves->name, DL_DTYPE_INT64, 1, &n, tokens);
}

/* ---- messages ------------------------------------------------------------------------------- */

static int token_chat_mask(struct token_leaves *leaves)
{
    struct token_chat *talk = leaves->talk;
    size_t n = talk->ids.n, from, to;
    int r = growing_bytes_reserve(&talk->mask, n);

    if (r == 0 && n > 0)
        memset(talk->mask.data, 0, n);
    for (size_t i = 0; r == 0 && i < talk->text.n_losses; i++) {
        const struct jinja_span *loss = &talk->text.losses[i];
        r = tokenizer_token_at(leaves->tokenizer, talk->text.text, loss->from, false, &from);
        if (r == 0)
            r = tokenizer_token_at(leaves->tokenizer, talk->text.text, loss->to, true, &to);
        if (r == 0 && from < to)
            memset(talk->mask.data + from, 1, to - from);
    }
    return r;
}

/* Without `drop` turns. */
static int token_chat_encode(struct token_leaves *leaves, const struct chat_talk *given,
                             size_t drop, char *why)
{
    struct token_chat *talk = leaves->talk;
    const uint32_t *ids;
    size_t n;
    int r = chat_write(leaves->chat, given, drop, &talk->text, why);

    if (r < 0)
        return r;
    const struct tokenizer_text whole = {
        .text = talk->text.text, .n = talk->text.n, .placed = true};
    if ((r = tokenizer_encode(leaves->tokenizer, &whole, &ids, &n)) < 0)
        return r;
    talk->ids.n = 0;
    return growing_ids_add(&talk->ids, ids, n);
}

static bool token_chat_fits(const struct token_leaves *leaves)
{
    uint64_t around = (uint64_t)leaves->has_bos + leaves->has_eos;

    return leaves->most == 0 || leaves->talk->ids.n + around <= leaves->most;
}

/* Without the fewest turns with which it fits, or all but one. */
static int token_chat_cut(struct token_leaves *leaves, const struct chat_talk *given, char *why)
{
    size_t long_at = 0, last = leaves->talk->text.n_turns - 1, fits_at = last;
    bool made = false;
    int r = 0;

    while (r == 0 && long_at + 1 < fits_at) {
        size_t middle = long_at + (fits_at - long_at) / 2;
        r = token_chat_encode(leaves, given, middle, why);
        made = r == 0 && token_chat_fits(leaves);
        if (made)
            fits_at = middle;
        else
            long_at = middle;
    }
    return r == 0 && !made ? token_chat_encode(leaves, given, fits_at, why) : r;
}

static int token_leaves_add_chat(const struct token_leaves *leaves, const char *name,
                                 struct sample *ret)
{
    const struct token_chat *talk = leaves->talk;
    uint64_t around = (uint64_t)leaves->has_bos + leaves->has_eos, inner = talk->ids.n, at = 0;
    char mask_name[DL_BOUND_NAME_BYTES + sizeof "_loss_mask"] = "loss_mask";

    if (leaves->most)
        inner = min_u64(inner, leaves->most - around);
    uint64_t n = inner + around;
    int64_t *tokens = sample_alloc(ret, n * sizeof *tokens);
    uint8_t *mask = sample_alloc(ret, n);
    if (!tokens || !mask)
        return -ENOMEM;
    memset(mask, 0, n);
    if (leaves->has_bos)
        tokens[at++] = leaves->bos;
    for (uint64_t i = 0; i < inner; i++, at++) {
        tokens[at] = talk->ids.data[i];
        mask[at] = talk->mask.data[i];
    }
    if (leaves->has_eos)
        tokens[at] = leaves->eos;
    if (name)
        snprintf(mask_name, sizeof mask_name, "%s_loss_mask", name);
    (void)sample_tensor(ret, name ? name : "tokens", DL_DTYPE_INT64, 1, &n, tokens);
    return sample_tensor(ret, mask_name, DL_DTYPE_BOOL, 1, &n, mask);
}

int token_leaves_chat(struct token_leaves *leaves, const struct chat_talk *talk, const char *name,
                      struct sample *ret, char *why)
{
    int r = token_chat_encode(leaves, talk, 0, why);

    if (r == 0 && leaves->cut != CUT_TOKENS && leaves->talk->text.n_turns > 1 &&
        !token_chat_fits(leaves))
        r = token_chat_cut(leaves, talk, why);
    if (r == 0)
        r = token_chat_mask(leaves);
    return r < 0 ? token_leaves_refuse(r, why) : token_leaves_add_chat(leaves, name, ret);
}
