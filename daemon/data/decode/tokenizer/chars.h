/*
 * Characters as Hugging Face's tokenizers class them.
 *
 * The sets are Unicode's, by utf8proc; names are those of the properties. `word` is \w of Rust's
 * regex crate (UTS #18, Annex C): alphabetic, marks, decimal numbers, connectors, joiners. A
 * character that Unicode has added since one of the two libraries was made may be classed
 * otherwise here than there. Thread-safe.
 */
#ifndef DL_DATA_TOKENIZER_CHARS_H
#define DL_DATA_TOKENIZER_CHARS_H

#include "proto/common/utf8.h"

enum char_class {
    CHAR_LETTER = 1 << 0,      /* L */
    CHAR_NUMBER = 1 << 1,      /* N */
    CHAR_SPACE = 1 << 2,       /* White_Space */
    CHAR_WORD = 1 << 3,        /* \w */
    CHAR_PUNCTUATION = 1 << 4, /* P, and all of ASCII that is neither letter, digit nor space */
    CHAR_MARK = 1 << 5,        /* M */
    CHAR_NONSPACING = 1 << 6,  /* Mn */
    CHAR_OTHER = 1 << 7,       /* C without Cn */
};

/* The classes of a character, a mask of enum char_class. */
uint8_t char_classes(uint32_t c);

/* The same of the character that valid UTF-8 begins with; *ret_n: its bytes. Not at the end. */
static inline uint8_t char_classes_at(const uint8_t *text, size_t *ret_n)
{
    size_t n = text[0] < 0x80 ? 1 : text[0] < 0xE0 ? 2 : text[0] < 0xF0 ? 3 : 4;

    *ret_n = n;
    return char_classes(utf8_decode(text, n));
}

/* Bytes of the character that ends where valid UTF-8 does; n > 0. */
static inline size_t char_bytes_before(const uint8_t *text, size_t n)
{
    size_t back = 1;

    while (back < n && (text[n - back] & 0xC0) == 0x80)
        back++;
    return back;
}

/* Writes a character as UTF-8; 1..4 bytes. */
static inline size_t char_encode(uint32_t c, uint8_t out[static 4])
{
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (uint8_t)(0xC0 | c >> 6);
        out[1] = (uint8_t)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (uint8_t)(0xE0 | c >> 12);
        out[1] = (uint8_t)(0x80 | (c >> 6 & 0x3F));
        out[2] = (uint8_t)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (uint8_t)(0xF0 | c >> 18);
    out[1] = (uint8_t)(0x80 | (c >> 12 & 0x3F));
    out[2] = (uint8_t)(0x80 | (c >> 6 & 0x3F));
    out[3] = (uint8_t)(0x80 | (c & 0x3F));
    return 4;
}

static inline bool char_all_ascii(const uint8_t *text, size_t n)
{
    uint8_t any = 0;

    for (size_t i = 0; i < n; i++)
        any |= text[i];
    return any < 0x80;
}

/* Whether a grapheme cluster ends between a character and the next one. *state: 0 at its beginning.
 */
bool char_breaks(uint32_t c, uint32_t next, int32_t *state);

#endif
