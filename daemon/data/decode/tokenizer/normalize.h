/*
 * Normalizers: from text to the text that is cut into words, as Hugging Face's tokenizers do it.
 * Not thread-safe: there is room for the text on its way.
 */
#ifndef DL_DATA_TOKENIZER_NORMALIZE_H
#define DL_DATA_TOKENIZER_NORMALIZE_H

#include "daemon/data/decode/tokenizer/charsmap.h"
#include "daemon/data/decode/tokenizer/file.h"
#include "daemon/data/decode/tokenizer/growing.h"
#include "daemon/data/decode/tokenizer/pattern.h"

enum normalize_kind {
    NORMALIZE_NFC = 1,
    NORMALIZE_NFD,
    NORMALIZE_NFKC,
    NORMALIZE_NFKD,
    NORMALIZE_LOWERCASE,
    NORMALIZE_STRIP_LEFT,
    NORMALIZE_STRIP_RIGHT,
    NORMALIZE_WITHOUT_MARKS,      /* StripAccents: without M */
    NORMALIZE_WITHOUT_NONSPACING, /* BertNormalizer: without Mn */
    NORMALIZE_CLEAN,              /* BertNormalizer: without control characters; blanks are " " */
    NORMALIZE_IDEOGRAPHS,         /* BertNormalizer: blanks around Chinese characters */
    NORMALIZE_NMT,
    NORMALIZE_PREPEND,  /* to what is not empty */
    NORMALIZE_CHARSMAP, /* Precompiled: by SentencePiece's table */
    NORMALIZE_REPLACE,  /* a text, or a pattern, by a text */
};

struct normalize_step {
    enum normalize_kind kind;
    char *from;              /* owned; REPLACE: NULL: a pattern */
    char *text;              /* owned; REPLACE, PREPEND */
    struct pattern *pattern; /* owned; REPLACE */
    struct charsmap *map;    /* owned; CHARSMAP */
};

enum { NORMALIZE_STEPS_MAX = 24 };

struct normalizer {
    struct normalize_step steps[NORMALIZE_STEPS_MAX];
    unsigned n;
    struct growing_bytes text[2]; /* owned; of one step and the next */
};

/* Reads what stands under `normalizer`; nothing there: texts stay what they are. */
int _nodiscard_ normalizer_read(const struct file_node *node, struct normalizer *ret);
void normalizer_deinit(struct normalizer *normalizer);

/*
 * The normal form of valid UTF-8; it stays until the next call, and may be the text itself.
 * *begins: whether it still begins where the text does, which is left as it is if nothing went.
 * -ENOMEM, -ELOOP: a pattern takes too long; -E2BIG: too long.
 */
int _nodiscard_ normalize(struct normalizer *normalizer, const uint8_t *text, size_t n,
                          const uint8_t **ret, size_t *ret_n, bool *begins);

#endif
