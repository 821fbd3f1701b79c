/*
 * Conversations as text: a few templates that models are trained with, and which parts of them a
 * loss is taken of.
 *
 *   chatml   <|im_start|>ROLE\nCONTENT<|im_end|>\n                 (OpenAI's; Qwen and others)
 *   llama3   <|begin_of_text|>, then for each message
 *            <|start_header_id|>ROLE<|end_header_id|>\n\nCONTENT<|eot_id|>, CONTENT without the
 *            blanks around it                                      (Meta's model card)
 *   plain    ROLE: CONTENT\n
 *
 * The loss is of what the role `assistant` says, up to and with what ends it: <|im_end|>,
 * <|eot_id|>, or the newline. The header and the content are tokens of their own: no token reaches
 * over the border. Pure.
 */
#ifndef DL_DATA_TOKENIZER_CHAT_H
#define DL_DATA_TOKENIZER_CHAT_H

#include "proto/spec.h"

#include <jansson.h>

enum { CHAT_WHY_MAX = 128 };

/* Hands on each part in its order. 0; -ENOMEM; what `part` returned; or -EINVAL with words in
 * `why`, of CHAT_WHY_MAX bytes: they are no messages. */
int _nodiscard_ chat_write(enum chat_template chat, const json_t *messages,
                           int (*part)(void *owner, const void *text, size_t n, bool loss),
                           void *owner, char *why);

/* The i-th token that the template needs, of *ret_n bytes; or NULL. */
const char *chat_needs(enum chat_template chat, size_t i, size_t *ret_n);

#endif
