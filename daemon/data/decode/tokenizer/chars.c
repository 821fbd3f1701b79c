#include "daemon/data/decode/tokenizer/chars.h"

#include <utf8proc.h>

static const uint8_t chars_ascii[128] = {
    [0 ... 8] = CHAR_OTHER,           [9 ... 13] = CHAR_OTHER | CHAR_SPACE,
    [14 ... 31] = CHAR_OTHER,         [' '] = CHAR_SPACE,
    ['!' ... '/'] = CHAR_PUNCTUATION, ['0' ... '9'] = CHAR_NUMBER | CHAR_WORD,
    [':' ... '@'] = CHAR_PUNCTUATION, ['A' ... 'Z'] = CHAR_LETTER | CHAR_WORD,
    ['[' ... '^'] = CHAR_PUNCTUATION, ['_'] = CHAR_PUNCTUATION | CHAR_WORD,
    ['`'] = CHAR_PUNCTUATION,         ['a' ... 'z'] = CHAR_LETTER | CHAR_WORD,
    ['{' ... '~'] = CHAR_PUNCTUATION, [127] = CHAR_OTHER,
};

static bool chars_is_space(uint32_t c)
{
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* Alphabetic by Other_Alphabetic alone, and neither a letter nor a mark: circled and squared ones.
 */
static bool chars_is_alphabetic_symbol(uint32_t c)
{
    return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
           (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

static uint8_t chars_of_category(utf8proc_category_t category)
{
    switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return CHAR_LETTER | CHAR_WORD;
    case UTF8PROC_CATEGORY_MN:
        return CHAR_MARK | CHAR_NONSPACING | CHAR_WORD;
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return CHAR_MARK | CHAR_WORD;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
        return CHAR_NUMBER | CHAR_WORD;
    case UTF8PROC_CATEGORY_NO:
        return CHAR_NUMBER;
    case UTF8PROC_CATEGORY_PC:
        return CHAR_PUNCTUATION | CHAR_WORD;
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        return CHAR_PUNCTUATION;
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
        return CHAR_OTHER;
    default:
        return 0;
    }
}

uint8_t char_classes(uint32_t c)
{
    if (c < ARRAY_SIZE(chars_ascii))
        return chars_ascii[c];
    uint8_t classes = chars_of_category(utf8proc_category((utf8proc_int32_t)c));
    if (chars_is_space(c))
        classes |= CHAR_SPACE;
    if (chars_is_alphabetic_symbol(c) || c == 0x200C || c == 0x200D)
        classes |= CHAR_WORD;
    return classes;
}

bool char_breaks(uint32_t c, uint32_t next, int32_t *state)
{
    if (c < 0x80 && next < 0x80 && c != '\r')
        return true;
    return utf8proc_grapheme_break_stateful((utf8proc_int32_t)c, (utf8proc_int32_t)next, state);
}
