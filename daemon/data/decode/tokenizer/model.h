/*
 * Models: from a word, which the pre-tokenizers have cut out, to ids. BPE, WordPiece, WordLevel and
 * Unigram as Hugging Face's tokenizers have them, token for token.
 *
 * Where the tokenizer is byte-level, the vocabulary writes each byte as a character of its own
 * (byte_level.h), and the words that come here are still bytes. Only read once it is there, but
 * for `scratch`: not thread-safe.
 */
#ifndef DL_DATA_TOKENIZER_MODEL_H
#define DL_DATA_TOKENIZER_MODEL_H

#include "daemon/data/decode/tokenizer/file.h"
#include "daemon/data/decode/tokenizer/vocab.h"

enum model_kind { MODEL_BPE = 1, MODEL_WORDPIECE, MODEL_WORDLEVEL, MODEL_UNIGRAM };

struct bpe_symbol {
    uint32_t id;
    uint32_t length; /* bytes; 0: merged into one before it */
    int32_t before;  /* symbols; -1: none */
    int32_t behind;
};

struct bpe_candidate {
    uint32_t rank;
    uint32_t at;
    uint32_t into;
};

struct model {
    enum model_kind kind;
    bool byte_level;
    struct vocab vocab;   /* owned */
    struct merges merges; /* owned; BPE */
    uint32_t unk;         /* its id; VOCAB_NONE: what is unknown is left out */
    bool fuse_unk;        /* BPE: several unknown ones in a row are one */
    bool byte_fallback;   /* BPE, Unigram: what is unknown becomes its bytes, if the vocabulary has
                             them */
    bool ignore_merges;   /* BPE: a word of the vocabulary is itself */
    char *prefix;         /* owned; of what does not begin a word; NULL: none */
    char *suffix;         /* owned; BPE: of what ends a word; NULL: none */
    uint32_t most_chars;  /* WordPiece: a longer word is unknown */
    uint32_t byte_ids[256];       /* BPE, Unigram: of <0x00>..<0xFF>, or VOCAB_NONE */
    uint32_t letter_ids[256];     /* BPE, byte-level, without prefix and suffix: of each byte */
    struct unigram *unigram;      /* owned; Unigram: scores and a trie */
    struct growing_bytes scratch; /* owned */
    struct bpe_symbol *symbols;   /* owned; of long words */
    size_t symbols_room;
    struct bpe_candidate *heap; /* owned */
    size_t heap_n;
    size_t heap_room;
};

/* Reads what stands under `model`. */
int _nodiscard_ model_read(const struct file_node *node, bool byte_level, struct model *ret);
void model_deinit(struct model *model);

/* Appends the ids of a word, UTF-8 of n > 0 bytes or, byte-level, any. -ENOMEM; -E2BIG: the word is
 * too long. */
int _nodiscard_ model_encode(struct model *model, const uint8_t *word, size_t n,
                             struct growing_ids *to);

/* Parts of it, for each other. A byte-level word as the vocabulary writes it: -ENOMEM. */
int _nodiscard_ model_write_letters(const uint8_t *word, size_t n, struct growing_bytes *to);
void model_find_bytes(struct model *model); /* byte_ids and letter_ids */
int _nodiscard_ bpe_read(const struct file_node *node, struct model *model);
int _nodiscard_ bpe_encode(struct model *model, const uint8_t *word, size_t n,
                           struct growing_ids *to);
int _nodiscard_ wordpiece_encode(struct model *model, const uint8_t *word, size_t n,
                                 struct growing_ids *to);
int _nodiscard_ unigram_read(const struct file_node *node, struct model *model);
int _nodiscard_ unigram_encode(struct model *model, const uint8_t *word, size_t n,
                               struct growing_ids *to);
void unigram_free(struct unigram *unigram); /* NULL is fine */

#endif
