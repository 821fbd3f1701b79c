/*
 * How byte-level vocabularies write bytes: GPT-2's table (openai/gpt-2, src/encoder.py,
 * bytes_to_unicode). What Latin-1 can print stands for itself; the others, in their order, are
 * U+0100 and on.
 */
#ifndef DL_DATA_TOKENIZER_BYTE_LEVEL_H
#define DL_DATA_TOKENIZER_BYTE_LEVEL_H

#include "daemon/data/decode/tokenizer/chars.h"

/* Writes the character of a byte as UTF-8; 1 or 2 bytes. */
static inline size_t byte_level_encode(uint8_t byte, uint8_t out[static 4])
{
    uint32_t c = byte;

    if (byte < '!')
        c = 0x100 + byte;
    else if (byte > '~' && byte < 0xA1)
        c = 0x100 + 33 + (byte - 127U);
    else if (byte == 0xAD)
        c = 0x100 + 33 + 34;
    return char_encode(c, out);
}

#endif
