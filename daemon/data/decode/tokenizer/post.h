/*
 * Post-processors: the special tokens that a text gets before and behind its own.
 */
#ifndef DL_DATA_TOKENIZER_POST_H
#define DL_DATA_TOKENIZER_POST_H

#include "daemon/data/decode/tokenizer/file.h"
#include "daemon/data/decode/tokenizer/growing.h"

enum { POST_TOKENS_MAX = 64 };

struct post {
    uint32_t before[POST_TOKENS_MAX];
    uint32_t behind[POST_TOKENS_MAX];
    unsigned n_before;
    unsigned n_behind;
};

/* Reads what stands under `post_processor`, for texts that come one by one. */
int _nodiscard_ post_read(const struct file_node *node, struct post *ret);

#endif
