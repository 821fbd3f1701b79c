/*
 * tokenize_time TOKENIZER_JSON TEXT SECONDS: how fast one core makes the lines of a text into ids,
 * over and over for so long, without anything around it. Prints seconds of the processor, bytes,
 * ids, and the seconds that opening the tokenizer took, in JSON. Exits with 77 where tokenizers
 * were not built.
 */
#include "daemon/data/decode/tokenizer/tokenizer.h"
#include "daemon/data/files/source.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* One pass: the ids of each line. */
static int pass(struct hf_tokenizer *tokenizer, const struct source *text, uint64_t *ids)
{
    const uint8_t *at = text->data, *end = at + text->bytes;
    int r = 0;

    while (r == 0 && at < end) {
        const uint8_t *lf = memchr(at, '\n', (size_t)(end - at));
        const uint8_t *next = lf ? lf + 1 : end;
        const struct tokenizer_text line = {.text = at, .n = (size_t)(next - at)};
        const uint32_t *found;
        size_t n;
        r = tokenizer_encode(tokenizer, &line, &found, &n);
        *ids += r == 0 ? n : 0;
        at = next;
    }
    return r;
}

static int measure(struct hf_tokenizer *tokenizer, const struct source *text, double seconds,
                   double opened)
{
    uint64_t bytes = 0, ids = 0, warm = 0;
    int r = pass(tokenizer, text, &warm);
    double begin = now();

    while (r == 0 && now() - begin < seconds) {
        r = pass(tokenizer, text, &ids);
        bytes += text->bytes;
    }
    if (r < 0)
        return r;
    printf("{\"seconds\": %.6f, \"bytes\": %llu, \"ids\": %llu, \"opened\": %.6f}\n", now() - begin,
           (unsigned long long)bytes, (unsigned long long)ids, opened);
    return 0;
}

int main(int argc, char **argv)
{
    const struct data_env anywhere = {0};
    struct hf_tokenizer *tokenizer = NULL;
    struct source text = {0};
    struct dl_error err = {0};
    double begin = now();

    if (argc != 4)
        return 2;
    int r = tokenizer_open(argv[1], "dataset", &anywhere, &tokenizer, &err);
    double opened = now() - begin;
    if (r == -ENOTSUP)
        return 77;
    if (r == 0)
        r = source_open(argv[2], &anywhere, &text, &err);
    if (r < 0)
        fprintf(stderr, "%s: %s\n", err.path, err.message);
    else
        r = measure(tokenizer, &text, strtod(argv[3], NULL), opened);
    source_close(&text);
    tokenizer_free(tokenizer);
    return r < 0;
}
