/* What stands in for SentencePiece where it was not built: text_model.c says so to the user. */
#include "daemon/data/decode/tokenizer/sentencepiece.h"

#include <errno.h>

bool spm_is_built(void)
{
    return false;
}

int spm_load(const void *bytes, size_t n, struct spm_model **ret, char *why)
{
    why[0] = '\0';
    return -ENOTSUP;
}

int spm_encode(struct spm_model *model, const void *text, size_t n, const int **ret, size_t *ret_n,
               char *why)
{
    why[0] = '\0';
    return -ENOTSUP;
}

void spm_free(struct spm_model *model)
{
}
