/*
 * Conversations as text, by a template, and which parts of them a loss is taken of.
 *
 *   chatml   <|im_start|>ROLE\nCONTENT<|im_end|>\n                 (OpenAI's; Qwen and others)
 *   llama3   <|begin_of_text|>, then for each message
 *            <|start_header_id|>ROLE<|end_header_id|>\n\nCONTENT<|eot_id|>, CONTENT without the
 *            blanks around it                                      (Meta's model card)
 *   plain    ROLE: CONTENT\n
 *   jinja    the model's own, as transformers renders it: chat_file.h, decode/jinja/jinja.h; what
 *            that does not know, and jinja2 always, by Python: data_env.open_template
 *
 * The loss is of what the model is to write. A template with generation blocks says so. Of another,
 * it is what its loop over the messages writes for one of the role `assistant`, without what it
 * writes for a generation prompt and without blanks behind its end mark.
 *
 * A template has room of its own for the text on its way: not thread-safe.
 */
#ifndef DL_DATA_TOKENIZER_CHAT_H
#define DL_DATA_TOKENIZER_CHAT_H

#include "daemon/data/base/dataset.h"
#include "daemon/data/decode/jinja/jinja.h"

#include <jansson.h>

enum { CHAT_WHY_MAX = JINJA_WHY_MAX };

struct chat;

/* Of a spec whose chat is not none. Errors name the file, or the key below `place`. May block. */
int _nodiscard_ chat_open(const struct spec_dataset *spec, const char *place,
                          const struct data_env *env, struct chat **ret, struct dl_error *err);
void chat_free(struct chat *chat); /* NULL is fine */

/* The i-th token that the template needs, of *ret_n bytes; or NULL. */
const char *chat_needs(enum chat_template chat, size_t i, size_t *ret_n);

/* What a sample has, all borrowed. A prompt's messages come before the others, and no loss is taken
 * of them; beside one, a text is the message of a user, and here of the assistant. */
struct chat_talk {
    const json_t *messages;
    const json_t *prompt; /* NULL: none */
    const json_t *tools;  /* NULL: none */
};

/* It stays until the next call. */
struct chat_text {
    const uint8_t *text;
    size_t n;
    const struct jinja_span *losses; /* in their order; they do not overlap */
    size_t n_losses;
    size_t n_turns; /* of the whole conversation: each begins with a user's message */
};

/*
 * Writes it without `drop` turns, fewer than there are: those behind the system message, or with
 * cut: newest the last ones. -ENOMEM; -E2BIG: too long; -EINVAL with words in `why`, of
 * CHAT_WHY_MAX bytes: they are no messages, or the template refuses them.
 */
int _nodiscard_ chat_write(struct chat *chat, const struct chat_talk *talk, size_t drop,
                           struct chat_text *ret, char *why);

#endif
