/*
 * From a text to the leaves of a sample: what any kind of dataset does with a text whose spec names
 * a tokenizer. With `bytes` a text's tokens are its bytes, 0..255, which need not be UTF-8; with
 * `sentencepiece` the ids that the model makes of the whole of it, of which the first max_length
 * are kept; with `huggingface` those of a tokenizer.json (tokenizer.h): max_length cuts the text's
 * own, and special tokens stay.
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

#include "daemon/data/base/dataset.h"
#include "daemon/data/decode/tokenizer/chat.h"

enum { TOKEN_WHY_MAX = 160 };

struct token_leaves;

/* For a spec whose tokenizer is not none. Errors name the file, or the key below `place`. */
int _nodiscard_ token_leaves_open(const struct spec_dataset *spec, const char *place,
                                  const struct data_env *env, struct token_leaves **ret,
                                  struct dl_error *err);
void token_leaves_free(struct token_leaves *leaves); /* NULL is fine */

/* Whether samples are made of messages; and whether they have more leaves than `tokens`. */
bool token_leaves_has_chat(const struct token_leaves *leaves);
bool token_leaves_has_mask(const struct token_leaves *leaves);

/* Tokens of a text stand under `name`, which is borrowed, instead of `tokens`. */
void token_leaves_set_name(struct token_leaves *leaves, const char *name);

/* Of the tokenizer bytes: how many tokens a sample has of a text of `n` bytes. */
uint64_t token_leaves_count(const struct token_leaves *leaves, uint64_t n);

/*
 * Appends the leaves of a text to an open dict. `key` and `index` are the sample's, for what is
 * hidden. 0; -ENOMEM; -EILSEQ: not UTF-8; else another negative errno with words in `why`, of
 * TOKEN_WHY_MAX bytes.
 */
int _nodiscard_ token_leaves_text(struct token_leaves *leaves, const struct sample_key *key,
                                  uint64_t index, const void *text, size_t n, struct sample *ret,
                                  char *why);

/* The same of a conversation; with `name` under it and NAME_loss_mask. */
int _nodiscard_ token_leaves_chat(struct token_leaves *leaves, const struct chat_talk *talk,
                                  const char *name, struct sample *ret, char *why);

#endif
