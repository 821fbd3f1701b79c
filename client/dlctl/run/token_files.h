/*
 * Documents of tokens, written as Megatron-LM's indexed dataset: PREFIX.bin has the tokens, one
 * document behind the other, and PREFIX.idx where each begins; megatron_index.h of
 * daemon/data/kinds/megatron has the layout. Tokens take 2 bytes (uint16) as long as they are all
 * below 65,536, and 4 (int32) from the first greater one on: those that were written are widened
 * then. If PREFIX ends with .arrow it is one file instead, of Arrow (token_arrow.h), and of int32.
 *
 * They take the place of former ones when all is written, and until then nothing but
 * PREFIX.bin.part and PREFIX.idx.part, or PREFIX.part, are there. Not thread-safe; blocks on the
 * disk.
 */
#ifndef DLCTL_TOKEN_FILES_H
#define DLCTL_TOKEN_FILES_H

#include "proto/common/error.h"

struct token_files;

/* The directory of `prefix` must be there. A negative errno with `err` naming the file, as of all
 * of these. */
int _nodiscard_ token_files_new(const char *prefix, struct token_files **ret, struct dl_error *err);
struct token_files *token_files_free(struct token_files *files); /* NULL is fine; returns NULL */

/* One more document; of none, too. -ERANGE: a token that is negative, or above int32. */
int _nodiscard_ token_files_add(struct token_files *files, const int64_t *tokens, size_t n,
                                struct dl_error *err);

/* All is there, on the disk; no other document may follow. */
int _nodiscard_ token_files_finish(struct token_files *files, struct dl_error *err);

bool token_files_is_arrow(const struct token_files *files);
uint32_t token_files_width(const struct token_files *files); /* bytes of a token */

#endif
