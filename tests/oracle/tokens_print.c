/*
 * tokens_print TOKENIZER_JSON: the ids of each text on standard input, which is texts of a length,
 * 4 bytes in the machine's order, and so many bytes: one line a text, ids separated by blanks, or
 * "error" and a number. Status 77 where tokenizers were not built, 1 and a message for a file that
 * is refused.
 */
#include "daemon/data/decode/tokenizer/tokenizer.h"

#include <errno.h>
#include <stdio.h>

static void print_ids(struct hf_tokenizer *tokenizer, const uint8_t *text, uint32_t n)
{
    const struct tokenizer_text whole = {
        .text = text, .n = n, .specials = true, .most = tokenizer_truncation(tokenizer)};
    const uint32_t *ids;
    size_t count;
    int r = tokenizer_encode(tokenizer, &whole, &ids, &count);

    if (r < 0) {
        printf("error %d\n", -r);
        return;
    }
    for (size_t i = 0; i < count; i++)
        printf("%s%u", i > 0 ? " " : "", ids[i]);
    putchar('\n');
}

static int print_all(struct hf_tokenizer *tokenizer)
{
    _cleanup_free_ uint8_t *text = NULL;
    uint32_t n;

    while (fread(&n, sizeof n, 1, stdin) == 1) {
        /* Of just this size, so that ASan sees one byte too far. */
        free(text);
        text = malloc(max_u64(n, 1));
        if (!text || fread(text, 1, n, stdin) != n)
            return -EIO;
        print_ids(tokenizer, text, n);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct data_env anywhere = {0};
    struct hf_tokenizer *tokenizer = NULL;
    struct dl_error err = {0};

    if (argc != 2)
        return 2;
    int r = tokenizer_open(argv[1], "dataset", &anywhere, &tokenizer, &err);
    if (r == -ENOTSUP)
        return 77;
    if (r < 0)
        fprintf(stderr, "%s: %s\n", err.path, err.message);
    else
        r = print_all(tokenizer);
    tokenizer_free(tokenizer);
    return r < 0;
}
