/*
 * Added tokens: texts that are a token wherever they stand, before anything else is done with what
 * is around them. Special ones, such as <|endoftext|>, are among them.
 *
 * There are two sets: what is looked for in the text as it is, and what is looked for behind the
 * normalizer. Of those that begin at the same place the longest counts. Read once, then only read:
 * thread-safe from then on.
 */
#ifndef DL_DATA_TOKENIZER_ADDED_H
#define DL_DATA_TOKENIZER_ADDED_H

#include "daemon/data/decode/tokenizer/file.h"
#include "daemon/data/decode/tokenizer/normalize.h"
#include "daemon/data/decode/tokenizer/vocab.h"

struct added_token {
    uint32_t id;
    bool lstrip; /* takes the spaces before it */
    bool rstrip; /* and those behind it */
    bool single_word;
};

struct added_set {
    struct vocab texts;         /* owned: text → index in `tokens` */
    struct added_token *tokens; /* owned */
    size_t n;
    size_t shortest; /* bytes */
    bool first[256]; /* bytes that one begins with */
};

struct added {
    struct added_set plain;      /* in the text as it is */
    struct added_set normalized; /* behind the normalizer */
    struct vocab ids;            /* owned: content → id, of all */
    bool *special;               /* owned; of each id below ids.end */
};

/* Reads what stands under `added_tokens`. Ids are those of `vocab`, or follow it. */
int _nodiscard_ added_read(const struct file_node *node, const struct vocab *vocab,
                           struct normalizer *normalizer, struct added *ret);
void added_deinit(struct added *added);

/* A token in a text: what lies before it, from where the one before ended, is left to others. */
struct added_match {
    uint32_t id;
    size_t start; /* bytes */
    size_t end;
};

/*
 * The next token at or behind `at`; `done`: the end of the one before, whose spaces are not taken
 * again. False: no more tokens. `next`: where to continue.
 */
bool added_find(const struct added_set *set, const uint8_t *text, size_t n, size_t at, size_t done,
                struct added_match *ret, size_t *next);

#endif
