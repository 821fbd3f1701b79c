/*
 * From a text to the leaves of a sample, by a tokenizer.json: what any kind of dataset does with a
 * text whose spec says `tokenizer: huggingface`.
 *
 * Leaves are tensors of one dimension and equal lengths: `tokens` (int64). For masked language
 * models, `labels` (int64), the tokens as they were, and `loss_mask` (bool), true where one was
 * hidden. Of messages, `loss_mask`, true where the assistant speaks. Where a batch pads, it pads
 * these by 0 alike: a collate with `value: 0` leaves the padding out of the loss.
 *
 * Each process that opens one has a copy of its own. Not thread-safe; opening may block on the
 * disk.
 */
#ifndef DL_DATA_TOKENIZER_TOKEN_LEAVES_H
#define DL_DATA_TOKENIZER_TOKEN_LEAVES_H

#include "daemon/data/dataset.h"

#include <jansson.h>

enum { TOKEN_WHY_MAX = 128 };

struct token_leaves;

/* For a spec whose tokenizer is huggingface. Errors name the file, or the key below `place`. */
int _nodiscard_ token_leaves_open(const struct spec_dataset *spec, const char *place,
                                  const struct data_env *env, struct token_leaves **ret,
                                  struct dl_error *err);
void token_leaves_free(struct token_leaves *leaves); /* NULL is fine */

/* Whether samples are made of messages. */
bool token_leaves_has_chat(const struct token_leaves *leaves);

/*
 * Appends the leaves of a text to an open dict. `key` and `index` are the sample's, for what is
 * hidden. 0; -ENOMEM; -EILSEQ: not UTF-8; else another negative errno with words in `why`, of
 * TOKEN_WHY_MAX bytes.
 */
int _nodiscard_ token_leaves_text(struct token_leaves *leaves, const struct sample_key *key,
                                  uint64_t index, const void *text, size_t n, struct sample *ret,
                                  char *why);

/* The same of messages: a list of objects with the strings `role` and `content`. */
int _nodiscard_ token_leaves_chat(struct token_leaves *leaves, const json_t *messages,
                                  struct sample *ret, char *why);

#endif
