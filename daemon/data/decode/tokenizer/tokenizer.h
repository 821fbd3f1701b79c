/*
 * Tokenizers of Hugging Face: what a tokenizer.json says, done in C, token for token as the library
 * `tokenizers` does it.
 *
 * What a file asks for and is not here is refused when it is opened. tokenizer.c is compiled where
 * the libraries are that it needs (PCRE2, utf8proc), tokenizer_none.c elsewhere. A tokenizer has
 * room of its own for the text on its way and for words that it has seen (4 MiB): not thread-safe,
 * but several may be used at once, each by its own thread.
 *
 * Kinds of datasets that have text use token_leaves.h.
 */
#ifndef DL_DATA_TOKENIZER_H
#define DL_DATA_TOKENIZER_H

#include "daemon/data/base/dataset.h"

struct hf_tokenizer;

/* Whether this program has tokenizers; if not, tokenizer_open() says -ENOTSUP. */
bool tokenizer_is_built(void);

/*
 * Reads the tokenizer.json at `path` by the rights that `env` gives. `place` is where the dataset
 * stands in the spec. Errors name the file, and the place in it; or PLACE.tokenizer where this
 * program has no tokenizers (-ENOTSUP). May block on the disk.
 */
int _nodiscard_ tokenizer_open(const char *path, const char *place, const struct data_env *env,
                               struct hf_tokenizer **ret, struct dl_error *err);
void tokenizer_free(struct hf_tokenizer *tokenizer); /* NULL is fine */

/* The id of one whole token, such as "<s>". False: no token has this text. */
bool tokenizer_find(const struct hf_tokenizer *tokenizer, const char *text, size_t n,
                    uint32_t *ret);

/* Whether the file calls this id special, as <s>. */
bool tokenizer_is_special(const struct hf_tokenizer *tokenizer, uint32_t id);

/* A hash of its file. */
uint64_t tokenizer_content(const struct hf_tokenizer *tokenizer);

/* All ids are below this; 0: no ids. */
uint32_t tokenizer_size(const struct hf_tokenizer *tokenizer);

/* Tokens that the file's post-processor adds to each text. */
uint32_t tokenizer_specials(const struct hf_tokenizer *tokenizer);

/* Those of them that come before the text. */
uint32_t tokenizer_specials_before(const struct hf_tokenizer *tokenizer);

/* What the file cuts a text to, those included; 0: nothing. Callers pass it as `most`. */
uint32_t tokenizer_truncation(const struct hf_tokenizer *tokenizer);

struct tokenizer_text {
    const uint8_t *text; /* borrowed; need not end with NUL */
    size_t n;            /* bytes */
    bool specials;       /* with what the post-processor adds */
    uint64_t most;       /* tokens, those included; the text is cut at its end; 0: all */
    bool placed;         /* where its tokens are will be asked */
};

/*
 * The ids of a text, which stay until the next call. 0; -ENOMEM; -EILSEQ: it is not UTF-8; -E2BIG:
 * too long; -ELOOP: a pattern of the file takes too long at it. `most` must be at least
 * tokenizer_specials() where these are asked for.
 */
int _nodiscard_ tokenizer_encode(struct hf_tokenizer *tokenizer, const struct tokenizer_text *text,
                                 const uint32_t **ret, size_t *ret_n);

/*
 * Of the last text, which was `placed` and still is at `text`: the number of the token that byte
 * `at` is in, or of the first behind it; with `end`, of the first that is wholly behind the bytes
 * before it. What is between two of the file's added tokens is looked at anew up to there: where
 * that makes other tokens of what is before than the whole text had, the first of these counts.
 */
int _nodiscard_ tokenizer_token_at(struct hf_tokenizer *tokenizer, const uint8_t *text, size_t at,
                                   bool end, size_t *ret);

#endif
