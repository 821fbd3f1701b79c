/* What stands in for tokenizers where they were not built. */
#include "daemon/data/decode/tokenizer/tokenizer.h"
#include "daemon/data/decode/tokenizer/tokenizer_read.h"

#include <errno.h>
#include <stdio.h>

bool tokenizer_is_built(void)
{
    return false;
}

int tokenizer_open(const char *path, const char *place, const struct data_env *env,
                   struct hf_tokenizer **ret, struct dl_error *err)
{
    char key[DL_ERROR_PATH_MAX];

    snprintf(key, sizeof key, "%s.tokenizer", place);
    return dl_error_set(
        err, ENOTSUP, key,
        "this dloaderd was built without the tokenizers of Hugging Face: use "
        "Debian's package, build it with libpcre2-dev and libutf8proc-dev, or write "
        "tokenizer: bytes");
}

int tokenizer_read(const void *json, size_t n, const char *path, struct hf_tokenizer **ret,
                   struct dl_error *err)
{
    return dl_error_set(err, ENOTSUP, path, "this dloaderd was built without tokenizers");
}

void tokenizer_free(struct hf_tokenizer *tokenizer)
{
}

bool tokenizer_find(const struct hf_tokenizer *tokenizer, const char *text, size_t n, uint32_t *ret)
{
    return false;
}

bool tokenizer_is_special(const struct hf_tokenizer *tokenizer, uint32_t id)
{
    return false;
}

uint64_t tokenizer_content(const struct hf_tokenizer *tokenizer)
{
    return 0;
}

uint32_t tokenizer_size(const struct hf_tokenizer *tokenizer)
{
    return 0;
}

uint32_t tokenizer_specials(const struct hf_tokenizer *tokenizer)
{
    return 0;
}

uint32_t tokenizer_specials_before(const struct hf_tokenizer *tokenizer)
{
    return 0;
}

uint32_t tokenizer_truncation(const struct hf_tokenizer *tokenizer)
{
    return 0;
}

int tokenizer_encode(struct hf_tokenizer *tokenizer, const struct tokenizer_text *text,
                     const uint32_t **ret, size_t *ret_n)
{
    return -ENOTSUP;
}

int tokenizer_token_at(struct hf_tokenizer *tokenizer, const uint8_t *text, size_t at, bool end,
                       size_t *ret)
{
    return -ENOTSUP;
}
