/*
 * Well-formed UTF-8, as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
 * Pure; any thread.
 */
#ifndef DL_UTF8_H
#define DL_UTF8_H

#include "proto/common/base.h"

/* Bytes of the character that `text` starts with, 1..4; 0 when it is malformed or cut off. */
static inline size_t utf8_char(const uint8_t *text, size_t len)
{
    /* The second byte's range depends on the first: this rejects overlong forms, surrogates and
     * numbers past the end of Unicode. */
    uint8_t low = 0x80, high = 0xBF;
    size_t n;

    if (len == 0)
        return 0;
    if (text[0] < 0x80)
        return 1;
    if (text[0] < 0xC2 || text[0] > 0xF4)
        return 0;
    n = text[0] < 0xE0 ? 2 : text[0] < 0xF0 ? 3 : 4;
    if (len < n)
        return 0;
    if (text[0] == 0xE0)
        low = 0xA0;
    else if (text[0] == 0xED)
        high = 0x9F;
    else if (text[0] == 0xF0)
        low = 0x90;
    else if (text[0] == 0xF4)
        high = 0x8F;
    if (text[1] < low || text[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++)
        if ((text[i] & 0xC0) != 0x80)
            return 0;
    return n;
}

/* The number of the character of `n` bytes that `text` starts with, as utf8_char() found it. */
static inline uint32_t utf8_decode(const uint8_t *text, size_t n)
{
    uint32_t c = n == 1 ? text[0] : text[0] & (0x7FU >> n);

    for (size_t i = 1; i < n; i++)
        c = c << 6 | (text[i] & 0x3FU);
    return c;
}

/* True for UTF-8 that holds no NUL: what every text of the protocol is. Empty text is. */
static inline bool utf8_text(const uint8_t *text, size_t len)
{
    for (size_t i = 0; i < len;) {
        size_t n = text[i] ? utf8_char(text + i, len - i) : 0;
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

/* True for UTF-8, NUL being a character like others: what a string of a sample is. */
static inline bool utf8_valid(const uint8_t *text, size_t len)
{
    for (size_t i = 0; i < len;) {
        uint64_t eight;
        if (len - i >= sizeof eight) {
            memcpy(&eight, text + i, sizeof eight);
            if ((eight & 0x8080808080808080U) == 0) {
                i += sizeof eight;
                continue;
            }
        }
        size_t n = utf8_char(text + i, len - i);
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

#endif
