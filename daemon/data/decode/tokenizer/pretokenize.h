/*
 * Pre-tokenizers: from text to the words that the model takes one by one, as Hugging Face's
 * tokenizers cut it.
 *
 * Steps one behind the other: each cuts the pieces of the one before. Not thread-safe: steps have
 * room for a piece that they change.
 */
#ifndef DL_DATA_TOKENIZER_PRETOKENIZE_H
#define DL_DATA_TOKENIZER_PRETOKENIZE_H

#include "daemon/data/decode/tokenizer/file.h"
#include "daemon/data/decode/tokenizer/growing.h"
#include "daemon/data/decode/tokenizer/pattern.h"
#include "daemon/data/decode/tokenizer/scan.h"

/* What becomes of a match: it is a piece; it is left out; it is joined to its like, or to what is
 * before it, or behind it. */
enum split_behavior {
    SPLIT_ISOLATED = 1,
    SPLIT_REMOVED,
    SPLIT_CONTIGUOUS,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT
};

enum pre_kind {
    PRE_SCAN = 1, /* by a known pattern */
    PRE_PATTERN,  /* by a pattern */
    PRE_TEXT,     /* by a text */
    PRE_CLASS,    /* by characters of a class */
    PRE_RUNS,     /* into runs of \w, and of what is neither \w nor space */
    PRE_PREFIX,   /* a blank is put before what does not begin with one */
    PRE_META      /* blanks become the replacement, which begins a piece */
};

enum meta_prepend { META_NEVER = 1, META_FIRST, META_ALWAYS };

struct pre_step {
    enum pre_kind kind;
    enum split_behavior behavior;
    bool invert;
    bool split; /* META: or the replacement is all that is done */
    enum scan scan;
    uint8_t class;
    enum meta_prepend prepend;
    struct pattern *pattern;  /* owned */
    char *text;               /* owned; TEXT, META: UTF-8 */
    struct growing_bytes own; /* owned; the piece that it changed */
};

struct piece {
    const uint8_t *text;
    size_t n;
    bool begins; /* with the beginning of the whole text */
};

enum { PRE_STEPS_MAX = 16 };

struct pretokenizer {
    struct pre_step steps[PRE_STEPS_MAX];
    unsigned n;
    bool byte_level; /* the vocabulary has bytes as characters */
    /* Called with each word, none of which is empty; a negative errno ends it. */
    int (*word)(void *owner, const uint8_t *text, size_t n);
    /* Asks the memory for a word that comes soon; may be NULL. */
    void (*expect)(void *owner, const uint8_t *text, size_t n);
    void *owner;
};

/* Reads what stands under `pre_tokenizer`; nothing there: one word is all. */
int _nodiscard_ pretokenizer_read(const struct file_node *node, struct pretokenizer *ret);
void pretokenizer_deinit(struct pretokenizer *pre);

/* -ENOMEM, -ELOOP: a pattern takes too long; or what word() returned. */
int _nodiscard_ pretokenize(struct pretokenizer *pre, const struct piece *piece);

#endif
