/*
 * Regular expressions as Hugging Face's tokenizers take them, which is Oniguruma's syntax, by
 * PCRE2.
 *
 * Classes that the two libraries see differently (\s, \w, \d, \h, \b) are written out for PCRE2;
 * what would mean something else there is refused. A search that takes too long ends with an
 * error. A pattern has room of its own for a search: not thread-safe.
 */
#ifndef DL_DATA_TOKENIZER_PATTERN_H
#define DL_DATA_TOKENIZER_PATTERN_H

#include "proto/common/base.h"

enum { PATTERN_WHY_MAX = 160 };

struct pattern;

/* 0; -ENOMEM; or -EINVAL with words in `why`, of PATTERN_WHY_MAX bytes. */
int _nodiscard_ pattern_new(const char *text, size_t n, struct pattern **ret, char *why);
void pattern_free(struct pattern *pattern); /* NULL is fine */

/*
 * The first match in valid UTF-8 at or behind `from`. 1: *start, *end; 0: no match; -ELOOP: it
 * takes too long to say; -ENOMEM.
 */
int _nodiscard_ pattern_find(struct pattern *pattern, const uint8_t *text, size_t n, size_t from,
                             size_t *start, size_t *end);

#endif
