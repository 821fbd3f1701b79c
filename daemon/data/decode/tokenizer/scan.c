#include "daemon/data/decode/tokenizer/scan.h"

#include "daemon/data/decode/tokenizer/chars.h"

enum scan scan_find(const char *pattern, size_t n)
{
    static const struct {
        enum scan scan;
        const char *pattern;
    } known[] = {
        {SCAN_GPT2, SCAN_GPT2_PATTERN},
        {SCAN_LLAMA3, SCAN_LIKE_CL100K("\\p{N}{1,3}")},
        {SCAN_QWEN, SCAN_LIKE_CL100K("\\p{N}")},
    };

    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (strlen(known[i].pattern) == n && memcmp(known[i].pattern, pattern, n) == 0)
            return known[i].scan;
    return SCAN_NONE;
}

/* Letter, number, space, or none of them: one bit each. */
enum { SCAN_LETTER = 1, SCAN_NUMBER = 2, SCAN_SPACE = 4, SCAN_SIGN = 8 };

static const uint8_t scan_ascii[128] = {[0 ... 8] = SCAN_SIGN,     [9 ... 13] = SCAN_SPACE,
                                        [14 ... 31] = SCAN_SIGN,   [' '] = SCAN_SPACE,
                                        ['!' ... '/'] = SCAN_SIGN, ['0' ... '9'] = SCAN_NUMBER,
                                        [':' ... '@'] = SCAN_SIGN, ['A' ... 'Z'] = SCAN_LETTER,
                                        ['[' ... '`'] = SCAN_SIGN, ['a' ... 'z'] = SCAN_LETTER,
                                        ['{' ... 127] = SCAN_SIGN};

/* What the character at `at` < n is, and how many bytes it has. */
static inline unsigned scan_class(const uint8_t *text, size_t at, size_t *bytes)
{
    if (text[at] < 0x80) {
        *bytes = 1;
        return scan_ascii[text[at]];
    }
    unsigned classes = char_classes_at(text + at, bytes);
    if (classes & CHAR_LETTER)
        return SCAN_LETTER;
    if (classes & CHAR_NUMBER)
        return SCAN_NUMBER;
    return classes & CHAR_SPACE ? SCAN_SPACE : SCAN_SIGN;
}

/* Behind all characters of these classes. */
static inline size_t scan_run(unsigned classes, const uint8_t *text, size_t n, size_t at)
{
    size_t bytes;

    while (at < n && scan_class(text, at, &bytes) & classes)
        at += bytes;
    return at;
}

static inline bool scan_is_newline(uint8_t byte)
{
    return byte == '\n' || byte == '\r';
}

/* 's, 't, 're, 've, 'm, 'll, 'd at `at`: its bytes; 0: none. Whatever the case, the long s (U+017F)
 * is one, too. */
static size_t scan_contraction(const uint8_t *text, size_t left, bool any_case)
{
    if (left < 2 || text[0] != '\'')
        return 0;
    uint8_t fold = any_case ? 0x20 : 0;
    uint8_t first = text[1] | fold, second = left > 2 ? text[2] | fold : 0;
    if (any_case && left > 2 && text[1] == 0xC5 && text[2] == 0xBF)
        return 3;
    if (text[1] >= 0x80)
        return 0;
    if (first == 's' || first == 't' || first == 'm' || first == 'd')
        return 2;
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
        (first == 'l' && second == 'l'))
        return 3;
    return 0;
}

/* \s+(?!\S)|\s+ : all of them but the last, if something follows and they are several. */
static size_t scan_spaces(const uint8_t *text, size_t n, size_t at)
{
    size_t end = scan_run(SCAN_SPACE, text, n, at);
    size_t last = end - char_bytes_before(text + at, end - at);

    return end == n || last == at ? end : last;
}

static size_t scan_next_gpt2(const uint8_t *text, size_t n, size_t at)
{
    size_t bytes, more = scan_contraction(text + at, n - at, false);
    unsigned class = scan_class(text, at, &bytes);

    if (more)
        return at + more;
    if (class != SCAN_SPACE)
        return scan_run(class, text, n, at + bytes);
    if (text[at] == ' ' && at + 1 < n) {
        class = scan_class(text, at + 1, &bytes);
        if (class != SCAN_SPACE)
            return scan_run(class, text, n, at + 1 + bytes);
    }
    return scan_spaces(text, n, at);
}

/* \s*[\r\n]+ : up to the last newline of the spaces; 0: no newline. */
static size_t scan_newlines(const uint8_t *text, size_t n, size_t at)
{
    size_t end = scan_run(SCAN_SPACE, text, n, at);

    while (end > at && !scan_is_newline(text[end - 1]))
        end--;
    return end > at ? end : 0;
}

/*  ?[^\s\p{L}\p{N}]+[\r\n]* from where the signs begin */
static size_t scan_signs(const uint8_t *text, size_t n, size_t at)
{
    at = scan_run(SCAN_SIGN, text, n, at);
    while (at < n && scan_is_newline(text[at]))
        at++;
    return at;
}

static size_t scan_numbers(const uint8_t *text, size_t n, size_t at, unsigned most)
{
    size_t bytes;

    for (unsigned i = 0; i < most && at < n && scan_class(text, at, &bytes) == SCAN_NUMBER; i++)
        at += bytes;
    return at;
}

static size_t scan_next_cl100k(const uint8_t *text, size_t n, size_t at, unsigned digits)
{
    size_t bytes, more = scan_contraction(text + at, n - at, true), next_bytes;
    unsigned class = scan_class(text, at, &bytes), next = 0;

    if (more)
        return at + more;
    if (class == SCAN_LETTER)
        return scan_run(SCAN_LETTER, text, n, at + bytes);
    if (class == SCAN_NUMBER)
        return scan_numbers(text, n, at, digits);
    if (at + bytes < n)
        next = scan_class(text, at + bytes, &next_bytes);
    if (next == SCAN_LETTER && !scan_is_newline(text[at]))
        return scan_run(SCAN_LETTER, text, n, at + bytes + next_bytes);
    if (class == SCAN_SIGN)
        return scan_signs(text, n, at);
    if (text[at] == ' ' && next == SCAN_SIGN)
        return scan_signs(text, n, at + 1);
    size_t end = scan_newlines(text, n, at);
    return end ? end : scan_spaces(text, n, at);
}

size_t scan_next(enum scan scan, const uint8_t *text, size_t n, size_t at)
{
    if (scan == SCAN_GPT2)
        return scan_next_gpt2(text, n, at);
    return scan_next_cl100k(text, n, at, scan == SCAN_LLAMA3 ? 3 : 1);
}
