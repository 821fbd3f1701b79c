/*
 * A tokenizer.json, a byte 0xFF, and a text. Whatever the file says, it is refused with an error or
 * it tokenizes: the same the second time, when the words are known, and the beginning of it where
 * fewer tokens are wanted. And the patterns that are not matched by PCRE2 match what it does.
 */
#include "daemon/data/decode/tokenizer/pattern.h"
#include "daemon/data/decode/tokenizer/scan.h"
#include "daemon/data/decode/tokenizer/tokenizer_read.h"
#include "proto/common/utf8.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>

enum { IDS_MAX = 4096 };

static bool is_refusal(int r)
{
    return r == -EILSEQ || r == -ELOOP || r == -E2BIG || r == -ENOMEM;
}

static void check_text(struct hf_tokenizer *tokenizer, const uint8_t *text, size_t n)
{
    static uint32_t first[IDS_MAX];
    struct tokenizer_text whole = {.text = text, .n = n, .specials = true};
    const uint32_t *ids;
    size_t count, again;
    int r = tokenizer_encode(tokenizer, &whole, &ids, &count);

    FUZZ_ASSERT(r == 0 || is_refusal(r));
    FUZZ_ASSERT(r == -EILSEQ || utf8_valid(text, n));
    if (r < 0 || count > IDS_MAX)
        return;
    if (count > 0)
        memcpy(first, ids, count * sizeof *ids);
    FUZZ_ASSERT(tokenizer_encode(tokenizer, &whole, &ids, &again) == 0 && again == count);
    FUZZ_ASSERT(count == 0 || memcmp(first, ids, count * sizeof *ids) == 0);
    whole.specials = false;
    FUZZ_ASSERT(tokenizer_encode(tokenizer, &whole, &ids, &count) == 0);
    FUZZ_ASSERT(count + tokenizer_specials(tokenizer) == again);
    if (count > 0)
        memcpy(first, ids, count * sizeof *ids);
    whole.most = 3;
    FUZZ_ASSERT(tokenizer_encode(tokenizer, &whole, &ids, &again) == 0);
    FUZZ_ASSERT(again == min_u64(count, 3));
    FUZZ_ASSERT(again == 0 || memcmp(first, ids, again * sizeof *ids) == 0);
}

/* Characters that tables of any age have. */
static bool is_old(const uint8_t *text, size_t n)
{
    for (size_t at = 0, bytes; at < n; at += bytes) {
        bytes = utf8_char(text + at, n - at);
        if (bytes == 0)
            return false;
        uint32_t c = utf8_decode(text + at, bytes);
        if (c >= 0x400 && !(c >= 0x2000 && c < 0x2070) && !(c >= 0x4E00 && c < 0x9FA6))
            return false;
    }
    return true;
}

static void check_scan(const uint8_t *text, size_t n)
{
    static const char *const patterns[] = {SCAN_GPT2_PATTERN, SCAN_LIKE_CL100K("\\p{N}{1,3}"),
                                           SCAN_LIKE_CL100K("\\p{N}")};
    static struct pattern *compiled[ARRAY_SIZE(patterns)];
    char why[PATTERN_WHY_MAX];

    for (size_t i = 0; i < ARRAY_SIZE(patterns) && is_old(text, n); i++) {
        enum scan scan = scan_find(patterns[i], strlen(patterns[i]));
        size_t start, end;
        int r = 0;
        FUZZ_ASSERT(scan != SCAN_NONE);
        if (!compiled[i])
            FUZZ_ASSERT(pattern_new(patterns[i], strlen(patterns[i]), &compiled[i], why) == 0);
        for (size_t at = 0; at < n; at = end) {
            r = pattern_find(compiled[i], text, n, at, &start, &end);
            if (r < 0)
                break;
            FUZZ_ASSERT(r == 1 && start == at && scan_next(scan, text, n, at) == end);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *mark = size > 0 ? memchr(data, 0xFF, size) : NULL;
    size_t json = mark ? (size_t)(mark - data) : size;
    const uint8_t *text = mark ? mark + 1 : data;
    size_t n = mark ? size - json - 1 : size;
    struct hf_tokenizer *tokenizer = NULL;
    struct dl_error err = {0};

    check_scan(text, n);
    if (json == 0)
        return 0;
    int r = tokenizer_read(data, json, "tokenizer.json", &tokenizer, &err);
    FUZZ_ASSERT(r == -err.code);
    FUZZ_ASSERT(r == 0 || err.message[0]);
    if (r == 0)
        check_text(tokenizer, text, n);
    tokenizer_free(tokenizer);
    return 0;
}
