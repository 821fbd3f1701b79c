/*
 * From the text of a tokenizer.json to a tokenizer; without files, for tokenizer.c and for tests.
 */
#ifndef DL_DATA_TOKENIZER_READ_H
#define DL_DATA_TOKENIZER_READ_H

#include "daemon/data/decode/tokenizer/tokenizer.h"

/* `path` is what errors name. -EINVAL, -ENOMEM. The text is not needed afterwards. */
int _nodiscard_ tokenizer_read(const void *json, size_t n, const char *path,
                               struct hf_tokenizer **ret, struct dl_error *err);

#endif
