/*
 * SentencePiece's table of normal forms, as tokenizer.json has it in `precompiled_charsmap`: a trie
 * of what is replaced (a double array, of the library Darts-clone), and the texts that replace it.
 * Applied as Hugging Face's tokenizers do: to grapheme clusters of up to 5 bytes, and to single
 * characters.
 */
#ifndef DL_DATA_TOKENIZER_CHARSMAP_H
#define DL_DATA_TOKENIZER_CHARSMAP_H

#include "daemon/data/decode/tokenizer/file.h"
#include "daemon/data/decode/tokenizer/growing.h"

struct charsmap;

/* Of a node of base64. -EINVAL with its error; -ENOMEM. */
int _nodiscard_ charsmap_read(const struct file_node *node, struct charsmap **ret);
void charsmap_free(struct charsmap *map); /* NULL is fine */

/* Appends the normal form of valid UTF-8. -ENOMEM. */
int _nodiscard_ charsmap_apply(const struct charsmap *map, const uint8_t *text, size_t n,
                               struct growing_bytes *to);

#endif
